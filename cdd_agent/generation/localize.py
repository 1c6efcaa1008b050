"""Where the fault of failing tests may be: clues in their failures, a search of the graph, and views of code.

A round is one attempt at a node. Its agent may make ``MOST_QUERIES`` queries, which a log keeps with their answers:
one that is repeated is answered from there, and the next attempt learns which searches found nothing.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cdd_agent.agent.tools import Tool, ToolOutput, define_tool
from cdd_agent.clock import Clock
from cdd_agent.errors import BudgetSpent, UsageError, join_first, suggest
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.search import GraphSearch, Match, split_words
from cdd_agent.generation.traceability import list_failures
from cdd_agent.generation.views import (
    MOST_NEEDED_LINES,
    STUB,
    Body,
    CodeView,
    Definitions,
    GraphNeeds,
    cut_body,
    to_json,
    view_file,
)
from cdd_agent.storage import load_record, write_atomic
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tickets.graph import Graph, Node, NodeId
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import clean, cut_end, fence, shorten
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import SuiteReport

MOST_QUERIES = 20
"""Questions of one round that are answered."""
MOST_ANSWER = 12_000
"""Characters of an answer."""
MOST_WHERE = 2_500
"""Characters of the section that tells the next attempt where to look."""
_MOST_CONTEXT = 200_000
"""Characters of a debug context."""
_MOST_LOG_BYTES = 16 * 1024 * 1024
_MOST_FAILURES, _MOST_CLUES, _MOST_TIES, _MOST_HISTORY = 5, 12, 5, 20
_NAME = re.compile(r"[^\W\d]\w*")
_CODE_LINE = re.compile(r"^(?:>|E) +(.*)$", re.MULTILINE)
"""A line of pytest's output with the code that failed, or with the values in it."""

ToolName: TypeAlias = Literal["SearchGraph", "ViewCode", "ViewDependencies"]
StatusOf: TypeAlias = Callable[[NodeId], str]


class LocalizationExhaustedError(BudgetSpent):
    """A round has made as many queries as it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A request of an agent for information."""

    round: int
    """The number of the attempt."""
    tool: ToolName
    text: str
    """Its subject, and the form of the answer."""
    stamp: str = ""
    """The digest of the file that the answer is about; empty if it is about none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A query, and its answer."""

    query: Query
    engine: str
    """What gave the answer, such as ``words`` or ``index``."""
    answer: str
    has_found: bool
    at: str
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFile:
    schema: int = 1
    entries: tuple[LogEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The answer to a query."""

    text: str
    engine: str
    has_found: bool = True


class LocalizationLog:
    """The queries of all rounds at one node, in a file of cdd's records."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Read the file. Raises ``UsageError`` for a damaged one."""
        self._path, self._clock = path, clock
        self.entries = load_entries(path)

    def list_round(self, number: int) -> tuple[LogEntry, ...]:
        """Return the queries of one round."""
        return tuple(each for each in self.entries if each.query.round == number)

    def describe_history(self, number: int) -> str:
        """Return the searches before a round that found nothing, as Markdown; empty if there are none."""
        found = dict.fromkeys(
            f"- {each.query.tool} `{shorten(each.query.text, 80)}`"
            for each in self.entries
            if each.query.round < number and not each.has_found
        )
        return "\n".join([*found][-_MOST_HISTORY:])

    def answer(self, query: Query, *, ask: Callable[[], QueryAnswer]) -> str:
        """Return the answer to a query, from the log if its round has made it before.

        Raises ``LocalizationExhaustedError`` for a new query after ``MOST_QUERIES``, and what ``ask`` raises.
        """
        entries = self.list_round(query.round)
        for number, each in enumerate(entries, start=1):
            if each.query == query:
                return f"(From the log: this was query {number} of this attempt.)\n{each.answer}"
        if len(entries) >= MOST_QUERIES:
            raise LocalizationExhaustedError(
                f"This attempt has made {MOST_QUERIES} queries. More are not answered.",
                hint="change the code by what you know, or report with ReportBlocked what is in the way",
            )
        began = self._clock.monotonic()
        try:
            found = ask()
        except UsageError as error:  # it counts too
            found = QueryAnswer(text=f"{error.happened} ({error.hint})", engine="none", has_found=False)
        text = cut_end(mask(found.text).text, MOST_ANSWER)
        entry = LogEntry(
            query=query,
            engine=found.engine,
            answer=text,
            has_found=found.has_found,
            at=self._clock.now(),
            took_ms=round((self._clock.monotonic() - began) * 1000, 1),
        )
        self.entries = (*self.entries, entry)
        write_atomic(self._path, msgspec.json.encode(_LogFile(entries=self.entries)), is_durable=False)
        return text


def load_entries(path: Path) -> tuple[LogEntry, ...]:
    """Return the queries in the file of a log; none without the file. Raises ``UsageError`` for a damaged one."""
    return load_record(path, empty=_LogFile(), limit_bytes=_MOST_LOG_BYTES).entries


# Clues


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A definition to which the failures lead."""

    symbol: Symbol
    why: str
    node: NodeId | None
    """The node that it belongs to; None if the graph has none for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """A name, or a line of a file, in a failure."""

    why: str
    name: str = ""
    path: str = ""
    line: int = 0


def list_clues(report: SuiteReport, *, is_test: Callable[[str], bool], names: Collection[str]) -> tuple[Clue, ...]:
    """Return what the failures of a report name: calls first, the nearest to the fault before others.

    Frames of tests are left out: a test is not the fault that a body can mend. ``names`` are those that count in the
    code and the names of tests.
    """
    ranks: tuple[dict[Clue, None], ...] = ({}, {}, {}, {})
    for nodeid, failure in [*list_failures(report)][:_MOST_FAILURES]:
        test = strip_parameters(nodeid).rpartition("::")[2]
        where = shorten(test, 80)
        frames = [(each.path, each.line) for each in reversed(failure.frames)]
        for path, line in [(failure.path or "", failure.line or 0), *frames]:
            if path and not is_test(path):
                ranks[0][Clue(why=f"line {line} is in the traceback of {where}", path=path, line=line)] = None
        if failure.missing_name:
            ranks[0][Clue(why=f"{where} lacks it", name=failure.missing_name.rpartition(".")[2])] = None
        failing = "\n".join(_CODE_LINE.findall(failure.text))
        # A fixture or a variable can hide the name in the line that fails.
        around = ((failing, "the code that fails in {} names it"), (failure.text, "{} names it"))
        for rank, (text, why) in zip((ranks[1], ranks[3]), around, strict=True):
            found = [name for name in dict.fromkeys(_NAME.findall(text)) if name in names]
            rank.update(dict.fromkeys(Clue(why=why.format(where), name=name) for name in found))
        tested = find_tested_name(test, names)
        if tested:
            ranks[2][Clue(why=f"{where} has its name", name=tested)] = None
    seen = set[str]()
    kept = []
    for clue in (each for rank in ranks for each in rank):
        if not clue.name or clue.name not in seen:
            kept.append(clue)
        seen.add(clue.name)
    return tuple(kept[:_MOST_CLUES])


def find_tested_name(test: str, names: Collection[str]) -> str:
    """Return the longest of ``names`` that the name of a test contains; empty if there is none.

    >>> find_tested_name("test_calculate_mean_of_one", {"mean", "calculate_mean", "one_of"})
    'calculate_mean'
    """
    words = f"_{test.lower().removeprefix('test_')}_"
    return max(
        (name for name in names if f"_{name.lower().strip('_')}_" in words),
        key=lambda name: (len(name), name),
        default="",
    )


def phrase_query(report: SuiteReport) -> str:
    """Return a search for the subject of the first failure: the names of the test and its file, and the message."""
    nodeid, failure = next(list_failures(report), ("", None))
    named = strip_parameters(nodeid).rpartition("/")[2].replace(".py", "")
    words = [*dict.fromkeys(word for word in split_words(named) if word not in ("test", "tests"))]
    message = failure.message.partition("\n")[0] if failure is not None else ""
    words += [word for word in _NAME.findall(message) if word not in ("AssertionError", "assert")]
    return shorten(" ".join(words), 200)


# The generation


class Localizer:
    """Finds nodes and definitions of one generation. Everything that only depends on the graph is computed once."""

    def __init__(self, graph: Graph, layout: Layout, *, search: Callable[[], GraphSearch]) -> None:
        """Compute nothing yet. ``search`` indexes the graph."""
        self.graph = graph
        self.layout = layout
        self._make_search = search

    @cached_property
    def search(self) -> GraphSearch:
        """The search over the graph."""
        return self._make_search()

    @cached_property
    def dependencies(self) -> GraphNeeds:
        """The dependencies of the leaves, in both directions."""
        return GraphNeeds(self.graph, title_of=lambda node: self.layout.title_of(self.graph.by_id[node]))

    @cached_property
    def owners(self) -> Mapping[tuple[str, str], NodeId]:
        """Path in the repository and qualified name -> the node that defines it."""
        return {place: node.id for node in self.graph.leaves for place in self.layout.place_definitions(node)}

    @cached_property
    def bare_names(self) -> frozenset[str]:
        """The last part of each definition's name."""
        return frozenset(name.rpartition(".")[2] for _, name in self.owners)

    @cached_property
    def _names(self) -> Mapping[str, tuple[NodeId, ...]]:
        """Every name by which a leaf may be called -> the leaves."""
        found: dict[str, dict[NodeId, None]] = {}
        for node in self.graph.leaves:
            own = [each.name for each in node.definitions]
            bare = [name.rpartition(".")[2] for name in own]
            for name in (node.id, self.layout.title_of(node), *self.layout.name_definitions(node), *own, *bare):
                found.setdefault(name, {})[node.id] = None
        return {name: tuple(nodes) for name, nodes in found.items()}

    def find_owner(self, symbol: Symbol) -> NodeId | None:
        """Return the node that a definition belongs to, itself or one around it."""
        name = symbol.name
        while name:
            if (symbol.path, name) in self.owners:
                return self.owners[symbol.path, name]
            name = name.rpartition(".")[0]
        return None

    def find_nodes(self, name: str) -> tuple[NodeId, ...]:
        """Return the leaves with an id, a title or a name; all of them if several have it."""
        plain = name.strip().strip("`'\"").replace("/", ".")
        found = self._names.get(name.strip(), ()) or self._names.get(plain, ())
        by_id = [node for node in found if node == name.strip()]
        return tuple(by_id) or found

    def require_node(self, name: str) -> NodeId:
        """Return the one leaf that is meant. Raises ``UsageError`` with all that could be, or with a similar name."""
        found = self.find_nodes(name)
        if len(found) == 1:
            return found[0]
        if found:
            listed = join_first([f"{self.layout.titles[each]} ({each})" for each in found], most=_MOST_TIES)
            raise UsageError(
                f"{shorten(name, 80)} is the name of {len(found)} nodes: {listed}.", hint="give the id of one"
            )
        hint = suggest(name[:80], self._names, text="did you mean {}?", otherwise="search for it with SearchGraph")
        raise UsageError(f"The graph has no function or class {shorten(name, 80)}.", hint=hint)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One attempt at a node: what its agent may ask, and what its first message says."""

    localizer: Localizer
    node: Node
    number: int
    """Of the attempt."""
    log: LocalizationLog
    definitions: Definitions
    workspace: Workspace
    status_of: StatusOf
    report: SuiteReport | None = None
    """Of the attempt before."""
    is_test: Callable[[str], bool] = lambda path: path.startswith(("tests/", "test/"))
    votes: str = ""
    """The votes about the attempt before; empty if there were none."""
    debug_path: Path | None = None
    """The file for the debug context."""
    tell: Callable[[str], None] = lambda _: None
    """Tells a person where the debug context is."""

    # Views

    def _read_lines(self, path: str) -> list[str]:
        # Masked as a whole, because a key can have several lines.
        return mask(self.workspace.read_text(path).text).text.splitlines()

    def _digest(self, path: str) -> str:
        try:
            return hashlib.sha256(self.workspace.read(path)).hexdigest()
        except UsageError:
            return ""

    @property
    def subgraph(self) -> str:
        """The subgraph of the node."""
        return self.localizer.graph.subgraphs[self.node.id]

    def search_graph(self, query: str, *, everywhere: bool) -> QueryAnswer:
        """Return the best matches of a search with their scores and statuses."""
        found = self.localizer.search.find(query, subgraph=None if everywhere else self.subgraph)
        place = "graph" if everywhere else f"subgraph {self.subgraph}"
        if not found:
            hint = "" if everywhere else " Search everywhere, or with other words."
            return QueryAnswer(
                text=f"Nothing in the {place} matches.{hint}", engine=self.localizer.search.engine, has_found=False
            )
        rows = [self._format_match(number, each) for number, each in enumerate(found, start=1)]
        return QueryAnswer(text="\n".join((f"In the {place}:", *rows)), engine=self.localizer.search.engine)

    def _format_match(self, number: int, match: Match) -> str:
        node = self.localizer.graph.by_id[match.node]
        title, status = self.localizer.layout.title_of(node), self.status_of(node.id)
        kind = "has this name" if match.is_exact else f"score {match.score:g}"
        summary = mark_words(shorten(node.docstring.strip().partition("\n")[0], 200), match.words)
        return f"{number}. {title} ({node.id}) [{status}] {kind}: {summary}"

    def view_code(self, place: str, *, definition: str, as_json: bool) -> QueryAnswer:
        """Return the interfaces of a file, or the code of a node or of one definition and what else is in its file."""
        views = []
        for path, names in self._find_definitions(place).items():
            wanted = [definition] if definition else names
            if not self.workspace.exists(path):
                views.append(CodeView(path=path, problem=STUB))
                continue
            view = view_file(path, self.definitions, read=self._read_lines, names=wanted)
            views.append(replace(view, needed=tuple(self._list_needed(path, wanted))))
        text = f"[{','.join(map(to_json, views))}]" if as_json else "\n\n".join(map(str, views))
        if as_json and len(text) > MOST_ANSWER:
            happened = f"The view has {len(text):,} characters as JSON, more than {MOST_ANSWER:,}."
            raise UsageError(happened, hint="ask for one definition, or without as_json")
        has_found = any(view.interfaces for view in views)
        return QueryAnswer(text=text, engine="index", has_found=has_found)

    def _list_needed(self, path: str, names: Iterable[str]) -> Iterator[Body]:
        """Yield the code of the nodes that definitions of a file need directly, as far as it fits."""
        room = MOST_NEEDED_LINES
        for needed_path, name in self._find_needed(path, names):
            with suppress(UsageError):  # missing, or cannot be parsed
                found = [each for each in self.definitions.list_file(needed_path) if each.name == name]
                for symbol in found:
                    room -= symbol.end_line - symbol.line + 1
                    if room < 0:
                        return
                    yield cut_body(symbol, self._read_lines(needed_path))

    def _find_needed(self, path: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield path and name of what definitions of a file need directly."""
        localizer, seen = self.localizer, {(path, name) for name in names}
        for owner in dict.fromkeys(filter(None, (localizer.owners.get(each) for each in sorted(seen)))):
            for node in localizer.dependencies.needs[owner]:
                for place in localizer.layout.place_definitions(localizer.graph.by_id[node]):
                    if place not in seen:
                        seen.add(place)
                        yield place

    def _find_definitions(self, place: str) -> dict[str, list[str]]:
        """Return path -> names of definitions that a place means; raises ``UsageError`` for neither file nor node."""
        if place.endswith((".py", ".pyi")):
            known = dict(self.localizer.layout.rows)
            return {place if self.workspace.exists(place) else known.get(place, place): []}
        found: dict[str, list[str]] = {}
        nodes = self.localizer.find_nodes(place) or (self.localizer.require_node(place),)
        for node in nodes[:_MOST_TIES]:
            for path, name in self.localizer.layout.place_definitions(self.localizer.graph.by_id[node]):
                found.setdefault(path, []).append(name)
        return found

    def view_dependencies(self, name: str, *, as_json: bool) -> QueryAnswer:
        """Return what a node needs and what needs it, two steps far."""
        node = self.localizer.require_node(name)
        view = self.localizer.dependencies.view(node, status_of=self.status_of)
        return QueryAnswer(text=to_json(view) if as_json else str(view), engine="graph")

    # Where to look

    def find_suspects(self) -> tuple[Suspect, ...]:
        """Return the definitions to which the failures lead, all with a name that several have."""
        assert self.report is not None
        found: dict[tuple[str, str], Suspect] = {}
        for clue in list_clues(self.report, is_test=self.is_test, names=self.localizer.bare_names):
            for symbol in self._find_symbols(clue):
                place = Suspect(symbol=symbol, why=clue.why, node=self.localizer.find_owner(symbol))
                found.setdefault((symbol.path, symbol.reference), place)
        return tuple(found.values())

    def _find_symbols(self, clue: Clue) -> tuple[Symbol, ...]:
        try:
            if clue.name:
                named = [each for each in self.definitions.find(clue.name) if not self.is_test(each.path)]
                # A stub file only declares what the module beside it defines.
                modules = [each for each in named if not each.path.endswith(".pyi")]
                return tuple((modules or named)[:_MOST_TIES])
            around = [each for each in self.definitions.list_file(clue.path) if each.line <= clue.line <= each.end_line]
        except UsageError:  # a file outside, or one that cannot be parsed
            return ()
        return tuple(sorted(around, key=lambda each: each.line)[-1:])

    def describe_where(self) -> str:
        """Return where the failures of the attempt before lead, as Markdown; empty if there are none."""
        if self.report is None or not any(list_failures(self.report)):
            return ""
        places = self.find_suspects()
        parts = ["\n".join(f"- {self._format_suspect(each)}" for each in places)]
        query = phrase_query(self.report)
        found = self.localizer.search.find(query)  # the fault may be in what another subgraph provides
        if found:
            rows = "\n".join(self._format_match(number, each) for number, each in enumerate(found, start=1))
            parts.append(f"A search of the graph for `{query}`:\n{rows}")
        if doubtful := [*self._list_doubtful()]:
            parts.append(
                f"{self.localizer.layout.title_of(self.node)} needs these, which have not passed: {', '.join(doubtful)}"
            )
        history = self.log.describe_history(self.number)
        if history:
            parts.append(f"Earlier attempts searched in vain:\n{history}")
        return cut_end(mask("\n\n".join(filter(None, parts))).text, MOST_WHERE)

    def _format_suspect(self, place: Suspect) -> str:
        symbol = place.symbol
        state = STUB if symbol.is_stub else shorten(symbol.header, 160)
        return f"`{symbol.reference}` ({symbol.path}:{symbol.line}), because {place.why}: {state}"

    def _list_doubtful(self) -> Iterator[str]:
        """Yield what the node needs, two steps far, and has not passed."""
        view = self.localizer.dependencies.view(self.node.id, status_of=self.status_of)
        for near in view.needs.further:
            for each in (near, *near.further):
                if each.status != "passed":
                    yield f"{each.title} [{each.status}]"

    # Tools

    def make_tools(self) -> tuple[Tool, ...]:
        """Return the tools SearchGraph, ViewCode and ViewDependencies."""

        def search(given: SearchGraphInput) -> ToolOutput:
            text = f"{given.query} (everywhere)" if given.everywhere else given.query
            return self._answer(
                "SearchGraph", text, ask=lambda: self.search_graph(given.query, everywhere=given.everywhere)
            )

        def view_code(given: ViewCodeInput) -> ToolOutput:
            text = " ".join(filter(None, (given.place, given.definition, "as JSON" if given.as_json else "")))
            stamp = ""
            with suppress(UsageError):
                for path, names in self._find_definitions(given.place).items():
                    wanted = [given.definition] if given.definition else names
                    files = (path, *(needed for needed, _ in self._find_needed(path, wanted)))
                    stamp += "".join(map(self._digest, dict.fromkeys(files)))
            ask = partial(self.view_code, given.place, definition=given.definition, as_json=given.as_json)
            return self._answer("ViewCode", text, stamp=stamp, ask=ask)

        def view_dependencies(given: ViewDependenciesInput) -> ToolOutput:
            text = f"{given.node} as JSON" if given.as_json else given.node
            ask = partial(self.view_dependencies, given.node, as_json=given.as_json)
            return self._answer("ViewDependencies", text, ask=ask)

        return (
            define_tool("SearchGraph", SearchGraphInput, run=search, subject=lambda given: given.query),
            define_tool(
                "ViewCode",
                ViewCodeInput,
                run=view_code,
                subject=lambda given: f"{given.place} {given.definition}".strip(),
            ),
            define_tool(
                "ViewDependencies", ViewDependenciesInput, run=view_dependencies, subject=lambda given: given.node
            ),
        )

    def _answer(self, tool: ToolName, text: str, *, stamp: str = "", ask: Callable[[], QueryAnswer]) -> ToolOutput:
        query = Query(round=self.number, tool=tool, text=" ".join(text.split())[:500], stamp=stamp)
        try:
            return ToolOutput(text=self.log.answer(query, ask=ask))
        except LocalizationExhaustedError as error:
            path = self._export_once()
            if path is None:
                raise
            raise LocalizationExhaustedError(
                f"{error.happened} A person gets them in {path}.", hint=error.hint
            ) from error

    def export(self) -> Path:
        """Write the debug context, and return its path."""
        assert self.debug_path is not None
        write_atomic(self.debug_path, self.format_debug_context().encode("utf-8", "replace"), is_durable=False)
        return self.debug_path

    def _export_once(self) -> Path | None:
        """Write the debug context once a round, tell a person, and return its path."""
        if self.debug_path is not None and not self.debug_path.exists():
            self.export()
            title = self.localizer.layout.title_of(self.node)
            self.tell(
                f"The agent of {title} has used up its queries about the fault. Its debug context: {self.debug_path}"
            )
        return self.debug_path

    def format_debug_context(self) -> str:
        """Return everything that is known about the fault, for a person: bounded, cleaned, keys masked."""
        title = self.localizer.layout.title_of(self.node)
        code = self.view_code(self.node.id, definition="", as_json=False).text
        needs = self.view_dependencies(self.node.id, as_json=False).text
        rows = []
        for number, each in enumerate(self.log.entries, start=1):
            asked = each.query
            rows.append(f"### {number}. Attempt {asked.round}, {asked.tool}: {asked.text}\n")
            rows.append(f"{each.at}, {each.took_ms:g} ms, by {each.engine}\n\n{fence(each.answer.rstrip())}\n")
        parts = {
            "Failing tests": fence(format_failures(self.report).rstrip()) if self.report is not None else "none",
            "Where the failures lead": self.describe_where() or "nowhere",
            "Votes": self.votes or "none",
            "Code": fence(code.rstrip()),
            "Dependencies": fence(needs.rstrip()),
            "Queries": "\n".join(rows) or "none",
        }
        text = "\n\n".join(
            (
                f"# Debug context of {title}, attempt {self.number}",
                *(f"## {name}\n\n{part}" for name, part in parts.items()),
            )
        )
        return clean(mask(text).text)[:_MOST_CONTEXT]


def mark_words(text: str, words: Collection[str]) -> str:
    """Return a text with the words that matched between asterisks.

    >>> mark_words("Return the arithmetic mean.", ["mean"])
    'Return the arithmetic **mean**.'
    """
    wanted = {*words}
    return re.sub(r"[^\W_]+", lambda found: f"**{found[0]}**" if found[0].lower() in wanted else found[0], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGraphInput:
    """Find functions and classes of the planning graph by name or by what they do, with scores and statuses."""

    query: Annotated[str, Meta(min_length=1, description="a name, or what it does in a few words")]
    everywhere: Annotated[bool, Meta(description="search the whole graph, not only the subgraph of this part")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCodeInput:
    """Show the code of a function or class with the interfaces beside it, or the interfaces of a file."""

    place: Annotated[str, Meta(min_length=1, description="an id or a name of the graph, or the path of a file")]
    definition: Annotated[str, Meta(description="show the code of this definition of the file")] = ""
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDependenciesInput:
    """Show what a function or class needs and what needs it, two steps far; failed ones are marked."""

    node: Annotated[str, Meta(min_length=1, description="an id or a name of the graph")]
    as_json: bool = False
