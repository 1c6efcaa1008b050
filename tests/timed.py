"""Make targets side by side, and print what each of them costs."""

import os
import resource
import subprocess
import sys
import tempfile
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


def main(targets: list[str]) -> int:
    """Make all of ``targets`` at once, and return the first exit status that is not 0.

    The last one prints as it goes; the output of the others follows when it has ended.
    """
    make = [os.environ.get("MAKE", "make"), "--no-print-directory"]
    began_s = time.monotonic()
    *hidden, shown = targets
    with tempfile.TemporaryFile() as output:
        processes = [subprocess.Popen([*make, target], stdout=output, stderr=subprocess.STDOUT) for target in hidden]
        processes.append(subprocess.Popen([*make, shown]))
        running = dict(zip((process.pid for process in processes), targets, strict=True))
        costs: dict[str, Cost] = {}
        statuses: dict[str, int] = {}
        while running:
            # wait4 tells the processor time of each target apart, which getrusage cannot.
            pid, status, used = os.wait4(-1, 0)
            target = running.pop(pid)
            costs[target] = Cost(wall_s=time.monotonic() - began_s, cpu_s=used.ru_utime + used.ru_stime)
            statuses[target] = os.waitstatus_to_exitcode(status)
        output.seek(0)
        sys.stdout.buffer.write(output.read())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = Cost(wall_s=time.monotonic() - began_s, cpu_s=used.ru_utime + used.ru_stime)
    parts = (f"{target} {costs[target]}" for target in targets)
    print(*parts, f"in all {whole} (bars: {WALL_BAR_S} s, {CPU_BAR_S} s)", sep="; ", flush=True)
    return next((status for target in targets if (status := statuses[target])), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
