import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.settings import GreenSettings
from cdd_agent.errors import EnvironmentMissing, ExitCode
from cdd_agent.events import Change, ChangeKind, Emit, SuiteFinished, SuiteStarted
from cdd_agent.model.conversation import Request, Turn
from cdd_agent.runs.failing_tests import FailingTests
from cdd_agent.runs.request import Wanted
from cdd_agent.tdd.baseline import Baseline, PatientModel, add_hidden_tests, list_added_tests, take_baseline
from cdd_agent.tdd.context import Context, Kind, Phase, WorkItem
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import snapshot_ref
from cdd_agent.tdd.verdict import judge_run
from cdd_agent.testrun.suite import SuiteRun
from cdd_agent.work.outcome import Open
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, StepExecution
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Case, CollectError, Failure, StreamProblem, SuiteReport
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, content_as_it_is, green, item, red
from tests.fakes.suite import FakeSuite, TrustedSandbox, no_report


@pytest.fixture
def context(project: Project) -> Context:
    return project.context(ScriptedModel([]))


def begun(project: Project, context: Context) -> StepExecution:
    step = project.start().execution(1)
    return replace(step, checkpoint=StepRecovery("sale", step, context=context).begin())


def lay(context: Context, phase: Phase, *, step: StepExecution, work: WorkItem, runs_later: bool = False) -> Baseline:
    tip = StepRecovery("sale", step, context=context).refs.read_tip()
    assert tip is not None
    baseline = take_baseline(work, phase, step=step, tip=tip, context=context)
    if not runs_later:
        assert baseline.report
    return baseline


def write(context: Context, path: str, content: str) -> None:
    """Write a file where the run works."""
    (context.workspace.root / path).write_text(content)


def without_tests(project: Project) -> None:
    project.git("rm", "--quiet", "-r", "tests")
    project.git("commit", "--quiet", "-m", "no tests")


@soak_after(1, ("kind", "phase"), [("docs", "green"), ("refactor", "refactor")])
def test_a_step_that_adds_no_test_needs_some(project: Project, context: Context, *, kind: Kind, phase: Phase) -> None:
    without_tests(project)
    with pytest.raises(EnvironmentMissing, match="No tests found") as missing:
        lay(context, phase, step=begun(project, context), work=item(kind))
    assert missing.value.exit_code == ExitCode.ENVIRONMENT
    assert str(project.folder) in missing.value.happened
    assert "test_*.py" in missing.value.happened
    assert "--collect-only" in missing.value.hint


def test_the_first_test_of_a_project_may_be_written_in_red(project: Project, context: Context) -> None:
    without_tests(project)
    baseline = lay(context, "red", step=begun(project, context), work=item())
    assert baseline.report.tests == ()


@pytest.mark.slow
def test_tests_that_cannot_be_run_are_told_with_what_pytest_said(project: Project, context: Context) -> None:
    step = begun(project, context)
    write(context, "conftest.py", "raise SystemExit('no database')\n")
    with pytest.raises(EnvironmentMissing, match=r"cannot be run: (.|\n)*no database") as missing:
        lay(context, "red", step=step, work=item())
    assert "-m pytest" in missing.value.hint


def test_a_test_that_ends_the_process_is_in_the_hint(context: Context) -> None:
    run = replace(
        no_report("pytest ended with status 0"), broken=StreamProblem("no_finish", "tests/test_a.py::test_x[a b]")
    )
    with pytest.raises(EnvironmentMissing) as missing:
        context.require_report(run)
    assert missing.value.hint.startswith("see what happens there: ")
    assert missing.value.hint.endswith(" 'tests/test_a.py::test_x[a b]'")


def test_a_baseline_needs_the_results_of_all_tests(context: Context) -> None:
    endless = StreamProblem("endless_test", "tests/test_a.py::test_x")
    report = SuiteReport(False, 1, "n", "3.11", "9", "/p", "2026-01-01T12:00:00Z", 1, problem=endless)
    with pytest.raises(EnvironmentMissing, match=r"did not end, even by an exception, .*: tests/test_a.py::test_x"):
        context.require_report(SuiteRun(report=report, output="", duration_s=1, broken=endless))


@pytest.mark.slow
def test_the_last_report_is_the_baseline_of_the_next_step_if_the_files_are_the_same(real_project: Project) -> None:
    project, turns = real_project, [red(), green(), content_as_it_is()]
    context = project.confine(project.context(ScriptedModel([*turns])), TrustedSandbox())
    project.run(item(), context=context)
    runs = len(project.happened(SuiteStarted))
    second = project.start(2).execution(2)
    second = replace(second, checkpoint=StepRecovery("sale", second, context=context).begin())
    baseline = lay(context, "red", step=second, work=item(number=2))
    assert len(project.happened(SuiteStarted)) == runs
    assert {case.outcome for case in baseline.report.tests} == {"passed"}
    assert load(context.records.folder / baseline.report_path) == baseline.report


@pytest.mark.slow
def test_a_baseline_of_other_files_is_a_new_run(project: Project, context: Context) -> None:
    lay(context, "red", step=begun(project, context), work=item())
    project.write({"prices.py": "def total(prices):\n    return 0\n"})
    project.git("commit", "--quiet", "--all", "-m", "broken")
    step = project.start(2).execution(2)
    step = replace(step, checkpoint=StepRecovery("sale", step, context=context).begin())
    assert {case.outcome for case in lay(context, "red", step=step, work=item(number=2)).report.tests} == {"failed"}


def test_the_baseline_is_the_same_after_the_work_has_begun(project: Project, context: Context) -> None:
    step = begun(project, context)
    first = lay(context, "red", step=step, work=item())
    write(context, "prices.py", "changed\n")
    runs = len(project.seen)
    assert lay(context, "red", step=step, work=item()) == first
    assert len(project.seen) == runs, "the tests are not run again"


def test_the_baseline_is_of_the_commit_and_not_of_what_the_user_is_editing(project: Project, context: Context) -> None:
    project.write({"prices.py": "def total(prices):\n    return 0  # being edited\n"})
    baseline = lay(context, "red", step=begun(project, context), work=item())
    assert [case.outcome for case in baseline.report.tests] == ["passed"]
    assert baseline.tip == project.repository.read_head()


def test_the_baseline_is_of_the_users_changes_too_when_the_run_takes_them_along(
    project: Project, context: Context
) -> None:
    project.write({"prices.py": "def total(prices):\n    return 0  # being edited\n"})
    context.workplace.carries = True
    baseline = lay(context, "red", step=begun(project, context), work=item())
    assert [case.outcome for case in baseline.report.tests] == ["failed"]
    assert project.git("rev-parse", f"{baseline.tip}^") == project.repository.read_head()


def test_a_lost_or_damaged_report_is_made_again_from_the_files_before_the_phase(
    project: Project, context: Context
) -> None:
    step = begun(project, context)
    first = lay(context, "red", step=step, work=item())
    write(context, "tests/test_prices.py", "def test_total():\n    assert 1 == 2\n")
    step = replace(step, checkpoint=context.snapshots.take(snapshot_ref("sale", step, name="x"), message="x").ref)
    (context.records.folder / first.report_path).write_text("{")
    again = lay(context, "red", step=step, work=item())
    assert [case.outcome for case in again.report.tests] == ["passed"]
    assert "1 == 2" in (context.workspace.root / "tests/test_prices.py").read_text()


NOT_THERE = Failure("collect", "import_error", "test", "ImportError", "cannot import name 'mean'")


def report(*cases: tuple[str, str], uncollected: tuple[str, ...] = ()) -> SuiteReport:
    return SuiteReport(
        complete=True,
        exit_status=1,
        nonce="",
        python="3.11.7",
        pytest="9.2.0",
        rootdir="/p",
        started_at="",
        duration_s=1.0,
        tests=tuple(Case(nodeid, outcome, nodeid.split("::", maxsplit=1)[0], 1, 0.1) for nodeid, outcome in cases),
        collect_errors=tuple(CollectError(nodeid, NOT_THERE) for nodeid in uncollected),
    )


def test_what_the_import_of_red_hides_is_in_the_baseline_of_green_as_it_was() -> None:
    first = report(
        ("tests/a.py::one", "passed"),
        ("tests/a.py::old", "failed"),
        ("tests/b.py::two", "failed"),
        ("tests/b.py::gone", "passed"),
        ("tests/sub/c.py::three", "skipped"),
        uncollected=("tests/d.py",),
    )
    red = report(("tests/b.py::two", "error"), uncollected=("tests/a.py", "tests/sub/__init__.py"))
    merged = add_hidden_tests(red, first=first)
    assert [(case.nodeid, case.outcome) for case in merged.tests] == [
        ("tests/b.py::two", "error"),
        ("tests/a.py::one", "passed"),
        ("tests/a.py::old", "failed"),
        ("tests/sub/c.py::three", "skipped"),
    ]
    assert merged.old_failures == ("tests/a.py::old", "tests/b.py::two", "tests/d.py")
    assert merged.collect_errors == red.collect_errors


@pytest.mark.slow
def test_green_is_not_asked_to_mend_an_old_failure_that_red_hid(project: Project, context: Context) -> None:
    old = "\n\ndef test_old():\n    assert total([1]) == 7\n"
    tests = (project.folder / "tests/test_prices.py").read_text() + old
    project.write({"tests/test_prices.py": tests})
    project.git("commit", "--quiet", "-am", "an old failure")
    step, work = begun(project, context), item(tests=("tests/test_prices.py",))
    lay(context, "red", step=step, work=work)

    new = "from prices import mean\n" + tests + "\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n"
    write(context, "tests/test_prices.py", new)
    kept = StepRecovery("sale", step, context=context).report_path("red-1")
    context.run_suite("all tests", keep=kept)
    landed = AttemptRecord(
        phase="red",
        number=1,
        outcome=Open(),
        reasons=(),
        report=str(kept.relative_to(project.folder)),
        checkpoint=step.checkpoint or "",
    )
    step = replace(step, attempts=(landed,), commits={"red": "1"})
    baseline = lay(context, "green", step=step, work=work)

    write(context, "prices.py", (project.folder / "prices.py").read_text() + "\n\ndef mean(prices):\n    return 2\n")
    run = context.run_suite("all tests")
    assert run.report is not None
    judged = judge_run(work, "green", report=run.report, baseline=baseline.report)
    assert judged.open, judged.reasons


def test_slow_tests_are_told_with_the_setting_to_raise(project: Project, context: Context) -> None:
    suite = context.suite
    assert isinstance(suite, FakeSuite)
    suite.answers.append(no_report("the tests did not end within 5 s", cause="timed_out"))
    wanted = Wanted(targets=("t.py",))
    source = FailingTests(wanted, GreenSettings(), ticket=wanted.find_run(project.folder))
    policy = source.adapt_policy(context.policy)
    with pytest.raises(EnvironmentMissing, match="did not end within 5 s") as slow:
        lay(replace(context, policy=policy), "red", step=begun(project, context), work=item())
    assert "green.test_timeout_s" in slow.value.hint
    assert "green.full_suite_on_completion: false" in slow.value.hint


@pytest.mark.parametrize(
    ("path", "kind", "is_alone"),
    [
        ("tests/test_discount.py", "created", True),
        ("tests/test_prices.py", "modified", False),
        ("tests/conftest.py", "created", False),
        ("tests/__init__.py", "created", False),
        ("tests/discount_test.py", "created", False),
        ("tests/test_data.json", "created", False),
        ("tests/more/test_discount.py", "created", False),
        ("test_prices.py", "created", False),
    ],
)
def test_a_red_runs_its_file_alone_if_that_cannot_change_other_tests(
    real_project: Project, path: str, kind: ChangeKind, *, is_alone: bool
) -> None:
    context = real_project.context(ScriptedModel([]))
    before = report(("tests/test_prices.py::test_total", "passed"))
    changes = [Change(path="tests/test_new.py", kind="created"), Change(path=path, kind=kind)]
    added = list_added_tests(item(), changes, before=before, context=context)
    assert added == (("tests/test_new.py", path) if is_alone else ())
    assert list_added_tests(replace(item(), phases=("red",)), changes, before=before, context=context) == ()


class OneTurn:
    """A model that does something while it answers."""

    name = "one-turn"

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    def check(self) -> None:
        """Always usable."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return no change."""
        del request, emit
        self.meanwhile()
        return content_as_it_is()


def ask(baseline: Baseline, meanwhile: Callable[[], object]) -> Turn:
    return PatientModel(OneTurn(meanwhile), baseline.results).reply(
        Request(system="", messages=()), emit=lambda _: None
    )


def test_the_tests_run_while_the_model_makes_its_first_turn(project: Project, context: Context) -> None:
    begun_running = threading.Event()
    project.fake.answers.append(lambda _: begun_running.set())
    baseline = lay(context, "red", step=begun(project, context), work=item(), runs_later=True)
    assert project.fake.asked == []
    ask(baseline, lambda: begun_running.wait(10) or pytest.fail("the tests wait for the model"))
    assert [case.outcome for case in baseline.report.tests] == ["passed"]
    ask(baseline, lambda: None)
    assert len(project.fake.asked) == 1


def test_an_interrupted_turn_ends_the_tests_and_restores_the_files(project: Project, context: Context) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def leave(root: Path) -> None:
        (root / "left.db").write_text("1")

    project.fake.answers.append(leave)
    baseline = lay(context, "red", step=begun(project, context), work=item(), runs_later=True)
    with pytest.raises(KeyboardInterrupt):
        ask(baseline, interrupt)
    assert not (context.workspace.root / "left.db").exists()


def test_tests_that_cannot_run_end_the_run_after_the_first_turn(project: Project, context: Context) -> None:
    project.fake.answers.append(no_report("no database"))
    baseline = lay(context, "red", step=begun(project, context), work=item(), runs_later=True)
    with pytest.raises(EnvironmentMissing, match="no database"):
        ask(baseline, lambda: None)
    assert not [event for event in project.seen if isinstance(event, SuiteStarted)][1:]


def test_a_report_of_earlier_runs_says_so(project: Project, context: Context) -> None:
    context.workplace.begin()
    context.store.place = "attempt 1"
    context.run_suite("all tests")
    context.run_suite("all tests for the gate", keep=find_records(project.folder).folder / "reports" / "a.json")
    finished = [event for event in project.seen if isinstance(event, SuiteFinished)]
    assert [event.reused for event in finished] == ["", "the same tests on the same files, from all tests in attempt 1"]
    assert len(project.fake.asked) == 1
    assert load(find_records(project.folder).folder / "reports" / "a.json").tests
