"""Glob and Grep: finding files by name and lines by content."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from cdd_agent.agent.budget import within
from cdd_agent.agent.quoting import in_one_line
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.search import Hits, glob, grep

PATHS_CAP = 500
LIMIT_S = 20.0
"""Of one search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobInput:
    """Which names."""

    pattern: Annotated[str, msgspec.Meta(description="such as src/**/*.py; without a slash: in any folder")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepInput:
    """What to look for, and where."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, description="a Python regular expression, matched by line")]
    glob: Annotated[str, msgspec.Meta(description="only in files of these names, such as *.py")] = "**"


def search_tools(workspace: Workspace, *, limit_s: float = LIMIT_S) -> tuple[Tool, Tool]:
    """Glob and Grep over the files that ``workspace`` lists; a search longer than ``limit_s`` is an error."""

    def found(inputs: GlobInput) -> ToolOutput:
        paths = within(limit_s, lambda: glob(workspace, inputs.pattern), hint="narrow the pattern")
        return ToolOutput(text=_paths_told(paths, inputs.pattern))

    def searched(inputs: GrepInput) -> ToolOutput:
        hint = "use a simpler expression, without repeats in repeats, or search fewer files with glob"
        return ToolOutput(
            text=_hits_told(within(limit_s, lambda: grep(workspace, inputs.pattern, files=inputs.glob), hint=hint))
        )

    return (
        define(
            "Glob",
            "List the project's files whose path matches a pattern.",
            inputs=GlobInput,
            run=found,
            subject=lambda inputs: inputs.pattern,
        ),
        define(
            "Grep",
            "Find the lines of the project's files that match a regular expression.",
            inputs=GrepInput,
            run=searched,
            subject=lambda inputs: inputs.pattern if inputs.glob == "**" else f"{inputs.pattern} in {inputs.glob}",
        ),
    )


def _paths_told(paths: tuple[str, ...], pattern: str) -> str:
    """The paths, one a line."""
    if not paths:
        return f"No file matches {pattern}."
    more = [f"... and {len(paths) - PATHS_CAP} more; narrow the pattern"] if len(paths) > PATHS_CAP else []
    return "\n".join([*map(_named, paths[:PATHS_CAP]), *more])


def _hits_told(hits: Hits) -> str:
    """The hits as ``path:line: text``, and what is not among them."""
    rows = [f"{_named(hit.path)}:{hit.line}: {hit.text}" for hit in hits.shown] or ["No line matches."]
    if hits.total > len(hits.shown):
        rows.append(f"... and {hits.total - len(hits.shown)} more; narrow the pattern or the glob")
    if hits.unread:
        rows.append(f"(files not searched, being binary, too large, of secrets or not readable: {hits.unread})")
    if hits.masked:
        rows.append(f"(texts shaped like keys, masked in these files: {hits.masked})")
    return "\n".join(rows)


def _named(path: str) -> str:
    """``path`` in one row, whatever characters its names hold."""
    return path if path.isprintable() else in_one_line(path)
