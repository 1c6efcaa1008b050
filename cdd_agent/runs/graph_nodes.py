"""The nodes of a planning graph as a source of work: each leaf is a step with RED and GREEN.

A node whose attempts are used up fails, and nodes that need it are skipped; the others go on.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import assert_never

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.generation.embedding import find_embedder
from cdd_agent.generation.imports import ImportSources, add_imports
from cdd_agent.generation.late_code import write_late_code
from cdd_agent.generation.localize import Localizer
from cdd_agent.generation.plan import GenerationPlan, name_integration
from cdd_agent.generation.requirements import list_required, read_name
from cdd_agent.generation.search import GraphSearch
from cdd_agent.generation.signatures import Deviation, check_signature, choose_stub_error
from cdd_agent.generation.skeleton import list_complete
from cdd_agent.generation.traceability import MissingCode, group_tests, is_conftest, is_inside, list_changed
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.runs.ledger import Known, Ledger, Unknown
from cdd_agent.runs.node_diagnosis import NodeDiagnosis, read_present
from cdd_agent.runs.node_localization import NodeLocalization
from cdd_agent.runs.private_branch import PrivateBranch
from cdd_agent.runs.run import Run, Source
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, ResumeCommands, SuiteTask, WorkItem
from cdd_agent.tdd.instructions import describe_item
from cdd_agent.tdd.phase_run import Ending, How
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import has_test
from cdd_agent.testrun.impact import load_impact
from cdd_agent.tickets.graph import Group, Node
from cdd_agent.tickets.plan import find_ready
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, reconcile
from cdd_agent.work.state_file import load_state
from cdd_agent.workspace.files import ConfinedFolder, Workspace
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import Clause, Part, Reason, SuiteReport, list_failing

MAX_ROUNDS = 8
"""Attempts at debugging a node after the first one."""
MIN_TESTS = 3
"""The fewest tests of a node: of the normal case, of an edge, and of an error."""
PATH_SHARE = 0.8
"""The share of the paths of a subgraph that must have a passing integration test."""
INTEGRATION_ATTEMPTS = 3
_MAX_RETURNS = 2
"""How often the tests of a node may be written anew because they are wrong."""
_ANY_EXCEPTION = "BaseException"
"""The exception of a stub whose docstring names all others that count as missing code."""
_PATH_TEST = re.compile(r"test_path_([1-9][0-9]{0,3})(?![0-9])[^:]*")
_INTEGRATION_TASK = (
    "Write `{tests}` with one test for each path: it calls the first part, passes what that gives on along the path, "
    "and checks the result of the last part. Name the test of path N `test_path_N`. The parts exist and pass their own "
    "tests, so these tests should pass at once. Replace network, clock, database and chance by fixtures. If a test "
    "fails, find out whether it expects something that the docstrings do not say, and correct it."
)
_PROMPTS = Path(__file__).parent / "prompts"
_TASKS: Mapping[Phase, str] = {
    "red": "Write the tests of this part in `{tests}`: at least three, for normal, edge and error cases. Derive them "
    "from the docstring, the signature and the example. They must fail because the body is missing.",
    "green": "Write the body of this part in {files}, so that its tests pass.",
}
_TASK_OF_GIVEN_TESTS = (
    "Write the body of this part in {files}. The tests of the repository exist, and you cannot change them. Those that "
    "need this part must pass as far as the code that they need exists."
)
_TASK_WITHOUT_TESTS = (
    "Write the body of this part in {files}. No test of the repository enters it yet, so follow docstring and "
    "signature exactly: tests may need it later."
)
MAX_IDENTICAL_FAILURES = 3
"""Attempts with the same failures after which a node with given tests is left: nobody can correct the tests."""


class GraphNodes:
    """The leaves of a planning graph, subgraph by subgraph, each after the nodes that it needs."""

    workflow = "generate"
    makes_project = True
    is_open_ended = False
    max_attempts = 1 + MAX_ROUNDS
    """At the body of a node."""

    def __init__(
        self, plan: GenerationPlan, *, ticket: Ticket, branch: PrivateBranch | None, commands: ResumeCommands
    ) -> None:
        """Read nothing yet. ``branch`` is where the nodes land; None: in the branch of a fork, for a single node."""
        self.plan = plan
        self.ticket = ticket
        self.commands = commands
        self.title = f"Generate {plan.layout.package} from {plan.source.name}"
        self.depends: Mapping[int, tuple[int, ...]] = {}
        self.remarks: tuple[str, ...] = ()
        self.scope: frozenset[int] | None = None
        """The steps that may run now; None: all."""
        self.least_tests = MIN_TESTS
        """The fewest tests that RED may add; a node that is written again has some."""
        self._branch = branch
        self._order: tuple[int, ...] = ()
        self._keys: tuple[StepKey, ...] = ()
        self.is_new = True
        """Whether no state was saved."""
        self._written: tuple[str, ...] = ()
        """As ``list_passed_names`` returns them, when the present node began."""
        self._run: Run[Source] | None = None
        """The run, once it is open."""
        self._before: tuple[Path, SuiteReport, Mapping[str, Collection[str]]] | None = None
        """The results of ``_read_results``, and where the report is."""

    def adapt_policy(self, policy: Policy) -> Policy:
        """Return ``policy`` with the rules of this workflow."""
        adapted = replace(adapt_policy(policy), seconds_per_test=self.plan.seconds_per_test)
        if not self.plan.has_user_tests:
            return adapted
        # A test that fails for a reason outside of the code must not keep the code from landing.
        return replace(
            adapted,
            runs_targets_only=True,
            traces=True,
            keeps_partial=True,
            max_identical_failures=MAX_IDENTICAL_FAILURES,
        )

    def read(self, *, now: str) -> RunState:
        """Return the saved state adapted to the graph, or a new one."""
        known = load_state(self.ticket.state_path)
        keys = self.plan.number_steps(known)
        numbers = {key.title: key.number for key in keys}
        self.depends = self.plan.order_dependencies(keys)
        self._order = tuple(numbers[self.plan.layout.title_of(node)] for node in self.plan.nodes)
        self._keys = keys
        first = RunState(ticket_slug=self.ticket.slug, started_at=now, step_executions=states.pending_steps(keys))
        self.is_new = known is None
        state, self.remarks = reconcile(known or first, keys)
        return self._pass_complete(state)

    def _pass_complete(self, state: RunState) -> RunState:
        """Return ``state`` with the nodes passed that the skeleton completes, such as enumerations."""
        for title in self._complete:
            step = next(each for each in state.step_executions.values() if each.title == title)
            if step.status == Status.PENDING:
                done = replace(step, status=Status.COMPLETED, completed_at=state.started_at)
                state = states.replace_step(state, done)
        return state

    @cached_property
    def _complete(self) -> tuple[str, ...]:
        graph, layout = self.plan.graph, self.plan.layout
        return tuple(layout.title_of(graph.by_id[name]) for name in list_complete(graph, layout))

    def open(self, run: Run[Source]) -> RunState:
        """Return the state of the private branch; begin it at the user's HEAD if no commit waits to land."""
        self._run = run
        if self._branch is None:
            return run.state
        commits.require_finished(self._branch.home)
        named = {commit for step in run.state.step_executions.values() for commit in step.commits.values()}
        tip = self._branch.open(named)
        repository = self._branch.repository
        saved = None if self.is_new else run.state
        ledger = Ledger(slug=self.ticket.slug, saved=saved, repository=repository, project=repository.root)
        match ledger.state_at(tip):
            case Known(state=state, basis=basis):
                if basis == "notes alone":
                    run.context.emit(Notice(text="The records of this generation are lost. Its notes say what passed."))
                    state, _ = reconcile(state, self._keys)
                    run.save(replace(state, branch=self._branch.name))
            case Unknown(why="no records"):
                state = run.state
            case Unknown(why="shallow"):
                raise UsageError(
                    "This clone is shallow, so it may lack commits of the run. Nothing was touched.",
                    hint="git fetch --unshallow",
                )
        return replace(self._pass_complete(state), branch=self._branch.name)

    def next(self, state: RunState) -> WorkItem | None:
        """Return the node in progress, else the first pending one in order whose dependencies have passed."""
        in_progress, pending = state.numbers(Status.IN_PROGRESS), set(state.numbers(Status.PENDING))
        can_run = find_ready(self.depends, completed=state.numbers(Status.COMPLETED))
        runnable = (*in_progress, *(n for n in self._order if n in can_run and n in pending))
        number = next((n for n in runnable if self.scope is None or n in self.scope), None)
        return None if number is None else self.find(state, number)

    def find(self, state: RunState, number: int) -> WorkItem | None:
        """Return the item of a node, or of integration tests; None if the graph no longer has it."""
        group = self.plan.integrations.get(state.execution(number).title)
        if group is not None:
            return self._make_integration(group, number)
        node = self.find_node(state, number)
        return None if node is None else self._make_item(node, state.execution(number))

    def find_node(self, state: RunState, number: int) -> Node | None:
        """Return the node of a step; None if the graph no longer has it."""
        return self.plan.by_title.get(state.execution(number).title)

    def _make_item(self, node: Node, step: StepExecution) -> WorkItem:
        is_given = self.plan.has_user_tests
        files, tests = self.plan.list_needed_files(node), () if is_given else (self.plan.find_test_path(node),)
        raised = {choose_stub_error(each.docstring) for each in node.definitions}
        return WorkItem(
            ticket=self.ticket.slug,
            number=step.step_number,
            title=self.plan.layout.title_of(node),
            goal=self.plan.describe(node),
            kind="feature",
            phases=("green",) if is_given else ("red", "green"),
            # So RED may change what the tests of a node expect that is written again.
            tests=self._list_entering(node, step) if is_given else tests if step.landed is not None else (),
            sources=self.plan.list_files(node),
            named=(*tests, *files),
            expects=tuple(raised.intersection({_ANY_EXCEPTION})),
            # So each sees its own files as those before it have left them, whatever runs beside it.
            exclusive=(*tests, *self.plan.list_files(node)),
            extra_files=tests,
            text_sha256=self.plan.digest(node),
            total=len(self._keys),
        )

    # Tests that the user gives

    def _list_entering(self, node: Node, step: StepExecution) -> tuple[str, ...]:
        """Return the tests and files that fail, and enter this node, on the files before it."""
        run = self._run
        if run is None or step.status == Status.COMPLETED:
            return ()
        report, entered = self._read_results(run.context)
        read = partial(_read_committed, repository=run.context.repository)
        entering = self._find_missing([node], read).find_waiting(report, entered)
        # No test is in a conftest.py. While one waits, a node is written from its docstring.
        return group_tests({each for each in entering if not is_conftest(each)}, list_failing(report))

    def _list_affected(self, node: Node, context: Context) -> frozenset[str]:
        """Return the files of passing tests that enter functions of other nodes which the attempt has changed."""
        own = self.plan.layout.place_definitions(node)
        entered, found = load_impact(context.impact_path).files, set[str]()
        for path in {real for _, real in self.plan.layout.rows}:
            before, after = _read_committed(path, context.repository), read_present(path, context.workspace)
            names = {name for at, name in own if at == path}
            for name in list_changed(before, after) if before != after else ():
                if not is_inside(name, names):
                    found.update(entered.get(f"{path}::{name}", ()))
        return frozenset(test.partition("::")[0] for test in found)

    def _read_results(self, context: Context) -> tuple[SuiteReport, Mapping[str, Collection[str]]]:
        """Return the report of all tests on the last commit, and what they entered; they run if they have not."""
        tip = context.repository.read_head()
        kept = context.reports / f"before-{tip}.json"
        if self._before is None or self._before[0] != kept:
            if not kept.exists():
                for old in context.reports.glob("before-*.json"):
                    old.unlink()
                context.workplace.begin()
                task = SuiteTask(context=context, purpose="all tests before the node", keep=kept, spans_commits=True)
                self._require_conftest(context.require_report(context.finish_for_gate(task)), context)
            self._before = (kept, load(kept), load_impact(context.impact_path).files)
        return self._before[1:]

    def _require_conftest(self, report: SuiteReport, context: Context) -> None:
        """Raise ``EnvironmentMissing`` if a ``conftest.py`` keeps all tests from running, and waits for nothing."""
        waiting = self.find_waiting(report, context=context)
        for error in report.collect_errors:
            if not is_conftest(error.nodeid):
                continue
            if error.nodeid not in waiting:
                hint = "install what it needs, or correct it or the code that it calls; then the same command"
                raise EnvironmentMissing(f"No test can run. {error.failure.text.strip()}", hint=hint)
            text = f"{error.nodeid} needs code that is not written yet, so no test can run until it is."
            if text not in context.told:
                context.told.add(text)
                context.emit(Notice(text=text))

    def _find_missing(self, nodes: Iterable[Node], read: Callable[[str], str], *, is_all: bool = False) -> MissingCode:
        """Return ``nodes`` as code that is missing; ``is_all``: with the code that waits for other code."""
        stubs: dict[str, set[str]] = {}
        for node in nodes:
            for path, name in self.plan.layout.place_definitions(node):
                stubs.setdefault(path, set()).add(name)
        paths = {real for _, real in self.plan.layout.rows} if is_all else stubs.keys()
        texts = {path: read(path) for path in paths}
        return MissingCode(stubs=stubs, texts=texts, counts_late=is_all)

    def find_waiting(self, report: SuiteReport, *, number: int = 0, context: Context) -> frozenset[str]:
        """Return the failing tests that wait for a node which has not passed, other than this one."""
        assert self._run is not None
        steps = self._run.state.step_executions
        others = [n for n, step in steps.items() if step.status != Status.COMPLETED and n != number]
        nodes = [node for n in others if (node := self.find_node(self._run.state, n)) is not None]
        missing = self._find_missing(nodes, partial(read_present, workspace=context.workspace), is_all=True)
        return missing.find_waiting(report, load_impact(context.impact_path).files)

    def _name_passing(self, item: WorkItem, _: str) -> WorkItem:
        """Return the item with those of its tests that pass now; the others wait for later nodes."""
        assert self._run is not None
        attempts = self._run.state.execution(item.number).attempts
        report = load_report(attempts[-1], root=self._run.context.records.folder)
        cases = report.tests if report is not None else ()
        passed = {case.nodeid for case in cases if case.outcome == "passed" and has_test(item, case.nodeid)}
        return replace(item, tests=group_tests(passed, [case.nodeid for case in cases]))

    def _make_integration(self, group: Group, number: int) -> WorkItem:
        nodes = {node.id: node for path in self.plan.list_paths(group) for node in path}
        files = (path for node in nodes.values() for path in self.plan.list_files(node))
        tests = self.plan.find_integration_path(group)
        return WorkItem(
            ticket=self.ticket.slug,
            number=number,
            title=name_integration(group),
            goal=self.plan.describe_paths(group),
            kind="feature",
            phases=("red",),
            tests=(),
            sources=tuple(dict.fromkeys(files)),
            named=(tests,),
            extra_files=(tests,),
            text_sha256=self.plan.digest_paths(group),
            total=len(self._keys),
        )

    def list_changes(self, context: Context) -> tuple[str, ...]:
        """Return nothing: the user's changes concern landings alone."""
        return ()

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        """Return ``state``, after what its nodes define has been noted: the skeleton is prepared before the run."""
        self._written = self.list_passed_names(state)
        return state

    def list_passed_names(self, state: RunState) -> tuple[str, ...]:
        """Return the import paths of all that the nodes define which have passed."""
        passed = (self.find_node(state, number) for number in state.numbers(Status.COMPLETED))
        return tuple(name for node in passed if node for name in self.plan.layout.name_definitions(node))

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        """Return the brief for the tests or the body of a node, or for integration tests."""
        group = self.plan.integrations.get(item.title)
        if group is not None:
            return self._brief_integration(item, group)
        node, workspace = self.plan.by_title[item.title], context.workspace
        tests, files = self.plan.find_test_path(node), self.plan.list_files(node)
        has_user_tests, task = self.plan.has_user_tests, _TASKS[phase]
        if has_user_tests:
            task = _TASK_OF_GIVEN_TESTS if item.tests else _TASK_WITHOUT_TESTS

        def check(report: SuiteReport, baseline: SuiteReport) -> tuple[Reason, ...]:
            if phase == "red":
                return self._check_tests(item, report, baseline=baseline, context=context)
            return self._find_changed_signatures(node, workspace)

        made = Brief(
            phase=phase,
            kind=item.kind,
            agent="generator",
            role=(_PROMPTS / "generate.md").read_text(encoding="utf-8"),
            work=f"generate {item.ticket} {item.title} {phase}",
            task=task.format(tests=tests, files=", ".join(f"`{path}`" for path in files)),
            requirements=describe_item(item, heading="Part"),
            source="planning graph",
            check=check,
            complete=partial(self._complete_files, node, workspace) if phase == "green" else None,
            diagnose=None if has_user_tests else self._make_diagnosis(item, phase, node=node, context=context).find,
            find_waiting=partial(self.find_waiting, number=item.number, context=context) if has_user_tests else None,
            finalize_item=self._name_passing if has_user_tests else None,
            list_affected=partial(self._list_affected, node, context) if has_user_tests else None,
        )
        if phase != "green":
            return made
        places = self._make_localization(item, node=node, context=context)
        return replace(
            made, make_tools=places.make_tools, find_places=places.describe_places, keep_name=self._keep_name
        )

    def _keep_name(self, symbol: Symbol) -> str:
        """Return why a definition keeps its name: the graph has it, and other nodes and tests go by it."""
        title = self.plan.planned_names.get((symbol.path, symbol.name))
        return "" if title is None else f"the graph names it, in {title}."

    def _complete_files(self, node: Node, workspace: Workspace) -> Iterator[str]:
        """Write the code of a node's files that waited for it, and imports where only one can be meant."""
        written = (*self._written, *self.plan.layout.name_definitions(node))
        for path in dict.fromkeys(each.file_path for each in node.definitions):
            real, module = self.plan.layout.map_path(path), self.plan.layout.module_of(path)
            # Where the file is missing or no text, the gate says so.
            with suppress(UsageError, OSError):
                file = workspace.read_text(real)
                late = write_late_code(file.text, written)
                completed = add_imports(late, self._imports.find_available(module))
                if completed.text == file.text:
                    continue
                ConfinedFolder(workspace.root).write(real, file.render(completed.text, is_whole=False).data)
                if late != file.text:
                    yield f"{real}: the code that waited for this part is active now."
                if completed.added:
                    yield f"{real}: added {', '.join(map(str, completed.added))}."

    @cached_property
    def _imports(self) -> ImportSources:
        installed = [read_name(line).replace("-", "_") for line in list_required(self.plan.graph)]
        return ImportSources.of(self.plan.graph, self.plan.layout, installed=installed)

    def _check_tests(
        self, item: WorkItem, report: SuiteReport, *, baseline: SuiteReport, context: Context
    ) -> tuple[Reason, ...]:
        """Return reasons against too few new tests, and if RED was taken back, against weaker ones than before."""
        assert self._run is not None
        returned = self._run.state.execution(item.number).returned
        pairs = [(each, load_report(each, root=context.records.folder)) for each in returned]
        reds = [found for each, found in pairs if found is not None and each.phase == "red" and each.is_open]
        greens = [found for each, found in pairs if found is not None and each.phase == "green"]
        # A flaky test passes when it runs again. That says nothing for it.
        refused = {strip_parameters(why.nodeid) for each in returned for why in each.reasons if why.nodeid}
        least = max([self.least_tests, *(len(_list_added(found, baseline)) for found in reds)])
        dropped = _find_dropped(report, greens[-1], baseline=baseline, refused=refused) if greens else ()
        return (*_find_too_few(report, baseline, least=least), *dropped)

    def _make_diagnosis(self, item: WorkItem, phase: Phase, *, node: Node, context: Context) -> NodeDiagnosis:
        def read_step() -> StepExecution:
            assert self._run is not None
            return self._run.state.execution(item.number)

        return NodeDiagnosis(
            plan=self.plan,
            node=node,
            item=item,
            phase=phase,
            context=context,
            localization=self._make_localization(item, node=node, context=context),
            read_step=read_step,
        )

    def _make_localization(self, item: WorkItem, *, node: Node, context: Context) -> NodeLocalization:
        run = self._run
        assert run is not None
        assert context.symbols is not None
        return NodeLocalization(
            localizer=self._localizer,
            node=node,
            item=item,
            context=context,
            definitions=context.symbols,
            clock=run.clock,
            read_state=lambda: run.state,
        )

    @cached_property
    def _localizer(self) -> Localizer:
        assert self._run is not None
        context, graph = self._run.context, self.plan.graph
        embedder = find_embedder(context.records.folder / "vectors", tell=lambda text: context.emit(Notice(text=text)))
        return Localizer(graph, self.plan.layout, search=lambda: GraphSearch(graph, embedder=embedder))

    def _brief_integration(self, item: WorkItem, group: Group) -> Brief:
        tests, count = self.plan.find_integration_path(group), len(self.plan.list_paths(group))

        def check(report: SuiteReport, baseline: SuiteReport) -> tuple[Reason, ...]:
            paths = list_passing_paths(report, tests)
            least = math.ceil(PATH_SHARE * count)
            if len(paths) >= least:
                return ()
            return (Reason(code="too_few_paths", nodeid=None, parts={"count": len(paths), "least": least}),)

        return Brief(
            phase="red",
            kind=item.kind,
            agent="generator",
            role=(_PROMPTS / "generate.md").read_text(encoding="utf-8"),
            work=f"generate {item.ticket} {item.title}",
            task=_INTEGRATION_TASK.format(tests=tests),
            requirements=describe_item(item, heading="Integration"),
            source="planning graph",
            check=check,
        )

    def _find_changed_signatures(self, node: Node, workspace: Workspace) -> tuple[Reason, ...]:
        """Return a reason for each definition that no longer has the signature of the graph."""
        known = self.plan.type_names
        reasons = []
        for each in node.definitions:
            path = self.plan.layout.map_path(each.file_path)
            found = check_signature(workspace.read_text(path).text, each, type=node.type, known=known)
            if found:
                parts: dict[str, Part] = {"path": path, "differs": tuple(map(_describe_deviation, found))}
                reasons.append(Reason(code="signature_changed", nodeid=None, parts=parts))
        return tuple(reasons)

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        """End the node: passed if both gates opened, or if integration tests pass and notice altered code."""
        number = states.require_current(state).step_number
        match ending.how:
            case How.DONE | How.COVERED:
                return states.end_step(state, number, status=Status.COMPLETED, now=now)
            case How.PART if self.plan.has_user_tests:
                # The nodes that need it can go on. The report names the tests that fail.
                return states.end_step(state, number, status=Status.COMPLETED, now=now)
            case How.FAILED | How.BLOCKED | How.PART | How.DROPPED:
                return states.end_step(state, number, status=Status.FAILED, now=now, error=ending.why)
            case How.LACKING:
                return states.end_step(state, number, status=Status.SKIPPED, now=now, error=ending.why)
            case _:
                assert_never(ending.how)

    def describe_end(self, step: StepExecution, *, context: Context) -> tuple[str, ...]:
        """Return nothing: the events of the step say everything."""
        return ()


def _read_committed(path: str, repository: Repository) -> str:
    """Return a file of the last commit; empty if it is not there."""
    tip = repository.read_head()
    entry = None if tip is None else repository.objects.find_entry(tip, path)
    return "" if entry is None else repository.objects.require(entry.id).text


def _describe_deviation(found: Deviation) -> Clause:
    case = "signature_differs" if found.found else "signature_missing"
    parts = {"name": found.name, "part": found.part, "expected": found.expected, "found": found.found}
    return Clause(case, dict(parts))


def list_passing_paths(report: SuiteReport, tests: str) -> frozenset[int]:
    """Return the numbers of the paths whose integration tests, in the file ``tests``, all pass."""
    results: dict[int, bool] = {}
    for case in report.tests:
        found = _PATH_TEST.fullmatch(case.nodeid.removeprefix(f"{tests}::"))
        if found is not None:
            number = int(found[1])
            results[number] = results.get(number, True) and case.outcome == "passed"
    return frozenset(number for number, passes in results.items() if passes)


def adapt_policy(policy: Policy) -> Policy:
    """Return ``policy`` with the rules of a generation."""
    return replace(
        policy,
        edit_format="tools",
        max_attempts=1 + MAX_ROUNDS,
        max_identical_failures=1 + MAX_ROUNDS,
        max_returns=_MAX_RETURNS,
        is_strict=True,
        reruns_failures=True,
        has_commands=False,
        named_only=True,
        targets_first=True,
        defers_checks=True,
        has_symbols=True,
    )


def _find_too_few(report: SuiteReport, baseline: SuiteReport, *, least: int) -> tuple[Reason, ...]:
    """Return a reason if RED has added, or changed, fewer tests than a node needs."""
    count = len(_list_added(report, baseline))
    if count >= least:
        return ()
    return (Reason(code="too_few_tests", nodeid=None, parts={"count": count, "least": least}),)


def _find_dropped(
    report: SuiteReport, green: SuiteReport, *, baseline: SuiteReport, refused: Collection[str]
) -> tuple[Reason, ...]:
    """Return a reason if RED lacks tests that passed in ``green``, which took the RED before back.

    Those that a gate ``refused`` may go.
    """
    failing = {*refused, *(strip_parameters(nodeid) for nodeid in list_failing(green))}
    present = {strip_parameters(case.nodeid) for case in (*report.tests, *baseline.tests)}
    passed = {strip_parameters(case.nodeid) for case in green.tests if case.outcome == "passed"}
    dropped = tuple(sorted(passed - failing - present))
    return (Reason(code="dropped_tests", nodeid=None, parts={"tests": dropped}),) if dropped else ()


def _list_added(report: SuiteReport, baseline: SuiteReport) -> set[str]:
    """Return the tests that fail now, and did not fail before or were not there."""
    return set(list_failing(report)).difference(list_failing(baseline))
