import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.testrun import interpreter
from cdd_agent.testrun.interpreter import PythonInfo, ask_interpreter, find_candidates
from tests.cdd_agent.testrun.conftest import program


def times_asked(folder: Path) -> int:
    return len((folder / "count").read_text().splitlines())


def ask(project: Path, python: Path) -> PythonInfo | str:
    return ask_interpreter(project, python, environment={})


class Cell:
    """A sandbox that keeps what it is to run, and answers for it."""

    level = "cell"

    def __init__(self) -> None:
        self.programs: list[str] = []

    def run(self, command: Command) -> Result:
        self.programs.append(command.argv[0])
        said = '{"python": "3.12.1", "pytest": "8.0.0"}'
        return Result(exit_status=0, head=said, dropped_bytes=0, timed_out=False, duration_s=0, level=self.level)


def test_an_interpreter_of_the_work_tree_runs_in_the_sandbox_wherever_the_project_begins(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / ".git").mkdir(parents=True)
    (top / "sub").mkdir()
    within = program(top / ".venv" / "bin" / "python", f": > {tmp_path}/ran")
    own = program(outside / "bin" / "python", f"echo asked >> {tmp_path}/count; exit 1")
    (top / "sub" / "out").symlink_to(own)
    (outside / "in").symlink_to(within)
    (tmp_path / "link").symlink_to(top)
    pythons = [within, top / "sub" / "out", outside / "in", tmp_path / "link" / ".venv" / "bin" / "python"]
    for project in (top, top / "sub", tmp_path / "link", tmp_path / "link" / "sub"):
        cell = Cell()
        for python in pythons:
            assert isinstance(ask_interpreter(project, python, environment={}, sandbox=cell), PythonInfo)
        assert cell.programs == [str(python) for python in pythons]
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "count").exists()
    assert isinstance(ask_interpreter(top, own, environment={}, sandbox=Cell()), str)
    assert times_asked(tmp_path) == 1


def test_no_answer_says_why_and_is_asked_again(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f"echo asked >> {tmp_path}/count; echo first >&2; echo why >&2; exit 3")
    assert ask(tmp_path, python) == "why"
    assert ask(tmp_path, python) == "why"
    assert times_asked(tmp_path) == 2
    assert ask(tmp_path, program(tmp_path / "silent", "exit 3")) == "it ended with status 3"
    assert ask(tmp_path, tmp_path / "gone") == "No such file or directory"


@pytest.mark.slow
def test_what_an_interpreter_started_is_no_wait_when_its_time_is_up(
    tmp_path: Path, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "TIMEOUT_S", 0.5)
    python = program(tmp_path / "python", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    started = time.monotonic()
    assert ask(tmp_path, python) == "it did not answer within 0.5 seconds"
    assert time.monotonic() - started < 20
    state = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert not state.exists() or state.read_text().rpartition(") ")[2].startswith("Z")


def test_the_question_runs_no_code_of_packages_or_of_the_project(
    tmp_path: Path, *, full_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, env, mark = tmp_path / "project", tmp_path / "env", tmp_path / "ran"
    shutil.copytree(full_environment, env, symlinks=True)
    (project / "src").mkdir(parents=True)
    plant = f"open({str(mark)!r}, 'w')\n"
    names = (
        "sitecustomize",
        "usercustomize",
        "pytest",
        "pluggy",
        "json",
        "site",
        "glob",
        "importlib",
        "email",
        "zipfile",
    )
    for name in names:
        (project / "src" / f"{name}.py").write_text(plant)
        (project / f"{name}.py").write_text(plant)
    packages = next((env / "lib").glob("python*/site-packages"))
    # As an installation in editable form puts the project on the path.
    (packages / "__editable__.shop.pth").write_text(f"{project / 'src'}\nimport shop_finder; {plant}")
    (packages / "sitecustomize.py").write_text(plant)
    monkeypatch.chdir(project)
    answer = ask_interpreter(project, env / "bin" / "python", environment={"PYTHONPATH": f"src{os.pathsep}."})
    assert isinstance(answer, PythonInfo), answer
    assert answer.pytest == pytest.__version__
    assert str(project / "src") in answer.reads
    assert not mark.exists()


def test_the_users_own_packages_are_told_as_a_test_run_sees_them(tmp_path: Path, full_environment: Path) -> None:
    """Isolated, Python itself would see neither them nor PYTHONPATH."""
    python = Path(sys.executable).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = tmp_path / f".local/lib/python{version}/site-packages"
    own.mkdir(parents=True)
    for name in (
        "pytest",
        "_pytest",
        *(each.name for each in Path(pytest.__file__).parent.parent.glob("pytest-*-info")),
    ):
        (own / name).symlink_to(Path(pytest.__file__).parent.parent / name)
    answer = ask_interpreter(tmp_path, python, environment={"HOME": str(tmp_path)})
    assert isinstance(answer, PythonInfo), answer
    assert answer.user_base == str(tmp_path / ".local")
    inside = ask_interpreter(tmp_path, full_environment / "bin" / "python", environment={"HOME": str(tmp_path)})
    assert isinstance(inside, PythonInfo)
    assert inside.user_base == ""


@pytest.mark.parametrize(
    ("name", "text", "chosen"),
    [
        (".python-version", "3.12.1\n", "3.12.1"),
        (".python-version", "# ours\n3.12.1\n3.11.2\n", "3.12.1:3.11.2"),
        (".tool-versions", "nodejs 20\npython 3.12.1 system\n", "3.12.1:system"),
        (".python-version", "../../project/bin\n", ""),
        (".python-version", "-x\n/bin/sh\n$(touch x)\n", ""),
    ],
)
def test_shims_run_outside_the_project_with_the_version_that_its_files_name(
    tmp_path: Path, *, name: str, text: str, chosen: str
) -> None:
    project = tmp_path / "project" / "inner"
    project.mkdir(parents=True)
    (project.parent / ".git").mkdir()
    (project.parent / name).write_text(text)
    program(tmp_path / "bin" / "python", f'echo "$PWD|$PYENV_VERSION" > {tmp_path}/asked; echo /opt/python')
    found = list(find_candidates(project, {"PATH": str(tmp_path / "bin")}))
    assert [each.path for each in found] == [Path("/opt/python")]
    assert (tmp_path / "asked").read_text() == f"/|{chosen}\n"


def test_an_environment_of_uv_on_top_of_another_has_the_packages_of_both(
    tmp_path: Path, *, full_environment: Path, bare_environment: Path
) -> None:
    env = tmp_path / "env"
    shutil.copytree(bare_environment, env, symlinks=True)
    below = next((full_environment / "lib").glob("python*/site-packages"))
    packages = next((env / "lib").glob("python*/site-packages"))
    (packages / "_uv_ephemeral_overlay.pth").write_text(f'import site; site.addsitedir("{below}")')
    answer = ask_interpreter(tmp_path, env / "bin" / "python", environment={})
    assert isinstance(answer, PythonInfo), answer
    assert str(below) in answer.reads
