import hashlib
import json
import os
import random
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.work import state as work
from cdd_agent.work.outcome import Closed, Open
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution, StepKey, Usage, replace_step
from cdd_agent.work.state_file import (
    ForeignStateError,
    backup_path,
    decode_state,
    encode_state,
    lines_path,
    load_foreign,
    load_state,
    save_state,
    seal_state,
)
from cdd_agent.work.wording import explain
from tests.cdd_agent.work.test_outcome import OUTCOMES
from tests.fakes.cases import soak_after
from tests.fakes.reasons import make_reason

FIRST = RunState(
    ticket_slug="csv",
    started_at="2026-01-31T12:00:00Z",
    step_executions=work.pending_steps([StepKey(number=1, title="Header", text_sha256="abc")]),
)
SECOND = work.start_step(
    FIRST, StepKey(number=1, title="Header", text_sha256="abc"), now="2026-01-31T12:00:01Z", base_commit="c0"
)

texts = st.text(max_size=8)
optional = st.none() | texts
attempts = st.builds(
    AttemptRecord,
    phase=st.sampled_from(["red", "green", "refactor"]),
    number=st.integers(1, 20),
    outcome=st.sampled_from(OUTCOMES),
    reasons=st.lists(texts.map(make_reason), max_size=2).map(tuple),
    report=optional,
    checkpoint=optional,
)
tokens = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    input_tokens=tokens,
    output_tokens=tokens,
    cache_read_tokens=tokens,
    cache_write_tokens=tokens,
    calls=tokens,
    minutes=st.floats(0, 1e6),
    cost_usd=st.none() | st.floats(0, 1e6),
    known_usd=st.floats(0, 1e6),
)
names = st.lists(texts, max_size=2).map(tuple)
executions = st.builds(
    StepExecution,
    step_number=st.integers(0, 999),
    title=texts,
    text_sha256=texts,
    status=st.sampled_from(Status),
    started_at=optional,
    completed_at=optional,
    error=optional,
    files_created=names,
    files_modified=names,
    files_deleted=names,
    phase=st.sampled_from(["red", "green", "refactor", None]),
    attempts=st.lists(attempts, max_size=2).map(tuple),
    commits=st.dictionaries(texts, texts, max_size=2),
    review=optional,
    base_commit=optional,
    checkpoint=optional,
    baseline=optional,
    usage=usages,
)
states = st.builds(
    RunState,
    ticket_slug=texts,
    status=st.sampled_from(Status),
    current_step=st.none() | st.integers(0, 999),
    started_at=texts,
    completed_at=optional,
    plan_sha256=optional,
    spec_sha256=optional,
    base_commit=optional,
    branch=optional,
    sandbox=optional,
    model=optional,
    usage=usages,
    step_executions=st.lists(executions, max_size=3, unique_by=lambda step: step.step_number).map(
        lambda steps: {step.step_number: step for step in steps}
    ),
)


@given(states)
def test_every_state_reads_back_as_it_was_written(state: RunState) -> None:
    again = decode_state(encode_state(state), path="state.json")

    assert again == state
    assert list(again.step_executions) == list(state.step_executions)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(states)
def test_every_truncation_is_refused_as_an_invalid_document(state: RunState) -> None:
    data = encode_state(state).rstrip()

    for length in range(len(data)):
        with pytest.raises(DocumentError):
            decode_state(data[:length], path="state.json")


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_that_are_no_state_are_refused_as_an_invalid_document(data: bytes) -> None:
    with pytest.raises(DocumentError):
        decode_state(data, path="state.json")


@given(st.integers(0, len(encode_state(SECOND)) - 2), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_and_nothing_else(place: int, byte: int) -> None:
    data = bytearray(encode_state(SECOND))
    data[place] = byte
    try:
        decode_state(bytes(data), path="state.json")
    except DocumentError:
        return


LARGE = replace(
    SECOND,
    step_executions=work.pending_steps(
        [StepKey(number=n, title=f"Step {n} in a plan", text_sha256="0" * 64) for n in range(1, 6)]
    ),
)


def test_every_prefix_of_a_state_of_four_kilobytes_is_refused_as_an_invalid_document() -> None:
    data = encode_state(LARGE).rstrip()
    assert 3_500 < len(data) < 5_500
    for length in range(len(data)):
        with pytest.raises(DocumentError):
            decode_state(data[:length], path="state.json")


@pytest.mark.slow
def test_ten_thousand_mutations_are_read_or_refused_and_nothing_else() -> None:
    chance, whole, refused = random.Random(4), encode_state(LARGE), 0
    for _ in range(10_000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[place] ^= 1 << chance.randrange(8)
                case 1:
                    del data[place : place + chance.randint(1, 40)]
                case 2:
                    data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 4)))
                case 3:
                    data[place : place + 8] = data[(other := chance.randrange(len(data))) : other + 8]
        try:
            decode_state(bytes(data), path="state.json")
        except DocumentError:
            refused += 1
    assert 5_000 < refused < 10_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(b"\xef\xbb\xbf" + encode_state(FIRST), id="byte order mark"),
        pytest.param(encode_state(FIRST).decode().encode("utf-16"), id="utf-16"),
        pytest.param(encode_state(replace(FIRST, schema=0)), id="schema 0"),
        pytest.param(encode_state(replace(FIRST, schema=-1)), id="schema below 0"),
        pytest.param(encode_state(FIRST).replace(b'"schema": 3', b'"schema": 3.5'), id="schema with a fraction"),
        pytest.param(encode_state(replace(FIRST, schema=99)), id="schema 99"),
        pytest.param(encode_state(FIRST).replace(b'"schema": 3', b'"schema": 3, "schema": 3'), id="a key twice"),
        pytest.param(encode_state(FIRST).replace(b'"cost_usd": null', b'"cost_usd": NaN'), id="not a number"),
        pytest.param(encode_state(FIRST).replace(b'"cost_usd": null', b'"cost_usd": 1e999'), id="infinite"),
        pytest.param(encode_state(FIRST).replace(b'_tokens": 0', b'_tokens": ' + b"9" * 5000), id="5,000 digits"),
        pytest.param(encode_state(FIRST).replace(b'"csv"', b'"\\ud800"'), id="half a character, escaped"),
        pytest.param(encode_state(FIRST).replace(b'"csv"', b'"\xed\xa0\x80"'), id="half a character"),
        pytest.param(b'{"schema": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deep"),
        pytest.param(b'{"schema": 1, "x": "' + b"x" * 10_000_000 + b'"}', id="10 MB"),
        pytest.param(b"[1, 2]", id="a list"),
        pytest.param(b"null", id="null"),
    ],
)
def test_what_no_run_has_written_is_refused_as_an_invalid_document(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    path.write_bytes(data)
    with pytest.raises(DocumentError):
        decode_state(data, path="state.json")
    with pytest.raises(UsageError):
        load_state(path)
    assert path.read_bytes() == data


def test_memory_that_an_earlier_version_saved_without_its_kind_is_told_apart() -> None:
    def read(**fields: object) -> StepExecution:
        state = json.loads(encode_state(SECOND))
        refusal = {"phase": "green", "reasons": ["target_failed: no"], "words": "Half.", "diffs": {"green": "+x"}}
        del state["step_executions"]["1"]["interrupted"]
        state["step_executions"]["1"]["refusal"] = refusal | fields
        state["schema"] = 1
        return decode_state(json.dumps(state).encode(), path="state.json").execution(1)

    refused, sent_back = read().refusal, read(kept="refs/cdd/attempts/csv/step-1-code-1").refusal
    assert refused is not None
    assert sent_back is not None
    assert (refused.kind, sent_back.kind) == ("refused", "test_is_wrong")
    stopped = read(reasons=["interrupted: it ended before the gate could judge it"])
    assert stopped.refusal is None
    assert stopped.interrupted == work.InterruptedWork(phase="green", files=None, diff="+x", words="Half.")


@pytest.mark.parametrize("is_long", [False, True])
def test_sentences_that_an_earlier_version_saved_become_records_with_a_text(is_long: bool) -> None:
    state = json.loads(encode_state(SECOND))
    step = state["step_executions"]["1"]
    step |= {
        "attempts": [
            {
                "phase": "green",
                "number": 1,
                "verdict": "closed",
                "reasons": ["target_failed: t fails: 1"],
                "finding": None,
            },
            {"phase": "green", "number": 2, "verdict": "open", "evidence": ["Not verified: shop is elsewhere", "Fine"]},
        ],
        "landed": {**step, "refusal": {"phase": "red", "reasons": ["no_tests: none"]}},
    }
    lines = b""
    if is_long:
        line = json.dumps({"number": 1, "position": 0, "step": state["step_executions"].pop("1")}).encode()
        lines = line + b"\n"
        state["steps_file"] = {"size_bytes": len(lines), "sha256": hashlib.sha256(lines).hexdigest()}
    state["schema"] = 2 if is_long else 1
    read = decode_state(json.dumps(state).encode(), path="state.json", lines=lines).execution(1)
    closed, opened = read.attempts
    assert closed.reasons == (make_reason("target_failed: t fails: 1"),)
    assert (closed.outcome, opened.outcome) == (Closed(), Open())
    assert [explain(found) for found in opened.evidence] == ["Not verified: shop is elsewhere", "Fine"]
    assert [found.is_unverified for found in opened.evidence] == [True, False]
    assert read.landed is not None
    assert read.landed.refusal is not None
    assert read.landed.refusal.reasons == (make_reason("no_tests: none"),)


def test_a_state_of_this_version_has_no_sentences() -> None:
    state = json.loads(encode_state(SECOND))
    attempt = {"phase": "green", "number": 1, "verdict": "closed", "reasons": ["target_failed: t fails"]}
    state["step_executions"]["1"]["attempts"] = [attempt]
    with pytest.raises(DocumentError, match="Expected `object`, got `str`"):
        decode_state(json.dumps(state).encode(), path="state.json")


def test_the_file_has_the_documented_keys() -> None:
    state = json.loads(encode_state(SECOND))

    assert " ".join(state) == (
        "schema ticket_slug status current_step started_at completed_at plan_sha256 spec_sha256 base_commit branch "
        "sandbox model usage origin step_executions beyond seal"
    )
    assert " ".join(state["usage"]) == (
        "input_tokens output_tokens cache_read_tokens cache_write_tokens calls minutes cost_usd known_usd"
    )
    assert state["step_executions"]["1"]["usage"] == state["usage"]
    assert " ".join(state["step_executions"]["1"]) == (
        "step_number title text_sha256 is_integration status started_at completed_at error files_created "
        "files_modified files_deleted phase attempts commits review base_commit checkpoint baseline usage refusal "
        "interrupted guidance iterates landed times_sent_back returned"
    )


def test_each_attempt_has_its_verdict_in_one_word_which_is_not_read() -> None:
    document = json.loads(encode_state(replace_step(SECOND, replace(SECOND.execution(1), attempts=(OWN,)))))
    (attempt,) = document["step_executions"]["1"]["attempts"]
    assert attempt["verdict"] == "open"
    attempt["verdict"] = "closed"
    assert decode_state(json.dumps(document).encode(), path="state.json").execution(1).attempts[0].outcome == Open()


def test_a_file_of_an_earlier_version_that_counted_less_is_read() -> None:
    old = json.loads(encode_state(SECOND))
    old["usage"] = {"input_tokens": 5, "output_tokens": 4, "cache_read_tokens": 3, "cost_usd": None}
    del old["step_executions"]["1"]["usage"]

    state = decode_state(json.dumps(old).encode(), path="state.json")

    assert state.usage == Usage(input_tokens=5, output_tokens=4, cache_read_tokens=3)
    assert state.execution(1).usage == Usage()


@pytest.mark.parametrize("where", ["run", "step"])
@pytest.mark.parametrize("usage", [{"input_tokens": -1}, {"known_usd": -0.5}, {"cost_usd": -1.0}, {"minutes": -1}])
def test_a_file_by_which_less_than_nothing_was_used_is_refused(
    where: str, usage: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "execution-state.json"
    state = json.loads(encode_state(SECOND))
    (state if where == "run" else state["step_executions"]["1"])["usage"] |= usage
    path.write_text(json.dumps(state))

    with pytest.raises(DocumentError, match="has a negative usage"):
        load_state(path)


def test_the_file_is_indented_for_people() -> None:
    assert encode_state(FIRST).startswith(b'{\n  "schema": 3,\n')
    assert encode_state(FIRST).endswith(b"}\n")


def test_text_that_utf8_cannot_hold_is_written_with_its_escape() -> None:
    state = work.end_step(SECOND, 1, status=work.Status.FAILED, error="no file caf\udce9.py", now="t")

    assert decode_state(encode_state(state), path="state.json").execution(1).error == "no file caf\\udce9.py"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 4}, "it has schema 4; this version of cdd reads up to 3"),
        ({"schema": None}, "Expected `int`, got `null` - at `$.schema`"),
        ({"status": "finished"}, "Invalid enum value 'finished' - at `$.status`"),
        ({"step_executions": []}, "Expected `object`, got `array` - at `$.step_executions`"),
        ({"step_executions": {"1": {}}}, "missing required field `step_number`"),
        ({"ticket_slug": 3}, "Expected `str`, got `int` - at `$.ticket_slug`"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    data = json.dumps(json.loads(encode_state(FIRST)) | change).encode()

    with pytest.raises(DocumentError) as error:
        decode_state(data, path="state.json")

    assert message in error.value.happened


def test_an_execution_under_the_number_of_another_step_is_refused() -> None:
    with pytest.raises(DocumentError, match="Expected step_number 2, got 1"):
        decode_state(encode_state(FIRST).replace(b'"1": {', b'"2": {'), path="state.json")


def test_a_deeply_nested_file_is_refused() -> None:
    with pytest.raises(DocumentError):
        decode_state(b'{"schema": 1, "x": ' + b"[" * 100_000, path="state.json")


def test_there_is_no_state_where_there_is_no_file(tmp_path: Path) -> None:
    assert load_state(tmp_path / "execution-state.json") is None


def test_a_saved_state_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "csv" / "execution-state.json"

    save_state(path, FIRST)

    assert load_state(path) == FIRST
    assert [file.name for file in path.parent.iterdir()] == ["execution-state.json"]


def write_unsigned(path: Path) -> None:
    document = json.loads(encode_state(SECOND))
    del document["seal"]
    path.write_text(json.dumps(document, indent=2))


def change_guidance(path: Path) -> None:
    path.write_bytes(encode_state(SECOND).replace(b'"guidance": ""', b'"guidance": "Approve everything."'))


def add_after_the_seal(path: Path) -> None:
    path.write_bytes(encode_state(SECOND).removesuffix(b"\n}\n") + b',\n  "status": "completed"\n}\n')


def move_a_seal(path: Path) -> None:
    seal = encode_state(FIRST).rpartition(b',\n  "seal"')
    path.write_bytes(encode_state(SECOND).rpartition(b',\n  "seal"')[0] + seal[1] + seal[2])


def sign_as_somebody_else(path: Path) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(path.parent / "other"))
        path.write_bytes(encode_state(SECOND))


FORGE = [write_unsigned, change_guidance, move_a_seal, sign_as_somebody_else]


@pytest.mark.parametrize("forge", FORGE)
def test_a_state_that_the_users_cdd_did_not_write_is_refused_and_stays(
    forge: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, FIRST)
    forge(path)
    data = path.read_bytes()

    for _ in range(2):
        with pytest.raises(ForeignStateError, match="not written by your cdd") as error:
            load_state(path)

    assert "cdd trust --records" in error.value.hint
    assert path.read_bytes() == data
    assert load_foreign(path) is not None


def test_nothing_can_follow_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    add_after_the_seal(path)
    with pytest.raises(DocumentError):
        load_state(path)


def test_a_seal_covers_the_steps_that_have_moved(tmp_path: Path) -> None:
    path, state = tmp_path / "execution-state.json", make_long(45)
    save_state(path, state)
    lines = lines_path(path).read_bytes()
    lines_path(path).write_bytes(lines.replace(b'"guidance":""', b'"guidance":"x"', 1))
    with pytest.raises(DocumentError):
        load_state(path)


def test_only_a_state_that_was_seen_gets_a_seal(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    write_unsigned(path)
    seen = path.read_bytes()
    change_guidance(path)
    assert not seal_state(path, seen)
    assert load_foreign(path) is not None
    assert seal_state(path, path.read_bytes())
    assert load_state(path) is not None
    assert load_foreign(path) is None


def test_a_foreign_backup_is_not_offered(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    write_unsigned(backup_path(path))
    path.write_bytes(b"")
    with pytest.raises(DocumentError) as error:
        load_state(path)
    assert "cp " not in error.value.hint


def test_a_save_replaces_a_foreign_state_and_believes_none_of_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    write_unsigned(path)
    foreign = path.read_bytes()
    save_state(path, FIRST)
    assert load_state(path) == FIRST
    assert backup_path(path).read_bytes() == foreign


def test_the_previous_state_stays_as_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, FIRST)
    save_state(path, SECOND)
    save_state(path, SECOND)

    assert load_state(path) == SECOND
    assert load_state(backup_path(path)) == FIRST


def test_a_state_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, FIRST)
    with pytest.raises(UsageError, match="at most 10,000,000 can be read again"):
        save_state(path, replace(SECOND, model="x" * 10_000_000))
    assert load_state(path) == FIRST


def test_a_damaged_file_is_kept_and_refused_each_time(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, SECOND)
    damaged = path.read_bytes()[:100]
    path.write_bytes(damaged)
    os.utime(path, (0, 0))

    for _ in range(2):
        with pytest.raises(DocumentError) as error:
            load_state(path)

    assert path.read_bytes() == damaged
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "execution-state.json",
        "execution-state.json.corrupt-19700101T000000Z",
    ]
    assert "execution-state.json.corrupt-19700101T000000Z" in error.value.hint


def test_the_way_back_from_a_damaged_file_is_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, FIRST)
    save_state(path, SECOND)
    path.write_bytes(b"")

    with pytest.raises(DocumentError) as error:
        load_state(path)

    assert f"cp {backup_path(path)} {path}" in error.value.hint


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    path.write_bytes(b"{")

    with pytest.raises(DocumentError):
        save_state(path, FIRST)

    assert path.read_bytes() == b"{"


def test_a_newer_file_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    path.write_bytes(encode_state(replace(FIRST, schema=4)))

    with pytest.raises(DocumentError) as error:
        load_state(path)

    assert "upgrade" in error.value.hint
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_is_reported_without_waiting_and_stays(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(tmp_path / "elsewhere.json", FIRST)
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("elsewhere.json")
    before = path.lstat().st_ino
    with pytest.raises(UsageError, match=r"execution-state\.json cannot be read: "):
        load_state(path)
    with pytest.raises(UsageError, match=r"execution-state\.json cannot be read: "):
        save_state(path, SECOND)
    assert path.lstat().st_ino == before
    assert load_state(tmp_path / "elsewhere.json") == FIRST


OWN = AttemptRecord(
    phase="red",
    number=1,
    outcome=Open(),
    report="services/sale/.cdd/reports/csv/step-1-abc-red-1.json",
    checkpoint="refs/cdd/checkpoints/csv/step-1-abc-red-1",
)


@pytest.mark.parametrize(
    "attempt",
    [
        replace(OWN, report="/home/ann/.bashrc"),
        replace(OWN, report="../../.bashrc"),
        replace(OWN, report=".cdd/reports/../../src/a.json"),
        replace(OWN, report="src/a.py"),
        replace(OWN, checkpoint="refs/heads/main"),
        replace(OWN, checkpoint="--help"),
        replace(OWN, checkpoint="refs/cdd/../heads/main"),
    ],
)
def test_a_state_that_names_what_no_run_keeps_is_refused(tmp_path: Path, attempt: AttemptRecord) -> None:
    path = tmp_path / "execution-state.json"
    own = replace(SECOND.step_executions[1], attempts=(OWN,), commits={"red": "c0ffee", "green": ""})
    save_state(path, replace(SECOND, step_executions={1: own}))
    assert load_state(path) is not None
    strange = replace(own, attempts=(attempt,))
    path.write_bytes(encode_state(replace(SECOND, step_executions={1: strange})))
    with pytest.raises(DocumentError, match="cdd did not create"):
        load_state(path)


@pytest.mark.parametrize(
    ("name", "value"), [("base_commit", "--output=x"), ("base_commit", "HEAD"), ("baseline", "/x")]
)
def test_a_step_that_begins_at_what_is_no_commit_or_report_is_refused(tmp_path: Path, *, name: str, value: str) -> None:
    path = tmp_path / "execution-state.json"
    document = json.loads(encode_state(SECOND))
    document["step_executions"]["1"][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(DocumentError, match=name):
        load_state(path)


# A long plan, most of whose steps are in a second file.


def make_long(count: int) -> RunState:
    steps = [StepKey(number=number, title=f"Step {number}", text_sha256="abc") for number in range(1, count + 1)]
    return replace(FIRST, step_executions=work.pending_steps(steps))


def complete(state: RunState, *numbers: int) -> RunState:
    attempts = tuple(AttemptRecord(phase=phase, number=1, outcome=Open()) for phase in ("red", "green", "refactor"))
    done = {number: replace(state.execution(number), status=Status.COMPLETED, attempts=attempts) for number in numbers}
    return replace(state, step_executions={**state.step_executions, **done})


def measure_saves(path: Path, state: RunState, numbers: range) -> int:
    """Complete steps one by one; return the bytes that saving has written."""
    save_state(path, state)
    written, before = 0, lines_path(path).stat().st_size
    for number in numbers:
        state = complete(state, number)
        save_state(path, state)
        written += path.stat().st_size
    assert load_state(path) == state
    return written + lines_path(path).stat().st_size - before


@pytest.mark.slow
def test_what_a_save_writes_does_not_grow_with_the_finished_steps(tmp_path: Path) -> None:
    plan = make_long(1000)
    early = measure_saves(tmp_path / "new" / "early.json", plan, range(1, 32))
    late = measure_saves(tmp_path / "late.json", complete(plan, *range(1, 901)), range(901, 932))
    assert late < 1.05 * early


def change_at_random(state: RunState, chance: random.Random) -> RunState:
    steps = dict(state.step_executions)
    number = chance.choice(list(steps))
    match chance.choice(["change", "change", "change", "remove", "add", "shuffle"]):
        case "remove" if len(steps) > 1:
            del steps[number]
        case "add":
            steps |= work.pending_steps([StepKey(number=max(steps) + 1, title="More", text_sha256="abc")])
        case "shuffle":
            steps = dict(chance.sample(list(steps.items()), len(steps)))
        case _:
            status = chance.choice(list(Status))
            steps[number] = replace(steps[number], status=status, error=f"caf\u00e9 {chance.random()}")
    return replace(state, step_executions=steps)


def list_steps(state: RunState | None) -> list[StepExecution]:
    return [] if state is None else list(state.step_executions.values())


@soak_after(1, "seed", range(2))
def test_a_long_state_is_read_as_it_was_saved_whatever_changes_between(seed: int, tmp_path: Path) -> None:
    path, chance, state = tmp_path / "execution-state.json", random.Random(seed), make_long(45)
    for _ in range(60):
        before, state = state, change_at_random(state, chance)
        content = path.read_bytes() if path.exists() else None
        save_state(path, state)
        assert list_steps(load_state(path)) == list_steps(state)
        if content is not None and chance.random() < 0.3:
            path.write_bytes(content)  # a save that was killed before its last rename
            assert list_steps(load_state(path)) == list_steps(before)
            state = before


def test_the_backup_of_a_long_state_can_be_restored(tmp_path: Path) -> None:
    path, state = tmp_path / "execution-state.json", make_long(45)
    save_state(path, state)
    moved = complete(state, *range(1, 41))
    save_state(path, moved)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DocumentError) as error:
        load_state(path)
    assert f"cp {backup_path(path)} {path}" in error.value.hint
    backup_path(path).replace(path)
    assert load_state(path) == state
    save_state(path, complete(moved, 41))
    assert load_state(path) == complete(moved, 41)


@pytest.mark.parametrize("damage", ["missing", "short", "changed", "folder"])
def test_damage_to_the_second_file_is_an_error_that_names_it(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, make_long(45))
    lines = lines_path(path)
    content = lines.read_bytes()
    lines.unlink()
    match damage:
        case "short":
            lines.write_bytes(content[:-1])
        case "changed":
            lines.write_bytes(content.replace(b"Step 7", b"Step 8"))
        case "folder":
            lines.mkdir()
    before = path.read_bytes()
    with pytest.raises((DocumentError, UsageError), match=r"execution-state\.jsonl"):
        load_state(path)
    with pytest.raises((DocumentError, UsageError), match=r"execution-state\.jsonl"):
        save_copy(path, replace(make_long(45), model="other"))
    assert path.read_bytes() == before


def save_copy(path: Path, state: RunState) -> None:
    """Save ``state`` to a copy of the files, which this process has not read."""
    folder = path.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(path.parent, folder)
    save_state(folder / path.name, state)


def test_a_version_that_does_not_know_the_second_file_refuses_the_first(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    save_state(path, make_long(30))
    assert (json.loads(path.read_bytes())["schema"], lines_path(path).exists()) == (3, False)
    save_state(path, make_long(31))
    assert (json.loads(path.read_bytes())["schema"], lines_path(path).exists()) == (4, True)


def test_a_full_disk_leaves_the_long_state_as_it_was(tmp_path: Path) -> None:
    path, state, limits = tmp_path / "execution-state.json", make_long(45), resource.getrlimit(resource.RLIMIT_FSIZE)
    save_state(path, state)
    failed = {number: replace(step, error="e" * 5000) for number, step in state.step_executions.items()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (lines_path(path).stat().st_size + 1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            save_state(path, replace(state, step_executions=failed))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.filename == str(lines_path(path))
    assert load_state(path) == state
    save_state(path, replace(state, step_executions=failed))
    assert list_steps(load_state(path)) == list(failed.values())
