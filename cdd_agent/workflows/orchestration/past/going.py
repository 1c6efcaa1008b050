"""Going a way back, part by part. Each can be done twice: whatever ends the program, the next command goes on.

First of all a ref names the receipt of what will be; it is gone when all is done. Then files, branch, index, the
runs' own files and their checkpoints follow, in this order.
"""

import msgspec

from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.commits import refresh_index
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.git.states import ROLLBACK
from cdd_agent.storage import write_atomic
from cdd_agent.tdd import recovery
from cdd_agent.tdd.recovery import alone
from cdd_agent.work.state import StepExecution
from cdd_agent.workflows.orchestration.past import receipt as receipts
from cdd_agent.workflows.orchestration.past.receipt import Files, Receipt, Stored
from cdd_agent.workflows.orchestration.past.rewound import states_in
from cdd_agent.workflows.orchestration.past.rollback import Site, Way, checkpoints

_BEFORE = "refs/cdd/rollback/before"


def go(site: Site, way: Way) -> Receipt:
    """Go ``way``, which was looked at inside the same ``alone``; what it takes away is kept under the receipt's ref."""
    snapshot = site.snapshots.take(_BEFORE, message="before a rollback")
    receipt = msgspec.structs.replace(way.receipt, snapshot=snapshot.commit)
    stored = receipts.store(site.repository, receipt, before=way.before, after=way.after)
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
    stored = receipts.load(site.repository, ROLLBACK)
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
    after = receipts.files_of(stored.commit, repository, when="after/state")
    receipts.write_runs(site.runs, after, last=receipt.ticket)
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
        old = receipts.read(site.repository, receipt.undoes).receipt
        changes = [each for each in changes if each.split()[1] not in old.refs]
        changes += [f"update {ref} {held}\n" for ref, held in old.refs.items() if present.get(ref) != held]
        reports = receipts.files_of(receipt.undoes, site.repository, when="before/reports")
        receipts.put_back_reports(site.reports, reports)
    if changes:
        site.repository.git("update-ref", "--stdin", stdin="".join(changes).encode())
    step = None if receipt.undoes is not None else _opened(after, receipt)
    if step is not None:
        before = receipts.files_of(stored.commit, site.repository, when="before/state")
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
    recovery.hold_ignored(receipt.ticket, step, bench=site)
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
