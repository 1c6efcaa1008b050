"""The records about symbols, and the port of the engines that find uses and plan renames."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from cdd_agent.errors import EnvironmentMissing

SymbolKind: TypeAlias = Literal["class", "function", "method", "variable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A definition in a Python file."""

    path: str
    """Relative to the project, with forward slashes."""
    name: str
    """Qualified inside of the file, such as ``Class.method``."""
    kind: SymbolKind
    line: int
    """1-based, of the first decorator; ``end_line`` is the last line."""
    end_line: int
    name_line: int
    """Where the name itself is: the line is 1-based, the column counts characters from 0."""
    name_column: int
    header: str
    """Its whole signature in one line; the first line of a variable."""
    summary: str
    """The first line of the docstring."""
    index: int | None = None
    """Its position among the definitions of this name in the file, if there are several."""
    is_stub: bool = False
    """Whether the body only raises ``NotImplementedError``."""
    bases: tuple[str, ...] = ()
    """Of a class: their source."""
    base_imports: tuple[str, ...] = ()
    """The dotted name under which each base is imported, such as ``.tables.Table``; empty for another base."""

    @property
    def reference(self) -> str:
        """The name that finds this definition alone in its file, such as ``Class.method`` or ``Class.method[1]``."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    @property
    def last_name(self) -> str:
        """The name without those of the definitions around it."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A place that uses a symbol."""

    path: str
    line: int
    """1-based; the column counts characters from 0."""
    column: int
    text: str
    """The line."""
    inside: str
    """Qualified name of the definition around it; empty at module level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit:
    """One replacement in a file. Lines are 1-based, columns count characters from 0."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    new: str


class SymbolServer(Protocol):
    """An engine that answers questions about symbols. Its methods raise ``SymbolServerError``."""

    name: str

    def find_references(self, symbol: Symbol) -> tuple[Reference, ...]:
        """Return the places that use a symbol, without its definition."""
        ...

    def plan_rename(self, symbol: Symbol, new: str) -> tuple[TextEdit, ...]:
        """Return the replacements, also that of the definition, which rename a symbol."""
        ...

    def note_changes(self, paths: Collection[str]) -> None:
        """Take notice of files that were written, created or removed."""
        ...

    def close(self) -> None:
        """End the program of the engine, if it has started one."""
        ...


class SymbolServerError(EnvironmentMissing):
    """An engine did not answer, or not in time, or its answer contradicts the files."""
