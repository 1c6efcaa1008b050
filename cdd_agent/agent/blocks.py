"""Whole files in fenced blocks, for models without tool use.

Fences follow CommonMark: three or more backticks or tildes, closed by at least as many of the same character. The text
after the opening fence names the file in one of three ways::

    ```python:src/ledger/export.py
    ```src/ledger/export.py
    ```python path="src/ledger/export.py"

A block without a path is an example. If any part of an answer is unclear, nothing is written. A file can be replaced
only if the model was shown its current content.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from cdd_agent.agent import editing
from cdd_agent.agent.tools import BLOCKED_CODES
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import Marks
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.python_source import find_syntax_error
from cdd_agent.untrusted.text import shorten
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.text_file import Rendered, TextFile

MAX_BLOCKS = 200
"""Blocks with a path in one answer."""
MAX_FENCED = 2_000
"""Blocks in one answer, including examples."""
# The limit of common file systems.
_MAX_NAME_BYTES = 255

_OPENING = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_MISPLACED = re.compile(r"(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)?(?:`{3,}|~{3,})(?P<info>[^`]*)")
_ATTRIBUTE = re.compile(r"(?:^|\s)path\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s}]*))")
_LANGUAGE = re.compile(r"[\w+#.-]*")
_PATH_WORD = re.compile(r"[^\s()\[\]{}=,;$]+")
_EXTENSION = re.compile(r"\.[A-Za-z][\w.-]*")
_LANGUAGES_WITH_A_DOT = frozenset({".net", "asp.net", "node.js", "vb.net", "vue.js", "react.js", "next.js"})
_DIFFS = frozenset({"diff", "patch"})
NO_CHANGE = "no_change_needed"
"""Stands behind the fence of a report that nothing has to change."""
_REPORTS = {NO_CHANGE: NO_CHANGE, **{f"blocked:{code}": code for code in BLOCKED_CODES}}
"""Text behind the fence of a report -> its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """A file and its complete content."""

    path: str
    content: str
    """The text between the fences; ends with a newline unless it is empty."""
    line: int
    """The line of the opening fence, 1-based."""


class _Fenced(NamedTuple):
    info: str
    fence: str
    content: str
    line: int


def parse_files(answer: str) -> tuple[FileBlock, ...]:
    """Return the files of ``answer`` in order; raise ``UsageError`` with the line of an unclear or repeated block."""
    files: list[FileBlock] = []
    for number, fenced in enumerate(_iter_fenced(answer), start=1):
        if number > MAX_FENCED:
            what = f"the answer has more than {MAX_FENCED} fenced blocks"
            raise _make_error(fenced.line, what, hint="give fewer examples")
        path = _parse_info(fenced.info, line=fenced.line)
        if path is not None:
            files.append(FileBlock(path=path, content=fenced.content, line=fenced.line))
        elif not fenced.info and files:
            raise _make_error(
                fenced.line,
                "this fence names nothing; it may be the end of a block that an earlier fence already closed",
                hint=f"open a block that contains fences with a longer fence, such as {'`' * (len(fenced.fence) + 1)}, "
                "and name a language for examples",
            )
    if len(files) > MAX_BLOCKS:
        what = f"the answer has more than {MAX_BLOCKS} files"
        raise _make_error(files[MAX_BLOCKS].line, what, hint="change fewer files")
    _require_distinct(files)
    return tuple(files)


def find_report(answer: str) -> tuple[str, str] | None:
    """Return code and reason of the block that reports that the work is blocked or needs no change; None without one.

    Raises ``UsageError`` if the answer has files, too, or more than one report, or no reason.

    >>> find_report("```blocked:test_is_wrong\\n1 + 1 is 2.\\n```")
    ('test_is_wrong', '1 + 1 is 2.')
    """
    fenced = list(_iter_fenced(answer))
    reports = [each for each in fenced if each.info in _REPORTS]
    if not reports:
        return None
    first, *others = reports
    reason = first.content.strip()
    if others or not reason or any(_parse_info(each.info, line=each.line) for each in fenced if each not in reports):
        raise _make_error(
            first.line,
            "a report is one block with the reason in it, without files beside it",
            hint="send the report alone, or the files alone",
        )
    return _REPORTS[first.info], reason


def remove_fenced(text: str) -> str:
    """Return ``text`` without its fenced blocks, and without the rest of the text if the last one is not closed.

    >>> remove_fenced("Done:\\n```python:a.py\\nx = 1\\n```\\nIt adds x.")
    'Done:\\nIt adds x.'
    """
    kept, fence = list[str](), ""
    for row in text.split("\n"):
        bare = row.removesuffix("\r").lstrip()
        if fence:
            fence = "" if _is_closing(bare, fence) else fence
        elif opening := _OPENING.fullmatch(bare):
            fence = opening["fence"]
        else:
            kept.append(row)
    return "\n".join(kept)


def _iter_fenced(answer: str) -> Iterator[_Fenced]:
    opening: re.Match[str] | None = None
    first, fence, indent, rows = 0, "", 0, list[str]()
    for number, row in enumerate(answer.removeprefix("\ufeff").split("\n"), start=1):
        bare = row.removesuffix("\r")
        if opening is None:
            opening, first, rows = _OPENING.fullmatch(bare), number, []
            fence, indent = (opening["fence"], len(opening["indent"])) if opening else ("", 0)
            misplaced = None if opening else _MISPLACED.fullmatch(bare.lstrip())
            # An indented fence, or one in a list, opens no block: its file would be lost.
            if misplaced and _parse_info(misplaced["info"].strip(), line=number) is not None:
                what = "this fence is not at the start of its line"
                raise _make_error(number, what, hint="remove the list marker and the blanks before it")
        elif fence in bare and _is_closing(bare, fence):
            content = "".join(f"{row}\n" for row in rows)
            yield _Fenced(info=opening["info"].strip(), fence=fence, content=content, line=first)
            opening = None
        else:
            # CommonMark removes up to the indentation of the fence from every line.
            rows.append(row[min(indent, len(row) - len(row.lstrip(" "))) :] if indent else row)
    if opening is not None:
        raise _make_error(
            first,
            f"the block that starts here is not closed by a line of {fence} or longer",
            hint="close each block with a fence at least as long as its opening fence; open a block that contains "
            "fences with a longer one",
        )


def _is_closing(row: str, fence: str) -> bool:
    rest = row.lstrip(" ")
    word = rest.rstrip(" \t")
    return len(row) - len(rest) <= 3 and len(word) >= len(fence) and word == fence[0] * len(word)


def _parse_info(info: str, *, line: int) -> str | None:
    """Return the path in the text behind a fence, or None for an example; raise ``UsageError`` for an invalid path."""
    attribute = _ATTRIBUTE.search(info)
    if attribute is not None:
        path = next(part for part in attribute.groups() if part is not None)
        return _validate_path(path, line=line, is_quoted=True)
    word, _, rest = info.partition(" ")
    language, colon, path = info.partition(":")
    if colon and _LANGUAGE.fullmatch(language):
        if language.lower() in _DIFFS and not path.strip().endswith((".diff", ".patch")):
            raise _make_error(line, "this block is a diff, not a whole file", hint="write the whole file")
        return _validate_path(path.strip(), line=line)
    if _is_path(word):
        if rest.strip():
            what = f"the path is followed by {shorten(rest, 60)!r}"
            raise _make_error(line, what, hint=f"write only the path: {word}")
        return _validate_path(word, line=line)
    second = rest.strip().partition(" ")[0]
    if _LANGUAGE.fullmatch(word) and _is_path(second):
        what = f"{shorten(info, 60)!r} is neither a path nor a language"
        raise _make_error(line, what, hint=f"write {word}:{second}")
    return None


def _validate_path(path: str, *, line: int, is_quoted: bool = False) -> str:
    """Return ``path`` in normal form; only a quoted path may contain blanks."""
    problem = ""
    if not path:
        problem = "the path is empty"
    elif (not is_quoted and re.search(r"\s", path)) or path != path.strip() or re.search(r"[`\"'<>\\|*?:\0]", path):
        problem = f"{shorten(path, 60)!r} is not a path"
    elif path.startswith("~") or not path.isprintable():
        problem = f"{shorten(path, 60)!r} is not a path in the project"
    elif path.startswith("path/to/"):
        problem = f"{path} is the path of an example"
    elif path.endswith("/"):
        problem = f"{path} is a folder"
    elif any(len(part.encode("utf-8", "replace")) > _MAX_NAME_BYTES for part in path.split("/")):
        problem = f"the path {shorten(path, 60)!r} is too long"
    if problem:
        raise _make_error(line, problem, hint="write the path of the file, as in ```python:src/module.py")
    return str(PurePosixPath(path))


def _is_path(word: str) -> bool:
    """Return whether a single word is a path, not a language: it has a folder or a file extension."""
    if _PATH_WORD.fullmatch(word) is None or word.lower() in _LANGUAGES_WITH_A_DOT:
        return False
    return "/" in word or _EXTENSION.search(PurePosixPath(word).name) is not None


def _require_distinct(blocks: Sequence[FileBlock]) -> None:
    lines: dict[str, int] = {}
    for block in blocks:
        if block.path in lines:
            what = f"{block.path} is already in the answer, in line {lines[block.path]}"
            raise _make_error(block.line, what, hint="give each file once")
        lines[block.path] = block.line
    for path, other in pairwise(sorted(lines, key=lambda path: path.split("/"))):
        if other.startswith(f"{path}/"):
            raise _make_error(lines[other], f"{path} would be a file and a folder", hint="rename one of them")


def _make_error(line: int, what: str, *, hint: str) -> UsageError:
    return UsageError(f"Line {line} of the answer: {what}. Nothing was written.", hint=hint)


class BlocksWritten(NamedTuple):
    """The result of an answer: every file is written, or none."""

    refused: tuple["Refusal", ...] = ()
    remarks: tuple[str, ...] = ()
    """What was written otherwise than the answer has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A block that cannot be written."""

    path: str
    why: str
    must_be_shown: bool = False
    """Whether the model has to see the existing file first."""


class WholeFiles:
    """The files that one agent was shown and may replace."""

    def __init__(
        self,
        workspace: Workspace,
        may_write: editing.MayWrite,
        *,
        max_characters: int,
        object_to: Callable[[FileBlock], str] = lambda _: "",
        report: Callable[[Sequence[FileBlock]], str] = lambda _: "",
        find_error: editing.FindError = find_syntax_error,
    ) -> None:
        """``max_characters`` limits a file that has to come back whole in one answer.

        ``object_to`` returns why a block that could be written must not be; empty if it may. ``report`` gets
        the written blocks, and returns the objections that the model has to answer; empty if there are none.
        """
        self.report = report
        self._find_error = find_error
        self._object_to = object_to
        self._workspace = workspace
        self._may_write = may_write
        self._max_characters = max_characters
        self._known = editing.KnownFiles()

    def render(self, paths: Iterable[str], *, marks: Marks) -> str:
        """Return the files as text for a model, each whole and between marks, and name those that do not exist.

        Raises ``UsageError`` for a binary file, and for a writable one that an answer could not reproduce: too large,
        not UTF-8, or with characters that marked text cannot show.
        """
        parts, missing = [], []
        for path in dict.fromkeys(paths):
            if self._workspace.is_file(path):
                parts.append(self._render_file(path, marks=marks))
            elif not self._workspace.exists(path):
                missing.append(path)
        if missing:
            parts.append(f"These files do not exist yet: {', '.join(missing)}")
        return "\n\n".join(parts)

    def write_blocks(self, blocks: Sequence[FileBlock]) -> BlocksWritten:
        """Write all of ``blocks``, or write nothing and return what is wrong."""
        ready: dict[str, Rendered | None] = {}
        refused: list[Refusal] = []
        for block in blocks:
            try:
                name = editing.require_writable(self._workspace, block.path, may_write=self._may_write)
                if name in ready:
                    raise UsageError(f"{name} is named twice.", hint="give each file once")
                ready[name] = None
                ready[name] = self._make_content(name, block.content)
                if objection := self._object_to(block):
                    raise UsageError(objection, hint="change your answer")
            except UsageError as error:
                why = f"{error.happened} ({error.hint})"
                refused.append(Refusal(path=block.path, why=why, must_be_shown=isinstance(error, _NotShownError)))
        if refused:
            return BlocksWritten(refused=tuple(refused))
        remarks: list[str] = []
        for name, rendered in ready.items():
            if rendered is not None:
                self._workspace.write(name, rendered.data)
                self._known.note(name, rendered.data)
                remarks += (f"{name}: {remark}" for remark in rendered.remarks)
        return BlocksWritten(remarks=tuple(remarks))

    def _render_file(self, path: str, *, marks: Marks) -> str:
        file = self._workspace.read_text(path)
        text, name = file.text, file.name
        if self._may_write(name) is None:
            self._require_reproducible(file, marks=marks)
        self._known.note(name, file.data)
        remark = "" if not text or text.endswith("\n") else "; no newline at its end"
        return marks.wrap(mask(text).text.removesuffix("\n"), source=f"{name}{remark}", exact=True)

    def _require_reproducible(self, file: TextFile, *, marks: Marks) -> None:
        path, text = file.name, file.text
        hint = "set edit_format: tools, or remove the file from the step of the plan"
        if len(text) > self._max_characters:
            raise UsageError(
                f"{path} has {len(text):,} characters. Without tools it has to fit into one answer, which holds "
                f"{self._max_characters:,}.",
                hint=f"{hint}, or raise max_tokens",
            )
        if file.has_undecoded:
            encoding = file.encoding or "UTF-8"
            raise UsageError(f"{path} has bytes that are not {encoding}, so an answer cannot contain it.", hint=hint)
        body = mask(text).text.removesuffix("\n")
        if f"\n{body}\n" not in marks.wrap(body, source="", exact=True):
            raise UsageError(f"{path} contains characters that an answer cannot reproduce.", hint=hint)

    def _make_content(self, name: str, content: str) -> Rendered | None:
        if not self._workspace.exists(name):
            for folder in map(str, PurePosixPath(name).parents):
                if self._workspace.is_file(folder):
                    happened = f"{name} cannot be written because {folder} is a file."
                    raise UsageError(happened, hint="use another folder")
            return editing.render_whole(TextFile(name=name, data=b""), content)
        file = self._workspace.read_text(name)
        if name not in self._known:
            raise _NotShownError(f"{name} exists, but you have not seen it.", hint="its content follows")
        if not self._known.is_current(name, file.data):
            raise _NotShownError(f"{name} has changed since you saw it.", hint="its current content follows")
        masked = mask(file.text)
        text = editing.restore_keys(masked, content) if masked.count else content
        rendered = editing.render_whole(file, text, find_error=self._find_error)
        return rendered if rendered.data != file.data else None


class _NotShownError(UsageError):
    """The file has content that the model does not know."""
