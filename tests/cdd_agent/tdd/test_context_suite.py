from cdd_agent.events import SuiteFinished, SuiteStarted
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


def test_a_run_of_tests_is_told_before_and_after(project: Project) -> None:
    project.write({"tests/test_more.py": "def test_more():\n    assert 1 == 2\n"})
    kept = project.folder / ".cdd" / "reports" / "a.json"
    run = project.context(ScriptedModel([])).run_suite("all tests", keep=kept)
    assert run.report is not None
    assert kept.exists()
    started, finished = project.seen
    assert started == SuiteStarted(purpose="all tests", targets=(), framework="pytest")
    assert isinstance(finished, SuiteFinished)
    assert (finished.passed, finished.failed, finished.errors, finished.problem) == (1, 1, 0, None)


def test_files_that_the_tests_write_change_or_delete_are_put_back_and_kept(project: Project) -> None:
    test = (
        "import pathlib\n\n\ndef test_writes():\n    pathlib.Path('a.db').write_text('new')\n"
        "    pathlib.Path('prices.py').write_text('changed')\n    pathlib.Path('pytest.ini').unlink()\n"
    )
    project.write({"tests/test_writes.py": test, "mine.txt": "mine\n"})
    before = project.status
    project.context(ScriptedModel([])).run_suite("all tests")
    assert project.status == before
    assert project.git("show", "refs/cdd/tests/after:a.db") == "new"
    assert (project.folder / "mine.txt").read_text() == "mine\n"


def test_a_run_that_comes_to_nothing_is_told_with_its_problem(real_project: Project) -> None:
    real_project.write({"pytest.ini": "[pytest]\nminversion = 99\n"})
    real_project.context(ScriptedModel([])).run_suite("all tests")
    finished = real_project.seen[-1]
    assert isinstance(finished, SuiteFinished)
    assert finished.problem is not None
    assert finished.passed == 0


def test_of_a_test_in_a_file_that_cannot_be_imported_the_file_is_run(project: Project) -> None:
    project.write({"tests/test_more.py": "from discount import discount\n\n\ndef test_more():\n    assert discount\n"})
    context = project.context(ScriptedModel([]))
    run = context.run_targets("targets", targets=("tests/test_more.py::test_more",))
    assert run.report is not None
    assert [error.failure.kind for error in run.report.collect_errors] == ["missing_module"]
    alone = context.run_targets("targets", targets=("tests/test_prices.py::test_total",))
    assert alone.report is not None
    assert [case.outcome for case in alone.report.tests] == ["passed"]
