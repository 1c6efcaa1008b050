from pathlib import Path

import pytest

from cdd_agent.testrun.detect import find_interpreter
from cdd_agent.testrun.run import Suite, SuiteRun
from cdd_agent.testrun.sandbox import ProcessSandbox
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import summary


def run(folder: Path, *targets: str, timeout_s: float = 60, keep: Path | None = None) -> SuiteRun:
    suite = Suite(
        root=folder,
        interpreter=find_interpreter(folder, environment={}),
        sandbox=ProcessSandbox(),
        timeout_s=timeout_s,
        bytecode=folder / ".cdd" / "bytecode",
    )
    return suite.run(targets, keep=keep)


def outcomes(result: SuiteRun) -> dict[str, str]:
    assert result.report is not None, result.problem
    return {case.nodeid: case.outcome for case in result.report.tests}


def test_every_test_is_reported_and_the_report_is_kept(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass\ndef test_two(): assert 1 == 2\n")
    kept = tmp_path / ".cdd" / "reports" / "a.json"
    result = run(tmp_path, keep=kept)
    assert outcomes(result) == {"test_a.py::test_one": "passed", "test_a.py::test_two": "failed"}
    assert load(kept) == result.report
    assert {path.name for path in tmp_path.iterdir()} == {"test_a.py", ".cdd", ".pytest_cache"}, "no __pycache__"


def test_only_the_targets_are_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass\ndef test_two(): assert 1 == 2\n")
    assert outcomes(run(tmp_path, "test_a.py::test_one")) == {"test_a.py::test_one": "passed"}


def test_a_file_that_cannot_be_imported_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import not_written_yet\n")
    (tmp_path / "test_b.py").write_text("def test_one(): pass\n")
    result = run(tmp_path)
    assert outcomes(result) == {"test_b.py::test_one": "passed"}
    assert result.report is not None
    (error,) = result.report.collect_errors
    assert (error.failure.kind, error.failure.missing_name) == ("missing_module", "not_written_yet")


def test_a_run_that_dies_has_no_report_to_trust(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import os\ndef test_one(): os._exit(0)\n")
    result = run(tmp_path)
    assert result.report is None
    assert result.problem is not None
    assert "left no report" in result.problem


def test_a_run_that_hangs_is_ended_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import time\ndef test_one(): time.sleep(60)\n")
    result = run(tmp_path, timeout_s=3)
    assert result.report is None
    assert result.problem == "the tests did not end within 3 s"
    assert result.duration_s < 20


def test_a_project_without_tests_has_an_empty_report(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.report is not None
    assert summary(result.report)["collected"] == 0


def test_an_edit_within_the_same_second_is_judged_as_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("from code_here import add\ndef test_one(): assert add(1, 2) == 3\n")
    for operator, expected in (("-", "failed"), ("+", "passed"), ("-", "failed")):
        (tmp_path / "code_here.py").write_text(f"def add(a, b): return a {operator} b\n")
        assert outcomes(run(tmp_path)) == {"test_a.py::test_one": expected}


def test_nothing_but_the_plugin_is_put_on_the_projects_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    (tmp_path / "test_a.py").write_text(
        "import os, sys\n"
        "def test_one():\n"
        "    plugin, theirs = os.environ['PYTHONPATH'].split(os.pathsep)[:2]\n"
        "    assert [name[:10] for name in os.listdir(plugin)] == ['tdd_agent_']\n"
        f"    assert theirs == {str(tmp_path / 'lib')!r}\n"
    )
    assert outcomes(run(tmp_path)) == {"test_a.py::test_one": "passed"}


@pytest.mark.parametrize("option", ["-x", "--maxfail=1", "--stepwise"])
def test_an_option_of_the_project_does_not_stop_the_run_at_a_failure(tmp_path: Path, option: str) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {option}\n")
    (tmp_path / "test_a.py").write_text("def test_one(): assert 1 == 2\ndef test_two(): pass\n")
    assert outcomes(run(tmp_path)) == {"test_a.py::test_one": "failed", "test_a.py::test_two": "passed"}


def test_a_run_that_something_stops_says_what_stopped_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_configure(config): config.option.maxfail = 1\n")
    (tmp_path / "test_a.py").write_text("def test_one(): assert 1 == 2\ndef test_two(): pass\n")
    problem = run(tmp_path).problem
    assert problem is not None
    assert problem.startswith("the run ended early (pytest status 1): stopping after 1 failures")
    assert "--maxfail" in problem
    (tmp_path / "conftest.py").unlink()
    (tmp_path / "test_a.py").write_text("import pytest\ndef test_one(): pytest.exit('enough')\ndef test_two(): pass\n")
    problem = run(tmp_path).problem
    assert problem is not None
    assert problem.endswith("enough")


def test_a_member_of_a_workspace_has_node_ids_of_its_own_and_the_workspaces_configuration(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_functions = check_*\npythonpath = lib\n")
    (tmp_path / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef three(): return 3\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/shared_here.py").write_text("THREE = 3\n")
    member = tmp_path / "packages" / "a"
    (member / "tests").mkdir(parents=True)
    (member / "tests/test_a.py").write_text(
        "from shared_here import THREE\ndef check_one(three): assert three == THREE\ndef test_two(): assert 0\n"
    )
    assert outcomes(run(member)) == {"tests/test_a.py::check_one": "passed"}
    assert outcomes(run(member, "tests/test_a.py::check_one")) == {"tests/test_a.py::check_one": "passed"}
    (tmp_path / "link").symlink_to(member)
    assert outcomes(run(tmp_path / "link")) == {"tests/test_a.py::check_one": "passed"}


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


@pytest.mark.parametrize("configuration", ["", "addopts = -n2\npythonpath = .\n"])
def test_a_package_of_the_project_named_like_the_plugin_or_pytest_judges_nothing(
    tmp_path: Path, configuration: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{configuration}")
    (tmp_path / "pytest_tdd_agent").mkdir()
    (tmp_path / "pytest_tdd_agent/__init__.py").write_text(LIAR)
    if "-n" not in configuration:  # a worker of xdist is started in the current folder, and dies of it
        (tmp_path / "pytest.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "test_a.py").write_text(
        "import pytest_tdd_agent\n"
        "def test_one(): assert 1 == 2\n"
        "def test_two(): assert pytest_tdd_agent.pytest_addoption\n"
    )
    assert outcomes(run(tmp_path)) == {"test_a.py::test_one": "failed", "test_a.py::test_two": "passed"}


def test_the_project_is_on_the_path_and_the_program_is_pytest(tmp_path: Path) -> None:
    (tmp_path / "code_here.py").write_text("def child(): return 3\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        "import multiprocessing, sys\n"
        "from code_here import child\n"
        "def test_one(): assert sys.argv[0].endswith('__main__.py') and 'pytest' in sys.argv[0]\n"
        "def test_two():\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.apply(child) == 3\n"
    )
    assert set(outcomes(run(tmp_path)).values()) == {"passed"}
