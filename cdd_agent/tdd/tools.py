"""The tools of one attempt, with the locks of its phase."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from cdd_agent.agent.editing import MayWrite
from cdd_agent.agent.tool import Tool, ToolOutput
from cdd_agent.agent.tools.files import file_tools, search_tools
from cdd_agent.agent.tools.shell import shell_tool
from cdd_agent.agent.tools.signals import blocked_tool, completion_tool, run_tests_tool
from cdd_agent.errors import UsageError
from cdd_agent.evidence.clean_copy import layout_of
from cdd_agent.model.conversation import JSON
from cdd_agent.sandbox.port import Access
from cdd_agent.tdd import context as briefing
from cdd_agent.tdd.context import Context, Phase
from cdd_agent.tdd.verdict import lock_reason
from cdd_agent.testrun.suite import SuiteRun
from pytest_tdd_agent.report import summary

MOST_NAMED = 40
"""So many files of the user's are protected one by one."""


def tools_for(
    phase: Phase,
    context: Context,
    *,
    off_limits: frozenset[str],
    tests: Collection[str],
    listed: Collection[str] = (),
    after_writing: tuple[str, ...] = (),
) -> tuple[Tool, ...]:
    """Read, Write, Edit, Bash, Glob, Grep, RunTests, CompleteImplementation and ReportBlocked, always in that order.

    The policy may leave Bash out. What Write and Edit answer tells of the tests ``after_writing``, if there are any.
    """

    def run_tests(targets: tuple[str, ...]) -> str:
        for target in targets:
            _require_test(target, context)
        refusal = context.permission.check_activity("tests") if context.permission is not None else None
        if refusal is not None:
            return refusal
        return _told(context.run_targets("tests", targets=targets))

    read, *writing = file_tools(
        context.workspace, locks_for(phase, context, off_limits=off_limits, tests=tests, listed=listed)
    )
    shell = shell_tool(
        context.suite.sandbox,
        context.workspace.root,
        access=bash_access(phase, context, off_limits=off_limits, tests=tests),
        permission=context.permission,
        variables=context.suite.variables,
    )
    return (
        read,
        *(_tested(tool, lambda: run_tests(after_writing)) if after_writing else tool for tool in writing),
        *((shell,) if context.policy.has_commands else ()),
        *search_tools(context.workspace),
        run_tests_tool(run_tests),
        completion_tool(),
        blocked_tool(),
    )


def _told(run: SuiteRun) -> str:
    """What a run of tests came to, for the model to read."""
    if run.report is None:
        return f"{run.problem}\n{run.output}"
    count = ", ".join(f"{number} {word}" for word, number in summary(run.report).items() if number)
    told = (count or "no test was collected", *run.notices, "", briefing.failures(run.report))
    return "\n".join(told).rstrip()


def _tested(tool: Tool, run_tests: Callable[[], str]) -> Tool:
    """``tool`` with what the tests say after each of its calls that went well."""

    def run(fields: Mapping[str, JSON]) -> ToolOutput:
        output = tool.run(fields)
        if output.is_error:
            return output
        return replace(output, text=f"{output.text}\n\nThe tests to pass, run now: {run_tests()}")

    return replace(tool, run=run)


def locks_for(
    phase: Phase,
    context: Context,
    *,
    off_limits: frozenset[str],
    tests: Collection[str],
    listed: Collection[str] = (),
) -> MayWrite:
    """Tells of a path of the project why it may not be written in this phase, if it may not.

    Everything is as for ``verdict.lock_reason``.
    """
    layout = layout_of(context.repository, context.suite)

    def locked(path: str) -> str | None:
        path = context.in_repository(path)
        if context.snapshots.leaves_out(path):
            return "It belongs to the ticket, which a step never changes."
        reason = lock_reason(phase, path, off_limits=off_limits, tests=tests, layout=layout, listed=listed)
        return (
            reason if reason is not None or context.permission is None else context.permission.check_activity("write")
        )

    return locked


def _require_test(target: str, context: Context) -> None:
    """Raise ``UsageError`` if what the model calls a test is an option of pytest's, or lies outside the project."""
    if target.startswith(("-", "@")):
        raise UsageError(
            f"{target} is an option and names no test.",
            hint="give test files or node ids, such as tests/test_a.py::test_b",
        )
    context.workspace.relative(target.partition("::")[0])


def bash_access(phase: Phase, context: Context, *, off_limits: frozenset[str], tests: Collection[str]) -> Access:
    """What a command may reach in this phase: tests can be written in RED only, the user's changes never.

    What is locked and cannot be protected, because it does not exist or is one of too many, the verdict finds.
    """
    named = [context.repository.root / path for path in (*off_limits, *(tests if phase != "red" else ()))]
    return context.suite.access(locked=tuple(named[:MOST_NAMED]), tests_too=phase != "red")
