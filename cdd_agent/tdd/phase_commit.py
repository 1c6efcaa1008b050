"""The commit of a phase: its message, its files, and the handoff note on it."""

import hashlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from cdd_agent.events import Committed
from cdd_agent.git import commits
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Entry
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem, commit_prefix
from cdd_agent.tdd.examination import load_examples
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import landed_head
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
from cdd_agent.work.outcome import Closed, Covered, Open, Partial
from cdd_agent.work.state import AttemptRecord, StepExecution
from cdd_agent.work.wording import change_finding
from cdd_agent.workspace.files import ConfinedFolder

_MAX_SUMMARY = 600
"""Characters of the model's summary in a commit message."""
_MAX_PATHS = 20


def make_handoff_id(ticket: str, number: int, *, phase: Phase, base: str | None) -> str:
    """Return the id of a landing; a second try to land the phase from the same commit gets the same id."""
    return hashlib.sha256(f"{ticket}/{number}/{phase}/{base}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCommit:
    """The commit of one attempt, and its handoff note."""

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
        if self.attempt.outcome == Covered("existing"):
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
            mark = "[x]" if attempt.outcome == Open() else "[ ]"
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
        is_covered = isinstance(attempt.outcome, Covered)
        has_failed = isinstance(attempt.outcome, Closed | Partial)
        is_before_green = attempt.phase in ("plan", "red") and not is_covered
        is_pending = is_before_green or (has_failed and attempt.phase == "green")
        progress = item.progress or Progress(
            completed=() if is_pending or attempt.outcome == Covered("dropped") else item.tests,
            pending=item.tests if is_pending else (),
        )
        next_phase = self._choose_next_phase(msgspec.convert(progress.following, type=NextPhase))
        if item.progress and attempt.phase != "plan" and next_phase == progress.following:
            pending = tuple(title for title in progress.pending if title != item.title)
            own = () if attempt.outcome == Covered("dropped") else (item.title,)
            progress = replace(progress, completed=(*progress.completed, *own), pending=pending)
        result: Literal["PASS", "FAIL"] = "FAIL" if is_before_green else "PASS"
        kind = (attempt.finding or attempt.reasons[0].code) if has_failed else ""
        report = self.context.records.folder / attempt.report if attempt.report else None
        return Handoff(
            seq=sequence(phase_name(attempt.phase), cycle=item.number),
            id=self._id,
            ticket=item.ticket,
            source=self.context.source,
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
            test_result=None if has_failed or attempt.phase == "plan" else result,
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
                open=isinstance(attempt.outcome, Open),
                finding=attempt.finding or "",
                reasons=attempt.reasons,
                report_sha256=hashlib.sha256(report.read_bytes()).hexdigest() if report and report.is_file() else None,
                examples=tuple(change_finding(example, hide) for example in self._list_examples()),
                evidence=attempt.evidence,
            ),
        )

    def _list_examples(self) -> tuple[Finding, ...]:
        if self.attempt.phase != "green" or not isinstance(self.attempt.outcome, Open):
            return ()
        examples = load_examples(StepRecovery(self.item.ticket, self.step, context=self.context).examples_path)
        return examples.facts if examples is not None else ()

    def _choose_next_phase(self, following: NextPhase) -> NextPhase:
        """Return the phase after this one; a failed phase is repeated, except REFACTOR, which is optional."""
        item, attempt = self.item, self.attempt
        if isinstance(attempt.outcome, Covered):
            return following
        if isinstance(attempt.outcome, Closed | Partial) and attempt.phase != "refactor":
            return phase_name(attempt.phase)
        after = item.phases[item.phases.index(attempt.phase) + 1 :]
        return phase_name(after[0]) if after else following
