"""The state of a run over the steps of a plan: frozen records, and pure transitions that return new ones.

A transition that does not fit the present state raises ``UsageError``. ``reconcile`` adapts a run to an edited plan.
The functions at the end lock the files of a ticket.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from cdd_agent.errors import UsageError
from cdd_agent.events import Change, ChangeKind
from cdd_agent.storage import exclusive_lock, keep_from_links, sweep
from cdd_agent.work.finding import Finding
from cdd_agent.work.outcome import Outcome, get_word, is_accepted
from cdd_agent.work.records import find_records
from pytest_tdd_agent.report import Reason

SCHEMA = 3
"""The version of the file format. Files with a greater version are refused."""

Phase: TypeAlias = Literal["plan", "red", "green", "refactor"]
"""The phases of a cycle. All but ``plan`` are judged by tests."""


class Status(StrEnum):
    """The status of a step or a run."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """For steps only. Does not count as completed for dependent steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """The properties that identify a step after the plan was edited."""

    number: int
    title: str
    text_sha256: str
    """The digest of the step's text."""
    is_integration: bool = False
    """Whether it tests several parts of the run together, and is none itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens, calls, minutes and dollars of one or more turns of a model."""

    input_tokens: int = 0
    """Tokens that were neither read from nor written to the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    calls: int = 0
    """Calls of the model, including those without an answer."""
    minutes: float = 0.0
    cost_usd: float | None = None
    """None if nothing was used, or if the price of any part is unknown."""
    known_usd: float = 0.0
    """The cost of the parts with a known price."""

    @property
    def token_counts(self) -> dict[str, int]:
        """Kind of tokens, as the name of its field -> count."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name.endswith("_tokens")}

    @property
    def tokens(self) -> int:
        """All tokens, including cached ones."""
        return sum(self.token_counts.values())

    def __add__(self, other: "Usage") -> "Usage":
        """Add two usages. The cost is unknown if either is."""
        parts = [part for part in (self, other) if part.tokens or part.cost_usd is not None]
        known = [part.cost_usd for part in parts if part.cost_usd is not None]
        return Usage(
            **{kind: count + other.token_counts[kind] for kind, count in self.token_counts.items()},
            calls=self.calls + other.calls,
            minutes=self.minutes + other.minutes,
            cost_usd=sum(known) if parts and len(known) == len(parts) else None,
            known_usd=self.known_usd + other.known_usd,
        )

    def __sub__(self, before: "Usage") -> "Usage":
        """Return what was used since ``before``; the cost is unknown if either is."""
        return self + Usage(
            **{kind: -count for kind, count in before.token_counts.items()},
            calls=-before.calls,
            minutes=-before.minutes,
            cost_usd=None if before.cost_usd is None else -before.cost_usd,
            known_usd=-before.known_usd,
        )


Cause: TypeAlias = Literal["code", "test", "environment", "flaky", "unknown"]
"""Why tests fail: because of the code, the test or something outside of the project, or by chance."""


Ground: TypeAlias = Literal["rule", "examples", "votes", "person"]
"""The basis of a diagnosis."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The answer of a model to one cut of the evidence on a failure."""

    cut: str
    """The parts that it saw, such as ``docstring and test``."""
    cause: Cause
    """``unknown``: the answer does not count."""

    def __str__(self) -> str:
        """Return the cut and the answer."""
        return f"{self.cut}: {'no vote' if self.cause == 'unknown' else self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The cause of a failure, and advice.

    With the cause ``unknown``, nobody could tell, and the step ends.
    """

    kind: Cause
    why: str
    place: str = ""
    """Path and line; empty if unknown."""
    advice: str = ""
    """An instruction: for ``environment`` to the user, otherwise to the next attempt. It can be empty."""
    packages: tuple[str, ...] = ()
    """Those that are missing."""
    by: Ground = "rule"
    votes: tuple[Vote, ...] = ()
    """In the order in which they were given."""

    def __str__(self) -> str:
        """Return why, and the advice."""
        return f"{self.why} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt at a phase, and its outcome."""

    phase: Phase
    number: int
    """1 for the first attempt at this phase."""
    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    """Why the gate stayed closed."""
    report: str | None = None
    """The path of the judged report."""
    checkpoint: str | None = None
    """The ref of the work tree after the attempt."""
    answer: str | None = None
    """The agent's last words, if they are judged."""
    words: str = ""
    """The agent's last words, shortened."""
    summary: str = ""
    """The agent's summary of the change; that of the attempt before if this one changed nothing."""
    evidence: tuple[Finding, ...] = ()
    """The findings of the checks that follow the gate."""
    diagnosis: Diagnosis | None = None
    """Why the tests of a closed attempt fail, where the source of the work can tell."""

    @property
    def is_open(self) -> bool:
        """Whether the attempt ends its phase."""
        return is_accepted(self.outcome)

    @property
    def verdict(self) -> Literal["open", "closed"]:
        """The word for ``is_open`` on the screen."""
        return "open" if self.is_open else "closed"

    @property
    def finding(self) -> str | None:
        """The word for the outcome in notes and on the screen, if there is one beyond the verdict."""
        return get_word(self.outcome) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTry:
    """A refused try at a step, for the next one: its texts are shortened, with keys masked."""

    phase: Phase
    """The phase that was refused."""
    reasons: tuple[Reason, ...]
    kind: Literal["refused", "test_is_wrong"] = "refused"
    """``test_is_wrong``: GREEN reported that of RED's test, so the step is back in RED."""
    failures: str = ""
    """The failing tests with their output."""
    words: str = ""
    """The agent's last words."""
    diffs: Mapping[Phase, str] = field(default_factory=dict)
    """Phase -> the diff of its last attempt."""
    kept: str | None = None
    """The ref of the files, if they are kept aside for the next GREEN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedWork:
    """The work of an attempt that was interrupted before a gate could judge it. The next one continues it."""

    phase: Phase
    files: str | None
    """The ref of a commit with the files, whose parent has them as they were when the attempt began."""
    diff: str = ""
    """The changes of the attempt, shortened, with keys masked."""
    words: str = ""
    """The agent's last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExecution:
    """The execution of one step."""

    step_number: int
    title: str
    text_sha256: str
    """The digest of the step's text when it was last started."""
    is_integration: bool = False
    """As in ``StepKey``."""
    status: Status = Status.PENDING
    started_at: str | None = None
    completed_at: str | None = None
    """The time of its end, also if it failed."""
    error: str | None = None
    """Why it failed or was skipped. Stays during a retry until the step completes."""
    files_created: tuple[str, ...] = ()
    """The created files of a completed step; while it runs, those that the agent has created with its tools."""
    files_modified: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()
    phase: Phase | None = None
    """The current phase, or the last one."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The attempts since the last retry. Earlier ones are in the journal."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Phase -> commit id."""
    review: str | None = None
    """The reviewer's decision."""
    base_commit: str | None = None
    """HEAD when the step began."""
    checkpoint: str | None = None
    """The ref that the step rolls back to."""
    baseline: str | None = None
    """The path of the report before the current phase."""
    usage: Usage = Usage()
    """The usage of all attempts, including those before a retry."""
    refusal: RefusedTry | None = None
    """Why the last try at the step was refused. Stays until the step completes."""
    interrupted: InterruptedWork | None = None
    """The work of an interrupted attempt. Stays until the attempt that continues it is judged."""
    guidance: str = ""
    """The user's words to the next attempts. Stays until the step completes."""
    iterates: bool = False
    """Whether it landed before, and runs again with the reviewer's words. Stays until the step completes."""
    landed: "StepExecution | None" = None
    """The step as it landed before its last iteration. It counts again if the iteration is given up."""
    times_sent_back: int = 0
    """How often GREEN has sent the step back to RED."""
    returned: tuple[AttemptRecord, ...] = ()
    """The attempts at RED and GREEN that this took back, oldest first."""

    @property
    def files(self) -> tuple[str, ...]:
        """The created, modified and deleted files, in this order."""
        return (*self.files_created, *self.files_modified, *self.files_deleted)

    def list_landings(self) -> "Iterator[StepExecution]":
        """Yield the step, and if it is completed also as it landed before each iteration, newest first."""
        step = self
        yield step
        while step.status == Status.COMPLETED and step.landed is not None:
            step = step.landed
            yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """The executions of a run beyond the commit to which it went back."""

    steps: tuple[StepExecution, ...]
    """The executions as they were before."""
    status: Status
    """The run's, like the fields below; they hold again when the branch has all these steps again."""
    current_step: int | None
    completed_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a run takes its work from, for those who read its state without knowing the workflow."""

    workflow: str
    title: str
    """The purpose of the run, in one line."""
    resume: str
    """The command that continues it."""
    makes_project: bool = False
    """As in ``Source``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run, with everything needed to resume it."""

    schema: int = SCHEMA
    ticket_slug: str
    status: Status = Status.IN_PROGRESS
    current_step: int | None = None
    """The number of the current step. None between steps."""
    started_at: str
    completed_at: str | None = None
    plan_sha256: str | None = None
    spec_sha256: str | None = None
    base_commit: str | None = None
    """HEAD when the run began."""
    branch: str | None = None
    sandbox: str | None = None
    """The level of the tests' sandbox."""
    model: str | None = None
    usage: Usage = Usage()
    origin: Origin | None = None
    """None before the first step, and in a state that an earlier version saved."""
    step_executions: Mapping[int, StepExecution] = field(default_factory=dict)
    """Step number -> execution, in the order of the plan."""
    beyond: tuple[Beyond, ...] = ()
    """Executions that left the branch when the run went back; one entry for each time, newest last."""

    @property
    def source(self) -> str:
        """The name of the source; empty without ``origin``."""
        return self.origin.workflow if self.origin is not None else ""

    @property
    def makes_project(self) -> bool:
        """Whether the run makes the project in which it is, and not a change of it."""
        return self.origin is not None and self.origin.makes_project

    @property
    def parts(self) -> tuple[StepExecution, ...]:
        """The steps without those that only test others together."""
        return tuple(step for step in self.step_executions.values() if not step.is_integration)

    @property
    def unit(self) -> str:
        """The word for a part of the run."""
        return "node" if self.makes_project else "step"

    @property
    def resume(self) -> str:
        """The command that continues the run."""
        return self.origin.resume if self.origin is not None else f"cdd exec {self.ticket_slug}"

    def execution(self, number: int) -> StepExecution:
        """Return the execution of step ``number``. Raises ``UsageError`` if there is none."""
        if number not in self.step_executions:
            known = ", ".join(str(known) for known in self.step_executions) or "no steps"
            hint = f"list the steps: cdd status {self.ticket_slug}"
            raise UsageError(f"The run has no step {number}; it has {known}.", hint=hint)
        return self.step_executions[number]

    def numbers(self, *statuses: Status) -> tuple[int, ...]:
        """Return the steps in one of these statuses, in the order of the plan."""
        return tuple(number for number, step in self.step_executions.items() if step.status in statuses)

    @property
    def is_approved(self) -> bool:
        """Whether the run is completed, and the reviewer has decided about each of its steps."""
        done = self.numbers(Status.COMPLETED)
        return self.status == Status.COMPLETED and all(self.execution(number).review for number in done)


def pending_steps(steps: Iterable[StepKey]) -> dict[int, StepExecution]:
    """Return the executions of a new run."""
    return {
        step.number: StepExecution(
            step_number=step.number, title=step.title, text_sha256=step.text_sha256, is_integration=step.is_integration
        )
        for step in steps
    }


def start_step(state: RunState, step: StepKey, *, now: str, base_commit: str | None = None) -> RunState:
    """Start ``step`` with its current text, or continue it."""
    known = _require(state, step.number, Status.PENDING, Status.IN_PROGRESS, verb="started")
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
    return replace_step(state, known)


def enter_phase(
    state: RunState, number: int, *, phase: Phase, checkpoint: str | None = None, baseline: str | None = None
) -> RunState:
    """Start ``phase``. A resumed run needs checkpoint and baseline; without a checkpoint the present one stays."""
    step = _require(state, number, Status.IN_PROGRESS, verb="moved to a phase")
    return replace_step(state, replace(step, phase=phase, checkpoint=checkpoint or step.checkpoint, baseline=baseline))


def record_attempt(state: RunState, number: int, *, attempt: AttemptRecord) -> RunState:
    """Add an attempt to step ``number``, with which interrupted work is judged."""
    step = _require(state, number, Status.IN_PROGRESS, verb="attempted")
    attempts = (*step.attempts, attempt)
    return replace_step(state, replace(step, phase=attempt.phase, attempts=attempts, interrupted=None))


def record_commit(state: RunState, number: int, *, phase: str, commit: str) -> RunState:
    """Add the commit of ``phase`` to step ``number``."""
    step = state.execution(number)
    return replace_step(state, replace(step, commits={**step.commits, phase: commit}))


def record_refusal(state: RunState, number: int, *, refusal: RefusedTry) -> RunState:
    """Replace what the last try at step ``number`` left for the next one."""
    return replace_step(state, replace(state.execution(number), refusal=refusal))


def record_interruption(state: RunState, number: int, *, work: InterruptedWork | None) -> RunState:
    """Replace what an interrupted attempt at step ``number`` left to continue."""
    return replace_step(state, replace(state.execution(number), interrupted=work))


def record_files(state: RunState, number: int, *, changes: Sequence[Change]) -> RunState:
    """Replace the changed files of step ``number``."""
    created, modified, deleted = (
        tuple(change.path for change in changes if change.kind == kind) for kind in get_args(ChangeKind)
    )
    step = replace(state.execution(number), files_created=created, files_modified=modified, files_deleted=deleted)
    return replace_step(state, step)


def add_file(state: RunState, number: int, *, path: str, is_new: bool) -> RunState:
    """Add a file that the agent wrote to those of step ``number``. Returns ``state`` itself if it has the file."""
    step = state.execution(number)
    if path in step.files:
        return state
    if is_new:
        return replace_step(state, replace(step, files_created=(*step.files_created, path)))
    return replace_step(state, replace(step, files_modified=(*step.files_modified, path)))


def add_guidance(state: RunState, number: int, *, words: str) -> RunState:
    """Add words for the next attempts at step ``number``, unless it has them."""
    step = state.execution(number)
    if not words or f"\n{words}\n" in f"\n{step.guidance}\n":
        return state
    return replace_step(state, replace(step, guidance="\n".join(filter(None, (step.guidance, words)))))


def record_usage(state: RunState, number: int | None, *, step: Usage, ticket: Usage) -> RunState:
    """Replace the usage of the run and, if ``number`` is given, of the step."""
    updated = replace(state, usage=ticket)
    return updated if number is None else replace_step(updated, replace(state.execution(number), usage=step))


def end_step(state: RunState, number: int, *, status: Status, now: str, error: str | None = None) -> RunState:
    """End step ``number`` as completed, failed or skipped; ``error`` is why. Only a skipped one need not be running."""
    also = (Status.PENDING, Status.FAILED) if status == Status.SKIPPED else ()
    step = _require(state, number, *also, Status.IN_PROGRESS, verb=status)
    if status == Status.COMPLETED:
        step = replace(step, refusal=None, interrupted=None, guidance="", iterates=False)
    else:  # the files that the agent wrote have not landed
        step = replace(step, files_created=(), files_modified=(), files_deleted=(), interrupted=None)
    return _end(state, replace(step, status=status, completed_at=now, error=error))


def keep_spent(state: RunState, later: RunState) -> RunState:
    """Return ``state`` with the usage of ``later``, if that is more: undoing a step does not refund it."""
    spent = {number: step.usage for number, step in later.step_executions.items()}
    steps = {
        number: replace(step, usage=max(step.usage, spent.get(number, step.usage), key=_count_tokens))
        for number, step in state.step_executions.items()
    }
    return replace(state, step_executions=steps, usage=max(state.usage, later.usage, key=_count_tokens))


def _count_tokens(usage: Usage) -> int:
    return usage.tokens


def retry_step(state: RunState, number: int) -> RunState:
    """Reset step ``number`` to pending. Its error, refusal, usage and guidance stay; interrupted work does not."""
    step = state.execution(number)
    is_iteration = step.status == Status.COMPLETED and bool(step.guidance)
    landed = step.landed if step.iterates else None
    if is_iteration:
        landed = replace(step, guidance="", review=None)
    fresh = replace(renew_step(step), iterates=step.iterates or is_iteration, landed=landed)
    return replace(_end(state, fresh), status=Status.IN_PROGRESS, completed_at=None)


def renew_step(step: StepExecution) -> StepExecution:
    """Return ``step`` as pending, with its error, refusal, usage and guidance."""
    return StepExecution(
        step_number=step.step_number,
        title=step.title,
        text_sha256=step.text_sha256,
        error=step.error,
        usage=step.usage,
        refusal=step.refusal,
        guidance=step.guidance,
    )


def restore_landed(state: RunState, number: int, *, now: str) -> RunState:
    """Return ``state`` with step ``number`` as it landed before an iteration that was given up.

    Usage and refusal stay: the next iteration begins with why this one was refused.
    """
    step = state.execution(number)
    if step.landed is None:
        raise UsageError(f"Step {number} has not landed before.", hint=f"cdd status {state.ticket_slug}")
    restored = replace(step.landed, usage=step.usage, refusal=step.refusal)
    return finish(_end(state, restored), now=now)


def review_step(state: RunState, number: int, *, decision: str) -> RunState:
    """Record the reviewer's decision about step ``number``, which must be completed."""
    step = state.execution(number)
    if step.status != Status.COMPLETED:
        happened = f"Step {number} is {step.status.replace('_', ' ')}; only a completed one can be reviewed."
        raise UsageError(happened, hint=f"list the steps: cdd status {state.ticket_slug}")
    return replace_step(state, replace(step, review=decision))


def finish(state: RunState, *, now: str) -> RunState:
    """Set the final status: failed if a step failed, completed if all steps are done, else still in progress."""
    if state.numbers(Status.FAILED):
        return replace(state, status=Status.FAILED, current_step=None, completed_at=now)
    if state.numbers(Status.PENDING, Status.IN_PROGRESS):
        return replace(state, status=Status.IN_PROGRESS, completed_at=None)
    return replace(state, status=Status.COMPLETED, current_step=None, completed_at=now)


def _require(state: RunState, number: int, *allowed: Status, verb: str) -> StepExecution:
    step = state.execution(number)
    if step.status not in allowed:
        wanted = " or ".join(status.replace("_", " ") for status in allowed)
        happened = f"Step {number} is {step.status.replace('_', ' ')}; only a step that is {wanted} can be {verb}."
        raise UsageError(happened, hint=f"start the step again: cdd exec {state.ticket_slug} --retry {number}")
    return step


def require_current(state: RunState) -> StepExecution:
    """Return the step that was started last and has not ended."""
    assert state.current_step is not None
    return state.execution(state.current_step)


def replace_step(state: RunState, step: StepExecution) -> RunState:
    """Return ``state`` with the execution ``step`` in place of the one with its number."""
    return replace(state, step_executions={**state.step_executions, step.step_number: step})


def _end(state: RunState, step: StepExecution) -> RunState:
    current = None if state.current_step == step.step_number else state.current_step
    return replace(replace_step(state, step), current_step=current)


def reconcile(state: RunState, steps: Sequence[StepKey]) -> tuple[RunState, tuple[str, ...]]:
    """Adapt the run to the edited ``steps``. Return it with a notice for each difference.

    Executions are matched by title, then by the digest of the text, then by number. New steps become pending. A
    completed step whose text has changed stays completed and is reported as stale.
    """
    matches = _match(tuple(state.step_executions.values()), steps)
    executions: dict[int, StepExecution] = {}
    notices: list[str] = []
    for step in steps:
        known = matches.get(step.number)
        if known is None:
            executions |= pending_steps([step])
            notices.append(f"step {step.number} '{step.title}' is new")
            continue
        if known.text_sha256 != step.text_sha256:
            if known.status == Status.COMPLETED:
                notices.append(f"step {step.number} '{step.title}' is stale: its text changed after it was completed")
            elif known.status == Status.IN_PROGRESS:
                notices.append(f"step {step.number} '{step.title}' continues, but its text changed after it started")
        # Work that has begun keeps the digest of the text it began with.
        has_begun = known.status in (Status.COMPLETED, Status.IN_PROGRESS)
        text = known.text_sha256 if has_begun else step.text_sha256
        known = replace(known, step_number=step.number, title=step.title, text_sha256=text)
        executions[step.number] = replace(known, is_integration=step.is_integration)
    new_numbers = {known.step_number: number for number, known in matches.items()}
    removed = (known for known in state.step_executions.values() if known.step_number not in new_numbers)
    notices += [_describe_removed(known) for known in removed]
    current = None if state.current_step is None else new_numbers.get(state.current_step)
    beyond = tuple(_renumber(each, new_numbers) for each in state.beyond)
    return replace(state, step_executions=executions, current_step=current, beyond=beyond), tuple(notices)


def _renumber(beyond: Beyond, new_numbers: Mapping[int, int]) -> Beyond:
    """Return ``beyond`` with the steps that are still in the plan; those it no longer has are only in the notes."""
    steps = (step for step in beyond.steps if step.step_number in new_numbers)
    current = None if beyond.current_step is None else new_numbers.get(beyond.current_step)
    renumbered = tuple(replace(step, step_number=new_numbers[step.step_number]) for step in steps)
    return replace(beyond, steps=renumbered, current_step=current)


def _match(known: Sequence[StepExecution], steps: Sequence[StepKey]) -> dict[int, StepExecution]:
    """Return number of the new step -> execution. A key counts only if it is unique on both sides."""
    found: dict[int, StepExecution] = {}
    keys: tuple[Callable[[StepKey | StepExecution], object], ...] = (
        lambda step: " ".join(step.title.lower().split()),
        lambda step: step.text_sha256,
        lambda step: step.number if isinstance(step, StepKey) else step.step_number,
    )
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


def _describe_removed(known: StepExecution) -> str:
    results = {Status.COMPLETED: "its commits stay", Status.IN_PROGRESS: "its commits and its changes to files stay"}
    if known.status in results:
        status, result = known.status.replace("_", " "), results[known.status]
        return f"step {known.step_number} '{known.title}' is {status} and no longer in the plan; {result}"
    return f"step {known.step_number} '{known.title}' is no longer in the plan"


REPOSITORY_LOCK = "cdd-exec.lock"
"""The name of the lock in git's common folder: all work trees share checkpoints, branches and notes."""


@contextlib.contextmanager
def lock_ticket(project: Path, folder: Path) -> Iterator[bool]:
    """Lock the ticket in ``folder``, or raise ``UsageError``; yield whether the last holder was killed."""
    records, name = find_records(project), folder.name
    own, shared = records.folder, records.repository
    lock = exclusive_lock(own / "locks" / f"{name}.lock", purpose=f"Work on the ticket {name}")
    # A test or another program could replace the folder by a link to another project, whose state would be changed.
    with lock as was_killed, keep_from_links(folder):
        reports = own / "reports" / name
        sweep((folder, folder.parent, own, reports, shared, shared / "reports"))
        for leftover in reports.glob("*.json.*.tmp"):  # of the plugin
            leftover.unlink()
        yield was_killed


def lock_checkpoints(common: Path, slug: str, *, fork: str = "") -> contextlib.AbstractContextManager[bool]:
    """Lock a ticket in a fork, or else in all other work trees; raise and yield as ``lock_ticket`` does."""
    return exclusive_lock(locate_checkpoints_lock(common, slug, fork=fork), purpose=f"Work on the ticket {slug}")


def locate_checkpoints_lock(common: Path, slug: str, *, fork: str = "") -> Path:
    """Return the file that ``lock_checkpoints`` locks."""
    return common / f"cdd-exec-{slug}{fork and f'-{fork}'}.lock"


def lock_repository(common: Path, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[bool]:
    """Lock the repository for all its work trees; raise and yield as ``lock_ticket`` does."""
    return exclusive_lock(common / REPOSITORY_LOCK, purpose="Carrying out a plan in this repository", wait_s=wait_s)
