"""Runs whose records another process reads: its report has what the plugin's own has."""

from dataclasses import replace

import pytest

from pytest_tdd_agent.report import Case, SuiteReport
from tests.fakes.cases import soak_after
from tests.pytest_tdd_agent.conftest import TWO_WORKERS, XDIST, Project

MANY = """
import warnings, pytest

tries = []

@pytest.fixture
def torn():
    yield
    raise OSError("torn down")

def test_passes():
    warnings.warn("old")

def test_fails():
    print("seen")
    assert 1 == 2

def test_torn(torn):
    assert 0

@pytest.mark.skip
def test_skipped(): ...

@pytest.mark.xfail
def test_xfailed():
    assert False

@pytest.mark.xfail
def test_xpassed(): ...

def test_flaky():
    tries.append(1)
    assert len(tries) > 1

def test_parts(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert number == 1

def test_skipped_parts(subtests):
    with subtests.test():
        pytest.skip("no")
"""
SHARED = """
import pytest

@pytest.mark.parametrize("x", [1, 2])
def test_x(x):
    assert x == 1

@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item): ...
"""
ONE_ID = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    if item.originalname == "test_x":
        item._nodeid = "test_shared.py::test_x"
"""
RERUNS = """
import pytest
from _pytest.runner import runtestprotocol

# As pytest-rerunfailures does for test_flaky, and flaky for test_fails.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    again = {"test_flaky": "rerun", "test_fails": "whole"}.get(item.originalname)
    if again is None:
        return None
    for last in (False, True):
        if last < 1 or again == "whole":
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if again == "rerun" and report.failed and not last:
                report.outcome = "rerun"
                item.ihook.pytest_runtest_logreport(report=report)
                break
            item.ihook.pytest_runtest_logreport(report=report)
        if last or again == "whole":
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
CRASH = "import os, signal\ndef test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\ndef test_later(): ...\n"
RUNS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "many kinds": (
        ("--tdd-agent-audit", "--tdd-agent-flaky=2", "-kx or test"),
        {"test_many": MANY, "test_no": "import no"},
    ),
    "two workers": (
        (*TWO_WORKERS, "--tdd-agent-audit", "--tdd-agent-flaky=2"),
        {"test_many": MANY, "test_no": "import pytest\npytest.importorskip('no')\n"},
    ),
    "reruns by plugins": ((), {"test_many": MANY, "conftest": RERUNS}),
    "reruns by plugins on a worker": (XDIST, {"test_many": MANY, "conftest": RERUNS}),
    "a shared node id": ((), {"test_shared": SHARED, "conftest": ONE_ID}),
    "a worker crashes": ((*XDIST, "--max-worker-restart=2"), {"test_crash": CRASH}),
    "the first failure": (("-x",), {"test_many": MANY}),
    "stopped": ((), {"test_stop": "import pytest\ndef test_stop():\n    pytest.exit('enough')\n"}),
    "an error of a hook": (
        (),
        {"test_ok": "def test(): ...", "conftest": "def pytest_runtest_logfinish():\n    raise OSError\n"},
    ),
    "no tests": ((), {"test_none": ""}),
    "only collected": (("--collect-only",), {"test_many": MANY}),
    "skipped as a whole": ((), {"test_no": "import pytest\npytest.importorskip('no')\n", "test_ok": "def test(): ..."}),
}


def strip(report: SuiteReport) -> SuiteReport:
    """Leave out what differs between any two runs."""

    def strip_case(case: Case) -> Case:
        phases = dict.fromkeys(case.phases, 0.0)
        failure = case.failure and replace(case.failure, text="", output="", message=case.failure.message[:20])
        return replace(case, duration_s=0.0, phases=phases, failure=failure)

    tests = tuple(sorted(map(strip_case, report.tests), key=lambda case: case.nodeid))
    return replace(report, duration_s=0.0, started_at="", nonce="", tests=tests, warnings=min(report.warnings, 1))


@soak_after(3, "name", RUNS)
def test_the_report_is_the_same_as_that_of_the_plugin(project: Project, name: str) -> None:
    args, files = RUNS[name]
    project.write(**files)
    expected = strip(project.pytest(*args).report)
    recording, _ = project.record("--tdd-agent", *args)
    assert recording.problem is None
    assert recording.report is not None
    assert strip(recording.report) == expected


@pytest.mark.slow
def test_each_worker_sends_its_results(project: Project) -> None:
    project.write(test_many=MANY)
    args = ("-p", "xdist", "--dist=each", "--tx=2*popen")
    expected = project.pytest(*args).cases
    recording, _ = project.record("--tdd-agent", *args)
    assert recording.problem is None
    assert recording.report is not None
    assert recording.report.complete
    found = {case.nodeid.partition("::")[2]: case.outcome for case in recording.report.tests}
    assert found == {name: case.outcome for name, case in expected.items()}


def test_a_process_that_ends_in_a_test_leaves_what_was_recorded(project: Project) -> None:
    project.write(
        test_a="def test_first(): ...\ndef test_ends():\n    import os\n    os._exit(0)\ndef test_last(): ...\n"
    )
    recording, _ = project.record("--tdd-agent")
    assert recording.report is not None
    assert recording.problem is not None
    assert (recording.problem.code, recording.running) == ("no_finish", ("test_a.py::test_ends",))
    assert [case.nodeid for case in recording.report.tests] == ["test_a.py::test_first"]
    assert (recording.report.complete, recording.report.exit_status) == (False, 0)


def test_no_child_has_the_descriptor_and_no_fork_writes(project: Project) -> None:
    project.write(
        test_a="""
import os, subprocess, sys

def sockets():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.exists(link) and "socket:" in os.readlink(link)]

def test_child():
    assert "PYTEST_TDD_AGENT_RECORDS" not in os.environ
    assert len(sockets()) == 1
    program = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')][:-1])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, close_fds=False)
    assert sockets()[0] not in shown.stdout

def test_fork():
    if os.fork() == 0:
        return
    os.wait()

def test_close():
    os.closerange(100, 900)
"""
    )
    recording, data = project.record("--tdd-agent")
    assert recording.problem is None
    assert recording.report is not None
    assert [case.outcome for case in recording.report.tests] == ["passed"] * 3
    assert data.endswith(b'{"event":"end"}\n')
    assert not (project.folder / ".tdd-agent").exists()


@pytest.mark.parametrize(
    "attack",
    [
        "os.write(fd, b'1 {}\\n')",
        "os.write(fd, b'x')",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), fd)",
        "os.close(fd)",
        "os.closerange(3, 100_000)",
    ],
)
def test_what_a_test_does_to_the_descriptor_makes_the_run_incomplete(project: Project, attack: str) -> None:
    project.write(
        test_a=f"""
import os, stat

def test_attack():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode):
                {attack}
        except OSError:
            pass

def test_last(): ...
"""
    )
    recording, _ = project.record("--tdd-agent")
    assert recording.problem is not None
    assert recording.report is not None
    assert not recording.report.complete


def test_nobody_can_open_the_descriptor_again(project: Project) -> None:
    project.write(
        test_a="""
import os, pytest, stat

def test_open():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    sockets = [link for link in links if os.path.exists(link) and stat.S_ISSOCK(os.stat(link).st_mode)]
    assert len(sockets) == 1
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        with pytest.raises(OSError):
            os.open(sockets[0], flags)
"""
    )
    recording, _ = project.record("--tdd-agent")
    assert recording.report is not None
    assert recording.report.complete
    assert [case.outcome for case in recording.report.tests] == ["passed"]
