"""The generation of a repository: the skeleton, the nodes of each subgraph, and the landing of each subgraph."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.evidence.clean_copy import DOUBTS
from cdd_agent.generation.evidence import JudgedNode, SubgraphCheck, SubgraphEvidence
from cdd_agent.generation.late_code import write_late_code
from cdd_agent.generation.skeleton import has_same_code, make_skeleton
from cdd_agent.generation.traceability import TracedResults
from cdd_agent.git.commits import commit_merge, commit_paths
from cdd_agent.git.repository import CommitId, has_ref
from cdd_agent.runs.generation_results import GenerationResults, Installer, RepositoryFiles, make_tag
from cdd_agent.runs.graph_nodes import INTEGRATION_ATTEMPTS, MIN_TESTS, GraphNodes, list_passing_paths
from cdd_agent.runs.private_branch import PrivateBranch
from cdd_agent.runs.run import DEPENDENCY_SKIPPED, Run
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd.context import SuiteTask
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.workplace import Workplace
from cdd_agent.testrun.impact import load_impact
from cdd_agent.tickets.graph import Group, Node
from cdd_agent.tickets.plan import find_dependents
from cdd_agent.work.outcome import Partial
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.work.wording import explain, format_reason
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import SuiteReport

_REFUSED = """\
The tests of this part pass, but the checks of its subgraph refuse it:
{reasons}
Add tests that show the difference, and correct the code."""
_CHANGED = """\
The graph has changed this part since it was written. Adapt its docstring, tests and code to this:
{text}"""
_ABOUT_TESTS = frozenset({"unproven_change", "vacuous_test", "not_reproduced"})
"""Codes of reasons that say how much the tests of the user see; nobody can add to these."""
_DOUBTS_BYTES = 10_000_000
_FAILING_TESTS = """\
This part is written, but tests of the repository that enter it fail:
{failures}
If the fault is in this part, correct the code."""
_FAILING_PATHS = """\
The tests of this part pass, but integration tests in which it takes part fail:
{failures}
If the fault is in this part, add a test that shows it, and correct the code."""


class Generation:
    """Carries out a generation in an output folder that has its skeleton."""

    def __init__(
        self, run: Run[GraphNodes], *, branch: PrivateBranch, home: Workplace, installer: Installer, emit: Emit
    ) -> None:
        """Reads nothing yet. ``home`` lands commits in the user's branch and files."""
        self.run = run
        self.plan = run.source.plan
        self._branch = branch
        self._home = home
        self.installer = installer
        """Tries the installation of the result."""
        self.continues: Callable[[Group, CommitId], bool] = lambda _group, _commit: True
        """Returns, after a subgraph has landed with a commit, whether the run continues."""
        self.tests: TracedResults | None = None
        """The results of the last run of the tests that the user gives."""
        self._left: frozenset[int] = frozenset()
        """Nodes that stay as they are."""
        self._emit = emit

    def carry_out(self, *, keeps_failed: bool = False, start: Node | None = None) -> RunState:
        """Generate the nodes that have not passed, and land each subgraph; return the state at the end.

        Nodes that failed, and those that were skipped because of them, are tried again unless ``keeps_failed``. Nodes
        before ``start`` stay as they are.
        """
        run = self.run
        with run.running():
            self._left = frozenset() if start is None else self._list_before(start)
            for number in run.state.numbers(Status.FAILED, Status.SKIPPED) if not keeps_failed else ():
                # Those that were skipped for another node follow it.
                if number not in self._left and run.state.execution(number).error != DEPENDENCY_SKIPPED:
                    run.retry(number)
            self._refresh_stubs()
            for group in self.plan.groups:
                self._generate(group)
                is_integrated = self._integrate(group)
                is_proved = self._prove(group) and is_integrated
                commit = self._land(group, is_proved=is_proved)
                if commit is not None and not self.continues(group, commit):
                    return run.state
            self._assemble()
        return run.state

    def count_proved(self) -> int:
        """Return how many nodes have passed and are proved."""
        return self._read_results(self.tests).describe(now=self.run.clock.now()).proved

    def _list_before(self, start: Node) -> frozenset[int]:
        """Return the nodes before ``start`` in order; raise ``UsageError`` if it needs one that has not passed."""
        numbers = {step.title: number for number, step in self.run.state.step_executions.items()}
        titles = [self.plan.layout.title_of(node) for node in self.plan.nodes]
        title = self.plan.layout.title_of(start)
        blocking = [self.run.state.execution(n) for n in self.run.list_blocking_steps(numbers[title])]
        if blocking:
            listed = "".join(f"\n  {step.title} ({step.status})" for step in blocking)
            raise UsageError(
                f"{title} needs nodes that have not passed:{listed}",
                hint=f"start from one of them: --start-from-node {shlex.quote(blocking[0].title)}",
            )
        return frozenset(numbers[each] for each in titles[: titles.index(title)])

    def _generate(self, group: Group) -> None:
        run, source = self.run, self.run.source
        source.scope = frozenset(self._list_numbers(group)) - self._left
        self._write_late_code()  # of the last node of a run that was killed
        self._skip_dependents()
        while (item := run.find_next_step()) is not None:
            if run.run_step(item):
                self._write_late_code()
            else:
                self._skip_dependents()
        for number in run.list_stale_steps():
            if number in source.scope:
                self._adapt(number)

    def _adapt(self, number: int) -> None:
        """Let a node that has passed be adapted to the graph, which has changed since."""
        step = self.run.state.execution(number)
        self._emit(Notice(text=f"The graph has changed {step.title}, so it is written again."))
        words = _CHANGED.format(text=self.plan.describe(self.plan.by_title[step.title]))
        self._write_again(number, words, max_attempts=self.run.source.max_attempts)

    def _refresh_stubs(self) -> None:
        """Update the docstrings of modules that have no code yet: the graph may have changed since."""
        repository, skeleton = self._branch.repository, make_skeleton(self.plan.graph, self.plan.layout)
        first = CommitId(repository.git("rev-list", ("--max-parents=0",), "HEAD").split()[-1])
        changed = []
        for path in sorted({real for _, real in self.plan.layout.rows}):
            begun = repository.objects.find_entry(first, path)
            old, new = "" if begun is None else repository.objects.require(begun.id).text, skeleton[path]
            file = repository.root / path
            # Other differences can need changes of other modules; an agent makes them.
            if old != new and has_same_code(old, new) and file.is_file() and file.read_bytes() == old.encode():
                write_atomic(file, new.encode())
                changed.append(path)
        if changed:
            message = f"docs: adapt the skeleton to the graph\n\nTicket: {self.plan.slug}\n"
            commit_paths(repository, message, paths=changed)

    def _write_late_code(self) -> None:
        """Write the code that waited for nodes which have passed, since it calls them when its module is imported."""
        repository, written = self._branch.repository, self.run.source.list_passed_names(self.run.state)
        changed = []
        for path in sorted({real for _, real in self.plan.layout.rows}):
            text = (repository.root / path).read_text(encoding="utf-8")
            if (new := write_late_code(text, written)) != text:
                write_atomic(repository.root / path, new.encode())
                changed.append(path)
        if changed:
            message = f"chore: write code that waited for others\n\nTicket: {self.plan.slug}\n"
            commit_paths(repository, message, paths=changed)

    def _skip_dependents(self) -> None:
        """Skip the pending nodes that need one that has failed or was skipped."""
        run = self.run
        ended = run.state.numbers(Status.FAILED, Status.SKIPPED)
        for number in find_dependents(run.source.depends, ended):
            if run.state.execution(number).status == Status.PENDING and number not in self._left:
                run.skip(number, reason=DEPENDENCY_SKIPPED)

    def _list_numbers(self, group: Group) -> Iterator[int]:
        titles = {self.plan.layout.title_of(self.plan.graph.by_id[name]) for name in group.nodes}
        yield from (number for number, step in self.run.state.step_executions.items() if step.title in titles)

    # Integration tests

    def _integrate(self, group: Group) -> bool:
        """Write the integration tests of a complete subgraph; return False if too few paths pass.

        Then the nodes of the failing paths are written again, once.
        """
        run, found = self.run, self.plan.find_integration(self.run.state, group)
        if found is None or not self._is_whole(group):
            return True
        number = found.step_number
        for is_last in (False, True):
            step = run.state.execution(number)
            if step.status == Status.COMPLETED:
                return True
            if step.status in (Status.FAILED, Status.SKIPPED):
                run.retry(number)
            with self._change_policy(accepts_covered=True, expects_pass=True, max_attempts=INTEGRATION_ATTEMPTS):
                if run.run_step(run.step(number)):
                    return True
            if not is_last and not self._correct_paths(group, run.state.execution(number)):
                return False
        return False

    def _correct_paths(self, group: Group, step: StepExecution) -> bool:
        """Let the nodes of failing paths be written again; return whether any was."""
        report = load_report(step.attempts[-1], root=self.run.context.records.folder) if step.attempts else None
        if report is None:
            return False
        passing = list_passing_paths(report, self.plan.find_integration_path(group))
        paths = enumerate(self.plan.list_paths(group), start=1)
        nodes = {node.id: node for number, path in paths if number not in passing for node in path}
        words = _FAILING_PATHS.format(failures=format_failures(report))
        titles = [self.plan.layout.title_of(node) for node in nodes.values()]
        numbers = [n for n, each in self.run.state.step_executions.items() if each.title in titles]
        return any([self._try_again(n, words) for n in numbers])

    @contextmanager
    def _change_policy(self, **changes: int | bool) -> Iterator[None]:
        """Run the steps of the block by other rules."""
        run, context = self.run, self.run.context
        run.context = replace(context, policy=replace(context.policy, **changes))  # type: ignore[arg-type]
        try:
            yield
        finally:
            run.context = context

    # Evidence

    def _prove(self, group: Group) -> bool:
        """Return whether the checks refuse no node of a subgraph; refused nodes are tried again as long as they may."""
        if self.plan.has_user_tests:
            self._correct_failing(group)
            self._note_doubts(group)
            return False  # all tests together prove the nodes: see _tag_proved
        doubted = set[int]()
        while waiting := [step for step in self._list_waiting(group) if step.title in self.plan.by_title]:
            found = self._judge(waiting)
            is_tried_again = False
            for number, reasons in found.refused.items():
                # A doubt may be wrong, so a node is written again for it once.
                if all(reason.code in DOUBTS for reason in reasons) and number in doubted:
                    continue
                doubted.add(number)
                words = "\n".join(map(format_reason, reasons))
                title = self.run.state.execution(number).title
                self._emit(Notice(text=f"The checks of {group.name} refuse {title}: {words}"))
                is_tried_again |= self._try_again(number, _REFUSED.format(reasons=words))
            if not is_tried_again:
                return found.is_proved
        return True

    def _list_waiting(self, group: Group) -> tuple[StepExecution, ...]:
        """Return the steps of a subgraph that have passed and whose commits the user's branch lacks."""
        head, repository = self._branch.home.read_head(), self._branch.home
        nodes = (self.run.state.execution(number) for number in self._list_numbers(group))
        return tuple(
            step
            for step in (*nodes, self.plan.find_integration(self.run.state, group))
            if step is not None
            and step.status == Status.COMPLETED
            and not all(repository.is_ancestor(commit, of=str(head)) for commit in step.commits.values())
        )

    def _judge(self, steps: Sequence[StepExecution], *, before: str | None = None) -> SubgraphEvidence:
        """Return what the checks find about nodes; ``before``: the commit with their stubs, else the user's."""
        context, repository = self.run.context, self._branch.repository
        tip = context.workplace.begin()
        purpose, kept = "all tests before the checks", context.reports / "subgraph.json"
        # The last node's gate has run them on the same files.
        run = SuiteTask(context=context, purpose=purpose, keep=kept, spans_commits=True).run()
        before = before or repository.git("merge-base", str(self._branch.home.read_head()), tip).strip()
        check = SubgraphCheck(context=context, before=CommitId(before), after=tip, report=context.require_report(run))
        found = check.judge([self._describe_node(step) for step in steps])
        for finding in found.findings:
            self._emit(Notice(text=explain(finding)))
        return found

    def _describe_node(self, step: StepExecution) -> JudgedNode:
        node = self.plan.by_title[step.title]
        return JudgedNode(
            number=step.step_number,
            definitions=self.plan.layout.place_definitions(node),
            tests=self._list_tests(step),
            stated=self.plan.describe(node),
        )

    def _list_tests(self, step: StepExecution) -> tuple[str, ...]:
        """Return the tests of a node: those that were written for it, or the given ones that enter it and pass."""
        if self.tests is None:
            return tuple(self._read_results().list_tests(step))
        passing, _ = self.tests.list_entering(step.title)
        return tuple(dict.fromkeys(map(strip_parameters, passing)))

    def _count_remaining_rounds(self, number: int) -> int:
        used = sum(
            attempt.phase == "green"
            for each in self.run.state.execution(number).list_landings()
            for attempt in each.attempts
        )
        return self.run.source.max_attempts - used

    def _try_again(self, number: int, words: str) -> bool:
        """Let a refused node be written again, with the attempts that are left to it; return False if none are."""
        left = self._count_remaining_rounds(number)
        return left > 0 and self._write_again(number, words, max_attempts=left)

    def _write_again(self, number: int, words: str, *, max_attempts: int) -> bool:
        run = self.run
        run.source.least_tests = 1
        try:
            with self._change_policy(max_attempts=max_attempts):
                run.retry(number, guidance=words)
                return run.run_step(run.step(number))
        finally:
            run.source.least_tests = MIN_TESTS

    # Tests that the user gives

    def _run_tests(self) -> TracedResults:
        """Run all tests of the user on the private branch, and return which nodes they enter, and how they end."""
        context = self.run.context
        context.workplace.begin()
        task = SuiteTask(context=context, purpose="all tests", keep=context.reports / "given.json", is_anew=True)
        report = context.require_report(context.finish_for_gate(task))
        entered, doubts = load_impact(context.impact_path).files, self._load_doubts()
        return TracedResults(plan=self.plan, report=report, entered=entered, doubts=doubts)

    def _correct_failing(self, group: Group) -> None:
        """Let nodes of a subgraph be written again, once, that tests enter which fail and wait for nothing."""
        source, state = self.run.source, self.run.state
        if not self._list_waiting(group):
            return
        numbers = set(state.numbers(Status.COMPLETED)).intersection(self._list_numbers(group))
        self.tests = results = self._run_tests()
        waiting = source.find_waiting(results.report, context=self.run.context)
        # All attempts at a node were used for those that failed when it landed in part.
        attempts = (attempt for step in state.step_executions.values() for attempt in step.attempts)
        tried = {str(why.nodeid) for each in attempts if each.outcome == Partial() for why in each.reasons}
        for title, failing in results.find_suspects({*waiting, *tried}).items():
            number = next((n for n in numbers if state.execution(n).title == title), None)
            if number is not None:
                words = _FAILING_TESTS.format(failures=format_failures(failing))
                self._emit(Notice(text=f"Tests that enter {title} fail, so it is written again."))
                self._try_again(number, words)

    def _note_doubts(self, group: Group) -> None:
        """Save which nodes of a subgraph the checks doubt. It may be the fault of the user's tests, which stay.

        Nodes that have landed are checked, too, if the records that say what was found are lost.
        """
        doubts, states = self._load_doubts(), map(self.run.state.execution, self._list_numbers(group))
        unknown = [step for step in states if step.status == Status.COMPLETED and step.title not in doubts]
        waiting = self._list_waiting(group)
        steps = {step.step_number: step for step in (*unknown, *waiting) if step.commits}
        if not steps:
            return
        self.tests = self.tests or self._run_tests()
        before = self._branch.home.git("rev-list", ("--max-parents=0",), "HEAD").split()[-1] if unknown else None
        refused = self._judge([*steps.values()], before=before).refused
        for number, step in steps.items():
            reasons = [each for each in refused.get(number, ()) if each.code not in _ABOUT_TESTS]
            doubts[step.title] = format_reason(reasons[0]) if reasons else ""
            if reasons:
                self._emit(Notice(text=f"The checks of {group.name} doubt {step.title}: {doubts[step.title]}"))
        write_atomic(self._doubts_path, msgspec.json.encode(doubts))

    @property
    def _doubts_path(self) -> Path:
        return self.run.context.reports / "doubts.json"

    def _load_doubts(self) -> dict[str, str]:
        """Return title of a node that was checked -> why the checks doubt it, or nothing."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(read_ordinary(self._doubts_path, limit_bytes=_DOUBTS_BYTES), type=dict[str, str])
        return {}

    # Landing

    def _land(self, group: Group, *, is_proved: bool) -> CommitId | None:
        """Land what the private branch has of a subgraph, and return the commit; None if nothing was left to land."""
        if not self._list_waiting(group):
            return None
        message = self._describe(group)
        is_tagged = is_proved and self._is_whole(group)
        commit = self._bring(message, name=group.name, tags=tuple(map(make_tag, group.ids)) if is_tagged else ())
        self._emit(Notice(text=f"Landed: {message.partition(chr(10))[0]}"))
        return commit

    def _bring(self, message: str, *, name: str, tags: Sequence[str] = ()) -> CommitId:
        """Merge the private branch into the user's branch and files, and return the commit, which gets the tags."""
        repository, head = self._branch.home, self._branch.home.read_head()
        tip = self._branch.repository.read_head()
        assert head is not None
        assert tip is not None
        tree = repository.merge_trees(head, tip)
        if tree is None:
            raise GateClosed(
                f"{name} cannot land: your commits and the run have changed the same lines.\n"
                f"Your branch and files are untouched; the run's commits are on {self._branch.name}.",
                hint=f"merge them yourself: git -C {repository.root} merge {self._branch.name}; then the same command",
            )
        commit = commit_merge(repository, message, tree=tree, parents=(head, tip))
        for tag in tags:  # before it lands: a kill must not leave a subgraph without its tag
            self._tag(tag, commit)
        self._home.land(commit, made=commit, tip=head)
        self._branch.move(commit)
        return commit

    def _tag(self, tag: str, commit: CommitId) -> None:
        repository, ref = self._branch.home, f"refs/tags/{tag}"
        # A landing that was undone leaves its tag behind; the user may want it to stay until there is another one.
        if not has_ref(repository.location, ref) or not repository.is_ancestor(ref, of=commit):
            repository.git("update-ref", ref, commit)

    # The files around the code

    def _read_results(self, tests: TracedResults | None = None) -> GenerationResults:
        run = self.run
        return GenerationResults(
            tests=tests,
            plan=self.plan,
            state=run.state,
            home=self._branch.home,
            records=run.context.records.folder,
            # The report is committed: the folders of this machine do not belong there.
            resume=shlex.join(("cdd", "generate", self.plan.source.name, "--out", self._branch.home.root.name)),
        )

    def _assemble(self) -> None:
        """Land the files around the code, unless the repository has them of the same results."""
        context, repository = self.run.context, self._branch.repository
        tip = context.workplace.begin()
        if self.plan.has_user_tests:
            self.tests = self._run_tests()
            self._tag_proved(self.tests)
            report: SuiteReport | None = self.tests.report
        else:
            purpose, kept = "all tests of the repository", context.reports / "repository.json"
            report = SuiteTask(context=context, purpose=purpose, keep=kept, spans_commits=True).run().report
        results = self._read_results(self.tests)
        files = RepositoryFiles(
            results=results,
            installer=self.installer,
            reports=context.reports,
            tip=tip,
            report=report,
            now=self.run.clock.now(),
        )
        if not files.is_needed():
            return
        inside, written = ConfinedFolder(repository.root), files.write()
        for path, content in written.items():
            inside.write(path, content)
        message = f"docs: assemble {self.plan.layout.package}\n\nTicket: {self.plan.slug}\nLanding: assembly\n"
        commit_paths(repository, message, paths=tuple(written))
        self._bring(message, name="the assembly")

    def _tag_proved(self, tests: TracedResults) -> None:
        """Tag the landings of the subgraphs that the given tests prove to the last node."""
        found = self._read_results(tests).describe(now=self.run.clock.now()).subgraphs
        for group, outcome in zip(self.plan.groups, found, strict=True):
            if outcome.landed and outcome.proved == len(outcome.nodes):
                for tag in map(make_tag, group.ids):
                    self._tag(tag, CommitId(outcome.landed))

    def _is_whole(self, group: Group) -> bool:
        return all(self.run.state.execution(n).status == Status.COMPLETED for n in self._list_numbers(group))

    def _describe(self, group: Group) -> str:
        """Return the message of the commit with which a subgraph lands."""
        numbers = sorted(self._list_numbers(group))
        passed = [n for n in numbers if self.run.state.execution(n).status == Status.COMPLETED]
        first, last = numbers[0], numbers[-1]
        landed = f"node {first}" if first == last else f"nodes {first}-{last}"
        subject = f"feat: complete {group.name} ({landed})"
        if len(passed) < len(numbers):
            subject = f"feat: complete part of {group.name} ({len(passed)} of {len(numbers)} nodes)"
        return f"{subject}\n\nTicket: {self.plan.slug}\nLanding: {group.name}\n"
