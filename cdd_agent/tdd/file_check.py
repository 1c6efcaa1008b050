"""The files that an attempt has changed: forbidden ones are restored, and the developer is asked about unusual ones."""

from collections.abc import Collection
from dataclasses import dataclass

from cdd_agent.events import Change
from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.git.repository import EXECUTABLE, LINK, SUBMODULE
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.tdd import verdict
from cdd_agent.tdd.kinds import ask_to_land, find_started, is_settings
from cdd_agent.tdd.phase_task import PhaseTask
from cdd_agent.untrusted.paths import is_cached
from pytest_tdd_agent.report import Clause, Reason, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The files as the agent left them."""

    snapshot: Snapshot
    changes: tuple[Change, ...]
    """Since the phase began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """The rules on the files of one attempt."""

    task: PhaseTask

    def restore_forbidden(self, work: Work) -> tuple[tuple[Reason, ...], Snapshot]:
        """Restore the files that the phase may not change; return a reason for each and the remaining work.

        Caches are removed without a reason: every program that the agent runs may have left some.
        """
        cached = tuple(change.path for change in work.changes if is_cached(change.path))
        others = tuple(change for change in work.changes if change.path not in cached)
        fixed = self.task.context.workplace.tree.explain_fixed([change.path for change in others])
        forbidden = self.task.make_locks().find_forbidden_changes(others, fixed=fixed)
        free = [change for change in others if change.path not in forbidden]
        waiting = self._find_waiting(free, work.snapshot)
        is_asked = self.task.context.choose is not None
        forbidden |= self._refuse_waiting(
            {path: why for path, why in waiting.items() if not is_asked or path in self.task.context.declined}
        )
        if not (forbidden or cached):
            return (), work.snapshot
        self.task.recovery.restore_files(self.task.baseline.snapshot, only=(*forbidden, *cached))
        message = f"{self.task.phase} without its forbidden changes"
        return tuple(dict.fromkeys(forbidden.values())), self.task.context.snapshots.take(
            work.snapshot.ref, message=message
        )

    def find_copied_values(self, snapshot: Snapshot) -> Findings:
        """Return a reason if the changes hold a value of a file that git does not track."""
        known = self.task.known
        if not known:
            return Findings()
        objects, before = self.task.context.workplace.tree.objects, self.task.baseline.snapshot.commit
        files: dict[str, tuple[bytes | None, bytes]] = {}
        for path, (old, new) in objects.compare(before, snapshot.commit).items():
            if new is not None and new.mode != SUBMODULE:
                was = objects.require(old.id).data if old is not None and old.mode != SUBMODULE else None
                files[path] = was, objects.require(new.id).data
        return verdict.find_copied_values(files, known=known)

    def require_yes(self, judged: Verdict, snapshot: Snapshot) -> tuple[Verdict, Snapshot]:
        """Ask the developer about files of unusual kinds if they would land.

        Return the verdict, which is closed after a no, and the remaining work.
        """
        context, codes = self.task.context, {reason.code for reason in judged.reasons}
        # Tests that pass at once may land although the gate is closed.
        if context.choose is None or not (judged.open or codes == {"already_green"}):
            return judged, snapshot
        changes = context.snapshots.list_changes_since(self.task.baseline.snapshot, until=snapshot)
        waiting = self._find_waiting(changes, snapshot)
        if not waiting:
            return judged, snapshot
        if ask_to_land(waiting, choose=context.choose):
            context.allowed.update(waiting)
            return judged, snapshot
        context.declined.update(waiting)
        reasons = tuple(dict.fromkeys(self._refuse_waiting(waiting).values()))
        self.task.recovery.restore_files(self.task.baseline.snapshot, only=tuple(waiting))
        message = f"{self.task.phase} without the files that the developer declined"
        closed = Verdict(phase=self.task.phase, open=False, reasons=reasons)
        return closed, context.snapshots.take(snapshot.ref, message=message)

    def _refuse_waiting(self, waiting: dict[str, Clause]) -> dict[str, Reason]:
        """Return path -> the reason against all of ``waiting``, path -> why."""
        if self.task.kinds is None or not waiting:
            return {}
        return dict.fromkeys(waiting, self.task.context.refuse_waiting(waiting, kinds=self.task.kinds))

    def _find_waiting(self, changes: Collection[Change], after: Snapshot) -> dict[str, Clause]:
        """Return path -> why for the changed files of unusual kinds, by their names, modes and contents."""
        kinds, objects = self.task.kinds, self.task.context.workplace.tree.objects
        if kinds is None or not changes:
            return {}
        pairs = objects.compare(self.task.baseline.snapshot.commit, after.commit)
        modes = {path: new.mode for path, (_, new) in pairs.items() if new is not None}
        links, programs = ([path for path in modes if modes[path] == mode] for mode in (LINK, EXECUTABLE))
        waiting = kinds.find_waiting(changes, links=links, programs=programs)
        for change in changes:
            old, new = pairs.get(change.path, (None, None))
            is_content = change.path not in {*waiting, *kinds.named, *kinds.allowed} and is_settings(change.path)
            if is_content and old is not None and new is not None:
                before, now = (objects.require(entry.id).data for entry in (old, new))
                why = find_started(change.path, before=before, after=now)
                waiting |= {} if why is None else {change.path: why}
        return waiting
