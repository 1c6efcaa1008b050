"""``make bench``: the cost of start-up, the plugin, a step, its checks and its requests, as ratios in one run.

Calls are counted under cProfile and repeat exactly. A CPU figure is the median over interleaved rounds of a child's
user and system time, divided by that of the baseline in the same round: absolute times of a shared machine say little.
The name of a part, such as ``requests``, runs it alone; ``--quick`` leaves out the other agents and the large suites.
Exit status 1 if a bar is missed.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bench import (
    cluster,
    evidence,
    exercised,
    generation,
    impact,
    jobs,
    localization,
    reporters,
    requests,
    scale,
    search,
    startup,
    step,
    symbol_tools,
    symbols,
)
from tests.bench.agents import installed_agents
from tests.bench.peers import installed_peers

PARTS: Mapping[str, Callable[[Path, bool], bool]] = {
    "startup": lambda folder, quick: startup.show(
        folder / "startup", () if quick else installed_agents(), rounds=5 if quick else 9
    ),
    "reporters": lambda folder, quick: reporters.show(folder, installed_peers(), quick=quick),
    "step": lambda folder, quick: step.show(folder / "step", quick=quick),
    "jobs": lambda folder, quick: jobs.show(folder / "jobs"),
    "cluster": lambda folder, quick: cluster.show(folder / "cluster"),
    "scale": lambda folder, quick: scale.show(folder / "scale", quick=quick),
    "evidence": lambda folder, quick: evidence.show(folder / "evidence", quick=quick),
    "requests": lambda folder, quick: requests.show(folder),
    "impact": lambda folder, quick: impact.show(folder / "impact", quick=quick),
    "generation": lambda folder, quick: generation.show(folder / "generation"),
    "search": lambda folder, quick: search.show(),
    "localization": lambda folder, quick: localization.show(folder / "localization"),
    "symbols": lambda folder, quick: symbols.show(folder / "symbols", quick=quick),
    "symbol_tools": lambda folder, quick: symbol_tools.show(folder / "symbol_tools"),
    "exercised": lambda folder, quick: exercised.show(folder / "exercised", installed_agents()),
}
"""Name -> the function that prints the figures of a part, and returns whether its bars are kept."""
LONG = ("jobs", "cluster", "generation", "localization", "symbol_tools", "exercised")
"""Parts that ``--quick`` leaves out."""


def main(arguments: list[str]) -> int:
    """Print all figures, or those of the parts that are named."""
    quick = "--quick" in arguments
    parts = [argument for argument in arguments if argument != "--quick"] or [*PARTS]
    if not set(parts) <= set(PARTS):
        raise SystemExit(f"usage: python -m tests.bench [--quick] [{' | '.join(PARTS)}]")
    with tempfile.TemporaryDirectory() as name:
        shown = [part for part in PARTS if part in parts and not (quick and part in LONG)]
        kept = [PARTS[part](Path(name), quick) for part in shown]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
