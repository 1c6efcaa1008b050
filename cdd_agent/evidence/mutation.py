"""Mutants: the changed code with one alteration each, on which some target must fail.

Altered return values come first. In the second mutant every changed function raises: code counts as unproven only if
no target even runs it. Then come conditions and constants. Everything up to ``try_mutants`` is pure; ``TimedRuns`` and
the functions after it run tests within a time limit.
"""

import ast
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy as duplicate
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from typing import TypeAlias, TypeVar

from cdd_agent.errors import CddError
from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.evidence.clean_copy import (
    Findings,
    ProductChange,
    explain_failure,
    find_layout,
    find_not_passing,
    is_python,
    list_test_functions,
    note,
    read_sources,
    refuse,
)
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.evidence.source import (
    Function,
    find_changed_lines,
    find_docstring_lines,
    find_docstrings,
    list_functions,
    list_lines,
    read_names,
)
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError
from cdd_agent.sandbox.supervised import end_runs
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.untrusted.python_source import PYTHON, ForeignModule, parse, parse_valid, split_lines, with_deep_stack
from cdd_agent.work.finding import Check, Finding
from cdd_agent.work.wording import explain
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.comparison import find_unstable
from pytest_tdd_agent.report import Clause, Part, SuiteReport
from pytest_tdd_agent.sources import encode_source

MOST = 4
_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """An altered product."""

    where: str | Clause
    """The place, such as ``shop.py:12``, or several."""
    how: Clause
    texts: Mapping[str, str]
    """Path, relative to the project -> altered source."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """The functions that raise an exception with their name, if all do -> their places.

    Such a mutant only shows whether a target runs the changed code.
    """

    @property
    def what(self) -> Clause:
        """The alteration with its location."""
        return Clause("mutant", {"where": self.where, "how": self.how})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutants:
    """The mutants to try, in this order."""

    chosen: tuple[Mutant, ...]
    is_exhaustive: bool
    """Whether a target that depends on the changed code must fail on one of them."""
    foreign: tuple[str, ...] = ()
    """Changed files that only a newer Python than cdd's can parse, so that cdd cannot alter them."""


_Alter: TypeAlias = Callable[[], Mutant | None]


@with_deep_stack
def build_mutants(changes: Sequence[ProductChange], *, most: int = MOST) -> Mutants:
    """Build mutants of the changed lines. There are none if no changed line is executed."""
    by_kind: dict[str, list[_Alter]] = {"return": [], "condition": [], "constant": []}
    foreign: list[str] = []
    is_covered = True
    for change in changes:
        tree = parse(change.new) if is_python(change) else None
        if tree is None or change.new is None or isinstance(tree, ForeignModule):
            foreign += [change.path] if isinstance(tree, ForeignModule) else []
            is_covered = False
            continue
        _, touched = find_changed_lines(change.old, change.new)
        for kind, alter in _find_alterations(change.path, change.new, touched=touched):
            by_kind[kind].append(alter)
        functions = _find_changed_functions(tree, touched)
        lines = {line for node in functions for line in list_lines(node)}
        is_covered &= not _changes_docstring(change, tree) and touched <= lines
    mixed = (alter() for row in zip_longest(*by_kind.values()) for alter in row if alter is not None)
    different: dict[tuple[tuple[str, str], ...], Mutant] = {}
    for mutant in filter(None, mixed):
        different.setdefault(tuple(mutant.texts.items()), mutant)
        if len(different) == most - 1:
            break
    chosen = list(different.values())
    raising = build_raising_mutant(changes)
    if raising is not None:
        chosen.insert(1, raising)
    return Mutants(chosen=tuple(chosen), is_exhaustive=is_covered and raising is not None, foreign=tuple(foreign))


@with_deep_stack
def build_raising_mutant(changes: Sequence[ProductChange], *, left_out: Collection[str] = ()) -> Mutant | None:
    """Let the changed functions raise an exception with their name and place. None if there are none."""
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    for change in changes:
        tree = parse(change.new) if is_python(change) else None
        tree = None if isinstance(tree, ForeignModule) else tree
        _, touched = find_changed_lines(change.old, change.new or "")
        found = _find_changed_functions(tree, touched) if tree is not None else []
        named = {f"{node.name} ({change.path}:{node.lineno})": node for node in found}
        for name in named.keys() - left_out:  # docstrings stay for doctests
            kept = named[name].body[:1] if ast.get_docstring(named[name]) is not None else []
            # Without a yield, it would be a coroutine, with which its caller fails in another way.
            end = "\nyield" if isinstance(named[name], ast.AsyncFunctionDef) and _yields(named[name]) else ""
            named[name].body = [*kept, *parse_valid(f"raise SystemError({f'altered {name}'!r}){end}").body]
        text = _unparse(tree) if tree is not None and named.keys() - left_out else None
        if text is not None:
            texts[change.path] = text
            places |= {name: f"{change.path}:{named[name].lineno}" for name in named if name not in left_out}
    where = Clause("changed_functions", {"files": tuple(texts)})
    return Mutant(where=where, how=Clause("all_raise"), texts=texts, functions=places) if texts else None


def _yields(node: ast.AST) -> bool:
    inner = (each for each in ast.iter_child_nodes(node) if not isinstance(each, Function | ast.Lambda))
    return any(isinstance(each, ast.Yield) or _yields(each) for each in inner)


def find_unnoticed_functions(
    changes: Sequence[ProductChange], *, run: Callable[[Mutant], SuiteRun], targets: Sequence[str]
) -> Findings:
    """Return a notice of the changed functions in which an exception makes no test fail.

    A function may hide those that it calls, so functions that were noticed are left out, and the others run again.
    """
    noticed: set[str] = set()
    while (mutant := build_raising_mutant(changes, left_out=noticed)) is not None:
        report = run(mutant).report
        failures = [case.failure for case in report.tests if case.failure is not None] if report is not None else []
        messages = "\n".join(failure.message for failure in failures)
        found = {name for name in mutant.functions if f"altered {name}" in messages}
        if not found and (report is None or find_not_passing(targets, report)):
            case = "raising_did_not_end" if report is None else "raising_fails_otherwise"
            return note("mutants", case, places=tuple(mutant.functions.values()), named=tuple(mutant.functions))
        if not found:
            places, named = tuple(mutant.functions.values()), tuple(mutant.functions)
            return note("mutants", "unnoticed", outcome="review", places=places, named=named)
        noticed |= found
    return Findings()


def _changes_docstring(change: ProductChange, tree: ast.Module) -> bool:
    # Tests may read a docstring, and no mutant alters one.
    before = set(split_lines(change.old or ""))
    lines = split_lines(change.new or "")
    return any(lines[number - 1].strip() and lines[number - 1] not in before for number in find_docstring_lines(tree))


def _find_alterations(path: str, text: str, *, touched: Collection[int]) -> Iterator[tuple[str, _Alter]]:
    tree = parse_valid(text)
    fixed = find_docstrings(tree) | _find_annotations(tree)
    nodes = [(node, index, _classify(node, touched, fixed=fixed)) for index, node in enumerate(ast.walk(tree))]
    returned = {id(inner) for node, _, kind in nodes if kind == "return" for inner in ast.walk(node)}
    for node, index, kind in sorted(nodes, key=lambda each: getattr(each[0], "lineno", 0)):
        # A returned value is altered as a whole, so the constants in it are not altered again.
        if kind is not None and not (kind == "constant" and id(node) in returned):
            yield kind, partial(_alter_node, path, text, index=index)


def _alter_node(path: str, text: str, *, index: int) -> Mutant | None:
    """Alter the node at this index of ``ast.walk``. None if the source stays the same."""
    tree = parse_valid(text)
    before = ast.unparse(tree) + "\n"
    line, how = _alter(next(islice(ast.walk(tree), index, None)))
    altered = _unparse(tree)
    return Mutant(where=f"{path}:{line}", how=how, texts={path: altered}) if altered not in (None, before) else None


def _classify(node: ast.AST, touched: Collection[int], *, fixed: Collection[int]) -> str | None:
    match node:
        case ast.Return(value=ast.expr() as part) | ast.Yield(value=ast.expr() as part):
            kind = None if isinstance(part, ast.Constant) and part.value is None else "return"
        case ast.If(test=part) | ast.IfExp(test=part):
            kind = "condition"
        case ast.Constant(value=bool() | int() | float() | str() | bytes()) if id(node) not in fixed:
            kind, part = "constant", node
        case _:
            return None
    return kind if any(line in touched for line in list_lines(part)) else None


def _alter(node: ast.AST) -> tuple[int, Clause]:
    """Alter the node in place. Return its line and what was altered."""
    match node:
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
            node.value = _replace_value(value)
            return node.lineno, Clause("other_result", {"now": _shorten(node.value), "before": _shorten(value)})
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(op=ast.Not(), operand=test)
            return node.lineno, Clause("negated", {"condition": _shorten(test)})
        case ast.Constant(value=value):
            before = _shorten(node)
            node.value = _replace_constant(value)
            return node.lineno, Clause("other_value", {"now": _shorten(node), "before": before})
        case _:
            raise AssertionError(node)


def _shorten(node: ast.expr) -> str:
    """Return the code of an expression, cut in the middle. Text is cut inside its quotes."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    text = str(node.value) if is_text and isinstance(node, ast.Constant) else ast.unparse(node)
    cut = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 18]}...{text[-15:]}"
    return repr(cut) if is_text else cut


def _replace_value(value: ast.expr) -> ast.expr:
    match value:
        case ast.Constant():
            return ast.Constant(value=_replace_constant(value.value))
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return ast.UnaryOp(op=ast.Not(), operand=value)
        case _:
            return ast.Constant(value=None)


def _replace_constant(value: object) -> str | bytes | int | float | bool | None:
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


def _find_changed_functions(tree: ast.Module, touched: Collection[int]) -> list[Function]:
    """Return the functions with a touched line in their body, except those that do nothing."""
    return [
        node
        for node in list_functions(tree)
        if not all(_does_nothing(statement) for statement in node.body)
        and any(line in touched for line in list_lines(node) if line >= node.body[0].lineno)
    ]


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _find_annotations(tree: ast.Module) -> set[int]:
    """Return the ids of nodes in annotations and module metadata, which no test can notice."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
                roots.append(annotation)
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                roots.append(annotation)
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "__version__" | "__author__")], value=value):
                roots.append(value)
    return {id(inner) for root in roots if root is not None for inner in ast.walk(root)}


def _unparse(tree: ast.Module) -> str | None:
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    # Some altered trees do not unparse to valid Python.
    return text if parse(text) is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """The result of trying mutants."""

    noticed: Mutant | None = None
    all_ended: bool = False
    """Whether there were runs, and all of them ended."""


def try_mutants(mutants: Iterable[Mutant], *, run: Callable[[Mutant], SuiteRun], targets: Sequence[str]) -> Survival:
    """Run the targets on each mutant until one does not pass."""
    ended = []
    for mutant in mutants:
        report = run(mutant).report
        ended.append(report is not None)
        if report is not None and find_not_passing(targets, report):
            return Survival(noticed=mutant)
    return Survival(all_ended=bool(ended) and all(ended))


_POLL_S = 0.05
SHORTEST_S = 1.0
"""A run needs at least this much time to begin."""


class TimeUp(CddError):
    """The time limit was reached."""

    def __init__(self, purpose: str, limit_s: float) -> None:
        """``purpose``: of the run for which no time was left."""
        self.clause = Clause("time_up", {"purpose": purpose, "limit_s": float(limit_s)})
        happened = explain(Clause("not_verified", {"why": self.clause}))
        super().__init__(happened, hint="raise evidence_timeout_s in .cdd/config.yaml")


def find_obstacle(error: TimeUp | GitError | OSError) -> Clause:
    """Return why an experiment could not be made."""
    return error.clause if isinstance(error, TimeUp) else Clause("no_clean_copy", {"why": explain_failure(error)})


def report_unverified(check: Check, error: TimeUp | GitError | OSError) -> Findings:
    """Return that a check could not be made."""
    return note(check, "not_verified", why=find_obstacle(error))


@dataclass(kw_only=True)
class _Spent:
    """What all runs of one attempt have used."""

    used_s: float = 0.0
    quickest_s: float | None = None
    count: int = 0
    copy_s: float = 0.0
    """The longest time for a copy."""
    is_stopped: bool = False


_Result = TypeVar("_Result")


@dataclass(kw_only=True)
class TimedRuns:
    """Runs the tests of copies of a project until the time is up, with an event before each run.

    All checks of one attempt share it. Several threads may use it.
    """

    repository: Repository
    suite: Suite
    """Of the project itself."""
    limit_s: float
    """For all copies and runs together. 0: no runs."""
    emit: Emit
    noticed: Mutant | None = None
    """The alteration that made a target fail."""
    part_s: float | None = None
    """The time at which these runs end, if they may use only a part."""
    spent: _Spent = field(default_factory=_Spent)
    copies: CleanCopies | None = None
    """Copies that other runs use too; with None, these runs make some and delete them."""

    def __post_init__(self) -> None:
        """Make no copy yet."""
        self._copies = self.copies or CleanCopies(self.repository, self.suite)
        self._alone = threading.Lock()

    def take_part(self, part: float) -> "TimedRuns":
        """Return runs of the same copies that end when this part of the remaining time is used up."""
        own = duplicate(self)
        own.part_s = self.spent.used_s + part * (self.limit_s - self.spent.used_s)
        return own

    def confirm(self, check: Check, case: str, *, places: tuple[str, ...] = (), **parts: Part) -> Findings:
        """Return what the runs have shown, and what they took."""
        found = Finding(check=check, outcome="confirmed", case=case, places=places, parts=parts)
        return Findings(notices=(replace(found, runs=self.spent.count, seconds=round(self.spent.used_s, 1)),))

    @contextmanager
    def copy(self, *, green: str, red: str) -> Iterator[Suite]:
        """Lend a clean copy of the project, as ``clean_copy`` makes it. Checks of the same trees share it."""
        began = time.monotonic()
        with self._copies.lend(green=green, red=red) as suite:
            copy_s = time.monotonic() - began
            self.spent.copy_s = max(self.spent.copy_s, copy_s)
            self.use(copy_s)
            yield suite

    def close(self) -> None:
        """Delete the copies that nobody else uses."""
        if self.copies is None:
            self._copies.close()

    def use(self, seconds: float) -> None:
        """Count time that was used."""
        with self._alone:
            self.spent.used_s += seconds

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return (self.limit_s if self.part_s is None else self.part_s) - self.spent.used_s

    def run_side_by_side(self, *experiments: Callable[[], _Result]) -> Iterator[_Result]:
        """Yield the results of experiments in their order; as many run at the same time as there are processors.

        Experiments whose results are not wanted any more are stopped. If a copy takes longer than a run, they run one
        after the other in one copy.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        if cores < 2 or self.spent.copy_s > (self.spent.quickest_s or self.spent.copy_s):
            yield from (experiment() for experiment in experiments)
            return
        executor = ThreadPoolExecutor(min(cores, len(experiments)))
        futures = [executor.submit(experiment) for experiment in experiments]
        try:
            for future in futures:
                yield future.result()
        finally:
            # Ctrl-C raises in the main thread only, and a run of another thread would go on.
            self.spent.is_stopped = True
            executor.shutdown(wait=False, cancel_futures=True)
            # ``wait`` alone counts a future that was cancelled before it began as not done, for ever.
            while running := [future for future in futures if not future.done()]:
                end_runs()
                wait(running, timeout=_POLL_S)
            self.spent.is_stopped = False

    def run(
        self,
        suite: Suite,
        purpose: str,
        *,
        tests: tuple[str, ...] = (),
        is_altered: bool = False,
        is_usual: bool = True,
    ) -> SuiteRun:
        """Run tests. Raises ``TimeUp`` if the run cannot begin or end in time.

        ``is_usual``: the run takes the time of the tests.
        """
        left_s, quickest_s = self.left_s, self.spent.quickest_s
        if left_s < SHORTEST_S or self.spent.is_stopped:
            raise TimeUp(purpose, self.limit_s)
        with self._alone:
            self.emit(SuiteStarted(purpose=purpose, targets=tests, framework=suite.conventions.framework))
            self.spent.count += 1
        # Altered code may never end, so it gets only a few times the time of the quickest run.
        patience_s = float("inf") if quickest_s is None or not is_altered else 5 + 5 * quickest_s
        began = time.monotonic()
        run = suite.with_timeout(min(suite.timeout_s, left_s, patience_s)).run(tests)
        self.use(time.monotonic() - began)
        if run.report is None and self.left_s <= 0:
            raise TimeUp(purpose, self.limit_s)
        if is_usual:
            self.spent.quickest_s = min(run.duration_s, quickest_s or run.duration_s)
        return run


def run_mutant(copy: Suite, mutant: Mutant, *, tests: tuple[str, ...], runs: TimedRuns) -> SuiteRun:
    """Run tests with the mutant's sources on disk, where processes that the tests start see them too."""
    purpose = explain(Clause("purpose_altered", {"where": mutant.where}))
    # Tests have run in this folder and may have left links that lead out of it.
    files = ConfinedFolder(copy.root)
    originals = {path: files.read(path) for path in mutant.texts}
    try:
        for path, text in mutant.texts.items():
            is_source = path.endswith(PYTHON)
            files.write(path, encode_source(text) if is_source else text.encode("utf-8", "surrogateescape"))
        return runs.run(copy, purpose, tests=tests, is_altered=True)
    finally:
        for path, content in originals.items():
            files.write(path, content)


def find_changing_ids(
    lost: Sequence[str], *, before: SuiteReport, tree: str, runs: TimedRuns
) -> tuple[tuple[str, ...], Findings]:
    """Return the functions of ``lost`` whose node ids differ from ``before`` although the same ``tree`` runs again.

    A finding says so if that could not be tried.
    """
    functions = list_test_functions(lost)
    try:
        with runs.copy(green=tree, red=tree) as copy:
            again = runs.run(copy, "targets again without the change", tests=functions).report
    except (TimeUp, GitError, OSError) as error:
        return (), report_unverified("run", error)
    changing = () if again is None else tuple(each for each in find_unstable(again, before) if each in functions)
    return changing, Findings()


MOST_CHARACTERIZED = 5


def judge_covered_tests(targets: tuple[str, ...], sources: Sequence[str], *, tree: str, runs: TimedRuns) -> Findings:
    """Refuse tests that pass at once and on every mutant of the code in ``tree`` that they name: they prove nothing.

    The code is those functions and classes of ``sources`` (files, relative to the project) whose names occur in the
    targets' files, or all of it. In other languages than Python, the only mutant is a source without content. A notice
    says why nothing is verified.
    """
    project = find_layout(runs.repository, runs.suite).project
    texts = read_sources(runs.repository, project=project, tree=tree, paths=sources)
    shown = tuple(sources) or (Clause("the_code"),)
    if runs.suite.conventions.is_python:
        functions = list_test_functions(targets)
        tests = read_sources(runs.repository, project=project, tree=tree, paths=targets)
        names = {name for text in tests.values() for name in read_names(parse(text))}
        changes = [
            ProductChange(path=path, old=_remove_functions(texts[path], names), new=texts[path])
            for path in sources
            if path.endswith(PYTHON) and path in texts
        ]
        mutants = build_mutants(changes, most=MOST_CHARACTERIZED).chosen
        chosen = [mutant for mutant in mutants if not mutant.functions] or list(mutants)
    else:
        # A file that cannot be loaded has no tests that could be named.
        functions = tuple(dict.fromkeys(target.partition("::")[0] for target in targets))
        chosen = [Mutant(where=path, how=Clause("no_content"), texts={path: ""}) for path in texts]
    if not targets or not chosen:
        return refuse("vacuous_test", "covered_without_code", sources=shown)
    try:
        with runs.copy(green=tree, red=tree) as copy:
            outcome = try_mutants(chosen, run=partial(run_mutant, copy, tests=functions, runs=runs), targets=targets)
    except (TimeUp, GitError, OSError) as error:
        return note("mutants", "covered_not_tried", why=find_obstacle(error))
    if outcome.noticed is None and outcome.all_ended:
        return refuse("vacuous_test", "covered_when_altered", tried=tuple(mutant.what for mutant in chosen))
    if outcome.noticed is None:
        return note("mutants", "covered_did_not_end")
    if not runs.suite.conventions.is_python:
        return note("mutants", "covered_as_a_whole", sources=shown)
    return Findings()


def _remove_functions(source: str, names: Collection[str]) -> str | None:
    """Remove the functions of these names, which makes them count as changed. None if there are none."""
    tree = parse(source)
    if tree is None:
        return None
    removed = {line for node in list_functions(tree) if node.name in names for line in list_lines(node)}
    lines = split_lines(source)
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in removed) if removed else None
