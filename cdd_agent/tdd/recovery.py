"""Going back: to the last checkpoint after an interruption, to the start of the step after the last failed attempt.

Whatever is undone is kept under a ref first, and HEAD moves back only over commits that the program itself made.
"""

from pathlib import Path

from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.commits import move_head
from cdd_agent.git.repository import CommitId
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.tdd.policy import WorkItem
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import StepExecution


def checkpoint_ref(item: WorkItem, name: str) -> str:
    """Where the snapshot ``name`` of this step is kept."""
    return f"refs/cdd/checkpoints/{item.ticket}/step-{item.number}-{name}"


def report_path(item: WorkItem, name: str, *, bench: Workbench) -> Path:
    """Where the report ``name`` of this step is kept."""
    return bench.reports / f"step-{item.number}-{name}.json"


def begin(item: WorkItem, *, bench: Workbench) -> str:
    """Keep the work tree as the step finds it, drop what an earlier try at the step left, and return the ref."""
    bench.snapshots.forget(f"refs/cdd/checkpoints/{item.ticket}/step-{item.number}-*")
    for stale in bench.reports.glob(f"step-{item.number}-*.json"):
        stale.unlink()
    return bench.snapshots.take(checkpoint_ref(item, "start"), message=f"before step {item.number}").ref


def last_checkpoint(step: StepExecution, *, bench: Workbench) -> Snapshot | None:
    """The newest state of the work tree that the step may go on from."""
    refs = [step.checkpoint, *(attempt.checkpoint for attempt in step.attempts)]
    named = [ref for ref in refs if ref]
    return bench.snapshots.find(named[-1]) if named else None


def return_to_checkpoint(item: WorkItem, step: StepExecution, *, bench: Workbench) -> None:
    """Bring the work tree back to the step's last checkpoint; what was there is kept under ``refs/cdd/attempts``."""
    snapshot = last_checkpoint(step, bench=bench)
    if snapshot is None or not bench.snapshots.changes_since(snapshot):
        return
    kept = bench.snapshots.take(
        f"refs/cdd/attempts/{item.ticket}/step-{item.number}-interrupted", message="interrupted"
    )
    bench.snapshots.restore(snapshot)
    bench.emit(RolledBack(checkpoint=snapshot.ref, kept=kept.ref, why="an attempt was interrupted"))


def undo_step(item: WorkItem, step: StepExecution, *, bench: Workbench) -> None:
    """Bring work tree and branch back to where the step began."""
    snapshot = bench.snapshots.find(step.checkpoint) if step.checkpoint else None
    if snapshot is None:
        return
    kept = bench.snapshots.take(f"refs/cdd/attempts/{item.ticket}/step-{item.number}-failed", message="failed")
    _move_head_back(item, step, bench=bench)
    bench.snapshots.restore(snapshot)
    bench.emit(RolledBack(checkpoint=snapshot.ref, kept=kept.ref, why="the attempts are used up"))


def _move_head_back(item: WorkItem, step: StepExecution, *, bench: Workbench) -> None:
    """Take the step's own commits off the branch; they stay reachable under ``refs/cdd/abandoned``."""
    head = bench.repository.head()
    if head is None or step.base_commit is None or head == step.base_commit:
        return
    if head not in step.commits.values():
        bench.emit(Notice(text=f"HEAD is at a commit of somebody else's ({head[:10]}): the branch is left as it is."))
        return
    bench.repository.git("update-ref", f"refs/cdd/abandoned/{item.ticket}/step-{item.number}", head)
    move_head(bench.repository, CommitId(step.base_commit), expected=head, why=f"step {item.number} failed")


def user_files(step: StepExecution, *, bench: Workbench) -> frozenset[str]:
    """Paths that differed from HEAD when the step began: the user's uncommitted work."""
    snapshot = bench.snapshots.find(step.checkpoint) if step.checkpoint else None
    if snapshot is None or step.base_commit is None:
        return frozenset()
    return frozenset(bench.snapshots.paths_unlike(CommitId(step.base_commit), snapshot))
