"""Events: the plain values that describe a run. The terminal, the journal and tests all read the same stream.

Code that acts takes ``emit``. ``encode`` writes an event as a line of JSON with its tag,
``{"event": "GateJudged", ...}``, and ``decode`` reads it back equal.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from pytest_tdd_agent.report import Reason

ChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
CHANGE_LETTERS: dict[ChangeKind, str] = {"created": "A", "modified": "M", "deleted": "D"}
"""Kind of change -> its letter on the screen, which is git's."""


class HandoffListed(msgspec.Struct, frozen=True, kw_only=True):
    """The handoff of one phase, as recorded in its note."""

    ticket: str
    cycle: int
    phase: str
    following: str
    """The phase after it, or COMPLETE."""
    result: str
    """Test result, PASS or FAIL; CLOSED if the phase failed; empty if unknown."""
    retries: int
    commit: str
    description: str
    error: str
    reconstructed: bool
    """Whether the note was lost and reconstructed from the commit."""


class RunStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the last run that was started here, or else of the newest note."""

    run: str
    last: HandoffListed | None
    """None: no phase has landed yet."""
    completed: tuple[str, ...]
    """From the test list."""
    pending: tuple[str, ...]
    details: str
    """Of the last error; empty without one."""
    at_work: str
    """The process that is working on it, if any."""
    next: str


class CommitMoved(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that a rollback removes from a branch or adds back."""

    commit: str
    subject: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One path that differs between two trees."""

    path: str
    kind: ChangeKind


class RollbackPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a rollback, or of undoing one."""

    branch: str
    source: str
    target: str
    going: tuple[CommitMoved, ...]
    """Commits to remove, newest first."""
    coming: tuple[CommitMoved, ...]
    """Commits to add back."""
    files: tuple[Change, ...]
    pushed: int
    """Number of removed commits that another repository may have."""
    kept: str
    """The ref that saves everything that is removed."""
    next: str
    """The phase with which ``resume`` continues; empty if the undone run names it itself."""


class NoteDamaged(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with the notes."""

    what: str
    commit: str | None
    """The commit of the note; None for the ref and its lock."""
    action: str
    """The repair, or the command to type if cdd changes nothing."""
    mends: bool


class NoteRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with the notes that was repaired."""

    what: str
    commit: str | None
    action: str


class NotesRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """The repair of the notes ended."""

    backup: str | None
    """The ref of the old notes; None if nothing changed, or there were none."""
    undo: str | None
    """The command that restores the old notes; None if nothing changed."""


class RunStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow started."""

    workflow: str
    ticket: str
    model: str
    sandbox: str
    unit: str = "step"
    """The word for a part of the run: ``step``, ``cycle``, or ``run`` if there is only one."""


class RunFinished(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow ended."""

    workflow: str
    ticket: str
    status: str
    duration_s: float


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A streamed piece of the model's text; not journaled."""

    text: str
    agent: str = ""
    """Who speaks."""


class ThinkingDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A streamed piece of the model's thinking summary; not journaled."""

    text: str


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
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


class AnswerLost(msgspec.Struct, frozen=True, kw_only=True):
    """An incomplete answer was lost, but must be paid for."""

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Something begins that may take long, and that no other event names. The journal leaves it out."""

    what: str


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The model could not answer, and the request will be repeated."""

    why: str
    wait_s: float
    number: int
    limit: int
    """The last try; 0 while a busy service is given time instead."""
    withdrawn: bool = False
    """Whether text of this attempt was shown; it is void, and the next attempt starts over."""


class ToolCalled(msgspec.Struct, frozen=True, kw_only=True):
    """A tool is about to run."""

    call_id: str
    name: str
    subject: str
    """Its path, command or pattern, in one line."""


class ToolReturned(msgspec.Struct, frozen=True, kw_only=True):
    """A tool finished."""

    call_id: str
    name: str
    ok: bool
    summary: str
    """The first line of the result for the model."""


class FileChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the model created a file or changed it."""

    path: str
    diff: str
    """The hunks of the unified diff; empty if it cannot be shown."""


class GuidanceGiven(msgspec.Struct, frozen=True, kw_only=True):
    """The model gets words that the user typed while it worked."""

    text: str


class QuestionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """An agent asked the user a question and waits."""

    agent: str
    question: str
    options: tuple[str, ...]
    """Suggested answers, selectable by number; other answers are allowed."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation was replaced by its summary."""

    agent: str
    before_tokens: int
    """Input of the last request, counted by the model."""
    after_characters: int
    """Length of the summary."""


class SpecProposed(msgspec.Struct, frozen=True, kw_only=True):
    """Socrates is about to write to ``spec.yaml``."""

    ticket: str
    diff: str


class SpecSaved(msgspec.Struct, frozen=True, kw_only=True):
    """Socrates wrote to ``spec.yaml``."""

    ticket: str
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    """Missing parts of the spec; empty if it is complete."""


class PlanDrafted(msgspec.Struct, frozen=True, kw_only=True):
    """The Planner submitted a draft."""

    ticket: str
    number: int
    problems: tuple[str, ...]
    """Empty if the draft was accepted and saved."""


class GraphDrafted(msgspec.Struct, frozen=True, kw_only=True):
    """The Architect submitted a draft of a planning graph."""

    number: int
    nodes: int
    problems: tuple[str, ...]
    """Empty if the draft can be generated."""


class StepStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The Executor started or continued a step."""

    number: int
    total: int
    title: str
    guidance: str = ""
    """The words for the model that the step begins with, such as the reviewer's for an iteration."""


class StepFinished(msgspec.Struct, frozen=True, kw_only=True):
    """A step was completed, failed or skipped."""

    number: int
    status: str
    error: str | None
    brief: str = ""
    """The error without the reasons of the last gate; empty if it has none."""


class StepReviewed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a completed step, for review."""

    ticket: str
    number: int
    title: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    added: int
    """Number of lines."""
    removed: int
    decision: str | None
    """``approved``, or None while undecided."""


class TicketListed(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a ticket."""

    ticket: str
    title: str
    missing: tuple[str, ...]
    """Missing parts of the spec; empty if it is complete."""
    has_plan: bool
    status: str
    """Status of the plan's execution; empty before it starts."""
    steps: int
    """Number of steps; 0 without a run."""
    completed: int
    failed: int
    problem: str
    """Why the ticket's files cannot be read; the other fields are empty then."""

    @property
    def percent(self) -> int:
        """How many of the steps are completed."""
        return self.completed * 100 // self.steps if self.steps else 0


class StepListed(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a step."""

    ticket: str
    number: int
    title: str
    status: str
    phase: str
    """The current or last phase; empty before the first."""
    attempts: tuple[str, ...]
    """Phase, number and verdict of each, such as ``green 1 closed``."""
    commits: tuple[str, ...]
    """Phase and id of each."""
    error: str
    tokens: int
    """Input and output, including cached tokens."""
    cost_usd: float | None
    """None: unknown, or nothing was used."""
    unverified: tuple[str, ...] = ()
    """Lines of the checks that could not verify something after an open gate."""
    files: tuple[str, ...] = ()
    """The changed files; of a step in progress those that the agent has written with its tools so far."""


class AttemptStarted(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a phase started."""

    phase: str
    number: int
    limit: int
    is_again: bool = False
    """Whether the step went back to RED before."""
    step: int = 0
    """The number of its step; 0 in the journals of earlier versions."""


class SuiteStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the project's tests started."""

    purpose: str
    targets: tuple[str, ...]
    framework: str


class SuiteFinished(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the project's tests ended."""

    purpose: str
    framework: str
    passed: int
    failed: int
    errors: int
    skipped: int
    duration_s: float
    problem: str | None
    exit_status: int | None = None
    """Of a command that reports nothing else."""
    reused: str = ""
    """If no test ran, because the results were known: why, and the run that they are from."""


class GateJudged(msgspec.Struct, frozen=True, kw_only=True):
    """A gate judged an attempt."""

    phase: str
    attempt: int
    open: bool
    reasons: tuple[Reason, ...]
    evidence: str
    """The basis of the verdict, in one line."""
    finding: str = ""
    """A code for the result of RED."""
    is_expected: bool = False
    """Whether a closed RED is the way of an iteration that asks for no new behavior."""


class Diagnosed(msgspec.Struct, frozen=True, kw_only=True):
    """It was found out why the tests of a closed attempt fail."""

    step: int
    phase: str
    attempt: int
    cause: str
    """``code``, ``test``, ``environment`` or ``flaky``; ``unknown`` if votes and person could not tell."""
    by: str
    """``rule``, ``examples``, ``votes`` or ``person``."""
    why: str
    votes: tuple[str, ...] = ()
    """The part of the evidence that each vote saw, and its answer."""


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """cdd made or adopted a commit."""

    phase: str
    commit: str
    subject: str


class ClaimChecked(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a handoff was audited."""

    ticket: str
    cycle: int
    phase: str
    """Such as ``RED``; empty if unknown."""
    commit: str
    claim: str
    """One of the claims in ``cdd_agent.audit``."""
    holds: bool | None
    """None: unknown."""
    told: str


class HandoffsAudited(msgspec.Struct, frozen=True, kw_only=True):
    """An audit ended."""

    handoffs: int
    held: int
    """Number of true claims."""
    failed: int
    unknown: int


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """The work tree was restored from a snapshot; the ref ``kept`` saves its earlier content."""

    checkpoint: str
    kept: str
    why: str


class SymbolAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """An engine answered a question about a definition."""

    question: str
    """``definition``, ``references`` or ``rename``."""
    symbol: str
    """The file and the qualified name, such as ``src/stats.py::Series.mean``; for a definition, the name asked for."""
    engine: str
    """``index``, ``ty``, ``Serena`` or ``name scan``."""
    places: int
    """The number of definitions, uses or replacements."""
    duration_ms: float
    """With the engines that were asked before."""
    is_verified: bool
    """Whether the engine knows what a name refers to; the name scan does not."""
    passed_over: tuple[str, ...] = ()
    """The engines that were asked before, and why their answers do not count."""


class EngineDropped(msgspec.Struct, frozen=True, kw_only=True):
    """An engine is not asked again in this run, because it failed three times."""

    engine: str
    why: str
    """The last failure."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the user that is not an error."""

    text: str


class FileDiffed(msgspec.Struct, frozen=True, kw_only=True):
    """One file before and after, also in the answer of ``cdd checkpoint diff``."""

    path: str
    kind: ChangeKind
    added: int | None
    """The number of lines; None for a binary file."""
    removed: int | None
    hunks: str
    """The unified diff from the first ``@@`` on; empty without lines to compare."""
    source: str = ""
    """The path before, of a file that was renamed."""

    @property
    def old_path(self) -> str:
        """The path before the change."""
        return self.source or self.path

    @property
    def name(self) -> str:
        """The letter of the kind of change, and the path, or both paths."""
        return f"R {self.source} -> {self.path}" if self.source else f"{CHANGE_LETTERS[self.kind]} {self.path}"

    @property
    def counts(self) -> str:
        """The numbers of added and removed lines, such as ``+3 -1``."""
        return "binary" if self.added is None else f"+{self.added} -{self.removed}"


class ForkListed(msgspec.Struct, frozen=True, kw_only=True):
    """A fork, in the answers of ``cdd fork start`` and ``list``."""

    name: str
    ticket: str
    step: int
    direction: str
    branch: str
    parent: str
    """The branch that it was made from."""
    base: str
    """The commit before its step."""
    folder: str
    session: str
    """The session in it that continues the conversations; empty without one."""
    is_current: bool
    """Whether ``cdd exec`` works in it."""
    status: str


class ForkCompared(msgspec.Struct, frozen=True, kw_only=True):
    """One side in the answer of ``cdd fork compare``."""

    name: str
    branch: str
    steps: dict[str, str]
    """Number -> status."""
    gates: tuple[str, ...]
    tests: dict[str, int]
    """Outcome -> number of tests in the last report; empty without one."""
    evidence: tuple[str, ...]
    changes: str
    """The size of the changes."""
    tokens: int
    cost: float | None
    files: tuple[str, ...]
    """The changed paths."""


class ForkMergePlanned(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cdd fork merge`` is going to do."""

    name: str
    branch: str
    commits: tuple[str, ...]
    conflicts: tuple[str, ...]
    changes: tuple[Change, ...]


class ForkMerged(msgspec.Struct, frozen=True, kw_only=True):
    """A fork was merged."""

    name: str
    commit: str
    steps: tuple[int, ...]
    """The steps that the ticket takes over from the fork."""


class ForkDropped(msgspec.Struct, frozen=True, kw_only=True):
    """A fork was dropped."""

    name: str
    kept: str
    """The ref of its work."""


_RunEvent: TypeAlias = RunStarted | RunFinished | Notice | QuestionAsked | GuidanceGiven | TicketListed | StepListed
_ModelEvent: TypeAlias = TextDelta | ThinkingDelta | TurnEnded | AnswerLost | Waiting | RetryScheduled | Compacted
_ToolEvent: TypeAlias = ToolCalled | ToolReturned | FileChanged | SymbolAnswered | EngineDropped
_DraftEvent: TypeAlias = SpecProposed | SpecSaved | PlanDrafted | GraphDrafted
_StepEvent: TypeAlias = StepStarted | StepFinished | StepReviewed | AttemptStarted | Committed
_TestEvent: TypeAlias = SuiteStarted | SuiteFinished | GateJudged | Diagnosed
_HistoryEvent: TypeAlias = HandoffListed | RunStanding | RollbackPlanned | RolledBack | ClaimChecked | HandoffsAudited
_NoteEvent: TypeAlias = NoteDamaged | NoteRepaired | NotesRepaired

Event: TypeAlias = (
    _RunEvent | _ModelEvent | _ToolEvent | _DraftEvent | _StepEvent | _TestEvent | _HistoryEvent | _NoteEvent
)
Emit: TypeAlias = Callable[[Event], None]
Answer: TypeAlias = FileDiffed | ForkListed | ForkCompared | ForkMergePlanned | ForkMerged | ForkDropped
"""Lines that commands print with ``--json`` in place of text; no event of a run."""

_BY_TAG: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_BEYOND_ASCII = re.compile(r"[^ -~]")


def encode(event: Event | Answer, *, complete: Callable[[object], object] = lambda fields: fields) -> bytes:
    """Return ``event`` as one line of JSON without a newline; control characters are escaped, so ``cat`` is safe.

    ``complete`` can add keys for people, which ``decode`` ignores.
    """
    fields = {"event": type(event).__name__, **msgspec.to_builtins(event)}
    line = json.dumps(complete(fields), ensure_ascii=False, separators=(",", ":"))
    return _BEYOND_ASCII.sub(_escape, line).encode()


def _escape(found: re.Match[str]) -> str:
    # Bytes of file names that are not UTF-8 become the text \xNN; other lone surrogates, \uNNNN.
    character, code = found[0], ord(found[0])
    if 0xD800 <= code <= 0xDFFF:
        return f"\\\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\\\u{code:04x}"
    return character if character.isprintable() else json.dumps(character)[1:-1]


def decode(line: bytes) -> Event:
    """Return the event that ``encode`` wrote; raises ``ValueError`` for anything else."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("nested too deeply for an event") from error
    kind = _BY_TAG.get(str(fields.pop("event", None)))
    if kind is None:
        raise ValueError("not an event of cdd")
    return msgspec.convert(fields, kind)
