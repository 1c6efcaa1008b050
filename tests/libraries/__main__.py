"""``make libraries``: the tests of ten libraries, with and without the plugin.

The plugin must change no outcome and no exit status, must say of each node id what pytest and its JUnit XML say, and
must open the gate GREEN for a library that nobody has changed; serial and under xdist. Exit status 1 if it does not.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import SuiteReport
from pytest_tdd_agent.wording import explain
from tests.libraries.catalog import LIBRARIES, Library

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "libraries"
TIMEOUT_S = 300
AS_JUNIT = {"xfailed": "skipped", "xpassed": "passed"}
"""JUnit's XML has no word for these; that of an expected failure which passes is lost in it."""
RANK = ("passed", "skipped", "failed", "error")
SHOWN = 5

Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Workshop:
    """One library, unpacked and committed, with what its tests need."""

    library: Library

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.library.name}-{self.library.version}"

    @property
    def site(self) -> Path:
        return self.folder / "site"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def prepare(self) -> None:
        """Download what is not there yet, and lay the project anew."""
        if not (self.folder / ".ready").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            named = (self.library.pin, *self.library.needs)
            pip("download", "--no-deps", "--no-binary", self.library.name, "-d", str(self.folder), self.library.pin)
            pip("install", "--target", str(self.site), *named)
            (self.folder / ".ready").touch()
        for folder in (self.project, self.folder / "out"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.unpack_archive(next(self.folder.glob("*.tar.gz")), self.folder / "unpacked", filter="data")
        next((self.folder / "unpacked").iterdir()).rename(self.project)
        (self.folder / "out").mkdir()
        self._keep_to_itself()
        for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "The library as released")):
            identity = ("-c", "user.name=cdd", "-c", "user.email=cdd@example.invalid")
            subprocess.run(["git", *identity, *command], cwd=self.project, check=True)

    def _keep_to_itself(self) -> None:
        """Give a library without pytest's configuration an empty one, as pytest would take that of a folder above."""
        names = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
        files = [self.project / name for name in names if (self.project / name).exists()]
        if not any(re.search(r"^\[(tool[.:])?pytest", file.read_text(encoding="utf-8"), re.M) for file in files):
            (self.project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def pytest(self, name: str, *args: str) -> "Run":
        """Run the library's tests; the plugin is only there if the arguments name it."""
        out = self.folder / "out"
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        variables = kept | {
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join((str(self.site), str(FOLDER / "plugins"))),
            "PYTHONHASHSEED": "0",
            "NODE_OUTCOMES": str(out / f"{name}.outcomes"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "node_outcomes", *args]
        with (out / f"{name}.txt").open("w", encoding="utf-8") as screen:
            status = subprocess.run(
                command,
                cwd=self.project,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=screen,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            ).returncode
        return Run(out=out, name=name, status=status)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run left behind."""

    out: Path
    name: str
    status: int

    @property
    def noted(self) -> dict[str, tuple[str, str]]:
        """Node id -> outcome, JUnit's name; of files that cannot be collected too."""
        found = json.loads((self.out / f"{self.name}.outcomes").read_text(encoding="utf-8"))
        return {nodeid: (outcome, junit) for nodeid, (outcome, junit) in found.items()}

    @property
    def outcomes(self) -> dict[str, str]:
        return {nodeid: outcome for nodeid, (outcome, _) in self.noted.items()}

    @property
    def as_junit(self) -> dict[str, str]:
        """JUnit's name -> the outcome in JUnit's words, by our own notes; the worst, where ids share a name."""
        pairs = [(junit, AS_JUNIT.get(outcome, outcome)) for outcome, junit in self.noted.values()]
        return worst(pairs)

    @property
    def junit(self) -> dict[str, str]:
        """The same by JUnit's XML."""
        pairs = []
        for case in ElementTree.parse(self.out / f"{self.name}.xml").iter("testcase"):
            words = {"failure": "failed", "error": "error", "skipped": "skipped"}
            said = [words[element.tag] for element in case if element.tag in words]
            name = f"{case.get('classname')}::{case.get('name')}"
            if not case.get("classname") and "skipped" in said:
                continue  # a file that skips itself when it is collected is not a test
            pairs += [(name, outcome) for outcome in said or ["passed"]]
        return worst(pairs)

    @property
    def report(self) -> SuiteReport | None:
        """The plugin's document, None if it wrote none."""
        path = self.out / f"{self.name}.json"
        return load(path) if path.exists() else None

    @property
    def reported(self) -> dict[str, str]:
        """Node id -> outcome by the plugin's report."""
        if self.report is None:
            return {}
        tests = {case.nodeid: case.outcome for case in self.report.tests}
        return tests | {error.nodeid: "error" for error in self.report.collect_errors}

    @property
    def reasons(self) -> list[str]:
        """Why the gate is closed."""
        verdict = self.report and self.report.gate
        found = [f"{reason.code} {reason.nodeid}: {explain(reason)}" for reason in (verdict.reasons if verdict else ())]
        return found or [f"exit status {self.status}, see {self.out / self.name}.txt"]


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


def worst(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the worst outcome of each name."""
    found: dict[str, str] = {}
    for name, outcome in pairs:
        found[name] = max(found.get(name, "passed"), outcome, key=RANK.index)
    return found


def pip(*args: str) -> None:
    """Run pip, quietly."""
    command = [sys.executable, "-m", "pip", *args[:1], "-qq", "--disable-pip-version-check", *args[1:]]
    subprocess.run(command, check=True)


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


def lay_plugins() -> None:
    """Copy both plugins to where nothing else lies that a library's tests could import."""
    folder = FOLDER / "plugins"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "pytest_tdd_agent", folder / "pytest_tdd_agent", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(Path(__file__).with_name("node_outcomes.py"), folder)


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
