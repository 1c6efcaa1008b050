"""Events that tell what lies behind a run: its handoffs, the way back to one of them, and notes that are mended."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffListed:
    """What one phase handed over, as its note says it."""

    ticket: str
    cycle: int
    phase: str
    following: str
    """The phase after it, or COMPLETE."""
    result: str
    """Of the tests, PASS or FAIL; CLOSED where the phase failed; empty where nothing is said."""
    retries: int
    commit: str
    description: str
    error: str
    reconstructed: bool
    """Whether the note was lost and made up from the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    """Where a run stands: the one that was begun here last, else that of the newest note."""

    run: str
    last: HandoffListed | None
    """None: no phase of it has landed yet."""
    completed: tuple[str, ...]
    """Of the test list."""
    pending: tuple[str, ...]
    details: str
    """Of the last error; empty without one."""
    at_work: str
    """Who carries it on at present; empty: nobody."""
    next: str
    """What to type, or to do, next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMoved:
    """A commit that goes from a branch, or comes back to it."""

    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMoved:
    """A file that changes with it."""

    path: str
    kind: Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlanned:
    """What a rollback, or its undoing, would do."""

    branch: str
    source: str
    target: str
    going: tuple[CommitMoved, ...]
    """Newest first."""
    coming: tuple[CommitMoved, ...]
    files: tuple[FileMoved, ...]
    uncommitted: tuple[str, ...]
    """Work of the run that is in no commit, and changes too."""
    pushed: int
    """How many of the commits that go another repository may have."""
    kept: str
    """The ref that keeps all that goes."""
    next: str
    """The phase that ``resume`` goes on with; empty where the undone run says so itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDamaged:
    """One thing that is wrong with the notes."""

    what: str
    """A sentence."""
    commit: str | None
    """Whose note it is about; None for the ref and its lock."""
    action: str
    """What is done about it, or what to type where it stays as it is."""
    mends: bool
    """Whether anything is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRepaired:
    """One thing that was wrong with the notes, and is mended."""

    what: str
    commit: str | None
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesRepaired:
    """Mending the notes has ended."""

    backup: str | None
    """The ref under which they are kept as they were; None if they were not changed, or there were none."""
    undo: str | None
    """The command that goes back to them; None if they were not changed."""
