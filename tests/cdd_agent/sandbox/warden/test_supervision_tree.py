import os
import signal
import subprocess
import sys
import time

import pytest

from cdd_agent.sandbox.warden import supervision

CHAIN = "import os, time\nos.fork() or os.fork()\ntime.sleep(60)"


def test_all_below_a_process_is_found_and_ended() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", CHAIN])
    deadline = time.monotonic() + 10
    while len(found := supervision.list_living(process.pid)) < 2 and time.monotonic() < deadline:
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
    while len(supervision.list_living(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert supervision.end_all(process.pid, time.monotonic() + 0.1) == 2
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
