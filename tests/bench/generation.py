"""The cost of a node of ``cdd generate`` with one and two jobs: CPU seconds and starts of the tests.

The example ml-library has 50 nodes, and some need debugging rounds on purpose. Its design expected 73 CPU seconds for
the gates alone, and about 160 with all checks. CPU seconds of two machines differ, so these are shown beside the
figures, and no bar depends on them.
"""

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bars import Bars
from tests.bench.measure import ROOT, inherited
from tests.fakes.program import EXAMPLES

EXAMPLE, NODES = EXAMPLES / "ml-library", 50
DESIGN = "designed: 73 CPU s with gates alone, about 160 with all checks"
BAR_STARTS = 6.0
"""Starts of the tests a node, with one job: 2 for its gates, the others for checks, rounds, and the whole."""
BAR_JOBS = 2.0
"""CPU with two jobs, in that with one: each node is judged again where it lands."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one generation took."""

    cpu_s: float
    starts: int
    """Runs of the tests that were not known from an earlier run."""


def measure(folder: Path, *, jobs: int) -> Cost:
    """Generate the example in a new folder."""
    folder.mkdir(parents=True)
    home = folder / "home"
    home.mkdir()
    names = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
    variables = inherited() | dict.fromkeys(names, "bench@example.invalid")
    variables |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "cdd_agent", "--replay", str(EXAMPLE / "recording.yaml"), "--yes", "--json"]
    command += ["generate", str(EXAMPLE / "graph.json"), "--out", str(folder / "out"), "--jobs", str(jobs)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "events").open("w") as stream:
        subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines() if line.startswith("{")]
    if not any(event["event"] == "RunFinished" for event in events):
        raise SystemExit(f"the example was not generated: see {folder / 'events'}")
    return Cost(cpu_s=spent, starts=sum(event["event"] == "SuiteStarted" for event in events))


def show(folder: Path) -> bool:
    """Print the figures and the bars; return whether they are kept."""
    print(f"\ngeneration: {NODES} nodes of ml-library, with rounds, checks and assembly ({DESIGN})")
    one, two = (measure(folder / f"{jobs}", jobs=jobs) for jobs in (1, 2))
    for jobs, cost in ((1, one), (2, two)):
        per_node = f"{cost.cpu_s / NODES:.2f} CPU s and {cost.starts / NODES:.1f} starts of the tests a node"
        print(f"  --jobs {jobs}: {cost.cpu_s:.0f} CPU s, {per_node}")
    bars = Bars()
    bars.at_most("starts of the tests a node with one job", one.starts / NODES, limit=BAR_STARTS)
    bars.at_most("CPU with two jobs, in that with one", two.cpu_s / one.cpu_s, limit=BAR_JOBS)
    return bars.are_kept
