"""Where a run stands when it is taken up: by its own state, or, where HEAD is not where that left it, by the notes."""

from dataclasses import replace

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice
from cdd_agent.tdd import recovery
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.workflows.orchestration.feature import BEGIN, RESUME, Feature, state_of
from cdd_agent.workflows.orchestration.recollection import rebuilt, recollect


def taken_up(feature: Feature, *, bench: Workbench, now: str) -> RunState:
    """The state to go on from; that of a new run if nothing of it is there.

    The phase that failed last has its attempts anew. Raises ``UsageError`` if the run is complete, or if HEAD is
    somewhere else and nothing leads from there to the run.
    """
    state = state_of(feature)
    if state is None or _is_elsewhere(state, feature=feature, bench=bench):
        state = _recollected(state, feature=feature, bench=bench, now=now)
    if state is not None and state.status == Status.COMPLETED:
        raise UsageError(f"{feature.slug} is complete.", hint=f"begin another: {BEGIN}")
    return replace(
        RunState(ticket_slug=feature.slug, started_at=now) if state is None else _with_attempts_anew(state),
        status=Status.IN_PROGRESS,
        completed_at=None,
        sandbox=bench.suite.sandbox.level,
        model=bench.model.name,
    )


def _is_elsewhere(state: RunState, *, feature: Feature, bench: Workbench) -> bool:
    """Whether HEAD is at a commit that the run did not make, and nobody was killed on the way to it."""
    if not state.step_executions:
        return False
    step = _last(state)
    if bench.repository.head() == recovery.landed_head(step):
        return False
    if recovery.killed_at(feature.slug, step, branch=state.branch, bench=bench) is not None:
        return False
    return step.status != Status.IN_PROGRESS or not _is_own_head(step, slug=feature.slug, bench=bench)


def _recollected(known: RunState | None, *, feature: Feature, bench: Workbench, now: str) -> RunState | None:
    """The state that the notes tell of; a new one if nothing has landed yet; None if nothing is known of the run."""
    repository = bench.repository
    told = recollect(repository, slug=feature.slug)
    if told is not None:
        bench.emit(Notice(text=f"Going on from what the notes of {told.slug} tell."))
        state = rebuilt(told, now=now, bench=bench)
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


def _is_own_head(step: StepExecution, *, slug: str, bench: Workbench) -> bool:
    """Whether HEAD is where the cycle left it, be it in the middle of landing a phase; no if nothing of it is kept."""
    if step.checkpoint is None:
        return False
    try:
        recovery.require_own_head(slug, step, bench=bench)
    except UsageError:
        return False
    return True
