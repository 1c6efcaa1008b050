"""Read the history and the status of orchestrated runs from the handoff notes on commits that HEAD contains.

Notes on commits that a rollback removed from the branch stay in the repository but do not count here.
"""

import os
import socket
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import HandoffListed, RunStanding
from cdd_agent.git.notes import Damage, Note, NotesDamaged, Survey, find_missing_ref, survey_notes
from cdd_agent.git.repository import CommitId, Repository, format_lines
from cdd_agent.runs.feature import BEGIN, Feature, find_latest, is_complete, is_of_feature, load_feature_state
from cdd_agent.runs.places import RESUME
from cdd_agent.storage import read_holder
from cdd_agent.work.wording import format_reason


def read_reachable_notes(repository: Repository) -> Survey:
    """Read the notes on commits that HEAD contains, and the problems of all notes in the repository.

    Raises ``UsageError`` if there are none, and ``NotesDamaged`` if none can be read.
    """
    survey = survey_notes(repository)
    head = repository.read_head()
    if survey.tip is None:
        raise find_missing_ref(repository) or UsageError(
            "This repository has no handoff notes: cdd tdd has not run here yet.", hint=BEGIN
        )
    commits = [entry.commit for entry in survey.entries]
    unreachable = set(commits)
    if head is not None and commits:
        walk = ("--ignore-missing", "--stdin", "--not")
        unreachable = set(
            map(CommitId, repository.git("rev-list", walk, head, stdin=format_lines(commits)).splitlines())
        )
    entries = tuple(entry for entry in survey.entries if entry.commit not in unreachable)
    if not entries and survey.damages:
        raise NotesDamaged(f"No handoff note here can be read. {survey.damages[0].what}")
    if not entries:
        raise UsageError(
            f"None of the {len(survey.entries)} handoff notes is on a commit of {repository.read_branch() or 'HEAD'}.",
            hint=f"switch to the run's branch: git switch BRANCH; or start a run here: {BEGIN}",
        )
    return replace(survey, entries=entries)


def list_handoffs(entries: Iterable[Note], *, most: int | None = None) -> tuple[HandoffListed, ...]:
    """List the handoffs in ``entries``, newest first, ``most`` of them or all."""
    newest = (
        (entry.commit, handoff)
        for entry in entries
        for handoff in sorted(reversed(entry.handoffs), key=lambda each: each.seq, reverse=True)
    )
    return tuple(
        HandoffListed(
            ticket=handoff.ticket,
            cycle=handoff.cycle_number,
            phase=handoff.phase,
            following=handoff.next_phase,
            result="CLOSED" if handoff.error is not None else handoff.test_result or "",
            retries=handoff.retry_count,
            commit=commit,
            description=handoff.current_test.description,
            error=format_reason(handoff.error) if handoff.error is not None else "",
            reconstructed=handoff.reconstructed,
        )
        for commit, handoff in islice(newest, most)
    )


def find_status(repository: Repository, root: Path, *, locks: Path) -> tuple[RunStanding, tuple[Damage, ...]]:
    """Return the status of the run that ``cdd tdd resume`` would continue, else of the last one, and damaged notes."""
    open_run = find_latest(root)
    if open_run is not None and is_complete(open_run):
        open_run = None
    try:
        notes = read_reachable_notes(repository)
    except (UsageError, NotesDamaged):
        if open_run is None:
            raise
        state = load_feature_state(open_run)
        if state is not None and any(step.commits for step in state.step_executions.values()):
            raise  # the run has landed a phase, so its note is missing or damaged
        return _status_without_notes(open_run, locks=locks), ()
    if open_run is not None and all(entry.latest.ticket != open_run.slug for entry in notes.entries):
        return _status_without_notes(open_run, locks=locks), notes.damages
    return status_from_notes(notes, locks=locks), notes.damages


def status_from_notes(notes: Survey, *, locks: Path) -> RunStanding:
    """Return the status of the run with the newest note. Raises ``UsageError`` if no note belongs to a run."""
    newest = next((entry for entry in notes.entries if is_of_feature(entry.latest)), None)
    if newest is None:
        ticket = notes.entries[0].latest.ticket
        raise UsageError(
            f"No note here belongs to a run of cdd tdd; the newest one belongs to {ticket!r:.100}.",
            hint=f"start a run: {BEGIN}; or list all notes: cdd tdd history",
        )
    handoff = newest.latest
    details = handoff.error_details
    (last,) = list_handoffs((replace(newest, handoffs=(handoff,)),))
    following = f"the run is complete; start another one: {BEGIN}" if last.following == "COMPLETE" else RESUME
    at_work, next_command = _describe_activity(handoff.ticket, locks=locks, otherwise=following)
    return RunStanding(
        run=handoff.ticket,
        last=last,
        completed=handoff.completed_tests,
        pending=handoff.pending_tests,
        details="\n".join(map(format_reason, details.reasons)) if details is not None else "",
        at_work=at_work,
        next=next_command,
    )


def _status_without_notes(run: Feature, *, locks: Path) -> RunStanding:
    state = load_feature_state(run)
    steps = state.step_executions if state is not None else {}
    at_work, next_command = _describe_activity(run.slug, locks=locks, otherwise=RESUME)
    return RunStanding(
        run=run.slug,
        last=None,
        completed=(),
        pending=(),
        details=next((step.error for step in steps.values() if step.error), ""),
        at_work=at_work,
        next=next_command,
    )


def _describe_activity(run: str, *, locks: Path, otherwise: str) -> tuple[str, str]:
    """Return who is working on the run, empty if nobody, and what the user should do next."""
    lock = locks / f"{Path(run).name}.lock"  # a note may name the run anything, such as ../x
    # Trying the lock itself would briefly hold it, and a cdd that starts at that moment would be turned away.
    holder = read_holder(lock)
    if holder is not None and holder.host == socket.gethostname():
        try:
            os.kill(holder.pid, 0)
        except ProcessLookupError:
            holder = None
        except (OSError, OverflowError, TypeError):
            pass  # it cannot be asked, so it may be running
    return ("", otherwise) if holder is None else (str(holder), "wait until it finishes")
