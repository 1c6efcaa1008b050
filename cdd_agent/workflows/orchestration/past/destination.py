"""Where a way back leads: a commit that the present branch holds, with the note that says what comes next."""

import re
from dataclasses import dataclass

from cdd_agent.errors import UsageError
from cdd_agent.git.failure import GitError, GitUnable
from cdd_agent.git.notes.history import Entry, handoffs, survey
from cdd_agent.git.repository import CommitId, Repository, resolved
from cdd_agent.work.handoff import Handoff
from cdd_agent.workflows.orchestration.feature import RUN

_RELATIVE = re.compile(r"(?P<name>[^~^]+)(?P<steps>(?:[~^]\d{0,6}){1,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A commit to go back to."""

    commit: CommitId
    handoff: Handoff
    """What its note says, of several lines the one that counts."""


def find(repository: Repository, name: str) -> Destination:
    """The commit that ``name`` means: an id, a branch, a tag, or ``HEAD~2``.

    Raises ``UsageError``, naming the nearest one that will do, if HEAD does not hold it, or if it has no note of a run;
    ``NotesDamaged`` if its note cannot be read.
    """
    commit = commit_of(repository, name)
    head = repository.head()
    if head is None or not is_ancestor(repository, commit, of=head):
        base = _common(repository, commit, head=head)
        where = repository.branch() or "HEAD"
        raise UsageError(
            f"{commit[:10]} is no part of {where}: a rollback leads to a commit that HEAD comes from.",
            hint=_nearest(repository, base),
        )
    said = handoffs(repository, commit)
    if not said:
        raise UsageError(
            f"{commit[:10]} has no handoff note, so nothing says how to go on from there.",
            hint=_nearest(repository, commit),
        )
    found = Entry(commit=commit, handoffs=said).latest
    if not _is_run(found.ticket):
        raise UsageError(
            f"{commit[:10]} belongs to the ticket {found.ticket!r:.100}, which cdd exec carries out.",
            hint="undo a step of it by: cdd exec SLUG --retry N; or go to a commit of: cdd tdd history",
        )
    return Destination(commit=commit, handoff=found)


def commit_of(repository: Repository, name: str) -> CommitId:
    """The commit of a name that may end in steps back, as ``HEAD~2``; ``UsageError`` if there is none."""
    parts = _RELATIVE.fullmatch(name)
    if parts is None:
        return CommitId(resolved(repository, name))
    start = resolved(repository, parts["name"])
    try:
        return CommitId(
            repository.git("rev-parse", "--verify", "--quiet", f"{start}{parts['steps']}^{{commit}}").strip()
        )
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{name!r} goes back further than the history does.", hint="cdd tdd history") from error


def is_ancestor(repository: Repository, commit: str, *, of: str) -> bool:
    """Whether ``of`` holds ``commit``; each holds itself."""
    try:
        repository.git("merge-base", "--is-ancestor", commit, of)
    except GitUnable:
        raise
    except GitError as error:
        if error.status != 1:
            raise UsageError(f"{commit[:10]} is no commit of this repository.", hint="cdd tdd history") from error
        return False
    return True


def _common(repository: Repository, commit: CommitId, *, head: CommitId | None) -> CommitId | None:
    """The newest commit that both hold; None if they have nothing in common."""
    try:
        return None if head is None else CommitId(repository.git("merge-base", commit, head).strip())
    except GitUnable:
        raise
    except GitError:
        return None


def _nearest(repository: Repository, commit: CommitId | None) -> str:
    """What to type instead: the newest commit of a run at or before ``commit``, else the oldest one after it."""
    noted = {entry.commit: entry for entry in survey(repository).entries if _is_run(entry.latest.ticket)}
    sides = ([f"{commit}"], ["--reverse", f"{commit}..HEAD"]) if commit is not None else (["HEAD"],)
    for span in sides:
        listed = (CommitId(line) for line in repository.git("rev-list", *span).splitlines())
        near = next((each for each in listed if each in noted), None)
        if near is not None:
            last = noted[near].latest
            told = f"cycle {last.cycle_number}, {last.phase}"
            return f"the nearest one that will do is {near[:10]} ({told}): cdd tdd rollback {near[:10]}"
    return "see which there are: cdd tdd history"


def _is_run(ticket: str) -> bool:
    """Whether this is the name of a run; whoever can push can write a note with any other."""
    return re.fullmatch(RUN, ticket) is not None
