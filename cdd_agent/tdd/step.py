"""What a step leaves in the repository: its snapshots, and the commits of its phases with their notes.

``StepRecovery`` restores the files after an interruption or a failure, and takes back what the step landed. Before
anything of the user's is undone, it is saved under ``refs/cdd``. ``Landing`` commits an open attempt, with its note.
"""

import contextlib
import hashlib
import os
import re
import shlex
import textwrap
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Committed, Notice, RolledBack, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git import commits
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Entry, Repository, has_ref, require_usable, resolve_revision
from cdd_agent.git.runner import GitError
from cdd_agent.git.tree_store import SAVED, Snapshot, TreeStore
from cdd_agent.storage import is_leftover, scratch, sweep
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem, commit_prefix
from cdd_agent.tdd.examination import load_examples
from cdd_agent.tdd.verdict import AT_ONCE, RedVerdict, is_or_contains
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.tickets import spec
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.finding import Finding
from cdd_agent.work.handoff import (
    CurrentTest,
    ErrorDetails,
    GateSummary,
    Handoff,
    NextPhase,
    encode,
    phase_name,
    sequence,
)
from cdd_agent.work.records import find_records
from cdd_agent.work.state import (
    AttemptRecord,
    RunState,
    Status,
    StepExecution,
    lock_checkpoints,
    lock_repository,
    lock_ticket,
)
from cdd_agent.work.wording import change_finding
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import SuiteReport, list_failing

_LABEL = re.compile(r"step-\d+-\w+")
_RUNNING = "running-"
"""The beginning of the name of a ref that exists while an attempt is under way."""


def step_label(number: int, base: str | None) -> str:
    """Return the name of a new step's refs and reports, such as ``step-2-1f3ef03e``.

    ``base`` is the commit on which the step begins, if there is one. The number alone is not enough: editing the plan
    can give it to another step.
    """
    return f"step-{number}-{(base or 'root')[:8]}"


def snapshot_ref(ticket: str, step: StepExecution, *, name: str) -> str:
    """Return the ref of the step's snapshot ``name``."""
    return f"{SAVED}{ticket}/{_find_label(step)}-{name}"


def _find_label(step: StepExecution) -> str:
    # A step that has begun keeps its label when an edited plan renumbers it.
    known = _LABEL.match((step.checkpoint or "").rpartition("/")[2])
    return known[0] if known else step_label(step.step_number, step.base_commit)


def landed_head(step: StepExecution) -> CommitId | None:
    """Return the HEAD that the landed phases of the step produced."""
    commits = [commit for commit in step.commits.values() if commit]
    return CommitId(commits[-1]) if commits else CommitId(step.base_commit) if step.base_commit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRefs:
    """The refs of one step: snapshots of its files, its tip, and the attempt that is under way."""

    ticket: str
    step: StepExecution
    repository: Repository
    snapshots: TreeStore

    def ref(self, name: str) -> str:
        """Return the ref of the snapshot ``name``; ``*`` matches all of them."""
        return snapshot_ref(self.ticket, self.step, name=name)

    def freeze_ignore_rules(self) -> None:
        """Use the ignore rules of the step's start until it ends.

        Otherwise the agent could hide a file from snapshots by editing .gitignore.
        """
        self.snapshots.freeze_ignored(self.ref("ignored"))

    def save_tip(self, tip: CommitId) -> None:
        """Remember the commit on which the step works."""
        self.repository.refs.set(self.ref("tip"), resolve_revision(self.repository, tip))

    def read_tip(self) -> CommitId | None:
        """Return the commit on which the step works; None before it begins."""
        return self.repository.read_ref(self.ref("tip"))

    def mark_attempt(self, name: str, *, before: Snapshot) -> None:
        """Remember that the attempt ``name`` is under way, and the files from ``before`` it, in case it is killed."""
        self.repository.refs.set(self.ref(f"{_RUNNING}{name}"), resolve_revision(self.repository, before.commit))

    def find_attempt(self, name: str) -> CommitId | None:
        """Return the files from before the attempt ``name`` if it is under way."""
        return self.repository.read_ref(self.ref(f"{_RUNNING}{name}"))

    def clear_attempt(self) -> None:
        """Forget the attempt at any step of the ticket that was under way: its files are saved, or gone."""
        folder = f"{SAVED}{self.ticket}/"
        for ref in self.repository.list_ref_names(folder):
            if f"-{_RUNNING}" in ref and "/" not in ref.removeprefix(folder):  # below are those of forks
                self.repository.refs.delete(ref)

    def find_last(self) -> Snapshot | None:
        """Return the newest snapshot from which the step can continue."""
        name = self._last_name()
        return self.snapshots.find(name) if name else None

    def find_missing(self) -> str | None:
        """Return the ref of a snapshot that the step needs and that no longer exists."""
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
        self.refs = StepRefs(
            ticket=f"{ticket}/{context.fork}" if context.fork else ticket,
            step=step,
            repository=context.repository,
            snapshots=context.snapshots,
        )

    def report_path(self, name: str) -> Path:
        """Return the path of the step's test report ``name``."""
        return self.context.reports / f"{_find_label(self.step)}-{name}.json"

    def name_attempt(self, phase: Phase, number: int | str) -> str:
        """Return the name of an attempt's snapshot and report; number 0 is the snapshot before the first one."""
        # After a return to RED, the names differ from those of the first round, whose evidence stays.
        return f"{'again-' if self.step.was_sent_back else ''}{phase}-{number}"

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
        for stale in self.context.reports.glob(f"{_find_label(self.step)}-*.json"):
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
        found = self.context.snapshots.find(attempt.checkpoint) if attempt.checkpoint else None
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
        found = self.context.snapshots.find(attempt.checkpoint) if attempt.checkpoint else None
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
        context, base, head = self.context, self._find_base_of_red(), self.context.repository.read_head()
        snapshot, tip = context.snapshots.find(self.baseline_ref("red")), self.refs.read_tip()
        assert base is not None
        assert snapshot is not None
        assert tip is not None
        if head is not None and head != base:
            context.repository.git("update-ref", self.free_ref("commits", under="abandoned"), head)
            context.workplace.take_back(head, base=base)
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
        snapshot = snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        if snapshot is None:
            return
        saved = snapshots.take(self.free_ref("undone"), message=why)
        self._take_back()
        snapshots.restore(snapshot)
        self.context.emit(RolledBack(checkpoint=snapshot.ref, kept=saved.ref, why=why))

    def undo_if_underway(self, *, why: str) -> None:
        """Undo the step if it is underway."""
        if self.is_underway():
            self.restore()
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
            target = CommitId(repository.objects.require(f"{target}^").id)
        if target != base:
            text = f"The branch returns to {target[:10]}, a commit that this step did not make."
            self.context.emit(Notice(text=text))
        repository.git("update-ref", self.free_ref("commits", under="abandoned"), head)
        self.context.workplace.take_back(head, base=target)

    def free_ref(self, word: str, *, under: str = "attempts") -> str:
        """Return the name of a ref of the step that does not exist yet."""
        prefix = f"refs/cdd/{under}/{self.ticket}/step-{self.step.step_number}-{word}"
        used = self.context.repository.list_ref_names(f"refs/cdd/{under}/")
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
    """Lock ``folder``, which belongs to a ticket or a run, and finish a landing that was killed."""
    common = context.repository.location.common_dir
    require_usable(context.repository.location)
    # All work trees of the repository share the ticket's snapshots; a fork has its own.
    shared = lock_checkpoints(common, folder.name, fork=context.fork)
    with scratch(), lock_ticket(context.project, folder), shared as was_killed:
        if was_killed:
            remove_locks(common / "refs" / "cdd", "/".join(filter(None, ("*", folder.name, context.fork, "*.lock"))))
        context.workplace.finish()
        yield


def remove_leftovers(repository: Repository) -> None:
    """Delete half-written files and stale ref locks of a killed run; the caller holds the repository."""
    found = repository.git("ls-files", ("--others", "--ignored", "--exclude=.*.cdd-*.tmp", "-z"))
    for path in (Path(name) for name in found.split("\0") if name):
        if is_leftover(path.name):
            (repository.root / path).unlink(missing_ok=True)
    records = find_records(repository.root).top
    sweep(records / folder for folder, _, _ in os.walk(records))
    remove_locks(repository.location.common_dir / "refs" / "cdd", "**/*.lock")


def remove_locks(refs: Path, pattern: str) -> None:
    """Delete locks of refs that a killed cdd left; other locks may belong to a command that the user is running."""
    for lock in refs.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()


_MAX_SUMMARY = 600
"""Characters of the model's summary in a commit message."""
_MAX_PATHS = 20


def make_handoff_id(ticket: str, number: int, *, phase: Phase, base: str | None) -> str:
    """Return the id of a landing; a second try to land the phase from the same commit gets the same id."""
    return hashlib.sha256(f"{ticket}/{number}/{phase}/{base}".encode()).hexdigest()[:16]


def load_report(attempt: AttemptRecord, *, root: Path) -> SuiteReport | None:
    """Return the report on which an attempt was judged; None if there was none, or if it is lost."""
    try:
        return load(root / attempt.report) if attempt.report else None
    except ReportError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The landing of one attempt: its commit and its handoff note."""

    item: WorkItem
    attempt: AttemptRecord
    step: StepExecution
    context: Context
    trailers: str = ""
    """Trailers of the commit that name the user's checkpoint and session."""

    @property
    def _id(self) -> str:
        return make_handoff_id(self.item.ticket, self.item.number, phase=self.attempt.phase, base=self.step.base_commit)

    @property
    def _completes_code(self) -> bool:
        """Whether the item can be used from this commit on: a REFACTOR that follows may change nothing."""
        if self.attempt.finding == RedVerdict.COVERED:
            return True
        return self.attempt.phase == ("green" if "green" in self.item.phases else self.item.phases[-1])

    def find(self) -> CommitId | None:
        """Return the commit of a landing that was interrupted after the commit was on the user's branch."""
        since = landed_head(self.step)
        return commits.find_by_trailer(self.context.repository, "Handoff-Id", value=self._id, since=since)

    def make(self, paths: tuple[str, ...], *, source: CommitId) -> CommitId:
        """Commit ``paths`` as they are in ``source``; raises ``GateClosed`` if a hook of the user refuses."""
        message, tree = self._format_message(paths, source=source), self.context.workplace.tree
        entries = {path: tree.objects.find_entry(source, path) for path in paths}
        if self._completes_code:
            entries |= self._close_ticket()
        return commits.commit_paths(tree, message, paths=entries, entries=entries, allow_empty=not entries)

    def _close_ticket(self) -> dict[str, Entry]:
        """Set the spec of the ticket to done, and return its path and entry; none if the item does not complete one."""
        path, tree = self.item.closes, self.context.workplace.tree
        # The committed text: programs of the run may have written into the file.
        committed = tree.objects.find_entry("HEAD", path) if path else None
        changed = spec.advance(tree.objects.require(committed.id).text, "done", path=path) if committed else None
        if committed is None or changed is None:
            return {}
        ConfinedFolder(tree.root).write(path, changed.encode())
        return {path: Entry(committed.mode, tree.blobs.write(changed.encode()))}

    def report(self, commit: CommitId) -> None:
        """Put the handoff note on ``commit``, which has landed, and emit the event."""
        self.write_note(commit)
        subject = self.context.repository.objects.require(commit).subject
        self.context.emit(Committed(phase=self.attempt.phase, commit=commit, subject=subject))

    def write_note(self, commit: CommitId) -> None:
        """Append the handoff to the note of ``commit``."""
        append_line(self.context.repository, commit, line=encode(self._make_handoff(commit)))

    def _format_message(self, paths: tuple[str, ...], *, source: CommitId) -> str:
        item, phase, hide = self.item, self.attempt.phase, self.context.workplace.read_values().hide_in
        title = "no changes needed" if not paths and phase != "plan" else item.title
        whole = hide(f"{commit_prefix(phase, item.kind)}: {title}")
        subject = commits.cut_subject(whole, end=item.title_end)
        body = f"{commits.wrap(item.plan_body.strip())}\n\n" if phase == "plan" and item.plan_body.strip() else ""
        if subject != whole + item.title_end or title != item.title:
            body = f"{commits.wrap(item.title)}\n\n{body}"
        body += "".join(f"{part}\n\n" for part in self._describe_change(paths, source=source))
        return (
            f"{subject}\n\n{hide(body)}Ticket: {item.ticket}\nPhase: {phase_name(phase)}\n"
            f"{item.number_key}: {item.number}\nHandoff-Id: {self._id}\n{self.trailers}"
        )

    def _describe_change(self, paths: tuple[str, ...], *, source: CommitId) -> Iterator[str]:
        """Yield what the commit that completes the code of a step did: summary, criteria, files."""
        item, attempt = self.item, self.attempt
        if attempt.phase == "plan" or not self._completes_code:
            return
        # One line each: no text of the model can pass for a trailer, which is only read in the last paragraph.
        words = format_line(attempt.summary)
        if words:
            yield commits.wrap(textwrap.shorten(words, _MAX_SUMMARY, placeholder=" …"))
        if item.criteria:
            mark = "[x]" if attempt.verdict == "open" and not attempt.finding else "[ ]"
            rows = (format_line(f"{mark} {name}: {text}") for name, text in item.criteria)
            yield "\n".join(("Acceptance criteria:", *map(commits.wrap, rows)))
        if paths:
            tree = self.context.workplace.tree
            head, find = tree.read_head(), tree.objects.find_entry
            letters = {(False, True): "A", (True, True): "M", (True, False): "D"}
            files = []
            for path in paths[:_MAX_PATHS]:
                before, after = head is not None and find(head, path) is not None, find(source, path) is not None
                files.append(f"{letters.get((before, after), 'M')} {format_line(path)}")
            more = [f"and {len(paths) - _MAX_PATHS} more"] if len(paths) > _MAX_PATHS else []
            yield "\n".join(("Files:", *map(commits.wrap, files), *more))

    def _make_handoff(self, commit: CommitId) -> Handoff:
        item, attempt, hide = self.item, self.attempt, self.context.workplace.read_values().hide_in
        is_covered = attempt.finding in AT_ONCE
        has_failed = attempt.verdict == "closed" and not is_covered
        is_before_green = attempt.phase in ("plan", "red") and not is_covered
        is_pending = is_before_green or (has_failed and attempt.phase == "green")
        progress = item.progress or Progress(
            completed=() if is_pending or attempt.finding == RedVerdict.DROPPED else item.tests,
            pending=item.tests if is_pending else (),
        )
        next_phase = self._choose_next_phase(msgspec.convert(progress.following, type=NextPhase))
        if item.progress and attempt.phase != "plan" and next_phase == progress.following:
            pending = tuple(title for title in progress.pending if title != item.title)
            own = () if attempt.finding == RedVerdict.DROPPED else (item.title,)
            progress = replace(progress, completed=(*progress.completed, *own), pending=pending)
        kind = attempt.finding or attempt.reasons[0].code if has_failed else ""
        report = self.context.records.folder / attempt.report if attempt.report else None
        return Handoff(
            seq=sequence(phase_name(attempt.phase), cycle=item.number),
            id=self._id,
            ticket=item.ticket,
            phase=phase_name(attempt.phase),
            next_phase=next_phase,
            cycle_number=item.number,
            current_test=CurrentTest(
                description=hide(item.title),
                test_file=item.tests[0].partition("::")[0] if item.tests else "",
                impl_file=item.sources[0] if item.sources else "",
            ),
            completed_tests=progress.completed,
            pending_tests=progress.pending,
            test_result=None if has_failed or attempt.phase == "plan" else "FAIL" if is_before_green else "PASS",
            error=attempt.reasons[0] if has_failed else None,
            error_details=ErrorDetails(type=kind, reasons=attempt.reasons) if has_failed else None,
            retry_count=attempt.number - 1,
            commit=commit,
            checkpoint=self.step.checkpoint,
            base_commit=self.step.base_commit,
            text_sha256=self.step.text_sha256,
            answer=attempt.answer,
            gate=GateSummary(
                phase=attempt.phase,
                open=attempt.verdict == "open",
                finding=attempt.finding or "",
                reasons=attempt.reasons,
                report_sha256=hashlib.sha256(report.read_bytes()).hexdigest() if report and report.is_file() else None,
                examples=tuple(change_finding(example, hide) for example in self._list_examples()),
                evidence=attempt.evidence,
            ),
        )

    def _list_examples(self) -> tuple[Finding, ...]:
        if self.attempt.phase != "green" or self.attempt.verdict != "open":
            return ()
        examples = load_examples(StepRecovery(self.item.ticket, self.step, context=self.context).examples_path)
        return examples.facts if examples is not None else ()

    def _choose_next_phase(self, following: NextPhase) -> NextPhase:
        """Return the phase after this one; a failed phase is repeated, except REFACTOR, which is optional."""
        item, attempt = self.item, self.attempt
        if attempt.finding in AT_ONCE:
            return following
        if attempt.verdict == "closed" and attempt.phase != "refactor":
            return phase_name(attempt.phase)
        after = item.phases[item.phases.index(attempt.phase) + 1 :]
        return phase_name(after[0]) if after else following


def has_hooks(repository: Repository) -> bool:
    """Return whether git hooks can refuse a commit."""
    if not repository.may_run_hooks():
        return False
    folder = repository.root / repository.git("rev-parse", ("--git-path",), "hooks", hooks=True).strip()
    return any(os.access(folder / name, os.X_OK) for name in ("pre-commit", "prepare-commit-msg", "commit-msg"))


def require_branch(state: RunState, *, context: Context) -> None:
    """Raise ``UsageError`` if the user works on another branch than when the run began."""
    repository, wanted = context.repository, state.branch
    branch = repository.read_branch()
    if wanted is not None and branch != wanted:
        commits.require_finished(repository)  # a rebase detaches HEAD
        act = f"git switch {shlex.quote(wanted)}"
        if not has_ref(repository.location, f"refs/heads/{wanted}"):
            act = f"git switch -c {shlex.quote(wanted)}"
            if branch is not None and _was_renamed(repository, wanted, now=branch):
                act = f"give it the old name until the run has ended: git branch -m {shlex.quote(wanted)}"
        raise UsageError(
            f"HEAD is on {branch or 'no branch'}, but the run began on {wanted}. Nothing was changed.",
            hint=f"{act}, then run the same command again: cdd continues with this commit",
        )


def _was_renamed(repository: Repository, name: str, *, now: str) -> bool:
    """Return whether the branch ``now`` had this name before, as git notes it."""
    try:
        notes = repository.git("log", ("-g", "--format=%gs"), f"refs/heads/{now}", ("--",))
    except GitError:  # it has no commits
        return False
    return any(line.startswith(f"Branch: renamed refs/heads/{name} to ") for line in notes.splitlines())


def require_tests(commit: CommitId, tests: Collection[str], *, recovery: StepRecovery) -> None:
    """Raise ``UsageError`` if ``commit`` lacks a file of ``tests`` that had been committed, so nothing checks it."""
    context, committed = recovery.context, landed_head(recovery.step) or commit
    find = context.repository.objects.find_entry
    for path in dict.fromkeys(context.to_repository_path(test.partition("::")[0]) for test in tests):
        if find(committed, path) and not find(commit, path):
            restart = context.restart_command(recovery.step)
            raise UsageError(
                f"{path} is no longer on your branch, so no test can check there what the run has changed.\n"
                "Nothing was changed.",
                hint=f"restore it: git checkout {committed[:10]} -- {path}, commit it, and run the same command "
                f"again; or restart: {restart}",
            )


def find_broken_tests(commit: CommitId, *, fixed: Collection[str] = (), context: Context) -> tuple[str, ...]:
    """Return the tests that pass on the parent of ``commit`` and not on ``commit``.

    Each runs in a clean copy with the user's ignored files. The tests that the attempt ``fixed`` must pass on
    ``commit`` too, unless they are only in uncommitted files.
    """
    repository = context.workplace.tree
    passing: list[set[str]] = []
    failing: tuple[str, ...] = ()
    parent = repository.objects.require(f"{commit}^").id
    for name, tree in (("your branch", parent), ("the commit on your branch", commit)):
        with clean_copy(repository, context.suite, green=tree, red=tree) as copy:
            inside = context.suite.root.resolve().relative_to(repository.root.resolve()).parts
            context.workplace.copy_ignored((copy.root, *copy.root.parents)[len(inside)])
            run = _run_copy(copy, f"all tests of {name}", context=context)
        if run.report is None:
            raise EnvironmentMissing(
                f"The tests cannot be run on {name}: {run.problem}.", hint="make them pass there, then try again"
            )
        passing.append({case.nodeid for case in run.report.tests if case.outcome == "passed"})
        failing = list_failing(run.report)  # at the end those of the commit
    # A file that cannot be collected contains the tests in it.
    missed = {test for test in fixed if any(is_or_contains(each, test) for each in failing)}
    return tuple(sorted((passing[0] - passing[1]) | missed))


def _run_copy(copy: Suite, purpose: str, *, context: Context) -> SuiteRun:
    """Run all tests of a copy, unless an earlier run saw the same files."""
    scene = context.store.describe(copy, ())
    run = context.store.find(scene) if scene is not None else None
    if run is None:
        context.emit(SuiteStarted(purpose=purpose, targets=(), framework=copy.conventions.framework))
        if isinstance(copy, PytestSuite) and copy.original is not None:  # else the plugin asks git itself
            ignored = Repository(find_top(copy.root.resolve())).list_ignored_in(copy.root)
            copy = replace(copy, original=replace(copy.original, list_ignored=lambda: ignored))
        run = context.store.run(scene, copy, keep=None, purpose=purpose)
    context.emit(run.as_event(purpose, framework=copy.conventions.framework))
    return run
