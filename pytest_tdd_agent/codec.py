"""Convert reports to JSON documents and back. Pure, except ``load`` and ``dump``.

Reading raises ``ReportError`` with the position for a newer schema or a damaged document, and ignores unknown keys.
"""

from __future__ import annotations

import os
from itertools import islice
from json import loads
from json.encoder import encode_basestring_ascii
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from typing import Any, Callable, Iterable, Iterator, Mapping, TypeVar

from .report import (
    OUTCOMES,
    PHASES,
    SCHEMA,
    Case,
    Clause,
    CollectError,
    Failure,
    Frame,
    Part,
    Reason,
    Sign,
    StreamProblem,
    SuiteReport,
    Verdict,
    count_outcomes,
)
from .system import bind_builtins, decode_json, encode_json, replace_file
from .wording import explain, explain_detail

bind_builtins(globals())


T = TypeVar("T")

_THREE_PHASES = ("setup", "call", "teardown")
_quote = encode_basestring_ascii
_PASSED_LINE = (
    '{"nodeid":%s,"outcome":"passed","file":%s,"line":%d,"duration_s":%.6f,'
    '"phases":{"setup":%.6f,"call":%.6f,"teardown":%.6f},"reruns":0,"failure":null}'
)


_DAMAGED = (ValueError, RecursionError, KeyError, TypeError, AttributeError)
"""The exceptions that reading a damaged line can raise."""

LIMIT_BYTES = 256 * 1024 * 1024
"""Maximum size of a report that is read: more than a million tests."""


class ReportError(ValueError):
    """A report cannot be read; the message names the problem and its position."""


def to_json(report: SuiteReport) -> dict[str, object]:
    """Return the document of a report as plain values for ``json.dumps``."""
    return {
        **_head_to_json(report),
        "summary": count_outcomes(report),
        "tests": [case_to_json(case) for case in report.tests],
    }


def _head_to_json(report: SuiteReport) -> dict[str, object]:
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
        "gate": None if gate is None else _to_plain(gate),
        "collect_errors": [_to_plain(error) for error in report.collect_errors],
        "old_failures": list(report.old_failures),
        "unstable": list(report.unstable),
        "warnings": report.warnings,
        "audited": report.audited,
        "signs": [_to_plain(sign) for sign in report.signs],
        "internal_error": report.internal_error,
        "fingerprints": dict(report.fingerprints),
        "sandbox": report.sandbox,
        "framework": report.framework,
        "structured": report.structured,
        "supervised": report.supervised,
        "problem": None if report.problem is None else _to_plain(report.problem),
    }


def _to_plain(
    record: Frame | Failure | Case | CollectError | StreamProblem | Reason | Sign | Verdict,
) -> dict[str, object]:
    """Return the fields of a record by name, with lists instead of tuples."""
    # Not dataclasses.asdict: it copies values with copy.deepcopy, which code under test can replace.
    fields: dict[str, object] = {}
    for name, value in vars(record).items():
        if isinstance(value, tuple):
            fields[name] = [_to_plain(each) if hasattr(each, "__dict__") else each for each in value]
        elif isinstance(value, Failure):
            fields[name] = _to_plain(value)
        elif name == "parts":
            fields[name] = _parts_to_plain(value)
        else:
            fields[name] = dict(value) if isinstance(value, dict) else value
    if isinstance(record, (Reason, Sign)):
        fields["message"] = explain(record)
    if isinstance(record, StreamProblem):
        fields["detail"] = explain_detail(record)
    return fields


def _parts_to_plain(parts: Mapping[str, Part]) -> dict[str, object]:
    return {name: _part_to_plain(value) for name, value in parts.items()}


def _part_to_plain(value: Part) -> object:
    if isinstance(value, Clause):
        return {"case": value.case, "parts": _parts_to_plain(value.parts)}
    return [_part_to_plain(each) for each in value] if isinstance(value, tuple) else value


def sign_to_json(sign: Sign) -> dict[str, object]:
    """Return the document of a sign for another process, which explains it itself."""
    return {"code": sign.code, "nodeid": sign.nodeid, "case": sign.case, "parts": _parts_to_plain(sign.parts)}


def case_to_json(case: Case) -> dict[str, object]:
    """Return the document of one test."""
    fields = _to_plain(case)
    for name in ("tries", "reason"):
        if not fields[name]:
            del fields[name]
    return fields


def case_to_line(case: Case) -> str:
    """Return one test as a line of JSON."""
    return encode_json(case_to_json(case))


def format_passed_line(nodeid: str, *, file: str, line: int, phases: Mapping[str, float]) -> str:
    """Return ``case_to_line`` of a test that passed in one try. Most tests do, so it is fast."""
    if len(phases) != len(_THREE_PHASES):
        return case_to_line(Case(nodeid, "passed", file, line, sum(phases.values()), dict(phases)))
    setup, call, teardown = phases["setup"], phases["call"], phases["teardown"]
    return _PASSED_LINE % (_quote(nodeid), _quote(file), line, setup + call + teardown, setup, call, teardown)


def failure_to_line(failure: Failure) -> str:
    """Return one failure as a line of JSON."""
    return encode_json(failure_to_json(failure))


def failure_to_json(failure: Failure) -> dict[str, object]:
    """Return the document of one failure."""
    return _to_plain(failure)


class Value:
    """A value of a document with its position, for error messages."""

    def __init__(self, value: object, position: str) -> None:
        """Hold a value that was read at ``position``."""
        self.value = value
        self.position = position

    def make_error(self, expected: str) -> ReportError:
        """Return an error that names the expected value."""
        shown = repr(self.value)
        return ReportError(f"{self.position}: expected {expected}, found {shown[:80]}")

    def entries(self) -> dict[str, Value]:
        """Return the values of an object by key."""
        if not isinstance(self.value, dict):
            raise self.make_error("an object")
        return {key: Value(value, f"{self.position}.{key}") for key, value in self.value.items()}

    def __getitem__(self, key: str) -> Value:
        """Return the value of a key; raises ReportError without one."""
        if not isinstance(self.value, dict):
            raise self.make_error("an object")
        if key not in self.value:
            raise ReportError(f"{self.position}: the key {key!r} is missing")
        return Value(self.value[key], f"{self.position}.{key}")

    def get(self, key: str, default: object) -> Value:
        """Return the value of a key that reports of older plugins lack."""
        if not isinstance(self.value, dict):
            raise self.make_error("an object")
        return Value(self.value.get(key, default), f"{self.position}.{key}")

    def items(self) -> list[Value]:
        """Return the values of a list."""
        if not isinstance(self.value, list):
            raise self.make_error("a list")
        return [Value(value, f"{self.position}[{index}]") for index, value in enumerate(self.value)]

    def maybe(self, read: Callable[[Value], T]) -> T | None:
        """Return ``read`` of the value, or None for null."""
        return None if self.value is None else read(self)

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.make_error("a string")
        return self.value

    def one_of(self, choices: Iterable[str]) -> str:
        """Return one of some strings."""
        if self.value not in tuple(choices):
            raise self.make_error("one of " + ", ".join(choices))
        return self.text()

    def integer(self) -> int:
        """Return an integer."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.make_error("an integer")
        return self.value

    def number(self) -> float:
        """Return a finite number."""
        if not isinstance(self.value, (int, float)) or isinstance(self.value, bool):
            raise self.make_error("a number")
        try:
            number = float(self.value)
        except OverflowError as error:
            raise self.make_error("a number") from error
        if not isfinite(number):
            raise self.make_error("a number")
        return number

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.make_error("true or false")
        return self.value


def from_json(value: object) -> SuiteReport:
    """Return the report of a document; keys it does not know are ignored.

    Raises ReportError, which names the position, for a damaged document and for one of a newer schema.
    """
    document = Value(value, "$")
    schema = document["schema"].integer()
    if schema > SCHEMA:
        raise ReportError(
            f"$.schema: {schema} is newer than {SCHEMA}, the newest this reader knows; update pytest_tdd_agent"
        )
    if schema < 1:
        raise document["schema"].make_error("a positive integer")
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
        tests=tuple(read_case(case) for case in document["tests"].items()),
        collect_errors=tuple(
            CollectError(nodeid=error["nodeid"].text(), failure=read_failure(error["failure"]))
            for error in document["collect_errors"].items()
        ),
        fingerprints={name: digest.text() for name, digest in document["fingerprints"].entries().items()},
        collected=counts["collected"].integer(),
        deselected=counts["deselected"].integer(),
        gate=document["gate"].maybe(_read_verdict),
        old_failures=tuple(nodeid.text() for nodeid in document.get("old_failures", []).items()),
        unstable=tuple(function.text() for function in document.get("unstable", []).items()),
        warnings=document.get("warnings", 0).integer(),
        audited=document.get("audited", False).flag(),
        signs=tuple(read_sign(sign) for sign in document.get("signs", []).items()),
        internal_error=document.get("internal_error", "").text(),
        sandbox=document.get("sandbox", "").text(),
        framework=document.get("framework", "pytest").text(),
        structured=document.get("structured", True).flag(),
        supervised=document.get("supervised", False).flag(),
        problem=document.get("problem", None).maybe(_read_problem),
    )
    for name, count in count_outcomes(report).items():
        if counts[name].integer() != count:
            raise counts[name].make_error(f"{count}, the number in the tests")
    return report


def failure_from_line(line: str) -> Failure:
    """Return the failure that ``failure_to_line`` wrote; raises ReportError for any other line."""
    try:
        return _failure_from_fields(_read_object(line))
    except _DAMAGED as error:
        raise ReportError(f"not the line of a failure: {error}") from error


def case_from_line(line: str) -> Case:
    """Return the test that ``case_to_line`` wrote, without checking the types of its fields as ``from_json`` does.

    Raises ReportError for a line with other fields.
    """
    try:
        fields = _read_object(line)
        failure = fields.pop("failure")
        tries = tuple(fields.pop("tries", ()))
        return Case(**fields, failure=None if failure is None else _failure_from_fields(failure), tries=tries)
    except _DAMAGED as error:
        raise ReportError(f"not the line of a test: {error}") from error


def _read_object(line: str) -> dict[str, Any]:
    fields = decode_json(line)
    if not isinstance(fields, dict):
        raise TypeError("not an object")
    return fields


def _failure_from_fields(fields: dict[str, Any]) -> Failure:
    frames = tuple(Frame(**at) for at in fields.pop("frames"))
    return Failure(**fields, frames=frames)


def read_case(value: Value) -> Case:
    """Return a test; raises ReportError for anything else."""
    usual = _read_passed(value.value)
    if usual is not None:
        return usual
    return Case(
        nodeid=value["nodeid"].text(),
        outcome=value["outcome"].one_of(OUTCOMES),
        file=value["file"].text(),
        line=value["line"].integer(),
        duration_s=value["duration_s"].number(),
        phases={phase: seconds.number() for phase, seconds in value["phases"].entries().items()},
        reruns=value["reruns"].integer(),
        failure=value["failure"].maybe(read_failure),
        tries=tuple(each.text() for each in value.get("tries", []).items()),
        reason=value.get("reason", "").text(),
    )


def _read_passed(fields: object) -> Case | None:
    """Return a test that passed in one try. Most do, so this is fast; all others are None."""
    if type(fields) is not dict or fields.get("outcome") != "passed" or fields.get("failure", "") is not None:
        return None
    nodeid, file, line, reruns = (fields.get(name) for name in ("nodeid", "file", "line", "reruns"))
    duration_s, phases = fields.get("duration_s"), fields.get("phases")
    if type(nodeid) is not str or type(file) is not str or type(line) is not int or reruns != 0:
        return None
    if type(duration_s) is not float or not isfinite(duration_s) or type(phases) is not dict:
        return None
    if "tries" in fields or "reason" in fields or type(reruns) is not int:
        return None
    if not all(type(seconds) is float and isfinite(seconds) for seconds in phases.values()):
        return None
    return Case(nodeid, "passed", file, line, duration_s, phases)


def read_failure(value: Value) -> Failure:
    """Return a failure; raises ReportError for anything else."""
    return Failure(
        phase=value["phase"].one_of(("collect", "setup", "call", "teardown")),
        kind=value["kind"].text(),
        origin=value["origin"].one_of(("test", "project", "third_party")),
        exception=value["exception"].text(),
        message=value["message"].text(),
        missing_name=value["missing_name"].maybe(Value.text),
        path=value["path"].maybe(Value.text),
        line=value["line"].maybe(Value.integer),
        frames=tuple(
            Frame(path=frame["path"].text(), line=frame["line"].integer(), function=frame["function"].text())
            for frame in value["frames"].items()
        ),
        text=value["text"].text(),
        output=value.get("output", "").text(),
        missing_in_project=value.get("missing_in_project", None).maybe(Value.flag),
    )


def _read_problem(value: Value) -> StreamProblem:
    parts = _read_parts(value.get("parts", {}))
    if not parts and value.get("detail", "").text():  # of a plugin that wrote only the text
        parts = {"text": value["detail"].text()}
    return StreamProblem(code=value["code"].text(), nodeid=value["nodeid"].text(), parts=parts)


def _read_verdict(value: Value) -> Verdict:
    reasons = tuple(
        Reason(code=reason["code"].text(), nodeid=reason["nodeid"].maybe(Value.text), case=case, parts=parts)
        for reason, case, parts in map(_read_words, value["reasons"].items())
    )
    return Verdict(phase=value["phase"].one_of(PHASES), open=value["open"].flag(), reasons=reasons)


def read_sign(value: Value) -> Sign:
    """Return a sign of tampering; raises ReportError for anything else."""
    _, case, parts = _read_words(value)
    return Sign(code=value["code"].text(), nodeid=value["nodeid"].maybe(Value.text), case=case, parts=parts)


def _read_words(value: Value) -> tuple[Value, str, dict[str, Part]]:
    """Return a reason or sign with its case and parts; the ones of older plugins have only a text."""
    parts = value.get("parts", None)
    if parts.value is None:
        return value, "text", {"text": value.get("message", "").text()}
    return value, value.get("case", "").text(), _read_parts(parts)


_MOST_NESTED = 5


def _read_parts(value: Value, *, depth: int = 0) -> dict[str, Part]:
    if depth > _MOST_NESTED:
        raise value.make_error(f"at most {_MOST_NESTED} clauses in each other")
    return {name: _read_part(part, depth=depth) for name, part in value.entries().items()}


def _read_part(value: Value, *, depth: int) -> Part:
    if isinstance(value.value, (str, dict)):
        return _read_clause(value, depth=depth)
    if isinstance(value.value, list):
        return tuple(_read_clause(each, depth=depth) for each in value.items())
    number = value.number()
    return value.value if isinstance(value.value, int) else number


def _read_clause(value: Value, *, depth: int) -> str | Clause:
    if not isinstance(value.value, dict):
        return value.text()
    return Clause(value["case"].text(), _read_parts(value["parts"], depth=depth + 1))


_LINES_A_WRITE = 256
_MOST_KEPT = 4
_kept: dict[str, tuple[tuple[int, ...], SuiteReport]] = {}
"""The last reports that were read or written: path -> what the file was, and the report."""


def _keep(path: str, report: SuiteReport, *, status: os.stat_result) -> None:
    _kept.pop(path, None)
    while len(_kept) >= _MOST_KEPT:
        _kept.pop(next(iter(_kept)), None)
    _kept[path] = describe_file(status), report


def describe_file(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs if a report was written again: each one is a new file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load(path: Path) -> SuiteReport:
    """Return the report in a file; raises ReportError, which names the file and the problem."""
    try:
        status = path.stat()
        described, kept = _kept.get(str(path), ((), None))
        if kept is not None and described == describe_file(status):
            return kept
        if not S_ISREG(status.st_mode):
            raise ReportError("not a plain file")
        if status.st_size > LIMIT_BYTES:
            raise ReportError(f"it has {status.st_size} bytes; the limit is {LIMIT_BYTES}")
        report = from_json(loads(path.read_bytes()))
        _keep(str(path), report, status=status)
        return report
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {error}") from error


def dump(
    report: SuiteReport,
    path: Path | str,
    *,
    counts: Mapping[str, int] | None = None,
    lines: Iterable[str] | None = None,
) -> os.stat_result:
    """Write the report to a file atomically, without waiting for the disk; return the file's status.

    ``counts`` and ``lines`` (from ``case_to_line``) replace the record's tests if those are not in memory.
    """
    counts = count_outcomes(report) if counts is None else counts
    written = map(case_to_line, report.tests) if lines is None else lines
    status = replace_file(str(path), _iterate_parts(report, counts=counts, lines=written))
    if lines is None:
        _keep(str(path), report, status=status)
    return status


def _iterate_parts(report: SuiteReport, *, counts: Mapping[str, int], lines: Iterable[str]) -> Iterator[str]:
    head = encode_json(_head_to_json(report), indent=" ")[:-2]
    yield f'{head},\n "summary": {encode_json(dict(counts))},\n "tests": ['
    separator, left = "\n", iter(lines)
    while True:
        block = ",\n".join(islice(left, _LINES_A_WRITE))
        if not block:
            break
        yield separator + block
        separator = ",\n"
    yield "\n ]\n}\n"
