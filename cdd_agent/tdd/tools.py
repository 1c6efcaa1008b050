"""The tools of the model in one phase: they refuse to change locked files, and run the project's tests."""

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import replace

from cdd_agent.agent.editing import MayWrite
from cdd_agent.agent.tools import (
    Tool,
    ToolOutput,
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
from cdd_agent.tdd.context import Context, format_failures
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.suite import SuiteRun
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
) -> tuple[Tool, ...]:
    """Return Read, Write, Edit, Bash, Glob, Grep, RunTests, CompleteImplementation and ReportBlocked, in that order.

    The policy may leave Bash out. After the last Write or Edit of a turn, the results of the tests ``after_writing``
    are reported, if there are any. The files ``shown`` count as read.
    """

    def run_tests(targets: tuple[str, ...]) -> str:
        for target in targets:
            _require_test(target, context)
        refusal = context.permission.check_activity("tests") if context.permission is not None else None
        return refusal if refusal is not None else _format_run(context.run_targets("tests", targets=targets))

    def report_tests() -> str:
        return f"Results of the tests to pass: {run_tests(after_writing)}"

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
        *((_with_lock_hint(shell, locks),) if context.policy.has_commands else ()),
        *make_search_tools(context.workspace),
        make_run_tests_tool(run_tests),
        make_completion_tool(),
        make_blocked_tool(),
    )


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
            f"{target} is an option, not a test.",
            hint="give test files or node ids, such as tests/test_a.py::test_b",
        )
    context.workspace.resolve(target.partition("::")[0])


def _make_access(locks: PhaseLocks, context: Context) -> Access:
    # Files that do not exist yet, or beyond the maximum, cannot be locked here: the verdict finds their changes.
    tests = locks.tests if locks.phase != "red" else ()
    locked = [context.workplace.tree.root / path for path in tests]
    return context.suite.build_access(locked=tuple(locked[:MAX_LOCKED_FILES]), tests_too=locks.phase != "red")
