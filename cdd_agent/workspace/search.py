"""Finding files by name and lines by content, among the files that a workspace lists.

Every hit is asked of the workspace again: by the time it is told, a folder may have become a link.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.keys import mask
from cdd_agent.workspace.files import Workspace, decode

HIT_CAP = 200
SHOWN_LENGTH = 300
"""Characters of a line that are shown of a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A line that matched."""

    path: str
    line: int
    """1-based."""
    text: str
    """The line without its ending, cut to ``SHOWN_LENGTH`` characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """What a search found."""

    shown: tuple[Hit, ...]
    """By path, then line; at most as many as were asked for."""
    total: int
    unread: int
    """Files passed over: binary, too large, of secrets or not readable."""
    masked: int = 0
    """Texts shaped like keys that were masked in the files with hits."""


def glob(workspace: Workspace, pattern: str) -> tuple[str, ...]:
    """The files whose relative path matches ``pattern`` and that may be named, sorted.

    ``*`` and ``?`` stay within a name, ``**`` crosses folders, ``[abc]`` and ``[!abc]`` are sets, ``{a,b}`` are
    alternatives. A pattern without a slash matches names in any folder. Raises ``UsageError`` for a pattern that
    could only match outside the project or cannot be read.
    """
    return tuple(path for path in _matching(workspace, pattern) if workspace.is_file(path))


def grep(workspace: Workspace, pattern: str, *, files: str = "**", limit: int = HIT_CAP) -> Hits:
    """The lines that the regular expression ``pattern`` is found in, in the files that match ``files``.

    Keys are masked before anything is sought, so that no pattern can feel its way along one. Raises ``UsageError`` for
    an expression that is not valid.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{pattern!r} is not a regular expression: {error}.", hint="escape ( ) [ ] { } . * + ? with a backslash"
        ) from error
    shown: list[Hit] = []
    total = unread = count = 0
    for path in _matching(workspace, files):
        try:
            masked = mask(decode(workspace.read(path)))
        except UsageError:
            unread += 1
            continue
        before = total
        for number, line in enumerate(masked.text.split("\n"), start=1):
            if expression.search(line):
                total += 1
                if len(shown) < limit:
                    shown.append(Hit(path=path, line=number, text=line.removesuffix("\r")[:SHOWN_LENGTH]))
        count += masked.count if total > before else 0
    return Hits(shown=tuple(shown), total=total, unread=unread, masked=count)


def _matching(workspace: Workspace, pattern: str) -> Iterator[str]:
    """The listed paths that match, as ``glob`` says."""
    if pattern.startswith("/") or ".." in pattern.split("/") or not pattern.strip():
        raise UsageError(
            f"The pattern {pattern!r} does not stay inside the project.", hint="use one such as src/**/*.py"
        )
    anywhere = pattern if "/" in pattern else f"**/{pattern}"
    try:
        pieces = _read(anywhere.removeprefix("./"))
    except (re.error, ValueError) as error:
        raise UsageError(
            f"The pattern {pattern!r} cannot be read: {error}.", hint="use one such as src/**/*.py"
        ) from error
    return (path for path in workspace.listing() if len(path) in _followed(pieces, path, places={0}))


Piece: TypeAlias = Callable[[str, set[int]], set[int]]
"""Of a pattern: takes a path and the places in it where this piece may begin, gives those where it may end.

All ways to match are followed at once, place by place, so the time grows with the length of the pattern and of the
path; an expression would try them one after the other.
"""

_DEEPEST = 20
"""Braces within braces."""
_SET = r"\[(?:[!^][^/]|[^/!^])[^\]/]*\]"
_TOKEN = re.compile(rf"\*\*/|\*\*|\*|\?|{_SET}|\{{|\}}|,|[^*?\[{{}},]+|\[")
"""What a pattern is made of; the first member of a set may be the bracket that would close it."""
_NOT_IN_A_RANGE = re.compile(r"[^\w-]|(?<!\w)-|-(?!\w)")
"""What has no meaning of its own in a set of characters."""


def _followed(pieces: Sequence[Piece], path: str, *, places: set[int]) -> set[int]:
    """Where the pieces, one behind the other, may end in ``path``."""
    for piece in pieces:
        places = piece(path, places)
    return places


def _read(pattern: str) -> Sequence[Piece]:
    """The pieces of ``pattern``; raises ``ValueError`` or ``re.error`` for one that cannot be read."""
    nested: list[list[list[Piece]]] = [[[]]]  # for each open brace its alternatives, each a list of pieces
    for token in _TOKEN.findall(pattern):
        match token:
            case "{" if len(nested) > _DEEPEST:
                raise ValueError("braces are nested too deep")
            case "{":
                nested.append([[]])
            case "}" if len(nested) == 1:
                raise ValueError("a brace is closed that was not opened")
            case "}":
                alternatives = _either(nested.pop())
                nested[-1][-1].append(alternatives)
            case "," if len(nested) > 1:
                nested[-1].append([])
            case _:
                nested[-1][-1].append(_piece(token))
    if len(nested) > 1:
        raise ValueError("a brace is not closed")
    return nested[0][0]


def _piece(token: str) -> Piece:
    """The piece that a token stands for, braces excepted."""
    match token:
        case "**/":
            return _folders
        case "**":
            return lambda path, places: set(range(min(places, default=len(path) + 1), len(path) + 1))
        case "*":
            return _rest_of_name
        case "?":
            return _one_of("[^/]")
        case _ if token.startswith("[") and len(token) > 1:
            inverted = token[1] in "!^"
            members = _NOT_IN_A_RANGE.sub(r"\\\g<0>", token[1 + inverted : -1])
            return _one_of(f"[{'^/' if inverted else ''}{members}]")
        case _:
            return lambda path, places: {at + len(token) for at in places if path.startswith(token, at)}


def _one_of(members: str) -> Piece:
    """One character of a set, written as in an expression."""
    expression = re.compile(members)
    return lambda path, places: {at + 1 for at in places if expression.match(path, at)}


def _either(alternatives: Sequence[Sequence[Piece]]) -> Piece:
    """Any of these."""
    return lambda path, places: set().union(*(_followed(pieces, path, places=places) for pieces in alternatives))


def _folders(path: str, places: set[int]) -> set[int]:
    """Any number of folders, with the slash behind each."""
    first = min((at for at in places if not path.startswith("/", at)), default=len(path))
    return places | {slash.end() for slash in re.finditer("/", path) if slash.start() >= first}


def _rest_of_name(path: str, places: set[int]) -> set[int]:
    """Anything up to the next slash."""
    ends: set[int] = set()
    for at in sorted(places):
        if at not in ends:
            slash = path.find("/", at)
            ends.update(range(at, (len(path) if slash < 0 else slash) + 1))
    return ends
