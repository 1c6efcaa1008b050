"""A person looks: what a step changed, on what evidence it landed, and what was decided about it.

What differs between two commits, file by file, as text to read.

What there is to look at: the completed steps of a ticket, each with its commits, its evidence and its diff.

What a commit rests on: the handoff note that was put on it, and whether the report it names is still that one.

What a person decides about a step, kept in the state of the run.

One review: where a person is among the completed steps of a ticket, and what was decided so far.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.events import StepReviewed
from cdd_agent.git.notes import read_lines
from cdd_agent.git.notes_history import decoded
from cdd_agent.git.repository import CommitId, Repository, resolved
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.lock import holding_ticket
from cdd_agent.work.state import RunState, Status, StepExecution, review_step
from pytest_tdd_agent.codec import LIMIT_BYTES

_HEAD = re.compile(r"^diff --git ", re.MULTILINE)
"""The first line of each file's part: every line of content begins with a blank, a sign or a backslash."""
_HUNK = re.compile(r"^@@ ", re.MULTILINE)

Kind: TypeAlias = Literal["created", "modified", "deleted"]
_KINDS: Mapping[str, Kind] = {"A": "created", "D": "deleted"}
_OF_ANOTHER_TYPE = "T"
"""What git calls a file that became a link, or a link that became one: its patch removes the one and adds the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file before and after."""

    path: str
    kind: Kind
    added: int | None
    """Lines; None for a file that is no text."""
    removed: int | None
    hunks: str
    """Unified, from the first ``@@`` on; empty where there are no lines to compare."""


def between(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """What differs between the trees of two commits, in git's order; no program that the repository names is run.

    Raises ``UsageError`` if one of the commits is no longer there.
    """
    compare = ("diff-tree", "-r", "--no-renames", "--no-color", "--ignore-submodules=none")
    commits = (kept(repository, before), kept(repository, after), "--")
    named = repository.git(*compare, "-z", "--name-status", *commits).split("\0")
    counted = repository.git(*compare, "-z", "--numstat", *commits).split("\0")
    parts = iter(_HEAD.split(repository.git(*compare, "-p", *commits))[1:])
    return tuple(
        FileDiff(
            path=path,
            kind=_KINDS.get(status, "modified"),
            added=_number(counts.split("\t")[0]),
            removed=_number(counts.split("\t")[1]),
            hunks="\n".join(filter(None, map(_hunks, islice(parts, 2 if status == _OF_ANOTHER_TYPE else 1)))),
        )
        for status, path, counts in zip(named[0::2], named[1::2], counted, strict=False)
    )


def kept(repository: Repository, commit: str) -> CommitId:
    """The full id of a commit that was recorded; raises ``UsageError`` if it is no longer in the repository."""
    name = resolved(repository, commit)
    if " commit " not in repository.git("cat-file", "--batch-check", stdin=f"{name}\n".encode()):
        raise UsageError(
            f"The commit {name[:10]} of this ticket is not in this repository any more, so it cannot be reviewed.",
            hint="it was replaced by a rebase or left out of a copy; see what is there: git log",
        )
    return CommitId(name)


def _number(count: str) -> int | None:
    """A count of git's, which is a dash for a file that is no text."""
    return int(count) if count.isdigit() else None


def _hunks(part: str) -> str:
    """One file's part of a patch without the lines that only name it."""
    first = _HUNK.search(part)
    return part[first.start() :].rstrip("\n") if first else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one commit's note says."""

    phase: str
    is_open: bool
    tries: int
    report: str
    """``as it was``, ``changed or gone``, or ``none``."""


def evidence_of(repository: Repository, commit: CommitId, *, reports: Collection[str]) -> tuple[Evidence, ...]:
    """What the notes on ``commit`` say, one for each phase in order; ``reports``: see ``kept_reports``.

    A line that is no handoff is passed over, as whoever can push can write one; so is one that no gate stands behind.
    """
    found: dict[str, Evidence] = {}
    for handoff in sorted(decoded(read_lines(repository, commit)), key=lambda handoff: handoff.seq):
        if handoff.gate is not None:
            found[handoff.phase] = Evidence(
                phase=handoff.phase.lower(),
                is_open=handoff.gate.open,
                tries=handoff.retry_count + 1,
                report=_standing(handoff.gate.report_sha256, reports),
            )
    return tuple(found.values())


def kept_reports(folder: Path) -> frozenset[str]:
    """The digests of the reports of a ticket that are kept in ``folder``, as far as they can be read."""
    digests: set[str] = set()
    for path in folder.rglob("*.json"):
        with suppress(OSError):
            digests.add(hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest())
    return frozenset(digests)


def _standing(digest: str | None, kept: Collection[str]) -> str:
    """What became of the report with this digest."""
    if digest is None:
        return "none"
    return "as it was" if digest in kept else "changed or gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """One commit of a step."""

    phases: tuple[str, ...]
    """Those that ended in it: a phase that changed nothing stands on the commit before."""
    commit: CommitId
    subject: str
    evidence: tuple[Evidence, ...]
    is_in_history: bool
    """Whether HEAD still rests on it; not so after a rebase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepToReview:
    """A completed step as a person looks at it."""

    number: int
    title: str
    commits: tuple[Landed, ...]
    files: tuple[FileDiff, ...]
    """From before the step to its last commit."""
    decision: str | None
    """What was decided about it; None: nothing yet."""

    def as_event(self, ticket: str) -> StepReviewed:
        """The step as plain values."""
        return StepReviewed(
            ticket=ticket,
            number=self.number,
            title=self.title,
            commits=tuple(landed.commit for landed in self.commits),
            files=tuple(file.path for file in self.files),
            added=sum(file.added or 0 for file in self.files),
            removed=sum(file.removed or 0 for file in self.files),
            decision=self.decision,
        )


def completed_steps(ticket: Ticket, repository: Repository, *, project: Path) -> tuple[StepToReview, ...]:
    """The ticket's completed steps in the order of the plan.

    Raises ``UsageError`` if nothing was carried out, or if commits of a step are no longer in the repository.
    """
    state = state_file.load(ticket.state_path)
    done = () if state is None else tuple(state.execution(number) for number in state.numbers(Status.COMPLETED))
    if not done:
        raise UsageError(
            f"No step of {ticket.slug} is completed, so there is nothing to review.", hint=f"cdd exec {ticket.slug}"
        )
    reports = kept_reports(private_folder(project) / "reports" / ticket.slug)
    return tuple(_step(step, repository, reports=reports) for step in done)


def _step(step: StepExecution, repository: Repository, *, reports: Collection[str]) -> StepToReview:
    """One completed step, read from the repository."""
    phases_of: dict[str, list[str]] = {}
    for phase, commit in step.commits.items():
        phases_of.setdefault(commit, []).append(phase)
    commits = tuple(
        Landed(
            phases=tuple(phases),
            commit=kept(repository, commit),
            subject=repository.git("log", "-1", "--format=%s", commit, "--").strip(),
            evidence=evidence_of(repository, CommitId(commit), reports=reports),
            is_in_history=not repository.git("rev-list", "--max-count=1", commit, "--not", "HEAD", "--"),
        )
        for commit, phases in phases_of.items()
    )
    base = step.base_commit
    files = between(repository, base, after=commits[-1].commit) if base and commits else ()
    return StepToReview(number=step.step_number, title=step.title, commits=commits, files=files, decision=step.review)


Decision: TypeAlias = Literal["approved"]


def decide(ticket: Ticket, number: int, *, decision: Decision, project: Path) -> RunState:
    """The run with ``decision`` about step ``number``, saved.

    Raises ``UsageError`` if there is no run, if the step is not completed, or if another process holds the ticket.
    """
    with holding_ticket(project, ticket.folder):
        state = state_file.load(ticket.state_path)
        if state is None:
            raise UsageError(f"{ticket.slug} was not carried out yet.", hint=f"cdd exec {ticket.slug}")
        decided = review_step(state, number, decision=decision)
        state_file.save(ticket.state_path, decided)
        return decided


class Review:
    """A sitting over the completed steps of one ticket."""

    def __init__(self, ticket: Ticket, *, repository: Repository, project: Path) -> None:
        """Begins at the first step that nothing was decided about; raises ``UsageError`` if no step is completed."""
        self.ticket = ticket
        self._project = project
        self.steps = completed_steps(ticket, repository, project=project)
        open_steps = [at for at, step in enumerate(self.steps) if step.decision is None]
        self.at = open_steps[0] if open_steps else 0

    @property
    def step(self) -> StepToReview:
        """The step that is looked at."""
        return self.steps[self.at]

    @property
    def left(self) -> int:
        """How many steps nothing was decided about."""
        return sum(step.decision is None for step in self.steps)

    @property
    def place(self) -> str:
        """``2/3``: the step that is looked at, of how many."""
        return f"{self.at + 1}/{len(self.steps)}"

    def approve(self) -> None:
        """Approve the step that is looked at, and go to the next one that is open."""
        state = decide(self.ticket, self.step.number, decision="approved", project=self._project)
        self.steps = tuple(replace(step, decision=state.execution(step.number).review) for step in self.steps)
        following = [*range(self.at + 1, len(self.steps)), *range(self.at)]
        self.at = next((at for at in following if self.steps[at].decision is None), self.at)
