"""Results of runs of pytest, and messages about runs that did not work."""

import ast
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import pytest_tdd_agent
from cdd_agent import storage
from cdd_agent.sandbox.port import Command, Result
from cdd_agent.testrun.inside import compiler, launcher, plain_pytest, redirect, run_plugin
from cdd_agent.testrun.interpreter import find_interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import StreamProblem, count_outcomes
from tests.cdd_agent.testrun.conftest import outcomes, problem
from tests.fakes.cases import soak_after

STANDARD = {
    "__future__",
    "gc",
    "hashlib",
    "importlib",
    "inspect",
    "json",
    "logging",
    "marshal",
    "os",
    "pathlib",
    "sys",
    "typing",
    "warnings",
}
"""Modules that the launcher and its plugin may use besides pytest."""


def test_every_test_is_reported_and_the_report_is_kept(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass\ndef test_two(): assert 1 == 2\n")
    kept = tmp_path / ".cdd" / "reports" / "a.json"
    result = suite.run(keep=kept)
    assert outcomes(result) == {"test_a.py::test_one": "passed", "test_a.py::test_two": "failed"}
    assert load(kept) == result.report
    assert {path.name for path in tmp_path.iterdir()} == {"test_a.py", ".cdd", ".pytest_cache"}, "no __pycache__"


@pytest.mark.slow
def test_only_the_targets_are_run(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass\ndef test_two(): assert 1 == 2\n")
    assert outcomes(suite.run(("test_a.py::test_one",))) == {"test_a.py::test_one": "passed"}


@pytest.mark.slow
def test_all_tests_are_those_that_the_user_s_command_selects_and_targets_are_not_narrowed(
    tmp_path: Path, suite: PytestSuite
) -> None:
    for name in ("unit", "slow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text(
            "import warnings\ndef test_one(): warnings.warn('old')\ndef test_two(): pass\n"
        )
    narrowed = replace(suite, selects=("unit", "-k", "one"), options=("-W", "error"))
    assert outcomes(narrowed.run()) == {"unit/test_unit.py::test_one": "failed"}
    assert set(outcomes(narrowed.run(("slow/test_slow.py::test_two",)))) == {"slow/test_slow.py::test_two"}
    assert narrowed.command.endswith("-m pytest -W error unit -k one")


@pytest.mark.slow
def test_a_file_that_cannot_be_imported_does_not_stop_the_others(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("import not_written_yet\n")
    (tmp_path / "test_b.py").write_text("def test_one(): pass\n")
    result = suite.run()
    assert outcomes(result) == {"test_b.py::test_one": "passed"}
    assert result.report is not None
    (error,) = result.report.collect_errors
    assert (error.failure.kind, error.failure.missing_name) == ("missing_module", "not_written_yet")


@pytest.mark.slow
def test_a_package_in_src_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "src" / "ledger").mkdir(parents=True)
    (tmp_path / "src" / "ledger" / "__init__.py").write_text("")
    (tmp_path / "test_a.py").write_text("import ledger\n\n\ndef test_one(): pass\n")
    copy = shutil.copytree(tmp_path, tmp_path / ".cdd" / "copy")
    said = problem(suite.with_root(copy).run())
    assert said.startswith("no test can import ledger, which is in src and not installed: ")
    assert said.endswith(f"-m pip install -e {tmp_path}")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}


@pytest.mark.slow
def test_a_project_without_tests_has_an_empty_report(tmp_path: Path, suite: PytestSuite) -> None:
    result = suite.run()
    assert result.report is not None
    assert count_outcomes(result.report)["collected"] == 0


@pytest.mark.slow
def test_no_option_of_the_project_stops_the_run_at_a_failure(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -x --maxfail=1 --stepwise\n")
    (tmp_path / "test_a.py").write_text("def test_one(): assert 1 == 2\ndef test_two(): pass\n")
    assert outcomes(suite.run()) == {"test_a.py::test_one": "failed", "test_a.py::test_two": "passed"}


@pytest.mark.slow
def test_a_member_of_a_workspace_has_node_ids_of_its_own_and_the_workspaces_configuration(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_functions = check_*\npythonpath = lib\n")
    (tmp_path / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef three(): return 3\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/shared_here.py").write_text("THREE = 3\n")
    member = tmp_path / "packages" / "a"
    (member / "tests").mkdir(parents=True)
    (member / "tests/test_a.py").write_text(
        "from shared_here import THREE\ndef check_one(three): assert three == THREE\ndef test_two(): assert 0\n"
    )
    assert outcomes(replace(suite, root=member).run()) == {"tests/test_a.py::check_one": "passed"}
    (tmp_path / "link").symlink_to(member)
    linked = replace(suite, root=tmp_path / "link")
    assert outcomes(linked.run(("tests/test_a.py::check_one",))) == {"tests/test_a.py::check_one": "passed"}


LIAR = """
import pytest
def pytest_addoption(parser):
    for name in ("--tdd-agent-report", "--tdd-agent-nonce"):
        parser.addoption(name)
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""


@soak_after(1, "workers", ["", "-n1"])
def test_a_package_of_the_project_named_like_the_plugin_or_pytest_judges_nothing(
    tmp_path: Path, suite: PytestSuite, *, workers: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "pytest_tdd_agent").mkdir()
    (tmp_path / "pytest_tdd_agent/__init__.py").write_text(LIAR)
    if workers:
        (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {workers}\npythonpath = .\n")
        suite = replace(suite, interpreter=request.getfixturevalue("with_xdist"))
    else:  # a worker of xdist is started in the current folder, and dies of it
        (tmp_path / "pytest.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "test_a.py").write_text(
        "import pytest_tdd_agent\n"
        "def test_one(): assert 1 == 2\n"
        "def test_two(): assert pytest_tdd_agent.pytest_addoption\n"
    )
    assert outcomes(suite.run()) == {"test_a.py::test_one": "failed", "test_a.py::test_two": "passed"}


@pytest.mark.slow
def test_the_project_is_on_the_path_and_the_program_is_pytest(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "code_here.py").write_text("def child(): return 3\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        "import gc, multiprocessing, sys\n"
        "from code_here import child\n"
        "def test_one(): assert sys.argv[0].endswith('__main__.py') and 'pytest' in sys.argv[0] and gc.isenabled()\n"
        "def test_two():\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.apply(child) == 3\n"
    )
    assert set(outcomes(suite.run()).values()) == {"passed"}


def test_a_run_that_dies_names_its_end_and_the_test(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("import os\ndef test_one(): pass\ndef test_two(): os._exit(0)\n")
    said = problem(suite.run())
    assert said.startswith("pytest ended with status 0 while test_a.py::test_two was running: a test or hook ended the")
    (tmp_path / "test_a.py").write_text("import os\ndef test_one(): os.abort()\n")
    assert "ended by SIGABRT while test_a.py::test_one was running" in problem(suite.run())


def test_a_run_that_hangs_is_ended_and_names_the_test(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("import time\ndef test_one(): pass\ndef test_two(): time.sleep(60)\n")
    result = replace(suite, timeout_s=4).run()
    assert problem(result) == "the tests did not end within 4 s: ended while test_a.py::test_two was running"
    assert result.duration_s < 20


@pytest.mark.slow
def test_a_run_that_something_stops_says_what_stopped_it_and_where(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_configure(config): config.option.maxfail = 1\n")
    (tmp_path / "test_a.py").write_text("def test_one(): assert 1 == 2\ndef test_two(): pass\n")
    said = problem(suite.run())
    assert said.startswith("the run ended early (pytest status 1): stopping after 1 failures")
    assert "--maxfail" in said
    (tmp_path / "conftest.py").unlink()
    (tmp_path / "test_a.py").write_text("import pytest\ndef test_one(): pytest.exit('enough')\ndef test_two(): pass\n")
    said = problem(suite.run())
    assert said.startswith("the run ended early (pytest status 2) while test_a.py::test_one was running: ")
    assert said.endswith("enough")


@pytest.mark.slow
def test_processes_that_tests_leave_behind_neither_hold_a_run_up_nor_outlive_it(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "test_a.py").write_text(
        "import os, subprocess, sys, time\n"
        "def test_fork():\n"
        "    child = os.fork()\n"
        "    if not child: time.sleep(60); os._exit(0)\n"
        "    open('forked', 'w').write(str(child))\n"
        "def test_orphan():\n"  # in a session of its own, with our output still open
        "    nap = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "    open('orphan', 'w').write(str(subprocess.Popen(nap, start_new_session=True).pid))\n"
    )
    result = suite.run()
    assert outcomes(result) == {"test_a.py::test_fork": "passed", "test_a.py::test_orphan": "passed"}
    assert result.duration_s < 30
    for name in ("forked", "orphan"):
        status = Path(f"/proc/{(tmp_path / name).read_text()}/stat")
        assert not status.exists() or status.read_text().split(")")[1].split()[0] == "Z"


ENTRY_POINT = "[pytest11]\npytest_tdd_agent = pytest_tdd_agent\n"


@soak_after(1, "workers", ["", "-n1"])
def test_neither_the_users_environment_nor_the_projects_options_keep_the_plugin_out(
    tmp_path: Path, suite: PytestSuite, *, monkeypatch: pytest.MonkeyPatch, workers: str, request: pytest.FixtureRequest
) -> None:
    if workers:
        suite = replace(suite, interpreter=request.getfixturevalue("with_xdist"))
    installed = tmp_path / "installed"
    (installed / "tdd_agent-0.1.0.dist-info").mkdir(parents=True)
    (installed / "tdd_agent-0.1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: tdd-agent\nVersion: 0\n"
    )
    (installed / "tdd_agent-0.1.0.dist-info/entry_points.txt").write_text(ENTRY_POINT)
    (installed / "pytest_tdd_agent").symlink_to(Path(pytest_tdd_agent.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nosuch -p no:terminal")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "nosuch")
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\naddopts = -p no:pytest_tdd_agent --strict-config -W error {workers}\ntestpaths = tests\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        "import os, subprocess, sys\n"
        "def test_one(pytestconfig):\n"
        f"    assert os.environ['PYTHONPATH'] == {str(installed)!r}\n"
        "    path = subprocess.check_output([sys.executable, '-c', 'import sys; print(sys.path)'], text=True)\n"
        "    assert 'cdd-testrun' not in path\n"
        "    assert not pytestconfig.pluginmanager.has_plugin('pytest_tdd_agent')\n"
        f"    assert ('PYTEST_XDIST_WORKER' in os.environ) == {bool(workers)}\n"
        "    assert not [name for name in ('PYTEST_ADDOPTS', 'PYTEST_PLUGINS') if name in os.environ]\n"
    )
    result = suite.run()
    assert outcomes(result) == {"tests/test_a.py::test_one": "passed"}, result.output
    assert result.notices == ()


@pytest.mark.slow
def test_options_of_absent_plugins_are_left_out_and_that_is_said(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nosuch=3 -x\n")
    (tmp_path / "test_a.py").write_text("def test_one(): pass\n")
    result = suite.run()
    assert outcomes(result) == {"test_a.py::test_one": "passed"}
    (notice,) = result.notices
    assert notice.startswith("the tests ran without the project's addopts, which pytest refused: ")
    assert "unrecognized arguments: --nosuch=3; " in notice
    assert f"{suite.interpreter.path} -m pip install" in notice


@soak_after(
    1,
    ("settings", "said"),
    [
        ("required_plugins = pytest-nosuch pytest-nosuch2>=1", "-m pip install pytest-nosuch 'pytest-nosuch2>=1'"),
        ("minversion = 99.0", "'minversion' requires pytest-99.0"),
        ("nosuch = 1\naddopts = --strict-config", "Unknown config option: nosuch"),
    ],
)
def test_what_pytest_refuses_is_the_problem_with_what_to_do(
    tmp_path: Path, suite: PytestSuite, *, settings: str, said: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    why = problem(suite.run())
    assert said in why
    assert "test session starts" not in why


@pytest.mark.slow
def test_a_conftest_that_cannot_be_imported_is_named(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "conftest.py").write_text("import nosuch\n")
    why = problem(suite.run())
    assert "conftest.py': ModuleNotFoundError: No module named 'nosuch'; fix that file" in why


class Recorder:
    """A sandbox that runs nothing and keeps the arguments of pytest."""

    level = "none"

    def __init__(self, output: str = "") -> None:
        self.commands: list[list[str]] = []
        self.output = output

    def run(self, command: Command) -> Result:
        task = json.loads(Path(command.argv[1]).with_name("task.json").read_text(encoding="utf-8"))
        self.commands.append(task["arguments"])
        return Result(exit_status=1, head=self.output, dropped_bytes=0, timed_out=False, duration_s=0, level=self.level)


def test_a_full_disk_is_named_where_there_is_no_report(suite: PytestSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    said = problem(replace(suite, sandbox=Recorder("OSError: [Errno 28] No space left on device\n...\n")).run())
    assert said == "pytest ended with status 1 and left no report: ...; the tests said: No space left on device"
    monkeypatch.setattr(storage, "_LEAST_FREE_BYTES", 1 << 62)
    said = problem(replace(suite, sandbox=Recorder()).run())
    assert "left no report: no output. The disk of /" in said
    assert " is full. (hint: see how much room is left: df -h /" in said


def test_flaky_tests_are_tried_again_only_if_that_is_asked_for(suite: PytestSuite) -> None:
    recorder = Recorder()
    assert problem(replace(suite, sandbox=recorder).run()) == "pytest ended with status 1 and left no report: no output"
    replace(suite, sandbox=recorder, flaky=2).run()
    without, asked = recorder.commands
    assert "--tdd-agent-test-timeout" not in without
    assert "--tdd-agent-flaky" not in without
    assert asked[asked.index("--tdd-agent-flaky") + 1] == "2"


@pytest.mark.slow
def test_a_copy_of_the_project_is_judged_by_the_interpreter_in_the_project(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.venv").symlink_to(suite.interpreter.path.parent.parent)
    (tmp_path / "project/code_here.py").write_text("ANSWER = 41\n")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/code_here.py").write_text("ANSWER = 42\n")
    (tmp_path / "copy/test_a.py").write_text(
        "import sys\nfrom code_here import ANSWER\ndef test_one(): assert (ANSWER, sys.prefix) == "
        f"(42, {str(tmp_path / 'project/.venv')!r})\n"
    )
    interpreter = find_interpreter(tmp_path / "project", environment={})
    project = replace(suite, root=tmp_path / "project", interpreter=interpreter)
    assert outcomes(replace(project, root=tmp_path / "copy").run()) == {"test_a.py::test_one": "passed"}


@pytest.mark.parametrize("module", [launcher, redirect, run_plugin, compiler, plain_pytest])
def test_what_runs_in_the_projects_interpreter_is_python_3_8_and_needs_nothing_but_pytest(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), feature_version=(3, 8))
    typed = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    tree.body = [node for node in tree.body if node not in typed]
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in modules} - STANDARD <= {"pytest", "_pytest"}


HIDDEN = """\
import logging, subprocess, sys

ASKS = "import os; print(*os.environ, open(f'/proc/{os.getppid()}/cmdline').read())"


def test_log():
    assert logging.getLogger().handlers == []


def test_folder(tmp_path):
    assert tmp_path.parent.name == "files"


def test_caplog(caplog):
    logging.getLogger().warning("x")
    assert caplog.text


def test_program(capfd):
    logging.getLogger().warning("x")
    shown = subprocess.check_output([sys.executable, "-c", ASKS], text=True)
    assert "_CURRENT_TEST" not in shown and "--rootdir" not in shown
    assert capfd.readouterr().err == ""
"""


@pytest.mark.slow
def test_a_run_may_hide_from_tests_and_their_programs_that_pytest_runs_them(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text(HIDDEN)
    hiding = replace(suite, is_plain=True, hides_run=True)
    assert {*outcomes(hiding.run(("test_a.py",))).values()} == {"passed"}
    (tmp_path / "conftest.py").write_text("NAME = 'PYTEST_CURRENT_TEST'\n")
    assert outcomes(hiding.run(("test_a.py",)))["test_a.py::test_program"] == "failed"


@pytest.mark.slow
def test_a_test_that_never_ends_has_failed_in_a_saved_report_and_the_others_run(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest, time\n\n\n@pytest.mark.parametrize('x', [1, 2])\n"
        "def test_loop(x):\n    while x == 2: time.sleep(0.01)\n\n\n"
        "def test_loop_ends(): pass\n\n\ndef test_fails(): assert 0\n"
    )
    run = replace(suite, timeout_s=5, flaky=1).run(keep=tmp_path / ".cdd" / "a.json")
    assert outcomes(run) == {
        "test_a.py::test_loop[1]": "passed",
        "test_a.py::test_loop_ends": "passed",
        "test_a.py::test_fails": "failed",
        "test_a.py::test_loop[2]": "failed",
    }
    report = load(tmp_path / ".cdd" / "a.json")
    assert report == run.report
    failure = report.tests[-1].failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("timeout", "the test did not end within 5 s")
    assert (report.complete, report.collected, report.deselected, report.signs) == (True, 4, 0, ())
    assert run.notices[0] == "test_a.py::test_loop[2] did not end: it counts as failed."


def test_a_test_that_survives_its_own_limit_is_in_the_report(tmp_path: Path, suite: PytestSuite) -> None:
    grace = "import sys\nnext(v for n, v in sys.modules.items() if n.endswith('.time_limit')).GRACE_S = 0.2\n"
    (tmp_path / "conftest.py").write_text(grace)
    survive = "import time\ndef test_a(): pass\ndef test_b():\n    while True:\n        try: time.sleep(0.01)\n"
    (tmp_path / "test_a.py").write_text(f"{survive}        except BaseException: pass\ndef test_c(): pass\n")
    run = suite.with_test_limit(0.3).run(keep=tmp_path / ".cdd" / "a.json")
    report = run.report
    assert report is not None
    assert (report.complete, report.problem) == (False, StreamProblem("endless_test", "test_a.py::test_b"))
    assert [(case.nodeid, case.outcome) for case in report.tests] == [
        ("test_a.py::test_a", "passed"),
        ("test_a.py::test_b", "failed"),
    ]
    failure = report.tests[-1].failure
    assert failure is not None
    assert (failure.kind, failure.path, failure.frames[-1].function) == ("timeout", "test_a.py", "test_b")
    assert suite.signature != suite.with_test_limit(0.3).signature or suite.signature is None


@pytest.mark.slow
def test_tests_that_are_slow_together_are_not_blamed_on_the_last_one(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest, time\n\n\n@pytest.mark.parametrize('x', range(99))\ndef test_a(x): time.sleep(0.2)\n"
    )
    run = replace(suite, timeout_s=3).run(keep=tmp_path / ".cdd" / "a.json")
    assert (run.report, run.cause) == (None, "timed_out")
