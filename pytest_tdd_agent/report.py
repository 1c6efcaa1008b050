"""The records of one pytest run, which the gate and other tools read. Pure.

``codec`` converts them to JSON; ``docs/reference/report.md`` explains the fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Tuple, TypeVar, Union

from .system import bind_builtins

bind_builtins(globals())


T = TypeVar("T")

SCHEMA = 1

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
"""Outcomes of a test; a failed setup or teardown is an error."""

FAILING = ("failed", "error")
"""Outcomes that count as failures."""

RESCUED = "passed_on_rerun"
"""Code of a sign that does not close gates by itself."""

PHASES = ("red", "green", "refactor")
"""The gates."""


def replace(record: T, **changes: object) -> T:
    """Return a record with other values in some fields, as ``dataclasses.replace`` does."""
    return type(record)(**{**vars(record), **changes})


@dataclass(frozen=True)
class Frame:
    """One call in the user's own code that led to a failure."""

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
    """Whose code raised: ``test``, ``project`` or ``third_party``."""
    exception: str
    """Name of the exception's class."""
    message: str
    missing_name: str | None = None
    """The module, attribute or name that does not exist."""
    path: str | None = None
    line: int | None = None
    frames: tuple[Frame, ...] = ()
    text: str = ""
    """The failure as pytest shows it, truncated."""
    output: str = ""
    """Captured output and logs of the test, truncated."""
    missing_in_project: bool | None = None
    """Whether the module in which ``missing_name`` was expected belongs to the project."""


@dataclass(frozen=True)
class Case:
    """One test and its result."""

    nodeid: str
    outcome: str
    file: str
    line: int
    """1-based line of the test function; 0 if unknown."""
    duration_s: float
    phases: dict[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    reruns: int = 0
    failure: Failure | None = None
    """Why it did not pass; for a test that passed only in a rerun, why the first try failed."""
    tries: tuple[str, ...] = ()
    """The result of each try, oldest first, if the plugin reran the test: failure kind or outcome."""
    reason: str = ""
    """Why a whole file or class skipped itself; ``nodeid`` is then that of the file or class."""


@dataclass(frozen=True)
class CollectError:
    """A file that could not be collected."""

    nodeid: str
    failure: Failure


@dataclass(frozen=True)
class Clause:
    """A part of a record that is a phrase: a case of ``wording``, and the parts of that phrase."""

    case: str
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)


Part = Union[str, int, float, Tuple[Union[str, Clause], ...], Clause]
"""A value that a template names."""


@dataclass(frozen=True)
class Sign:
    """Something in the process that may manipulate test results; equal in every run of the same code."""

    code: str
    """One of ``audit.SIGNS``."""
    nodeid: str | None
    case: str = ""
    """The template that says it, if the code has several."""
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)
    """Name in the template -> value, such as the location."""


@dataclass(frozen=True)
class Reason:
    """One reason for a closed gate. ``wording.explain`` says it in English; nothing reads that again."""

    code: str
    """One of ``gate.CODES``."""
    nodeid: str | None
    """The test that it is about, if it is about one."""
    case: str = ""
    """The template that says it, if the code has several."""
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)
    """Name in the template -> value."""


@dataclass(frozen=True)
class Verdict:
    """A gate's answer."""

    phase: str
    open: bool
    reasons: tuple[Reason, ...] = ()
    """Why the gate is closed; empty if it is open."""


@dataclass(frozen=True)
class StreamProblem:
    """Why the records of a test process cannot be trusted, or are not all."""

    code: str
    """One of ``wording.PROBLEMS``."""
    nodeid: str = ""
    """The test that it is about, if it is about one."""
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)
    """The details: name in the template -> value."""


@dataclass(frozen=True)
class SuiteReport:
    """One pytest run."""

    complete: bool
    """Whether every collected test began and ended and the session was closed."""
    exit_status: int
    """pytest's own exit status."""
    nonce: str
    python: str
    pytest: str
    rootdir: str
    started_at: str
    duration_s: float
    tests: tuple[Case, ...] = ()
    collect_errors: tuple[CollectError, ...] = ()
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Protected file -> sha256 of its bytes at the start of the run."""
    collected: int = 0
    deselected: int = 0
    gate: Verdict | None = None
    old_failures: tuple[str, ...] = ()
    """In a report of RED: the node ids that already failed in its baseline, as returned by ``list_failing``."""
    unstable: tuple[str, ...] = ()
    """Parametrized test functions whose node ids differ between runs of the same product."""
    warnings: int = 0
    """Number of warnings that pytest caught."""
    audited: bool = False
    """Whether the plugin searched for signs of tampering."""
    signs: tuple[Sign, ...] = ()
    internal_error: str = ""
    """The end of pytest's text about an error of its own or of a plugin, which ended the run; otherwise empty."""
    sandbox: str = ""
    """The sandbox of the tests, set by the program that ran pytest; empty if unknown."""
    framework: str = "pytest"
    """The test framework; ``python`` and ``pytest`` are empty for another one than pytest."""
    structured: bool = True
    """Whether there is a result for each test; otherwise only ``exit_status`` is known."""
    supervised: bool = False
    """Whether the plugin judged in a parent of the process that ran the tests."""
    problem: StreamProblem | None = None
    """Why the records that the parent received are not a whole run; with one, ``complete`` is False."""


def summarize_internal_error(report: SuiteReport) -> str:
    """Return the line of ``internal_error`` that names the exception: the first one after the calls, or the last."""
    lines = [line for line in report.internal_error.splitlines() if line.strip()]
    calls = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    after = lines[calls[-1] :] if calls else []
    return next((line for line in after if not line.startswith(" ")), lines[-1] if lines else "").strip()


def count_outcomes(report: SuiteReport) -> dict[str, int]:
    """Return the number of tests by outcome, and the numbers of collected, deselected and flaky tests."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for case in report.tests:
        counts[case.outcome] += 1
    counts["collected"] = report.collected
    counts["deselected"] = report.deselected
    counts["flaky"] = sum(case.outcome == "passed" and case.reruns > 0 for case in report.tests)
    return counts


def list_rescued(report: SuiteReport) -> frozenset[str]:
    """Return the node ids of tests that passed only when they ran again."""
    seen = {sign.nodeid for sign in report.signs if sign.code == RESCUED}
    passed = (case for case in report.tests if case.outcome == "passed")
    return frozenset(case.nodeid for case in passed if case.reruns or case.nodeid in seen)


def list_failing(report: SuiteReport) -> tuple[str, ...]:
    """Return the node ids of failed tests and of files that could not be collected."""
    failed = (case.nodeid for case in report.tests if case.outcome in FAILING)
    return (*failed, *(error.nodeid for error in report.collect_errors))


def add_tests(report: SuiteReport, others: SuiteReport) -> SuiteReport:
    """Return a report of some tests together with the results of all others from an earlier report."""
    return replace(
        report,
        tests=(*others.tests, *report.tests),
        collect_errors=(*others.collect_errors, *report.collect_errors),
        collected=others.collected + report.collected,
        deselected=others.deselected + report.deselected,
        audited=others.audited and report.audited,
        signs=tuple(dict.fromkeys((*others.signs, *report.signs))),
    )
