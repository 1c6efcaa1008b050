"""The words of a review, over steps that really landed."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.fork import Fork, Forks
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import RunTrees
from cdd_agent.repl import review_actions
from cdd_agent.repl.commands import as_prompt_command
from cdd_agent.review import WHOLE, Comments
from cdd_agent.runs.fork import TicketForks
from cdd_agent.runs.review import Review
from cdd_agent.tickets.ticket import find
from cdd_agent.work.finding import Finding
from cdd_agent.work.state import StepKey, pending_steps
from cdd_agent.work.state_file import load_state, save_state
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock
from tests.fakes.demo import SLUG, captured


class Talk:
    """A review, and what is printed of what is said to it."""

    def __init__(self, folder: Path) -> None:
        with captured(width=100) as (self.screen, self._shown):
            self.review = Review(find(folder, SLUG), repository=Repository.find(folder), project=folder)
        self.is_listening = True
        self.asks = False

    def greets(self) -> str:
        self.is_listening = review_actions.start_review(self.review, screen=self.screen)
        return self._shown.getvalue()

    def says(self, words: str) -> str:
        before = len(self._shown.getvalue())
        self.is_listening = review_actions.handle_review_input(self.review, words, screen=self.screen, asks=self.asks)
        return self._shown.getvalue()[before:]


def test_the_position_of_a_step_is_that_in_the_plan(finished: Path) -> None:
    path = find(finished, SLUG).state_path
    state = load_state(path)
    assert state is not None
    more = pending_steps((StepKey(number=2, title="More", text_sha256=""),))
    save_state(path, replace(state, step_executions={**state.step_executions, **more}))
    assert Talk(finished).greets().startswith("Step 1/2  ")


def test_a_step_is_shown_with_commits_evidence_and_diff(finished: Path) -> None:
    shown = Talk(finished).greets()
    assert shown.startswith("Step 1/1  ")
    assert "RED: gate open; its report is unchanged" in shown
    assert (
        "GREEN: gate open at try 2; its report is unchanged\n      Not examined: the recording has no such turn."
        in shown
    )
    assert "M durations/reading.py" in shown
    assert "\n@@ -" in shown
    choices = "approve (a), change this: WORDS, fork: WORDS, next (n), previous (p), diff (d) [FILE] or exit; 1 left"
    assert choices in " ".join(shown.split())


def test_the_key_e_adds_further_examples_that_pass(finished: Path) -> None:
    talk = Talk(finished)
    added: list[int] = []

    def add(number: int) -> CommitId:
        added.append(number)
        return CommitId("0" * 40)

    talk.review = Review(find(finished, SLUG), repository=Repository.find(finished), project=finished, add=add)
    assert "examples (e)" not in talk.greets()
    (step,) = talk.review.steps
    commit = step.commits[-1]
    examples = (Finding(check="examples", outcome="confirmed", case="text", parts={"text": "AC-1 test_more: passes"}),)
    text = "Not verified: shop was loaded from elsewhere"
    findings = (Finding(check="clean_copy", outcome="unverified", case="text", parts={"text": text}),)
    evidence = tuple(replace(each, examples=examples, findings=findings) for each in commit.evidence)
    talk.review.steps = (replace(step, commits=(replace(commit, evidence=evidence),)),)
    shown = " ".join(talk.says("e").split())
    assert shown.endswith("diff (d) [FILE], examples (e): add them to the tests or exit; 1 left to review")
    assert added == [1]
    assert "AC-1 test_more: passes\n      Not verified: shop was loaded from elsewhere\n" in talk.says("1")


def test_approving_the_last_open_step_ends_the_review(finished: Path) -> None:
    Repository.find(finished).git("remote", "add", "origin", "https://example.org/shop.git")
    talk = Talk(finished)
    talk.greets()
    end = talk.says("a")
    assert "Step 1 approved." in end
    assert "The whole ticket: 3 files, +" in end
    assert "To push it: git push origin " in end
    assert not talk.is_listening
    again = Talk(finished)
    assert "is approved." in again.greets()
    assert not again.is_listening


def test_after_the_last_approval_what_is_still_undecided_is_named_with_its_command(finished: Path) -> None:
    repository, ticket = Repository.find(finished), find(finished, SLUG)
    commit = repository.git("rev-parse", "HEAD").strip()
    Comments(repository, finished, clock=FakeClock()).add(WHOLE, "Why?", commit=commit)
    state = load_state(ticket.state_path)
    assert state is not None
    more = pending_steps([StepKey(number=number, title="More", text_sha256="") for number in (2, 3)])
    save_state(ticket.state_path, replace(state, step_executions={**state.step_executions, **more}))
    (finished / "notes.txt").write_text("mine")
    talk = Talk(finished)
    talk.greets()
    end = talk.says("a")
    assert end.endswith(
        "Still undecided:\n  pending steps 2, 3: cdd exec minutes-lost\n  1 open comment: cdd comment list\n"
        "  1 uncommitted file: git status\n"
    )


@soak_after(1, "answer", ["y\n", "\n", ""])
def test_at_the_end_of_a_ticket_the_user_is_asked_whether_to_push(
    finished: Path, answer: str, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, repository = tmp_path / "remote", Repository.find(finished)
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    repository.git("remote", "add", "origin", str(remote))
    branch, talk = repository.read_branch(), Talk(finished)
    talk.greets()
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    talk.asks = True
    end = talk.says("a")
    assert f"push {branch} to origin ({remote})? [y/N]" in " ".join(end.split())
    assert (f"Pushed {branch} to origin." in end) is (answer == "y\n")
    assert (f"To push it: git push origin {branch}" in end) is (answer != "y\n")
    pushed = subprocess.run(["git", "branch"], cwd=remote, check=True, capture_output=True).stdout
    assert bool(pushed) is (answer == "y\n")
    assert not talk.is_listening


@pytest.mark.slow
def test_a_push_that_fails_is_reported_and_the_review_ends(
    finished: Path, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repository.find(finished).git("remote", "add", "origin", str(tmp_path / "gone"))
    talk = Talk(finished)
    talk.greets()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    talk.asks = True
    end = talk.says("a")
    assert "error: Nothing was pushed: origin is not there." in end
    assert "hint: correct its address" in end
    assert not talk.is_listening


@pytest.mark.slow
@pytest.mark.parametrize("has_work", [False, True])
def test_the_end_of_a_ticket_removes_its_run_tree_unless_there_is_work_in_it(finished: Path, *, has_work: bool) -> None:
    talk, repository = Talk(finished), Repository.find(finished)
    trees = RunTrees(repository, finished / ".cdd" / "worktrees")
    trees.tree(SLUG).reset(CommitId(repository.git("rev-parse", "HEAD").strip()))
    if has_work:
        (trees.tree(SLUG).root / "mine.txt").write_text("mine")
    talk.review = Review(find(finished, SLUG), repository=repository, project=finished, trees=trees)
    talk.greets()
    assert ("Its run tree is removed." in talk.says("a")) is not has_work
    assert trees.has(SLUG) is has_work


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["y\n", "\n"])
def test_at_the_end_of_a_ticket_merged_forks_can_be_removed(
    finished: Path, answer: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = Forks(finished)
    merged, other = (
        Fork(name=name, ticket=SLUG, step=1, direction=name, base=str(forks.repository.read_head()), parent="main")
        for name in ("merged", "other")
    )
    for fork in (merged, other):
        forks.create(fork)
    (forks.locate(other) / "mine.txt").write_text("mine")
    talk = Talk(finished)
    left = TicketForks(forks, finished, clock=FakeClock()).list_remaining
    talk.review = Review(find(finished, SLUG), repository=Repository.find(finished), project=finished, list_forks=left)
    talk.greets()
    talk.asks = True
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    end = talk.says("a")
    assert "The whole ticket: 3 files" in end
    assert "M durations/reading.py  +" in end
    assert "remove the work tree of the merged fork merged? [y/N]" in end
    assert ("Removed the fork merged." in end) is (answer == "y\n")
    assert forks.locate(merged).exists() is (answer != "y\n")
    assert "The fork other is not merged, and has a work tree. To remove it: cdd fork drop other" in end
    assert (forks.locate(other) / "mine.txt").exists()


def test_what_has_landed_since_a_step_was_shown_is_not_approved_with_it(finished: Path) -> None:
    talk = Talk(finished)
    talk.greets()
    path = talk.review.ticket.state_path
    state = load_state(path)
    assert state is not None
    step = state.execution(1)
    again = replace(step, commits={**step.commits, "refactor": step.base_commit or ""})
    save_state(path, replace(state, step_executions={1: again}))
    with pytest.raises(UsageError, match="Step 1 has changed since it was shown") as refused:
        talk.says("a")
    assert as_prompt_command(refused.value.hint) == f"review it again: /review {SLUG}"
    assert talk.review.remaining == 1
    path.unlink()
    with pytest.raises(UsageError, match="has changed since it was shown"):
        talk.says("a")


def test_a_step_that_is_not_completed_is_named_so(finished: Path) -> None:
    with pytest.raises(UsageError, match="Step 7 is not completed") as refused:
        Talk(finished).says("7")
    assert refused.value.hint == "completed steps: 1"


def test_the_diff_of_one_file_can_be_asked_for(finished: Path) -> None:
    talk = Talk(finished)
    talk.greets()
    shown = talk.says("diff durations/reading.py")
    assert shown.count("M durations/reading.py") == 1
    assert "tests/" not in shown


@soak_after(
    1,
    ("words", "hint"),
    [
        ("aprove", "did you mean approve?"),
        ("diff durations/readng.py", "did you mean: diff durations/reading.py"),
        ("seven", "Type one of: approve"),
        ("approve everything", "did you mean approve?"),
    ],
)
def test_what_is_not_known_names_the_nearest(finished: Path, words: str, hint: str) -> None:
    talk = Talk(finished)
    talk.greets()
    with pytest.raises(UsageError) as refused:
        talk.says(words)
    assert hint in refused.value.hint


def test_exit_leaves_and_decides_nothing(finished: Path) -> None:
    talk = Talk(finished)
    talk.greets()
    talk.says("exit")
    assert not talk.is_listening
    assert talk.review.remaining == 1


def test_a_ticket_that_was_not_carried_out_says_how(project: Path) -> None:
    with pytest.raises(UsageError, match="has no completed step") as refused:
        Talk(project)
    assert refused.value.hint == f"cdd exec {SLUG}"


@pytest.mark.slow
def test_a_commit_that_was_replaced_since_is_told(finished: Path) -> None:
    assert "HEAD no longer contains" not in Talk(finished).greets()
    repository = Repository.find(finished)
    repository.git("update-ref", "HEAD", repository.git("rev-parse", "HEAD~1").strip())
    shown = Talk(finished).greets()
    assert shown.count("HEAD no longer contains this commit") == 1


def test_a_step_without_a_commit_says_so(finished: Path) -> None:
    talk = Talk(finished)
    by_hand = replace(talk.review.step, commits=(), files=())
    talk.review.steps = (by_hand,)
    assert "no commit: the user marked the step as done" in talk.greets()
