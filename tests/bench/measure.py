"""Cost of a child process: CPU seconds, memory, and calls of Python functions."""

import os
import pstats
import random
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv" / "peers"
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What commands cost over the rounds, the baseline's being that of the same round."""

    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    peak_mb: float

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def shown(self) -> str:
        return f"{self.ratio:5.2f} x ({min(self.ratios):.2f} to {max(self.ratios):.2f}) {self.peak_mb:6.1f} MB"


def spend(argv: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a child process."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environment = kept | {
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(PEERS))),
        "PYTHONPYCACHEPREFIX": str(
            folder.parent / "compiled"
        ),  # no part of the project, where it would be looked through
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, cwd=folder, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"exit status {process.returncode} in {folder}: {' '.join(argv)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def compare(commands: Mapping[str, Sequence[str]], folder: Path, *, rounds: int) -> dict[str, Cost]:
    """Return the cost of each command; the first is the baseline, the order changes from round to round."""
    order = random.Random(SEED)
    names = list(commands)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    peaks = dict.fromkeys(names, 0.0)
    for _ in range(rounds):
        for name in order.sample(names, len(names)):
            spent, peak = spend(commands[name], folder)
            seconds[name].append(spent)
            peaks[name] = max(peaks[name], peak)
    base = seconds[names[0]]
    return {
        name: Cost(
            seconds=tuple(spent),
            ratios=tuple(own / unit for own, unit in zip(spent, base, strict=True)),
            peak_mb=peaks[name],
        )
        for name, spent in seconds.items()
    }


def calls(argv: Sequence[str], folder: Path) -> int:
    """Return how many functions a Python command calls, as cProfile counts them; ``argv[0]`` is the interpreter."""
    profile = folder / "calls.profile"
    spend([argv[0], "-m", "cProfile", "-o", str(profile), *argv[1:]], folder)
    return int(vars(pstats.Stats(str(profile)))["total_calls"])
