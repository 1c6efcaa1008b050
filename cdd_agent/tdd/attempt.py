"""One attempt at a phase: a fresh conversation with the model, and the gate's verdict on the resulting files.

The verdict compares them with the baseline: files, history and test results from before the first attempt. The model
works with tools that lock the files of the phase, or answers with whole files.
"""

import os
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from cdd_agent.agent import tools
from cdd_agent.agent.blocks import WholeFiles, remove_fenced
from cdd_agent.agent.hooks import BlockHooks, run_until_stop, watch_tools
from cdd_agent.agent.loop import AgentRun, format_conventions, run_agent, run_without_tools
from cdd_agent.agent.sessions import load_conversation, save_conversation
from cdd_agent.agent.tools import read_input
from cdd_agent.errors import TurnMissing, UsageError
from cdd_agent.events import AttemptStarted, Change, GateJudged, Notice
from cdd_agent.evidence.clean_copy import (
    DOUBTS,
    CheckRequest,
    Findings,
    find_layout,
    find_newly_passing,
    list_product_changes,
    note,
    read_product_sources,
    read_sources,
)
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.evidence.differential import ComparedTrees, refuse_changed_behavior
from cdd_agent.evidence.mutation import TimedRuns, find_changing_ids, judge_covered_tests
from cdd_agent.evidence.product_runs import find_tests_of_product
from cdd_agent.evidence.readable import check_sources
from cdd_agent.evidence.stubs import NewTests, check_new_tests
from cdd_agent.git.commits import list_programs_of_git
from cdd_agent.git.repository import EXECUTABLE, LINK, SUBMODULE
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.budget import Budget, find_context_window
from cdd_agent.model.conversation import (
    CHARACTERS_PER_TOKEN,
    Conversation,
    Marks,
    Message,
    Model,
    ToolCall,
    find_last_words,
)
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd import verdict
from cdd_agent.tdd.baseline import Baseline, PatientModel, leave_out, list_added_tests, name_scope
from cdd_agent.tdd.briefing import ShownFiles, format_diff, is_cut, outline_files, show_step_files
from cdd_agent.tdd.context import Brief, Brought, Context, Phase, WorkItem, summarize_evidence
from cdd_agent.tdd.examination import Examination, OptionalTurns
from cdd_agent.tdd.instructions import (
    Circumstance,
    Occasion,
    find_circumstances,
    format_failures,
    format_nudge,
    format_objections,
    format_step,
    format_system_prompt,
    format_task,
    list_remedies,
)
from cdd_agent.tdd.kinds import FileKinds, ask_to_land, find_started, is_settings
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.tools import CommentAnswers, KnownTests, make_lock_check, make_tools
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.foreign import make_syntax_check
from cdd_agent.testrun.impact import load_impact
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.known_values import KnownValues
from cdd_agent.untrusted.paths import is_cached
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.finding import Finding
from cdd_agent.work.outcome import Closed, Covered, Open, Outcome
from cdd_agent.work.state import AttemptRecord, StepExecution
from cdd_agent.work.wording import change_finding, change_reason, explain, format_reason
from pytest_tdd_agent.codec import dump
from pytest_tdd_agent.comparison import find_unstable, strip_parameters
from pytest_tdd_agent.report import FAILING, Clause, Reason, SuiteReport, Verdict, list_failing

FindNudge: TypeAlias = Callable[[AgentRun], str]
"""Returns what an agent is told once that has done no work; empty if it has."""

MAX_ANSWER_CHARACTERS = 20_000
_EXAMPLES_BYTES = 1_000_000
_QUICK_S = 2.0
"""Duration of a run of all tests; a process takes about as long to start."""
MAX_WORDS = 2_000
"""Characters of the last words that the next attempt gets."""
FORKED = "forked"
"""Folder beside the reports of a fork, with the conversations that its step continues."""


def name_conversation(number: int, phase: str) -> str:
    """Return the name of the file with the last conversation of a phase of a step."""
    return f"step-{number}-{phase}.conversation"


def list_attempts(phase: Phase, step: StepExecution) -> tuple[AttemptRecord, ...]:
    """Return the attempts at one phase so far."""
    return tuple(attempt for attempt in step.attempts if attempt.phase == phase)


def has_given_up(attempt: AttemptRecord) -> bool:
    """Return whether the agent reported that it cannot continue."""
    return any(has_code(attempt, code) for code in tools.BLOCKED_CODES)


def has_code(attempt: AttemptRecord, code: str) -> bool:
    """Return whether the first reason against an attempt has this code."""
    return attempt.reasons[:1] != () and attempt.reasons[0].code == code


EXAMPLE_CODES = ("example_failed", "example_regressed")
"""The codes of an attempt that an example of the Examiner refutes."""


def is_refuted(attempt: AttemptRecord) -> bool:
    """Return whether an example of the Examiner refutes the attempt."""
    return any(has_code(attempt, code) for code in EXAMPLE_CODES)


def needs_no_test(attempt: AttemptRecord, step: StepExecution) -> bool:
    """Return whether an iteration asks for no new behavior: its RED ended without a failing test."""
    is_without = isinstance(attempt.outcome, Covered) or has_code(attempt, "no_change")
    return step.iterates and attempt.phase == "red" and is_without


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The files as the agent left them."""

    snapshot: Snapshot
    changes: tuple[Change, ...]
    """Since the phase began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgment:
    verdict: Verdict
    report: SuiteReport | None
    checkpoint: Snapshot
    """The files without the forbidden changes."""
    evidence: str = ""
    outcome: Outcome | None = None
    """Of RED, if it is known without its report."""


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
        self.item = item
        if step.iterates and phase == "green":  # RED may have written tests that the plan does not name
            wanted = verdict.adapt_to_review(item, report=baseline.report, old=baseline.report.old_failures)
            self.item = replace(item, tests=tuple(dict.fromkeys((*item.tests, *wanted.tests))))
        self.phase = phase
        self.step = step
        self.baseline = baseline
        self.context = context
        self.earlier = list_attempts(phase, step)
        self.number = len(self.earlier) + 1
        self.recovery = StepRecovery(item.ticket, step, context=context)
        self._is_nudged = False
        self._claim = ""
        self._is_anew = False
        self._has_interrupted_work = False
        self._brought: Brought | None = None
        self._reused = ""
        """From which run the gate's report is, if it is an earlier one."""
        self._evidence: list[Finding] = []
        self._answers = CommentAnswers(item, step=step, context=context)
        self._conversation: Conversation | None = None
        tree, limit_s = context.workplace.tree, context.policy.evidence_timeout_s
        self._runs = TimedRuns(repository=tree, suite=context.suite, limit_s=limit_s, emit=context.emit, copies=copies)

    @property
    def _unit(self) -> str:
        return f"{self.item.number_key.lower()} {self.item.number}"

    @property
    def _examination(self) -> Examination:
        return Examination(item=self.item, context=self.context, path=self.recovery.examples_path)

    def run(self, *, is_anew: bool, is_continued: bool = False) -> AttemptRecord:
        """Let the model work, judge its work, save it as a checkpoint, and return the record.

        ``is_anew``: the files are as they were when the phase began. ``is_continued``: they contain the work of an
        attempt that was interrupted.
        """
        self._is_anew, self._has_interrupted_work = is_anew, is_continued
        context, name = self.context, self.recovery.name_attempt(self.phase, self.number)
        limit, is_again = context.policy.max_attempts, self.step.was_sent_back
        context.store.place = f"attempt {self.number} at {self.phase.upper()} of {self.item.ticket} {self._unit}"
        context.emit(AttemptStarted(phase=self.phase, number=self.number, limit=limit, is_again=is_again))
        hide = self._known.hide_in  # read now: the agent may change the files
        brief = context.brief(self.item, self.phase, context=context)
        if not (self.earlier or is_continued):
            self._brought = context.bring_ahead(self.item.number, self.phase, context=context)
        run = self._brought.run if self._brought is not None else self._run_agent(brief, is_anew=is_anew)
        if self._conversation is not None:
            save_conversation(self._conversation, self._conversation_path)
        self._claim = self._read_claim(run)
        context.workplace.restore_access()
        if run.end in ("out_of_turns", "out_of_calls", "out_of_tokens"):
            parts = {"turns": run.turns, "tool_calls": run.calls}
            self._report(Finding(check="run", outcome="noted", case="ran_out", parts=parts))
        work = self._save_work(name)
        is_blocked = run.ended_by is not None and run.ended_by.name == tools.BLOCKED_TOOL
        blocked = self._judge_blocked(run.ended_by, work) if is_blocked and run.ended_by is not None else None
        if blocked is not None:
            judgment = self._require_yes(blocked)
        elif brief.judge is None:
            judgment = self._judge_tests(work, report_path=self.recovery.report_path(name))
        else:
            judgment = self._judge_answer(brief, run.text, work=work)
        record = self._make_record(judgment, report_path=self.recovery.report_path(name))
        is_open = record.is_open
        context.emit(
            GateJudged(
                phase=self.phase,
                attempt=self.number,
                open=is_open,
                reasons=() if is_open else record.reasons,
                evidence=judgment.evidence or self._summarize_tests(judgment),
                finding=record.finding or "",
                is_expected=needs_no_test(record, self.step),
            )
        )
        added = "" if is_open else self._report_closed_gate(record)
        if judgment.verdict.open:
            self._answers.save()
        context.workplace.restore_head(self.baseline.tip)  # in case the agent made commits
        answer = None if brief.judge is None else hide(run.text[:MAX_ANSWER_CHARACTERS])
        words, summary = hide("\n\n".join(filter(None, (self.words, added)))), hide(self._summarize(run, work))
        return replace(record, answer=answer, words=words, summary=summary)

    def _summarize(self, run: AgentRun, work: _Work) -> str:
        """Return the agent's summary of the present changes, without code and with keys masked; empty without one.

        If the attempt changed nothing, it is about something else, such as the refusal of the attempt before.
        """
        if self._claim and not work.changes:
            return self._claim
        last = self.earlier[-1] if self.earlier else None
        before = self.context.snapshots.find(last.checkpoint) if last and last.checkpoint else None
        if last and before and not self.context.snapshots.list_changes_since(before, until=work.snapshot):
            return last.summary
        text = run.text if run.end in ("answered", "completed") else ""  # before a limit, the model is still at work
        if run.ended_by is not None:
            is_report = run.ended_by.name == tools.BLOCKED_TOOL
            text = "" if is_report else str(run.ended_by.input.get("summary") or text)
        return mask(remove_fenced(text)).text.strip()[:MAX_WORDS]

    def _read_claim(self, run: AgentRun) -> str:
        """Return why nothing has to change, if the agent has called the work done and says why."""
        if run.ended_by is None or run.ended_by.name != tools.COMPLETION_TOOL:
            return ""
        said = str(run.ended_by.input.get("summary") or run.text)
        return format_line(mask(said).text).strip()[:MAX_WORDS]

    def _summarize_tests(self, judgment: _Judgment) -> str:
        """Return the line that says which results the verdict is based on, and whether they are from an earlier run."""
        summary = summarize_evidence(judgment.verdict, judgment.report, baseline=self.baseline.report)
        return f"{summary}; reused: {self._reused}" if self._reused else summary

    def _report_closed_gate(self, record: AttemptRecord) -> str:
        """Run the hooks for a closed gate, and return what they add for the next attempt."""
        fields = {"phase": self.phase, "attempt": self.number, "reasons": [*map(format_reason, record.reasons)]}
        reply = self.context.hooks.run("GateClosed", fields, subject=self.phase)
        return "\n\n".join(f"A hook of the user adds: {text}" for text in (reply.block, reply.context) if text)

    def judge_part(self, attempt: AttemptRecord) -> AttemptRecord:
        """Return ``attempt`` at GREEN with the verdict on the current files by the item's tests.

        The item is a part of the one that the attempt was for. Checkpoint and report of the attempt stay untouched.
        """
        path = self.recovery.report_path("green-part")
        judgment = self._judge_tests(self._save_work("green-part"), report_path=path)
        record = self._make_record(judgment, report_path=path)
        return replace(
            record, number=attempt.number, answer=attempt.answer, words=attempt.words, summary=attempt.summary
        )

    def _make_record(self, judgment: _Judgment, *, report_path: Path) -> AttemptRecord:
        path = str(report_path.relative_to(self.context.records.folder))
        return AttemptRecord(
            phase=self.phase,
            number=self.number,
            outcome=self._find_outcome(judgment),
            # They quote failures, and are in the note of a commit.
            reasons=tuple(change_reason(reason, self._known.hide_in) for reason in judgment.verdict.reasons),
            report=None if judgment.report is None else path,
            checkpoint=judgment.checkpoint.ref,
            evidence=tuple(change_finding(finding, self._known.hide_in) for finding in self._evidence),
        )

    def _find_outcome(self, judgment: _Judgment) -> Outcome:
        if judgment.outcome is not None:
            return judgment.outcome
        if self.phase == "red":
            return self._classify_red(judgment.verdict, judgment.report)
        return Open() if judgment.verdict.open else Closed()

    @property
    def words(self) -> str:
        """The agent's last words so far, shortened and with keys masked."""
        messages = () if self._conversation is None else self._conversation.messages
        return mask(find_last_words(messages)).text[-MAX_WORDS:]

    def _run_agent(self, brief: Brief, *, is_anew: bool) -> AgentRun:
        """Hold a fresh conversation with the model until it finishes or its budget is used up."""
        context, item = self.context, self.item
        has_tools = context.policy.edit_format == "tools"
        token, messages = self._load_conversation() if has_tools else (context.token, ())
        marks = Marks(token)
        start = context.snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        shown = ShownFiles(text="")
        if has_tools:
            shown = show_step_files(item, start.commit if start else None, context=context, marks=marks)
        occasion = self._describe_occasion(start, is_anew=is_anew, is_continued=bool(messages), marks=marks)
        tools = self._make_tools(shown, occasion.diff) if has_tools else ()
        offered = [tool.spec.name for tool in tools]
        self._conversation = conversation = Conversation(
            format_system_prompt(brief, offered=offered, marks=marks),
            token=marks.token,
            preface=format_conventions(context.memory, marks=marks),
            hear_user=context.hear,
            messages=messages,
        )
        facts = f"The project's tests run with {context.suite.conventions.framework}: `{context.suite.command}`."
        outline = outline_files(start.commit if start else None, context=context, marks=marks)
        step = format_step(brief, facts=facts, outline=outline, files=shown.text, marks=marks)
        task = format_task(brief, occasion, offered=offered, marks=marks)
        if not has_tools:
            max_characters = context.policy.budget.max_answer_tokens * CHARACTERS_PER_TOKEN
            own = BlockHooks(context.hooks, context.workspace, record_file=context.record_file)
            files = WholeFiles(
                context.workspace,
                make_lock_check(self._make_locks(), context),
                max_characters=max_characters,
                object_to=own.check,
                report=own.report,
                find_error=make_syntax_check(context.suite),
            )
            paths = self._list_files_to_send()
            heading = "The current, complete files of the step:" if any(map(context.workspace.is_file, paths)) else ""
            given = files.render(paths, marks=marks)
            conversation.say(step, "\n\n".join(filter(None, (heading, given, task))))
            talk = partial(run_without_tools, conversation, files)
        else:
            conversation.say(step, task)
            watched = watch_tools(
                tools, hooks=context.hooks, workspace=context.workspace, record_file=context.record_file
            )
            talk = partial(run_agent, conversation, watched)

        def answer(model: Model, budget: Budget) -> AgentRun:
            return talk(model=model, budget=budget, emit=context.emit, agent=brief.agent)

        find_nudge = partial(self._find_nudge, brief=brief, offered=offered)
        hold = partial(self._hold, answer, conversation, find_nudge=find_nudge)
        return run_until_stop(hold, conversation, hooks=context.hooks)

    def _make_tools(self, shown: ShownFiles, diff: str) -> tuple[tools.Tool, ...]:
        reports_tests = self.phase == "green" and self.context.policy.tests_after_write
        return make_tools(
            self._make_locks(),
            self.context,
            after_writing=self.item.tests if reports_tests else (),
            shown=self._find_complete_files(shown, diff),
            known=KnownTests(
                list_all=lambda: tuple(case.nodeid for case in self.baseline.report.tests), widen=self._widen
            ),
            answer=self._answers.note if self._answers.list_open() else None,
        )

    def _widen(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Return what the gate runs, if that contains all of ``targets`` and is no more work.

        In RED these are the files that it added, and in GREEN all tests, if they take hardly longer than one.
        """
        scope, before = self.context.policy.gate_runs, self.baseline.report
        if self.phase == "green" and not scope and before.structured and before.duration_s < _QUICK_S:
            ids = [*(case.nodeid for case in before.tests), *(error.nodeid for error in before.collect_errors)]
            are_known = all(
                any(verdict.is_or_contains(t, e) or verdict.is_or_contains(e, t) for e in ids) for t in targets
            )
            return () if are_known else targets
        if self.phase != "red" or not targets:
            return targets
        changes = self.context.snapshots.list_changes_since(self.baseline.snapshot)
        added = list_added_tests(self.item, changes, before=self.baseline.report, context=self.context)
        return added if {target.partition("::")[0] for target in targets} <= {*added} else targets

    def _hold(
        self, talk: Callable[[Model, Budget], AgentRun], conversation: Conversation, *, find_nudge: FindNudge
    ) -> AgentRun:
        """Return the run of ``talk``; an answer without any work gets one nudge in the same conversation."""
        model, budget = PatientModel(self.context.model, self.baseline.results), self.context.policy.budget
        run = talk(model, budget)
        tokens, turns = budget.max_tokens_total, budget.max_turns - run.turns
        nudge = "" if self._is_nudged or turns < 1 else find_nudge(run)
        if not nudge:
            return run
        self._is_nudged = True
        conversation.say(nudge)
        self.context.emit(Notice(text="The model has changed nothing. cdd tells it once what it can do."))
        left = None if tokens is None else tokens - run.usage.tokens
        rest = replace(budget.subtract_calls(run.calls), max_turns=turns, max_tokens_total=left)
        try:
            more = talk(OptionalTurns(model), rest)
        except TurnMissing:  # a recording that was made without the nudge
            return run
        return replace(more, turns=run.turns + more.turns, calls=run.calls + more.calls, usage=run.usage + more.usage)

    def _find_nudge(self, run: AgentRun, *, brief: Brief, offered: Collection[str]) -> str:
        """Return what an agent is told that has answered in words without any work; empty if its answer is enough."""
        if run.end != "answered":
            return ""
        if brief.judge is not None:
            objections = brief.judge(run.text)
            return format_objections(objections, marks=Marks(self.context.token)) if objections else ""
        is_enough = self.phase == "refactor" and self.item.kind != "refactor"
        return "" if is_enough or self._has_changes() else format_nudge(offered=offered)

    def _has_changes(self) -> bool:
        """Return whether the files differ from those that the last gate judged."""
        last = self.earlier[-1].checkpoint if self.earlier and not self._is_anew else None
        judged = self.context.snapshots.find(last) if last else None
        return bool(self.context.snapshots.list_changes_since(judged or self.baseline.snapshot))

    @property
    def _conversation_path(self) -> Path:
        return self.context.reports / name_conversation(self.step.step_number, self.phase)

    @property
    def _forked_conversation(self) -> Path:
        path = self._conversation_path
        return path.parent / FORKED / path.name

    def _load_conversation(self) -> tuple[str, tuple[Message, ...]]:
        """Return the token and the messages to continue, in an iteration or a fork: those of the phase's last attempt.

        Those of a fork are in the folder ``FORKED``. Later attempts of the phase begin a new one.
        """
        context, fresh, path = self.context, (self.context.token, ()), self._conversation_path
        if self.earlier:
            return fresh
        try:
            saved = load_conversation(path if self.step.iterates else self._forked_conversation)
        except UsageError as error:
            context.emit(Notice(text=f"{error.happened} A new conversation begins."))
            return fresh
        window = find_context_window(context.model.name)
        if saved is None or (window and Conversation("", messages=saved[1]).tokens * 2 > window):
            return fresh
        return saved

    def _describe_occasion(
        self, start: Snapshot | None, *, is_anew: bool, is_continued: bool, marks: Marks
    ) -> Occasion:
        context, objects = self.context, self.context.workplace.tree.objects
        failing, advice = self._describe_failures()
        diff = undone = ""
        if start is not None and context.policy.edit_format == "tools":
            diff = format_diff(objects, start.commit, after=context.snapshots.take_unsaved().commit)
        if is_anew and (last := context.snapshots.find(self.earlier[-1].checkpoint or "refs/cdd/none")):
            undone = format_diff(objects, self.baseline.snapshot.commit, after=last.commit)
        reruns = {Circumstance.FORKED} if self._forked_conversation.exists() else set[Circumstance]()
        reruns |= {Circumstance.CONTINUED} if is_continued else set[Circumstance]()
        work = self.step.interrupted if self.step.interrupted and self.step.interrupted.phase == self.phase else None
        resumed = set[Circumstance]()
        if work is not None:
            resumed = {Circumstance.RESUMED if self._has_interrupted_work else Circumstance.INTERRUPTED}
        return Occasion(
            circumstances=find_circumstances(self.item, context.policy) | reruns | resumed,
            earlier=self.earlier,
            is_anew=is_anew,
            failing=failing,
            remedies=advice,
            step=self.step,
            interrupted=work.diff if work is not None else "",
            interrupted_words=work.words if work is not None else "",
            diff=diff,
            undone=undone,
            impact=load_impact(context.impact_path).describe(self.item.sources, but=self.item.tests),
            further=self._examination.find_visible_example() if self.phase == "green" else "",
        )

    def _find_complete_files(self, shown: ShownFiles, diff: str) -> tuple[str, ...]:
        """Return the files that the model knows completely: shown as they were, with all changes since."""
        if is_cut(diff):
            return ()
        headers = set(diff.splitlines())
        # A file that did not exist is known if the diff shows all of it.
        new = (name for name in shown.absent if f"+++ b/{self.context.to_repository_path(name)}" in headers)
        return tuple(name for name in (*shown.whole, *new) if self.context.workspace.is_file(name))

    def _make_locks(self) -> PhaseLocks:
        context = self.context
        return PhaseLocks(
            phase=self.phase,
            tests=tuple(map(context.to_repository_path, verdict.list_test_files(self.item))),
            listed=tuple(map(context.to_repository_path, self.item.sources)),
            layout=find_layout(context.workplace.tree, context.suite),
            kinds=self._kinds,
        )

    @cached_property
    def _kinds(self) -> FileKinds | None:
        """The kinds of files that may land without a question; None in PLAN, which may only write its list."""
        context, item = self.context, self.item
        if self.phase == "plan":
            return None
        objects, layout = context.workplace.tree.objects, find_layout(context.workplace.tree, context.suite)
        # Imports of the model's own tests count only where no plan names the files of a step.
        start = context.snapshots.find(self.step.checkpoint) if item.named and self.step.checkpoint else None
        users = objects.list_files((start or self.baseline.snapshot).commit)
        tracked = objects.list_files(self.baseline.tip)
        return FileKinds(
            tracked=tracked,
            programs=[path for path, entry in tracked.items() if entry.mode == EXECUTABLE],
            is_of_git=list_programs_of_git(context.workplace.tree).names,
            named=frozenset(context.to_repository_path(os.path.normpath(path)) for path in item.named),
            allowed=context.allowed,
            layout=layout,
            users={path: entry.id for path, entry in users.items() if entry.mode.startswith("100")},
            read=lambda found: objects.require(found).text,
            allow=context.restart_command(self.step) if item.named else context.commands.resume,
        )

    def _describe_failures(self) -> tuple[str, tuple[str, ...]]:
        """Return the current failures for the model, regressions first, and in GREEN advice on fixing them."""
        judged = [attempt for attempt in self.earlier if attempt.report]
        if judged:
            report = load_report(judged[-1], root=self.context.records.folder)
        else:
            report = self.baseline.report if self.phase == "green" else None
        if report is None:
            return "", ()
        passed = {case.nodeid for case in self.baseline.report.tests if case.outcome == "passed"}
        old = set(self.baseline.report.old_failures)

        def rank(nodeid: str) -> int:
            """Regressions first, then the item's tests in their order."""
            return -1 if nodeid in passed else verdict.find_position(self.item, nodeid)

        others = len(self.item.tests)
        before = frozenset(list_failing(self.baseline.report))
        if any(rank(nodeid) < others for nodeid in list_failing(report)):  # else they may be the cause
            report = leave_out(report, {nodeid for nodeid in before if rank(nodeid) == others})
        failed = [(error.nodeid, error.failure) for error in report.collect_errors]
        failed += [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
        to_fix = (
            failure
            for nodeid, failure in failed
            if nodeid not in old and (not self.item.tests or rank(nodeid) < others)
        )
        advice = list_remedies(to_fix) if self.phase == "green" else ()
        return format_failures(report, rank=rank), advice

    def _list_files_to_send(self) -> tuple[str, ...]:
        """Return the files of the item and those changed since the step began, relative to the project."""
        item, context = self.item, self.context
        start = context.snapshots.find(self.step.checkpoint) if self.step.checkpoint else None
        changed = [] if start is None else [change.path for change in context.snapshots.list_changes_since(start)]
        inside = context.to_repository_path("")
        own = [path.removeprefix(inside) for path in changed if path.startswith(inside)]
        return tuple(dict.fromkeys((*item.sources, *item.extra_files, *verdict.list_test_files(item), *own)))

    def _save_work(self, name: str) -> _Work:
        snapshots = self.context.snapshots
        snapshot = snapshots.take(self.recovery.refs.ref(name), message=f"the files after {name}")
        return _Work(snapshot=snapshot, changes=snapshots.list_changes_since(self.baseline.snapshot, until=snapshot))

    def _judge_blocked(self, call: ToolCall, work: _Work) -> _Judgment | None:
        """Judge an attempt whose agent stopped. None: no example is left that refutes it, so its files are judged."""
        blocked = read_input(call.input, tools.BlockedReport)
        message = format_line(mask(blocked.reason).text)[:MAX_ANSWER_CHARACTERS]
        last = self.earlier[-1] if self.earlier else None
        if blocked.why == "test_is_wrong" and last is not None and is_refuted(last):
            findings = self._answer_doubt(message, last)
            if findings is not None:
                return self._judge_again(findings, last, work=work)
        reasons = (Reason(code=blocked.why, nodeid=None, case="text", parts={"text": message}),)
        return _Judgment(
            verdict=Verdict(phase=self.phase, open=False, reasons=reasons),
            report=None,
            checkpoint=work.snapshot,
            evidence="the agent gave up",
        )

    def _answer_doubt(self, message: str, last: AttemptRecord) -> Findings | None:
        """Return what is left of the examples that refuted the last attempt; None: nobody could decide."""
        reports = (load_report(each, root=self.context.records.folder) for each in reversed(self.earlier))
        report = next(filter(None, reports), None)
        checkpoint = self.context.snapshots.find(last.checkpoint) if last.checkpoint else None
        if report is None or checkpoint is None:
            return None
        return self._examination.answer_doubt(message, request=self._make_request(report, checkpoint))

    def _judge_again(self, findings: Findings, last: AttemptRecord, *, work: _Work) -> _Judgment | None:
        """Judge the files of the last attempt by its results; None if they have changed since."""
        report = load_report(last, root=self.context.records.folder)
        checkpoint = self.context.snapshots.find(last.checkpoint) if last.checkpoint else None
        is_same = checkpoint and not self.context.snapshots.list_changes_since(checkpoint, until=work.snapshot)
        if report is None or not (is_same or findings.reasons):
            return None
        self._evidence = [*last.evidence, *self._evidence]
        reasons = self._report_notices(findings)
        if is_same:
            dump(report, self.recovery.report_path(self.recovery.name_attempt(self.phase, self.number)))
        return _Judgment(
            verdict=Verdict(phase=self.phase, open=not reasons, reasons=reasons),
            report=report if is_same else None,
            checkpoint=work.snapshot,
            evidence="the results of the last attempt: the files have not changed" if is_same else "the agent gave up",
        )

    def _judge_answer(self, brief: Brief, answer: str, *, work: _Work) -> _Judgment:
        """Judge PLAN, which no test can judge."""
        assert brief.judge is not None
        # Restored first: the brief judges the answer together with the files.
        forbidden, checkpoint = self._restore_forbidden(work)
        reasons = tuple(brief.judge(answer))
        changed = ", ".join(change.path for change in work.changes) or "no file"
        return _Judgment(
            verdict=verdict.add_reasons(
                Verdict(phase=self.phase, open=not reasons, reasons=reasons),
                (*forbidden, *self._find_copied_values(checkpoint)),
            ),
            report=None,
            checkpoint=checkpoint,
            evidence=f"the answer, and {changed} changed",
        )

    def _judge_tests(self, work: _Work, *, report_path: Path) -> _Judgment:
        """Run the tests, apply the gate's rules, restore forbidden changes, and check the result from outside."""
        with closing(self._runs):
            if not work.changes:
                return self._judge_unchanged(work, report_path=report_path)
            return self._require_yes(self._judge_changes(work, report_path=report_path))

    def _judge_changes(self, work: _Work, *, report_path: Path) -> _Judgment:
        judged, report = self._run_gate(work, report_path=report_path)
        forbidden, checkpoint = self._restore_forbidden(work)
        judged = verdict.add_reasons(judged, (*forbidden, *self._find_copied_values(checkpoint)))
        if report is None:
            return _Judgment(verdict=judged, report=None, checkpoint=checkpoint)
        if self._brought is not None and self._brought.evidence is not None and judged.open:
            self._adopt_evidence(self._brought)
            return _Judgment(verdict=judged, report=report, checkpoint=checkpoint)
        if self.phase == "green" and judged.open:
            judged = verdict.add_reasons(judged, self._confirm_green(report, checkpoint))
        if self.phase == "refactor" and judged.open:
            judged = verdict.add_reasons(judged, self._compare_behavior(report, checkpoint))
        if self.phase == "red":
            judged = verdict.add_reasons(judged, self._check_tests_are_readable(work, checkpoint))
            judged = self._accept_product_failures(judged, report, checkpoint=checkpoint)
            sources = self._read_uncollected(report, checkpoint)
            judged = verdict.add_reasons(judged, verdict.find_absent_tests(self.item, sources=sources))
            if self.context.policy.single_test:
                extra = verdict.find_extra_tests(report, baseline=self.baseline.report, sources=sources)
                judged = verdict.add_reasons(judged, extra)
        if self.phase == "red" and isinstance(self._classify_red(judged, report), Open):
            judged = verdict.add_reasons(judged, self._find_vacuous_tests(report, checkpoint))
        return _Judgment(verdict=judged, report=report, checkpoint=checkpoint)

    def _judge_unchanged(self, work: _Work, *, report_path: Path) -> _Judgment:
        """Judge files that are those of the baseline, by its report. The agent may say that nothing has to change."""
        item, phase, report = self.item, self.phase, self.baseline.report
        judged = None
        is_clean_up = phase == "refactor" and item.kind != "refactor"  # it needs no reason to change nothing
        if self._claim and not is_clean_up and not self.step.iterates:  # a reviewer wants a change
            rules = self.context.suite.conventions
            if phase == "red":
                return self._judge_existing_tests(work, report_path=report_path)
            judged = verdict.judge_run(item, phase, report=report, baseline=report, conventions=rules)
        result = verdict.judge_no_change(item, phase, judged=judged)
        if judged is None or not result.open:
            return _Judgment(verdict=result, report=None, checkpoint=work.snapshot)
        if item.tests:
            found = note("no_change", "unchanged_tests_pass", outcome="noted", claim=self._claim)
        else:
            found = note("no_change", "unchanged_untested", claim=self._claim)
        self._report_notices(found)
        dump(report, report_path)
        return _Judgment(verdict=result, report=report, checkpoint=work.snapshot)

    def _judge_existing_tests(self, work: _Work, *, report_path: Path) -> _Judgment:
        """Judge a RED without a change: the tests that the step names must exist, pass, and notice altered code."""
        item, report = self.item, self.baseline.report
        tests = verdict.find_existing_tests(item, report)
        why = "tests_not_all_there"
        if tests:
            found = judge_covered_tests(tests, item.sources, tree=work.snapshot.commit, runs=self._runs)
            why = "tests_pass_altered" if found.reasons else ""
        if why or self.context.policy.accepts_covered:
            reason = Reason(code="red", nodeid=None, case=why, parts={"tests": tests})
            refused = Verdict(phase="red", open=False, reasons=(reason,))
            result = verdict.judge_no_change(item, "red", judged=refused if why else None)
            return _Judgment(verdict=result, report=None, checkpoint=work.snapshot)
        rules = self.context.suite.conventions
        judged = verdict.judge_run(item, "red", report=report, baseline=report, conventions=rules)
        if found.notices:
            found = note("no_change", "unchanged_not_altered", claim=self._claim, tests=tests)
        else:
            found = note("no_change", "unchanged_existing", outcome="noted", claim=self._claim, tests=tests)
        self._report_notices(found)
        dump(report, report_path)
        return _Judgment(verdict=judged, report=report, checkpoint=work.snapshot, outcome=Covered("existing"))

    def _adopt_evidence(self, brought: Brought) -> None:
        """Take over what the checks found where the step was worked out; here only the tests run."""
        self._evidence += brought.evidence or ()
        self._evidence.append(Finding(check="run", outcome="noted", case="worked_out_ahead"))
        if brought.examples is not None:
            with suppress(OSError):
                path = self.recovery.examples_path
                write_atomic(path, read_ordinary(brought.examples, limit_bytes=_EXAMPLES_BYTES))

    def _run_gate(self, work: _Work, *, report_path: Path) -> tuple[Verdict, SuiteReport | None]:
        context, item, before = self.context, self.item, self.baseline.report
        nodeids = (*(case.nodeid for case in before.tests), *(error.nodeid for error in before.collect_errors))
        has_others = not all(verdict.has_test(item, nodeid) for nodeid in nodeids)
        if self.phase == "green" and item.tests and context.policy.targets_first and has_others:
            run = context.run_targets("the targets", targets=item.tests, keep=report_path, before=work.snapshot)
            if run.report is not None:
                before = self._mark_unstable_tests(run.report)
                judged = verdict.judge_targets(item, self.phase, report=run.report, baseline=before)
                if not judged.open:
                    return judged, run.report
        added = list_added_tests(item, work.changes, before=before, context=context) if self.phase == "red" else ()
        if added and context.knows_all_tests():  # from RunTests
            added = ()
        judged, report = self._run_all(work, keep=report_path, added=added)
        if added and isinstance(self._classify_red(judged, report), Covered):  # no GREEN would run the others
            return self._run_all(work, keep=report_path)
        return judged, report

    def _run_all(self, work: _Work, *, keep: Path, added: tuple[str, ...] = ()) -> tuple[Verdict, SuiteReport | None]:
        """Run and judge all tests; with ``added``, those files alone, and the others as in the baseline."""
        context = self.context
        purpose = f"{'the added tests' if added else name_scope(context.policy.gate_runs)} for the gate"
        others = self.baseline.report if added else None
        run = context.run_for_gate(purpose, keep=keep, before=work.snapshot, added=added, others=others)
        self._reused = run.reused
        if run.reused:
            self._evidence.append(Finding(check="run", outcome="noted", case="reused", parts={"run": run.reused}))
        if run.report is None:
            return verdict.judge_incomplete_run(self.phase, run), None
        rules, before = context.suite.conventions, self._mark_unstable_tests(run.report)
        item = self.item
        if self.step.iterates and self.phase == "red":
            item = verdict.adapt_to_review(item, report=run.report, old=list_failing(self.baseline.report))
        changed = self._find_changed_tests(work) if self.phase == "red" else ()
        judged = verdict.judge_run(
            item, self.phase, report=run.report, baseline=before, changed=changed, conventions=rules
        )
        return judged, run.report

    def _find_changed_tests(self, work: _Work) -> tuple[str, ...]:
        """Return the existing tests whose text RED changed."""
        repository = self.context.workplace.tree
        project = find_layout(repository, self.context.suite).project
        modified = [change.path for change in work.changes if change.kind == "modified" and change.path.endswith(".py")]
        paths = [os.path.relpath(path, project or ".") for path in modified]
        trees = (self.baseline.snapshot.commit, work.snapshot.commit)
        before, after = (read_sources(repository, project=project, tree=tree, paths=paths) for tree in trees)
        return verdict.find_changed_tests(before, after)

    def _mark_unstable_tests(self, report: SuiteReport) -> SuiteReport:
        """Return the baseline of the gate. In doubt, the targets run again as they were to see if node ids change."""
        before = self.baseline.report
        doubtful = set(find_unstable(report, before)).difference(before.unstable)
        failed = (case.nodeid for case in before.tests if case.outcome in FAILING)
        lost = [each for each in failed if strip_parameters(each) in doubtful and verdict.has_test(self.item, each)]
        if self.phase != "green" or not lost:
            return before
        tree = self.baseline.snapshot.commit
        changing, found = find_changing_ids(lost, before=before, tree=tree, runs=self._runs)
        self._report_notices(found)
        return replace(before, unstable=(*before.unstable, *changing))

    def _restore_forbidden(self, work: _Work) -> tuple[tuple[Reason, ...], Snapshot]:
        """Restore the files that the phase may not change; return a reason for each and the remaining work.

        Caches are removed without a reason: every program that the agent runs may have left some.
        """
        cached = tuple(change.path for change in work.changes if is_cached(change.path))
        others = tuple(change for change in work.changes if change.path not in cached)
        fixed = self.context.workplace.tree.explain_fixed([change.path for change in others])
        forbidden = self._make_locks().find_forbidden_changes(others, fixed=fixed)
        free = [change for change in others if change.path not in forbidden]
        waiting = self._find_waiting(free, work.snapshot)
        is_asked = self.context.choose is not None
        forbidden |= self._refuse_waiting(
            {path: why for path, why in waiting.items() if not is_asked or path in self.context.declined}
        )
        if not (forbidden or cached):
            return (), work.snapshot
        self.recovery.restore_files(self.baseline.snapshot, only=(*forbidden, *cached))
        message = f"{self.phase} without its forbidden changes"
        return tuple(dict.fromkeys(forbidden.values())), self.context.snapshots.take(work.snapshot.ref, message=message)

    def _find_copied_values(self, checkpoint: Snapshot) -> tuple[Reason, ...]:
        """Return a reason if the changes hold a value of a file that git does not track."""
        known = self._known
        if not known:
            return ()
        objects, before = self.context.workplace.tree.objects, self.baseline.snapshot.commit
        files: dict[str, tuple[bytes | None, bytes]] = {}
        for path, (old, new) in objects.compare(before, checkpoint.commit).items():
            if new is not None and new.mode != SUBMODULE:
                was = objects.require(old.id).data if old is not None and old.mode != SUBMODULE else None
                files[path] = was, objects.require(new.id).data
        return self._report_notices(verdict.find_copied_values(files, known=known))

    @cached_property
    def _known(self) -> KnownValues:
        """The values that ignored files had when they were first needed."""
        return self.context.workplace.read_values()

    def _require_yes(self, judgment: _Judgment) -> _Judgment:
        """Ask the developer about files of unusual kinds if they would land, and close the gate after a no."""
        context, codes = self.context, {reason.code for reason in judgment.verdict.reasons}
        # Tests that pass at once may land although the gate is closed.
        if context.choose is None or not (judgment.verdict.open or codes == {"already_green"}):
            return judgment
        changes = context.snapshots.list_changes_since(self.baseline.snapshot, until=judgment.checkpoint)
        waiting = self._find_waiting(changes, judgment.checkpoint)
        if not waiting:
            return judgment
        if ask_to_land(waiting, choose=context.choose):
            context.allowed.update(waiting)
            return judgment
        context.declined.update(waiting)
        reasons = tuple(dict.fromkeys(self._refuse_waiting(waiting).values()))
        self.recovery.restore_files(self.baseline.snapshot, only=tuple(waiting))
        message = f"{self.phase} without the files that the developer declined"
        return replace(
            judgment,
            verdict=Verdict(phase=self.phase, open=False, reasons=reasons),
            checkpoint=context.snapshots.take(judgment.checkpoint.ref, message=message),
        )

    def _refuse_waiting(self, waiting: dict[str, Clause]) -> dict[str, Reason]:
        """Return path -> the reason against all of ``waiting``, path -> why."""
        if self._kinds is None or not waiting:
            return {}
        return dict.fromkeys(waiting, self.context.refuse_waiting(waiting, kinds=self._kinds))

    def _find_waiting(self, changes: Collection[Change], after: Snapshot) -> dict[str, Clause]:
        """Return path -> why for the changed files of unusual kinds, by their names, modes and contents."""
        kinds, objects = self._kinds, self.context.workplace.tree.objects
        if kinds is None or not changes:
            return {}
        pairs = objects.compare(self.baseline.snapshot.commit, after.commit)
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

    def _classify_red(self, judged: Verdict, report: SuiteReport | None) -> Outcome:
        rules = self.context.suite.conventions
        return verdict.classify_red(self.item, judged, report=report, baseline=self.baseline.report, conventions=rules)

    def _accept_product_failures(self, judged: Verdict, report: SuiteReport, *, checkpoint: Snapshot) -> Verdict:
        """Drop the reasons against tests whose helpers raised after the product ran: that is its behavior."""
        doubtful = verdict.find_doubtful_failures(judged, report)
        if not (doubtful and self.context.suite.conventions.is_python):
            return judged
        ran, found = find_tests_of_product(doubtful, tree=checkpoint.commit, runs=self._runs)
        self._report_notices(found)
        reasons = tuple(reason for reason in judged.reasons if reason.nodeid not in ran)
        for nodeid in sorted(ran):
            self._report_notices(note("product_runs", "product_ran", outcome="noted", test=nodeid))
        return replace(judged, open=not reasons, reasons=reasons)

    def _read_uncollected(self, report: SuiteReport, checkpoint: Snapshot) -> dict[str, str]:
        """Return the sources of the files that RED made impossible to collect; the report does not list their tests."""
        repository = self.context.workplace.tree
        old = {error.nodeid for error in self.baseline.report.collect_errors}
        files = [error.nodeid for error in report.collect_errors if error.nodeid not in old]
        project = find_layout(repository, self.context.suite).project
        return read_sources(repository, project=project, tree=checkpoint.commit, paths=files) if files else {}

    def _check_tests_are_readable(self, work: _Work, checkpoint: Snapshot) -> tuple[Reason, ...]:
        """Return reasons against files that nobody can read."""
        project = find_layout(self.context.workplace.tree, self.context.suite).project
        paths = [os.path.relpath(change.path, project or ".") for change in work.changes]
        before, after = self.baseline.snapshot.commit, checkpoint.commit
        return self._report_notices(check_sources(paths, before=before, after=after, runs=self._runs))

    def _find_vacuous_tests(self, report: SuiteReport, checkpoint: Snapshot) -> tuple[Reason, ...]:
        """Return reasons against new tests that pass as soon as the missing name exists, whatever it does."""
        new = NewTests(report=report, baseline=self.baseline.report, sources=self.item.sources, tree=checkpoint.commit)
        return self._report_notices(check_new_tests(new, runs=self._runs))

    def _confirm_green(self, report: SuiteReport, checkpoint: Snapshot) -> tuple[Reason, ...]:
        """Return the doubts of the evidence checks, which run outside the tests' process."""
        request, runs = self._make_request(report, checkpoint), self._runs
        findings = confirm(request, runs=runs, trees=self._make_trees(report, checkpoint))
        reasons = self._report_notices(findings)
        if all(reason.code in DOUBTS for reason in reasons):
            is_first = not any(map(is_refuted, self.earlier))
            examined = self._examination.examine(request, found=findings, is_first=is_first, runs=runs)
            reasons = self._report_notices(examined)
        return reasons

    def _make_request(self, report: SuiteReport, checkpoint: Snapshot) -> CheckRequest:
        item, context, repository = self.item, self.context, self.context.workplace.tree
        red, green = self.baseline.snapshot.commit, checkpoint.commit
        layout = find_layout(repository, context.suite)
        targets = find_newly_passing(report, baseline=self.baseline.report)
        tests = verdict.list_test_files(item)
        return CheckRequest(
            targets=targets,
            changes=list_product_changes(repository, layout=layout, red=red, green=green, tests=tests),
            tests=read_sources(repository, project=layout.project, tree=red, paths=targets),
            stated="\n".join((item.title, item.goal, *(text for _, text in item.criteria))),
            red=red,
            green=green,
            baseline=self.baseline.report,
            elsewhere=lambda: read_product_sources(repository, project=layout.project, tree=red),
        )

    def _compare_behavior(self, report: SuiteReport, checkpoint: Snapshot) -> tuple[Reason, ...]:
        """Return a reason against a REFACTOR that changes the result of a call."""
        trees = self._make_trees(report, checkpoint)
        return self._report_notices(refuse_changed_behavior(trees, runs=self._runs))

    def _make_trees(self, report: SuiteReport, checkpoint: Snapshot) -> ComparedTrees:
        repository, tests = self.context.workplace.tree, verdict.list_test_files(self.item)
        before, after = self.baseline.snapshot.commit, checkpoint.commit
        layout = find_layout(repository, self.context.suite)
        changes = list_product_changes(repository, layout=layout, red=before, green=after, tests=tests)
        passed = dict.fromkeys(case.file for case in report.tests if case.outcome == "passed")
        is_green = self.phase == "green"
        return ComparedTrees(before=before, after=after, changes=changes, tests=tuple(passed), records_after=is_green)

    def _report(self, finding: Finding) -> None:
        """Show what was found, and keep it for the note and the review."""
        self._evidence.append(finding)
        self.context.emit(Notice(text=explain(finding)))

    def _report_notices(self, findings: Findings) -> tuple[Reason, ...]:
        for notice in findings.notices:
            self._report(notice)
        return findings.reasons
