from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.tools import Tool
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import UsageError
from cdd_agent.evidence.clean_copy import find_layout
from cdd_agent.model.conversation import JSON
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion, Permission
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.tdd.context import Context, Phase
from cdd_agent.tdd.tools import ToolOffer, find_test, make_tools
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.workspace.files import Workspace
from tests.fakes.approval import users_folder
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

NAMES = ["Read", "Write", "Edit", "Bash", "Glob", "Grep", "RunTests", "CompleteImplementation", "ReportBlocked"]


@pytest.fixture
def context(project: Project) -> Context:
    """Of a run that has begun."""
    return begin(project)


def begin(project: Project, *, left_out: tuple[str, ...] = ()) -> Context:
    context = project.context(ScriptedModel([]), left_out=left_out)
    context.workplace.begin()
    return context


def write(context: Context, path: str, content: str) -> None:
    """Write a file where the run works."""
    (context.workspace.root / path).write_text(content)


def tools_for(
    phase: Phase, context: Context, *, tests: tuple[str, ...], after_writing: tuple[str, ...] = ()
) -> tuple[Tool, ...]:
    layout = find_layout(context.workplace.tree, context.suite)
    locks = PhaseLocks(phase=phase, tests=tests, layout=layout)
    return make_tools(locks, context, offer=ToolOffer(after_writing=after_writing))


def named(tools: tuple[Tool, ...], name: str) -> Tool:
    return next(tool for tool in tools if tool.spec.name == name)


def test_every_phase_has_the_same_tools_in_the_same_order(context: Context) -> None:
    for phase in ("red", "green", "refactor"):
        assert [tool.spec.name for tool in tools_for(phase, context, tests=())] == NAMES


def test_what_the_phase_locks_or_the_ticket_owns_cannot_be_written(project: Project) -> None:
    context = begin(project, left_out=("tickets/sale",))
    tool = named(tools_for("green", context, tests=()), "Write")
    for path, why in (("tests/test_new.py", "locked in GREEN"), ("tickets/sale/plan.md", "belongs to the ticket")):
        output = tool.run({"file_path": path, "content": "x"})
        assert output.is_error
        assert why in output.text
        assert not (context.workspace.root / path).exists()
    assert not tool.run({"file_path": "new.py", "content": "x = 1\n"}).is_error


def test_what_is_written_is_written_in_the_run_tree_and_not_over_the_users_file(
    project: Project, context: Context
) -> None:
    project.write({"prices.py": "mine = 1\n"})
    tools = tools_for("green", context, tests=())
    assert "mine" not in named(tools, "Read").run({"file_path": "prices.py"}).text
    assert not named(tools, "Write").run({"file_path": "prices.py", "content": "x = 1\n"}).is_error
    assert not named(tools, "Bash").run({"command": "echo 'x = 2' >> prices.py"}).is_error
    assert (context.workspace.root / "prices.py").read_text() == "x = 1\nx = 2\n"
    assert (project.folder / "prices.py").read_text() == "mine = 1\n"


def test_who_wants_to_be_asked_about_everything_is_asked_before_a_file_is_written_and_tests_are_run(
    project: Project, tmp_path: Path
) -> None:
    asked: list[str] = []

    def says_no(question: CommandQuestion) -> CommandAnswer:
        asked.append(question.kind)
        return CommandAnswer(verdict="no", reason="not now")

    permission = Permission(
        root=project.folder,
        approvals=Approvals(project.folder, environment=users_folder(tmp_path)),
        ask=says_no,
        report=asked.append,
        asks_all=True,
    )
    context = replace(begin(project), permission=permission)
    tools = tools_for("green", context, tests=())
    assert "not now" in named(tools, "Write").run({"file_path": "new.py", "content": "x = 1\n"}).text
    assert (
        named(tools, "RunTests").run({}).text
        == "The developer does not allow you to run this project's tests: not now."
    )
    assert named(tools, "Bash").run({"command": "touch new.py"}).is_error
    assert asked == ["write", "tests", "write"]
    assert named(tools, "Write").run({"file_path": "tests/test_new.py", "content": "x"}).is_error
    assert len(asked) == 3, "what is locked anyway is no question"
    assert not (context.workspace.root / "new.py").exists()


def test_in_a_project_inside_the_work_tree_the_locks_mean_the_same_files(context: Context) -> None:
    inner = context.workspace.root / "services" / "sale"
    inner.mkdir(parents=True)
    context = replace(context, workspace=Workspace(inner))
    tool = named(tools_for("green", context, tests=("services/sale/check.py",)), "Write")
    assert tool.run({"file_path": "check.py", "content": "x"}).is_error
    assert not tool.run({"file_path": "theirs.py", "content": "x = 1\n"}).is_error
    assert (inner / "theirs.py").exists()


def test_a_project_in_a_folder_named_like_tests_is_no_test(context: Context) -> None:
    inner = context.workspace.root / "testing" / "app"
    inner.mkdir(parents=True)
    context = replace(context, workspace=Workspace(inner), suite=context.suite.with_root(inner))
    tool = named(tools_for("green", context, tests=()), "Write")
    assert not tool.run({"file_path": "sale.py", "content": "x = 1\n"}).is_error
    assert tool.run({"file_path": "test_sale.py", "content": "x = 1\n"}).is_error


def test_running_tests_tells_the_counts_and_the_failures(context: Context) -> None:
    write(context, "tests/test_more.py", "def test_more():\n    assert 1 == 2\n")
    run = named(tools_for("red", context, tests=()), "RunTests")
    text = run.run({}).text
    assert text.startswith("1 passed, 1 failed")
    assert "tests/test_more.py::test_more: assertion" in text


def test_tests_that_cannot_run_show_what_pytest_said(real_project: Project) -> None:
    context = begin(real_project)
    write(context, "pytest.ini", "[pytest]\nminversion = 99\n")
    run = named(tools_for("red", context, tests=()), "RunTests")
    assert "pytest-99" in run.run({}).text


@pytest.mark.slow
def test_what_a_run_did_differently_is_told_and_commands_find_its_interpreter(real_project: Project) -> None:
    context = begin(real_project)
    bash = named(tools_for("red", context, tests=()), "Bash")
    assert bash.run({"command": "command -v python"}).text.split("\n")[-1] in context.suite.command
    write(context, "pytest.ini", "[pytest]\naddopts = --no-such-option\n")
    run = named(tools_for("red", context, tests=()), "RunTests")
    assert "1 passed, 1 collected\nthe tests ran without the project's addopts" in run.run({}).text


@soak_after(3, "target", ["--basetemp=src", "-p", "@args.txt", "..", "../other/test_a.py", "/etc", ".git", "a\0", ""])
def test_what_names_no_test_of_the_project_is_not_run(project: Project, context: Context, target: str) -> None:
    run = named(tools_for("red", context, tests=()), "RunTests")
    assert run.run({"targets": [target]}).is_error
    assert project.seen == []


def test_commands_run_where_the_run_works(context: Context) -> None:
    bash = named(tools_for("red", context, tests=()), "Bash")
    assert Path(bash.run({"command": "pwd"}).text.splitlines()[-1]) == context.workplace.tree.root


def test_a_test_file_that_the_step_names_is_one_whatever_it_is_called(context: Context) -> None:
    red = named(tools_for("red", context, tests=("checks/check_a.py",)), "Write")
    green = named(tools_for("green", context, tests=("checks/check_a.py",)), "Write")
    fields: dict[str, JSON] = {"file_path": "checks/check_a.py", "content": "def check_a(): assert False\n"}
    assert not red.run(fields).is_error
    assert "locked in GREEN" in green.run({**fields, "content": ""}).text


def test_what_is_written_is_answered_with_what_the_tests_say_then(context: Context) -> None:
    after = ("tests/test_prices.py::test_total",)
    tools = tools_for("green", context, tests=(), after_writing=after)
    write, edit = (named(tools, name) for name in ("Write", "Edit"))
    assert write.follow_up is not None
    assert write.follow_up is edit.follow_up
    assert write.follow_up().startswith("Results of the tests to pass: 1 passed")
    edit.run({"file_path": "prices.py", "old_string": "sum(prices)", "new_string": "0"})
    assert "1 failed" in write.follow_up()
    assert named(tools, "Bash").follow_up is None


def test_a_policy_can_leave_commands_out(context: Context) -> None:
    context = replace(context, policy=replace(context.policy, has_commands=False))
    tools = tools_for("green", context, tests=())
    assert [tool.spec.name for tool in tools] == [name for name in NAMES if name != "Bash"]


@soak_after(
    1,
    ("command", "phase", "is_told"),
    [
        ("echo \"OSError: [Errno 30] Read-only file system: 'tests/out.txt'\"", "green", True),
        ("echo \"touch: cannot touch '/p/tests/out.txt': Read-only file system\"", "refactor", True),
        ("echo \"PermissionError: [Errno 13] Permission denied: 'tests/out.txt'\"", "green", True),
        ("echo \"touch: cannot touch '/etc/out.txt': Read-only file system\"", "green", False),
        ("echo \"OSError: [Errno 30] Read-only file system: 'tests/out.txt'\"", "red", False),
        ("echo tests/out.txt", "green", False),
    ],
)
def test_a_command_that_could_not_write_beside_the_tests_is_told_what_can(
    context: Context, command: str, *, phase: Phase, is_told: bool
) -> None:
    told = named(tools_for(phase, context, tests=()), "Bash").run({"command": command}).text
    assert ("RunTests runs tests that write beside them" in told) is is_told


KNOWN = (
    "tests/test_cart.py::test_total",
    "tests/test_cart.py::test_rounds[1.5-2]",
    "tests/test_cart.py::test_rounds[a::b/c.d]",
    "tests/test_cart.py::TestCart::test_empty",
    "tests/test_cart.py::TestCart::test_remove[x]",
    "tests/unit/test_cart.py::test_empty",
    "tests/unit/test_price.py::TestPrice::TestTax::test_none",
    "check.py::check.area",
)


def test_a_test_is_found_by_any_end_of_its_name() -> None:
    expected = {
        "test_total": KNOWN[0],
        "tests/test_cart.py::test_total": KNOWN[0],
        "tests.test_cart.test_total": KNOWN[0],
        "tests/test_cart.test_total": KNOWN[0],
        "test_rounds": "tests/test_cart.py::test_rounds",
        "test_cart.py::test_rounds": "tests/test_cart.py::test_rounds",
        "test_rounds[1.5-2]": KNOWN[1],
        "test_rounds[a::b/c.d]": KNOWN[2],
        "TestCart::test_empty": KNOWN[3],
        "TestCart.test_empty": KNOWN[3],
        "TestCart": "tests/test_cart.py::TestCart",
        "tests/test_cart.py::TestCart": "tests/test_cart.py::TestCart",
        "test_remove": "tests/test_cart.py::TestCart::test_remove",
        "tests/test_cart.py::test_remove": "tests/test_cart.py::TestCart::test_remove",
        "TestTax": "tests/unit/test_price.py::TestPrice::TestTax",
        "test_price.py": "tests/unit/test_price.py",
        "test_price": "tests/unit/test_price.py",
        "unit.test_cart": "tests/unit/test_cart.py",
        "tests/test_new.py::test_it": "tests/test_new.py::test_it",
    }
    assert {name: find_test(name, KNOWN) for name in expected} == expected


def test_a_name_of_several_tests_or_of_none_is_explained() -> None:
    with pytest.raises(
        UsageError, match=r"fits several tests: tests/test_cart.py::TestCart::test_empty, tests/unit/te"
    ):
        find_test("test_empty", KNOWN)
    with pytest.raises(UsageError, match=r"fits several tests: tests/test_cart.py, tests/unit/test_cart.py"):
        find_test("test_cart.py", KNOWN)
    with pytest.raises(UsageError) as caught:
        find_test("test_totl", KNOWN)
    assert (caught.value.happened, caught.value.hint) == ("There is no test test_totl.", f"did you mean {KNOWN[0]}?")
    for name in ("", "::", "[1]", "."):
        with pytest.raises(UsageError):
            find_test(name, KNOWN)


def test_a_bare_name_runs_a_known_test_and_one_that_was_just_written(context: Context, project: Project) -> None:
    layout = find_layout(context.workplace.tree, context.suite)
    known = ("tests/test_prices.py::test_total",)
    tool = named(
        make_tools(PhaseLocks(phase="red", layout=layout), context, offer=ToolOffer(list_tests=lambda: known)),
        "RunTests",
    )
    new = "class TestNew:\n    def test_free(self):\n        assert 1 == 2\n\n\ndef test_more():\n    pass\n"
    write(context, "tests/test_new.py", new)
    for name, outcome in (("test_total", "1 passed"), ("test_free", "1 failed"), ("TestNew", "1 failed")):
        assert tool.run({"targets": [name]}).text.startswith(outcome)
    asked = [run.targets for run in project.fake.asked]
    assert asked[-3:] == [known, ("tests/test_new.py::TestNew::test_free",), ("tests/test_new.py::TestNew",)]
    assert "There is no test test_lost." in tool.run({"targets": ["test_lost"]}).text
    assert len(project.fake.asked) == len(asked), "nothing runs for a name that is unknown"


def test_a_rename_is_refused_with_the_locked_tests_that_it_reaches_and_taken_back_if_a_test_breaks(
    project: Project,
) -> None:
    source = "def rate():\n    return 19\n\n\ndef gross(x):\n    return x + rate()\n"
    test = (
        "import vat\n\n\ndef test_rate():\n    assert getattr(vat, 'rate')() == 19\n\n\n"
        "def test_gross():\n    assert vat.gross(1) == 20\n"
    )
    context = begin(project)
    context = replace(context, symbols=Symbols(Index(context.workspace.root)))
    write(context, "vat.py", source)
    write(context, "tests/test_vat.py", test)
    locks = PhaseLocks(phase="green", layout=find_layout(context.workplace.tree, context.suite))
    rename = named(make_tools(locks, context, offer=ToolOffer(has_symbols=True)), "RenameSymbol")
    reached = rename.run({"file_path": "vat.py", "name": "gross", "new_name": "total"})
    assert (reached.is_error, "tests/test_vat.py may not be written" in reached.text) == (True, True)
    broken = rename.run({"file_path": "vat.py", "name": "rate", "new_name": "percent"})
    assert (broken.is_error, "tests/test_vat.py::test_rate" in broken.text) == (True, True)
    assert (context.workspace.root / "vat.py").read_text() == source


def test_a_rename_runs_no_test_that_the_user_does_not_allow(project: Project, tmp_path: Path) -> None:
    permission = Permission(
        root=project.folder,
        approvals=Approvals(project.folder, environment=users_folder(tmp_path)),
        ask=lambda question: CommandAnswer(verdict="no" if question.kind == "tests" else "once"),
        report=lambda _: None,
        asks_all=True,
    )
    context = begin(project)
    context = replace(context, permission=permission, symbols=Symbols(Index(context.workspace.root)))
    write(context, "vat.py", "def rate(): return 19\n")
    locks = PhaseLocks(phase="green", layout=find_layout(context.workplace.tree, context.suite))
    rename = named(make_tools(locks, context, offer=ToolOffer(has_symbols=True)), "RenameSymbol")
    refused = rename.run({"file_path": "vat.py", "name": "rate", "new_name": "percent"})
    assert (refused.is_error, "does not allow you to run this project's tests" in refused.text) == (True, True)
    assert (context.workspace.root / "vat.py").read_text() == "def rate(): return 19\n"
