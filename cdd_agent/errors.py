"""Every error that ``cdd_agent`` raises on purpose, and the exit code each one ends the program with.

::

    CddError                    70  something of ours is wrong
    +-- UsageError               2  the user can mend it by typing something else
    |   +-- DocumentError        2  a file of the user's is invalid; holds its problems with their lines
    |   +-- AlreadyAtWork        2  another process holds what is to be changed
    +-- GateClosed               1  the tests or a gate said no
    +-- BudgetSpent              3  a limit of turns, calls or tokens was reached
    +-- EnvironmentMissing       4  no git, no model, no tests
        +-- ModelError           4  the model did not answer, or not in a form that can be used
        +-- RecordingError       4  a recording ran out, does not match or cannot be read
"""

import os
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """How the program ends, whatever its output form."""

    DONE = 0
    CLOSED = 1
    USAGE = 2
    BUDGET = 3
    ENVIRONMENT = 4
    INTERNAL = 70
    INTERRUPTED = 130


class CddError(Exception):
    """What happened (the thing and both sides of the disagreement) and an action the reader can type."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, happened: str, *, hint: str) -> None:
        """Keep both sentences; ``str()`` gives the first."""
        super().__init__(happened)
        self.happened = happened
        self.hint = hint


class UsageError(CddError):
    """The user asked for something that is not there or not allowed."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a document, where, and what to write instead."""

    line: int
    """1-based; 0 where the whole document is meant."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """``line 12: message (hint)``."""
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message}" + (f" ({self.hint})" if self.hint else "")


class DocumentError(UsageError):
    """A spec, plan, state or settings file is invalid: names the file and every problem in it."""

    def __init__(self, path: str, problems: tuple[Problem, ...], *, hint: str) -> None:
        """``path`` is shown as the user would type it: relative to the current folder where it lies below that."""
        listed = "\n".join(f"  {problem}" for problem in problems)
        shown = path.removeprefix(f"{os.getcwd()}{os.sep}")
        super().__init__(f"{shown} is not valid:\n{listed}", hint=hint)
        self.path = path
        self.problems = problems


class AlreadyAtWork(UsageError):
    """Another process is at work on the same, and only one may be."""


class GateClosed(CddError):
    """A gate closed, or tests failed, and the attempts are used up."""

    exit_code = ExitCode.CLOSED


class BudgetSpent(CddError):
    """A limit was reached before the work was done."""

    exit_code = ExitCode.BUDGET


class EnvironmentMissing(CddError):
    """Something outside the project is needed and not there."""

    exit_code = ExitCode.ENVIRONMENT


class ModelError(EnvironmentMissing):
    """The model could not be reached, refused, or answered in a form that cannot be used."""


class RecordingError(EnvironmentMissing):
    """A recording cannot be read, has run out, or holds no turn for this request."""
