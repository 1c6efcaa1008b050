"""GREEN on its own: one work item of a single phase, gone on with by the same command after any end."""

from collections.abc import Iterator
from dataclasses import replace

from cdd_agent.agent.limits.meter import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.evidence.trees import layout_of
from cdd_agent.git import commits
from cdd_agent.tdd import recovery
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.landing import is_partial
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState, Status, StepKey
from cdd_agent.workflows.green import request as requests
from cdd_agent.workflows.green.artifact import GreenArtifact
from cdd_agent.workflows.green.outcome import artifact_of
from cdd_agent.workflows.green.related import code_of
from cdd_agent.workflows.green.request import Request, Wanted
from cdd_agent.workflows.telling import told

NUMBER = 1
"""Of the only step."""


class Green:
    """Makes the tests that a user names pass."""

    def __init__(
        self, wanted: Wanted, *, bench: Workbench, clock: Clock, allow_dirty: bool = False, meter: Meter | None = None
    ) -> None:
        """Nothing happens before ``run``. Without a ``meter`` round the model it is counted and has no limits."""
        self.wanted = wanted
        self.ticket = wanted.run_of(bench.suite.root)
        self.clock = clock
        self.allows_dirty = allow_dirty
        """Whether the user's uncommitted changes stay, out of the commit."""
        self._meter = meter or Meter(bench.model, clock=clock, ticket=self.ticket.slug, go_on=wanted.ways.go_on)
        self.bench = replace(bench, model=self._meter, ways=wanted.ways)
        self._metered: int | None = None
        self.state: RunState | None = None

    def run(self, *, anew: bool = False) -> GreenArtifact:
        """Begin, or go on where the last run was interrupted, until the tests pass or the iterations are used up.

        ``anew``: what an interrupted run has done is taken back first. Raises, before anything is touched,
        ``UsageError`` if a target does not fail or there are uncommitted changes besides tests, and what is raised
        where there is no model to ask, no git or no tests.
        """
        bench, slug = self.bench, self.ticket.slug
        with recovery.alone_on(self.ticket.folder, bench=bench):
            request, state = self._gone_on_with(anew=anew) or self._begun()
            self._save(state)
            remarks = (*self._remarks(), *commits.remarks(bench.repository))
            with told("green", slug, bench=bench, clock=self.clock, remarks=remarks, settle=self._settled):
                why = self._carried_out(request)
        return artifact_of(request, self._present.execution(NUMBER), why=why, bench=bench)

    @property
    def _present(self) -> RunState:
        assert self.state is not None
        return self.state

    def _settled(self) -> RunState:
        """The state as a run leaves it, saved."""
        self._meter.pause()
        self._save(states.finish(self._present, now=self.clock.now()))
        return self._present

    def _carried_out(self, request: Request) -> str | None:
        """Why not all tests pass, once the cycle has ended and the state says so; None if they do."""
        self._meter.begin(f"the run {self.ticket.slug}", used=self._present.execution(NUMBER).usage)
        self._metered = NUMBER
        self._meter.check()
        item = replace(request.item(self.ticket.slug), shown=self._shown(request))
        ending = Cycle(item, self._present, bench=self.bench, save=self._save).run()
        last = ending.state.execution(NUMBER).attempts[-1]
        why = ending.why
        if why is None and is_partial(last):  # landed, and killed before the state could say so
            why = f"GREEN is kept in part; what is left: {'; '.join(last.reasons)}"
        now = self.clock.now()
        self._save(
            states.complete_step(ending.state, NUMBER, now=now)
            if why is None
            else states.fail_step(ending.state, NUMBER, error=why, now=now)
        )
        return why

    def _shown(self, request: Request) -> tuple[str, ...]:
        """The files that a model without tools is given; others look for themselves."""
        bench = self.bench
        if bench.policy.edit_format == "tools":
            return ()
        tests, is_test = request.test_files, bench.suite.conventions.is_test
        return (*tests, *code_of(tests, workspace=bench.workspace, is_test=is_test))

    def _remarks(self) -> Iterator[str]:
        """What is judged by less than all tests."""
        if self.bench.policy.gate_runs:
            files = ", ".join(self.bench.policy.gate_runs)
            yield f"Only the tests of {files} judge (full_suite_on_completion is false): no others are run."

    def _gone_on_with(self, *, anew: bool) -> tuple[Request, RunState] | None:
        """The interrupted run, as it is to be gone on with; None if there is none, or it was taken back."""
        bench, slug = self.bench, self.ticket.slug
        known = state_file.load(self.ticket.state_path)
        self._meter.resume(known.usage if known else states.UsageTotals())
        self.state = known
        if known is None or not known.numbers(Status.IN_PROGRESS):
            return None
        step = known.execution(NUMBER)
        commits.require_finished(bench.repository)
        if anew:
            recovery.take_back(slug, step, branch=known.branch, why="the run begins anew", bench=bench)
            return None
        lost = recovery.lost_checkpoint(step, bench=bench)
        if lost:
            raise UsageError(
                f"The run was begun, and its checkpoint {lost} is not in this repository.\nNothing was touched.",
                hint=f"begin it anew on what is committed now: {self.wanted.ways.anew}",
            )
        if not recovery.is_underway(slug, step, bench=bench):
            return None
        request = requests.kept(self.ticket)
        if request is None or sorted(request.targets) != sorted(self.wanted.targets):
            raise UsageError(
                f"What the interrupted run was asked for cannot be read: {requests.path_of(self.ticket)}.\n"
                "Nothing was touched.",
                hint=f"begin it anew: {self.wanted.ways.anew}",
            )
        bench.emit(Notice(text=f"Going on with the interrupted run; iterations so far: {len(step.attempts)}."))
        return request, known

    def _begun(self) -> tuple[Request, RunState]:
        """A new run, once its tests are seen to fail; nothing is touched before that."""
        bench, repository = self.bench, self.bench.repository
        commits.require_undisturbed(repository, () if self.allows_dirty else tuple(self._in_the_way()))
        head = commits.require_base(repository)
        self._meter.check()
        seen = bench.run_targets("the tests to pass, as they are", targets=self.wanted.targets)
        if seen.was_refused:
            raise UsageError(f"The tests cannot be found: {seen.problem}.", hint="name test files, or tests in them")
        if seen.report is None:
            raise EnvironmentMissing(
                f"The tests cannot be run: {seen.problem}.\n{seen.output.strip()[-2000:]}",
                hint=f"make `{bench.suite.command}` work in {bench.suite.root}",
            )
        now = self.clock.now()
        request = self.wanted.settled(seen.report, now=now, head=head)
        requests.keep(self.ticket, request)
        key = StepKey(number=NUMBER, title=request.title, text_sha256="")
        fresh = RunState(
            ticket_slug=self.ticket.slug,
            started_at=now,
            base_commit=head,
            branch=repository.branch(),
            sandbox=bench.suite.sandbox.level,
            model=bench.model.name,
            step_executions=states.pending_steps((key,)),
        )
        return request, states.start_step(fresh, key, now=now, base_commit=head)

    def _in_the_way(self) -> Iterator[str]:
        """Uncommitted changes of the user's that are no tests: those are locked and stay as they are anyway."""
        bench = self.bench
        layout = layout_of(bench.repository, bench.suite)
        named = {bench.in_repository(file) for file in self.wanted.files}
        for path in commits.uncommitted(bench.repository):
            if path not in named and not layout.is_test(path):
                yield path

    def _save(self, state: RunState) -> None:
        """Make ``state`` the present one and write it, with what the model has used so far."""
        state = states.record_usage(state, self._metered, step=self._meter.step, ticket=self._meter.ticket)
        state_file.save(self.ticket.state_path, state)
        self.state = state
