"""kill -9 at any moment: running the same command again ends in the same commits, none of them twice."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakes.program import EXAMPLES, Demo, command, environment
from tests.stories.conftest import ended, git

LONGEST_S = 8.0
"""About how long the whole of ``cdd exec`` takes on the example."""


def planned(demo: Demo, folder: Path) -> Path:
    """The demo's project as it was when spec and plan were committed and no step had begun."""
    git(folder.parent, "clone", "--quiet", str(demo.folder), str(folder))
    (plan,) = [line.split()[0] for line in git(folder, "log", "--format=%H %s").splitlines() if " plan:" in line]
    git(folder, "reset", "--quiet", "--hard", plan)
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    return folder


def run_killed(folder: Path, home: Path, *, name: str, after_s: float | None) -> int:
    """The exit code of ``cdd exec``, killed after some seconds unless it has ended by then."""
    recording = str(EXAMPLES / name / "recording.yaml")
    status, errors = ended(("--replay", recording, "--yes", "exec", name), folder=folder, home=home, after_s=after_s)
    assert status in {0, -9}, errors
    return status


def check(demo: Demo, folder: Path, home: Path, *, moments: list[float]) -> None:
    for moment in moments:
        run_killed(folder, home, name=demo.name, after_s=moment)
    assert run_killed(folder, home, name=demo.name, after_s=None) == 0
    subjects = git(folder, "log", "--reverse", "--format=%s").splitlines()
    assert (git(folder, "rev-parse", "HEAD^{tree}"), subjects) == demo.executed
    assert git(folder, "status", "--porcelain") == ""


SHORT = pytest.mark.parametrize("demo", ["minutes-lost"], indirect=True)
"""The longer example is left to the soak."""


@SHORT
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_step_that_is_told_to_end_leaves_nothing_half_done(
    demo: Demo, home: Path, *, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    folder = planned(demo, tmp_path / "project")
    recording = str(EXAMPLES / demo.name / "recording.yaml")
    with subprocess.Popen(
        command("--replay", recording, "--yes", "--json", "exec", demo.name),
        cwd=folder,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b'"GateJudged"' in line:
                break
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors.decode()
    assert "Traceback" not in errors.decode()
    check(demo, folder, home, moments=[])


@pytest.mark.slow
@SHORT
def test_a_kill_in_the_middle_changes_nothing_in_the_end(demo: Demo, home: Path, tmp_path: Path) -> None:
    check(demo, planned(demo, tmp_path / "project"), home, moments=[2.5])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_kills_change_nothing_in_the_end(demo: Demo, home: Path, *, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed + int(time.time()))
    moments = [chance.uniform(0.2, LONGEST_S) for _ in range(10)]
    print(f"killed after {moments}")  # noqa: T201 (shown when the test fails)
    check(demo, planned(demo, tmp_path / "project"), home, moments=moments)
