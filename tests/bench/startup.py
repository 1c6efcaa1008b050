"""What it costs to start the program and its peers, beside an interpreter that does nothing."""

import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.agents import CDD, COMMANDS, Agent
from tests.bench.bars import Bars
from tests.bench.measure import Spent, inherited, interleaved, spend
from tests.bench.terminal import NoPromptError, draw

NOTHING = "python -c pass"
BAR_CPU = {"--version": 3.0, "--help": 5.0, "first prompt": 22.0}
BAR_MB = {"--version": 16.0, "--help": 16.0}


@dataclass(frozen=True)
class Start:
    """What one command costs: medians, and ratios to nothing on the same interpreter."""

    seconds: float
    ratio: float
    peak_mb: float
    peak_ratio: float

    @property
    def shown(self) -> str:
        return f"{self.seconds * 1000:5.0f} ms {self.ratio:6.2f} x {self.peak_mb:6.1f} MB {self.peak_ratio:5.2f} x"


Starts = Mapping[tuple[str, str], Start]
"""By name of the agent and command."""


def show(folder: Path, peers: Sequence[Agent], *, rounds: int) -> bool:
    """Print all figures and bars; say whether the bars are kept."""
    agents = (CDD, *peers)
    print(
        f"start-up, medians of {rounds} rounds: CPU and peak memory, each also to `{NOTHING}` of the same interpreter"
    )
    starts = measure(folder, agents, rounds=rounds)
    for command in (*COMMANDS, "status"):
        print(f"  {command}")
        for agent in agents:
            if (agent.name, command) in starts:
                print(f"    {agent.requirement or agent.name:<24} {starts[agent.name, command].shown}")
    for agent in agents:
        for command, why in agent.without.items():
            print(f"  left out: {agent.name} {command}, because {why}")
    return judge(starts, peers)


def judge(starts: Starts, peers: Sequence[Agent]) -> bool:
    """Print each bar and whether it is kept; say whether all are."""
    print("\nbars")
    bars = Bars()
    for command in COMMANDS:
        own = starts[CDD.name, command]
        bars.at_most(f"cdd {command}: CPU, ratio", own.ratio, limit=BAR_CPU[command])
        if command in BAR_MB:
            bars.at_most(f"cdd {command}: peak memory, MB", own.peak_mb, limit=BAR_MB[command])
        theirs = [starts[agent.name, command] for agent in peers if (agent.name, command) in starts]
        if theirs:
            bars.below(f"cdd {command}: CPU, and the least of a peer", own.ratio, limit=min(at.ratio for at in theirs))
            least_mb = min(at.peak_mb for at in theirs)
            bars.below(f"cdd {command}: peak memory, MB, and the least of a peer", own.peak_mb, limit=least_mb)
    return bars.are_kept


def measure(folder: Path, agents: Sequence[Agent], *, rounds: int) -> Starts:
    """Start all in a repository without tickets, once for the files they make and then round by round."""
    project = folder / "project"
    (project / "tickets").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    runs: dict[tuple[str, str], Callable[[], Spent]] = {}
    for agent in agents:
        environment = _environment(agent, folder / agent.name)
        run = partial(spend, folder=project, environment=environment)
        runs[agent.name, NOTHING] = partial(run, [agent.python, "-c", "pass"])
        for command in COMMANDS:
            if command in agent.without:
                continue
            start = partial(run, agent.argv(command))
            if command == "first prompt":
                start = partial(draw, agent.argv(command), project, environment=environment, ready=agent.ready)
            if _works(start, f"{agent.name} {command}", required=agent is CDD):
                runs[agent.name, command] = start
    runs[CDD.name, "status"] = partial(
        spend, CDD.argv("status"), folder=project, environment=_environment(CDD, folder / CDD.name)
    )
    spent = interleaved(runs, rounds=rounds)
    return {key: _start(found, spent[key[0], NOTHING]) for key, found in spent.items()}


def _works(start: Callable[[], Spent], name: str, *, required: bool) -> bool:
    """Whether it starts at all; a peer that does not is left out, and what it said is shown."""
    try:
        start()
        start()  # the first start of some makes what the later ones find
    except NoPromptError as error:
        if required:
            raise SystemExit(f"{name} does not come:\n{error}") from error
        print(f"  left out: {name}, because it does not come offline; the screen shows:\n{error}")
        return False
    return True


def _environment(agent: Agent, home: Path) -> dict[str, str]:
    """A clean home, no colors, no network."""
    home.mkdir(exist_ok=True)
    for name, content in agent.home.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content, encoding="utf-8")
    terminal = {"HOME": str(home), "NO_COLOR": "1", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    return inherited() | terminal | agent.variables(home)


def _start(spent: Sequence[Spent], nothing: Sequence[Spent]) -> Start:
    """The medians of what was spent, round by round."""
    pairs = list(zip(spent, nothing, strict=True))
    return Start(
        seconds=statistics.median(seconds for seconds, _ in spent),
        ratio=statistics.median(own[0] / base[0] for own, base in pairs),
        peak_mb=max(peak for _, peak in spent),
        peak_ratio=statistics.median(own[1] / base[1] for own, base in pairs),
    )
