"""Mutants: the changed code with one thing altered, under which some target has to fail. Pure but for ``survival``.

A returned value comes first; the second lets every changed function raise at once, so that code is called unproven only
if no target so much as runs into it; then come a condition and a constant.

Test runs within one time box, told as events.

Whether tests that pass at once are worth keeping: they have to fail when the code they are about is altered.
"""

import ast
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from cdd_agent.errors import CddError
from cdd_agent.events import Emit, Event, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy, project_in, sources_in
from cdd_agent.evidence.literals import Function, docstring_lines, docstrings, parse, touched_lines
from cdd_agent.evidence.request import PYTHON, ProductChange, is_python, not_passing
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.workspace.files import Beneath
from pytest_tdd_agent.comparison import function_of

MOST = 4
"""Mutants that are tried."""
ALL_RAISE = "all raise"
"""How the mutant alters that shows no more than that a target runs the changed code."""
_SHOWN = 40
"""So many characters of code are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """An altered product."""

    where: str
    how: str
    texts: Mapping[str, str]
    """Path, relative to the project -> altered source."""

    @property
    def what(self) -> str:
        """The alteration, with its place."""
        return f"{self.where}: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutants:
    """Those to try, in this order."""

    chosen: tuple[Mutant, ...]
    is_exhaustive: bool
    """Whether a target that depends on the changed code is bound to notice one of them."""


def mutants_of(changes: Sequence[ProductChange], *, most: int = MOST) -> Mutants:
    """The mutants of the changed lines; none if no line of them is executed."""
    by_kind: dict[str, list[_Spot]] = {"return": [], "condition": [], "constant": []}
    failing: dict[str, str] = {}
    is_covered = True
    for change in changes:
        tree = parse(change.new) if is_python(change) else None
        if tree is None or change.new is None:
            is_covered = False
            continue
        touched = touched_lines(change.old, change.new)
        for kind, spot in _spots(change, touched):
            by_kind[kind].append(spot)
        is_covered &= not _touches_documentation(change, tree) and touched <= _lines_of_changed(tree, touched)
        text = _all_failing(tree, touched)
        if text is not None:
            failing[change.path] = text
        elif touched:
            is_covered = False
    mixed = (spot for row in zip_longest(*by_kind.values()) for spot in row if spot is not None)
    single = _distinct(mutant for spot in mixed if (mutant := _altered(spot)) is not None)
    chosen = list(islice(single, most - 1))
    if failing:
        chosen.insert(1, Mutant(where=f"the changed functions of {_names(failing)}", how=ALL_RAISE, texts=failing))
    return Mutants(chosen=tuple(chosen), is_exhaustive=is_covered and bool(failing))


def _names(paths: Iterable[str]) -> str:
    first, *rest = paths
    return f"{first} and {len(rest)} more" if rest else first


def _distinct(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """Each altered source once."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for mutant in mutants:
        texts = tuple(mutant.texts.items())
        if texts not in seen:
            seen.add(texts)
            yield mutant


def _touches_documentation(change: ProductChange, tree: ast.Module) -> bool:
    """Whether a docstring has a line that was not there: tests may read it."""
    before = set((change.old or "").splitlines())
    lines = (change.new or "").splitlines()
    return any(lines[number - 1].strip() and lines[number - 1] not in before for number in docstring_lines(tree))


def _lines_of_changed(tree: ast.Module, touched: Collection[int]) -> frozenset[int]:
    """The lines of the functions that are made to raise."""
    changed = (node for node in ast.walk(tree) if isinstance(node, Function) and _is_changed(node, touched))
    return frozenset(line for node in changed for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


@dataclass(frozen=True, slots=True)
class _Spot:
    """One thing that can be altered."""

    path: str
    text: str
    position: int
    """Of the node, in the order of ``ast.walk``."""


def _spots(change: ProductChange, touched: Collection[int]) -> Iterator[tuple[str, _Spot]]:
    """Kind and place of each thing that one alteration can be made to, in the order of the lines."""
    tree = parse(change.new)
    if tree is None or change.new is None:
        return
    kept = docstrings(tree) | _annotations(tree)
    found = [(node, at, _kind(node, touched, kept=kept)) for at, node in enumerate(ast.walk(tree))]
    returned = {id(inner) for node, _, kind in found if kind == "return" for inner in ast.walk(node)}
    for node, at, kind in sorted(found, key=lambda each: getattr(each[0], "lineno", 0)):
        if kind is not None and not (kind == "constant" and id(node) in returned):
            yield kind, _Spot(change.path, change.new, at)


def _altered(spot: _Spot) -> Mutant | None:
    """The mutant with this one alteration; None if nothing is altered by it, or the source is nested too deeply."""
    try:
        tree = ast.parse(spot.text)
        whole = ast.unparse(tree) + "\n"
        line, how = _alter(next(node for at, node in enumerate(ast.walk(tree)) if at == spot.position))
        text = _unparsed(tree)
    except (RecursionError, MemoryError):
        return None
    return (
        None if text in (None, whole) else Mutant(where=f"{spot.path}:{line}", how=how, texts={spot.path: text or ""})
    )


def _kind(node: ast.AST, touched: Collection[int], *, kept: Collection[int]) -> str | None:
    """What can be altered about the node, if it is among the touched lines."""
    match node:
        case ast.Return(value=ast.expr() as part) | ast.Yield(value=ast.expr() as part):
            kind = None if isinstance(part, ast.Constant) and part.value is None else "return"
        case ast.If(test=part) | ast.IfExp(test=part):
            kind = "condition"
        case ast.Constant(value=bool() | int() | float() | str() | bytes()) if id(node) not in kept:
            kind, part = "constant", node
        case _:
            return None
    lines = range(part.lineno, (part.end_lineno or part.lineno) + 1)
    return kind if any(line in touched for line in lines) else None


def _alter(node: ast.AST) -> tuple[int, str]:
    """Alter the node in place; its line and what was done."""
    match node:
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
            node.value = _other_value(value)
            return node.lineno, f"return {_short(node.value)} in the place of {_short(value)}"
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(op=ast.Not(), operand=test)
            return node.lineno, f"the condition {_short(test)} is negated"
        case ast.Constant(value=value):
            was = _short(node)
            node.value = _other_constant(value)
            return node.lineno, f"{_short(node)} in the place of {was}"
        case _:
            raise AssertionError(node)


def _short(node: ast.expr) -> str:
    """The code of an expression, cut in the middle; a text that is cut keeps its quotes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return repr(_cut(node.value))
    return _cut(ast.unparse(node))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 18]}...{text[-15:]}"


def _other_value(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Constant):
        return ast.Constant(value=_other_constant(value.value))
    if isinstance(value, (ast.Compare, ast.BoolOp)) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    ):
        return ast.UnaryOp(op=ast.Not(), operand=value)
    return ast.Constant(value=None)


def _other_constant(value: object) -> str | bytes | int | float | bool | None:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}altered"
        case bytes():
            return value + b"altered"
        case _:
            return None


def _all_failing(tree: ast.Module, touched: Collection[int]) -> str | None:
    """The source with every changed function raising; None if no function is changed. ``tree`` is altered."""
    changed = [node for node in ast.walk(tree) if isinstance(node, Function) and _is_changed(node, touched)]
    for function in changed:
        documentation = function.body[:1] if ast.get_docstring(function) is not None else []
        function.body = [*documentation, *ast.parse('raise SystemError("altered")').body]
    return _unparsed(tree) if changed else None


def _is_changed(node: Function, touched: Collection[int]) -> bool:
    """Whether a function does something, and its body is among the touched lines."""
    if all(_does_nothing(statement) for statement in node.body):
        return False
    return any(line in touched for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _annotations(tree: ast.Module) -> set[int]:
    """The ids of all nodes in annotations, and in the lists of exported names: nothing is computed with them."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
                roots.append(annotation)
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                roots.append(annotation)
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "__version__" | "__author__")], value=value):
                roots.append(value)
            case _:
                pass
    return {id(inner) for root in roots if root is not None for inner in ast.walk(root)}


def _unparsed(tree: ast.Module) -> str | None:
    """The source of the tree; None for the rare one that does not come out as Python."""
    try:
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except (RecursionError, MemoryError):
        return None
    return text if parse(text) is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """What became of the mutants."""

    noticed: Mutant | None = None
    """The one under which a target did not pass."""
    all_ended: bool = False
    """Whether every run, and there was one, came to its end."""


def survival(mutants: Iterable[Mutant], *, run: Callable[[Mutant], SuiteRun], targets: Sequence[str]) -> Survival:
    """Whether some target does not pass under some mutant; the first that is noticed is the last that is run."""
    ended = []
    for mutant in mutants:
        report = run(mutant).report
        ended.append(report is not None)
        if report is not None and not_passing(targets, report):
            return Survival(noticed=mutant)
    return Survival(all_ended=bool(ended) and all(ended))


SHORTEST_S = 1.0
"""No run begins with less time than this."""


class TimeUp(CddError):
    """The time box is empty."""


def silence(_: Event) -> None:
    """Tell nobody."""


@dataclass(kw_only=True)
class Runs:
    """Runs tests until the time is up, and says so before each run."""

    limit_s: float
    emit: Emit
    started: float = field(default_factory=time.monotonic)
    quickest_s: float | None = None
    count: int = 0
    """Runs so far."""
    noticed: str = ""
    """Where the code was altered when a target failed."""

    def run(self, suite: Suite, purpose: str, *, tests: tuple[str, ...] = (), is_altered: bool = False) -> SuiteRun:
        """One run; raises ``TimeUp`` if it cannot begin, or does not end, in time."""
        left_s = self.limit_s - self.spent_s()
        if left_s < SHORTEST_S:
            raise self._time_up(purpose)
        self.emit(SuiteStarted(purpose=purpose, targets=tests, framework=suite.conventions.framework))
        self.count += 1
        timed = suite.within(min(suite.timeout_s, left_s, self._patience_s(is_altered)))
        run = timed.run(tests)
        if run.report is None and self.spent_s() >= self.limit_s:
            raise self._time_up(purpose)
        self.quickest_s = min(run.duration_s, self.quickest_s or run.duration_s)
        return run

    def spent_s(self) -> float:
        """Seconds since the time box was opened."""
        return time.monotonic() - self.started

    def _patience_s(self, is_altered: bool) -> float:
        """How long a run may take: altered code may run for ever, so that it gets no more than a few times as long."""
        return float("inf") if self.quickest_s is None or not is_altered else 5 + 5 * self.quickest_s

    def _time_up(self, purpose: str) -> TimeUp:
        where = "evidence_timeout_s in .cdd/config.yaml"
        return TimeUp(f"Not checked: {purpose}, within {self.limit_s:g} s ({where}).", hint=f"raise {where}")


def run_altered(copy: Suite, mutant: Mutant, *, tests: tuple[str, ...], runs: Runs) -> SuiteRun:
    """Tests over sources altered on the copy's disk, so that processes that tests start see them too."""
    files = Beneath(copy.root)
    kept = {path: files.read(path) for path in mutant.texts}
    try:
        for path, text in mutant.texts.items():
            files.write(path, text.encode("utf-8", "surrogateescape"))
        return runs.run(copy, f"targets with {mutant.where} altered", tests=tests, is_altered=True)
    finally:
        for path, content in kept.items():
            files.write(path, content)


MOST_CHARACTERIZED = 5
"""Mutants that are tried."""


def notices_changes(
    targets: tuple[str, ...],
    sources: Sequence[str],
    *,
    tree: str,
    repository: Repository,
    suite: Suite,
    time_box_s: float,
) -> bool:
    """Whether some test of ``targets`` fails under one of a few mutants of the code in ``tree`` that they name.

    The code is what the functions and classes of ``sources`` (Python files, relative to the project) hold that the
    targets' own sources name; all of it if none is named. False, too, if that cannot be found out in time.
    """
    project = project_in(repository, suite)
    files = dict.fromkeys(target.partition("::")[0] for target in targets)
    texts = sources_in(repository, project=project, tree=tree, paths=[*files, *sources])
    named = {name for file in files for name in _names_in(texts.get(file, ""))}
    changes = [
        ProductChange(path=path, old=_without(texts[path], named), new=texts[path])
        for path in sources
        if path.endswith(PYTHON) and path in texts
    ]
    mutants = mutants_of(changes, most=MOST_CHARACTERIZED).chosen
    telling = [mutant for mutant in mutants if mutant.how != ALL_RAISE] or list(mutants)
    if not targets or not telling:
        return False
    runs = Runs(limit_s=time_box_s, emit=silence)
    selection = tuple(dict.fromkeys(map(function_of, targets)))
    try:
        with clean_copy(repository, suite, green=tree, red=tree) as copy:
            found = survival(
                telling, run=lambda mutant: run_altered(copy, mutant, tests=selection, runs=runs), targets=targets
            )
    except (TimeUp, GitError, OSError):
        return False
    return found.noticed is not None


def _names_in(source: str) -> set[str]:
    """Every name and attribute in a source."""
    tree = parse(source)
    if tree is None:
        return set()
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _without(source: str, named: Collection[str]) -> str | None:
    """The source without its functions of these names, so that just those count as changed; None if it has none."""
    tree = parse(source)
    if tree is None:
        return None
    wanted = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name in named]
    gone = {line for node in wanted for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = source.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, start=1) if number not in gone) if gone else None
