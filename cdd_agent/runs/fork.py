"""Forks of a ticket: the start of a new one, the comparison of two, and their merge.

A fork starts before its step: with the commits, the state and the conversations of that moment, and with the direction
as guidance of the step. Its runs work in its own folder and land on its own branch.
"""

import contextlib
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cdd_agent.agent.sessions import fork_session
from cdd_agent.clock import Clock
from cdd_agent.errors import CddError, EnvironmentMissing, GateClosed, UsageError, format_count, join_first
from cdd_agent.events import Emit, FileDiffed, ForkCompared, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git.fork import Fork, Forks, MergePlan, make_name
from cdd_agent.git.landing import Landed
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import Checkpoints
from cdd_agent.review import LeftFork, describe_size, diff_commits, resolve_recorded
from cdd_agent.runs import request as requests
from cdd_agent.runs.places import find_run, locate_run
from cdd_agent.runs.request import Wanted
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd.baseline import has_committed_test
from cdd_agent.tdd.phase_agent import FORKED, name_conversation
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Step
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.handoff import NUMBER_OPTIONS
from cdd_agent.work.journal import dropped_journal_path
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, StepExecution, Usage, lock_checkpoints, lock_ticket, replace_step
from cdd_agent.work.state_file import load_state, save_state
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import OUTCOMES, SuiteReport, count_outcomes, list_failing

_MOST_JOURNAL_BYTES = 1_000_000_000
_MOST_COMMITS = 1000
_MOST_SHOWN = 5
_SHORT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Takeover:
    """The steps that a ticket takes over from a fork, with their state in the fork."""

    ticket: Ticket
    state: RunState
    """Of the user's ticket."""
    steps: tuple[StepExecution, ...]


class TicketForks:
    """Makes, compares, merges and drops the forks of tickets."""

    def __init__(self, forks: Forks, project: Path, *, clock: Clock) -> None:
        """``project`` is the user's folder."""
        self.forks = forks
        self._project = project
        self._clock = clock

    def start(
        self, ticket: Ticket, direction: str, *, number: int | None = None, checkpoints: Checkpoints | None = None
    ) -> tuple[Fork, tuple[str, ...]]:
        """Make a fork before step ``number``, or before the last one that was begun, and switch to it.

        Return it with what the user should know about its files. ``checkpoints`` tell which part of the conversations
        came before the step. Raises ``UsageError``, also if the step's tests are not committed there: the fork would
        not have them.
        """
        if not direction.strip():
            raise UsageError("A fork needs a direction.", hint=f'cdd fork {ticket.slug} "what to do differently"')
        around = self.forks.find_around(ticket.folder) or self.forks.find_current(ticket.slug)
        source, project = self._find_source(ticket, around)
        state = load_state(source.state_path)
        if state is None:
            raise UsageError(f"{ticket.slug} has not been carried out yet.", hint=f"cdd exec {ticket.slug}")
        if state.makes_project:
            raise UsageError(
                f"{ticket.slug} is a generation, and its nodes cannot be tried in a fork.",
                hint="change the docstring or the signature of a node in the graph, then the same command: "
                f"{state.resume}",
            )
        number = _find_latest(state) if number is None else number
        repository = self.forks.repository
        step = state.execution(number)
        base = step.base_commit or (self.forks.open(around).read_head() if around else repository.read_head())
        start = resolve_recorded(repository, str(base))
        self._require_tests(source, step, start=start)
        fork = Fork(
            name=make_name(direction, self._clock.now()),
            ticket=ticket.slug,
            step=number,
            direction=" ".join(direction.split()),
            base=start,
            parent=around.branch if around else repository.read_branch() or "",
            tokens=state.usage.tokens,
            cost_usd=state.usage.cost_usd,
        )
        remarks = self.forks.create(fork)
        target = self.forks.find_project(fork)
        forked = _copy_documents(source, project, target=target)
        save_state(forked.state_path, self._reset(state, fork))
        self._copy_conversations(fork, project, checkpoints=checkpoints)
        self.forks.switch(ticket.slug, fork)
        return fork, remarks

    def _find_source(self, ticket: Ticket, around: Fork | None) -> tuple[Ticket, Path]:
        if around is None:
            return ticket, self._project
        project = self.forks.enter(around)
        return find_run(project, ticket.slug), project

    def _require_tests(self, source: Ticket, step: StepExecution, *, start: str) -> None:
        """Raise ``UsageError`` if ``start`` lacks tests that a run of ``cdd green`` was asked for."""
        request = None if source.has_documents else requests.load(source)
        repository = self.forks.repository
        objects, inside = repository.objects, self.forks.project.relative_to(repository.root.resolve())
        folder = "" if inside == Path() else f"{inside.as_posix()}/"
        tests = request.tests if request is not None else ()
        lacking = [test for test in tests if not has_committed_test(test, start, objects=objects, folder=folder)]
        if not lacking:
            return
        files = shlex.join(dict.fromkeys(test.partition("::")[0] for test in lacking))
        undo = "take the step back: /undo at the prompt; then " if step.commits else ""
        wanted = Wanted(targets=request.targets if request is not None else ())
        raise UsageError(
            f"The fork would begin at {start[:_SHORT]}, which does not have {join_first(lacking, most=_MOST_SHOWN)}.\n"
            "Nothing was touched.",
            hint=f"{undo}commit the tests: git add -- {files} && git commit -m tests -- {files}; then repeat the run: "
            f"{wanted.commands.resume}; and the fork again",
        )

    def _reset(self, state: RunState, fork: Fork) -> RunState:
        """Return the state of the plan before the fork's step."""
        repository = self.forks.repository
        keys = ("key=Ticket", NUMBER_OPTIONS)
        form = "--format=" + " ".join(f"%(trailers:{each},valueonly,separator=%x20)" for each in keys)
        present = set(repository.git("log", (f"-{_MOST_COMMITS}", form), fork.base).splitlines())
        for known in state.step_executions.values():
            landed = list(known.commits.values())
            # The commits that the state names may be those of an iteration, which was later.
            is_before = bool(landed) and (
                repository.is_ancestor(landed[-1], of=fork.base) or f"{fork.ticket} {known.step_number}" in present
            )
            is_kept = known.status == Status.SKIPPED or (known.status == Status.COMPLETED and (is_before or not landed))
            if known.step_number == fork.step or not is_kept:
                guidance = fork.direction if known.step_number == fork.step else ""
                fresh = StepExecution(
                    step_number=known.step_number,
                    title=known.title,
                    text_sha256=known.text_sha256,
                    usage=known.usage,
                    guidance=guidance,
                )
                state = replace_step(state, fresh)
        return replace(state, status=Status.IN_PROGRESS, current_step=None, completed_at=None, branch=fork.branch)

    def _copy_conversations(self, fork: Fork, project: Path, *, checkpoints: Checkpoints | None) -> None:
        source = find_records(project).folder / "reports" / fork.ticket
        target = self.forks.find_records(fork).folder / "reports" / fork.ticket
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        for phase in ("red", "green", "refactor"):
            name = name_conversation(fork.step, phase)
            if (target / name).is_file():
                (target / FORKED).mkdir(exist_ok=True)
                shutil.copy(target / name, target / FORKED / name)  # copies its permissions too
        known = checkpoints.list_all() if checkpoints is not None else ()
        talks = next(
            (
                each.about.talks
                for each in reversed(known)  # of runs that began at one commit, the state is that of the last
                if (each.about.kind, each.about.ticket, each.about.step) == ("run", fork.ticket, fork.step)
                and each.about.head == fork.base
            ),
            {},
        )
        inside = self.forks.find_project(fork)
        session = fork_session(project, inside, ticket=fork.ticket, talks=talks, clock=self._clock)
        if session:
            self.forks.record_session(fork, session)

    def summarize(self, fork: Fork | None, *, like: Fork) -> ForkCompared:
        """Return what ``fork`` has reached, or the user's own branch since the base of the fork ``like``."""
        forks, base = self.forks, (fork or like).base
        repository: Repository = forks.repository if fork is None else forks.open(fork)
        project = self._project if fork is None else forks.find_project(fork)
        state = load_state(find_run(project, (fork or like).ticket).state_path)
        head = str(forks.repository.read_head() if fork is None else forks.read_tip(fork))
        executions = {} if state is None else dict(state.step_executions)
        step, files = executions.get((fork or like).step), diff_commits(repository, base, after=head)
        used = Usage() if state is None else state.usage
        paid = used.cost_usd
        return ForkCompared(
            name=fork.name if fork else "your branch",
            branch=fork.branch if fork else repository.read_branch() or "",
            steps={str(number): str(each.status) for number, each in executions.items()},
            gates=_list_gates(step),
            tests=_count_tests(executions.values(), root=find_records(project).folder),
            evidence=tuple(explain(found) for attempt in step.attempts for found in attempt.evidence) if step else (),
            changes=describe_size(files),
            tokens=used.tokens - (fork.tokens if fork else 0),
            cost=None if paid is None else paid - ((fork.cost_usd or 0.0) if fork else 0.0),
            files=tuple(file.path for file in files),
        )

    def diff(self, one: Fork | None, other: Fork | None) -> tuple[FileDiffed, ...]:
        """Return how the committed files of two forks differ; None means the user's own branch."""
        repository = self.forks.repository
        tips = [repository.read_head() if each is None else self.forks.read_tip(each) for each in (one, other)]
        return diff_commits(repository, str(tips[0]), after=str(tips[1]))

    def check_merge(self, plan: MergePlan, *, make_suite: Callable[[], Suite], emit: Emit) -> None:
        """Run the tests of the merged files, if a step will be called completed and no gate has judged these files.

        Raises ``GateClosed`` if a test fails that passes on the user's branch, or if one of such a step does not pass,
        and ``EnvironmentMissing`` if the tests cannot run.
        """
        found = self._plan_takeover(plan.fork)
        if found is None or self._has_verdict(plan):
            return
        suite, run = make_suite(), partial(self._run_tests, emit=emit)
        merged = run(plan.tree, "the merged files", suite=suite)
        before = None
        if merged.report is None or list_failing(merged.report):
            before = run(plan.head, plan.branch, suite=suite)
            if before.report is None:
                raise EnvironmentMissing(
                    f"Nothing was merged. The tests cannot be run on {plan.branch}: {before.problem}.",
                    hint="find the cause: cdd doctor",
                )
        if merged.report is None:
            why = f"the tests do not run to their end: {merged.problem}"
        else:
            broken = set(self._list_lost(plan.fork, found.steps, report=merged.report))
            if before is not None and before.report is not None:
                broken |= set(list_failing(merged.report)) - set(list_failing(before.report))
            if not broken:
                return
            why = f"{format_count(len(broken), 'test')} fails or is gone: "
            why += join_first(sorted(broken), most=_MOST_SHOWN)
        raise GateClosed(
            f"Nothing was merged. With the changes of both sides, {why}.",
            hint=f"correct it in the fork: git -C {self.forks.locate(plan.fork)} merge {plan.branch}, edit and commit; "
            "then the same command again",
        )

    def _has_verdict(self, plan: MergePlan) -> bool:
        """Return whether the merged files are those of the fork's last commit, and a gate has judged them."""
        objects = self.forks.repository.objects
        tip = objects.require(plan.tip)
        header, _, message = tip.text.partition("\n\n")
        is_of_gate = "\nHandoff-Id: " in message and header.count("\nparent ") == 1
        return is_of_gate and objects.require(f"{plan.tip}^{{tree}}").id == plan.tree

    def _run_tests(self, tree: str, name: str, *, suite: Suite, emit: Emit) -> SuiteRun:
        purpose, framework = f"all tests of {name}", suite.conventions.framework
        with clean_copy(self.forks.repository, suite, green=tree, red=tree) as copy:
            emit(SuiteStarted(purpose=purpose, targets=(), framework=framework))
            run = copy.run()
        emit(run.as_event(purpose, framework=framework))
        return run

    def _list_lost(self, fork: Fork, steps: Iterable[StepExecution], *, report: SuiteReport) -> Iterator[str]:
        """Yield the planned tests of ``steps`` that passed in the fork and do not pass, or are gone, in ``report``."""
        inside = self.forks.find_project(fork)
        planned: dict[int, Step] = {}
        with contextlib.suppress(CddError):  # without a plan, the tests of the branch are all that counts
            planned = {step.number: step for step in plan_markdown.load(find_run(inside, fork.ticket).plan_path).steps}
        passed = [case.nodeid for case in report.tests if case.outcome == "passed"]
        for execution in steps:
            judged = next((each for each in reversed(execution.attempts) if each.report), None)
            before = load_report(judged, root=self.forks.find_records(fork).folder) if judged is not None else None
            old = [case.nodeid for case in before.tests if case.outcome == "passed"] if before is not None else []
            for test in planned[execution.step_number].tests if execution.step_number in planned else ():
                was, now = (any(is_or_contains(test, nodeid) for nodeid in each) for each in (old, passed))
                if was and not now:
                    yield test

    def merge(self, plan: MergePlan) -> tuple[Landed, tuple[int, ...]]:
        """Merge a fork without conflicts; the user's ticket takes over the steps that the fork completed.

        Return what landed, and the numbers of these steps.
        """
        fork = plan.fork
        with self._working(fork):
            self.forks.record_merge(fork, is_begun=True)
            landed = self.forks.merge(plan)
            return landed, self._complete(fork)

    def finish_merges(self) -> dict[str, tuple[int, ...]]:
        """Finish the merges that were killed, or forget those that changed nothing.

        Return the names of finished forks -> the numbers of the steps that the ticket takes over.
        """
        finished = {}
        for fork in self.forks.list_all():
            if fork.is_merging:
                with self._working(fork):
                    if self.forks.has_landed(fork):
                        finished[fork.name] = self._complete(fork)
                    else:
                        self.forks.record_merge(fork, is_begun=False)
        return finished

    def _complete(self, fork: Fork) -> tuple[int, ...]:
        taken = self._adopt_state(fork)
        self.forks.record_merge(fork, is_begun=False, has_landed=True)
        return taken

    def drop(self, fork: Fork) -> None:
        """Remove a fork, once no run works in it, and keep its journal; see ``Forks.drop``."""
        with self._working(fork):
            self.forks.require_droppable(fork)
            with contextlib.suppress(FileNotFoundError):  # no run has worked in it, or its folder is gone
                path = self.forks.find_records(fork).locate_journal(fork.ticket)
                journal = read_ordinary(path, limit_bytes=_MOST_JOURNAL_BYTES)
                kept = dropped_journal_path(self._project, fork.ticket, fork=fork.name)
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(kept, journal, mode=0o600)
            self.forks.drop(fork)

    def list_remaining(self, ticket: str) -> Iterator[LeftFork]:
        """Yield the forks of a ticket that were not dropped."""
        for fork in self.forks.list_all():
            if fork.ticket == ticket and not fork.is_abandoned:
                is_merged = False
                with contextlib.suppress(CddError):  # cdd fork drop tells what is in the way
                    is_merged = self.forks.require_droppable(fork) == (0, ())
                yield LeftFork(name=fork.name, is_merged=is_merged, remove=partial(self.drop, fork))

    @contextlib.contextmanager
    def _working(self, fork: Fork) -> Iterator[None]:
        common = self.forks.repository.location.common_dir
        inside = self.forks.locate(fork).name
        with lock_checkpoints(common, fork.ticket), lock_checkpoints(common, fork.ticket, fork=inside):
            yield

    def _plan_takeover(self, fork: Fork) -> "_Takeover | None":
        """Return the steps that the ticket takes over from a fork; None without any."""
        try:
            ticket = find_run(self._project, fork.ticket)
            state = load_state(ticket.state_path)
            made = load_state(find_run(self.forks.find_project(fork), fork.ticket).state_path)
        except UsageError:  # the folder of the fork, or the ticket, is gone; the commits are merged
            return None
        steps = [made.execution(number) for number in made.numbers(Status.COMPLETED)] if made is not None else []
        if state is None:
            return None
        known = state.step_executions
        steps = [
            step
            for step in steps
            if step.step_number in known and known[step.step_number] not in (step, _move_reports(step, fork))
        ]
        return _Takeover(ticket=ticket, state=state, steps=tuple(steps)) if steps else None

    def _adopt_state(self, fork: Fork) -> tuple[int, ...]:
        found = self._plan_takeover(fork)
        if found is None:
            return ()
        ticket, state, used = found.ticket, found.state, found.state.usage
        taken = []
        for made in found.steps:
            used += made.usage - state.execution(made.step_number).usage
            state = replace_step(state, _move_reports(made, fork))
            taken.append(made.step_number)
        if taken:
            reports = self.forks.find_records(fork).folder / "reports" / fork.ticket
            if reports.is_dir():
                target = find_records(self._project).folder / "reports" / self.forks.locate(fork).name
                shutil.copytree(reports, target, symlinks=True, dirs_exist_ok=True)
            with lock_ticket(self._project, ticket.folder):
                state = replace(state, usage=used, status=Status.IN_PROGRESS, current_step=None)
                save_state(ticket.state_path, states.finish(state, now=self._clock.now()))
        return tuple(taken)


def _copy_documents(source: Ticket, project: Path, *, target: Path) -> Ticket:
    """Copy what a run takes its work from into the project of a fork, and return the run there."""
    if source.has_documents:
        run = replace(source, folder=target / source.folder.relative_to(project))
        documents = [path for path in (source.spec_path, source.plan_path) if path.exists()]
    else:
        run = locate_run(target, source.slug)
        states = f"{source.state_path.name}*"
        documents = [path for path in source.folder.iterdir() if path.is_file() and not path.match(states)]
    run.folder.mkdir(parents=True, exist_ok=True)
    for path in documents:
        shutil.copyfile(path, run.folder / path.name)
    if source.has_documents:
        spec.reopen_file(run.spec_path)
    return run


def arrange(known: tuple[Fork, ...]) -> Iterator[tuple[Fork | str, int]]:
    """Yield each branch that is not a fork's, and below it its forks, with their depths."""
    branches = {each.branch for each in known}
    for root in dict.fromkeys(each.parent for each in known if each.parent not in branches):
        yield root or "no branch", 0
        waiting = [(each, 1) for each in reversed(known) if each.parent == root]
        while waiting:
            each, depth = waiting.pop()
            yield each, depth
            waiting += [(child, depth + 1) for child in reversed(known) if child.parent == each.branch]


def _move_reports(step: StepExecution, fork: Fork) -> StepExecution:
    """Return the step with the paths that its reports have beside those of the user's own runs."""
    old = f"reports/{fork.ticket}/"
    new = f"reports/fork-{fork.name}/"
    attempts = tuple(replace(each, report=each.report and each.report.replace(old, new, 1)) for each in step.attempts)
    return replace(step, attempts=attempts, baseline=step.baseline and step.baseline.replace(old, new, 1))


def _find_latest(state: RunState) -> int:
    """Return the step that was begun last, or the first one if none was."""
    begun = [each for each in state.step_executions.values() if each.started_at]
    last = max(begun, key=lambda each: each.started_at or "", default=None)
    return last.step_number if last else min(state.step_executions)


def _list_gates(step: StepExecution | None) -> tuple[str, ...]:
    attempts = () if step is None else step.attempts
    phases = dict.fromkeys(attempt.phase for attempt in attempts)
    rows = []
    for phase in phases:
        tries = [attempt for attempt in attempts if attempt.phase == phase]
        count = "" if len(tries) == 1 else f" after {len(tries)} attempts"
        rows.append(f"{phase.upper()} {tries[-1].verdict}{count}")
    return tuple(rows)


def _count_tests(steps: Iterable[StepExecution], *, root: Path) -> dict[str, int]:
    """Return outcome -> number of tests in the last report."""
    attempts = [attempt for step in sorted(steps, key=lambda each: each.started_at or "") for attempt in step.attempts]
    reports = (load_report(attempt, root=root) for attempt in reversed(attempts))
    last = next((report for report in reports if report is not None), None)
    counts = {} if last is None else count_outcomes(last)
    return {name: count for name, count in counts.items() if count and name in OUTCOMES}
