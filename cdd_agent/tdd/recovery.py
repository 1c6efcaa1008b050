"""Going back: to the last checkpoint after an interruption, to the start of the step after the last failed attempt.

Whatever is undone is kept under a ref of its own first. HEAD moves back only over commits that the program or the
agent made during the step; where a run was killed, nobody can tell who made them, and they stay.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.commits import move_head
from cdd_agent.git.repository import CommitId, Repository, branch_ref, private_index, require_usable, resolved
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.storage import is_leftover, scratch
from cdd_agent.tdd.context import Context, Keeping
from cdd_agent.work.lock import holding_repository, holding_ticket
from cdd_agent.work.state import Status, StepExecution

_LABEL = re.compile(r"step-\d+-\w+")
"""What the names of all that is kept of a step begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the history stands, the files apart."""

    head: CommitId | None
    branch: str | None
    """None: HEAD is detached."""
    index: str | None
    """The tree of what is staged; None while there are conflicts in it."""


def position(repository: Repository) -> Position:
    """Where the history stands now."""
    try:
        with private_index(repository.place.git_dir / "index") as copy:  # in the user's it would note the tree's id
            index = repository.git("write-tree", variables=copy).strip()
    except GitUnable:
        raise
    except GitError:
        index = None
    return Position(head=repository.head(), branch=repository.branch(), index=index)


def put_back(wanted: Position, *, ticket: str, step: StepExecution, context: Context) -> None:
    """Make HEAD, branch and index stand where they did; commits that this takes off are kept, and told."""
    repository = context.repository
    now = position(repository)
    if wanted.branch and now.branch != wanted.branch:
        ref = branch_ref(repository, wanted.branch)
        repository.git("symbolic-ref", "-m", "cdd: back to the branch", "HEAD", ref)
    head = repository.head()
    if head != wanted.head and wanted.head is not None:
        if head is not None:
            ref = _free_ref(ticket, step, word="commits", context=context)
            repository.git("update-ref", ref, head)
            context.emit(Notice(text=f"A commit made during the attempt ({head[:10]}) was taken back; kept: {ref}"))
        repository.git("update-ref", "-m", "cdd: take a commit back", "HEAD", resolved(repository, wanted.head))
    if wanted.index is not None and now.index != wanted.index:
        marks_stay = ("-i", "-m") if now.index is not None else ()  # as of --skip-worktree; not over conflicts
        repository.git("read-tree", *marks_stay, wanted.index)


def checkpoint_ref(ticket: str, step: StepExecution, *, name: str) -> str:
    """Where the snapshot ``name`` of this step is kept."""
    return f"refs/cdd/checkpoints/{ticket}/{_label(step)}-{name}"


def report_path(step: StepExecution, name: str, *, context: Context) -> Path:
    """Where the report ``name`` of this step is kept."""
    return context.reports / f"{_label(step)}-{name}.json"


def _label(step: StepExecution) -> str:
    """The step's name: not its number alone, as an edited plan may give that to another step.

    A step that was begun keeps the name it was begun by, whatever its number has become since.
    """
    known = _LABEL.match((step.checkpoint or "").rpartition("/")[2])
    if known:
        return known[0]
    return label(step.step_number, step.base_commit)


def label(number: int, base: str | None) -> str:
    """The name by which the step of this number is begun on ``base``; empty or None: on no commit."""
    return f"step-{number}-{(base or 'root')[:8]}"


def _free_ref(ticket: str, step: StepExecution, *, word: str, context: Context, under: str = "attempts") -> str:
    """A ref that nothing is kept under yet."""
    prefix = f"refs/cdd/{under}/{ticket}/step-{step.step_number}-{word}"
    taken = set(context.repository.git("for-each-ref", "--format=%(refname)", f"{prefix}-*").split())
    return next(ref for ref in (f"{prefix}-{number}" for number in range(1, len(taken) + 2)) if ref not in taken)


def begin(ticket: str, step: StepExecution, *, context: Context) -> str:
    """Keep the work tree as the step finds it, drop what an earlier try at the step left, and return the ref."""
    context.snapshots.forget(checkpoint_ref(ticket, step, name="*"))
    hold_ignored(ticket, step, context=context)
    for stale in context.reports.glob(f"{_label(step)}-*.json"):
        stale.unlink()
    return context.snapshots.take(
        checkpoint_ref(ticket, step, name="start"), message=f"before step {step.step_number}"
    ).ref


def hold_ignored(ticket: str, step: StepExecution, *, context: Keeping) -> None:
    """Judge what is ignored by the rules as they were when the step began, whatever becomes of them in it."""
    context.snapshots.hold_ignored(checkpoint_ref(ticket, step, name="ignored"))


def note_position(ticket: str, step: StepExecution, *, context: Context) -> Position:
    """Where an interruption or a kill goes back to from now on: what is committed and staged now, until ``clear_mark``.

    To be renewed after each commit, before the state knows of it: the index of before would miss what was committed.
    """
    at = position(context.repository)
    mark_running(ticket, step, at=at, context=context)
    return at


def mark_running(ticket: str, step: StepExecution, *, at: Position, context: Context) -> None:
    """Note, until ``clear_mark``, that files and history may be half-done, and what was staged before."""
    kept = at.index or at.head
    if kept is not None:
        context.repository.git("update-ref", checkpoint_ref(ticket, step, name="running"), kept)


def clear_mark(ticket: str, step: StepExecution, *, context: Keeping) -> None:
    """Note that the work tree stands at the last checkpoint again, or that the step is over."""
    context.snapshots.forget(checkpoint_ref(ticket, step, name="running"))


def killed_at(ticket: str, step: StepExecution, *, branch: str | None, context: Keeping) -> Position | None:
    """Where a run that was killed in the step has to return to; None if it ended in order."""
    ref = checkpoint_ref(ticket, step, name="running")
    kind, _, kept = context.repository.git("for-each-ref", "--format=%(objecttype) %(objectname)", ref).partition(" ")
    if not kind:
        return None
    return Position(head=landed_head(step), branch=branch, index=kept.strip() if kind == "tree" else None)


def landed_head(step: StepExecution) -> CommitId | None:
    """Where HEAD is when nothing but the landed phases of the step has moved it."""
    commits = [commit for commit in step.commits.values() if commit]
    return CommitId(commits[-1]) if commits else CommitId(step.base_commit) if step.base_commit else None


def is_underway(ticket: str, step: StepExecution, *, context: Context) -> bool:
    """Whether the step was begun and interrupted, and something of it is there to go on from."""
    if step.status != Status.IN_PROGRESS or step.checkpoint is None or lost_checkpoint(step, context=context):
        return False
    return bool(step.attempts or step.commits) or killed_at(ticket, step, branch=None, context=context) is not None


def lost_checkpoint(step: StepExecution, *, context: Context) -> str | None:
    """The name of a checkpoint that the step would go on from or back to, and that is not there any more."""
    named = (ref for ref in (step.checkpoint, _last_named(step)) if ref)
    return next((ref for ref in named if context.snapshots.find(ref) is None), None)


def last_checkpoint(step: StepExecution, *, context: Keeping) -> Snapshot | None:
    """The newest state of the work tree that the step may go on from; a phase given up left none."""
    named = _last_named(step)
    return context.snapshots.find(named) if named else None


def _last_named(step: StepExecution) -> str | None:
    attempts = [a for a in step.attempts if a.verdict == "open" or a.phase not in step.commits]
    named = [ref for ref in (step.checkpoint, *(attempt.checkpoint for attempt in attempts)) if ref]
    return named[-1] if named else None


def return_to_checkpoint(ticket: str, step: StepExecution, *, at: Position | None, context: Context) -> None:
    """Bring files and history back to the step's last checkpoint; what was there is kept under ``refs/cdd/attempts``.

    A commit of exactly what the gate let pass stays: it was about to be landed. ``at`` is None if the history cannot
    have moved.
    """
    snapshot = last_checkpoint(step, context=context)
    if snapshot is None:
        return
    if context.snapshots.changes_since(snapshot):
        kept = context.snapshots.take(
            _free_ref(ticket, step, word="interrupted", context=context), message="interrupted"
        )
        context.snapshots.restore(snapshot)
        context.emit(RolledBack(checkpoint=snapshot.ref, kept=kept.ref, why="an attempt was interrupted"))
    if at is not None and not _is_landing(step, snapshot, context=context):
        put_back(at, ticket=ticket, step=step, context=context)


def put_files_back(
    snapshot: Snapshot, *, ticket: str, step: StepExecution, only: tuple[str, ...], context: Context
) -> None:
    """Bring the files ``only`` back to ``snapshot``; what was in them is kept under ``refs/cdd/attempts``."""
    context.snapshots.take(
        _free_ref(ticket, step, word="refused", context=context), message="changes that were put back"
    )
    context.snapshots.restore(snapshot, only=only)


def reclaim(ticket: str, step: StepExecution, *, context: Context) -> None:
    """Make sure that files and HEAD are as the interrupted step left them.

    If they are not, that is somebody else's work and a ``UsageError``; unless all of it was put aside, as by
    ``git stash``: then the step's files are brought back.
    """
    snapshot = last_checkpoint(step, context=context)
    if snapshot is None:
        return
    require_own_head(ticket, step, context=context)
    changed = [change.path for change in context.snapshots.changes_since(snapshot)]
    if changed and all(map(context.snapshots.leaves_out, context.repository.uncommitted())):
        context.snapshots.restore(snapshot)
        told = f"The files of {context.called(step)} were brought back from its last checkpoint."
        context.emit(Notice(text=told))
    else:
        _require_unchanged(context.called(step), changed, go_on=context.ways_on(ticket, step).go_on)


def require_own_head(ticket: str, step: StepExecution, *, context: Context) -> None:
    """Raise ``UsageError`` if HEAD is at a commit that the step did not make: that is somebody else's work."""
    if _is_own_head(step, context=context):
        return
    wanted, called = str(landed_head(step))[:10], context.called(step)
    ways = context.ways_on(ticket, step)
    raise UsageError(
        f"{called[0].upper()}{called[1:]} was interrupted at commit {wanted}; HEAD is at "
        f"{str(context.repository.head())[:10]} now.\nNothing was touched.",
        hint=f"keep your commits aside: git branch mine && git reset --keep {wanted}, then: {ways.go_on}; "
        f"or keep them on the branch and begin {called} anew after them: {ways.anew}",
    )


def _is_own_head(step: StepExecution, *, context: Context) -> bool:
    """Whether HEAD is where the step's landed phases left it, or at the commit that was about to be landed."""
    if context.repository.head() == landed_head(step):
        return True
    snapshot = last_checkpoint(step, context=context)
    return snapshot is None or _is_landing(step, snapshot, context=context)


def _is_landing(step: StepExecution, snapshot: Snapshot, *, context: Context) -> bool:
    """Whether HEAD holds just what the gate let pass last and the state does not know yet."""
    last = step.attempts[-1] if step.attempts else None
    if last is None or last.verdict != "open" or last.phase in step.commits:
        return False
    head, base = context.repository.head(), landed_head(step)
    if head is None or base is None:
        return False
    return _is_ours(head, base=base, context=context) or holds_only(
        head, snapshot, step=step, base=base, context=context
    )


def _is_ours(head: CommitId, *, base: CommitId, context: Context) -> bool:
    """Whether the program made ``head`` right after ``base``; a hook may have changed what it holds."""
    shown = context.repository.git("log", "-1", "--format=%P %(trailers:key=Handoff-Id,valueonly,separator=%x2C)", head)
    parents, _, identity = shown.strip().partition(" ")
    return parents == base and bool(identity.strip())


def holds_only(head: CommitId, snapshot: Snapshot, *, step: StepExecution, base: CommitId, context: Context) -> bool:
    """Whether ``head`` follows ``base`` and brings it to the files of ``snapshot``, the user's own changes left out."""
    try:
        context.repository.git("merge-base", "--is-ancestor", resolved(context.repository, base), head)
    except GitUnable:
        raise
    except GitError:
        return False
    theirs = user_files(step, context=context)
    brought = context.repository.changes(base, head)
    foreign = any(change.path in theirs or context.snapshots.leaves_out(change.path) for change in brought)
    foreign = foreign or brought != context.repository.changes(base, head, submodules=False)
    return not foreign and theirs.issuperset(context.snapshots.paths_unlike(head, snapshot))


def undo_step(ticket: str, step: StepExecution, *, why: str, context: Context) -> None:
    """Bring work tree and branch back to where the step began."""
    snapshot = context.snapshots.find(step.checkpoint) if step.checkpoint else None
    if snapshot is None:
        return
    kept = context.snapshots.take(_free_ref(ticket, step, word="undone", context=context), message=why)
    _move_head_back(ticket, step, context=context)
    context.snapshots.restore(snapshot)
    context.emit(RolledBack(checkpoint=snapshot.ref, kept=kept.ref, why=why))


def take_back(ticket: str, step: StepExecution, *, branch: str | None, why: str, context: Context) -> None:
    """Undo a step that is underway; commits of somebody else's stay where they are, and the files follow them.

    Raises ``UsageError`` if there are changes of somebody else's in the files.
    """
    if not is_underway(ticket, step, context=context):
        return
    hold_ignored(ticket, step, context=context)
    killed = killed_at(ticket, step, branch=branch, context=context)
    if not _is_own_head(step, context=context):
        _follow_head(ticket, step, why=why, was_killed=killed is not None, context=context)
    elif killed is not None:
        return_to_checkpoint(ticket, step, at=killed, context=context)
    if context.repository.head() == landed_head(step):
        reclaim(ticket, step, context=context)
        undo_step(ticket, step, why=why, context=context)
    clear_mark(ticket, step, context=context)


def _follow_head(ticket: str, step: StepExecution, *, why: str, was_killed: bool, context: Context) -> None:
    """Bring the files to HEAD, the user's own from before the step left out; what was there is kept.

    Raises ``UsageError`` if others were changed since the step ended in order; where it was killed nobody can tell.
    """
    head, snapshot = context.repository.head(), last_checkpoint(step, context=context)
    if head is None:
        return
    wanted, theirs = Snapshot(ref="HEAD", commit=head), user_files(step, context=context)
    unlike = (change.path for change in context.snapshots.changes_since(wanted))
    stray = [path for path in unlike if path not in theirs and not context.snapshots.leaves_out(path)]
    if snapshot is not None and not was_killed:
        since = {change.path for change in context.snapshots.changes_since(snapshot)}
        changed = since.intersection(stray)
        _require_unchanged(context.called(step), changed, go_on=context.ways_on(ticket, step).anew)
    context.emit(Notice(text=f"HEAD is at a commit of somebody else's ({head[:10]}): the branch is left as it is."))
    if stray:
        kept = context.snapshots.take(_free_ref(ticket, step, word="undone", context=context), message=why)
        context.snapshots.restore(wanted, only=stray)
        context.emit(RolledBack(checkpoint="HEAD", kept=kept.ref, why=why))


def _require_unchanged(called: str, changed: Collection[str], *, go_on: str) -> None:
    """Raise ``UsageError`` if there are files that were changed since what is ``called`` so was interrupted."""
    if not changed:
        return
    shown = "".join(f"\n  {path}" for path in sorted(changed)[:10])
    more = f"\n  and {len(changed) - 10} more" if len(changed) > 10 else ""
    raise UsageError(
        f"Files were changed since {called} was interrupted:{shown}{more}\nNothing was touched.",
        hint=f"put all changes aside with git stash --include-untracked, then: {go_on}",
    )


def _move_head_back(ticket: str, step: StepExecution, *, context: Context) -> None:
    """Take the step's own commits off the branch; they stay reachable under ``refs/cdd/abandoned``."""
    head = context.repository.head()
    if head is None or step.base_commit is None or head == step.base_commit:
        return
    if head not in step.commits.values():
        context.emit(Notice(text=f"HEAD is at a commit of somebody else's ({head[:10]}): the branch is left as it is."))
        return
    context.repository.git(
        "update-ref", _free_ref(ticket, step, word="commits", context=context, under="abandoned"), head
    )
    move_head(context.repository, CommitId(step.base_commit), expected=head, why=f"step {step.step_number} is undone")


@contextmanager
def alone(repository: Repository) -> Iterator[None]:
    """Be the only one at work in the repository; what killed runs left behind is removed first.

    Raises ``UsageError`` if another process is at work, ``GitUnable`` if no commit could be made.
    """
    require_usable(repository.place)
    with holding_repository(repository.place.common_dir) as was_killed, scratch():
        if was_killed:
            sweep(repository)
        yield


@contextmanager
def alone_on(folder: Path, *, context: Context) -> Iterator[None]:
    """``alone``, and the only one to write what ``folder`` holds, a ticket's or a run's."""
    with alone(context.repository), holding_ticket(context.suite.root, folder):
        yield


def sweep(repository: Repository) -> None:
    """Remove what a killed run left: half-written files, ignored ones too, and git's locks on refs of ours.

    Only for who holds the repository: no other process writes below ``refs/cdd`` then. Git's other locks may be the
    user's, and stay.
    """
    listed = repository.git("ls-files", "--others", "--ignored", "--exclude=.*.cdd-*.tmp", "-z")
    for path in (Path(name) for name in listed.split("\0") if name):
        if is_leftover(path.name):
            (repository.root / path).unlink(missing_ok=True)
    for lock in (repository.place.common_dir / "refs" / "cdd").rglob("*.lock"):
        lock.unlink(missing_ok=True)


def user_files(step: StepExecution, *, context: Keeping) -> frozenset[str]:
    """Paths that differed from HEAD when the step began: the user's uncommitted work."""
    snapshot = context.snapshots.find(step.checkpoint) if step.checkpoint else None
    if snapshot is None or step.base_commit is None:
        return frozenset()
    return frozenset(context.snapshots.paths_unlike(CommitId(step.base_commit), snapshot))
