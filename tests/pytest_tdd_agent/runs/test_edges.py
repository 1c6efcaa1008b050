"""Runs that end in odd ways, and tests that do odd things: what the report, the stream and the caller see."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from pytest_tdd_agent.codec import from_json
from pytest_tdd_agent.recording.spool import find_running_tests
from pytest_tdd_agent.report import summarize_internal_error
from pytest_tdd_agent.wording import explain
from tests.fakes.cases import soak_after

from ..conftest import TWO_WORKERS, XDIST, Project, Run

BESIDE = "def test_a(): pass\n{}\ndef test_c(): pass\n"
PROCESSES = soak_after(1, "processes", ((), XDIST), ids=["serial", "xdist"])


def outcomes(run: Run) -> dict[str, str]:
    return {name: case.outcome for name, case in run.cases.items()}


def running(run: Run) -> tuple[str, ...]:
    """The tests that the stream says were running when it broke off."""
    return find_running_tests((run.folder / run.name).with_suffix(".jsonl").read_bytes().splitlines())


def kinds(run: Run) -> dict[str, str]:
    return {name: case.failure.kind for name, case in run.cases.items() if case.failure is not None}


DEATHS = {
    "exit in a test": ("import os\n    os._exit(0)", 0),
    "exit in the product": ("import product\n    product.leave()", 0),
    "kill": ("import os; os.kill(os.getpid(), 9)", -9),
    "segfault": ("import ctypes; ctypes.string_at(0)", -11),
}


@soak_after(1, ("body", "status"), DEATHS.values(), ids=DEATHS)
def test_a_process_that_dies_leaves_no_report_and_a_stream_that_names_the_test(
    project: Project, body: str, *, status: int
) -> None:
    project.put("out/report.json", "an earlier run's")
    project.write(product="import os\ndef leave(): os._exit(0)\n", test_a=BESIDE.format(f"def test_b():\n    {body}"))
    run = project.pytest()
    assert run.status == status
    assert not (project.folder / "out/report.json").exists()
    assert running(run) == ("test_a.py::test_b",)


@pytest.mark.slow
def test_a_process_that_dies_at_import_leaves_only_the_start(project: Project) -> None:
    project.put("out/report.json", "an earlier run's")
    project.write(test_a="import os; os._exit(0)\n")
    run = project.pytest()
    assert (run.status, run.events) == (0, ["start"])
    assert not (project.folder / "out/report.json").exists()


@pytest.mark.slow
@soak_after(
    1,
    ("body", "workers"),
    [(DEATHS["kill"][0], TWO_WORKERS), (DEATHS["exit in the product"][0], XDIST)],
    ids=["kill", "exit"],
)
def test_a_worker_that_dies_fails_its_test_alone(project: Project, body: str, *, workers: tuple[str, ...]) -> None:
    project.write(product="import os\ndef leave(): os._exit(0)\n", test_a=BESIDE.format(f"def test_b():\n    {body}"))
    run = project.pytest(*workers)
    assert (run.status, run.report.complete) == (1, True)
    assert outcomes(run) == {"test_a": "passed", "test_b": "failed", "test_c": "passed"}
    assert kinds(run) == {"test_b": "crash"}
    assert running(run) == ()


@pytest.mark.slow
def test_an_endless_test_is_named_when_the_run_is_killed(project: Project) -> None:
    endless = "def test_b():\n    import threading\n    print('here', flush=True)\n    threading.Event().wait()"
    project.write(test_a=BESIDE.format(endless))
    args = ["-m", "pytest", "-s", "-p", "pytest_tdd_agent", "--tdd-agent-report", "out/report.json"]
    command = [sys.executable, *args]
    with subprocess.Popen(command, cwd=project.folder, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert any(b"here" in line for line in process.stdout)
        os.killpg(process.pid, signal.SIGKILL)
    run = Run(status=process.returncode, folder=project.folder, name="out/report.json")
    assert (run.status, running(run)) == (-9, ("test_a.py::test_b",))
    assert not (project.folder / "out/report.json").exists()


ENDINGS = {
    "exit in a test": ("", "import pytest; pytest.exit('x', returncode=0)", 0, {"test_a": "passed"}),
    "exit in a hook": (
        "import pytest\ndef pytest_runtest_setup(item):\n"
        "    if item.name == 'test_b': pytest.exit('x', returncode=0)\n",
        "pass",
        0,
        {"test_a": "passed"},
    ),
    "exit at the start": ("import pytest\ndef pytest_sessionstart(): pytest.exit('x', returncode=7)\n", "pass", 7, {}),
    "internal error": (
        "def pytest_runtest_logreport(report):\n    if 'test_b' in report.nodeid: raise ValueError\n",
        "pass",
        3,
        {"test_a": "passed"},
    ),
    "Ctrl-C": ("", "raise KeyboardInterrupt", 2, {"test_a": "passed"}),
    "usage error of another plugin": (
        "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_configure(): raise pytest.UsageError('no')\n",
        "pass",
        4,
        {},
    ),
    "exit at import": ("", "pass\nimport sys; sys.exit(0)", 3, {}),
}


@soak_after(1, ("conftest", "body", "status", "told"), ENDINGS.values(), ids=ENDINGS)
def test_a_run_that_ends_early_has_a_report_that_says_so(
    project: Project, conftest: str, *, body: str, status: int, told: Mapping[str, str]
) -> None:
    project.write(conftest=conftest, test_a=BESIDE.format(f"def test_b():\n    {body}"))
    run = project.pytest()
    assert (run.status, run.report.complete, run.report.exit_status) == (status, False, status)
    assert {name: case.outcome for name, case in run.cases.items() if name != "test_b"}.items() >= dict(told).items()
    assert run.events[-1] == "end"


def test_a_run_that_cannot_start_has_a_report_that_says_so(project: Project) -> None:
    project.write(test_a="def test_a(): pass\n")
    run = project.pytest("no_such.py")
    assert (run.status, run.report.exit_status, run.report.complete) == (4, 4, False)


@soak_after(
    1, ("conftest", "args"), [("import no_such\n", ()), ("", ("--no-such-option",))], ids=["conftest", "unknown option"]
)
def test_a_run_that_ends_before_it_is_configured_has_a_report_that_says_so(
    project: Project, conftest: str, *, args: tuple[str, ...]
) -> None:
    project.put("out/report.json", "an earlier run's")
    project.put("out/report.jsonl", "an earlier run's")
    project.write(conftest=conftest, test_a="def test_a(): pass\n")
    run = project.pytest("--tdd-agent-nonce", "n", *args)
    assert (run.status, run.report.exit_status, run.report.complete, run.report.nonce) == (4, 4, False, "n")
    assert not (project.folder / "out/report.jsonl").exists()
    printed = project.pytest("--tdd-agent-report", "-", *args).output
    assert printed.count('"schema"') == 1


@pytest.mark.slow
def test_what_is_stopped_in_a_worker_stops_the_run(project: Project) -> None:
    for body, statuses in (
        ("import pytest; pytest.exit('x', returncode=0)", (2, 3)),
        ("raise KeyboardInterrupt", (2,)),
    ):
        project.write(test_a=BESIDE.format(f"def test_b(): {body}"))
        run = project.pytest(*XDIST)
        assert run.status in statuses
        assert (run.report.complete, run.report.exit_status) == (False, run.status)
        assert outcomes(run).get("test_b") != "passed"


SELECTIONS = {
    "none": (("-k", "no_such"), 5, {}, True, 4),
    "first failure": (("-x",), 1, {"test_a": "passed", "test_b": "failed"}, False, 0),
    "two failures": (("--maxfail=2",), 1, {"test_a": "passed", "test_b": "failed", "test_c": "failed"}, False, 0),
    "collect only": (("--collect-only",), 0, {}, False, 0),
    "quietly collect only": (("--co", "-q"), 0, {}, False, 0),
    "setup only": (("--setup-only",), 0, {}, False, 0),
    "no terminal": (
        ("-p", "no:terminal", "--deselect", "test_a.py::test_b"),
        1,
        {"test_a": "passed", "test_c": "failed", "test_d": "passed"},
        True,
        1,
    ),
}


@soak_after(1, ("args", "status", "told", "complete", "deselected"), SELECTIONS.values(), ids=SELECTIONS)
def test_a_part_of_the_tests_is_reported_as_such(
    project: Project, args: tuple[str, ...], *, status: int, told: dict[str, str], complete: bool, deselected: int
) -> None:
    project.write(test_a="def test_a(): pass\ndef test_b(): assert 0\ndef test_c(): assert 0\ndef test_d(): pass\n")
    run = project.pytest(*args)
    assert (run.status, outcomes(run)) == (status, told)
    assert (run.report.complete, run.report.deselected) == (complete, deselected)


def test_a_project_without_tests_has_an_empty_report(project: Project) -> None:
    run = project.pytest()
    assert (run.status, run.report.tests, run.report.complete) == (5, (), True)


@pytest.mark.slow
def test_the_last_failures_alone_leave_the_others_out(project: Project) -> None:
    project.write(test_a="def test_a(): pass\ndef test_b(): assert 0\n", test_c="def test_c(): pass\n")
    args = ("-p", "cacheprovider", "--lf", "--import-mode=importlib")
    project.pytest(*args)
    run = project.pytest(*args)
    assert (outcomes(run), run.report.complete) == ({"test_b": "failed"}, True)


TAMPERING = """
import json, os, time
def test_replaces_for_good():
    os.getpid = lambda: 1
    os.write = json.dumps = json.loads = None
    time.perf_counter = time.time = time.monotonic = lambda: 0.0
def test_fails(): assert 0
def test_closes():
    os.closerange(3, 1000)
def test_passes(): pass
"""


@pytest.mark.slow
@PROCESSES
def test_tests_that_break_the_process_for_good_do_not_harm_the_report(
    project: Project, processes: tuple[str, ...]
) -> None:
    if processes:  # a worker without descriptors cannot speak to anybody
        project.write(test_a=TAMPERING.replace("os.closerange", "print"))
    else:
        project.write(test_a=TAMPERING)
    run = project.pytest("-s", *processes)
    told = {
        "test_replaces_for_good": "passed",
        "test_fails": "failed",
        "test_closes": "passed",
        "test_passes": "passed",
    }
    assert (run.status, outcomes(run), run.report.complete) == (1, told, True), run.output
    assert run.events[-2:] == ["finish", "end"]


PATCHES = """
import builtins, io, json, os, pathlib, re, time, traceback, warnings
import pytest

def refuse(*args, **options): raise ValueError("patched")

HELD = [
    (os, "sep", "\\\\"), (os.path, "sep", "\\\\"), (os, "write", refuse), (os, "replace", refuse),
    (os.path, "exists", refuse), (pathlib.Path, "read_text", refuse), (pathlib.Path, "read_bytes", refuse),
    (pathlib.Path, "resolve", refuse), (pathlib.Path, "open", refuse), (builtins, "open", refuse),
    (builtins, "any", lambda them: True), (builtins, "sum", refuse), (io, "open", refuse),
    (time, "time", lambda: "now"), (json, "dumps", refuse), (json.JSONEncoder, "iterencode", refuse),
    (traceback, "format_exception_only", refuse), (re, "match", refuse),
    (warnings, "filters", [("error", None, Warning, None, 0)]),
]

@pytest.mark.parametrize("owner, name, value", HELD)
def test_held(monkeypatch, owner, name, value):
    monkeypatch.setattr(owner, name, value)
    assert 1 == 2

def test_for_good():
    for owner, name, value in HELD:
        if name not in ("write", "open", "filters"):  # pytest needs these
            setattr(owner, name, value)
    warnings.showwarning = warnings.formatwarning = refuse
    os.makedirs("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    assert 1 == 2
"""
LATER = """
import pytest, product

def test_later(): product.later()
def test_raises():
    with pytest.raises(ValueError):
        product.other()
"""


@pytest.mark.parametrize("processes", [(), pytest.param(XDIST, marks=pytest.mark.slow)], ids=["serial", "xdist"])
def test_what_a_failing_test_patches_changes_neither_its_failure_nor_later_ones(
    project: Project, processes: tuple[str, ...]
) -> None:
    product = "def later():\n    raise NotImplementedError\n\ndef other(): raise KeyError\n"
    project.write(product=product, test_a=PATCHES, test_b=LATER)
    run = project.pytest("-p", "no:randomly", "--tdd-agent-audit", *processes)
    own = {
        (each.failure.kind, each.failure.origin)
        for name, each in run.cases.items()
        if "test_held" in name and each.failure
    }
    assert (own, run.report.complete, run.report.signs) == ({("assertion", "test")}, True, ()), run.output
    later, raises = (run.cases[name].failure for name in ("test_later", "test_raises"))
    assert later is not None
    assert raises is not None
    assert (later.kind, later.origin, later.path, later.line) == ("not_implemented", "project", "product.py", 2)
    assert (raises.kind, [frame.path for frame in raises.frames]) == ("wrong_exception", ["test_b.py", "product.py"])
    assert run.report.rootdir == str(project.folder)


EXITS = {
    "sessionfinish": ("def pytest_sessionfinish(): leave()", 5),
    "summary": ("def pytest_terminal_summary(): leave()", 5),
    "unconfigure": ("def pytest_unconfigure(): leave()", 5),
    "killed": ("def pytest_sessionfinish(): os.kill(os.getpid(), 9)", 128 + 9),
    "thread": ("def pytest_sessionfinish(): __import__('threading').Thread(target=leave).start()", 5),
    "at exit": ("import atexit; atexit.register(leave)", 5),
    "raises": ("def pytest_sessionfinish(): raise ValueError('odd')", 1),
}


@soak_after(2, ("hook", "status"), EXITS.values(), ids=EXITS)
def test_a_process_that_dies_after_its_tests_has_a_whole_report(project: Project, hook: str, *, status: int) -> None:
    project.write(conftest=f"import os\ndef leave(): os._exit(5)\n{hook}\n", test_a="def test_a(): assert 0\n")
    run = project.pytest("--tdd-agent-gate=red", "--tdd-agent-target=test_a.py", start=True)
    assert (run.status, outcomes(run), run.report.complete) == (status, {"test_a": "failed"}, True)
    assert (run.verdict.open, run.report.exit_status) == (True, 1)


def test_an_internal_error_of_pytest_is_in_the_report_and_in_the_verdict(project: Project) -> None:
    patches = "def test_a(monkeypatch):\n    monkeypatch.setattr(os, 'getcwd', refuse)\n    assert 0\n"
    project.write(test_a=f"import os\ndef refuse(): raise ValueError('no folder\\n  here')\n{patches}")
    run = project.pytest("--tdd-agent-gate=red")
    assert (run.status, run.report.complete, run.codes) == (3, False, ["run_incomplete"])
    assert summarize_internal_error(run.report) == "ValueError: no folder"
    assert "ValueError: no folder" in explain(run.verdict.reasons[0])


def test_a_process_that_dies_while_the_last_test_ends_has_no_report(project: Project) -> None:
    fixture = "@pytest.fixture(scope='session', autouse=True)\ndef ends():\n    yield\n    os._exit(0)\n"
    project.write(conftest=f"import os, pytest\n{fixture}", test_a="def test_a(): pass\n")
    run = project.pytest(start=True)
    assert (run.status, (project.folder / "out/report.json").exists()) == (0, False)


def test_what_other_hooks_change_when_the_session_ends_is_reported(project: Project) -> None:
    failing = "session.config.hook.pytest_internalerror(excrepr='odd', excinfo=None)"
    project.write(conftest=f"def pytest_sessionfinish(session): {failing}\n", test_a="def test_a(): pass\n")
    run = project.pytest()
    assert run.report.complete is False


@pytest.mark.slow
def test_a_fork_that_goes_on_running_tests_says_nothing(project: Project) -> None:
    project.write(test_a=BESIDE.format("def test_b():\n    import os\n    os.fork()"))
    printed = project.pytest("-W", "ignore", "--tdd-agent-report", "-")
    assert (printed.status, printed.output.count('"schema"')) == (0, 1)
    run = project.pytest("-W", "ignore")
    assert run.status == 0
    assert "do not trust the report" not in run.output
    assert outcomes(run) == {"test_a": "passed", "test_b": "passed", "test_c": "passed"}
    assert run.events == ["start", "collected", *["begin", "test"] * 3, "finish", "end"]
    assert sorted(path.name for path in (project.folder / "out").iterdir()) == ["report.json", "report.jsonl"]


ODD = """
import logging, pytest, unittest, warnings
@pytest.fixture
def broken(): raise ValueError
@pytest.fixture
def untidy():
    yield
    raise ValueError
@pytest.fixture(scope="module")
def parts():
    yield
    print("the end")
def test_setup(broken): pass
def test_teardown(untidy): pass
@pytest.mark.xfail
def test_xfail(): assert 0
@pytest.mark.xfail(strict=True)
def test_strict(): pass
@pytest.mark.xfail
def test_xpass(): pass
def test_subtests(subtests):
    for part in range(3):
        with subtests.test(part=part): assert part != 1
def test_subtests_xfailed(subtests):
    with subtests.test(): pytest.xfail("later")
def test_subtests_skipped(subtests):
    for part in range(2):
        with subtests.test(part=part): pytest.skip()
def test_prints():
    warnings.warn("one"); warnings.warn("two")
    print("x" * 10000 + "the end")
    assert 0
def test_logs():
    logging.getLogger().error("an object: %s", object(), extra={"odd": object()})
    assert 0
class Odd(Exception):
    def __str__(self): raise ValueError
    __repr__ = __str__
def test_unprintable(): raise Odd
def test_bytes(capfd):
    import os
    with capfd.disabled(): pass
    os.write(1, b"\\xff\\xfe"); os.write(2, b"\\xe9")
    assert 0
async def test_async(): assert 0
async def test_async_passes(): pass
class Box(unittest.TestCase):
    @unittest.expectedFailure
    def test_expected(self): assert 0
    @unittest.expectedFailure
    def test_unexpected(self): pass
    def test_parts(self):
        for part in range(3):
            with self.subTest(part=part): self.assertNotEqual(part, 1)
    def test_some_skipped(self):
        for part in range(3):
            with self.subTest(part=part): self.skipTest("") if part == 1 else None
    @unittest.skip("so")
    def test_skip(self): pass
class Unready(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise ValueError
    def test_it(self): pass
@pytest.mark.parametrize("text", ["a::b", "c d", "[e]", "\\u00fc", "f\\ng", "\\ud800"])
def test_ids(text): pass
"""
TOLD = {
    "test_setup": "error",
    "test_teardown": "error",
    "test_xfail": "xfailed",
    "test_strict": "failed",
    "test_xpass": "xpassed",
    "test_subtests": "failed",
    "test_subtests_xfailed": "skipped",
    "test_subtests_skipped": "skipped",
    "test_prints": "failed",
    "test_logs": "failed",
    "test_unprintable": "failed",
    "test_bytes": "failed",
    "test_async": "failed",
    "test_async_passes": "passed",
    "Box::test_expected": "xfailed",
    "Box::test_unexpected": "failed",
    "Box::test_parts": "failed",
    "Box::test_some_skipped": "passed",
    "Box::test_skip": "skipped",
    "Unready::test_it": "error",
    "test_ids[a::b]": "passed",
    "test_ids[c d]": "passed",
    "test_ids[[e]]": "passed",
    "test_ids[\u00fc]": "passed",
    "test_ids[f\ng]": "passed",
    "test_ids[\ud800]": "error",
}
ASYNC = """
import asyncio, inspect, pytest
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
def pytest_runtest_makereport(item):
    item.user_properties.append(("odd", 1))
"""
SETTINGS = "[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true\n"


@PROCESSES
def test_each_outcome_is_what_a_reader_expects(project: Project, processes: tuple[str, ...]) -> None:
    text, told = ODD, TOLD
    project.put("pytest.ini", SETTINGS + "addopts = --doctest-modules --continue-on-collection-errors\n")
    project.write(conftest=ASYNC, test_outcomes=text, test_unfit="import no_such\n")
    project.write(product='def double(x):\n    """\n    >>> double(2)\n    5\n    """\n    return 2 * x\n')
    if processes:  # with or without the plugin, xdist cannot send it
        project.write(test_outcomes=text.replace(', "\\ud800"', ""))
        told = {name: outcome for name, outcome in told.items() if "\ud800" not in name}
    run = project.pytest(*processes)
    assert outcomes(run) == {**told, "product.double": "failed"}
    report = run.report
    assert (run.status, report.exit_status, report.complete) == (1, 1, True)
    assert [(error.nodeid, error.failure.kind) for error in report.collect_errors] == [
        ("test_unfit.py", "missing_module")
    ]
    assert report.warnings == 2
    printed = run.cases["test_prints"].failure
    assert printed is not None
    assert printed.output.endswith("the end\n")
    assert len(printed.output) <= 2000
    assert kinds(run)["test_subtests"] == kinds(run)["Box::test_parts"] == "assertion"


@pytest.mark.slow
def test_of_tests_that_share_a_node_id_the_worst_counts(project: Project) -> None:
    project.write(
        conftest="""
import pytest
class Item(pytest.Item):
    def runtest(self): assert self.good
class File(pytest.File):
    def collect(self):
        for good in (True, False, True):
            item = Item.from_parent(self, name="same")
            item.good = good
            yield item
def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".txt": return File.from_parent(parent, path=file_path)
"""
    )
    project.put("test_a.txt", "")
    run = project.pytest("--tdd-agent-gate", "green")
    assert (run.codes, outcomes(run), run.report.collected) == (["target_failed"], {"same": "failed"}, 1)
    assert run.report.complete


@pytest.mark.slow
def test_of_a_test_that_a_plugin_repeats_the_last_try_counts(project: Project) -> None:
    project.write(
        conftest="""
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in runtestprotocol(item, nextitem=item, log=False):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
""",
        test_a="TRIES = []\ndef test_a():\n    TRIES.append(1)\n    assert len(TRIES) == 2\ndef test_b(): assert 0\n",
    )
    run = project.pytest()
    assert (outcomes(run), run.report.complete) == ({"test_a": "passed", "test_b": "failed"}, True)
    assert [case.reruns for case in run.report.tests] == [1, 1]


def test_an_outcome_of_a_plugin_is_a_try_that_does_not_count(project: Project) -> None:
    project.write(
        conftest="""
import copy, pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        first = copy.copy(report)
        first.outcome, report.outcome, report.longrepr = "retried", "passed", None
        item.ihook.pytest_runtest_logreport(report=first)
""",
        test_a=BESIDE.format("def test_b(): assert 0"),
    )
    run = project.pytest()
    assert (set(outcomes(run).values()), run.report.complete) == ({"passed"}, True)
    assert [case.reruns for case in run.report.tests] == [0, 1, 0]


@PROCESSES
def test_what_plugins_put_on_reports_does_not_hide_a_failure(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        conftest="""
import pytest
class Odd:
    def __str__(self): raise ValueError
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call" and item.name == "test_b": report.odd = object()
    if call.when == "call" and item.name == "test_d": report.longrepr = Odd()
""",
        test_a=BESIDE.format("def test_b(): assert 0") + "def test_d(): assert 0\n",
    )
    run = project.pytest("-p", "no:terminal", *processes)
    if processes:  # xdist loses a test that it cannot send, and even ends with 0
        assert not run.report.complete
        assert "passed" not in (outcomes(run).get("test_b"), outcomes(run).get("test_d"))
    else:
        assert run.status == 1
        assert outcomes(run) == {"test_a": "passed", "test_b": "failed", "test_c": "passed", "test_d": "failed"}


PRINTING = {
    "plain": (("-v",), 1),
    "without capturing": (("-s",), 1),
    "xdist": (XDIST, 1),
    "no terminal": (("-p", "no:terminal"), 1),
    "unknown path": (("no_such.py",), 4),
    "usage error": (("-p", "unfit"), 4),
    "interrupt": (("-p", "unfit", "--stop"), 2),
}


@soak_after(1, ("args", "status"), PRINTING.values(), ids=PRINTING)
def test_the_report_is_all_that_is_printed(project: Project, args: tuple[str, ...], *, status: int) -> None:
    project.write(
        conftest="def pytest_sessionfinish(): print('a hook prints')\ndef pytest_unconfigure(): print('so')\n",
        test_a="import os\ndef test_a(): print('a test prints'); os.system('echo a child prints'); assert 0\n",
        unfit="""
import pytest
def pytest_addoption(parser): parser.addoption("--stop", action="store_true")
@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    print("a plugin prints")
    raise KeyboardInterrupt if config.option.stop else pytest.UsageError("no")
""",
    )
    run = project.pytest("--tdd-agent-report", "-", *args)
    assert run.status == status
    assert from_json(json.loads(run.printed)).exit_status == status
    assert "hook prints" in run.errors or status != 1


@pytest.mark.slow
def test_pytest_inside_pytest_has_no_word_in_the_report(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\n")
    project.write(
        inner__check="def test_inner(): assert 0\n",
        test_a="""
import os, subprocess, sys
pytest_plugins = "pytester"
def test_in_process(pytester):
    pytester.makepyfile("def test_inner(): pass")
    inner = ("-p", "pytest_tdd_agent", "--tdd-agent", "-p", "no:xdist")
    assert pytester.inline_run(*inner).ret == 0
    assert not (pytester.path / ".tdd-agent").exists()
    pytester.makeini("[pytest]")
    assert pytester.inline_run(*inner).ret == 0
    assert (pytester.path / ".tdd-agent/report.json").exists()
def test_in_a_child():
    inner = [sys.executable, "-m", "pytest", "-p", "pytest_tdd_agent", "inner/check.py"]
    environment = {**os.environ, "PYTEST_ADDOPTS": "--tdd-agent"}
    assert subprocess.run(inner, env=environment).returncode == 1
    assert subprocess.run([*inner, "--tdd-agent-report", "inner/../.tdd-agent/report.json"]).returncode == 1
def test_after(): pass
""",
    )
    run = project.plain("-p", "pytest_tdd_agent", "--tdd-agent", "test_a.py")
    assert (run.status, run.report.complete) == (0, True), run.output
    assert outcomes(run) == {"test_in_process": "passed", "test_in_a_child": "passed", "test_after": "passed"}
    assert run.events == ["start", "collected", *["begin", "test"] * 3, "finish", "end"]


@pytest.mark.slow
def test_settings_are_the_defaults_of_options(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\ntdd_agent_report = kept/it.json\ntdd_agent_expects = ledger\n")
    project.write(test_a="import ledger\ndef test_a(): pass\n")
    run = project.plain("-p", "pytest_tdd_agent", "--tdd-agent-gate", "red", report="kept/it.json")
    assert (run.status, run.codes) == (0, [])
    (project.folder / "kept/it.json").unlink()
    assert project.plain("-p", "pytest_tdd_agent").status == 2
    assert not (project.folder / "kept/it.json").exists()


@pytest.mark.slow
def test_where_each_worker_runs_each_test_the_worst_counts(project: Project) -> None:
    project.write(test_a="import os\ndef test_a(): assert os.environ['PYTEST_XDIST_WORKER'] != 'gw0'\n")
    run = project.pytest(*TWO_WORKERS, "--dist", "each")
    assert (outcomes(run), run.report.complete, run.cases["test_a"].reruns) == ({"test_a": "failed"}, True, 0)


@pytest.mark.slow
def test_options_that_a_pytest_inside_a_test_inherits_do_nothing_there(project: Project) -> None:
    project.put("pytest.ini", "[pytest]\naddopts = -p pytest_tdd_agent --tdd-agent\n")
    project.write(
        inner__test_inner="def test_inner(): pass\n",
        test_a="""
import os, subprocess, sys
def test_a():
    inner = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=inner", "inner"]
    assert b"= tdd-agent =" not in subprocess.run(inner, stdout=subprocess.PIPE, check=True).stdout
    assert not os.path.exists("inner/.tdd-agent")
""",
    )
    run = project.plain("test_a.py", *XDIST)
    assert (run.status, run.report.complete) == (0, True), run.output


@pytest.mark.slow
@PROCESSES
def test_a_file_that_skips_itself_is_counted_as_pytest_does_with_its_reason(
    project: Project, processes: tuple[str, ...]
) -> None:
    project.write(
        test_a="import pytest\npytest.importorskip('no_such')\ndef test_a(): pass\n", test_b="def test_b(): pass\n"
    )
    run = project.pytest("--tdd-agent", *processes)
    assert "1 passed, 1 skipped" in run.output
    skipped = next(case for case in run.report.tests if case.outcome == "skipped")
    assert (skipped.nodeid, skipped.file, run.report.complete) == ("test_a.py", "test_a.py", True)
    assert skipped.reason.startswith("could not import 'no_such'")
    for target in ("test_a.py::test_a", "test_a.py"):
        for phase in ("green", "red"):
            run = project.pytest("--tdd-agent-gate", phase, "--tdd-agent-target", target, *processes)
            assert run.codes == ["skipped_target"]
            assert "could not import 'no_such'" in explain(run.verdict.reasons[0])
