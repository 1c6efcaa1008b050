import os
import sys
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.interpreter import find_interpreter
from tests.cdd_agent.testrun.conftest import program
from tests.cdd_agent.testrun.test_interpreter_environments import awake


def test_the_interpreter_says_what_it_is_and_what_found_it(tmp_path: Path, full_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(full_environment)
    found = find_interpreter(tmp_path, environment={"VIRTUAL_ENV": "/somewhere"})
    assert found.path == tmp_path / ".venv" / "bin" / "python"
    assert found.origin == ".venv"
    assert found.pytest == pytest.__version__
    assert found.python == ".".join(str(number) for number in sys.version_info[:3])


@pytest.mark.slow
def test_what_the_user_names_comes_first(tmp_path: Path, full_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(full_environment)
    assert find_interpreter(tmp_path, environment={"CDD_PYTHON": sys.executable}).path == Path(sys.executable)


@pytest.mark.slow
def test_without_any_environment_the_interpreter_is_this_one(tmp_path: Path) -> None:
    assert find_interpreter(tmp_path, environment={}).path == Path(sys.executable)


def test_a_python_on_the_path_is_taken_if_it_has_pytest(
    tmp_path: Path, full_environment: Path, *, bare_environment: Path
) -> None:
    found = find_interpreter(tmp_path, environment={"PATH": str(full_environment / "bin")})
    assert (found.path, found.origin) == (full_environment / "bin" / "python", "python on PATH")
    found = find_interpreter(tmp_path, environment={"PATH": str(bare_environment / "bin")})
    assert (found.path, found.origin) == (Path(sys.executable), "the interpreter that runs cdd")


def test_missing_pytest_is_an_error_with_the_command_that_installs_it(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    python = tmp_path / ".venv" / "bin" / "python"
    with pytest.raises(
        EnvironmentMissing, match=r"The project's interpreter .*/\.venv/bin/python \(\.venv\) cannot import pytest"
    ) as caught:
        find_interpreter(tmp_path, environment={})
    assert caught.value.hint == f"{python} -m pip install pytest, or set CDD_PYTHON to another interpreter"


def test_an_environment_of_uv_is_told_how_uv_installs(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.0\n")
    python = program(
        tmp_path / ".venv/bin/python", "echo \"ModuleNotFoundError: No module named 'pytest'\" >&2; exit 1"
    )
    with pytest.raises(EnvironmentMissing) as caught:
        find_interpreter(tmp_path, environment={})
    assert caught.value.hint.startswith(f"uv pip install --python {python} pytest")


def test_an_environment_whose_python_is_gone_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /gone\n")
    (tmp_path / ".venv/bin/python").symlink_to("/gone/python")
    with pytest.raises(EnvironmentMissing, match=r"does not start .*No such file") as caught:
        find_interpreter(tmp_path, environment={})
    assert "recreate" in caught.value.hint


@pytest.mark.parametrize(("python", "version"), [("3.7.16", "7.4.4"), ("3.11.7", "6.2.5")])
def test_versions_that_are_too_old_are_named(tmp_path: Path, python: str, *, version: str) -> None:
    answer = f'{{"python": "{python}", "pytest": "{version}", "packages": "/"}}'
    told = program(tmp_path / "python-old", f"echo '{answer}'")
    with pytest.raises(EnvironmentMissing, match=f"is Python {python} with pytest {version}") as caught:
        find_interpreter(tmp_path, environment={"CDD_PYTHON": str(told)})
    assert "'pytest>=7'" in caught.value.hint


def test_a_file_of_the_project_named_pytest_does_not_pass_for_it(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    (tmp_path / "pytest.py").write_text("__version__ = '9'\n")
    with pytest.raises(EnvironmentMissing):
        find_interpreter(tmp_path, environment={})


@pytest.mark.slow
def test_pytest_on_the_users_path_is_found_as_in_a_run(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    (tmp_path / "lib").symlink_to(Path(pytest.__file__).parent.parent)
    assert find_interpreter(tmp_path, environment={"PYTHONPATH": "lib"}).pytest == pytest.__version__


def test_pipes_in_place_of_an_environment_s_files_are_no_wait(tmp_path: Path) -> None:
    python = program(
        tmp_path / ".venv/bin/python", "echo \"ModuleNotFoundError: No module named 'pytest'\" >&2; exit 1"
    )
    os.mkfifo(tmp_path / ".venv/pyvenv.cfg")
    with awake(), pytest.raises(EnvironmentMissing) as caught:
        find_interpreter(tmp_path, environment={})
    assert f"{python} -m pip install pytest" in caught.value.hint


@pytest.mark.slow
def test_a_pipe_in_place_of_the_configuration_is_no_wait(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "hatch.toml", ".pdm-python", "Pipfile"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "test_it.py").write_text("")
    with awake():
        options = Options(project=tmp_path, attended=True)
        suite = Composition(options, emit=lambda _: None, environment={"PATH": os.environ["PATH"]}).suite
    assert suite.root == tmp_path
