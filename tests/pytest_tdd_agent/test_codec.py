import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tdd_agent import codec
from pytest_tdd_agent.codec import ReportError, dump, from_json, load, to_json
from pytest_tdd_agent.report import (
    OUTCOMES,
    PHASES,
    Case,
    Clause,
    CollectError,
    Failure,
    Frame,
    Reason,
    SuiteReport,
    Verdict,
)
from pytest_tdd_agent.wording import explain

seconds = st.floats(min_value=0, max_value=1e6)
texts = st.text(max_size=20)
maybe_text = st.none() | texts
counts = st.integers(min_value=0, max_value=10**6)
frames = st.builds(Frame, path=texts, line=counts, function=texts)
failures = st.builds(
    Failure,
    phase=st.sampled_from(("collect", "setup", "call", "teardown")),
    kind=texts,
    origin=st.sampled_from(("test", "project", "third_party")),
    exception=texts,
    message=texts,
    missing_name=maybe_text,
    path=maybe_text,
    line=st.none() | counts,
    frames=st.lists(frames, max_size=2).map(tuple),
    text=texts,
)
cases = st.builds(
    Case,
    nodeid=texts,
    outcome=st.sampled_from(OUTCOMES),
    file=texts,
    line=counts,
    duration_s=seconds,
    phases=st.dictionaries(st.sampled_from(("setup", "call", "teardown")), seconds),
    reruns=counts,
    failure=st.none() | failures,
)
parts = st.recursive(
    texts | st.integers(-(10**6), 10**6) | seconds | st.lists(texts, max_size=2).map(tuple),
    lambda part: st.builds(Clause, texts, st.dictionaries(texts, part, max_size=2)).flatmap(
        lambda clause: st.sampled_from((clause, (clause, "a")))
    ),
    max_leaves=3,
)
reasons = st.builds(Reason, texts, maybe_text, case=texts, parts=st.dictionaries(texts, parts, max_size=3))
suite_reports = st.builds(
    SuiteReport,
    complete=st.booleans(),
    exit_status=st.integers(),
    nonce=texts,
    python=texts,
    pytest=texts,
    rootdir=texts,
    started_at=texts,
    duration_s=seconds,
    tests=st.lists(cases, max_size=3).map(tuple),
    collect_errors=st.lists(st.builds(CollectError, nodeid=texts, failure=failures), max_size=2).map(tuple),
    fingerprints=st.dictionaries(texts, texts, max_size=2),
    collected=counts,
    deselected=counts,
    old_failures=st.lists(st.text(), max_size=2).map(tuple),
    gate=st.none()
    | st.builds(
        Verdict, phase=st.sampled_from(PHASES), open=st.booleans(), reasons=st.lists(reasons, max_size=2).map(tuple)
    ),
)

EXAMPLE = SuiteReport(
    complete=True,
    exit_status=1,
    nonce="n",
    python="3.11.7",
    pytest="9.2.0",
    rootdir="/project",
    started_at="2026-01-01T00:00:00Z",
    duration_s=0.5,
    tests=(
        Case(
            nodeid="test_a.py::test_x",
            outcome="failed",
            file="test_a.py",
            line=3,
            duration_s=0.1,
            phases={"setup": 0.0, "call": 0.1},
            failure=Failure("call", "assertion", "test", "AssertionError", "assert 1 == 2"),
        ),
        Case(nodeid="test_a.py::test_y", outcome="passed", file="test_a.py", line=5, duration_s=0.1, reruns=1),
    ),
    collected=2,
)


@given(suite_reports)
def test_a_report_comes_back_from_json_as_it_went(report: SuiteReport) -> None:
    assert from_json(json.loads(json.dumps(to_json(report)))) == report


def test_a_report_comes_back_from_a_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    dump(EXAMPLE, tmp_path / "report.json")
    copied = Path(shutil.copy(tmp_path / "report.json", tmp_path.parent / "copied.json"))
    assert load(copied) == EXAMPLE
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_report_is_read_again_only_if_its_file_is_another(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    dump(EXAMPLE, path)
    assert load(path) is EXAMPLE
    path.write_text(path.read_text().replace('"passed"', '"failed"', 1), encoding="ascii")
    with pytest.raises(ReportError, match="summary"):
        load(path)
    dump(replace(EXAMPLE, nonce="other"), path)
    assert load(path).nonce == "other"


def test_the_summary_counts_each_outcome_and_what_passed_only_when_run_again() -> None:
    assert to_json(EXAMPLE)["summary"] == {
        "passed": 1,
        "failed": 1,
        "error": 0,
        "skipped": 0,
        "xfailed": 0,
        "xpassed": 0,
        "collected": 2,
        "deselected": 0,
        "flaky": 1,
    }


def test_a_newer_schema_is_refused_and_unknown_keys_are_not() -> None:
    document = to_json(EXAMPLE)
    assert from_json({**document, "color": "red"}) == EXAMPLE
    with pytest.raises(ReportError, match=r"\$\.schema: 2 is newer than 1.*update"):
        from_json({**document, "schema": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 0}, r"\$\.schema: expected a positive integer, found 0"),
        ({"complete": "yes"}, r"\$\.complete: expected true or false, found 'yes'"),
        ({"exit_status": True}, r"\$\.exit_status: expected an integer, found True"),
        ({"duration_s": float("nan")}, r"\$\.duration_s: expected a number, found nan"),
        ({"duration_s": 10**400}, r"\$\.duration_s: expected a number, found 1000"),
        ({"tests": {}}, r"\$\.tests: expected a list, found {}"),
        ({"tests": [{}]}, r"\$\.tests\[0\]: the key 'nodeid' is missing"),
        ({"tests": []}, r"\$\.summary\.passed: expected 0, the number in the tests, found 1"),
        ({"fingerprints": {"a": 1}}, r"\$\.fingerprints\.a: expected a string, found 1"),
        ({"gate": {"phase": "blue", "open": True, "reasons": []}}, r"\$\.gate\.phase: expected one of red, green"),
    ],
)
def test_a_damaged_document_is_refused_with_the_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        from_json({**to_json(EXAMPLE), **change})


def test_a_document_that_is_no_object_is_refused() -> None:
    with pytest.raises(ReportError, match=r"\$: expected an object, found \[\]"):
        from_json([])


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"{}"])
def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=r"report\.json: "):
        load(path)


def test_a_pipe_in_place_of_the_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    with pytest.raises(ReportError, match=r"report\.json: not a plain file"):
        load(tmp_path / "report.json")


def test_a_file_that_would_fill_the_memory_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with path.open("wb") as file:
        file.truncate(codec.LIMIT_BYTES + 1)
    with pytest.raises(ReportError, match="the limit is 268435456"):
        load(path)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"failure": 1}',
        '{"failure": {}, "color": 1}',
        "[" * 100_000,
        '{"frames": 1}',
        "9" * 5000,
    ],
)
def test_a_damaged_line_is_refused(line: str) -> None:
    for read in (codec.case_from_line, codec.failure_from_line):
        with pytest.raises(ReportError, match="not the line of a"):
            read(line)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"none\.json: No such file"):
        load(tmp_path / "none.json")


def test_a_failure_alone_comes_back_from_json() -> None:
    failure = replace(Failure("call", "assertion", "test", "AssertionError", "é \ud800"), line=3)
    assert codec.failure_from_line(codec.failure_to_line(failure)) == failure


@given(suite_reports)
def test_a_test_comes_back_from_its_line_as_it_went(report: SuiteReport) -> None:
    assert [codec.case_from_line(codec.case_to_line(case)) for case in report.tests] == list(report.tests)


@given(texts, texts, seconds)
def test_a_test_that_passed_is_written_as_any_other(nodeid: str, file: str, spent_s: float) -> None:
    phases = {"setup": round(spent_s, 6), "call": 0.25, "teardown": 0.0}
    written = codec.format_passed_line(nodeid, file=file, line=7, phases=phases)
    expected = Case(nodeid, "passed", file, 7, round(sum(phases.values()), 6), phases)
    assert codec.case_from_line(written) == expected
    assert list(json.loads(written)) == list(json.loads(codec.case_to_line(expected)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], r"parts: expected an object, found \[\]"),
        ({"a": True}, r"parts\.a: expected a number, found True"),
        ({"a": None}, r"parts\.a: expected a number, found None"),
        ({"a": float("inf")}, r"parts\.a: expected a number, found inf"),
        ({"a": 10**400}, r"parts\.a: expected a number, found 1000"),
        ({"a": [1]}, r"parts\.a\[0\]: expected a string, found 1"),
        ({"a": {"case": "b"}}, r"parts\.a: the key 'parts' is missing"),
        (json.loads('{"a":{"case":"b","parts":' * 9 + "{}" + "}}" * 9), "at most 5 clauses"),
    ],
)
def test_a_reason_with_other_parts_is_refused(parts: object, message: str) -> None:
    reason = {"code": "no_tests", "nodeid": None, "case": "", "parts": parts}
    with pytest.raises(ReportError, match=message):
        from_json({**to_json(EXAMPLE), "gate": {"phase": "red", "open": False, "reasons": [reason]}})


def test_the_words_of_a_report_are_not_read_again() -> None:
    reason = Reason("target_failed", "t", parts={"phase": "call", "failure": Clause("unknown_failure")})
    document = json.loads(json.dumps(to_json(replace(EXAMPLE, gate=Verdict("green", False, (reason,))))))
    (written,) = document["gate"]["reasons"]
    assert written["message"] == "t fails in its call: unknown failure. Make it pass."
    written["message"] = "other words"
    assert from_json(document).gate == Verdict("green", False, (reason,))


def test_an_older_report_that_has_only_words_is_read() -> None:
    old = {"code": "project_hook", "nodeid": None, "message": "a hook"}
    report = from_json(
        {**to_json(EXAMPLE), "signs": [old], "problem": {"code": "damaged", "nodeid": "", "detail": "why"}}
    )
    assert [explain(sign) for sign in report.signs] == ["a hook"]
    assert report.problem is not None
    assert explain(report.problem) == "A line is not a record: why"
