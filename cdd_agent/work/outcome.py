"""The outcome of an attempt at a phase: the decision of the gate and of the checks after it.

    Open       the attempt is committed, and the next phase follows
    Partial    GREEN is committed for a part of the tests, which ends the item
    Covered    RED's tests pass already: the item may end with RED
    Closed     another attempt follows, or the phase ends without a commit

``tdd/phase_run.py`` says what follows each of them. In notes and on the screen, an outcome is a verdict and a word.
"""

from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

import msgspec

PARTIAL = "PARTIAL"
"""The word for a GREEN that is accepted for a part of the tests."""


class RedVerdict(StrEnum):
    """Why RED is open or closed, if its tests do not pass at once."""

    VALID = "VALID"
    """The new tests fail because the behavior is missing."""
    VALID_MISSING_SYMBOL = "VALID_MISSING_SYMBOL"
    """They fail because a name is missing that the work item will add, so they have not checked any code yet."""
    INVALID = "INVALID"
    """They fail for another reason, or do not exist."""
    TAMPER = "TAMPER"
    """The attempt made a change that RED forbids."""
    BROKE_OTHERS = "BROKE_OTHERS"
    """A test that passed before fails now."""
    FLAKY = "FLAKY"
    """Repeated runs of them gave different results."""


class Open(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """The gate is open."""

    red: RedVerdict | None = None
    """VALID or VALID_MISSING_SYMBOL in RED."""


class Closed(msgspec.Struct, frozen=True, tag="closed", omit_defaults=True):
    """The gate or a check refused the attempt, the agent gave up, or a hook refused the commit."""

    red: RedVerdict | None = None
    had_part: bool = False
    """Whether GREEN was accepted for a part of the tests, whose commit was refused."""


class Partial(msgspec.Struct, frozen=True, tag="part"):
    """GREEN is accepted for a part of the tests; the attempt's reasons are about the others."""


class Covered(msgspec.Struct, frozen=True, tag="covered"):
    """All tests of RED pass at once."""

    tests: Literal["unchecked", "kept", "dropped", "existing"] = "unchecked"
    """The new tests: not yet run with altered code; kept, because they notice it; dropped, because they do not.
    Or they existed before, and nothing has changed."""


Outcome: TypeAlias = Open | Closed | Partial | Covered


def is_accepted(outcome: Outcome) -> bool:
    """Return whether the attempt ends its phase with a commit or a note."""
    match outcome:
        case Open() | Partial():
            return True
        case Covered(tests=tests):
            return tests != "unchecked"
        case Closed():
            return False
        case _:
            assert_never(outcome)


def get_word(outcome: Outcome) -> str:
    """Return the word for an outcome in notes and on the screen; empty if there is none beyond open and closed."""
    match outcome:
        case Open(red=red):
            return red or ""
        case Closed(red=red, had_part=had_part):
            return PARTIAL if had_part else red or ""
        case Partial():
            return PARTIAL
        case Covered(tests="dropped"):
            return "DROPPED"
        case Covered(tests="existing"):
            return "COVERED"
        case Covered():
            return "ALREADY_GREEN"
        case _:
            assert_never(outcome)


def read_outcome(word: str, *, is_open: bool) -> Outcome:
    """Return the outcome that a note, or the state of an earlier version, has as a verdict and a word."""
    match word:
        case "PARTIAL":
            return Partial() if is_open else Closed(had_part=True)
        case "DROPPED":
            return Covered("dropped")
        case "COVERED":
            return Covered("existing")
        case "ALREADY_GREEN":
            return Covered("kept" if is_open else "unchecked")
        case _:
            red = RedVerdict(word) if word in RedVerdict.__members__ else None
            return Open(red) if is_open else Closed(red)
