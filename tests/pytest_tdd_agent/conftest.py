"""A small project in a temporary folder, and pytest runs in it with the plugin."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Case, SuiteReport, Verdict

ROOT = Path(__file__).parent.parent.parent
XDIST = ("-p", "xdist", "-n2")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One pytest run, as its caller sees it."""

    status: int
    output: str
    folder: Path
    name: str

    @property
    def report(self) -> SuiteReport:
        return load(self.folder / self.name)

    @property
    def stream(self) -> list[dict[str, object]]:
        text = (self.folder / self.name).with_suffix(".jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @property
    def events(self) -> list[object]:
        return [line["event"] for line in self.stream]

    @property
    def verdict(self) -> Verdict:
        verdict = self.report.gate
        assert verdict is not None
        return verdict

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.verdict.reasons]

    @property
    def cases(self) -> dict[str, Case]:
        """By the part of the node id after the file."""
        return {case.nodeid.partition("::")[2]: case for case in self.report.tests}


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder with tests of its own."""

    pytester: pytest.Pytester

    @property
    def folder(self) -> Path:
        return self.pytester.path

    def write(self, **files: str) -> None:
        """Write files; ``__`` in a name stands for a slash, the suffix is ``.py``."""
        for name, content in files.items():
            self.put(name.replace("__", "/") + ".py", content)

    def put(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def pytest(self, *args: str, report: str = "out/report.json") -> Run:
        """Run pytest with the plugin loaded, as ``-p`` does, and a report asked for."""
        return self.plain("-p", "pytest_tdd_agent", "--tdd-agent-report", report, *args, report=report)

    def plain(self, *args: str, report: str = ".tdd-agent/report.json") -> Run:
        result = self.pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)
        output = "\n".join(result.outlines + result.errlines)
        return Run(status=int(result.ret), output=output, folder=self.folder, name=report)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_TDD_AGENT_ACTIVE", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return Project(pytester=pytester)
