import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.sandbox.supervised import end_group

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_group_is_ended_with_all_that_it_started() -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as out:
        child = int(out.readline())
        end_group(process)
    assert process.returncode is not None
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_process_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    end_group(process)
    assert process.returncode == os.EX_OK
