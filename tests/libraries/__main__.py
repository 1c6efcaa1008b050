"""``make libraries``: the tests of ten libraries, with and without the plugin.

The plugin must change no outcome and no exit status, must say of each node id what pytest and its JUnit XML say, and
must open the gate GREEN for a library that nobody has changed; serial and under xdist. Exit status 1 if it does not.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.libraries.catalog import LIBRARIES, Library
from tests.libraries.workshop import Outcomes, Workshop, lay_plugins

SHOWN = 5


@dataclass(kw_only=True)
class Finding:
    """What the runs of one library showed."""

    tests: int = 0
    differences: list[str] = field(default_factory=list)
    closed: dict[str, list[str]] = field(default_factory=dict)
    """Run -> why its gate is closed."""

    def compare(self, what: str, left: Outcomes, *, right: Outcomes) -> None:
        for name in sorted({*left, *right}):
            if left.get(name) != right.get(name):
                self.differences.append(f"{what}: {name}: {left.get(name)} and {right.get(name)}")


def examine(library: Library) -> Finding:
    """Run the tests of a library in every way, and compare."""
    workshop = Workshop(library)
    workshop.prepare()
    out = workshop.folder / "out"
    off = ("-p", "no:pytest_tdd_agent")
    plain = workshop.pytest("plain", *off, "--junitxml", str(out / "plain.xml"))
    report = workshop.pytest("report", *asked(out / "report.json"))
    green = ("--tdd-agent-gate=green", f"--tdd-agent-baseline={out / 'report.json'}")
    gate = workshop.pytest("gate", *asked(out / "gate.json"), *green)
    parallel = workshop.pytest("parallel", *off, "-n", "2")
    parallel_gate = workshop.pytest("parallel_gate", *asked(out / "parallel_gate.json"), *green, "-n", "2")
    finding = Finding(tests=len(plain.outcomes))
    finding.compare("notes and JUnit's XML", plain.as_junit, right=plain.junit)
    finding.compare("plain run and report", plain.outcomes, right=report.reported)
    finding.compare("plain run and run with the plugin", plain.outcomes, right=report.outcomes)
    finding.compare("plain run and report with a gate", plain.outcomes, right=gate.reported)
    finding.compare("plain run and report, xdist", parallel.outcomes, right=parallel_gate.reported)
    if plain.status != report.status:
        finding.differences.append(f"exit status: {plain.status} and {report.status}")
    for run in (gate, parallel_gate):
        if run.report is not None and not run.report.supervised:
            finding.differences.append(f"{run.name} was not judged by a parent")
        if run.status:
            finding.closed[run.name] = run.reasons
    return finding


def asked(report: Path) -> tuple[str, ...]:
    """Return the arguments that ask for a report; with ``=``, as pytest seeks its root at a path of its own word."""
    return ("-p", "pytest_tdd_agent", f"--tdd-agent-report={report}")


def main(names: list[str]) -> int:
    """Examine the libraries, or those named, and print a table; 1 if the plugin changed or misjudged something."""
    lay_plugins()
    print(f"{'library':<24} {'tests':>6} {'differences':>12} {'gate':>7} {'gate, xdist':>12} {'seconds':>8}")
    status = 0
    for library in LIBRARIES:
        if names and library.name not in names:
            continue
        began = time.monotonic()
        found = examine(library)
        gates = ["closed" if name in found.closed else "open" for name in ("gate", "parallel_gate")]
        print(
            f"{library.pin:<24} {found.tests:>6} {len(found.differences):>12} {gates[0]:>7} {gates[1]:>12}"
            f" {time.monotonic() - began:>8.0f}",
            flush=True,
        )
        reasons = [f"{name}: {reason}" for name, closed in found.closed.items() for reason in closed[:SHOWN]]
        for line in (*found.differences[:SHOWN], *reasons):
            print(f"    {line[:300]}")
        status |= bool(found.differences or found.closed or not found.tests)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
