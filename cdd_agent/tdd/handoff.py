"""Land an open attempt: make the commit with its trailers, and attach the note with the evidence."""

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Committed, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git import commits
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem, commit_prefix
from cdd_agent.tdd.verdict import RedVerdict, is_or_contains
from cdd_agent.work.handoff import (
    CurrentTest,
    ErrorDetails,
    GateSummary,
    Handoff,
    NextPhase,
    encode,
    phase_name,
    sequence,
)
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution
from pytest_tdd_agent.report import list_failing

MAX_SUBJECT = 72
"""Characters that git's own tools show of a subject."""


def make_handoff_id(ticket: str, number: int, *, phase: Phase, base: str | None) -> str:
    """Return the id of a landing; a second try to land the phase from the same commit gets the same id."""
    return hashlib.sha256(f"{ticket}/{number}/{phase}/{base}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The landing of one attempt: its commit and its handoff note."""

    item: WorkItem
    attempt: AttemptRecord
    step: StepExecution
    context: Context

    @property
    def _id(self) -> str:
        return make_handoff_id(self.item.ticket, self.item.number, phase=self.attempt.phase, base=self.step.base_commit)

    def find(self) -> CommitId | None:
        """Return the commit of a landing that was interrupted after the commit was on the user's branch."""
        base = CommitId(self.step.base_commit) if self.step.base_commit else None
        return commits.find_by_trailer(self.context.repository, "Handoff-Id", value=self._id, since=base)

    def make(self, paths: tuple[str, ...]) -> CommitId:
        """Commit ``paths`` where the cycle works; raises ``GateClosed`` if a hook of the user refuses the commit."""
        message = self._format_message(is_empty=not paths)
        return commits.commit_paths(self.context.workplace.tree, message, paths=paths, allow_empty=not paths)

    def report(self, commit: CommitId) -> None:
        """Put the handoff note on ``commit``, which has landed, and emit the event."""
        self.write_note(commit)
        subject = self.context.repository.git("log", "-1", "--format=%s", commit).strip()
        self.context.emit(Committed(phase=self.attempt.phase, commit=commit, subject=subject))

    def write_note(self, commit: CommitId) -> None:
        """Append the handoff to the note of ``commit``."""
        append_line(self.context.repository, commit, line=encode(self._make_handoff(commit)))

    def _format_message(self, *, is_empty: bool) -> str:
        item, phase = self.item, self.attempt.phase
        title = "no changes needed" if is_empty and phase == "refactor" else item.title
        subject = f"{commit_prefix(phase, item.kind)}: {title}"
        if len(subject) > MAX_SUBJECT:
            subject = subject[: MAX_SUBJECT - 1].rstrip() + "…"
        body = f"{item.plan_body.strip()}\n\n" if phase == "plan" and item.plan_body.strip() else ""
        return (
            f"{subject}\n\n{body}Ticket: {item.ticket}\nPhase: {phase_name(phase)}\nCycle: {item.number}\n"
            f"Handoff-Id: {self._id}\n"
        )

    def _make_handoff(self, commit: CommitId) -> Handoff:
        item, attempt = self.item, self.attempt
        is_covered = attempt.finding == RedVerdict.ALREADY_GREEN
        has_failed = attempt.verdict == "closed" and not is_covered
        is_before_green = attempt.phase in ("plan", "red") and not is_covered
        progress = item.progress or Progress(
            completed=() if is_before_green else item.tests, pending=item.tests if is_before_green else ()
        )
        next_phase = self._choose_next_phase(msgspec.convert(progress.following, type=NextPhase))
        if item.progress and attempt.phase != "plan" and next_phase == progress.following:
            pending = tuple(title for title in progress.pending if title != item.title)
            progress = replace(progress, completed=(*progress.completed, item.title), pending=pending)
        kind = attempt.finding or attempt.reasons[0].partition(":")[0] if has_failed else ""
        report = self.context.repository.root / attempt.report if attempt.report else None
        has_report = report is not None and report.exists()
        return Handoff(
            seq=sequence(phase_name(attempt.phase), cycle=item.number),
            id=self._id,
            ticket=item.ticket,
            phase=phase_name(attempt.phase),
            next_phase=next_phase,
            cycle_number=item.number,
            current_test=CurrentTest(
                description=item.title,
                test_file=item.tests[0].partition("::")[0] if item.tests else "",
                impl_file=item.sources[0] if item.sources else "",
            ),
            completed_tests=progress.completed,
            pending_tests=progress.pending,
            test_result=None if has_failed or attempt.phase == "plan" else "FAIL" if is_before_green else "PASS",
            error=attempt.reasons[0] if has_failed else None,
            error_details=ErrorDetails(type=kind, message="\n".join(attempt.reasons)) if has_failed else None,
            retry_count=attempt.number - 1,
            commit=commit,
            checkpoint=self.step.checkpoint,
            gate=GateSummary(
                phase=attempt.phase,
                open=attempt.verdict == "open",
                reasons=attempt.reasons,
                report_sha256=hashlib.sha256(report.read_bytes()).hexdigest() if report and has_report else None,
            ),
        )

    def _choose_next_phase(self, following: NextPhase) -> NextPhase:
        """Return the phase after this one; a failed phase is repeated, except REFACTOR, which is optional."""
        item, attempt = self.item, self.attempt
        if attempt.finding == RedVerdict.ALREADY_GREEN:
            return following
        if attempt.verdict == "closed" and attempt.phase != "refactor":
            return phase_name(attempt.phase)
        after = item.phases[item.phases.index(attempt.phase) + 1 :]
        return phase_name(after[0]) if after else following


def has_hooks(repository: Repository) -> bool:
    """Return whether git hooks can refuse a commit."""
    if not repository.may_run_hooks():
        return False
    folder = repository.root / repository.git("rev-parse", "--git-path", "hooks", hooks=True).strip()
    return any(os.access(folder / name, os.X_OK) for name in ("pre-commit", "prepare-commit-msg", "commit-msg"))


def require_branch(state: RunState, *, context: Context) -> None:
    """Raise ``UsageError`` if the user works on another branch than when the run began."""
    branch = context.repository.read_branch()
    if not context.workplace.is_shared and state.branch is not None and branch != state.branch:
        raise UsageError(
            f"HEAD is on {branch or 'no branch'}, but the run began on {state.branch}. Nothing was changed.",
            hint=f"git switch {state.branch}, then run the same command again: cdd continues with this commit",
        )


def find_broken_tests(commit: CommitId, *, fixed: Collection[str] = (), context: Context) -> tuple[str, ...]:
    """Return the tests that pass on the parent of ``commit`` and not on ``commit``, each run in a clean copy.

    The tests that the attempt ``fixed`` must pass on ``commit`` too, unless they are only in uncommitted files.
    """
    repository = context.workplace.tree
    passing: list[set[str]] = []
    failing: tuple[str, ...] = ()
    parent = repository.git("rev-parse", "--verify", f"{resolve_revision(repository, commit)}^").strip()
    for name, tree in (("your branch", parent), ("the commit on your branch", commit)):
        with clean_copy(repository, context.suite, green=tree, red=tree) as copy:
            framework = copy.conventions.framework
            context.emit(SuiteStarted(purpose=f"all tests of {name}", targets=(), framework=framework))
            run = copy.run()
            context.emit(run.as_event(f"all tests of {name}", framework=framework))
        if run.report is None:
            raise EnvironmentMissing(
                f"The tests cannot be run on {name}: {run.problem}.", hint="make them pass there, then try again"
            )
        passing.append({case.nodeid for case in run.report.tests if case.outcome == "passed"})
        failing = list_failing(run.report)  # at the end those of the commit
    # A file that cannot be collected contains the tests in it.
    missed = {test for test in fixed if any(is_or_contains(each, test) for each in failing)}
    return tuple(sorted((passing[0] - passing[1]) | missed))
