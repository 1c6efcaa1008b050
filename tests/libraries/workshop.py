"""A library that is unpacked with what its tests need, and the runs of its tests."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import SuiteReport
from pytest_tdd_agent.wording import explain
from tests.libraries.catalog import Library

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "libraries"
TIMEOUT_S = 300
AS_JUNIT = {"xfailed": "skipped", "xpassed": "passed"}
"""JUnit's XML has no word for these; that of an expected failure which passes is lost in it."""
RANK = ("passed", "skipped", "failed", "error")

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

    def take_package(self) -> Path:
        """Take the package out of the project, and return the folder in which it is now.

        Tests inside of the package stay in the project.
        """
        name, original = self.library.import_name, self.folder / "original"
        shutil.rmtree(original, ignore_errors=True)
        original.mkdir()
        places = [self.project / "src", self.project, self.project / "lib", self.site]
        found = next(
            path
            for place in places
            for path in (place / name, place / f"{name}.py")
            if path.is_file() or any(path.glob("*.py"))
        )
        if found.is_relative_to(self.project):
            found.rename(original / found.name)
        elif found.is_dir():
            shutil.copytree(found, original / name)
        else:
            shutil.copy(found, original)
        if (original / name / "tests").is_dir():
            shutil.copytree(original / name / "tests", self.project / "own_tests")
        return original

    def pytest(self, name: str, *args: str, first: Path | None = None) -> "Run":
        """Run the library's tests; the plugin is only there if the arguments name it.

        ``first``: a folder in which modules are searched before those that are installed.
        """
        out = self.folder / "out"
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        variables = kept | {
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(map(str, [*([first] if first else []), self.site, FOLDER / "plugins"])),
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


def lay_plugins() -> None:
    """Copy both plugins to where nothing else lies that a library's tests could import."""
    folder = FOLDER / "plugins"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "pytest_tdd_agent", folder / "pytest_tdd_agent", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(Path(__file__).with_name("node_outcomes.py"), folder)
