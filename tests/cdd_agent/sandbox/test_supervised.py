import errno
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Limits
from cdd_agent.sandbox.supervised import describe_start_failure
from cdd_agent.sandbox.warden import supervision
from tests.cdd_agent.sandbox.conftest import ALL, Ground
from tests.fakes.cases import soak_after

SOON_S = 20
"""What is not waited for lasts three times as long; a busy machine has time enough."""


def test_output_and_status_are_those_of_the_program(ground: Ground) -> None:
    result = ground.python("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)")
    assert (result.exit_status, result.output, result.timed_out) == (3, "out\nerr\n", False)
    assert (result.level, result.survivors, result.dropped_bytes) == (ground.sandbox.level, 0, 0)


only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can open the files of a warden")


@only_root
def test_an_end_that_the_program_wrote_itself_is_no_end(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    with pytest.raises(EnvironmentMissing, match="gave no valid answer"):
        ground.python("import os; open(f'/proc/{os.getppid()}/fd/1', 'wb').write(b'well\\0')")


def test_the_signal_that_ended_the_program_is_told(ground: Ground) -> None:
    result = ground.python("import os; os.kill(os.getpid(), 6)")
    assert result.exit_status == -signal.SIGABRT


def test_a_program_that_is_not_there_is_an_error_of_the_system(ground: Ground) -> None:
    with pytest.raises(OSError, match="nowhere"):
        ground.run("/nowhere/at/all")
    with pytest.raises(OSError, match="no-such-program"):
        ground.run("no-such-program")


def test_the_longest_argument_is_named_if_the_arguments_are_too_long(ground: Ground) -> None:
    with pytest.raises(
        OSError, match=r"Argument list too long: argument 2 has 200,000 bytes, and all .* have 20\d,\d+"
    ):
        ground.run("bash", "-c", "#" * 200_000)
    error = OSError(errno.E2BIG, "Argument list too long")
    told = str(describe_start_failure(error, ["true"], environment={"A": "", "LONG": "x" * 200_000}))
    assert "the variable LONG has 200,005 bytes" in told


def test_a_program_gets_no_input_and_signals_as_they_are_by_default(ground: Ground) -> None:
    result = ground.bash("cat; trap -p; yes | head -1; echo ${PIPESTATUS[0]}")
    assert result.output == f"y\n{128 + signal.SIGPIPE}\n"


SERVER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
print("no more", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_a_program_with_a_socket_answers_until_the_caller_hangs_up(ground: Ground) -> None:
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    command = replace(ground.make_command(sys.executable, "-I", "-S", "-c", SERVER), stdin=number, stdout=number)
    with ThreadPoolExecutor() as pool, theirs:
        run = pool.submit(ground.sandbox.run, command)
        with ours:
            for word in ("one", "two"):
                ours.sendall(f"{word}\n".encode())
                assert ours.recv(100) == f"{word.upper()}\n".encode()
            assert not run.done()
        result = run.result(timeout=10)
    assert result.output in ("no more\n", "")  # it may be ended before it has said this
    assert (result.timed_out, result.survivors) == (False, 0)
    assert result.exit_status < 0


def test_of_long_output_head_and_tail_are_kept(ground: Ground) -> None:
    result = ground.run("bash", "-c", "echo first; seq 200000; echo last", output_cap=1_000)
    assert result.output.startswith("first\n1\n")
    assert result.output.endswith("\n200000\nlast\n")
    assert len(result.output) < 1_100
    assert f"[... {result.dropped_bytes} bytes dropped ...]" in result.output


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a_cap_of_nothing_keeps_nothing(tmp_path: Path, *, cap: int) -> None:
    result = Ground.lay(tmp_path, level="none").run("echo", "abc", output_cap=cap)
    assert (
        len(result.output.replace(f"\n[... {result.dropped_bytes} bytes dropped ...]\n", "")) + result.dropped_bytes
        == 4
    )


@pytest.mark.slow
@soak_after(1, "ground", ("bwrap", "landlock", "none"), indirect=True)
def test_a_call_ends_in_time_although_a_child_holds_the_output(ground: Ground) -> None:
    started = time.monotonic()
    result = ground.run("bash", "-c", "trap '' TERM; (trap '' TERM; sleep 60) & echo begun; sleep 60", timeout_s=1)
    assert time.monotonic() - started < SOON_S
    assert result.timed_out
    assert result.output.startswith("begun")


def test_what_a_program_left_behind_is_ended_when_it_has_ended(ground: Ground) -> None:
    started = time.monotonic()
    result = ground.bash("setsid sleep 60 & disown; echo done")
    assert time.monotonic() - started < SOON_S
    assert (result.exit_status, result.output, result.timed_out) == (0, "done\n", False)


LIMITS = Limits(memory_bytes=1 << 30, cpu_s=7, file_bytes=1 << 20, open_files=64, processes=9_999)


def test_the_limits_in_force_are_told(ground: Ground) -> None:
    result = ground.run("true", limits=LIMITS)
    told = ("20 s", "1 GiB of memory a process", "7 s of processor time a process", "1 MiB a file")
    first = result.limits.index(told[0])
    assert result.limits[first : first + 5] == (*told, "64 open files a process")
    assert ground.run("true").limits[-1] != ""


ENDLESS = """
import sys, time
from pathlib import Path
from tests.cdd_agent.sandbox.conftest import Ground
Ground.lay(Path(sys.argv[1]), level=sys.argv[2]).run(
    "bash", "-c", "(setsid sleep 1000 &) ; echo $$ > started; sleep 1000", timeout_s=1000
)
"""


def wait_for_text(path: Path) -> None:
    """Wait until a program has written to a file, which is there before its content is."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.read_text()


def wardens_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@soak_after(1, "level", ALL)
def test_a_run_is_ended_with_cdd_even_if_that_is_killed(tmp_path: Path, *, level: str) -> None:
    Ground.lay(tmp_path / "try", level=level)
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path), level], cwd=root)
    wait_for_text(tmp_path / "project" / "started")
    (warden,) = wardens_of(process.pid)
    below = [warden, *supervision.list_below(warden)]
    assert len(below) >= 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(map(supervision.is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in below if supervision.is_alive(pid)] == []


def test_ctrl_c_ends_a_run_at_once_and_passes_through(tmp_path: Path) -> None:
    Ground.lay(tmp_path / "try", level="none")
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path), "none"], cwd=root, stderr=subprocess.PIPE, text=True
    )
    wait_for_text(tmp_path / "project" / "started")
    shell = int((tmp_path / "project" / "started").read_text())
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert not supervision.is_alive(shell)


KILLS = """
import os, sys, time
os.kill(os.getppid(), int(sys.argv[1]))
time.sleep(60)
"""


@pytest.mark.slow
def test_a_warden_that_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    started = time.monotonic()
    result = ground.run(sys.executable, "-c", KILLS, str(int(signal.SIGSTOP)), timeout_s=1)
    assert time.monotonic() - started < SOON_S
    assert (result.timed_out, result.exit_status, result.survivors) == (True, -signal.SIGKILL, 0)
    assert "was stopped" in result.remarks[0]


def test_a_warden_that_is_killed_is_an_error(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    with pytest.raises(EnvironmentMissing, match="it was killed"):
        ground.run(sys.executable, "-c", KILLS, str(int(signal.SIGKILL)))


@only_root
def test_what_could_not_be_ended_is_told(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    answer = b"0\0" * 4 + b"2\0" + b"0\0"
    code = f"import os; open(f'/proc/{{os.getppid()}}/fd/1', 'wb').write({answer!r}); os.kill(os.getppid(), 9)"
    result = ground.python(code)
    assert result.survivors == 2
    assert result.remarks == ("could not end 2 processes that the program started",)
