"""Read, Write and Edit: the files of the project, as far as this agent may change them.

Texts shaped like keys are masked before anything else is done with a file: no answer, and no error, can show one. An
edit is made in the masked text, and what was masked is put back before the file is written.

Glob and Grep: finding files by name and lines by content.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

import msgspec

from cdd_agent.agent.budget import within
from cdd_agent.agent.editing import (
    Edited,
    Known,
    MayWrite,
    replace,
    require_fit,
    require_no_mask,
    require_python,
    require_whole,
    require_writable,
    restored,
    split_lines,
    without_ending,
)
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import UsageError
from cdd_agent.untrusted.keys import MASK, mask
from cdd_agent.untrusted.text import controls, in_one_line, require_seen, told_by_line
from cdd_agent.workspace.files import PAGED_CAP_BYTES, SIZE_CAP_BYTES, Workspace, decode, encode
from cdd_agent.workspace.search import Hits, glob, grep

LINES_PER_READ = 2000
SHOWN_LINE_LENGTH = 2000
CONTEXT_LINES = 3
EDIT_LIMIT_S = 10.0
"""Of finding the place of one edit."""

FilePath = Annotated[str, msgspec.Meta(min_length=1, description="path relative to the project's folder")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """Which lines of which file."""

    file_path: FilePath
    offset: Annotated[int, msgspec.Meta(ge=1, description="first line, counted from 1")] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, description="how many lines, 2000 at most")] = LINES_PER_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInput:
    """A file and all it is to hold."""

    file_path: FilePath
    content: Annotated[str, msgspec.Meta(description="the whole file; nothing of the old one is kept")]


OldString = Annotated[
    str, msgspec.Meta(description="copied from the file, without line numbers; must be there exactly once")
]
NewString = Annotated[str, msgspec.Meta(description="what stands there afterwards")]
ReplaceAll = Annotated[bool, msgspec.Meta(description="replace old_string wherever it is")]


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a file and what is to stand in its place."""

    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EditInput:
    """A piece of a file and what is to stand in its place, and more such pieces of the same file."""

    file_path: FilePath
    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False
    edits: Annotated[
        tuple[Change, ...],
        msgspec.Meta(description="further pieces of the same file, replaced after the first: all of them, or none"),
    ] = ()


def file_tools(workspace: Workspace, may_write: MayWrite) -> tuple[Tool, Tool, Tool]:
    """Read, Write and Edit for one agent; they remember together what it has read.

    ``may_write`` takes a relative path and gives the reason why this agent may not write there, or nothing.
    """
    files = _Files(workspace, may_write)
    return (
        define(
            "Read",
            "Read a text file; every line is shown after its number and a tab.",
            inputs=ReadInput,
            run=files.read,
            subject=lambda inputs: inputs.file_path,
        ),
        define(
            "Write",
            "Create a file, or replace a whole file that you have read. Folders are made. Prefer Edit for changes.",
            inputs=WriteInput,
            run=files.write,
            subject=lambda inputs: inputs.file_path,
        ),
        define(
            "Edit",
            "Replace one piece of a file by another, or several at once; everything else keeps its bytes.",
            inputs=EditInput,
            run=files.edit,
            subject=lambda inputs: inputs.file_path,
        ),
    )


class _Files:
    """The three tools and what they remember."""

    def __init__(self, workspace: Workspace, may_write: MayWrite) -> None:
        self._workspace = workspace
        self._may_write = may_write
        self._known = Known()

    def read(self, inputs: ReadInput) -> ToolOutput:
        """The lines asked for, numbered, and what a reader cannot see of them."""
        data = self._workspace.read(inputs.file_path, cap_bytes=PAGED_CAP_BYTES)
        masked = mask(decode(data))
        lines = split_lines(masked.text)
        if lines and inputs.offset > len(lines):
            raise UsageError(
                f"{inputs.file_path} has {len(lines)} lines, none at offset {inputs.offset}.", hint="use a lower offset"
            )
        self._known.note(self._workspace.relative(inputs.file_path), data)
        rows = _page(_numbered(lines, first=inputs.offset, last=inputs.offset - 1 + min(inputs.limit, LINES_PER_READ)))
        shown = "\n".join(rows) or "(the file is empty)"
        last = inputs.offset - 1 + len(rows)
        hidden = sum(len(MASK.findall(row)) for row in rows) if masked.count else 0
        remarks = _remarks(data, last=last, total=len(lines), hidden=hidden)
        unseen = _unseen_remarks(lines[inputs.offset - 1 : last], first=inputs.offset)
        return ToolOutput(text="\n".join([shown, *unseen, *remarks]), exact=True)

    def write(self, inputs: WriteInput) -> ToolOutput:
        """Create the file, or overwrite it if the agent knows what it holds."""
        name = require_writable(self._workspace, inputs.file_path, may_write=self._may_write)
        data = inputs.content.encode()
        count = _counted(inputs.content)
        if self._workspace.exists(name):
            self._require_read(name)
            before = self._workspace.read(name)
            self._require_known(name, before)
            require_fit(name, text=inputs.content, before=before)
            done = f"Overwrote {name}: {count}, {_counted(decode(before))} before."
        else:
            require_fit(name, text=inputs.content, before=None)
            done = f"Created {name}: {count}."
        self._workspace.write(name, data)
        self._known.note(name, data)
        return ToolOutput(text=done)

    def edit(self, inputs: EditInput) -> ToolOutput:
        """Replace the pieces; a file the agent does not know is changed only where exactly that piece stands once."""
        name = require_writable(self._workspace, inputs.file_path, may_write=self._may_write)
        before = self._workspace.read(name)
        first = Change(old_string=inputs.old_string, new_string=inputs.new_string, replace_all=inputs.replace_all)
        changes = (first, *inputs.edits)
        old = decode(before)
        masked = mask(old)
        for change in changes:
            for where, text in (("old_string", change.old_string), ("new_string", change.new_string)):
                require_no_mask(text, before=old, where=where)
            require_whole(change.new_string, before=masked.text, name=name)
        steps = within(
            EDIT_LIMIT_S,
            lambda: _replaced(masked.text, changes),
            hint="give a shorter old_string, with a line that is there only once",
        )
        is_known = self._known.is_current(name, before)
        if any(edited.ignored or len(edited.lines) > 1 for edited in steps):
            self._require_known(name, before)
        text = steps[-1].text
        require_seen(text, before=masked.text)
        after = encode(restored(masked, text))
        if after == before:
            raise UsageError("The edit changes nothing.", hint="leave the file as it is, or change new_string")
        require_python(name, before=before, after=after)
        self._workspace.write(name, after)
        if is_known:
            self._known.note(name, after)
        return ToolOutput(text=_edit_told(name, steps, new=changes[-1].new_string), exact=True)

    def _require_read(self, name: str) -> None:
        """Raise ``UsageError`` unless the agent has read the file."""
        if name not in self._known:
            raise UsageError(f"{name} is there and you have not read it.", hint="Read it first, then do this again")

    def _require_known(self, name: str, data: bytes) -> None:
        """Raise ``UsageError`` unless the agent has read the file as it is now, holding ``data``."""
        self._require_read(name)
        if not self._known.is_current(name, data):
            raise UsageError(f"{name} has changed since you read it.", hint="Read it again, then do this again")


def _counted(text: str) -> str:
    """How many lines ``text`` has, in words."""
    count = len(split_lines(text))
    return "1 line" if count == 1 else f"{count} lines"


def _numbered(lines: list[str], *, first: int, last: int) -> list[str]:
    """The lines ``first`` to ``last``, 1-based, each after its number."""
    rows = []
    for number, line in enumerate(lines[first - 1 : last], start=first):
        text = without_ending(line)
        cut = f"{text[:SHOWN_LINE_LENGTH]} [... {len(text) - SHOWN_LINE_LENGTH} characters more]"
        rows.append(f"{number:>6}\t{text if len(text) <= SHOWN_LINE_LENGTH else cut}")
    return rows


def _page(rows: list[str]) -> list[str]:
    """The first rows that together are not longer than what is shown at once; at least one."""
    ends = accumulate(len(row) + 1 for row in rows)
    return rows[: max(1, sum(end <= SIZE_CAP_BYTES for end in ends))]


def _remarks(data: bytes, *, last: int, total: int, hidden: int) -> list[str]:
    """What the numbered lines do not show; ``hidden``: masks in them."""
    remarks = []
    if hidden:
        lines = "1 text" if hidden == 1 else f"{hidden} texts or lines of one"
        remarks.append(f"({lines} shaped like a key, masked as [masked: ...]; Edit keeps them, but cannot match them)")
    if last < total:
        remarks.append(f"({total - last} more lines; read on with offset {last + 1})")
    if b"\r\n" in data:
        remarks.append("(lines end with CRLF; Edit keeps that)")
    if any("\udc80" <= letter <= "\udcff" for letter in decode(data)):
        remarks.append("(bytes that are not UTF-8 are shown as \\xNN; Edit keeps them, but cannot match them)")
    if data and not data.endswith(b"\n") and last == total:
        remarks.append("(no newline at the end of the file)")
    return remarks


def _unseen_remarks(lines: list[str], *, first: int) -> list[str]:
    """What nobody can see in the lines that are shown, of which ``first`` is the number of the first."""
    remarks = []
    unseen = told_by_line(dict(enumerate(lines, start=first)))
    if unseen:
        remarks.append(f"(characters that cannot be seen, in the lines above as they are: {unseen})")
    if any(controls(line) for line in lines):
        remarks.append("(control characters are shown as <U+001B>; Edit keeps them, but cannot match them)")
    return remarks


def _replaced(text: str, changes: tuple[Change, ...]) -> tuple[Edited, ...]:
    """The text after each change; raises ``UsageError`` naming the change that cannot be made."""
    steps: list[Edited] = []
    for number, change in enumerate(changes, start=1):
        try:
            edited = replace(text, change.old_string, new=change.new_string, replace_all=change.replace_all)
        except UsageError as error:
            if len(changes) == 1:
                raise
            told = f"Edit {number} of {len(changes)} cannot be made, so none was: {error.happened}"
            raise UsageError(told, hint=error.hint) from error
        steps.append(edited)
        text = edited.text
    return tuple(steps)


def _edit_told(name: str, steps: tuple[Edited, ...], *, new: str) -> str:
    """What was changed where, and how the first place of the last edit looks now."""
    told = []
    for edited in steps:
        count = len(edited.lines)
        places = f"at line {edited.lines[0]}" if count == 1 else f"at {count} places, first at line {edited.lines[0]}"
        told.append(places + (f", looking past {edited.ignored}" if edited.ignored else ""))
    last_edit = steps[-1]
    lines = split_lines(last_edit.text)
    first = max(1, last_edit.lines[0] - CONTEXT_LINES)
    last = min(len(lines), last_edit.lines[0] + min(new.count("\n"), 20) + CONTEXT_LINES)
    now = "\n".join(_numbered(lines, first=first, last=last))
    return f"Edited {name} {'; then '.join(told)}. It reads now:\n{now}"


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
