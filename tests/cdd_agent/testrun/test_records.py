import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Access, Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.records import RecordedRun, record_run
from pytest_tdd_agent.recording.assembly import Recording
from pytest_tdd_agent.recording.spool import DIGEST_BYTES
from pytest_tdd_agent.report import StreamProblem, SuiteReport

HEAD = b'{"event":"start","schema":1,"nonce":"n","python":"3","pytest":"9","rootdir":"/","time":""}\n'
LAST = b'{"event":"finish","exit_status":0,"duration_s":1,"warnings":0,"deselected":0,"signs":[],"fault":null}\n'
START, FINISH = (
    b"%s %s" % (blake2b(lines, digest_size=DIGEST_BYTES).hexdigest().encode(), last)
    for lines, last in ((HEAD, HEAD), (HEAD + LAST, LAST))
)


def result(status: int = 0) -> Result:
    return Result(exit_status=status, head="", dropped_bytes=0, timed_out=False, duration_s=0, level="none")


def run_with(*running: str) -> RecordedRun:
    return RecordedRun(result=result(), recording=Recording(None, None, running), silent_s=0)


def completed(run: RecordedRun) -> SuiteReport:
    assert run.recording.problem is None
    assert run.recording.report is not None
    return run.recording.report


def test_the_records_are_those_of_the_program_s_standard_output(tmp_path: Path) -> None:
    program = "import os, sys; os.write(1, %r); print('seen', file=sys.stderr)" % (START + FINISH)
    command = Command(argv=(sys.executable, "-c", program), cwd=tmp_path, access=Access(), timeout_s=20)

    def run(stdout: int) -> Result:
        return PlainSandbox().run(replace(command, stdout=stdout))

    recorded = record_run(run, nonce="n")
    assert completed(recorded).complete
    assert recorded.result.output == "seen\n"


def test_more_than_a_socket_holds_is_read_while_the_program_runs() -> None:
    def run(stdout: int) -> Result:
        noise = b"x" * 1000 + b"\n"
        for _ in range(900):
            os.write(stdout, noise)
        os.write(stdout, START + FINISH)
        return result()

    assert completed(record_run(run, nonce="n")).complete


def test_a_program_that_keeps_the_descriptor_is_not_waited_for() -> None:
    kept: list[int] = []

    def run(stdout: int) -> Result:
        os.write(stdout, START + FINISH)
        kept.append(os.dup(stdout))
        return result()

    began = len(threading.enumerate())
    assert completed(record_run(run, nonce="n")).complete
    assert len(threading.enumerate()) == began
    with pytest.raises(BrokenPipeError):
        os.write(kept[0], b"late")
    os.close(kept[0])


def test_no_program_inherits_the_end_that_is_read() -> None:
    def run(stdout: int) -> Result:
        listed = (
            "import os; print(*[os.readlink(f'/proc/self/fd/{n}') for n in sorted(os.listdir('/proc/self/fd'))[:-1]])"
        )
        shown = subprocess.run(
            [sys.executable, "-c", listed], capture_output=True, text=True, close_fds=False, check=True
        )
        assert "socket:" not in shown.stdout
        return result()

    record_run(run, nonce="n")


def test_an_error_of_the_sandbox_ends_the_reader_too() -> None:
    def run(_: int) -> Result:
        raise OSError("no such program")

    began = len(threading.enumerate())
    with pytest.raises(OSError, match="no such program"):
        record_run(run, nonce="n")
    assert len(threading.enumerate()) == began


def test_a_run_without_records_has_the_status_of_its_process() -> None:
    assert record_run(lambda _: result(), nonce="n").recording.problem == StreamProblem("no_start")

    def run(stdout: int) -> Result:
        os.write(stdout, START)
        return result(-9)

    recording = record_run(run, nonce="n").recording
    assert recording.report is not None
    assert (recording.report.exit_status, recording.report.complete) == (-9, False)


def test_the_descriptor_is_a_socket_which_nobody_can_open_again() -> None:
    def run(stdout: int) -> Result:
        with socket.socket(fileno=os.dup(stdout)) as held:
            assert held.family == socket.AF_UNIX
        with pytest.raises(OSError, match="No such device"):
            os.open(f"/proc/self/fd/{stdout}", os.O_RDONLY)
        return result()

    record_run(run, nonce="n")


def test_the_tests_that_were_running_are_named() -> None:
    assert run_with().describe_running() == ""
    assert run_with("t.py::test_1").describe_running() == " while t.py::test_1 was running"
    many = run_with(*(f"t.py::test_{number}" for number in range(8)))
    assert many.describe_running().endswith("t.py::test_4 and 3 more were running")
