"""What a command of the user's that runs pytest says: which tests are all, how they are run, in which environment.

The command itself is never run, since pytest has to be run by a program of ours. What it says is taken over as far as
that goes, and the rest is named, for the user to be told.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdd_agent.testrun.environments import NOTHING_MEANT, Meant
from cdd_agent.testrun.frameworks.runners import Invoked, call_of, is_pytest

_SELECTS = frozenset({"-m", "-k", "--deselect", "--ignore", "--ignore-glob"})
"""Options that leave tests out; with a value."""
_VALUED = _SELECTS | {
    *("-W", "-o", "-r", "-n", "--pythonwarnings", "--override-ini", "--tb", "--durations", "--durations-min"),
    *("--import-mode", "--log-level", "--log-cli-level", "--numprocesses", "--dist", "--cov", "--cov-report"),
    *("--cov-config", "--cov-fail-under", "--timeout", "--timeout-method", "--ds", "--dc", "--asyncio-mode"),
    *("--verbosity", "--show-capture", "--capture", "--hypothesis-profile", "--randomly-seed"),
}
_OURS = frozenset(
    {
        *("-x", "-h", "-V", "-f", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--nf"),
        *("--new-first", "--sw", "--stepwise", "--stepwise-skip", "--co", "--collect-only", "--collectonly"),
        *("--setup-plan", "--setup-only", "--setup-show", "--pdb", "--trace", "--debug", "--fixtures", "--markers"),
        *("--version", "--help", "--noconftest", "--pyargs", "--looponfail", "--cache-clear", "--tdd-agent"),
    }
)
"""Options that would change what the program asks of a run."""
_OURS_VALUED = frozenset(
    {
        *("-c", "-p", "--config-file", "--rootdir", "--confcutdir", "--maxfail", "--junitxml", "--junit-xml"),
        *("--basetemp", "--color", "--pdbcls", "--report-log", "--html", "--reruns", "--lfnf"),
        *("--last-failed-no-failures", "--inifile"),
    }
)
_LETTERS = {option[1]: option for option in _VALUED | _OURS_VALUED if len(option) == 2}
"""One-letter options that take a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command says of how pytest is to be run."""

    options: tuple[str, ...] = ()
    """Of every run, as ``addopts`` has them."""
    selects: tuple[str, ...] = ()
    """Of runs of all tests: paths, as ``testpaths`` has them, and options that leave tests out."""
    meant: Meant = NOTHING_MEANT
    unheard: tuple[str, ...] = ()
    """Words that do not count."""


def asked(root: Path, words: Sequence[str]) -> Asked:
    """What the command says for the project in ``root``.

    Raises ``EnvironmentMissing`` if it names an environment of tox or nox that has not been made.
    """
    call = call_of(root, words)
    if call is None:
        return Asked(unheard=() if list(words) == ["pytest"] else (shlex.join(words),))
    return _said(call, root=root)


def runs_pytest(root: Path, words: Sequence[str]) -> bool:
    """Whether the words name pytest, or a script or an environment of a tool that runs it."""
    return any(map(is_pytest, words)) or call_of(root, words, is_tried=True) is not None


@dataclass(slots=True)
class _Words:
    """The arguments of pytest, sorted while they are read."""

    root: Path
    options: list[str] = field(default_factory=list)
    selects: list[str] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)

    def take(self, option: str, value: str | None) -> None:
        """One option, with its value if it has one."""
        if option in _OURS | _OURS_VALUED or option.startswith("--tdd-agent"):
            self.unheard.append(option if value is None else f"{option} {value}")
        elif value is None:
            self.options.append(option)
        else:
            said = [f"{option}={value}"] if option.startswith("--") else [option, value]
            (self.selects if option in _SELECTS else self.options).extend(said)

    def take_path(self, word: str) -> None:
        """A file, a folder or a node id."""
        path, colons, inside = word.partition("::")
        name = os.path.relpath(self.root / path, self.root)
        if name.startswith(os.pardir) or not self.is_path(word):
            self.unheard.append(word)
        else:
            self.selects.append(f"{Path(name).as_posix()}{colons}{inside}")

    def is_path(self, word: str) -> bool:
        """Whether there is such a file or folder."""
        path = word.partition("::")[0]
        return bool(path) and "\0" not in path and (self.root / path).exists()


def _said(call: Invoked, *, root: Path) -> Asked:
    found = _Words(root)
    left = list(call.arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            for path in left:
                found.take_path(path)
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if equals:
                found.take(name, value)
            elif name in _VALUED | _OURS_VALUED or (
                name not in _OURS and left and not left[0].startswith("-") and not found.is_path(left[0])
            ):
                found.take(name, left.pop(0) if left else None)
            else:
                found.take(name, None)
        elif word.startswith("-") and len(word) > 1:
            for option, behind in _letters(word[1:], left):
                found.take(option, behind)
        elif word.startswith("@"):
            found.unheard.append(word)
        else:
            found.take_path(word)
    return Asked(
        options=tuple(found.options),
        selects=tuple(found.selects),
        meant=call.meant,
        unheard=(*call.unheard, *found.unheard),
    )


def _letters(cluster: str, left: list[str]) -> Iterator[tuple[str, str | None]]:
    """The options of ``-qxk``; the last may have its value in the same word, or take the next of ``left``."""
    for number, letter in enumerate(cluster, start=1):
        if letter in _LETTERS:
            rest = cluster[number:].removeprefix("=")
            yield f"-{letter}", rest or (left.pop(0) if left else None)
            return
        yield f"-{letter}", None


def told(command: Iterable[str], unheard: Iterable[str]) -> str:
    """What a person is told of words that do not count."""
    words = ", ".join(f"`{' '.join(word.split())}`" for word in unheard)
    return (
        f"pytest is run by cdd itself, so that of `{shlex.join(command)}` these words do not count: {words}. "
        "What the tests need of them belongs into pytest's configuration."
    )
