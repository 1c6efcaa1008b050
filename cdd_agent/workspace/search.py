"""Finds files by name and lines by content.

The workspace checks every hit again, because a folder may have been replaced by a link since the listing.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

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

    ``*`` and ``?`` stay within a name, ``**`` stands for any folders, ``[abc]`` and ``[!abc]`` are sets, ``{a,b}``
    are alternatives. A pattern without a slash matches names in any folder. Raises ``UsageError`` for a pattern that
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
        alternatives = [_split_pattern(each) for each in _expand_braces(anywhere.removeprefix("./"))]
    except ValueError as error:
        raise UsageError(f"The pattern {pattern!r} cannot be read: {error}.", hint=_SUCH_AS) from error
    return (path for path in workspace.list_files() if any(_matches(path.split("/"), each) for each in alternatives))


_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_ALTERNATIVES = 200


def _expand_braces(pattern: str) -> list[str]:
    """Return the patterns without braces that the alternatives in ``pattern`` stand for."""
    waiting, plain = [pattern], list[str]()
    while waiting:
        each = waiting.pop()
        if braces := _BRACES.search(each):
            waiting += [each[: braces.start()] + inner + each[braces.end() :] for inner in braces[1].split(",")]
        elif set(each) & set("{}"):
            raise ValueError("a brace is not closed, or closes nothing")
        else:
            plain.append(each)
        if len(waiting) + len(plain) > _MOST_ALTERNATIVES:
            raise ValueError(f"its braces have more than {_MOST_ALTERNATIVES} alternatives")
    return plain


def _split_pattern(pattern: str) -> list[str]:
    # A name after ``**`` may be in any folder, too: ``src/**.py`` is ``src/**/*.py``.
    return re.sub(r"\*\*(?=[^/*])", "**/*", pattern).split("/")


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of a path match, one by one; all positions of a ``**`` advance together."""
    positions = {0}
    for part in pattern:
        if part == "**":
            positions = set(range(min(positions, default=len(names) + 1), len(names) + 1))
        else:
            positions = {at + 1 for at in positions if at < len(names) and fnmatchcase(names[at], part)}
    return len(names) in positions
