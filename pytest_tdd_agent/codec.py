"""Reports as JSON: the document that the plugin writes, and back. Pure but for ``load`` and ``dump``.

A reader refuses a newer schema and a damaged document with an error that names the place; keys it does not know are
ignored.
"""

from __future__ import annotations

import os
from json import JSONEncoder, dumps, loads
from json.encoder import encode_basestring_ascii
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from typing import Any, Callable, Iterable, Mapping, TypeVar

from .report import (
    OUTCOMES,
    PHASES,
    SCHEMA,
    Case,
    CollectError,
    Failure,
    Frame,
    Reason,
    Sign,
    SuiteReport,
    Verdict,
    summary,
)

T = TypeVar("T")

_THREE_PHASES = ("setup", "call", "teardown")
_COMPACT = JSONEncoder(separators=(",", ":"))
_quote = encode_basestring_ascii
_PASSED_LINE = (
    '{"nodeid":%s,"outcome":"passed","file":%s,"line":%d,"duration_s":%.6f,'
    '"phases":{"setup":%.6f,"call":%.6f,"teardown":%.6f},"reruns":0,"failure":null}'
)


_DAMAGED = (ValueError, RecursionError, KeyError, TypeError, AttributeError)
"""What reading a line raises that nobody has written so."""

LIMIT_BYTES = 256 * 1024 * 1024
"""Of a report that is read: more than a million tests."""


class ReportError(ValueError):
    """A report cannot be read; says what is wrong and where."""


def to_json(report: SuiteReport) -> dict[str, object]:
    """Return the document of a report: plain values that ``json.dumps`` takes."""
    return {**_head(report), "summary": summary(report), "tests": [case_to_json(case) for case in report.tests]}


def _head(report: SuiteReport) -> dict[str, object]:
    """The document without what follows from the tests."""
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
        "gate": None if gate is None else _verdict_to_json(gate),
        "collect_errors": [
            {"nodeid": error.nodeid, "failure": failure_to_json(error.failure)} for error in report.collect_errors
        ],
        "old_failures": list(report.old_failures),
        "warnings": report.warnings,
        "audited": report.audited,
        "signs": [{"code": sign.code, "nodeid": sign.nodeid, "message": sign.message} for sign in report.signs],
        "fingerprints": dict(report.fingerprints),
        "sandbox": report.sandbox,
        "framework": report.framework,
        "structured": report.structured,
    }


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
        **({"tries": list(case.tries)} if case.tries else {}),
    }


def case_line(case: Case) -> str:
    """Return the document of one test in one line."""
    return _COMPACT.encode(case_to_json(case))


def passed_line(nodeid: str, *, file: str, line: int, phases: Mapping[str, float]) -> str:
    """Return ``case_line`` of a test that simply passed, in few calls: most tests do."""
    if len(phases) != len(_THREE_PHASES):
        return case_line(Case(nodeid, "passed", file, line, sum(phases.values()), dict(phases)))
    setup, call, teardown = phases["setup"], phases["call"], phases["teardown"]
    return _PASSED_LINE % (_quote(nodeid), _quote(file), line, setup + call + teardown, setup, call, teardown)


def failure_line(failure: Failure) -> str:
    """Return the document of one failure in one line."""
    return _COMPACT.encode(failure_to_json(failure))


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
        "output": failure.output,
        "missing_in_project": failure.missing_in_project,
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

    def get(self, key: str, default: object) -> _Value:
        """Return the value of a key that reports of an older plugin lack."""
        return self.entries().get(key, _Value(default, f"{self.place}.{key}"))

    def items(self) -> list[_Value]:
        """Return the values of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [_Value(value, f"{self.place}[{index}]") for index, value in enumerate(self.value)]

    def maybe(self, read: Callable[[_Value], T]) -> T | None:
        """Return what ``read`` makes of the value; nothing if it is null."""
        return None if self.value is None else read(self)

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
        if not isinstance(self.value, (int, float)) or isinstance(self.value, bool):
            raise self.wrong("a number")
        try:
            number = float(self.value)
        except OverflowError as error:
            raise self.wrong("a number") from error
        if not isfinite(number):
            raise self.wrong("a number")
        return number

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
        gate=document["gate"].maybe(_verdict),
        old_failures=tuple(nodeid.text() for nodeid in document.get("old_failures", []).items()),
        warnings=document.get("warnings", 0).integer(),
        audited=document.get("audited", False).flag(),
        signs=tuple(_sign(sign) for sign in document.get("signs", []).items()),
        sandbox=document.get("sandbox", "").text(),
        framework=document.get("framework", "pytest").text(),
        structured=document.get("structured", True).flag(),
    )
    for name, count in summary(report).items():
        if counts[name].integer() != count:
            raise counts[name].wrong(f"{count}, as the tests say")
    return report


def failure_from_line(line: str) -> Failure:
    """Return the failure that ``failure_line`` wrote; raises ReportError for another line."""
    try:
        return _plain_failure(loads(line))
    except _DAMAGED as error:
        raise ReportError(f"not the line of a failure: {error}") from error


def case_from_line(line: str) -> Case:
    """Return the test that ``case_line`` wrote; unlike ``from_json``, without a look at what its fields hold.

    Raises ReportError for a line that has other fields.
    """
    try:
        fields = loads(line)
        failure = fields.pop("failure")
        tries = tuple(fields.pop("tries", ()))
        return Case(**fields, failure=None if failure is None else _plain_failure(failure), tries=tries)
    except _DAMAGED as error:
        raise ReportError(f"not the line of a test: {error}") from error


def _plain_failure(fields: dict[str, Any]) -> Failure:
    frames = tuple(Frame(**at) for at in fields.pop("frames"))
    return Failure(**fields, frames=frames)


def _case(value: _Value) -> Case:
    return Case(
        nodeid=value["nodeid"].text(),
        outcome=value["outcome"].one_of(OUTCOMES),
        file=value["file"].text(),
        line=value["line"].integer(),
        duration_s=value["duration_s"].number(),
        phases={phase: seconds.number() for phase, seconds in value["phases"].entries().items()},
        reruns=value["reruns"].integer(),
        failure=value["failure"].maybe(_failure),
        tries=tuple(each.text() for each in value.get("tries", []).items()),
    )


def _failure(value: _Value) -> Failure:
    return Failure(
        phase=value["phase"].one_of(("collect", "setup", "call", "teardown")),
        kind=value["kind"].text(),
        origin=value["origin"].one_of(("test", "project", "third_party")),
        exception=value["exception"].text(),
        message=value["message"].text(),
        missing_name=value["missing_name"].maybe(_Value.text),
        path=value["path"].maybe(_Value.text),
        line=value["line"].maybe(_Value.integer),
        frames=tuple(
            Frame(path=frame["path"].text(), line=frame["line"].integer(), function=frame["function"].text())
            for frame in value["frames"].items()
        ),
        text=value["text"].text(),
        output=value.get("output", "").text(),
        missing_in_project=value.get("missing_in_project", None).maybe(_Value.flag),
    )


def _verdict(value: _Value) -> Verdict:
    reasons = tuple(
        Reason(code=reason["code"].text(), nodeid=reason["nodeid"].maybe(_Value.text), message=reason["message"].text())
        for reason in value["reasons"].items()
    )
    return Verdict(phase=value["phase"].one_of(PHASES), open=value["open"].flag(), reasons=reasons)


def _sign(value: _Value) -> Sign:
    return Sign(code=value["code"].text(), nodeid=value["nodeid"].maybe(_Value.text), message=value["message"].text())


def load(path: Path) -> SuiteReport:
    """Return the report in a file; raises ReportError, which names the file and what is wrong with it."""
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise ReportError("not a plain file")
        if status.st_size > LIMIT_BYTES:
            raise ReportError(f"it has {status.st_size} bytes; at most {LIMIT_BYTES} are read")
        return from_json(loads(path.read_bytes()))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {error}") from error


def dump(
    report: SuiteReport,
    path: Path,
    *,
    counts: Mapping[str, int] | None = None,
    lines: Iterable[str] | None = None,
) -> None:
    """Write the report to a file, whole or not at all; a disk that has much to do is not waited for.

    ``counts`` and ``lines`` (as of ``case_line``) stand for tests that are not held in memory; the record's own if
    they are left out.
    """
    head = dumps(_head(report), indent=1)[:-2]
    counts = summary(report) if counts is None else counts
    lines = map(case_line, report.tests) if lines is None else lines
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="ascii") as file:
            file.write(f'{head},\n "summary": {dumps(dict(counts))},\n "tests": [')
            between = "\n"
            for line in lines:
                file.write(between + line)
                between = ",\n"
            file.write("\n ]\n}\n")
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()
