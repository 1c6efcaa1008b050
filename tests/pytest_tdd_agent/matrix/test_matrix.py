"""The plugin with every interpreter and every release of pytest that ``make matrix`` has installed."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Failure, SuiteReport
from tests.pytest_tdd_agent.matrix.cases import expected, files
from tests.pytest_tdd_agent.matrix.environments import ENVIRONMENTS, ROOT, Environment, interpreter

pytestmark = pytest.mark.slow
TIMEOUT_S = 120
XDIST = ("-n", "2")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A project, and one way to run its tests."""

    environment: Environment
    options: tuple[str, ...]
    folder: Path

    @property
    def parallel(self) -> bool:
        return bool(self.options)

    def write(self, **contents: str) -> None:
        for name, text in contents.items():
            self.put(f"{name}.py", text)

    def put(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def pytest(self, *args: str, report: str = "report.json") -> int:
        """Run pytest in the project and return its exit status."""
        python = interpreter(self.environment.python)
        assert python is not None
        named = [argument for name in self.environment.plugins for argument in ("-p", name)]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        variables = kept | {
            "PYTHONPATH": os.pathsep.join((str(self.environment.folder), str(ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        own = ("-p", "pytest_tdd_agent", "--tdd-agent-report", f"out/{report}")
        with (self.folder / "screen.txt").open("w", encoding="utf-8") as screen:
            done = subprocess.run(
                [str(python), "-m", "pytest", "-p", "no:cacheprovider", *named, *self.options, *own, *args],
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=screen,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        return done.returncode

    @property
    def screen(self) -> str:
        return (self.folder / "screen.txt").read_text(encoding="utf-8", errors="replace")

    def report(self, name: str = "report.json") -> SuiteReport:
        return load(self.folder / "out" / name)


@pytest.fixture(params=[(), XDIST], ids=["serial", "xdist"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


@pytest.fixture(params=ENVIRONMENTS, ids=lambda environment: environment.name)
def bench(request: pytest.FixtureRequest, options: tuple[str, ...], tmp_path: Path) -> Bench:
    if request.param.lacks:
        pytest.skip(request.param.lacks)
    folder = tmp_path / "project"
    folder.mkdir()
    return Bench(environment=request.param, options=options, folder=folder)


def shown(outcome: str, failure: Failure | None) -> str:
    if failure is None:
        return outcome
    missing = f" [{failure.missing_name}]" if failure.missing_name else ""
    return f"{outcome}: {failure.phase} {failure.kind} of {failure.origin}{missing}"


def differences(said: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [
        f"{nodeid}: {said.get(nodeid, 'missing')}; expected: {wanted.get(nodeid, 'nothing')}"
        for nodeid in sorted({*said, *wanted})
        if said.get(nodeid) != wanted.get(nodeid)
    ]


def test_every_test_is_reported_as_everywhere_else(bench: Bench) -> None:
    for name, text in files(parallel=bench.parallel).items():
        bench.put(name, text)
    status = bench.pytest()
    report = bench.report()
    said = [(case.nodeid, shown(case.outcome, case.failure)) for case in report.tests]
    said += [(error.nodeid, shown("error", error.failure)) for error in report.collect_errors]
    assert len(said) == len(dict(said))
    wrong = differences(dict(said), expected(bench.environment, parallel=bench.parallel))
    assert not wrong, "\n".join(wrong)
    assert (status, report.exit_status, report.complete) == (1, 1, True), bench.screen
    reruns = {case.nodeid: case.reruns for case in report.tests if case.reruns}
    assert reruns == {"tests/test_again.py::test_flaky": 1, "tests/test_again.py::test_fails": 1}


def test_the_gates_open_and_close(bench: Bench) -> None:
    bench.put("pytest.ini", "[pytest]\npythonpath = .\n")
    bench.write(
        ledger="def total(): return 1\n", test_old="import ledger\n\ndef test_old(): assert ledger.total() == 1\n"
    )
    assert bench.pytest(report="base.json") == 0, bench.screen
    new = "from ledger import net\n\ndef test_net(): assert net() == 2\n"
    bench.write(test_new=new)
    red = ("--tdd-agent-gate", "red", "--tdd-agent-baseline", "out/base.json", "--tdd-agent-target", "test_new.py")
    assert bench.pytest(*red) == 1
    assert bench.pytest(*red, "--tdd-agent-expects", "ledger.net") == 0, bench.screen
    bench.write(ledger="def total(): return 1\ndef net(): return 1\n")
    assert bench.pytest(*red, report="red.json") == 0, bench.screen
    green = ("--tdd-agent-gate", "green", "--tdd-agent-baseline", "out/red.json", "--tdd-agent-target", "test_new.py")
    assert bench.pytest(*green) == 1
    bench.write(ledger="def total(): return 1\ndef net(): return 2\n")
    assert bench.pytest(*green, report="green.json") == 0, bench.screen
    assert bench.report("green.json").gate is not None
    bench.write(test_new=new.replace("2", "3"), ledger="def total(): return 1\ndef net(): return 3\n")
    assert bench.pytest(*green) == 1
    gate = bench.report().gate
    assert gate is not None
    assert [reason.code for reason in gate.reasons] == ["protected_changed"]
