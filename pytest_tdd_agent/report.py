"""What the plugin says of one pytest run: the records, and their form as JSON.

Written by the plugin, read by the gate and by any other tool; the keys are those of ``docs/reference/report.md``.
Everything is pure but ``load`` and ``dump``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from json import dumps, loads
from math import isfinite
from pathlib import Path
from typing import Iterable

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
    missing_name: str | None = None
    """The module, attribute or name that was not there."""
    path: str | None = None
    line: int | None = None
    frames: tuple[Frame, ...] = ()
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
    phases: dict[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    reruns: int = 0
    failure: Failure | None = None


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
    """Of the report of a RED gate: node ids that failed in its baseline, so before the change that RED made."""


def to_json(report: SuiteReport) -> dict[str, object]:
    """Return the document of a report: plain values that ``json.dumps`` takes."""
    gate = report.gate
    return {
        "schema": SCHEMA,
        "complete": report.complete,
        "exit_status": report.exit_status,
        "nonce": report.nonce,
        "python": report.python,
        "pytest": report.pytest,
        "rootdir": report.rootdir,
        "started_at": report.started_at,
        "duration_s": report.duration_s,
        "summary": summary(report),
        "tests": [case_to_json(case) for case in report.tests],
        "collect_errors": [
            {"nodeid": error.nodeid, "failure": failure_to_json(error.failure)} for error in report.collect_errors
        ],
        "fingerprints": dict(report.fingerprints),
        "gate": None if gate is None else _verdict_to_json(gate),
        "old_failures": list(report.old_failures),
    }


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
    """Return the node ids of the tests that failed."""
    return tuple(case.nodeid for case in report.tests if case.outcome in ("failed", "error"))


def case_to_json(case: Case) -> dict[str, object]:
    """Return the document of one test."""
    return {
        "nodeid": case.nodeid,
        "outcome": case.outcome,
        "file": case.file,
        "line": case.line,
        "duration_s": case.duration_s,
        "phases": dict(case.phases),
        "reruns": case.reruns,
        "failure": None if case.failure is None else failure_to_json(case.failure),
    }


def failure_to_json(failure: Failure) -> dict[str, object]:
    """Return the document of one failure."""
    return {
        "phase": failure.phase,
        "kind": failure.kind,
        "origin": failure.origin,
        "exception": failure.exception,
        "message": failure.message,
        "missing_name": failure.missing_name,
        "path": failure.path,
        "line": failure.line,
        "frames": [{"path": at.path, "line": at.line, "function": at.function} for at in failure.frames],
        "text": failure.text,
    }


def _verdict_to_json(verdict: Verdict) -> dict[str, object]:
    reasons = [{"code": why.code, "nodeid": why.nodeid, "message": why.message} for why in verdict.reasons]
    return {"phase": verdict.phase, "open": verdict.open, "reasons": reasons}


class _Value:
    """A value of a document together with its place, so that an error can name it."""

    def __init__(self, value: object, place: str) -> None:
        self.value = value
        self.place = place

    def wrong(self, expected: str) -> ReportError:
        """Return the error that says what was expected here."""
        shown = repr(self.value)
        return ReportError(f"{self.place}: expected {expected}, found {shown[:80]}")

    def entries(self) -> dict[str, _Value]:
        """Return the values of an object by key."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return {key: _Value(value, f"{self.place}.{key}") for key, value in self.value.items()}

    def __getitem__(self, key: str) -> _Value:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        if key not in self.value:
            raise ReportError(f"{self.place}: the key {key!r} is missing")
        return _Value(self.value[key], f"{self.place}.{key}")

    def items(self) -> list[_Value]:
        """Return the values of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [_Value(value, f"{self.place}[{index}]") for index, value in enumerate(self.value)]

    def is_null(self) -> bool:
        """Say whether nothing is known."""
        return self.value is None

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def one_of(self, choices: Iterable[str]) -> str:
        """Return one of some strings."""
        if self.value not in tuple(choices):
            raise self.wrong("one of " + ", ".join(choices))
        return self.text()

    def integer(self) -> int:
        """Return an integer."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("an integer")
        return self.value

    def number(self) -> float:
        """Return a finite number."""
        if not isinstance(self.value, (int, float)) or isinstance(self.value, bool) or not isfinite(self.value):
            raise self.wrong("a number")
        return float(self.value)

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value


def from_json(value: object) -> SuiteReport:
    """Return the report of a document; keys it does not know are ignored.

    Raises ReportError, which names the place, for a damaged document and for one of a newer schema.
    """
    document = _Value(value, "$")
    schema = document["schema"].integer()
    if schema > SCHEMA:
        raise ReportError(
            f"$.schema: {schema} is newer than {SCHEMA}, the newest this reader knows; update pytest_tdd_agent"
        )
    if schema < 1:
        raise document["schema"].wrong("a positive integer")
    counts = document["summary"]
    gate = document["gate"]
    old_failures = document.entries().get("old_failures", _Value([], "$.old_failures"))  # older reports lack it
    report = SuiteReport(
        complete=document["complete"].flag(),
        exit_status=document["exit_status"].integer(),
        nonce=document["nonce"].text(),
        python=document["python"].text(),
        pytest=document["pytest"].text(),
        rootdir=document["rootdir"].text(),
        started_at=document["started_at"].text(),
        duration_s=document["duration_s"].number(),
        tests=tuple(_case(case) for case in document["tests"].items()),
        collect_errors=tuple(
            CollectError(nodeid=error["nodeid"].text(), failure=_failure(error["failure"]))
            for error in document["collect_errors"].items()
        ),
        fingerprints={name: digest.text() for name, digest in document["fingerprints"].entries().items()},
        collected=counts["collected"].integer(),
        deselected=counts["deselected"].integer(),
        gate=None if gate.is_null() else _verdict(gate),
        old_failures=tuple(nodeid.text() for nodeid in old_failures.items()),
    )
    for name, count in summary(report).items():
        if counts[name].integer() != count:
            raise counts[name].wrong(f"{count}, as the tests say")
    return report


def failure_from_json(value: object) -> Failure:
    """Return the failure of a document; raises ReportError, which names the place."""
    return _failure(_Value(value, "$"))


def _case(value: _Value) -> Case:
    failure = value["failure"]
    return Case(
        nodeid=value["nodeid"].text(),
        outcome=value["outcome"].one_of(OUTCOMES),
        file=value["file"].text(),
        line=value["line"].integer(),
        duration_s=value["duration_s"].number(),
        phases={phase: seconds.number() for phase, seconds in value["phases"].entries().items()},
        reruns=value["reruns"].integer(),
        failure=None if failure.is_null() else _failure(failure),
    )


def _failure(value: _Value) -> Failure:
    missing_name, path, line = value["missing_name"], value["path"], value["line"]
    return Failure(
        phase=value["phase"].one_of(("collect", "setup", "call", "teardown")),
        kind=value["kind"].text(),
        origin=value["origin"].one_of(("test", "project", "third_party")),
        exception=value["exception"].text(),
        message=value["message"].text(),
        missing_name=None if missing_name.is_null() else missing_name.text(),
        path=None if path.is_null() else path.text(),
        line=None if line.is_null() else line.integer(),
        frames=tuple(
            Frame(path=frame["path"].text(), line=frame["line"].integer(), function=frame["function"].text())
            for frame in value["frames"].items()
        ),
        text=value["text"].text(),
    )


def _verdict(value: _Value) -> Verdict:
    reasons: list[Reason] = []
    for reason in value["reasons"].items():
        nodeid = reason["nodeid"]
        reasons.append(
            Reason(
                code=reason["code"].text(),
                nodeid=None if nodeid.is_null() else nodeid.text(),
                message=reason["message"].text(),
            )
        )
    return Verdict(phase=value["phase"].one_of(PHASES), open=value["open"].flag(), reasons=tuple(reasons))


def load(path: Path) -> SuiteReport:
    """Return the report in a file; raises ReportError, which names the file and what is wrong with it."""
    try:
        return from_json(loads(path.read_bytes()))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {error}") from error


def dump(report: SuiteReport, path: Path) -> None:
    """Write the report to a file, whole or not at all."""
    content = dumps(to_json(report), indent=1) + "\n"
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()
