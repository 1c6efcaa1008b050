"""Everything a cycle works with, gathered once by whoever starts it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdd_agent.agent.permission import Permission
from cdd_agent.events import Emit, Notice, SuiteStarted
from cdd_agent.git.repository import Repository
from cdd_agent.git.snapshot import Snapshot, Snapshots
from cdd_agent.model.port import Model
from cdd_agent.tdd.briefing import BriefFor
from cdd_agent.tdd.policy import Policy
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.work.state import StepExecution
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import NO_MEMORY, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The commands by which a person goes on with work that was interrupted."""

    go_on: str
    anew: str
    """Takes back what is half done first."""
    unit: str
    """What work items are called: ``step`` or ``cycle``; ``run`` where there is one only."""


class Keeping(Protocol):
    """As much of a workbench as tells what is kept of a step."""

    @property
    def repository(self) -> Repository:
        """The project's work tree and history."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """What its files were."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """One project with its history, files, tests, and who answers."""

    repository: Repository
    snapshots: Snapshots
    workspace: Workspace
    suite: Suite
    model: Model
    policy: Policy
    brief: BriefFor
    """How the model is spoken to in a phase of an item."""
    reports: Path
    """Folder for the evidence of the ticket in work."""
    emit: Emit
    permission: Permission | None = None
    """Says whether a person has to be asked before a command runs; None: the sandbox alone says what happens."""
    memory: Memory = NO_MEMORY
    """Conventions of the project, with which every attempt begins."""
    ways: Ways | None = None
    """None: those of the Executor."""

    def ways_on(self, ticket: str, step: StepExecution) -> Ways:
        """How to go on with an interrupted step."""
        go_on = f"cdd exec {ticket}"
        return self.ways or Ways(go_on=go_on, anew=f"{go_on} --retry {step.step_number}", unit="step")

    def called(self, step: StepExecution) -> str:
        """What a step is called in a sentence."""
        unit = self.ways.unit if self.ways else "step"
        return "the run" if unit == "run" else f"{unit} {step.step_number}"

    def in_repository(self, path: str) -> str:
        """A path of the project as the repository names it: the project may be a folder inside the work tree."""
        inside = self.workspace.root.resolve().relative_to(self.repository.root.resolve()).as_posix()
        return path if inside == "." else f"{inside}/{path}"

    def run_suite(
        self,
        purpose: str,
        *,
        keep: Path | None = None,
        targets: tuple[str, ...] = (),
        before: Snapshot | None = None,
    ) -> SuiteRun:
        """Run tests and say so before and after; files they leave behind, or change, are put back as they were.

        Otherwise a database or a picture that a test writes would count as the agent's work, and be committed. A run
        whose report is kept is evidence: no compiled code that an earlier one may have planted takes part.
        ``before``: the files as they are, if they have just been kept.
        """
        framework = self.suite.conventions.framework
        self.emit(SuiteStarted(purpose=purpose, targets=targets, framework=framework))
        before = before or self.snapshots.take("refs/cdd/tests/before", message="before a test run")
        suite = self.suite if keep is None else self.suite.anew()
        run = suite.run(targets, keep=keep)
        for notice in run.notices:
            self.emit(Notice(text=notice))
        if self.snapshots.changes_since(before):
            self.snapshots.take("refs/cdd/tests/after", message="what a test run left behind")
            self.snapshots.restore(before)
        self.emit(run.finished(purpose, framework=framework))
        return run

    def run_targets(
        self, purpose: str, *, targets: tuple[str, ...], keep: Path | None = None, before: Snapshot | None = None
    ) -> SuiteRun:
        """Run the tests that ``targets`` name; their whole files if pytest cannot find a test in one of them.

        A file that cannot be imported has no tests for pytest, and only a run of the file says why.
        """
        run = self.run_suite(purpose, targets=targets, keep=keep, before=before)
        files = tuple(dict.fromkeys(target.partition("::")[0] for target in targets))
        if run.was_refused and files != targets:
            return self.run_suite(purpose, targets=files, keep=keep, before=before)
        return run
