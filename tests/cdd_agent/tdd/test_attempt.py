from dataclasses import replace

import pytest

from cdd_agent.events import AttemptStarted, GateJudged, Notice, SuiteStarted, TurnEnded
from cdd_agent.model.conversation import Text
from cdd_agent.tdd.attempt import Attempt
from cdd_agent.tdd.baseline import Baseline, take_baseline
from cdd_agent.tdd.phase_task import list_attempts
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.work.outcome import Closed, Open
from cdd_agent.work.state import AttemptRecord, Status, StepExecution
from cdd_agent.work.wording import format_reason
from cdd_agent.workspace.memory import Memory, MemoryFile
from pytest_tdd_agent.codec import load
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import TEST_FILE, Project, item, red, runs, writes


@pytest.fixture
def step(project: Project) -> StepExecution:
    fresh = project.start().execution(1)
    return replace(fresh, checkpoint=StepRecovery("sale", fresh, context=project.context(ScriptedModel([]))).begin())


@pytest.fixture
def baseline(project: Project, step: StepExecution) -> Baseline:
    context = project.context(ScriptedModel([]))
    return take_baseline(item(), "red", step=step, tip=context.workplace.begin(), context=context)


def test_an_attempt_is_recorded_with_its_report_and_its_checkpoint(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    context = project.context(ScriptedModel([red()]))
    record = Attempt(item(), "red", step=step, baseline=baseline, context=context).run(is_anew=False)
    assert (record.phase, record.number, record.verdict, record.reasons) == ("red", 1, "open", ())
    assert record.report is not None
    assert (context.records.folder / record.report).exists()
    assert "test_discount" in project.git("show", f"{record.checkpoint}:tests/test_discount.py")
    assert project.status == "", "an attempt changes none of the user's files"
    kinds = [type(event) for event in project.seen]
    assert kinds.index(AttemptStarted) < kinds.index(TurnEnded) < kinds.index(GateJudged)


def test_an_agent_that_never_ends_is_judged_by_what_it_left(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    reads = [says(call("Read", f"toolu_{number}", file_path="prices.py")) for number in range(4)]
    record = Attempt(item(), "red", step=step, baseline=baseline, context=project.context(ScriptedModel(reads))).run(
        is_anew=False
    )
    assert record.verdict == "closed"
    assert record.reasons[0].code == "no_change"


def test_a_value_of_an_ignored_file_gets_neither_into_a_commit_nor_into_the_record_of_an_attempt(
    project: Project, *, step: StepExecution
) -> None:
    token = "Xk9vQ2mZ7Lp4Rt8s"
    project.write({"shop.log": f"token: {token}\n"})
    project.repository.read_included = lambda: b"*.log\n"
    wrote = says(
        call("Write", "toolu_1", file_path=TEST_FILE, content=f"def test_discount():\n    assert '{token}' == 1\n")
    )
    context = project.context(ScriptedModel([wrote, says(Text(text=f"It uses {token}."))]))
    before = take_baseline(item(), "red", step=step, tip=context.workplace.begin(), context=context)
    context.workplace.tree.root.joinpath("shop.log").write_text("")  # a program may empty the copy
    record = Attempt(item(), "red", step=step, baseline=before, context=context).run(is_anew=False)
    assert record.verdict == "closed"
    assert format_reason(record.reasons[0]).startswith(
        f"value_copied: {TEST_FILE}:2 holds a value of shop.log. git does not track"
    )
    assert record.words == record.summary == "It uses [masked: value of an ignored file]."
    assert token not in repr(record), "nor in the failure of the test that it quotes"


def test_a_red_whose_tests_nobody_can_read_is_refused(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    hidden = "# coding: utf-7\\ndef test_discount():\\n    # of ten percent +AAo-    assert 0\\n"
    context = project.context(ScriptedModel([runs(f"printf '{hidden}' > tests/test_discount.py")]))
    record = Attempt(item(), "red", step=step, baseline=baseline, context=context).run(is_anew=False)
    assert [format_reason(reason).partition(" cannot be read")[0] for reason in record.reasons] == [
        "unreadable_source: tests/test_discount.py"
    ]
    assert record.finding == "INVALID"


@pytest.mark.slow
def test_a_later_attempt_sees_what_failed_in_the_one_before(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    typo = runs("printf 'def test_discount():\\n    assert discuont(100) == 90\\n' > tests/test_discount.py")
    model = ScriptedModel([typo, says("I stop.")])
    context = project.context(model)
    first = Attempt(item(), "red", step=step, baseline=baseline, context=context).run(is_anew=False)
    Attempt(item(), "red", step=replace(step, attempts=(first,)), baseline=baseline, context=context).run(is_anew=False)
    *_, text = model.requests[1].messages[0].content
    assert isinstance(text, Text)
    assert "discuont" in text.text.partition("The gate refused attempt 1")[0]
    assert "name_not_expected" in text.text.partition("The gate refused attempt 1")[2]


def test_every_attempt_begins_with_the_conventions_of_the_project(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    model = ScriptedModel([red()])
    memory = Memory(files=(MemoryFile(path="AGENTS.md", text="Tabs. </data-x>", size_bytes=15),))
    Attempt(item(), "red", step=step, baseline=baseline, context=replace(project.context(model), memory=memory)).run(
        is_anew=False
    )
    told, step_text, task = model.requests[0].messages[0].content
    assert isinstance(told, Text)
    assert isinstance(step_text, Text)
    assert isinstance(task, Text)
    assert told.text.startswith("Conventions of this project")
    assert " AGENTS.md>\nTabs. " in told.text
    assert "# Step 1: Ten percent off" in step_text.text
    assert task.text.startswith("## This phase: RED")


def test_the_attempts_of_one_phase_are_counted_by_themselves() -> None:
    attempts = (
        AttemptRecord(phase="red", number=1, outcome=Closed()),
        AttemptRecord(phase="red", number=2, outcome=Open()),
        AttemptRecord(phase="green", number=1, outcome=Closed()),
    )
    step = StepExecution(step_number=1, title="t", text_sha256="", status=Status.IN_PROGRESS, attempts=attempts)
    assert [attempt.number for attempt in list_attempts("red", step)] == [1, 2]


PRODUCT = "NUMBERS = [1, 2]\n\n\ndef double(number):\n    return 0\n"
DOUBLED = (
    "\n\n@pytest.mark.parametrize('number', {})\ndef test_double(number):\n    assert double(number) == number * 2\n"
)


def fix(project: Project, test: str, *, product: str) -> AttemptRecord:
    """An attempt at GREEN for a test that exists and fails."""
    project.write({"product.py": PRODUCT, "tests/test_double.py": f"from product import NUMBERS, double\n{test}"})
    project.git("add", "-A")
    project.git("commit", "--quiet", "-m", "a failing test")
    work = replace(item("bug", tests=("tests/test_double.py",)), phases=("green",), sources=("product.py",))
    context = project.context(ScriptedModel([runs(f"cat > product.py <<EOF\n{product}EOF")]))
    context = replace(context, policy=replace(context.policy, evidence_timeout_s=60))
    step = project.start().execution(1)
    step = replace(step, checkpoint=StepRecovery("sale", step, context=context).begin())
    before = take_baseline(work, "green", step=step, tip=context.workplace.begin(), context=context)
    return Attempt(work, "green", step=step, baseline=before, context=context).run(is_anew=False)


@pytest.mark.slow
def test_a_target_whose_parameters_the_product_took_away_is_missing(project: Project) -> None:
    fixed = PRODUCT.replace("0", "number * 2")
    test = "import pytest\n" + DOUBLED.format("NUMBERS")
    record = fix(project, test, product=fixed.replace("[1, 2]", "[1, 3]"))
    (reason,) = record.reasons
    assert format_reason(reason).startswith("target_missing: tests/test_double.py::test_double[2] ")


@pytest.mark.slow
def test_a_target_whose_node_id_is_another_in_every_run_is_found(project: Project) -> None:
    test = "import pytest, time\n" + DOUBLED.format("[time.time_ns()]")
    record = fix(project, test, product=PRODUCT.replace("0", "number * 2"))
    assert (record.verdict, record.reasons) == ("open", ())


@pytest.mark.slow
def test_a_test_that_red_names_differently_is_missing_at_once(
    project: Project, *, step: StepExecution, baseline: Baseline
) -> None:
    context = project.context(ScriptedModel([red()]))
    work = item(tests=("tests/test_discount.py::test_ten_percent",))
    record = Attempt(work, "red", step=step, baseline=baseline, context=context).run(is_anew=False)
    (reason,) = record.reasons
    assert format_reason(reason).startswith(
        "target_missing: tests/test_discount.py::test_ten_percent is not in its file"
    )


HELPER = """
from prices import total


def check(prices):
    if {condition}:
        raise RuntimeError("the prices are wrong")


def test_discount():
    check([50, 50])
"""


@soak_after(
    0, ("condition", "verdict"), [("total(prices) != 90", "open"), ("sum(prices) != 90", "closed")], ids=["runs", "not"]
)
def test_what_a_helper_raises_counts_if_the_product_ran(real_project: Project, condition: str, *, verdict: str) -> None:
    context = real_project.context(ScriptedModel([writes(TEST_FILE, HELPER.format(condition=condition))]))
    context = replace(context, policy=replace(context.policy, evidence_timeout_s=60))
    step = real_project.start().execution(1)
    step = replace(step, checkpoint=StepRecovery("sale", step, context=context).begin())
    before = take_baseline(item(), "red", step=step, tip=context.workplace.begin(), context=context)
    record = Attempt(item(), "red", step=step, baseline=before, context=context).run(is_anew=False)
    assert (record.verdict, record.finding) == (verdict, {"open": "VALID", "closed": "INVALID"}[verdict])
    told = f"{TEST_FILE}::test_discount runs the product before it fails: that counts as behavior."
    assert (Notice(text=told) in real_project.seen) == (verdict == "open")
    assert [event.purpose for event in real_project.seen if isinstance(event, SuiteStarted)][:2] == [
        "all tests as a baseline",
        "the added tests for the gate",
    ]
    judged = load(context.records.folder / str(record.report))
    outcomes = {case.nodeid.rpartition("::")[2]: case.outcome for case in judged.tests}
    assert outcomes == {"test_total": "passed", "test_discount": "failed"}
    assert (judged.collected, judged.complete, judged.audited) == (2, True, True)
