"""The orchestrator: cycle after cycle, one listed test each, until list, list agent and cycles say that all is done.

Where a run stands when it is taken up: by its own state, or, where HEAD is not where that left it, by the notes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Notice, StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Context, Ways, WorkItem, told
from cdd_agent.tdd.cycle import Cycle, Ending
from cdd_agent.tdd.verdict import RedVerdict
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey
from cdd_agent.workflows.orchestration import agents, test_list
from cdd_agent.workflows.orchestration.feature import BEGIN, RESUME, Feature, completed, rebuilt, recollect, state_of


def taken_up(feature: Feature, *, context: Context, now: str) -> RunState:
    """The state to go on from; that of a new run if nothing of it is there.

    The phase that failed last has its attempts anew. Raises ``UsageError`` if the run is complete, or if HEAD is
    somewhere else and nothing leads from there to the run.
    """
    state = state_of(feature)
    if state is None or _is_elsewhere(state, feature=feature, context=context):
        state = _recollected(state, feature=feature, context=context, now=now)
    if state is not None and state.status == Status.COMPLETED:
        raise UsageError(f"{feature.slug} is complete.", hint=f"begin another: {BEGIN}")
    return replace(
        RunState(ticket_slug=feature.slug, started_at=now) if state is None else _with_attempts_anew(state),
        status=Status.IN_PROGRESS,
        completed_at=None,
        sandbox=context.suite.sandbox.level,
        model=context.model.name,
    )


def _is_elsewhere(state: RunState, *, feature: Feature, context: Context) -> bool:
    """Whether HEAD is at a commit that the run did not make, and nobody was killed on the way to it."""
    if not state.step_executions:
        return False
    step = _last(state)
    if context.repository.head() == recovery.landed_head(step):
        return False
    if recovery.killed_at(feature.slug, step, branch=state.branch, context=context) is not None:
        return False
    return step.status != Status.IN_PROGRESS or not _is_own_head(step, slug=feature.slug, context=context)


def _recollected(known: RunState | None, *, feature: Feature, context: Context, now: str) -> RunState | None:
    """The state that the notes tell of; a new one if nothing has landed yet; None if nothing is known of the run."""
    repository = context.repository
    told = recollect(repository, slug=feature.slug)
    if told is not None:
        context.emit(Notice(text=f"Going on from what the notes of {told.slug} tell."))
        state = rebuilt(told, now=now, context=context)
        return replace(state, usage=known.usage) if known else state
    if known is None:
        return None
    has_landed = any(step.commits for step in known.step_executions.values())
    if not has_landed or repository.head() == known.base_commit:
        return RunState(ticket_slug=feature.slug, started_at=now, usage=known.usage)
    raise UsageError(
        f"HEAD is at {str(repository.head())[:10]}, and no note leads from there to the run {feature.slug}.\n"
        "Nothing was touched.",
        hint=f"git switch {known.branch or 'to where it was'}, then: {RESUME}",
    )


def _with_attempts_anew(state: RunState) -> RunState:
    """``state``, the phase that failed last without its attempts."""
    if not state.step_executions:
        return state
    step = _last(state)
    if step.error is None or step.status != Status.IN_PROGRESS:
        return state
    landed = tuple(attempt for attempt in step.attempts if attempt.phase in step.commits)
    steps = {**state.step_executions, step.step_number: replace(step, attempts=landed, error=None)}
    return replace(state, step_executions=steps)


def _last(state: RunState) -> StepExecution:
    """The cycle in progress, or the last one."""
    return state.execution(max(state.step_executions))


def _is_own_head(step: StepExecution, *, slug: str, context: Context) -> bool:
    """Whether HEAD is where the cycle left it, be it in the middle of landing a phase; no if nothing of it is kept."""
    if step.checkpoint is None:
        return False
    try:
        recovery.require_own_head(slug, step, context=context)
    except UsageError:
        return False
    return True


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
        context: Context,
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
        self._meter = meter or Meter(context.model, clock=clock, ticket=feature.slug, go_on=RESUME)
        self.context = replace(context, model=self._meter, ways=WAYS)
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
        context, slug = self.context, self.feature.slug
        with recovery.alone_on(self.feature.folder, context=context):
            self._meter.check()
            commits.require_finished(context.repository)
            commits.require_base(context.repository)
            if not self.feature.request_path.exists():
                self._require_undisturbed()
            self.feature.keep()
            self.state = taken_up(self.feature, context=context, now=self.clock.now())
            self._meter.resume(self.state.usage)
            remarks = commits.remarks(context.repository)
            with told("tdd", slug, context=context, clock=self.clock, remarks=remarks, settle=self._settled):
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
        chosen = agents.chosen_by(_answer(step), self.context.workspace)
        if chosen is None:
            self._save(states.complete_step(self.state, step.step_number, now=self.clock.now()))
            self._save(states.finish(self.state, now=self.clock.now()))
            return
        listed = agents.listed_in(self.context.workspace)
        item = agents.test_item(self._plan_item(step), chosen, feature=self.feature, entries=listed)
        total = max(len(listed), step.step_number)
        self.context.emit(StepStarted(number=step.step_number, total=total, title=item.title))
        self._keep(replace(step, title=item.title))
        self._carry_out(item)
        self._save(states.complete_step(self.state, step.step_number, now=self.clock.now()))
        self.context.emit(StepFinished(number=step.step_number, status=Status.COMPLETED, error=None))

    def _begun(self) -> StepExecution:
        """The cycle in progress, a new one begun if there is none."""
        in_progress = self.state.numbers(Status.IN_PROGRESS)
        if in_progress:
            return self.state.execution(in_progress[-1])
        repository = self.context.repository
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
        agents.require_list(self.context.workspace)
        repository = self.context.repository
        commits.require_undisturbed(repository, () if self.allows_dirty else commits.uncommitted(repository))

    def _plan_item(self, step: StepExecution) -> WorkItem:
        """The work of PLAN in a cycle."""
        done = {each.title: _is_covered(each) for each in completed(self.state)}
        return agents.plan_item(self.feature, step.step_number, done=done)

    def _carry_out(self, item: WorkItem) -> None:
        """Take ``item`` through its phases; raises ``GateClosed`` if one of them comes to nothing."""
        ending = Cycle(item, self.state, context=self.context, save=self._save).run()
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
        self.context.emit(StepFinished(number=item.number, status=word, error=why))
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
    return (said[-1] if said else None) or test_list.written(None)


def _is_covered(step: StepExecution) -> bool:
    """Whether the test of this cycle passed at once."""
    return any(each.finding == RedVerdict.ALREADY_GREEN and each.verdict == "open" for each in step.attempts)
