"""What GREEN on its own is asked for: the tests to pass, under a name, in a folder; checked before anything is done."""

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd.context import Kind, Ways, WorkItem
from cdd_agent.tdd.verdict import names
from cdd_agent.testrun.frameworks.detect import has_framework, projects_of
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import in_one_line
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.failure import STRUCTURAL, kind_inside
from pytest_tdd_agent.report import FAILING, Failure, SuiteReport, failing

LIMIT_BYTES = 100_000
MOST_TARGETS = 200
_MOST_NAMED = 5
_STEM_CHARACTERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted, as it was settled before the first iteration."""

    targets: tuple[str, ...]
    """Node ids, files or folders, relative to the project."""
    title: str
    """The commit's subject without its prefix."""
    kind: Kind
    """``feature`` or ``bug``: whether code is missing or wrong."""
    spec_id: str
    request_id: str
    failing: tuple[str, ...]
    """Node ids that the targets name and that failed before the first iteration; files that could not be collected."""

    @property
    def test_files(self) -> tuple[str, ...]:
        """The files in which the tests to pass are."""
        return tuple(dict.fromkeys(nodeid.partition("::")[0] for nodeid in self.failing))

    @property
    def tests(self) -> tuple[str, ...]:
        """The targets, each folder as the files in it that hold what fails: only tests are to be locked in it."""
        named: list[str] = []
        for target in self.targets:
            inside = [file for file in self.test_files if holds(target, file)]
            named += inside if inside and target not in self.test_files and "::" not in target else [target]
        return tuple(dict.fromkeys(named))

    def item(self, slug: str) -> WorkItem:
        """The request as a cycle takes it."""
        return WorkItem(
            ticket=slug,
            number=1,
            title=self.title,
            goal="",
            kind=self.kind,
            phases=("green",),
            tests=self.tests,
            sources=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The tests that a user names, and what he says of them."""

    targets: tuple[str, ...]
    title: str = ""
    """Empty: made from the targets; the next three likewise."""
    kind: Kind | None = None
    spec_id: str = ""
    request_id: str = ""
    project: Path | None = None
    """Where they are, if that is a folder below the one that is worked in; they are relative to it."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files and folders of the targets."""
        return tuple(dict.fromkeys(target.partition("::")[0] for target in self.targets))

    @property
    def slug(self) -> str:
        """A name that is the same for the same tests, in whatever order."""
        stem = re.sub(r"[^a-z0-9]+", "-", Path(self.targets[0].partition("::")[0]).stem.lower()).strip("-")
        digest = hashlib.sha256("\n".join(sorted(self.targets)).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        return f"green-{stem[:_STEM_CHARACTERS].strip('-') or 'tests'}-{digest}"

    def run_of(self, project: Path) -> Ticket:
        """Where the run on these tests is kept."""
        return Ticket(slug=self.slug, folder=private_folder(project) / "green" / self.slug)

    @property
    def ways(self) -> Ways:
        """How a person goes on with it."""
        named = "" if self.project is None else f" --project {_typed(self.project)}"
        typed = f"cdd{named} green {' '.join(map(shlex.quote, self.targets))}"
        return Ways(go_on=typed, anew=f"{typed} --anew", unit="run")

    def settled(self, report: SuiteReport, *, now: str, head: str) -> Request:
        """The request, once ``report`` shows that each target fails; raises ``UsageError`` for one that does not."""
        require_failing(self.targets, report)
        failures = failures_of(self.targets, report)
        are_missing = any(kind_inside(failure) in STRUCTURAL for failure in failures.values())
        identity = hashlib.sha256(f"{self.slug}/{head}/{now}".encode()).hexdigest()[:16]
        return Request(
            targets=self.targets,
            title=in_one_line(self.title) or title_of(tuple(failures)),
            kind=self.kind or ("feature" if are_missing else "bug"),
            spec_id=self.spec_id or self.slug,
            request_id=self.request_id or identity,
            failing=tuple(failures),
        )


def wanted_below(root: Path, targets: Sequence[str], *, here: Path | None = None) -> Wanted:
    """What ``wanted_in`` says; where ``root`` has no framework, in the folder nearest to the tests that has one.

    Raises ``UsageError`` for tests of two projects too.
    """
    located = wanted_in(root, targets, here=here)
    if has_framework(root):
        return Wanted(targets=located)
    found = list(projects_of(root, [target.partition("::")[0] for target in located]).items())
    if len(found) > 1:
        told = " and ".join(f"{file} to {_called(folder, root)}" for folder, file in found[:2])
        first = next(folder for folder, _ in found if folder != root)
        raise UsageError(
            f"The tests belong to different projects: {told}.\nNothing was touched.",
            hint=f"name those of one at a time: cdd --project {_typed(first)} green TEST...",
        )
    project = found[0][0]
    inside = "" if project == root else f"{project.relative_to(root).as_posix()}/"
    names = (f"{target}/".removeprefix(inside).removesuffix("/") or "." for target in located)
    return Wanted(targets=tuple(names), project=None if project == root else project)


def _called(folder: Path, root: Path) -> str:
    return f"{root}, which has no framework of its own" if folder == root else folder.relative_to(root).as_posix()


def _typed(folder: Path) -> str:
    return shlex.quote(os.path.relpath(folder))


def wanted_in(project: Path, targets: Sequence[str], *, here: Path | None = None) -> tuple[str, ...]:
    """``targets`` as the tests of the project are called; a path may also be relative to the folder ``here``.

    Raises ``UsageError`` for what is no test file or folder of the project, and for what would be taken as an option.
    """
    if not targets:
        raise UsageError("No test was named.", hint="name those that fail: cdd green tests/test_cart.py::test_total")
    if len(targets) > MOST_TARGETS:
        raise UsageError(f"{len(targets)} tests were named; {MOST_TARGETS} are allowed.", hint="name files or folders")
    return tuple(dict.fromkeys(_located(target, project=project, here=here) for target in targets))


def _located(target: str, *, project: Path, here: Path | None) -> str:
    """One target, its path relative to the project."""
    if target.startswith(("-", "@")) or "\n" in target or "\0" in target:
        raise UsageError(f"{target!r} names no test.", hint="name a file or a node id: tests/test_cart.py::test_total")
    path, colons, inside = target.partition("::")
    folders = dict.fromkeys((project, here or project))
    found = next((folder / path for folder in folders if path and (folder / path).exists()), None)
    if found is None:
        raise UsageError(f"There is no {path or 'file'} in {project}.", hint=_nearest(path, project))
    name = os.path.relpath(found, project)
    if name.startswith(os.pardir):
        raise UsageError(f"{path} lies outside the project {project}.", hint="name test files of the project")
    Workspace(project).relative(name)
    return f"{Path(name).as_posix()}{colons}{inside}"


def _nearest(path: str, project: Path) -> str:
    """What to type instead of a path that is not there."""
    folder = (project / path).parent
    known = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(Path(path).name, known, n=1)
    return f"did you mean {Path(path).with_name(near[0])}?" if near else "name a test file that is there"


def holds(target: str, nodeid: str) -> bool:
    """Whether ``target`` is the test or holds it; the project's folder holds all."""
    return target == "." or names(target, nodeid)


def failures_of(targets: Sequence[str], report: SuiteReport) -> Mapping[str, Failure]:
    """What of ``targets`` fails, or keeps them from being collected -> why."""
    found = {
        error.nodeid: error.failure
        for error in report.collect_errors
        if any(holds(target, error.nodeid) or names(error.nodeid, target) for target in targets)
    }
    for case in report.tests:
        if case.outcome in FAILING and case.failure and any(holds(target, case.nodeid) for target in targets):
            found[case.nodeid] = case.failure
    return found


def require_failing(targets: Sequence[str], report: SuiteReport) -> None:
    """Raise ``UsageError`` unless each of ``targets`` holds a test that fails."""
    if not report.structured:
        raise UsageError(
            f"{report.framework} tells no results of single tests, so that none can be named.",
            hint="name in .cdd/config.yaml what it runs: framework: NAME, or that command: test_command: COMMAND",
        )
    without = [target for target in targets if not failures_of((target,), report)]
    for target in without:
        if not any(holds(target, case.nodeid) for case in report.tests):
            known = [case.nodeid for case in report.tests] + list(failing(report))
            near = difflib.get_close_matches(target, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "name a test that is there, or the whole file"
            raise UsageError(f"{target} names no test that was run.", hint=hint)
    if without:
        raise _already_done(without, others=[target for target in targets if target not in without], report=report)


def _already_done(without: Sequence[str], *, others: Sequence[str], report: SuiteReport) -> UsageError:
    """The error for targets that do not fail."""
    more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
    ends = {case.outcome for case in report.tests if any(holds(target, case.nodeid) for target in without)}
    passes = "already passes" if len(without) == 1 else "already pass"
    told = passes if ends == {"passed"} else f"did not fail ({', '.join(sorted(ends))})"
    again = f"name only those that fail: cdd green {' '.join(map(shlex.quote, others))}"
    return UsageError(
        f"{', '.join(without[:_MOST_NAMED])}{more} {told}: GREEN is for tests that fail.\nNothing was touched.",
        hint=again if others else "write the test first, or change it so that it fails until the behavior is there",
    )


def title_of(failing: Sequence[str]) -> str:
    """What a commit that makes these tests pass is called."""
    if len(failing) == 1:
        return in_one_line(f"make {failing[0].rpartition('::')[2]} pass")
    files = list(dict.fromkeys(nodeid.partition("::")[0] for nodeid in failing))
    return in_one_line(f"make {len(failing)} tests" + (f" of {files[0]}" if len(files) == 1 else "") + " pass")


def keep(run: Ticket, request: Request) -> None:
    """Write the request down beside the run's state."""
    write_atomic(path_of(run), msgspec.json.encode(request))


def kept(run: Ticket) -> Request | None:
    """The request as it was written down; None if it cannot be read."""
    try:
        return msgspec.json.decode(read_ordinary(path_of(run), limit_bytes=LIMIT_BYTES), type=Request)
    except (OSError, msgspec.DecodeError, ValueError, RecursionError):
        return None


def path_of(run: Ticket) -> Path:
    """Where the request is written down."""
    return run.folder / "request.json"
