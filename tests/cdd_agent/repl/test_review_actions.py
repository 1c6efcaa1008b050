"""Comments in a review and from the command line, on a step that really landed."""

import json
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.errors import UsageError
from cdd_agent.events import FileDiffed
from cdd_agent.repl.review_actions import show_in_program, show_step
from cdd_agent.runs.review import StepToReview
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import SLUG, captured
from tests.fakes.model import ScriptedModel

FILE = "durations/reading.py"


def test_a_comment_in_a_review_is_shown_replied_to_and_resolved(finished: Path) -> None:
    prompt = Prompt(finished, model=ScriptedModel([]))
    prompt.says("/review")
    assert "No comments yet." in prompt.says("/comment")
    shown = prompt.says(f"/comment {FILE}:3-4 What's this?")
    identifier = shown.split()[0]
    assert shown.startswith(f"{identifier}  {FILE}:3-4\n    | ")
    assert "\n  user  What's this?\n" in shown
    assert prompt.says(f"/comment reply {identifier} Never mind.").endswith("\n  user  Never mind.\n")
    assert f"{identifier}  {FILE}:3-4  resolved\n" in prompt.says(f"/comment resolve {identifier[:4]}")
    assert f"{identifier}  {FILE}:3-4  resolved\n" in prompt.says("/comment list")
    assert "the whole commit" in prompt.says("/comment commit Well done.")
    for words, told in (("reply", "/comment reply needs ID TEXT."), (f"edit {identifier}", "needs ID TEXT.")):
        assert told in prompt.says(f"/comment {words}")
    for words, told in ((f"{FILE}:9999 ?", "so line 9999 does not exist"), (f"{FILE} ?", "does not name lines")):
        assert told in prompt.says(f"/comment {words}")


def test_a_commit_is_shown_with_its_evidence(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    review = ["--project", str(finished), "review"]
    assert run([*review, "HEAD"]) == 0
    shown = capsys.readouterr().out
    assert "GREEN: gate open at try 2" in shown
    assert f"M {FILE}" in shown
    assert f"M {FILE}" in Prompt(finished, model=ScriptedModel([])).says("/review HEAD")
    assert run(["--project", str(finished), "comment", "add", f"{FILE}:1", "Say more."]) == 0
    capsys.readouterr()
    assert run([*review, SLUG]) == 0
    assert "user  Say more." in capsys.readouterr().out
    assert run([*review, "no-such-thing"]) == 2


def test_a_program_of_the_user_gets_the_diff_without_escape_sequences(tmp_path: Path) -> None:
    file = FileDiffed(
        path="a\x1b[2J.py", kind="modified", added=1, removed=0, hunks="@@ -1 +1,2 @@\n one\n+\x1b[31mtwo"
    )
    step = StepToReview(number=1, title="?", commits=(), files=(file,), decision=None)
    with captured() as (screen, _):
        show_in_program(f"tee {tmp_path / 'shown'}", step, screen=screen)
        with pytest.raises(UsageError, match="which CDD_DIFF names") as refused:
            show_in_program("no-such-program", step, screen=screen)
    assert refused.value.hint == "unset CDD_DIFF"
    assert (tmp_path / "shown").read_text().splitlines() == [
        "diff --git a/a.py b/a.py",
        "--- a/a.py",
        "+++ b/a.py",
        "@@ -1 +1,2 @@",
        " one",
        "+two",
    ]


def test_a_long_diff_is_left_out_with_the_command_that_shows_it() -> None:
    file = FileDiffed(path="a.py", kind="modified", added=99, removed=0, hunks="@@ -0,0 +1,99 @@\n" + "+x\n" * 99)
    step = StepToReview(number=1, title="?", commits=(), files=(file,), decision=None)
    with captured() as (screen, stream):
        show_step(step, screen=screen)
        show_step(step, screen=screen, rest="cdd review HEAD --full")
    assert "; to show: diff a.py\n" in stream.getvalue()
    assert "; to show: cdd review HEAD --full\n" in stream.getvalue()


def test_scripts_add_and_list_comments_as_json(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comment = ["--project", str(finished), "--json", "comment"]
    assert run([*comment, "add", f"{FILE}:1", "Say", "more.", "--ai"]) == 0
    (added,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (added["event"], added["file"], added["author"], added["ticket"]) == ("CommentListed", FILE, "ai", SLUG)
    assert added["now"] == {"file": FILE, "start": 1, "end": 1}
    assert run([*comment, "reply", added["id"], "Why?", "--ai"]) == 0
    assert json.loads(capsys.readouterr().out)["replies"][0]["author"] == "ai"
    assert run([*comment, "resolve", added["id"]]) == 0
    assert run([*comment, "list", "--open"]) == 0
    assert json.loads(capsys.readouterr().out)["resolved"]
    assert run([*comment[:2], "comment", "list", "--open"]) == 0
    assert capsys.readouterr().out.startswith("No open comments")
    assert run([*comment, "reply", "nothing", "?"]) == 2
    assert "No comment has the id 'nothing'" in capsys.readouterr().err


def test_a_word_that_is_neither_ticket_nor_commit_is_called_so(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "review", "HEAD~99"]) == 2
    assert "'HEAD~99' is neither a ticket nor a commit." in capsys.readouterr().err
