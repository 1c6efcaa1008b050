"""The landing of a phase: cdd brings its commit to the user's branch, unless a test breaks there."""

import os
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace

from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.events import Notice, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy, find_newly_passing
from cdd_agent.git import commits
from cdd_agent.git.landing import BranchMoved
from cdd_agent.git.repository import CommitId, Repository, has_ref
from cdd_agent.git.runner import GitError
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.tdd.baseline import Baseline
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.phase_commit import PhaseCommit
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import LANDED_ON_OTHERS, landed_head, load_report
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.work.state import RunState
from pytest_tdd_agent.report import list_failing

_MAX_MOVES = 5
"""How often the user's branch may move while a commit is judged."""
_MAX_BROKEN_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LandedPhase:
    """A commit is on the user's branch."""

    commit: CommitId


@dataclass(frozen=True, slots=True)
class Refused:
    """A hook of the user, or a test on the user's branch, refused a commit."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLanding:
    """Brings the commit of an accepted attempt to the user's branch and files."""

    commit: PhaseCommit
    baseline: Baseline
    state: RunState

    @property
    def _context(self) -> Context:
        return self.commit.context

    @property
    def _recovery(self) -> StepRecovery:
        return StepRecovery(self.commit.item.ticket, self.commit.step, context=self._context)

    def run(self) -> LandedPhase | Refused:
        """Commit the changes since the baseline, and land them.

        Without changes the policy decides between an empty commit and a second note on the step's last commit, if there
        is one. Landing again after a crash finds the commit that has landed.
        """
        context, commit = self._context, self.commit
        # Not the files as they are now: after the gate has judged them, somebody may have changed or deleted some.
        judged = self._recovery.read_snapshot(commit.attempt)
        changes = context.snapshots.list_changes_since(self.baseline.snapshot, until=judged)
        paths = tuple(each.path for each in changes)
        if not paths and not context.policy.allows_empty_commits and commit.step.commits:
            last = CommitId(list(commit.step.commits.values())[-1])
            commit.write_note(last)
            return LandedPhase(last)
        found, made = commit.find(), None
        try:
            if found is None:
                made = commit.make(paths, source=judged.commit)
                found = self._land(made)
        except commits.MessageRefused:
            # The attempt stays open: once the hook accepts the message, the same files are committed.
            context.workplace.restore_head(self.baseline.tip)
            raise
        except GateClosed as error:
            if made is None and not has_hooks(context.repository):
                raise
            return Refused(error.happened)
        commit.report(found)
        if made is not None:
            self._adopt_hook_changes(made, paths=paths)
        self._follow(found, made=made)
        return LandedPhase(found)

    def _land(self, made: CommitId) -> CommitId:
        """Bring ``made`` to the user's branch and files, and return the commit there.

        If that is another commit, because the branch has moved or the run took uncommitted changes along, tests run on
        it first; raises ``GateClosed`` if it breaks one, or if one fails that the attempt fixed. Raises
        ``LandingConflict`` if the user has to decide.
        """
        context, tip = self._context, self.baseline.tip
        report = load_report(self.commit.attempt, root=context.records.folder)
        fixed = find_newly_passing(report, baseline=self.baseline.report) if report is not None else ()
        for _ in range(_MAX_MOVES):
            require_branch(self.state, context=context)
            commit = context.workplace.adapt(made, tip=tip)
            if commit != made:
                require_tests(commit, fixed, recovery=self._recovery)
                broken = find_broken_tests(commit, fixed=fixed, context=context)
                if broken:
                    shown = ", ".join(broken[:_MAX_BROKEN_SHOWN])
                    happened = f"On your branch, without uncommitted changes, it breaks {shown}."
                    raise GateClosed(happened, hint="commit what it needs")
                require_branch(self.state, context=context)  # the tests took their time
            try:
                context.workplace.land(commit, made=made, tip=tip)
            except BranchMoved:
                continue
            return commit
        raise BranchMoved("Your branch keeps moving.", hint="run the same command again when it rests")

    def _adopt_hook_changes(self, made: CommitId, *, paths: tuple[str, ...]) -> None:
        """Update the attempt's snapshot with the changes that a commit hook made to ``paths``."""
        context, ref = self._context, self.commit.attempt.checkpoint or ""
        snapshot = context.snapshots.find(ref)
        if snapshot is None:
            return
        changed = [path for path in context.snapshots.list_differing_paths(made, snapshot) if path in paths]
        if not changed:
            return
        context.snapshots.restore(Snapshot(ref="HEAD", commit=made), only=changed)
        context.snapshots.take(ref, message="with the changes of a commit hook")
        self._forget_report()
        context.emit(Notice(text=f"A commit hook changed files after the gate had checked them: {', '.join(changed)}"))

    def _follow(self, landed: CommitId, *, made: CommitId | None) -> None:
        """Continue on what has landed; if the files are others then, the attempt's snapshot and report are too."""
        context = self._context
        tip = context.workplace.follow(landed, made=made, tip=self.baseline.tip)
        ref = self.commit.attempt.checkpoint if made != landed else None
        snapshot = context.snapshots.find(ref)
        if snapshot is not None and context.snapshots.list_changes_since(snapshot):
            context.snapshots.take(snapshot.ref, message="on the user's branch")
            self._forget_report()
        self._recovery.refs.save_tip(tip)

    def _forget_report(self) -> None:
        # The report is about other files now. Without it, the next phase runs the tests for its baseline.
        report = self._context.records.folder / (self.commit.attempt.report or "")
        if report.is_file():
            report.replace(report.with_suffix(LANDED_ON_OTHERS))


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
