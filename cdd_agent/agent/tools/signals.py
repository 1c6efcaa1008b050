"""ReportBlocked: the agent's honest way out. What becomes of the work, a person decides.

CompleteImplementation: the agent says that its part is done. Whether it is, a gate decides.

RunTests: the project's tests, run the way the gates run them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from cdd_agent.agent.tool import Tool, ToolOutput, define

NAME = "ReportBlocked"

Why: TypeAlias = Literal["test_is_wrong", "cannot_be_done"]
WHY: tuple[Why, ...] = get_args(Why)
"""What an agent may report; the codes of the reasons, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Why an agent does not go on; ``read_input(run.completion, Blocked)`` reads it from an ``AgentRun``."""

    why: Annotated[
        Why,
        msgspec.Meta(description="test_is_wrong: the test asks for what it should not; cannot_be_done: anything else"),
    ]
    reason: Annotated[str, msgspec.Meta(min_length=1, description="what is wrong, and where, in a few sentences")]


def blocked_tool() -> Tool:
    """ReportBlocked, which ends the run of the agent and does nothing else."""
    return define(
        NAME,
        "Call this instead of going around a test that is wrong, or if the task cannot be done as it is asked. Your "
        "changes are taken back and a person reads your reason. Never change, skip or special-case a test instead.",
        inputs=Blocked,
        run=lambda _: ToolOutput(text="Reported. A person decides.", ends_run=True),
        subject=lambda blocked: f"{blocked.why}: {blocked.reason}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an agent hands in."""

    implementation_files: Annotated[
        tuple[str, ...], msgspec.Meta(description="paths of the files you created or changed")
    ]
    summary: Annotated[str, msgspec.Meta(description="what you did, in one or two sentences")] = ""


def completion_tool() -> Tool:
    """CompleteImplementation, which ends the run of the agent and does nothing else."""
    return define(
        "CompleteImplementation",
        "Call this when your task is done; it ends your run. The tests are then run and judged.",
        inputs=Completion,
        run=lambda _: ToolOutput(text="Handed in. The tests decide.", ends_run=True),
        subject=lambda done: ", ".join(done.implementation_files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTestsInput:
    """Which tests."""

    targets: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="test files or node ids, such as tests/test_a.py::test_b; none: the whole suite"),
    ] = ()


def run_tests_tool(run: Callable[[tuple[str, ...]], str]) -> Tool:
    """RunTests, where ``run`` takes the targets and tells in words how the tests ended."""
    return define(
        "RunTests",
        "Run the project's tests and see every outcome and failure.",
        inputs=RunTestsInput,
        run=lambda inputs: ToolOutput(text=run(inputs.targets)),
        subject=lambda inputs: " ".join(inputs.targets) or "all tests",
    )
