"""Restore files and take back landed commits after a step was interrupted or failed.

The user's files are saved under ``refs/cdd`` before they change.
"""

from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.git import commits
from cdd_agent.git.repository import CommitId
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.tdd.context import Context, Phase
from cdd_agent.tdd.step import StepRefs, find_label
from cdd_agent.work.state import AttemptRecord, Status, StepExecution


class StepRecovery:
    """Saves and restores the files of one step of one ticket."""

    def __init__(self, ticket: str, step: StepExecution, *, context: Context) -> None:
        """Changes nothing. ``step`` is a snapshot of the state: make a new object when the step has changed."""
        self.ticket = ticket
        self.step = step
        self.context = context
        self.refs = StepRefs(
            ticket=f"{ticket}/{context.fork}" if context.fork else ticket,
            step=step,
            repository=context.repository,
            snapshots=context.snapshots,
        )

    def report_path(self, name: str) -> Path:
        """Return the path of the step's test report ``name``."""
        return self.context.reports / f"{find_label(self.step)}-{name}.json"

    def name_attempt(self, phase: Phase, number: int | str) -> str:
        """Return the name of an attempt's snapshot and report; number 0 is the snapshot before the first one."""
        # After a return to RED, the names differ from those of the rounds before, whose evidence stays.
        return f"{'again-' * self.step.times_sent_back}{phase}-{number}"

    @property
    def examples_path(self) -> Path:
        """The file with the further examples for GREEN."""
        return self.report_path(self.name_attempt("green", "examples"))

    def baseline_ref(self, phase: Phase) -> str:
        """Return the ref of the files before ``phase``."""
        return self.refs.ref(self.name_attempt(phase, 0))

    def begin(self) -> str:
        """Prepare the files for the step, delete leftovers of earlier tries at it, and return the first snapshot."""
        snapshots = self.context.snapshots
        snapshots.forget(self.refs.ref("*"))
        for stale in self.context.reports.glob(f"{find_label(self.step)}-*.json"):
            stale.unlink()
        self.refs.save_tip(self.context.workplace.begin())
        self.refs.clear_attempt()
        self.refs.freeze_ignore_rules()
        return snapshots.take(self.refs.ref("start"), message=f"before step {self.step.step_number}").ref

    def is_underway(self) -> bool:
        """Return whether the step was interrupted and can continue."""
        return self.has_begun() and self.refs.find_missing() is None

    def has_begun(self) -> bool:
        """Return whether the step was interrupted after its first attempt; before that, it begins anew."""
        is_in_progress = self.step.status == Status.IN_PROGRESS and self.step.checkpoint is not None
        return is_in_progress and bool(self.step.attempts or self.step.commits)

    def require_snapshots(self) -> None:
        """Raise ``UsageError`` if the step is in progress and one of its snapshots no longer exists."""
        missing = self.refs.find_missing() if self.has_begun() else None
        if missing:
            name = self.context.step_name(self.step)
            restart = self.context.restart_command(self.step)
            raise UsageError(
                f"{name[0].upper()}{name[1:]} is in progress, but its snapshot {missing} is not in this repository.\n"
                "Nothing was touched.",
                hint=f"fetch it from the repository in which {name} began, or restart on the current commit: {restart}",
            )

    def read_snapshot(self, attempt: AttemptRecord) -> Snapshot:
        """Return the files that the gate has judged; raises ``UsageError`` if their snapshot no longer exists."""
        found = self.context.snapshots.find(attempt.checkpoint)
        if found is None:
            raise UsageError(
                f"The snapshot {attempt.checkpoint} is not in this repository. Nothing was changed.",
                hint=f"restart: {self.context.restart_command(self.step)}",
            )
        return found

    def find_attempt(self) -> CommitId | None:
        """Return the files from before the attempt that is under way; None if none is."""
        return self.refs.find_attempt(self._name_next_attempt())

    def continue_interrupted(self) -> bool:
        """Put the work of an interrupted attempt back into the files; return False if it does not fit them."""
        work, snapshots, tree = self.step.interrupted, self.context.snapshots, self.context.workplace.tree
        made = self.refs.repository.read_ref(work.files) if work is not None and work.files else None
        if made is None:
            return False
        now = snapshots.take_unsaved().commit
        base = CommitId(tree.objects.require(f"{made}^").id)
        # The step may have begun again on other files since.
        merged = tree.merge_trees(commits.commit_tree(tree, now, parent=base, message="present files"), made)
        if merged is None:
            return False
        snapshots.restore(Snapshot(ref="", commit=CommitId(merged)))
        return True

    def _name_next_attempt(self) -> str:
        phase = self.step.phase or "red"
        return self.name_attempt(phase, sum(each.phase == phase for each in self.step.attempts) + 1)

    def restore(self) -> CommitId | None:
        """Restore the files of the step's last snapshot after an interruption, and return the tip."""
        snapshot, tip = self.refs.find_last(), self.refs.read_tip()
        if snapshot is None or tip is None:
            return tip
        self.context.workplace.resume(tip)
        self.refs.clear_attempt()
        self.refs.freeze_ignore_rules()
        self.context.snapshots.restore(snapshot)
        return tip

    def restore_files(self, snapshot: Snapshot, *, only: tuple[str, ...]) -> None:
        """Save the files ``only`` as they are now, then restore them from ``snapshot``."""
        self.context.snapshots.take(self.free_ref("refused"), message="changes that were put back")
        self.context.snapshots.restore(snapshot, only=only)

    def set_aside(self, attempt: AttemptRecord) -> str | None:
        """Keep the files of an attempt under a new ref, and return it; None if its snapshot is lost."""
        found = self.context.snapshots.find(attempt.checkpoint)
        if found is None:
            return None
        ref = self.free_ref("code")
        self.context.repository.refs.set(ref, found.commit)
        return ref

    def can_undo_red(self) -> bool:
        """Return whether RED's commit can be taken back: nobody has committed on top of it."""
        before, red = self._find_base_of_red(), self.step.commits.get("red")
        is_saved = self.context.snapshots.find(self.baseline_ref("red")) is not None
        return is_saved and before is not None and self.context.repository.read_head() in (red, before)

    def undo_red(self, *, why: str, kept: str) -> CommitId:
        """Return files and branch to the state before RED, and return the new tip; the ref ``kept`` has the files."""
        context, base = self.context, self._find_base_of_red()
        snapshot, tip = context.snapshots.find(self.baseline_ref("red")), self.refs.read_tip()
        assert base is not None
        assert snapshot is not None
        assert tip is not None
        self._take_back(base)
        tip = context.workplace.follow(base, made=None, tip=tip)
        context.snapshots.restore(snapshot)
        self.refs.save_tip(tip)
        context.emit(RolledBack(checkpoint=snapshot.ref, kept=kept, why=why))
        return tip

    def _find_base_of_red(self) -> CommitId | None:
        """Return the commit before that of RED."""
        phases = list(self.step.commits)
        earlier = phases[: phases.index("red")] if "red" in phases else phases
        base = self.step.commits[earlier[-1]] if earlier else self.step.base_commit
        return CommitId(base) if base else None

    def undo(self, *, why: str) -> None:
        """Return files and branch to the start of the step; commits of somebody else on top of it stay."""
        snapshots = self.context.snapshots
        snapshot = snapshots.find(self.step.checkpoint)
        if snapshot is None:
            return
        saved = snapshots.take(self.free_ref("undone"), message=why)
        if (start := self._find_start()) is not None:
            self._take_back(start)
        snapshots.restore(snapshot)
        self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why=why))

    def undo_if_underway(self, *, why: str) -> None:
        """Undo the step if it is underway."""
        if self.is_underway():
            self.restore()
            self.undo(why=why)

    def _find_start(self) -> CommitId | None:
        """Return the commit to which the branch returns; None if it stays."""
        repository, base, head = self.context.repository, self.step.base_commit, self.context.repository.read_head()
        if head is None or base is None or head == base:
            return None
        if head not in self.step.commits.values():
            text = f"HEAD is at {head[:10]}, a commit that this step did not make: cdd leaves the branch as it is."
            self.context.emit(Notice(text=text))
            return None
        # The user may have committed between two phases: stop at the first commit that cdd did not make.
        own, target = set(self.step.commits.values()), head
        while target in own and target != base:
            target = CommitId(repository.objects.require(f"{target}^").id)
        if target != base:
            text = f"The branch returns to {target[:10]}, a commit that this step did not make."
            self.context.emit(Notice(text=text))
        return target

    def _take_back(self, target: CommitId) -> None:
        """Return branch and files of the user to ``target``; a ref keeps the commits."""
        head = self.context.repository.read_head()
        if head is not None and head != target:
            self.context.repository.git("update-ref", self.free_ref("commits", under="abandoned"), head)
            self.context.workplace.take_back(head, base=target)

    def free_ref(self, word: str, *, under: str = "attempts") -> str:
        """Return the name of a ref of the step that does not exist yet."""
        prefix = f"refs/cdd/{under}/{self.ticket}/step-{self.step.step_number}-{word}"
        used = self.context.repository.list_ref_names(f"refs/cdd/{under}/")
        return next(ref for ref in (f"{prefix}-{number}" for number in range(1, len(used) + 2)) if ref not in used)
