"""Between two attempts, a source can complete the files, diagnose why the tests fail, and add tools."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from cdd_agent.agent.tools import Tool, make_completion_tool
from cdd_agent.events import RolledBack
from cdd_agent.model.conversation import Text
from cdd_agent.runs.plan_steps import make_brief
from cdd_agent.tdd.context import Brief, Context, Phase, WorkItem
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.work.state import Cause, Diagnosis
from tests.fakes.model import ScriptedModel
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, green, item, red, writes

WRONG = writes("discount.py", "def discount(price):\n    return price\n")
OTHER = writes("discount.py", "def discount(price):\n    return 0\n")
CHANCE = (
    f"from pathlib import Path\n\n{TEST}\n\n"
    "def test_chance():\n    assert not Path(__file__).parents[1].joinpath('f').exists()\n"
)


def run(
    project: Project,
    model: ScriptedModel,
    *,
    found: Diagnosis | None = None,
    add: Callable[[Brief], Brief] = lambda made: made,
    flaky: int = 0,
    **rules: int | bool,
) -> Ending:
    """Run RED and GREEN with a source that has the hooks, by other rules."""
    context = project.context(model)
    if isinstance(context.suite, PytestSuite):
        context = replace(context, suite=replace(context.suite, flaky=flaky))

    def brief(item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        made = make_brief(item, phase)
        if phase == "red":
            return made
        return add(replace(made, diagnose=lambda report, rerun: found))

    policy = replace(context.policy, **rules)  # type: ignore[arg-type]
    work = item(refactor=False)
    context = replace(context, brief=brief, policy=policy)
    return Cycle(work, project.start(), context=context, save=lambda _: None).run()


def cause(kind: Cause) -> Diagnosis:
    return Diagnosis(kind=kind, why="It loops.", advice="Look at line 7.", packages=("numpy",))


def list_attempts(ending: Ending) -> list[tuple[str, str]]:
    return [(each.phase, each.verdict) for each in ending.state.execution(1).attempts]


def test_the_tools_of_a_source_are_offered_from_the_second_attempt_on(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, green()])

    def make_tools(number: int) -> tuple[Tool, ...]:
        tool = make_completion_tool()
        return (replace(tool, spec=replace(tool.spec, name=f"Search{number}")),)

    run(project, model, add=lambda made: replace(made, make_tools=make_tools))
    offered = [[spec.name for spec in request.tools if spec.name.startswith("Search")] for request in model.requests]
    assert offered == [[], [], ["Search2"]]


def test_the_next_attempt_is_told_the_diagnosis_of_the_last(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, green()])
    ending = run(project, model, found=cause("code"))
    assert ending.how == "done"
    assert ending.state.execution(1).attempts[1].diagnosis == cause("code")
    said = "".join(part.text for part in model.requests[2].messages[-1].content if isinstance(part, Text))
    assert "cdd adds: It loops. Look at line 7." in said


def test_without_a_rule_that_decides_nothing_is_added(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, green()])
    assert run(project, model).how == "done"
    assert "cdd adds" not in str(model.requests[2])


def test_a_wrong_test_is_written_anew_as_often_as_the_policy_allows(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, red(), WRONG, red(), WRONG, green()])
    ending = run(project, model, found=cause("test"), max_returns=2)
    assert ending.how == "done"
    assert ending.state.execution(1).times_sent_back == 2
    assert list_attempts(ending) == [("red", "open"), ("green", "closed"), ("green", "open")]
    returned = ending.state.execution(1).returned
    assert [(each.phase, each.is_open) for each in returned] == [("red", True), ("green", False)] * 2
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    reasons = [event.why for event in project.seen if isinstance(event, RolledBack)]
    assert reasons == ["GREEN reports that a test is wrong: It loops. Look at line 7."] * 2


def test_tests_that_are_flaky_twice_are_written_anew(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, WRONG, red(), green()])
    ending = run(project, model, found=cause("flaky"))
    assert (ending.how, ending.state.execution(1).times_sent_back) == ("done", 1)


def test_where_nobody_knows_the_cause_the_item_fails_with_that_reason(project: Project) -> None:
    model = ScriptedModel([red(), WRONG])
    ending = run(project, model, found=cause("unknown"))
    assert (ending.how, ending.why) == ("failed", "It loops. Look at line 7.")
    assert not project.log


def test_without_what_is_missing_outside_the_item_ends_at_once(project: Project) -> None:
    model = ScriptedModel([red(), WRONG])
    ending = run(project, model, found=cause("environment"))
    assert (ending.how, ending.why) == ("lacking", "It loops. Look at line 7.")
    assert not project.log
    assert not project.status
    assert not (project.folder / TEST_FILE).exists()


def test_files_are_completed_before_they_are_judged(project: Project) -> None:
    model = ScriptedModel([red(), writes("discount.py", "# to do\n")])
    path = project.context(model).workspace.root / "discount.py"

    def complete() -> Iterable[str]:
        path.write_text(path.read_text() + CODE)
        yield "discount.py: completed."

    ending = run(project, model, add=lambda made: replace(made, complete=complete))
    assert ending.how == "done"
    assert (project.folder / "discount.py").read_text() == f"# to do\n{CODE}"
    assert "discount.py: completed." in str(project.seen)


def fail_once(root: Path) -> None:
    (root / "f").write_text("")


def test_a_test_that_fails_by_chance_refuses_nothing_and_is_named(project: Project) -> None:
    model = ScriptedModel([writes(TEST_FILE, CHANCE), green()])
    project.fake.answers[:] = [None, None, fail_once, None]
    ending = run(project, model, reruns_failures=True)
    assert ending.how == "done"
    assert list_attempts(ending) == [("red", "open"), ("green", "open")]
    (found,) = [each for each in ending.state.execution(1).attempts[1].evidence if each.case == "flaky_tests"]
    assert found.parts["tests"] == (f"{TEST_FILE}::test_chance",)
    assert project.fake.asked[-1].targets == (f"{TEST_FILE}::test_chance",)


def test_tests_that_fail_again_refuse_the_attempt(project: Project) -> None:
    model = ScriptedModel([writes(TEST_FILE, CHANCE), green(), OTHER, green()])
    project.fake.answers[:] = [None, None, fail_once, fail_once]
    ending = run(project, model, reruns_failures=True)
    assert ending.how == "done"
    assert list_attempts(ending)[:3] == [("red", "open"), ("green", "closed"), ("green", "closed")]


def test_a_test_that_passes_in_a_second_try_alone_is_given_a_process_of_its_own(real_project: Project) -> None:
    text = (
        "from discount import discount\n\ntries = []\n\n\n"
        "def test_discount(request):\n    tries.append(discount(100))\n"
        "    assert tries[0] == 90\n    assert len(tries) > 1 or request.session.testscollected == 1\n"
    )
    model = ScriptedModel([writes(TEST_FILE, text), green()])
    ending = run(real_project, model, flaky=1, reruns_failures=True)
    assert ending.how == "done"
    assert list_attempts(ending) == [("red", "open"), ("green", "open")]
    assert "Flaky: tests/test_discount.py::test_discount failed" in str(real_project.seen)
