"""Snapshots: the whole work tree, saved as a git commit under ``refs/cdd/`` and restored from there.

A snapshot uses a private index and never touches the user's index, HEAD, stash or reflog. It leaves out ignored files,
excluded folders, cdd's own files in ``.cdd``, and repositories inside the work tree, submodules included. The ignore
rules can be frozen, because a changed rule would otherwise hand the user's files over.

The tree of a snapshot is what a commit of the files would contain, so it can be compared with commits: line ends may be
normalized, and only one bit of the permissions is kept. Restored files are as git would check them out.
"""

import contextlib
import os
import stat
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cdd_agent.errors import UsageError
from cdd_agent.events import Change
from cdd_agent.git.repository import CommitId, Repository, copy_index, format_paths, private_index
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted.paths import ENVIRONMENT_FOLDERS

_SETTLED_NS = 1_000_000_000
"""A file that changed more recently may change again without new times."""
_TICK_NS = 50_000_000
"""The same where the file system keeps fractions of seconds."""
_SECOND_NS = 1_000_000_000
_RULES_BYTES = 1_000
_WITHOUT_FOLDERS = {*ENVIRONMENT_FOLDERS, "node_modules", ".git", ".cdd"}


def _stat_key(about: os.stat_result) -> tuple[int, ...]:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


CDD_IDENTITY = {
    "GIT_AUTHOR_NAME": "cdd",
    "GIT_AUTHOR_EMAIL": "cdd@localhost",
    "GIT_COMMITTER_NAME": "cdd",
    "GIT_COMMITTER_EMAIL": "cdd@localhost",
}
"""Author of commits outside any history, which therefore need no identity of the user."""
_PREFIX = "refs/cdd/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A saved work tree."""

    ref: str
    commit: CommitId
    """A commit whose tree counts, or a tree."""


class Snapshots:
    """Takes and restores snapshots of one work tree, except for ``left_out`` (root-relative folders)."""

    def __init__(self, repository: Repository, *, left_out: tuple[str, ...] = ()) -> None:
        """Write nothing before the first ``take``."""
        self._repository = repository
        self._left_out = tuple(f"{folder}/" for folder in left_out)
        self._ignored_folders: tuple[str, ...] = ()
        self._ignored_files: frozenset[str] = frozenset()
        self._captured: tuple[list[tuple[str, tuple[int, ...]]], str] | None = None
        """The last capture, and the state of all files at that time."""
        self._trees: dict[CommitId, str] = {}
        self._index: Path | None = None
        """An index with the files of the last capture."""
        self._tree: str | None = None
        """The tree of that index, if it has been written."""
        self.nested: frozenset[str] = frozenset()
        """Untracked repositories, and submodules that are at another commit, in the last capture."""

    def take(self, ref: str, *, message: str) -> Snapshot:
        """Save the work tree under ``ref``, replacing an earlier snapshot there."""
        ref = _require_own_ref(ref)
        tree = self._capture()
        commit = next((commit for commit, saved in self._trees.items() if saved == tree), None)
        if commit is None:
            commit = self._repository.write_commit(tree, message=message)
            self._trees[commit] = tree
        self._repository.refs.set(ref, commit)
        return Snapshot(ref=ref, commit=commit)

    def take_unsaved(self) -> Snapshot:
        """Return the work tree as it is now, under no ref: git deletes its objects after some weeks."""
        return Snapshot(ref="", commit=CommitId(self._capture()))

    def freeze_ignored(self, ref: str) -> None:
        """Exclude what was ignored when ``ref`` was first frozen, even if the ignore rules change.

        The list is saved under ``ref``, and other processes use it too.
        """
        if self._repository.read_ref(ref) is None:
            ignored = format_paths(self._repository.list_ignored())
            self._repository.refs.set(ref, self._repository.blobs.write(ignored))
        paths = [path for path in self._repository.objects.require(ref).text.split("\0") if path]
        self._ignored_folders = tuple(path for path in paths if path.endswith("/"))
        self._ignored_files = frozenset(paths)

    def find(self, ref: str) -> Snapshot | None:
        """Return the snapshot saved under ``ref``, or None."""
        found = self._repository.read_ref(_require_own_ref(ref))
        return Snapshot(ref=ref, commit=found) if found else None

    def list_changes_since(self, snapshot: Snapshot, *, until: Snapshot | None = None) -> tuple[Change, ...]:
        """Return the changes from the snapshot to the work tree, or to ``until``."""
        tree = self._capture() if until is None else until.commit
        is_same = self._trees.get(snapshot.commit, snapshot.commit) == tree
        return () if is_same else self._repository.list_changes(snapshot.commit, tree, submodules=False)

    def list_differing_paths(self, commit: CommitId, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the paths that differ between ``commit`` and the snapshot, without excluded ones."""
        paths = (change.path for change in self._repository.list_changes(commit, snapshot.commit, submodules=False))
        return tuple(path for path in paths if not self.is_excluded(path))

    def is_excluded(self, path: str) -> bool:
        """Return whether no snapshot contains ``path``: it was ignored, is in an excluded folder, or belongs to cdd."""
        return (
            path in self._ignored_files
            or path.startswith((*self._left_out, *self._ignored_folders))
            or is_internal(path)
        )

    def forget(self, pattern: str) -> None:
        """Delete the refs that match ``pattern``; git keeps their objects for a while."""
        for ref in self._repository.git("for-each-ref", ("--format=%(refname)",), _require_own_ref(pattern)).split():
            self._repository.git("update-ref", ("-d",), ref)
        self._trees.clear()

    def restore(self, snapshot: Snapshot, *, only: Iterable[str] | None = None) -> tuple[Change, ...]:
        """Restore the work tree, or just the paths ``only``, and return the changes that this undid.

        The current work tree is lost unless there is a snapshot of it. Equal files are not written.
        """
        wanted = None if only is None else set(only)
        undone = tuple(c for c in self.list_changes_since(snapshot) if wanted is None or c.path in wanted)
        created = [change.path for change in undone if change.kind == "created"]
        paths = [change.path for change in undone if change.kind != "created"]
        before = {path: _read_mode(self._repository.root / path) for path in paths}
        write_paths(self._repository, snapshot.commit, paths=paths, deleted=created)
        for path, mode in before.items():
            _keep_private(self._repository.root / path, mode)
        return undone

    def _capture(self) -> str:
        """Write the current work tree as a git tree, and return its id.

        That takes several calls of git, so nothing is written again while no file changes.
        """
        state = self._scan()
        if state is None:
            time.sleep(_TICK_NS / _SECOND_NS)  # less work than to write everything once more later
            state = self._scan()
        if state is None or self._captured is None or self._captured[0] != state:
            self._captured = None
            captured = self._write_tree()
            if state is None:
                return captured
            self._captured = state, captured
        return self._captured[1]

    def _scan(self) -> list[tuple[str, tuple[int, ...]]] | None:
        """Return path and state of all files; None if the last change is too recent to tell."""
        begun, newest, found = time.time_ns(), 0, []
        folders = [""]
        try:
            while folders:
                folder = folders.pop()
                with os.scandir(self._repository.root / folder) as entries:
                    for entry in sorted(entries, key=lambda each: each.name):
                        path = f"{folder}{entry.name}"
                        about = entry.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(about.st_mode):
                            newest = max(newest, about.st_mtime_ns, about.st_ctime_ns)
                            found.append((path, (about.st_mode, *_stat_key(about))))
                        elif entry.name == ".git" or self.is_excluded(f"{path}/config.yaml") or _ignores_itself(entry):
                            continue
                        else:
                            folders.append(f"{path}/")
                            found.append((path, (about.st_mode,)))
        except OSError:
            return None
        is_recent = newest > begun - (_TICK_NS if newest % _SECOND_NS else _SETTLED_NS)
        return None if is_recent else found

    def _write_tree(self) -> str:
        repository, index = self._repository, self._open_index()
        found = repository.compare_files(index=index)
        dropped = {path for path in found.staged if self.is_excluded(path)}
        changed = {path for path in found.changed if not self.is_excluded(path)}
        self.nested = found.nested
        if changed or dropped or self._tree is None:
            self._tree = None
            update_index(repository, changed, *STAGE, index=index)
            update_index(repository, dropped, "--force-remove", index=index)
            self._tree = repository.git("write-tree", variables=index).strip()
        return self._tree

    def _open_index(self) -> dict[str, str]:
        """Return the variables of an index that only this object changes, with the files of the last capture."""
        # Not the user's: marks in it hide changes, and the program that is tested may write it.
        if self._index is None or not self._index.parent.exists():
            folder = tempfile.TemporaryDirectory(prefix="cdd-index-", ignore_cleanup_errors=True)
            weakref.finalize(self, folder.cleanup)
            self._index, self._tree = Path(folder.name) / "index", None
            copy_index(self._repository, self._index)
        return {"GIT_INDEX_FILE": str(self._index)}


def _read_mode(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        return mode if stat.S_ISREG(mode) else None
    return None


def _keep_private(path: Path, before: int | None) -> None:
    """Deny group and others a restored file that they could not read."""
    mode = _read_mode(path)
    if before is not None and mode is not None:
        denied = (0o070 if not before & 0o040 else 0) | (0o007 if not before & 0o004 else 0)
        if mode & denied:
            os.chmod(path, stat.S_IMODE(mode) & ~denied, follow_symlinks=True)


def _ignores_itself(folder: os.DirEntry[str]) -> bool:
    """Return whether git ignores everything in a folder, as test tools make it in their caches."""
    try:
        rules = read_ordinary(Path(folder.path) / ".gitignore", limit_bytes=_RULES_BYTES)
    except OSError:
        return False
    return rules.split()[-1:] == [b"*"]


STAGE = ("--add", "--remove", "--replace")
"""Options of ``update_index`` for files that were created, changed or deleted."""


def update_index(repository: Repository, paths: Iterable[str], *options: str, index: Mapping[str, str]) -> None:
    """Update a private index with the files at ``paths``; see ``STAGE``."""
    if stdin := format_paths(sorted(paths)):
        repository.git("update-index", (*options, "-z", "--stdin"), stdin=stdin, variables=index)


def write_paths(
    repository: Repository,
    tree: str,
    *,
    paths: Iterable[str],
    deleted: Iterable[str],
    variables: Mapping[str, str] | None = None,
) -> None:
    """Write the files at ``paths`` as they are in a tree or commit, and delete others with the folders they leave."""
    for path in deleted:
        (repository.root / path).unlink(missing_ok=True)
        remove_empty_parents(repository.root, path)
    if listed := format_paths(paths):
        with private_index() as index:
            variables = {**(variables or {}), **index}
            repository.git("read-tree", tree, variables=variables)
            repository.git("checkout-index", ("--force", "-z", "--stdin"), stdin=listed, variables=variables)


def _require_own_ref(ref: str) -> str:
    # The name may come from a file that somebody else wrote, and must not overwrite a branch of the user.
    if not ref.startswith(_PREFIX):
        raise UsageError(f"{ref!r} is not a checkpoint.", hint="list the checkpoints: git for-each-ref refs/cdd")
    return ref


def is_internal(path: str) -> bool:
    """Return whether a path belongs to cdd, so that no snapshot contains it."""
    # Everything in a .cdd folder belongs to cdd, except for the user's settings and commands.
    parts = path.split("/")
    is_users = parts[-2:] == [".cdd", "config.yaml"] or parts[-3:-1] == [".cdd", "commands"]
    return ".cdd" in parts[:-1] and not is_users


def remove_empty_parents(root: Path, path: str) -> None:
    """Remove the folders of a deleted file that are empty now, because git does not keep these."""
    for folder in Path(path).parents[:-1]:
        with contextlib.suppress(OSError):
            (root / folder).rmdir()


class FolderSurvey(NamedTuple):
    """What git does not list of a work tree."""

    empty: tuple[str, ...]
    """The innermost folders that hold nothing."""
    special: tuple[str, ...]
    """Sockets, pipes and devices, also ignored ones."""


def survey_folders(root: Path, known: Iterable[str], *, tops: tuple[str, ...]) -> FolderSurvey:
    """Look below ``tops`` for what is neither file nor link, given the files of the work tree that count.

    ``tops`` end with a slash, or are the top level as an empty text.
    """
    parents = {Path(path.rpartition("/")[0]) for path in known}
    above = {f"{parent.as_posix()}/" for each in parents for parent in (each, *each.parents)}
    inhabited = {*tops, *(folder for folder in above - {"./"} if folder.startswith(tops))}
    empty, special = list[str](), list[str]()
    for folder in sorted(inhabited):
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in entries:
                is_other = f"{folder}{entry.name}/" in inhabited or entry.name in _WITHOUT_FOLDERS
                if entry.is_dir(follow_symlinks=False):
                    inside = FolderSurvey((), ()) if is_other else _survey_folder(entry.path)
                    empty += inside.empty
                    special += inside.special
                elif not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                    special.append(entry.path)
    return FolderSurvey(*(tuple(os.path.relpath(path, root) for path in paths) for paths in (empty, special)))


def _survey_folder(top: str) -> FolderSurvey:
    """Survey a folder in which git lists nothing. If it holds a file, which git ignores, the rest does not count."""
    empty, special = list[str](), list[str]()
    for folder, inside, names in os.walk(top):
        for path in (f"{folder}/{name}" for name in names):
            if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                return FolderSurvey((), tuple(special))
            special.append(path)
        if ".git" in inside:
            return FolderSurvey((), ())
        empty += [] if inside or names else [folder]
    return FolderSurvey(tuple(empty), tuple(special))
