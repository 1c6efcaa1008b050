"""What the handoff notes tell of the commits that HEAD reaches: each phase, newest first, and where the run stands.

Notes of commits that a rollback took off the branch are kept, and are no part of this.
"""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import HandoffListed, RunStanding
from cdd_agent.git.notes import NotesDamaged
from cdd_agent.git.notes_history import Damage, Entry, left_behind, survey
from cdd_agent.git.repository import CommitId, Repository, listing
from cdd_agent.storage import Holder, holder_of
from cdd_agent.workflows.orchestration.feature import BEGIN, PREFIX, RESUME, Feature, is_complete, latest, state_of

_WAIT = "wait: it goes on by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The notes that count here."""

    entries: tuple[Entry, ...]
    """Newest commit first, at least one."""
    damages: tuple[Damage, ...]
    """What is wrong with any note, wherever it is."""


def account(repository: Repository) -> Account:
    """The notes on commits that HEAD reaches.

    Raises ``UsageError`` if there are none, and ``NotesDamaged`` if there are and they cannot be read; of single ones
    that cannot, ``damages`` tells.
    """
    found = survey(repository)
    head = repository.head()
    if found.tip is None:
        raise left_behind(repository) or UsageError(
            "There are no handoff notes in this repository: nothing was run in it yet.", hint=BEGIN
        )
    beyond = _beyond(repository, head, commits=[entry.commit for entry in found.entries])
    entries = tuple(entry for entry in found.entries if entry.commit not in beyond)
    if not entries and found.damages:
        raise NotesDamaged(f"No handoff note here can be read. {found.damages[0].what}")
    if not entries:
        raise UsageError(
            f"None of the {len(found.entries)} handoff notes is on a commit of {repository.branch() or 'HEAD'}.",
            hint=f"go to the branch of the run: git switch BRANCH; or begin one here: {BEGIN}",
        )
    return Account(entries=entries, damages=found.damages)


def listed(entries: Iterable[Entry], *, most: int | None = None) -> tuple[HandoffListed, ...]:
    """The handoffs in ``entries``, the newest first, or just so many of them."""
    rows: list[HandoffListed] = []
    for entry in entries:
        if most is not None and len(rows) >= most:
            break
        by_seq = sorted(enumerate(entry.handoffs), key=lambda each: (each[1].seq, each[0]), reverse=True)
        for _, handoff in by_seq:
            closed = handoff.error is not None
            row = HandoffListed(
                ticket=handoff.ticket,
                cycle=handoff.cycle_number,
                phase=handoff.phase,
                following=handoff.next_phase,
                result="CLOSED" if closed else handoff.test_result or "",
                retries=handoff.retry_count,
                commit=entry.commit,
                description=handoff.current_test.description,
                error=handoff.error or "",
                reconstructed=handoff.reconstructed,
            )
            rows.append(row)
    return tuple(rows[:most])


def where(repository: Repository, root: Path, *, locks: Path) -> tuple[RunStanding, tuple[Damage, ...]]:
    """Where the run stands that ``cdd tdd resume`` would go on with, else the last one; what is wrong with any note.

    ``locks`` is the folder that says who is at work. Raises as ``account`` and ``standing`` do.
    """
    begun = latest(root)
    if begun is not None and is_complete(begun):
        begun = None
    try:
        told = account(repository)
    except (UsageError, NotesDamaged):
        if begun is None or _has_landed(begun):
            raise
        return standing_without_notes(begun, locks=locks), ()
    if begun is not None and all(entry.latest.ticket != begun.slug for entry in told.entries):
        return standing_without_notes(begun, locks=locks), told.damages
    return standing(told, locks=locks), told.damages


def _has_landed(begun: Feature) -> bool:
    """Whether a run knows of a phase of its own that has landed, so that there has to be a note."""
    state = state_of(begun)
    return state is not None and any(step.commits for step in state.step_executions.values())


def standing_without_notes(begun: Feature, *, locks: Path) -> RunStanding:
    """Where a run stands of which no phase has landed yet."""
    state = state_of(begun)
    steps = state.step_executions if state is not None else {}
    holder = _at_work(locks / f"{begun.slug}.lock")
    return RunStanding(
        run=begun.slug,
        last=None,
        completed=(),
        pending=(),
        details=next((step.error for step in steps.values() if step.error), ""),
        at_work="" if holder is None else str(holder),
        next=RESUME if holder is None else _WAIT,
    )


def standing(told: Account, *, locks: Path) -> RunStanding:
    """Where the run stands that made the newest note of one; ``locks`` is as for ``where``.

    Raises ``UsageError`` if all notes are of something else.
    """
    newest = next((entry for entry in told.entries if entry.latest.ticket.startswith(PREFIX)), None)
    if newest is None:
        ticket = told.entries[0].latest.ticket
        raise UsageError(
            f"No run of cdd tdd has left a note here; the newest one is of {ticket!r:.100}.",
            hint=f"begin a run: {BEGIN}; or see all notes: cdd tdd history",
        )
    handoff = newest.latest
    details = handoff.error_details
    last = next(row for row in listed((newest,)) if (row.cycle, row.phase) == (handoff.cycle_number, handoff.phase))
    holder = _at_work(locks / f"{Path(handoff.ticket).name}.lock")
    following = f"the run is complete; another one: {BEGIN}" if last.following == "COMPLETE" else RESUME
    return RunStanding(
        run=handoff.ticket,
        last=last,
        completed=handoff.completed_tests,
        pending=handoff.pending_tests,
        details=details.message if details is not None else "",
        at_work="" if holder is None else str(holder),
        next=following if holder is None else _WAIT,
    )


def _beyond(repository: Repository, head: CommitId | None, *, commits: list[CommitId]) -> set[CommitId]:
    """Those of ``commits`` that HEAD does not reach."""
    if head is None or not commits:
        return set(commits)
    walked = repository.git("rev-list", "--ignore-missing", "--stdin", "--not", head, stdin=listing(commits))
    return {CommitId(line) for line in walked.splitlines()}


def _at_work(lock: Path) -> Holder | None:
    """Who the lock of a run says is at work, unless that process has ended.

    The lock itself is not tried: whoever begins in that moment would find it held.
    """
    holder = holder_of(lock)
    if holder is None or holder.host != socket.gethostname():
        return holder
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError, TypeError):
        return holder
    return holder
