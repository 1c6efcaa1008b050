"""Replace passages of a file, and check the new content of a file before it is written.

A passage is searched for exactly first. If it is not found, a few differences that models make by accident are
ignored, one kind at a time, and only if exactly one place matches. A merely similar passage is never replaced.

New content is refused if it contains invisible characters, masks in place of keys, or placeholders such as
``# ... rest of the code unchanged``: written to a file, a placeholder deletes code and no parser notices.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches, unified_diff
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

from cdd_agent.errors import UsageError, join_first
from cdd_agent.events import Emit, FileChanged
from cdd_agent.untrusted.keys import MASK, Masked, mask
from cdd_agent.untrusted.paths import fold_name
from cdd_agent.untrusted.python_source import PYTHON, find_syntax_error
from cdd_agent.untrusted.text import require_visible
from cdd_agent.workspace.files import Workspace, Written
from cdd_agent.workspace.text_file import MARK, Rendered, TextFile

_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ""})
"""Suffixes of files in which ``#`` and ``--`` do not start a comment."""
_MAX_PLACEHOLDER = 160
"""Characters of a placeholder; a longer line is a sentence."""

_DOTS = r"(?:(?<!\.)\.{3,5}(?!\.)|…)"
_BARE = rf"[\[(<{{]?\s*(?={_DOTS}.*\w)"
_COMMENT = re.compile(
    rf"(?:(?:pass|{_DOTS})\s+)?(?://|/\*|\{{/\*|<!--|#(?!!)|--|;|%|\(\*|\"\"\"|'''|\*|rem\s)|{_BARE}", re.IGNORECASE
)
_PROSE_COMMENT = re.compile(rf"<!--|{_BARE}")
_DOTS_DEEPER = re.compile(r"\W\s{2,}|[*-]")
"""The beginning of dots in code or in a list that a comment quotes."""
_SENTENCE = re.compile(r"[\w\s.,;!'\"()\[\]<>{}/*#%`…-]+")
_NAME = re.compile(r"`[^`]*`|\w+(?:[_.]\w+)+(?:\(\))?|\w+\(\)")
_LETTERS = re.compile(r"[a-z]+")

# A placeholder consists of these words, and at most one that names the code.
_UNTOUCHED = r"unchanged|unmodified|untouched|unaltered|omitted|elided|snip|snipped"
_MISSING = r"rest|remainder|remaining|others?|else|existing|previous|original|current|old|earlier|prior|same"
_MORE = r"more|further|similar|additional|etc"
_LAST = rf"{_UNTOUCHED}|before|brevity|clarity|continues|follows|here|identical|intact|is|remains?|same|stays?|was|were"
"""The last word of a placeholder without dots."""
_OTHERS = (
    r"a|all|and|any|are|as|be|completely|everything|exactly|for|from|goe?s?|in|its?|keep|left|leave|my|of|our|that|the|"
    r"they|these|this|to|your|(?:case|code|content|file|function|import|line|method|test)s?|body|class|implementation|logic"
)


def find_elisions(text: str, *, before: str, name: str) -> tuple[tuple[int, str], ...]:
    """Return the placeholder lines of ``text`` with their numbers, except those that ``before`` contains.

    The suffix of the file's ``name`` decides what starts a comment. A line is a placeholder if it is a comment or
    starts with an ellipsis and says in the usual words only that something is left out; Python's own ``...`` is not.
    """
    known = {line.strip() for line in before.split("\n")}
    path = PurePosixPath(name)
    is_prose = path.suffix.lower() in _PROSE and path.name not in {"Makefile", "Dockerfile"}
    rows = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return tuple((number, line) for number, line in rows if line not in known and _is_elision(line, is_prose=is_prose))


def require_whole(text: str, *, before: str, name: str) -> None:
    """Raise ``UsageError`` naming the first new placeholder in ``text``."""
    elisions = find_elisions(text, before=before, name=name)
    if elisions:
        number, line = elisions[0]
        raise UsageError(
            f"Line {number} of the new text for {name} is a placeholder for omitted code: {line}\nNothing was changed.",
            hint="write the code itself, or replace only the part that changes; if the comment means something else, "
            "reword it",
        )


@lru_cache(maxsize=1000)
def _is_elision(line: str, *, is_prose: bool) -> bool:
    opening = (_PROSE_COMMENT if is_prose else _COMMENT).match(line) if 3 <= len(line) <= _MAX_PLACEHOLDER else None
    if opening is None or not _SENTENCE.fullmatch(line):
        return False
    text = line[opening.end() :].replace("'", "")
    words, dots = _LETTERS.findall(_NAME.sub(" ", text).lower()), re.search(_DOTS, text)
    if not words:
        return dots is not None and not _DOTS_DEEPER.match(line) and not re.search(r"\w", text)
    is_last = _has_word(_LAST, words[-1:])
    if dots is None and not is_last:
        return False  # most comments, and cheaper than the rest
    unknown = [word for word in words if not _has_word(f"{_OTHERS}|{_LAST}|{_MISSING}|{_MORE}", [word])]
    if len(unknown) > 1:
        return False
    is_untouched = _has_word(_UNTOUCHED, words)
    if dots is None or (_LETTERS.search(text, 0, dots.start()) and words[0] in unknown):
        return is_last and (_has_word(_MISSING, words[:-1]) or (is_untouched and not unknown))
    return is_untouched or (is_last and not unknown) or _has_word(f"{_MISSING}|{_MORE}", words)


def _has_word(pattern: str, words: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, word) for word in words)


MayWrite: TypeAlias = Callable[[str], str | None]
"""Returns why this agent may not write to a relative path, or None if it may."""

PYTEST_FILES = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
"""Configuration files of pytest."""


class KnownFiles:
    """The content of each file that an agent was last shown, or wrote itself."""

    def __init__(self, shown: Mapping[str, bytes] | None = None) -> None:
        """Start with the files that the agent's first message shows: path -> content."""
        self._digests: dict[str, bytes] = {}
        for name, data in (shown or {}).items():
            self.note(name, data)

    def __contains__(self, name: str) -> bool:
        """Return whether the agent knows any content of the file."""
        return name in self._digests

    def note(self, name: str, data: bytes) -> None:
        """Record that the agent knows the content ``data`` of the file."""
        self._digests[name] = hashlib.sha256(data).digest()

    def is_current(self, name: str, data: bytes) -> bool:
        """Return whether ``data`` is the content that the agent knows."""
        return self._digests.get(name) == hashlib.sha256(data).digest()


def require_writable(workspace: Workspace, path: str, *, may_write: MayWrite) -> str:
    """Return the relative path of a file; raise ``UsageError`` if this agent may not write there."""
    name = workspace.resolve_writable(path)
    # On a file system that ignores case, pytest also reads its configuration from `ConfTest.py`.
    folder, _, last = name.rpartition("/")
    folded = fold_name(last)
    canonical = f"{folder}/{folded}".lstrip("/") if folded in PYTEST_FILES else name
    reason = may_write(name) or may_write(canonical)
    if reason is not None:
        raise UsageError(
            f"{name} may not be written: {reason}", hint="leave it as it is; if the work needs that change, report it"
        )
    return name


FindError: TypeAlias = Callable[[bytes], str | None]
"""Returns why Python cannot parse a source, or None if it can."""


def render_whole(file: TextFile, content: str, *, find_error: FindError = find_syntax_error) -> Rendered:
    """Return the bytes of the file for what a model sent as its whole content; raise ``UsageError`` to refuse it.

    Invisible characters, masks and placeholders are refused unless they were there before, and so is a syntax error in
    a Python file that had none.
    """
    rendered = file.render(content, is_whole=True)
    require_visible(content.removeprefix(MARK), before=file.text)
    require_no_mask(content, before=file.text, where="content")
    require_whole(content, before=file.text, name=file.name)
    if file.data:
        require_python(file.name, before=file.data, after=rendered.data, find_error=find_error)
    return rendered


def require_no_mask(text: str, *, before: str, where: str) -> None:
    """Raise ``UsageError`` if ``text`` contains a mask that is not part of ``before``."""
    added = next((found for found in MASK.findall(text) if found not in before), None)
    if added is not None:
        happened = f"{where} contains {added}, which stands for a key that you cannot see. Nothing was changed."
        raise UsageError(happened, hint="edit the lines around it; lines that you do not edit keep their content")


def restore_keys(masked: Masked, edited: str) -> str:
    """Return the edited text with its keys; raise ``UsageError`` if the edit touched one."""
    text = masked.restore(edited)
    if text is None:
        hint = "edit the lines around it; only the user may replace a key"
        raise UsageError("The edit overlaps a masked text that is shaped like a key. Nothing was changed.", hint=hint)
    return text


def require_keys(before: str, after: str) -> None:
    """Raise ``UsageError`` if a key of a text is no longer in it."""
    if any(key not in after for key in mask(before).originals):
        hint = "leave the code around it as it is; only the user may replace a key"
        raise UsageError("The edit removes a masked text that is shaped like a key. Nothing was changed.", hint=hint)


def require_python(name: str, *, before: bytes, after: bytes, find_error: FindError = find_syntax_error) -> None:
    """Raise ``UsageError`` if a valid Python file would become invalid."""
    if not name.endswith((*PYTHON, ".pyi")) or find_error(before) is not None:
        return
    error = find_error(after)
    if error is not None:
        hint = "fix the new text; if the change needs several edits, make sure that each one leaves valid code"
        raise UsageError(f"{name} would no longer be valid Python. Nothing was changed: {mask(error).text}", hint=hint)


SHOWN_LINES = 40
SHOWN_PLACES = 20
TAB_WIDTHS = (4, 2, 8)
MAX_CHARACTERS = 16 * 1024 * 1024
"""Size of a text after an edit."""
MAX_COMPARED_LINES = 100_000
"""Lines of ``old_string`` times places where it may match."""
_MAX_EQUAL_PAIRS = 1_000_000
"""Pairs of equal lines up to which the nearest passage is searched."""

_SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_SINGLE_QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_DOUBLE_QUOTES = "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_DASHES = "\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}"
_LOOK_ALIKES = str.maketrans(f"{_SPACES}{_SINGLE_QUOTES}{_DOUBLE_QUOTES}{_DASHES}", "  ''\"\"---")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The result of an edit."""

    text: str
    lines: tuple[int, ...]
    """The line where each replaced passage began, 1-based, in the old text."""
    ignored: str | None
    """The kind of difference that was ignored to find the passage; None for an exact match."""


class _Splice(NamedTuple):
    start: int
    end: int
    replacement: str


Lines: TypeAlias = Sequence[str]


class _Change(NamedTuple):
    old: str
    new: str
    old_lines: Lines
    """The lines of ``old`` without endings."""
    new_lines: Lines


Fit: TypeAlias = Callable[[Lines, _Change], Lines | None]
"""Returns the new lines adapted to these lines of the file, or None if they do not match the old passage."""


def replace(text: str, old: str, *, new: str, replace_all: bool = False) -> Edited:
    """Replace the only occurrence of ``old`` in ``text``, or all of them.

    All lines end with a line feed. Raises ``UsageError`` if nothing would change, with the places if there are
    several, and with the nearest lines if there is none.
    """
    change = _Change(old, new, _strip_endings(old), _strip_endings(new))
    if not old:
        raise UsageError("old_string is empty.", hint="pass the text to replace, or use Write to create a file")
    if old == new:
        raise UsageError("old_string and new_string are the same.", hint="change new_string, or make no edit")
    ignored = None
    splices = _find_exact(text, change, overlapping=not replace_all)
    if not splices:
        ignored, splices = _find_relaxed(text, change)
    if not splices:
        raise _make_missing_error(text, change)
    if len(splices) > 1 and (ignored or not replace_all):
        raise _make_ambiguous_error(text, splices, ignored=ignored)
    if len(text) + sum(len(splice.replacement) - splice.end + splice.start for splice in splices) > MAX_CHARACTERS:
        hint = "replace fewer places, or use a shorter text"
        raise UsageError("The file would become too large. Nothing was changed.", hint=hint)
    ends = [0, *(splice.end for splice in splices)]
    parts = [text[end : splice.start] + splice.replacement for end, splice in zip(ends, splices, strict=False)]
    edited = "".join([*parts, text[ends[-1] :]])
    return Edited(text=edited, lines=_find_line_numbers(text, splices), ignored=ignored)


def split_lines(text: str) -> list[str]:
    """Return the lines of ``text`` with their endings; only a newline ends a line, as in editors and compilers."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _strip_endings(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in split_lines(text)]


def _find_exact(body: str, change: _Change, *, overlapping: bool) -> list[_Splice]:
    old = change.old
    splices, at = [], body.find(old)
    while at >= 0:
        splices.append(_Splice(at, at + len(old), change.new))
        at = body.find(old, at + (1 if overlapping else len(old)))
    return splices


def _find_relaxed(body: str, change: _Change) -> tuple[str | None, list[_Splice]]:
    """Return the first kind of difference that, when ignored, finds the old passage, and every place it finds."""
    # Whole lines replace whole lines: the last one keeps its ending, or the lack of one.
    lines, contents = split_lines(body), _strip_endings(body)
    starts = [0, *accumulate(map(len, lines))]
    count = len(change.old_lines)
    places = _find_places(contents, change.old_lines)
    for kind, fit in _KINDS.items():
        candidates = ((first, fit(contents[first : first + count], change)) for first in places)
        fits = [(first, rows) for first, rows in candidates if rows is not None]
        if fits:
            opcodes = SequenceMatcher(None, change.old_lines, change.new_lines, autojunk=False).get_opcodes()
            splices = []
            for first, rows in fits:
                last = first + count
                replacement = _assemble(lines[first:last], rows, opcodes=opcodes)
                splices.append(_Splice(starts[first], starts[last], replacement))
            return kind, splices
    return None, []


def _find_places(contents: Lines, old_lines: Lines) -> list[int]:
    """Return the indexes where some kind of fit is possible: without white space, all lines are equal."""
    text, wanted = (
        "\n".join(["", *(line.translate(_LOOK_ALIKES).strip() for line in lines), ""])
        for lines in (contents, old_lines)
    )
    if not wanted.strip():
        return []
    places: list[int] = []
    number, before, at = 0, 0, text.find(wanted)
    while at >= 0:
        number, before = number + text.count("\n", before, at), at
        places.append(number)
        # Comparing a long passage at very many places would take minutes.
        if len(places) * len(old_lines) > MAX_COMPARED_LINES:
            raise UsageError(
                f"The {len(old_lines)} lines of old_string nearly match at {len(places)} places or more. Nothing was "
                "changed.",
                hint="pass fewer lines, with one among them that occurs only once",
            )
        at = text.find(wanted, at + 1)
    return places


def _assemble(old: Lines, fitted: Lines, *, opcodes: Sequence[tuple[str, int, int, int, int]]) -> str:
    """Return the text that replaces the lines ``old``; lines that the model did not change stay as in the file."""
    rows: list[str] = []
    for kind, old_first, old_last, first, last in opcodes:
        rows += old[old_first:old_last] if kind == "equal" else [f"{line}\n" for line in fitted[first:last]]
    rows = [line if line.endswith("\n") else f"{line}\n" for line in rows]
    if rows and not old[-1].endswith("\n"):
        rows[-1] = rows[-1].removesuffix("\n")
    return "".join(rows)


def _fit_equal(normalize: Callable[[str], str]) -> Fit:
    def fit(found: Lines, change: _Change) -> Lines | None:
        return change.new_lines if list(map(normalize, found)) == list(map(normalize, change.old_lines)) else None

    return fit


def _fit_indentation(found: Lines, change: _Change) -> Lines | None:
    """Fit lines that are all shifted by the same number of columns, or that have tabs in place of spaces."""
    pairs = [(line.rstrip(), old.rstrip()) for line, old in zip(found, change.old_lines, strict=True)]
    if any(line.lstrip() != old.lstrip() for line, old in pairs):
        return None
    fits: list[tuple[int, int]] = []
    for width in TAB_WIDTHS:
        shifts = {_count_columns(line, width) - _count_columns(old, width) for line, old in pairs if line}
        fits += [(shift, width) for shift in shifts if len(shifts) == 1]
    if not fits:
        return None
    shift, width = min(fits, key=lambda fit: fit[0] != 0)
    indented = [line for line in found if line.startswith((" ", "\t"))] or change.new_lines
    has_tabs = any(line.startswith("\t") for line in indented)
    rows = []
    for row in change.new_lines:
        columns = _count_columns(row, width) + shift
        if columns < 0 and row.strip():
            return None
        tabs, spaces = divmod(columns, width) if has_tabs else (0, columns)
        rows.append("\t" * tabs + " " * spaces + row.lstrip(" \t") if row.strip() else row)
    return rows


_KINDS: dict[str, Fit] = {
    "the newline at the end of the file": _fit_equal(str),
    "white space at the ends of lines": _fit_equal(str.rstrip),
    "the kind and depth of indentation": _fit_indentation,
    "characters that look alike": _fit_equal(lambda line: line.rstrip().translate(_LOOK_ALIKES)),
}


def _count_columns(line: str, width: int) -> int:
    """Return the width of the indentation."""
    return len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(width))


def _find_line_numbers(body: str, splices: list[_Splice]) -> tuple[int, ...]:
    starts = [0, *(splice.start for splice in splices)]
    newlines = (body.count("\n", before, start) for before, start in pairwise(starts))
    return tuple(1 + count for count in accumulate(newlines))


def _make_ambiguous_error(body: str, splices: list[_Splice], *, ignored: str | None) -> UsageError:
    contents = _strip_endings(body)
    places = [f"{number:>6} | {contents[number - 1]}" for number in _find_line_numbers(body, splices)]
    shown = join_first(places, most=SHOWN_PLACES, separator="\n")
    ignoring = f" (ignoring {ignored})" if ignored else ""
    return UsageError(
        f"old_string occurs {len(splices)} times{ignoring}. Nothing was changed:\n{shown}",
        hint="add lines before or after it until it is unique" + ("" if ignored else ", or set replace_all"),
    )


def _make_missing_error(body: str, change: _Change) -> UsageError:
    happened = "old_string is not in the file. Nothing was changed."
    at = body.find(change.new) if change.new.strip() else -1
    if at >= 0:
        number = body.count("\n", 0, at) + 1
        happened += f"\nnew_string is already in the file, at line {number}."
    contents = _strip_endings(body)
    first = _find_nearest(contents, change.old_lines)
    if first is not None:
        happened += f"\nThe nearest lines are:\n{_format_nearest(contents, change.old_lines, first=first)}"
    return UsageError(happened, hint="Read the file again and copy old_string from it, without line numbers")


def _find_nearest(contents: Lines, old_lines: Lines) -> int | None:
    file_lines, wanted = ([line.strip() for line in lines] for lines in (contents, old_lines))
    counts = Counter(file_lines)
    # SequenceMatcher takes time proportional to the number of equal pairs.
    if sum(counts[line] for line in wanted if line) > _MAX_EQUAL_PAIRS:
        return None
    match = SequenceMatcher(lambda line: not line, file_lines, wanted, autojunk=False).find_longest_match()
    if match.size and any(file_lines[match.a : match.a + match.size]):
        return max(0, match.a - match.b)
    longest = max(wanted, key=len)
    near = get_close_matches(longest, file_lines, n=1)
    return max(0, file_lines.index(near[0]) - wanted.index(longest)) if near else None


def _format_nearest(contents: Lines, old_lines: Lines, *, first: int) -> str:
    """Number the lines from ``first`` on, and add the line of ``old_string`` below the first that differs."""
    shown = contents[first : first + min(len(old_lines), SHOWN_LINES)]
    pairs = zip(shown, old_lines, strict=False)
    different = next((at for at, (line, wanted) in enumerate(pairs) if line != wanted), None)
    rows = [f"{first + at + 1:>6} | {line}" for at, line in enumerate(shown)]
    if different is not None:
        rows[different] = f">{rows[different][1:]}"
        rows.insert(different + 1, f"  old_string has here: {old_lines[different]}")
    return "\n".join(rows)


MAX_SHOWN_LINES = 10_000


def report_change(written: Written, *, emit: Emit) -> None:
    """Emit the change of a file, with its diff unless the file is binary or very long."""
    old, new = (
        TextFile(name=written.path, data=data).text.splitlines() for data in (written.before or b"", written.after)
    )
    can_show = b"\0" not in written.after and max(len(old), len(new)) <= MAX_SHOWN_LINES
    # The first two lines name the file, which the event does.
    lines = islice(unified_diff(old, new, lineterm=""), 2, None) if can_show else ()
    emit(FileChanged(path=written.path, diff="\n".join(lines)))
