"""The program as a user starts it: a process of its own, an empty home; and the examples played by it, each once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.storage import exclusive_lock

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tickets.example"
KEY = "sk-ant-canary-0123456789abcdef"

WATCH = """\
import os, sys
if "cdd_agent" in sys.orig_argv:
    def watch(event, arguments):
        told = str(arguments)
        if (
            event in ("socket.connect", "socket.sendto", "socket.getaddrinfo")
            or (event == "import" and told[2:].startswith(("anthropic", "httpx")))
            or (event == "open" and "claude-profile" in told)
        ):
            with os.fdopen(os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as log:
                log.write(f"{event} {told[:200]}\\n")
        if event == "subprocess.Popen" and arguments[0] == "git":
            with open(os.environ["GIT_CALLS"], "a") as log:
                print(*arguments[1][1:3], file=log)
    sys.addaudithook(watch)
"""
"""A ``sitecustomize.py`` that logs what of a model's the program imports, opens and calls, and each git it starts."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a user's shell would give the program; no key. The user of each home has the secret of the tests."""
    state, marks = home / ".local" / "state" / "cdd", Path(os.environ["XDG_STATE_HOME"], "cdd", "marks")
    if marks.exists() and not state.exists():
        state.mkdir(parents=True)
        shutil.copy(marks, state)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "CDD_PYTHON") if name in os.environ}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}


def command(*arguments: str) -> list[str]:
    """The program with ``arguments``."""
    return [sys.executable, "-m", "cdd_agent", *arguments]


class Demo:
    """A finished demo: what it printed, where it lies, and what a watch over it has seen."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        result: "subprocess.CompletedProcess[str]",
        seen: str = "",
        calls: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.folder = folder
        self.result = result
        self.seen = seen
        self.calls = calls
        """The first two arguments of each git that it started."""

    @property
    def tree(self) -> str:
        """The files that it came to."""
        return self._git("rev-parse", "HEAD^{tree}")

    @property
    def subjects(self) -> list[str]:
        """The commits that it came to, oldest first."""
        return self._git("log", "--reverse", "--format=%s").splitlines()

    @property
    def executed(self) -> tuple[str, list[str]]:
        """The files and the commits before the developer merged a fork, and wanted a change in a step."""
        lines = (EXAMPLES / self.name / "demo.yaml").read_text(encoding="utf-8").splitlines()
        last = f"HEAD~{len({'wish:', 'fork:'}.intersection(lines))}"  # each is one commit there
        subjects = self._git("log", "--reverse", "--format=%s", last).splitlines()
        return self._git("rev-parse", f"{last}^{{tree}}"), subjects

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()


def played(name: str, temporary: pytest.TempPathFactory, *, limit_s: float = 300.0) -> Demo:
    """An example played from its recording, once for all workers and tests; to be copied, never changed.

    It has a key and a profile to be tempted by, and is watched.
    """
    base = temporary.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"demo-{name}"
    folder, kept, log = shared / name, shared / "result.json", shared / "watched"
    calls = shared / "calls"
    with exclusive_lock(shared.with_suffix(".lock"), purpose="Playing the demo", wait_s=limit_s):
        if not kept.exists():
            profile = shared / "home" / ".config" / "anthropic" / "configs"
            profile.mkdir(parents=True)
            (profile / "claude-profile.json").write_text('{"base_url": "http://127.0.0.1:9"}', encoding="ascii")
            (shared / "sitecustomize.py").write_text(WATCH, encoding="ascii")
            tempted = {"ANTHROPIC_PROFILE": "claude-profile", "ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_API_KEY": KEY}
            watched = {"WATCHED": str(log), "GIT_CALLS": str(calls), "PYTHONPATH": f"{shared}{os.pathsep}{ROOT}"}
            done = subprocess.run(
                command("demo", name, "--keep", str(folder)),
                cwd=shared,
                env=environment(shared / "home", **tempted, **watched),
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
            )
            kept.write_text(json.dumps(vars(done)), encoding="utf-8")
    result: subprocess.CompletedProcess[str] = subprocess.CompletedProcess(**json.loads(kept.read_text()))
    seen = log.read_text(encoding="utf-8") if log.exists() else ""
    return Demo(name, folder, result=result, seen=seen, calls=tuple(calls.read_text(encoding="utf-8").splitlines()))
