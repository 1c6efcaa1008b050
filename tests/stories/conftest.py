"""The program as a user starts it: a process of its own, an empty home, no key."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from cdd_agent.storage import exclusive

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "tickets.example"

Cdd: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "CDD_PYTHON") if name in os.environ}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cdd_agent", *arguments]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def cdd(home: Path) -> Cdd:
    """Runs the program; keyword arguments are variables of its environment, ``cwd`` its folder."""

    def run(*arguments: str, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments),
            cwd=cwd or home,
            env=environment(home, **variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


class Demo:
    """A finished demo: what it printed and where it lies."""

    def __init__(self, name: str, folder: Path, *, result: "subprocess.CompletedProcess[str]") -> None:
        self.name = name
        self.folder = folder
        self.result = result

    @property
    def tree(self) -> str:
        return git(self.folder, "rev-parse", "HEAD^{tree}")

    @property
    def subjects(self) -> list[str]:
        return git(self.folder, "log", "--reverse", "--format=%s").splitlines()


@pytest.fixture(scope="session")
def demos(cdd: Cdd, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Demo]:
    """Each example played from its recording, once for all workers and tests that look at it; never to be changed."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def play(name: str) -> Demo:
        folder, kept = shared / f"demo-{name}", shared / f"demo-{name}.json"
        with exclusive(shared / f"demo-{name}.lock", purpose="Playing the demo", wait_s=300.0):
            if not kept.exists():
                kept.write_text(json.dumps(vars(cdd("demo", name, "--keep", str(folder)))))
        return Demo(name, folder, result=subprocess.CompletedProcess(**json.loads(kept.read_text())))

    return play


@pytest.fixture(params=["csv-export", "minutes-lost"])
def demo(request: pytest.FixtureRequest, demos: Callable[[str], Demo]) -> Demo:
    """A finished demo."""
    return demos(request.param)
