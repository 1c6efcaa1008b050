"""What this plugin costs a pytest run, beside its peers: calls, CPU, memory and bytes, with the bars it has to keep."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bars import Bars
from tests.bench.measure import Cost, calls, compare, spend
from tests.bench.peers import ASKED, AUDIT, BARE, BASELINE, GATE, OFF, Reporter

PER_FILE = 100
FRAMES = 11
KEYS = 50
BAR_CALLS = 130
BAR_OFF = 0.05
"""None; the count of a whole run varies by some calls in a million."""
BAR_BYTES = 115
BAR_MEMORY = 1.05
BAR_FAILURES = 1.12
BAR_PARENT = 1.8
"""pytest starts twice, and the results are sent, read and judged."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests of one kind, as many as are asked for."""

    passing: bool
    tests: int
    rounds: int
    counted: bool
    """Calls are counted."""

    @property
    def title(self) -> str:
        return f"{self.tests:,} {'passing' if self.passing else 'failing'} tests"

    def write(self, folder: Path) -> None:
        """Write the test files."""
        folder.mkdir(parents=True)
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        if not self.passing:
            (folder / "deep.py").write_text(_deep())
        for number in range(self.tests // PER_FILE):
            head = "" if self.passing else "import deep\n\n"
            bodies = (self._body(number * PER_FILE + index) for index in range(PER_FILE))
            (folder / f"test_{number:03}.py").write_text(head + "".join(bodies))

    def _body(self, number: int) -> str:
        step = f"assert {number} == {number}" if self.passing else f"deep.step_0({number})"
        return f"def test_{number}():\n    {step}\n\n"


def _deep() -> str:
    """Return a module of nested calls that end in a comparison of dicts with two differences."""
    steps = [f"def step_{at}(number):\n    step_{at + 1}(number)\n\n" for at in range(FRAMES - 1)]
    last = f"""def step_{FRAMES - 1}(number):
    left = {{f"key_{{key}}": key for key in range({KEYS})}}
    right = dict(left, key_3=number + 100, key_40="other")
    assert left == right
"""
    return "".join(steps) + last


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of one suite, by reporter."""

    suite: Suite
    calls: dict[str, int]
    costs: dict[str, Cost]
    written: dict[str, tuple[float, ...]]
    """Bytes a test, by file."""

    def extra(self, name: str) -> float:
        """Calls a test beyond those of bare pytest."""
        return (self.calls[name] - self.calls[BARE.name]) / self.suite.tests

    def ratio(self, name: str) -> float:
        return self.calls[name] / self.calls[BARE.name]

    def show(self) -> None:
        print(f"\n{self.suite.title}, {self.suite.rounds} rounds")
        print(f"  {'':<32} {'calls/test more':>16} {'ratio':>7}   CPU, median (range), peak memory    bytes/test")
        for name, cost in self.costs.items():
            counted = f"{self.extra(name):>16.1f} {self.ratio(name):>7.3f}" if name in self.calls else f"{'':>24}"
            written = " + ".join(f"{size:.0f}" for size in self.written[name])
            print(f"  {name:<32} {counted}   {cost.shown}   {written}")


def measure(suite: Suite, reporters: Sequence[Reporter], *, folder: Path) -> Figures:
    """Run the suite with each reporter."""
    suite.write(folder)
    commands = {reporter.name: _command(reporter) for reporter in (BARE, *reporters)}
    spend(_command(BASELINE), folder)
    counted = {}
    for name, argv in commands.items():
        spend(argv, folder)
        if suite.counted:
            counted[name] = calls(argv, folder)
    written = {
        reporter.name: tuple((folder / file).stat().st_size / suite.tests for file in reporter.files)
        for reporter in (BARE, *reporters)
    }
    return Figures(suite=suite, calls=counted, costs=compare(commands, folder, rounds=suite.rounds), written=written)


def _command(reporter: Reporter) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *reporter.options]


def per_test(small: Figures, large: Figures, *, name: str) -> float:
    """Calls a test beyond bare pytest's, without what a run costs once."""
    more = large.extra(name) * large.suite.tests - small.extra(name) * small.suite.tests
    return more / (large.suite.tests - small.suite.tests)


def judge(figures: Sequence[Figures], few: Figures, *, peers: Sequence[Reporter]) -> bool:
    """Print each bar and whether it is kept; say whether all are."""
    print("\nbars")
    bars = Bars()
    bar = bars.at_most
    for found in figures:
        title, asked = found.suite.title, ASKED.name
        if found.calls:
            cheapest = min(found.extra(peer.name) for peer in peers)
            bar(f"{title}: calls a test, and those of the cheapest peer", found.extra(asked), limit=cheapest)
        if found.suite.passing:
            if found.calls:
                bar(f"{title}: calls a test", found.extra(asked), limit=BAR_CALLS)
                bar(f"{title}: calls a test, not asked for", per_test(few, found, name=OFF.name), limit=BAR_OFF)
            bar(f"{title}: bytes a test in the stream", found.written[asked][0], limit=BAR_BYTES)
            bar(f"{title}: CPU with a parent", found.costs[AUDIT.name].ratio, limit=BAR_PARENT)
            memory = found.costs[asked].peak_mb / found.costs[BARE.name].peak_mb
            bar(f"{title}: peak memory to bare pytest", memory, limit=BAR_MEMORY)
        else:
            bar(f"{title}: CPU", found.costs[asked].ratio, limit=BAR_FAILURES)
            if found.calls:
                bar(f"{title}: calls, ratio", found.ratio(asked), limit=BAR_FAILURES)
    return bars.are_kept


def suites(*, quick: bool) -> tuple[Suite, ...]:
    """Return what is measured; calls of failing tests are counted on few, because profiling is slow."""
    if quick:
        return (
            Suite(passing=True, tests=1_000, rounds=3, counted=True),
            Suite(passing=False, tests=200, rounds=3, counted=True),
        )
    return (
        Suite(passing=True, tests=1_000, rounds=5, counted=True),
        Suite(passing=True, tests=10_000, rounds=1, counted=False),
        Suite(passing=False, tests=200, rounds=3, counted=True),
        Suite(passing=False, tests=1_000, rounds=1, counted=False),
    )


def show(folder: Path, peers: Sequence[Reporter], *, quick: bool) -> bool:
    """Print all figures and bars; say whether the bars are kept."""
    few = measure(Suite(passing=True, tests=100, rounds=1, counted=True), (OFF,), folder=folder / "few")
    reporters = (OFF, ASKED, AUDIT, GATE, *peers)
    found = []
    for number, suite in enumerate(suites(quick=quick)):
        found.append(measure(suite, reporters, folder=folder / str(number)))
        found[-1].show()
    return judge(found, few, peers=peers)
