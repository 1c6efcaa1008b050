"""The definitions of a project: found in the index, with uses and renames by the first engine that can answer."""

from collections.abc import Callable, Collection, Sequence

from cdd_agent.events import Emit
from cdd_agent.symbols.answers import INDEX, EngineAnswer, Engines
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.rename import (
    RenamePlan,
    apply_rename,
    check_name,
    make_plan,
    require_free,
    require_own,
    require_readable,
)
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServer


class Symbols:
    """What tools and searches ask."""

    def __init__(self, index: Index, *, servers: Sequence[SymbolServer] = (), emit: Emit = lambda _: None) -> None:
        """Ask ``servers`` in their order about uses, and the names themselves if none of them answers."""
        self.index = index
        self.engines = Engines(index, servers=servers, emit=emit)
        """Who answered how often is in its ``counts``."""

    def find(self, name: str, *, path: str = "") -> tuple[Symbol, ...]:
        """Return all definitions with a name, as ``Index.find`` does."""
        return self.engines.find(name, path=path)

    def find_one(self, name: str, *, path: str = "") -> Symbol:
        """Return the definition with a name; raises ``UsageError`` with all of them if there is not exactly one."""
        self.engines.counts[INDEX] += 1
        return self.index.find_one(name, path=path)

    def list_file(self, path: str) -> tuple[Symbol, ...]:
        """Return the definitions of a file; raises ``UsageError`` with the place if it cannot be parsed."""
        self.engines.counts[INDEX] += 1
        return self.index.list_file(path)

    def find_references(self, symbol: Symbol) -> EngineAnswer[Reference]:
        """Return the uses of a definition."""
        return self.engines.find_references(symbol)

    def plan_rename(self, symbol: Symbol, new: str) -> RenamePlan:
        """Return what a rename changes; raises ``UsageError`` if the name cannot be used, or not everywhere."""
        check_name(symbol, new)
        scan = self.engines.names.scan(symbol, also=new)
        require_readable(scan)
        require_own(scan, index=self.index)
        require_free(scan, new, index=self.index)
        answer = self.engines.plan_rename(symbol, new)
        return make_plan(scan, new, index=self.index, answer=answer)

    def apply(self, plan: RenamePlan, *, write: Callable[[str, bytes], None], check: Callable[[], str] = str) -> None:
        """Write all files of a plan, or none, as ``apply_rename`` does, and tell the engines."""
        try:
            apply_rename(plan, read=self.index.read, write=write, check=check)
        finally:
            self.engines.note_changes(plan.changes)

    def note_changes(self, paths: Collection[str]) -> None:
        """Tell the engines of files that were written, created or removed; the index sees them by itself."""
        self.engines.note_changes(paths)

    def close(self) -> None:
        """End the programs of the engines."""
        self.engines.close()
