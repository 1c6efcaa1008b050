"""The definitions of all Python files of a project, kept up to date by the status of files and folders.

Nothing is followed through a link. A question first asks for the status of all files, and reads those that differ.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cdd_agent.errors import UsageError, format_count, format_size, join_first
from cdd_agent.symbols.definitions import SourceFile
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.untrusted import paths
from cdd_agent.workspace.files import SKIPPED_FOLDERS, ConfinedFolder

MOST_BYTES = 2_000_000
"""Size of the largest file that is read."""
MOST_FILES = 20_000
MOST_SYMBOLS = 500_000
"""Of the whole project. Beyond them, files are only listed as too many."""
ENDINGS = (".py", ".pyi", ".pyw")
_NAME = re.compile(r"(?P<name>.+?)(?:\[(?P<index>\d{1,6})\])?", re.DOTALL)
# The time of a change has the resolution of the kernel's clock, at worst 10 ms; of some file systems, seconds.
_UNSURE_NS, _UNSURE_SECONDS_NS = 50_000_000, 2_500_000_000
_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class _Stamp:
    """By what a change of a file or folder is noticed."""

    inode: int
    size: int
    changed_ns: int
    written_ns: int
    is_sure: bool
    """Whether a later change would get another time."""


@dataclass(frozen=True, slots=True)
class _IndexedFile:
    stamp: _Stamp
    symbols: tuple[Symbol, ...]
    problem: str
    version: int = 0


class Index:
    """Finds definitions by name."""

    def __init__(
        self,
        root: Path,
        *,
        list_ignored: Callable[[], Collection[str]] = tuple,
        may_read: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Index the files below ``root`` at the first question; the other parameters are those of ``Workspace``."""
        self.root = Path(os.path.realpath(root))
        self._list_ignored, self._may_read = list_ignored, may_read
        self._beneath = ConfinedFolder(self.root)
        self._folders: dict[str, tuple[_Stamp, tuple[str, ...], tuple[str, ...]]] = {}
        """Path -> stamp, the folders and the files in it."""
        self._listed, self._left_out = set[str](), set[str]()
        """The paths that ``list_ignored`` was asked about, and those that it has."""
        self._files: dict[str, _IndexedFile] = {}
        self._names: dict[str, dict[str, tuple[Symbol, ...]]] = {}
        """Last part of a name -> path -> symbols."""
        self._count = 0
        self.generation = 0
        """Another number after each change that was seen."""

    @property
    def problems(self) -> Mapping[str, str]:
        """Path -> why the definitions of a file are unknown, as of the last question."""
        return MappingProxyType({path: each.problem for path, each in self._files.items() if each.problem})

    def list_paths(self) -> tuple[str, ...]:
        """Return the paths of all Python files, sorted."""
        self.refresh()
        return tuple(sorted(self._files))

    def list_versions(self) -> dict[str, int]:
        """Return the path of each file -> a number, another one if the file has changed or may have changed."""
        self.refresh()
        return {path: each.version for path, each in self._files.items()}

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of the index; raises ``UsageError``."""
        try:
            return self._beneath.read(path, MOST_BYTES)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="name another file") from error

    def read_source(self, path: str) -> SourceFile:
        """Return a file with its tree; raises ``UsageError`` with the place if it cannot be parsed."""
        return SourceFile(path, self.read(path))

    def list_file(self, path: str) -> tuple[Symbol, ...]:
        """Return the definitions of a file, in the order of their lines; raises ``UsageError`` if it cannot be read."""
        self.refresh()
        found = self._files.get(os.path.normpath(path))
        if found is None:
            hint = "name a file such as src/module.py"
            raise UsageError(f"{path} is not a Python file of the project.", hint=hint)
        if found.problem:
            raise UsageError(found.problem, hint="correct the file with Edit first")
        return found.symbols

    def list_last_read(self, path: str) -> tuple[Symbol, ...]:
        """Return the definitions of a file as of the last question; none of a file that cannot be read."""
        return self._files.get(path, _NOTHING).symbols

    def find(self, name: str, *, path: str = "") -> tuple[Symbol, ...]:
        """Return all definitions with a name, those first whose whole qualified name it is; then by path and line.

        ``name``: ``function``, ``Class.method``, ``Class/method``, ``module.function``, or one of several with this
        name in a file, such as ``function[1]``. A slash at the beginning allows nothing around it. ``path``: a file
        or folder; raises ``UsageError`` for a file that cannot be parsed.
        """
        exact, loose = self._match(name, path)
        return (*exact, *loose)

    def _match(self, name: str, path: str) -> tuple[list[Symbol], list[Symbol]]:
        """Return the definitions whose qualified name is meant as a whole, and those that others contain."""
        self.refresh()
        matched = _NAME.fullmatch(name.strip())
        parts = re.split(r"\.|/|::", (matched["name"] if matched else "").replace(".<locals>", "").lstrip("/"))
        index = int(matched["index"]) if matched and matched["index"] else None
        place = os.path.normpath(path) if path else ""
        if place and self._files.get(place, _NOTHING).problem:
            self.list_file(place)
        exact, loose = list[Symbol](), list[Symbol]()
        found = self._names.get(parts[-1], {})
        for where in sorted(found):
            if place in ("", ".", where) or where.startswith(f"{place}/"):
                for symbol in found[where]:
                    own = symbol.name.split(".")
                    is_exact = (_list_module_parts(where) + own)[-len(parts) :] == parts and len(parts) >= len(own)
                    is_loose = not name.strip().startswith("/") and own[-len(parts) :] == parts
                    if (is_exact or is_loose) and index in (None, symbol.index):
                        (exact if is_exact else loose).append(symbol)
        return exact, loose

    def find_one(self, name: str, *, path: str = "") -> Symbol:
        """Return the definition with a name. Raises ``UsageError`` with all of them if there is none or are several.

        If the name is the whole qualified name of exactly one definition, it is meant, though others contain it.
        """
        exact, loose = self._match(name, path)
        meant = exact or loose
        if len(meant) == 1:
            return meant[0]
        where = f" in {path}" if path else ""
        if meant:
            rows = [f"{each.path}:{each.line} {each.reference}: {each.header}" for each in (*exact, *loose)]
            listed = join_first(rows, most=_MOST_SHOWN, separator="\n  ")
            first = meant[0]
            hint = f"name one of them, such as {first.reference} in {first.path}"
            happened = f"{name} is ambiguous{where}: {len(rows)} definitions have this name:\n  {listed}"
            raise UsageError(happened, hint=hint)
        unread = [*self.problems.values()] if not path else []
        happened = f"Nothing{where} defines {name}."
        if unread:
            listed = join_first(unread, most=3, separator=" ")
            happened += f" The definitions of {format_count(len(unread), 'file')} are unknown: {listed}"
        raise UsageError(happened, hint="check the name, or search for it with Grep")

    def refresh(self) -> None:
        """Read what has changed since the last question."""
        listed = self._list_files()
        for path in self._files.keys() - listed:
            self._forget(path)
        root, now = f"{self.root}/", time.time_ns()
        for path in listed:
            try:
                about = os.lstat(root + path)
            except OSError:
                if path in self._files:
                    self._forget(path)
                continue
            known = self._files.get(path)
            if known is None or not _is_same(known.stamp, about):
                self._read(path, _stamp(about, now))

    def _list_files(self) -> dict[str, None]:
        """Return the paths of all Python files; folders are listed again if they have changed."""
        waiting, files = [""], dict[str, None]()
        while waiting and len(files) < MOST_FILES:
            folder = waiting.pop()
            known = self._folders.get(folder)
            try:
                about = os.lstat(f"{self.root}/{folder}")
                if not stat.S_ISDIR(about.st_mode):
                    raise NotADirectoryError(folder)
                if known is None or not _is_same(known[0], about):
                    stamp = _stamp(about, time.time_ns())
                    known = self._folders[folder] = (stamp, *self._list_folder(folder))
            except OSError:
                self._folders.pop(folder, None)
                continue
            waiting += known[1]
            files.update(dict.fromkeys(known[2]))
        return files

    def _list_folder(self, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the folders and the files of a folder that are part of the index."""
        entries = self._beneath.list_entries(folder)
        if any(each.name in paths.ENVIRONMENT_MARKS for each in entries):
            return (), ()
        folders, files = list[str](), list[str]()
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.kind == "folder" and paths.fold_name(entry.name) not in SKIPPED_FOLDERS:
                folders.append(path)
            elif entry.kind == "file" and path.endswith(ENDINGS) and not paths.is_secret(path) and self._may_read(path):
                files.append(path)
        if not self._listed.issuperset((*folders, *files)):  # git is asked only if there are new files
            ignored = frozenset(self._list_ignored())
            self._left_out.update(path for path in (*folders, *files) if not ignored.isdisjoint((path, f"{path}/")))
            self._listed.update(folders, files)
        return (
            tuple(path for path in folders if path not in self._left_out),
            tuple(path for path in files if path not in self._left_out),
        )

    def _read(self, path: str, stamp: _Stamp) -> None:
        self._forget(path)
        symbols, problem = tuple[Symbol, ...](), ""
        try:
            if stamp.size > MOST_BYTES:
                problem = f"{path} is larger than {format_size(MOST_BYTES)}."
            elif self._count >= MOST_SYMBOLS:
                problem = f"{path} is not read: the project has more than {MOST_SYMBOLS:,} definitions."
            else:
                symbols = self.read_source(path).symbols
        except UsageError as error:
            problem = error.happened
        self._files[path] = _IndexedFile(stamp, symbols, problem, self.generation)
        self._count += len(symbols)
        by_name: dict[str, list[Symbol]] = {}
        for symbol in symbols:
            by_name.setdefault(symbol.last_name, []).append(symbol)
        for name, found in by_name.items():
            self._names.setdefault(name, {})[path] = tuple(found)

    def _forget(self, path: str) -> None:
        self.generation += 1
        known = self._files.pop(path, _NOTHING)
        self._count -= len(known.symbols)
        for name in {each.last_name for each in known.symbols}:
            self._names[name].pop(path, None)
            if not self._names[name]:
                del self._names[name]


_NOTHING = _IndexedFile(_Stamp(0, 0, 0, 0, True), (), "")


def _stamp(about: os.stat_result, now: int) -> _Stamp:
    unsure = _UNSURE_NS if about.st_ctime_ns % 1_000_000 else _UNSURE_SECONDS_NS
    is_sure = now - about.st_ctime_ns > unsure
    return _Stamp(about.st_ino, about.st_size, about.st_ctime_ns, about.st_mtime_ns, is_sure)


def _is_same(stamp: _Stamp, about: os.stat_result) -> bool:
    return (
        stamp.is_sure
        and stamp.changed_ns == about.st_ctime_ns
        and stamp.written_ns == about.st_mtime_ns
        and stamp.inode == about.st_ino
        and stamp.size == about.st_size
    )


def _list_module_parts(path: str) -> list[str]:
    """Return the names of the folders and the module of a file; that of ``__init__`` is left out."""
    parts = path.rpartition(".")[0].split("/")
    return parts[:-1] if parts[-1] == "__init__" else parts


def list_modules(path: str) -> Iterable[str]:
    """Yield the dotted names by which a file may be imported, the longest first."""
    parts = _list_module_parts(path)
    return (".".join(parts[at:]) for at in range(len(parts)))
