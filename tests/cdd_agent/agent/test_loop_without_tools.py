"""A run that hands in whole files; that it becomes commits is shown in ``runs/plan_steps/test_in_blocks``."""

from pathlib import Path

from cdd_agent.agent.blocks import WholeFiles
from cdd_agent.agent.loop import run_without_tools
from cdd_agent.events import Event, ToolReturned
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Conversation, Text
from cdd_agent.workspace.files import Workspace
from tests.fakes.model import ScriptedModel, says


def run(root: Path, *answers: str) -> tuple[list[str], list[Event]]:
    """What the model was told after each answer but the last, and the events."""
    model = ScriptedModel([says(answer) for answer in answers])
    seen: list[Event] = []
    conversation = Conversation("You write code.", token="kvqtzh")
    conversation.say("Begin.")
    files = WholeFiles(Workspace(root), lambda _: None, max_characters=100)
    run_without_tools(conversation, files, model=model, budget=Budget(), emit=seen.append, agent="executor")
    last = (request.messages[-1].content for request in model.requests[1:])
    return ["".join(part.text for part in content if isinstance(part, Text)) for content in last], seen


def block(path: str) -> str:
    return f"```python:{path}\nx = 2\n```\n"


def test_one_file_that_cannot_be_given_keeps_no_other_from_being_given(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text("y = 1\n" * 100)
    (tmp_path / "small.py").write_text("x = 1\n")
    (told,), _ = run(tmp_path, block("large.py") + block("small.py"), block("small.py"))
    assert "large.py has 600 characters" in told
    assert "Leave that file unchanged." in told
    assert "\nx = 1\n</data-kvqtzh>" in told
    assert (tmp_path / "small.py").read_text() == "x = 2\n"


def test_a_path_where_no_file_can_be_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    (told,), seen = run(tmp_path, block("a.py") + block("notes/b.py"), "Then I leave it.")
    assert "- notes/b.py: notes/b.py cannot be written because notes is a file." in told
    assert [event.ok for event in seen if isinstance(event, ToolReturned)] == [False, False]
    assert not (tmp_path / "a.py").exists()


def test_the_same_thing_wrong_for_the_third_time_ends_the_run(tmp_path: Path) -> None:
    told, _ = run(tmp_path, *["```python:src/\n```\n"] * 3)
    assert len(told) == 2


def test_the_model_is_told_which_lines_were_left_out_and_may_leave_it_at_that(tmp_path: Path) -> None:
    (told,), _ = run(tmp_path, "```python:a.py\n# coding: latin-1\nx = 2\n```\n", "Good.")
    assert "a.py: The encoding line `# coding: latin-1` was left out: a new file is in UTF-8." in told
    assert "To leave all of them as they are, answer without a file." in told
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
