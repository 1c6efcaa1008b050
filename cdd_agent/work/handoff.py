"""What a phase hands over to the next one: the record that is one line of JSON in a note on its commit.

Whoever can push can write such a note. Keys that are not known are passed over, as a later program may add some;
everything else is as strict as what this program writes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec

from cdd_agent.untrusted import documents
from cdd_agent.untrusted.documents import check_size
from cdd_agent.work.state import Phase

VERSION = 1
"""The number of the line's form, its ``v``."""
LIMIT_BYTES = 1_000_000
"""Of one line that is read: some thousand times an ordinary one."""

PhaseName: TypeAlias = Literal["PLAN", "RED", "GREEN", "REFACTOR"]
"""A phase as a note and a commit's trailers spell it."""
NextPhase: TypeAlias = Literal["PLAN", "RED", "GREEN", "REFACTOR", "COMPLETE"]
"""What comes after a phase."""

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Identity: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{1,64}\Z")]
_Commit: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,64}\Z")]
_OwnRef: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^refs/cdd/(?!.*\.\.)[\w./-]+\Z")]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

_ORDER: tuple[PhaseName, ...] = ("PLAN", "RED", "GREEN", "REFACTOR")
_NAMES: Mapping[Phase, PhaseName] = {"plan": "PLAN", "red": "RED", "green": "GREEN", "refactor": "REFACTOR"}
PHASE_OF: Mapping[str, Phase] = {name: phase for phase, name in _NAMES.items()}
"""The way back from ``phase_name``."""
_HALF = re.compile("[\ud800-\udfff]")


class CurrentTest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the phase was about."""

    description: str
    """The title of the step."""
    test_file: str
    """Root-relative; empty if none was named."""
    impl_file: str
    """Root-relative; empty if none was named."""


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a phase failed."""

    type: str
    """What RED came to, or the code of the gate's first reason."""
    message: str
    """All that the gate said, a reason a line."""


class GateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How the gate judged."""

    phase: Phase
    open: bool
    reasons: tuple[str, ...]
    """Why it stayed closed."""
    report_sha256: str | None
    """Digest of the report it judged by; None if there was none."""


class Handoff(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="v", tag=VERSION, omit_defaults=True
):
    """One line of a handoff note."""

    seq: _Count
    """Grows along the phases of a ticket: of the lines on one commit, the one with the greatest counts."""
    id: _Identity
    """The same for every try to land the same phase from the same commit; the commit's trailer has it too."""
    ticket: _Name
    phase: PhaseName
    next_phase: NextPhase
    cycle_number: _Count
    """Of the step."""
    current_test: CurrentTest
    completed_tests: tuple[str, ...]
    pending_tests: tuple[str, ...]
    test_result: Literal["PASS", "FAIL"] | None
    """None where the line was made up from the commit, which does not say."""
    error: str | None
    """Why the phase failed; None of one that landed, or was found to be done already."""
    error_details: ErrorDetails | None
    retry_count: _Count
    commit: _Commit
    """As it was when the note was written: a rebase carries notes over, with what is in them."""
    checkpoint: _OwnRef | None
    gate: GateSummary | None
    """None where the line was made up from the commit: nothing is left of the evidence."""
    reconstructed: bool = False
    """Whether the note was lost and this one made up from the commit's trailers."""

    @property
    def has_landed(self) -> bool:
        """Whether it tells of a phase that did not fail: then a commit may have its id as a trailer."""
        return self.error is None


class _Head(msgspec.Struct):
    """As much as tells which form a line has."""

    v: int


def phase_name(phase: Phase) -> PhaseName:
    """The phase as a note and a commit's trailers spell it."""
    return _NAMES[phase]


def sequence(phase: PhaseName, *, cycle: int) -> int:
    """The ``seq`` of a phase, as if each step had all of them."""
    return (cycle - 1) * len(_ORDER) + _ORDER.index(phase) + 1


def following(phase: PhaseName) -> NextPhase:
    """What comes after ``phase`` in a step that has all of them and is the last."""
    after = _ORDER.index(phase) + 1
    return _ORDER[after] if after < len(_ORDER) else "COMPLETE"


def encode(handoff: Handoff) -> str:
    """The line, without its end. Text that UTF-8 cannot hold is written with its escapes."""
    try:
        return msgspec.json.encode(handoff).decode("utf-8")
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(handoff), separators=(",", ":"), ensure_ascii=False)
        return _HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text)


def decode_line(text: str) -> Handoff | None:
    """The handoff in a line; None if it is none that this program can read. Never raises, whatever the text is."""
    try:
        check_size(text, limit_bytes=LIMIT_BYTES)
        if msgspec.json.decode(text, type=_Head).v != VERSION:
            return None
        handoff = msgspec.json.decode(text, type=Handoff)
        if encode(handoff) != text:  # else it holds no key twice, and needs no second look
            documents.check_json(text, limit_bytes=LIMIT_BYTES)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return handoff


def is_newer(text: str) -> bool:
    """Whether the line is whole, but a later version of the program wrote it."""
    try:
        return msgspec.json.decode(text, type=_Head).v > VERSION
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False


def latest(lines: Iterable[str]) -> Handoff | None:
    """What counts of a note of these lines: the last valid line by ``seq``, one with evidence before a made up one."""
    found = [handoff for line in lines if (handoff := decode_line(line)) is not None]
    return max(reversed(found), key=lambda each: (each.seq, not each.reconstructed), default=None)
