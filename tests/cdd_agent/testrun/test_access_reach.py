import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.testrun.access import QUESTION, build_user_base_variable, guess_reads, select_readable
from cdd_agent.testrun.interpreter import ask_interpreter
from tests.cdd_agent.sandbox.conftest import CONFINED, at
from tests.fakes.cases import soak_after


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (".ssh", ".config/app", ".local/lib", ".pyenv/versions/3", "work/lib", "work/lib/deep"):
        (tmp_path / "home" / name).mkdir(parents=True)
    return tmp_path / "home"


def test_neither_home_nor_its_hidden_folders_nor_the_systems_are_let_in(home: Path) -> None:
    asked = [home, home.parent, home / ".ssh", home / ".config/app", Path("/etc"), Path("/"), Path("relative")]
    assert select_readable([*asked, home / "gone"], home=home) == ()


def test_a_link_is_what_it_leads_to(home: Path) -> None:
    (home / "work/key").symlink_to(home / ".ssh")
    assert select_readable([home / "work/key"], home=home) == ()


def test_folders_of_tools_for_python_and_ordinary_ones_are_let_in_once(home: Path) -> None:
    asked = [home / ".local/lib", home / ".pyenv/versions/3", home / "work/lib", home / "work/lib/deep"]
    assert select_readable(asked, home=home) == tuple(asked[:3])


def test_what_is_installed_in_editable_form_is_found(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    for name, told in {
        "a-1": {"url": f"file://{tmp_path}/a", "dir_info": {"editable": True}},
        "b-1": {"url": f"file://{tmp_path}/b", "dir_info": {}},
        "c-1": {"url": "https://example.org/c", "vcs_info": {}},
    }.items():
        (packages / f"{name}.dist-info").mkdir(parents=True)
        (packages / f"{name}.dist-info" / "direct_url.json").write_text(json.dumps(told))
    code = f"{QUESTION}\nprint(json.dumps(reads))"
    argv = [sys.executable, "-I", "-S", "-c", code, str(packages)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    reads = json.loads(said)
    assert {str(tmp_path / "a"), str(packages), sys.prefix, sys.base_prefix} <= set(reads)
    assert str(tmp_path / "b") not in reads


def test_what_an_environment_needs_is_told_without_running_it(full_environment: Path) -> None:
    found = guess_reads(full_environment / "bin" / "python")
    assert full_environment in found
    site = Path(pytest.__file__).parent.parent
    assert any(site == path or site.is_relative_to(path) for path in found)


def test_a_pipe_or_a_huge_file_in_an_environment_is_not_waited_for(tmp_path: Path) -> None:
    packages = tmp_path / "env/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    os.mkfifo(tmp_path / "env/pyvenv.cfg")
    os.mkfifo(packages / "a.pth")
    (packages / "b.pth").write_bytes(bytes(1 << 20))
    (tmp_path / "there").mkdir()
    (packages / "c.pth").write_text(f"{tmp_path}/there\n")
    assert guess_reads(tmp_path / "env/bin/python") == (tmp_path / "env", tmp_path / "there")


def test_the_users_own_packages_are_found_where_home_is_another(tmp_path: Path) -> None:
    assert build_user_base_variable(str(tmp_path)) == {"PYTHONUSERBASE": str(tmp_path)}
    assert build_user_base_variable("") == build_user_base_variable(str(tmp_path / "gone")) == {}


@soak_after(1, "level", CONFINED)
def test_an_interpreter_in_the_project_is_asked_in_the_sandbox(
    tmp_path: Path, *, level: str, full_environment: Path
) -> None:
    project = tmp_path / "project"
    (project / "env").mkdir(parents=True)
    subprocess.run(["cp", "-a", f"{full_environment}/.", str(project / "env")], check=True)
    site = next((project / "env" / "lib").glob("python*/site-packages"))
    (site / "plant.pth").write_text(f"import os; open({str(tmp_path / 'planted')!r}, 'w')\n")
    answer = ask_interpreter(project, project / "env" / "bin" / "python", environment={}, sandbox=at(level))
    assert not isinstance(answer, str)
    assert answer.pytest == pytest.__version__
    assert not (tmp_path / "planted").exists()
