from dataclasses import replace

import pytest

from cdd_agent.errors import EnvironmentMissing, ExitCode
from cdd_agent.tdd import ground, recovery
from cdd_agent.tdd.ground import Ground
from cdd_agent.tdd.policy import Kind, Phase, WorkItem
from cdd_agent.work.state import StepExecution
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, item


def begun(project: Project) -> StepExecution:
    step = project.start().execution(1)
    return replace(step, checkpoint=recovery.begin("sale", step, bench=project.bench(ScriptedModel([]))))


def lay(project: Project, phase: Phase, *, step: StepExecution, work: WorkItem) -> Ground:
    at = recovery.position(project.repository)
    return ground.lay(work, phase, step=step, at=at, bench=project.bench(ScriptedModel([])))


def without_tests(project: Project) -> None:
    project.git("rm", "--quiet", "-r", "tests")
    project.git("commit", "--quiet", "-m", "no tests")


@pytest.mark.parametrize(("kind", "phase"), [("docs", "green"), ("refactor", "refactor")])
def test_a_step_that_adds_no_test_needs_some(project: Project, *, kind: Kind, phase: Phase) -> None:
    without_tests(project)
    with pytest.raises(EnvironmentMissing, match="No tests found") as missing:
        lay(project, phase, step=begun(project), work=item(kind))
    assert missing.value.exit_code == ExitCode.ENVIRONMENT
    assert str(project.folder) in missing.value.happened
    assert "test_*.py" in missing.value.happened
    assert "--collect-only" in missing.value.hint


def test_the_first_test_of_a_project_may_be_written_in_red(project: Project) -> None:
    without_tests(project)
    laid = lay(project, "red", step=begun(project), work=item())
    assert laid.baseline.tests == ()


def test_tests_that_cannot_be_run_are_told_with_what_pytest_said(project: Project) -> None:
    project.write({"conftest.py": "raise SystemExit('no database')\n"})
    with pytest.raises(EnvironmentMissing, match=r"cannot be run: (.|\n)*no database") as missing:
        lay(project, "red", step=begun(project), work=item())
    assert "-m pytest" in missing.value.hint


def test_the_ground_is_the_same_after_the_work_has_begun(project: Project) -> None:
    project.write({"mine.txt": "mine\n"})
    step = begun(project)
    first = lay(project, "red", step=step, work=item())
    assert first.off_limits == {"mine.txt"}
    project.write({"prices.py": "changed\n"})
    runs = len(project.seen)
    assert lay(project, "red", step=step, work=item()) == first
    assert len(project.seen) == runs, "the tests are not run again"


def test_a_lost_or_damaged_report_is_made_again_from_the_files_before_the_phase(project: Project) -> None:
    step, bench = begun(project), project.bench(ScriptedModel([]))
    first = lay(project, "red", step=step, work=item())
    project.write({"tests/test_prices.py": "def test_total():\n    assert 1 == 2\n"})
    step = replace(
        step, checkpoint=bench.snapshots.take(recovery.checkpoint_ref("sale", step, name="x"), message="x").ref
    )
    (project.folder / first.baseline_path).write_text("{")
    again = lay(project, "red", step=step, work=item())
    assert [case.outcome for case in again.baseline.tests] == ["passed"]
    assert "1 == 2" in (project.folder / "tests/test_prices.py").read_text()
