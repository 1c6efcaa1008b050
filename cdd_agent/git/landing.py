"""Landing: moves the user's branch, index and files, and changes nothing else there.

``Landings.land`` brings a run's commit in. A file is replaced only if it is still as it was when the run began. If the
user changed it meanwhile, the changes are merged, or the landing waits for a decision. ``Landings.go`` returns to a
point of the past.

The branch moves first; a journal then lists the remaining changes, so that a landing that was killed is either not
begun or finished by ``Landings.finish``. Each file is exchanged in one step with a prepared one, and checked
afterwards: if the user saved it in that moment, the user's file is restored.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from cdd_agent.errors import ExitCode, UsageError, join_first
from cdd_agent.git.commits import refresh_index, require_finished
from cdd_agent.git.repository import (
    LINK,
    SUBMODULE,
    CommitId,
    Entry,
    Pair,
    Repository,
    format_paths,
    private_index,
    require_usable,
    resolve_revision,
)
from cdd_agent.git.runner import Argument, GitError, GitRefused, GitUnable, read_state
from cdd_agent.storage import read_ordinary, require_in_place, sweep, write_atomic

Choice: TypeAlias = Literal["merge", "mine", "theirs"]
"""What to do with a file that cannot be merged: write both versions with conflict marks, or take one of them."""

Favor: TypeAlias = Literal["ours", "theirs"]
"""Whose lines count where both have changed them: those of the user's branch, or those of the fork."""

_JOURNAL_BYTES = 100_000_000
_SHOWN_PATHS = 10
_TRIES = 10
"""How often to exchange a file that the user keeps saving in the same moment."""


class IndexChange(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the user's index."""

    path: str
    old: Entry | None
    new: Entry | None
    is_skipped: bool = False
    """A sparse checkout omits the file."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the user's files."""

    path: str
    old: str | None
    """Digest of the file that is replaced; None if there is none."""
    new: Entry | None
    before: Entry | None
    after: Entry | None
    """The file in the run's base and result."""
    is_merged: bool = False
    """Whether ``new`` holds changes of the user, which stay uncommitted."""
    prepared: str | None = None
    """Digest of the file that was prepared to take the place of the old one."""


class LandingJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a landing."""

    ref: str
    """The user's branch, or ``HEAD`` if it is detached; empty if only files change."""
    before: str
    after: str
    """The commits of ``ref``."""
    index: tuple[IndexChange, ...]
    files: tuple[FileChange, ...]
    staged: str = ""
    """The folder of prepared files, relative to the work tree: another project in it may finish the landing."""
    modes: dict[str, int] = {}
    """Path -> new permissions, of files that keep their content."""
    folders: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Empty folders that are created or removed."""
    schema: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFiles:
    """The files of a saved point, byte for byte."""

    write: Callable[[Iterable[str], Path], None]
    """Writes the files with these paths into a folder."""
    modes: Mapping[str, int]
    """Path -> permissions of the files to take from it; 0 for a link."""
    absent: frozenset[str] = frozenset()
    """Files of its commit that were not on the disk, because a sparse checkout omits them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """Changes of files that lead to a saved point, whatever the files hold now."""

    files: tuple[FileChange, ...]
    modes: Mapping[str, int]
    folders: tuple[str, ...]
    gone: tuple[str, ...]
    """The last three as in ``LandingJournal``."""


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a landing to the user's branch and files."""

    commit: CommitId
    updated: tuple[str, ...]
    """Files that were created, replaced or deleted."""
    merged: tuple[str, ...]
    """Files with changes of the user, which stay uncommitted."""
    kept: tuple[str, ...]
    """Files that the user saved in the moment of the landing: they are as saved, without the run's changes."""


class LandingConflict(UsageError):
    """Files of the user prevent the landing; nothing was changed."""

    exit_code = ExitCode.CLOSED

    def __init__(self, conflicts: Mapping[str, str], *, commit: CommitId) -> None:
        """``conflicts`` is path -> why ``commit`` cannot change it."""
        reasons = [f"{path}: {why}" for path, why in conflicts.items()]
        shown = join_first(reasons, most=_SHOWN_PATHS, separator="\n  ")
        super().__init__(
            f"The run's changes cannot land, because these files changed meanwhile:\n  {shown}\n"
            f"Your files are untouched, and the run's commit waits: git show {commit[:10]}",
            hint="commit your changes or move them aside, then run the same command again",
        )
        self.conflicts = conflicts


class BranchMoved(UsageError):
    """The user's branch is not where the run began; nothing was changed."""


class LandingWaits(UsageError):
    """A landing that was killed can only be finished on its branch; nothing was changed."""


@dataclass(slots=True)
class _Staged:
    """Some paths of the user's index."""

    entries: dict[str, Entry] = field(default_factory=dict)
    unchanged: dict[str, Entry] = field(default_factory=dict)
    """Those whose files git has compared with the index and found equal."""
    skipped: set[str] = field(default_factory=set)
    """Those that a sparse checkout omits."""
    has_conflicts: bool = False
    """Whether any file is unmerged."""


class Landings:
    """Lands commits in one work tree of the user."""

    def __init__(self, repository: Repository, folder: Path, *, files: Path | None = None, merges: bool = True) -> None:
        """``folder`` holds the journal, and ``files``, on the file system of the work tree, the prepared files.

        Without ``files``, ``folder`` holds both.

        Unless it ``merges``, a file that the user has changed prevents the landing.
        """
        self._repository = repository
        self._merges = merges
        self._folder = folder
        self._journal = folder / "journal.json"
        self._staged = (files or folder) / "files"
        self._known: tuple[tuple[int, ...] | None, set[str], dict[str, Entry]] = None, set(), {}
        """The state of the index file when it was last read, the paths that were looked for, and their entries."""

    def land(
        self,
        commit: CommitId,
        *,
        expected: CommitId,
        base: CommitId,
        result: CommitId,
        choices: Mapping[str, Choice] | None = None,
    ) -> Landed:
        """Move the branch from ``expected`` to ``commit``, and bring the changes from ``base`` to ``result`` in.

        ``base`` and ``result`` are the run's first and last files. They are ``expected`` and ``commit`` unless the run
        took uncommitted changes along. Raises ``LandingConflict``, ``BranchMoved``, ``UsageError`` during a merge, and
        ``GitUnable`` while git's index is locked; then nothing was changed.
        """
        self.settle()
        repository = self._repository
        self._require_head(expected)
        ref = self._read_ref()
        pairs, committed = (repository.objects.compare(*each) for each in ((base, result), (expected, commit)))
        # First: a file that the user saves after this must not be taken for the one that git compares.
        digests = {path: digest_file(repository.root / path) for path in pairs}
        staged = self._read_index({*pairs, *committed})
        require_finished(repository, has_conflicts=staged.has_conflicts)  # a merge would take back what lands
        index, conflicts = self._plan_index(committed, staged)
        files, more = self._plan_files(pairs, staged, base=base, digests=digests, choices=choices or {})
        if conflicts or more:
            raise LandingConflict({**conflicts, **more}, commit=commit)
        journal = LandingJournal(ref=ref, before=expected, after=commit, index=index, files=files)
        return self._begin(journal, why="land a run")

    def go(
        self,
        *,
        source: CommitId | None = None,
        target: CommitId | None = None,
        exact: ExactFiles | None = None,
        restoration: Restoration | None = None,
        why: str,
        begun: Callable[[], object] = lambda: None,
    ) -> Landed:
        """Move the branch from ``source`` to ``target``, if given, with index and files; ``why`` is for the reflog.

        Files that ``exact`` names are written from there. With a ``restoration``, its files change, and not those that
        differ between the commits; without ``target``, only files change. ``begun`` is called when the journal is
        written. Raises as ``land`` does.
        """
        self.settle()
        repository = self._repository
        journal = LandingJournal(ref="", before="", after="", index=(), files=())
        if source is not None and target is not None:
            self._require_head(source)
            pairs = repository.objects.compare(source, target)
            digests = {path: digest_file(repository.root / path) for path in pairs}
            staged = self._read_index({*pairs})
            if exact is not None and restoration is None:
                staged.skipped |= exact.absent
            require_finished(repository, has_conflicts=staged.has_conflicts)
            index, conflicts = self._plan_index(pairs, staged)
            files, more = self._plan_files(pairs, staged, base=source, digests=digests, choices={})
            if conflicts or (more and restoration is None):
                raise LandingConflict({**conflicts, **more}, commit=target)
            journal = LandingJournal(ref=self._read_ref(), before=source, after=target, index=index, files=files)
        if restoration is not None:
            journal = msgspec.structs.replace(
                journal,
                files=tuple(sorted(restoration.files, key=lambda change: change.new is not None)),
                modes=dict(restoration.modes),
                folders=restoration.folders,
                gone=restoration.gone,
            )
        return self._begin(journal, why=why, exact=exact, begun=begun)

    def _require_head(self, expected: CommitId) -> None:
        head = self._repository.read_head()
        if head != expected:
            raise BranchMoved(
                f"HEAD is at {str(head)[:10]}, not at {expected[:10]}, where the run began.",
                hint="run the same command again: cdd then continues on top of the new commits",
            )

    def _begin(
        self,
        journal: LandingJournal,
        *,
        why: str,
        exact: ExactFiles | None = None,
        begun: Callable[[], object] = lambda: None,
    ) -> Landed:
        """Prepare the files, write the journal, move the branch, and do the rest."""
        repository = self._repository
        shutil.rmtree(self._staged, ignore_errors=True)
        self._staged.mkdir(parents=True)
        self._stage(journal.files, exact=exact)
        require_usable(repository.location)
        prepared = tuple(
            msgspec.structs.replace(change, prepared=digest_file(self._staged / change.path))
            for change in journal.files
        )
        staged = os.path.relpath(self._staged, repository.root)
        journal = msgspec.structs.replace(journal, files=prepared, staged=staged)
        # Not msgspec's encoder: paths that are not UTF-8 are kept as lone surrogates.
        write_atomic(self._journal, json.dumps(msgspec.to_builtins(journal)).encode())
        begun()
        if journal.ref:
            repository.git("update-ref", ("-m",), f"cdd: {why}", journal.ref, journal.after, journal.before)
        return self._carry_out(journal)

    def is_pending(self) -> bool:
        """Return whether a landing was begun and not finished; remove half-written files of killed ones."""
        sweep((self._folder,))
        return self._journal.exists()

    def settle(self) -> Landed | None:
        """Do as ``finish`` does; raise ``LandingWaits`` if the landing stays pending."""
        landed = self.finish()
        if self._journal.exists():
            branch = self._read_journal().ref.removeprefix("refs/heads/")
            raise LandingWaits(
                f"cdd was interrupted while it moved the branch {branch}, whose files are not all changed yet, and "
                f"HEAD is on {self._repository.read_branch() or 'no branch'} now.",
                hint=f"git switch {branch}; then run the same command again: cdd first finishes what is left",
            )
        return landed

    def finish(self) -> Landed | None:
        """Finish or drop a landing that was killed; return what it changed, or None if nothing was changed.

        It stays pending if its branch has moved and HEAD is elsewhere: its files come with the return to the branch.
        """
        try:
            journal = self._read_journal()
        except FileNotFoundError:
            return None
        if journal.staged:
            self._staged = self._repository.root / journal.staged
        if not journal.ref:
            return self._carry_out(journal)
        if not has_moved(self._repository, journal.ref, before=journal.before, after=journal.after):
            self._forget()
            return None
        # A new branch at the same commit has the same files.
        if journal.ref in (self._read_ref(), "HEAD") or self._repository.read_head() == journal.after:
            return self._carry_out(journal)
        return None

    def _read_journal(self) -> LandingJournal:
        data = read_ordinary(self._journal, limit_bytes=_JOURNAL_BYTES)
        return msgspec.convert(json.loads(data), LandingJournal)

    def _read_ref(self) -> str:
        branch = self._repository.read_branch()
        return "HEAD" if branch is None else f"refs/heads/{branch}"

    def _carry_out(self, journal: LandingJournal) -> Landed:
        try:
            return self._update(journal)
        except (GitError, OSError) as error:
            why, hint = (error.happened, error.hint) if isinstance(error, GitError) else (str(error), "solve this")
            done = f"The commit {journal.after[:10]} is on your branch, but not yet in all of your files."
            raise GitUnable(
                f"{done if journal.ref else 'Not all of your files are changed yet.'} {why}",
                hint=f"{hint}; then run the same command again: cdd first finishes what is left",
            ) from error

    def _update(self, journal: LandingJournal) -> Landed:
        root = self._repository.root
        done = [self._bring(change, base=journal.before) for change in journal.files]
        for folder in journal.gone:
            remove_empty_parents(root, f"{folder}/x")
        for folder in journal.folders:
            with contextlib.suppress(OSError):
                (root / folder).mkdir(parents=True, exist_ok=True)
        for path, mode in journal.modes.items():
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(root / path).st_mode):
                    os.chmod(root / path, mode)
        if journal.ref:
            self._update_index(journal)
        self._forget()
        return Landed(
            commit=CommitId(journal.after),
            updated=tuple(change.path for change, how in done if how == "updated"),
            merged=tuple(change.path for change, how in done if how == "merged"),
            kept=tuple(change.path for change, how in done if how == "kept"),
        )

    def _forget(self) -> None:
        self._journal.unlink()
        shutil.rmtree(self._staged, ignore_errors=True)

    # What to do.

    def _plan_index(
        self, pairs: Mapping[str, Pair], staged: "_Staged"
    ) -> tuple[tuple[IndexChange, ...], dict[str, str]]:
        """Return the changes of the user's index, and the staged changes that conflict with the commit."""
        changes, conflicts = [], {}
        for path, (old, new) in pairs.items():
            ours, wanted = staged.entries.get(path), new
            if ours == wanted:
                continue
            if ours != old:
                if any(entry is not None and entry.mode == SUBMODULE for entry in (ours, old, new)):
                    continue  # the user staged another commit of a submodule
                merged, is_clean = self._merge(old, ours, theirs=wanted) if self._merges else (None, False)
                if not is_clean:
                    conflicts[path] = "you staged other changes to it"
                    continue
                wanted = merged
            changes.append(IndexChange(path=path, old=ours, new=wanted, is_skipped=path in staged.skipped))
        return tuple(changes), conflicts

    def _plan_files(
        self,
        pairs: Mapping[str, Pair],
        staged: "_Staged",
        *,
        base: str,
        digests: Mapping[str, str | None],
        choices: Mapping[str, Choice],
    ) -> tuple[tuple[FileChange, ...], dict[str, str]]:
        """Return the changes of the user's files, and why others cannot be changed."""
        files = {path: pair for path, pair in _list_files(pairs) if path not in staged.skipped}
        deleted = {path for path, (_, new) in files.items() if new is None}
        now, conflicts = self._observe(files, base=base, deleted=deleted, known=staged.unchanged)
        changes = []
        for path, (old, new) in files.items():
            ours, wanted, is_merged = now.get(path), new, False
            if path in conflicts or ours == wanted:
                continue
            if ours != old and choices.get(path) != "theirs":
                merged, is_clean = self._merge(old, ours, theirs=wanted) if self._merges else (None, False)
                if choices.get(path) == "mine":
                    continue
                if not is_clean and (merged is None or choices.get(path) != "merge"):
                    conflicts[path] = "you deleted it" if ours is None else "you changed the same lines, or created it"
                    continue
                wanted, is_merged = merged, True
            changes.append(
                FileChange(path=path, old=digests[path], new=wanted, before=old, after=new, is_merged=is_merged)
            )
        # Deleted files first, since folders may take their places.
        return tuple(sorted(changes, key=lambda change: change.new is not None)), conflicts

    def _read_index(self, wanted: set[str]) -> "_Staged":
        """Return the user's index at the paths ``wanted``."""
        staged, state = _Staged(), read_state(self._repository.location.git_dir / "index")
        which = ("-v", "-z", "--stage", "--modified", "--deleted")
        for line in self._repository.git("ls-files", which).split("\0"):
            about, _, path = line.partition("\t")
            staged.has_conflicts |= about.endswith((" 1", " 2", " 3"))
            if path not in wanted:
                continue
            tag, mode, blob, level = about.split(" ")
            staged.entries[path] = Entry(mode, blob) if level == "0" else Entry(mode, "unmerged")
            if tag == "H":
                staged.unchanged[path] = staged.entries[path]
            else:  # git lists modified and deleted files a second time; it does not compare marked ones
                staged.unchanged.pop(path, None)
            if tag in "sS" and not os.path.lexists(self._repository.root / path):
                staged.skipped.add(path)
        self._known = state, wanted, staged.entries
        return staged

    def _observe(
        self, paths: Iterable[str], *, base: str, deleted: set[str], known: Mapping[str, Entry]
    ) -> tuple[dict[str, Entry], dict[str, str]]:
        """Return the user's files as git would store them, and why other ``paths`` cannot be replaced.

        Files in ``known`` have this content; git reads the others.
        """
        conflicts: dict[str, str] = {}
        present, found = [], {}
        for path in paths:
            place = self._repository.root / path
            if why := find_obstacle(self._repository.root, path, deleted=deleted):
                conflicts[path] = why
            elif path in known:
                found[path] = known[path]
            elif os.path.lexists(place) and not place.is_dir():
                present.append(path)
        if not present:
            return found, conflicts
        with private_index() as index:
            self._repository.git("read-tree", resolve_revision(self._repository, base), variables=index)
            self._repository.stage(present, index=index)
            listed = self._repository.git("ls-files", ("--stage", "-z"), variables=index).split("\0")
        wanted = set(present)
        for about, _, path in (line.partition("\t") for line in listed):
            if path in wanted:
                mode, blob, _ = about.split(" ")
                found[path] = Entry(mode, blob)
        return found, conflicts

    def _merge(self, base: Entry | None, ours: Entry | None, *, theirs: Entry | None) -> tuple[Entry | None, bool]:
        """Return the merged file and whether the merge is clean; None if there can be no merged file."""
        if base is None or ours is None or theirs is None or ours.id == "unmerged":
            return None, False
        if LINK in (base.mode, ours.mode, theirs.mode):
            return None, False
        return merge_entries(self._repository, base=base, ours=ours, theirs=theirs)

    # How to do it.

    def _stage(self, files: Iterable[FileChange], *, exact: ExactFiles | None = None) -> None:
        """Write the new files into the staging folder, with filters applied; ``exact`` provides those that it names."""
        modes = exact.modes if exact is not None else {}
        if taken := [change.path for change in files if change.new is not None and change.path in modes]:
            assert exact is not None
            exact.write(taken, self._staged)
        for path in taken:
            if modes[path]:
                os.chmod(self._staged / path, modes[path])
        new = {each.path: each.new for each in files if each.new is not None and each.path not in modes}
        if not new:
            return
        with private_index() as index:
            self._repository.stage_entries(new, index=index)
            self._repository.git("checkout-index", ("--force", "--all", f"--prefix={self._staged}/"), variables=index)
        for path, entry in new.items():
            staged = self._staged / path
            if entry.mode != LINK:
                _copy_permissions(self._repository.root / path, staged)

    def _update_index(self, journal: LandingJournal) -> None:
        """Change the entries of the user's index that are still as they were, and let git note the times of files."""
        repository, changes = self._repository, journal.index
        # git replaces the file when it changes the index.
        state, known, now = self._known
        paths = {change.path for change in changes}
        if state != read_state(repository.location.git_dir / "index") or not paths <= known:
            now = self._read_index(paths).entries
        due = [change for change in changes if now.get(change.path) == change.old]
        committed = repository.objects.compare(journal.before, journal.after)
        is_plain = all(change.new == committed[change.path][1] and not change.is_skipped for change in due)
        if due and is_plain and repository.read_head() == journal.after:
            refresh_index(repository, (change.path for change in due))
            return
        repository.stage_entries({change.path: change.new for change in due})
        if skipped := format_paths(change.path for change in due if change.is_skipped and change.new):
            repository.git("update-index", ("--skip-worktree", "-z", "--stdin"), stdin=skipped)
        repository.git("update-index", ("-q", "--unmerged", "--refresh"))

    def _bring(self, change: FileChange, *, base: str) -> tuple[FileChange, Literal["updated", "merged", "kept"]]:
        """Change one file, again with what the user saves in the same moment, and return how it ended."""
        place, staged = self._repository.root / change.path, self._staged / change.path
        if change.prepared and digest_file(staged) not in (None, change.old, change.prepared):
            # Killed while the user saved: this is what was saved, or the file holds it already.
            if digest_file(place) != change.prepared:
                return change, "kept"
            _swap(staged, place)
        for _ in range(_TRIES):
            if self._exchange(change):
                return change, "merged" if change.is_merged else "updated"
            old = digest_file(place)
            if change.before is None or not self._merges:
                break
            now, conflicts = self._observe([change.path], base=base, deleted=set(), known={})
            merged, is_clean = self._merge(change.before, now.get(change.path), theirs=change.after)
            if conflicts or not is_clean:
                break
            change = msgspec.structs.replace(change, old=old, new=merged, is_merged=True)
            self._stage([change])
        return change, "kept"

    def _exchange(self, change: FileChange) -> bool:
        """Replace the old file by the new one; return False if the user saved the file meanwhile."""
        place, staged = self._repository.root / change.path, self._staged / change.path
        if change.new is None:
            return self._remove(change, place)
        if not os.path.lexists(staged) or digest_file(staged) == change.old is not None:
            return True  # exchanged before a kill
        new = digest_file(staged)
        if digest_file(place) == new:
            return True  # a switch of branches brought it
        place.parent.mkdir(parents=True, exist_ok=True)
        if change.old is None:
            _remove_empty(place)
            return _create(staged, place)
        try:
            _swap(staged, place)
            if digest_file(staged) == change.old:
                return True
            _swap(staged, place)
            if digest_file(staged) != new:
                _swap(staged, place)  # the user saved the file again between the two exchanges
        except FileNotFoundError:  # the user deleted it in this moment
            pass
        return False

    def _remove(self, change: FileChange, place: Path) -> bool:
        removed = self._staged.parent / f"removed-{hashlib.sha256(os.fsencode(change.path)).hexdigest()}"
        try:
            if not os.path.lexists(removed):  # otherwise moved before a kill
                os.rename(place, removed)
            if digest_file(removed) != change.old:
                return not _create(removed, place)
            removed.unlink()
        except FileNotFoundError:  # removed before a kill
            pass
        except OSError:  # a folder that the user made in this moment
            return False
        remove_empty_parents(self._repository.root, change.path)
        return True


def has_moved(repository: Repository, ref: str, *, before: str, after: str) -> bool:
    """Return whether ``ref`` has moved from one commit to another, even if the user has committed since."""
    if not repository.is_ancestor(after, of=ref):
        return False
    # An ancestor of where it starts is in the history even if HEAD never moved. Then it still has the start, too.
    goes_back = repository.is_ancestor(after, of=before)
    return not (goes_back and repository.is_ancestor(before, of=ref))


def merge_entries(
    repository: Repository, *, base: Entry | None, ours: Entry, theirs: Entry, favor: Favor | None = None
) -> tuple[Entry | None, bool]:
    """Return the merged file and whether the merge is clean; None if they are not text.

    With ``favor``, the lines of that side count where both changed them. ``base`` is None if both created the file.
    """
    mode = theirs.mode if base is not None and ours.mode == base.mode else ours.mode
    with tempfile.TemporaryDirectory(prefix="cdd-merge-") as folder:
        names = [Path(folder) / name for name in ("yours", "before", "cdd")]
        for path, entry in zip(names, (ours, base, theirs), strict=True):
            path.write_bytes(b"" if entry is None else repository.objects.require(entry.id).data)
        try:
            options = ("--quiet", *([f"--{favor}"] if favor else ()))
            labels: tuple[Argument, ...] = (("-L",), "yours", ("-L",), "before", ("-L",), "cdd")
            repository.git("merge-file", options, *labels, *map(str, names))
            is_clean = True
        except GitUnable:
            return None, False
        except GitRefused as error:
            if error.status >= 128:  # not text
                return None, False
            is_clean = False
        data = names[0].read_bytes()
    return Entry(mode, repository.blobs.write(data)), is_clean


def _list_files(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, Pair]]:
    """Iterate over the pairs without submodules."""
    for path, pair in pairs.items():
        if all(entry is None or entry.mode != SUBMODULE for entry in pair):
            yield path, pair


def find_obstacle(root: Path, path: str, *, deleted: set[str]) -> str | None:
    """Return what keeps cdd from writing ``path``, other than a file or link there, once those ``deleted`` are gone."""
    for parent in reversed(Path(path).parents[:-1] if len(Path(path).parents) > 1 else ()):
        place = root / parent
        if place.is_symlink() and parent.as_posix() not in deleted:
            return f"{parent} is a link"
        if os.path.lexists(place) and not place.is_dir() and parent.as_posix() not in deleted:
            return f"{parent} is a file"
    place = root / path
    folder = next(parent for parent in place.parents if parent.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"cdd may not write in its folder: chmod u+wx {shlex.quote(str(folder))}"
    if os.stat(folder).st_dev != os.stat(root).st_dev:
        return "another file system is mounted there, so it cannot be exchanged in one step"
    if not os.path.lexists(place):
        return None
    mode = os.lstat(place).st_mode
    if stat.S_ISDIR(mode):
        inside = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
        other = next((each for each in inside if each.relative_to(root).as_posix() not in deleted), None)
        return None if other is None else f"it is a folder with {other.name}"
    return None if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else "it is a pipe or a device"


def remove_empty_parents(root: Path, path: str) -> None:
    """Remove the folders of a deleted file that are empty now, because git does not keep these."""
    for folder in Path(path).parents[:-1]:
        with contextlib.suppress(OSError):
            (root / folder).rmdir()


def digest_file(path: Path) -> str | None:
    """Return a digest of a file's or link's content, and whether it is executable; None if there is neither."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"link:{hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()}"
        if not stat.S_ISREG(mode):
            return None
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        return f"{'program' if mode & 0o100 else 'file'}:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _copy_permissions(source: Path, target: Path) -> None:
    """Give ``target`` the permissions of ``source``, but its own permission to be executed."""
    with contextlib.suppress(OSError):
        mode = os.lstat(source).st_mode
        if stat.S_ISREG(mode):
            readable = mode & 0o666
            executable = (readable & 0o444) >> 2 if os.lstat(target).st_mode & 0o100 else 0
            os.chmod(target, readable | executable)


def _create(staged: Path, place: Path) -> bool:
    """Move a file to where there is none; return False if the user has created one meanwhile."""
    try:
        os.link(staged, place, follow_symlinks=False)
    except FileExistsError:
        return digest_file(staged) == digest_file(place)
    os.unlink(staged)
    return True


def _remove_empty(folder: Path) -> None:
    for inside, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(inside)


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def _swap(one: Path, other: Path) -> None:
    """Exchange two files in one step; raises ``OSError``."""
    require_in_place()  # which Python checks before its own functions only
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(*arguments)
    elif hasattr(libc, "renamex_np"):  # macOS; its RENAME_SWAP has the same number
        failed = libc.renamex_np(arguments[1], arguments[3], _RENAME_EXCHANGE)
    else:
        failed = -1
        ctypes.set_errno(errno.ENOSYS)
    if not failed:
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number), str(other))
    # A file system that cannot exchange: a save between these two steps is found by the caller's check of the link.
    aside = one.with_name(f"{one.name}.aside")
    os.link(other, aside, follow_symlinks=False)
    os.replace(one, other)
    os.replace(aside, one)
