import json
from hashlib import blake2b
from random import Random

import pytest

from pytest_tdd_agent.codec import case_to_json, failure_to_json, sign_to_json
from pytest_tdd_agent.recording import assembly
from pytest_tdd_agent.recording.assembly import Assembler, Recording
from pytest_tdd_agent.recording.spool import DIGEST_BYTES
from pytest_tdd_agent.report import Case, Clause, Failure, Sign, StreamProblem
from pytest_tdd_agent.wording import PROBLEMS

A, B = "test_a.py::test_a", "test_a.py::test_b"
FAILURE = Failure("call", "assertion", "test", "AssertionError", "assert 1 == 2")

Record = dict[str, object]


def start(nonce: str = "n", **values: object) -> Record:
    head = {"schema": 1, "nonce": nonce, "python": "3.11.7", "pytest": "9.2.0", "rootdir": "/p", "time": "2026-01-01"}
    return {"event": "start", **head, **values}


def settings(**values: object) -> Record:
    return {
        "event": "settings",
        "audited": True,
        "each": False,
        "flaky": 0,
        "fingerprints": {"test_a.py": "0"},
        **values,
    }


def collected(*nodeids: str) -> Record:
    return {"event": "collected", "nodeids": list(nodeids)}


def event(name: object, **values: object) -> Record:
    return {"event": name, **values}


def begin(nodeid: str = A) -> Record:
    return {"event": "begin", "nodeid": nodeid}


def phase(nodeid: str = A, *, when: str = "call", outcome: str = "failed", **values: object) -> Record:
    failure = failure_to_json(FAILURE) if outcome in ("failed", "error") else None
    return {"event": "phase", "nodeid": nodeid, "when": when, "outcome": outcome, "failure": failure, **values}


def ended(nodeid: str = A, outcome: str = "passed", *, reruns: int = 0) -> Record:
    case = Case(nodeid, outcome, "test_a.py", 3, 0.1, {"call": 0.1}, reruns)
    return {"event": "test", "case": case_to_json(case)}


def retry(*tries: str, nodeid: str = A) -> Record:
    return {"event": "retry", "nodeid": nodeid, "tries": list(tries)}


def finish(status: int = 0, **values: object) -> Record:
    rest = {"duration_s": 1.5, "warnings": 2, "deselected": 3, "signs": [], "fault": None}
    return {"event": "finish", "exit_status": status, **rest, **values}


END: Record = {"event": "end"}
HEAD = (start(), settings(), collected(A, B))
PASSED = (begin(), ended(), begin(B), ended(B))


def encode(*records: Record) -> bytes:
    digest, lines = blake2b(digest_size=DIGEST_BYTES), []
    for each in records:
        line = json.dumps(each).encode() + b"\n"
        digest.update(line)
        lines.append(b"%s %s" % (digest.hexdigest().encode(), line))
    return b"".join(lines)


def read(data: bytes, *, size: int = 1 << 16) -> Recording:
    assembler = Assembler("n")
    for at in range(0, len(data), size):
        assembler.feed(data[at : at + size])
    return assembler.finish()


def code(*records: Record) -> str | None:
    recording = read(encode(*records))
    assert recording.problem is None or not (recording.report and recording.report.complete)
    return recording.problem.code if recording.problem else None


def test_the_report_has_everything_that_the_records_say() -> None:
    skipped = Case("test_c.py", "skipped", "test_c.py", 0, 0.0, reason="no such module")
    sign = Sign("project_hook", None, parts={"place": "where"})
    recording = read(
        encode(
            start(),
            settings(),
            event("skipped", case=case_to_json(skipped)),
            {"event": "collect_error", "nodeid": "test_d.py", "failure": failure_to_json(FAILURE)},
            collected(A, B),
            begin(),
            ended(),
            begin(B),
            phase(B),
            ended(B, "failed"),
            finish(1, signs=[sign_to_json(sign)]),
            END,
        ),
        size=7,
    )
    report = recording.report
    assert recording.problem is None
    assert report is not None
    assert report.complete
    assert [(case.nodeid, case.outcome, case.failure) for case in report.tests] == [
        ("test_c.py", "skipped", None),
        (A, "passed", None),
        (B, "failed", FAILURE),
    ]
    assert [error.nodeid for error in report.collect_errors] == ["test_d.py"]
    assert (report.exit_status, report.collected, report.deselected, report.warnings) == (1, 2, 3, 2)
    assert (report.audited, report.signs, report.fingerprints) == (True, (sign,), {"test_a.py": "0"})
    assert (report.nonce, report.python, report.pytest, report.rootdir) == ("n", "3.11.7", "9.2.0", "/p")


HONEST = {
    "a plugin reports only the last try": (begin(), begin(), ended(), begin(B), ended(B)),
    "a plugin reruns within a try": (
        *(begin(), {"event": "rerun", "nodeid": A, "count": 1}, {"event": "rerun", "nodeid": A, "count": 2}),
        *(ended(reruns=2), begin(B), ended(B)),
    ),
    "a plugin runs a failed test again": (
        *(begin(), phase(), ended(A, "failed"), begin(), ended(reruns=1), begin(B), ended(B)),
    ),
    "several subtests fail": (
        begin(),
        phase(subtest=True),
        phase(subtest=True),
        phase(),
        ended(A, "failed"),
        *PASSED[2:],
    ),
    "all subtests are skipped": (begin(), ended(A, "skipped"), *PASSED[2:]),
    "the teardown fails too": (
        begin(),
        phase(),
        phase(when="teardown", outcome="error"),
        ended(A, "error"),
        *PASSED[2:],
    ),
    "a worker dies before it says which test begins": (phase(), ended(A, "failed"), *PASSED[2:]),
    "two workers at once": (begin(), begin(B), ended(B), ended()),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_further_records_are_accepted(name: str) -> None:
    recording = read(encode(*HEAD, *HONEST[name], finish(), END))
    assert recording.problem is None
    assert recording.report is not None
    assert recording.report.complete


def test_tests_that_share_a_node_id_count_with_the_worst() -> None:
    for outcomes in (("failed", "passed"), ("passed", "failed")):
        tries = [each for outcome in outcomes for each in (begin(), phase(outcome=outcome), ended(A, outcome))]
        records = (start(), settings(), collected(A, A), *tries, finish(1), END)
        report = read(encode(*records)).report
        assert report is not None
        assert [case.outcome for case in report.tests] == ["failed"]
        assert report.complete
    report = read(encode(start(), settings(), collected(A, A), *PASSED[:2], finish(), END)).report
    assert report is not None
    assert not report.complete


def test_each_worker_may_run_each_test() -> None:
    head = (start(), settings(each=True), collected(A), collected(A))
    assert code(*head, begin(), begin(), ended(), begin(), ended(), finish(), END) is None


def test_reruns_by_the_plugin_are_tries_of_the_test() -> None:
    again = (start(), settings(flaky=2), collected(A), begin(), phase(), ended(A, "failed"))
    report = read(encode(*again, begin(), retry("error"), begin(), retry("error", "passed"), finish(), END)).report
    assert report is not None
    assert report.complete
    assert [(each.outcome, each.reruns, each.tries) for each in report.tests] == [
        ("passed", 2, ("assertion", "error", "passed"))
    ]
    assert code(*again, retry("error", "passed"), finish(), END) is None  # as an xdist worker reports them
    assert code(*again, retry("passed"), retry("passed", "error")) == "try_after_pass"
    assert code(*again, retry("error"), retry("assertion", "passed")) == "wrong_try"
    assert code(*again, retry("error"), retry("error")) == "wrong_try"
    assert code(*again, retry("error", "error", "passed")) == "wrong_try"
    assert code(*HEAD, begin(), phase(), ended(A, "failed"), retry("passed")) == "wrong_try"
    assert code(start(), settings(flaky=2), collected(A), begin(), ended(), retry("passed")) == "try_after_pass"


FORGED: dict[str, list[tuple[Record, ...]]] = {
    "no_start": [(), (settings(), *HEAD[2:]), (start("other"), *HEAD[1:])],
    "no_finish": [(*HEAD, begin()), (*HEAD, *PASSED)],
    "plugin_failed": [(*HEAD, *PASSED, finish(fault="OSError: no"), END)],
    "damaged": [
        (*HEAD, event("begin")),
        (*HEAD, event("begin", nodeid=1)),
        (*HEAD, begin(), phase(outcome="well")),
        (*HEAD, event(["begin"])),
        (*HEAD, *PASSED, finish(signs=[{"code": 1}])),
        (start(schema=2), *HEAD[1:]),
    ],
    "unexpected": [
        (*HEAD, collected(A)),
        (*HEAD, settings()),
        (*HEAD, start()),
        (*HEAD, event("other")),
        (*HEAD, END),
        (*HEAD, event("skipped", case=case_to_json(Case(A, "skipped", "test_a.py", 0, 0.0)))),
        (*HEAD, event("skipped", case=case_to_json(Case("test_c.py", "passed", "test_c.py", 0, 0.0)))),
    ],
    "unknown_test": [(*HEAD[:2], begin()), (*HEAD, begin("other")), (*HEAD, phase("other")), (*HEAD, ended("other"))],
    "repeated_phase": [(*HEAD, begin(), phase(), phase())],
    "repeated_result": [(*HEAD, begin(), ended(), ended()), (*HEAD, begin(), ended(), phase())],
    "try_after_pass": [(*HEAD, begin(), ended(), begin(), phase(), ended(A, "failed", reruns=1))],
    "wrong_try": [
        (*HEAD, begin(), ended(reruns=1)),
        (*HEAD, begin(), phase(), ended(A, "failed"), begin(), ended()),
        (*HEAD, begin(), phase(), {"event": "rerun", "nodeid": A, "count": 2}),
        (*HEAD, begin(), phase(), {"event": "rerun", "nodeid": A, "count": 1}, ended()),
    ],
    "other_outcome": [
        (*HEAD, begin(), phase(), ended()),
        (*HEAD, begin(), phase(when="teardown", outcome="error"), ended(A, "failed")),
        (*HEAD, begin(), phase(outcome="skipped"), ended(A, "xfailed")),
        (*HEAD, begin(), ended(A, "failed")),
        (*HEAD, begin(), ended(A, "xfailed")),
    ],
    "after_finish": [(*HEAD, *PASSED, finish(), begin()), (*HEAD, begin(B), ended(B), finish(), ended())],
    "after_end": [(*HEAD, *PASSED, finish(), END, END), (*HEAD, *PASSED, finish(), END, begin())],
}


@pytest.mark.parametrize(("name", "records"), [(name, each) for name, streams in FORGED.items() for each in streams])
def test_what_no_honest_run_sends_is_a_problem_with_a_code(name: str, records: tuple[Record, ...]) -> None:
    assert name in PROBLEMS
    assert code(*records) == name


def test_a_record_that_is_added_or_lost_breaks_the_digests() -> None:
    lines = encode(*HEAD, begin(), ended(), begin(B), ended(B), finish(), END).splitlines(keepends=True)
    assert read(b"".join(lines)).problem is None
    for at in range(1, len(lines)):
        for changed in ([*lines[:at], lines[at], *lines[at:]], [*lines[:at], *lines[at + 1 :]]):
            recording = read(b"".join(changed))
            is_all = at == len(lines) - 1 and len(changed) < len(lines)
            assert is_all or recording.problem is not None, changed


@pytest.mark.parametrize("seed", range(40))
def test_no_change_of_the_bytes_is_another_complete_run(seed: int) -> None:
    random, whole = (
        Random(seed),
        encode(*HEAD, begin(), phase(), ended(A, "failed"), begin(B), ended(B), finish(1), END),
    )
    lines = whole.splitlines(keepends=True)
    for _ in range(5):
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        match random.randrange(4):
            case 0:
                changed = [*lines[:at], lines[other], *lines[at:]]
            case 1:
                changed = [*lines[:at], *lines[other:]]
            case 2:
                place = random.randrange(len(lines[at]))
                damaged = bytes([*lines[at][:place], random.randrange(256), *lines[at][place + 1 :]])
                changed = [*lines[:at], damaged, *lines[at + 1 :]]
            case _:
                forged = lines[at].replace(b"failed", b"passed").replace(b"1", b"0")
                changed = [*lines[:at], forged, *lines[at + 1 :]]
        recording = read(b"".join(changed))
        is_complete = recording.report is not None and recording.report.complete
        assert not is_complete or recording.report == read(whole).report, changed


def test_a_record_that_code_under_test_writes_first_collides_with_the_plugin_s_next() -> None:
    forged = encode(*HEAD, begin(), ended())
    plugin = b"".join(encode(*HEAD, begin(), phase(), ended(A, "failed")).splitlines(keepends=True)[4:])
    problem = read(forged + plugin).problem
    assert problem is not None
    assert problem.code == "wrong_digest"


def test_a_stream_that_breaks_off_names_what_was_running() -> None:
    whole = encode(*HEAD, *PASSED, finish(), END)
    for size in range(len(whole)):
        recording = read(whole[:size])
        report = recording.report
        is_done = b'"finish"' in whole[:size]
        assert is_done or not (report and report.complete)
    recording = read(encode(*HEAD, begin(), ended(), begin(B))[:-1] + b"\n00 {")
    assert recording.running == (B,)
    assert recording.problem is not None
    assert (recording.problem.code, recording.problem.nodeid) == ("no_finish", B)
    assert recording.report is not None
    assert [case.nodeid for case in recording.report.tests] == [A]


DUMP = f"""Timeout (0:00:06)!
Thread 0x00007f0000000002 (most recent call first):
  File "/p/worker.py", line 9 in work
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f0000000001 (most recent call first):
  File "{json.decoder.__file__}", line 7 in decode
  File "/p/src/a.py", line 3 in <listcomp>
  File "/p/test_a.py", line 8 in test_a
  File "/p/.venv/lib/python3.11/site-packages/_pytest/python.py", line 159 in pytest_pyfunc_call
""".encode()


def test_a_test_whose_process_was_ended_has_failed_where_the_main_thread_was() -> None:
    head = (start(), settings(test_timeout_s=3), collected(A, B))
    recording = read(encode(*head, begin(B), ended(B), begin()) + DUMP)
    report = recording.report
    assert report is not None
    assert (report.complete, recording.running, recording.problem) == (False, (A,), StreamProblem("endless_test", A))
    passed, endless = report.tests
    assert (passed.nodeid, endless.nodeid, endless.outcome) == (B, A, "failed")
    why = endless.failure
    assert why is not None
    assert (why.kind, why.origin, why.path, why.line) == ("timeout", "project", "src/a.py", 3)
    assert why.message == "the test did not end within 3 s"
    assert [(frame.path, frame.function) for frame in why.frames] == [
        ("test_a.py", "test_a"),
        ("src/a.py", "<listcomp>"),
    ]


def test_a_dump_counts_only_in_a_running_test_with_a_limit() -> None:
    head = (start(), settings(test_timeout_s=3), collected(A, B))
    for before in ((*HEAD, begin()), (*head, begin(), ended())):
        problem = read(encode(*before) + DUMP).problem
        assert problem is not None
        assert problem.code != "endless_test"
    after = read(encode(*head, begin()) + DUMP + encode(*head, begin(), ended(), begin(B), ended(B), finish(), END))
    assert after.problem == StreamProblem("endless_test", A)


def test_a_process_that_a_hook_ends_after_the_session_is_complete() -> None:
    recording = read(encode(*HEAD, *PASSED, finish()))
    assert recording.problem is None
    assert recording.report is not None
    assert recording.report.complete


def test_a_later_finish_takes_nothing_back() -> None:
    sign = Sign("patched_runner", None, parts={"now": Clause("value_changed")})
    stopped: Record = {"event": "internal_error", "text": "INTERNALERROR> no"}
    recording = read(encode(*HEAD, *PASSED, finish(2, signs=[sign_to_json(sign)]), stopped, finish(0), END))
    report = recording.report
    assert report is not None
    assert (report.complete, report.signs, report.exit_status) == (False, (sign,), 0)
    assert report.internal_error == "INTERNALERROR> no"


def test_what_python_prints_before_the_first_record_is_passed_over() -> None:
    stream = encode(*HEAD, *PASSED, finish(), END)
    for noise in (b"hello\n", b"\xff[\n" * 9, b"0 {}\n0 [\n1 2\n", b'0 {"event":"start","nonce":"other"}\n'):
        assert read(noise + b"unfinished\n" + stream).problem is None


def test_what_is_larger_than_any_run_needs_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encode(*HEAD, *PASSED, finish(), END)
    monkeypatch.setattr(assembly, "LINE_LIMIT_BYTES", 1000)
    assert read(whole, size=100).problem is None
    for data in (encode(*HEAD) + b"3 " + b"x" * 2000, b"x" * (3 << 20)):
        problem = read(data).problem
        assert problem is not None
        assert problem.code == "too_large"
    monkeypatch.setattr(assembly, "LIMIT_BYTES", 500)
    problem = read(whole).problem
    assert problem is not None
    assert problem.code == "too_large"


@pytest.mark.parametrize(
    "line", [b"3", b"3 ", b"3 []", b"3 null", b"3 " + b"[" * 100_000, b"3 " + b"9" * 5000, b"\xff"]
)
def test_a_line_that_is_no_record_ends_the_trust(line: bytes) -> None:
    problem = read(encode(*HEAD) + line + b"\n").problem
    assert problem is not None
    assert problem.code == "damaged"
