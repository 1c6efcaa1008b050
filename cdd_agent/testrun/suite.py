"""The port to a project's tests, whichever framework runs them."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import SuiteFinished
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from cdd_agent.testrun.access import Original
from pytest_tdd_agent.codec import dump
from pytest_tdd_agent.fingerprint import compute_digests, is_protected, is_runner_shadow
from pytest_tdd_agent.report import StreamProblem, SuiteReport, count_outcomes

Cause: TypeAlias = Literal["timed_out", "refused", "not_installed", "other"]
"""Why a run has no report: the time limit ended it; the runner refused the request, because no test has that name, or
an option is unknown; no test can import a module of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReport:
    """Why a run has no report."""

    happened: str
    cause: Cause = "other"
    advice: str = ""
    """What to do, such as a command to type; empty if nobody knows."""

    def __str__(self) -> str:
        """Return it in one line."""
        separator = ": " if self.cause == "not_installed" else "; "
        return f"{self.happened}{separator}{self.advice}" if self.advice else self.happened


def describe_time_out(limit_s: float, running: str = "") -> NoReport:
    """Return why a run has no report that reached its time limit; ``running`` says which test ran then."""
    return NoReport(happened=f"the tests did not end within {limit_s:g} s{running}", cause="timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """The result of one run: either ``report`` or ``failed`` is None."""

    report: SuiteReport | None
    failed: NoReport | None = None
    """Why there is no report, such as a time-out or an early end."""
    output: str
    """The printed output, capped."""
    duration_s: float
    notices: tuple[str, ...] = ()
    """Deviations from the project's configuration with their reasons, and the sandbox's remarks."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Module that a run of a copy loaded -> its file, below ``root`` of the suite if the copy has it."""
    entered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """File of the project -> tests that entered it, without parameters; empty where that is not known.

    If the suite traces functions, they are there as ``path::name`` with their qualified names, and a test file counts
    as a test for what is entered while it is imported.
    """
    reused: str = ""
    """If nothing ran, because the results were known: the run that they are from."""
    outdated: tuple[str, str] | None = None
    """A sentence about a module that the installation of the project lacks, and the command that installs it again."""
    broken: StreamProblem | None = None
    """Why the records of the run are not all, or cannot be trusted."""

    @property
    def problem(self) -> str | None:
        """Why there is no report, and what to do, for people and models."""
        return None if self.failed is None else str(self.failed)

    @property
    def cause(self) -> Cause | None:
        """Why there is no report."""
        return None if self.failed is None else self.failed.cause

    def as_event(self, purpose: str, *, framework: str) -> SuiteFinished:
        """Return the event that reports this run."""
        count = count_outcomes(self.report) if self.report else {}
        return SuiteFinished(
            purpose=purpose,
            framework=framework,
            passed=count.get("passed", 0) + count.get("xfailed", 0),
            failed=count.get("failed", 0) + count.get("xpassed", 0),
            errors=count.get("error", 0) + len(self.report.collect_errors if self.report else ()),
            skipped=count.get("skipped", 0),
            duration_s=self.duration_s,
            problem=self.problem,
            exit_status=self.report.exit_status if self.report and not self.report.structured else None,
            reused=self.reused,
        )


def list_modules(sources: Iterable[str], tests: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the dotted names under which tests may import Python ``sources``, which may be missing in RED.

    >>> list_modules(("src/ledger/export.py",))
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


def shadows_nothing(_: str) -> bool:
    """Return False: in this framework no file name shadows a test tool."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """The naming conventions of a framework. Paths are posix and relative to the project."""

    framework: str
    """Its name in settings and messages."""
    is_test: Callable[[str], bool]
    """Returns whether a file belongs to the tests, or only configures how they run."""
    list_names: Callable[[Iterable[str], Iterable[str]], tuple[str, ...]]
    """Maps sources and failing test files to the names under which the tests may use the sources, which may be
    missing in RED."""
    shadows_tool: Callable[[str], bool] = shadows_nothing
    """Returns whether a new file would be loaded instead of a test tool, or before it."""
    shared: frozenset[str] = frozenset()
    """Names of files that configure the tests in one part and the product in another."""
    digest_parts: Callable[[Path], Mapping[str, str]] = lambda _: {}
    """Maps a folder to digests of the parts that configure tests, by keys that begin with the file's name."""
    discovery: str = ""
    """Where the framework looks for tests by default, as the end of "by default ..."."""
    is_python: bool = False
    """Whether cdd can analyze changes as Python and write tests for them."""
    accepts_exit_status: bool = False
    """Whether the user accepts the exit status of the command in place of results."""


def _digest_sections(folder: Path) -> Mapping[str, str]:
    return {key: digest for key, digest in compute_digests(folder).items() if key.partition("[")[0] in PYTEST.shared}


PYTEST = Conventions(
    framework="pytest",
    is_test=is_protected,
    list_names=list_modules,
    shadows_tool=is_runner_shadow,
    shared=frozenset({"pyproject.toml", "setup.cfg", "tox.ini"}),
    digest_parts=_digest_sections,
    discovery="pytest looks for functions test_* in files test_*.py and *_test.py",
    is_python=True,
)
"""The conventions of pytest, as the plugin defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLayout:
    """The location of the project in its work tree, and which of its files are tests."""

    project: str = ""
    """The project's folder relative to the work tree; empty if it is the work tree itself."""
    conventions: Conventions = PYTEST

    def relativize(self, path: str) -> str:
        """Make a path relative to the project instead of the work tree; paths outside stay unchanged."""
        # The names of folders above the project must not make a file a test.
        return path.removeprefix(f"{self.project}/") if self.project else path

    def is_test(self, path: str) -> bool:
        """Return whether ``path``, relative to the work tree, belongs to the tests."""
        return self.conventions.is_test(self.relativize(path))

    def shadows_tool(self, path: str) -> bool:
        """Return whether a new file ``path`` would be loaded instead of a test tool."""
        return self.conventions.shadows_tool(self.relativize(path))


PLAIN_LAYOUT = ProjectLayout()
"""The layout of a project that is the whole work tree and uses pytest."""


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal, as in fingerprints."""
    return hashlib.sha256(content).hexdigest()


SETUP_TIMEOUT_S = 1800.0
"""A build may take long."""


class Suite(Protocol):
    """The tests of one project; node ids are relative to its folder."""

    @property
    def root(self) -> Path:
        """The project's folder."""

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in which the tests run."""

    @property
    def timeout_s(self) -> float:
        """The time limit of one run."""

    @property
    def conventions(self) -> Conventions:
        """The naming conventions of the project's framework."""

    @property
    def command(self) -> str:
        """The command line that runs all tests in the project's folder."""

    @property
    def signature(self) -> tuple[str, ...] | None:
        """What decides the results of a run besides files; None if a run can see what nobody can describe."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables with which the model's commands find the test tools."""

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests in ``targets`` (node ids, files, folders), or all; also save the report to ``keep``."""

    def with_root(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "Suite":
        """Return the tests of a copy at ``root``, built from scratch, which can also read ``reads``."""

    def in_run_tree(self, root: Path, *, original: Original) -> "Suite":
        """Return the tests of the run tree ``root``, with the build results of earlier runs; ``self`` is untouched."""

    @property
    def setup(self) -> str:
        """The shell command that prepares a copy for tests; empty without one."""

    @property
    def original(self) -> Original | None:
        """The project that ``root`` is a copy of; None if it is no copy."""

    def without_cache(self) -> "Suite":
        """Return the same tests without the build results of earlier runs."""

    def with_timeout(self, timeout_s: float) -> "Suite":
        """Return the same tests with another time limit."""

    def with_test_limit(self, seconds: float | None) -> "Suite":
        """Return the same tests with a time limit for each test; other frameworks than pytest have none."""

    def with_tracing(self) -> "Suite":
        """Return the same tests, whose runs also note the functions that they enter; others than pytest cannot."""

    def with_sandbox(self, sandbox: Sandbox) -> "Suite":
        """Return the same tests in another sandbox."""

    def build_access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """Build the access of the model's commands; ``locked`` paths and, with ``tests_too``, tests are read-only."""


def save_report(report: SuiteReport, keep: Path | None) -> None:
    """Write the report to ``keep`` if that is a path."""
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        dump(report, keep)


def run_setup(suite: Suite, *, tests_too: bool = False) -> Result:
    """Run the command that prepares a copy for tests; with ``tests_too``, it may not change tests."""
    command = Command(
        argv=("sh", "-c", suite.setup),
        cwd=suite.root,
        access=suite.build_access(tests_too=tests_too),
        variables=suite.variables,
        timeout_s=SETUP_TIMEOUT_S,
    )
    try:
        return suite.sandbox.run(command)
    except OSError as error:
        hint = "correct worktree_setup in .cdd/config.yaml"
        raise EnvironmentMissing(f"worktree_setup cannot be started: {error.strerror or error}.", hint=hint) from error
