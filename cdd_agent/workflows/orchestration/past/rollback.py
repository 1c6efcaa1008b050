"""The way back to a commit of a run: looked at first, then gone, and gone back again if it was a mistake.

What goes stays reachable, with the work tree of before; what the user has not committed is left as it is, or nothing
is done at all.
"""

from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.events import Emit
from cdd_agent.events.past import CommitMoved, FileMoved, RollbackPlanned
from cdd_agent.git.commits import require_finished
from cdd_agent.git.exact.record import entries_of
from cdd_agent.git.repository import Change, CommitId, Repository
from cdd_agent.git.snapshot import Snapshot, Snapshots
from cdd_agent.settings import private_folder
from cdd_agent.tdd import recovery
from cdd_agent.work.state import RunState, Status
from cdd_agent.workflows.orchestration.feature import BEGIN, PREFIX
from cdd_agent.workflows.orchestration.past import receipt as receipts
from cdd_agent.workflows.orchestration.past.destination import find, is_ancestor
from cdd_agent.workflows.orchestration.past.obstacles import require_free
from cdd_agent.workflows.orchestration.past.receipt import Files, Receipt, RunFiles
from cdd_agent.workflows.orchestration.past.rewound import rewound, states_in

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
        number=receipts.next_number(repository),
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
    before = receipts.read_runs(site.runs, site.reports)
    gone = {commit for commit, _ in _commits(repository, f"{wanted.commit}..{source}")}
    after = rewound(before.state, wanted.handoff, commit=wanted.commit, gone=gone)
    return _free(site, receipt, before=before, after=after, following=wanted.handoff.next_phase)


def look_undo(site: Site) -> Way:
    """The way that takes the last rollback back, or its undoing; changes nothing, and raises as ``look`` does."""
    repository = site.repository
    branch, source = _where(repository)
    last = receipts.newest(repository)
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
        number=receipts.next_number(repository),
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
    before = receipts.read_runs(site.runs, site.reports)
    after = receipts.files_of(last.commit, repository, when="before/state")
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
    for state in states_in(receipts.read_runs(site.runs, site.reports).state):
        found |= dict.fromkeys(_loose_in(state, head, site=site))
    return tuple(found)


def _loose_in(state: RunState, head: CommitId, *, site: Site) -> tuple[str, ...]:
    """As far as one run goes; after a kill nobody can tell who changed what since, and it counts as the run's."""
    step = state.step_executions.get(state.current_step or 0)
    if step is None or step.status != Status.IN_PROGRESS or recovery.landed_head(step) != head:
        return ()
    snapshot = recovery.last_checkpoint(step, bench=site)
    if snapshot is None:
        return ()
    recovery.hold_ignored(state.ticket_slug, step, bench=site)
    theirs = recovery.user_files(step, bench=site)
    left = set(site.snapshots.paths_unlike(head, snapshot))
    since = {change.path for change in site.snapshots.changes_since(snapshot)}
    was_killed = recovery.killed_at(state.ticket_slug, step, branch=state.branch, bench=site) is not None
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
