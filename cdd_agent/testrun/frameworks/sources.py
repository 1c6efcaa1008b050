"""The project's own files: which of them a tool names in its output, and on which line a test begins."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.failure import TEXT_CAP

FILES_CAP = 50_000
SOURCE_CAP_BYTES = 2_000_000

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def plain(output: str) -> str:
    """``output`` without colors, and with lines that end as here."""
    return _ANSI.sub("", output).replace("\r\n", "\n")


def capped(text: str, cap: int = TEXT_CAP) -> str:
    """The beginning and the end of ``text``, if all of it is longer than ``cap`` characters."""
    return text if len(text) <= cap else f"{text[: cap * 2 // 3]}\n[...]\n{text[-cap // 3 :]}"


class Sources:
    """The files below one folder, looked at when they are asked for. No link is followed."""

    def __init__(self, root: Path, *, suffixes: tuple[str, ...], made: tuple[str, ...] = ()) -> None:
        """``suffixes``: how the names of source files end; ``made``: folders of what was built or fetched.

        What lies in such a folder is not the project's own, unless that is itself in one called ``src``.
        """
        self.root = root.absolute()
        self.suffixes = suffixes
        self._made = frozenset((*made, "node_modules"))
        self._files: tuple[str, ...] | None = None
        self._texts: dict[str, str] = {}

    def files(self) -> tuple[str, ...]:
        """Every source file, posix and relative to the folder; no more than a cap."""
        if self._files is None:
            self._files = tuple(sorted(self._walk()))
        return self._files

    def _walk(self) -> Iterator[str]:
        count = 0
        for folder, folders, names in os.walk(self.root):
            inside = Path(folder).relative_to(self.root).parts
            folders[:] = sorted(name for name in folders if not self._is_made((*inside, name)))
            for name in names:
                count += 1
                if name.endswith(self.suffixes):
                    yield (Path(folder) / name).relative_to(self.root).as_posix()
            if count > FILES_CAP:
                return

    def own(self, told: str) -> str | None:
        """The file of the project that a tool calls ``told``, relative to the folder; None if it is not one of its.

        A relative path may begin above the folder, as compilers name files from a workspace's top.
        """
        path = PurePosixPath(told.strip())
        if "\0" in told or ".." in path.parts:
            return None
        if path.is_absolute():
            for root in (self.root, self.root.resolve()):
                if path.is_relative_to(root.as_posix()):
                    return self._kept(path.relative_to(root.as_posix()))
            return None
        ends = (PurePosixPath(*path.parts[at:]) for at in range(len(path.parts)))
        return next(filter(None, map(self._kept, ends)), None)

    def _kept(self, path: PurePosixPath) -> str | None:
        if self._is_made(path.parts[:-1]):
            return None
        try:
            here = self.root / path
            return path.as_posix() if here.is_file() and not here.is_symlink() else None
        except (OSError, ValueError):
            return None

    def _is_made(self, folders: tuple[str, ...]) -> bool:
        outer = folders[: folders.index("src")] if "src" in folders else folders
        return any(name in self._made for name in outer) or any(name.startswith(".") for name in folders)

    def text(self, path: str) -> str:
        """What is in a file; empty if it cannot be read."""
        if path not in self._texts:
            try:
                data = read_ordinary(self.root / path, limit_bytes=SOURCE_CAP_BYTES)
            except (OSError, ValueError):
                data = b""
            self._texts[path] = data.decode("utf-8", "replace")
        return self._texts[path]

    def line_of(self, path: str, pattern: str) -> int:
        """The 1-based line of the only place in ``path`` that fits ``pattern``; 0 if there is none, or more."""
        text = self.text(path)
        found = [match.start() for match in re.finditer(pattern, text, re.MULTILINE)]
        return text.count("\n", 0, found[0]) + 1 if len(found) == 1 else 0


def split_target(target: str) -> tuple[str, str]:
    """The file or folder of a target, and the name in it, empty if it has none."""
    file, _, name = target.partition("::")
    return file.removeprefix("./").rstrip("/"), name


def only(values: Iterable[str]) -> tuple[str, ...]:
    """``values`` in their order, each once."""
    return tuple(dict.fromkeys(values))
