"""The errors that ``cdd_agent`` raises on purpose, with their exit codes, and the wording of messages.

::

    CddError                    70  a defect in cdd
    +-- UsageError               2  the user can fix it by changing the command
    |   +-- DocumentError        2  a file is invalid; holds its problems with their lines
    |   +-- AlreadyAtWork        2  another process is working on the same thing
    +-- GateClosed               1  tests failed, or a gate is closed
    +-- BudgetSpent              3  a limit of turns, calls or tokens was reached
    +-- Interrupted            130  the user stopped the work
    +-- EnvironmentMissing       4  no git, no model, no tests
        +-- FolderMoved          4  the path of a held folder leads elsewhere
        +-- ModelError           4  the model did not answer, or not in a form that can be used
        +-- RecordingError       4  a recording ended, does not match or cannot be read
            +-- TurnMissing      4  a recording lacks a turn that it may lack
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of the program."""

    DONE = 0
    CLOSED = 1
    USAGE = 2
    BUDGET = 3
    ENVIRONMENT = 4
    INTERNAL = 70
    INTERRUPTED = 130


class CddError(Exception):
    """An error with what happened (the thing and both sides of the disagreement) and an action to type."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, happened: str, *, hint: str) -> None:
        """Store both sentences; ``str()`` returns the first."""
        super().__init__(happened)
        self.happened = happened
        self.hint = hint


class UsageError(CddError):
    """The user asked for something that does not exist or is not allowed."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem in a document, its line, and what to write instead."""

    line: int
    """1-based; 0 for the whole document."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return ``line 12: message (hint)``."""
        position = f"line {self.line}: " if self.line else ""
        return f"{position}{self.message}" + (f" ({self.hint})" if self.hint else "")


class DocumentError(UsageError):
    """A spec, plan, state or settings file is invalid; names the file and all its problems."""

    def __init__(self, path: str, problems: tuple[Problem, ...], *, hint: str) -> None:
        """``path`` is shown relative to the current folder if it is inside."""
        listed = "\n".join(f"  {problem}" for problem in problems)
        shown = path.removeprefix(f"{os.getcwd()}{os.sep}")
        super().__init__(f"{shown} is not valid:\n{listed}", hint=hint)
        self.path = path
        self.problems = problems


class AlreadyAtWork(UsageError):
    """Another process is already working on the same thing."""


class GateClosed(CddError):
    """A gate is closed, or tests failed, after the last attempt."""

    exit_code = ExitCode.CLOSED


class BudgetSpent(CddError):
    """A limit was reached before the work was done."""

    exit_code = ExitCode.BUDGET


class Interrupted(CddError):
    """The user stopped the work with Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED


class EnvironmentMissing(CddError):
    """Something outside the project is needed and missing."""

    exit_code = ExitCode.ENVIRONMENT


class FolderMoved(EnvironmentMissing):
    """A folder in which cdd works was moved or replaced meanwhile. A tool must not take this for an answer."""


class ModelError(EnvironmentMissing):
    """The model is unreachable, refused, or gave an unusable answer."""


class RecordingError(EnvironmentMissing):
    """A recording cannot be read, has ended, or does not contain this request."""


class TurnMissing(RecordingError):
    """A recording does not contain an optional request, so the caller does without."""


def suggest(word: str, known: Iterable[str], *, text: str = "{}", otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return ``text`` with the one of ``known`` that is nearest to ``word`` in place of ``{}``, or ``otherwise``.

    >>> suggest("stauts", ("status", "review"), text="did you mean: cdd {}", otherwise="cdd --help lists the commands")
    'did you mean: cdd status'
    """
    import difflib  # most commands end without an unknown word

    near = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
    return text.format(near[0]) if near else otherwise


def format_size(size_bytes: int) -> str:
    """Return a size for people.

    >>> format_size(12), format_size(3_400), format_size(25_000_000)
    ('12 B', '3.4 kB', '25 MB')
    """
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size, units = size_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}" if size < 10 else f"{size:.0f} {units[0]}"


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun.

    >>> format_count(1, "file"), format_count(1_200, "file"), format_count(2, "process")
    ('1 file', '1200 files', '2 processes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def join_first(texts: Sequence[str], *, most: int, separator: str = ", ") -> str:
    """Join the first ``most`` of ``texts``, and say how many there are besides.

    >>> join_first(("a", "b", "c"), most=3), join_first(("a", "b", "c", "d"), most=2)
    ('a, b, c', 'a, b and 2 more')

    In a list in one line, a line end in a name is shown by its code point.

    >>> join_first(("a\\nb",), most=1)
    'a<U+000A>b'
    """
    if "\n" not in separator:
        texts = [text.replace("\n", "<U+000A>").replace("\r", "<U+000D>") for text in texts]
    shown = separator.join(texts[:most])
    more = f"and {len(texts) - most} more"
    return shown if len(texts) <= most else f"{shown}{' ' if separator == ', ' else separator}{more}"
