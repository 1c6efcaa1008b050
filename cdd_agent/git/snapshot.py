"""Snapshots: the whole work tree kept as a git commit under ``refs/cdd/``, and brought back from there.

A private index does the work, so the user's index, HEAD, stash and reflog are never touched. Ignored files are
neither kept nor changed, and neither is anything below the folders named as left out, nor what cdd keeps in ``.cdd``.
Repositories inside the work tree, submodules too, are other histories: they are left out and never removed.
What counts as ignored can be held, so that a changed ignore rule does not hand the user's files over.

A snapshot's tree holds what a commit of the files would hold. Where their bytes or permissions are others than git
makes of that tree, as with other line ends or a file that is private, these are kept beside it and come back.

The files of a work tree as they are on disk: ids of their bytes, before any filter of git's, and permissions.

What git's tree cannot say of files: their bytes, where a filter changes them, and their permissions.

A tree holds what a commit would hold, so that it can be compared with commits: line ends are made alike, keywords are
taken out, and of the permissions one bit is kept. The rest is a commit of its own, the parent of the snapshot's.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.git.hardening import filters_in_force
from cdd_agent.git.repository import Change, CommitId, Repository, candid_index, encoded, listing, private_index
from cdd_agent.storage import write_atomic

_BLOCK_BYTES = 1 << 20
_SETTLED_NS = 1_000_000_000
"""A file that was changed less long ago may change again without a trace in its times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """An ordinary file."""

    blob: str
    """The id of a blob that holds just its bytes."""
    bits: int
    """Its permissions, without set-uid and the like."""


class Files:
    """Looks at files, and remembers the ids of those that stay as they are."""

    def __init__(self, root: Path) -> None:
        """Paths are relative to ``root``."""
        self._root = str(root)
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def look(self, path: str, *, like: str) -> Exact | None:
        """The file at ``path``, its id of the kind that ``like`` is; None if there is no ordinary file to be read."""
        try:
            about = os.lstat(os.path.join(self._root, path))
            if not stat.S_ISREG(about.st_mode):
                return None
            known = self._known.get(path)
            if known is not None and known[0] == _state(about) and len(known[1]) == len(like):
                return Exact(blob=known[1], bits=about.st_mode & 0o777)
            return self._read(path, like=like)
        except OSError:
            return None

    def bits(self, path: str) -> int | None:
        """The permissions of the file at ``path``; None if there is no ordinary file."""
        try:
            mode = os.lstat(os.path.join(self._root, path)).st_mode
        except OSError:
            return None
        return mode & 0o777 if stat.S_ISREG(mode) else None

    def _read(self, path: str, *, like: str) -> Exact | None:
        """What ``look`` says, from the bytes themselves."""
        begun = time.time_ns()
        handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            about = os.fstat(stream.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            digest = hashlib.new("sha1" if len(like) == 40 else "sha256", usedforsecurity=False)
            digest.update(b"blob %d\0" % about.st_size)
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
            after = os.fstat(stream.fileno())
        blob = digest.hexdigest()
        if _state(after) == _state(about) and max(about.st_mtime_ns, about.st_ctime_ns) < begun - _SETTLED_NS:
            self._known[path] = (_state(about), blob)
        return Exact(blob=blob, bits=about.st_mode & 0o777)


def _state(about: os.stat_result) -> tuple[int, ...]:
    """What changes when the file does."""
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


ORDINARY = {"100644": 0o644, "100755": 0o755}
"""git's mode of a file -> the permissions that it stands for."""

_FILES = "files/"
_MOST_HELD = 8
"""Each may name every file."""
_MODES = "modes"
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is to be known of files beside a tree."""

    blobs: Mapping[str, str]
    """path -> id of the blob with the file's own bytes, where the tree's is another."""
    bits: Mapping[str, int]
    """path -> permissions, where they are others than the tree's mode stands for."""

    def unlike(self, other: "Record") -> frozenset[str]:
        """Paths whose bytes differ between the two, where the trees are alike."""
        return frozenset(path for path in {*self.blobs, *other.blobs} if self.blobs.get(path) != other.blobs.get(path))


def converted(repository: Repository, paths: Iterable[str]) -> frozenset[str]:
    """Those of ``paths`` that a program in force turns into something else, as Git LFS does."""
    names = filters_in_force(repository.runner.configuration())
    if not names:
        return frozenset()
    told = repository.git("check-attr", "-z", "--stdin", "filter", stdin=_listed(paths)).split("\0")
    return frozenset(path for path, name in zip(told[0::3], told[2::3], strict=False) if name in names)


def record_of(entries: Mapping[str, tuple[str, str]], *, files: Files, as_git_has_them: frozenset[str]) -> Record:
    """The record beside a tree of ``entries`` (path -> mode and id).

    The bytes of ``as_git_has_them`` are not looked at.
    """
    blobs, bits = {}, {}
    for path, (mode, blob) in entries.items():
        if mode not in ORDINARY:
            continue
        if path in as_git_has_them:
            permissions = files.bits(path)
        else:
            found = files.look(path, like=blob)
            permissions = None if found is None else found.bits
            if found is not None and found.blob != blob:
                blobs[path] = found.blob
        if permissions is not None and permissions != ORDINARY[mode]:
            bits[path] = permissions
    return Record(blobs=blobs, bits=bits)


def keep(record: Record, *, repository: Repository) -> str | None:
    """The id of a tree that holds ``record``, with the bytes of its files as they are now; None if it is empty."""
    if not record.blobs and not record.bits:
        return None
    paths = list(record.blobs)
    stored = repository.git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=_quoted(paths)).split()
    modes = "".join(f"{bits:04o} {path}\0" for path, bits in record.bits.items())
    told = repository.git("hash-object", "-w", "--stdin", stdin=encoded(modes)).strip()
    entries = [(_MODES, told), *((f"{_FILES}{path}", blob) for path, blob in zip(paths, stored, strict=True))]
    with private_index() as index:
        listing = "".join(f"100644 {blob}\t{path}\0" for path, blob in entries)
        repository.git("update-index", "--add", "-z", "--index-info", stdin=encoded(listing), variables=index)
        return repository.git("write-tree", variables=index).strip()


def kept_beside(commit: CommitId, *, repository: Repository) -> Record:
    """The record that the parent of a snapshot's commit holds; an empty one if it has none."""
    parent = repository.git("log", "-1", "--format=%P", commit).strip()
    blobs: dict[str, str] = {}
    bits: dict[str, int] = {}
    if parent:
        for path, (_, blob) in entries_of(repository, parent).items():
            if path.startswith(_FILES):
                blobs[path.removeprefix(_FILES)] = blob
            elif path == _MODES:
                lines = (line.partition(" ") for line in repository.git("cat-file", "blob", blob).split("\0") if line)
                bits = {name: int(mode, 8) & 0o777 for mode, _, name in lines}
    return Record(blobs=blobs, bits=bits)


class Records:
    """The records of snapshots, those that were of use last held in memory: a commit's is always the same."""

    def __init__(self, repository: Repository) -> None:
        """Nothing is read yet."""
        self._repository = repository
        self._known: dict[CommitId, Record] = {}

    def of(self, commit: CommitId) -> Record:
        """The record beside a snapshot's commit."""
        if commit not in self._known:
            self.note(commit, kept_beside(commit, repository=self._repository))
        return self._known[commit]

    def note(self, commit: CommitId, record: Record) -> None:
        """Hold the record that was kept with ``commit``."""
        self._known[commit] = record
        if len(self._known) > _MOST_HELD:
            del self._known[next(iter(self._known))]


def entries_of(repository: Repository, tree: str) -> dict[str, tuple[str, str]]:
    """path -> mode and id of what is in a tree, folders apart."""
    listed = (line.partition("\t") for line in repository.git("ls-tree", "-r", "-z", tree).split("\0") if line)
    return {path: (about.split()[0], about.split()[2]) for about, _, path in listed}


def bring_back(
    paths: Sequence[str], commit: CommitId, *, record: Record | None, files: Files, repository: Repository
) -> None:
    """Write files as ``commit`` and the ``record`` beside it have them; without one, as a checkout would.

    A file that is private is never made wider; what was kept of it is not even for a moment.
    """
    if not paths:
        return
    private = () if record is None else _private(paths, record, repository=repository)
    before = {path: files.bits(path) for path in paths}
    with private_index() as index:
        repository.git("read-tree", commit, variables=index)
        if private:
            empty = repository.git("hash-object", "-w", "--stdin").strip()
            listing = encoded("".join(f"100644 {empty}\t{path}\0" for path in private))
            repository.git("update-index", "-z", "--index-info", stdin=listing, variables=index)
        # git, as it minds links and folders that stand in the way; what it makes of the bytes is put right below.
        repository.git("checkout-index", "--force", "-z", "--stdin", stdin=_listed(paths), variables=index)
    if record is not None:
        _put_right(paths, record=record, tree=commit, files=files, repository=repository)
    else:
        for path in paths:
            set_bits(path, _narrowed(files.bits(path), before[path]), files=files, root=repository.root)


def _private(paths: Iterable[str], record: Record, *, repository: Repository) -> tuple[str, ...]:
    """Those of ``paths`` that somebody may not read whom git lets read every file, and whose bytes are all here."""
    narrow = [path for path in paths if record.bits.get(path, 0o644) & 0o644 != 0o644]
    made_by_program = converted(repository, narrow).difference(record.blobs)
    return tuple(path for path in narrow if path not in made_by_program)


def _narrowed(bits: int | None, before: int | None) -> int | None:
    """``bits`` without those for groups of users that could not read the file ``before``; None where nothing was."""
    if bits is None or before is None:
        return None
    shut = (0o070 if not before & 0o040 else 0) | (0o007 if not before & 0o004 else 0)
    return bits & ~shut


def _put_right(paths: Iterable[str], *, record: Record, tree: str, files: Files, repository: Repository) -> None:
    """Make files that git has just written from ``tree`` those that were kept: to the byte, and with their permissions.

    What only a program in force can make of the tree stays as that program made it.
    """
    entries = entries_of(repository, tree)
    ordinary = [path for path in paths if path in entries and entries[path][0] in ORDINARY]
    by_program = converted(repository, ordinary)
    other: dict[str, str] = {}
    for path in ordinary:
        wanted = record.blobs.get(path, None if path in by_program else entries[path][1])
        found = files.look(path, like=entries[path][1])
        if wanted is not None and (found is None or found.blob != wanted):
            other[path] = wanted
    for path, data in _contents(other, repository=repository):
        write_atomic(repository.root / path, data, mode=record.bits.get(path))
    for path in ordinary:
        set_bits(path, record.bits.get(path), files=files, root=repository.root)


def set_bits(path: str, bits: int | None, *, files: Files, root: Path) -> None:
    """Give the file at ``path``, if it is an ordinary one, the permissions ``bits``; nothing for None."""
    if bits is None or files.bits(path) in (None, bits):
        return
    with contextlib.suppress(OSError):  # a file that is not ours to read, or not ours
        handle = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(handle, bits)
        finally:
            os.close(handle)


def _contents(blobs: Mapping[str, str], *, repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each blob, a moderate number of bytes at a time."""
    asked = listing(blobs.values())
    sizes = repository.git("cat-file", "--batch-check=%(objectsize)", stdin=asked).split()
    batch: list[tuple[str, str, int]] = []
    for (path, blob), size in zip(blobs.items(), map(int, sizes), strict=True):
        if batch and sum(each[2] for each in batch) + size > _BATCH_BYTES:
            yield from _batch(batch, repository=repository)
            batch = []
        batch.append((path, blob, size))
    yield from _batch(batch, repository=repository)


def _batch(batch: Iterable[tuple[str, str, int]], *, repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each of the blobs, given with path, id and size."""
    asked = listing(blob for _, blob, _ in batch)
    answer = encoded(repository.git("cat-file", "--batch", stdin=asked))
    at = 0
    for path, _, size in batch:
        begin = answer.index(b"\n", at) + 1
        at = begin + size + 1
        yield path, answer[begin : begin + size]


def _listed(paths: Iterable[str]) -> bytes:
    """Paths as git reads them from its input."""
    return encoded("".join(f"{path}\0" for path in paths))


def _quoted(paths: Iterable[str]) -> bytes:
    """Paths for commands that read lines."""
    escaped = (path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for path in paths)
    return encoded("".join(f'"{path}"\n' for path in escaped))


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
