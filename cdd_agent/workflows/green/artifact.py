"""The artifact of GREEN on its own: what was made, and what the tests said last. Read and written as JSON.

What a run of GREEN came to, gathered from its state, its reports and its commit.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeAlias

import msgspec

from cdd_agent.errors import DocumentError, GateClosed, Problem
from cdd_agent.git.repository import Repository
from cdd_agent.tdd.attempt import attempts_at, gave_up
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.cycle import is_partial
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import StepExecution
from cdd_agent.work.state_file import writable
from cdd_agent.workflows.green.request import Request, holds
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.failure import KINDS
from pytest_tdd_agent.report import Failure, SuiteReport

LIMIT_BYTES = 50_000_000

Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Scope: TypeAlias = Literal["all", "target_files", "targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """What the commit holds, relative to the work tree; empty if everything was taken back."""

    created: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One test of the last run, or a file that could not be collected."""

    name: str
    """Its node id."""
    status: Status
    message: str = ""
    """Why it did not pass."""
    kind: str | None = None
    """One of ``pytest_tdd_agent.failure.KINDS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The last run of tests that judged an iteration; before the first one, the run that showed them failing."""

    passed: Count
    failed: Count
    errors: Count
    skipped: Count
    """Expected failures too."""
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
    """What one run of GREEN came to."""

    v: Literal[1] = 1
    spec_id: str
    request_id: str
    targets: tuple[str, ...]
    """The tests that were to pass."""
    test_files: tuple[str, ...]
    """The files they are in."""
    outcome: Literal["green", "partial", "failed", "blocked"]
    """All targets pass; some do and that is kept; all is taken back; the model gave up and all is taken back."""
    implementation_files: ChangedFiles
    components: tuple[Component, ...]
    commit: str | None
    iterations: Count
    scope: Scope
    """Which tests the last run ran: all, those in the files of the targets, or the targets alone."""
    test_results: Results
    passing_tests: Count
    all_tests_pass: bool
    """Whether it is green, nothing of the last run failed, and something passed."""
    error: str | None = None
    """Why it is not green."""

    def require_green(self, again: str) -> None:
        """Raise ``GateClosed`` unless all targets pass; ``again`` is the command that tries once more."""
        if self.error is None:
            return
        if self.outcome == "blocked":
            raise GateClosed(f"{self.error}.", hint=f"change the tests, or what stands in the way, then: {again}")
        left = "what fails still can be tried again by name" if self.outcome == "partial" else f"try again: {again}"
        raise GateClosed(f"{self.error}.", hint=left)


def problems(artifact: GreenArtifact) -> Iterator[str]:
    """What in an artifact contradicts itself."""
    results = artifact.test_results
    counts: Counter[str] = Counter(detail.status for detail in results.test_details)
    told = {"passed": results.passed, "failed": results.failed, "error": results.errors, "skipped": results.skipped}
    for status, number in told.items():
        if counts[status] != number:
            yield f"test_results says {number} {status}, test_details has {counts[status]}"
    if results.total != len(results.test_details):
        yield f"test_results.total is {results.total}, test_details has {len(results.test_details)}"
    if artifact.passing_tests != results.passed:
        yield f"passing_tests is {artifact.passing_tests}, test_results.passed is {results.passed}"
    if artifact.all_tests_pass != (artifact.outcome == "green" and all_pass(results)):
        yield f"all_tests_pass is {artifact.all_tests_pass}, which outcome and test_results contradict"
    if (artifact.outcome == "green") != (artifact.error is None):
        yield f"the outcome is {artifact.outcome} and the error is {artifact.error!r:.80}"
    if (artifact.commit is not None) != (artifact.outcome in ("green", "partial")):
        yield f"the outcome is {artifact.outcome} and the commit is {artifact.commit}"
    yield from _odd_values(artifact)


def _odd_values(artifact: GreenArtifact) -> Iterator[str]:
    """Values that this program would not have written."""
    if not artifact.targets or not artifact.spec_id or not artifact.request_id:
        yield "targets, spec_id and request_id have to say something"
    for detail in artifact.test_results.test_details:
        if detail.kind is not None and detail.kind not in KINDS:
            yield f"{detail.name} has the kind {detail.kind!r:.40}, which is none"
        if detail.kind is not None and detail.status in ("passed", "skipped"):
            yield f"{detail.name} is {detail.status} and has the kind of a failure"
    files = artifact.implementation_files
    for path in (*files.created, *files.edited, *files.deleted, *artifact.test_files):
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            yield f"{path!r:.80} is no path in the project"


def all_pass(results: Results) -> bool:
    """Whether nothing failed and something passed."""
    return not (results.failed or results.errors) and results.passed > 0


def encode(artifact: GreenArtifact) -> bytes:
    """``artifact`` as indented JSON; text that UTF-8 cannot hold is escaped."""
    return msgspec.json.format(encode_line(artifact), indent=2) + b"\n"


def encode_line(artifact: GreenArtifact) -> bytes:
    """``artifact`` as JSON on one line; raises ``ValueError`` for one that contradicts itself."""
    found = list(problems(artifact))
    if found:
        raise ValueError("; ".join(found))
    return msgspec.json.encode(writable(msgspec.to_builtins(artifact)))


def encode_event(artifact: GreenArtifact) -> bytes:
    """``artifact`` as a program is told it, among events: JSON on one line."""
    return msgspec.json.encode({"event": "GreenArtifact", "artifact": msgspec.Raw(encode_line(artifact))})


def decode(data: bytes, *, path: str) -> GreenArtifact:
    """The artifact in ``data``; ``DocumentError`` with all that is wrong with it."""
    try:
        documents.check_json(data.decode("utf-8"), limit_bytes=LIMIT_BYTES)
        artifact = msgspec.json.decode(data, type=GreenArtifact)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DocumentError(path, (Problem(line=0, message=str(error)),), hint=_HINT) from error
    found = tuple(Problem(line=0, message=problem) for problem in problems(artifact))
    if found:
        raise DocumentError(path, found, hint=_HINT)
    return artifact


_HINT = "see the form: cdd schema green-artifact"


def schema() -> bytes:
    """The JSON Schema of an artifact."""
    made = msgspec.json.schema(GreenArtifact)
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cdd green-artifact"}
    return msgspec.json.format(msgspec.json.encode(about | made), indent=2) + b"\n"


MESSAGE_CAP = 500
"""Characters of what a test says that are kept."""

_STATUSES: dict[str, Status] = {
    "passed": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "error": "error",
    "skipped": "skipped",
    "xfailed": "skipped",
}
"""Outcome of a test -> how the artifact counts it."""


def artifact_of(request: Request, step: StepExecution, *, why: str | None, context: Context) -> GreenArtifact:
    """The artifact of a run that has ended; ``why`` is None if all tests it was for pass."""
    attempts = attempts_at("green", step)
    report = _last_report(step, context=context)
    results = results_of(report)
    commit = step.commits.get("green")
    is_kept_in_part = bool(attempts) and is_partial(attempts[-1])
    is_blocked = commit is None and bool(attempts) and gave_up(attempts[-1])
    changed = ChangedFiles() if commit is None else files_of(context.repository, step.base_commit, commit=commit)
    return GreenArtifact(
        spec_id=request.spec_id,
        request_id=request.request_id,
        targets=request.targets,
        test_files=request.test_files,
        outcome="partial" if is_kept_in_part else "green" if why is None else "blocked" if is_blocked else "failed",
        implementation_files=changed,
        components=tuple(components_of(context.repository, changed, before=step.base_commit, after=commit or "")),
        commit=commit,
        iterations=len(attempts),
        scope=_scope(request, report, has_landed=commit is not None, context=context),
        test_results=results,
        passing_tests=results.passed,
        all_tests_pass=why is None and all_pass(results),
        error=why,
    )


def results_of(report: SuiteReport | None) -> Results:
    """A report as the artifact has it, each test in the order in which it ran; nothing if it is lost."""
    details: list[Detail] = []
    for case in report.tests if report else ():
        status = _STATUSES[case.outcome]
        details.append(_detail(case.nodeid, status, failure=case.failure if status in ("failed", "error") else None))
    for error in report.collect_errors if report else ():
        details.append(_detail(error.nodeid, "error", failure=error.failure))
    counts = {status: sum(detail.status == status for detail in details) for status in _STATUSES.values()}
    return Results(
        passed=counts["passed"],
        failed=counts["failed"],
        errors=counts["error"],
        skipped=counts["skipped"],
        total=len(details),
        test_details=tuple(details),
    )


def _detail(name: str, status: Status, *, failure: Failure | None = None) -> Detail:
    if failure is None:
        return Detail(name=name, status=status)
    message = mask(failure.message).text[:MESSAGE_CAP]
    return Detail(name=name, status=status, message=message, kind=failure.kind)


def _last_report(step: StepExecution, *, context: Context) -> SuiteReport | None:
    """The report of the last run that judged an iteration, else the baseline."""
    root = context.repository.root
    paths = [root / attempt.report for attempt in step.attempts if attempt.report]
    baseline = [root / step.baseline] if step.baseline else []
    for path in (*reversed(paths), *baseline):
        try:
            return load(path)
        except ReportError:
            continue
    return None


def _scope(request: Request, report: SuiteReport | None, *, has_landed: bool, context: Context) -> Scope:
    """Which tests a report is about; what is not committed may have been refused by its targets alone."""
    told = [case.nodeid for case in report.tests] if report else []
    only_targets = all(any(holds(target, nodeid) for target in request.targets) for nodeid in told)
    if context.policy.targets_first and only_targets and not has_landed:
        return "targets"
    return "target_files" if context.policy.gate_runs else "all"


def files_of(repository: Repository, base: str | None, *, commit: str) -> ChangedFiles:
    """What a commit changed."""
    changes = repository.changes(base, commit) if base else ()
    return ChangedFiles(
        created=tuple(change.path for change in changes if change.kind == "created"),
        edited=tuple(change.path for change in changes if change.kind == "modified"),
        deleted=tuple(change.path for change in changes if change.kind == "deleted"),
    )


def components_of(
    repository: Repository, changed: ChangedFiles, *, before: str | None, after: str
) -> Iterator[Component]:
    """The classes and functions of modules that a commit adds."""
    for path in (*changed.created, *changed.edited):
        if not path.endswith(".py"):
            continue
        known = _defined(repository, before, path=path) if before and path in changed.edited else {}
        for name, kind in _defined(repository, after, path=path).items():
            if name not in known:
                yield Component(name=name, file_path=path, type="class" if kind is ast.ClassDef else "function")


def _defined(repository: Repository, commit: str, *, path: str) -> dict[str, type[ast.stmt]]:
    """The names that a module defines at its top, in order."""
    try:
        tree = ast.parse(repository.git("cat-file", "blob", f"{commit}:{path}"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: type(node) for node in tree.body if isinstance(node, kinds)}
