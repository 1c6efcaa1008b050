"""The files that can be named: what git knows, else what lies there; a slow listing is remembered."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cdd_agent.git.repository import Repository
from cdd_agent.repl import completion
from cdd_agent.repl.completion import CachedListing, list_project_files
from tests.fakes.program import ROOT


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")


def listed(root: Path) -> list[str]:
    return list_project_files(root)


def test_in_a_repository_it_is_what_is_tracked_or_not_ignored(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    make(tmp_path, "kept.py", "gone.py", "new one.py", "out/made.o", "a\nb")
    (tmp_path / ".gitignore").write_text("out/\n", encoding="utf-8")
    repository.git("add", "kept.py", "gone.py")
    (tmp_path / "gone.py").unlink()
    assert sorted(listed(tmp_path)) == [".gitignore", "a\nb", "kept.py", "new one.py"]


def test_of_a_project_within_a_repository_it_is_its_own_files(tmp_path: Path) -> None:
    Repository.create(tmp_path)
    make(tmp_path, "other.py", "part/own.py")
    assert listed(tmp_path / "part") == ["own.py"]


def test_without_git_it_is_what_lies_there(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "deep/er/b.py", ".hidden/c", "node_modules/d.js", "__pycache__/e.pyc", ".venv/f.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert sorted(listed(tmp_path)) == ["a.py", "deep/er/b.py"]


def test_the_walk_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{number}.py" for number in range(30)))
    monkeypatch.setattr(completion, "MOST_LISTED", 10)
    assert len(listed(tmp_path)) == 10


def test_a_listing_is_asked_for_once_in_a_while() -> None:
    asked: list[int] = []

    def ask() -> list[str]:
        asked.append(1)
        return ["a"]

    remembered = CachedListing(ask)
    assert [remembered(), remembered()] == [["a"], ["a"]]
    assert len(asked) == 1


def test_while_a_new_listing_takes_long_the_old_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "REMEMBERED_S", 0.0)
    go_on = threading.Event()
    answers = [["old"], ["new"]]

    def ask() -> list[str]:
        if len(answers) == 1:
            go_on.wait(20)
        return answers.pop(0)

    remembered = CachedListing(ask)
    assert remembered() == ["old"]
    assert remembered() == ["old"]
    go_on.set()
    end = time.monotonic() + 60
    while answers:
        assert time.monotonic() < end
    assert remembered() == ["new"]


def test_a_listing_that_fails_leaves_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "REMEMBERED_S", 0.0)
    answers = [["old"]]
    remembered = CachedListing(answers.pop)
    assert remembered() == ["old"]
    assert remembered() == ["old"]


def test_the_end_of_the_program_does_not_wait_for_a_listing() -> None:
    program = (
        "import time; from cdd_agent.repl.completion import CachedListing; "
        "print(CachedListing(lambda: time.sleep(60) or [])())"
    )
    argv = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=40, check=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
