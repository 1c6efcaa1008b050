import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdd_agent.sandbox.warden import supervision

ROOT = Path(__file__).parents[4]
CHAIN = "import os, time\nos.fork() or os.fork()\ntime.sleep(60)"


def test_all_below_a_process_is_found_and_ended() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", CHAIN])
    deadline = time.monotonic() + 10
    while len(found := supervision.list_below(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) == 2
    assert supervision.end_all(process.pid, time.monotonic() + 5) == 0
    deadline = time.monotonic() + 10  # an orphan that init has taken is not below any more, and ends when it can
    while any(map(supervision.is_alive, found)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(supervision.is_alive, found))
    assert supervision.is_alive(process.pid)
    process.kill()
    process.wait()
    assert not supervision.is_alive(process.pid)


def test_a_deadline_is_kept_and_survivors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_kill", lambda _: None)
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", CHAIN], start_new_session=True)
    deadline = time.monotonic() + 10
    while len(supervision.list_below(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert supervision.end_all(process.pid, time.monotonic() + 0.1) == 2
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


FORKING_ON = """
import os, time
from cdd_agent.sandbox.warden import kernel, supervision
kernel.become_reaper()
if os.fork() == 0:
    os.setsid()
    begun = time.monotonic()
    while time.monotonic() < begun + 20:
        if os.fork(): os._exit(0)
        time.sleep(0.001)
    os._exit(0)
time.sleep(0.1)
supervision.is_alive = lambda pid: False  # no look finds the one that lives
supervision.end_all(os.getpid(), time.monotonic() + 5)
deadline = time.monotonic() + 5
while time.monotonic() < deadline:
    try:
        time.sleep(0 if os.waitpid(-1, os.WNOHANG)[0] else 0.01)
    except ChildProcessError:
        raise SystemExit(0)
raise SystemExit("a process is left")
"""


def test_what_forks_on_and_ends_is_ended_through_its_dead_parents() -> None:
    argv = [sys.executable, "-c", FORKING_ON]
    ended = subprocess.run(argv, cwd=ROOT, timeout=60, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
