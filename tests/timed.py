"""Run the targets of ``make test`` one after the other, and print what they cost."""

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

WALL_BAR_S = 240
CPU_BAR_S = 500


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds by the clock, and seconds of processor time with all child processes."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:.0f} s wall, {self.cpu_s:.0f} s CPU"


def spend() -> Cost:
    """Return the time now, and the processor time of all child processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_s=time.monotonic(), cpu_s=used.ru_utime + used.ru_stime)


def difference(before: Cost, after: Cost) -> Cost:
    return Cost(wall_s=after.wall_s - before.wall_s, cpu_s=after.cpu_s - before.cpu_s)


def main(targets: list[str]) -> int:
    """Make each of ``targets`` until one fails, and return the exit status of the last."""
    begun = spend()
    parts = []
    status = 0
    for target in targets:
        before = spend()
        status = subprocess.run(
            [os.environ.get("MAKE", "make"), "--no-print-directory", target], check=False
        ).returncode
        parts.append(f"{target} {difference(before, spend())}")
        if status:
            break
    print(*parts, f"in all {difference(begun, spend())} (bars: {WALL_BAR_S} s, {CPU_BAR_S} s)", sep="; ", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
