"""Review the completed steps of a ticket: commits, evidence and diff of each, and the person's decision."""

import hashlib
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import ChangeKind, StepReviewed
from cdd_agent.git.notes import read_note
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.storage import private_folder, read_ordinary
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, Status, StepExecution, load_state, lock_ticket, review_step, save_state
from pytest_tdd_agent.codec import LIMIT_BYTES

# No line of content can match these: it begins with a blank, a sign or a backslash.
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file before and after."""

    path: str
    kind: ChangeKind
    added: int | None
    """The number of lines. None for a binary file."""
    removed: int | None
    hunks: str
    """The unified diff from the first ``@@`` on. Empty without lines to compare."""


def diff_commits(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """Compare the trees of two commits, without running the repository's diff programs.

    Raises ``UsageError`` if one of the commits no longer exists.
    """
    compare = ("diff-tree", "-r", "--no-renames", "--no-color", "--ignore-submodules=none")
    commits = (resolve_recorded(repository, before), resolve_recorded(repository, after))
    counts = repository.git(*compare, "-z", "--numstat", *commits, "--").split("\0")
    patches = _FILE.split(repository.git(*compare, "-p", *commits, "--"))[1:]
    # For a file that became a link, or the reverse, there are two patches: a deletion and an addition.
    by_file = [list(parts) for _, parts in groupby(patches, key=lambda patch: patch.partition("\n")[0])]
    diffs = []
    for change, row, parts in zip(repository.list_changes(*commits), counts, by_file, strict=False):
        added, removed = (int(count) if count.isdigit() else None for count in row.split("\t")[:2])
        starts = [(part, _HUNK.search(part)) for part in parts]
        hunks = "\n".join(part[match.start() :].rstrip("\n") for part, match in starts if match)
        diffs.append(FileDiff(path=change.path, kind=change.kind, added=added, removed=removed, hunks=hunks))
    return tuple(diffs)


def resolve_recorded(repository: Repository, commit: str) -> CommitId:
    """Return the full id of a recorded commit. Raises ``UsageError`` if it no longer exists."""
    name = resolve_revision(repository, commit)
    if " commit " not in repository.git("cat-file", "--batch-check", stdin=f"{name}\n".encode()):
        raise UsageError(
            f"This repository no longer has the commit {name[:10]} of this ticket, so it cannot be reviewed.",
            hint="a rebase replaced it, or a copy left it out; see the commits: git log",
        )
    return CommitId(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of one phase, from its commit's note."""

    phase: str
    is_open: bool
    tries: int
    report: str
    """``unchanged``, ``changed or missing``, or ``none``."""
    examples: tuple[str, ...] = ()
    """The Examiner's examples with their outcomes."""
    findings: tuple[str, ...] = ()
    """The findings of the other checks, one per line."""


def read_evidence(repository: Repository, commit: CommitId, *, reports: Collection[str]) -> tuple[Evidence, ...]:
    """Read the evidence of each phase from the notes on ``commit``. ``reports``: the result of ``hash_reports``.

    Lines that are not handoffs, or that lack a gate, do not count, because anyone with push access can write them.
    """
    evidence: dict[str, Evidence] = {}
    for handoff in sorted(read_note(repository, commit).handoffs, key=lambda handoff: handoff.seq):
        if handoff.gate is not None:
            digest = handoff.gate.report_sha256
            report = "unchanged" if digest in reports else "changed or missing"
            evidence[handoff.phase] = Evidence(
                phase=handoff.phase.lower(),
                is_open=handoff.gate.open,
                tries=handoff.retry_count + 1,
                report="none" if digest is None else report,
                examples=handoff.gate.examples,
                findings=handoff.gate.evidence,
            )
    return tuple(evidence.values())


def hash_reports(folder: Path) -> frozenset[str]:
    """Return the digests of the readable reports in ``folder``."""
    digests: set[str] = set()
    for path in folder.rglob("*.json"):
        with suppress(OSError):
            digests.add(hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest())
    return frozenset(digests)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCommit:
    """One commit of a step."""

    commit: CommitId
    subject: str
    evidence: tuple[Evidence, ...]
    is_in_history: bool
    """Whether HEAD contains it. Not so after a rebase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepToReview:
    """A completed step."""

    number: int
    title: str
    commits: tuple[LandedCommit, ...]
    files: tuple[FileDiff, ...]
    """The changes from before the step to its last commit."""
    decision: str | None
    """The person's decision, or None."""

    def as_event(self, ticket: str) -> StepReviewed:
        """Return the step as plain values."""
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


def load_completed_steps(ticket: Ticket, repository: Repository, *, project: Path) -> tuple[StepToReview, ...]:
    """Load the ticket's completed steps in the order of the plan.

    Raises ``UsageError`` if no step is completed, or if commits of a step no longer exist.
    """
    state = load_state(ticket.state_path)
    done = () if state is None else tuple(state.execution(number) for number in state.numbers(Status.COMPLETED))
    if not done:
        raise UsageError(f"{ticket.slug} has no completed step to review.", hint=f"cdd exec {ticket.slug}")
    reports = hash_reports(private_folder(project) / "reports" / ticket.slug)
    return tuple(_load_step(step, repository, reports=reports) for step in done)


def _load_step(step: StepExecution, repository: Repository, *, reports: Collection[str]) -> StepToReview:
    commits = tuple(
        LandedCommit(
            commit=resolve_recorded(repository, commit),
            subject=repository.git("log", "-1", "--format=%s", commit, "--").strip(),
            evidence=read_evidence(repository, CommitId(commit), reports=reports),
            is_in_history=not repository.git("rev-list", "--max-count=1", commit, "--not", "HEAD", "--"),
        )
        for commit in dict.fromkeys(step.commits.values())
    )
    base = step.base_commit
    files = diff_commits(repository, base, after=commits[-1].commit) if base and commits else ()
    return StepToReview(number=step.step_number, title=step.title, commits=commits, files=files, decision=step.review)


def approve_step(ticket: Ticket, number: int, *, project: Path) -> RunState:
    """Record that the user approves step ``number`` and return the saved state.

    Raises ``UsageError`` if the ticket has not run, the step is not completed, or another process holds the ticket.
    """
    with lock_ticket(project, ticket.folder):
        state = load_state(ticket.state_path)
        if state is None:
            raise UsageError(f"{ticket.slug} has not been carried out yet.", hint=f"cdd exec {ticket.slug}")
        decided = review_step(state, number, decision="approved")
        save_state(ticket.state_path, decided)
        return decided


class Review:
    """A session that goes through the completed steps of one ticket."""

    def __init__(
        self, ticket: Ticket, *, repository: Repository, project: Path, add: Callable[[int], CommitId] | None = None
    ) -> None:
        """Start at the first undecided step. ``add`` adds the further examples of a step to the tests.

        Raises ``UsageError`` if no step is completed.
        """
        self.ticket = ticket
        self._project = project
        self._add = add
        self.steps = load_completed_steps(ticket, repository, project=project)
        self.at = next((index for index, step in enumerate(self.steps) if step.decision is None), 0)

    @property
    def step(self) -> StepToReview:
        """The current step."""
        return self.steps[self.at]

    @property
    def remaining(self) -> int:
        """The number of undecided steps."""
        return sum(step.decision is None for step in self.steps)

    @property
    def position(self) -> str:
        """The current step and the number of steps, such as ``2/3``."""
        return f"{self.at + 1}/{len(self.steps)}"

    def add_examples(self) -> CommitId:
        """Add the further examples of the current step to the tests; see ``examples.add_examples``."""
        if self._add is None:
            raise UsageError("Nothing can be committed here.", hint=f"cdd review {self.ticket.slug}")
        return self._add(self.step.number)

    def approve(self) -> None:
        """Approve the current step, and go to the next undecided one."""
        state = approve_step(self.ticket, self.step.number, project=self._project)
        self.steps = tuple(replace(step, decision=state.execution(step.number).review) for step in self.steps)
        following = [*range(self.at + 1, len(self.steps)), *range(self.at)]
        self.at = next((index for index in following if self.steps[index].decision is None), self.at)
