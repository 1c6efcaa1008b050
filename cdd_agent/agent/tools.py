"""The tools of the agents: files (Read, Write, Edit, Glob, Grep), programs (Bash, RunTests), and the end of a run.

The input of a tool is a frozen dataclass, whose fields are described with ``Annotated[str, msgspec.Meta(...)]``; a
field may be a list of equally flat records. Input is validated before the function runs, and errors are returned to
the model as text. Texts shaped like keys are masked in every output, because a command or a failing test can print
one. An edit changes the masked text; the keys are restored before the file is written.

An agent ends its run with ReportBlocked or CompleteImplementation. Neither decides anything: a person reads the
report, and a gate judges the work.
"""

import errno
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from cdd_agent.agent import editing
from cdd_agent.errors import CddError, EnvironmentMissing, FolderMoved, UsageError, format_count, suggest
from cdd_agent.model.budget import run_within
from cdd_agent.model.conversation import JSON, ToolSpec
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox, join_output
from cdd_agent.shell.permission import Permission
from cdd_agent.untrusted.keys import MASK, mask
from cdd_agent.untrusted.python_source import find_syntax_error
from cdd_agent.untrusted.text import find_controls, format_counts_by_line, format_line, require_visible
from cdd_agent.workspace.files import PAGED_CAP_BYTES, SIZE_CAP_BYTES, Hits, Workspace, glob, grep
from cdd_agent.workspace.text_file import MARK, TextFile

T = TypeVar("T")
_MAX_SHOWN = 60
"""Characters of an unknown field in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """The answer of a tool to the model."""

    text: str
    is_error: bool = False
    ends_run: bool = False
    """Whether the agent's run ends after all calls of this turn are answered."""
    exact: bool = False
    """Whether the model copies the text back, which requires invisible characters to stay as they are."""
    changed: tuple[str, ...] = ()
    """The files that the call has changed, if its input does not name the only one as ``file_path``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool whose functions do not raise, except that ``run`` may raise ``KeyboardInterrupt`` and ``FolderMoved``."""

    spec: ToolSpec
    run: Callable[[Mapping[str, JSON]], ToolOutput]
    subject: Callable[[Mapping[str, JSON]], str]
    """Returns the subject of a call in a few words, or an empty text if its input is not valid."""
    follow_up: Callable[[], str] | None = None
    """Returns what the answer to the last successful call of a turn adds. Tools with the same one share that call."""
    use: Literal["changes", "tests", ""] = ""
    """Files are not tested in a turn in which a call failed to change one."""


def define_tool(name: str, inputs: type[T], *, run: Callable[[T], ToolOutput], subject: Callable[[T], str]) -> Tool:
    """Return a tool that validates its input against ``inputs``, whose docstring describes the tool to the model."""
    description = " ".join((inputs.__doc__ or "").split())
    spec = ToolSpec(name=name, description=description, input_schema=_build_schema(inputs))

    def run_checked(fields: Mapping[str, JSON]) -> ToolOutput:
        try:
            checked = read_input(fields, inputs)
        except UsageError as error:
            return _make_error(f"{name} was not run: {error.happened}\n{error.hint}")
        try:
            output = run(checked)
        except FolderMoved:  # whatever the model does next would happen in another folder
            raise
        except CddError as error:
            return _make_error(f"{error.happened} ({error.hint})")
        except Exception as error:  # noqa: BLE001 - a defect of one tool must not end the agent's run
            return _make_error(f"{name} failed: {type(error).__name__}: {error}")
        return replace(output, text=_clean(output.text))

    def subject_checked(fields: Mapping[str, JSON]) -> str:
        try:
            return subject(read_input(fields, inputs))
        except UsageError:
            return ""

    return Tool(spec=spec, run=run_checked, subject=subject_checked)


def read_input(fields: Mapping[str, JSON], inputs: type[T]) -> T:
    """Convert ``fields`` to the dataclass ``inputs``; raise ``UsageError``, which names the field, if they differ."""
    schema = _build_schema(inputs)
    expected = f"It takes {msgspec.json.encode(schema).decode()}"
    known = schema["properties"]
    assert isinstance(known, dict)
    for key in fields:
        if key not in known:
            suggestion = suggest(key[:_MAX_SHOWN], known, text=", did you mean `{}`?")
            raise UsageError(f"Object has no field `{key[:_MAX_SHOWN]}`{suggestion}", hint=expected)
    try:
        msgspec.json.encode(dict(fields))
        return msgspec.convert(dict(fields), inputs)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint=expected) from error
    except UnicodeEncodeError as error:
        raise UsageError("The text contains a lone surrogate (half of a character)", hint=expected) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input cannot be read: {error}", hint=expected) from error


def _make_error(text: str) -> ToolOutput:
    return ToolOutput(text=_clean(text), is_error=True)


def _clean(text: str) -> str:
    # Bytes that are not UTF-8 arrive as surrogates and are shown as ``\xNN``.
    printable = re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", mask(text).text)
    return printable.encode("utf-8", "backslashreplace").decode()


def _build_schema(inputs: type) -> dict[str, JSON]:
    """Return the JSON Schema of a dataclass, without references and additional properties."""
    _, components = msgspec.json.schema_components((inputs,), ref_template="{name}")
    definitions: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(components))

    def inline(part: JSON) -> JSON:
        if isinstance(part, list):
            return [inline(value) for value in part]
        if not isinstance(part, dict):
            return part
        name = part.get("$ref")
        return record(name) if isinstance(name, str) else {key: inline(value) for key, value in part.items()}

    def record(name: str) -> dict[str, JSON]:
        definition = definitions[name]
        assert isinstance(definition, dict)
        schema = {key: inline(value) for key, value in definition.items() if key not in ("title", "description")}
        return schema | {"additionalProperties": False}

    return record(inputs.__name__)


LINES_PER_READ = 2000
SHOWN_LINE_LENGTH = 2000
CONTEXT_LINES = 3
SHOWN_EDIT = 6_000
"""Characters of the changed lines in the answer of an edit."""
EDIT_LIMIT_S = 10.0
"""Time limit for finding the text of one edit."""

FilePath = Annotated[str, Meta(min_length=1, description="path relative to the project folder")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """Read a text file. Each line is preceded by its number and a tab."""

    file_path: FilePath
    offset: Annotated[int, Meta(ge=1, description="first line, counted from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="number of lines, at most 2000")] = LINES_PER_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInput:
    """Create a file, or overwrite a file that you have read. Folders are created. Prefer Edit for changes."""

    file_path: FilePath
    content: Annotated[str, Meta(description="the complete new content of the file")]


OldString = Annotated[str, Meta(description="text copied from the file, without line numbers; must occur exactly once")]
NewString = Annotated[str, Meta(description="the text that replaces it")]
ReplaceAll = Annotated[bool, Meta(description="replace every occurrence of old_string")]


class Replacement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further replacement in the input of Edit."""

    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EditInput:
    """Replace one or several passages of a file. Everything else stays unchanged, byte for byte."""

    file_path: FilePath
    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False
    edits: Annotated[
        tuple[Replacement, ...],
        Meta(description="further replacements in this file, made after the first; all are made, or none"),
    ] = ()


def make_file_tools(
    workspace: Workspace,
    may_write: editing.MayWrite,
    *,
    known: editing.KnownFiles | None = None,
    find_error: editing.FindError = find_syntax_error,
) -> tuple[Tool, Tool, Tool]:
    """Return Read, Write and Edit for one agent; they share the record of the files it has read.

    ``known`` is that record. A Python file stays one of which ``find_error`` finds no error.
    """
    files = _Files(workspace, may_write, known=known or editing.KnownFiles(), find_error=find_error)
    write = define_tool("Write", WriteInput, run=files.write, subject=lambda inputs: inputs.file_path)
    edit = define_tool("Edit", EditInput, run=files.edit, subject=lambda inputs: inputs.file_path)
    return (
        define_tool("Read", ReadInput, run=files.read, subject=lambda inputs: inputs.file_path),
        replace(write, use="changes"),
        replace(edit, use="changes"),
    )


class _Files:
    def __init__(
        self,
        workspace: Workspace,
        may_write: editing.MayWrite,
        *,
        known: editing.KnownFiles,
        find_error: editing.FindError,
    ) -> None:
        self._find_error = find_error
        self._workspace = workspace
        self._may_write = may_write
        self._known = known

    def read(self, inputs: ReadInput) -> ToolOutput:
        file = self._workspace.read_text(inputs.file_path, cap_bytes=PAGED_CAP_BYTES)
        masked = mask(file.text)
        lines = editing.split_lines(masked.text)
        if lines and inputs.offset > len(lines):
            happened = f"{inputs.file_path} has only {len(lines)} lines; offset {inputs.offset} is behind its end."
            raise UsageError(happened, hint="use a smaller offset")
        self._known.note(file.name, file.data)
        last = inputs.offset - 1 + min(inputs.limit, LINES_PER_READ)
        rows = number_lines(lines, first=inputs.offset, last=last)
        ends = accumulate(len(row) + 1 for row in rows)
        rows = rows[: max(1, sum(end <= SIZE_CAP_BYTES for end in ends))]
        shown = "\n".join(rows) or "(the file is empty)"
        last = inputs.offset - 1 + len(rows)
        masks = sum(len(MASK.findall(row)) for row in rows) if masked.count else 0
        remarks = _format_remarks(file, last=last, total=len(lines), masked=masks)
        unseen = _format_unseen_remarks(lines[inputs.offset - 1 : last], first=inputs.offset)
        return ToolOutput(text="\n".join([shown, *unseen, *remarks]), exact=True)

    def write(self, inputs: WriteInput) -> ToolOutput:
        name = editing.require_writable(self._workspace, inputs.file_path, may_write=self._may_write)
        is_new = not self._workspace.exists(name)
        if is_new:
            file = TextFile(name=name, data=b"")
        else:
            self._require_read(name)
            file = self._workspace.read_text(name)
            self._require_current(name, file.data)
        rendered = editing.render_whole(file, inputs.content, find_error=self._find_error)
        self._workspace.write(name, rendered.data)
        self._known.note(name, rendered.data)
        text, remarks = TextFile(name=name, data=rendered.data).text, [*rendered.remarks]
        if is_new and "\r\n" in inputs.content:
            remarks.append("Its lines end with LF, as in every new file.")
        if text.endswith("\n") != inputs.content.endswith(("\r", "\n")):
            remarks.append(f"It ends {'with' if text.endswith(chr(10)) else 'without'} a newline, as before.")
        counts = _count_lines(text) if is_new else f"{_count_lines(text)}, {_count_lines(file.text)} before"
        return ToolOutput(text=" ".join([f"{'Created' if is_new else 'Overwrote'} {name}: {counts}.", *remarks]))

    def edit(self, inputs: EditInput) -> ToolOutput:
        name = editing.require_writable(self._workspace, inputs.file_path, may_write=self._may_write)
        file = self._workspace.read_text(name)
        first = Replacement(old_string=inputs.old_string, new_string=inputs.new_string, replace_all=inputs.replace_all)
        changes = tuple(_normalize_change(change, file) for change in (first, *inputs.edits))
        masked = mask(file.text)
        for change in changes:
            for where, text in (("old_string", change.old_string), ("new_string", change.new_string)):
                editing.require_no_mask(text, before=file.text, where=where)
            editing.require_whole(change.new_string, before=masked.text, name=name)
        steps = run_within(
            EDIT_LIMIT_S,
            lambda: _apply_changes(masked.text, changes),
            hint="use a shorter old_string with a line that occurs only once",
        )
        is_known = self._known.is_current(name, file.data)
        # An exact and unique match needs no knowledge of the rest of the file; other matches do.
        if any(edited.ignored or len(edited.lines) > 1 for edited in steps):
            self._require_current(name, file.data)
        text = steps[-1].text
        require_visible(text, before=masked.text)
        rendered = file.render(editing.restore_keys(masked, text), is_whole=False)
        if rendered.data == file.data:
            happened = " ".join(["The edit changes nothing.", *rendered.remarks])
            raise UsageError(happened, hint="change new_string, or make no edit")
        editing.require_python(name, before=file.data, after=rendered.data, find_error=self._find_error)
        self._workspace.write(name, rendered.data)
        if is_known:
            self._known.note(name, rendered.data)
        after = mask(TextFile(name=name, data=rendered.data).text).text if rendered.remarks else text
        output = _format_edit(name, steps, before=masked.text, after=after)
        return ToolOutput(text="\n".join([output, *rendered.remarks]), exact=True)

    def _require_read(self, name: str) -> None:
        if name not in self._known:
            raise UsageError(f"{name} exists, but you have not read it.", hint="Read it first, then try again")

    def _require_current(self, name: str, data: bytes) -> None:
        self._require_read(name)
        if not self._known.is_current(name, data):
            raise UsageError(f"{name} has changed since you read it.", hint="Read it again, then try again")


def _normalize_change(change: Replacement, file: TextFile) -> Replacement:
    old, new = file.normalize(change.old_string), file.normalize(change.new_string)
    if old.startswith(MARK):  # copied from somewhere else: Read does not show the mark
        old, new = old.removeprefix(MARK), new.removeprefix(MARK)
    return Replacement(old_string=old, new_string=new, replace_all=change.replace_all)


def _count_lines(text: str) -> str:
    return format_count(len(editing.split_lines(text)), "line")


def number_lines(lines: list[str], *, first: int, last: int) -> list[str]:
    """Return lines of a file, each with its number and shortened if it is long."""
    rows = []
    for number, line in enumerate(lines[first - 1 : last], start=first):
        text = line.removesuffix("\n")
        cut = f"{text[:SHOWN_LINE_LENGTH]} [... {len(text) - SHOWN_LINE_LENGTH} more characters]"
        rows.append(f"{number:>6}\t{text if len(text) <= SHOWN_LINE_LENGTH else cut}")
    return rows


def _format_remarks(file: TextFile, *, last: int, total: int, masked: int) -> list[str]:
    remarks = []
    if masked:
        texts = format_count(masked, "text")
        remarks.append(f"({texts} shaped like a key, masked as [masked: ...]; Edit keeps them, but cannot match them)")
    if last < total:
        remarks.append(f"({total - last} more lines; continue with offset {last + 1})")
    if set(file.endings) - {"LF"}:
        remarks.append(f"(lines end with {' or '.join(file.endings)}; Edit and Write keep that)")
    if file.encoding != "UTF-8":
        encoding = f"is in {file.encoding}" if file.encoding else "is not UTF-8, so only ASCII can be added"
        remarks.append(f"(the file {encoding}; Edit and Write keep that)")
    if file.has_undecoded:
        remarks.append("(bytes without a character are shown as \\xNN; Edit keeps them, but cannot match them)")
    if file.text and not file.text.endswith("\n") and last == total:
        remarks.append("(no newline at the end of the file)")
    return remarks


def _format_unseen_remarks(lines: list[str], *, first: int) -> list[str]:
    remarks = []
    unseen = format_counts_by_line(dict(enumerate(lines, start=first)))
    if unseen:
        remarks.append(f"(invisible characters in the lines above: {unseen})")
    if any(find_controls(line) for line in lines):
        remarks.append("(control characters are shown as <U+001B>; Edit keeps them, but cannot match them)")
    return remarks


def _apply_changes(text: str, changes: tuple[Replacement, ...]) -> tuple[editing.Edited, ...]:
    steps: list[editing.Edited] = []
    for number, change in enumerate(changes, start=1):
        try:
            edited = editing.replace(text, change.old_string, new=change.new_string, replace_all=change.replace_all)
        except UsageError as error:
            if len(changes) == 1:
                raise
            happened = f"Edit {number} of {len(changes)} is not possible, so no edit was made: {error.happened}"
            raise UsageError(happened, hint=error.hint) from error
        steps.append(edited)
        text = edited.text
    return tuple(steps)


def _format_edit(name: str, steps: tuple[editing.Edited, ...], *, before: str, after: str) -> str:
    changes = []
    for edited in steps:
        count = len(edited.lines)
        where = f"at line {edited.lines[0]}" if count == 1 else f"at {count} places, first at line {edited.lines[0]}"
        changes.append(where + (f", ignoring {edited.ignored}" if edited.ignored else ""))
    return f"Edited {name} {'; then '.join(changes)}. The lines are now:\n{format_changed_lines(before, after)}"


def format_changed_lines(before: str, after: str) -> str:
    """Return the changed lines of a text with their numbers and a few lines around them, shortened."""
    lines = editing.split_lines(after)
    groups = SequenceMatcher(None, editing.split_lines(before), lines).get_grouped_opcodes(CONTEXT_LINES)
    places = [(group[0][3] + 1, group[-1][4]) for group in groups]
    rows = ["\n".join(number_lines(lines, first=first, last=last)) for first, last in places]
    shown = "\n   ...\n".join(rows)
    if len(shown) > SHOWN_EDIT:
        shown = f"{shown[:SHOWN_EDIT].rpartition(chr(10))[0]}\n(Read shows the rest)"
    return shown


PATHS_CAP = 500
LIMIT_S = 20.0
"""Time limit for one search."""
_TOP = "search only in this folder or file; the default is the whole project"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobInput:
    """List the project's files whose path matches a pattern."""

    pattern: Annotated[str, Meta(description="such as src/**/*.py; a pattern without a slash matches in any folder")]
    path: Annotated[str, Meta(description=_TOP)] = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepInput:
    """Find the lines in the project's files that match a regular expression."""

    pattern: Annotated[str, Meta(min_length=1, description="a Python regular expression, matched against each line")]
    glob: Annotated[str, Meta(description="search only files that match this pattern, such as *.py")] = "**"
    path: Annotated[str, Meta(description=_TOP)] = "."


def make_search_tools(workspace: Workspace, *, limit_s: float = LIMIT_S) -> tuple[Tool, Tool]:
    """Return Glob and Grep over the files of ``workspace``; a search longer than ``limit_s`` is an error."""

    def run_glob(inputs: GlobInput) -> ToolOutput:
        narrower = "use a narrower pattern"
        paths = run_within(limit_s, lambda: glob(workspace, inputs.pattern, top=inputs.path), hint=narrower)
        return ToolOutput(text=_format_paths(paths, inputs.pattern))

    def run_grep(inputs: GrepInput) -> ToolOutput:
        hint = "use a simpler expression, without nested repetition, or search fewer files with glob"
        hits = run_within(
            limit_s, lambda: grep(workspace, inputs.pattern, files=inputs.glob, top=inputs.path), hint=hint
        )
        return ToolOutput(text=_format_hits(hits))

    def name_search(inputs: GlobInput | GrepInput) -> str:
        named = ("" if inputs.path == "." else inputs.path, inputs.glob if isinstance(inputs, GrepInput) else "**")
        where = " and ".join(each for each in named if each not in ("", "**"))
        return f"{inputs.pattern} in {where}" if where else inputs.pattern

    return (
        define_tool("Glob", GlobInput, run=run_glob, subject=name_search),
        define_tool("Grep", GrepInput, run=run_grep, subject=name_search),
    )


def _format_paths(paths: tuple[str, ...], pattern: str) -> str:
    if not paths:
        return f"No file matches {pattern}."
    more = [f"... and {len(paths) - PATHS_CAP} more; use a narrower pattern"] if len(paths) > PATHS_CAP else []
    return "\n".join([*map(_format_path, paths[:PATHS_CAP]), *more])


def _format_hits(hits: Hits) -> str:
    rows = [f"{_format_path(hit.path)}:{hit.line}: {hit.text}" for hit in hits.shown] or ["No line matches."]
    if hits.total > len(hits.shown):
        rows.append(f"... and {hits.total - len(hits.shown)} more; use a narrower pattern or glob")
    if hits.unread:
        rows.append(f"(files not searched because they are binary, too large, secret or unreadable: {hits.unread})")
    if hits.masked:
        rows.append(f"(texts shaped like keys, masked in these files: {hits.masked})")
    return "\n".join(rows)


def _format_path(path: str) -> str:
    return path if path.isprintable() else format_line(path)


OUTPUT_CAP_BYTES = 30_000
LAST_LINE_CAP = 200
# If the sandbox drops the middle of an output, it may cut a key in two, and half a key is not recognized. So the text
# next to the gap is left out, too.
_EDGE_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class BashInput:
    """Run a shell command in the project folder. Returns its exit status and output."""

    command: Annotated[str, Meta(min_length=1, description="run with bash -c in the project folder")]
    timeout_s: Annotated[int, Meta(ge=0, le=600, description="time limit in seconds; 0: the project's")] = 0


def make_bash_tool(
    sandbox: Sandbox,
    root: Path,
    *,
    access: Access,
    permission: Permission | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> Tool:
    """Return the tool Bash, which runs commands in ``root`` without input and ends every process they start.

    ``access`` and the sandbox limit what a command can do; ``permission`` may refuse it or ask the user first.
    ``variables`` are added to its environment. ``timeout_s`` is the time limit of a command that names none.
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
            timeout_s=inputs.timeout_s or timeout_s,
            output_cap=OUTPUT_CAP_BYTES + 2 * _EDGE_BYTES,
        )
        try:
            result = sandbox.run(command)
        except OSError as error:
            raise EnvironmentMissing(
                f"bash cannot be started: {error.strerror}.", hint=_suggest_start(error, root)
            ) from error
        remarks = "".join(f"\n[sandbox: {remark}]" for remark in result.remarks)
        output = _mask_output(result)
        ending = _format_ending(result, output)
        return ToolOutput(text=f"{ending}\n{output}".rstrip("\n") + remarks, is_error=result.timed_out)

    return define_tool("Bash", BashInput, run=run, subject=lambda inputs: inputs.command)


def _suggest_start(error: OSError, root: Path) -> str:
    """Return what to do if bash cannot be started in ``root``."""
    if error.errno == errno.E2BIG:
        return "write the text into files with Write, and let a short command read them"
    if error.errno == errno.ENOENT and root.is_dir():
        return "install bash"
    return f"see which limit or permission is in the way: ulimit -a; ls -ld {shlex.quote(str(root))}"


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
    """Report that a test is wrong or that the task cannot be done as described. It ends your run.

    Your changes are undone. Never change, skip or special-case a test instead.
    """

    why: Annotated[
        BlockedCode, Meta(description="test_is_wrong: a test demands wrong behavior; cannot_be_done: any other reason")
    ]
    reason: Annotated[str, Meta(min_length=1, description="what is wrong and where, in a few sentences")]


def make_blocked_tool() -> Tool:
    """Return the tool ReportBlocked, which ends the agent's run."""
    return define_tool(
        BLOCKED_TOOL,
        BlockedReport,
        run=lambda _: ToolOutput(text="Reported.", ends_run=True),
        subject=lambda blocked: f"{blocked.why}: {blocked.reason}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Call this when your task is complete. It ends your run; then cdd judges your work."""

    implementation_files: Annotated[tuple[str, ...], Meta(description="paths of the files you created or changed")]
    summary: Annotated[str, Meta(description="your change, in one or two sentences")] = ""


COMPLETION_TOOL = "CompleteImplementation"


def make_completion_tool() -> Tool:
    """Return the tool CompleteImplementation, which ends the agent's run."""
    return define_tool(
        COMPLETION_TOOL,
        Completion,
        run=lambda _: ToolOutput(text="Submitted. The gate decides.", ends_run=True),
        subject=lambda done: ", ".join(done.implementation_files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTestsInput:
    """Run the project's tests. Returns every outcome and failure."""

    targets: Annotated[
        tuple[str, ...],
        Meta(description="node ids such as tests/test_a.py::test_b, files, or names of tests; empty: the whole suite"),
    ] = ()


def make_run_tests_tool(run: Callable[[tuple[str, ...]], str]) -> Tool:
    """Return the tool RunTests; ``run`` takes the targets and returns the results as text."""
    tool = define_tool(
        "RunTests",
        RunTestsInput,
        run=lambda inputs: ToolOutput(text=run(inputs.targets)),
        subject=lambda inputs: " ".join(inputs.targets) or "all tests",
    )
    return replace(tool, use="tests")
