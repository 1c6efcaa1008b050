"""Small projects that have gone through RED and GREEN, ready to be confirmed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.events import Event
from cdd_agent.evidence import clean_copy
from cdd_agent.evidence.clean_copy import CheckRequest
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from pytest_tdd_agent.report import Case, SuiteReport
from tests.cdd_agent.evidence.requests import EMPTY
from tests.fakes.forked import ForkedSandbox, start_server
from tests.fakes.project import QUICK
from tests.fakes.suite import FakeSuite

OLD_TEST = "tests/test_old.py::test_old"
FILES = {
    "pytest.ini": QUICK,
    ".gitignore": "__pycache__/\n*.secret\n",
    "old.py": "def double(number):\n    return number * 2\n",
    "tests/test_old.py": "from old import double\n\n\ndef test_old():\n    assert double(4) == 8\n",
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a project: RED is committed, GREEN is in the work tree and kept as a snapshot."""

    repository: Repository
    suite: Suite
    red: str
    green: str

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        interpreter: Interpreter,
        bytecode: Path,
        red: Mapping[str, str],
        green: Mapping[str, str],
        inside: str = "",
        runs_pytest: bool = False,
    ) -> "Step":
        """``red`` and ``green`` are what the phases write; ``inside`` is the project's folder in the work tree."""
        root = folder / inside
        root.mkdir(parents=True)
        repository = Repository.create(folder)
        repository.git("config", "user.name", "Ada")
        repository.git("config", "user.email", "ada@example.org")
        for files in ({**FILES, **red}, green):
            for name, content in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            if files is not green:
                commit_paths(repository, "RED", paths=[(Path(inside) / name).as_posix() for name in files])
        suite: Suite = FakeSuite(root=root, interpreter=interpreter)
        if runs_pytest:
            sandbox = ForkedSandbox(start_server(interpreter.path))
            suite = PytestSuite(root=root, interpreter=interpreter, sandbox=sandbox, timeout_s=60, bytecode=bytecode)
        kept = TreeStore(repository).take("refs/cdd/green", message="GREEN")
        return cls(repository=repository, suite=suite, red=str(repository.read_head()), green=kept.commit)

    def runs(self, seen: list[Event] | None = None, *, limit_s: float = 60) -> TimedRuns:
        """Runs of copies of the project, with their events in ``seen``."""
        events = list[Event]() if seen is None else seen
        return TimedRuns(repository=self.repository, suite=self.suite, limit_s=limit_s, emit=events.append)

    def request(self, *targets: str, stated: str = "", passed: tuple[str, ...] = (OLD_TEST,)) -> CheckRequest:
        """What is asked about the step; ``passed``: the tests that passed in the baseline."""
        layout = clean_copy.find_layout(self.repository, self.suite)
        project = layout.project
        files = {target.partition("::")[0] for target in targets}
        return CheckRequest(
            targets=targets,
            changes=clean_copy.list_product_changes(
                self.repository, layout=layout, red=self.red, green=self.green, tests=files
            ),
            tests=clean_copy.read_sources(self.repository, project=project, tree=self.red, paths=targets),
            stated=stated,
            red=self.red,
            green=self.green,
            baseline=report_of(passed),
            elsewhere=lambda: clean_copy.read_product_sources(self.repository, project=project, tree=self.red),
        )


def report_of(passed: tuple[str, ...], *, failed: tuple[str, ...] = ()) -> SuiteReport:
    """A report of tests with these outcomes."""
    outcomes = dict.fromkeys(passed, "passed") | dict.fromkeys(failed, "failed")
    cases = (
        Case(nodeid=nodeid, outcome=outcome, file=nodeid.partition("::")[0], line=1, duration_s=0.0)
        for nodeid, outcome in outcomes.items()
    )
    return replace(EMPTY, tests=tuple(cases))
