"""/tdd run and /tdd resume at the prompt; what lies behind a run is tried elsewhere."""

from pathlib import Path

import pytest

from cdd_agent.errors import ExitCode
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.work.records import find_records
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.cdd_agent.runs.listed_tests.conftest import (
    FIRST,
    REQUEST,
    RIGHT,
    SECOND,
    SOURCE,
    TESTS,
    cycle,
    nothing,
    plan,
    writes,
)
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


@pytest.fixture
def small(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Project:
    return Project.make(tmp_path / "small", interpreter=interpreter, bytecode=bytecode)


@pytest.mark.slow
def test_a_feature_is_begun_stopped_by_a_gate_and_gone_on_with(small: Project) -> None:
    prompt = Prompt(small.folder, model=ScriptedModel([plan(1), writes(TESTS, FIRST), nothing(), nothing()]))
    said = prompt.says(f"/tdd run {REQUEST}")
    assert "GREEN gate closed" in said
    assert "/tdd resume" in said
    assert prompt.code == ExitCode.CLOSED
    again = Prompt(small.folder, model=ScriptedModel([]))
    assert "is not complete" in again.says("/tdd run Another one")
    turns = [writes(SOURCE, RIGHT), nothing(), plan(2), writes(TESTS, SECOND), plan(3)]
    last = Prompt(small.folder, model=ScriptedModel(turns))
    assert "completed in" in last.says("/tdd resume")
    assert last.code == ExitCode.DONE
    assert "complete, 2 of 2 tests" in small.log[-1]
    assert "is complete" in last.says("/tdd resume")


@pytest.mark.slow
def test_uncommitted_changes_are_kept_if_that_is_said(small: Project) -> None:
    small.write({"notes.txt": "mine\n"})
    one = [*cycle(1, test=FIRST, code=RIGHT)[:1], writes(TESTS, FIRST), nothing(), nothing()]
    prompt = Prompt(small.folder, model=ScriptedModel(one))
    assert "uncommitted changes" in prompt.says(f"/tdd run {REQUEST}")
    assert "GREEN gate closed" in prompt.says(f"/tdd run {REQUEST} --allow-dirty")
    assert small.status == "?? notes.txt"
    assert (find_records(small.folder).folder / "runs").is_dir()


@pytest.mark.parametrize("word", ["--help", "--resume now", "--"])
def test_an_option_that_there_is_not_begins_nothing(small: Project, word: str) -> None:
    prompt = Prompt(small.folder, model=ScriptedModel([]))
    assert "hint: /tdd run [OPTIONS] TEXT..." in prompt.says(f"/tdd run {word}")
    assert prompt.code == ExitCode.USAGE
    assert not (find_records(small.folder).folder / "runs").exists()


@soak_after(
    1,
    ("line", "told"),
    [
        ("/tdd run more", "Continue with: /tdd resume"),
        ("/green tests/test_more.py", "Run the same command to continue."),
    ],
)
def test_ctrl_c_says_how_to_go_on(small: Project, line: str, told: str) -> None:
    small.write({"tests/test_more.py": "def test_more():\n    assert False\n"})
    small.git("add", "-A")
    small.git("commit", "-qm", "a test")
    prompt = Prompt(small.folder, model=ScriptedModel([KeyboardInterrupt()]))
    assert told in prompt.says(line)
    assert prompt.code == ExitCode.INTERRUPTED


@pytest.mark.slow
def test_green_keeps_uncommitted_changes_if_that_is_said(small: Project) -> None:
    small.write({"tests/test_more.py": "def test_more():\n    assert False\n", "notes.txt": "mine\n"})
    prompt = Prompt(small.folder, model=ScriptedModel([KeyboardInterrupt()]))
    assert "uncommitted changes" in prompt.says("/green tests/test_more.py")
    assert "Stopped" in prompt.says("/green tests/test_more.py --allow-dirty")
    assert not prompt.crew.options.allow_dirty
    assert "notes.txt" in small.status
