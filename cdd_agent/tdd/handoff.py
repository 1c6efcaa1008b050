"""Landing an open attempt: the commit that the program makes, its trailers, and the note with the evidence."""

import hashlib
import json
import os
from pathlib import Path

from cdd_agent.events import Committed
from cdd_agent.git import commits, notes
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.tdd.policy import Phase, WorkItem, commit_prefix, phases_of
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import AttemptRecord, StepExecution

MAX_SUBJECT = 72


def handoff_id(item: WorkItem, phase: Phase, *, base: str | None) -> str:
    """The same for every try to land the same phase from the same commit, so that landing twice is seen."""
    return hashlib.sha256(f"{item.ticket}/{item.number}/{phase}/{base}".encode()).hexdigest()[:16]


def land(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, paths: tuple[str, ...], bench: Workbench
) -> CommitId:
    """Commit ``paths`` with the attempt's trailers and put the handoff note on the commit.

    A phase that changed nothing hands the step's last commit over once more. Does nothing twice: after a crash in the
    middle, the commit and the note that are there are taken as they are. A commit of just these changes that the agent
    made itself is adopted: it gets the note. Raises ``GateClosed`` if the user's hooks refuse the commit.
    """
    if paths:
        commit = _committed(item, attempt.phase, step=step, paths=paths, bench=bench)
        hand_over(item, attempt, step=step, commit=commit, bench=bench)
        subject = bench.repository.git("log", "-1", "--format=%s", commit).strip()
        bench.emit(Committed(phase=attempt.phase, commit=commit, subject=subject))
    else:
        commit = CommitId(list(step.commits.values())[-1])
        hand_over(item, attempt, step=step, commit=commit, bench=bench)
    return commit


def _committed(
    item: WorkItem, phase: Phase, *, step: StepExecution, paths: tuple[str, ...], bench: Workbench
) -> CommitId:
    """The commit of ``paths``, made now unless a run before this one has made it."""
    base = CommitId(step.base_commit) if step.base_commit else None
    identity = handoff_id(item, phase, base=base)
    commit = commits.find_by_trailer(bench.repository, "Handoff-Id", value=identity, since=base)
    if commit is None:
        return commits.commit_paths(bench.repository, _message(item, phase, identity=identity), paths=paths)
    commits.refresh_index(bench.repository, paths)
    return commit


def hand_over(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, commit: CommitId, bench: Workbench
) -> None:
    """Put the note of a phase on ``commit``."""
    identity = handoff_id(item, attempt.phase, base=step.base_commit)
    note = _note(item, attempt, step=step, commit=commit, identity=identity, bench=bench)
    notes.append_line(bench.repository, commit, line=note)


def _subject(item: WorkItem, phase: Phase) -> str:
    """The first line of the commit message, cut to what git's own tools show."""
    subject = f"{commit_prefix(phase, item.kind)}: {item.title}"
    return subject if len(subject) <= MAX_SUBJECT else subject[: MAX_SUBJECT - 1].rstrip() + "…"


def _message(item: WorkItem, phase: Phase, *, identity: str) -> str:
    """The whole commit message."""
    trailers = {"Ticket": item.ticket, "Phase": phase.upper(), "Cycle": str(item.number), "Handoff-Id": identity}
    return f"{_subject(item, phase)}\n\n" + "".join(f"{key}: {value}\n" for key, value in trailers.items())


def _note(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, commit: CommitId, identity: str, bench: Workbench
) -> str:
    """One line of JSON that says what was handed over and on what evidence."""
    order = phases_of(item.kind, bench.policy)
    place = order.index(attempt.phase)
    report = bench.repository.root / attempt.report if attempt.report else None
    first_test = item.tests[0] if item.tests else ""
    return json.dumps(
        {
            "v": 1,
            "seq": (item.number - 1) * 3 + place + 1,
            "id": identity,
            "ticket": item.ticket,
            "phase": attempt.phase.upper(),
            "nextPhase": order[place + 1].upper() if place + 1 < len(order) else "COMPLETE",
            "cycleNumber": item.number,
            "currentTest": {
                "description": item.title,
                "testFile": first_test.partition("::")[0],
                "implFile": item.sources[0] if item.sources else "",
            },
            "completedTests": list(item.tests) if attempt.phase != "red" else [],
            "pendingTests": list(item.tests) if attempt.phase == "red" else [],
            "testResult": "FAIL" if attempt.phase == "red" else "PASS",
            "error": None,
            "errorDetails": None,
            "retryCount": attempt.number - 1,
            "commit": commit,
            "checkpoint": step.checkpoint,
            "gate": {
                "phase": attempt.phase,
                "open": attempt.verdict == "open",
                "reasons": list(attempt.reasons),
                "report_sha256": _digest(report),
            },
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _digest(report: Path | None) -> str | None:
    """sha256 of the report's bytes."""
    return hashlib.sha256(report.read_bytes()).hexdigest() if report is not None and report.exists() else None


def has_hooks(repository: Repository) -> bool:
    """Whether hooks take part in commits and can refuse them, so that a refusal is their judgment of the content."""
    if not repository.may_run_hooks():
        return False
    folder = repository.root / repository.git("rev-parse", "--git-path", "hooks", hooks=True).strip()
    return any(os.access(folder / name, os.X_OK) for name in ("pre-commit", "prepare-commit-msg", "commit-msg"))
