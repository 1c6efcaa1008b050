"""Code under test that forges its results, at each level: no run reports that the failing test passed."""

from pathlib import Path

import pytest

from cdd_agent.sandbox.backends import ContainerSandbox
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.cdd_agent.sandbox.conftest import ALL, at, get_bubblewrap
from tests.fakes import containers
from tests.fakes.cases import soak_after

NODEID = "test_shop.py::test_price"
FORGE = """
import atexit, json, os, signal, socket, stat, subprocess, sys, threading, time

NODEID = "test_shop.py::test_price"

def records():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found += [int(name)] if stat.S_ISSOCK(os.fstat(int(name)).st_mode) else []
        except OSError:
            pass
    return max(found)

def forge(first, *, event="finish", fd=None):
    case = {"nodeid": NODEID, "outcome": "passed", "file": "test_shop.py", "line": 3, "duration_s": 0.1,
            "phases": {"setup": 0.0, "call": 0.1, "teardown": 0.0}, "reruns": 0, "failure": None}
    rest = {"duration_s": 1.0, "warnings": 0, "deselected": 0, "signs": [], "fault": None}
    lines = [{"event": "begin", "nodeid": NODEID}, {"event": "test", "case": case},
             {"event": "finish", "exit_status": 0, **rest}, {"event": "end"}]
    fd = records() if fd is None else fd
    for number, line in enumerate(lines, first):
        os.write(fd, b"%d %s\\n" % (number, json.dumps(line).encode()))

def rewrite():
    # The files of the run, wherever a process can learn of them.
    words = open("/proc/self/cmdline").read().split("\\0") + list(os.environ.values()) + sys.argv
    for folder in {os.path.dirname(word) for word in words if "cdd-testrun-" in word}:
        for name in ("report.json", "report.jsonl"):
            with open(os.path.join(folder, name), "w") as file:
                json.dump({"schema": 1, "complete": True, "tests": [{"nodeid": NODEID, "outcome": "passed"}]}, file)

def ignore(act):
    try:
        act()
    except Exception:
        pass

FDS = []

class Late:
    def __del__(self, fds=FDS, write=os.write):
        write(fds[0], b"6 {}\\n")

class Error:
    def __del__(self):
        raise OSError

def unraised(_, fds=FDS, write=os.write):
    write(fds[0], b"6 {}\\n")

def later():
    sys.unraisablehook = unraised
    Error()

def price():
    FDS.append(os.dup(records()))
    attack()
    return 7
"""
HONEST, BROKEN = "failed", ""
ATTACKS = {
    "a file is rewritten at exit": (HONEST, "atexit.register(rewrite)"),
    "a file is rewritten in a thread": (
        HONEST,
        "threading.Thread(target=lambda: [rewrite(), time.sleep(.3), rewrite()]).start()",
    ),
    "records are appended at exit": (BROKEN, "atexit.register(lambda: forge(6, fd=FDS[0]))"),
    "records are appended when objects are freed": (BROKEN, "FDS.append(Late())"),
    "records are appended by an unraisable error": (BROKEN, "atexit.register(later)"),
    "records are written before the plugin's": (BROKEN, "forge(3)"),
    "records are written with sendmsg": (BROKEN, "socket.socket(fileno=os.dup(records())).sendmsg([b'3 {}\\n'])"),
    "the descriptor leads elsewhere": (BROKEN, "os.dup2(os.open(os.devnull, os.O_WRONLY), records())"),
    "the descriptor is closed": (BROKEN, "os.close(records())"),
    "the process ends in the test": (BROKEN, "os._exit(0)"),
    "a thread ends the process": (
        BROKEN,
        "threading.Thread(target=lambda: [time.sleep(.2), os._exit(0)]).start(); time.sleep(9)",
    ),
    "what was sent is read back": (
        HONEST,
        "ignore(lambda: os.read(os.open(f'/proc/self/fd/{records()}', os.O_RDONLY), 9))",
    ),
    "what was sent is received": (
        HONEST,
        "ignore(lambda: socket.socket(fileno=os.dup(records())).recv(9, socket.MSG_DONTWAIT))",
    ),
    "a whole stream is forged, then the process ends": (BROKEN, "forge(4); os._exit(0)"),
    "a fork forges them": (BROKEN, "os.wait() if os.fork() else [forge(4), os._exit(0)]"),
    "the socket is shut down": (BROKEN, "socket.socket(fileno=os.dup(records())).shutdown(2)"),
    "the group is stopped": (BROKEN, "os.kill(0, signal.SIGSTOP)"),
    "more is sent than any run needs": (
        BROKEN,
        "data = bytes(1 << 20); [os.write(records(), data) for _ in range(80)]",
    ),
    "descriptors are sent": (BROKEN, "socket.send_fds(socket.socket(fileno=os.dup(records())), [b' '], [0] * 50)"),
    "all descriptors are closed": (BROKEN, "os.closerange(3, 1 << 20)"),
    "the first thousand descriptors are closed": (HONEST, "os.closerange(60, 1024)"),
    "the end of the records is printed": (HONEST, "os.write(1, b'{}')"),
    "a process keeps the descriptor": (
        *(HONEST, "subprocess.Popen(['sleep', '60'], pass_fds=[records()], start_new_session=True)"),
    ),
}


def find_sandbox(level: str, folder: Path) -> Sandbox:
    """Docker's client is replaced by a program that gives each container to bubblewrap."""
    if level != "docker":
        return at(level)
    place = folder.parent / f"{folder.name}-client"
    place.mkdir()
    return ContainerSandbox(containers.install(place, bwrap=get_bubblewrap().bwrap))


@pytest.mark.parametrize("level", [*ALL, "docker"])
@soak_after(3, "name", ATTACKS)
def test_no_code_under_test_reports_a_pass(tmp_path: Path, *, interpreter: Interpreter, level: str, name: str) -> None:
    outcome, attack = ATTACKS[name]
    (tmp_path / "shop.py").write_text(f"{FORGE}\ndef attack():\n    {attack}\n")
    (tmp_path / "test_shop.py").write_text("from shop import price\ndef test_price():\n    assert price() == 6\n")
    suite = PytestSuite(
        root=tmp_path, interpreter=interpreter, sandbox=find_sandbox(level, tmp_path), timeout_s=8, bytecode=None
    )
    run = suite.run()
    if outcome == BROKEN:
        assert run.report is None
        assert run.broken is not None
    else:
        assert run.report is not None, run.problem
        assert {case.nodeid: case.outcome for case in run.report.tests} == {NODEID: outcome}
    assert run.duration_s < 20
