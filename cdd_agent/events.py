"""What happens, as plain values: one stream that the terminal, the journal and the tests read alike.

Whatever acts takes ``emit``; ``codec`` writes each event as a line of JSON and reads it back equal.

Events that tell what lies behind a run: its handoffs, the way back to one of them, and notes that are mended.

Events as lines of JSON, each with its tag: ``{"event": "GateJudged", ...}``.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffListed:
    """What one phase handed over, as its note says it."""

    ticket: str
    cycle: int
    phase: str
    following: str
    """The phase after it, or COMPLETE."""
    result: str
    """Of the tests, PASS or FAIL; CLOSED where the phase failed; empty where nothing is said."""
    retries: int
    commit: str
    description: str
    error: str
    reconstructed: bool
    """Whether the note was lost and made up from the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    """Where a run stands: the one that was begun here last, else that of the newest note."""

    run: str
    last: HandoffListed | None
    """None: no phase of it has landed yet."""
    completed: tuple[str, ...]
    """Of the test list."""
    pending: tuple[str, ...]
    details: str
    """Of the last error; empty without one."""
    at_work: str
    """Who carries it on at present; empty: nobody."""
    next: str
    """What to type, or to do, next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMoved:
    """A commit that goes from a branch, or comes back to it."""

    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMoved:
    """A file that changes with it."""

    path: str
    kind: Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlanned:
    """What a rollback, or its undoing, would do."""

    branch: str
    source: str
    target: str
    going: tuple[CommitMoved, ...]
    """Newest first."""
    coming: tuple[CommitMoved, ...]
    files: tuple[FileMoved, ...]
    uncommitted: tuple[str, ...]
    """Work of the run that is in no commit, and changes too."""
    pushed: int
    """How many of the commits that go another repository may have."""
    kept: str
    """The ref that keeps all that goes."""
    next: str
    """The phase that ``resume`` goes on with; empty where the undone run says so itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDamaged:
    """One thing that is wrong with the notes."""

    what: str
    """A sentence."""
    commit: str | None
    """Whose note it is about; None for the ref and its lock."""
    action: str
    """What is done about it, or what to type where it stays as it is."""
    mends: bool
    """Whether anything is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRepaired:
    """One thing that was wrong with the notes, and is mended."""

    what: str
    commit: str | None
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesRepaired:
    """Mending the notes has ended."""

    backup: str | None
    """The ref under which they are kept as they were; None if they were not changed, or there were none."""
    undo: str | None
    """The command that goes back to them; None if they were not changed."""


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


_BYTE = re.compile("[\udc80-\udcff]")

_BY_TAG: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_BEYOND_ASCII = re.compile(r"[^ -~]")


def encode(event: Event) -> bytes:
    """One line of JSON, without its newline; what is no character to a terminal is escaped, so that ``cat`` is safe."""
    line = msgspec.json.encode({"event": type(event).__name__, **_writable(asdict(event))}).decode()
    return _BEYOND_ASCII.sub(_escaped, line).encode()


def _escaped(found: re.Match[str]) -> str:
    """A character as it is if it can be seen, else as JSON escapes it."""
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def _writable(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with what UTF-8 cannot hold written out: bytes of file names as ``\\xNN``, half characters alike."""

    def shown(value: object) -> object:
        if isinstance(value, str):
            shown_bytes = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", value)
            return shown_bytes.encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, dict):
            return _writable(value)
        return tuple(shown(item) for item in value) if isinstance(value, tuple) else value

    return {name: shown(value) for name, value in fields.items()}


def decode(line: bytes) -> Event:
    """The event that ``encode`` wrote; raises ``ValueError`` for anything else."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("nested too deep for an event") from error
    kind = _BY_TAG.get(str(fields.pop("event", None)))
    if kind is None:
        raise ValueError("not an event of this program")
    return msgspec.convert(fields, kind)
