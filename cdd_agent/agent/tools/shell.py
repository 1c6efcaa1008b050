"""Bash: a command of the model's, run in the sandbox that this run was given."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox, joined
from cdd_agent.shell.permission import Permission
from cdd_agent.untrusted.keys import mask

OUTPUT_CAP_BYTES = 30_000
LAST_LINE_CAP = 200
"""Characters of what a command said last before it failed."""
_EDGE_BYTES = 8_192
"""Beside what the sandbox drops, this much is left out: a key that was cut there has no shape to be known by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BashInput:
    """What to run, and for how long."""

    command: Annotated[str, msgspec.Meta(min_length=1, description="run by bash -c in the project's folder")]
    timeout_s: Annotated[int, msgspec.Meta(ge=1, le=600, description="seconds until it is ended")] = 120


def shell_tool(
    sandbox: Sandbox,
    root: Path,
    *,
    access: Access,
    permission: Permission | None = None,
    variables: Mapping[str, str] | None = None,
) -> Tool:
    """Bash in ``root``: the command gets the sandbox's few variables, no input, and nothing it starts survives it.

    What a command can do is for ``access`` and the sandbox to say, whatever its text; ``permission``, if there is one,
    says before whether a person has to be asked. ``variables`` are added to its environment.
    """

    def run(inputs: BashInput) -> ToolOutput:
        if "\0" in inputs.command:
            return ToolOutput(text="The command holds a NUL, which no program can be given.", is_error=True)
        refusal = permission.check_command(inputs.command) if permission is not None else None
        if refusal is not None:
            return ToolOutput(text=refusal, is_error=True)
        try:
            result = sandbox.run(
                Command(
                    argv=("bash", "-c", inputs.command),
                    cwd=root,
                    access=access,
                    variables={"PYTHONDONTWRITEBYTECODE": "1", **(variables or {})},
                    timeout_s=inputs.timeout_s,
                    output_cap=OUTPUT_CAP_BYTES + 2 * _EDGE_BYTES,
                )
            )
        except OSError as error:
            raise EnvironmentMissing(f"bash cannot be started: {error.strerror}.", hint="install bash") from error
        told = "".join(f"\n[sandbox: {remark}]" for remark in result.remarks)
        output = _masked(result)
        ending = _ending(result, output)
        return ToolOutput(text=f"{ending}\n{output}".rstrip("\n") + told, is_error=result.timed_out)

    return define(
        "Bash",
        "Run a shell command in the project's folder and see its output and exit status.",
        inputs=BashInput,
        run=run,
        subject=lambda inputs: inputs.command,
    )


def _masked(result: Result) -> str:
    """What the command printed, with its keys masked before anything is cut, and then without its middle if long."""
    head, tail = mask(result.head).text, mask(result.tail).text
    if result.dropped_bytes:
        dropped = result.dropped_bytes + 2 * _EDGE_BYTES
        return joined(head[:-_EDGE_BYTES], tail[_EDGE_BYTES:], dropped_bytes=dropped)
    half = OUTPUT_CAP_BYTES // 2
    if len(head) > OUTPUT_CAP_BYTES:
        return joined(head[:half], head[-half:], dropped_bytes=len(head[half:-half].encode()))
    return head


def _ending(result: Result, output: str) -> str:
    """The first line of the answer: how the command ended, and, if it failed, what it said last."""
    if result.timed_out:
        return f"ended after {result.duration_s:.0f} s: the time limit was reached"
    if result.exit_status < 0:
        return f"ended by signal {-result.exit_status}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"exit status {result.exit_status}" + (f": {last[:LAST_LINE_CAP]}" if last and result.exit_status else "")
