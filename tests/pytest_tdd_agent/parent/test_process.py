"""The process below a parent: nothing of it is left, and it can neither trace the parent nor take records back."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pytest_tdd_agent.conftest import ROOT

PARENT = """
import json, os, subprocess, sys
from pytest_tdd_agent.parent.process import Child, find_prctl
earlier = subprocess.Popen(["sleep", "60"])
child = Child(prctl=find_prctl(), is_stopping=lambda: False)
received = []
environment = {**os.environ, "RECORDS": str(child.descriptor), "EARLIER": str(earlier.pid)}
command = [sys.executable, "-S", "-c", sys.argv[1]]
ending = child.run(command, environment=environment, output=2, receive=received.append)
print(json.dumps({"status": ending.status, "survivors": ending.survivors, "records": b"".join(received).decode()}))
alive = earlier.poll() is None
earlier.kill()
sys.exit(0 if alive else "a process from before the run was ended")
"""

SEND = """
import os, signal, sys, time
descriptor = int(os.environ["RECORDS"])
def send(text):
    os.write(descriptor, text.encode() + b"\\n")
"""

DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        send(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
os.wait()
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The words of the parent about its child."""

    status: int
    survivors: list[int]
    records: list[str]


def run(code: str, tmp_path: Path, *, prelude: str = "") -> Result:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", prelude + PARENT, SEND + code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Result(status=found["status"], survivors=found["survivors"], records=found["records"].split())


@pytest.mark.parametrize(
    ("code", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)]
)
def test_the_status_of_the_process_is_its_own(code: str, status: int, tmp_path: Path) -> None:
    assert run(code, tmp_path) == Result(status=status, survivors=[], records=[])


@pytest.mark.parametrize("prelude", ["", "import signal\ndel signal.sigtimedwait"], ids=["Linux", "macOS"])
def test_an_interrupt_of_the_parent_alone_reaches_the_process(prelude: str, tmp_path: Path) -> None:
    code = """
def note(*_):
    send("interrupted")
    sys.exit(2)
signal.signal(signal.SIGINT, note)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""
    found = run(code, tmp_path, prelude=prelude)
    assert (found.status, found.records) == (2, ["interrupted"])


def test_a_daemon_in_a_session_of_its_own_is_ended_and_the_stream_with_it(tmp_path: Path) -> None:
    found = run(f"{DAEMON}\nsend('end')", tmp_path)
    pid, last = sorted(found.records)
    assert (found.status, found.survivors, last) == (0, [], "end")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_the_process_cannot_trace_the_parent_nor_read_its_own_records(tmp_path: Path) -> None:
    code = """
import ctypes
def try_to_open(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        send(error.__class__.__name__)
    else:
        send(path)
parent = os.getppid()
try_to_open(f"/proc/{parent}/mem", os.O_RDWR)
try_to_open(f"/proc/{parent}/fd/1", os.O_RDWR)
try_to_open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
send(str(ctypes.CDLL(None).ptrace(16, parent, 0, 0)))
"""
    assert run(code, tmp_path).records == ["PermissionError", "PermissionError", "OSError", "-1"]


def test_what_a_killed_parent_started_does_not_go_on(tmp_path: Path) -> None:
    read, write = os.pipe()
    code = f"{SEND}\nos.write({write}, b'started')\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    command = [sys.executable, "-c", PARENT.replace('["sleep", "60"]', '["true"]'), code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, pass_fds=(write,), check=False)
    os.close(write)
    with open(read, "rb") as ended:  # all ends are closed only when the child is gone
        assert ended.read() == b"started"
    assert done.returncode == -signal.SIGKILL
