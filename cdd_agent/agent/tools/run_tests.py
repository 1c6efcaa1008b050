"""RunTests: the project's tests, run the way the gates run them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from cdd_agent.agent.tool import Tool, ToolOutput, define


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
