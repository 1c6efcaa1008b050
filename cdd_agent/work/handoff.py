"""The handoff from one phase to the next: one line of JSON in a git note on the phase's commit.

Whoever can push can write such a note. Unknown keys are ignored, because a later version may add some. Everything else
is checked as strictly as cdd writes it. Version 1 kept sentences in place of reasons and findings; it is still read.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from cdd_agent.untrusted import documents
from cdd_agent.work.finding import Finding, read_old_finding, read_old_reason
from cdd_agent.work.state import Phase
from pytest_tdd_agent.report import Clause, Part, Reason

VERSION = 2
"""The version of the format, in the key ``v``."""
_MOST_LEVELS = 5
"""Levels of clauses in a reason or finding."""
LIMIT_BYTES = 1_000_000
"""The size limit of a line, about a thousand times that of an ordinary one."""

PhaseName: TypeAlias = Literal["PLAN", "RED", "GREEN", "REFACTOR"]
"""A phase as in notes and trailers."""
NumberKey: TypeAlias = Literal["Step", "Cycle"]
"""The trailer with the number of a work item: a step of a plan, or the cycle of a feature's test."""
NextPhase: TypeAlias = PhaseName | Literal["COMPLETE"]
"""The phase after a handoff, or the end of the run."""

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Identity: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{1,64}\Z")]
_Commit: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,64}\Z")]
_OwnRef: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^refs/cdd/(?!.*\.\.)[\w./-]+\Z")]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

_MOST_DIGITS = 9
_ORDER: tuple[PhaseName, ...] = get_args(PhaseName)
_NAMES: Mapping[Phase, PhaseName] = dict(zip(get_args(Phase), _ORDER, strict=True))
NUMBER_KEYS: tuple[NumberKey, ...] = get_args(NumberKey)
NUMBER_OPTIONS = ",".join(f"key={key}" for key in NUMBER_KEYS)
"""What ``%(trailers:...)`` of ``git log`` needs to show the number, whichever key it has."""
PHASE_OF: Mapping[str, Phase] = {name: phase for phase, name in _NAMES.items()}
"""The inverse of ``phase_name``."""


class CurrentTest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The subject of the phase."""

    description: str
    """The title of the step."""
    test_file: str
    """Relative to the project. Empty if unknown."""
    impl_file: str
    """Relative to the project. Empty if unknown."""


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a phase failed."""

    type: str
    """The verdict of RED, or the code of the gate's first reason."""
    reasons: tuple[Reason, ...]
    """Those of the gate."""


class GateSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of the gate."""

    phase: Phase
    open: bool
    reasons: tuple[Reason, ...]
    """Why it stayed closed."""
    report_sha256: str | None
    """The digest of the judged report. None if there was none."""
    finding: str = ""
    """As in ``AttemptRecord``; empty in version 1."""
    examples: tuple[Finding, ...] = ()
    """The Examiner's examples, each with its outcome, or why it examined nothing."""
    evidence: tuple[Finding, ...] = ()
    """The findings of the other checks."""


class Handoff(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="v", tag=VERSION, omit_defaults=True
):
    """One line of a handoff note."""

    seq: _Count
    """Grows with the phases of a ticket. Of several lines on one commit, the greatest counts."""
    id: _Identity
    """The same for every attempt to land this phase from the same commit. Also in the commit's trailer."""
    ticket: _Name
    source: str = ""
    """The name of the source of the run, as in ``Origin.workflow``. Empty in older notes, and in reconstructed ones."""
    phase: PhaseName
    next_phase: NextPhase
    cycle_number: _Count
    """The number of the step."""
    current_test: CurrentTest
    completed_tests: tuple[str, ...]
    pending_tests: tuple[str, ...]
    test_result: Literal["PASS", "FAIL"] | None
    """None for PLAN, failed phases and reconstructed handoffs."""
    error: Reason | None
    """Why the phase failed. None if it landed, or was done already."""
    error_details: ErrorDetails | None
    retry_count: _Count
    commit: _Commit
    """The commit when the note was written. A rebase copies notes unchanged."""
    checkpoint: _OwnRef | None
    gate: GateSummary | None
    """None if the handoff was reconstructed: its evidence is lost."""
    base_commit: _Commit | None = None
    """HEAD when the step began, which ``id`` is derived from."""
    text_sha256: str = ""
    """The digest of the step's text when it began. Empty for work that no text describes, and in version 1."""
    answer: str | None = None
    """The agent's answer, if it was judged; PLAN's always is. None in version 1."""
    reconstructed: bool = False
    """Whether the note was lost and rebuilt from the commit's trailers."""

    @property
    def has_landed(self) -> bool:
        """Whether the phase succeeded. Then a commit may have its id as a trailer."""
        return self.error is None


class _HandoffVersion(msgspec.Struct):
    v: int


class _OldErrorDetails(msgspec.Struct):
    type: str
    message: str


class _OldGate(msgspec.Struct):
    reasons: tuple[str, ...]
    examples: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class _OldHandoff(msgspec.Struct, rename="camel"):
    """The fields that version 1 kept in another form."""

    error: str | None
    error_details: _OldErrorDetails | None
    gate: _OldGate | None


def read_number(text: str) -> int:
    """Return the number of a step from a trailer, which anybody can write; 0 if it is none."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def phase_name(phase: Phase) -> PhaseName:
    """Return the phase as in notes and trailers."""
    return _NAMES[phase]


def sequence(phase: PhaseName, *, cycle: int) -> int:
    """Return the ``seq`` of a phase, assuming that each step has all phases."""
    return (cycle - 1) * len(_ORDER) + _ORDER.index(phase) + 1


def next_phase_after(phase: PhaseName) -> NextPhase:
    """Return the phase after ``phase`` in the last step, assuming that it has all phases."""
    after = _ORDER.index(phase) + 1
    return _ORDER[after] if after < len(_ORDER) else "COMPLETE"


def encode(handoff: Handoff) -> str:
    """Return the line without its end. Text that UTF-8 cannot encode is escaped."""
    return documents.encode_json(handoff).decode("utf-8")


def decode_line(text: str) -> Handoff | None:
    """Return the handoff in a line, or None if it is not valid. Never raises."""
    try:
        documents.check_size(text, limit_bytes=LIMIT_BYTES)
        version = msgspec.json.decode(text, type=_HandoffVersion).v
        if version not in (1, VERSION):
            return None
        handoff = msgspec.json.decode(text, type=Handoff) if version == VERSION else _read_old(text)
        # A line equal to its own encoding cannot contain a key twice.
        if encode(handoff) != text:
            documents.check_json(text, limit_bytes=LIMIT_BYTES)
        if _is_deep(handoff):
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return handoff


def _read_old(text: str) -> Handoff:
    """Return the handoff of version 1, whose sentences become the only part of a reason or finding."""
    fields = msgspec.json.decode(text, type=dict[str, object])
    old = msgspec.convert(fields, type=_OldHandoff)
    reasons = tuple(map(read_old_reason, old.gate.reasons)) if old.gate is not None else ()
    if old.gate is not None:
        records = {
            "reasons": reasons,
            "examples": [read_old_finding(line, check="examples") for line in old.gate.examples],
            "evidence": [*map(read_old_finding, old.gate.evidence)],
        }
        fields["gate"] = msgspec.convert(fields["gate"], type=dict[str, object]) | msgspec.to_builtins(records)
    if old.error is not None:
        fields["error"] = msgspec.to_builtins(read_old_reason(old.error))
    if (details := old.error_details) is not None:
        is_same = old.gate is not None and details.message == "\n".join(old.gate.reasons)
        other = Reason(code=details.type, nodeid=None, case="text", parts={"text": details.message})
        kept = ErrorDetails(type=details.type, reasons=reasons if is_same else (other,))
        fields["errorDetails"] = msgspec.to_builtins(kept)
    return msgspec.convert({**fields, "v": VERSION}, type=Handoff)


def _is_deep(handoff: Handoff) -> bool:
    """Return whether a clause is nested so deeply that no cdd wrote it."""
    gate, details = handoff.gate, handoff.error_details
    records: list[Reason | Finding] = [] if handoff.error is None else [handoff.error]
    if details is not None:
        records += details.reasons
    if gate is not None:
        records += (*gate.reasons, *gate.examples, *gate.evidence)
    return any(_has_levels(record.parts, _MOST_LEVELS) for record in records)


def _has_levels(parts: Mapping[str, Part], count: int) -> bool:
    values = (value for part in parts.values() for value in (part if isinstance(part, tuple) else (part,)))
    clauses = [value for value in values if isinstance(value, Clause)]
    return bool(clauses) and (count == 0 or any(_has_levels(clause.parts, count - 1) for clause in clauses))


def is_newer(text: str) -> bool:
    """Return whether a later version of cdd wrote the line."""
    try:
        return msgspec.json.decode(text, type=_HandoffVersion).v > VERSION
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
