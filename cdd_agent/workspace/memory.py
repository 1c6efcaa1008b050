"""Reads project memory: the instructions for agents in ``AGENTS.md`` and ``CLAUDE.md``.

The files are read in each folder from the top of the git work tree down to the project, the nearest last. They are
ordinary files of the repository: the workspace refuses links that lead outside and files of secrets, and models get
their text marked as written by others.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.config.trust import find_top
from cdd_agent.errors import UsageError
from cdd_agent.workspace.files import Workspace

NAMES = ("AGENTS.md", "CLAUDE.md")
"""Names of memory files, in the order in which they are read in each folder."""
KB = 1024
MOST_BYTES = 32 * KB
"""Limit for all files together; the nearest to the project are cut last."""
MOST_READ_BYTES = 1024 * 1024
"""Limit for one file; larger files are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFile:
    """One memory file."""

    path: str
    """Relative to the top of the work tree."""
    text: str
    size_bytes: int
    """Size of the whole file."""
    is_cut: bool = False
    """Whether ``text`` is only the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a project."""

    files: tuple[MemoryFile, ...] = ()
    """The files, those farthest from the project first."""
    remarks: tuple[str, ...] = ()
    """Which files were left out, and why."""

    @property
    def summary(self) -> str:
        """``Project memory: AGENTS.md (1.2 KB)``, or an empty text."""
        shown = [f"{each.path} ({_format_size(each)})" for each in self.files]
        parts = ([f"Project memory: {', '.join(shown)}"] if shown else []) + list(self.remarks)
        return "; ".join(parts)


NO_MEMORY = Memory()


def read_memory(project: Path) -> Memory:
    """Read the memory of ``project``; a file that cannot be read adds a remark."""
    workspace = Workspace(_find_top(project))
    inside = project.resolve().relative_to(workspace.root).parts
    folders = ["/".join(inside[:end]) for end in range(len(inside) + 1)]
    files: list[MemoryFile] = []
    remarks: list[str] = []
    known: set[str] = set()
    for path in (f"{folder}/{name}" if folder else name for folder in folders for name in NAMES):
        if not os.path.lexists(workspace.root / path):
            continue
        try:
            file = workspace.read_text(path, cap_bytes=MOST_READ_BYTES)
        except UsageError as error:
            remarks.append(f"{path} is left out: {error.happened}")
            continue
        text = file.text.encode("utf-8", "replace").decode().strip()
        if text and file.name not in known:
            known.add(file.name)
            files.append(MemoryFile(path=path, text=text, size_bytes=len(file.data)))
    return Memory(files=_cap_files(files), remarks=tuple(remarks))


def _find_top(project: Path) -> Path:
    """Return the top of the git work tree, or the project if another user owns a folder above it."""
    top, here = find_top(project), project.resolve()
    # On a shared machine, another user could place instructions above the project.
    owners = {os.geteuid(), 0, here.stat().st_uid}
    above = (folder for folder in (top, *here.parents) if folder.is_relative_to(top))
    return top if all(folder.stat().st_uid in owners for folder in above) else here


def _cap_files(files: list[MemoryFile]) -> tuple[MemoryFile, ...]:
    """Cut the texts to ``MOST_BYTES`` in all; the first files are cut first."""
    room = MOST_BYTES
    capped: list[MemoryFile] = []
    for file in reversed(files):
        encoded = file.text.encode("utf-8")
        text = encoded[:room].decode("utf-8", "ignore")
        room -= min(room, len(encoded))
        capped.append(replace(file, text=text, is_cut=len(text) < len(file.text)))
    return tuple(reversed(capped))


def _format_size(file: MemoryFile) -> str:
    size = file.size_bytes
    size_text = f"{size / 1024:.1f} KB" if size >= KB else f"{size} bytes"
    read = len(file.text.encode("utf-8")) / 1024
    return f"{size_text}, cut to {read:.1f} KB" if file.is_cut else size_text
