"""The files that can be named: what git knows, else what lies there; a slow listing is remembered."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from cdd_agent.git.repository import Repository
from cdd_agent.repl import completion
from cdd_agent.repl.completion import Candidates, PromptCompleter, list_project_files
from tests.fakes.program import ROOT

HANGS = """
import asyncio, time
from prompt_toolkit.document import Document
from cdd_agent.repl.completion import Candidates, PromptCompleter

AT = Document("@")

async def main():
    found = PromptCompleter(Candidates(files=lambda: time.sleep(60) or [])).get_completions_async(AT, None)
    print([each async for each in found])

asyncio.run(main())
"""


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
    assert listed(tmp_path) == [".hidden/c", "a.py", "deep/er/b.py"]


def test_the_walk_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{number}.py" for number in range(30)))
    monkeypatch.setattr(completion, "MOST_LISTED", 10)
    assert len(listed(tmp_path)) == 10


def offered(completer: PromptCompleter) -> list[str]:
    return [each.text for each in completer.get_completions(Document("@"), CompleteEvent())]


def test_a_listing_is_asked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["new"], ["old"]]
    completer = PromptCompleter(Candidates(files=answers.pop))
    assert [offered(completer), offered(completer)] == [["@old"], ["@old"]]
    later = time.monotonic() + 60
    monkeypatch.setattr("cdd_agent.repl.completion.time.monotonic", lambda: later)
    assert [offered(completer), offered(completer)] == [["@new"], ["@new"]]


@pytest.mark.slow
def test_the_end_of_the_program_does_not_wait_for_a_listing() -> None:
    argv = [sys.executable, "-W", "error", "-c", HANGS]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=40, check=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
