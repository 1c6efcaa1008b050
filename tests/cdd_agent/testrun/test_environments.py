import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdd_agent.testrun.environments import Candidate, candidates
from tests.cdd_agent.testrun.conftest import program


def environment(folder: Path) -> Path:
    """What looks like a virtual environment; its interpreter."""
    python = program(folder / "bin/python", "exit 1")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return python


def found(project: Path, **variables: str) -> list[Candidate]:
    return list(candidates(project, variables))


def rules(project: Path, **variables: str) -> list[str]:
    return [candidate.rule for candidate in found(project, **variables)]


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
        *("CDD_PYTHON", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"),
    ]


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


@pytest.mark.parametrize(
    "table",
    [
        "[tool.hatch.build]\n",
        "[tool.hatch.envs.default]\n[tool.hatch.env.collectors.custom]\npath = 'x.py'\n",
        "[tool.hatch.envs.default]\n[tool.hatch.version]\nsource = 'code'\n",
        "[tool.hatch\n",
    ],
)
def test_hatch_is_not_asked_where_it_has_no_environments_or_would_run_the_projects_code(
    tmp_path: Path, table: str
) -> None:
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
