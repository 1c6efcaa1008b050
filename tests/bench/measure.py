"""Cost of a child process: CPU seconds, memory, and calls of Python functions."""

import os
import pstats
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv" / "peers"
SEED = 7

Key = TypeVar("Key", bound=Hashable)
Spent = tuple[float, float]
"""CPU seconds and peak memory (MB)."""


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


def inherited() -> dict[str, str]:
    """The variables of this process that a child process keeps."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}


def _variables(folder: Path) -> dict[str, str]:
    return inherited() | {
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(PEERS))),
        "PYTHONPYCACHEPREFIX": str(
            folder.parent / "compiled"
        ),  # no part of the project, where it would be looked through
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


_STARTER = """
import os, sys
report = int(sys.argv[1])
os.set_inheritable(report, False)
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
told = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss
os.write(report, " ".join(map(str, told)).encode())
"""
"""A child begins with the peak of the process that started it, which is why a small one does."""


def spend(argv: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> Spent:
    """CPU seconds and peak memory (MB) of a child process."""
    ours, theirs = os.pipe()
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(theirs), *argv]
    quiet = subprocess.DEVNULL
    kept = _variables(folder) if environment is None else environment
    with open(ours, "rb") as report:
        process = subprocess.Popen(
            starter, cwd=folder, env=kept, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(theirs,)
        )
        os.close(theirs)
        told = report.read().split()
    if process.wait() or int(told[0]) not in (0, 1):
        raise SystemExit(f"exit status {told[0].decode() if told else '?'} in {folder}: {' '.join(argv)}")
    return float(told[1]), int(told[2]) / 1024


def interleaved(runs: Mapping[Key, Callable[[], Spent]], *, rounds: int) -> dict[Key, list[Spent]]:
    """Return what each spends in each round; the order changes from round to round."""
    order = random.Random(SEED)
    names = list(runs)
    spent: dict[Key, list[Spent]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in order.sample(names, len(names)):
            spent[name].append(runs[name]())
    return spent


def compare(commands: Mapping[str, Sequence[str]], folder: Path, *, rounds: int) -> dict[str, Cost]:
    """Return the cost of each command; the first is the baseline."""
    runs = {name: partial(spend, argv, folder) for name, argv in commands.items()}
    spent = interleaved(runs, rounds=rounds)
    base = [seconds for seconds, _ in next(iter(spent.values()))]
    return {
        name: Cost(
            seconds=tuple(seconds for seconds, _ in found),
            ratios=tuple(own / unit for (own, _), unit in zip(found, base, strict=True)),
            peak_mb=max(peak for _, peak in found),
        )
        for name, found in spent.items()
    }


def calls(argv: Sequence[str], folder: Path) -> int:
    """Return how many functions a Python command calls, as cProfile counts them; ``argv[0]`` is the interpreter."""
    profile = folder / "calls.profile"
    spend([argv[0], "-m", "cProfile", "-o", str(profile), *argv[1:]], folder)
    return int(vars(pstats.Stats(str(profile)))["total_calls"])
