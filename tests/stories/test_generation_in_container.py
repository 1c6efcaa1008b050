"""A repository is generated with all test runs in containers of a real docker or podman."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cdd_agent.sandbox.choice import try_levels
from tests.fakes.program import EXAMPLES, command, environment
from tests.stories.conftest import git
from tests.stories.test_kill_generation import IDENTITY, read_tree

pytestmark = pytest.mark.slow
EXAMPLE = EXAMPLES / "wordkit"


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    trials = tuple(try_levels("docker"))
    if not any(trial.sandbox is not None for trial in trials):
        pytest.skip("; ".join(f"{trial.candidate}: {trial.reason}" for trial in trials))


def generate(folder: Path, home: Path, *, level: str) -> str:
    """Generate the example at a level of the sandbox, and return what the program says."""
    engines = {name: os.environ[name] for name in ("DOCKER_HOST", "XDG_RUNTIME_DIR") if name in os.environ}
    words = ("--replay", str(EXAMPLE / "recording.yaml"), "--yes", "--sandbox", level)
    done = subprocess.run(
        command(*words, "generate", str(EXAMPLE / "graph.json"), "--out", str(folder)),
        env=environment(home, **IDENTITY, **engines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_generation_in_containers_makes_the_same_repository(home: Path, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside" / "wordkit", tmp_path / "outside" / "wordkit"
    assert "6 of 6 nodes passed; 6 proved" in generate(inside, home, level="docker")
    generate(outside, home, level="auto")
    assert read_tree(inside) == read_tree(outside)
    assert git(inside, "tag") == git(outside, "tag")
    (state,) = inside.glob(".git/cdd/**/execution-state.json")
    assert json.loads(state.read_text(encoding="utf-8"))["sandbox"] == "docker"
