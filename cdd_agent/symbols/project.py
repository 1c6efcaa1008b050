"""The definitions of a project: found in the index, with uses and renames by the first engine that can answer."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cdd_agent.clock import Clock
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.name_scan import NameScan
from cdd_agent.symbols.rename import RenamePlan, apply_rename, check_name, make_plan, require_free, require_readable
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServer, SymbolServerError

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReferences:
    """The uses of a definition, and who found them."""

    references: tuple[Reference, ...]
    engine: str
    is_verified: bool
    """False if only names were compared."""
    ms: float
    passed_over: tuple[str, ...]
    """Why other engines did not answer."""


class Symbols:
    """What tools and searches ask."""

    def __init__(self, index: Index, *, servers: Sequence[SymbolServer] = (), clock: Clock) -> None:
        """Ask ``servers`` in their order about uses, and the names themselves if none of them answers."""
        self.index = index
        self._servers = tuple(servers)
        self._names = NameScan(index)
        self._clock = clock
        self.engines = Counter[str]()
        """Name of an engine -> number of its answers."""

    def find(self, name: str, *, path: str = "") -> tuple[Symbol, ...]:
        """Return all definitions with a name, as ``Index.find`` does."""
        self.engines["index"] += 1
        return self.index.find(name, path=path)

    def find_one(self, name: str, *, path: str = "") -> Symbol:
        """Return the definition with a name; raises ``UsageError`` with all of them if there is not exactly one."""
        self.engines["index"] += 1
        return self.index.find_one(name, path=path)

    def list_file(self, path: str) -> tuple[Symbol, ...]:
        """Return the definitions of a file; raises ``UsageError`` with the place if it cannot be parsed."""
        self.engines["index"] += 1
        return self.index.list_file(path)

    def find_references(self, symbol: Symbol) -> FoundReferences:
        """Return the uses of a definition."""
        start, scan = self._clock.monotonic(), self._names.scan(symbol)

        def ask(server: SymbolServer | None) -> tuple[Reference, ...]:
            if server is None:
                return self._names.list_references(scan)
            found = {each for target in scan.targets or (symbol,) for each in server.find_references(target)}
            own = ((each.path, each.name_line, each.name_column) for each in scan.targets)
            scan.require_sure([*own, *((each.path, each.line, each.column) for each in found)])
            return tuple(sorted(found, key=lambda each: (each.path, each.line, each.column)))

        found, engine, passed_over = self._ask(ask)
        ms = (self._clock.monotonic() - start) * 1000
        return FoundReferences(
            references=found, engine=engine, is_verified=engine != self._names.name, ms=ms, passed_over=passed_over
        )

    def plan_rename(self, symbol: Symbol, new: str) -> RenamePlan:
        """Return what a rename changes; raises ``UsageError`` if the name cannot be used, or not everywhere."""
        check_name(symbol, new)
        start, scan = self._clock.monotonic(), self._names.scan(symbol, also=new)
        require_readable(scan)
        require_free(scan, new, index=self.index)

        def ask(server: SymbolServer | None) -> RenamePlan:
            edits = None
            if server is not None:
                edits = [each for target in scan.targets or (symbol,) for each in server.plan_rename(target, new)]
            engine = self._names.name if server is None else server.name
            return make_plan(scan, new, index=self.index, engine=engine, found=edits)

        plan, _, passed_over = self._ask(ask)
        return replace(plan, ms=(self._clock.monotonic() - start) * 1000, passed_over=passed_over)

    def apply(self, plan: RenamePlan, *, write: Callable[[str, bytes], None], check: Callable[[], str] = str) -> None:
        """Write all files of a plan, or none, as ``apply_rename`` does, and tell the engines."""
        try:
            apply_rename(plan, read=self.index.read, write=write, check=check)
        finally:
            self.note_changes(plan.changes)

    def note_changes(self, paths: Collection[str]) -> None:
        """Tell the engines of files that were written, created or removed; the index sees them by itself."""
        for server in self._servers:
            server.note_changes(paths)

    def _ask(self, question: Callable[[SymbolServer | None], _Answer]) -> tuple[_Answer, str, tuple[str, ...]]:
        """Return the first answer, whose it is, and why others were passed over; None asks the names themselves."""
        passed_over = list[str]()
        for server in self._servers:
            try:
                answer = question(server)
            except SymbolServerError as error:
                passed_over.append(f"{server.name}: {error.happened}")
                continue
            self.engines[server.name] += 1
            return answer, server.name, tuple(passed_over)
        self.engines[self._names.name] += 1
        return question(None), self._names.name, tuple(passed_over)
