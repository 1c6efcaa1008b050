import sys
import venv
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.detect import find_interpreter


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without pytest."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture(scope="module")
def full_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees this interpreter's pytest."""
    folder = tmp_path_factory.mktemp("full") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    here = Path(pytest.__file__).parent.parent
    (site / "here.pth").write_text(f"{here}\n")
    return folder


def test_the_projects_own_environment_comes_first(tmp_path: Path, full_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(full_environment)
    found = find_interpreter(tmp_path, environment={"VIRTUAL_ENV": "/somewhere"})
    assert found.path == tmp_path / ".venv" / "bin" / "python"
    assert found.origin == ".venv"
    assert found.pytest == pytest.__version__


def test_uv_can_name_another_folder(tmp_path: Path, full_environment: Path) -> None:
    found = find_interpreter(tmp_path, environment={"UV_PROJECT_ENVIRONMENT": str(full_environment)})
    assert found.path == full_environment / "bin" / "python"


def test_the_active_environment_is_next(tmp_path: Path, full_environment: Path) -> None:
    found = find_interpreter(tmp_path, environment={"VIRTUAL_ENV": str(full_environment)})
    assert found.origin == "VIRTUAL_ENV"


def test_without_any_environment_the_interpreter_is_this_one(tmp_path: Path) -> None:
    assert find_interpreter(tmp_path, environment={}).path == Path(sys.executable)


def test_a_folder_of_that_name_that_is_no_environment_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    assert find_interpreter(tmp_path, environment={}).path == Path(sys.executable)


def test_missing_pytest_is_an_error_with_the_command_that_installs_it(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    with pytest.raises(EnvironmentMissing, match="pytest cannot be imported") as caught:
        find_interpreter(tmp_path, environment={})
    assert caught.value.hint == f"{tmp_path / '.venv' / 'bin' / 'python'} -m pip install pytest"


def test_a_file_of_the_project_named_pytest_does_not_pass_for_it(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    (tmp_path / "pytest.py").write_text("__version__ = '9'\n")
    with pytest.raises(EnvironmentMissing):
        find_interpreter(tmp_path, environment={})


def test_pytest_on_the_users_path_is_found_as_in_a_run(tmp_path: Path, bare_environment: Path) -> None:
    (tmp_path / ".venv").symlink_to(bare_environment)
    (tmp_path / "lib").symlink_to(Path(pytest.__file__).parent.parent)
    assert find_interpreter(tmp_path, environment={"PYTHONPATH": "lib"}).pytest == pytest.__version__
