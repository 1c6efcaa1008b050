"""Landing an open attempt: the commit that the program makes, its trailers, and the note with the evidence."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import msgspec

from cdd_agent.events import Committed
from cdd_agent.git import commits
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem, commit_prefix
from cdd_agent.tdd.verdict import RedVerdict
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
from cdd_agent.work.state import AttemptRecord, StepExecution

MAX_SUBJECT = 72


def handoff_id(ticket: str, number: int, *, phase: Phase, base: str | None) -> str:
    """The same for every try to land the same phase of a step from the same commit, so that landing twice is seen."""
    return hashlib.sha256(f"{ticket}/{number}/{phase}/{base}".encode()).hexdigest()[:16]


def land(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, paths: tuple[str, ...], context: Context
) -> CommitId:
    """Commit ``paths`` with the attempt's trailers and put the handoff note on the commit.

    A phase that changed nothing makes an empty commit where the policy wants one for each; else it hands the step's
    last commit over once more. Does nothing twice: after a crash in the middle, the commit and the note that are there
    are taken as they are. A commit of just these changes that the agent made itself is adopted: it gets the note.
    Raises ``GateClosed`` if the user's hooks refuse the commit.
    """
    if paths or context.policy.commits_nothing:
        commit = _committed(item, attempt.phase, step=step, paths=paths, context=context)
        hand_over(item, attempt, step=step, commit=commit, context=context)
        subject = context.repository.git("log", "-1", "--format=%s", commit).strip()
        context.emit(Committed(phase=attempt.phase, commit=commit, subject=subject))
    else:
        commit = CommitId(list(step.commits.values())[-1])
        hand_over(item, attempt, step=step, commit=commit, context=context)
    return commit


def _committed(
    item: WorkItem, phase: Phase, *, step: StepExecution, paths: tuple[str, ...], context: Context
) -> CommitId:
    """The commit of ``paths``, made now unless a run before this one has made it."""
    base = CommitId(step.base_commit) if step.base_commit else None
    identity = handoff_id(item.ticket, item.number, phase=phase, base=base)
    commit = commits.find_by_trailer(context.repository, "Handoff-Id", value=identity, since=base)
    if commit is None:
        message = _message(item, phase, is_empty=not paths, identity=identity)
        return commits.commit_paths(context.repository, message, paths=paths, allow_empty=not paths)
    commits.refresh_index(context.repository, paths)
    return commit


def hand_over(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, commit: CommitId, context: Context
) -> None:
    """Put the note of a phase on ``commit``."""
    identity = handoff_id(item.ticket, item.number, phase=attempt.phase, base=step.base_commit)
    handoff = _handoff(item, attempt, step=step, commit=commit, identity=identity, context=context)
    append_line(context.repository, commit, line=encode(handoff))


def _subject(item: WorkItem, phase: Phase, *, is_empty: bool) -> str:
    """The first line of the commit message, cut to what git's own tools show."""
    said = "no changes needed" if is_empty and phase == "refactor" else item.title
    subject = f"{commit_prefix(phase, item.kind)}: {said}"
    return subject if len(subject) <= MAX_SUBJECT else subject[: MAX_SUBJECT - 1].rstrip() + "…"


def _message(item: WorkItem, phase: Phase, *, is_empty: bool, identity: str) -> str:
    """The whole commit message."""
    trailers = {"Ticket": item.ticket, "Phase": phase_name(phase), "Cycle": str(item.number), "Handoff-Id": identity}
    body = f"{item.told.strip()}\n\n" if phase == "plan" and item.told.strip() else ""
    return f"{_subject(item, phase, is_empty=is_empty)}\n\n{body}" + "".join(
        f"{key}: {value}\n" for key, value in trailers.items()
    )


def _handoff(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, commit: CommitId, identity: str, context: Context
) -> Handoff:
    """What is handed over and on what evidence."""
    report = context.repository.root / attempt.report if attempt.report else None
    is_covered = attempt.finding == RedVerdict.ALREADY_GREEN
    has_failed = attempt.verdict == "closed" and not is_covered
    is_open = attempt.phase in ("plan", "red") and not is_covered
    progress = item.progress or Progress(completed=() if is_open else item.tests, pending=item.tests if is_open else ())
    phase = phase_name(attempt.phase)
    next_phase = _following(item, attempt, following=msgspec.convert(progress.following, type=NextPhase))
    if item.progress and attempt.phase != "plan" and next_phase == progress.following:
        progress = _with_this_one(progress, item.title)
    return Handoff(
        seq=sequence(phase, cycle=item.number),
        id=identity,
        ticket=item.ticket,
        phase=phase,
        next_phase=next_phase,
        cycle_number=item.number,
        current_test=CurrentTest(
            description=item.title,
            test_file=item.tests[0].partition("::")[0] if item.tests else "",
            impl_file=item.sources[0] if item.sources else "",
        ),
        completed_tests=progress.completed,
        pending_tests=progress.pending,
        test_result=None if has_failed or attempt.phase == "plan" else "FAIL" if is_open else "PASS",
        error=attempt.reasons[0] if has_failed else None,
        error_details=_details(attempt) if has_failed else None,
        retry_count=attempt.number - 1,
        commit=commit,
        checkpoint=step.checkpoint,
        gate=GateSummary(
            phase=attempt.phase,
            open=attempt.verdict == "open",
            reasons=attempt.reasons,
            report_sha256=_digest(report),
        ),
    )


def _with_this_one(progress: Progress, title: str) -> Progress:
    """``progress`` once the item of this title is done."""
    pending = tuple(each for each in progress.pending if each != title)
    return replace(progress, completed=(*progress.completed, title), pending=pending)


def _following(item: WorkItem, attempt: AttemptRecord, *, following: NextPhase) -> NextPhase:
    """The phase that comes next: the same once more if it failed, unless the item does without it."""
    if attempt.finding == RedVerdict.ALREADY_GREEN:
        return following
    if attempt.verdict == "closed" and attempt.phase != "refactor":
        return phase_name(attempt.phase)
    after = item.phases[item.phases.index(attempt.phase) + 1 :]
    return phase_name(after[0]) if after else following


def _details(attempt: AttemptRecord) -> ErrorDetails:
    """Of a failed phase: what kind of failure, and all that the gate says of it."""
    kind = attempt.finding or attempt.reasons[0].partition(":")[0]
    return ErrorDetails(type=kind, message="\n".join(attempt.reasons))


def _digest(report: Path | None) -> str | None:
    """sha256 of the report's bytes."""
    return hashlib.sha256(report.read_bytes()).hexdigest() if report is not None and report.exists() else None


def has_hooks(repository: Repository) -> bool:
    """Whether hooks take part in commits and can refuse them, so that a refusal is their judgment of the content."""
    if not repository.may_run_hooks():
        return False
    folder = repository.root / repository.git("rev-parse", "--git-path", "hooks", hooks=True).strip()
    return any(os.access(folder / name, os.X_OK) for name in ("pre-commit", "prepare-commit-msg", "commit-msg"))
