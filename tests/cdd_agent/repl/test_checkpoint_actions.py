"""``/checkpoint`` and ``/rewind``, and the checkpoints that conversations and runs make."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import Checkpoints, Description, Kind
from cdd_agent.repl.checkpoint_actions import KEPT_DAYS, prune_old
from cdd_agent.tickets.ticket import create
from cdd_agent.work.records import find_records
from tests.cdd_agent.repl.test_actions_talks import choosing, scripted, texts
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import SLUG
from tests.fakes.model import says


def attend(prompt: Prompt, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Answer every question with yes or no."""
    prompt.crew.options = replace(prompt.crew.options, attended=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n" * 9))


def test_a_rewind_brings_files_back_and_cuts_the_conversation(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = scripted(says("What is it for?"), says("And for whom?"), says("I see."), says("Trains, then."))
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    attend(prompt, monkeypatch, "y")
    prompt.says("For trains.")
    (project / "README.md").write_text("mine\n")
    prompt.says("For drivers.")
    (project / "README.md").write_text("other\n")
    (project / "new.txt").write_text("new\n")
    offered = choosing(prompt, '"For drivers."')
    shown = prompt.says("/rewind")
    assert [row.split("  ")[-1] for row in offered[1:]] == [
        "2 files changed since: README.md, new.txt",
        "2 files changed since: README.md, new.txt",
    ]
    assert "M README.md" in shown
    assert "D new.txt" in shown
    assert "Cut 2 messages of the conversation." in shown
    assert (project / "README.md").read_text() == "mine\n"
    assert not (project / "new.txt").exists()

    prompt.says("For freight.")
    assert "For freight." in texts(model)[-1]
    assert "For drivers." not in str(texts(model))
    prompt.die()
    assert "For drivers." not in Prompt(project, model=scripted()).says("/resume")


def test_an_undo_brings_files_and_conversation_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = scripted(says("One."), says("Two."), says("Three."))
    prompt = Prompt(project, model=model)
    attend(prompt, monkeypatch, "y")
    prompt.says("First?")
    prompt.says("Second?")
    (project / "README.md").write_text("later\n")
    assert "Cut 2 messages" in prompt.says("/rewind 2")
    assert (project / "README.md").read_text() != "later\n"
    assert "Brought back 2 messages" in prompt.says("/checkpoint undo")
    assert (project / "README.md").read_text() == "later\n"
    prompt.says("Third?")
    assert texts(model) == ["First?", "One.", "Second?", "Two.", "Third?"]


def test_nothing_changes_without_a_yes_or_without_anybody(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Prompt(project, model=scripted())
    assert "There is nothing to rewind to yet." in prompt.says("/rewind")
    assert "Checkpoint 1 before cleanup" in prompt.says("/checkpoint before cleanup")
    (project / "new.txt").write_text("new\n")
    attend(prompt, monkeypatch, "n")
    assert "Nothing was changed." in prompt.says("/rewind before cleanup")
    choosing(prompt, "nothing")
    assert prompt.says("/rewind") == "Nothing was changed.\n"
    prompt.crew.options = replace(prompt.crew.options, attended=False)
    assert "cdd cannot ask you here. Nothing was changed." in prompt.says("/rewind 1")
    assert (project / "new.txt").exists()
    for line, shown in {
        "/checkpoint restore": "/checkpoint restore lacks words",
        "/checkpoint restore 9": "has no checkpoint '9'",
        "/checkpoint 7": "'7' cannot be the name",
        "/checkpoint undo": "nothing to undo or bring back here",
        "/checkpoint list": "before cleanup  1 file changed since: new.txt",
        "/checkpoint diff 1": "A new.txt  +1 -0",
        "/checkpoint prune": "Deleted 0 checkpoints.",
    }.items():
        assert shown in prompt.says(line)


@pytest.mark.slow
def test_a_checkpoint_of_another_session_leaves_the_conversation(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["--project", str(project), "checkpoint", "create"]) == 0
    prompt = Prompt(project, model=scripted(says("One.")))
    attend(prompt, monkeypatch, "y")
    prompt.says("First?")
    assert "Not cut, because the checkpoint was made elsewhere: scout." in prompt.says("/rewind 1")


@pytest.mark.slow
def test_the_command_line_restores_only_with_a_yes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--project", str(project), "checkpoint"]
    assert run([*at, "create", "start", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ref"] == "refs/cdd/checkpoints/manual/1"
    (project / "new.txt").write_text("new\n")
    subprocess.run(["git", "-C", str(project), "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert run([*at, "restore", "start"]) == 2
    assert "the same command with --yes" in capsys.readouterr().err
    assert run([*at, "restore", "start", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "D new.txt" in shown
    assert "HEAD and the index stay" in shown
    assert "'x', is not of a step, so it stays. git revert HEAD takes it back" in " ".join(shown.split())
    assert (project / "new.txt").exists()
    assert run([*at, "restore", "start", "--yes"]) == 0
    assert not (project / "new.txt").exists()
    assert "Undo: cdd checkpoint undo" in capsys.readouterr().out
    assert run([*at, "undo", "--yes"]) == 0
    assert "Redo: cdd checkpoint redo" in capsys.readouterr().out
    assert run([*at, "redo", "--yes"]) == 0
    assert "Undo: cdd checkpoint undo" in capsys.readouterr().out
    assert not (project / "new.txt").exists()
    capsys.readouterr()
    assert run([*at, "list", "--json"]) == 0
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == [
        *("redo", "undo", "restore", "manual")
    ]
    assert run([*at, "prune", "--keep", "0"]) == 0
    assert "Deleted 3 checkpoints." in capsys.readouterr().out


@pytest.mark.slow
def test_old_checkpoints_of_done_tickets_and_lost_forks_are_pruned(finished: Path) -> None:
    prompt = Prompt(finished, model=scripted())
    project, later = prompt.crew, datetime.now(UTC) + timedelta(days=KEPT_DAYS, hours=1)
    assert prune_old(project, now=later) == 0
    create(finished, "open", title="Open", type="feature")
    of_run = len(project.checkpoints.list_all())
    made: list[tuple[Kind, str, str]] = [("run", SLUG, ""), ("talk", SLUG, "mine"), ("manual", SLUG, "")]
    made += [("run", "open", ""), ("talk", "", ""), ("talk", "gone", ""), ("undo", "gone", "")]
    for kind, slug, name in made:
        project.checkpoints.create(Description(kind=kind, ticket=slug, name=name))
    (find_records(finished).repository / "forks.json").write_text("{}")
    for name in ("fork-lost", "fork-here"):
        fork = finished / ".cdd" / "worktrees" / name
        project.repository.git("worktree", "add", ("--detach",), str(fork))
        Checkpoints.of_repository(Repository.find(fork), fork).create(Description(kind="run", ticket="open"))
        project.repository.git("update-ref", f"refs/cdd/checkpoints/open/{name}/step-1-base", "HEAD")
    assert prune_old(project, now=later) == 3 + of_run
    shutil.rmtree(finished / ".cdd" / "worktrees" / "fork-lost")
    assert prune_old(project) == 0
    assert prune_old(project, now=later) == 2
    kept = [(each.about.kind, each.about.ticket, each.about.name) for each in project.checkpoints.list_all()]
    assert kept == [made[1], made[2], made[3], made[6]]
    left = list(project.repository.list_refs("refs/cdd/checkpoints/open"))
    assert (len(left), left[-1]) == (3, "refs/cdd/checkpoints/open/fork-here/step-1-base")


@pytest.mark.slow
def test_a_rewind_takes_whole_steps_back(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.find(finished)
    landed = repository.read_head()
    prompt = Prompt(finished, model=scripted())
    attend(prompt, monkeypatch, "y")
    assert "was taken back" in prompt.says("/undo")
    base = repository.read_head()
    prompt.says("/checkpoint before the step")
    assert "is back" in prompt.says("/redo")
    shown = prompt.says("/rewind before the step")
    assert f"Taken back first, with their commits: step 1 of {SLUG}." in shown
    assert "Took back 1 step. To have them again: /redo" in shown
    assert repository.read_head() == base
    assert "pending" in prompt.says(f"/status {SLUG}")
    assert "was undone. To redo it: /checkpoint redo" in prompt.says("/redo")
    assert repository.read_head() == landed


def test_a_message_that_cannot_be_preceded_by_a_checkpoint_is_answered(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdd_agent.git.tree_store.MOST_NEW_FILES", 0)
    (project / "new.txt").write_text("new\n")
    prompt = Prompt(project, model=scripted(says("One."), says("Two.")))
    assert "/rewind cannot return to here: The work tree has 1 new file" in (shown := prompt.says("First?"))
    assert "One." in shown
    assert prompt.says("Second?") == "Two.\n"
