"""The tools of the model in one phase: they refuse to change locked files, and run the project's tests."""

import errno
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.editing import MayWrite
from cdd_agent.agent.tools import (
    Tool,
    ToolOutput,
    define_tool,
    make_bash_tool,
    make_blocked_tool,
    make_completion_tool,
    make_file_tools,
    make_run_tests_tool,
    make_search_tools,
)
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import JSON
from cdd_agent.sandbox.port import Access
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.suite import SuiteRun
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import StepExecution
from pytest_tdd_agent.report import count_outcomes

MAX_LOCKED_FILES = 40
"""Maximum number of files that the sandbox locks one by one."""

_REFUSED_WRITE = re.compile("|".join(re.escape(os.strerror(code)) for code in (errno.EROFS, errno.EACCES)))


def make_tools(
    locks: PhaseLocks,
    context: Context,
    *,
    after_writing: tuple[str, ...] = (),
    shown: tuple[str, ...] = (),
    answer: Callable[["CommentAnswer"], None] | None = None,
) -> tuple[Tool, ...]:
    """Return Read, Write, Edit, Bash, Glob, Grep, RunTests, CompleteImplementation and ReportBlocked, in that order.

    The policy may leave Bash out; PLAN, in which nothing runs, has neither Bash nor RunTests. After the last Write or
    Edit of a turn, the results of the tests ``after_writing`` are reported, if there are any. The files ``shown`` count
    as read. ``answer`` adds AnswerComment.
    """

    def run_tests(targets: tuple[str, ...]) -> str:
        for target in targets:
            _require_test(target, context)
        refusal = context.permission.check_activity("tests") if context.permission is not None else None
        return refusal if refusal is not None else _format_run(context.run_targets("tests", targets=targets))

    def report_tests() -> str:
        return f"Results of the tests to pass: {run_tests(after_writing)}"

    runs_programs = locks.phase != "plan"
    known = {name: context.workspace.read(name) for name in shown}
    read, *writing = make_file_tools(context.workspace, make_lock_check(locks, context), known=known)
    shell = make_bash_tool(
        context.suite.sandbox,
        context.workspace.root,
        access=_make_access(locks, context),
        permission=context.permission,
        variables=context.suite.variables,
        timeout_s=context.suite.timeout_s,
    )
    return (
        read,
        *(replace(tool, follow_up=report_tests) if after_writing else tool for tool in writing),
        *((_with_lock_hint(shell, locks),) if context.policy.has_commands and runs_programs else ()),
        *make_search_tools(context.workspace),
        *((make_run_tests_tool(run_tests),) if runs_programs else ()),
        make_completion_tool(),
        make_blocked_tool(),
        *((make_answer_tool(answer),) if answer is not None else ()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentAnswer:
    """Answer a comment of the reviewer. The reviewer sees it once the gate has accepted your change."""

    comment_id: Annotated[str, Meta(min_length=1, description="the id in brackets before the comment")]
    text: Annotated[
        str, Meta(min_length=1, description="what you changed, or why you did not, in one or two sentences")
    ]
    resolves: Annotated[bool, Meta(description="true if your change does what the comment asks for")] = False


class CommentAnswers:
    """The model's answers to the reviewer's comments in one attempt."""

    def __init__(self, item: WorkItem, *, step: StepExecution, context: Context) -> None:
        """Start without answers. Only an iteration has comments to answer."""
        self._item = item
        self._comments = context.comments if step.iterates else None
        self._answers: list[CommentAnswer] = []

    def list_open(self) -> tuple[str, ...]:
        """Return the ids of the open comments."""
        if self._comments is None:
            return ()
        found = self._comments.list_of_step(self._item.ticket, self._item.number)
        return tuple(comment.id for comment in found if not comment.resolved)

    def note(self, answer: CommentAnswer) -> None:
        """Remember an answer. Raises ``UsageError`` for a comment that is not open."""
        known = self.list_open()
        if answer.comment_id not in known:
            raise UsageError(f"No open comment has the id {answer.comment_id}.", hint=f"open: {', '.join(known)}")
        self._answers.append(answer)

    def save(self) -> None:
        """Save the answers, when the gate has accepted the change to which they belong."""
        for answer in self._answers if self._comments is not None else ():
            assert self._comments is not None
            self._comments.reply(answer.comment_id, mask(answer.text).text, author="ai")
            if answer.resolves:
                self._comments.resolve(answer.comment_id)


def make_answer_tool(answer: Callable[[CommentAnswer], None]) -> Tool:
    """Return the tool AnswerComment; ``answer`` raises ``UsageError`` for an unknown comment."""

    def run(given: CommentAnswer) -> ToolOutput:
        answer(given)
        return ToolOutput(text="Noted.")

    return define_tool("AnswerComment", CommentAnswer, run=run, subject=lambda given: given.comment_id)


def make_lock_check(locks: PhaseLocks, context: Context) -> MayWrite:
    """Return a function that says why a path of the project may not be written, or None if it may."""

    def check(path: str) -> str | None:
        path = context.to_repository_path(path)
        if context.snapshots.is_excluded(path):
            return "It belongs to the ticket, which a step never changes."
        reason = locks.explain(path) or context.workplace.tree.explain_fixed([path]).get(path)
        if reason is not None or context.permission is None:
            return reason
        return context.permission.check_activity("write")

    return check


def _format_run(run: SuiteRun) -> str:
    if run.report is None:
        return f"{run.problem}\n{run.output}"
    count = ", ".join(f"{number} {word}" for word, number in count_outcomes(run.report).items() if number)
    lines = (count or "no test was collected", *run.notices, "", format_failures(run.report))
    return "\n".join(lines).rstrip()


def _with_lock_hint(tool: Tool, locks: PhaseLocks) -> Tool:
    """Return Bash, which says why a test could not write beside the tests: that is no fault of the code."""

    def run(fields: Mapping[str, JSON]) -> ToolOutput:
        output = tool.run(fields)
        refusals = "".join(line for line in output.text.splitlines(keepends=True) if _REFUSED_WRITE.search(line))
        if locks.phase == "red" or not any(map(locks.layout.is_test, re.findall(r"[\w./-]+", refusals))):
            return output
        hint = (
            "Commands find the tests read-only. RunTests runs tests that write beside them, and drops what they write."
        )
        return replace(output, text=f"{output.text}\n\n{hint}")

    return replace(tool, run=run)


def _require_test(target: str, context: Context) -> None:
    # The model could pass an option that loads a plugin, or @file, which pytest reads options from.
    if target.startswith(("-", "@")):
        raise UsageError(
            f"{target} is an option, not a test.", hint="give test files or node ids, such as tests/test_a.py::test_b"
        )
    context.workspace.resolve(target.partition("::")[0])


def _make_access(locks: PhaseLocks, context: Context) -> Access:
    # Files that do not exist yet, or beyond the maximum, cannot be locked here: the verdict finds their changes.
    tests = locks.tests if locks.phase != "red" else ()
    locked = [context.workplace.tree.root / path for path in tests]
    return context.suite.build_access(locked=tuple(locked[:MAX_LOCKED_FILES]), tests_too=locks.phase != "red")
