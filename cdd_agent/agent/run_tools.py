"""Tools that run something, Bash and RunTests, and tools that end the agent's run.

An agent ends its run with ReportBlocked or CompleteImplementation. Neither decides anything: a person reads the
report, and a gate judges the work.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta

from cdd_agent.agent.tool import Tool, ToolOutput, define_tool
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox, join_output
from cdd_agent.shell.permission import Permission
from cdd_agent.untrusted.keys import mask

OUTPUT_CAP_BYTES = 30_000
LAST_LINE_CAP = 200
# If the sandbox drops the middle of an output, it may cut a key in two, and half a key is not recognized. So the text
# next to the gap is left out, too.
_EDGE_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class BashInput:
    """Run a shell command in the project folder. Returns its exit status and output."""

    command: Annotated[str, Meta(min_length=1, description="run with bash -c in the project folder")]
    timeout_s: Annotated[int, Meta(ge=1, le=600, description="time limit in seconds")] = 120


def make_bash_tool(
    sandbox: Sandbox,
    root: Path,
    *,
    access: Access,
    permission: Permission | None = None,
    variables: Mapping[str, str] | None = None,
) -> Tool:
    """Return the tool Bash, which runs commands in ``root`` without input and ends every process they start.

    ``access`` and the sandbox limit what a command can do; ``permission`` may refuse it or ask the user first.
    ``variables`` are added to its environment.
    """

    def run(inputs: BashInput) -> ToolOutput:
        if "\0" in inputs.command:
            return ToolOutput(text="The command contains a NUL character. Remove it.", is_error=True)
        refusal = permission.check_command(inputs.command) if permission is not None else None
        if refusal is not None:
            return ToolOutput(text=refusal, is_error=True)
        command = Command(
            argv=("bash", "-c", inputs.command),
            cwd=root,
            access=access,
            variables={"PYTHONDONTWRITEBYTECODE": "1", **(variables or {})},
            timeout_s=inputs.timeout_s,
            output_cap=OUTPUT_CAP_BYTES + 2 * _EDGE_BYTES,
        )
        try:
            result = sandbox.run(command)
        except OSError as error:
            raise EnvironmentMissing(f"bash cannot be started: {error.strerror}.", hint="install bash") from error
        remarks = "".join(f"\n[sandbox: {remark}]" for remark in result.remarks)
        output = _mask_output(result)
        ending = _format_ending(result, output)
        return ToolOutput(text=f"{ending}\n{output}".rstrip("\n") + remarks, is_error=result.timed_out)

    return define_tool("Bash", BashInput, run=run, subject=lambda inputs: inputs.command)


def _mask_output(result: Result) -> str:
    # Keys are masked before the output is shortened.
    head, tail = mask(result.head).text, mask(result.tail).text
    if result.dropped_bytes:
        dropped = result.dropped_bytes + 2 * _EDGE_BYTES
        return join_output(head[:-_EDGE_BYTES], tail[_EDGE_BYTES:], dropped_bytes=dropped)
    half = OUTPUT_CAP_BYTES // 2
    if len(head) > OUTPUT_CAP_BYTES:
        return join_output(head[:half], head[-half:], dropped_bytes=len(head[half:-half].encode()))
    return head


def _format_ending(result: Result, output: str) -> str:
    if result.timed_out:
        return f"ended after {result.duration_s:.0f} s: the time limit was reached"
    if result.exit_status < 0:
        return f"ended by signal {-result.exit_status}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"exit status {result.exit_status}" + (f": {last[:LAST_LINE_CAP]}" if last and result.exit_status else "")


BLOCKED_TOOL = "ReportBlocked"

BlockedCode: TypeAlias = Literal["test_is_wrong", "cannot_be_done"]
BLOCKED_CODES: tuple[BlockedCode, ...] = get_args(BlockedCode)
"""The codes of reports, which are reason codes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedReport:
    """Report that a test is wrong or that the task cannot be done as described.

    Your changes are undone, and a person reads your reason. Never change, skip or special-case a test instead.
    """

    why: Annotated[
        BlockedCode,
        Meta(description="test_is_wrong: the test demands wrong behavior; cannot_be_done: any other reason"),
    ]
    reason: Annotated[str, Meta(min_length=1, description="what is wrong and where, in a few sentences")]


def make_blocked_tool() -> Tool:
    """Return the tool ReportBlocked, which ends the agent's run."""
    return define_tool(
        BLOCKED_TOOL,
        BlockedReport,
        run=lambda _: ToolOutput(text="Reported. A person decides how to continue.", ends_run=True),
        subject=lambda blocked: f"{blocked.why}: {blocked.reason}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Call this when your task is complete. It ends your run; then all tests run."""

    implementation_files: Annotated[tuple[str, ...], Meta(description="paths of the files you created or changed")]
    summary: Annotated[str, Meta(description="your change, in one or two sentences")] = ""


def make_completion_tool() -> Tool:
    """Return the tool CompleteImplementation, which ends the agent's run."""
    return define_tool(
        "CompleteImplementation",
        Completion,
        run=lambda _: ToolOutput(text="Submitted. The tests decide.", ends_run=True),
        subject=lambda done: ", ".join(done.implementation_files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTestsInput:
    """Run the project's tests. Returns every outcome and failure."""

    targets: Annotated[
        tuple[str, ...],
        Meta(description="test files or node ids, such as tests/test_a.py::test_b; empty: the whole suite"),
    ] = ()


def make_run_tests_tool(run: Callable[[tuple[str, ...]], str]) -> Tool:
    """Return the tool RunTests; ``run`` takes the targets and returns the results as text."""
    return define_tool(
        "RunTests",
        RunTestsInput,
        run=lambda inputs: ToolOutput(text=run(inputs.targets)),
        subject=lambda inputs: " ".join(inputs.targets) or "all tests",
    )
