"""Files in an answer: fenced blocks that name a path, for models without tool use. Pure: text in, blocks out.

Fences are CommonMark's: three or more backticks or tildes, which only the same character at least as often closes.
The word after the opening fence names the file, in one of three ways::

    ```python:src/ledger/export.py
    ```src/ledger/export.py
    ```python path="src/ledger/export.py"

A block without a path is an example. Whatever cannot be understood makes the whole answer an error: half of an answer
is never taken for all of it.

Whole files for a model without tools: given to it as they are, and taken back all together or not at all.

Only a file that was given can be replaced, and only while it still holds what was given: the model knows no other.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from cdd_agent.agent.editing import (
    BOM,
    Known,
    MayWrite,
    ending_of,
    require_fit,
    require_writable,
    restored,
    with_ending,
)
from cdd_agent.agent.quoting import Marks
from cdd_agent.errors import UsageError
from cdd_agent.untrusted.keys import mask
from cdd_agent.workspace.files import Workspace, decode, encode

MOST_BLOCKS = 200
"""With a path."""
MOST_FENCED = 2_000
"""Examples included."""
_LONGEST_NAME = 255
"""Bytes of the name of a file or folder, on every usual file system."""

_OPENING = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_OUT_OF_PLACE = re.compile(r"(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)?(?:`{3,}|~{3,})(?P<info>[^`]*)")
_ATTRIBUTE = re.compile(r"(?:^|\s)path\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s}]*))")
_LANGUAGE = re.compile(r"[\w+#.-]*")
_ALONE = re.compile(r"[^\s()\[\]{}=,;$]+")
_EXTENSION = re.compile(r"\.[A-Za-z][\w.-]*")
_LANGUAGES_WITH_A_DOT = frozenset({".net", "asp.net", "node.js", "vb.net", "vue.js", "react.js", "next.js"})
_DIFFS = frozenset({"diff", "patch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One file and all it is to hold."""

    path: str
    content: str
    """Between the fences, to the last byte; ends with a newline unless it is empty."""
    line: int
    """Of the opening fence, 1-based."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fenced:
    """A block as it stands in the answer, whatever it is for."""

    info: str
    fence: str
    content: str
    line: int


def parse(answer: str) -> tuple[Block, ...]:
    """The files of ``answer``, in order; none if it names no file.

    Raises ``UsageError`` with the line for a fence that is not closed or cannot be told from a closing one, for what
    stands in the place of a path, and for a path that comes twice.
    """
    found: list[Block] = []
    for number, fenced in enumerate(_fenced(answer), start=1):
        if number > MOST_FENCED:
            raise _error(
                fenced.line, f"more than {MOST_FENCED} fenced blocks in one answer", hint="give fewer examples"
            )
        path = _path_in(fenced.info, line=fenced.line)
        if path is not None:
            found.append(Block(path=path, content=fenced.content, line=fenced.line))
        elif not fenced.info and found:
            raise _error(
                fenced.line,
                "this fence has no word after it: it may be the end of a block that an earlier fence has closed",
                hint=f"open a block that holds fences with a longer one, such as {'`' * (len(fenced.fence) + 1)}, "
                "and give examples a language",
            )
    if len(found) > MOST_BLOCKS:
        raise _error(found[MOST_BLOCKS].line, f"more than {MOST_BLOCKS} files in one answer", hint="change fewer files")
    _require_apart(found)
    return tuple(found)


def _fenced(answer: str) -> Iterator[_Fenced]:
    """Every fenced block of ``answer``; raises ``UsageError`` for one that is not closed."""
    opening: re.Match[str] | None = None
    first, rows = 0, list[str]()
    for number, row in enumerate(answer.removeprefix("\ufeff").split("\n"), start=1):
        bare = row.removesuffix("\r")
        if opening is None:
            opening, first, rows = _OPENING.fullmatch(bare), number, []
            if opening is None:
                _require_no_lost_file(bare, line=number)
        elif opening["fence"] in bare and _closes(bare, opening["fence"]):
            content = "".join(f"{row}\n" for row in rows)
            yield _Fenced(info=opening["info"].strip(), fence=opening["fence"], content=content, line=first)
            opening = None
        else:
            rows.append(_outdented(row, by=len(opening["indent"])) if opening["indent"] else row)
    if opening is not None:
        fence = opening["fence"]
        raise _error(
            first,
            f"the block that begins here is not closed: no later line is just {fence}, or longer",
            hint="end each block by a fence at least as long as the one it begins with; open a block that holds fences "
            "itself with a longer one",
        )


def _closes(row: str, fence: str) -> bool:
    """Whether ``row`` closes a block that ``fence`` has opened."""
    rest = row.lstrip(" ")
    word = rest.rstrip(" \t")
    return len(row) - len(rest) <= 3 and len(word) >= len(fence) and word == fence[0] * len(word)


def _outdented(row: str, *, by: int) -> str:
    """``row`` without as much white space as the opening fence has before it."""
    return row[min(by, len(row) - len(row.lstrip(" "))) :]


def _path_in(info: str, *, line: int) -> str | None:
    """The path that the word after a fence names, or None for an example; raises ``UsageError`` for a bad one."""
    attribute = _ATTRIBUTE.search(info)
    if attribute is not None:
        return _checked(next(part for part in attribute.groups() if part is not None), line=line, whole=True)
    word, _, rest = info.partition(" ")
    language, colon, path = info.partition(":")
    if colon and _LANGUAGE.fullmatch(language):
        if language.lower() in _DIFFS and not path.strip().endswith((".diff", ".patch")):
            raise _error(
                line, "a block that names a file holds the whole file, and this is a diff", hint="write all of it"
            )
        return _checked(path.strip(), line=line)
    if _is_path(word):
        if rest.strip():
            raise _error(line, f"after the path stands {_shown(rest)}", hint=f"write nothing but the path: {word}")
        return _checked(word, line=line)
    second = rest.strip().partition(" ")[0]
    if _LANGUAGE.fullmatch(word) and _is_path(second):
        raise _error(line, f"{_shown(info)} is no path and no language", hint=f"write {word}:{second}")
    return None


def _checked(path: str, *, line: int, whole: bool = False) -> str:
    """``path`` in one spelling, if it is one; ``whole``: it was quoted, so there may be blanks in it."""
    example = "write the path of the file, as in ```python:src/module.py"
    if not path:
        raise _error(line, "the path is empty", hint=example)
    if (not whole and re.search(r"\s", path)) or path != path.strip() or re.search(r"[`\"'<>\\|*?:\0]", path):
        raise _error(line, f"{_shown(path)} is no path", hint=example)
    if path.startswith("~") or not path.isprintable():
        raise _error(line, f"{_shown(path)} is no path in the project", hint=example)
    if path.startswith("path/to/"):
        raise _error(line, f"{path} is the path of an example", hint=example)
    if path.endswith("/"):
        raise _error(line, f"{path} is a folder", hint=example)
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in path.split("/")):
        raise _error(line, f"{_shown(path)} is too long for a path", hint=example)
    return str(PurePosixPath(path))


def _is_path(word: str) -> bool:
    """Whether a word that stands alone is a path and no language: it has a folder or an extension."""
    has_extension = _EXTENSION.search(PurePosixPath(word).name) is not None
    return (
        _ALONE.fullmatch(word) is not None
        and ("/" in word or has_extension)
        and word.lower() not in _LANGUAGES_WITH_A_DOT
    )


def _require_no_lost_file(row: str, *, line: int) -> None:
    """Raise ``UsageError`` if ``row`` would open a file's block, were it not indented or in a list."""
    found = _OUT_OF_PLACE.fullmatch(row.lstrip())
    if found is not None and _path_in(found["info"].strip(), line=line) is not None:
        raise _error(
            line, "this fence does not stand at the start of its line", hint="put no list and no blanks before it"
        )


def _require_apart(blocks: Sequence[Block]) -> None:
    """Raise ``UsageError`` for a path that comes twice, or that is a folder of another."""
    lines: dict[str, int] = {}
    for block in blocks:
        if block.path in lines:
            earlier = lines[block.path]
            raise _error(block.line, f"{block.path} is there already, in line {earlier}", hint="give each file once")
        lines[block.path] = block.line
    for path, other in pairwise(sorted(lines, key=lambda path: path.split("/"))):
        if other.startswith(f"{path}/"):
            raise _error(lines[other], f"{path} would be a file and a folder", hint="name one of them otherwise")


def _shown(text: str) -> str:
    """The beginning of ``text`` in one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else f"{line[:57]}...")


def _error(line: int, what: str, *, hint: str) -> UsageError:
    """The error for a place in the answer."""
    return UsageError(f"Line {line} of the answer: {what}. Nothing was written.", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A block that cannot be written."""

    path: str
    why: str
    must_be_given: bool = False
    """Whether the file is there and the model has not seen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A file that has passed every check."""

    name: str
    data: bytes


class WholeFiles:
    """The files that one agent was given, and may hand in."""

    def __init__(self, workspace: Workspace, may_write: MayWrite, *, most_characters: int) -> None:
        """``most_characters``: of a file that is to come back in one answer."""
        self._workspace = workspace
        self._may_write = may_write
        self._most_characters = most_characters
        self._known = Known()

    def give(self, paths: Iterable[str], *, marks: Marks) -> str:
        """The files as a model is to read them, each whole and marked as data; those that are not there are named.

        Raises ``UsageError`` for a binary one, and for one that may be written and that a model could not give back as
        it is: too large, not UTF-8, or with characters that a marked text cannot show.
        """
        parts, missing = [], []
        for path in dict.fromkeys(paths):
            if self._workspace.is_file(path):
                parts.append(self._shown(path, marks=marks))
            elif not self._workspace.exists(path):
                missing.append(path)
        if missing:
            parts.append(f"Not there yet: {', '.join(missing)}")
        return "\n\n".join(parts)

    def take(self, blocks: Sequence[Block]) -> tuple[Refusal, ...]:
        """Write all of ``blocks``, or none of them and say what is wrong."""
        ready, refused = self._checked(blocks)
        if refused:
            return refused
        for file in ready:
            self._workspace.write(file.name, file.data)
            self._known.note(file.name, file.data)
        return ()

    def _shown(self, path: str, *, marks: Marks) -> str:
        """One file, whole."""
        data = self._workspace.read(path)
        text = decode(data)
        name = self._workspace.relative(path)
        if self._may_write(name) is None:
            self._require_can_come_back(name, text, marks=marks)
        self._known.note(name, data)
        remark = "" if not text or text.endswith("\n") else "; no newline at its end"
        return marks.around(mask(text).text.removesuffix("\n"), source=f"{name}{remark}", exact=True)

    def _require_can_come_back(self, path: str, text: str, *, marks: Marks) -> None:
        """Raise ``UsageError`` if the model could not hand ``text`` in as it is."""
        hint = "set edit_format: tools, or leave the file out of the plan's step"
        if len(text) > self._most_characters:
            raise UsageError(
                f"{path} has {len(text):,} characters; without tools it has to fit into one answer, whole, and "
                f"{self._most_characters:,} do.",
                hint=f"{hint}, or raise max_tokens",
            )
        shown = mask(text).text
        body = shown.removesuffix("\n")
        if any("\udc80" <= letter <= "\udcff" for letter in text):
            raise UsageError(f"{path} is not UTF-8, and an answer can hold nothing else.", hint=hint)
        if f"\n{body}\n" not in marks.around(body, source="", exact=True):
            raise UsageError(f"{path} holds characters that no answer can give back as they are.", hint=hint)

    def _checked(self, blocks: Sequence[Block]) -> tuple[tuple[_Ready, ...], tuple[Refusal, ...]]:
        """The files that would be written, and what keeps them from it."""
        ready: list[_Ready] = []
        refused: list[Refusal] = []
        names: set[str] = set()
        for block in blocks:
            try:
                name = require_writable(self._workspace, block.path, may_write=self._may_write)
                if name in names:
                    raise UsageError(f"{name} is named twice.", hint="give each file once")
                names.add(name)
                ready += self._fit(name, block.content)
            except _NotGivenError as error:
                refused.append(Refusal(path=block.path, why=f"{error.happened} ({error.hint})", must_be_given=True))
            except UsageError as error:
                refused.append(Refusal(path=block.path, why=f"{error.happened} ({error.hint})"))
        return tuple(ready), tuple(refused)

    def _fit(self, name: str, content: str) -> tuple[_Ready, ...]:
        """The file if it is fit to be written; nothing if it is as it was."""
        if not self._workspace.exists(name):
            self._require_folders(name)
            require_fit(name, text=content, before=None)
            return (_Ready(name=name, data=encode(content)),)
        before = self._workspace.read(name)
        if name not in self._known:
            raise _NotGivenError(f"{name} is there, and you have not seen it.", hint="it is given to you now")
        if not self._known.is_current(name, before):
            raise _NotGivenError(f"{name} has changed since it was given to you.", hint="it is given to you again")
        masked = mask(decode(before))
        text = as_it_was(content, before=masked.text)
        text = restored(masked, text) if masked.count else text
        require_fit(name, text=text, before=before)
        data = encode(text)
        return (_Ready(name=name, data=data),) if data != before else ()

    def _require_folders(self, name: str) -> None:
        """Raise ``UsageError`` if a file is in the way of a folder that ``name`` needs."""
        file = next((str(folder) for folder in PurePosixPath(name).parents if self._workspace.is_file(str(folder))), "")
        if file:
            raise UsageError(f"{name} cannot be written: {file} is a file.", hint="give it another folder")


class _NotGivenError(UsageError):
    """The file is there with content that the model does not know."""


def as_it_was(text: str, *, before: str) -> str:
    """``text`` with what a block cannot say kept as in ``before``: byte order mark, line ends, none at the end."""
    body = with_ending(text.removeprefix(BOM), ending_of(before))
    if before.strip() and not before.endswith("\n"):
        body = body.removesuffix("\n").removesuffix("\r")
    return f"{BOM}{body}" if text.startswith(BOM) or before.startswith(BOM) else body
