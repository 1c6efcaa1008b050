"""Replacing one piece of a text by another, byte for byte outside that piece.

A piece is sought exactly first. If it is not there, a few differences that models make without meaning them are
looked past, one kind at a time, and only if exactly one place fits. Nothing is ever replaced because it is merely
similar. Pure: text in, text out.

Text that stands for code which somebody left out: ``# ... rest of the code unchanged`` and its like. Pure.

Models shorten what they hand in. Written to a file, such a line is a loss that no parser sees. A line counts if it is
a comment, or begins with an ellipsis, and says nothing but that something else would be here. Python's own ``...``
stays what it is.

What the new content of a file has to be like before any of it is written, and where one may be written at all.
"""

import ast
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import accumulate, pairwise
from pathlib import PurePosixPath
from typing import TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.keys import MASK, Masked, mask
from cdd_agent.untrusted.paths import folded
from cdd_agent.untrusted.text import require_seen
from cdd_agent.workspace.files import Workspace, decode

_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ""})
"""Endings of files where ``#`` and ``--`` begin no comment."""
_LONGEST = 160
"""Characters of a line that is looked at: a sentence says more than that something is left out."""

_DOTS = r"(?:(?<!\.)\.{3,5}(?!\.)|…)"
_OPENINGS = r"(?://+|/\*+|\{/\*|<!--+|#+(?!!)|--+|;+|%+|\(\*|\"\"\"|'''|\*|rem\s)"
_CLOSINGS = r"(?:\*+/\}?|--+>|\*\)|\"\"\"|''')"
_COMMENT = re.compile(rf"(?:(?:pass|{_DOTS})\s+)?{_OPENINGS}\s*(?P<said>.*?)\s*{_CLOSINGS}?", re.IGNORECASE)
_DOTS_DEEPER = re.compile(rf"^(?:\W\s{{2,}}|\*\s*|-+\s*){_DOTS}$")
"""Dots in a comment that itself shows code, or in a list of one."""
_PROSE_COMMENT = re.compile(r"<!--+\s*(?P<said>.*?)\s*--+>")
_BARE = re.compile(rf"[\[(<{{]?\s*(?P<said>{_DOTS}.*\w.*?)\s*[\])>}}]?")

_THING = (
    r"(?:code|file|function|class|method|module|script|program|implementation|body|logic|contents?|document|"
    r"(?:test )?cases|tests?|imports?|definitions?|declarations?|functions|methods|classes|fields|properties|routes|"
    r"handlers|lines|parts?|sections?|items|entries|options|settings|rows|setup|stuff|things|styles|rules|markup|html|"
    r"jsx|elements|components|page|template|query|queries|columns|keys|values|constants|attributes|it|this)"
)
_NAMED = rf"(?:(?:the|your|our|all|any|of|this|that|these|its|my|[\w`.()-]{{1,30}}) ){{0,2}}{_THING}(?: {_THING})?"
_STAYS = (
    r"(?:(?:is|are|be|was|were|left|kept|remains?|stays?|goes|go|continues|follows|exactly|completely|all|here|"
    r"omitted|elided|skipped|truncated|abbreviated|shortened|unchanged|unmodified|untouched|unaltered|intact|identical|"
    r"the same|same|as before|as above|as is|as it was|as they were|as in the original|from before|below|above|"
    r"for brevity|for clarity|for space|to save space|not shown|no changes?)[ ,.]*)+"
)
_ENDS = (
    r"(?:unchanged|unmodified|untouched|unaltered|omitted|elided|intact|identical|the same|same|here|brevity|as before|"
    r"as above|as is|as it was|as they were|in the original|not shown|truncated|remains?|stays?|continues|follows)"
)
_REST = rf"(?:the )?(?:rest|remainder|remaining|others?|everything else|all else)(?: of)?(?: {_NAMED})?"
_EXISTING = (
    rf"(?:keep |your |the |all |any |my )*(?:existing|previous|original|current|old|earlier|prior|same) {_NAMED}"
)

_SUSPECT = re.compile(
    r"\.{3}|…|rest|remain|others?|else|existing|previous|original|current|old|earlier|prior|same|unchanged|omitted|snip|"
    r"truncated|elided|keep|leave",
    re.IGNORECASE,
)
"""One of these is in every stand-in: without any, no line need be looked at."""
_STATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:keep |leave )?{_REST} (?={_STAYS}$).*{_ENDS}[ .]*",
        rf"{_EXISTING} (?={_STAYS}$).*{_ENDS}[ .]*",
        rf"(?:{_NAMED} )?(?:(?:is|are|remains?|stays?|left) )*"
        r"(?:unchanged|omitted for (?:brevity|clarity|space)|(?:the )?same as before)[ .]*",
        r"(?:the )?(?:rest|remainder) of (?:the|your|this) (?:[\w`]{1,20} )?"
        r"(?:code|file|function|class|method|implementation|module|script)[ .]*",
        r"unchanged(?: (?:here|below|above))?[ .]*",
        r"(?:snip(?:ped)?|code omitted|omitted|truncated|elided)(?: for (?:brevity|clarity|space))?[ .]*",
        rf"(?:keep|leave) (?:the |your |all |everything )*(?:rest|existing|others?|else)(?: of)?(?: {_NAMED})? "
        r"(?:as is|unchanged|intact|as before|the same|as it was|as they were)[ .]*",
    )
)
"""What a comment says that is nothing but a stand-in, with dots or without."""

_WITH_DOTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:and )?{_REST}",
        r"(?:and )?(?:the )?(?:rest|remainder) of [\w `.()]{1,40}",
        rf"(?:{_REST}|{_EXISTING}|{_NAMED}) (?:{_STAYS})",
        _EXISTING,
        rf"(?:more|other|further|similar|additional|old|existing|previous) {_NAMED}",
        _STAYS,
        r"(?:etc|and so on|continued|snip|omitted)",
    )
)
"""What a comment says, besides, between or beside dots."""


def elisions(text: str, *, before: str, name: str) -> tuple[tuple[int, str], ...]:
    """Lines of ``text`` that stand for code left out, each with its number; those that ``before`` has are spared.

    ``name``: of the file; its ending says what begins a comment.
    """
    if _SUSPECT.search(text) is None:
        return ()
    known = {line.strip() for line in before.split("\n")}
    rows = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    is_prose = PurePosixPath(name).suffix.lower() in _PROSE and PurePosixPath(name).name not in {
        "Makefile",
        "Dockerfile",
    }
    return tuple(
        (number, line) for number, line in rows if line not in known and _stands_for_code(line, is_prose=is_prose)
    )


def require_whole(text: str, *, before: str, name: str) -> None:
    """Raise ``UsageError`` naming the first line of ``text`` that stands for code left out."""
    found = elisions(text, before=before, name=name)
    if found:
        number, line = found[0]
        raise UsageError(
            f"Line {number} of the new text for {name} stands for code that is left out: {line}\nNothing was changed.",
            hint="write the code itself; to change a part, replace that part alone, with text that is all there; a "
            "comment that means something else has to say what",
        )


def _stands_for_code(line: str, *, is_prose: bool) -> bool:
    """Whether a line, without white space around it, says only that something else would be here."""
    if not 3 <= len(line) <= _LONGEST or _SUSPECT.search(line) is None:
        return False
    if _DOTS_DEEPER.search(line):
        return False
    found = (_PROSE_COMMENT if is_prose else _COMMENT).fullmatch(line) or _BARE.fullmatch(line)
    return found is not None and _is_stand_in(found["said"])


def _is_stand_in(said: str) -> bool:
    """Whether the words of a comment are nothing but a stand-in."""
    words = re.sub(rf"^[\s\[(<{{]*{_DOTS}?[\s\[(<{{:,=-]*|[\s\])>}}=-]*{_DOTS}?[\s\])>}}.!]*$", "", said)
    words = " ".join(words.replace("'", "").replace("(", "").replace(")", "").split())
    has_dots = re.search(_DOTS, said) is not None
    if not words:
        return has_dots
    return any(state.fullmatch(words) for state in _STATES) or (
        has_dots and any(pattern.fullmatch(words) for pattern in _WITH_DOTS)
    )


MayWrite: TypeAlias = Callable[[str], str | None]
"""Takes a relative path and gives the reason why this agent may not write there, or nothing."""

PYTEST_FILES = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
"""What pytest is configured by; on a file system that looks past case it finds them in any spelling."""


class Known:
    """What an agent knows of the project's files: the content that it was shown last, or wrote itself."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._digests: dict[str, bytes] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the agent knows any content of the file."""
        return name in self._digests

    def note(self, name: str, data: bytes) -> None:
        """The agent knows that the file holds ``data``."""
        self._digests[name] = hashlib.sha256(data).digest()

    def is_current(self, name: str, data: bytes) -> bool:
        """Whether ``data`` is what the agent knows of the file."""
        return self._digests.get(name) == hashlib.sha256(data).digest()


def require_writable(workspace: Workspace, path: str, *, may_write: MayWrite) -> str:
    """The relative path of a file that this agent may write; raises ``UsageError`` with the reason if not."""
    name = workspace.writable(path)
    reason = may_write(name) or may_write(_as_pytest_names_it(name))
    if reason is not None:
        raise UsageError(f"{name} may not be written: {reason}", hint="change another file")
    return name


def require_fit(name: str, *, text: str, before: bytes | None) -> None:
    """Raise ``UsageError`` unless ``text`` may become the whole content of the file, None before if it is new.

    Characters that nobody sees, masks in the place of keys, and lines that stand for code left out are refused, unless
    they were there; and a Python file that could be parsed stays one.
    """
    old = decode(before or b"")
    require_seen(text, before=old)
    require_no_mask(text, before=old, where="content")
    require_whole(text, before=old, name=name)
    if before is not None:
        require_python(name, before=before, after=text.encode("utf-8", "surrogateescape"))


def require_no_mask(text: str, *, before: str, where: str) -> None:
    """Raise ``UsageError`` if ``text`` would put a mask where a key was; one that ``before`` holds itself is text."""
    added = next((found for found in MASK.findall(text) if found not in before), None)
    if added is not None:
        raise UsageError(
            f"{where} holds {added}, which only stands for a key that you were not shown: nothing was changed.",
            hint="leave those lines out: Edit the lines around them, they keep what is in the file",
        )


def restored(masked: Masked, edited: str) -> str:
    """The edited text with its keys back; raises ``UsageError`` if one of them was touched."""
    text = masked.restored(edited)
    if text is None:
        raise UsageError(
            "The edit reaches into a text that is masked, being shaped like a key: nothing was changed.",
            hint="Edit the lines around it, and leave the replacing of a key to the user",
        )
    return text


def require_python(name: str, *, before: bytes, after: bytes) -> None:
    """Raise ``UsageError`` if a Python file that could be parsed no longer could."""
    if not name.endswith((".py", ".pyi")) or _syntax_error(before) is not None:
        return
    error = _syntax_error(after)
    if error is not None:
        raise UsageError(
            f"{name} would no longer be Python, nothing was changed: {mask(error).text}",
            hint="mend the new text; if the change needs several edits, make each one leave valid code",
        )


def _syntax_error(source: bytes) -> str | None:
    """Why ``source`` is not Python, with the line, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        shown = f": {error.text.strip()}" if error.text else ""
        return f"line {error.lineno}: {error.msg}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


def _as_pytest_names_it(name: str) -> str:
    """``name`` as a file system that looks past case would give it to pytest, if it configures pytest then."""
    folder, _, last = name.rpartition("/")
    spelled = folded(last)
    return name if spelled not in PYTEST_FILES else f"{folder}/{spelled}".lstrip("/")


BOM = "\ufeff"
SHOWN_LINES = 40
SHOWN_PLACES = 20
TAB_WIDTHS = (4, 2, 8)
MOST_CHARACTERS = 16 * 1024 * 1024
"""Of a text after its edit."""
MOST_COMPARED_LINES = 100_000
"""Lines of ``old_string`` times places where it nearly stands."""
_MOST_PAIRS = 1_000_000
"""Of equal lines, up to which the nearest place is looked for."""

_LOOK_ALIKES = str.maketrans(
    {
        "\N{NO-BREAK SPACE}": " ",
        "\N{NARROW NO-BREAK SPACE}": " ",
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{NON-BREAKING HYPHEN}": "-",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A text after its edit."""

    text: str
    lines: tuple[int, ...]
    """Where each replaced piece began, 1-based, in the text before."""
    ignored: str | None
    """The kind of difference that was looked past to find the piece; nothing for an exact match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What lies at ``start:end`` is to become ``replacement``."""

    start: int
    end: int
    replacement: str


Lines: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """What is to give way to what, as text and as lines without their endings."""

    old: str
    new: str
    sought: Lines
    wanted: Lines


Fit: TypeAlias = Callable[[Lines, _Exchange], Lines | None]
"""Lines of the file -> the lines wanted as they fit that place, or nothing if it is not the place."""


def replace(text: str, old: str, *, new: str, replace_all: bool = False) -> Edited:
    """``text`` with its only piece ``old`` (or, if ``replace_all``, with every one) replaced by ``new``.

    Line endings of ``old`` and ``new`` follow the text's if that has one kind; a byte order mark stays where it is.
    Raises ``UsageError`` if nothing would change, or telling where ``old`` is if it is there more than once and what
    is nearest to it if it is not there.
    """
    mark, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    ending = ending_of(body)
    old, new = (with_ending(piece.removeprefix(BOM), ending) for piece in (old, new))
    exchange = _Exchange(old=old, new=new, sought=_contents(old), wanted=_contents(new))
    if not old:
        raise UsageError("old_string is empty.", hint="give the text to replace, or write a new file with Write")
    if old == new:
        raise UsageError("old_string and new_string are the same.", hint="leave the file as it is, or change one")
    ignored = None
    pieces = _exact(body, exchange, overlapping=not replace_all)
    if not pieces:
        ignored, pieces = _relaxed(body, exchange)
    if not pieces:
        raise _miss(body, exchange)
    if len(pieces) > 1 and (ignored or not replace_all):
        raise _ambiguous(body, pieces, ignored=ignored)
    if len(body) + sum(len(piece.replacement) - piece.end + piece.start for piece in pieces) > MOST_CHARACTERS:
        raise UsageError(
            "The file would become too large, nothing was changed.", hint="replace fewer places, or by less"
        )
    ends = [0, *(piece.end for piece in pieces)]
    kept = [body[end : piece.start] + piece.replacement for end, piece in zip(ends, pieces, strict=False)]
    return Edited(text="".join([mark, *kept, body[ends[-1] :]]), lines=_line_numbers(body, pieces), ignored=ignored)


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` with their endings; only a newline ends a line, as editors and compilers see it."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def without_ending(line: str) -> str:
    """``line`` without the newline that ends it."""
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _contents(text: str) -> list[str]:
    """The lines of ``text`` without their endings."""
    return [without_ending(line) for line in split_lines(text)]


def ending_of(text: str) -> str | None:
    """The one kind of line ending in ``text``, or nothing if it has none or both."""
    carriage = text.count("\r\n")
    plain = text.count("\n") - carriage
    return "\r\n" if carriage and not plain else "\n" if plain and not carriage else None


def with_ending(text: str, ending: str | None) -> str:
    """``text`` with every line ended by ``ending``, or as it is."""
    return text if ending is None else re.sub(r"\r?\n", ending, text)


def _exact(body: str, exchange: _Exchange, *, overlapping: bool) -> list[_Piece]:
    """Every place where the old text stands as it is."""
    old = exchange.old
    pieces, at = [], body.find(old)
    while at >= 0:
        pieces.append(_Piece(start=at, end=at + len(old), replacement=exchange.new))
        at = body.find(old, at + (1 if overlapping else len(old)))
    return pieces


def _relaxed(body: str, exchange: _Exchange) -> tuple[str | None, list[_Piece]]:
    """The first kind of difference that finds the old text, and every place that it finds.

    Whole lines become whole lines: the last one keeps the ending, or the lack of one, that is there.
    """
    lines = split_lines(body)
    contents = _contents(body)
    starts = [0, *accumulate(map(len, lines))]
    sought, wanted = exchange.sought, exchange.wanted
    places = _places(contents, sought)
    for kind, fit in _KINDS.items():
        fitted = {first: fit(contents[first : first + len(sought)], exchange) for first in places}
        fitting = {first: rows for first, rows in fitted.items() if rows is not None}
        if fitting:
            changes = SequenceMatcher(None, sought, wanted, autojunk=False).get_opcodes()
            pieces = []
            for first, rows in fitting.items():
                last = first + len(sought)
                replacement = _assemble(lines[first:last], rows, changes=changes, usual=ending_of(body) or "\n")
                pieces.append(_Piece(start=starts[first], end=starts[last], replacement=replacement))
            return kind, pieces
    return None, []


def _places(contents: Lines, sought: Lines) -> list[int]:
    """Where any fit may begin: every kind leaves the words of a line alone, so those of all lines must agree.

    Raises ``UsageError`` if there are so many that to compare them would take long.
    """
    text, wanted = ("\n".join(["", *map(_bare, lines), ""]) for lines in (contents, sought))
    if not wanted.strip():
        return []
    places: list[int] = []
    number, before, at = 0, 0, text.find(wanted)
    while at >= 0:
        number, before = number + text.count("\n", before, at), at
        places.append(number)
        if len(places) * len(sought) > MOST_COMPARED_LINES:
            raise UsageError(
                f"old_string, {len(sought)} lines, nearly stands at {len(places)} places or more; nothing was changed.",
                hint="give fewer lines, with one among them that is there only once",
            )
        at = text.find(wanted, at + 1)
    return places


def _bare(line: str) -> str:
    """``line`` without what any kind of difference looks past."""
    return line.translate(_LOOK_ALIKES).strip()


def _assemble(found: Lines, fitted: Lines, *, changes: Sequence[tuple[str, int, int, int, int]], usual: str) -> str:
    """What replaces the lines ``found``: a line that the model left as it was stays as it is in the file."""
    ending = ending_of("".join(found)) or usual
    rows: list[str] = []
    for kind, old_first, old_last, first, last in changes:
        rows += found[old_first:old_last] if kind == "equal" else [line + ending for line in fitted[first:last]]
    ended = [line if line.endswith("\n") else line + ending for line in rows]
    if ended and not found[-1].endswith("\n"):
        ended[-1] = without_ending(ended[-1])
    return "".join(ended)


def _fit_endings(found: Lines, exchange: _Exchange) -> Lines | None:
    """The same but for line endings."""
    return exchange.wanted if list(found) == list(exchange.sought) else None


def _fit_trailing(found: Lines, exchange: _Exchange) -> Lines | None:
    """The same but for white space at the ends of lines."""
    return exchange.wanted if _stripped(found) == _stripped(exchange.sought) else None


def _fit_indentation(found: Lines, exchange: _Exchange) -> Lines | None:
    """The same but for one indentation more, or one less, on every line that is not blank."""
    found, sought, wanted = _stripped(found), _stripped(exchange.sought), exchange.wanted
    place, line = next((pair for pair in zip(found, sought, strict=True) if pair[1]), ("", ""))
    if place.endswith(line):
        more = place.removesuffix(line)
        if not more.isspace() or found != _indented(sought, more):
            return None
        return _indented(wanted, more)
    less = line.removesuffix(place) if place else ""
    if not less.isspace() or sought != _indented(found, less):
        return None
    if any(row.strip() and not row.startswith(less) for row in wanted):
        return None
    return [row.removeprefix(less) for row in wanted]


def _fit_tabs(found: Lines, exchange: _Exchange) -> Lines | None:
    """The same but for tabs in place of spaces, or the reverse, before the first word of a line."""
    found, sought = _stripped(found), _stripped(exchange.sought)
    respaced = _tabbed if any(row.startswith("\t") for row in found) else _expanded
    for width in TAB_WIDTHS:
        if [_expanded(row, width) for row in found] == [_expanded(row, width) for row in sought]:
            return [respaced(row, width) for row in exchange.wanted]
    return None


def _fit_look_alikes(found: Lines, exchange: _Exchange) -> Lines | None:
    """The same but for characters that look alike: spaces, quotes and dashes of typography."""
    plain, sought = ([row.translate(_LOOK_ALIKES) for row in _stripped(rows)] for rows in (found, exchange.sought))
    return exchange.wanted if plain == sought else None


_KINDS: dict[str, Fit] = {
    "line endings": _fit_endings,
    "white space at the ends of lines": _fit_trailing,
    "the depth of indentation": _fit_indentation,
    "tabs in place of spaces": _fit_tabs,
    "characters that look alike": _fit_look_alikes,
}


def _stripped(lines: Lines) -> list[str]:
    """``lines`` without white space at their ends."""
    return [line.rstrip() for line in lines]


def _indented(lines: Lines, prefix: str) -> list[str]:
    """``lines`` with ``prefix`` before each that is not blank."""
    return [prefix + line if line.strip() else line for line in lines]


def _expanded(line: str, width: int) -> str:
    """``line`` with spaces for the tabs it begins with."""
    rest = line.lstrip(" \t")
    return line[: len(line) - len(rest)].expandtabs(width) + rest


def _tabbed(line: str, width: int) -> str:
    """``line`` with tabs for the spaces it begins with."""
    rest = line.lstrip(" \t")
    columns = len(_expanded(line, width)) - len(rest)
    return "\t" * (columns // width) + " " * (columns % width) + rest


def _line_numbers(body: str, pieces: list[_Piece]) -> tuple[int, ...]:
    """The line where each piece begins, 1-based."""
    starts = [0, *(piece.start for piece in pieces)]
    newlines = (body.count("\n", before, start) for before, start in pairwise(starts))
    return tuple(1 + count for count in accumulate(newlines))


def _ambiguous(body: str, pieces: list[_Piece], *, ignored: str | None) -> UsageError:
    """What to say of a piece that is there more than once."""
    contents = split_lines(body)
    numbers = _line_numbers(body, pieces)[:SHOWN_PLACES]
    shown = "\n".join(f"{number:>6} | {without_ending(contents[number - 1])}" for number in numbers)
    more = f"\n... and {len(pieces) - SHOWN_PLACES} more" if len(pieces) > SHOWN_PLACES else ""
    nearly = f" (but for {ignored})" if ignored else ""
    return UsageError(
        f"old_string is there {len(pieces)} times{nearly}, nothing was changed:\n{shown}{more}",
        hint="add lines before or after it until it is unique" + ("" if ignored else ", or set replace_all"),
    )


def _miss(body: str, exchange: _Exchange) -> UsageError:
    """What to say of a piece that is not there: whether the new one is, and what comes nearest."""
    happened = "old_string is not in the file, nothing was changed."
    there = body.find(exchange.new) if exchange.new.strip() else -1
    if there >= 0:
        number = body.count("\n", 0, there) + 1
        happened += f"\nnew_string is already there, at line {number}."
    contents = _contents(body)
    first = _nearest(contents, exchange.sought)
    if first is not None:
        happened += f"\nThe nearest lines are:\n{_compared(contents, exchange.sought, first=first)}"
    return UsageError(happened, hint="Read the file again and copy old_string from it, without line numbers")


def _nearest(contents: Lines, sought: Lines) -> int | None:
    """The index of the line where the block most like ``sought`` begins."""
    bare_file, bare_sought = ([line.strip() for line in lines] for lines in (contents, sought))
    there = Counter(bare_file)
    if sum(there[line] for line in bare_sought if line) > _MOST_PAIRS:
        return None
    same = SequenceMatcher(lambda line: not line, bare_file, bare_sought, autojunk=False).find_longest_match()
    if same.size and any(bare_file[same.a : same.a + same.size]):
        return max(0, same.a - same.b)
    longest = max(bare_sought, key=len)
    near = get_close_matches(longest, bare_file, n=1)
    return max(0, bare_file.index(near[0]) - bare_sought.index(longest)) if near else None


def _compared(contents: Lines, sought: Lines, *, first: int) -> str:
    """The lines from ``first`` on with their numbers, and ``old_string`` below the first one that differs."""
    shown = contents[first : first + min(len(sought), SHOWN_LINES)]
    pairs = zip(shown, sought, strict=False)
    different = next((at for at, (line, wanted) in enumerate(pairs) if line != wanted), None)
    rows = [f"{first + at + 1:>6} | {line}" for at, line in enumerate(shown)]
    if different is not None:
        rows[different] = f">{rows[different][1:]}"
        rows.insert(different + 1, f"  here old_string has: {sought[different]}")
    return "\n".join(rows)
