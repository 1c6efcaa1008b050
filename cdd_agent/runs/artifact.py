"""The artifact of GREEN on its own: the changes and the last test results, as JSON.

It is made from the run's state, its reports and its commit.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from cdd_agent.errors import GateClosed
from cdd_agent.evidence.source import list_definitions
from cdd_agent.git.repository import Repository
from cdd_agent.runs.request import GreenRequest, contains
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.phase_task import has_given_up, list_attempts
from cdd_agent.tdd.step import LANDED_ON_OTHERS
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.python_source import decode, parse
from cdd_agent.work.outcome import Partial
from cdd_agent.work.state import StepExecution
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import Failure, SuiteReport

MAX_MESSAGE_CHARACTERS = 500
"""Of a test's failure."""

Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Scope: TypeAlias = Literal["all", "target_files", "targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """The files of the commit, relative to the work tree; empty if the work was rolled back."""

    created: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A test of the last run, or a file that could not be collected."""

    name: str
    """Node id."""
    status: Status
    message: str = ""
    """The failure, if it did not pass."""
    kind: str | None = None
    """One of ``pytest_tdd_agent.failure.KINDS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The last test run that judged an iteration, or the run before the first one."""

    passed: Count
    failed: Count
    errors: Count
    skipped: Count
    """Including expected failures."""
    total: Count
    test_details: tuple[Detail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A class or function that the commit adds to a module."""

    name: str
    file_path: str
    type: Literal["class", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenArtifact:
    """The result of one run of GREEN."""

    v: Literal[1] = 1
    spec_id: str
    request_id: str
    targets: tuple[str, ...]
    """The tests to pass."""
    test_files: tuple[str, ...]
    """Their files."""
    outcome: Literal["green", "partial", "failed", "blocked"]
    """All targets pass; some pass and are committed; rolled back; rolled back because the model gave up."""
    implementation_files: ChangedFiles
    components: tuple[Component, ...]
    commit: str | None
    iterations: Count
    scope: Scope
    """The tests of the last run: all, those in the files of the targets, or the targets alone."""
    test_results: Results
    passing_tests: Count
    all_tests_pass: bool
    """The outcome is green, no test of the last run failed, and at least one passed."""
    error: str | None = None
    """The reason if the outcome is not green."""

    def require_green(self, again: str) -> None:
        """Raise ``GateClosed`` unless all targets pass; ``again`` is the command for another try."""
        if self.error is None:
            return
        hint = f"try again: {again}"
        if self.outcome == "blocked":
            hint = f"change the tests, or what blocks the work, then: {again}"
        elif self.outcome == "partial":
            hint = "run cdd green again with the tests that still fail"
        raise GateClosed(f"{self.error.rstrip('.')}.", hint=hint)


def encode(artifact: GreenArtifact) -> bytes:
    """Return ``artifact`` as indented JSON; text that UTF-8 cannot encode is escaped."""
    return msgspec.json.format(encode_json(artifact), indent=2) + b"\n"


def encode_event(artifact: GreenArtifact) -> bytes:
    """Return ``artifact`` as one line of the event stream."""
    return msgspec.json.encode({"event": "GreenArtifact", "artifact": msgspec.Raw(encode_json(artifact))})


_STATUSES: dict[str, Status] = {
    **{status: status for status in get_args(Status)},
    "xpassed": "passed",
    "xfailed": "skipped",
}
"""pytest's outcome -> status in the artifact."""


def make_artifact(request: GreenRequest, step: StepExecution, *, why: str | None, context: Context) -> GreenArtifact:
    """Return the artifact of a run that has ended; ``why`` is None if all targets pass."""
    attempts = list_attempts("green", step)
    report = _load_last_report(step, root=context.records.folder)
    results = make_results(report)
    commit = step.commits.get("green")
    outcome: Literal["green", "partial", "failed", "blocked"] = "green" if why is None else "failed"
    if attempts and isinstance(attempts[-1].outcome, Partial):
        outcome = "partial"
    elif why is not None and commit is None and attempts and has_given_up(attempts[-1]):
        outcome = "blocked"
    # Not the commit that the run began with: other work may have landed on the branch meanwhile.
    before = context.repository.objects.require(f"{commit}^").id if commit and step.base_commit else None
    changed = ChangedFiles() if commit is None else list_files(context.repository, before, commit=commit)
    has_others = [
        any(not any(contains(target, case.nodeid) for target in request.targets) for case in each.tests)
        for each in (report, _load(step.baseline, root=context.records.folder))
        if each is not None
    ]
    scope: Scope = "target_files" if context.policy.gate_runs else "all"
    if context.policy.targets_first and has_others == [False, True]:
        scope = "targets"  # the run ended after the targets failed
    return GreenArtifact(
        spec_id=request.spec_id,
        request_id=request.request_id,
        targets=request.targets,
        test_files=request.test_files,
        outcome=outcome,
        implementation_files=changed,
        components=tuple(find_components(context.repository, changed, before=before, after=commit or "")),
        commit=commit,
        iterations=len(attempts),
        scope=scope,
        test_results=results,
        passing_tests=results.passed,
        all_tests_pass=why is None and results.passed > 0 and not (results.failed or results.errors),
        error=why,
    )


def make_results(report: SuiteReport | None) -> Results:
    """Return the results in the order of the run; empty if the report is lost."""
    found = [(case.nodeid, _STATUSES[case.outcome], case.failure) for case in report.tests] if report else []
    found += [(error.nodeid, "error", error.failure) for error in report.collect_errors] if report else []
    details = tuple(_make_detail(name, status, failure=failure) for name, status, failure in found)
    counts = Counter(detail.status for detail in details)
    return Results(
        passed=counts["passed"],
        failed=counts["failed"],
        errors=counts["error"],
        skipped=counts["skipped"],
        total=len(details),
        test_details=details,
    )


def _make_detail(name: str, status: Status, *, failure: Failure | None) -> Detail:
    if failure is None or status not in ("failed", "error"):
        return Detail(name=name, status=status)
    message = mask(failure.message).text[:MAX_MESSAGE_CHARACTERS]
    return Detail(name=name, status=status, message=message, kind=failure.kind)


def _load_last_report(step: StepExecution, *, root: Path) -> SuiteReport | None:
    judged = [Path(each.report) for each in reversed(step.attempts) if each.report]
    paths = [str(path) for report in judged for path in (report, report.with_suffix(LANDED_ON_OTHERS))]
    reports = (_load(path, root=root) for path in (*paths, step.baseline))
    return next((report for report in reports if report is not None), None)


def _load(path: str | None, *, root: Path) -> SuiteReport | None:
    with suppress(ReportError):
        return load(root / path) if path else None
    return None


def list_files(repository: Repository, base: str | None, *, commit: str) -> ChangedFiles:
    """Return the files that a commit changed."""
    changes = repository.list_changes(base, commit) if base else ()
    return ChangedFiles(
        created=tuple(change.path for change in changes if change.kind == "created"),
        edited=tuple(change.path for change in changes if change.kind == "modified"),
        deleted=tuple(change.path for change in changes if change.kind == "deleted"),
    )


def find_components(
    repository: Repository, changed: ChangedFiles, *, before: str | None, after: str
) -> Iterator[Component]:
    """Yield the classes and functions that a commit adds at the top of modules."""
    for path in (*changed.created, *changed.edited):
        if not path.endswith(".py"):
            continue
        known = _find_definitions(repository, before, path=path) if before and path in changed.edited else {}
        for name, kind in _find_definitions(repository, after, path=path).items():
            if name not in known:
                yield Component(name=name, file_path=path, type="class" if kind is ast.ClassDef else "function")


def _find_definitions(repository: Repository, commit: str, *, path: str) -> dict[str, type[ast.stmt]]:
    tree = parse(decode(repository.objects.require(f"{commit}:{path}").data))
    return {node.name: type(node) for node in list_definitions(tree)}
