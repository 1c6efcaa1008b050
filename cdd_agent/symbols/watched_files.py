"""The project's files for language servers: which of them changed, and whether an answer fits them."""

import codecs
import os
import re
from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.rpc import HINT
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServerError, TextEdit
from cdd_agent.untrusted.python_source import decode, split_lines

Change: TypeAlias = Literal["created", "changed", "removed"]


class AnswerContradictsFiles(SymbolServerError):
    """An engine answered, but its answer cannot be that of the files as they are."""


class WatchedFiles:
    """Finds the files that changed since the last question to a server, by their status."""

    def __init__(self, index: Index) -> None:
        """Start with a server that knows no file."""
        self._index = index
        self._known: dict[str, int] = {}
        self._noted = set[str]()

    def forget(self) -> None:
        """Report all files as created next time, because the server was restarted."""
        self._known.clear()

    def note(self, paths: Collection[str]) -> None:
        """Report these files as changed, even if their status is the same."""
        self._noted.update(map(os.path.normpath, paths))

    def take(self) -> dict[str, Change]:
        """Return the changes since the last call; at first all files are created."""
        now = self._index.list_versions()
        found: dict[str, Change] = dict.fromkeys(self._known.keys() - now.keys(), "removed")
        for path, version in now.items():
            if path not in self._known:
                found[path] = "created"
            elif self._known[path] != version or path in self._noted:
                found[path] = "changed"
        self._known = now
        self._noted.clear()
        return found


class Position(NamedTuple):
    """A position in a file: the line is 1-based, the column counts characters from 0."""

    path: str
    line: int
    column: int


class SourceLines:
    """The lines of the project's files, each file read once."""

    def __init__(self, index: Index) -> None:
        """Make one for each answer, because files change between questions."""
        self._index = index
        self._paths = frozenset(index.list_paths())
        self._lines: dict[str, list[str]] = {}
        self._marked = set[str]()

    def __contains__(self, path: object) -> bool:
        """Return whether a path is a Python file of the project."""
        return path in self._paths

    def read(self, path: str) -> list[str]:
        """Return the lines of a file of the project; none if it cannot be read any more."""
        if path not in self._lines:
            try:
                content = self._index.read(path)
            except UsageError:
                content = b""
            self._lines[path] = split_lines(decode(content))
            if content.startswith(codecs.BOM_UTF8):
                self._marked.add(path)
        return self._lines[path]

    def find_mark(self, path: str, line: int) -> str:
        """Return the byte order mark before a line of a file that was read, which servers count and Python does not."""
        return "\ufeff" if line == 1 and path in self._marked else ""

    def find_name(self, name: str, *, path: str, line: int) -> list[Position]:
        """Return where a line has a name, also in strings and comments."""
        text = "".join(self.read(path)[line - 1 : line]) if line > 0 else ""
        found = re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text)
        return [Position(path, line, each.start()) for each in found]

    def make_references(self, places: Iterable[Position], *, name: str) -> tuple[Reference, ...]:
        """Return the uses of ``name`` at ``places``, sorted and each once; raises ``AnswerContradictsFiles``."""
        # A call of a class uses its __init__.
        expected = "" if name.startswith("__") and name.endswith("__") else name
        found = list[Reference]()
        around: dict[str, tuple[Symbol, ...]] = {}
        for path, line, column in sorted(set(places)):
            lines = self.read(path)
            text = lines[line - 1] if 0 < line <= len(lines) else ""
            if not text.startswith(expected, column) or column >= len(text):
                raise AnswerContradictsFiles(f"{path} does not use {name} in line {line}, column {column}.", hint=HINT)
            if path not in around:
                around[path] = self._index.list_last_read(path)
            names = [
                each.name for each in around[path] if each.kind != "variable" and each.line <= line <= each.end_line
            ]
            inside = names[-1] if names else ""
            found.append(Reference(path=path, line=line, column=column, text=text, inside=inside))
        return tuple(found)

    def require_rename(self, edits: Collection[TextEdit], symbol: Symbol, *, new: str) -> None:
        """Raise ``AnswerContradictsFiles`` unless all edits replace the name of the symbol, and one its definition."""
        for edit in edits:
            lines = self.read(edit.path) if edit.path in self else []
            line = lines[edit.line - 1] if 0 < edit.line <= len(lines) else ""
            if edit.line != edit.end_line or line[edit.column : edit.end_column] != symbol.last_name or edit.new != new:
                happened = f"It changes something else than the name {symbol.last_name} in {edit.path}:{edit.line}."
                raise AnswerContradictsFiles(happened, hint=HINT)
        if not any(
            (edit.path, edit.line, edit.column) == (symbol.path, symbol.name_line, symbol.name_column) for edit in edits
        ):
            happened = f"It does not rename the definition in {symbol.path}:{symbol.name_line}."
            raise AnswerContradictsFiles(happened, hint=HINT)
