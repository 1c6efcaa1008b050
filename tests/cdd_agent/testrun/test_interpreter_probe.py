""""""

import os
import time
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.testrun import interpreter
from cdd_agent.testrun.interpreter import Probe, PythonInfo
from tests.cdd_agent.testrun.conftest import program


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that counts how often it is asked."""
    answer = f'{{"python": "3.12.1", "pytest": "8.0.0", "packages": "{tmp_path / "packages"}"}}'
    (tmp_path / "packages").mkdir()
    return program(tmp_path / "python", f"echo asked >> {tmp_path}/count; echo '{answer}'")


def times_asked(folder: Path) -> int:
    return len((folder / "count").read_text().splitlines())


def ask(project: Path, python: Path, **variables: str) -> PythonInfo | str:
    return Probe(project, variables, cache_folder=project / "users").ask(python)


def test_an_answer_holds_until_the_interpreter_its_packages_or_the_path_change(tmp_path: Path, python: Path) -> None:
    first = ask(tmp_path, python)
    assert first == PythonInfo(python="3.12.1", pytest="8.0.0", packages=str(tmp_path / "packages"))
    assert ask(tmp_path, python) == first
    assert times_asked(tmp_path) == 1
    ask(tmp_path, python, PYTHONPATH="lib")
    assert times_asked(tmp_path) == 2
    os.utime(python, (1, 1))
    ask(tmp_path, python, PYTHONPATH="lib")
    assert times_asked(tmp_path) == 3
    os.utime(tmp_path / "packages", (1, 1))
    ask(tmp_path, python, PYTHONPATH="lib")
    assert times_asked(tmp_path) == 4
    ask(tmp_path, python, PYTHONPATH="lib")
    assert times_asked(tmp_path) == 4


def test_nothing_is_kept_without_a_folder_of_the_user_s(tmp_path: Path, python: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert Probe(tmp_path, {}).ask(python) == Probe(tmp_path, {}).ask(python)
    assert times_asked(tmp_path) == 2
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "count"])


def test_an_answer_belongs_to_one_folder(tmp_path: Path, python: Path) -> None:
    users, project = tmp_path / "users", tmp_path / "project"
    project.mkdir()
    (tmp_path / "link").symlink_to(project)
    for folder in (project, tmp_path / "link", project):
        Probe(folder, {}, cache_folder=users).ask(python)
    assert times_asked(tmp_path) == 1
    project.rename(tmp_path / "elsewhere")
    project.mkdir()
    for folder in (project, tmp_path / "elsewhere"):
        Probe(folder, {}, cache_folder=users).ask(python)
    assert times_asked(tmp_path) == 3


def answers(users: Path) -> list[Path]:
    """The cached answers, oldest first."""
    return sorted((users / "interpreters").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_answers_are_the_user_s_alone_and_have_a_bound(
    tmp_path: Path, python: Path, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    monkeypatch.setattr(interpreter, "MOST_KEPT", 3)
    written = []
    for number in range(5):
        project = tmp_path / f"project-{number}"
        project.mkdir()
        Probe(project, {}, cache_folder=users).ask(python)
        written.append(answers(users)[-1])
        os.utime(written[-1], (number, number))
    assert answers(users) == written[2:]
    kept = answers(users)[-1]
    assert [path.stat().st_mode & 0o777 for path in (users, kept.parent, kept)] == [0o700, 0o700, 0o600]
    kept.chmod(0o666)
    Probe(project, {}, cache_folder=users).ask(python)
    assert times_asked(tmp_path) == 6


NESTED = b'{"stamp": ' + b"[" * 100_000


@pytest.mark.parametrize("damage", [b"", b"{", b'{"stamp": ""}', b'{"stamp": "", "answer": 1}', b"[]", b"\xff", NESTED])
def test_a_damaged_file_is_passed_over_and_made_anew(tmp_path: Path, python: Path, *, damage: bytes) -> None:
    ask(tmp_path, python)
    (kept,) = answers(tmp_path / "users")
    kept.write_bytes(damage)
    assert isinstance(ask(tmp_path, python), PythonInfo)
    ask(tmp_path, python)
    assert times_asked(tmp_path) == 2


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_ordinary_file_is_no_answer_and_no_wait(tmp_path: Path, python: Path, *, kind: str) -> None:
    ask(tmp_path, python)
    (kept,) = answers(tmp_path / "users")
    match kind:
        case "pipe":
            kept.unlink()
            os.mkfifo(kept)
        case "link":
            kept.rename(tmp_path / "moved")
            kept.symlink_to(tmp_path / "moved")
        case _:
            kept.unlink()
            kept.mkdir()
    assert isinstance(ask(tmp_path, python), PythonInfo)
    assert times_asked(tmp_path) == 2


class Cell:
    """A sandbox that keeps what it is to run, and answers for it."""

    level = "cell"

    def __init__(self) -> None:
        self.programs: list[str] = []

    def run(self, command: Command) -> Result:
        self.programs.append(command.argv[0])
        said = '{"python": "3.12.1", "pytest": "8.0.0", "packages": "/"}'
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
            assert isinstance(Probe(project, {}, sandbox=cell).ask(python), PythonInfo)
        assert cell.programs == [str(python) for python in pythons]
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "count").exists()
    assert isinstance(Probe(top, {}, sandbox=Cell()).ask(own), str)
    assert times_asked(tmp_path) == 1


def test_no_answer_says_why_and_is_asked_again(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f"echo asked >> {tmp_path}/count; echo first >&2; echo why >&2; exit 3")
    assert ask(tmp_path, python) == "why"
    assert ask(tmp_path, python) == "why"
    assert times_asked(tmp_path) == 2
    assert ask(tmp_path, program(tmp_path / "silent", "exit 3")) == "it ended with status 3"
    assert ask(tmp_path, tmp_path / "gone") == "No such file or directory"


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
