"""Snapshots: the whole work tree kept as a git commit under ``refs/cdd/``, and brought back from there.

A private index does the work, so the user's index, HEAD, stash and reflog are never touched. Ignored files are
neither kept nor changed, and neither is anything below the folders named as left out, nor what cdd keeps in ``.cdd``.
Repositories inside the work tree, submodules too, are other histories: they are left out and never removed.
What counts as ignored can be held, so that a changed ignore rule does not hand the user's files over.

A snapshot's tree holds what a commit of the files would hold. Where their bytes or permissions are others than git
makes of that tree, as with other line ends or a file that is private, these are kept beside it and come back.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.git.exact.files import Files
from cdd_agent.git.exact.record import Record, Records, bring_back, converted, entries_of, keep, record_of, set_bits
from cdd_agent.git.repository import Change, CommitId, Repository, candid_index, encoded

_SUBMODULE = "160000"
"""git's mode of an entry that names a commit of another repository."""

OURSELVES = {
    "GIT_AUTHOR_NAME": "cdd",
    "GIT_AUTHOR_EMAIL": "cdd@localhost",
    "GIT_COMMITTER_NAME": "cdd",
    "GIT_COMMITTER_EMAIL": "cdd@localhost",
}
"""Who makes the commits that are no part of a history, so that they need no identity of the user's."""
_OWN = "refs/cdd/"
_ADD = ("--add", "--remove", "--replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A kept work tree."""

    ref: str
    commit: CommitId
    """A commit whose tree counts; a parent, if it has one, is the record beside it."""

    @property
    def is_ours(self) -> bool:
        """Whether it was taken; otherwise it is a commit that files are to follow."""
        return self.ref.startswith(_OWN)


class Snapshots:
    """Takes and restores snapshots of one work tree, ``left_out`` (root-relative folders) excepted."""

    def __init__(self, repository: Repository, *, left_out: tuple[str, ...] = ()) -> None:
        """Nothing is written before the first ``take``."""
        self._repository = repository
        self._left_out = tuple(f"{folder}/" for folder in left_out)
        self._held_folders: tuple[str, ...] = ()
        self._held_files: frozenset[str] = frozenset()
        self._files = Files(repository.root)
        self._records = Records(repository)

    def take(self, ref: str, *, message: str) -> Snapshot:
        """Keep the work tree as it is now under ``ref``, replacing what the ref held."""
        own = _own(ref)
        tree, record = self._look()
        beside = keep(record, repository=self._repository)
        parent = () if beside is None else ("-p", self._commit_tree(beside, message="files byte for byte"))
        commit = self._commit_tree(tree, *parent, message=message)
        self._repository.git("update-ref", own, commit)
        self._records.note(commit, record)
        return Snapshot(ref=ref, commit=commit)

    def hold_ignored(self, ref: str) -> None:
        """From now on leave out, whatever the ignore rules become, what was ignored when ``ref`` was first held.

        The list is kept under ``ref``, so that another process leaves out the same.
        """
        if not self._repository.git("for-each-ref", ref):
            listed = "".join(f"{path}\0" for path in self._repository.ignored())
            held = self._repository.git("hash-object", "-w", "--stdin", stdin=encoded(listed)).strip()
            self._repository.git("update-ref", ref, held)
        paths = [path for path in self._repository.git("cat-file", "blob", ref).split("\0") if path]
        self._held_folders = tuple(path for path in paths if path.endswith("/"))
        self._held_files = frozenset(paths)

    def find(self, ref: str) -> Snapshot | None:
        """The snapshot kept under ``ref``."""
        found = self._repository.git("for-each-ref", "--format=%(objectname)", _own(ref)).split()
        return Snapshot(ref=ref, commit=CommitId(found[0])) if found else None

    def changes_since(self, snapshot: Snapshot, *, until: Snapshot | None = None) -> tuple[Change, ...]:
        """What differs between the snapshot and the work tree, be it only in line ends.

        As the work tree is now, or as it was when ``until`` was taken.
        """
        tree, record = self._look() if until is None else (until.commit, self._records.of(until.commit))
        changes = self._repository.changes(snapshot.commit, tree, submodules=False)
        if not snapshot.is_ours:
            return changes
        unlike = self._records.of(snapshot.commit).unlike(record)
        found = {change.path: change for change in changes}
        for path in unlike - converted(self._repository, unlike) if unlike else ():
            found.setdefault(path, Change(path=path, kind="modified"))
        return tuple(found[path] for path in sorted(found, key=encoded))

    def paths_unlike(self, commit: CommitId, snapshot: Snapshot) -> tuple[str, ...]:
        """Paths whose content in the snapshot is not that of ``commit``, the folders left out excepted."""
        paths = (change.path for change in self._repository.changes(commit, snapshot.commit, submodules=False))
        return tuple(path for path in paths if not self.leaves_out(path))

    def leaves_out(self, path: str) -> bool:
        """Whether ``path`` is in none of the snapshots: ignored when that was held, or in a folder left out."""
        return path in self._held_files or path.startswith((*self._left_out, *self._held_folders)) or _is_private(path)

    def forget(self, pattern: str) -> None:
        """Drop the refs that match ``pattern``; git keeps their objects for a while."""
        for ref in self._repository.git("for-each-ref", "--format=%(refname)", _own(pattern)).split():
            self._repository.git("update-ref", "-d", ref)

    def restore(self, snapshot: Snapshot, *, only: Iterable[str] | None = None) -> tuple[Change, ...]:
        """Make the work tree equal to the snapshot, or just the paths ``only``; returns what was undone.

        Take a snapshot first if the present is worth keeping. Files that are alike are not written.
        """
        wanted = None if only is None else set(only)
        undone = tuple(c for c in self.changes_since(snapshot) if wanted is None or c.path in wanted)
        for change in undone:
            if change.kind == "created":
                _remove(self._repository.root, change.path)
        back = [change.path for change in undone if change.kind != "created"]
        record = self._records.of(snapshot.commit) if snapshot.is_ours else None
        bring_back(back, snapshot.commit, record=record, files=self._files, repository=self._repository)
        if record is not None and record.bits:
            for path in record.bits.keys() & entries_of(self._repository, snapshot.commit).keys():
                if (wanted is None or path in wanted) and not self.leaves_out(path):
                    set_bits(path, record.bits[path], files=self._files, root=self._repository.root)
        return undone

    def _look(self) -> tuple[str, Record]:
        """The work tree as it is: its tree, which is written, and what is to be known beside it."""
        repository = self._repository
        with candid_index(repository) as index:
            # Not `add --update`: that runs git inside each submodule, under the configuration of that repository.
            changed = repository.git("diff-files", "--name-only", "-z", "--ignore-submodules=all", variables=index)
            untracked = repository.git("ls-files", "--others", "--exclude-standard", "-z", variables=index)
            files = (path for path in untracked.split("\0") if path and not path.endswith("/"))
            added = "".join(f"{path}\0" for path in files if not self.leaves_out(path))
            _update(repository, changed + added, *_ADD, index=index)
            tracked = (
                entry for entry in repository.git("ls-files", "--stage", "-z", variables=index).split("\0") if entry
            )
            entries = {path: about.split()[:2] for about, _, path in (entry.partition("\t") for entry in tracked)}
            dropped = {p for p, about in entries.items() if about[0] == _SUBMODULE or self.leaves_out(p)}
            _update(repository, "".join(f"{path}\0" for path in dropped), "--force-remove", index=index)
            tree = repository.git("write-tree", variables=index).strip()
        kept = {path: (mode, blob) for path, (mode, blob) in entries.items() if path not in dropped}
        by_program = converted(repository, kept)
        head = repository.head() if by_program else None
        committed = {} if head is None else entries_of(repository, head)
        unchanged = frozenset(path for path in by_program if committed.get(path) == kept[path])
        return tree, record_of(kept, files=self._files, as_git_has_them=unchanged)

    def _commit_tree(self, tree: str, *options: str, message: str) -> CommitId:
        """The id of a commit of ``tree`` that is part of no history."""
        made = self._repository.git("commit-tree", tree, *options, "-m", message, variables=OURSELVES)
        return CommitId(made.strip())


def _update(repository: Repository, listed: str, *options: str, index: Mapping[str, str]) -> None:
    """Change the entries of the paths that are listed, each of which ends in a NUL."""
    if listed:
        repository.git("update-index", *options, "-z", "--stdin", stdin=encoded(listed), variables=index)


def _own(ref: str) -> str:
    """``ref`` if it is one of ours; the name may come from a file that somebody else wrote.

    Raises ``UsageError`` for any other: a branch of the user's is never made to hold a snapshot.
    """
    if not ref.startswith(_OWN):
        raise UsageError(f"{ref!r} names no checkpoint.", hint="see the checkpoints: git for-each-ref refs/cdd")
    return ref


def _is_private(path: str) -> bool:
    """Whether cdd keeps ``path`` for itself: all of a ``.cdd`` folder but the user's settings."""
    parts = path.split("/")
    return ".cdd" in parts[:-1] and parts[-2:] != [".cdd", "config.yaml"]


def _remove(root: Path, path: str) -> None:
    """Delete the file at ``path`` and the folders that this leaves empty."""
    target = root / path
    target.unlink(missing_ok=True)
    for folder in target.relative_to(root).parents:
        if folder == Path("."):
            break
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
