"""The orchestrator: cycle after cycle, one listed test each, until list, list agent and cycles say that all is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cdd_agent.agent.limits.meter import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed
from cdd_agent.events import StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.tdd import recovery
from cdd_agent.tdd.cycle import Cycle, Ending
from cdd_agent.tdd.policy import WorkItem
from cdd_agent.tdd.rules.red import RedVerdict
from cdd_agent.tdd.workbench import Ways, Workbench
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey
from cdd_agent.workflows.orchestration import briefs, choice
from cdd_agent.workflows.orchestration.feature import RESUME, Feature, completed
from cdd_agent.workflows.orchestration.whereabouts import taken_up
from cdd_agent.workflows.telling import told

WAYS = Ways(go_on=RESUME, anew="cdd tdd rollback COMMIT, with a commit that `cdd tdd history` shows", unit="cycle")
"""How a person goes on with a run."""
_CHOOSING = "the next test"
"""What a cycle is called before its test is chosen."""


class Orchestrator:
    """Takes one feature through its cycles."""

    def __init__(
        self,
        feature: Feature,
        *,
        bench: Workbench,
        clock: Clock,
        meter: Meter | None = None,
        allow_dirty: bool = False,
        is_attended: bool = False,
    ) -> None:
        """Nothing happens before ``run``. Without a ``meter`` round the model it is counted and has no limits.

        ``is_attended``: a person is there to go on from where a phase failed.
        """
        self.feature = feature
        self.clock = clock
        self.allows_dirty = allow_dirty
        """Whether the user's uncommitted changes stay, out of every commit."""
        self._is_attended = is_attended
        self._meter = meter or Meter(bench.model, clock=clock, ticket=feature.slug, go_on=RESUME)
        self.bench = replace(bench, model=self._meter, ways=WAYS)
        self._metered: int | None = None
        self.state = RunState(ticket_slug=feature.slug, started_at=clock.now())

    def run(self) -> RunState:
        """Begin, or go on, until the feature is complete.

        Raises ``GateClosed`` if a phase comes to nothing: what landed stays, and ``run`` goes on from there.
        """
        with self._running():
            while self.state.status != Status.COMPLETED:
                self._cycle()
        return self.state

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Hold the repository while cycles are run; the state is saved however the block ends."""
        bench, slug = self.bench, self.feature.slug
        with recovery.alone_on(self.feature.folder, bench=bench):
            self._meter.check()
            commits.require_finished(bench.repository)
            commits.require_base(bench.repository)
            if not self.feature.request_path.exists():
                self._require_undisturbed()
            self.feature.keep()
            self.state = taken_up(self.feature, bench=bench, now=self.clock.now())
            self._meter.resume(self.state.usage)
            remarks = commits.remarks(bench.repository)
            with told("tdd", slug, bench=bench, clock=self.clock, remarks=remarks, settle=self._settled):
                yield

    def _settled(self) -> RunState:
        """The state as a run leaves it, saved."""
        self._meter.pause()
        self._save(self.state)
        return self.state

    def _cycle(self) -> None:
        """Run the cycle that comes next, or the rest of the one in progress."""
        step = self._begun()
        self._meter.begin(f"cycle {step.step_number} of {self.feature.slug}", used=step.usage)
        self._metered = step.step_number
        self._meter.check()
        if "plan" not in step.commits:
            self._carry_out(self._plan_item(step))
        step = self.state.execution(step.step_number)
        chosen = briefs.chosen_by(_answer(step), self.bench.workspace)
        if chosen is None:
            self._save(states.complete_step(self.state, step.step_number, now=self.clock.now()))
            self._save(states.finish(self.state, now=self.clock.now()))
            return
        listed = briefs.listed_in(self.bench.workspace)
        item = briefs.test_item(self._plan_item(step), chosen, feature=self.feature, entries=listed)
        total = max(len(listed), step.step_number)
        self.bench.emit(StepStarted(number=step.step_number, total=total, title=item.title))
        self._keep(replace(step, title=item.title))
        self._carry_out(item)
        self._save(states.complete_step(self.state, step.step_number, now=self.clock.now()))
        self.bench.emit(StepFinished(number=step.step_number, status=Status.COMPLETED, error=None))

    def _begun(self) -> StepExecution:
        """The cycle in progress, a new one begun if there is none."""
        in_progress = self.state.numbers(Status.IN_PROGRESS)
        if in_progress:
            return self.state.execution(in_progress[-1])
        repository = self.bench.repository
        self._require_undisturbed()
        number = max(self.state.step_executions, default=0) + 1
        key = StepKey(number=number, title=_CHOOSING, text_sha256="")
        steps = {**self.state.step_executions, **states.pending_steps((key,))}
        head = repository.head()
        state = replace(
            self.state,
            step_executions=steps,
            base_commit=self.state.base_commit or head,
            branch=repository.branch(),
        )
        self._save(states.start_step(state, key, now=self.clock.now(), base_commit=head))
        return self.state.execution(number)

    def _require_undisturbed(self) -> None:
        """Raise ``UsageError`` if there are changes of the user's that nobody allowed, or no list could be kept."""
        briefs.require_list(self.bench.workspace)
        repository = self.bench.repository
        commits.require_undisturbed(repository, () if self.allows_dirty else commits.uncommitted(repository))

    def _plan_item(self, step: StepExecution) -> WorkItem:
        """The work of PLAN in a cycle."""
        done = {each.title: _is_covered(each) for each in completed(self.state)}
        return briefs.plan_item(self.feature, step.step_number, done=done)

    def _carry_out(self, item: WorkItem) -> None:
        """Take ``item`` through its phases; raises ``GateClosed`` if one of them comes to nothing."""
        ending = Cycle(item, self.state, bench=self.bench, save=self._save).run()
        self.state = ending.state
        if ending.how in ("failed", "blocked"):
            self._stop(item, ending)

    def _stop(self, item: WorkItem, ending: Ending) -> None:
        """Keep why the run stops and raise it: a pause for a person, else the end of the run for now."""
        step = ending.state.execution(item.number)
        why = ending.why or ending.how
        self._keep(replace(step, error=why))
        if not self._is_attended:
            self._save(replace(self.state, status=Status.FAILED, completed_at=self.clock.now()))
        word = "paused" if self._is_attended else "aborted"
        title = f" ({step.title})" if step.title != _CHOOSING else ""
        self.bench.emit(StepFinished(number=item.number, status=word, error=why))
        raise GateClosed(
            f"The run {self.feature.slug} is {word} in cycle {item.number}{title}: {why}\n"
            f"What landed stays; the changes of {phase_name(step.phase or item.phases[0])} were taken back.",
            hint=f"change what is in the way, commit that, and go on with: {RESUME}; "
            "or go back: cdd tdd rollback COMMIT, with one of those that cdd tdd history shows",
        )

    def _keep(self, step: StepExecution) -> None:
        """Save the state with ``step`` as it is now."""
        self._save(replace(self.state, step_executions={**self.state.step_executions, step.step_number: step}))

    def _save(self, state: RunState) -> None:
        """Make ``state`` the present one and write it, with what the model has used so far."""
        state = states.record_usage(state, self._metered, step=self._meter.step, ticket=self._meter.ticket)
        state_file.save(self.feature.state_path, state)
        self.state = state


def _answer(step: StepExecution) -> str:
    """What the list agent said in this cycle."""
    said = [each.answer for each in step.attempts if each.phase == "plan" and each.verdict == "open"]
    return (said[-1] if said else None) or choice.written(None)


def _is_covered(step: StepExecution) -> bool:
    """Whether the test of this cycle passed at once."""
    return any(each.finding == RedVerdict.ALREADY_GREEN and each.verdict == "open" for each in step.attempts)
