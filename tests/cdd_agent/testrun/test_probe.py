import os
from pathlib import Path

import pytest

from cdd_agent.testrun.probe import Answer, Probe
from tests.cdd_agent.testrun.conftest import program


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that counts how often it is asked."""
    answer = f'{{"python": "3.12.1", "pytest": "8.0.0", "packages": "{tmp_path / "packages"}"}}'
    (tmp_path / "packages").mkdir()
    return program(tmp_path / "python", f"echo asked >> {tmp_path}/count; echo '{answer}'")


def times_asked(folder: Path) -> int:
    return len((folder / "count").read_text().splitlines())


def ask(project: Path, python: Path, **variables: str) -> Answer | str:
    return Probe(project, variables).ask(python)


def test_an_answer_holds_until_the_interpreter_its_packages_or_the_path_change(tmp_path: Path, python: Path) -> None:
    first = ask(tmp_path, python)
    assert first == Answer(python="3.12.1", pytest="8.0.0", packages=str(tmp_path / "packages"))
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


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": 2}', b"[]", b"\xff"])
def test_a_damaged_file_is_passed_over_and_made_anew(tmp_path: Path, python: Path, *, damage: bytes) -> None:
    kept = tmp_path / ".cdd" / "interpreter.json"
    kept.parent.mkdir()
    kept.write_bytes(damage)
    assert isinstance(ask(tmp_path, python), Answer)
    ask(tmp_path, python)
    assert times_asked(tmp_path) == 1


def test_no_answer_says_why_and_is_asked_again(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f"echo asked >> {tmp_path}/count; echo first >&2; echo why >&2; exit 3")
    assert ask(tmp_path, python) == "why"
    assert ask(tmp_path, python) == "why"
    assert times_asked(tmp_path) == 2
    assert ask(tmp_path, program(tmp_path / "silent", "exit 3")) == "it ended with status 3"
    assert ask(tmp_path, tmp_path / "gone") == "No such file or directory"
