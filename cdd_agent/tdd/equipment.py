"""The tools of one attempt, with the locks of its phase."""

from collections.abc import Collection

from cdd_agent.agent.tool import Tool
from cdd_agent.agent.tools.completion import completion_tool
from cdd_agent.agent.tools.files import file_tools
from cdd_agent.agent.tools.run_tests import run_tests_tool
from cdd_agent.agent.tools.search import search_tools
from cdd_agent.agent.tools.shell import shell_tool
from cdd_agent.evidence.trees import project_in
from cdd_agent.sandbox.port import Access
from cdd_agent.tdd import briefing
from cdd_agent.tdd.policy import Phase
from cdd_agent.tdd.verdict import lock_reason
from cdd_agent.tdd.workbench import Workbench
from pytest_tdd_agent.report import summary


def tools_for(
    phase: Phase, bench: Workbench, *, off_limits: frozenset[str], tests: Collection[str]
) -> tuple[Tool, ...]:
    """Read, Write, Edit, Bash, Glob, Grep, RunTests and CompleteImplementation, always in the same order."""

    project = project_in(bench.repository, bench.suite)

    def run_tests(targets: tuple[str, ...]) -> str:
        run = bench.run_suite("tests", targets=targets)
        if run.report is None:
            return f"{run.problem}\n{run.output}"
        count = ", ".join(f"{number} {word}" for word, number in summary(run.report).items() if number)
        told = (count or "no test was collected", *run.notices, "", briefing.failures(run.report))
        return "\n".join(told).rstrip()

    def locked(path: str) -> str | None:
        path = bench.in_repository(path)
        if bench.snapshots.leaves_out(path):
            return "It belongs to the ticket, which a step never changes."
        return lock_reason(phase, path, off_limits=off_limits, tests=tests, project=project)

    access = Access(read_write=(bench.workspace.root,))
    return (
        *file_tools(bench.workspace, locked),
        shell_tool(bench.suite.sandbox, bench.workspace.root, access=access),
        *search_tools(bench.workspace),
        run_tests_tool(run_tests),
        completion_tool(),
    )
