"""The user keeps working in the project during a whole ticket."""

import json
import random
import subprocess
import threading
from pathlib import Path

import pytest

from tests.fakes.program import EXAMPLES, Demo, command, environment
from tests.stories.conftest import git
from tests.stories.test_kill import planned

PAUSE_S = 0.05
FEWEST = 100


class BusyUser:
    """Saves, creates, deletes and renames files until told to stop, and knows how they were left."""

    def __init__(self, folder: Path, *, saved: tuple[str, ...]) -> None:
        """``saved`` are committed files, to which lines are added."""
        self.folder = folder
        self.left = {path: (folder / path).read_text() for path in saved}
        self.gone: set[str] = set()
        self.acts = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "BusyUser":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        chance = random.Random(0)
        while not self._stop.wait(PAUSE_S):
            self.acts += 1
            own = [path for path in self.left if path.startswith("notes/")]
            name = f"notes/{self.acts}.txt"
            match chance.choice(("save", "create", "delete", "rename")) if own else "create":
                case "save":
                    path = chance.choice([*self.left])
                    self._write(path, f"{self.left[path]}# {self.acts}\n")
                case "create":
                    self._write(name, f"{self.acts}\n")
                case "delete":
                    path = chance.choice(own)
                    (self.folder / path).unlink()
                    self._forget(path)
                case _:
                    path = chance.choice(own)
                    (self.folder / path).rename(self.folder / name)
                    self.left[name] = self._forget(path)

    def _write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(text)
        self.left[path] = text

    def _forget(self, path: str) -> str:
        self.gone.add(path)
        return self.left.pop(path)


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["minutes-lost"], indirect=True)
@pytest.mark.parametrize("is_dirty", [False, True])
def test_every_file_is_as_the_user_left_it_and_no_commit_holds_one(
    demo: Demo, home: Path, *, tmp_path: Path, is_dirty: bool
) -> None:
    folder = planned(demo, tmp_path / "project")
    committed = {path: git(folder, "show", f"HEAD:{path}") for path in ("README.md", ".gitignore")}
    if is_dirty:
        (folder / "README.md").write_text("being edited\n")
        (folder / "draft.txt").write_text("mine\n")
    recording, options = str(EXAMPLES / demo.name / "recording.yaml"), ("--allow-dirty",) * is_dirty
    argv = command("--replay", recording, "--yes", "--json", "exec", demo.name, *options)
    with subprocess.Popen(
        argv, cwd=folder, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        for line in run.stdout:
            if json.loads(line)["event"] == "StepStarted":
                break
        with BusyUser(folder, saved=tuple(committed)) as user:
            run.stdout.read()
            errors = run.stderr.read()
    assert run.returncode == 0, errors
    assert user.acts >= FEWEST
    assert {path: (folder / path).read_text() for path in user.left} == user.left
    assert [path for path in user.gone if (folder / path).exists()] == []
    assert {path: git(folder, "show", f"HEAD:{path}") for path in committed} == committed
    subjects = git(folder, "log", "--reverse", "--format=%s").splitlines()
    assert (git(folder, "rev-parse", "HEAD^{tree}"), subjects) == demo.executed
    listed = (git(folder, "diff", "--name-only", "HEAD"), git(folder, "ls-files", "--others", "--exclude-standard"))
    assert {*"\n".join(listed).split()} == {*user.left, *(["draft.txt"] if is_dirty else [])}
    assert not is_dirty or (folder / "draft.txt").read_text() == "mine\n"
