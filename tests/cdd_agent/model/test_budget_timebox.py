import os
import re
import signal
import subprocess
import time

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.model.budget import run_within
from tests.fakes.cases import soak_after


@soak_after(
    1,
    ("pattern", "text"),
    [("(a+)+$", "a" * 40 + "!"), (".*=", "x" * 200_000), ("x*y", "x" * 200_000), ("(?:a?){40}a{40}", "a" * 40)],
)
def test_a_search_that_would_take_years_is_cut_off(pattern: str, text: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"Stopped after 0\.2 s") as refusal:
        run_within(0.2, lambda: re.search(pattern, text), hint="use a simpler one")
    assert time.monotonic() - started < 60
    assert refusal.value.hint == "use a simpler one"


def test_what_is_done_in_time_is_given_back_and_nothing_rings_later() -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert run_within(0.05, lambda: 1, hint="") == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_an_error_of_the_work_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        run_within(5, lambda: 1 // 0, hint="")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_ctrl_c_passes_in_the_middle_of_a_search() -> None:
    started = time.monotonic()
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -INT {os.getpid()}"]), pytest.raises(KeyboardInterrupt):
        run_within(30, lambda: re.search("(a+)+$", "a" * 40 + "!"), hint="")
    assert time.monotonic() - started < 10
