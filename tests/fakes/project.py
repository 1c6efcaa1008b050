"""A small real project: its files, its git history, its test runs, and a context on it for any model.

Its tests run in this process (``FakeSuite``) unless it ``runs_pytest``.
"""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from cdd_agent.events import Event
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.ignored import list_packages
from cdd_agent.git.landing import Landings
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import GitExport, RunTrees
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Model, Turn
from cdd_agent.runs.plan_steps import make_brief
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Sandbox
from cdd_agent.storage import private_folder
from cdd_agent.tdd.context import Context, Kind, Policy, ResumeCommands, WorkItem, phases_of
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.workplace import Workplace
from cdd_agent.testrun.access import SHOWN_PRIVATE, Original
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from cdd_agent.work import state as states
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepExecution, StepKey
from cdd_agent.workspace.files import Workspace
from tests.fakes.forked import ForkedSandbox, start_server
from tests.fakes.model import call, says
from tests.fakes.suite import FakeSuite

QUICK = """\
[pytest]
pythonpath = .
addopts = -p no:xdist -p no:xdist.looponfail -p no:hypothesispytest -p no:anyio -p no:cacheprovider
"""
"""Leaves out of the project's runs what only this test suite needs: each is four times as quick."""

FILES = {
    "pytest.ini": QUICK,
    ".gitignore": "__pycache__/\n*.log\n",
    "prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_prices.py": "from prices import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}

TEST_FILE = "tests/test_discount.py"
TEST = "from discount import discount\n\n\ndef test_discount():\n    assert discount(100) == 90\n"
CODE = "def discount(price):\n    return price - 10\n"
TIDY = "def discount(price):\n    return price * 9 // 10\n"


def item(
    kind: Kind = "feature", *, number: int = 1, tests: tuple[str, ...] = (TEST_FILE,), refactor: bool = True
) -> WorkItem:
    """The work that the turns below carry out."""
    return WorkItem(
        ticket="sale",
        number=number,
        title="Ten percent off",
        goal="A discount.",
        kind=kind,
        phases=phases_of(kind, refactor=refactor),
        tests=tests,
        sources=("discount.py",),
        named=("discount.py", "rates.py", "tax.py", *(test.partition("::")[0] for test in tests)),
    )


def writes(path: str, content: str) -> Turn:
    """A turn that writes one file and hands it in."""
    return says(call("Write", file_path=path, content=content), call("CompleteImplementation", implementation_files=[]))


def runs(command: str) -> Turn:
    """A turn that runs one shell command and hands in."""
    return says(call("Bash", command=command), call("CompleteImplementation", implementation_files=[]))


def red() -> Turn:
    """The failing test."""
    return writes(TEST_FILE, TEST)


def green() -> Turn:
    """The code that passes it."""
    return writes("discount.py", CODE)


def content_as_it_is() -> Turn:
    """No change."""
    return says(call("CompleteImplementation", implementation_files=[]))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@cache
def _committed(files: tuple[tuple[str, str], ...]) -> Path:
    """Commit the files once in this process; a copy of them takes no git process."""
    base = Path(tempfile.mkdtemp(prefix="cdd-project-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    folder = base / "project"
    _write(folder, dict(files))
    repository = Repository.create(folder)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    commit_paths(repository, "first", paths=dict(files))
    return folder


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with one commit, and what happened on its benches."""

    folder: Path
    repository: Repository
    interpreter: Interpreter
    bytecode: Path
    runs_pytest: bool = False
    """Whether its tests run in a child process, which is forked from one that has imported pytest."""
    fake: FakeSuite
    """Its tests as they run otherwise; script its ``answers``, read what was ``asked`` of it."""
    seen: list[Event] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        interpreter: Interpreter,
        bytecode: Path,
        files: Mapping[str, str] = FILES,
        runs_pytest: bool = False,
    ) -> "Project":
        """Create a repository in ``folder`` whose only commit holds the files."""
        shutil.copytree(_committed(tuple(files.items())), folder, symlinks=True)
        repository = Repository(folder)
        repository.may_run_hooks = lambda: True
        repository.git("update-index", ("-q", "--refresh"))  # the index knows the files by their inodes
        return cls(
            folder=folder,
            repository=repository,
            interpreter=interpreter,
            bytecode=bytecode,
            runs_pytest=runs_pytest,
            fake=FakeSuite(root=folder, interpreter=interpreter),
        )

    def copy(self, folder: Path) -> "Project":
        """Copy the project with its history, its runs and what was seen of them."""
        shutil.copytree(self.folder, folder, symlinks=True)
        made = replace(self.moved(folder), repository=Repository(folder), seen=list(self.seen))
        made.repository.may_run_hooks = self.repository.may_run_hooks
        return made

    def moved(self, folder: Path) -> "Project":
        """Return the same repository and events, with its files and tests in another folder."""
        return replace(self, folder=folder, fake=replace(self.fake, root=folder))

    def write(self, files: Mapping[str, str]) -> None:
        """Put files into the work tree."""
        _write(self.folder, files)

    @property
    def suite(self) -> Suite:
        """The project's tests."""
        if not self.runs_pytest:
            return self.fake
        return PytestSuite(
            root=self.folder,
            interpreter=self.interpreter,
            sandbox=ForkedSandbox(start_server(self.interpreter.path)),
            timeout_s=60,
            bytecode=self.bytecode,
        )

    def context(
        self,
        model: Model,
        *,
        max_attempts: int = 3,
        left_out: tuple[str, ...] = (),
        edit_format: Literal["tools", "blocks"] = "tools",
    ) -> Context:
        """Real files and git, the project's ``suite``, and ``model`` to answer."""
        private = private_folder(self.folder)
        workplace = Workplace(
            user=self.repository,
            run_tree=RunTrees(self.repository, private / "worktrees").tree("sale"),
            landings=Landings(self.repository, find_records(self.folder).landing, files=private / "landing"),
            export=None,
            shown_git=private,
            emit=self.seen.append,
            left_out=tuple(f"{folder}/" for folder in left_out),
        )
        inside = self.folder.relative_to(self.repository.root)
        suite = self.suite.in_run_tree(workplace.tree.root / inside, original=Original(root=self.folder))
        return Context(
            repository=self.repository,
            workplace=workplace,
            snapshots=TreeStore(workplace.tree, left_out=left_out),
            workspace=Workspace(suite.root, shown_at=self.folder),
            suite=suite,
            model=model,
            policy=Policy(
                max_attempts=max_attempts, budget=Budget(max_turns=4), evidence_timeout_s=0, edit_format=edit_format
            ),
            brief=lambda item, phase, context: make_brief(item, phase),
            source="exec",
            commands=ResumeCommands(resume="cdd exec sale", restart="cdd exec sale --retry {step}", unit="step"),
            project=self.folder,
            records=find_records(self.folder),
            reports=find_records(self.folder).folder / "reports" / "sale",
            emit=self.seen.append,
        )

    def confine(self, context: Context, sandbox: Sandbox) -> Context:
        """Return the context with its tests in the sandbox, where they see the run tree as a real run shows it."""
        suite, workplace = context.suite.with_sandbox(sandbox), context.workplace
        if sandbox.level in ISOLATING_LEVELS:
            export = GitExport(folder=private_folder(self.folder) / "git" / "sale")
            workplace = replace(workplace, export=export, shown_git=SHOWN_PRIVATE / "git" / "sale", can_mount=True)
            packages = list_packages(self.repository)
            suite = suite.in_run_tree(
                suite.root, original=Original(root=self.folder, git=export.folder, folders=packages)
            )
        return replace(context, suite=suite, workplace=workplace)

    def start(self, number: int = 1) -> RunState:
        """A run whose only step has just been started."""
        key = StepKey(number=number, title="Ten percent off", text_sha256="0")
        state = RunState(
            ticket_slug="sale",
            started_at="2026-01-31T12:00:00Z",
            branch=self.repository.read_branch(),
            step_executions=states.pending_steps([key]),
        )
        return states.start_step(state, key, now=state.started_at, base_commit=self.repository.read_head())

    def run(
        self,
        work: WorkItem,
        *,
        context: Context,
        state: RunState | None = None,
        save: Callable[[RunState], None] = lambda _: None,
    ) -> tuple[StepExecution, str | None]:
        """One cycle, begun here unless ``state`` says otherwise: the step after it, and why it failed."""
        ending = Cycle(work, state or self.start(work.number), context=context, save=save).run()
        return ending.state.execution(work.number), ending.why

    @property
    def log(self) -> list[str]:
        """The subjects of the commits after the first, oldest first."""
        return self.git("log", "--reverse", "--format=%s").splitlines()[1:]

    @property
    def status(self) -> str:
        """What git says is not committed."""
        return self.git("status", "--porcelain")

    def git(self, *arguments: str) -> str:
        """What git prints in the project, asked as a user would."""
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.rstrip("\n")

    def happened(self, kind: type[Event]) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.seen if isinstance(event, kind)]
