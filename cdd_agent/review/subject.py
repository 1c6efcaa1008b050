"""What there is to look at: the completed steps of a ticket, each with its commits, its evidence and its diff.

What a commit rests on: the handoff note that was put on it, and whether the report it names is still that one.
"""

import hashlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.events import StepReviewed
from cdd_agent.git.notes import read_lines
from cdd_agent.git.notes_history import decoded
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.review.diff import FileDiff, between, kept
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import Status, StepExecution
from pytest_tdd_agent.codec import LIMIT_BYTES


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
