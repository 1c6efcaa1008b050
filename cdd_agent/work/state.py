"""The state of a run over the steps of a plan: frozen records, and pure transitions that return new ones.

A transition that makes no sense from the state it is given raises ``UsageError``: nothing becomes completed by chance.
The records have the keys of ``execution-state.json``, which ``state_file`` reads and writes.

A run brought in line with a plan that was edited since: which execution belongs to which step.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError

SCHEMA = 1
"""The number of the file's form; a file with a greater one is refused."""

Phase: TypeAlias = Literal["plan", "red", "green", "refactor"]
"""The phases of a cycle; the tests judge all but ``plan``."""


class Status(StrEnum):
    """How far a step, or a run, has come."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Of a step only; never counts as completed for what depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """What a step of a plan is recognized by after the plan was edited."""

    number: int
    title: str
    text_sha256: str
    """Digest of what the step asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What a run, or a step of it, has used so far."""

    input_tokens: int = 0
    """Without those read from or written to the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    calls: int = 0
    """Of the model, those without an answer included."""
    minutes: float = 0.0
    cost_usd: float | None = None
    """None while nothing was used, and as soon as the price of any part is unknown."""
    known_usd: float = 0.0
    """Of the parts whose price is known: all of the cost, or the least of it."""

    @property
    def tokens(self) -> int:
        """All tokens, whatever they cost."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "UsageTotals") -> "UsageTotals":
        """Both together; an unknown cost of tokens stays unknown."""
        parts = [part for part in (self, other) if part.tokens or part.cost_usd is not None]
        known = [part.cost_usd for part in parts if part.cost_usd is not None]
        return UsageTotals(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            calls=self.calls + other.calls,
            minutes=self.minutes + other.minutes,
            cost_usd=sum(known) if parts and len(known) == len(parts) else None,
            known_usd=self.known_usd + other.known_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One try at a phase, as the gate judged it."""

    phase: Phase
    number: int
    """1 for the first try at this phase."""
    verdict: Literal["open", "closed"]
    reasons: tuple[str, ...] = ()
    """Why the gate stayed closed."""
    report: str | None = None
    """Path of the report it was judged by."""
    checkpoint: str | None = None
    """Ref of the work tree the attempt left."""
    finding: str | None = None
    """What RED came to, one of ``tdd.rules.red.RedVerdict``; PARTIAL: of a GREEN that is kept in part."""
    answer: str | None = None
    """The agent's last words, where they are what is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExecution:
    """What became of one step."""

    step_number: int
    title: str
    text_sha256: str
    """Of the text the step was last started with."""
    status: Status = Status.PENDING
    started_at: str | None = None
    completed_at: str | None = None
    """When it ended, whichever way."""
    error: str | None = None
    """Why it failed or was skipped; kept through a retry until the step completes."""
    files_created: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()
    phase: Phase | None = None
    """The phase in work, or the last one."""
    attempts: tuple[AttemptRecord, ...] = ()
    """Of the try in work; those of an earlier try are in the journal."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Phase -> commit id."""
    review: str | None = None
    """What the reviewer decided."""
    base_commit: str | None = None
    """HEAD when the step began."""
    checkpoint: str | None = None
    """Ref the step rolls back to."""
    baseline: str | None = None
    """Path of the report taken before the phase in work."""
    usage: UsageTotals = UsageTotals()
    """Of all tries, the earlier ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run over a plan, as much of it as resuming needs."""

    schema: int = SCHEMA
    ticket_slug: str
    status: Status = Status.IN_PROGRESS
    current_step: int | None = None
    """Number of the step in work; None between steps."""
    started_at: str
    completed_at: str | None = None
    plan_sha256: str | None = None
    spec_sha256: str | None = None
    base_commit: str | None = None
    """HEAD when the run began."""
    branch: str | None = None
    sandbox: str | None = None
    """What the tests are shut into."""
    model: str | None = None
    usage: UsageTotals = UsageTotals()
    step_executions: Mapping[int, StepExecution] = field(default_factory=dict)
    """Step number -> execution, in the order of the plan; never changed in place."""

    def execution(self, number: int) -> StepExecution:
        """What became of step ``number``; ``UsageError`` if the run has no such step."""
        if number not in self.step_executions:
            known = ", ".join(str(known) for known in self.step_executions) or "no steps"
            raise UsageError(
                f"The run has no step {number}; it has {known}.",
                hint=f"see the steps with: cdd status {self.ticket_slug}",
            )
        return self.step_executions[number]

    def numbers(self, *statuses: Status) -> tuple[int, ...]:
        """The steps in one of these statuses, in the order of the plan."""
        return tuple(number for number, step in self.step_executions.items() if step.status in statuses)


def pending_steps(steps: Iterable[StepKey]) -> dict[int, StepExecution]:
    """The executions a new run begins with."""
    return {
        step.number: StepExecution(step_number=step.number, title=step.title, text_sha256=step.text_sha256)
        for step in steps
    }


def start_step(state: RunState, step: StepKey, *, now: str, base_commit: str | None = None) -> RunState:
    """``step`` in progress, with the text it is started with; one already in progress goes on where it was."""
    known = _in(state, step.number, Status.PENDING, Status.IN_PROGRESS, verb="started")
    known = replace(
        known,
        title=step.title,
        text_sha256=step.text_sha256,
        status=Status.IN_PROGRESS,
        started_at=known.started_at or now,
        completed_at=None,
        base_commit=known.base_commit or base_commit,
    )
    state = replace(state, status=Status.IN_PROGRESS, current_step=step.number, completed_at=None)
    return _with(state, known)


def enter_phase(
    state: RunState, number: int, *, phase: Phase, checkpoint: str | None = None, baseline: str | None = None
) -> RunState:
    """Step ``number`` in ``phase``, with what a resumed run needs to judge or undo it; None keeps a checkpoint."""
    step = _in(state, number, Status.IN_PROGRESS, verb="taken into a phase")
    return _with(state, replace(step, phase=phase, checkpoint=checkpoint or step.checkpoint, baseline=baseline))


def record_attempt(state: RunState, number: int, *, attempt: AttemptRecord) -> RunState:
    """Step ``number`` with one more attempt."""
    step = _in(state, number, Status.IN_PROGRESS, verb="attempted")
    return _with(state, replace(step, phase=attempt.phase, attempts=(*step.attempts, attempt)))


def record_commit(state: RunState, number: int, *, phase: str, commit: str) -> RunState:
    """Step ``number`` with the commit of ``phase``."""
    step = state.execution(number)
    return _with(state, replace(step, commits={**step.commits, phase: commit}))


def record_files(
    state: RunState,
    number: int,
    *,
    created: Iterable[str] = (),
    modified: Iterable[str] = (),
    deleted: Iterable[str] = (),
) -> RunState:
    """Step ``number`` with the files it changed so far, in place of those recorded before."""
    step = state.execution(number)
    changed = replace(step, files_created=tuple(created), files_modified=tuple(modified), files_deleted=tuple(deleted))
    return _with(state, changed)


def record_usage(state: RunState, number: int | None, *, step: UsageTotals, ticket: UsageTotals) -> RunState:
    """What all of it has used so far, and step ``number`` if one was run, in place of what was recorded before."""
    counted = replace(state, usage=ticket)
    return counted if number is None else _with(counted, replace(state.execution(number), usage=step))


def complete_step(state: RunState, number: int, *, now: str) -> RunState:
    """Step ``number`` completed, which only a step in progress can be."""
    step = _in(state, number, Status.IN_PROGRESS, verb="completed")
    return _ended(state, replace(step, status=Status.COMPLETED, completed_at=now, error=None))


def fail_step(state: RunState, number: int, *, error: str, now: str) -> RunState:
    """Step ``number`` failed because of ``error``."""
    step = _in(state, number, Status.IN_PROGRESS, verb="failed")
    return _ended(state, replace(step, status=Status.FAILED, completed_at=now, error=error))


def skip_step(state: RunState, number: int, *, reason: str, now: str) -> RunState:
    """Step ``number`` left out for ``reason``; what depends on it does not count it as completed."""
    step = _in(state, number, Status.PENDING, Status.IN_PROGRESS, Status.FAILED, verb="skipped")
    return _ended(state, replace(step, status=Status.SKIPPED, completed_at=now, error=reason))


def retry_step(state: RunState, number: int) -> RunState:
    """Step ``number`` pending again, without the attempts, commits and files of the earlier try but with its error."""
    step = state.execution(number)
    fresh = StepExecution(
        step_number=number, title=step.title, text_sha256=step.text_sha256, error=step.error, usage=step.usage
    )
    return replace(_ended(state, fresh), status=Status.IN_PROGRESS, completed_at=None)


def review_step(state: RunState, number: int, *, decision: str) -> RunState:
    """Step ``number`` with what a reviewer decided about it; only a completed one can be decided about."""
    step = state.execution(number)
    if step.status != Status.COMPLETED:
        raise UsageError(
            f"Step {number} is {step.status.replace('_', ' ')}; only a completed one can be reviewed.",
            hint=f"see the steps with: cdd status {state.ticket_slug}",
        )
    return _with(state, replace(step, review=decision))


def finish(state: RunState, *, now: str) -> RunState:
    """The run with its final status: failed if a step failed, completed if none is left to do.

    A run with steps still to do stays in progress, so that leaving it half-way never counts as its end.
    """
    if state.numbers(Status.FAILED):
        return replace(state, status=Status.FAILED, current_step=None, completed_at=now)
    if state.numbers(Status.PENDING, Status.IN_PROGRESS):
        return replace(state, status=Status.IN_PROGRESS, completed_at=None)
    return replace(state, status=Status.COMPLETED, current_step=None, completed_at=now)


def _in(state: RunState, number: int, *allowed: Status, verb: str) -> StepExecution:
    """Step ``number`` if its status is one of ``allowed``."""
    step = state.execution(number)
    if step.status not in allowed:
        wanted = " or ".join(status.replace("_", " ") for status in allowed)
        raise UsageError(
            f"Step {number} is {step.status.replace('_', ' ')}; only a step that is {wanted} can be {verb}.",
            hint=f"do it again from the start with: cdd exec {state.ticket_slug} --retry {number}",
        )
    return step


def _with(state: RunState, step: StepExecution) -> RunState:
    return replace(state, step_executions={**state.step_executions, step.step_number: step})


def _ended(state: RunState, step: StepExecution) -> RunState:
    """The run with ``step`` and no longer at work on it."""
    current = None if state.current_step == step.step_number else state.current_step
    return replace(_with(state, step), current_step=current)


_Key = Callable[[StepKey | StepExecution], object]


def reconcile(state: RunState, steps: Sequence[StepKey]) -> tuple[RunState, tuple[str, ...]]:
    """The run over ``steps``, and a sentence for each thing a person should know.

    Executions are matched by title, then by the digest of the text, then by number. New steps are pending, and
    told, as are steps that are gone. A completed step whose text has changed is stale: it stays completed, with
    the text it was done by, and is reported.
    """
    matches = _matches(tuple(state.step_executions.values()), steps)
    executions: dict[int, StepExecution] = {}
    notices: list[str] = []
    for step in steps:
        known = matches.get(step.number)
        if known is None:
            executions |= pending_steps([step])
            notices.append(f"step {step.number} '{step.title}' is new")
            continue
        if known.text_sha256 != step.text_sha256:
            notices += _changed(known, step)
        executions[step.number] = _renewed(known, step)
    kept = {known.step_number: number for number, known in matches.items()}
    notices += [_gone(known) for known in state.step_executions.values() if known.step_number not in kept]
    current = None if state.current_step is None else kept.get(state.current_step)
    return replace(state, step_executions=executions, current_step=current), tuple(notices)


def _matches(known: Sequence[StepExecution], steps: Sequence[StepKey]) -> dict[int, StepExecution]:
    """Number of the new step -> its execution; a title or digest counts only where it is the only one on both sides."""
    found: dict[int, StepExecution] = {}
    keys: tuple[_Key, ...] = (_title, lambda step: step.text_sha256, _number)
    for key in keys:
        taken = {execution.step_number for execution in found.values()}
        open_known = [execution for execution in known if execution.step_number not in taken]
        open_steps = [step for step in steps if step.number not in found]
        counts = Counter(key(execution) for execution in open_known)
        wanted = Counter(key(step) for step in open_steps)
        by_key = {key(execution): execution for execution in open_known if counts[key(execution)] == 1}
        found |= {
            step.number: by_key[key(step)] for step in open_steps if wanted[key(step)] == 1 and key(step) in by_key
        }
    return found


def _title(step: StepKey | StepExecution) -> object:
    return " ".join(step.title.lower().split())


def _number(step: StepKey | StepExecution) -> object:
    return step.number if isinstance(step, StepKey) else step.step_number


def _renewed(known: StepExecution, step: StepKey) -> StepExecution:
    """The execution under the step's number; work that was begun keeps the digest of the text it was begun with."""
    begun = known.status in (Status.COMPLETED, Status.IN_PROGRESS)
    text = known.text_sha256 if begun else step.text_sha256
    return replace(known, step_number=step.number, title=step.title, text_sha256=text)


def _gone(known: StepExecution) -> str:
    """What is said of a step that the plan no longer has."""
    stays = {
        Status.COMPLETED: "its commits stay",
        Status.IN_PROGRESS: "its commits stay, and so do its changes to files",
    }
    if known.status in stays:
        status, what = known.status.replace("_", " "), stays[known.status]
        return f"step {known.step_number} '{known.title}' is {status} and no longer in the plan; {what}"
    return f"step {known.step_number} '{known.title}' is no longer in the plan"


def _changed(known: StepExecution, step: StepKey) -> list[str]:
    match known.status:
        case Status.COMPLETED:
            return [f"step {step.number} '{step.title}' is stale: its text changed after it was completed"]
        case Status.IN_PROGRESS:
            return [f"step {step.number} '{step.title}' goes on, but its text changed after it was started"]
        case _:
            return []
