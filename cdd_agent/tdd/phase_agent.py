"""The agent of an attempt: its prompt and its tools, and the conversation with the model."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cdd_agent.agent import tools
from cdd_agent.agent.blocks import WholeFiles
from cdd_agent.agent.hooks import BlockHooks, run_until_stop, watch_tools
from cdd_agent.agent.loop import AgentRun, format_conventions, run_agent, run_without_tools
from cdd_agent.agent.sessions import load_conversation, save_conversation
from cdd_agent.errors import TurnMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.budget import Budget, find_context_window
from cdd_agent.model.conversation import (
    CHARACTERS_PER_TOKEN,
    Conversation,
    Marks,
    Message,
    Model,
    RoleModel,
    find_last_words,
)
from cdd_agent.tdd import verdict
from cdd_agent.tdd.baseline import PatientModel, leave_out, list_added_tests
from cdd_agent.tdd.briefing import ShownFiles, format_diff, is_cut, outline_files, show_step_files
from cdd_agent.tdd.context import Brief
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
from cdd_agent.tdd.phase_task import PhaseTask
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.tools import CommentAnswers, ToolOffer, make_lock_check, make_tools
from cdd_agent.testrun.foreign import make_syntax_check
from cdd_agent.testrun.impact import load_impact
from cdd_agent.untrusted.keys import mask
from pytest_tdd_agent.report import list_failing

FindNudge: TypeAlias = Callable[[AgentRun], str]
"""Returns the request, made once, to an agent that has done no work; empty if it has done some."""

_QUICK_S = 2.0
"""Duration of a run of all tests; a process takes about as long to start."""
MAX_WORDS = 2_000
"""Characters of the last words that the next attempt gets."""
FORKED = "forked"
"""Folder beside the reports of a fork, with the conversations that its step continues."""


def name_conversation(number: int, phase: str) -> str:
    """Return the name of the file with the last conversation of a phase of a step."""
    return f"step-{number}-{phase}.conversation"


class PhaseAgent:
    """Lets the model work on the task of an attempt."""

    def __init__(self, task: PhaseTask, *, is_anew: bool, is_continued: bool) -> None:
        """``is_anew``: the files are those of the phase's begin. ``is_continued``: they contain interrupted work."""
        self.task = task
        self.answers = CommentAnswers(task.item, step=task.step, context=task.context)
        self._is_anew = is_anew
        self._has_interrupted_work = is_continued
        self._is_nudged = False
        self._conversation: Conversation | None = None

    def run(self, brief: Brief) -> AgentRun:
        """Hold a fresh conversation with the model until it finishes or its budget is used up."""
        context, item = self.task.context, self.task.item
        has_tools = context.policy.edit_format == "tools"
        token, messages = self._load_conversation() if has_tools else (context.token, ())
        marks = Marks(token)
        start = context.snapshots.find(self.task.step.checkpoint)
        shown = ShownFiles(text="")
        if has_tools:
            shown = show_step_files(item, start.commit if start else None, context=context, marks=marks)
        occasion = self._describe_occasion(start, is_continued=bool(messages), marks=marks)
        if has_tools and self.task.earlier and not self._is_anew:  # a traceback has lines of files that were undone
            occasion = replace(occasion, places=brief.find_places(self.task.number))
        tools = self._make_tools(brief, shown, diff=occasion.diff) if has_tools else ()
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
                make_lock_check(self.task.make_locks(), context),
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
        run = run_until_stop(hold, conversation, hooks=context.hooks)
        save_conversation(conversation, self._conversation_path)
        return run

    @property
    def words(self) -> str:
        """The agent's last words so far, shortened and with keys masked."""
        messages = () if self._conversation is None else self._conversation.messages
        return mask(find_last_words(messages)).text[-MAX_WORDS:]

    def _make_tools(self, brief: Brief, shown: ShownFiles, *, diff: str) -> tuple[tools.Tool, ...]:
        reports_tests = self.task.phase == "green" and self.task.context.policy.tests_after_write
        offer = ToolOffer(
            after_writing=self.task.item.tests if reports_tests else (),
            shown=self._find_complete_files(shown, diff),
            list_tests=lambda: tuple(case.nodeid for case in self.task.baseline.report.tests),
            widen=self._widen,
            answer=self.answers.note if self.answers.list_open() else None,
            # Most first attempts write what they were shown, so the descriptions of more tools would only cost.
            has_symbols=self.task.context.policy.has_symbols and bool(self.task.earlier),
            keep_name=brief.keep_name,
            further=brief.make_tools(self.task.number) if self.task.earlier else (),
        )
        return make_tools(self.task.make_locks(), self.task.context, offer=offer)

    def _widen(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Return what the gate runs, if that contains all of ``targets`` and is no more work.

        In RED these are the files that it added, and in GREEN all tests, if they take hardly longer than one.
        """
        scope, before = self.task.context.policy.gate_runs, self.task.baseline.report
        if self.task.phase == "green" and not scope and before.structured and before.duration_s < _QUICK_S:
            ids = [*(case.nodeid for case in before.tests), *(error.nodeid for error in before.collect_errors)]
            are_known = all(
                any(verdict.is_or_contains(t, e) or verdict.is_or_contains(e, t) for e in ids) for t in targets
            )
            return () if are_known else targets
        if self.task.phase != "red" or not targets:
            return targets
        changes = self.task.context.snapshots.list_changes_since(self.task.baseline.snapshot)
        added = list_added_tests(self.task.item, changes, before=self.task.baseline.report, context=self.task.context)
        return added if {target.partition("::")[0] for target in targets} <= {*added} else targets

    def _hold(
        self, talk: Callable[[Model, Budget], AgentRun], conversation: Conversation, *, find_nudge: FindNudge
    ) -> AgentRun:
        """Return the run of ``talk``; an answer without any work gets one nudge in the same conversation."""
        model, budget = (
            PatientModel(self.task.context.model, self.task.baseline.results),
            self.task.context.policy.budget,
        )
        run = talk(model, budget)
        tokens, turns = budget.max_tokens_total, budget.max_turns - run.turns
        nudge = "" if self._is_nudged or turns < 1 else find_nudge(run)
        if not nudge:
            return run
        self._is_nudged = True
        conversation.say(nudge)
        self.task.context.emit(Notice(text="The model has changed nothing. cdd tells it once what it can do."))
        left = None if tokens is None else tokens - run.usage.tokens
        rest = replace(budget.subtract_calls(run.calls), max_turns=turns, max_tokens_total=left)
        try:
            more = talk(RoleModel(model, is_optional=True), rest)
        except TurnMissing:  # a recording that was made without the nudge
            return run
        return replace(more, turns=run.turns + more.turns, calls=run.calls + more.calls, usage=run.usage + more.usage)

    def _find_nudge(self, run: AgentRun, *, brief: Brief, offered: Collection[str]) -> str:
        """Return the request to an agent that answered in words without any work; empty if its answer is enough."""
        if run.end != "answered":
            return ""
        if brief.judge is not None:
            objections = brief.judge(run.text)
            return format_objections(objections, marks=Marks(self.task.context.token)) if objections else ""
        is_enough = self.task.phase == "refactor" and self.task.item.kind != "refactor"
        return "" if is_enough or self._has_changes() else format_nudge(offered=offered)

    def _has_changes(self) -> bool:
        """Return whether the files differ from those that the last gate judged."""
        last = self.task.earlier[-1].checkpoint if self.task.earlier and not self._is_anew else None
        judged = self.task.context.snapshots.find(last)
        return bool(self.task.context.snapshots.list_changes_since(judged or self.task.baseline.snapshot))

    @property
    def _conversation_path(self) -> Path:
        return self.task.context.reports / name_conversation(self.task.step.step_number, self.task.phase)

    @property
    def _forked_conversation(self) -> Path:
        path = self._conversation_path
        return path.parent / FORKED / path.name

    def _load_conversation(self) -> tuple[str, tuple[Message, ...]]:
        """Return the token and the messages to continue, in an iteration or a fork: those of the phase's last attempt.

        Those of a fork are in the folder ``FORKED``. Later attempts of the phase begin a new one.
        """
        context, fresh, path = self.task.context, (self.task.context.token, ()), self._conversation_path
        if self.task.earlier:
            return fresh
        try:
            saved = load_conversation(path if self.task.step.iterates else self._forked_conversation)
        except UsageError as error:
            context.emit(Notice(text=f"{error.happened} A new conversation begins."))
            return fresh
        window = find_context_window(context.model.name)
        if saved is None or (window and Conversation("", messages=saved[1]).tokens * 2 > window):
            return fresh
        return saved

    def _describe_occasion(self, start: Snapshot | None, *, is_continued: bool, marks: Marks) -> Occasion:
        context, objects = self.task.context, self.task.context.workplace.tree.objects
        failing, advice = self._describe_failures()
        diff = undone = ""
        if start is not None and context.policy.edit_format == "tools":
            diff = format_diff(objects, start.commit, after=context.snapshots.take_unsaved().commit)
        if self._is_anew and (last := context.snapshots.find(self.task.earlier[-1].checkpoint)):
            undone = format_diff(objects, self.task.baseline.snapshot.commit, after=last.commit)
        reruns = {Circumstance.FORKED} if self._forked_conversation.exists() else set[Circumstance]()
        reruns |= {Circumstance.CONTINUED} if is_continued else set[Circumstance]()
        work = (
            self.task.step.interrupted
            if self.task.step.interrupted and self.task.step.interrupted.phase == self.task.phase
            else None
        )
        resumed = set[Circumstance]()
        if work is not None:
            resumed = {Circumstance.RESUMED if self._has_interrupted_work else Circumstance.INTERRUPTED}
        return Occasion(
            circumstances=find_circumstances(self.task.item, context.policy) | reruns | resumed,
            earlier=self.task.earlier,
            is_anew=self._is_anew,
            failing=failing,
            remedies=advice,
            step=self.task.step,
            interrupted=work.diff if work is not None else "",
            interrupted_words=work.words if work is not None else "",
            diff=diff,
            undone=undone,
            impact=load_impact(context.impact_path).describe(self.task.item.sources, but=self.task.item.tests),
            further=self.task.examination.find_visible_example() if self.task.phase == "green" else "",
        )

    def _find_complete_files(self, shown: ShownFiles, diff: str) -> tuple[str, ...]:
        """Return the files that the model knows completely: shown as they were, with all changes since."""
        if is_cut(diff):
            return ()
        headers = set(diff.splitlines())
        # A file that did not exist is known if the diff shows all of it.
        new = (name for name in shown.absent if f"+++ b/{self.task.context.to_repository_path(name)}" in headers)
        return tuple(name for name in (*shown.whole, *new) if self.task.context.workspace.is_file(name))

    def _describe_failures(self) -> tuple[str, tuple[str, ...]]:
        """Return the current failures for the model, regressions first, and in GREEN advice on fixing them."""
        judged = [attempt for attempt in self.task.earlier if attempt.report]
        if judged:
            report = load_report(judged[-1], root=self.task.context.records.folder)
        else:
            report = self.task.baseline.report if self.task.phase == "green" else None
        if report is None:
            return "", ()
        passed = {case.nodeid for case in self.task.baseline.report.tests if case.outcome == "passed"}
        old = set(self.task.baseline.report.old_failures)

        def rank(nodeid: str) -> int:
            """Regressions first, then the item's tests in their order."""
            return -1 if nodeid in passed else verdict.find_position(self.task.item, nodeid)

        others = len(self.task.item.tests)
        before = frozenset(list_failing(self.task.baseline.report))
        if any(rank(nodeid) < others for nodeid in list_failing(report)):  # else they may be the cause
            report = leave_out(report, {nodeid for nodeid in before if rank(nodeid) == others})
        failed = [(error.nodeid, error.failure) for error in report.collect_errors]
        failed += [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
        to_fix = (
            failure
            for nodeid, failure in failed
            if nodeid not in old and (not self.task.item.tests or rank(nodeid) < others)
        )
        advice = list_remedies(to_fix) if self.task.phase == "green" else ()
        return format_failures(report, rank=rank), advice

    def _list_files_to_send(self) -> tuple[str, ...]:
        """Return the files of the item and those changed since the step began, relative to the project."""
        item, context = self.task.item, self.task.context
        start = context.snapshots.find(self.task.step.checkpoint)
        changed = [] if start is None else [change.path for change in context.snapshots.list_changes_since(start)]
        inside = context.to_repository_path("")
        own = [path.removeprefix(inside) for path in changed if path.startswith(inside)]
        return tuple(dict.fromkeys((*item.sources, *item.extra_files, *verdict.list_test_files(item), *own)))
