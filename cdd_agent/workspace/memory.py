"""Project memory: what the project tells every agent about how it is worked on, in ``AGENTS.md`` and ``CLAUDE.md``.

They are read in each folder from the top of the git work tree down to the project's, so that what is nearer comes
later. They are files of the repository like any other: no link leads out of it, no secrets are read, and what they
say is given to a model as text that others wrote.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.config.trust import top_of
from cdd_agent.errors import UsageError
from cdd_agent.workspace.files import Workspace

NAMES = ("AGENTS.md", "CLAUDE.md")
"""In this order, in each folder."""

KB = 1024
MOST_BYTES = 32 * KB
"""Of all of them together; what is nearest to the project is cut last."""

MOST_READ_BYTES = 1024 * 1024
"""Of one file; a larger one is none that was written for this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file of the memory."""

    path: str
    """Relative to the top of the work tree."""
    text: str
    size_bytes: int
    """Of the whole file."""
    is_cut: bool = False
    """Whether ``text`` is only its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that is remembered of a project."""

    documents: tuple[Document, ...] = ()
    """Those farthest from the project first."""
    remarks: tuple[str, ...] = ()
    """What could not be read, and why."""

    @property
    def told(self) -> str:
        """``Project memory: AGENTS.md (1.2 KB)``; empty if there is none."""
        shown = [f"{each.path} ({_size(each)})" for each in self.documents]
        parts = ([f"Project memory: {', '.join(shown)}"] if shown else []) + list(self.remarks)
        return "; ".join(parts)


NO_MEMORY = Memory()


def read_memory(project: Path) -> Memory:
    """The memory of ``project`` as its files are now; a file that may not be read, or is none, leaves a remark."""
    workspace = Workspace(_top(project))
    inside = project.resolve().relative_to(workspace.root).parts
    folders = ["/".join(inside[:end]) for end in range(len(inside) + 1)]
    documents: list[Document] = []
    remarks: list[str] = []
    known: set[str] = set()
    for path in (f"{folder}/{name}" if folder else name for folder in folders for name in NAMES):
        if not os.path.lexists(workspace.root / path):
            continue
        try:
            name = workspace.readable(path)
            data = workspace.read(path, cap_bytes=MOST_READ_BYTES)
        except UsageError as error:
            remarks.append(f"{path} is left out: {error.happened}")
            continue
        text = data.decode("utf-8", "replace").removeprefix("\ufeff").strip()
        if text and name not in known:
            known.add(name)
            documents.append(Document(path=path, text=text, size_bytes=len(data)))
    return Memory(documents=_capped(documents), remarks=tuple(remarks))


def _top(project: Path) -> Path:
    """The top of the git work tree, unless it is somebody else's: whoever can write above a project is not asked."""
    top, here = top_of(project), project.resolve()
    owners = {os.geteuid(), 0, here.stat().st_uid}
    return top if all(folder.stat().st_uid in owners for folder in (top, *_between(top, here))) else here


def _between(top: Path, project: Path) -> list[Path]:
    """The folders below ``top`` on the way to ``project``."""
    return [folder for folder in project.parents if folder.is_relative_to(top)]


def _capped(documents: list[Document]) -> tuple[Document, ...]:
    """``documents`` with as much text as there is room for, the last ones first."""
    room = MOST_BYTES
    kept: list[Document] = []
    for document in reversed(documents):
        encoded = document.text.encode("utf-8")
        text = encoded[:room].decode("utf-8", "ignore")
        room -= min(room, len(encoded))
        kept.insert(
            0,
            Document(
                path=document.path, text=text, size_bytes=document.size_bytes, is_cut=len(text) < len(document.text)
            ),
        )
    return tuple(kept)


def _size(document: Document) -> str:
    """``1.2 KB``, and how much of it is given on if that is not all."""
    size = document.size_bytes
    told = f"{size / 1024:.1f} KB" if size >= KB else f"{size} bytes"
    read = len(document.text.encode("utf-8")) / 1024
    return f"{told}, cut to {read:.1f} KB" if document.is_cut else told
