"""The records that describe a test framework and the results of a run; ``catalog`` lists the frameworks."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Protocol

from cdd_agent.testrun.frameworks.environment import TOOLCHAINS, Toolchain
from cdd_agent.testrun.frameworks.sources import read_text, strip_terminal_codes
from cdd_agent.testrun.suite import list_modules
from pytest_tdd_agent.report import FAILING, Case, CollectError


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkMatch:
    """A framework found in a project."""

    manifest: Path
    """The file that names the framework; the tests run in its folder."""
    argv: tuple[str, ...]
    """The command that runs all tests, without ``Framework.arguments``."""
    why: str
    """The rule that found it, in words."""
    paths: tuple[str, ...] = ()
    """Files, folders and patterns of files that the command ends with unless targets replace them."""

    def build_command(self, arguments: Iterable[str], *, is_selected: bool, folder: Path) -> tuple[str, ...]:
        """Return the command with ``arguments``, which select tests if ``is_selected``, to run in ``folder``."""
        found = (sorted(glob(path, root_dir=folder, recursive=True)) or [path] for path in self.paths)
        return (*self.argv, *arguments, *(() if is_selected else chain.from_iterable(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedResults:
    """Every test of a run, in the records that the gates judge."""

    tests: tuple[Case, ...] = ()
    collect_errors: tuple[CollectError, ...] = ()
    """Files, crates or packages whose tests could not be loaded or compiled."""
    problem: str | None = None
    """Why the results may be incomplete: nothing was written, it is unreadable, the run was cut off."""
    is_structured: bool = True
    """Whether each test has a result; otherwise only the exit status is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A command that has ended, and where to look for its results."""

    root: Path
    """The folder the tests ran in."""
    results: Path
    """The private folder for result files; empty before the run."""
    output: str
    """Standard output and standard error together."""
    exit_status: int

    @property
    def plain_output(self) -> str:
        """The output without colors and with ``\\n`` as line ends."""
        return strip_terminal_codes(self.output)

    def conclude(self, found: ParsedResults, explain: Callable[[], str]) -> ParsedResults:
        """Return the results, with the problem that ``explain`` returns if the run failed and nothing says why."""
        is_explained = any(case.outcome in FAILING for case in found.tests) or found.collect_errors or found.problem
        return found if self.exit_status == 0 or is_explained else replace(found, problem=explain())


class NameRule(Protocol):
    """Lists the names under which tests use ``sources``: in RED, exactly these may be missing."""

    def __call__(self, root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterable[str]:
        """Yield the names; ``tests`` are the test files that fail. All paths are relative to ``root``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How to recognize one framework, run it and read its results."""

    name: str
    """The name in messages and in the setting ``framework``."""
    discovery: str
    """What cdd looks for, for the error that a project has no framework."""
    find: Callable[[Path], FrameworkMatch | None]
    """Look for the framework in a folder without running anything."""
    word: str = r"(?!)"
    """Pattern of a word in ``test_command`` that names the framework; by default no word does."""
    arguments: Callable[[tuple[str, ...], Path], tuple[str, ...]]
    """Return the arguments for files and folders (none: all tests) and the folder for results.

    The selection may include more, never less.
    """
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that the command needs."""
    toolchains: tuple[Toolchain, ...] = TOOLCHAINS
    """The tools that the command needs from this machine; by default all, for a command that could run any of them."""
    read: Callable[[FinishedRun], ParsedResults]
    """Read the results of a run."""
    old_reports: Callable[[Path], tuple[Path, ...]] = lambda _: ()
    """List the result files of an earlier run in the project; they are deleted before a run."""
    is_test: Callable[[str], bool]
    """Return whether a file (posix, relative to the project) is a test or configures how tests run."""
    names: NameRule = lambda root, sources, *, tests: list_modules(sources)
    """By default, the names of Python modules."""
    hides_other_tests: bool = False
    """Whether one test file that does not compile or load keeps the tests of other files from running."""
    is_fallback: bool = False
    """Whether it counts only where no other framework is found."""
    replaces: str = ""
    """Name of a framework that is ignored where this framework is found."""
    build_files: Mapping[str, str] = field(default_factory=dict)
    """Patterns of files that begin a build, which also runs the tests of packages below it, and of their texts."""

    def begins_build(self, folder: Path) -> bool:
        """Return whether a folder is the top of a build that also runs the tests of packages below it."""
        found = ((path, text) for pattern, text in self.build_files.items() for path in folder.glob(pattern))
        return any(path.is_file() and re.search(text, read_text(path), re.MULTILINE) for path, text in found)

    def list_names(self, sources: Iterable[str], tests: Iterable[str], *, root: Path) -> tuple[str, ...]:
        """Return the names under which ``tests`` may use ``sources`` and which RED may find missing."""
        return tuple(dict.fromkeys(self.names(root, tuple(sources), tests=tuple(tests))))


def find_by_manifest(
    *patterns: str, command: tuple[str, ...], wrapper: tuple[str, str] | None = None
) -> Callable[[Path], FrameworkMatch | None]:
    """Make a ``Framework.find`` that looks for a file by the first of ``patterns`` that matches.

    ``{manifest}`` in ``command`` is the file's name. ``wrapper`` is the name of a script that replaces the first word
    of the command if the project has it, and the name of the tool in it.
    """

    def find(folder: Path) -> FrameworkMatch | None:
        found = (path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file())
        manifest = next(found, None)
        if manifest is None:
            return None
        program, why = command[0], f"there is a {manifest.name}"
        if wrapper is not None and (folder / wrapper[0]).is_file():
            program, why = f"./{wrapper[0]}", f"{why}, and it brings its own {wrapper[1]}"
        words = (word.format(manifest=manifest.name) for word in command[1:])
        return FrameworkMatch(manifest=manifest, argv=(program, *words), why=why)

    return find


def number_cases(cases: Iterable[Case], *, form: str = "{name} #{count}") -> tuple[Case, ...]:
    """Number repeated node ids by ``form``, so that the last of these tests does not hide the others."""
    seen = Counter[str]()
    numbered = []
    for case in cases:
        name = case.nodeid
        seen[name] += 1
        numbered.append(case if seen[name] == 1 else replace(case, nodeid=form.format(name=name, count=seen[name])))
    return tuple(numbered)
