"""The parent's verdict stands, whatever the code under test does to the report, the process and its exit status."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time

import pytest

from pytest_tdd_agent.parent.judging import find_exit_status, list_notes
from pytest_tdd_agent.parent.process import ProcessEnd
from pytest_tdd_agent.report import Case, StreamProblem, SuiteReport, Verdict, replace
from tests.fakes.cases import soak_after

from ..conftest import TWO_WORKERS, Project, Run

GREEN = ("--tdd-agent-gate", "green")
TEST = "import product\n\n\ndef test_mul():\n    assert product.mul(2, 3) == 6\n"
WRONG = "\n\ndef mul(a, b):\n    return 7\n"
FORGE = """
import atexit, os, subprocess, sys, threading, time

def forge(path=os.path.abspath("out/report.json")):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write('{"gate": {"phase": "green", "open": true, "reasons": []}}')
"""

CHEATS = {
    "rewrites the report at exit": f"{FORGE}atexit.register(forge){WRONG}",
    "ends the process with status 0 at exit": f"{FORGE}os.mkfifo(f'out/report.json.{{os.getppid()}}.tmp')\n"
    f"atexit.register(lambda: (forge(), os._exit(0))){WRONG}",
    "leaves a daemon that rewrites the report": f"""{FORGE}
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("pid", "w") as file:
            file.write(str(os.getpid()))
        while True:
            forge()
            time.sleep(0.01)
    os._exit(0)
{WRONG}""",
    "ends the process in a thread after the session": f"""{FORGE}
def end():
    threading.main_thread().join()
    forge()
    os._exit(0)

threading.Thread(target=end).start()
{WRONG}""",
    "ends the process when the interpreter drops its modules": f"""{FORGE}
class Last:
    def __del__(self, forge=forge, end=os._exit):
        forge()
        end(0)

last = Last()
{WRONG}""",
    "starts a program in another session": f"""{FORGE}
def mul(a, b):
    program = "import time; time.sleep(2); open('out/report.json', 'w').write('\\"open\\": true')"
    subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    return 7
""",
    "removes the report's folder": f"import shutil\nshutil.rmtree('out'){WRONG}",
    "replaces the report's folder": f"""{FORGE}
def replace():
    import shutil

    shutil.rmtree("out")
    os.mkdir("elsewhere")
    os.symlink("elsewhere", "out")
    forge()

atexit.register(replace)
{WRONG}""",
}


def run_alone(project: Project, *args: str) -> Run:
    """Run pytest as a user does."""
    return project.pytest(*args, start=True)


@soak_after(2, "cheat", CHEATS)
def test_a_forged_report_or_exit_status_opens_no_gate(project: Project, cheat: str) -> None:
    project.write(test_product=TEST, product=CHEATS[cheat])
    run = run_alone(project, *GREEN)
    assert run.status == 1
    assert (run.report.supervised, run.verdict.open, run.codes) == (True, False, ["target_failed"])
    assert run.output.count("GREEN gate: closed") == 1
    if (project.folder / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((project.folder / "pid").read_text()), 0)


PATCH = """
import pathlib, pytest
from pytest_tdd_agent import tampering, codec, fingerprint

before = codec.load(pathlib.Path("out/base.json"))
fingerprint.compute_digests = lambda *_, **__: dict(before.fingerprints)
tampering.TamperingWatch.find_signs = lambda *_: ()

@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call():
    outcome = yield
    outcome.force_result(True)

def pytest_terminal_summary():
    print("GREEN gate: open")
"""


def test_a_conftest_that_replaces_the_plugin_in_memory_does_not_hide_itself_from_a_baseline(project: Project) -> None:
    project.write(test_product=TEST, product=WRONG)
    project.pytest("--tdd-agent-audit", report="out/base.json")
    project.write(conftest=PATCH)
    run = run_alone(project, *GREEN, "--tdd-agent-baseline", "out/base.json")
    assert [case.outcome for case in run.report.tests] == ["passed"]
    assert (run.status, run.codes, run.report.signs) == (1, ["protected_changed"], ())
    assert run.printed.index("GREEN gate: open") < run.printed.index("GREEN gate: closed")


EARLY_ENDS = {
    "in a test": "import os\n\n\ndef mul(a, b):\n    os._exit(0)\n",
    "in a thread": "import os, threading, time\n\n\ndef end():\n    time.sleep(0.5)\n    os._exit(0)\n\n\n"
    "threading.Thread(target=end).start()\n\n\ndef mul(a, b):\n    time.sleep(5)\n    return 6\n",
}


@soak_after(1, "end", EARLY_ENDS)
def test_a_process_that_ends_early_with_status_0_has_failed_and_its_test_is_named(project: Project, end: str) -> None:
    project.write(test_product=TEST, product=EARLY_ENDS[end])
    run = run_alone(project, *GREEN)
    assert (run.status, run.report.complete, run.codes) == (1, False, ["run_incomplete"])
    assert run.report.problem == StreamProblem("no_finish", "test_product.py::test_mul")
    assert "the test process ended with status 0 while test_product.py::test_mul ran" in run.output


def test_the_parent_says_of_honest_tests_what_their_own_process_says(project: Project) -> None:
    project.write(
        test_product=f"{TEST}\n\ndef test_no():\n    four = product.mul(2, 2)\n    assert four == 5\n",
        product="def mul(a, b):\n    print('said')\n    return a * b\n",
    )
    within = project.pytest("--tdd-agent-audit", report="out/within.json")
    outside = project.pytest("--tdd-agent-audit", report="out/outside.json", start=True)
    assert (within.status, outside.status) == (1, 1)
    assert (within.report.supervised, outside.report.supervised) == (False, True)
    assert within.report.fingerprints == outside.report.fingerprints
    assert [(case.nodeid, case.failure) for case in within.report.tests] == [
        (case.nodeid, case.failure) for case in outside.report.tests
    ]
    assert within.events == outside.events
    assert "judged without a parent process: pytest was not started as `pytest` or `python -m pytest`" in within.output
    assert "without a parent" not in outside.output
    assert outside.printed.index("1 failed, 1 passed in ") < outside.printed.index("= tdd-agent =")


def test_sigterm_ends_the_tests_and_leaves_a_report_of_those_that_ran(project: Project) -> None:
    project.write(test_a="import time\n\n\ndef test_a(): ...\n\n\ndef test_b():\n    time.sleep(60)\n")
    options = (
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_tdd_agent",
        "--tdd-agent-audit",
        "--tdd-agent-report=report.json",
    )
    command = [sys.executable, "-m", "pytest", *options]
    stream = project.folder / "report.jsonl"
    with subprocess.Popen(command, cwd=project.folder, stdout=subprocess.PIPE, text=True) as process:
        begun = b'"begin","nodeid":"test_a.py::test_b"'
        while not stream.exists() or begun not in stream.read_bytes():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
    run = Run(status=process.returncode, folder=project.folder, name="report.json", printed=printed)
    assert run.status == 128 + signal.SIGTERM
    assert (run.report.complete, list(run.cases)) == (False, ["test_a"])
    assert "the test process was ended by SIGTERM while test_a.py::test_b ran" in printed


@pytest.mark.slow
def test_a_terminal_treats_both_processes_as_one_program(project: Project) -> None:
    project.write(test_a="import sys, time\n\n\ndef test_a():\n    assert sys.stdin.isatty()\n    time.sleep(60)\n")
    options = ("-s", "-p", "no:cacheprovider", "-p", "pytest_tdd_agent", "--tdd-agent-audit")
    command = [sys.executable, "-m", "pytest", *options, "--tdd-agent-report=report.json"]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command,
        cwd=project.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (no lock is taken there)
    ) as process:
        os.close(theirs)
        stream = project.folder / "report.jsonl"
        while not stream.exists() or b'"begin"' not in stream.read_bytes():
            time.sleep(0.02)
        os.write(ours, b"\x03")
        printed = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while block := os.read(ours, 1 << 16):
                printed += block
    os.close(ours)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert (printed.count(b"! KeyboardInterrupt !"), printed.count(b"= tdd-agent =")) == (1, 1)
    assert b"incomplete run: no tests" in printed


@pytest.mark.slow
def test_workers_and_reruns_are_judged_from_outside_too(project: Project) -> None:
    flaky = "import product, pathlib\n\n\ndef test_flaky(tmp_path):\n    seen = pathlib.Path('seen')\n"
    flaky += "    before = seen.exists()\n    seen.touch()\n    assert before\n"
    project.write(test_product=TEST, test_flaky=flaky, product="def mul(a, b):\n    return a * b\n")
    options = ("--tdd-agent-flaky=1", "--tdd-agent-target", "test_product.py")
    run = run_alone(project, *GREEN, *TWO_WORKERS, *options)
    assert (run.status, run.report.supervised, run.verdict.open) == (0, True, True)
    assert run.cases["test_flaky"].tries == ("assertion", "passed")


@pytest.mark.slow
def test_standard_output_contains_only_the_report_if_that_is_asked_for(project: Project) -> None:
    project.write(test_product=TEST, product="import os\nos.write(1, b'noise')\n\n\ndef mul(a, b):\n    return 6\n")
    run = project.plain("-p", "pytest_tdd_agent", *GREEN, "--tdd-agent-report=-", "-s", start=True)
    assert run.printed == (project.folder / ".tdd-agent/report.json").read_text()
    assert (run.status, run.verdict.open) == (0, True)


@pytest.mark.slow
def test_a_usage_error_is_told_once_and_has_a_report(project: Project) -> None:
    project.write(conftest="raise ValueError('broken')\n")
    run = run_alone(project, *GREEN)
    assert (run.status, run.report.exit_status, run.report.complete) == (4, 4, False)
    assert run.output.count("ValueError: broken") == 1
    assert "= tdd-agent =" not in run.output


def test_a_run_that_only_collects_is_no_failure(project: Project) -> None:
    project.write(test_product=TEST, product=WRONG)
    assert run_alone(project, "--tdd-agent-audit", "--collect-only").status == 0


def build(*, status: int = 0, is_open: bool | None = None, problem: str = "") -> SuiteReport:
    verdict = None if is_open is None else Verdict("green", is_open)
    why = StreamProblem(problem) if problem else None
    return SuiteReport(not problem, status, "", "", "", "/", "", 0, gate=verdict, problem=why)


def test_the_exit_status_is_0_only_if_pytest_and_the_gate_say_so() -> None:
    def find(report: SuiteReport, status: int) -> int:
        return find_exit_status(report, ProcessEnd(status=status, survivors=()))

    assert [find(build(status=own), own) for own in range(6)] == [0, 1, 2, 3, 4, 5]
    assert [find(build(status=own), 0) for own in range(6)] == [0, 1, 2, 3, 4, 5]
    assert find(build(), 7) == 7
    assert find(build(), -signal.SIGSEGV) == 128 + signal.SIGSEGV
    assert [find(build(status=own, is_open=True), 0) for own in (0, 1, 5)] == [0, 0, 0]
    assert [find(build(status=own, is_open=False), 0) for own in range(6)] == [1, 1, 2, 3, 4, 1]
    assert [find(build(status=1, is_open=True), status) for status in (1, 7)] == [1, 7]
    assert [find(build(is_open=True, problem="after_end"), status) for status in (0, 1, -9)] == [1, 1, 137]
    assert find(build(problem="no_finish"), 0) == 1


def test_without_a_gate_failed_and_missing_tests_are_no_success() -> None:
    """Code under test can call ``pytest.exit`` with status 0, or take back the failures that the session counts."""
    failed, ending = replace(build(), tests=(Case("a::b", "failed", "a", 1, 0.1),)), ProcessEnd(status=0, survivors=())
    assert find_exit_status(failed, ending) == 1
    assert find_exit_status(replace(build(), complete=False), ending) == 1
    assert find_exit_status(replace(build(), complete=False), ending, runs_tests=False) == 0


@pytest.mark.parametrize(
    ("report", "ending", "notes"),
    [
        (build(), ProcessEnd(status=0, survivors=()), []),
        (
            build(status=1),
            ProcessEnd(status=0, survivors=()),
            ["ended with status 0, although pytest's own status was 1"],
        ),
        (build(status=1, is_open=True), ProcessEnd(status=0, survivors=()), []),
        (build(status=1, is_open=True), ProcessEnd(status=5, survivors=()), ["ended with status 5 after its tests"]),
        (build(problem="no_finish"), ProcessEnd(status=-9, survivors=()), ["ended by SIGKILL while a::b ran"]),
        (
            build(problem="after_end"),
            ProcessEnd(status=0, survivors=()),
            ["do not trust the results: A record came after"],
        ),
        (build(), ProcessEnd(status=0, survivors=(1, 2)), ["2 processes that the tests left could not be ended"]),
        (build(), ProcessEnd(status=0, survivors=None), ["may still run"]),
    ],
)
def test_what_happened_outside_of_the_tests_is_told(report: SuiteReport, ending: ProcessEnd, notes: list[str]) -> None:
    found = list_notes(report, ("a::b",), ending=ending)
    assert len(found) == len(notes)
    assert all(note in line for note, line in zip(notes, found, strict=True))
