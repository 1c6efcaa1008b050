"""Restore the files of a step after an interruption or a failure, and take back what it landed.

Before anything of the user's is undone, it is saved under ``refs/cdd``.
"""

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.repository import CommitId, Repository, require_usable, resolve_revision
from cdd_agent.git.snapshot import Snapshot, Snapshots
from cdd_agent.storage import is_leftover, scratch
from cdd_agent.tdd.context import Context
from cdd_agent.work.state import Status, StepExecution, lock_checkpoints, lock_repository, lock_ticket

_LABEL = re.compile(r"step-\d+-\w+")


def step_label(number: int, base: str | None) -> str:
    """Return the name of a new step's refs and reports, such as ``step-2-1f3ef03e``.

    ``base`` is the commit on which the step begins, if there is one. The number alone is not enough: editing the plan
    can give it to another step.
    """
    return f"step-{number}-{(base or 'root')[:8]}"


def checkpoint_ref(ticket: str, step: StepExecution, *, name: str) -> str:
    """Return the ref of the step's checkpoint ``name``."""
    return f"refs/cdd/checkpoints/{ticket}/{_find_label(step)}-{name}"


def _find_label(step: StepExecution) -> str:
    # A step that has begun keeps its label when an edited plan renumbers it.
    known = _LABEL.match((step.checkpoint or "").rpartition("/")[2])
    return known[0] if known else step_label(step.step_number, step.base_commit)


def landed_head(step: StepExecution) -> CommitId | None:
    """Return the HEAD that the landed phases of the step produced."""
    commits = [commit for commit in step.commits.values() if commit]
    return CommitId(commits[-1]) if commits else CommitId(step.base_commit) if step.base_commit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheckpoints:
    """The checkpoints of one step: snapshots of its files, and its tip."""

    ticket: str
    step: StepExecution
    repository: Repository
    snapshots: Snapshots

    def ref(self, name: str) -> str:
        """Return the ref of the checkpoint ``name``; ``*`` matches all of them."""
        return checkpoint_ref(self.ticket, self.step, name=name)

    def freeze_ignore_rules(self) -> None:
        """Use the ignore rules of the step's start until it ends.

        Otherwise the agent could hide a file from checkpoints by editing .gitignore.
        """
        self.snapshots.freeze_ignored(self.ref("ignored"))

    def save_tip(self, tip: CommitId) -> None:
        """Remember the commit on which the step works."""
        self.repository.git("update-ref", self.ref("tip"), resolve_revision(self.repository, tip))

    def read_tip(self) -> CommitId | None:
        """Return the commit on which the step works; None before it begins."""
        found = self.repository.git("for-each-ref", "--format=%(objectname)", self.ref("tip")).strip()
        return CommitId(found) if found else None

    def find_last(self) -> Snapshot | None:
        """Return the newest checkpoint from which the step can continue."""
        name = self._last_name()
        return self.snapshots.find(name) if name else None

    def find_missing(self) -> str | None:
        """Return the ref of a checkpoint that the step needs and that no longer exists."""
        needed = (ref for ref in (self.step.checkpoint, self._last_name(), self.ref("tip")) if ref)
        return next((ref for ref in needed if self.snapshots.find(ref) is None), None)

    def _last_name(self) -> str | None:
        step = self.step
        # A REFACTOR that was given up is in ``commits`` although its last attempt is closed: its files are not wanted.
        attempts = [each for each in step.attempts if each.verdict == "open" or each.phase not in step.commits]
        names = [ref for ref in (step.checkpoint, *(attempt.checkpoint for attempt in attempts)) if ref]
        return names[-1] if names else None


class StepRecovery:
    """Saves and restores the files of one step of one ticket."""

    def __init__(self, ticket: str, step: StepExecution, *, context: Context) -> None:
        """Changes nothing. ``step`` is a snapshot of the state: make a new object when the step has changed."""
        self.ticket = ticket
        self.step = step
        self.context = context
        self.checkpoints = StepCheckpoints(
            ticket=ticket, step=step, repository=context.repository, snapshots=context.snapshots
        )

    def report_path(self, name: str) -> Path:
        """Return the path of the step's test report ``name``."""
        return self.context.reports / f"{_find_label(self.step)}-{name}.json"

    def begin(self) -> str:
        """Prepare the files for the step, delete leftovers of earlier tries at it, and return the first checkpoint."""
        snapshots = self.context.snapshots
        snapshots.forget(self.checkpoints.ref("*"))
        for stale in self.context.reports.glob(f"{_find_label(self.step)}-*.json"):
            stale.unlink()
        self.checkpoints.save_tip(self.context.workplace.begin())
        self.checkpoints.freeze_ignore_rules()
        return snapshots.take(self.checkpoints.ref("start"), message=f"before step {self.step.step_number}").ref

    def is_underway(self) -> bool:
        """Return whether the step was interrupted and can continue."""
        return self.has_begun() and self.checkpoints.find_missing() is None

    def has_begun(self) -> bool:
        """Return whether the step was interrupted after its first attempt; before that, it begins anew."""
        is_in_progress = self.step.status == Status.IN_PROGRESS and self.step.checkpoint is not None
        return is_in_progress and bool(self.step.attempts or self.step.commits)

    def require_checkpoints(self) -> None:
        """Raise ``UsageError`` if the step is in progress and one of its checkpoints no longer exists."""
        missing = self.checkpoints.find_missing() if self.has_begun() else None
        if missing:
            name = self.context.step_name(self.step)
            restart = self.context.resume_commands(self.ticket, self.step).restart
            raise UsageError(
                f"{name[0].upper()}{name[1:]} is in progress, but its checkpoint {missing} is not in this repository.\n"
                "Nothing was touched.",
                hint=f"fetch it from the repository in which {name} began, or restart on the current commit: {restart}",
            )

    def restore(self) -> CommitId | None:
        """Restore the files of the step's last checkpoint after an interruption, and return the tip."""
        snapshots, snapshot, tip = self.context.snapshots, self.checkpoints.find_last(), self.checkpoints.read_tip()
        if snapshot is None or tip is None:
            return tip
        # What is in a run tree is nobody's; in the user's files the interrupted attempt may not be the only author.
        saved = None
        if self.context.workplace.is_shared and snapshots.list_changes_since(snapshot):
            saved = snapshots.take(self._free_ref("interrupted"), message="interrupted")
        self.context.workplace.resume(tip)
        if saved is not None:
            self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why="an attempt was interrupted"))
        self.checkpoints.freeze_ignore_rules()
        snapshots.restore(snapshot)
        return tip

    def restore_files(self, snapshot: Snapshot, *, only: tuple[str, ...]) -> None:
        """Save the files ``only`` as they are now, then restore them from ``snapshot``."""
        self.context.snapshots.take(self._free_ref("refused"), message="changes that were put back")
        self.context.snapshots.restore(snapshot, only=only)

    def undo(self, *, why: str) -> None:
        """Return files and branch to the start of the step; commits of somebody else on top of it stay."""
        snapshots = self.context.snapshots
        snapshot = snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        if snapshot is None:
            return
        saved = snapshots.take(self._free_ref("undone"), message=why)
        self._take_back()
        snapshots.restore(snapshot)
        self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why=why))

    def undo_if_underway(self, *, why: str) -> None:
        """Undo the step if it is underway; in the user's own files only if nobody has committed since."""
        if not self.is_underway():
            return
        try:
            self.restore()
        except UsageError as error:
            self.context.emit(Notice(text=f"{error.happened} The files stay as they are."))
            return
        self.undo(why=why)

    def _take_back(self) -> None:
        repository, base, head = self.context.repository, self.step.base_commit, self.context.repository.read_head()
        if head is None or base is None or head == base:
            return
        if head not in self.step.commits.values():
            text = f"HEAD is at {head[:10]}, a commit that this step did not make: cdd leaves the branch as it is."
            self.context.emit(Notice(text=text))
            return
        # The user may have committed between two phases: what is below such a commit stays with it.
        own, target = set(self.step.commits.values()), head
        while target in own and target != base:
            target = CommitId(
                repository.git("rev-parse", "--verify", f"{resolve_revision(repository, target)}^").strip()
            )
        if target != base:
            text = f"The branch returns to {target[:10]}, a commit that this step did not make."
            self.context.emit(Notice(text=text))
        repository.git("update-ref", self._free_ref("commits", under="abandoned"), head)
        self.context.workplace.take_back(head, base=target)

    def _free_ref(self, word: str, *, under: str = "attempts") -> str:
        prefix = f"refs/cdd/{under}/{self.ticket}/step-{self.step.step_number}-{word}"
        used = set(self.context.repository.git("for-each-ref", "--format=%(refname)", f"{prefix}-*").split())
        return next(ref for ref in (f"{prefix}-{number}" for number in range(1, len(used) + 2)) if ref not in used)


@contextmanager
def alone(repository: Repository) -> Iterator[None]:
    """Lock the repository against other cdd processes, and remove the leftovers of killed runs.

    Raises ``UsageError`` if another process holds it, ``GitUnable`` if no commit could be made.
    """
    require_usable(repository.location)
    with lock_repository(repository.location.common_dir) as was_killed, scratch():
        if was_killed:
            remove_leftovers(repository)
        yield


@contextmanager
def alone_on(folder: Path, *, context: Context) -> Iterator[None]:
    """Lock ``folder``, which belongs to a ticket or a run, and in the user's own files the repository too.

    A landing that was killed is finished first.
    """
    common = context.repository.location.common_dir
    require_usable(context.repository.location)
    locks = alone(context.repository) if context.workplace.is_shared else scratch()
    # All work trees of the repository share the ticket's checkpoints.
    with locks, lock_ticket(context.project, folder), lock_checkpoints(common, folder.name) as was_killed:
        if was_killed:
            remove_locks(common / "refs" / "cdd", f"*/{folder.name}/**/*.lock")
        context.workplace.finish()
        yield


def remove_leftovers(repository: Repository) -> None:
    """Delete half-written files and stale ref locks of a killed run; the caller holds the repository."""
    found = repository.git("ls-files", "--others", "--ignored", "--exclude=.*.cdd-*.tmp", "-z")
    for path in (Path(name) for name in found.split("\0") if name):
        if is_leftover(path.name):
            (repository.root / path).unlink(missing_ok=True)
    remove_locks(repository.location.common_dir / "refs" / "cdd", "**/*.lock")


def remove_locks(refs: Path, pattern: str) -> None:
    """Delete locks of refs that a killed cdd left; other locks may belong to a command that the user is running."""
    for lock in refs.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()
