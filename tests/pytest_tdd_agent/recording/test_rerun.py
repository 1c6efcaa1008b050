"""``--tdd-agent-flaky``: what failed runs again, alone."""

import pytest

from pytest_tdd_agent.recording.spool import find_running_tests
from tests.fakes.cases import soak_after

from ..conftest import XDIST, Project, Run

PROCESSES = soak_after(1, "processes", ((), XDIST), ids=["serial", "xdist"])
FLAKY = """
import pathlib, pytest, unittest

def again(name):
    file = pathlib.Path(name + ".tries")
    file.write_text((file.read_text() if file.exists() else "") + "x")
    return len(file.read_text())

@pytest.fixture(scope="module")
def numbers():
    again("setup")
    found = []
    yield found
    found.clear()

def test_passes(numbers): numbers.append(1)
def test_flaky(numbers):
    numbers.append(1)
    assert again("flaky") == 2
    assert numbers == [1]
def test_fails(): assert again("fails") < 0
def test_changes():
    assert again("changes") == 2
    raise ValueError if again("changes") else KeyError
def test_subtests(subtests):
    again("subtests")
    with subtests.test("one"): assert 0
def test_timeout():
    again("timeout")
    raise TimeoutError
@pytest.mark.xfail(strict=True)
def test_strict(): assert again("strict") == 2
@pytest.fixture
def unready(): assert again("unready") == 2
def test_setup(unready): pass
class Box(unittest.TestCase):
    def test_flaky(self): self.assertEqual(again("box"), 2)
"""


def tries(run: Run) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {name: (case.outcome, case.tries) for name, case in run.cases.items() if case.failure is not None}


@PROCESSES
def test_a_test_that_passes_when_it_runs_again_is_flaky(project: Project, processes: tuple[str, ...]) -> None:
    project.write(test_a=FLAKY)
    run = project.pytest("--tdd-agent-flaky", "2", *processes)
    assert tries(run) == {
        "test_flaky": ("passed", ("assertion", "passed")),
        "test_fails": ("failed", ("assertion", "assertion", "assertion")),
        "test_changes": ("failed", ("assertion", "exception", "assertion")),
        "test_subtests": ("failed", ()),
        "test_timeout": ("failed", ()),
        "test_setup": ("passed", ("assertion", "passed")),
        "Box::test_flaky": ("passed", ("assertion", "passed")),
    }
    flaky = run.cases["test_flaky"]
    assert (flaky.reruns, run.cases["test_fails"].reruns, run.cases["test_fails"].outcome) == (1, 2, "failed")
    assert (run.status, run.report.complete) == (1, True)
    assert run.output.count("  flaky: ") == 3
    assert "flaky: test_a.py::test_flaky (assertion, then passed)" in run.output
    for name in ("subtests", "timeout"):
        assert len((project.folder / f"{name}.tries").read_text()) == 1


def test_a_target_that_passes_only_when_it_runs_again_closes_the_gate(project: Project) -> None:
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    project.write(test_a="import tries\ndef test_a(): assert next(tries.numbers) == 1\n")
    run = project.pytest("--tdd-agent-gate", "green", "--tdd-agent-flaky", "1", "--tdd-agent-target", "test_a.py")
    assert (run.status, run.codes) == (1, ["flaky_target"])
    assert "test_a.py::test_a failed, and passed only when it ran again (assertion, passed)." in run.output


@pytest.mark.slow
def test_a_gate_opens_with_an_old_flaky_test_and_says_so(project: Project) -> None:
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    project.write(test_a="import tries\ndef test_a(): assert next(tries.numbers) == 1\n")
    project.pytest("--tdd-agent-flaky", "1", report="base.json")
    args = ("--tdd-agent-flaky", "1", "--tdd-agent-baseline", "base.json")
    run = project.pytest("--tdd-agent-gate", "green", *args)
    assert (run.status, run.verdict.open, run.report.exit_status) == (0, True, 1)
    assert "GREEN gate: open\n  flaky: test_a.py::test_a (assertion, then passed)\n" in run.output


@pytest.mark.slow
def test_a_target_of_red_has_to_fail_in_the_same_way_each_time(project: Project) -> None:
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    project.write(test_a="def test_a(): pass\n")
    project.pytest(report="base.json")
    args = ("--tdd-agent-gate", "red", "--tdd-agent-flaky", "1", "--tdd-agent-baseline", "base.json")
    project.write(test_b="import tries\ndef test_b(): assert next(tries.numbers) == 1\n")
    flaky = project.pytest(*args)
    assert (flaky.status, flaky.codes) == (1, ["flaky_target"])
    project.write(test_b="import tries\ndef test_b(): assert next(tries.numbers) < 0\n")
    steady = project.pytest(*args)
    assert (steady.status, steady.codes, tries(steady)) == (0, [], {"test_b": ("failed", ("assertion",) * 2)})


@pytest.mark.slow
def test_a_run_that_was_stopped_runs_nothing_again(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\ntdd_agent_flaky = 3\n")
    for body, args, status in (("raise KeyboardInterrupt", (), 2), ("pass", ("-x",), 1)):
        project.write(test_a=f"def test_a(): print('tried'); assert 0\ndef test_b(): {body}\n")
        run = project.pytest("-s", "--tb=no", *args)
        assert (run.status, run.output.count("tried")) == (status, 1)


@pytest.mark.slow
def test_of_many_failures_the_first_run_again(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\ntdd_agent_flaky = 1\n")
    project.write(test_a="import pytest\n@pytest.mark.parametrize('x', range(60))\ndef test_a(x): assert 0\n")
    cases = project.pytest("--tb=no").cases
    assert [name for name, case in cases.items() if case.tries] == [f"test_a[{number}]" for number in range(50)]


def test_a_test_runs_again_under_all_that_plugins_put_round_it(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\nfilterwarnings = error\ntdd_agent_flaky = 2\n")
    project.write(
        conftest="""
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    assert not hasattr(item, "seen")
    item.seen = True
""",
        test_a="""
import pytest, warnings
def test_old(): warnings.warn("old", DeprecationWarning)
@pytest.mark.filterwarnings("error")
def test_mark(): warnings.warn("mark", UserWarning)
""",
    )
    run = project.pytest()
    assert tries(run) == {name: ("failed", ("exception",) * 3) for name in ("test_old", "test_mark")}
    assert run.report.complete


def test_a_process_that_dies_when_a_test_runs_again_has_named_it(project: Project) -> None:
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    project.write(
        test_a="import os, tries\ndef test_a():\n    if next(tries.numbers): os._exit(0)\n    assert 0\n"
        "def test_b(): pass\n"
    )
    run = project.pytest("--tdd-agent-flaky", "1")
    assert not (project.folder / "out/report.json").exists()
    assert find_running_tests((project.folder / "out/report.jsonl").read_bytes().splitlines()) == ("test_a.py::test_a",)
    assert run.status == 0


@pytest.mark.slow
def test_targets_run_again_first_even_if_they_failed_before(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\ntdd_agent_flaky = 1\n")
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    old = "import pytest, tries\n@pytest.mark.parametrize('x', range(52))\ndef test_a(x): assert %s\n"
    target = "def test_b(): assert next(tries.numbers)\n"
    project.write(test_a=old % "1" + target)
    project.pytest("--tb=no", "--tdd-agent-flaky", "0", report="base.json")
    project.write(test_a=old % "0" + target)
    gate = ("--tdd-agent-gate", "red", "--tdd-agent-target", "./test_a.py::test_b")
    run = project.pytest("--tb=no", *gate, "--tdd-agent-baseline", "base.json")
    assert "flaky_target" in run.codes or "already_green" in run.codes
    assert tries(run)["test_b"] == ("passed", ("assertion", "passed"))
