"""The lines of README.md that install cdd, run outside a checkout."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LINES = re.search(
    r"^    SOURCE=\S+ .*\n((?:    .*\n)*?)    export ANTHROPIC", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
)


def run(script: str, *, folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("source", ["clone", "wheel file"])
def test_cdd_and_its_examples_are_installed_from_a_clone_and_from_a_wheel_file(tmp_path: Path, source: str) -> None:
    assert LINES is not None
    path = ROOT
    if source == "wheel file":
        run(f"{sys.executable} -m pip wheel --quiet --no-deps --wheel-dir . '{ROOT}'", folder=tmp_path)
        (path,) = tmp_path.glob("*.whl")
    run(f"SOURCE='{path}'\n{LINES[1]}", folder=tmp_path)
    called = f"PATH=$PATH:{tmp_path}/cdd-env/bin; which cdd; cdd demo --list; python3 --version"
    assert "csv-export" in run(called, folder=tmp_path)
