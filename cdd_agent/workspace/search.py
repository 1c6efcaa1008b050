"""Finds files by name and lines by content.

The workspace checks every hit again, because a folder may have been replaced by a link since the listing.
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
"""Length to which the line of a hit is cut."""
_SUCH_AS = "use one such as src/**/*.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A matching line."""

    path: str
    line: int
    """1-based."""
    text: str
    """The line without its ending, cut to ``SHOWN_LENGTH`` characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """The result of a search."""

    shown: tuple[Hit, ...]
    """The hits by path, then line, up to the limit of the search."""
    total: int
    unread: int
    """Number of files skipped: binary, too large, of secrets or not readable."""
    masked: int = 0
    """Number of keys masked in the files with hits."""


def glob(workspace: Workspace, pattern: str) -> tuple[str, ...]:
    """Return the files whose relative path matches ``pattern``, sorted.

    ``*`` and ``?`` stay within a name, ``**`` crosses folders, ``[abc]`` and ``[!abc]`` are sets, ``{a,b}`` are
    alternatives. A pattern without a slash matches names in any folder. Raises ``UsageError`` for a pattern that
    could only match outside the project or cannot be read.
    """
    return tuple(path for path in _find_matching(workspace, pattern) if workspace.is_file(path))


def grep(workspace: Workspace, pattern: str, *, files: str = "**", limit: int = HIT_CAP) -> Hits:
    """Find the lines that match a regular expression in matching files; ``UsageError`` if it is invalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        hint = "escape ( ) [ ] { } . * + ? with a backslash"
        raise UsageError(f"{pattern!r} is not a regular expression: {error}.", hint=hint) from error
    shown: list[Hit] = []
    total = unread = count = 0
    for path in _find_matching(workspace, files):
        try:
            # Masked before the search: a series of patterns could otherwise reveal a key letter by letter.
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


def _find_matching(workspace: Workspace, pattern: str) -> Iterator[str]:
    if pattern.startswith("/") or ".." in pattern.split("/") or not pattern.strip():
        raise UsageError(f"The pattern {pattern!r} does not stay inside the project.", hint=_SUCH_AS)
    anywhere = pattern if "/" in pattern else f"**/{pattern}"
    try:
        pieces = _parse_pattern(anywhere.removeprefix("./"))
    except (re.error, ValueError) as error:
        raise UsageError(f"The pattern {pattern!r} cannot be read: {error}.", hint=_SUCH_AS) from error
    return (path for path in workspace.list_files() if len(path) in _follow(pieces, path, positions={0}))


Piece: TypeAlias = Callable[[str, set[int]], set[int]]
"""A piece of a pattern: maps a path and the positions where the piece may begin to those where it may end.

All alternatives advance together, so the time grows with the product of the lengths of pattern and path. A regular
expression would try the alternatives one after another, in exponential time.
"""
_DEEPEST = 20
"""How deep braces may be nested."""
_SET = r"\[(?:[!^][^/]|[^/!^])[^\]/]*\]"
_TOKEN = re.compile(rf"\*\*/|\*\*|\*|\?|{_SET}|\{{|\}}|,|[^*?\[{{}},]+|\[")
"""The tokens of a pattern; a closing bracket is literal as the first member of a set."""
_NOT_IN_A_RANGE = re.compile(r"[^\w-]|(?<!\w)-|-(?!\w)")
"""The characters of a set that are escaped because they are literal there."""


def _follow(pieces: Sequence[Piece], path: str, *, positions: set[int]) -> set[int]:
    for piece in pieces:
        positions = piece(path, positions)
    return positions


def _parse_pattern(pattern: str) -> Sequence[Piece]:
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
                alternatives = nested.pop()
                nested[-1][-1].append(_match_either(alternatives))
            case "," if len(nested) > 1:
                nested[-1].append([])
            case _:
                nested[-1][-1].append(_make_piece(token))
    if len(nested) > 1:
        raise ValueError("a brace is not closed")
    return nested[0][0]


def _make_piece(token: str) -> Piece:
    match token:
        case "**/":
            return _match_folders
        case "**":
            return lambda path, positions: set(range(min(positions, default=len(path) + 1), len(path) + 1))
        case "*":
            return _match_rest_of_name
        case "?":
            return _match_one_of("[^/]")
        case _ if token.startswith("[") and len(token) > 1:
            inverted = token[1] in "!^"
            members = _NOT_IN_A_RANGE.sub(r"\\\g<0>", token[1 + inverted : -1])
            return _match_one_of(f"[{'^/' if inverted else ''}{members}]")
        case _:
            return lambda path, positions: {at + len(token) for at in positions if path.startswith(token, at)}


def _match_one_of(members: str) -> Piece:
    expression = re.compile(members)
    return lambda path, positions: {at + 1 for at in positions if expression.match(path, at)}


def _match_either(alternatives: Sequence[Sequence[Piece]]) -> Piece:
    return lambda path, positions: set().union(*(_follow(pieces, path, positions=positions) for pieces in alternatives))


def _match_folders(path: str, positions: set[int]) -> set[int]:
    first = min((at for at in positions if not path.startswith("/", at)), default=len(path))
    return positions | {slash.end() for slash in re.finditer("/", path) if slash.start() >= first}


def _match_rest_of_name(path: str, positions: set[int]) -> set[int]:
    ends: set[int] = set()
    for at in sorted(positions):
        if at not in ends:
            slash = path.find("/", at)
            ends.update(range(at, (len(path) if slash < 0 else slash) + 1))
    return ends
