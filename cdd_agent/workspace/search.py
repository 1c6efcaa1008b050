"""Finding files by name and lines by content, among the files that a workspace lists.

Every hit is asked of the workspace again: by the time it is told, a folder may have become a link.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from cdd_agent.errors import UsageError
from cdd_agent.guarded.keys import mask
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
        expression = re.compile(_translated(anywhere.removeprefix("./")))
    except re.error as error:
        raise UsageError(
            f"The pattern {pattern!r} cannot be read: {error}.", hint="use one such as src/**/*.py"
        ) from error
    return (path for path in workspace.listing() if expression.fullmatch(path))


_SET = r"\[(?:[!^][^/]|[^/!^])[^\]/]*\]"
_TOKEN = re.compile(rf"\*\*/|\*\*|\*|\?|{_SET}|\{{|\}}|,|.", re.DOTALL)
"""The pieces of a pattern; the first member of a set may be the bracket that would close it."""

_NOT_IN_A_RANGE = re.compile(r"[^\w-]|(?<!\w)-|-(?!\w)")
"""What has no meaning of its own in a set of characters."""


def _translated(pattern: str) -> str:
    """``pattern`` as a regular expression over a relative path."""
    depth = 0
    pieces: list[str] = []
    for token in _TOKEN.findall(pattern):
        depth += (token == "{") - (token == "}")
        match token:
            case "**/":
                pieces.append("(?:[^/]+/)*")
            case "**":
                pieces.append(".*")
            case "*":
                pieces.append("[^/]*")
            case "?":
                pieces.append("[^/]")
            case "{":
                pieces.append("(?:")
            case "}":
                pieces.append(")")
            case "," if depth:
                pieces.append("|")
            case _ if len(token) > 1:
                inverted = token[1] in "!^"
                members = _NOT_IN_A_RANGE.sub(r"\\\g<0>", token[1 + inverted : -1])
                pieces.append(f"[{'^/' if inverted else ''}{members}]")
            case _:
                pieces.append(re.escape(token))
    return "".join(pieces)
