"""``make bench``: what start-up and the plugin cost, as ratios in one run.

Calls are counted under cProfile and repeat exactly. A CPU figure is the median over interleaved rounds of a child's
user and system time, divided by that of the baseline in the same round: absolute times of a shared machine say little.
``--quick`` leaves out the large suites. Exit status 1 if a bar is missed.
"""

import sys
import tempfile
from pathlib import Path

from tests.bench import reporters, startup
from tests.bench.peers import installed_peers


def main(arguments: list[str]) -> int:
    """Print all figures."""
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory() as name:
        startup.show(Path(name, "startup"), rounds=3 if quick else 7)
        return int(not reporters.show(Path(name), installed_peers(), quick=quick))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
