"""The way back to a commit of a run: looked at first, then gone, and gone back again if it was a mistake.

What goes stays reachable, with the work tree of before; what the user has not committed is left as it is, or nothing
is done at all.

Where a way back leads: a commit that the present branch holds, with the note that says what comes next.

What of the user's stands in a way back: changes that are not committed, files that would be written over.

Going a way back, part by part. Each can be done twice: whatever ends the program, the next command goes on.

First of all a ref names the receipt of what will be; it is gone when all is done. Then files, branch, index, the
runs' own files and their checkpoints follow, in this order.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.events import CommitMoved, Emit, FileMoved, Notice, RollbackPlanned, RolledBack
from cdd_agent.git.commits import refresh_index, require_finished
from cdd_agent.git.notes_history import Entry, handoffs, survey
from cdd_agent.git.repository import ROLLBACK, Change, CommitId, Repository, resolved
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.git.snapshot import Snapshot, Snapshots, entries_of
from cdd_agent.history import records
from cdd_agent.history.records import Files, Receipt, RunFiles, Stored, rewound, states_in
from cdd_agent.storage import write_atomic
from cdd_agent.tdd import recovery
from cdd_agent.tdd.recovery import alone
from cdd_agent.work.handoff import Handoff
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.workflows.orchestration.feature import BEGIN, PREFIX, RUN

_RELATIVE = re.compile(r"(?P<name>[^~^]+)(?P<steps>(?:[~^]\d{0,6}){1,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A commit to go back to."""

    commit: CommitId
    handoff: Handoff
    """What its note says, of several lines the one that counts."""


def find(repository: Repository, name: str) -> Destination:
    """The commit that ``name`` means: an id, a branch, a tag, or ``HEAD~2``.

    Raises ``UsageError``, naming the nearest one that will do, if HEAD does not hold it, or if it has no note of a run;
    ``NotesDamaged`` if its note cannot be read.
    """
    commit = commit_of(repository, name)
    head = repository.head()
    if head is None or not is_ancestor(repository, commit, of=head):
        base = _common(repository, commit, head=head)
        where = repository.branch() or "HEAD"
        raise UsageError(
            f"{commit[:10]} is no part of {where}: a rollback leads to a commit that HEAD comes from.",
            hint=_nearest(repository, base),
        )
    said = handoffs(repository, commit)
    if not said:
        raise UsageError(
            f"{commit[:10]} has no handoff note, so nothing says how to go on from there.",
            hint=_nearest(repository, commit),
        )
    found = Entry(commit=commit, handoffs=said).latest
    if not _is_run(found.ticket):
        raise UsageError(
            f"{commit[:10]} belongs to the ticket {found.ticket!r:.100}, which cdd exec carries out.",
            hint="undo a step of it by: cdd exec SLUG --retry N; or go to a commit of: cdd tdd history",
        )
    return Destination(commit=commit, handoff=found)


def commit_of(repository: Repository, name: str) -> CommitId:
    """The commit of a name that may end in steps back, as ``HEAD~2``; ``UsageError`` if there is none."""
    parts = _RELATIVE.fullmatch(name)
    if parts is None:
        return CommitId(resolved(repository, name))
    start = resolved(repository, parts["name"])
    try:
        return CommitId(
            repository.git("rev-parse", "--verify", "--quiet", f"{start}{parts['steps']}^{{commit}}").strip()
        )
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{name!r} goes back further than the history does.", hint="cdd tdd history") from error


def is_ancestor(repository: Repository, commit: str, *, of: str) -> bool:
    """Whether ``of`` holds ``commit``; each holds itself."""
    try:
        repository.git("merge-base", "--is-ancestor", commit, of)
    except GitUnable:
        raise
    except GitError as error:
        if error.status != 1:
            raise UsageError(f"{commit[:10]} is no commit of this repository.", hint="cdd tdd history") from error
        return False
    return True


def _common(repository: Repository, commit: CommitId, *, head: CommitId | None) -> CommitId | None:
    """The newest commit that both hold; None if they have nothing in common."""
    try:
        return None if head is None else CommitId(repository.git("merge-base", commit, head).strip())
    except GitUnable:
        raise
    except GitError:
        return None


def _nearest(repository: Repository, commit: CommitId | None) -> str:
    """What to type instead: the newest commit of a run at or before ``commit``, else the oldest one after it."""
    noted = {entry.commit: entry for entry in survey(repository).entries if _is_run(entry.latest.ticket)}
    sides = ([f"{commit}"], ["--reverse", f"{commit}..HEAD"]) if commit is not None else (["HEAD"],)
    for span in sides:
        listed = (CommitId(line) for line in repository.git("rev-list", *span).splitlines())
        near = next((each for each in listed if each in noted), None)
        if near is not None:
            last = noted[near].latest
            told = f"cycle {last.cycle_number}, {last.phase}"
            return f"the nearest one that will do is {near[:10]} ({told}): cdd tdd rollback {near[:10]}"
    return "see which there are: cdd tdd history"


def _is_run(ticket: str) -> bool:
    """Whether this is the name of a run; whoever can push can write a note with any other."""
    return re.fullmatch(RUN, ticket) is not None


MOST = 20
"""Paths that an error lists."""


def require_free(
    root: Path, *, paths: Collection[str], added: Collection[str], going: Collection[str], uncommitted: Iterable[str]
) -> None:
    """Raise ``UsageError`` with the list unless every one of ``paths`` can change without the loss of anything.

    ``added`` are those that are not tracked now: nothing may be in their place but ``going``, what goes by itself.
    ``uncommitted`` is the user's own.
    """
    own = set(uncommitted)
    found = {path for path in own if path in paths}
    for path in added:
        found.update(_in_the_way(root, path, going=going))
    if not found:
        return
    shown = sorted(found)
    more = f"\n  and {len(shown) - MOST} more" if len(shown) > MOST else ""
    listed = "".join(f"\n  {path}" for path in shown[:MOST])
    raise UsageError(
        f"These files hold what is in no commit, and the rollback would change them:{listed}{more}\n"
        "Nothing was touched.",
        hint="commit them, move them away, or put them aside: git stash push --include-untracked -- PATH; then again",
    )


def _in_the_way(root: Path, path: str, *, going: Collection[str]) -> Iterator[str]:
    """What is at ``path``, or where one of its folders has to be; ignored files too."""
    target = root / path
    for folder in list(target.relative_to(root).parents)[-2::-1]:
        place = root / folder
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            if folder.as_posix() not in going:
                yield folder.as_posix()
            return
    if target.is_dir() and not target.is_symlink():
        for here, folders, files in os.walk(target):
            links = [name for name in folders if (Path(here) / name).is_symlink()]
            inside = (Path(here, name).relative_to(root).as_posix() for name in (*files, *links))
            yield from (name for name in inside if name not in going)
    elif os.path.lexists(target) and path not in going:
        yield path


_CHECKPOINTS = f"refs/cdd/checkpoints/{PREFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The project whose history is gone back in."""

    repository: Repository
    snapshots: Snapshots
    root: Path
    """Of the project, which may be a folder inside the work tree."""
    emit: Emit

    @property
    def runs(self) -> Path:
        """The states of all runs."""
        return private_folder(self.root) / "tdd"

    @property
    def reports(self) -> Path:
        """The evidence of all runs and tickets."""
        return private_folder(self.root) / "reports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a rollback, or its undoing, would do."""

    receipt: Receipt
    """But for the snapshot, which is not taken yet."""
    before: RunFiles
    after: Files
    """What the runs' own files will be."""
    going: tuple[tuple[CommitId, str], ...]
    """Commits that go, newest first, with their subjects."""
    coming: tuple[tuple[CommitId, str], ...]
    """Commits that come back."""
    changes: tuple[Change, ...]
    """What becomes of the files."""
    pushed: int
    """How many of the commits that go another repository may have."""
    following: str
    """The phase that ``resume`` goes on with; empty where the undone run says so itself."""

    def as_event(self) -> RollbackPlanned:
        """As a program is told it."""
        return RollbackPlanned(
            branch=self.receipt.branch,
            source=self.receipt.source,
            target=self.receipt.target,
            going=tuple(CommitMoved(commit=commit, subject=subject) for commit, subject in self.going),
            coming=tuple(CommitMoved(commit=commit, subject=subject) for commit, subject in self.coming),
            files=tuple(FileMoved(path=change.path, kind=change.kind) for change in self.changes),
            uncommitted=self.receipt.loose,
            pushed=self.pushed,
            kept=self.receipt.ref,
            next=self.following,
        )


def site_of(root: Path, *, emit: Emit) -> Site:
    """The project at ``root``; raises ``EnvironmentMissing`` where there is no repository."""
    repository = Repository.find(root)
    return Site(repository=repository, snapshots=Snapshots(repository), root=root, emit=emit)


def look(site: Site, name: str) -> Way:
    """The way back to the commit ``name``; changes nothing. To be looked at and gone inside one ``alone``.

    Raises ``UsageError`` if it is no commit to go back to, if something is unfinished, or if what the user has not
    committed is in the way.
    """
    repository = site.repository
    branch, source = _where(repository)
    wanted = find(repository, name)
    loose = _loose(site, source)
    if wanted.commit == source and not loose:
        raise UsageError(f"HEAD is at {source[:10]} already.", hint="see the commits before it: cdd tdd history")
    changed = tuple(change.path for change in repository.changes(source, wanted.commit))
    paths = tuple(dict.fromkeys((*changed, *loose)))
    receipt = Receipt(
        number=records.next_number(repository),
        ticket=wanted.handoff.ticket,
        branch=branch,
        source=source,
        target=wanted.commit,
        snapshot=source,
        restored=paths,
        loose=loose,
        by_commit=paths,
        refs=checkpoints(repository),
    )
    before = records.read_runs(site.runs, site.reports)
    gone = {commit for commit, _ in _commits(repository, f"{wanted.commit}..{source}")}
    after = rewound(before.state, wanted.handoff, commit=wanted.commit, gone=gone)
    return _free(site, receipt, before=before, after=after, following=wanted.handoff.next_phase)


def look_undo(site: Site) -> Way:
    """The way that takes the last rollback back, or its undoing; changes nothing, and raises as ``look`` does."""
    repository = site.repository
    branch, source = _where(repository)
    last = records.newest(repository)
    if last is None:
        raise UsageError("Nothing was rolled back in this repository.", hint="cdd tdd rollback COMMIT goes back")
    old = last.receipt
    kept = f"what it took away is kept under {old.ref}: git log {old.ref}^"
    if branch != old.branch:
        happened = f"The last rollback was made on the branch {old.branch}, and this is {branch}."
        raise UsageError(happened, hint=f"git switch {old.branch}; or leave it: {kept}")
    if not is_ancestor(repository, old.target, of=source):
        happened = f"The last rollback led to {old.target[:10]}, and {branch} does not come from there any more."
        raise UsageError(happened, hint=kept)
    loose = tuple(dict.fromkeys((*old.loose, *_loose(site, source))))
    changed = tuple(change.path for change in repository.changes(source, old.source))
    paths = tuple(dict.fromkeys((*changed, *loose)))
    was_own = set(site.snapshots.paths_unlike(old.source, Snapshot(ref=old.ref, commit=old.snapshot)))
    receipt = Receipt(
        number=records.next_number(repository),
        ticket=old.ticket,
        branch=branch,
        source=source,
        target=old.source,
        snapshot=source,
        restored=paths,
        loose=loose,
        kept=old.snapshot,
        by_commit=tuple(path for path in paths if path in was_own and path not in old.restored),
        undoes=last.commit,
        refs=checkpoints(repository),
    )
    before = records.read_runs(site.runs, site.reports)
    after = records.files_of(last.commit, repository, when="before/state")
    return _free(site, receipt, before=before, after=after, following="")


def checkpoints(repository: Repository) -> dict[str, str]:
    """Ref -> object, of all that is kept of the steps of runs."""
    listed = repository.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/cdd/checkpoints/").splitlines()
    pairs = (line.split(" ") for line in listed)
    return {ref: held for ref, held in pairs if ref.startswith(_CHECKPOINTS)}


def _where(repository: Repository) -> tuple[str, CommitId]:
    """Branch and commit to start from; ``UsageError`` where there is none, or in the middle of something."""
    require_finished(repository)
    branch, head = repository.branch(), repository.head()
    if head is None:
        raise UsageError("There is no commit yet, so there is nothing to go back to.", hint=BEGIN)
    if branch is None:
        raise UsageError(
            "HEAD is on no branch that could go back.", hint="make one of it: git switch -c NAME; then again"
        )
    return branch, head


def _loose(site: Site, head: CommitId) -> tuple[str, ...]:
    """What an interrupted phase left uncommitted that is its own work, and not the user's."""
    found: dict[str, None] = {}
    for state in states_in(records.read_runs(site.runs, site.reports).state):
        found |= dict.fromkeys(_loose_in(state, head, site=site))
    return tuple(found)


def _loose_in(state: RunState, head: CommitId, *, site: Site) -> tuple[str, ...]:
    """As far as one run goes; after a kill nobody can tell who changed what since, and it counts as the run's."""
    step = state.step_executions.get(state.current_step or 0)
    if step is None or step.status != Status.IN_PROGRESS or recovery.landed_head(step) != head:
        return ()
    snapshot = recovery.last_checkpoint(step, context=site)
    if snapshot is None:
        return ()
    recovery.hold_ignored(state.ticket_slug, step, context=site)
    theirs = recovery.user_files(step, context=site)
    left = set(site.snapshots.paths_unlike(head, snapshot))
    since = {change.path for change in site.snapshots.changes_since(snapshot)}
    was_killed = recovery.killed_at(state.ticket_slug, step, branch=state.branch, context=site) is not None
    return tuple(sorted((left | since if was_killed else left - since) - theirs))


def _free(site: Site, receipt: Receipt, *, before: RunFiles, after: Files, following: str) -> Way:
    """The way of this receipt; raises ``UsageError`` if something of the user's is in it.

    Submodules are other histories: which commit they are to stand at is told, and nothing in them changes.
    """
    repository = site.repository
    changes = repository.changes(receipt.source, receipt.target)
    files = {change.path for change in repository.changes(receipt.source, receipt.target, submodules=False)}
    apart = {change.path for change in changes} - files
    tracked = entries_of(repository, receipt.source).keys()
    going = {change.path for change in changes if change.kind == "deleted"} | set(receipt.loose)
    require_free(
        repository.root,
        paths=set(receipt.restored) - apart,
        added=[path for path in receipt.restored if path not in tracked and path not in apart],
        going=going,
        uncommitted=(path for path in repository.uncommitted() if path not in receipt.loose),
    )
    going_back = _commits(repository, f"{receipt.target}..{receipt.source}")
    beyond = repository.git("rev-list", "--count", f"{receipt.target}..{receipt.source}", "--not", "--remotes").strip()
    return Way(
        receipt=receipt,
        before=before,
        after=after,
        going=going_back,
        coming=_commits(repository, f"{receipt.source}..{receipt.target}"),
        changes=changes,
        pushed=len(going_back) - int(beyond),
        following=following,
    )


def _commits(repository: Repository, span: str) -> tuple[tuple[CommitId, str], ...]:
    """The commits of ``span`` with their subjects."""
    lines = repository.git("log", "-z", "--format=%H %s", span).split("\0")
    pairs = (line.partition(" ") for line in lines if line)
    return tuple((CommitId(commit), subject) for commit, _, subject in pairs)


_BEFORE = "refs/cdd/rollback/before"


def go(site: Site, way: Way) -> Receipt:
    """Go ``way``, which was looked at inside the same ``alone``; what it takes away is kept under the receipt's ref."""
    snapshot = site.snapshots.take(_BEFORE, message="before a rollback")
    receipt = msgspec.structs.replace(way.receipt, snapshot=snapshot.commit)
    stored = records.store(site.repository, receipt, before=way.before, after=way.after)
    site.repository.git("update-ref", ROLLBACK, stored.commit, "0" * len(stored.commit))
    _finish(site, stored)
    return receipt


def is_unfinished(site: Site) -> bool:
    """Whether a rollback was cut off in its middle, or is on its way."""
    return bool(site.repository.git("for-each-ref", ROLLBACK))


def settle(site: Site) -> None:
    """Go the rest of the way that was cut off, if one was; raises as ``alone`` does."""
    if is_unfinished(site):
        with alone(site.repository):
            finish(site)


def finish(site: Site) -> None:
    """Go the rest of the way that was cut off, if one was; inside ``alone``.

    If the branch has been moved since, it is left as it is, and that is told.
    """
    stored = records.load(site.repository, ROLLBACK)
    if stored is None:
        return
    receipt, repository = stored.receipt, site.repository
    _keep(site, stored)
    if repository.branch() != receipt.branch or repository.head() not in (receipt.source, receipt.target):
        repository.git("update-ref", "-d", ROLLBACK, stored.commit)
        told = "A rollback was cut off, and the branch has been moved since: it is left as it is. The files as they "
        site.emit(Notice(text=f"{told}were before: git diff {receipt.snapshot[:10]}; all else: git show {receipt.ref}"))
        return
    site.emit(Notice(text=f"A rollback to {receipt.target[:10]} was cut off; it is gone to its end now."))
    _keep_what_is_neither(site, receipt)
    _finish(site, stored)


def _finish(site: Site, stored: Stored) -> None:
    """Do each part that is not done."""
    receipt, repository = stored.receipt, site.repository
    _keep(site, stored)
    for snapshot, paths in _sources(receipt):
        site.snapshots.restore(snapshot, only=paths)
    if repository.head() != receipt.target:
        why = f"cdd: rollback to {receipt.target[:10]}"
        repository.git("update-ref", "-m", why, "HEAD", receipt.target, receipt.source)
    refresh_index(repository, receipt.restored)
    after = records.files_of(stored.commit, repository, when="after/state")
    records.write_runs(site.runs, after, last=receipt.ticket)
    _put_right_checkpoints(site, stored, after=after)
    repository.git("update-ref", "-d", ROLLBACK, stored.commit)
    why = "the last rollback is undone" if receipt.undoes else f"to {receipt.target[:10]}, as asked for"
    site.emit(RolledBack(checkpoint=receipt.target, kept=receipt.ref, why=why))


def _keep(site: Site, stored: Stored) -> None:
    """Have the receipt, and with it all that goes, named by a ref that stays."""
    site.repository.git("update-ref", stored.receipt.ref, stored.commit)


def _sources(receipt: Receipt) -> tuple[tuple[Snapshot, tuple[str, ...]], ...]:
    """What the files are taken from, and which."""
    target = Snapshot(ref="HEAD", commit=receipt.target)
    if receipt.kept is None:
        return ((target, receipt.by_commit),)
    exact = tuple(path for path in receipt.restored if path not in receipt.by_commit)
    return (Snapshot(ref=receipt.ref, commit=receipt.kept), exact), (target, receipt.by_commit)


def _keep_what_is_neither(site: Site, receipt: Receipt) -> None:
    """Keep files that are neither as they were nor as they are to be: half written, or the user's since."""
    before = Snapshot(ref=receipt.ref, commit=receipt.snapshot)
    changed = {change.path for change in site.snapshots.changes_since(before)}
    odd = [
        change.path
        for snapshot, paths in _sources(receipt)
        for change in site.snapshots.changes_since(snapshot)
        if change.path in changed and change.path in paths
    ]
    if odd:
        ref = f"refs/cdd/attempts/{receipt.ticket}/rollback-{receipt.number}"
        site.snapshots.take(ref, message="found when a rollback was gone to its end")
        site.emit(Notice(text=f"Files that had changed meanwhile are kept under {ref}: {', '.join(sorted(odd))}"))


def _put_right_checkpoints(site: Site, stored: Stored, *, after: Files) -> None:
    """What is kept of the steps, as it fits: nothing is running, and a cycle that goes on has where to go on from."""
    receipt = stored.receipt
    present = checkpoints(site.repository)
    changes = [f"delete {ref}\n" for ref in present if ref.endswith("-running")]
    if receipt.undoes is not None:
        old = records.read(site.repository, receipt.undoes).receipt
        changes = [each for each in changes if each.split()[1] not in old.refs]
        changes += [f"update {ref} {held}\n" for ref, held in old.refs.items() if present.get(ref) != held]
        reports = records.files_of(receipt.undoes, site.repository, when="before/reports")
        records.put_back_reports(site.reports, reports)
    if changes:
        site.repository.git("update-ref", "--stdin", stdin="".join(changes).encode())
    step = None if receipt.undoes is not None else _opened(after, receipt)
    if step is not None:
        before = records.files_of(stored.commit, site.repository, when="before/state")
        _begin(site, receipt, step=step, before=before)


def _opened(after: Files, receipt: Receipt) -> StepExecution | None:
    """The cycle that goes on in its middle at the commit that is gone back to."""
    for state in states_in(after):
        step = state.step_executions.get(state.current_step or 0)
        if state.ticket_slug == receipt.ticket and step is not None and step.base_commit == receipt.target:
            return step
    return None


def _begin(site: Site, receipt: Receipt, *, step: StepExecution, before: Files) -> None:
    """Let the files as they are be those that ``step`` began with, and its first test report the one it had."""
    site.snapshots.forget(recovery.checkpoint_ref(receipt.ticket, step, name="*"))
    recovery.hold_ignored(receipt.ticket, step, context=site)
    start = recovery.checkpoint_ref(receipt.ticket, step, name="start")
    site.snapshots.take(start, message=f"rolled back to {receipt.target[:10]}")
    old = _begun(before, receipt.ticket, number=step.step_number)
    folder = site.reports / receipt.ticket
    if old is not None and (report := folder / _baseline(old)).is_file():
        write_atomic(folder / _baseline(start), report.read_bytes())


def _begun(before: Files, ticket: str, *, number: int) -> str | None:
    """The checkpoint that the same cycle began with before."""
    for state in states_in(before):
        if state.ticket_slug == ticket and number in state.step_executions:
            return state.execution(number).checkpoint
    return None


def _baseline(checkpoint: str) -> str:
    """The name of the first report of the step that began with ``checkpoint``."""
    return f"{checkpoint.rpartition('/')[2].removesuffix('-start')}-baseline.json"
