"""The artifact of GREEN on its own: the changes and the last test results, as JSON.

It is made from the run's state, its reports and its commit, and checked for contradictions before it is written.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from cdd_agent.errors import GateClosed
from cdd_agent.git.repository import Repository
from cdd_agent.tdd.attempt import has_given_up, list_attempts
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.cycle import is_partial
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import StepExecution
from cdd_agent.workflows.green.request import GreenRequest, contains
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.failure import KINDS
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
        raise GateClosed(f"{self.error}.", hint=hint)


def find_contradictions(artifact: GreenArtifact) -> Iterator[str]:
    """Yield a sentence for each contradiction in an artifact, and for each value that cdd does not write."""
    results = artifact.test_results
    counts: Counter[str] = Counter(detail.status for detail in results.test_details)
    totals = {"passed": results.passed, "failed": results.failed, "error": results.errors, "skipped": results.skipped}
    for status, number in totals.items():
        if counts[status] != number:
            yield f"test_results says {number} {status}, but test_details has {counts[status]}"
    if results.total != len(results.test_details):
        yield f"test_results.total is {results.total}, but test_details has {len(results.test_details)}"
    if artifact.passing_tests != results.passed:
        yield f"passing_tests is {artifact.passing_tests}, but test_results.passed is {results.passed}"
    if artifact.all_tests_pass != (artifact.outcome == "green" and has_only_passed(results)):
        yield f"all_tests_pass is {artifact.all_tests_pass}, which contradicts outcome and test_results"
    if (artifact.outcome == "green") != (artifact.error is None):
        yield f"the outcome is {artifact.outcome}, but the error is {artifact.error!r:.80}"
    if (artifact.commit is not None) != (artifact.outcome in ("green", "partial")):
        yield f"the outcome is {artifact.outcome}, but the commit is {artifact.commit}"
    yield from _find_odd_values(artifact)


def _find_odd_values(artifact: GreenArtifact) -> Iterator[str]:
    if not artifact.targets or not artifact.spec_id or not artifact.request_id:
        yield "targets, spec_id and request_id must not be empty"
    for detail in artifact.test_results.test_details:
        if detail.kind is not None and detail.kind not in KINDS:
            yield f"{detail.name} has the unknown kind {detail.kind!r:.40}"
        if detail.kind is not None and detail.status in ("passed", "skipped"):
            yield f"{detail.name} is {detail.status}, but has the kind of a failure"
    files = artifact.implementation_files
    for path in (*files.created, *files.edited, *files.deleted, *artifact.test_files):
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            yield f"{path!r:.80} is not a path in the project"


def has_only_passed(results: Results) -> bool:
    """Return whether no test failed and at least one passed."""
    return not (results.failed or results.errors) and results.passed > 0


def encode(artifact: GreenArtifact) -> bytes:
    """Return ``artifact`` as indented JSON; text that UTF-8 cannot encode is escaped."""
    return msgspec.json.format(encode_line(artifact), indent=2) + b"\n"


def encode_line(artifact: GreenArtifact) -> bytes:
    """Return ``artifact`` as JSON on one line; raises ``ValueError`` if it contradicts itself."""
    found = list(find_contradictions(artifact))
    if found:
        raise ValueError("; ".join(found))
    return encode_json(artifact)


def encode_event(artifact: GreenArtifact) -> bytes:
    """Return ``artifact`` as one line of the event stream."""
    return msgspec.json.encode({"event": "GreenArtifact", "artifact": msgspec.Raw(encode_line(artifact))})


_STATUSES: dict[str, Status] = {
    **{status: status for status in get_args(Status)},
    "xpassed": "passed",
    "xfailed": "skipped",
}
"""pytest's outcome -> status in the artifact."""


def make_artifact(request: GreenRequest, step: StepExecution, *, why: str | None, context: Context) -> GreenArtifact:
    """Return the artifact of a run that has ended; ``why`` is None if all targets pass."""
    attempts = list_attempts("green", step)
    report = _load_last_report(step, root=context.repository.root)
    results = make_results(report)
    commit = step.commits.get("green")
    outcome: Literal["green", "partial", "failed", "blocked"] = "green" if why is None else "failed"
    if attempts and is_partial(attempts[-1]):
        outcome = "partial"
    elif why is not None and commit is None and attempts and has_given_up(attempts[-1]):
        outcome = "blocked"
    changed = ChangedFiles() if commit is None else list_files(context.repository, step.base_commit, commit=commit)
    nodeids = [case.nodeid for case in report.tests] if report else []
    has_only_targets = all(any(contains(target, nodeid) for target in request.targets) for nodeid in nodeids)
    scope: Scope = "target_files" if context.policy.gate_runs else "all"
    if context.policy.targets_first and has_only_targets and commit is None:
        scope = "targets"  # the run ended after the targets failed
    return GreenArtifact(
        spec_id=request.spec_id,
        request_id=request.request_id,
        targets=request.targets,
        test_files=request.test_files,
        outcome=outcome,
        implementation_files=changed,
        components=tuple(find_components(context.repository, changed, before=step.base_commit, after=commit or "")),
        commit=commit,
        iterations=len(attempts),
        scope=scope,
        test_results=results,
        passing_tests=results.passed,
        all_tests_pass=why is None and has_only_passed(results),
        error=why,
    )


def make_results(report: SuiteReport | None) -> Results:
    """Return the results in the order of the run; empty if the report is lost."""
    details: list[Detail] = []
    for case in report.tests if report else ():
        status = _STATUSES[case.outcome]
        failure = case.failure if status in ("failed", "error") else None
        details.append(_make_detail(case.nodeid, status, failure=failure))
    for error in report.collect_errors if report else ():
        details.append(_make_detail(error.nodeid, "error", failure=error.failure))
    counts = Counter(detail.status for detail in details)
    return Results(
        passed=counts["passed"],
        failed=counts["failed"],
        errors=counts["error"],
        skipped=counts["skipped"],
        total=len(details),
        test_details=tuple(details),
    )


def _make_detail(name: str, status: Status, *, failure: Failure | None) -> Detail:
    if failure is None:
        return Detail(name=name, status=status)
    message = mask(failure.message).text[:MAX_MESSAGE_CHARACTERS]
    return Detail(name=name, status=status, message=message, kind=failure.kind)


def _load_last_report(step: StepExecution, *, root: Path) -> SuiteReport | None:
    paths = [attempt.report for attempt in reversed(step.attempts) if attempt.report]
    for path in (*paths, *([step.baseline] if step.baseline else [])):
        try:
            return load(root / path)
        except ReportError:
            continue
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
    try:
        tree = ast.parse(repository.git("cat-file", "blob", f"{commit}:{path}"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: type(node) for node in tree.body if isinstance(node, kinds)}
