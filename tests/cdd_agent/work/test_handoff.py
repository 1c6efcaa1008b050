import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.git.notes import Note, decode_handoffs
from cdd_agent.git.repository import CommitId
from cdd_agent.work.finding import Check, Finding, Outcome
from cdd_agent.work.handoff import (
    CurrentTest,
    ErrorDetails,
    GateSummary,
    Handoff,
    decode_line,
    encode,
    is_newer,
    next_phase_after,
    phase_name,
    sequence,
)
from cdd_agent.work.wording import explain, format_reason
from pytest_tdd_agent.report import Clause, Reason
from tests.fakes.examples import fewer
from tests.fakes.reasons import make_reason

HANDOFF = Handoff(
    seq=2,
    id="0123456789abcdef",
    ticket="csv",
    phase="GREEN",
    next_phase="REFACTOR",
    cycle_number=1,
    current_test=CurrentTest(description="Header", test_file="tests/test_csv.py", impl_file="ledger/csv.py"),
    completed_tests=("tests/test_csv.py::test_header",),
    pending_tests=(),
    test_result="PASS",
    error=None,
    error_details=None,
    retry_count=0,
    commit="c0",
    checkpoint="refs/cdd/checkpoints/csv/3",
    gate=GateSummary(phase="green", open=True, reasons=(), report_sha256=None),
)
LINE = (
    '{"v":2,"seq":2,"id":"0123456789abcdef","ticket":"csv","phase":"GREEN","nextPhase":"REFACTOR","cycleNumber":1,'
    '"currentTest":{"description":"Header","testFile":"tests/test_csv.py","implFile":"ledger/csv.py"},'
    '"completedTests":["tests/test_csv.py::test_header"],"pendingTests":[],"testResult":"PASS","error":null,'
    '"errorDetails":null,"retryCount":0,"commit":"c0","checkpoint":"refs/cdd/checkpoints/csv/3",'
    '"gate":{"phase":"green","open":true,"reasons":[],"report_sha256":null}}'
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
optional = st.none() | texts
names = st.lists(texts, max_size=2).map(tuple)
clauses = st.builds(Clause, case=texts, parts=st.dictionaries(texts, texts | names, max_size=2))
parts = st.dictionaries(texts, texts | names | st.integers(-9, 9) | clauses, max_size=2)
reasons = st.builds(Reason, code=texts, nodeid=optional, case=texts, parts=parts)
findings = st.builds(
    Finding,
    check=st.sampled_from(get_args(Check)),
    outcome=st.sampled_from(get_args(Outcome)),
    case=texts,
    places=names,
    functions=names,
    calls=st.none() | st.integers(0, 9),
    parts=parts,
)
counts = st.integers(0, 10**6)
phases = st.sampled_from(["PLAN", "RED", "GREEN", "REFACTOR"])
handoffs = st.builds(
    Handoff,
    seq=counts,
    id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    ticket=texts.filter(bool),
    phase=phases,
    next_phase=st.sampled_from(["PLAN", "RED", "GREEN", "REFACTOR", "COMPLETE"]),
    cycle_number=counts,
    current_test=st.builds(CurrentTest, description=texts, test_file=texts, impl_file=texts),
    completed_tests=names,
    pending_tests=names,
    test_result=st.sampled_from(["PASS", "FAIL", None]),
    error=st.none() | reasons,
    error_details=st.none() | st.builds(ErrorDetails, type=texts, reasons=st.lists(reasons, max_size=2).map(tuple)),
    retry_count=counts,
    commit=st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    checkpoint=st.none() | st.from_regex(r"refs/cdd/[\w-]{1,9}", fullmatch=True),
    gate=st.none()
    | st.builds(
        GateSummary,
        phase=st.sampled_from(["plan", "red", "green", "refactor"]),
        open=st.booleans(),
        reasons=st.lists(reasons, max_size=2).map(tuple),
        report_sha256=optional,
        examples=st.lists(findings, max_size=2).map(tuple),
        evidence=st.lists(findings, max_size=2).map(tuple),
    ),
    base_commit=st.none() | st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    text_sha256=texts,
    answer=optional,
    reconstructed=st.booleans(),
)


def nested(levels: int) -> dict[str, object]:
    parts: dict[str, object] = {}
    for _ in range(levels):
        parts = {"clause": {"case": "a", "parts": parts}}
    return parts


def changed(**changes: object) -> str:
    """The line with other values; ``...`` takes a key away."""
    return json.dumps({key: value for key, value in {**json.loads(LINE), **changes}.items() if value is not ...})


@fewer()
@given(handoffs)
def test_a_handoff_is_read_as_it_was_written(handoff: Handoff) -> None:
    line = encode(handoff)
    assert "\n" not in line
    assert decode_line(line) == handoff


def test_a_line_has_the_keys_of_the_format_in_their_order() -> None:
    assert encode(HANDOFF) == LINE
    assert decode_line(LINE) == HANDOFF


def test_only_a_note_that_was_made_up_says_so() -> None:
    assert "reconstructed" not in LINE
    assert encode(msgspec.structs.replace(HANDOFF, reconstructed=True)) == LINE[:-1] + ',"reconstructed":true}'


def test_keys_of_a_later_program_are_passed_over() -> None:
    handoff = decode_line(changed(model="m", gate={**json.loads(LINE)["gate"], "by": ["x"]}))
    assert handoff == HANDOFF


@pytest.mark.parametrize("key", [key for key in json.loads(LINE) if key != "reconstructed"])
def test_no_key_may_be_left_out(key: str) -> None:
    assert decode_line(changed(**{key: ...})) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "null",
        "[1]",
        "words",
        "\x00\x01",
        "\udcff",
        "[" * 100_000,
        '{"v":2,' + LINE[1:],
        changed(seq=-1),
        changed(seq="2"),
        changed(seq=True),
        changed(errorDetails="words"),
        changed(phase="green"),
        changed(nextPhase="DONE"),
        changed(testResult="ok"),
        changed(id="a b"),
        changed(ticket=""),
        changed(commit="HEAD"),
        changed(commit="--all"),
        changed(commit="c0\n"),
        changed(checkpoint="refs/heads/main"),
        changed(checkpoint="refs/cdd/../heads/main"),
        changed(gate={"phase": "green", "open": "yes", "reasons": [], "report_sha256": None}),
        changed(gate={"phase": "green", "open": True, "reasons": ["a: sentence"], "report_sha256": None}),
        changed(error="a: sentence"),
        changed(error={"code": "a", "nodeid": None, "parts": {"count": True}}),
        changed(error={"code": "a", "nodeid": None, "parts": nested(6)}),
        changed(error={"code": "a", "nodeid": None, "parts": nested(200)}),
        changed(baseCommit="--all"),
        changed(v=3),
        changed(v=0),
        changed(v="1"),
    ],
)
def test_what_this_program_never_writes_is_no_handoff(line: str) -> None:
    assert decode_line(line) is None


def test_the_sentences_of_version_1_become_records_with_a_text() -> None:
    gate = {"phase": "red", "open": False, "reasons": ["no_tests: none", "a: b: c"], "report_sha256": None}
    gate |= {"evidence": ["Not verified: shop was elsewhere", "Checked"], "examples": ["AC-1 test_more: passes"]}
    details = {"type": "no_tests", "message": "no_tests: none\na: b: c"}
    read = decode_line(changed(v=1, phase="RED", gate=gate, error="no_tests: none", errorDetails=details))
    assert read is not None
    assert read.gate is not None
    assert read.error_details == ErrorDetails(type="no_tests", reasons=read.gate.reasons)
    assert read.error == read.gate.reasons[0] == make_reason("no_tests: none")
    assert [format_reason(reason) for reason in read.gate.reasons] == gate["reasons"]
    assert [*map(explain, read.gate.evidence), *map(explain, read.gate.examples)] == [
        "Not verified: shop was elsewhere",
        "Checked",
        "AC-1 test_more: passes",
    ]
    assert [finding.outcome for finding in (*read.gate.evidence, *read.gate.examples)] == [
        "unverified",
        "noted",
        "confirmed",
    ]
    other = decode_line(changed(v=1, gate=gate, error="no_tests: none", errorDetails={"type": "a", "message": "b"}))
    assert other is not None
    assert other.error_details == ErrorDetails(type="a", reasons=(make_reason("a: b"),))
    assert decode_line(changed(v=1)) == HANDOFF


@pytest.mark.parametrize("gate", [None, {"phase": "green", "open": True, "reasons": [1], "report_sha256": None}, "x"])
def test_version_1_is_read_as_strictly(gate: object) -> None:
    assert (decode_line(changed(v=1, gate=gate)) is None) == (gate is not None)
    assert decode_line(changed(v=1, error={"code": "a", "nodeid": None})) is None
    assert decode_line('{"v":1,' + changed(v=1)[1:]) is None, "the key v occurs twice"


@pytest.mark.parametrize(("check", "is_read"), [("of_tomorrow", True), ("Of tomorrow", False), ("x" * 41, False)])
def test_a_finding_of_a_check_that_a_later_version_has_is_read(check: str, *, is_read: bool) -> None:
    finding = {"check": check, "outcome": "noted", "case": "new", "parts": {"a": 1}}
    gate = {"phase": "red", "open": True, "reasons": [], "report_sha256": None, "evidence": [finding]}
    read = decode_line(changed(gate=gate))
    assert (read is not None) == is_read
    if read is not None and read.gate is not None:
        assert [*map(explain, read.gate.evidence)] == ["of_tomorrow: new (a: 1)"]


def test_a_line_of_a_later_version_is_told_from_a_damaged_one() -> None:
    assert is_newer(changed(v=3, seq="2b"))
    assert not is_newer(LINE)
    assert not is_newer(changed(v="2"))
    assert not is_newer("words")


def test_half_a_character_stays_readable() -> None:
    half = msgspec.structs.replace(HANDOFF, ticket='half "\ud800" \\ one')
    read = decode_line(encode(half))
    assert read is not None
    assert read.ticket == 'half "\\ud800" \\ one'


def test_the_latest_is_the_last_valid_line_of_the_greatest_seq() -> None:
    lines = (
        encode(msgspec.structs.replace(HANDOFF, seq=3, ticket="first")),
        encode(msgspec.structs.replace(HANDOFF, seq=3, ticket="last")),
        encode(msgspec.structs.replace(HANDOFF, seq=3, ticket="made up", reconstructed=True)),
        LINE,
        changed(seq=9, phase="?"),
        "words",
    )
    noted = Note(commit=CommitId("c0"), handoffs=decode_handoffs(lines))
    assert noted.latest.ticket == "last"


def test_the_phases_of_all_steps_are_in_one_sequence() -> None:
    phases = [phase_name(phase) for phase in ("plan", "red", "green", "refactor")]
    assert [(sequence(phase, cycle=2), next_phase_after(phase)) for phase in phases] == [
        (5, "RED"),
        (6, "GREEN"),
        (7, "REFACTOR"),
        (8, "COMPLETE"),
    ]


def test_a_phase_that_failed_has_not_landed() -> None:
    reason = {"code": "wrong_reason", "nodeid": None}
    failed = changed(error=reason, errorDetails={"type": "x", "reasons": [reason]}, testResult=None)
    handoff = decode_line(failed)
    assert handoff is not None
    assert not handoff.has_landed
    assert HANDOFF.has_landed
