"""Roll a branch back to an earlier commit of a run, and undo that.

A rollback is planned first, shown to the user, then applied. Removed commits and the work tree before the rollback
stay reachable through its record. If a file with uncommitted user changes is in the way, nothing happens.

To apply it, cdd first stores the record under a temporary ref, then changes files, branch, index, run files and
checkpoints, in this order, and deletes the ref. Each part can be repeated, so after a kill the next command finishes.

An archive can bring such refs. A list among the user's records names the rollbacks that cdd made; others are refused.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from cdd_agent.errors import UsageError, join_first
from cdd_agent.events import CommitMoved, Emit, Notice, RollbackPlanned, RolledBack
from cdd_agent.git.commits import refresh_index, require_finished
from cdd_agent.git.notes import Note, read_handoffs, survey_notes
from cdd_agent.git.repository import ROLLBACK, CommitId, Repository, resolve_revision
from cdd_agent.git.runner import GitRefused
from cdd_agent.git.tree_store import REF, Checkpoint, Checkpoints, Description, Snapshot, TreeStore
from cdd_agent.runs import records
from cdd_agent.runs.feature import BEGIN, PREFIX, RUN
from cdd_agent.runs.records import Files, RollbackRecord, StoredRecord, decode_states, rewind
from cdd_agent.storage import write_atomic
from cdd_agent.tdd.locks import alone
from cdd_agent.tdd.step import StepRefs, landed_head
from cdd_agent.work.handoff import Handoff
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, StepExecution

_CHECKPOINTS = f"refs/cdd/checkpoints/{PREFIX}"
_BEFORE = "refs/cdd/rollback/before"
_MAX_LISTED_PATHS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """The effects of a rollback, or of its undo, before it is applied."""

    record: RollbackRecord
    """The record to store. Its snapshot is taken when the plan is applied."""
    before: Files
    """The states of the runs."""
    after: Files
    effects: RollbackPlanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollbacks:
    """Plans, applies and finishes rollbacks of one project.

    Plan and apply inside one ``alone``, so that no other cdd process changes the repository in between.
    """

    repository: Repository
    snapshots: TreeStore
    root: Path
    """The project's folder, which may be below the work tree's."""
    emit: Emit

    @classmethod
    def of_project(cls, root: Path, *, emit: Emit) -> Self:
        """Return the rollbacks of the project at ``root``. Raises ``EnvironmentMissing`` without a repository."""
        repository = Repository.find(root)
        return cls(repository=repository, snapshots=TreeStore(repository), root=root, emit=emit)

    @property
    def runs(self) -> Path:
        """The folder with the states of all runs."""
        return find_records(self.root).folder / "runs"

    @property
    def reports(self) -> Path:
        """The folder with the test reports of all runs and tickets."""
        return find_records(self.root).folder / "reports"

    @property
    def made(self) -> Path:
        """The file that names the records of all rollbacks that the user's cdd made in this repository."""
        return find_records(self.root).repository / "rollbacks"

    def plan(self, name: str) -> RollbackPlan:
        """Plan a rollback to the commit ``name``: an id, a branch, a tag, or ``HEAD~2``. Changes nothing.

        Raises ``UsageError`` if there is nothing to roll back to there, if a merge or rebase is in progress, or if
        uncommitted user changes are in the way; ``NotesDamaged`` if the commit's note cannot be read.
        """
        repository = self.repository
        branch, source = self._find_start()
        target, handoff = _find_target(repository, name)
        before = records.read_runs(self.runs)
        uncommitted = self._find_uncommitted(before, source)
        if target == source and not uncommitted:
            raise UsageError(f"HEAD is at {source[:10]} already.", hint="list earlier commits: cdd tdd history")
        paths = (*(change.path for change in repository.list_changes(source, target)), *uncommitted)
        record = RollbackRecord(
            number=records.next_number(repository),
            ticket=handoff.ticket,
            branch=branch,
            source=source,
            target=target,
            snapshot=source,
            restored=tuple(dict.fromkeys(paths)),
            uncommitted=uncommitted,
            by_commit=tuple(dict.fromkeys(paths)),
            refs=_list_checkpoints(repository),
        )
        removed = {each.commit for each in _list_commits(repository, f"{target}..{source}")}
        after = rewind(before, handoff, commit=target, removed=removed)
        return self._build_plan(record, before=before, after=after, next_phase=handoff.next_phase)

    def plan_undo(self) -> RollbackPlan:
        """Plan the undo of the last rollback or undo. Changes nothing. Raises as ``plan`` does."""
        repository = self.repository
        branch, source = self._find_start()
        last = records.load_newest(repository)
        if last is None:
            raise UsageError("Nothing was rolled back in this repository.", hint="roll back: cdd tdd rollback COMMIT")
        old = last.record
        show_removed = f"see the removed commits: git log {old.ref}^"
        if not records.is_own(last.commit, path=self.made):
            raise UsageError(
                f"Your cdd did not make the last rollback, {old.ref}, so it does not undo it.", hint=show_removed
            )
        if branch != old.branch:
            raise UsageError(
                f"The last rollback was made on the branch {old.branch}, but HEAD is on {branch}.",
                hint=f"git switch {old.branch}; or {show_removed}",
            )
        if not _is_ancestor(repository, old.target, of=source):
            raise UsageError(
                f"The last rollback led to {old.target[:10]}, but {branch} no longer contains that commit.",
                hint=show_removed,
            )
        before = records.read_runs(self.runs)
        uncommitted = tuple(dict.fromkeys((*old.uncommitted, *self._find_uncommitted(before, source))))
        changed = (change.path for change in repository.list_changes(source, old.source))
        paths = tuple(dict.fromkeys((*changed, *uncommitted)))
        user_changes = set(self.snapshots.list_differing_paths(old.source, Snapshot(ref=old.ref, commit=old.snapshot)))
        record = RollbackRecord(
            number=records.next_number(repository),
            ticket=old.ticket,
            branch=branch,
            source=source,
            target=old.source,
            snapshot=source,
            restored=paths,
            uncommitted=uncommitted,
            origin=old.snapshot,
            by_commit=tuple(path for path in paths if path in user_changes and path not in old.restored),
            undoes=last.commit,
            refs=_list_checkpoints(repository),
        )
        after = records.read_stored_files(last.commit, repository, folder="before/state")
        return self._build_plan(record, before=before, after=after, next_phase="")

    def apply(self, plan: RollbackPlan) -> RollbackRecord:
        """Apply ``plan`` and return its record, which keeps everything the rollback removes."""
        self._save_files(plan.record)
        snapshot = self.snapshots.take(_BEFORE, message="before a rollback")
        record = msgspec.structs.replace(plan.record, snapshot=snapshot.commit)
        reports = records.read_runs(self.reports)
        folders = {"before/state": plan.before, "before/reports": reports, "after/state": plan.after}
        stored = records.store(self.repository, record, folders=folders)
        records.remember(stored.commit, path=self.made)
        self.repository.git("update-ref", ROLLBACK, stored.commit, "0" * len(stored.commit))
        self._apply_record(stored)
        return record

    def is_interrupted(self) -> bool:
        """Return whether a rollback was interrupted, or is in progress."""
        return bool(self.repository.list_refs(ROLLBACK))

    def finish_interrupted(self) -> None:
        """Finish an interrupted rollback, if there is one, inside ``alone``; raises as ``alone`` does."""
        if self.is_interrupted():
            with alone(self.repository):
                self.finish()

    def finish(self) -> None:
        """Finish an interrupted rollback, inside ``alone``; if the branch has moved, abandon it with a notice."""
        repository = self.repository
        commit = repository.list_refs(ROLLBACK).get(ROLLBACK)
        if commit is None:
            return
        if not records.is_own(commit, path=self.made):
            remove = f"git update-ref -d {ROLLBACK}"
            self.emit(Notice(text=f"{ROLLBACK} names a rollback that your cdd did not begin. To remove it: {remove}"))
            return
        stored = records.read(repository, commit)
        record = stored.record
        repository.git("update-ref", record.ref, stored.commit)
        if repository.read_branch() != record.branch or repository.read_head() not in (record.source, record.target):
            repository.git("update-ref", ("-d",), ROLLBACK, stored.commit)
            text = (
                "A rollback was interrupted, and the branch has moved since. cdd leaves the branch unchanged. "
                f"Compare the earlier files: git diff {record.snapshot[:10]}; "
                f"see everything that was saved: git show {record.ref}"
            )
            self.emit(Notice(text=text))
            return
        self.emit(Notice(text=f"Finishing an interrupted rollback to {record.target[:10]}."))
        self._save_third_versions(record)
        self._apply_record(stored)

    def _find_start(self) -> tuple[str, CommitId]:
        require_finished(self.repository)
        branch, head = self.repository.read_branch(), self.repository.read_head()
        if head is None:
            raise UsageError("The repository has no commit to roll back to.", hint=BEGIN)
        if branch is None:
            raise UsageError(
                "HEAD is on no branch, and a rollback moves a branch.",
                hint="create one here: git switch -c NAME; then run the command again",
            )
        return branch, head

    def _find_uncommitted(self, runs: Files, head: CommitId) -> tuple[str, ...]:
        """Return the paths that interrupted phases changed without committing them, without the user's changes."""
        states = decode_states(runs)
        return tuple(dict.fromkeys(path for state in states for path in self._find_uncommitted_of_run(state, head)))

    def _find_uncommitted_of_run(self, state: RunState, head: CommitId) -> tuple[str, ...]:
        step = state.step_executions.get(state.current_step or 0)
        if step is None or step.status != Status.IN_PROGRESS or landed_head(step) != head:
            return ()
        checkpoints = self._checkpoints(state.ticket_slug, step)
        snapshot = checkpoints.find_last()
        if snapshot is None:
            return ()
        checkpoints.freeze_ignore_rules()
        in_checkpoint = set(self.snapshots.list_differing_paths(head, snapshot))
        since = {change.path for change in self.snapshots.list_changes_since(snapshot)}
        return tuple(sorted(in_checkpoint - since - self._find_user_files(step)))

    def _find_user_files(self, step: StepExecution) -> set[str]:
        """Return the paths that the user had changed when the step began, and that are in all its checkpoints."""
        start = self.snapshots.find(step.checkpoint) if step.checkpoint else None
        if start is None or step.base_commit is None:
            return set()
        return set(self.snapshots.list_differing_paths(CommitId(step.base_commit), start))

    def _build_plan(self, record: RollbackRecord, *, before: Files, after: Files, next_phase: str) -> RollbackPlan:
        repository = self.repository
        changes = repository.list_changes(record.source, record.target)
        # A submodule has its own history: the commit it should be at is recorded, but nothing inside it changes.
        files = {change.path for change in repository.list_changes(record.source, record.target, submodules=False)}
        submodules = {change.path for change in changes} - files
        tracked = repository.objects.list_files(record.source).keys()
        removed_paths = {change.path for change in changes if change.kind == "deleted"} | set(record.uncommitted)
        changing = set(record.restored) - submodules
        blocking = (changing & set(repository.list_uncommitted())) - set(record.uncommitted)
        for path in record.restored:
            if path not in tracked and path not in submodules:
                blocking.update(path for path in _find_obstacles(repository.root, path) if path not in removed_paths)
        if blocking:
            listed = join_first(sorted(blocking), most=_MAX_LISTED_PATHS, separator="\n  ")
            raise UsageError(
                f"The rollback would overwrite uncommitted changes in these files:\n  {listed}\nNothing was touched.",
                hint="commit or move them, or stash them: git stash push --include-untracked -- PATH; then again",
            )
        span = f"{record.target}..{record.source}"
        removed = _list_commits(repository, span)
        unpushed = repository.git("rev-list", ("--count",), span, ("--not", "--remotes")).strip()
        effects = RollbackPlanned(
            branch=record.branch,
            source=record.source,
            target=record.target,
            going=removed,
            coming=_list_commits(repository, f"{record.source}..{record.target}"),
            files=changes,
            uncommitted=record.uncommitted,
            pushed=len(removed) - int(unpushed),
            kept=record.ref,
            next=next_phase,
        )
        return RollbackPlan(record=record, before=before, after=after, effects=effects)

    def _apply_record(self, stored: StoredRecord) -> None:
        record, repository = stored.record, self.repository
        repository.git("update-ref", record.ref, stored.commit)
        for snapshot, paths in _list_sources(record):
            self.snapshots.restore(snapshot, only=paths)
        if repository.read_head() != record.target:
            why = f"cdd: rollback to {record.target[:10]}"
            repository.git("update-ref", ("-m",), why, "HEAD", record.target, record.source)
        refresh_index(repository, record.restored)
        after = records.read_stored_files(stored.commit, repository, folder="after/state")
        records.write_runs(self.runs, after, last=record.ticket)
        self._restore_checkpoints(stored, after=after)
        repository.git("update-ref", ("-d",), ROLLBACK, stored.commit)
        why = "the last rollback was undone" if record.undoes else f"rollback to {record.target[:10]}"
        self.emit(RolledBack(checkpoint=record.target, kept=record.ref, why=why))

    def _save_third_versions(self, record: RollbackRecord) -> None:
        """Save files that differ from both sides: half written by the rollback, or changed by the user since."""
        before = Snapshot(ref=record.ref, commit=record.snapshot)
        changed = {change.path for change in self.snapshots.list_changes_since(before)}
        odd = [
            change.path
            for snapshot, paths in _list_sources(record)
            for change in self.snapshots.list_changes_since(snapshot)
            if change.path in changed and change.path in paths
        ]
        if odd:
            saved = self._save_files(record)
            text = f"These files changed during the rollback and are saved as {saved.ref}: {', '.join(sorted(odd))}"
            self.emit(Notice(text=text))

    def _save_files(self, record: RollbackRecord) -> Checkpoint:
        checkpoints = Checkpoints.of_repository(self.repository, self.repository.root)
        # A rollback must be able to finish.
        return checkpoints.create(Description(kind="rollback", ticket=record.ticket), is_limited=False)

    def _restore_checkpoints(self, stored: StoredRecord, *, after: Files) -> None:
        """Make the checkpoints fit the rewound states: an open cycle begins anew."""
        record, repository = stored.record, self.repository
        present = _list_checkpoints(repository)
        if record.undoes is not None:
            old = records.read(repository, record.undoes).record
            commands = [f"update {ref} {value}\n" for ref, value in old.refs.items() if present.get(ref) != value]
            for name, data in records.read_stored_files(record.undoes, repository, folder="before/reports").items():
                write_atomic(self.reports / name, data)
            if commands:
                repository.git("update-ref", ("--stdin",), stdin="".join(commands).encode())
            return
        for state in decode_states(after):
            step = state.step_executions.get(state.current_step or 0)
            if state.ticket_slug == record.ticket and step is not None and step.base_commit == record.target:
                self.snapshots.forget(self._checkpoints(record.ticket, step).ref("*"))
                break

    def _checkpoints(self, ticket: str, step: StepExecution) -> StepRefs:
        return StepRefs(ticket=ticket, step=step, repository=self.repository, snapshots=self.snapshots)


def _find_target(repository: Repository, name: str) -> tuple[CommitId, Handoff]:
    """Return the commit that ``name`` means, and the handoff of its note.

    Raises ``UsageError``, naming the nearest suitable commit, if HEAD does not contain it or it has no note of a run.
    """
    commit = CommitId(resolve_revision(repository, name))
    head = repository.read_head()
    if head is None or not _is_ancestor(repository, commit, of=head):
        branch = repository.read_branch() or "HEAD"
        try:
            base = None if head is None else CommitId(repository.git("merge-base", commit, head).strip())
        except GitRefused:
            base = None
        raise UsageError(
            f"{commit[:10]} is not part of {branch}. Roll back to a commit that HEAD contains.",
            hint=_suggest_nearest(repository, base),
        )
    lines = read_handoffs(repository, commit)
    if not lines:
        raise UsageError(
            f"{commit[:10]} has no handoff note, so cdd does not know how to continue from there.",
            hint=_suggest_nearest(repository, commit),
        )
    handoff = Note(commit=commit, handoffs=lines).latest
    if not _is_run(handoff.ticket):
        raise UsageError(
            f"{commit[:10]} belongs to the ticket {handoff.ticket!r:.100}, which cdd exec carries out.",
            hint="redo one of its steps: cdd exec SLUG --retry N; or choose a commit from: cdd tdd history",
        )
    return commit, handoff


def _is_ancestor(repository: Repository, commit: str, *, of: str) -> bool:
    try:
        repository.git("merge-base", ("--is-ancestor",), commit, of)
    except GitRefused as error:
        if error.status != 1:
            raise UsageError(f"This repository has no commit {commit[:10]}.", hint="cdd tdd history") from error
        return False
    return True


def _suggest_nearest(repository: Repository, commit: CommitId | None) -> str:
    """Return a hint: the newest commit of a run at or before ``commit``, else the oldest one after it."""
    entries = {entry.commit: entry for entry in survey_notes(repository).entries if _is_run(entry.latest.ticket)}
    for span in ([commit], [("--reverse",), f"{commit}..HEAD"]) if commit is not None else (["HEAD"],):
        commits = (CommitId(line) for line in repository.git("rev-list", *span).splitlines())
        near = next((each for each in commits if each in entries), None)
        if near is not None:
            last = entries[near].latest
            described = f"{near[:10]} (cycle {last.cycle_number}, {last.phase})"
            return f"roll back to the nearest suitable commit, {described}: cdd tdd rollback {near[:10]}"
    return "list the commits: cdd tdd history"


def _is_run(ticket: str) -> bool:
    # Whoever can push can write a note with any ticket name.
    return re.fullmatch(RUN, ticket) is not None


def _find_obstacles(root: Path, path: str) -> Iterator[str]:
    """Return what exists at ``path``, or at one of its folders without being a folder; ignored files too."""
    target = root / path
    for folder in list(target.relative_to(root).parents)[-2::-1]:
        location = root / folder
        if os.path.lexists(location) and (location.is_symlink() or not location.is_dir()):
            yield folder.as_posix()
            return
    if target.is_dir() and not target.is_symlink():
        for parent, folders, files in os.walk(target):
            links = [name for name in folders if (Path(parent) / name).is_symlink()]
            yield from (Path(parent, name).relative_to(root).as_posix() for name in (*files, *links))
    elif os.path.lexists(target):
        yield path


def _list_checkpoints(repository: Repository) -> dict[str, str]:
    """Return ref -> object of all snapshots of runs."""
    refs = repository.list_refs("refs/cdd/checkpoints/")
    return {ref: value for ref, value in refs.items() if ref.startswith(_CHECKPOINTS) and not REF.fullmatch(ref)}


def _list_commits(repository: Repository, span: str) -> tuple[CommitMoved, ...]:
    lines = repository.git("log", ("-z", "--format=%H %s"), span).split("\0")
    pairs = (line.partition(" ") for line in lines if line)
    return tuple(CommitMoved(commit=commit, subject=subject) for commit, _, subject in pairs)


def _list_sources(record: RollbackRecord) -> tuple[tuple[Snapshot, tuple[str, ...]], ...]:
    """Return the snapshots to restore from, each with its paths."""
    target = Snapshot(ref="HEAD", commit=record.target)
    if record.origin is None:
        return ((target, record.by_commit),)
    exact = tuple(path for path in record.restored if path not in record.by_commit)
    return (Snapshot(ref=record.ref, commit=record.origin), exact), (target, record.by_commit)
