"""``make bench``: the cost of start-up, the plugin, a step, its checks and its requests, as ratios in one run.

Calls are counted under cProfile and repeat exactly. A CPU figure is the median over interleaved rounds of a child's
user and system time, divided by that of the baseline in the same round: absolute times of a shared machine say little.
The name of a part, such as ``requests``, runs it alone; ``--quick`` leaves out the other agents and the large suites.
Exit status 1 if a bar is missed.
"""

import sys
import tempfile
from pathlib import Path

from tests.bench import evidence, exercised, generation, impact, jobs, reporters, requests, scale, startup, step
from tests.bench.agents import installed_agents
from tests.bench.peers import installed_peers

PARTS = ("startup", "reporters", "step", "jobs", "scale", "evidence", "requests", "exercised", "impact", "generation")


def main(arguments: list[str]) -> int:
    """Print all figures, or those of the parts that are named."""
    quick = "--quick" in arguments
    parts = [argument for argument in arguments if argument != "--quick"] or PARTS
    if not set(parts) <= set(PARTS):
        raise SystemExit(f"usage: python -m tests.bench [--quick] [{' | '.join(PARTS)}]")
    kept = []
    with tempfile.TemporaryDirectory() as name:
        if "startup" in parts:
            agents = () if quick else installed_agents()
            kept.append(startup.show(Path(name, "startup"), agents, rounds=5 if quick else 9))
        if "reporters" in parts:
            kept.append(reporters.show(Path(name), installed_peers(), quick=quick))
        if "step" in parts:
            kept.append(step.show(Path(name, "step"), quick=quick))
        if "jobs" in parts and not quick:
            kept.append(jobs.show(Path(name, "jobs")))
        if "scale" in parts:
            kept.append(scale.show(Path(name, "scale"), quick=quick))
        if "evidence" in parts:
            kept.append(evidence.show(Path(name, "evidence"), quick=quick))
        if "requests" in parts:
            kept.append(requests.show(Path(name)))
        if "impact" in parts:
            kept.append(impact.show(Path(name, "impact"), quick=quick))
        if "generation" in parts and not quick:
            kept.append(generation.show(Path(name, "generation")))
        if "exercised" in parts and not quick:
            kept.append(exercised.show(Path(name, "exercised"), installed_agents()))
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
