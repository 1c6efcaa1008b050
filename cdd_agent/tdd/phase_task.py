"""The task of one attempt: a phase of a work item, and the files, history and results with which it begins."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cdd_agent.agent import tools
from cdd_agent.evidence.clean_copy import find_layout
from cdd_agent.git.commits import list_programs_of_git
from cdd_agent.git.repository import EXECUTABLE
from cdd_agent.tdd import verdict
from cdd_agent.tdd.baseline import Baseline
from cdd_agent.tdd.context import Context, Phase, WorkItem
from cdd_agent.tdd.examination import Examination
from cdd_agent.tdd.kinds import FileKinds
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.untrusted.known_values import KnownValues
from cdd_agent.work.outcome import Covered
from cdd_agent.work.state import AttemptRecord, Cause, StepExecution


def list_attempts(phase: Phase, step: StepExecution) -> tuple[AttemptRecord, ...]:
    """Return the attempts at one phase so far."""
    return tuple(attempt for attempt in step.attempts if attempt.phase == phase)


def has_given_up(attempt: AttemptRecord) -> bool:
    """Return whether the agent reported that it cannot continue."""
    return any(has_code(attempt, code) for code in tools.BLOCKED_CODES)


def has_code(attempt: AttemptRecord, code: str) -> bool:
    """Return whether the first reason against an attempt has this code."""
    return attempt.reasons[:1] != () and attempt.reasons[0].code == code


def has_cause(attempt: AttemptRecord, cause: Cause) -> bool:
    """Return whether this is the diagnosis of an attempt."""
    return attempt.diagnosis is not None and attempt.diagnosis.kind == cause


EXAMPLE_CODES = ("example_failed", "example_regressed")
"""The codes of an attempt that an example of the Examiner refutes."""


def is_refuted(attempt: AttemptRecord) -> bool:
    """Return whether an example of the Examiner refutes the attempt."""
    return any(has_code(attempt, code) for code in EXAMPLE_CODES)


def needs_no_test(attempt: AttemptRecord, step: StepExecution) -> bool:
    """Return whether an iteration asks for no new behavior: its RED ended without a failing test."""
    is_without = isinstance(attempt.outcome, Covered) or has_code(attempt, "no_change")
    return step.iterates and attempt.phase == "red" and is_without


@dataclass(frozen=True, kw_only=True)
class PhaseTask:
    """The task of an attempt: its item, its phase and its start."""

    item: WorkItem
    phase: Phase
    step: StepExecution
    baseline: Baseline
    context: Context

    @property
    def earlier(self) -> tuple[AttemptRecord, ...]:
        """The attempts at the phase so far."""
        return list_attempts(self.phase, self.step)

    @property
    def number(self) -> int:
        """The number of the attempt."""
        return len(self.earlier) + 1

    @cached_property
    def recovery(self) -> StepRecovery:
        """The snapshots and reports of the step."""
        return StepRecovery(self.item.ticket, self.step, context=self.context)

    @property
    def report_path(self) -> Path:
        """The path of the report by which the attempt is judged."""
        return self.recovery.report_path(self.recovery.name_attempt(self.phase, self.number))

    @property
    def examination(self) -> Examination:
        """The further examples for GREEN."""
        return Examination(item=self.item, context=self.context, path=self.recovery.examples_path)

    def make_locks(self) -> PhaseLocks:
        """Return the locks of the phase."""
        context = self.context
        return PhaseLocks(
            phase=self.phase,
            tests=tuple(map(context.to_repository_path, verdict.list_test_files(self.item))),
            listed=tuple(map(context.to_repository_path, self.item.sources)),
            layout=find_layout(context.workplace.tree, context.suite),
            kinds=self.kinds,
            only=tuple(map(context.to_repository_path, self.item.named)) if context.policy.named_only else None,
        )

    @cached_property
    def kinds(self) -> FileKinds | None:
        """The kinds of files that may land without a question; None in PLAN, which may only write its list."""
        context, item = self.context, self.item
        if self.phase == "plan":
            return None
        objects, layout = context.workplace.tree.objects, find_layout(context.workplace.tree, context.suite)
        # Imports of the model's own tests count only where no plan names the files of a step.
        start = context.snapshots.find(self.step.checkpoint) if item.named else None
        users = objects.list_files((start or self.baseline.snapshot).commit)
        tracked = objects.list_files(self.baseline.tip)
        return FileKinds(
            tracked=tracked,
            programs=[path for path, entry in tracked.items() if entry.mode == EXECUTABLE],
            is_of_git=list_programs_of_git(context.workplace.tree).names,
            named=frozenset(context.to_repository_path(os.path.normpath(path)) for path in item.named),
            allowed=context.allowed,
            layout=layout,
            users={path: entry.id for path, entry in users.items() if entry.mode.startswith("100")},
            read=lambda found: objects.require(found).text,
            allow=context.restart_command(self.step) if item.named else context.commands.resume,
        )

    @cached_property
    def known(self) -> KnownValues:
        """The values that ignored files had when they were first needed."""
        return self.context.workplace.read_values()
