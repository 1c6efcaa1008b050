"""The handoff from one phase to the next: one line of JSON in a git note on the phase's commit.

Whoever can push can write such a note. Unknown keys are ignored, because a later version may add some. Everything else
is checked as strictly as cdd writes it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from cdd_agent.untrusted import documents
from cdd_agent.work.state import Phase

VERSION = 1
"""The version of the format, in the key ``v``."""
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
    message: str
    """The gate's reasons, one per line."""


class GateSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of the gate."""

    phase: Phase
    open: bool
    reasons: tuple[str, ...]
    """Why it stayed closed."""
    report_sha256: str | None
    """The digest of the judged report. None if there was none."""
    examples: tuple[str, ...] = ()
    """The Examiner's examples, each with its outcome, or why it examined nothing."""
    evidence: tuple[str, ...] = ()
    """The findings of the other checks, one per line."""


class Handoff(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="v", tag=VERSION, omit_defaults=True
):
    """One line of a handoff note."""

    seq: _Count
    """Grows with the phases of a ticket. Of several lines on one commit, the greatest counts."""
    id: _Identity
    """The same for every attempt to land this phase from the same commit. Also in the commit's trailer."""
    ticket: _Name
    phase: PhaseName
    next_phase: NextPhase
    cycle_number: _Count
    """The number of the step."""
    current_test: CurrentTest
    completed_tests: tuple[str, ...]
    pending_tests: tuple[str, ...]
    test_result: Literal["PASS", "FAIL"] | None
    """None for PLAN, failed phases and reconstructed handoffs."""
    error: str | None
    """Why the phase failed. None if it landed, or was done already."""
    error_details: ErrorDetails | None
    retry_count: _Count
    commit: _Commit
    """The commit when the note was written. A rebase copies notes unchanged."""
    checkpoint: _OwnRef | None
    gate: GateSummary | None
    """None if the handoff was reconstructed: its evidence is lost."""
    reconstructed: bool = False
    """Whether the note was lost and rebuilt from the commit's trailers."""

    @property
    def has_landed(self) -> bool:
        """Whether the phase succeeded. Then a commit may have its id as a trailer."""
        return self.error is None


class _HandoffVersion(msgspec.Struct):
    v: int


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
        if msgspec.json.decode(text, type=_HandoffVersion).v != VERSION:
            return None
        handoff = msgspec.json.decode(text, type=Handoff)
        # A line equal to its own encoding cannot contain a key twice.
        if encode(handoff) != text:
            documents.check_json(text, limit_bytes=LIMIT_BYTES)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return handoff


def is_newer(text: str) -> bool:
    """Return whether a later version of cdd wrote the line."""
    try:
        return msgspec.json.decode(text, type=_HandoffVersion).v > VERSION
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
