"""Where a step keeps its files: the names of its snapshots and reports.

All names begin with the step's label. While an attempt is under way, a ref says so.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.git.tree_store import SAVED, Snapshot, TreeStore
from cdd_agent.work.state import AttemptRecord, StepExecution
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import SuiteReport

_LABEL = re.compile(r"step-\d+-\w+")
_RUNNING = "running-"
"""The beginning of the name of a ref that exists while an attempt is under way."""
LANDED_ON_OTHERS = ".gate.json"
"""The end of a judged report's name if the files are others since: the commit landed on other work in the branch."""


def step_label(number: int, base: str | None) -> str:
    """Return the name of a new step's refs and reports, such as ``step-2-1f3ef03e``.

    ``base`` is the commit on which the step begins, if there is one. The number alone is not enough: editing the plan
    can give it to another step.
    """
    return f"step-{number}-{(base or 'root')[:8]}"


def snapshot_ref(ticket: str, step: StepExecution, *, name: str) -> str:
    """Return the ref of the step's snapshot ``name``."""
    return f"{SAVED}{ticket}/{find_label(step)}-{name}"


def find_label(step: StepExecution) -> str:
    """Return the label with which the names of the step's snapshots and reports begin."""
    # A step that has begun keeps its label when an edited plan renumbers it.
    known = _LABEL.match((step.checkpoint or "").rpartition("/")[2])
    return known[0] if known else step_label(step.step_number, step.base_commit)


def landed_head(step: StepExecution) -> CommitId | None:
    """Return the HEAD that the landed phases of the step produced."""
    commits = [commit for commit in step.commits.values() if commit]
    last = commits[-1] if commits else step.base_commit
    return CommitId(last) if last else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRefs:
    """The refs of one step: snapshots of its files, its tip, and the attempt that is under way."""

    ticket: str
    step: StepExecution
    repository: Repository
    snapshots: TreeStore

    def ref(self, name: str) -> str:
        """Return the ref of the snapshot ``name``; ``*`` matches all of them."""
        return snapshot_ref(self.ticket, self.step, name=name)

    def freeze_ignore_rules(self) -> None:
        """Use the ignore rules of the step's start until it ends.

        Otherwise the agent could hide a file from snapshots by editing .gitignore.
        """
        self.snapshots.freeze_ignored(self.ref("ignored"))

    def save_tip(self, tip: CommitId) -> None:
        """Remember the commit on which the step works."""
        self.repository.refs.set(self.ref("tip"), resolve_revision(self.repository, tip))

    def read_tip(self) -> CommitId | None:
        """Return the commit on which the step works; None before it begins."""
        return self.repository.read_ref(self.ref("tip"))

    def mark_attempt(self, name: str, *, before: Snapshot) -> None:
        """Remember that the attempt ``name`` is under way, and the files from ``before`` it, in case it is killed."""
        self.repository.refs.set(self.ref(f"{_RUNNING}{name}"), resolve_revision(self.repository, before.commit))

    def find_attempt(self, name: str) -> CommitId | None:
        """Return the files from before the attempt ``name`` if it is under way."""
        return self.repository.read_ref(self.ref(f"{_RUNNING}{name}"))

    def clear_attempt(self) -> None:
        """Forget the attempt at any step of the ticket that was under way: its files are saved, or gone."""
        folder = f"{SAVED}{self.ticket}/"
        for ref in self.repository.list_ref_names(folder):
            if f"-{_RUNNING}" in ref and "/" not in ref.removeprefix(folder):  # below are those of forks
                self.repository.refs.delete(ref)

    def find_last(self) -> Snapshot | None:
        """Return the newest snapshot from which the step can continue."""
        name = self._last_name()
        return self.snapshots.find(name)

    def find_missing(self) -> str | None:
        """Return the ref of a snapshot that the step needs and that no longer exists."""
        needed = (ref for ref in (self.step.checkpoint, self._last_name(), self.ref("tip")) if ref)
        return next((ref for ref in needed if self.snapshots.find(ref) is None), None)

    def _last_name(self) -> str | None:
        step = self.step
        # A REFACTOR that was given up is in ``commits`` although its last attempt is closed: its files are not wanted.
        attempts = [each for each in step.attempts if each.is_open or each.phase not in step.commits]
        names = [ref for ref in (step.checkpoint, *(attempt.checkpoint for attempt in attempts)) if ref]
        return names[-1] if names else None


def load_report(attempt: AttemptRecord, *, root: Path) -> SuiteReport | None:
    """Return the report on which an attempt was judged; None if there was none, or if it is lost."""
    try:
        return load(root / attempt.report) if attempt.report else None
    except ReportError:
        return None
