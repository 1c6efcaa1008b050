"""Comments on random lines of a real project, found again some commits later; git blame says where the lines went."""

import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from cdd_agent.git.repository import Repository
from cdd_agent.review import NEIGHBORS, Anchors, Comment, Place, split_lines

ROOT = Path(__file__).parents[3]
LINES = 400
COMMITS_LATER = (1, 2, 3, 4, 5, 10, 30)


@pytest.mark.slow
def test_nine_comments_in_ten_are_found_again_in_the_history_of_this_project() -> None:
    if len(_git("rev-list", "--max-count=200", "HEAD").split()) < 200:
        pytest.skip("this copy of the repository has no history")
    results = Counter(_judge_all(random.Random(1)))
    assert results["moved, right"] + results["moved, wrong"] > LINES // 4, results
    wrong = sum(count for result, count in results.items() if "wrong" in result)
    assert wrong / results.total() <= 0.1, results


def _judge_all(choice: random.Random) -> list[str]:
    repository = Repository.find(ROOT)
    commits = _git("rev-list", "--first-parent", "--max-count=1000", "HEAD").split()
    judged: list[str] = []
    while len(judged) < LINES:
        later = choice.choice(COMMITS_LATER)
        at = choice.randrange(later, len(commits))
        origin, target = commits[at], commits[at - later]
        changed = _git(
            "diff-tree", "-r", "--name-only", "--no-renames", "--diff-filter=MD", origin, target, "--", "*.py"
        )
        if not changed:
            continue
        path = choice.choice(changed.split("\n"))
        lines = split_lines(repository.objects.require(f"{origin}:{path}").text)
        start = choice.randrange(len(lines)) if lines else 0
        if lines and lines[start].strip():
            comment = _make(Place(path, start, start), lines, origin=origin)
            judged.append(_judge(comment, Anchors(repository, target).find(comment), target=target))
    return judged


def _make(place: Place, lines: tuple[str, ...], *, origin: str) -> Comment:
    start = place.start
    return Comment(
        id="1",
        commit=origin,
        file=place.path,
        start=start + 1,
        end=start + 1,
        lines=lines[start : start + 1],
        before=lines[max(0, start - NEIGHBORS) : start],
        after=lines[start + 1 : start + 1 + NEIGHBORS],
        text="?",
        time="",
    )


def _judge(comment: Comment, found: Place | None, *, target: str) -> str:
    """Return whether ``found`` is where the line is; a line that blame has lost may be anywhere with its text."""
    span = f"{comment.commit}..{target}"
    blame = _git(
        "blame", "--reverse", "-s", "-n", "--abbrev=39", f"-L{comment.start},{comment.start}", span, "--", comment.file
    )
    head = blame.partition(")")[0].split()
    last, number = head[0].lstrip("^"), head[-2]
    if target.startswith(last):
        is_right = found is not None and (found.path, found.start) == (comment.file, int(number))
        kind = "moved" if int(number) != comment.start else "at its number"
        return f"{kind}, {'right' if is_right else 'wrong'}"
    if found is None:
        return "lost, outdated"
    now = split_lines(_git("show", f"{target}:{found.path}"))[found.start - 1]
    is_same = now.strip() == comment.lines[0].strip()
    return f"lost, {'found by its text' if is_same else 'an edited line'}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.rstrip("\n")
