"""``make bench``: what start-up and the plugin cost, as ratios of CPU seconds in one run.

Every figure is the median over interleaved rounds of a child's user and system time, divided by that of its baseline
in the same round. Absolute times of a shared machine say little; ratios hold.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 7
TESTS = 1_000


def cost(argv: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a child process."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environment = kept | {"HOME": str(folder), "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def compare(title: str, baseline: Sequence[str], *, others: Mapping[str, Sequence[str]], folder: Path) -> None:
    """Print each command's ratio to the baseline."""
    for argv in (baseline, *others.values()):
        cost(argv, folder)
    ratios: dict[str, list[float]] = {name: [] for name in others}
    peaks: dict[str, float] = {}
    base = []
    for _ in range(ROUNDS):
        unit, _ = cost(baseline, folder)
        base.append(unit)
        for name, argv in others.items():
            seconds, peaks[name] = cost(argv, folder)
            ratios[name].append(seconds / unit)
    print(f"{title} (baseline {statistics.median(base) * 1000:.0f} ms CPU, {ROUNDS} rounds)")
    for name, measured in ratios.items():
        low, high = min(measured), max(measured)
        print(f"  {name:<32} {statistics.median(measured):5.2f} x  ({low:.2f} to {high:.2f})  {peaks[name]:5.1f} MB")


def main() -> None:
    """Print all figures."""
    python = sys.executable
    cdd = [python, "-m", "cdd_agent"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tickets").mkdir()
        commands = {
            "cdd --version": [*cdd, "--version"],
            "cdd --help": [*cdd, "--help"],
            "cdd status (no tickets)": [*cdd, "status"],
        }
        compare("start-up, to `python -c pass`", [python, "-c", "pass"], others=commands, folder=folder)
        suite = "".join(f"def test_{number}():\n    assert {number} == {number}\n\n" for number in range(TESTS))
        (folder / "test_many.py").write_text(suite)
        bare = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        plugins = {
            "-p pytest_tdd_agent, not asked for": [*bare, "-p", "pytest_tdd_agent"],
            "--tdd-agent": [*bare, "-p", "pytest_tdd_agent", "--tdd-agent"],
            "--junitxml": [*bare, "--junitxml=junit.xml"],
        }
        compare(f"{TESTS} passing tests, to bare pytest", bare, others=plugins, folder=folder)


if __name__ == "__main__":
    main()
