"""One run of a project's tests, read back as a report that can be trusted or a reason why it cannot.

The plugin goes onto the project's path as a private folder that holds only that package; it is never installed
there. Its name is new for every run, so that no package of the project can pass for it, not even in xdist's workers.
Report and plugin lie outside the project, in a folder that is new for every run. Bytecode goes to a cache of our own,
and what is in it of the project's code is dropped before every run: bytecode is told from its source by size and whole
seconds, so an edit within the same second could otherwise be judged by the version before.
"""

import os
import re
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest_tdd_agent
from cdd_agent.testrun.detect import Interpreter
from cdd_agent.testrun.sandbox import ProcessResult, Sandbox
from pytest_tdd_agent.codec import ReportError, dump, load
from pytest_tdd_agent.report import SuiteReport

OUTPUT_CAP_BYTES = 200_000
_STOP_LINE = re.compile(r"^!{3,} (.+?) !{3,}$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What one run came to: exactly one of ``report`` and ``problem`` is there."""

    report: SuiteReport | None
    problem: str | None
    """Why there is no report to judge: time-out, early end, a report that is not of this run."""
    output: str
    """What pytest printed, capped."""
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests of one project and how they are run; node ids are relative to it, wherever its configuration lies."""

    root: Path
    interpreter: Interpreter
    sandbox: Sandbox
    timeout_s: float
    bytecode: Path
    """Folder for compiled code, kept between runs."""

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests that ``targets`` name, or all; the report is also written to ``keep``."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-") as folder:
            private = Path(folder)
            self._drop_project_bytecode()
            nonce = secrets.token_hex(16)
            result = self._pytest(private, nonce, targets=targets)
            report, problem = self._read_back(private / "report.json", nonce, result=result)
            shutil.rmtree(self.bytecode / private.relative_to(os.sep), ignore_errors=True)
        if report is not None and keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            dump(report, keep)
        return SuiteRun(report=report, problem=problem, output=result.output, duration_s=time.monotonic() - started)

    def _pytest(self, private: Path, nonce: str, *, targets: tuple[str, ...]) -> ProcessResult:
        """Run pytest with the plugin and a report in ``private``."""
        package = Path(pytest_tdd_agent.__file__).parent
        name = f"tdd_agent_{nonce}"
        shutil.copytree(package, private / "plugin" / name, ignore=shutil.ignore_patterns("__pycache__"))
        launcher = shutil.copy(Path(__file__).with_name("launcher.py"), private)
        paths = [str(private / "plugin"), *filter(None, [os.environ.get("PYTHONPATH")])]
        argv = [
            *(str(self.interpreter.path), str(launcher), "-p", f"no:{package.name}", "-p", name),
            *("--tdd-agent-report", str(private / "report.json"), "--tdd-agent-nonce", nonce),
            *("--rootdir=.", "--continue-on-collection-errors", "--maxfail=0", "--color=no", *targets),
        ]
        variables = {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONPYCACHEPREFIX": str(self.bytecode),
        }
        return self.sandbox.run(
            argv, cwd=self.root, variables=variables, timeout_s=self.timeout_s, output_cap=OUTPUT_CAP_BYTES
        )

    def _drop_project_bytecode(self) -> None:
        """Drop what is compiled of the project, except of a virtual environment inside it."""
        compiled = self.bytecode / self.root.resolve().relative_to(os.sep)
        environment = self.bytecode / self.interpreter.path.parent.parent.absolute().relative_to(os.sep)
        for entry in list(compiled.iterdir()) if compiled.is_dir() else ():
            if entry != environment:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _read_back(self, path: Path, nonce: str, *, result: ProcessResult) -> tuple[SuiteReport | None, str | None]:
        """The report at ``path`` if it is whole and of this run, else what is wrong with it."""
        if result.timed_out:
            return None, f"the tests did not end within {self.timeout_s:g} s"
        if not path.exists():
            last = (result.output.strip().splitlines() or ["no output"])[-1]
            return None, f"pytest ended with status {result.exit_status} and left no report: {last}"
        try:
            report = load(path)
        except ReportError as error:
            return None, f"the report cannot be read: {error}"
        if report.nonce != nonce:
            return None, "the report is not of this run"
        if not report.complete:
            return None, f"the run ended early (pytest status {report.exit_status}){_why_it_stopped(result.output)}"
        return report, None


def _why_it_stopped(output: str) -> str:
    """What pytest said of its stopping, the last line of that kind; options that stop a run are named."""
    said = _STOP_LINE.findall(output)
    if not said:
        return ""
    is_option = "stopping after" in said[-1] or "continuing from this test" in said[-1]
    hint = "; take -x, --maxfail and --stepwise out of the tests' configuration" if is_option else ""
    return f": {said[-1]}{hint}"
