"""What a run of GREEN came to, gathered from its state, its reports and its commit."""

import ast
from collections.abc import Iterator

from cdd_agent.git.repository import Repository
from cdd_agent.guarded.keys import mask
from cdd_agent.tdd.attempt import attempts_at, gave_up
from cdd_agent.tdd.landing import is_partial
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import StepExecution
from cdd_agent.workflows.green.artifact import (
    ChangedFiles,
    Component,
    Detail,
    GreenArtifact,
    Results,
    Scope,
    Status,
    all_pass,
)
from cdd_agent.workflows.green.request import Request, holds
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import Failure, SuiteReport

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


def artifact_of(request: Request, step: StepExecution, *, why: str | None, bench: Workbench) -> GreenArtifact:
    """The artifact of a run that has ended; ``why`` is None if all tests it was for pass."""
    attempts = attempts_at("green", step)
    report = _last_report(step, bench=bench)
    results = results_of(report)
    commit = step.commits.get("green")
    is_kept_in_part = bool(attempts) and is_partial(attempts[-1])
    is_blocked = commit is None and bool(attempts) and gave_up(attempts[-1])
    changed = ChangedFiles() if commit is None else files_of(bench.repository, step.base_commit, commit=commit)
    return GreenArtifact(
        spec_id=request.spec_id,
        request_id=request.request_id,
        targets=request.targets,
        test_files=request.test_files,
        outcome="partial" if is_kept_in_part else "green" if why is None else "blocked" if is_blocked else "failed",
        implementation_files=changed,
        components=tuple(components_of(bench.repository, changed, before=step.base_commit, after=commit or "")),
        commit=commit,
        iterations=len(attempts),
        scope=_scope(request, report, has_landed=commit is not None, bench=bench),
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


def _last_report(step: StepExecution, *, bench: Workbench) -> SuiteReport | None:
    """The report of the last run that judged an iteration, else the baseline."""
    root = bench.repository.root
    paths = [root / attempt.report for attempt in step.attempts if attempt.report]
    baseline = [root / step.baseline] if step.baseline else []
    for path in (*reversed(paths), *baseline):
        try:
            return load(path)
        except ReportError:
            continue
    return None


def _scope(request: Request, report: SuiteReport | None, *, has_landed: bool, bench: Workbench) -> Scope:
    """Which tests a report is about; what is not committed may have been refused by its targets alone."""
    told = [case.nodeid for case in report.tests] if report else []
    only_targets = all(any(holds(target, nodeid) for target in request.targets) for nodeid in told)
    if bench.policy.targets_first and only_targets and not has_landed:
        return "targets"
    return "target_files" if bench.policy.gate_runs else "all"


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
