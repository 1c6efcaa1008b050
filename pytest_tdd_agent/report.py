"""What the plugin says of one pytest run: the records that the gate and any other tool read. Pure.

``codec`` is their form as JSON; the fields are explained in ``docs/reference/report.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SCHEMA = 1

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
"""What a test can come to; a failed setup or teardown is an error."""

FAILING = ("failed", "error")
"""Those of them that are a failure."""

PHASES = ("red", "green", "refactor")
"""The gates."""


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
    missing_name: str | None = None
    """The module, attribute or name that was not there."""
    path: str | None = None
    line: int | None = None
    frames: tuple[Frame, ...] = ()
    text: str = ""
    """The failure as pytest shows it, capped."""
    output: str = ""
    """What the test printed and logged, as pytest captured it, capped."""
    missing_in_project: bool | None = None
    """Whether the module that ``missing_name`` was looked for in, or would be in, is the project's."""


@dataclass(frozen=True)
class Case:
    """One test and what came of it."""

    nodeid: str
    outcome: str
    file: str
    line: int
    """1-based line of the test function; 0 if pytest does not say."""
    duration_s: float
    phases: dict[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    reruns: int = 0
    failure: Failure | None = None
    """Why it did not pass; of a test that passed only when it was run again, why the first try did not."""
    tries: tuple[str, ...] = ()
    """What each try came to, oldest first, if the plugin tried more than once: a failure's kind, else the outcome."""


@dataclass(frozen=True)
class CollectError:
    """A file that could not be collected."""

    nodeid: str
    failure: Failure


@dataclass(frozen=True)
class Sign:
    """Something in the process that may bend what tests come to."""

    code: str
    """One of ``audit.SIGNS``."""
    nodeid: str | None
    message: str
    """What, and where: the same in every run of the same code."""


@dataclass(frozen=True)
class Reason:
    """One ground for a verdict."""

    code: str
    """One of ``gate.CODES``."""
    nodeid: str | None
    message: str


@dataclass(frozen=True)
class Verdict:
    """A gate's answer."""

    phase: str
    open: bool
    reasons: tuple[Reason, ...] = ()
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
    tests: tuple[Case, ...] = ()
    collect_errors: tuple[CollectError, ...] = ()
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Protected file -> sha256 of its bytes as they were when the run began."""
    collected: int = 0
    deselected: int = 0
    gate: Verdict | None = None
    old_failures: tuple[str, ...] = ()
    """Of the report of a RED gate: what failed in its baseline, so before the change that RED made, as ``failing``."""
    warnings: int = 0
    """How many warnings pytest caught."""
    audited: bool = False
    """Signs of tampering were looked for."""
    signs: tuple[Sign, ...] = ()
    sandbox: str = ""
    """What the tests were shut into, as the program says that ran pytest; empty if it says nothing."""
    framework: str = "pytest"
    """What ran the tests; of another one than pytest, ``python`` and ``pytest`` are empty."""
    structured: bool = True
    """There is a result for each test; otherwise nothing but ``exit_status`` is known."""


def summary(report: SuiteReport) -> dict[str, int]:
    """Return how many tests came to each outcome, were collected, deselected, and passed only when run again."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for case in report.tests:
        counts[case.outcome] += 1
    counts["collected"] = report.collected
    counts["deselected"] = report.deselected
    counts["flaky"] = sum(case.outcome == "passed" and case.reruns > 0 for case in report.tests)
    return counts


def failing(report: SuiteReport) -> tuple[str, ...]:
    """Return the node ids of the tests that failed and of what could not be collected."""
    failed = (case.nodeid for case in report.tests if case.outcome in FAILING)
    return (*failed, *(error.nodeid for error in report.collect_errors))
