import pytest

from cdd_agent.errors import UsageError
from cdd_agent.runs import listed_tests as orchestrator
from cdd_agent.runs import test_list
from cdd_agent.runs.feature import make_feature
from cdd_agent.tdd.context import Progress
from cdd_agent.work.handoff import CurrentTest
from tests.fakes.project import Project

LIST = test_list.parse("- [x] adds two\n- [x] adds zero (covered)\n- [ ] **Subtracts** two.\n- [ ] divides\n")
CHOICE = CurrentTest(description="subtracts two", test_file="tests/test_sum.py", impl_file="src/sum.py")


def test_the_list_agent_knows_request_list_and_what_is_completed(project: Project) -> None:
    feature = make_feature(project.folder, "A calculator")
    context = project.context(None)  # type: ignore[arg-type]
    context.workplace.begin()
    (context.workspace.root / "test-list.md").write_text("- [ ] adds zero\n")
    item = orchestrator.make_plan_item(feature, 3, done={"adds two": False, "adds zero": True})
    source = orchestrator.ListedTests(feature, repository=context.repository, project=project.folder)
    brief = source.brief(item, "plan", context=context)
    assert (brief.agent, brief.work) == ("list", "tdd tdd-a-calculator cycle 3 plan")
    assert "# The request\n\nA calculator" in brief.requirements
    assert "- adds two\n- adds zero (covered)\n" in brief.requirements
    assert brief.requirements.endswith("# test-list.md\n\n- [ ] adds zero")
    assert "## This phase: PLAN" in brief.rules
    assert "## This phase" not in brief.role
    assert brief.judge is not None


def test_the_others_know_their_test_and_that_the_rest_is_not_theirs(project: Project) -> None:
    feature = make_feature(project.folder, "A calculator")
    context = project.context(None)  # type: ignore[arg-type]
    plan = orchestrator.make_plan_item(feature, 3, done={"adds two": False})
    item = orchestrator.make_test_item(plan, CHOICE, feature=feature, entries=LIST)
    assert (item.phases, item.tests, item.sources) == (
        ("red", "green", "refactor"),
        ("tests/test_sum.py",),
        ("src/sum.py",),
    )
    assert item.title == "**Subtracts** two.", "as the list has it"
    assert item.progress == Progress(
        completed=("adds two",), pending=("**Subtracts** two.", "divides"), following="PLAN"
    )
    source = orchestrator.ListedTests(feature, repository=context.repository, project=project.folder)
    assert [source.brief(item, phase, context=context).agent for phase in item.phases] == [
        "tester",
        "implementer",
        "refactorer",
    ]
    red = source.brief(item, "red", context=context)
    assert (red.judge, red.finalize_item) == (None, None)
    assert "A calculator" in red.requirements
    assert "tests/test_sum.py" in red.requirements


def test_an_answer_settles_what_the_commit_of_plan_is_about(project: Project) -> None:
    plan = orchestrator.make_plan_item(
        make_feature(project.folder, "Fix the sum"), 1, done={"adds two": False, "adds zero": True}
    )
    assert (plan.kind, plan.plan_body, plan.sources) == ("bug", "Fix the sum", ("test-list.md",))
    chosen = orchestrator.finalize_plan_item(plan, CHOICE, entries=LIST)
    assert chosen.progress is not None
    assert (chosen.tests, chosen.progress.following) == (("tests/test_sum.py",), "RED")
    over = orchestrator.finalize_plan_item(plan, None, entries=LIST)
    assert (over.title, over.tests) == ("complete, 4 of 4 tests", ())
    assert over.progress == Progress(completed=("adds two", "adds zero"), following="COMPLETE")


def test_only_the_first_plan_tells_the_request(project: Project) -> None:
    assert orchestrator.make_plan_item(make_feature(project.folder, "A sum"), 2, done={}).plan_body == ""


def test_the_list_of_a_project_inside_a_repository_is_its_own(project: Project) -> None:
    project.write({"inner/test-list.md": "- [ ] inner\n", "test-list.md": "- [ ] outer\n"})
    project.git("add", ".")
    project.git("commit", "-qm", "lists")
    context = project.context(None)  # type: ignore[arg-type]
    context.workplace.begin()
    inner = type(context.workspace)(context.workspace.root / "inner")
    assert [entry.text for entry in orchestrator.read_committed_list(context.workplace.tree, inner.root)] == ["inner"]
    assert [entry.text for entry in orchestrator.read_list(context.workspace)] == ["outer"]


@pytest.mark.parametrize("kind", ["folder", "link", "too long"])
def test_what_no_list_can_be_read_from_is_an_error_before_anybody_is_asked(project: Project, kind: str) -> None:
    orchestrator.require_list(project.folder)
    path = project.folder / "test-list.md"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("README.md")
        case _:
            path.write_text("- [ ] x\n" * 100_000)
    with pytest.raises(UsageError, match=r"test-list\.md is the file for the list of tests, but it cannot be read: "):
        orchestrator.require_list(project.folder)
