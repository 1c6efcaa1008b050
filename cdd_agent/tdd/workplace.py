"""The place of a run's work, and the landing of its commits in the user's branch and files.

A run works in its own run tree. The commit on which it works there is the *tip*: the user's HEAD, or a commit on
top of it that holds uncommitted changes which the run took along. The files that an open gate accepts are committed on
the tip, applied to the user's HEAD, and landed in the user's files.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from cdd_agent.config.options import Choose
from cdd_agent.errors import EnvironmentMissing, UsageError, join_first
from cdd_agent.events import Emit, Notice
from cdd_agent.git.commits import CARRIED, commit_aside, commit_tree, list_own_uncommitted, list_pointers, reapply
from cdd_agent.git.ignored import INCLUDE_FILE, MOST_SHARED, IgnoredFiles, copy_ignored, format_inclusion
from cdd_agent.git.landing import BranchMoved, Choice, Landed, LandingConflict, Landings
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.git.run_tree import GitExport, Kept, RunTree, clear_way
from cdd_agent.sandbox.port import Result
from cdd_agent.tdd.ignored_files import read_ignored_values
from cdd_agent.testrun.missing_files import CopyPlaces, find_missing_files
from cdd_agent.untrusted.known_values import KnownValues
from cdd_agent.untrusted.paths import is_secret
from cdd_agent.work.state import lock_repository
from pytest_tdd_agent.report import Failure, SuiteReport

_CHOICES: tuple[tuple[Choice | None, str], ...] = (
    ("merge", "merge: write both versions into these files, with conflict marks"),
    ("mine", "mine: keep these files as they are; the commit lands without them in your files"),
    ("theirs", "theirs: replace these files by the run's, and lose my changes to them"),
    (None, "later: change nothing; the run's commit waits until the run continues"),
)
_SHOWN_PATHS = 5
_SHOWN_CHARACTERS = 2000
_RAISE_LIMITS = "To have copies: raise run_tree_copy_mb and run_tree_copy_files in .cdd/config.yaml"
_PATIENCE_S = 30.0
"""How long to wait for the landing of another run."""


@dataclass(kw_only=True)
class Workplace:
    """The run tree of one run, and the user's work tree in which its commits land."""

    user: Repository
    """The work tree of the user."""
    run_tree: RunTree
    landings: Landings
    export: GitExport | None
    """None: programs in the sandbox find the repository itself."""
    shown_git: Path
    """Where they find the export."""
    emit: Emit
    choose: Choose | None = None
    """Asks the user what to do about a conflict; None if nobody can be asked."""
    is_private: bool = False
    """Whether ``user`` is a work tree of cdd, whose changes the user need not know."""
    left_out: tuple[str, ...] = ()
    """Beginnings of paths of the user that never take part in a run."""
    can_mount: bool = False
    """Whether programs in the sandbox can read ``mounted``."""
    mounted: tuple[Path, ...] = ()
    """Ignored files and folders of the user that are too large to copy."""
    setup: Callable[[], Result] | None = None
    """Runs the user's command that prepares the files for tests."""
    kept: Kept | None = None
    """The limits for other run trees, until the first ``begin`` has applied them."""
    carries: bool = False
    """Whether the next ``begin`` takes uncommitted changes along."""
    prepared: CommitId | None = None
    """The tip whose files are ready, because nothing but tests has run in them: the next ``begin`` uses them again."""
    has_decided: bool = False
    """Whether the user has decided which ignored files runs get, so that the others are not named again."""
    project: str = ""
    """The project's folder in the work tree, with a slash at the end; empty for the top."""
    ignored: IgnoredFiles = field(default_factory=IgnoredFiles)
    """The ignored files of the user, by what became of them when the files were prepared."""
    _told: set[str] = field(default_factory=set)
    _provided: tuple[str, ...] = ()
    """Ignored files and folders of the user that are in the run tree, or mounted there."""
    _tip: CommitId | None = None
    _values: KnownValues | None = None
    _searched: set[int] = field(default_factory=set)
    """Hashes of the failures that ``explain_missing`` has searched."""

    @property
    def tree(self) -> Repository:
        """The run tree's repository."""
        return self.run_tree.repository

    def begin(self) -> CommitId:
        """Prepare the files of the user's HEAD, with uncommitted changes if ``carries``, and return the tip."""
        if self.kept is not None:
            self.run_tree.trees.prune(self.kept)
            self.kept = None
        tip, prepared = self._make_tip(carries=self.carries), self.prepared
        self.prepared = None
        if prepared is not None and self._read_content(tip) == self._read_content(prepared):
            self.restore_access()
            self.restore_head(prepared)
            self.run_tree.restore_files(prepared)
            return prepared
        self.resume(tip)
        return tip

    def _read_content(self, tip: CommitId) -> str:
        """Return tree and parents of ``tip``, without its date."""
        return self.user.objects.require(tip).text.partition("\nauthor ")[0]

    def resume(self, tip: CommitId) -> None:
        """Prepare the files of ``tip``, with what git ignores; raises ``EnvironmentMissing`` if the setup fails."""
        missing = self.run_tree.reset(tip)
        self._tell(
            "Empty in the run tree, because their commits are missing",
            missing,
            then="To have them: git submodule update",
        )
        self.ignored = ignored = self.copy_ignored(self.run_tree.root)
        self._tell(
            "Not in the run tree, because they hold secrets",
            ignored.secret,
            then=f"To have them: name them in {INCLUDE_FILE}",
        )
        others = tuple(group.describe() for group in ignored.others if group.paths[0].startswith(self.project))
        if not self.has_decided:
            line = format_inclusion(self.user, f"{self.project}PATH", project=self.project)
            why = "Not in the run tree, because git ignores them and no build made them"
            self._tell(why, others, then=f"If a test needs one, write its path for PATH: {line}")
        mounted = ignored.shared[:MOST_SHARED] if self.can_mount else ()
        self.mounted = tuple(self.user.root / path for path in mounted)
        self._provided, self._tip, self._values = (*ignored.copied, *mounted), tip, None
        self._tell("Read-only for programs, because they are too large to copy", mounted, then=_RAISE_LIMITS)
        left = ignored.shared[len(mounted) :]
        self._tell("Not in the run tree, because they are too large", left, then=_RAISE_LIMITS)
        pointers = set(list_pointers(self.tree)).difference(list_pointers(self.user))
        self._tell("Only pointers of Git LFS in the run tree", tuple(sorted(pointers)), then=_RAISE_LIMITS)
        if self.export is not None:
            self.export.update(self.tree, tip, branch=self.user.read_branch(), shown_at=self.shown_git)
        if self.setup is not None:
            self._set_up(tip, setup=self.setup)

    def copy_ignored(self, folder: Path) -> IgnoredFiles:
        """Copy the user's ignored files into ``folder``, which holds files of the repository."""
        return copy_ignored(self.user, folder, accepts=lambda path: not path.startswith(self.left_out))

    def read_values(self) -> KnownValues:
        """Return the values in files that the run tree holds and git does not track; they are read once."""
        if self._values is None:
            # The user's own files: a program may have changed the copies.
            self._values = read_ignored_values(self.user, self._provided)
            tip = self._tip
            if tip is not None and self._is_carrying(tip):
                parent = CommitId(self.user.objects.require(f"{tip}^").id)
                for change in self.user.list_changes(parent, tip):
                    if change.kind == "created" and is_secret(change.path):
                        self._values.add(change.path, self.user.objects.require(f"{tip}:{change.path}").data)
        return self._values

    def explain_missing(self, report: SuiteReport | None, *, output: str) -> Iterator[str]:
        """Yield a sentence for each file that a failing test names and that the run tree lacks, with what to do.

        Without a report, the ``output`` of the run may name one.
        """
        places = CopyPlaces(
            user=self.user.root,
            copy=self.run_tree.root,
            project=self.project,
            left_out=self.ignored.left_out,
            has_others=True,
        )
        new = report and self._select_new(report)
        for path, nodeid in find_missing_files(new, places, output=output).items():
            other = places.find_other(path)
            if other == "..":
                why = "is outside of your repository"
                remedy = "To let tests read it: copy it into the project, or install it as a package"
            elif other:
                why = f"belongs to {other}, another repository"
                remedy = "To have its files: make it a submodule, at a commit that is in your clone of it"
            else:
                why = "git ignores"
                remedy = f"To add it: {format_inclusion(self.user, path, project=self.project)}"
            yield f"{nodeid} fails and names {path}, which {why}, so the run tree does not have it. {remedy}"

    def _select_new(self, report: SuiteReport) -> SuiteReport:
        """Return a report with those failures that were not searched: hundreds can be the same in run after run."""
        left_out = tuple(self.ignored.left_out)

        def is_new(nodeid: str, failure: Failure | None) -> bool:
            key = hash((left_out, nodeid, failure))
            is_known = key in self._searched
            self._searched.add(key)
            return not is_known

        return replace(
            report,
            tests=tuple(case for case in report.tests if case.failure and is_new(case.nodeid, case.failure)),
            collect_errors=tuple(error for error in report.collect_errors if is_new(error.nodeid, error.failure)),
        )

    def _set_up(self, tip: CommitId, *, setup: Callable[[], Result]) -> None:
        self.emit(Notice(text="Preparing the run tree with worktree_setup."))
        ended = setup()
        self.restore_access()
        self.restore_head(tip)
        # It may write anywhere, but what is committed counts.
        self.run_tree.restore_files(tip)
        if ended.exit_status or ended.timed_out:
            for notice in self.explain_missing(None, output=ended.output):
                self.emit(Notice(text=notice))
            how = "did not end in time" if ended.timed_out else f"ended with {ended.exit_status}"
            raise EnvironmentMissing(
                f"worktree_setup {how}:\n{ended.output.strip()[-_SHOWN_CHARACTERS:]}",
                hint=f"see why: cd {self.run_tree.root}; then correct the command in .cdd/config.yaml",
            )

    def restore_access(self) -> None:
        """Give us access again to files whose permissions a program took away."""
        clear_way(self.run_tree.root)

    def restore_head(self, tip: CommitId) -> None:
        """Make ``tip`` HEAD again, and its content the index."""
        self.run_tree.restore_gitfile()
        if self.tree.read_head() != tip or self.tree.read_branch() is not None:
            target = resolve_revision(self.tree, tip)
            self.tree.git("update-ref", ("--no-deref",), "HEAD", target)
            self.tree.git("read-tree", target)

    def adapt(self, made: CommitId, *, tip: CommitId) -> CommitId:
        """Return ``made`` as a commit on the user's HEAD; raises ``LandingConflict`` if it does not fit there."""
        head, user = self.user.read_head(), self.user
        if head is None or head == tip:
            return made
        # The common ancestor must be the tip, so the user's files become a commit on it.
        tree = user.merge_trees(commit_tree(user, head, parent=tip, message="files of HEAD"), made)
        if tree is None:
            mine = {change.path for change in user.list_changes(tip, head)}
            both = [change.path for change in user.list_changes(tip, made) if change.path in mine]
            why = "the run changed lines of it that differ in your branch"
            conflict = LandingConflict(dict.fromkeys(both or ["a file"], why), commit=made)
            if not self._is_carrying(tip):  # all changes are in commits already
                conflict.hint = "restart on top of your commits: the same command with --retry or --anew"
            raise conflict
        return reapply(user, made, tree=tree, parent=head)

    def land(self, commit: CommitId, *, made: CommitId, tip: CommitId) -> None:
        """Make ``commit`` the user's HEAD, and bring its changes into the user's files.

        Raises ``LandingConflict`` or ``BranchMoved``; then nothing was changed.
        """
        parent = tip
        if commit != made:
            parent = CommitId(self.user.objects.require(f"{commit}^").id)
            if not self._is_carrying(tip):  # where the user moved a file, the commit changes it there
                tip, made = parent, commit
        land = partial(self.landings.land, commit, expected=parent, base=tip, result=made)
        try:
            with self._landing():
                landed = land()
        except LandingConflict as conflict:
            branch = self.user.read_branch()
            choice = self._ask(conflict)
            if choice is None:
                raise
            if self.user.read_branch() != branch:
                raise BranchMoved("HEAD is on another branch.", hint="run the same command again") from conflict
            with self._landing():
                landed = land(choices=dict.fromkeys(conflict.conflicts, choice))
        self._report(landed)

    def follow(self, commit: CommitId, *, made: CommitId | None, tip: CommitId) -> CommitId:
        """Return the next tip after ``commit`` has landed; ``made`` is None if it is lost.

        The files change only if HEAD had moved or changes were taken along.
        """
        if commit == made:
            return commit
        tip = self._make_tip(carries=self._is_carrying(tip))
        self.resume(tip)
        return tip

    def take_back(self, commit: CommitId, *, base: CommitId) -> None:
        """Return the user's HEAD and files from ``commit`` to ``base``."""
        with self._landing():
            self._report(self.landings.land(base, expected=commit, base=commit, result=base))

    def finish(self) -> None:
        """Finish a landing that was killed."""
        if self.landings.is_pending():
            with self._landing():
                landed = self.landings.finish()
            if landed is not None:
                self._report(landed)

    def _is_carrying(self, tip: CommitId) -> bool:
        return self.user.objects.require(tip).subject == CARRIED

    def _ask(self, conflict: LandingConflict) -> Choice | None:
        """Ask what to do; None: nothing for now."""
        if self.choose is None:
            return None
        number = self.choose(conflict.happened, tuple(text for _, text in _CHOICES))
        return _CHOICES[number][0]

    def _make_tip(self, *, carries: bool) -> CommitId:
        head, changed = _require_head(self.user), list_own_uncommitted(self.user) if carries else ()
        paths = [path for path in changed if not path.startswith(self.left_out)]
        return commit_aside(self.user, paths, parent=head, message=CARRIED) if paths else head

    @contextlib.contextmanager
    def _landing(self) -> Iterator[None]:
        """Lock the repository; another run may be landing, which does not take long."""
        with lock_repository(self.user.location.common_dir, wait_s=_PATIENCE_S):
            yield

    def _report(self, landed: Landed) -> None:
        parts = (
            _name(landed.updated, "changed {}"),
            _name(landed.merged, "merged its changes of {} with yours, which stay uncommitted"),
            _name(landed.kept, "left {} as you saved them in that moment, without the run's changes"),
        )
        if (said := "; ".join(filter(None, parts))) and not self.is_private:
            branch = self.user.read_branch() or ""
            place = "the fork" if branch.startswith("fork/") else "your work tree"
            self.emit(Notice(text=f"In {place}, cdd {said}."))

    def _tell(self, why: str, paths: tuple[str, ...], *, then: str) -> None:
        if paths and why not in self._told:
            self._told.add(why)
            self.emit(Notice(text=f"{why}: {join_first(paths, most=_SHOWN_PATHS)}. {then}."))


def _require_head(repository: Repository) -> CommitId:
    head = repository.read_head()
    if head is None:
        raise UsageError("This repository has no commits.", hint="make one: git commit --allow-empty -m start")
    return head


def _name(paths: tuple[str, ...], what: str) -> str:
    return what.format(join_first(paths, most=_SHOWN_PATHS)) if paths else ""
