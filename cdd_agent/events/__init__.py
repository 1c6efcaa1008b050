"""What happens, as plain values: one stream that the terminal, the journal and the tests read alike.

Whatever acts takes ``emit``; ``codec`` writes each event as a line of JSON and reads it back equal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cdd_agent.events.past import (
    HandoffListed,
    NoteDamaged,
    NoteRepaired,
    NotesRepaired,
    RollbackPlanned,
    RunStanding,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A workflow began."""

    workflow: str
    ticket: str
    model: str
    sandbox: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A workflow ended."""

    workflow: str
    ticket: str
    status: str
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the model's text as it comes; not journaled."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A piece of the summary of what the model thinks; not journaled."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The model finished one turn."""

    agent: str
    text: str
    stop_reason: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int = 0
    model: str = ""
    cost_usd: float | None = None
    """None: the model's price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLost:
    """An answer was begun, and is paid for, that did not become a turn."""

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None
    """None: the model's price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """The model could not answer and will be asked again."""

    why: str
    wait_s: float
    number: int
    limit: int
    withdrawn: bool = False
    """Whether text was shown since the last turn: it does not count, and the next try begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool is about to run."""

    call_id: str
    name: str
    subject: str
    """What it works on, short enough for one line: a path, a command, a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """A tool has run."""

    call_id: str
    name: str
    ok: bool
    summary: str
    """The first line of what the model is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """An agent asks the developer one question and waits."""

    agent: str
    question: str
    options: tuple[str, ...]
    """Answers to choose from by number; any other answer is as good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A conversation was replaced by a summary of it."""

    agent: str
    before_tokens: int
    """Of the last request, as the model counted them."""
    after_characters: int
    """Of the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProposed:
    """Socrates is about to write to ``spec.yaml``."""

    ticket: str
    diff: str
    """Unified, of the file before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSaved:
    """Socrates wrote to ``spec.yaml``."""

    ticket: str
    changed: tuple[str, ...]
    """Keys whose value is new."""
    missing: tuple[str, ...]
    """What the spec still lacks; empty when it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDrafted:
    """The Planner handed in a draft."""

    ticket: str
    number: int
    problems: tuple[str, ...]
    """Empty for a draft that was accepted and saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """The Executor began or went on with a step."""

    number: int
    total: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step ended: completed, failed or skipped."""

    number: int
    status: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReviewed:
    """A completed step as a review finds it."""

    ticket: str
    number: int
    title: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    """Paths that differ from before the step."""
    added: int
    """Lines."""
    removed: int
    decision: str | None
    """``approved``; None: nothing was decided yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketListed:
    """How far a ticket is."""

    ticket: str
    title: str
    missing: tuple[str, ...]
    """What the spec lacks; empty when it is complete."""
    has_plan: bool
    status: str
    """Of carrying the plan out; empty if that was never begun."""
    steps: int
    """Of the run; 0 if there is none."""
    completed: int
    failed: int
    problem: str
    """Why the ticket's files cannot be read; the rest is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepListed:
    """How far a step of a run is."""

    ticket: str
    number: int
    title: str
    status: str
    phase: str
    """The one in work, or the last one; empty before the first."""
    attempts: tuple[str, ...]
    """Each ``phase number verdict``: ``green 1 closed``."""
    commits: tuple[str, ...]
    """Each ``phase id``."""
    error: str
    """Why it failed or was skipped."""
    tokens: int
    """Read and written, whatever they cost."""
    cost_usd: float | None
    """None: not known, or nothing was used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """One try at a phase began."""

    phase: str
    number: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteStarted:
    """The project's tests began to run."""

    purpose: str
    targets: tuple[str, ...]
    """Empty: the whole suite."""
    framework: str
    """What runs them, ``pytest`` for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFinished:
    """The project's tests have run."""

    purpose: str
    framework: str
    passed: int
    failed: int
    errors: int
    skipped: int
    duration_s: float
    problem: str | None
    """Why the run cannot be trusted, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJudged:
    """A gate gave its verdict on an attempt."""

    phase: str
    attempt: int
    open: bool
    reasons: tuple[str, ...]
    """Each ``code: message``."""
    evidence: str
    """What the verdict rests on, in one line."""
    finding: str = ""
    """What RED came to, in one word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The program made, or adopted, a commit."""

    phase: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChecked:
    """One claim of a handoff was audited."""

    ticket: str
    cycle: int
    phase: str
    """``RED``; empty where nothing says."""
    commit: str
    claim: str
    """One of ``workflows.audit.claim.CLAIMS``."""
    holds: bool | None
    """None: it cannot be told."""
    told: str
    """A sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffsAudited:
    """An audit ended."""

    handoffs: int
    held: int
    """Claims that are true."""
    failed: int
    unknown: int
    """Claims of which nothing can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The work tree went back to a checkpoint; what was there before is kept under ``kept``."""

    checkpoint: str
    kept: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know that is no error."""

    text: str


Event: TypeAlias = (
    RunStarted
    | RunFinished
    | TextDelta
    | ThinkingDelta
    | TurnEnded
    | AnswerLost
    | RetryScheduled
    | ToolCalled
    | ToolReturned
    | QuestionAsked
    | Compacted
    | SpecProposed
    | SpecSaved
    | PlanDrafted
    | StepStarted
    | StepFinished
    | StepReviewed
    | TicketListed
    | StepListed
    | AttemptStarted
    | SuiteStarted
    | SuiteFinished
    | GateJudged
    | Committed
    | ClaimChecked
    | HandoffsAudited
    | RolledBack
    | HandoffListed
    | RunStanding
    | RollbackPlanned
    | NoteDamaged
    | NoteRepaired
    | NotesRepaired
    | Notice
)

Emit: TypeAlias = Callable[[Event], None]
"""Takes an event to whoever listens."""
