"""Views of a generated repository for the search for a fault: code of a file or node, and dependencies.

Each view is a record, which is shown as text or as JSON.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from cdd_agent.errors import UsageError, format_count
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.tickets.graph import Graph, NodeId, find_needs

HOPS = 2
"""How far dependencies are followed."""
MOST_BRANCHES = 30
"""Nodes that are shown below one node."""
MOST_ROWS = 200
"""Definitions of a file that are shown."""
MOST_LINES = 250
"""Lines of a definition that are shown."""
MOST_NEEDED_LINES = 150
"""Lines of code that a definition needs, and that are shown with it."""
STUB = "not yet generated"


class Definitions(Protocol):
    """Finds the definitions in the files of a project."""

    def find(self, name: str, *, path: str = "") -> tuple[Symbol, ...]:
        """Return all definitions with a name; ``path`` limits them to a file."""

    def list_file(self, path: str) -> tuple[Symbol, ...]:
        """Return the definitions of a file; raises ``UsageError`` if it is missing or cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The lines of one definition."""

    path: str
    name: str
    first: int
    lines: tuple[str, ...]
    is_stub: bool = False
    omitted: int = 0
    """Lines at the end that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeView:
    """The interfaces of a file, and the whole code of some of its definitions."""

    path: str
    interfaces: tuple[Symbol, ...] = ()
    bodies: tuple[Body, ...] = ()
    needed: tuple[Body, ...] = ()
    """Code that the bodies need, as far as it fits."""
    omitted: int = 0
    """Interfaces that are left out."""
    problem: str = ""
    """Why the definitions are unknown."""

    def __str__(self) -> str:
        """Return the view as text."""
        return "\n".join(self._format())

    def _format(self) -> Iterator[str]:
        for number, body in enumerate((*self.bodies, *self.needed)):
            end = f" ({STUB})" if body.is_stub else ""
            yield f"{body.path}, {body.name}{end}{', which is needed' if number >= len(self.bodies) else ''}:"
            yield from (f"{number:>6}\t{line}" for number, line in enumerate(body.lines, start=body.first))
            if body.omitted:
                yield f"({format_count(body.omitted, 'more line')}: Read shows them)"
            yield ""
        yield f"{self.path}: {self.problem or format_count(len(self.interfaces) + self.omitted, 'definition')}"
        for each in self.interfaces:
            yield f"{each.line:>6}-{each.end_line}\t{each.reference}: {each.header}{_preview(each)}"
        if self.omitted:
            yield f"({self.omitted} more)"


def _preview(symbol: Symbol) -> str:
    if symbol.is_stub:
        return f"  # {STUB}"
    return f"  # {symbol.summary}" if symbol.summary else ""


def view_file(
    path: str, definitions: Definitions, *, read: Callable[[str], Sequence[str]], names: Collection[str] = ()
) -> CodeView:
    """Return the interfaces of a file, and the code of the definitions ``names``.

    ``read`` returns the lines of a file. A file that cannot be parsed has its problem in the view.
    Raises ``UsageError`` if the file has none of ``names``.
    """
    try:
        symbols = definitions.list_file(path)
        lines = read(path)
    except UsageError as error:
        return CodeView(path=path, problem=error.happened)
    wanted = [each for name in names for each in symbols if name in (each.name, each.reference, each.last_name)]
    exact = [each for each in wanted if each.name in names or each.reference in names]
    if names and not wanted:
        known = ", ".join(each.reference for each in symbols[:MOST_BRANCHES]) or "nothing"
        raise UsageError(f"{path} does not define {' or '.join(sorted(names))}.", hint=f"it defines {known}")
    shown = tuple(each for each in symbols if each.kind != "variable") or symbols
    return CodeView(
        path=path,
        interfaces=shown[:MOST_ROWS],
        bodies=tuple(cut_body(each, lines) for each in dict.fromkeys(exact or wanted)),
        omitted=max(len(shown) - MOST_ROWS, 0),
    )


def cut_body(symbol: Symbol, lines: Sequence[str]) -> Body:
    """Return the lines of a definition, given those of its file."""
    own = lines[symbol.line - 1 : symbol.end_line]
    return Body(
        path=symbol.path,
        name=symbol.reference,
        first=symbol.line,
        lines=tuple(own[:MOST_LINES]),
        is_stub=symbol.is_stub,
        omitted=max(len(own) - MOST_LINES, 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A node that another one needs, or that needs another one."""

    node: NodeId
    title: str
    status: str
    further: tuple["Branch", ...] = ()
    omitted: int = 0
    """Nodes below it that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyView:
    """The nodes that a node needs, and those that need it, two steps far."""

    root: Branch
    """Without what it needs."""
    needs: Branch
    needed_by: Branch

    def __str__(self) -> str:
        """Return the view as a tree of text."""
        lines = [_label(self.root)]
        for heading, branch in (("It needs", self.needs), ("It is needed by", self.needed_by)):
            lines.append(f"{heading}:" if branch.further else f"{heading}: nothing")
            lines += _draw(branch, indent="")
        return "\n".join(lines)


def _label(branch: Branch) -> str:
    mark = "  <-- FAILED, it may be the cause" if branch.status == "failed" else ""
    return f"{branch.title} ({branch.node}) [{branch.status}]{mark}"


def _draw(branch: Branch, *, indent: str) -> Iterator[str]:
    rows = [_label(each) for each in branch.further]
    rows += [f"... and {branch.omitted} more"] if branch.omitted else []
    for number, row in enumerate(rows, start=1):
        is_last = number == len(rows)
        yield f"{indent}{'`' if is_last else '|'}-- {row}"
        if number <= len(branch.further):
            yield from _draw(branch.further[number - 1], indent=f"{indent}{' ' if is_last else '|'}   ")


class GraphNeeds:
    """The dependencies of the leaves of a graph, in both directions."""

    def __init__(self, graph: Graph, *, title_of: Callable[[NodeId], str]) -> None:
        """Find the direct needs of all leaves once."""
        self._title_of = title_of
        self.needs: Mapping[NodeId, tuple[NodeId, ...]] = find_needs(graph)
        needed_by: dict[NodeId, list[NodeId]] = {node: [] for node in self.needs}
        for node, needed in self.needs.items():
            for each in needed:
                needed_by[each].append(node)
        self.needed_by: Mapping[NodeId, tuple[NodeId, ...]] = {node: tuple(each) for node, each in needed_by.items()}

    def view(self, node: NodeId, *, status_of: Callable[[NodeId], str], hops: int = HOPS) -> DependencyView:
        """Return the view of a leaf. ``status_of``: as the states of nodes are called in a graph."""

        def grow(node: NodeId, arrows: Mapping[NodeId, tuple[NodeId, ...]], *, hops: int) -> Branch:
            # Failed ones first: there may be more than are shown.
            near = sorted(arrows[node], key=lambda each: status_of(each) != "failed") if hops else []
            return Branch(
                node=node,
                title=self._title_of(node),
                status=status_of(node),
                further=tuple(grow(each, arrows, hops=hops - 1) for each in near[:MOST_BRANCHES]),
                omitted=max(len(near) - MOST_BRANCHES, 0),
            )

        return DependencyView(
            root=grow(node, self.needs, hops=0),
            needs=grow(node, self.needs, hops=hops),
            needed_by=grow(node, self.needed_by, hops=hops),
        )


def to_json(view: CodeView | DependencyView) -> str:
    """Return a view as JSON."""
    return msgspec.json.encode(view).decode()
