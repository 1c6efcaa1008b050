from dataclasses import replace

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Notice, SuiteFinished, SuiteStarted
from cdd_agent.tdd.context import Context, find_refused_socket
from cdd_agent.testrun.impact import load_impact
from cdd_agent.work.records import find_records
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


@pytest.fixture
def context(project: Project) -> Context:
    """Of a run that has begun."""
    return begin(project)


def begin(project: Project) -> Context:
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    return context


def write(context: Context, path: str, content: str) -> None:
    """Write a file where the run works."""
    (context.workspace.root / path).write_text(content)


def test_a_run_of_tests_is_told_before_and_after(project: Project, context: Context) -> None:
    write(context, "tests/test_more.py", "def test_more():\n    assert 1 == 2\n")
    kept = find_records(project.folder).folder / "reports" / "a.json"
    run = context.run_suite("all tests", keep=kept)
    assert run.report is not None
    assert kept.exists()
    started, finished = project.seen
    assert started == SuiteStarted(purpose="all tests", targets=(), framework="pytest")
    assert isinstance(finished, SuiteFinished)
    assert (finished.passed, finished.failed, finished.errors, finished.problem) == (1, 1, 0, None)


def test_a_notice_of_the_runs_is_told_once(project: Project, context: Context) -> None:
    run = context.run_suite("all tests")
    project.fake.answers.extend([replace(run, notices=("without addopts", "without addopts"))] * 2)
    for _ in range(2):
        context.run_suite("all tests")
    assert [event.text for event in project.seen if isinstance(event, Notice)] == ["without addopts"]


def test_a_run_ends_if_the_user_has_to_install_the_project_again(project: Project, context: Context) -> None:
    run = context.run_suite("all tests")
    project.fake.answers.append(replace(run, outdated=("sums.new cannot be imported.", "pip install -e .")))
    with pytest.raises(EnvironmentMissing, match="cannot be imported") as caught:
        context.run_suite("all tests")
    assert caught.value.hint == "install it in a mode that finds new files: pip install -e ."


def test_files_that_the_tests_write_change_or_delete_are_put_back_and_kept(project: Project, context: Context) -> None:
    test = (
        "import pathlib\n\n\ndef test_writes():\n    pathlib.Path('a.db').write_text('new')\n"
        "    pathlib.Path('prices.py').write_text('changed')\n    pathlib.Path('pytest.ini').unlink()\n"
    )
    write(context, "tests/test_writes.py", test)
    write(context, "model.txt", "of the model\n")
    project.write({"prices.py": "mine = 1\n"})
    before = context.workplace.tree.list_uncommitted()
    context.run_suite("all tests")
    assert context.workplace.tree.list_uncommitted() == before == ("model.txt", "tests/test_writes.py")
    assert (context.workspace.root / "model.txt").read_text() == "of the model\n"
    assert project.git("show", "refs/cdd/tests/sale/after:a.db") == "new"
    assert project.status == " M prices.py"
    assert (project.folder / "prices.py").read_text() == "mine = 1\n"


def test_a_run_that_comes_to_nothing_is_told_with_its_problem(real_project: Project) -> None:
    context = begin(real_project)
    write(context, "pytest.ini", "[pytest]\nminversion = 99\n")
    context.run_suite("all tests")
    finished = real_project.seen[-1]
    assert isinstance(finished, SuiteFinished)
    assert finished.problem is not None
    assert "pytest-99" in finished.problem
    assert finished.passed == 0


@pytest.mark.slow
def test_of_a_test_in_a_file_that_cannot_be_imported_the_file_is_run(context: Context) -> None:
    test = "from discount import discount\n\n\ndef test_more():\n    assert discount\n"
    write(context, "tests/test_more.py", test)
    run = context.run_targets("targets", targets=("tests/test_more.py::test_more",))
    assert run.report is not None
    assert [error.failure.kind for error in run.report.collect_errors] == ["missing_module"]
    alone = context.run_targets("targets", targets=("tests/test_prices.py::test_total",))
    assert alone.report is not None
    assert [case.outcome for case in alone.report.tests] == ["passed"]


def test_what_a_run_of_all_tests_notes_about_files_is_saved_and_one_of_some_tests_adds_to_it(
    project: Project, context: Context
) -> None:
    run = context.run_suite("all tests")
    assert run.report is not None
    (old,) = (case.nodeid for case in run.report.tests)
    kept = find_records(project.folder).folder / "reports" / "a.json"
    project.fake.answers.append(replace(run, entered={"prices.py": frozenset({old})}))
    context.run_for_gate("all tests", keep=kept)
    added = replace(run, report=replace(run.report, tests=()), entered={"new.py": frozenset({"t.py::test"})})
    project.fake.answers.append(added)
    context.run_for_gate("added tests", keep=kept, added=("t.py",), others=run.report)
    assert load_impact(context.impact_path).files == {"new.py": ("t.py::test",), "prices.py": (old,)}


@pytest.mark.parametrize("mark", ["INTERNALERROR> ", "E   ", ""])
def test_a_socket_that_the_sandbox_refused_is_found_in_the_output(mark: str) -> None:
    call = "self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)"
    lines = (f"    {call}", "          ^^^^^", '  File "socket.py", line 232', "PermissionError: [Errno 1] Operation")
    assert find_refused_socket("\n".join(f"{mark}{line}" for line in lines)) == call
    assert find_refused_socket(f"{mark}{call}\n{mark}OSError: another") is None
    assert find_refused_socket(f"{mark}open(name)\n{mark}PermissionError: [Errno 13]") is None
