"""Restore the work tree and the branch: after an interruption, a failed step or a crash.

Before anything is undone, it is saved under ``refs/cdd``. HEAD moves back only over commits that cdd or the agent made
in this step. After a crash their author is unknown, so such commits stay.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.commits import move_head
from cdd_agent.git.repository import (
    CommitId,
    Repository,
    make_branch_ref,
    private_index,
    require_usable,
    resolve_revision,
)
from cdd_agent.git.runner import GitRefused
from cdd_agent.git.snapshot import Snapshot, Snapshots
from cdd_agent.storage import is_leftover, scratch
from cdd_agent.tdd.context import Context
from cdd_agent.work.state import Status, StepExecution
from cdd_agent.work.state_file import lock_repository, lock_ticket

_LABEL = re.compile(r"step-\d+-\w+")
_MAX_PATHS_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """HEAD, branch and index of a repository, without its files."""

    head: CommitId | None
    branch: str | None
    """None: HEAD is detached."""
    index: str | None
    """Tree of the staged content; None while it has conflicts."""


def read_position(repository: Repository) -> Position:
    """Return the repository's current position."""
    try:
        # write-tree caches its tree in the index, so it must not work on the user's.
        with private_index(repository.location.git_dir / "index") as copy:
            index = repository.git("write-tree", variables=copy).strip()
    except GitRefused:
        index = None
    return Position(head=repository.read_head(), branch=repository.read_branch(), index=index)


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
    """The checkpoints of one step: snapshots of the work tree, and the mark of a run in progress."""

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

    def mark_running(self) -> Position:
        """Return the current position, and store its index until ``clear_mark`` as the one to restore after a kill.

        Call it again after each commit, before the state records the commit: the old index lacks its files.
        """
        position = read_position(self.repository)
        saved = position.index or position.head
        if saved is not None:
            self.repository.git("update-ref", self.ref("running"), saved)
        return position

    def clear_mark(self) -> None:
        """Record that the work tree is at the last checkpoint, or that the step is over."""
        self.snapshots.forget(self.ref("running"))

    def killed_position(self, branch: str | None) -> Position | None:
        """Return the position to which a killed run returns; None if the last run of the step was not killed."""
        ref = self.ref("running")
        found = self.repository.git("for-each-ref", "--format=%(objecttype) %(objectname)", ref)
        kind, _, saved = found.partition(" ")
        if not kind:
            return None
        return Position(head=landed_head(self.step), branch=branch, index=saved.strip() if kind == "tree" else None)

    def find_last(self) -> Snapshot | None:
        """Return the newest checkpoint from which the step can continue."""
        name = self._last_name()
        return self.snapshots.find(name) if name else None

    def find_missing(self) -> str | None:
        """Return the ref of a checkpoint that the step needs and that no longer exists."""
        needed = (ref for ref in (self.step.checkpoint, self._last_name()) if ref)
        return next((ref for ref in needed if self.snapshots.find(ref) is None), None)

    def _last_name(self) -> str | None:
        step = self.step
        # A REFACTOR that was given up is in ``commits`` although its last attempt is closed: its files are not wanted.
        attempts = [each for each in step.attempts if each.verdict == "open" or each.phase not in step.commits]
        names = [ref for ref in (step.checkpoint, *(attempt.checkpoint for attempt in attempts)) if ref]
        return names[-1] if names else None

    def list_user_files(self) -> frozenset[str]:
        """Return the paths that differed from HEAD when the step began: the user's uncommitted work."""
        snapshot = self.snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        if snapshot is None or self.step.base_commit is None:
            return frozenset()
        return frozenset(self.snapshots.list_differing_paths(CommitId(self.step.base_commit), snapshot))


class StepRecovery:
    """Saves and restores files and history of one step of one ticket."""

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
        """Snapshot the work tree before the step, delete leftovers of earlier tries at it, and return the ref."""
        snapshots = self.context.snapshots
        snapshots.forget(self.checkpoints.ref("*"))
        self.checkpoints.freeze_ignore_rules()
        for stale in self.context.reports.glob(f"{_find_label(self.step)}-*.json"):
            stale.unlink()
        return snapshots.take(self.checkpoints.ref("start"), message=f"before step {self.step.step_number}").ref

    def is_underway(self) -> bool:
        """Return whether the step was interrupted and can continue."""
        if self.step.status != Status.IN_PROGRESS or self.step.checkpoint is None or self.checkpoints.find_missing():
            return False
        return bool(self.step.attempts or self.step.commits) or self.checkpoints.killed_position(None) is not None

    def require_checkpoints(self) -> None:
        """Raise ``UsageError`` if the step is in progress and one of its checkpoints no longer exists."""
        missing = self.checkpoints.find_missing()
        if self.step.status == Status.IN_PROGRESS and missing:
            name = self.context.step_name(self.step)
            restart = self.context.resume_commands(self.ticket, self.step).restart
            raise UsageError(
                f"{name[0].upper()}{name[1:]} is in progress, but its checkpoint {missing} is not in this repository.\n"
                "Nothing was touched.",
                hint=f"fetch it from the repository in which {name} began, or restart on the current commit: {restart}",
            )

    def restore_position(self, wanted: Position) -> None:
        """Restore HEAD, branch and index.

        Commits that are removed from the branch stay reachable under a new ref, which a notice reports.
        """
        repository = self.context.repository
        now = read_position(repository)
        if wanted.branch and now.branch != wanted.branch:
            ref = make_branch_ref(repository, wanted.branch)
            repository.git("symbolic-ref", "-m", "cdd: back to the branch", "HEAD", ref)
        head = repository.read_head()
        if head != wanted.head and wanted.head is not None:
            if head is not None:
                ref = self._free_ref("commits")
                repository.git("update-ref", ref, head)
                text = f"Removed commit {head[:10]}, which was made during the attempt. It is saved as {ref}"
                self.context.emit(Notice(text=text))
            target = resolve_revision(repository, wanted.head)
            repository.git("update-ref", "-m", "cdd: take a commit back", "HEAD", target)
        if wanted.index is not None and now.index != wanted.index:
            # -m keeps flags such as --skip-worktree, but git refuses it while the index has conflicts.
            keep_flags = ("-i", "-m") if now.index is not None else ()
            repository.git("read-tree", *keep_flags, wanted.index)

    def restore_checkpoint(self, position: Position | None) -> None:
        """Restore the files of the step's last checkpoint, and ``position`` unless it is None.

        A commit of exactly what an open gate saw stays, because it was about to be landed.
        """
        snapshots, snapshot = self.context.snapshots, self.checkpoints.find_last()
        if snapshot is None:
            return
        if snapshots.list_changes_since(snapshot):
            saved = snapshots.take(self._free_ref("interrupted"), message="interrupted")
            snapshots.restore(snapshot)
            self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why="an attempt was interrupted"))
        if position is not None and not self._is_landing(snapshot):
            self.restore_position(position)

    def restore_files(self, snapshot: Snapshot, *, only: tuple[str, ...]) -> None:
        """Save the files ``only`` as they are now, then restore them from ``snapshot``."""
        self.context.snapshots.take(self._free_ref("refused"), message="changes that were put back")
        self.context.snapshots.restore(snapshot, only=only)

    def require_own_files(self) -> None:
        """Raise ``UsageError`` unless files and HEAD are as the interrupted step left them.

        If all changes are gone, for example after ``git stash``, restore the step's files instead.
        """
        snapshot, snapshots = self.checkpoints.find_last(), self.context.snapshots
        if snapshot is None:
            return
        self.require_own_head()
        changed = [change.path for change in snapshots.list_changes_since(snapshot)]
        if changed and all(map(snapshots.is_excluded, self.context.repository.list_uncommitted())):
            snapshots.restore(snapshot)
            name = self.context.step_name(self.step)
            self.context.emit(Notice(text=f"Restored the files of {name} from its last checkpoint."))
        else:
            self._require_unchanged(changed, then=self.context.resume_commands(self.ticket, self.step).resume)

    def require_own_head(self) -> None:
        """Raise ``UsageError`` if HEAD is at a commit that the step did not make."""
        if self.is_own_head():
            return
        wanted, name = str(landed_head(self.step))[:10], self.context.step_name(self.step)
        commands = self.context.resume_commands(self.ticket, self.step)
        raise UsageError(
            f"{name[0].upper()}{name[1:]} was interrupted at commit {wanted}, but HEAD is at "
            f"{str(self.context.repository.read_head())[:10]}.\nNothing was touched.",
            hint=f"move your commits to a branch: git branch mine && git reset --keep {wanted}, "
            f"then: {commands.resume}; or keep them here and restart {name} on top of them: {commands.restart}",
        )

    def is_own_head(self) -> bool:
        """Return whether HEAD is where the landed phases left it, or at the commit that was about to be landed."""
        if self.context.repository.read_head() == landed_head(self.step):
            return True
        snapshot = self.checkpoints.find_last()
        return snapshot is None or self._is_landing(snapshot)

    def _is_landing(self, snapshot: Snapshot) -> bool:
        """Return whether HEAD is the commit of the last open attempt, which the state does not contain yet."""
        last = self.step.attempts[-1] if self.step.attempts else None
        if last is None or last.verdict != "open" or last.phase in self.step.commits:
            return False
        head, base = self.context.repository.read_head(), landed_head(self.step)
        if head is None or base is None:
            return False
        # The trailer is enough for a commit by cdd: a hook may have changed its files.
        trailer = "--format=%P %(trailers:key=Handoff-Id,valueonly,separator=%x2C)"
        parents, _, handoff = self.context.repository.git("log", "-1", trailer, head).strip().partition(" ")
        return (parents == base and bool(handoff.strip())) or self.has_only(snapshot, head=head, base=base)

    def has_only(self, snapshot: Snapshot, *, head: CommitId, base: CommitId) -> bool:
        """Return whether the commits from ``base`` to ``head`` hold the changes up to ``snapshot`` and no others.

        The user's uncommitted files do not count.
        """
        repository, snapshots = self.context.repository, self.context.snapshots
        try:
            repository.git("merge-base", "--is-ancestor", resolve_revision(repository, base), head)
        except GitRefused:
            return False
        theirs = self.checkpoints.list_user_files()
        changes = repository.list_changes(base, head)
        if any(change.path in theirs or snapshots.is_excluded(change.path) for change in changes):
            return False
        if changes != repository.list_changes(base, head, submodules=False):
            return False
        return theirs.issuperset(snapshots.list_differing_paths(head, snapshot))

    def undo(self, *, why: str) -> None:
        """Return work tree and branch to the start of the step."""
        snapshots = self.context.snapshots
        snapshot = snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        if snapshot is None:
            return
        saved = snapshots.take(self._free_ref("undone"), message=why)
        self._move_head_back()
        snapshots.restore(snapshot)
        self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why=why))

    def undo_if_underway(self, *, branch: str | None, why: str) -> None:
        """Undo the step if it is underway; if somebody else has committed since, restore the files of that commit.

        Raises ``UsageError`` if somebody else has changed files.
        """
        if not self.is_underway():
            return
        self.checkpoints.freeze_ignore_rules()
        killed = self.checkpoints.killed_position(branch)
        if not self.is_own_head():
            self._follow_head(why=why, was_killed=killed is not None)
        elif killed is not None:
            self.restore_checkpoint(killed)
        if self.context.repository.read_head() == landed_head(self.step):
            self.require_own_files()
            self.undo(why=why)
        self.checkpoints.clear_mark()

    def _follow_head(self, *, why: str, was_killed: bool) -> None:
        context, head, snapshot = self.context, self.context.repository.read_head(), self.checkpoints.find_last()
        if head is None:
            return
        wanted, theirs = Snapshot(ref="HEAD", commit=head), self.checkpoints.list_user_files()
        different = (change.path for change in context.snapshots.list_changes_since(wanted))
        stray = [path for path in different if path not in theirs and not context.snapshots.is_excluded(path)]
        # After a kill nobody knows which files the agent changed last, so the check would refuse its own work.
        if snapshot is not None and not was_killed:
            since = {change.path for change in context.snapshots.list_changes_since(snapshot)}
            self._require_unchanged(
                since.intersection(stray), then=context.resume_commands(self.ticket, self.step).restart
            )
        context.emit(Notice(text=_foreign_head(head)))
        if stray:
            saved = context.snapshots.take(self._free_ref("undone"), message=why)
            context.snapshots.restore(wanted, only=stray)
            context.emit(RolledBack(checkpoint="HEAD", kept=saved.ref, why=why))

    def _require_unchanged(self, changed: Collection[str], *, then: str) -> None:
        if not changed:
            return
        shown = "".join(f"\n  {path}" for path in sorted(changed)[:_MAX_PATHS_SHOWN])
        more = f"\n  and {len(changed) - _MAX_PATHS_SHOWN} more" if len(changed) > _MAX_PATHS_SHOWN else ""
        name = self.context.step_name(self.step)
        raise UsageError(
            f"Files were changed since {name} was interrupted:{shown}{more}\nNothing was touched.",
            hint=f"put all changes aside with git stash --include-untracked, then: {then}",
        )

    def _move_head_back(self) -> None:
        repository, base, head = self.context.repository, self.step.base_commit, self.context.repository.read_head()
        if head is None or base is None or head == base:
            return
        if head not in self.step.commits.values():
            self.context.emit(Notice(text=_foreign_head(head)))
            return
        repository.git("update-ref", self._free_ref("commits", under="abandoned"), head)
        move_head(repository, CommitId(base), expected=head, why=f"step {self.step.step_number} is undone")

    def _free_ref(self, word: str, *, under: str = "attempts") -> str:
        prefix = f"refs/cdd/{under}/{self.ticket}/step-{self.step.step_number}-{word}"
        used = set(self.context.repository.git("for-each-ref", "--format=%(refname)", f"{prefix}-*").split())
        return next(ref for ref in (f"{prefix}-{number}" for number in range(1, len(used) + 2)) if ref not in used)


def _foreign_head(head: CommitId) -> str:
    return f"HEAD is at {head[:10]}, a commit that this step did not make: cdd leaves the branch as it is."


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
    """Lock the repository and ``folder``, which belongs to a ticket or a run."""
    with alone(context.repository), lock_ticket(context.suite.root, folder):
        yield


def remove_leftovers(repository: Repository) -> None:
    """Delete half-written files and stale ref locks of a killed run; the caller holds the repository."""
    found = repository.git("ls-files", "--others", "--ignored", "--exclude=.*.cdd-*.tmp", "-z")
    for path in (Path(name) for name in found.split("\0") if name):
        if is_leftover(path.name):
            (repository.root / path).unlink(missing_ok=True)
    # Only cdd writes below refs/cdd. Git's other locks may belong to a command that the user is running.
    for lock in (repository.location.common_dir / "refs" / "cdd").rglob("*.lock"):
        lock.unlink(missing_ok=True)
