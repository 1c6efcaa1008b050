"""Asks the engines about a symbol in their order, checks each answer against the files, and records who answered."""

import ast
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from cdd_agent.errors import UsageError
from cdd_agent.events import Emit, EngineDropped, SymbolAnswered
from cdd_agent.symbols.index import Index, list_modules
from cdd_agent.symbols.rpc import HINT
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServer, SymbolServerError, TextEdit
from cdd_agent.symbols.watched_files import AnswerContradictsFiles
from cdd_agent.untrusted.python_source import with_deep_stack

MOST_FAILURES = 3
"""Failures after which an engine is not asked again in this run."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question(Generic[_PlaceT]):
    name: Literal["references", "rename"]
    ask: Callable[[SymbolServer], tuple[_PlaceT, ...]]


class Engines:
    """Asks one engine after the other until an answer fits the files."""

    def __init__(
        self, index: Index, *, servers: Sequence[SymbolServer], scan: SymbolServer, emit: Emit = lambda _: None
    ) -> None:
        """Ask ``servers`` in their order, and at last ``scan``, whose answers are unverified."""
        self.counts = Counter[str]()
        """Engine -> number of its answers."""
        self._index = index
        self._servers = tuple(servers)
        self._scan = scan
        self._emit = emit
        self._failures, self._doubts = Counter[str](), Counter[str]()
        self._dropped = dict[str, str]()

    def find_references(self, symbol: Symbol) -> EngineAnswer[Reference]:
        """Return the places that use a symbol, without its definition."""
        return self._ask(symbol, _Question(name="references", ask=lambda server: server.find_references(symbol)))

    def plan_rename(self, symbol: Symbol, new: str) -> EngineAnswer[TextEdit]:
        """Return the replacements that rename a symbol."""
        return self._ask(symbol, _Question(name="rename", ask=lambda server: server.plan_rename(symbol, new)))

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
            places = question.ask(server)
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
        try:
            return self._check(question.ask(server), symbol, question=question), False
        except AnswerContradictsFiles:
            server.note_changes(self._index.list_paths())
        return self._check(question.ask(server), symbol, question=question), True

    def _check(
        self, places: tuple[_PlaceT, ...], symbol: Symbol, *, question: _Question[_PlaceT]
    ) -> tuple[_PlaceT, ...]:
        """Return the places unless a file is missing that certainly imports the symbol."""
        named = {place.path for place in places}
        for path in find_importers(self._index, symbol, is_used=question.name == "references", without=named):
            raise AnswerContradictsFiles(f"It leaves out {path}, which imports {symbol.name}.", hint=HINT)
        return places

    def _count_failure(self, name: str, error: SymbolServerError) -> None:
        # An odd symbol must not cost an engine that answers all other questions.
        counts = self._doubts if isinstance(error, AnswerContradictsFiles) else self._failures
        counts[name] += 1
        if self._doubts[name] + self._failures[name] >= MOST_FAILURES:
            self._dropped[name] = f"not asked again after {MOST_FAILURES} failures; the last: {error.happened}"
            self._emit(EngineDropped(engine=name, why=error.happened))


def find_importers(index: Index, symbol: Symbol, *, is_used: bool, without: Collection[str]) -> Iterator[str]:
    """Yield files that certainly import a definition at module level by its name, except those in ``without``.

    ``is_used``: only those that also use it.
    """
    name = symbol.name
    if "." in name:
        return
    paths = index.list_paths()
    owners = Counter(module for path in paths for module in list_modules(path))
    modules = {module for module in list_modules(symbol.path) if owners[module] == 1}
    for path in paths:
        if path in without or path == symbol.path:
            continue
        try:
            if name.encode() not in index.read(path):
                continue
            tree = index.read_source(path).tree
        except UsageError:
            continue
        bound = _find_imported(tree, name, at=path, target=symbol.path, modules=modules)
        # Serena leaves out imports and uses by another name.
        if bound is not None and (not is_used or (bound == name and _is_plainly_used(tree, bound))):
            yield path


def _find_imported(tree: ast.Module, name: str, *, at: str, target: str, modules: Collection[str]) -> str | None:
    """Return the name that a module gives to ``name``, imported from one of ``modules`` or from the file ``target``."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                folder = "/".join(at.split("/")[: -node.level])
                module = "/".join(filter(None, [folder, *(node.module or "").split(".")]))
                is_meant = target in (f"{module}.py", f"{module}/__init__.py".lstrip("/"))
            else:
                is_meant = node.module in modules
            for alias in node.names if is_meant else ():
                if alias.name == name:
                    return alias.asname or name
    return None


@with_deep_stack
def _is_plainly_used(tree: ast.Module, name: str) -> bool:
    """Return whether a module reads a name that nothing else in it binds."""
    is_read = False
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=found, ctx=ast.Load()) if found == name:
                is_read = True
            case ast.Name(id=found) | ast.arg(arg=found) if found == name:
                return False
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) | ast.ClassDef(name=found) if (
                found == name
            ):
                return False
    return is_read
