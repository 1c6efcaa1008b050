"""Asks the engines about a symbol in their order, checks each answer against the files, and records who answered."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from cdd_agent.errors import UsageError
from cdd_agent.events import Emit, EngineDropped, SymbolAnswered
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.name_scan import NameScan, Scan
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServer, SymbolServerError, TextEdit
from cdd_agent.symbols.watched_files import AnswerContradictsFiles

INDEX = "index"
"""The name of the index among the engines."""
MOST_FAILURES = 3
"""Failures after which an engine is not asked again in this run."""

_MOST_OTHERS = 8
"""Members of other classes with the same name that are asked about before a rename."""

_PlaceT = TypeVar("_PlaceT", Reference, TextEdit)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer(Generic[_PlaceT]):
    """An answer, and how it came about."""

    places: tuple[_PlaceT, ...]
    engine: str
    duration_ms: float
    """With the engines that were passed over."""
    is_verified: bool
    """Whether the engine knows what a name refers to; the name scan does not."""
    is_second: bool
    """Whether the first answer of the engine did not fit the files."""
    passed_over: tuple[str, ...]
    """The engines that were asked before, and why their answers do not count."""


@dataclass(frozen=True, slots=True)
class _Question(Generic[_PlaceT]):
    name: Literal["references", "rename"]
    ask: Callable[[SymbolServer, Symbol], tuple[_PlaceT, ...]]
    check: Callable[[Collection[_PlaceT], Scan], None]
    """Raises ``AnswerContradictsFiles``."""


class Engines:
    """Asks one engine after the other until an answer fits the files."""

    def __init__(
        self,
        index: Index,
        *,
        servers: Sequence[SymbolServer],
        scan: SymbolServer | None = None,
        emit: Emit = lambda _: None,
    ) -> None:
        """Ask ``servers`` in their order, and at last ``scan``, by default ``names``, whose answers are unverified."""
        self.counts = Counter[str]()
        """Engine -> number of its answers."""
        self._index = index
        self._servers = tuple(servers)
        self.names = NameScan(index)
        self._scan = scan or self.names
        self._emit = emit
        self._failures, self._doubts = Counter[str](), Counter[str]()
        self._dropped = dict[str, str]()

    def find_references(self, symbol: Symbol) -> EngineAnswer[Reference]:
        """Return the places that use a symbol, without its definition."""

        def check(places: Collection[Reference], scan: Scan) -> None:
            scan.require_files(places)

        return self._ask(symbol, _Question("references", lambda server, each: server.find_references(each), check))

    def plan_rename(self, symbol: Symbol, new: str) -> EngineAnswer[TextEdit]:
        """Return the replacements that rename a symbol, its twins and its overrides.

        Raises ``UsageError`` if a place uses a member of another class too.
        """

        def check(places: Collection[TextEdit], scan: Scan) -> None:
            scan.require_all(places)

        answer = self._ask(symbol, _Question("rename", lambda server, each: server.plan_rename(each, new), check))
        for server in self._servers:
            if server.name == answer.engine:
                self._require_no_other(server, self.names.scan(symbol), places=answer.places)
        return answer

    def _require_no_other(self, server: SymbolServer, scan: Scan, *, places: Collection[TextEdit]) -> None:
        """Raise ``UsageError`` for ``x.run()`` where ``x`` can be of two classes that have nothing in common."""
        symbol = scan.symbol
        known = self._index.find(symbol.last_name) if scan.family else ()
        others = [each for each in known if "." in each.name and each not in scan.targets]
        for other in others[:_MOST_OTHERS]:
            with suppress(SymbolServerError):
                shared = set(places).intersection(server.plan_rename(other, next(iter(places)).new))
                if shared:
                    first = min(shared, key=lambda each: (each.path, each.line))
                    happened = f"{first.path}:{first.line} uses {symbol.name} and {other.name} by one name"
                    raise UsageError(f"{happened}. Nothing was changed.", hint="keep the name")

    def find(self, name: str, *, path: str = "") -> tuple[Symbol, ...]:
        """Return all definitions with a name, as ``Index.find`` does, which answers at once."""
        started_s = time.monotonic()
        found = self._index.find(name, path=path)
        self.counts[INDEX] += 1
        self._emit(
            SymbolAnswered(
                question="definition",
                symbol=f"{path}::{name}" if path else name,
                engine=INDEX,
                places=len(found),
                duration_ms=round((time.monotonic() - started_s) * 1000, 1),
                is_verified=True,
            )
        )
        return found

    def note_changes(self, paths: Collection[str]) -> None:
        """Tell all engines that files were written, created or removed."""
        for server in (*self._servers, self._scan):
            server.note_changes(paths)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.close()

    def _ask(self, symbol: Symbol, question: _Question[_PlaceT]) -> EngineAnswer[_PlaceT]:
        started_s = time.monotonic()
        passed_over, is_second = list[str](), False
        self.names.scan(symbol)  # raises if the definition is gone, which is not the fault of an engine
        for server in self._servers:
            if server.name in self._dropped:
                passed_over.append(f"{server.name}: {self._dropped[server.name]}")
                continue
            try:
                places, is_second = self._ask_one(server, symbol, question=question)
            except SymbolServerError as error:
                passed_over.append(f"{server.name}: {error.happened}")
                self._count_failure(server.name, error)
                continue
            self._doubts[server.name] = 0
            break
        else:
            server, is_second = self._scan, False
            places = question.ask(server, symbol)
        self.counts[server.name] += 1
        answer = EngineAnswer(
            places=places,
            engine=server.name,
            duration_ms=(time.monotonic() - started_s) * 1000,
            is_verified=server is not self._scan,
            is_second=is_second,
            passed_over=tuple(passed_over),
        )
        self._emit(
            SymbolAnswered(
                question=question.name,
                symbol=f"{symbol.path}::{symbol.reference}",
                engine=answer.engine,
                places=len(places),
                duration_ms=round(answer.duration_ms, 1),
                is_verified=answer.is_verified,
                passed_over=answer.passed_over,
            )
        )
        return answer

    def _ask_one(
        self, server: SymbolServer, symbol: Symbol, *, question: _Question[_PlaceT]
    ) -> tuple[tuple[_PlaceT, ...], bool]:
        """Return what a server answers, and whether it was asked twice; raises ``SymbolServerError``."""
        for is_second in (False, True):
            scan = self.names.scan(symbol)
            try:
                found = {place for each in scan.targets for place in question.ask(server, each)}
                question.check(found, scan)
                break
            except AnswerContradictsFiles:
                if is_second:
                    raise
                server.note_changes(self._index.list_paths())
        return tuple(sorted(found, key=lambda each: (each.path, each.line, each.column))), is_second

    def _count_failure(self, name: str, error: SymbolServerError) -> None:
        # An odd symbol must not cost an engine that answers all other questions.
        counts = self._doubts if isinstance(error, AnswerContradictsFiles) else self._failures
        counts[name] += 1
        if self._doubts[name] + self._failures[name] >= MOST_FAILURES:
            self._dropped[name] = f"not asked again after {MOST_FAILURES} failures; the last: {error.happened}"
            self._emit(EngineDropped(engine=name, why=error.happened))
