import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import (
    NO_ENVIRONMENT,
    InterpreterCandidate,
    KeptFinder,
    NamedEnvironment,
    find_candidates,
)
from tests.cdd_agent.testrun.conftest import Confined, program

SITE = "lib/python3.11/site-packages/pytest/__init__.py"


def environment(folder: Path) -> Path:
    """What looks like a virtual environment; its interpreter."""
    python = program(folder / "bin/python", "exit 1")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return python


def found(project: Path, named: NamedEnvironment = NO_ENVIRONMENT, /, **variables: str) -> list[InterpreterCandidate]:
    finder = KeptFinder(project=project, environment=variables, sandbox=Confined())
    return list(find_candidates(project, variables, named=named, find_kept=finder.find))


def rules(project: Path, named: NamedEnvironment = NO_ENVIRONMENT, /, **variables: str) -> list[str]:
    return [candidate.rule for candidate in found(project, named, **variables)]


def kept_by(tool: str, home: Path) -> Path:
    """Where a tool keeps an environment outside the project, as it does by itself; its interpreter."""
    places = {
        "poetry": ".cache/pypoetry/virtualenvs/shop-q4Zk1x-py3.11",
        "hatch": ".local/share/hatch/env/virtual/shop/gjN2cQ6d/shop",
        "pipenv": ".local/share/virtualenvs/shop-yOb1Ksrl",
    }
    return environment(home / places[tool])


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Raise ``AssertionError`` out of whatever still waits after 5 seconds."""

    def overslept(*_: object) -> None:
        raise AssertionError("somebody waits for a pipe")

    before = signal.signal(signal.SIGALRM, overslept)
    signal.alarm(5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_the_rules_count_in_their_order(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for name in (".mine", ".uvs", ".venv", "venv", "env", ".pixi/envs/default", ".conda"):
        environment(project / name)
    (environment(project / ".tox/py312").parent.parent / "lib/python3.12/site-packages/pytest").mkdir(parents=True)
    environment(elsewhere)
    (project / ".pdm-python").write_text(f"{environment(tmp_path / 'pdm')}\n")
    (project / "poetry.lock").touch()
    (project / "Pipfile").touch()
    (project / "pyproject.toml").write_text("[tool.hatch.envs.default]\n")
    for tool in ("poetry", "hatch", "pipenv"):
        program(tmp_path / f"bin/{tool}", f"echo {environment(tmp_path / tool).parent.parent}")
    program(tmp_path / "bin/python3", "echo /opt/python3.14")
    variables = {
        "CDD_PYTHON": "/usr/bin/python3",
        "UV_PROJECT_ENVIRONMENT": ".uvs",
        "CONDA_PREFIX": str(project / ".conda"),
        "PATH": f"{tmp_path / 'bin'}",
    }
    usual = [".venv", "venv", "env", ".pdm-python", "poetry", "hatch", "pipenv", ".pixi/envs/default", ".tox/py312"]
    assert rules(project, VIRTUAL_ENV=str(elsewhere), **variables) == [
        *("CDD_PYTHON", "UV_PROJECT_ENVIRONMENT", *usual),
        *("CONDA_PREFIX", "VIRTUAL_ENV", "python3 on PATH"),
    ]
    assert rules(project, VIRTUAL_ENV=str(project / ".mine"), **variables)[:3] == [
        *("CDD_PYTHON", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    ]


@pytest.mark.parametrize(
    ("files", "tool"),
    [
        ({"pyproject.toml": "[tool.poetry]\n", "poetry.lock": ""}, "poetry"),
        ({"pyproject.toml": "[project]\n", "poetry.lock": ""}, "poetry"),
        ({"pyproject.toml": "[tool.hatch.envs.default]\n"}, "hatch"),
        ({"hatch.toml": "[envs.default]\n"}, "hatch"),
        ({"Pipfile": "", "Pipfile.lock": "{}"}, "pipenv"),
    ],
)
def test_an_environment_outside_the_project_is_told_by_the_tool_that_keeps_it(
    tmp_path: Path, files: dict[str, str], *, tool: str
) -> None:
    project = tmp_path / "project"
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    python = kept_by(tool, tmp_path)
    program(tmp_path / f"bin/{tool}", f"echo Using it.; echo {python.parent.parent}")
    path = f"{tmp_path / 'bin'}:/bin"
    assert found(project, PATH=path, HOME=str(tmp_path))[0] == InterpreterCandidate(rule=tool, path=python)
    assert tool not in rules(project, PATH="/gone")


@pytest.mark.parametrize(
    ("layout", "rule"),
    [
        ({".venv/pyvenv.cfg": "home = /opt\nuv = 0.13.9\nprompt = shop\n", "uv.lock": ""}, ".venv"),
        ({".venv/pyvenv.cfg": "home = /usr/bin\n", ".pdm-python": "PROJECT/.venv/bin/python"}, ".venv"),
        ({"venv/pyvenv.cfg": "home = /usr/bin\n"}, "venv"),
        ({".tox/py/pyvenv.cfg": "", ".tox/.pkg/pyvenv.cfg": "", ".tox/py/" + SITE: ""}, ".tox/py"),
        (
            {".nox/tests-3-11/pyvenv.cfg": "", ".nox/lint_it/pyvenv.cfg": "", ".nox/tests-3-11/" + SITE: ""},
            ".nox/tests-3-11",
        ),
    ],
    ids=["uv", "pdm", "venv", "tox", "nox"],
)
def test_what_each_tool_leaves_in_the_project_is_found(tmp_path: Path, layout: dict[str, str], *, rule: str) -> None:
    for name, text in layout.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("PROJECT", str(tmp_path)))
        if name.endswith("pyvenv.cfg"):
            program((tmp_path / name).parent / "bin/python", "exit 1")
    assert rules(tmp_path)[0] == rule


def test_what_the_test_command_names_comes_after_what_the_user_names_for_this_run(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    python = environment(tmp_path / ".tox/py")
    named = NamedEnvironment(python=python)
    assert rules(tmp_path, named, CDD_PYTHON="/usr/bin/python3")[:3] == ["CDD_PYTHON", "test_command", ".venv"]
    first = found(tmp_path, named)[0]
    assert (first.path, first.is_named_by_project) == (python, True)


@pytest.mark.parametrize("tool", ["poetry", "hatch", "pipenv"])
def test_the_tool_that_the_test_command_names_is_asked_before_the_folders_are_looked_at(
    tmp_path: Path, tool: str
) -> None:
    environment(tmp_path / ".venv")
    python = kept_by(tool, tmp_path / "home")
    program(tmp_path / f"bin/{tool}", f'echo "$*" >> {tmp_path}/asked; echo {python.parent.parent}')
    name = "hatch-test" if tool == "hatch" else ""
    assert rules(tmp_path, NamedEnvironment(tool=tool, name=name), PATH=f"{tmp_path / 'bin'}:/bin")[:2] == [
        tool,
        ".venv",
    ]
    assert ("env find hatch-test" in (tmp_path / "asked").read_text()) == (tool == "hatch")


def test_of_the_environments_that_hatch_has_for_each_version_those_that_are_there_count(tmp_path: Path) -> None:
    python = environment(tmp_path / "hatch-test.py3.12")
    lines = "; ".join(f"echo {tmp_path}/hatch-test.py3.{minor}" for minor in (14, 13, 12, 11))
    program(tmp_path / "bin/hatch", lines)
    asked = NamedEnvironment(tool="hatch", name="hatch-test")
    assert [each.path for each in found(tmp_path, asked, PATH=f"{tmp_path / 'bin'}:/bin")][:1] == [python]


def test_a_folder_of_that_name_that_is_no_environment_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    assert rules(tmp_path, VIRTUAL_ENV="/gone", CONDA_PREFIX="/gone") == []


def test_a_member_of_a_repository_has_the_environments_up_to_its_top(tmp_path: Path) -> None:
    repository, member = tmp_path / "repository", tmp_path / "repository/packages/a"
    member.mkdir(parents=True)
    environment(tmp_path / ".venv")
    environment(repository / ".venv")
    assert rules(member) == []
    (repository / ".git").touch()
    assert rules(member) == ["../../.venv"]
    active = str(environment(repository / ".dev").parent.parent)
    assert rules(member, VIRTUAL_ENV=active)[:2] == ["VIRTUAL_ENV", "../../.venv"]
    environment(member / ".venv")
    assert rules(member) == [".venv", "../../.venv"]


def test_the_newest_environment_of_tox_or_nox_with_pytest_counts(tmp_path: Path) -> None:
    for number, name in enumerate((".tox/py311", ".nox/tests", ".tox/py310", ".tox/lint")):
        folder = environment(tmp_path / name).parent.parent
        if "lint" not in name:
            (folder / "lib/python3.11/site-packages/pytest").mkdir(parents=True)
        os.utime(folder / "pyvenv.cfg", (1000 + number % 3, 1000 + number % 3))
    os.utime(tmp_path / ".nox/tests/pyvenv.cfg", (2000, 2000))
    assert rules(tmp_path) == [".nox/tests"]


def test_the_base_environment_of_conda_is_nobodys(tmp_path: Path) -> None:
    environment(tmp_path / "conda")
    variables = {"CONDA_PREFIX": str(tmp_path / "conda")}
    assert rules(tmp_path, CONDA_DEFAULT_ENV="base", **variables) == []
    assert rules(tmp_path, CONDA_DEFAULT_ENV="data", **variables) == ["CONDA_PREFIX"]


@pytest.mark.parametrize("named", ["/bin/rm", "python3", "/gone/python3"])
def test_only_a_python_that_is_there_is_taken_from_pdms_file(tmp_path: Path, named: str) -> None:
    (tmp_path / ".pdm-python").write_text(named)
    assert rules(tmp_path) == []


def test_a_tool_that_fails_or_knows_of_no_environment_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").touch()
    (tmp_path / "Pipfile").touch()
    program(tmp_path / "bin/poetry", "exit 1")
    program(tmp_path / "bin/pipenv", "echo No virtualenv has been created")
    assert rules(tmp_path, PATH=str(tmp_path / "bin")) == []


def test_a_tool_is_asked_about_the_project_and_not_the_active_environment(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").touch()
    program(tmp_path / "bin/poetry", f'echo "$VIRTUAL_ENV$ANTHROPIC_API_KEY|$*|$PWD" > {tmp_path}/asked')
    rules(tmp_path, PATH=f"{tmp_path / 'bin'}", VIRTUAL_ENV="/gone", ANTHROPIC_API_KEY="sk-ant-canary")
    assert (tmp_path / "asked").read_text() == f"|--no-plugins env info --path|{tmp_path}\n"


@pytest.mark.parametrize("table", ["[tool.hatch.build]\n", "[tool.hatch\n"])
def test_hatch_is_not_asked_where_it_has_no_environments(tmp_path: Path, table: str) -> None:
    (tmp_path / "pyproject.toml").write_text(table)
    program(tmp_path / "bin/hatch", f"echo {environment(tmp_path / 'hatch').parent.parent}")
    assert rules(tmp_path, PATH=str(tmp_path / "bin")) == []


@pytest.mark.parametrize("name", [".pdm-python", "Pipfile", "hatch.toml", "poetry.lock", "pyproject.toml"])
@pytest.mark.parametrize("is_behind_a_link", [True, False])
def test_a_pipe_in_place_of_a_file_is_no_wait_for_us_nor_for_a_tool(
    tmp_path: Path, *, name: str, is_behind_a_link: bool
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for usual in ("Pipfile", "poetry.lock"):
        (project / usual).touch()
    (project / "pyproject.toml").write_text("[tool.hatch.envs.default]\n")
    (project / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe")
    if is_behind_a_link:
        (project / name).symlink_to(tmp_path / "pipe")
    else:
        os.mkfifo(project / name)
    for tool in ("poetry", "hatch", "pipenv"):
        program(tmp_path / f"bin/{tool}", f"cat {project / name} > {tmp_path / 'said'}; exit 1")

    with awake():
        tools = {} if name == ".pdm-python" else {"PATH": f"{tmp_path / 'bin'}:/bin"}
        assert [rule for rule in rules(project, **tools) if "PATH" not in rule] == []
