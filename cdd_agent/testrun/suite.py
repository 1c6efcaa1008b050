"""The port to a project's tests: what everybody needs of them, whatever framework runs them."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdd_agent.events import SuiteFinished
from cdd_agent.sandbox.port import Access, Sandbox
from pytest_tdd_agent.fingerprint import digests, is_protected, shadows_runner
from pytest_tdd_agent.report import SuiteReport, summary


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What one run came to: exactly one of ``report`` and ``problem`` is there."""

    report: SuiteReport | None
    problem: str | None
    """Why there is no report to judge: time-out, early end, a report that is not of this run; and what to do."""
    output: str
    """What was printed, capped."""
    duration_s: float
    notices: tuple[str, ...] = ()
    """What was done differently from what the project's configuration asks for, and why; what the sandbox remarks."""
    was_refused: bool = False
    """Whether nothing was run for what was asked for, or how: no test has that name, an option is not known."""

    def finished(self, purpose: str, *, framework: str) -> SuiteFinished:
        """The event that tells of it."""
        count = summary(self.report) if self.report else {}
        return SuiteFinished(
            purpose=purpose,
            framework=framework,
            passed=count.get("passed", 0) + count.get("xfailed", 0),
            failed=count.get("failed", 0) + count.get("xpassed", 0),
            errors=count.get("error", 0) + len(self.report.collect_errors if self.report else ()),
            skipped=count.get("skipped", 0),
            duration_s=self.duration_s,
            problem=self.problem,
        )


def modules_of(sources: Iterable[str], tests: Iterable[str] = ()) -> tuple[str, ...]:
    """The dotted names under which tests may import Python ``sources``: what RED may find missing.

    >>> modules_of(("src/ledger/export.py",))
    ('src.ledger.export', 'ledger.export')
    """
    names: list[str] = []
    for source in sources:
        if not source.endswith(".py"):
            continue
        parts = source.removesuffix(".py").removesuffix("/__init__").split("/")
        starts = range(2 if parts[0] in {"src", "lib"} and len(parts) > 1 else 1)
        names.extend(".".join(parts[start:]) for start in starts)
    return tuple(names)


def stands_in_for_nothing(_: str) -> bool:
    """Where no file is loaded in the place of a test tool for its name alone."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """What files and names are called where a framework is at home. Files are posix and relative to the project."""

    framework: str
    """As settings and messages call it."""
    is_test: Callable[[str], bool]
    """Whether a file belongs to the tests, or configures how they are run and nothing else."""
    names_of: Callable[[Iterable[str], Iterable[str]], tuple[str, ...]]
    """Sources, and the test files that fail -> the names under which these may use what is in those: what RED may find
    missing."""
    stands_in: Callable[[str], bool] = stands_in_for_nothing
    """Whether a new file would be loaded in the place of a test tool, or before it."""
    shared: frozenset[str] = frozenset()
    """Names of files of which a part configures the tests and the rest is the product's."""
    parts: Callable[[Path], Mapping[str, str]] = lambda _: {}
    """Folder -> digests of those parts in it, by keys that begin with the file's name."""
    looked_for: str = ""
    """Where tests are found if nothing else is configured, as the end of "by default ..."."""
    is_python: bool = False
    """Whether the change can be looked at as Python, and tests of ours can be put beside the project's."""
    accepts_exit_status: bool = False
    """Whether the user lets the command's exit status stand for results that there are not."""


def _sections(folder: Path) -> Mapping[str, str]:
    return {key: digest for key, digest in digests(folder).items() if key.partition("[")[0] in PYTEST.shared}


PYTEST = Conventions(
    framework="pytest",
    is_test=is_protected,
    names_of=modules_of,
    stands_in=shadows_runner,
    shared=frozenset({"pyproject.toml", "setup.cfg", "tox.ini"}),
    parts=_sections,
    looked_for="pytest looks for functions test_* in files test_*.py and *_test.py",
    is_python=True,
)
"""Python's, as the plugin has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which files of a work tree are tests: the project may be a folder in it."""

    project: str = ""
    """Its folder, relative to the work tree; empty if it is the work tree."""
    conventions: Conventions = PYTEST

    def name(self, path: str) -> str:
        """What ``path``, relative to the work tree, is called in the project; one outside keeps its name.

        By it a file is one of the tests or is not: folders above the project say nothing of what is in it.
        """
        return path.removeprefix(f"{self.project}/") if self.project else path

    def is_test(self, path: str) -> bool:
        """Whether ``path``, relative to the work tree, belongs to the tests."""
        return self.conventions.is_test(self.name(path))

    def stands_in(self, path: str) -> bool:
        """Whether a new file ``path`` would be loaded in the place of a test tool."""
        return self.conventions.stands_in(self.name(path))


PLAIN = Layout()
"""The work tree is the project, and its tests are pytest's."""


def digest(content: bytes) -> str:
    """sha256, as fingerprints have it."""
    return hashlib.sha256(content).hexdigest()


class Suite(Protocol):
    """The tests of one project and how they are run; node ids are relative to its folder."""

    @property
    def root(self) -> Path:
        """The project's folder."""
        ...

    @property
    def sandbox(self) -> Sandbox:
        """What runs them."""
        ...

    @property
    def timeout_s(self) -> float:
        """Of one run."""
        ...

    @property
    def conventions(self) -> Conventions:
        """What files and names are called here."""
        ...

    @property
    def command(self) -> str:
        """What a person types in the project's folder to run all tests."""
        ...

    @property
    def variables(self) -> Mapping[str, str]:
        """What a command of the model's needs in its environment to find the tools that tests are run with."""
        ...

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests that ``targets`` (node ids, files, folders) name, or all; the report goes to ``keep`` too."""
        ...

    def in_copy(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "Suite":
        """The same tests in a copy of the project at ``root``, which can read ``reads`` too, built from nothing."""
        ...

    def anew(self) -> "Suite":
        """The same tests, without the help of what earlier runs compiled."""
        ...

    def within(self, timeout_s: float) -> "Suite":
        """The same tests, with so much time for a run."""
        ...

    def shut_in(self, sandbox: Sandbox) -> "Suite":
        """The same tests, run by another sandbox."""
        ...

    def access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """What a command of the model's may reach: the project but for ``locked``, and with ``tests_too`` its tests."""
        ...
