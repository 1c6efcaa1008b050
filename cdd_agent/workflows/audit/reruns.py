"""Test runs in clean copies of commits: one for each tree, however many claims rest on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.ignored import lend
from cdd_agent.evidence.trees import entries, layout_of
from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.suite import Suite
from cdd_agent.workflows.audit.redirection import seeing_itself
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
            framework = self.suite.conventions.framework
            self.emit(SuiteStarted(purpose=purpose, targets=(), framework=framework))
            parts = Path(layout_of(self.repository, self.suite).project).parts
            copied = copy.root.parents[len(parts) - 1] if parts else copy.root
            with seeing_itself(copy, top=self.repository.root, copied=copied) as itself:
                run = itself.run()
        self.emit(run.finished(purpose, framework=framework))
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
