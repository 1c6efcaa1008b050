"""What is known of one test framework, and what a run of it came to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_tdd_agent.report import Case, CollectError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A framework found in a project."""

    manifest: Path
    """The file that says so; the tests are run in its folder."""
    argv: tuple[str, ...]
    """The command that runs all tests, without what ``Framework.arguments`` adds."""
    why: str
    """The rule that found it, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that has ended."""

    root: Path
    """Folder that the tests were run in."""
    results: Path
    """Private folder that result files were asked to be written to; empty before the run."""
    output: str
    """What was printed, standard output and error together."""
    exit_status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Every test of a run, in the records that the gates judge."""

    tests: tuple[Case, ...] = ()
    collect_errors: tuple[CollectError, ...] = ()
    """Files, crates or packages whose tests could not be loaded or compiled."""
    problem: str | None = None
    """Why the results cannot be trusted to be all: nothing was written, it cannot be read, the run was cut off."""
    is_structured: bool = True
    """Whether there is one result for each test; otherwise only the command's exit status is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How a framework is found, run and read."""

    name: str
    """As settings and messages call it."""
    looked_for: str
    """What makes a project one of this framework's, in words: for the error that no framework was found."""
    find: Callable[[Path], Finding | None]
    """Whether a folder has this framework, looked at without running anything."""
    arguments: Callable[[tuple[str, ...], Path], tuple[str, ...]]
    """What is added to the command: of targets (node ids, files; none: all tests) and the folder for results."""
    read: Callable[[Ended], Results]
    is_test: Callable[[str], bool]
    """Whether a file (posix, relative to the project) is one of the tests or configures how they are run."""
    stale: Callable[[Path], tuple[Path, ...]] = lambda _: ()
    """Result files that an earlier run left in the project and that this one must not be judged by."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment that the command needs."""
