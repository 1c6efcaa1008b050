"""The calls by which a process changes files, and how to kill it at one of them: by way of ``strace``."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

LONGEST_S = 600.0
"""Of a run that is traced with all it starts."""

_WRITES = (
    *("write", "pwrite64", "writev", "sendfile", "copy_file_range", "fsync", "ftruncate", "truncate"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"),
    *("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
)
_STARTS = ("vfork", "clone", "clone3")
_LASTING = frozenset({"update-ref", "symbolic-ref", "commit", "notes", "reset", "read-tree", "checkout-index"})
"""Commands of git after which the project is another; the rest only read, or add objects that nothing names yet."""
_CALL = re.compile(r"(?P<process>\d+) +(?P<name>\w+)\((?P<arguments>.*?)(?:\) += (?P<result>\S+)| <unfinished)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The N-th time that a process makes a call."""

    call: str
    number: int
    about: str
    """The file it changes; after which command of git, for the start of the next one."""

    def __str__(self) -> str:
        """``rename 5 (execution-state.json)``."""
        return f"{self.call} {self.number} ({self.about})"

    def fails_with(self, fault: str) -> tuple[str, ...]:
        """What the program is started by in order to meet ``fault`` here: ``signal=SIGKILL``, ``error=ENOSPC``.

        A signal comes before the call is carried out.
        """
        inject = f"inject={self.call}:{fault}:when={self.number}"
        return ("strace", "-qq", "-o", "/dev/null", "-e", f"trace={self.call}", "-e", inject)


class Target(Protocol):
    """A program that changes files in one folder."""

    @property
    def folder(self) -> Path:
        """Where what is found out may be kept."""
        ...

    @property
    def project(self) -> Path:
        """What it changes the files of."""
        ...

    def start(self, *prefix: str) -> "subprocess.Popen[bytes]":
        """Start it by way of ``prefix``, its errors readable."""
        ...


def why_not() -> str:
    """Why processes cannot be killed at a call here; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e", "inject=write:signal=SIGKILL:when=1", "echo"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return "" if tried.returncode == -9 else f"strace may not trace here: {tried.stderr.decode().strip()}"


def points_of(target: Target) -> tuple[Point, ...]:
    """Every call of a whole run that changes a file of the project, or follows a command that did, in their order."""
    log = target.folder / "calls"
    traced = ",".join((*_WRITES, *_STARTS, "execve"))
    with target.start("strace", "-f", "-qq", "-y", "-e", f"trace={traced}", "-e", "signal=none", "-o", str(log)) as run:
        _, errors = run.communicate(timeout=LONGEST_S)
    if run.returncode:
        raise RuntimeError(f"the traced run failed: {errors.decode()}")
    return tuple(_read(log, project=target.project))


def _read(log: Path, *, project: Path) -> Iterator[Point]:
    seen: Counter[str] = Counter()
    ours, before = "", ""
    for found in map(_CALL.match, log.read_text(errors="replace").splitlines()):
        if found is None:
            continue
        call, arguments = found["name"], found["arguments"]
        ours = ours or found["process"]
        if call == "execve":
            words = re.findall(r'"([^"]*)"', arguments)
            before = next((word for word in words[1:] if word in _LASTING), "")
        elif found["process"] == ours:
            seen[call] += 1
            changed = arguments.partition(",")[0]
            inside = re.search(rf'[<"]({re.escape(str(project))}(?:/[^">]*)?)[">]', changed)
            if call in _STARTS and before:
                yield Point(call=call, number=seen[call], about=f"after git {before}")
            elif inside is not None and found["result"] != "-1":
                yield Point(call=call, number=seen[call], about=Path(inside[1]).name)
