"""Test runs in clean copies of commits: one for each tree, however many claims rest on it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.ignored import lend
from cdd_agent.evidence.trees import entries, layout_of
from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository
from cdd_agent.guarded.protected import is_environment
from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.testrun.run import PytestSuite
from cdd_agent.testrun.suite import Suite
from cdd_agent.workflows.audit.span import Commit
from pytest_tdd_agent.report import SuiteReport

_SHORT = 8
_TIME_OUT = "did not end within"
"""In what a suite says of a run that took too long, which may be this machine's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the tests of one tree say."""

    report: SuiteReport | None
    problem: str
    """Why there is no report; empty if there is one."""
    has_timed_out: bool
    digests: Mapping[str, str]
    """Test file, or part of a file that configures the tests -> what tells its content, before anything was run."""


@dataclass(kw_only=True)
class Reruns:
    """Runs the tests of commits outside the project; nothing of the user's repository or work tree is changed."""

    repository: Repository
    suite: Suite
    emit: Emit
    without: "Reruns | None" = None
    """The runs without what git ignores in the project, if these are given it; None: they are not."""
    has_lent: bool = False
    """Whether there was any such file."""
    has_tried: bool = False
    """Whether any run was to be made."""
    has_run: bool = False
    """Whether any has come to a report."""
    _known: dict[str, Evidence] = field(default_factory=dict)
    """Tree -> what its tests say."""

    def of(self, commit: Commit, *, called: str) -> Evidence:
        """What the tests of this commit say; ``called`` names it to whoever waits for that."""
        if commit.tree not in self._known:
            self.has_tried = True
            self._known[commit.tree] = self._evidence(commit, called=called)
        return self._known[commit.tree]

    def lending(self) -> "Reruns":
        """The same with what git ignores in the copies."""
        return Reruns(repository=self.repository, suite=self.suite, emit=self.emit, without=self)

    def _evidence(self, commit: Commit, *, called: str) -> Evidence:
        """One run of all tests, or why there is none."""
        try:
            return self._run(commit, called=called)
        except (GitError, OSError) as error:
            why = error.happened if isinstance(error, GitError) else str(error)
            told = why.strip().partition("\n")[0].rstrip(".")
            problem = f"no clean copy of {commit.id[:_SHORT]} could be made: {told}"
            return Evidence(report=None, problem=problem, has_timed_out=False, digests={})

    def _run(self, commit: Commit, *, called: str) -> Evidence:
        purpose = f"{called}, {commit.id[:_SHORT]} in a clean copy"
        with clean_copy(self.repository, self.suite, green=commit.id, red=commit.id) as copy:
            if self.without is not None:
                if not lend(self.repository, self.suite.root.resolve(), copy=copy.root):
                    return self.without.of(commit, called=called)
                self.has_lent = True
                purpose += ", with what git ignores"
            found = self._digests(commit, copy=copy)
            self.emit(SuiteStarted(purpose=purpose, targets=()))
            run = _on_its_own(copy, original=self.suite).run()
        self.emit(run.finished(purpose))
        self.has_run = self.has_run or run.report is not None
        return Evidence(
            report=run.report,
            problem=run.problem or "",
            has_timed_out=_TIME_OUT in (run.problem or ""),
            digests=found,
        )

    def _digests(self, commit: Commit, *, copy: Suite) -> dict[str, str]:
        """What the tests of a commit are, as git has them."""
        layout = layout_of(self.repository, self.suite)
        held = entries(self.repository, commit.id)
        tests = {layout.name(path): " ".join(held[path]) for path in held if layout.is_test(path)}
        return {**tests, **layout.conventions.parts(copy.root)}


def _on_its_own(copy: Suite, *, original: Suite) -> Suite:
    """``copy`` with its own sources where what is installed, or PYTHONPATH, leads to those of ``original``.

    An editable install names the folder of the project, whatever the copy holds: the tests of an old commit would
    judge the product of today.
    """
    if not (isinstance(copy, PytestSuite) and isinstance(original, PytestSuite)):
        return copy
    root = original.root.resolve()
    named = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    sources = [path for path in (*named, *original.interpreter.reads) if _is_source(path.resolve(), root)]
    if not sources:
        return copy
    places = [copy.root / path.resolve().relative_to(root) for path in sources]
    with_src = [folder for place in places for folder in (place / "src", place) if folder.is_dir()]
    return copy.shut_in(_Ahead(copy.sandbox, tuple(dict.fromkeys(with_src))))


def _is_source(path: Path, root: Path) -> bool:
    """Whether a folder is the project's, and no environment in it."""
    if not path.is_relative_to(root):
        return False
    inside = path.relative_to(root).parts
    folders = (root.joinpath(*inside[:end]) for end in range(1, len(inside) + 1))
    return not (any(part.endswith("-packages") for part in inside) or any(map(is_environment, folders)))


class _Ahead:
    """A sandbox in which Python looks into some folders first."""

    def __init__(self, sandbox: Sandbox, folders: tuple[Path, ...]) -> None:
        self.level = sandbox.level
        self._sandbox = sandbox
        self._folders = folders

    def run(self, command: Command) -> Result:
        """Run the program with these folders before all others on Python's path."""
        entries = [str(folder) for folder in self._folders]
        entries += filter(None, [command.variables.get("PYTHONPATH", "")])
        path = os.pathsep.join(entries)
        return self._sandbox.run(replace(command, variables={**command.variables, "PYTHONPATH": path}))
