"""A small project in a temporary folder, and pytest runs in it with the plugin."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.recording.assembly import Assembler, Recording
from pytest_tdd_agent.recording.spool import RECORDS
from pytest_tdd_agent.report import Case, SuiteReport, Verdict
from tests.fakes.preloaded import PytestServer, start_program, start_pytest

ROOT = Path(__file__).parent.parent.parent
XDIST = ("-p", "xdist", "-n1")
TWO_WORKERS = ("-p", "xdist", "-n2")
"""Where results of several workers meet."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One pytest run, as its caller sees it."""

    status: int
    folder: Path
    name: str
    printed: str = ""
    errors: str = ""

    @property
    def output(self) -> str:
        return f"{self.printed}\n{self.errors}"

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

    folder: Path
    server: PytestServer

    def write(self, **files: str) -> None:
        """Write files; ``__`` in a name stands for a slash, the suffix is ``.py``."""
        for name, content in files.items():
            self.put(name.replace("__", "/") + ".py", content)

    def put(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def pytest(self, *args: str, report: str = "out/report.json", start: bool = False) -> Run:
        """Run pytest with the plugin loaded, as ``-p`` does, and a report asked for."""
        return self.plain("-p", "pytest_tdd_agent", "--tdd-agent-report", report, *args, report=report, start=start)

    def record(self, *args: str, nonce: str = "n") -> tuple[Recording, bytes]:
        """Run pytest with the plugin, and read the records from a socket as another process does."""
        ours, theirs = str(self.folder.parent / "records"), self.folder.parent / "recorded.py"
        theirs.write_text(
            "import os, socket, sys, pytest\n"
            "out = socket.socket(socket.AF_UNIX)\n"
            f"out.connect({ours!r})\n"
            f"os.environ[{RECORDS!r}] = str(out.detach())\n"
            "sys.exit(pytest.main(sys.argv[1:]))\n"
        )
        with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool:
            listener.bind(ours)
            listener.listen()
            data = pool.submit(read_all, listener)
            arguments = ("-p", "no:cacheprovider", "-p", "pytest_tdd_agent", f"--tdd-agent-nonce={nonce}", *args)
            done = self.server.run(arguments, folder=self.folder, environment=os.environ, script=str(theirs))
            assembler = Assembler(nonce)
            assembler.feed(data.result())
            os.unlink(ours)
        return assembler.finish(done.status), data.result()

    def start(self, *command: str) -> Run:
        """Run a command that runs pytest, with ``report.json`` as its report."""
        done = start_program(command, folder=self.folder, environment=os.environ)
        return Run(status=done.status, printed=done.stdout, errors=done.stderr, folder=self.folder, name="report.json")

    def plain(self, *args: str, report: str = ".tdd-agent/report.json", start: bool = False) -> Run:
        """Run pytest in a process that is forked or, with ``start``, started as a user starts it."""
        arguments = [f"--basetemp={self.folder / 'basetemp'}", "-p", "no:cacheprovider", *args]
        run = start_pytest if start else self.server.run
        done = run(arguments, folder=self.folder, environment=os.environ)
        return Run(status=done.status, printed=done.stdout, errors=done.stderr, folder=self.folder, name=report)


def read_all(listener: socket.socket) -> bytes:
    """Accept one connection and return what comes through it."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        return stream.read()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PytestServer]:
    server = PytestServer(tmp_path_factory.mktemp("output"))
    # The plugin is installed, so pytest rewrites its assertions. Without bytecode of them, each run would do that anew.
    options = ("--tdd-agent-gate=green", "--tdd-agent-audit", "--tdd-agent-flaky=1", "--tdd-agent-report=report.json")
    quiet = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    server.run(("-p", "pytest_tdd_agent", *options), folder=tmp_path_factory.mktemp("empty"), environment=quiet)
    yield server
    server.close()


@pytest.fixture
def project(tmp_path: Path, server: PytestServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PY_COLORS", "0")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_TDD_AGENT_ACTIVE", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return Project(folder=folder, server=server)
