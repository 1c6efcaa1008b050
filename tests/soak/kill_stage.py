"""The smallest project whose whole ``cdd exec`` is worth killing, and what must hold of it after a kill and at the end.

Two steps: a feature with RED and GREEN, and a document. Everything is played from a recording, so that each run that
is not disturbed ends in the same tree.
"""

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdd_agent.config import settings
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import CddError
from cdd_agent.storage import is_leftover
from cdd_agent.work.state import RunState, Status
from cdd_agent.work.state_file import load_state
from tests.fakes.lean import lean_python
from tests.fakes.project import QUICK
from tests.soak.kill_recording import RECORDING

ROOT = Path(__file__).parent.parent.parent
SLUG = "sale"
_SPEC = """\
schema: cdd/1
title: A sale
type: feature
status: refined
description: Cheaper.
technical_notes: Integers only.
acceptance_criteria:
  - id: AC-1
    text: WHEN it is day THE SYSTEM SHALL sell
"""
_PLAN = """\
# Implementation Plan: A sale

## Steps

### Step 1: Ten percent off
- Depends on: none
- Files: `discount.py`
- Tests: `tests/test_discount.py::test_discount`
- Criteria: AC-1
- Kind: feature

### Step 2: Say so
- Depends on: 1
- Files: `SALE.md`
- Criteria: AC-1
- Kind: docs
"""
_FILES = {
    "pytest.ini": QUICK,
    ".gitignore": "__pycache__/\n*.tmp\n.cdd/*\n!.cdd/config.yaml\n",
    ".cdd/config.yaml": "refactor: never\nevidence_timeout_s: 0\ntest_reruns: 0\n",
    ".cdd/.gitignore": "*\n!config.yaml\n!commands\n!commands/*.md\n",
    f"tickets/{SLUG}/spec.yaml": _SPEC,
    f"tickets/{SLUG}/plan.md": _PLAN,
}
LONGEST_S = 120.0
"""Of a run to its end; several times what one takes on a busy machine."""
_PROBE = b"blat"
"""What ``tempfile.gettempdir`` writes and removes at its first call in a process, in a file with a random name."""
_SETTLED_S = 2.0
"""Nothing that a run has started may live longer than it by more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What a run comes to, as far as it is the same whenever it is run."""

    tree: str
    subjects: tuple[str, ...]
    handoffs: tuple[str, ...]
    """Phase and step of each handoff, in the order of the commits."""
    statuses: tuple[str, ...]
    untidy: str
    """What git says is not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A folder in which copies of the project are made, killed and gone on with."""

    folder: Path
    expected: End
    whole_s: float
    """About how long a run to its end takes."""

    def trial(self, name: str) -> "Trial":
        """A fresh copy of the project."""
        return _copied(self.folder, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One copy of the project, with a home and a folder for temporary files of its own."""

    folder: Path
    python: Path

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self.folder / "project"

    @property
    def temporary(self) -> Path:
        """Where the program keeps its temporary files."""
        return self.folder / "tmp"

    @property
    def argv(self) -> list[str]:
        """The whole of ``cdd exec --yes``."""
        recording = str(self.folder.parent / "recording.yaml")
        return [sys.executable, "-m", "cdd_agent", "--replay", recording, "--yes", "exec", SLUG]

    @property
    def state_home(self) -> Path:
        """Where the user's approvals are."""
        return self.folder / "home" / "state"

    @property
    def environment(self) -> dict[str, str]:
        """What the program is started with."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.state_home),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            "CDD_PYTHON": str(self.python),
            "LC_ALL": "C.UTF-8",
        }

    def approve(self) -> None:
        """Let the project's settings take effect, as its user would."""
        offer = settings.read_offer(self.project)
        if offer is not None:
            Approvals(self.project, environment=self.environment).record(offer, approved=True)

    def start(self, *prefix: str) -> "subprocess.Popen[bytes]":
        """The program, started in the project; ``prefix`` is what it is started by."""
        return subprocess.Popen(
            [*prefix, *self.argv],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finish(self) -> str:
        """Run the program to its end: what it said if it failed, else nothing."""
        with self.start() as process:
            _, errors = process.communicate(timeout=LONGEST_S)
        return "" if process.returncode == 0 else f"exit {process.returncode}: {errors.decode(errors='replace')}"

    def git(self, *arguments: str) -> str:
        """What git prints in the project."""
        ended = subprocess.run(["git", *arguments], cwd=self.project, capture_output=True, text=True, check=True)
        return ended.stdout.rstrip("\n")

    def end(self) -> End:
        """What the run came to."""
        state = self._load_state(self.project / "tickets" / SLUG / "execution-state.json")
        commits = self.git("log", "--reverse", "--format=%H").split()
        return End(
            tree=self.git("rev-parse", "HEAD^{tree}"),
            subjects=tuple(self.git("log", "--reverse", "--format=%s").splitlines()),
            handoffs=tuple(handoff for commit in commits for handoff in self._handoffs(commit)),
            statuses=tuple(step.status for step in state.step_executions.values()) if state else (),
            untidy=self.git("status", "--porcelain"),
        )

    def _load_state(self, path: Path) -> RunState | None:
        """The state, read as its user: the seal is made with the user's secret."""
        with pytest.MonkeyPatch.context() as environ:
            environ.setenv("XDG_STATE_HOME", str(self.state_home))
            return load_state(path)

    def torn(self) -> list[str]:
        """The files of ours that are neither an old nor a new whole one."""
        ticket, private = self.project / "tickets" / SLUG, self.project / ".git" / "cdd"
        found = []
        for path in (ticket / "execution-state.json", ticket / "execution-state.json.bak"):
            try:
                self._load_state(path)
            except CddError as error:
                found.append(f"{path.name}: {error.happened}")
        spec = re.sub(r"(?m)^status: (executing|done)$", "status: refined", (ticket / "spec.yaml").read_text())
        if spec != _SPEC or (ticket / "plan.md").read_text() != _PLAN:
            found.append("spec or plan changed")
        for path in (*private.rglob("*.json"), *private.rglob("*.jsonl")):
            if not is_leftover(path.name) and not _is_whole(path):
                found.append(f"{path.name} is torn")
        return found

    def leftovers(self) -> list[str]:
        """Temporary files and folders that are still there."""
        ours = [path for path in self.project.rglob("*") if path.name.endswith(".tmp") or is_leftover(path.name)]
        found = (path.relative_to(self.project / ".git") for path in (self.project / ".git").rglob("*.lock"))
        locks = [self.project / ".git" / path for path in found if not path.parts[0].startswith("cdd")]
        temporary = (path for path in self.temporary.iterdir() if not _is_probe(path))
        return [str(path.relative_to(self.folder)) for path in (*ours, *locks, *temporary)]

    def survivors(self) -> list[str]:
        """The processes that still work in the copy's folders some time after its end."""
        deadline = time.monotonic() + _SETTLED_S
        while (found := list(self._working())) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def _working(self) -> Iterator[str]:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if Path(os.readlink(process / "cwd")).is_relative_to(self.folder):
                    yield f"still running: {(process / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}"

    def drop(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _handoffs(self, commit: str) -> Iterator[str]:
        shown = subprocess.run(
            ["git", "notes", "--ref=tdd-handoffs", "show", commit],
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in shown.stdout.splitlines() if shown.returncode == 0 else ():
            note = json.loads(line)
            yield f"{note['cycleNumber']} {note['phase']}"


def prepared(folder: Path, **more: str) -> Trial:
    """A fresh project in ``folder``, made there; ``more`` are files to be in it, by their paths."""
    original = folder / "original" / "project"
    for name, content in {**_FILES, **more}.items():
        path = original / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "recording.yaml").write_text(RECORDING)
    lean_python(folder / "lean")
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.org"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=first"),
    ):
        subprocess.run(["git", *arguments], cwd=original, check=True, capture_output=True)
    return _copied(folder, "undisturbed")


def build(folder: Path) -> Stage:
    """Make the project and carry its plan out once without any disturbance; raises ``RuntimeError`` if that fails."""
    trial = prepared(folder)
    started = time.monotonic()
    failed = trial.finish()
    took = time.monotonic() - started
    if failed:
        raise RuntimeError(f"the undisturbed run failed: {failed}")
    expected = trial.end()
    if set(expected.statuses) != {Status.COMPLETED} or expected.untidy:
        raise RuntimeError(f"the undisturbed run came to {expected}")
    return Stage(folder=folder, expected=expected, whole_s=took)


def _copied(folder: Path, name: str) -> Trial:
    trial = Trial(folder=folder / name, python=folder / "lean" / "bin" / "python")
    shutil.copytree(folder / "original" / "project", trial.project, symlinks=True)
    trial.temporary.mkdir()
    (trial.folder / "home").mkdir()
    trial.approve()
    return trial


def _is_probe(path: Path) -> bool:
    """Return whether Python's ``tempfile`` has made the file to try a folder, in a process that was killed.

    Its name does not tell the program, and the folder is shared, so nobody can remove it.
    """
    about = path.lstat()
    return bool(
        re.fullmatch(r"[a-z0-9_]{8}", path.name)
        and stat.S_ISREG(about.st_mode)
        and about.st_size <= len(_PROBE)
        and path.read_bytes() in (b"", _PROBE)
    )


def _is_whole(path: Path) -> bool:
    """Whether a file of ours holds JSON; of a journal, every line but the last."""
    text = path.read_text()
    lines = text.split("\n")[:-1] if path.suffix == ".jsonl" else [text]
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return False
    return True
