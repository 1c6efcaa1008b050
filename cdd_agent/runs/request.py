"""The request of GREEN on its own: the tests to pass, checked before anything is done."""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec

from cdd_agent.errors import UsageError, join_first, suggest
from cdd_agent.runs.places import locate_run
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd.context import Kind, ResumeCommands, WorkItem
from cdd_agent.tdd.instructions import describe_ticket
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.testrun.project import has_framework, map_projects
from cdd_agent.tickets import spec as specs
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.untrusted.text import format_line
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.failure import STRUCTURAL, find_effective_kind
from pytest_tdd_agent.report import FAILING, Failure, SuiteReport, list_failing

LIMIT_BYTES = 100_000
MAX_TARGETS = 200
MAX_GOAL_CHARACTERS = 16_000
_MAX_TARGETS_SHOWN = 5
_STEM_CHARACTERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenRequest:
    """The task of a run, as saved before its first iteration."""

    targets: tuple[str, ...]
    """Node ids, files or folders, relative to the project."""
    title: str
    """The commit's subject without its prefix."""
    kind: Kind
    """``feature`` if code is missing, ``bug`` if it is wrong."""
    spec_id: str
    request_id: str
    failing: tuple[str, ...]
    """Node ids of the targets that failed before the first iteration; files that could not be collected."""
    goal: str = ""
    """The purpose of the tests in the user's words and those of a ticket."""
    criteria: tuple[tuple[str, str], ...] = ()
    """Id and text of each acceptance criterion."""

    @property
    def test_files(self) -> tuple[str, ...]:
        """The files of the failing tests."""
        return tuple(dict.fromkeys(nodeid.partition("::")[0] for nodeid in self.failing))

    @property
    def tests(self) -> tuple[str, ...]:
        """The targets, each folder replaced by its files with failing tests: GREEN locks these, not the folder."""
        names: list[str] = []
        for target in self.targets:
            inside = [file for file in self.test_files if contains(target, file)]
            names += inside if inside and target not in self.test_files and "::" not in target else [target]
        return tuple(dict.fromkeys(names))

    def _format_goal(self) -> str:
        """Return goal, criteria and order for the model."""
        criteria = "\n".join(f"- {name}: {text}" for name, text in self.criteria)
        return "\n\n".join(
            text
            for text in (
                self.goal.strip(),
                criteria and f"Acceptance criteria:\n{criteria}",
                "Make the tests pass in the order in which they are listed." if len(self.targets) > 1 else "",
            )
            if text
        )

    def make_item(self, slug: str) -> WorkItem:
        """Return the work item of the run ``slug``."""
        return WorkItem(
            ticket=slug,
            number=1,
            title=self.title,
            goal=self._format_goal(),
            criteria=self.criteria,
            kind=self.kind,
            phases=("green",),
            tests=self.tests,
            sources=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The tests that a user names, and the options of the command."""

    targets: tuple[str, ...]
    title: str = ""
    """Empty: derived from the targets; so are the next three."""
    kind: Kind | None = None
    spec_id: str = ""
    request_id: str = ""
    goal: str = ""
    """The purpose of the tests, for the model."""
    criteria: tuple[tuple[str, str], ...] = ()
    """Id and text of each acceptance criterion."""
    project: Path | None = None
    """The folder below the current project to which the targets are relative, if there is one."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files and folders of the targets."""
        return tuple(dict.fromkeys(target.partition("::")[0] for target in self.targets))

    @property
    def slug(self) -> str:
        """A name that is the same for the same tests in any order."""
        stem = re.sub(r"[^a-z0-9]+", "-", Path(self.targets[0].partition("::")[0]).stem.lower()).strip("-")
        digest = hashlib.sha256("\n".join(sorted(self.targets)).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        return f"green-{stem[:_STEM_CHARACTERS].strip('-') or 'tests'}-{digest}"

    @property
    def commands(self) -> ResumeCommands:
        """The commands that continue an interrupted run."""
        option = "" if self.project is None else f" --project {_quote(self.project)}"
        command = f"cdd{option} green {' '.join(map(shlex.quote, self.targets))}"
        return ResumeCommands(resume=command, restart=f"{command} --anew", unit="run")

    def find_run(self, project: Path) -> Ticket:
        """Return the folder of the run on these tests."""
        return locate_run(project, self.slug)

    def make_request(self, report: SuiteReport, *, now: str, head: str) -> GreenRequest:
        """Return the request if each target fails in ``report``; raises ``UsageError`` otherwise."""
        require_failing(self.targets, report)
        failures = find_failures(self.targets, report)
        is_missing = any(find_effective_kind(failure) in STRUCTURAL for failure in failures.values())
        identity = hashlib.sha256(f"{self.slug}/{head}/{now}".encode()).hexdigest()[:16]
        return GreenRequest(
            targets=self.targets,
            title=format_line(self.title) or make_title(tuple(failures)),
            kind=self.kind or ("feature" if is_missing else "bug"),
            spec_id=self.spec_id or self.slug,
            request_id=self.request_id or identity,
            failing=tuple(failures),
            goal=self.goal,
            criteria=self.criteria,
        )


def describe_purpose(
    root: Path, wanted: Wanted, *, spec: str = "", goal: str = "", criteria: Sequence[str] = ()
) -> Wanted:
    """Return ``wanted`` with the user's words, and those of the ticket ``spec`` of the project at ``root``.

    Raises ``UsageError`` or ``DocumentError`` if the ticket cannot be read.
    """
    about = specs.load(find(root, spec).spec_path) if spec else specs.Spec()
    known = {criterion.id: criterion.text for criterion in about.acceptance_criteria}
    free = (f"AC-{number}" for number in count(1) if f"AC-{number}" not in known)
    known |= {next(free): text for each in criteria if (text := format_line(each))}
    words = (goal.strip(), about.title, describe_ticket(about).strip())
    return replace(
        wanted,
        spec_id=wanted.spec_id or spec,
        goal="\n\n".join(text for text in words if text)[:MAX_GOAL_CHARACTERS],
        criteria=tuple(known.items()),
    )


def resolve_targets(root: Path, targets: Sequence[str], *, here: Path | None = None) -> Wanted:
    """Return the targets relative to ``root``, or to the nearest folder with a framework if ``root`` has none.

    Raises ``UsageError`` as ``resolve_in_project`` does, and for tests of two projects.
    """
    located = resolve_in_project(root, targets, here=here)
    if has_framework(root):
        return Wanted(targets=located)
    found = list(map_projects(root, [target.partition("::")[0] for target in located]).items())
    if len(found) > 1:
        names = [
            f"{file} to "
            + (f"{root}, which has no framework" if folder == root else folder.relative_to(root).as_posix())
            for folder, file in found[:2]
        ]
        first = next(folder for folder, _ in found if folder != root)
        happened = f"The tests belong to different projects: {' and '.join(names)}.\nNothing was touched."
        raise UsageError(happened, hint=f"run one project at a time: cdd --project {_quote(first)} green TEST...")
    project = found[0][0]
    inside = "" if project == root else f"{project.relative_to(root).as_posix()}/"
    relative = (f"{target}/".removeprefix(inside).removesuffix("/") or "." for target in located)
    return Wanted(targets=tuple(relative), project=None if project == root else project)


def _quote(folder: Path) -> str:
    return shlex.quote(os.path.relpath(folder))


def resolve_in_project(project: Path, targets: Sequence[str], *, here: Path | None = None) -> tuple[str, ...]:
    """Return ``targets`` relative to the project; a path may also start in ``here``. ``UsageError`` if outside."""
    if not targets:
        raise UsageError("No test is named.", hint="name the failing tests: cdd green tests/test_cart.py::test_total")
    if len(targets) > MAX_TARGETS:
        raise UsageError(f"{len(targets)} tests are named; the limit is {MAX_TARGETS}.", hint="name files or folders")
    return tuple(dict.fromkeys(_resolve_target(target, project=project, here=here) for target in targets))


def _resolve_target(target: str, *, project: Path, here: Path | None) -> str:
    if target.startswith(("-", "@")) or "\n" in target or "\0" in target:
        hint = "name a file or a node id: tests/test_cart.py::test_total"
        raise UsageError(f"{target!r} does not name a test.", hint=hint)
    path, colons, inside = target.partition("::")
    folders = dict.fromkeys((project, here or project))
    found = next((folder / path for folder in folders if path and (folder / path).exists()), None)
    if found is None:
        folder = (project / path).parent
        known = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        nearest = suggest(Path(path).name, known)
        hint = f"did you mean {Path(path).with_name(nearest)}?" if nearest else "name an existing test file"
        raise UsageError(f"There is no {path or 'file'} in {project}.", hint=hint)
    name = os.path.relpath(found, project)
    if name.startswith(os.pardir):
        raise UsageError(f"{path} is outside the project {project}.", hint="name test files of the project")
    Workspace(project).resolve(name)
    return f"{Path(name).as_posix()}{colons}{inside}"


def contains(target: str, nodeid: str) -> bool:
    """Return whether ``target`` is the test or contains it; the project's folder contains all tests."""
    return target == "." or is_or_contains(target, nodeid)


def find_failures(targets: Sequence[str], report: SuiteReport) -> Mapping[str, Failure]:
    """Return node id -> failure for the tests of ``targets``, and for files that could not be collected."""
    found = {
        error.nodeid: error.failure
        for error in report.collect_errors
        if any(contains(target, error.nodeid) or is_or_contains(error.nodeid, target) for target in targets)
    }
    for case in report.tests:
        if case.outcome in FAILING and case.failure and any(contains(target, case.nodeid) for target in targets):
            found[case.nodeid] = case.failure
    return found


def require_failing(targets: Sequence[str], report: SuiteReport) -> None:
    """Raise ``UsageError`` unless each of ``targets`` contains a failing test."""
    if not report.structured:
        hint = "set the framework or its command in .cdd/config.yaml: framework: NAME, or test_command: COMMAND"
        raise UsageError(f"{report.framework} does not report single tests, so that none can be named.", hint=hint)
    passing = [target for target in targets if not find_failures((target,), report)]
    if not passing:
        return
    for target in passing:
        for case in report.tests:
            if case.reason and (contains(target, case.nodeid) or is_or_contains(case.nodeid, target)):
                happened = f"{target} did not run: {case.nodeid} skipped itself as a whole ({case.reason})."
                raise UsageError(f"{happened}\nNothing was touched.", hint="provide what it needs, or remove the skip")
        if not any(contains(target, case.nodeid) for case in report.tests):
            known = [case.nodeid for case in report.tests] + list(list_failing(report))
            otherwise = "name an existing test, or the whole file"
            hint = suggest(target, known, text="did you mean {}?", otherwise=otherwise, cutoff=0.5)
            raise UsageError(f"{target} does not match a test that was run.", hint=hint)
    shown = join_first(passing, most=_MAX_TARGETS_SHOWN)
    outcomes = {case.outcome for case in report.tests if any(contains(target, case.nodeid) for target in passing)}
    is_one = len(passing) == 1
    result = f"already {'passes' if is_one else 'pass'}"
    if outcomes != {"passed"}:
        result = f"did not fail ({', '.join(sorted(outcomes))})"
    others = [target for target in targets if target not in passing]
    only = f"name only the failing tests: cdd green {' '.join(map(shlex.quote, others))}"
    raise UsageError(
        f"{shown} {result}; GREEN needs failing tests.\nNothing was touched.",
        hint=only if others else "write a test that fails until the behavior is implemented",
    )


def make_title(failing: Sequence[str]) -> str:
    """Return the subject of a commit that makes these tests pass."""
    if len(failing) == 1:
        return format_line(f"make {failing[0].rpartition('::')[2]} pass")
    files = list(dict.fromkeys(nodeid.partition("::")[0] for nodeid in failing))
    return format_line(f"make {len(failing)} tests" + (f" of {files[0]}" if len(files) == 1 else "") + " pass")


def request_path(run: Ticket) -> Path:
    """Return the path of the saved request."""
    return run.folder / "request.json"


def save(run: Ticket, request: GreenRequest) -> None:
    """Save the request beside the run's state."""
    write_atomic(request_path(run), msgspec.json.encode(request))


def load(run: Ticket) -> GreenRequest | None:
    """Return the saved request, or None if it cannot be read."""
    try:
        return msgspec.json.decode(read_ordinary(request_path(run), limit_bytes=LIMIT_BYTES), type=GreenRequest)
    except (OSError, msgspec.DecodeError, ValueError, RecursionError):
        return None
