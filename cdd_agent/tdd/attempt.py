"""One attempt at a phase: a fresh conversation with the model, and the gate's verdict on the resulting files.

The verdict compares them with the baseline: files, history and test results from before the first attempt. The model
works with tools that lock the files of the phase, or answers with whole files.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cdd_agent.agent import tools
from cdd_agent.agent.blocks import remove_fenced
from cdd_agent.agent.loop import AgentRun
from cdd_agent.events import AttemptStarted, Diagnosed, GateJudged, Notice
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.tdd.baseline import Baseline
from cdd_agent.tdd.context import Context, Phase, WorkItem, summarize_evidence
from cdd_agent.tdd.file_check import Work
from cdd_agent.tdd.judgment import MAX_ANSWER_CHARACTERS, Judge, Judgment
from cdd_agent.tdd.phase_agent import MAX_WORDS, PhaseAgent
from cdd_agent.tdd.phase_task import PhaseTask, needs_no_test
from cdd_agent.tdd.verdict import adapt_to_review
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.outcome import Covered
from cdd_agent.work.state import AttemptRecord, Diagnosis, StepExecution
from cdd_agent.work.wording import change_finding, change_reason, format_reason


class Attempt:
    """One try at a phase of a work item."""

    def __init__(
        self,
        item: WorkItem,
        phase: Phase,
        *,
        step: StepExecution,
        baseline: Baseline,
        context: Context,
        copies: CleanCopies | None = None,
    ) -> None:
        """Does nothing before ``run`` or ``judge_part``. The attempts at a step share its clean ``copies``."""
        if step.iterates and phase == "green":  # RED may have written tests that the plan does not name
            wanted = adapt_to_review(item, report=baseline.report, old=baseline.report.old_failures)
            item = replace(item, tests=tuple(dict.fromkeys((*item.tests, *wanted.tests))))
        self._task = PhaseTask(item=item, phase=phase, step=step, baseline=baseline, context=context)
        self._copies = copies
        self._agent: PhaseAgent | None = None

    def run(self, *, is_anew: bool, is_continued: bool = False) -> AttemptRecord:
        """Let the model work, judge its work, save it as a snapshot, and return the record.

        ``is_anew``: the files are as they were when the phase began. ``is_continued``: they contain the work of an
        attempt that was interrupted.
        """
        task, context, phase = self._task, self._task.context, self._task.phase
        self._announce()
        hide = task.known.hide_in  # read now: the agent may change the files
        brief = context.brief(task.item, phase, context=context)
        brought = None
        if not (task.earlier or is_continued):
            brought = context.bring_ahead(task.item.number, phase, context=context)
        self._agent = agent = PhaseAgent(task, is_anew=is_anew, is_continued=is_continued)
        run = agent.run(brief) if brought is None else brought.run
        claim = _read_claim(run)
        context.workplace.restore_access()
        for notice in brief.complete() if brief.complete is not None else ():
            context.emit(Notice(text=notice))
        judge = Judge(task, brief=brief, copies=self._copies, brought=brought, claim=claim)
        work = self._save_work(task.recovery.name_attempt(phase, task.number))
        judgment = judge.judge(run, work)
        record = self._make_record(judgment, judge=judge, report_path=task.report_path)
        if brief.diagnose is not None and judgment.report is not None and not record.is_open:
            cause = brief.diagnose(judgment.report, judge.rerun)
            record = replace(record, diagnosis=cause and _mask(cause, hide))
        context.emit(
            GateJudged(
                phase=phase,
                attempt=task.number,
                open=record.is_open,
                reasons=() if record.is_open else record.reasons,
                evidence=judgment.evidence or self._summarize_tests(judgment, judge.reused),
                finding=record.finding or "",
                is_expected=needs_no_test(record, task.step) or self._passes_as_expected(record),
            )
        )
        if record.diagnosis is not None:
            context.emit(_describe_diagnosis(record.diagnosis, record, step=task.item.number))
        added = "" if record.is_open else self._report_closed_gate(record)
        if judgment.verdict.open:
            agent.answers.save()
        context.workplace.restore_head(task.baseline.tip)  # in case the agent made commits
        answer = None if brief.judge is None else hide(run.text[:MAX_ANSWER_CHARACTERS])
        words, summary = (
            hide("\n\n".join(filter(None, (self.words, added)))),
            hide(self._summarize(run, work=work, claim=claim)),
        )
        return replace(record, answer=answer, words=words, summary=summary)

    def _passes_as_expected(self, record: AttemptRecord) -> bool:
        """Return whether the tests are about code that exists, and pass."""
        return self._task.context.policy.expects_pass and isinstance(record.outcome, Covered)

    def _announce(self) -> None:
        task, item = self._task, self._task.item
        context, limit = task.context, task.context.policy.max_attempts
        unit = f"{item.number_key.lower()} {item.number}"
        context.store.place = f"attempt {task.number} at {task.phase.upper()} of {item.ticket} {unit}"
        is_again = bool(task.step.times_sent_back)
        context.emit(
            AttemptStarted(phase=task.phase, number=task.number, limit=limit, is_again=is_again, step=item.number)
        )

    @property
    def words(self) -> str:
        """The agent's last words so far, shortened and with keys masked."""
        return "" if self._agent is None else self._agent.words

    def _summarize(self, run: AgentRun, *, work: Work, claim: str) -> str:
        """Return the agent's summary of the present changes, without code and with keys masked; empty without one.

        If the attempt changed nothing, it is about something else, such as the refusal of the attempt before.
        """
        if claim and not work.changes:
            return claim
        earlier, snapshots = self._task.earlier, self._task.context.snapshots
        last = earlier[-1] if earlier else None
        before = snapshots.find(last.checkpoint) if last else None
        if last and before and not snapshots.list_changes_since(before, until=work.snapshot):
            return last.summary
        text = run.text if run.end in ("answered", "completed") else ""  # before a limit, the model is still at work
        if run.ended_by is not None:
            is_report = run.ended_by.name == tools.BLOCKED_TOOL
            text = "" if is_report else str(run.ended_by.input.get("summary") or text)
        return mask(remove_fenced(text)).text.strip()[:MAX_WORDS]

    def _summarize_tests(self, judgment: Judgment, reused: str) -> str:
        """Return the line that says which results the verdict is based on, and whether they are from an earlier run."""
        summary = summarize_evidence(judgment.verdict, judgment.report, baseline=self._task.baseline.report)
        return f"{summary}; reused: {reused}" if reused else summary

    def _report_closed_gate(self, record: AttemptRecord) -> str:
        """Run the hooks for a closed gate, and return what they and the diagnosis add for the next attempt."""
        fields = {"phase": record.phase, "attempt": record.number, "reasons": [*map(format_reason, record.reasons)]}
        reply = self._task.context.hooks.run("GateClosed", fields, subject=record.phase)
        added = [f"A hook of the user adds: {text}" for text in (reply.block, reply.context) if text]
        cause = record.diagnosis
        return "\n\n".join((*((f"cdd adds: {cause}",) if cause is not None and cause.advice else ()), *added))

    def _save_work(self, name: str) -> Work:
        task, snapshots = self._task, self._task.context.snapshots
        snapshot = snapshots.take(task.recovery.refs.ref(name), message=f"the files after {name}")
        return Work(snapshot=snapshot, changes=snapshots.list_changes_since(task.baseline.snapshot, until=snapshot))

    def judge_part(self, attempt: AttemptRecord) -> AttemptRecord:
        """Return ``attempt`` at GREEN with the outcome of the current files by the item's tests.

        The item is a part of the one that the attempt was for. Snapshot and report of the attempt stay untouched.
        """
        task = self._task
        brief = task.context.brief(task.item, task.phase, context=task.context)
        judge, path = Judge(task, brief=brief, copies=self._copies), task.recovery.report_path("green-part")
        judgment = judge.judge_tests(self._save_work("green-part"), report_path=path)
        return replace(
            self._make_record(judgment, judge=judge, report_path=path),
            number=attempt.number,
            answer=attempt.answer,
            words=attempt.words,
            summary=attempt.summary,
        )

    def _make_record(self, judgment: Judgment, *, judge: Judge, report_path: Path) -> AttemptRecord:
        task, hide = self._task, self._task.known.hide_in
        report = str(report_path.relative_to(task.context.records.folder))
        return AttemptRecord(
            phase=task.phase,
            number=task.number,
            outcome=judge.find_outcome(judgment),
            # They quote failures, and are in the note of a commit.
            reasons=tuple(change_reason(reason, hide) for reason in judgment.verdict.reasons),
            report=None if judgment.report is None else report,
            checkpoint=judgment.snapshot.ref,
            evidence=tuple(change_finding(finding, hide) for finding in judge.evidence),
        )


def _mask(cause: Diagnosis, hide: Callable[[str], str]) -> Diagnosis:
    return replace(cause, why=hide(cause.why), place=hide(cause.place), advice=hide(cause.advice))


def _describe_diagnosis(cause: Diagnosis, attempt: AttemptRecord, *, step: int) -> Diagnosed:
    return Diagnosed(
        step=step,
        phase=attempt.phase,
        attempt=attempt.number,
        cause=cause.kind,
        by=cause.by,
        why=cause.why,
        votes=tuple(map(str, cause.votes)),
    )


def _read_claim(run: AgentRun) -> str:
    """Return why nothing has to change, if the agent has called the work done and says why."""
    if run.ended_by is None or run.ended_by.name != tools.COMPLETION_TOOL:
        return ""
    said = str(run.ended_by.input.get("summary") or run.text)
    return format_line(mask(said).text).strip()[:MAX_WORDS]
