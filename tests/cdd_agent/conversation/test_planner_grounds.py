import os
from pathlib import Path

import pytest

from cdd_agent.conversation import planner
from cdd_agent.tickets.plan import Plan, Step
from cdd_agent.workspace.files import Workspace

TESTS = "def test_a():\n    pass\n\n\nclass TestB:\n    async def test_c(self):\n        pass\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for name, text in {"src/app.py": "x = 1\n", "tests/test_app.py": TESTS, "tests/broken.py": "def (\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    os.symlink("/etc", tmp_path / "outside")
    return Workspace(tmp_path)


def step(number: int = 1, **changes: object) -> Step:
    lines = {"files": 10 * number + 1, "tests": 10 * number + 2}
    return Step(number=number, title=f"Do {number}", line=10 * number, key_lines=lines, **changes)  # type: ignore[arg-type]


def found(workspace: Workspace, *steps: Step) -> list[tuple[int, str, str]]:
    problems = planner.find_problems(Plan(title="x", steps=steps), workspace=workspace)
    return [(problem.line, problem.message, problem.hint) for problem in problems]


def warned(workspace: Workspace, *steps: Step, begun: tuple[str, ...] = ()) -> list[str]:
    return [str(told) for told in planner.find_warnings(Plan(title="x", steps=steps), workspace=workspace, begun=begun)]


def test_files_that_are_there_or_can_be_made_are_no_problem(workspace: Workspace) -> None:
    files = ("src/app.py", "src/new.py", "src/deep/er.py", "new/a.py", "README.md", "empty/a.py", "Makefile")
    assert found(workspace, step(files=files), step(2, files=files, tests=("tests/test_app.py::test_new",))) == []


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("src", "names src, which is a folder", "name the files in it"),
        ("src/", "names src/, which is a folder", "name the files in it"),
        ("empty", "names empty, which is a folder", "name the files in it"),
        ("src/app.py/x.py", "names src/app.py/x.py, but src/app.py is a file", "put it into a folder"),
        (".git/config", "names a file that cannot be written: .git/config is in .git", "src/module.py"),
        (".cdd/config.yaml", "names a file that cannot be written: .cdd/config.yaml is in .cdd", "src/module.py"),
        (".env", "names a file that cannot be written: By its name, .env is a file of secrets", ".env.example"),
        ("deploy/id_rsa", "names a file that cannot be written: By its name, deploy/id_rsa is", "example"),
        (".gitattributes", "names a file that cannot be written: Agents may not write .gitattributes", "ask the user"),
        (".venv/lib/a.py", "names a file that cannot be written: Agents may not write .venv/lib/a.py", "ask the user"),
        (
            "tickets/t/execution-state.json",
            "names a file that cannot be written: Agents may not write tickets/t/exec",
            "ask the user",
        ),
        (
            "outside/a.py",
            "names a file that cannot be written: outside/a.py is a link that leads outside",
            "src/module.py",
        ),
        ("SRC/new.py", "names SRC/new.py, which differs from src only in case", "write src/new.py"),
        ("src/App.py", "names src/App.py, which differs from src/app.py only in case", "write src/app.py"),
        ("src\\app.py", "names src\\app.py, which contains a backslash", "write src/app.py"),
        ("src/*.py", "names src/*.py, which is a pattern", "name each file"),
        ("./src/app.py", "names ./src/app.py, which contains redundant parts", "write src/app.py"),
    ],
)
def test_a_file_that_cannot_become_what_the_plan_says_is_told_with_line_and_hint(
    workspace: Workspace, *, path: str, message: str, hint: str
) -> None:
    ((line, told, advice),) = found(workspace, step(3, files=(path,)))

    assert line == 31
    assert told.startswith(f"step 3 {message}")
    assert hint in advice


def test_a_test_file_is_held_to_the_same_rules(workspace: Workspace) -> None:
    told = found(workspace, step(tests=("Tests/test_app.py::test_new", ".git/test_a.py", "tests")))

    assert [(line, message.split(",")[0]) for line, message, _ in told] == [
        (12, "step 1 names Tests/test_app.py"),
        (12, "step 1 names a file that cannot be written: .git/test_a.py is in .git"),
        (12, "step 1 names tests"),
    ]


def test_the_files_of_a_plan_must_agree_with_each_other(workspace: Workspace) -> None:
    told = found(
        workspace,
        step(1, files=("new/a.py", "doc")),
        step(2, files=("New/b.py",)),
        step(3, files=("new/a.py/c.py", "doc/x.md")),
    )

    assert [(line, message) for line, message, _ in told] == [
        (11, "step 1 names new/a.py, which is a folder"),
        (11, "step 1 names doc, which is a folder"),
        (21, "step 2 names New/b.py, which differs from new only in case"),
        (31, "step 3 names new/a.py/c.py, but new/a.py is a file"),
        (31, "step 3 names doc/x.md, but doc is a file"),
    ]


def test_two_files_that_are_there_may_differ_in_case(workspace: Workspace) -> None:
    (workspace.root / "src" / "APP.py").write_text("")
    if len(list((workspace.root / "src").iterdir())) == 1:
        pytest.skip("this file system knows no case")
    assert found(workspace, step(files=("src/app.py", "src/APP.py"))) == []


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("tests/test_a.py::", "'' is not a Python name"),
        ("tests/test_a.py::test a", "'test a' is not a Python name"),
        ("tests/test_a.py::TestB::::test_c", "'' is not a Python name"),
        ("tests/test_a.py::1st", "'1st' is not a Python name"),
        ("tests/test_a.txt::test_a", "tests/test_a.txt is not a Python file"),
        ("::test_a", "its file is not a Python file"),
        ("tests/test_a.py::test_a[1", "brackets belong at the end"),
        ("tests/test_a.py[1]", "brackets belong at the end"),
    ],
)
def test_a_node_id_that_pytest_could_not_have_is_a_problem(workspace: Workspace, test: str, why: str) -> None:
    ((line, told, hint),) = found(workspace, step(tests=(test,)))

    assert line == 12
    assert told.startswith(f"step 1 names the test {test}, but {why}")
    assert "tests/test_it.py::test_name" in hint


@pytest.mark.parametrize(
    "test",
    [
        "tests/test_new.py",
        "tests/test_new.py::test_a[x::y-../z]",
        "tests/test_new.py::TestB::test_c",
        "tests/test_app.py::test_\u00e9",
    ],
)
def test_a_node_id_may_have_what_pytest_gives_it(workspace: Workspace, test: str) -> None:
    assert found(workspace, step(tests=(test,))) == []


def test_what_lies_outside_is_left_to_the_plan_itself(workspace: Workspace) -> None:
    assert found(workspace, step(files=("../a.py", "/etc/passwd", "~/a.py"))) == []


@pytest.mark.parametrize("test", ["test_a", "test_a[1]", "TestB::test_c", "TestB"])
def test_a_test_that_is_there_already_is_a_warning(workspace: Workspace, test: str) -> None:
    name = f"tests/test_app.py::{test}"
    assert warned(workspace, step(tests=(name,)))[0].startswith(
        f"line 12: step 1 plans to add the test {name}, which exists already (rename it"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"description": "Extend test_a by an empty list."},
        {"done": True},
        {"kind": "refactor"},
        {"tests": ("tests/test_app.py",)},
        {"tests": ("tests/test_app.py::test_new",)},
        {"tests": ("tests/test_app.py::TestB::test_a",)},
        {"tests": ("tests/broken.py::test_a",)},
        {"tests": ("tests/none.py::test_a",)},
    ],
    ids=["said so", "done", "no new test", "a file", "a new test", "another class", "no Python", "no file"],
)
def test_no_other_test_is_warned_of(workspace: Workspace, changes: dict[str, object]) -> None:
    assert warned(workspace, step(1, **{"tests": ("tests/test_app.py::test_a",), **changes})) == []


def test_the_tests_of_a_step_that_was_run_may_be_there(workspace: Workspace) -> None:
    assert warned(workspace, step(tests=("tests/test_app.py::test_a",)), begun=("Do 1",)) == []


def test_the_same_test_in_two_steps_is_a_warning_at_the_second(workspace: Workspace) -> None:
    new = ("tests/test_app.py::test_new",)
    (told,) = warned(workspace, step(1, tests=new), step(2, tests=new))
    assert told.startswith("line 22: step 2 names the test tests/test_app.py::test_new of step 1 (")


def test_what_is_to_be_created_is_what_is_not_there(workspace: Workspace) -> None:
    plan = Plan(title="x", steps=(step(files=("src/app.py", "b.py"), tests=("tests/test_app.py::t", "tests/c.py")),))
    assert planner.find_new_files(plan, workspace=workspace) == {"b.py", "tests/c.py"}
