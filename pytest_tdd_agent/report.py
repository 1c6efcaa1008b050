"""What the plugin says of one pytest run: the records, and their form as JSON.

Pure. Written by the plugin, read by the gate and by any other tool; the keys are those of ``docs/reference/report.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

SCHEMA = 1

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
"""What a test can come to; a failed setup or teardown is an error."""

PHASES = ("red", "green", "refactor")
"""The gates."""


class ReportError(ValueError):
    """A report cannot be read; says what is wrong and where."""


@dataclass(frozen=True)
class Frame:
    """One place in the user's own code on the way to a failure."""

    path: str
    """Relative to the root directory of the run."""
    line: int
    function: str


@dataclass(frozen=True)
class Failure:
    """Why a test, or the import of a test file, did not pass."""

    phase: str
    """``collect``, ``setup``, ``call`` or ``teardown``."""
    kind: str
    """One of ``failure.KINDS``."""
    origin: str
    """Where the exception came from: ``test``, ``project`` or ``third_party``."""
    exception: str
    """Name of the exception's class."""
    message: str
    missing_name: Optional[str] = None
    """The module, attribute or name that was not there."""
    path: Optional[str] = None
    line: Optional[int] = None
    frames: Tuple[Frame, ...] = ()
    text: str = ""
    """The failure as pytest shows it, capped."""


@dataclass(frozen=True)
class Case:
    """One test and what came of it."""

    nodeid: str
    outcome: str
    file: str
    line: int
    """1-based line of the test function; 0 if pytest does not say."""
    duration_s: float
    phases: Dict[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    reruns: int = 0
    failure: Optional[Failure] = None


@dataclass(frozen=True)
class CollectError:
    """A file that could not be collected."""

    nodeid: str
    failure: Failure


@dataclass(frozen=True)
class Reason:
    """One ground for a verdict."""

    code: str
    """One of ``gate.CODES``."""
    nodeid: Optional[str]
    message: str


@dataclass(frozen=True)
class Verdict:
    """A gate's answer."""

    phase: str
    open: bool
    reasons: Tuple[Reason, ...] = ()
    """Why it is closed; what an open gate accepted is said by the report itself."""


@dataclass(frozen=True)
class SuiteReport:
    """One pytest run."""

    complete: bool
    """Every collected test was begun and ended and the session was closed."""
    exit_status: int
    """pytest's own."""
    nonce: str
    python: str
    pytest: str
    rootdir: str
    started_at: str
    duration_s: float
    tests: Tuple[Case, ...] = ()
    collect_errors: Tuple[CollectError, ...] = ()
    fingerprints: Dict[str, str] = field(default_factory=dict)
    """Protected file -> sha256 of its bytes as they were when the run began."""
    collected: int = 0
    deselected: int = 0
    gate: Optional[Verdict] = None
