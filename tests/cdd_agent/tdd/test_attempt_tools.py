from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.tool import Tool
from cdd_agent.config.trust import Approvals
from cdd_agent.evidence.clean_copy import find_layout
from cdd_agent.model.conversation import JSON
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion, Permission
from cdd_agent.tdd.attempt import make_tools
from cdd_agent.tdd.context import Context, Phase
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.workspace.files import Workspace
from tests.fakes.approval import users_folder
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

NAMES = ["Read", "Write", "Edit", "Bash", "Glob", "Grep", "RunTests", "CompleteImplementation", "ReportBlocked"]


def tools_for(
    phase: Phase,
    context: Context,
    *,
    off_limits: frozenset[str],
    tests: tuple[str, ...],
    after_writing: tuple[str, ...] = (),
) -> tuple[Tool, ...]:
    layout = find_layout(context.repository, context.suite)
    locks = PhaseLocks(phase=phase, off_limits=off_limits, tests=tests, layout=layout)
    return make_tools(locks, context, after_writing=after_writing)


def named(tools: tuple[Tool, ...], name: str) -> Tool:
    return next(tool for tool in tools if tool.spec.name == name)


def test_every_phase_has_the_same_tools_in_the_same_order(project: Project) -> None:
    context = project.context(ScriptedModel([]))
    for phase in ("red", "green", "refactor"):
        assert [tool.spec.name for tool in tools_for(phase, context, off_limits=frozenset(), tests=())] == NAMES


def test_what_the_phase_or_the_user_locks_cannot_be_written(project: Project) -> None:
    context = project.context(ScriptedModel([]), left_out=("tickets/sale",))
    write = named(tools_for("green", context, off_limits=frozenset({"mine.py"}), tests=()), "Write")
    for path, why in (
        ("tests/test_new.py", "locked in GREEN"),
        ("mine.py", "uncommitted changes of the user"),
        ("tickets/sale/plan.md", "belongs to the ticket"),
    ):
        output = write.run({"file_path": path, "content": "x"})
        assert output.is_error
        assert why in output.text
        assert not (project.folder / path).exists()
    assert not write.run({"file_path": "new.py", "content": "x = 1\n"}).is_error


def test_who_wants_to_be_asked_about_everything_is_asked_before_a_file_is_written_and_tests_are_run(
    project: Project, tmp_path: Path
) -> None:
    asked: list[str] = []

    def says_no(question: CommandQuestion) -> CommandAnswer:
        asked.append(question.kind)
        return CommandAnswer(verdict="no", reason="not now")

    permission = Permission(
        root=project.folder,
        level="none",
        approvals=Approvals(project.folder, environment=users_folder(tmp_path)),
        ask=says_no,
        report=asked.append,
        asks_all=True,
    )
    context = replace(project.context(ScriptedModel([])), permission=permission)
    tools = tools_for("green", context, off_limits=frozenset({"mine.py"}), tests=())
    assert "not now" in named(tools, "Write").run({"file_path": "new.py", "content": "x = 1\n"}).text
    assert (
        named(tools, "RunTests").run({}).text
        == "The developer does not allow you to run this project's tests: not now."
    )
    assert named(tools, "Bash").run({"command": "touch new.py"}).is_error
    assert asked == ["write", "tests", "write"]
    assert named(tools, "Write").run({"file_path": "mine.py", "content": "x"}).is_error
    assert len(asked) == 3
    assert not (project.folder / "new.py").exists()


def test_in_a_project_inside_the_work_tree_the_locks_mean_the_same_files(project: Project) -> None:
    inner = project.folder / "services" / "sale"
    inner.mkdir(parents=True)
    context = replace(project.context(ScriptedModel([])), workspace=Workspace(inner))
    write = named(tools_for("green", context, off_limits=frozenset({"services/sale/mine.py"}), tests=()), "Write")
    assert write.run({"file_path": "mine.py", "content": "x"}).is_error
    assert not write.run({"file_path": "theirs.py", "content": "x = 1\n"}).is_error
    assert (inner / "theirs.py").exists()


def test_a_project_in_a_folder_named_like_tests_is_no_test(project: Project) -> None:
    inner = project.folder / "testing" / "app"
    inner.mkdir(parents=True)
    context = project.context(ScriptedModel([]))
    context = replace(context, workspace=Workspace(inner), suite=context.suite.with_root(inner))
    write = named(tools_for("green", context, off_limits=frozenset(), tests=()), "Write")
    assert not write.run({"file_path": "sale.py", "content": "x = 1\n"}).is_error
    assert write.run({"file_path": "test_sale.py", "content": "x = 1\n"}).is_error


def test_running_tests_tells_the_counts_and_the_failures(project: Project) -> None:
    project.write({"tests/test_more.py": "def test_more():\n    assert 1 == 2\n"})
    run = named(tools_for("red", project.context(ScriptedModel([])), off_limits=frozenset(), tests=()), "RunTests")
    text = run.run({}).text
    assert text.startswith("1 passed, 1 failed")
    assert "tests/test_more.py::test_more: assertion" in text


def test_tests_that_cannot_run_show_what_pytest_said(real_project: Project) -> None:
    real_project.write({"pytest.ini": "[pytest]\nminversion = 99\n"})
    run = named(tools_for("red", real_project.context(ScriptedModel([])), off_limits=frozenset(), tests=()), "RunTests")
    assert "pytest-99" in run.run({}).text


def test_what_a_run_did_differently_is_told(real_project: Project) -> None:
    real_project.write({"pytest.ini": "[pytest]\naddopts = --no-such-option\n"})
    run = named(tools_for("red", real_project.context(ScriptedModel([])), off_limits=frozenset(), tests=()), "RunTests")
    assert "1 passed, 1 collected\nthe tests ran without the project's addopts" in run.run({}).text


@pytest.mark.parametrize(
    "target", ["--basetemp=src", "-p", "@args.txt", "..", "../other/test_a.py", "/etc", ".git", "a\0", ""]
)
def test_what_names_no_test_of_the_project_is_not_run(project: Project, target: str) -> None:
    run = named(tools_for("red", project.context(ScriptedModel([])), off_limits=frozenset(), tests=()), "RunTests")
    assert run.run({"targets": [target]}).is_error
    assert project.seen == []


def test_commands_run_in_the_project(project: Project) -> None:
    bash = named(tools_for("red", project.context(ScriptedModel([])), off_limits=frozenset(), tests=()), "Bash")
    assert Path(bash.run({"command": "pwd"}).text.splitlines()[-1]) == project.folder


def test_a_test_file_that_the_step_names_is_one_whatever_it_is_called(project: Project) -> None:
    context = project.context(ScriptedModel([]))
    red = named(tools_for("red", context, off_limits=frozenset(), tests=("checks/check_a.py",)), "Write")
    green = named(tools_for("green", context, off_limits=frozenset(), tests=("checks/check_a.py",)), "Write")
    fields: dict[str, JSON] = {"file_path": "checks/check_a.py", "content": "def check_a(): assert False\n"}
    assert not red.run(fields).is_error
    assert "locked in GREEN" in green.run({**fields, "content": ""}).text


def test_what_is_written_is_answered_with_what_the_tests_say_then(project: Project) -> None:
    context = project.context(ScriptedModel([]))
    after = ("tests/test_prices.py::test_total",)
    tools = tools_for("green", context, off_limits=frozenset(), tests=(), after_writing=after)
    written = named(tools, "Write").run({"file_path": "new.py", "content": "x = 1\n"})
    assert written.text.startswith("Created new.py")
    assert "Results of the tests to pass: 1 passed" in written.text
    edit = {"file_path": "prices.py", "old_string": "sum(prices)", "new_string": "0"}
    assert "1 failed" in named(tools, "Edit").run(edit).text
    assert "run now" not in named(tools, "Edit").run(edit).text


def test_a_policy_can_leave_commands_out(project: Project) -> None:
    context = project.context(ScriptedModel([]))
    context = replace(context, policy=replace(context.policy, has_commands=False))
    tools = tools_for("green", context, off_limits=frozenset(), tests=())
    assert [tool.spec.name for tool in tools] == [name for name in NAMES if name != "Bash"]
