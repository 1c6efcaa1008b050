"""The landing of a phase: its commit comes to the user's branch, if the tests pass there."""

import os
import shlex
from collections.abc import Collection
from dataclasses import replace

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git import commits
from cdd_agent.git.repository import CommitId, Repository, has_ref
from cdd_agent.git.runner import GitError
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import landed_head
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.work.state import RunState
from pytest_tdd_agent.report import list_failing


def has_hooks(repository: Repository) -> bool:
    """Return whether git hooks can refuse a commit."""
    if not repository.may_run_hooks():
        return False
    folder = repository.root / repository.git("rev-parse", ("--git-path",), "hooks", hooks=True).strip()
    return any(os.access(folder / name, os.X_OK) for name in ("pre-commit", "prepare-commit-msg", "commit-msg"))


def require_branch(state: RunState, *, context: Context) -> None:
    """Raise ``UsageError`` if the user works on another branch than when the run began."""
    repository, wanted = context.repository, state.branch
    branch = repository.read_branch()
    if wanted is not None and branch != wanted:
        commits.require_finished(repository)  # a rebase detaches HEAD
        act = f"git switch {shlex.quote(wanted)}"
        if not has_ref(repository.location, f"refs/heads/{wanted}"):
            act = f"git switch -c {shlex.quote(wanted)}"
            if branch is not None and _was_renamed(repository, wanted, now=branch):
                act = f"give it the old name until the run has ended: git branch -m {shlex.quote(wanted)}"
        raise UsageError(
            f"HEAD is on {branch or 'no branch'}, but the run began on {wanted}. Nothing was changed.",
            hint=f"{act}, then run the same command again: cdd continues with this commit",
        )


def _was_renamed(repository: Repository, name: str, *, now: str) -> bool:
    """Return whether the branch ``now`` had this name before, as git notes it."""
    try:
        notes = repository.git("log", ("-g", "--format=%gs"), f"refs/heads/{now}", ("--",))
    except GitError:  # it has no commits
        return False
    return any(line.startswith(f"Branch: renamed refs/heads/{name} to ") for line in notes.splitlines())


def require_tests(commit: CommitId, tests: Collection[str], *, recovery: StepRecovery) -> None:
    """Raise ``UsageError`` if ``commit`` lacks a file of ``tests`` that had been committed, so nothing checks it."""
    context, committed = recovery.context, landed_head(recovery.step) or commit
    find = context.repository.objects.find_entry
    for path in dict.fromkeys(context.to_repository_path(test.partition("::")[0]) for test in tests):
        if find(committed, path) and not find(commit, path):
            restart = context.restart_command(recovery.step)
            raise UsageError(
                f"{path} is no longer on your branch, so no test can check there what the run has changed.\n"
                "Nothing was changed.",
                hint=f"restore it: git checkout {committed[:10]} -- {path}, commit it, and run the same command "
                f"again; or restart: {restart}",
            )


def find_broken_tests(commit: CommitId, *, fixed: Collection[str] = (), context: Context) -> tuple[str, ...]:
    """Return the tests that pass on the parent of ``commit`` and not on ``commit``.

    Each runs in a clean copy with the user's ignored files. The tests that the attempt ``fixed`` must pass on
    ``commit`` too, unless they are only in uncommitted files.
    """
    repository = context.workplace.tree
    passing: list[set[str]] = []
    failing: tuple[str, ...] = ()
    parent = repository.objects.require(f"{commit}^").id
    for name, tree in (("your branch", parent), ("the commit on your branch", commit)):
        with clean_copy(repository, context.suite, green=tree, red=tree) as copy:
            inside = context.suite.root.resolve().relative_to(repository.root.resolve()).parts
            context.workplace.copy_ignored((copy.root, *copy.root.parents)[len(inside)])
            run = _run_copy(copy, f"all tests of {name}", context=context)
        if run.report is None:
            raise EnvironmentMissing(
                f"The tests cannot be run on {name}: {run.problem}.", hint="make them pass there, then try again"
            )
        passing.append({case.nodeid for case in run.report.tests if case.outcome == "passed"})
        failing = list_failing(run.report)  # at the end those of the commit
    # A file that cannot be collected contains the tests in it.
    missed = {test for test in fixed if any(is_or_contains(each, test) for each in failing)}
    return tuple(sorted((passing[0] - passing[1]) | missed))


def _run_copy(copy: Suite, purpose: str, *, context: Context) -> SuiteRun:
    """Run all tests of a copy, unless an earlier run saw the same files."""
    scene = context.store.describe(copy, ())
    run = context.store.find(scene) if scene is not None else None
    if run is None:
        context.emit(SuiteStarted(purpose=purpose, targets=(), framework=copy.conventions.framework))
        if isinstance(copy, PytestSuite) and copy.original is not None:  # else the plugin asks git itself
            ignored = Repository(find_top(copy.root.resolve())).list_ignored_in(copy.root)
            copy = replace(copy, original=replace(copy.original, list_ignored=lambda: ignored))
        run = context.store.run(scene, copy, keep=None, purpose=purpose)
    context.emit(run.as_event(purpose, framework=copy.conventions.framework))
    return run
