"""Forks: second attempts at a step, each on a separate branch and in a separate work tree.

A fork's work tree is a run tree below ``.cdd/worktrees``, which has a branch and is never pruned. In it, the project
has its own records, tickets and state, so that a run works there as it does in the user's own files.

``forks.json`` lists the forks of all projects of a repository. A fork counts as merged if merging it would change
nothing.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from cdd_agent.errors import UsageError, join_first
from cdd_agent.events import Change
from cdd_agent.git.commits import (
    commit_aside,
    commit_merge,
    list_own_uncommitted,
    list_pointers,
    require_finished,
    require_identity,
)
from cdd_agent.git.hardening import list_disabled_drivers
from cdd_agent.git.ignored import INCLUDE_FILE, copy_ignored
from cdd_agent.git.landing import Favor, Landed, Landings, merge_entries
from cdd_agent.git.repository import SUBMODULE, CommitId, Entry, Repository, has_ref, name_submodule
from cdd_agent.git.run_tree import SUBMODULES, RunTrees
from cdd_agent.git.runner import GitRefused, GitUnable, RepositoryLocation
from cdd_agent.storage import exclusive_lock, load_record, private_folder, read_ordinary, write_atomic
from cdd_agent.untrusted.text import shorten
from cdd_agent.work.records import Records, find_records
from cdd_agent.work.state import lock_repository

Status: TypeAlias = Literal["active", "merged", "abandoned"]

ABANDONED = "refs/cdd/abandoned"
_FILE = "forks.json"
_MOST_BYTES = 10_000_000
_PATIENCE_S = 30.0
_MOST_WORDS = 30
"""Characters of the direction that the name holds."""
_MOST_SUBJECT = 65
_SHOWN = 10
_MARK = b"<<<<<<< "
_TEXT_MODES = ("100644", "100755")


_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z", max_length=200)]
"""As ``make_name`` makes it. It becomes part of paths that are removed, and of refs."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """One fork."""

    name: _Name
    project: str = ""
    """The place of the project's records among those of the repository."""
    ticket: str
    step: int
    direction: str
    """What to do differently."""
    base: str
    """The commit before the step."""
    parent: str
    """The branch that it was made from."""
    session: str = ""
    """The session in it that continues the conversations about the ticket."""
    tokens: int = 0
    cost_usd: float | None = None
    """The usage of the ticket when the fork was made."""
    is_current: bool = False
    """The plan of its ticket is carried out in it."""
    is_abandoned: bool = False
    is_merging: bool = False
    """A merge was begun; its ticket may not have taken over the steps yet."""

    @property
    def branch(self) -> str:
        """Its branch."""
        return f"fork/{self.name}"

    @property
    def kept(self) -> str:
        """The ref that keeps its work after it was dropped."""
        return f"{ABANDONED}/{self.name}"


class ForkFile(msgspec.Struct, kw_only=True):
    """The content of ``forks.json``."""

    schema: int = 2
    forks: list[Fork] = []

    def switch(self, name: str | None, *, project: str, ticket: str) -> None:
        """Carry out the plan of a project's ticket in the fork ``name``, or in the user's own branch."""
        for at, fork in enumerate(self.forks):
            if (fork.project, fork.ticket) == (project, ticket):
                self.forks[at] = msgspec.structs.replace(fork, is_current=fork.name == name)

    def change(self, fork: Fork, **fields: str | bool) -> None:
        """Change some fields of the fork that has the name of ``fork``."""
        changed = msgspec.structs.replace
        self.forks = [changed(each, **fields) if each.name == fork.name else each for each in self.forks]


class _EarlierForkFile(msgspec.Struct, kw_only=True):
    """The list of the forks of one project, as an earlier version kept it in ``.cdd``."""

    schema: int = 1
    forks: list[Fork] = []
    current: dict[str, str] = {}
    """Ticket -> name of the fork in which its plan is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The changes and conflicts of a merge."""

    fork: Fork
    branch: str
    """The user's."""
    head: CommitId
    tip: CommitId
    """The last commit of the fork."""
    tree: str
    """The merged files, with conflict marks if there are conflicts."""
    conflicts: tuple[str, ...]
    subjects: tuple[str, ...]
    """The commits that the user's branch lacks."""
    changes: tuple[Change, ...]
    """Of the user's files."""


def make_name(direction: str, time: str) -> str:
    """Return the name of a fork that is made at ``time``.

    >>> make_name("Use a dict!", "2026-11-25T22:45:01Z")
    '20261125-224501-use-a-dict'
    """
    words = re.sub(r"[^a-z0-9]+", "-", direction.lower())[:_MOST_WORDS].strip("-")
    digits = "".join(filter(str.isdigit, time))
    return "-".join(filter(None, (digits[:8], digits[8:14], words)))


def find_home(root: Path) -> Path:
    """Return the project in whose fork ``root`` is, or ``root`` itself outside of forks."""
    for folder in root.parents:
        if folder.name == "worktrees" and folder.parent.name == ".cdd":
            name = root.relative_to(folder).parts[0].removeprefix("fork-")
            project = folder.parent.parent
            if any(fork.name == name for fork in _read(locate_forks(find_records(project))).forks):
                return project
    return root


def locate_forks(records: Records) -> Path:
    """Return the path of the list of a repository's forks."""
    return records.repository / _FILE


def _read(path: Path) -> ForkFile:
    return load_record(path, empty=ForkFile(), limit_bytes=_MOST_BYTES)


class Forks:
    """The forks of one project."""

    def __init__(self, project: Path, *, read_included: Callable[[], bytes] = bytes) -> None:
        """``project`` is the user's folder, which may be below the top of the work tree.

        ``read_included`` returns the approved patterns of ignored files, as in ``Repository``.
        """
        self.project = project.resolve()
        self.read_included = read_included
        self._folder = self.project / ".cdd" / "worktrees"

    @cached_property
    def _records(self) -> Records:
        return find_records(self.project)

    @property
    def _path(self) -> Path:
        return locate_forks(self._records)

    @cached_property
    def repository(self) -> Repository:
        """The work tree of the user."""
        repository = Repository.find(self.project)
        repository.read_included = self.read_included
        return repository

    @cached_property
    def _trees(self) -> RunTrees:
        return RunTrees(self.repository, self._folder)

    def list_all(self) -> tuple[Fork, ...]:
        """Return all forks of the project, oldest first."""
        return tuple(fork for fork in _read(self._path).forks if fork.project == self._records.place)

    def find(self, word: str) -> Fork:
        """Return the fork whose name, or a part of it, is ``word``. Raises ``UsageError``."""
        word = word.removeprefix("fork/")
        known = self.list_all()
        found = [fork for fork in known if fork.name == word] or [fork for fork in known if word in fork.name]
        if len(found) > 1:  # abandoned forks are rarely meant
            found = [fork for fork in found if not fork.is_abandoned] or found
        if len(found) != 1:
            names = join_first([fork.name for fork in found or known], most=_SHOWN)
            happened = f"{word!r} is part of several names of forks." if found else f"There is no fork {word!r}."
            hint = f"name one of: {names}" if names else "make one: cdd fork SLUG DIRECTION"
            raise UsageError(happened, hint=hint)
        return found[0]

    def find_current(self, ticket: str) -> Fork | None:
        """Return the fork in which the plan of ``ticket`` is carried out; None: in the user's own branch."""
        own = (fork for fork in self.list_all() if fork.ticket == ticket)
        return next((fork for fork in own if fork.is_current and not fork.is_abandoned), None)

    def find_around(self, folder: Path) -> Fork | None:
        """Return the fork that contains ``folder``."""
        return next((fork for fork in self.list_all() if folder.is_relative_to(self.locate(fork))), None)

    def switch(self, ticket: str, fork: Fork | None) -> None:
        """Carry out the plan of ``ticket`` in ``fork`` from now on, or in the user's own branch."""
        if fork is not None:
            self.open(fork)
        with self._changing() as file:
            file.switch(None if fork is None else fork.name, project=self._records.place, ticket=ticket)

    def record_merge(self, fork: Fork, *, is_begun: bool, has_landed: bool = False) -> None:
        """Record that a merge begins or ends; once it has landed, the ticket is carried out in the user's branch."""
        with self._changing() as file:
            file.change(fork, is_merging=is_begun, **({"is_current": False} if has_landed else {}))

    def locate(self, fork: Fork) -> Path:
        """Return the top level of a fork's work tree."""
        return self._folder / f"fork-{fork.name}"

    def find_records(self, fork: Fork) -> Records:
        """Return where the records of a fork lie, even if its work tree is gone."""
        return self._records.in_tree(self.locate(fork).name)

    def find_project(self, fork: Fork) -> Path:
        """Return the project's folder in a fork's work tree."""
        return self.locate(fork) / self.project.relative_to(self.repository.root.resolve())

    def enter(self, fork: Fork) -> Path:
        """Return the project's folder in a fork; raises ``UsageError`` if a run cannot work in it."""
        self.open(fork)
        return self.find_project(fork)

    def create(self, fork: Fork) -> tuple[str, ...]:
        """Make the branch and the work tree of a new fork; return what the user should know about its files."""
        if has_ref(self.repository.location, f"refs/heads/{fork.branch}"):
            raise UsageError(f"The branch {fork.branch} exists already.", hint="wait a second, or use other words")
        private_folder(self.project)
        with self._changing() as file:
            # First, so that what a kill leaves can be dropped.
            file.forks.append(msgspec.structs.replace(fork, project=self._records.place))
        self.repository.git("update-ref", f"refs/heads/{fork.branch}", fork.base, "")  # "": it must not be there yet
        tree = self._trees.tree(self.locate(fork).name)
        missing = tree.reset(CommitId(fork.base))
        self._trees.lock(self.locate(fork).name, why=f"cdd: the fork {fork.name}")
        tree.repository.git("symbolic-ref", "HEAD", f"refs/heads/{fork.branch}")
        ignored = copy_ignored(self.repository, tree.root)
        pointers = set(list_pointers(tree.repository)).difference(list_pointers(self.repository))
        found: tuple[tuple[str, Iterable[str]], ...] = (
            ("Empty in the fork, because their commits are missing (git submodule update)", missing),
            ("Not in the fork, because they hold secrets", ignored.secret),
            (f"Not in the fork, because {INCLUDE_FILE} does not name them", [g.describe() for g in ignored.others]),
            ("Not in the fork, because they are too large", ignored.shared),
            ("Only pointers of Git LFS in the fork (git lfs pull)", sorted(pointers)),
            ("No commit of the fork can hold changes in submodules", tree.repository.list_submodules()),
            ("Your uncommitted changes are not in the fork", list_own_uncommitted(self.repository)),
        )
        return tuple(f"{why}: {join_first(tuple(paths), most=_SHOWN)}." for why, paths in found if paths)

    def adopt(self, path: Path) -> None:
        """Take over the forks from the list of an earlier version, and remove it. Raises ``UsageError``."""
        found = load_record(path, empty=_EarlierForkFile(), limit_bytes=_MOST_BYTES)
        with self._changing() as file:
            known, place, change = {fork.name for fork in file.forks}, self._records.place, msgspec.structs.replace
            for fork in found.forks:
                if fork.name not in known:
                    is_current = found.current.get(fork.ticket) == fork.name
                    file.forks.append(change(fork, project=place, is_current=is_current))
        path.unlink(missing_ok=True)

    def record_session(self, fork: Fork, session: str) -> None:
        """Record which session continues the conversations."""
        with self._changing() as file:
            file.change(fork, session=session)

    def open(self, fork: Fork) -> Repository:
        """Return the repository of a fork's work tree; raises ``UsageError`` if a run cannot work in it."""
        root, tree = self.locate(fork), self._find_tree(fork)
        self._require_branch(fork)
        if tree is None:
            hint = f"bring its files back: git worktree add -ff {root} {fork.branch}; or: cdd fork drop {fork.name}"
            raise UsageError(
                f"The folder of the fork {fork.name} is gone; its commits are on {fork.branch}.", hint=hint
            )
        branch = tree.read_branch()
        if branch != fork.branch:
            where = f"on {branch}" if branch else "on no branch"
            hint = f"git -C {root} switch {fork.branch}"
            raise UsageError(f"The work tree of the fork {fork.name} is {where}, not on {fork.branch}.", hint=hint)
        return tree

    def move(self, fork: Fork, tip: CommitId) -> None:
        """Make ``tip`` the last commit of a fork, with its files; files that git does not track stay."""
        self.open(fork)
        self._trees.tree(self.locate(fork).name).restore_files(tip)
        self.repository.git("update-ref", f"refs/heads/{fork.branch}", tip)

    def _find_tree(self, fork: Fork) -> Repository | None:
        """Return the repository of a fork's work tree; None if its folder is gone."""
        root = self.locate(fork)
        return self._trees.open(root.name) if root.is_dir() and self._trees.has(root.name) else None

    def list_changed(self, fork: Fork) -> tuple[str, ...]:
        """Return the uncommitted files of a fork; none if its folder is gone."""
        tree = self._find_tree(fork)
        return () if tree is None else list_own_uncommitted(tree)

    def read_tip(self, fork: Fork) -> CommitId:
        """Return the last commit of a fork. Raises ``UsageError``."""
        self._require_branch(fork)
        return CommitId(self.repository.objects.require(f"refs/heads/{fork.branch}^{{commit}}").id)

    def count_commits(self, fork: Fork) -> int:
        """Return the number of commits since a fork was made. Raises ``UsageError``."""
        return len(self.repository.git("rev-list", f"{fork.base}..{self.read_tip(fork)}").splitlines())

    def find_statuses(self, forks: Iterable[Fork]) -> dict[str, Status]:
        """Return name -> status of forks, as seen from the user's HEAD."""
        statuses: dict[str, Status] = {}
        head = self.repository.read_head()
        for fork in forks:
            statuses[fork.name] = "abandoned" if fork.is_abandoned else "active"
            tip = self.repository.read_ref(fork.kept if fork.is_abandoned else f"refs/heads/{fork.branch}")
            if head and tip and tip != fork.base and self.is_merged(tip, head):
                statuses[fork.name] = "merged"
        return statuses

    def is_merged(self, tip: CommitId, head: CommitId) -> bool:
        """Return whether merging ``tip`` into ``head`` changes no file."""
        tree, conflicts = self._merge(head, tip)
        return not conflicts and tree == self.repository.objects.require(f"{head}^{{tree}}").id

    def plan_merge(self, fork: Fork) -> MergePlan:
        """Return what a merge into the user's branch would do. Changes nothing but an unfinished merge in the fork."""
        repository, branch = self.repository, self.repository.read_branch()
        head = repository.read_head()
        if branch is None or head is None:
            raise UsageError("HEAD is on no branch, and a merge moves a branch.", hint="git switch BRANCH, then again")
        require_finished(repository)
        self._finish_resolving(fork)
        if changed := self.list_changed(fork):
            root = self.locate(fork)
            raise UsageError(
                f"The fork {fork.name} has uncommitted changes: {join_first(changed, most=_SHOWN)}.",
                hint=f"commit them: git -C {root} add -A && git -C {root} commit; or: git -C {root} stash",
            )
        tip = self.read_tip(fork)
        tree, conflicts = self._merge(head, tip)
        self._require_drivers(fork, conflicts)
        log = repository.git("log", ("--format=%h %s",), f"{head}..{tip}").splitlines()
        return MergePlan(
            fork=fork,
            branch=branch,
            head=head,
            tip=tip,
            tree=tree,
            conflicts=tuple(conflicts),
            subjects=tuple(log),
            changes=() if conflicts else repository.list_changes(head, tree),
        )

    def merge(self, plan: MergePlan) -> Landed:
        """Land a merge without conflicts in the user's branch and files.

        Raises ``LandingConflict`` if the user has changed a file that would change; then nothing happens.
        """
        repository, commit = self.repository, plan.tip
        # A merge into the fork, to resolve conflicts, has the fork's commits first; in the user's branch, its own are.
        if not repository.is_ancestor(plan.head, of=plan.fork.base):
            require_identity(repository)
            subject = shorten(plan.fork.direction, _MOST_SUBJECT)
            message = f"merge: {subject}\n\nFork: {plan.fork.name}\nTicket: {plan.fork.ticket}\n"
            commit = commit_merge(repository, message, tree=plan.tree, parents=(plan.head, plan.tip))
        with lock_repository(repository.location.common_dir, wait_s=_PATIENCE_S):
            return self._landings.land(commit, expected=plan.head, base=plan.head, result=commit)

    @property
    def _landings(self) -> Landings:
        files = private_folder(self.project) / "landing"
        return Landings(self.repository, self._records.landing, files=files, merges=False)

    def has_landed(self, fork: Fork) -> bool:
        """Return whether the user's branch has the commits of a fork, after a landing that was killed is finished."""
        with lock_repository(self.repository.location.common_dir, wait_s=_PATIENCE_S):
            self._landings.finish()
        tip = self.repository.read_ref(f"refs/heads/{fork.branch}")
        return tip is not None and self.repository.is_ancestor(tip, of="HEAD")

    def settle(self, plan: MergePlan, favor: Favor) -> MergePlan:
        """Return the plan of a merge in which one side counts where both changed the same lines.

        Raises ``UsageError`` if that is not enough, because one side has deleted a file. It touches no file, so a kill
        leaves nothing behind.
        """
        repository = self.repository
        tree, conflicts = self._merge(plan.head, plan.tip)
        attributes = repository.read_attribute("merge", conflicts)
        is_text = {path: attributes[path] not in ("unset", "binary") for path in conflicts}
        taken = {path: self._take_side(each, favor, is_text=is_text[path]) for path, each in conflicts.items()}
        if unmerged := [path for path, entry in taken.items() if entry is None]:
            raise UsageError(
                f"One side has deleted or renamed {join_first(unmerged, most=_SHOWN)}, so no side can be taken.",
                hint=f"resolve it by hand: cdd fork merge {plan.fork.name} --resolve",
            )
        merged = repository.edit_tree(tree, taken)
        changes = repository.list_changes(plan.head, merged)
        return replace(plan, tree=merged, conflicts=(), changes=changes)

    def _take_side(self, stages: Mapping[str, Entry], favor: Favor, *, is_text: bool) -> Entry | None:
        """Return a merged file in which the lines of one side count; None if one side has no file there."""
        base, ours, theirs = map(stages.get, ("1", "2", "3"))
        if ours is None or theirs is None or SUBMODULE in (ours.mode, theirs.mode):
            return None
        side = ours if favor == "ours" else theirs
        if not is_text or any(each is not None and each.mode not in _TEXT_MODES for each in (base, ours, theirs)):
            return side
        return merge_entries(self.repository, base=base, ours=ours, theirs=theirs, favor=favor)[0] or side

    def resolve(self, plan: MergePlan) -> tuple[str, ...]:
        """Merge the user's branch into the fork, in its work tree; return the files to be resolved there by hand."""
        tree = self.open(plan.fork)
        message = f"merge: {plan.branch} into {plan.fork.branch}"
        try:
            tree.git("merge", ("--quiet", "--no-ff", "-m"), message, plan.head)
        except GitRefused:
            if unmerged := _list_unmerged(tree):
                self._label_marks(plan, tree)
                return unmerged
            raise
        return ()

    def _label_marks(self, plan: MergePlan, tree: Repository) -> None:
        """Write the names of both branches into the conflict marks, in place of ``HEAD`` and a commit id."""
        names, objects = (plan.fork.branch, plan.branch), self.repository.objects
        # A tag of the same name would win over the branch, and the branch may have moved.
        if [objects.require(f"{name}^{{commit}}").id for name in names] == [plan.tip, plan.head]:
            merged, conflicts = self._merge(*names)
            if marked := [path for path in conflicts if _has_marks(tree.root / path)]:
                tree.git("restore", (f"--source={merged}", "--worktree", "--"), *marked)

    def is_resolving(self, fork: Fork) -> bool:
        """Return whether a merge into the fork is unfinished."""
        tree = self._find_tree(fork)
        return tree is not None and (tree.location.git_dir / "MERGE_HEAD").exists()

    def abort(self, fork: Fork) -> None:
        """End an unfinished merge: the fork is as it was before."""
        if not self.is_resolving(fork):
            raise UsageError(f"No merge is in progress in the fork {fork.name}.", hint="cdd fork list")
        self.open(fork).git("merge", ("--abort",))

    def _finish_resolving(self, fork: Fork) -> None:
        if not self.is_resolving(fork):
            return
        tree, root = self.open(fork), self.locate(fork)
        unmerged = _list_unmerged(tree)
        marked = [path for path in unmerged if _has_marks(root / path)]
        if marked:
            raise UsageError(
                f"These files in {root} still have conflict marks: {join_first(marked, most=_SHOWN)}.",
                hint=f"edit them, then the same command again; or: cdd fork merge {fork.name} --abort",
            )
        if unmerged:
            tree.git("add", ("--all", "--"), *unmerged)
        tree.git("commit", ("--quiet", "--no-edit"), hooks=True)

    def require_droppable(self, fork: Fork) -> tuple[int, tuple[str, ...]]:
        """Return how many commits of a fork are not merged, and its uncommitted files. Raises ``UsageError``."""
        if fork.is_abandoned:
            hint = f"bring its work back: git branch NAME {fork.kept}"
            raise UsageError(f"The fork {fork.name} was dropped already.", hint=hint)
        listed = self.repository.git("worktree", "list", ("--porcelain",)).split("\n\n")
        for lines in (each.splitlines() for each in listed):
            place = Path(lines[0].removeprefix("worktree ")) if lines else self.locate(fork)
            if f"branch refs/heads/{fork.branch}" in lines and place != self.locate(fork):
                hint = f"git -C {place} switch --detach; then the same command again"
                raise UsageError(f"{fork.branch} is checked out in {place}, so it cannot be removed.", hint=hint)
        self._find_inner(fork)
        if edited := self._list_edited_submodules(fork):
            folder = self.locate(fork) / edited[0]
            raise UsageError(
                f"Files of the submodule {edited[0]} were changed in the fork, and no commit of it can hold them.",
                hint=f"copy them: cp -a {folder} /tmp; then delete them: rm -r {folder}; then the same command again",
            )
        changed, head = self.list_changed(fork), self.repository.read_head()
        if not has_ref(self.repository.location, f"refs/heads/{fork.branch}"):
            return 0, changed
        if head is not None and self.is_merged(self.read_tip(fork), head):
            return 0, changed
        return self.count_commits(fork), changed

    def _find_inner(self, fork: Fork) -> RunTrees:
        """Return the run trees of runs in a fork; raises ``UsageError`` if a link there leads to other folders."""
        folder = self.find_project(fork) / ".cdd" / "worktrees"
        # The files of a fork are a model's, or a repository's: nothing behind a link must be removed with them.
        if folder.resolve() != self._folder.resolve() / folder.relative_to(self._folder):
            happened = f"{folder} leads through a link to {folder.resolve()}, so the fork cannot be removed."
            raise UsageError(happened, hint=f"see which: namei {folder}; remove the link, then the same command again")
        return RunTrees(self.repository, folder)

    def _list_edited_submodules(self, fork: Fork) -> list[str]:
        """Return the submodules whose files differ from the recorded commit; git does not look into their folders."""
        tree, edited = self._find_tree(fork), list[str]()
        for path in tree.list_submodules() if tree is not None else ():
            assert tree is not None
            folder, own = tree.root / path, tree.location.git_dir / SUBMODULES / name_submodule(path)
            if own.is_dir() and folder.is_dir() and any(folder.iterdir()):
                inner = Repository(folder, RepositoryLocation(root=folder, git_dir=own, common_dir=own))
                edited += [path] if inner.list_uncommitted() else []
        return edited

    def drop(self, fork: Fork) -> None:
        """Remove work tree and branch of a fork; its commits and uncommitted files stay under ``fork.kept``."""
        self.require_droppable(fork)
        repository, root = self.repository, self.locate(fork)
        tip = self.read_tip(fork) if has_ref(repository.location, f"refs/heads/{fork.branch}") else None
        kept = tip or CommitId(fork.base)
        if (tree := self._find_tree(fork)) is not None:
            kept = tree.read_head() or kept
            if changed := self.list_changed(fork):
                message = f"uncommitted files of the fork {fork.name}"
                kept = commit_aside(tree, changed, parent=kept, message=message)
            if tip is not None and not repository.is_ancestor(tip, of=kept):  # another branch is checked out there
                repository.refs.set(f"{fork.kept}-branch", tip)
        repository.refs.set(fork.kept, kept)
        inner = self._find_inner(fork)
        for name in inner.list_names():
            inner.remove(name)
        self._trees.remove(root.name)
        shutil.rmtree(self.find_records(fork).folder.parent, ignore_errors=True)
        if tip is not None:
            repository.git("update-ref", ("-d",), f"refs/heads/{fork.branch}", tip)
        left = [str(root)] if root.exists() or self._trees.has(root.name) else []
        left += [fork.branch] if has_ref(repository.location, f"refs/heads/{fork.branch}") else []
        if left or repository.objects.read(fork.kept) is None:
            raise GitUnable(
                f"The fork {fork.name} is not removed: {' and '.join(left) or fork.kept} is not as it should be.",
                hint=f"see why: git worktree list, git branch --list {fork.branch}; then the same command again",
            )
        with self._changing() as file:
            file.change(fork, is_abandoned=True, is_current=False)

    def forget(self, fork: Fork) -> None:
        """Delete what a dropped fork has left: its place in the list, and the refs that keep its work."""
        for ref in (fork.kept, f"{fork.kept}-branch"):
            if has_ref(self.repository.location, ref):
                self.repository.git("update-ref", ("-d",), ref)
        with self._changing() as file:
            file.forks = [each for each in file.forks if each.name != fork.name]

    def forget_snapshots(self, *, before: datetime) -> int:
        """Delete the refs of attempts in forks that are gone, if all are older than ``before``; return how many."""
        if not self._path.exists():  # no fork was ever made
            return 0
        shown = ("--format=%(refname) %(committerdate:unix)",)
        known: dict[str, dict[str, float]] = {}
        for line in self.repository.git("for-each-ref", shown, "refs/cdd/checkpoints/*/fork-*/*").splitlines():
            ref, _, time = line.partition(" ")
            known.setdefault(ref.rpartition("/")[0], {})[ref] = float(time or 0)  # a list of ignored files has none
        gone = (refs for folder, refs in known.items() if not (self._folder / folder.rpartition("/")[2]).is_dir())
        old = [ref for refs in gone if max(refs.values()) < before.timestamp() for ref in refs]
        if old:
            self.repository.git("update-ref", ("--stdin",), stdin="".join(f"delete {ref}\n" for ref in old).encode())
        return len(old)

    def _require_branch(self, fork: Fork) -> None:
        if fork.is_abandoned:
            hint = f"bring its work back: git branch NAME {fork.kept}"
            raise UsageError(f"The fork {fork.name} was dropped.", hint=hint)
        if not has_ref(self.repository.location, f"refs/heads/{fork.branch}"):
            hint = f"end the fork: cdd fork drop {fork.name}; or make the branch again: git branch {fork.branch} COMMIT"
            raise UsageError(f"The branch {fork.branch} is gone.", hint=hint)

    def _merge(self, head: str, tip: str) -> tuple[str, dict[str, dict[str, Entry]]]:
        """Return the merged tree, and each file with conflicts -> stage -> entry; 1 is the base, 2 ours, 3 theirs.

        The conflict marks in the tree have the names ``head`` and ``tip``.
        """
        # With --stdin, git exits with 0 although there are conflicts.
        options, asked = ("--write-tree", "--stdin", "-z"), f"{head} {tip}\n".encode()
        is_clean, tree, *rest = self.repository.git("merge-tree", options, stdin=asked).split("\0")
        conflicts: dict[str, dict[str, Entry]] = {}
        for line in () if is_clean == "1" else rest[: rest.index("")]:
            about, _, path = line.partition("\t")
            mode, blob, stage = about.split(" ")
            conflicts.setdefault(path, {})[stage] = Entry(mode, blob)
        return tree, conflicts

    def _require_drivers(self, fork: Fork, paths: Iterable[str]) -> None:
        """Raise ``UsageError`` if git would merge one of these files by a program that the repository names."""
        repository = self.repository
        disabled = list_disabled_drivers(repository.runner.configuration())
        for path, driver in repository.read_attribute("merge", paths).items() if disabled else ():
            if driver in disabled:
                raise UsageError(
                    f"{path} is merged by the driver {driver}, a program that .git/config names. cdd runs no such "
                    "program. Nothing was merged.",
                    hint=f"merge it yourself: git merge {fork.branch}; or move merge.{driver}.driver to your own "
                    "configuration: git config --global",
                )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[ForkFile]:
        lock = self._path.with_suffix(".lock")
        with exclusive_lock(lock, purpose="A change of the forks", wait_s=_PATIENCE_S):
            file = _read(self._path)
            yield file
            write_atomic(self._path, msgspec.json.encode(file))


def _list_unmerged(tree: Repository) -> tuple[str, ...]:
    listed = tree.git("diff-files", ("--name-only", "--diff-filter=U", "-z")).split("\0")
    return tuple(filter(None, listed))


def _has_marks(path: Path) -> bool:
    try:
        content = read_ordinary(path, limit_bytes=_MOST_BYTES)
    except OSError:  # deleted, which resolves it too
        return False
    return any(line.startswith(_MARK) for line in content.splitlines())
