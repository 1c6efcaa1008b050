"""A run's own state as it fits an earlier commit: what came after is left out, and the next phase follows. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from cdd_agent.errors import DocumentError
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.recovery import checkpoint_ref
from cdd_agent.work import state_file
from cdd_agent.work.handoff import PHASE_OF, Handoff
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.workflows.orchestration.past.receipt import Files

STATE = "execution-state.json"
_BETWEEN = ("PLAN", "COMPLETE")
"""What follows where a cycle is over."""


def rewound(files: Files, handoff: Handoff, *, commit: CommitId, gone: Collection[str]) -> Files:
    """The files of runs as they fit ``commit``, which ``handoff`` is the note of, once the commits ``gone`` are.

    A run that began later has none any more. Where the state does not know the cycle, only the request is left: the
    notes say how to go on.
    """
    after: dict[str, bytes] = {}
    for slug in dict.fromkeys(name.partition("/")[0] for name in files):
        own = {name: data for name, data in files.items() if name.startswith(f"{slug}/")}
        state = _state(own.get(f"{slug}/{STATE}"))
        if slug == handoff.ticket:
            after |= _files(slug, own, state=None if state is None else fitted(state, handoff, commit=commit))
        elif state is None or not _began_in(state, gone):
            after |= own
    return after


def fitted(state: RunState, handoff: Handoff, *, commit: CommitId) -> RunState | None:
    """``state`` as it was when ``handoff`` was written on ``commit``; None if it knows nothing of that cycle.

    A cycle that goes on in its middle does so from ``commit``, which counts as its beginning: what the user has not
    committed now is what must be left alone.
    """
    step = state.step_executions.get(handoff.cycle_number)
    if step is None:
        return None
    earlier = {number: each for number, each in state.step_executions.items() if number < step.step_number}
    if handoff.next_phase in _BETWEEN and step.status == Status.COMPLETED:
        is_last = handoff.next_phase == "COMPLETE"
        return replace(
            state,
            status=state.status if is_last else Status.IN_PROGRESS,
            current_step=None,
            completed_at=state.completed_at if is_last else None,
            step_executions={**earlier, step.step_number: step},
        )
    landed = _landed(step, handoff, commit=commit)
    if landed is None:
        return None
    again = replace(
        step,
        status=Status.IN_PROGRESS,
        completed_at=None,
        error=None,
        files_created=(),
        files_modified=(),
        files_deleted=(),
        phase=handoff.gate.phase if handoff.gate is not None else step.phase,
        attempts=tuple(replace(each, checkpoint=None) for each in step.attempts if each.phase in landed),
        commits=landed,
        review=None,
        base_commit=commit,
        checkpoint=None,
        baseline=None,
    )
    again = replace(again, checkpoint=checkpoint_ref(state.ticket_slug, again, name="start"))
    return replace(
        state,
        status=Status.IN_PROGRESS,
        current_step=step.step_number,
        completed_at=None,
        step_executions={**earlier, step.step_number: again},
    )


def states_in(files: Files) -> tuple[RunState, ...]:
    """The states among the files of runs, those that can be read."""
    found = (_state(data) for name, data in files.items() if name.endswith(f"/{STATE}"))
    return tuple(state for state in found if state is not None)


def _landed(step: StepExecution, handoff: Handoff, *, commit: CommitId) -> dict[str, str] | None:
    """Phase -> commit, of those that had landed; None if the phase of the note never did.

    A commit that was replaced since, as by a rebase, is the one whose note it is.
    """
    phases = list(step.commits)
    ends = [number for number, phase in enumerate(phases) if step.commits[phase] == commit]
    if ends:
        return {phase: step.commits[phase] for phase in phases[: ends[-1] + 1]}
    phase = PHASE_OF[handoff.phase]
    if phase not in step.commits or handoff.error is not None:
        return None
    kept = {each: step.commits[each] for each in phases[: phases.index(phase)]}
    return {**kept, phase: commit}


def _began_in(state: RunState, gone: Collection[str]) -> bool:
    """Whether a run began at, or landed, a commit that is gone."""
    steps = state.step_executions.values()
    known = {state.base_commit, *(step.base_commit for step in steps), *(c for s in steps for c in s.commits.values())}
    return not known.isdisjoint(gone)


def _files(slug: str, own: Mapping[str, bytes], *, state: RunState | None) -> dict[str, bytes]:
    """The files of one run with this state in place of the one it had."""
    old = {f"{slug}/{STATE}", f"{slug}/{STATE}.bak"}
    kept = {name: data for name, data in own.items() if name not in old}
    return kept if state is None else {**kept, f"{slug}/{STATE}": state_file.encode(state)}


def _state(data: bytes | None) -> RunState | None:
    try:
        return None if data is None else state_file.decode(data, path=STATE)
    except DocumentError:
        return None
