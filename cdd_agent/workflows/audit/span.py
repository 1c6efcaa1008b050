"""The commits that an audit looks at: those of a range, and all that lead to them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdd_agent.errors import UsageError
from cdd_agent.git.failure import GitError, GitUnable
from cdd_agent.git.repository import CommitId, Repository, listing

TRAILERS = ("Ticket", "Phase", "Cycle", "Handoff-Id")
"""Those that a commit of ours has."""
_NAMED = re.compile(r"\^?(?:[0-9a-f]{64}|[0-9a-f]{40})")
_FIELD, _VALUE = "\x1f", "\x1e"
_FORMAT = "%x1f".join(
    ("%H", "%T", "%P", "%at", "%ct", "%s", *(f"%(trailers:key={key},valueonly,separator=%x1e)" for key in TRAILERS))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the history says of one commit."""

    id: CommitId
    tree: str
    parents: tuple[CommitId, ...]
    is_rewritten: bool
    """Whether it was made at another time than it was written: by a rebase, for example, or by ``--amend``."""
    subject: str
    trailers: Mapping[str, tuple[str, ...]]
    """Key, one of ``TRAILERS`` -> its values; more than one where commits were squashed."""

    @property
    def parent(self) -> CommitId | None:
        """The commit that it was made on."""
        return self.parents[0] if self.parents else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the history."""

    commits: Mapping[CommitId, Commit]
    """All that lead to the range, a commit after its parents."""
    inside: frozenset[CommitId]
    """Those of the range."""

    def ancestors(self, commit: CommitId, *, most: int) -> Iterator[CommitId]:
        """``commit`` and what leads to it, the nearest first."""
        seen, waiting = {commit}, [commit]
        for count, each in enumerate(waiting):
            if count >= most:
                return
            yield each
            known = self.commits.get(each)
            fresh = [parent for parent in (known.parents if known is not None else ()) if parent not in seen]
            seen.update(fresh)
            waiting += fresh


def read_span(repository: Repository, revisions: str) -> Span:
    """The span of what ``revisions`` names as git takes it, such as ``main..HEAD`` or ``v1^!``; ``HEAD`` is all of it.

    Raises ``UsageError`` if it names no commits. Nothing but ids is passed on: no option can be smuggled in.
    """
    named = _named(repository, revisions)
    tips = [each for each in named if not each.startswith("^")]
    listed = repository.git("rev-list", "--stdin", stdin=listing(named))
    log = ("log", "-z", "--topo-order", "--reverse", f"--format={_FORMAT}", "--no-show-signature", "--stdin")
    commits = [_commit(record) for record in repository.git(*log, stdin=listing(tips)).split("\0") if record]
    return Span(commits={each.id: each for each in commits}, inside=frozenset(map(CommitId, listed.split())))


def look_up(repository: Repository, commit: str) -> Commit | None:
    """The commit of this full id, wherever it is; None if the repository does not have it."""
    if _NAMED.fullmatch(commit) is None:
        return None
    log = ("log", "-z", "--no-walk", "--ignore-missing", f"--format={_FORMAT}", "--no-show-signature", "--stdin")
    try:
        found = repository.git(*log, stdin=listing([commit])).split("\0")[0]
    except GitUnable:
        raise
    except GitError:
        return None
    return _commit(found) if found else None


def _named(repository: Repository, revisions: str) -> list[str]:
    """The ids that a range stands for; those that are left out, with what leads to them, begin with ``^``."""
    hint = "a range is what git log takes, in one word: main..HEAD, v1.0.., HEAD~3^!"
    if revisions.startswith("-") or "\0" in revisions or "\n" in revisions:
        raise UsageError(f"{revisions!r} is no range of commits.", hint=hint)
    try:
        told = repository.git("rev-parse", "--revs-only", "--end-of-options", revisions, "--").split()
        named = [each for each in told if _NAMED.fullmatch(each)]
        ids = [each.removeprefix("^") for each in named]
        for each in ids:
            repository.git("rev-parse", "--verify", "--quiet", f"{each}^{{commit}}")
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint) from error
    if not named:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint)
    return named


def _commit(record: str) -> Commit:
    """One commit as ``git log`` prints it; one that imitates how fields are parted is taken to have no trailers."""
    fields = record.split(_FIELD)
    known = len(fields) == 6 + len(TRAILERS)
    values = fields[6:] if known else [""] * len(TRAILERS)
    return Commit(
        id=CommitId(fields[0].strip()),
        tree=fields[1],
        parents=tuple(map(CommitId, fields[2].split())),
        is_rewritten=fields[3] != fields[4],
        subject=fields[5],
        trailers={
            key: tuple(value.strip() for value in told.split(_VALUE) if value.strip())
            for key, told in zip(TRAILERS, values, strict=True)
        },
    )
