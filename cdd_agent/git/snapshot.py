"""Snapshots: the whole work tree, saved as a git commit under ``refs/cdd/`` and restored from there.

A snapshot uses a private index and never touches the user's index, HEAD, stash or reflog. It leaves out ignored files,
excluded folders, cdd's own files in ``.cdd``, and repositories inside the work tree, submodules included. The ignore
rules can be frozen, because a changed rule would otherwise hand the user's files over.

The tree of a snapshot is what a commit of the files would contain, so it can be compared with commits. Line ends may be
normalized there, and only one bit of the permissions is kept. Where a file differs from that, its exact bytes and
permissions are saved in a sidecar: a commit that is the parent of the snapshot's commit.
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
from cdd_agent.events import Change
from cdd_agent.git.hardening import list_active_filters
from cdd_agent.git.repository import (
    CommitId,
    Repository,
    encode_text,
    format_lines,
    format_paths,
    private_index,
    unmarked_index,
)
from cdd_agent.storage import read_ordinary, write_atomic

_BLOCK_BYTES = 1 << 20
_SETTLED_NS = 1_000_000_000
"""A file that changed more recently may change again without new times."""
_TICK_NS = 50_000_000
"""The same where the file system keeps fractions of seconds."""
_SECOND_NS = 1_000_000_000
_RULES_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """The content and permissions of an ordinary file."""

    blob: str
    """The id of a blob with its exact bytes."""
    bits: int
    """Its permissions, without set-uid and similar bits."""


class FileStates:
    """Reads the states of files, and caches the ids of unchanged files."""

    def __init__(self, root: Path) -> None:
        """Paths are relative to ``root``."""
        self._root = str(root)
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def inspect(self, path: str, *, like: str) -> FileState | None:
        """Return the state of ``path``, or None unless it is a readable ordinary file.

        The id is SHA-1 or SHA-256, as the id ``like`` is.
        """
        try:
            about = os.lstat(os.path.join(self._root, path))
            if not stat.S_ISREG(about.st_mode):
                return None
            known = self._known.get(path)
            if known is not None and known[0] == _stat_key(about) and len(known[1]) == len(like):
                return FileState(blob=known[1], bits=about.st_mode & 0o777)
            return self._read(path, like=like)
        except OSError:
            return None

    def read_bits(self, path: str) -> int | None:
        """Return the permissions of ``path``, or None unless it is an ordinary file."""
        try:
            mode = os.lstat(os.path.join(self._root, path)).st_mode
        except OSError:
            return None
        return mode & 0o777 if stat.S_ISREG(mode) else None

    def _read(self, path: str, *, like: str) -> FileState | None:
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
        if _stat_key(after) == _stat_key(about) and max(about.st_mtime_ns, about.st_ctime_ns) < begun - _SETTLED_NS:
            self._known[path] = (_stat_key(about), blob)
        return FileState(blob=blob, bits=about.st_mode & 0o777)


def _stat_key(about: os.stat_result) -> tuple[int, ...]:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


ORDINARY_MODES = {"100644": 0o644, "100755": 0o755}
"""A mode in git's tree -> the permissions that it means."""

_FILES = "files/"
_CACHED = 8
"""Number of sidecars in memory; each may name every file."""
_MODES = "modes"
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The exact bytes and permissions of files that differ from git's tree."""

    blobs: Mapping[str, str]
    """path -> id of a blob with the file's exact bytes, where the tree has another blob."""
    bits: Mapping[str, int]
    """path -> permissions, where they differ from the mode in the tree."""

    def list_differing(self, other: "Sidecar") -> frozenset[str]:
        """Return the paths whose bytes differ although the trees are equal."""
        return frozenset(path for path in {*self.blobs, *other.blobs} if self.blobs.get(path) != other.blobs.get(path))


def list_filtered(repository: Repository, paths: Iterable[str]) -> frozenset[str]:
    """Return those ``paths`` that an active filter program converts, such as Git LFS."""
    names = list_active_filters(repository.runner.configuration())
    if not names:
        return frozenset()
    fields = repository.git("check-attr", "-z", "--stdin", "filter", stdin=format_paths(paths)).split("\0")
    return frozenset(path for path, name in zip(fields[0::3], fields[2::3], strict=False) if name in names)


def make_sidecar(entries: Mapping[str, tuple[str, str]], *, files: FileStates, unchanged: frozenset[str]) -> Sidecar:
    """Return the sidecar for a tree of ``entries`` (path -> mode and id), without reading ``unchanged`` files."""
    blobs, bits = {}, {}
    for path, (mode, blob) in entries.items():
        if mode not in ORDINARY_MODES:
            continue
        if path in unchanged:
            permissions = files.read_bits(path)
        else:
            found = files.inspect(path, like=blob)
            permissions = None if found is None else found.bits
            if found is not None and found.blob != blob:
                blobs[path] = found.blob
        if permissions is not None and permissions != ORDINARY_MODES[mode]:
            bits[path] = permissions
    return Sidecar(blobs=blobs, bits=bits)


def save_sidecar(record: Sidecar, *, repository: Repository) -> str | None:
    """Save ``record`` and the current bytes of its files as a tree; return its id, or None if there is nothing."""
    if not record.blobs and not record.bits:
        return None
    paths = list(record.blobs)
    stored = repository.git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=_quote_paths(paths)).split()
    modes = "".join(f"{bits:04o} {path}\0" for path, bits in record.bits.items())
    modes_blob = repository.git("hash-object", "-w", "--stdin", stdin=encode_text(modes)).strip()
    entries = [(_MODES, modes_blob), *((f"{_FILES}{path}", blob) for path, blob in zip(paths, stored, strict=True))]
    with private_index() as index:
        listing = "".join(f"100644 {blob}\t{path}\0" for path, blob in entries)
        repository.git("update-index", "--add", "-z", "--index-info", stdin=encode_text(listing), variables=index)
        return repository.git("write-tree", variables=index).strip()


def read_sidecar(commit: CommitId, *, repository: Repository) -> Sidecar:
    """Return the sidecar in the parent of a snapshot's commit; empty if it has no parent."""
    parent = repository.git("log", "-1", "--format=%P", commit).strip()
    blobs: dict[str, str] = {}
    bits: dict[str, int] = {}
    if parent:
        for path, (_, blob) in list_entries(repository, parent).items():
            if path.startswith(_FILES):
                blobs[path.removeprefix(_FILES)] = blob
            elif path == _MODES:
                lines = (line.partition(" ") for line in repository.git("cat-file", "blob", blob).split("\0") if line)
                bits = {name: int(mode, 8) & 0o777 for mode, _, name in lines}
    return Sidecar(blobs=blobs, bits=bits)


class SidecarCache:
    """Reads sidecars and keeps the latest in memory; the sidecar of a commit never changes."""

    def __init__(self, repository: Repository) -> None:
        """Read nothing yet."""
        self._repository = repository
        self._known: dict[CommitId, Sidecar] = {}

    def read(self, commit: CommitId) -> Sidecar:
        """Return the sidecar of a snapshot's commit."""
        if commit not in self._known:
            self.add(commit, read_sidecar(commit, repository=self._repository))
        return self._known[commit]

    def add(self, commit: CommitId, record: Sidecar) -> None:
        """Add the sidecar of ``commit``."""
        self._known[commit] = record
        if len(self._known) > _CACHED:
            del self._known[next(iter(self._known))]


def list_entries(repository: Repository, tree: str, *paths: str) -> dict[str, tuple[str, str]]:
    """Return path -> mode and id of the files in a tree, or of those that are or are below ``paths``."""
    lines = repository.git("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths).split("\0")
    listed = (line.partition("\t") for line in lines if line)
    return {path: (about.split()[0], about.split()[2]) for about, _, path in listed}


def restore_files(
    paths: Sequence[str], commit: CommitId, *, record: Sidecar | None, files: FileStates, repository: Repository
) -> None:
    """Write files as in ``commit`` and its sidecar ``record``; without one, like a checkout.

    A private file never becomes readable for others, not even briefly while it is restored.
    """
    if not paths:
        return
    private = () if record is None else _list_private(paths, record, repository=repository)
    before = {path: files.read_bits(path) for path in paths}
    with private_index() as index:
        repository.git("read-tree", commit, variables=index)
        if private:
            empty = repository.git("hash-object", "-w", "--stdin").strip()
            listing = encode_text("".join(f"100644 {empty}\t{path}\0" for path in private))
            repository.git("update-index", "-z", "--index-info", stdin=listing, variables=index)
        # Let git write the files: it handles links and folders that are in the way. The bytes are corrected below.
        repository.git("checkout-index", "--force", "-z", "--stdin", stdin=format_paths(paths), variables=index)
    if record is not None:
        _correct_files(paths, record=record, tree=commit, files=files, repository=repository)
    else:
        for path in paths:
            set_bits(path, _narrow_bits(files.read_bits(path), before[path]), files=files, root=repository.root)


def _list_private(paths: Iterable[str], record: Sidecar, *, repository: Repository) -> tuple[str, ...]:
    """Return private ``paths`` whose exact bytes are known, without those that only a filter can produce."""
    narrow = [path for path in paths if record.bits.get(path, 0o644) & 0o644 != 0o644]
    by_filter = list_filtered(repository, narrow).difference(record.blobs)
    return tuple(path for path in narrow if path not in by_filter)


def _narrow_bits(bits: int | None, before: int | None) -> int | None:
    """Return ``bits`` without access for group or others who had none ``before``; None without a file."""
    if bits is None or before is None:
        return None
    denied = (0o070 if not before & 0o040 else 0) | (0o007 if not before & 0o004 else 0)
    return bits & ~denied


def _correct_files(
    paths: Iterable[str], *, record: Sidecar, tree: str, files: FileStates, repository: Repository
) -> None:
    """Correct the bytes and permissions of files that git has just written from ``tree``.

    The output of a filter program stays as it is unless the sidecar has the bytes.
    """
    entries = list_entries(repository, tree)
    ordinary = [path for path in paths if path in entries and entries[path][0] in ORDINARY_MODES]
    by_filter = list_filtered(repository, ordinary)
    wrong: dict[str, str] = {}
    for path in ordinary:
        wanted = record.blobs.get(path, None if path in by_filter else entries[path][1])
        found = files.inspect(path, like=entries[path][1])
        if wanted is not None and (found is None or found.blob != wanted):
            wrong[path] = wanted
    for path, data in _read_blobs(wrong, repository=repository):
        write_atomic(repository.root / path, data, mode=record.bits.get(path))
    for path in ordinary:
        set_bits(path, record.bits.get(path), files=files, root=repository.root)


def set_bits(path: str, bits: int | None, *, files: FileStates, root: Path) -> None:
    """Set the permissions of an ordinary file; does nothing for None."""
    if bits is None or files.read_bits(path) in (None, bits):
        return
    with contextlib.suppress(OSError):  # a file that we may not read, or do not own
        handle = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(handle, bits)
        finally:
            os.close(handle)


def _read_blobs(blobs: Mapping[str, str], *, repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each blob, without holding all of them in memory."""
    ids = format_lines(blobs.values())
    sizes = repository.git("cat-file", "--batch-check=%(objectsize)", stdin=ids).split()
    batch: list[tuple[str, str, int]] = []
    for (path, blob), size in zip(blobs.items(), map(int, sizes), strict=True):
        if batch and sum(each[2] for each in batch) + size > _BATCH_BYTES:
            yield from _read_batch(batch, repository=repository)
            batch = []
        batch.append((path, blob, size))
    yield from _read_batch(batch, repository=repository)


def _read_batch(batch: Iterable[tuple[str, str, int]], *, repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of blobs that are given as path, id and size."""
    ids = format_lines(blob for _, blob, _ in batch)
    answer = encode_text(repository.git("cat-file", "--batch", stdin=ids))
    at = 0
    for path, _, size in batch:
        begin = answer.index(b"\n", at) + 1
        at = begin + size + 1
        yield path, answer[begin : begin + size]


def _quote_paths(paths: Iterable[str]) -> bytes:
    escaped = (path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for path in paths)
    return encode_text("".join(f'"{path}"\n' for path in escaped))


_SUBMODULE = "160000"
"""git's mode of an entry that names a commit of another repository."""

CDD_IDENTITY = {
    "GIT_AUTHOR_NAME": "cdd",
    "GIT_AUTHOR_EMAIL": "cdd@localhost",
    "GIT_COMMITTER_NAME": "cdd",
    "GIT_COMMITTER_EMAIL": "cdd@localhost",
}
"""Author of commits outside any history, which therefore need no identity of the user."""
_PREFIX = "refs/cdd/"
_ADD = ("--add", "--remove", "--replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A saved work tree."""

    ref: str
    commit: CommitId
    """A commit whose tree counts; its parent, if any, is the sidecar."""

    @property
    def is_ours(self) -> bool:
        """Whether cdd took it; otherwise it is an ordinary commit to restore files from."""
        return self.ref.startswith(_PREFIX)


class Snapshots:
    """Takes and restores snapshots of one work tree, except for ``left_out`` (root-relative folders)."""

    def __init__(self, repository: Repository, *, left_out: tuple[str, ...] = ()) -> None:
        """Write nothing before the first ``take``."""
        self._repository = repository
        self._left_out = tuple(f"{folder}/" for folder in left_out)
        self._ignored_folders: tuple[str, ...] = ()
        self._ignored_files: frozenset[str] = frozenset()
        self._files = FileStates(repository.root)
        self._sidecars = SidecarCache(repository)
        self._captured: tuple[bytes, tuple[str, Sidecar]] | None = None
        """The last capture, and a digest of the state of all files at that time."""
        self._trees: dict[CommitId, str] = {}

    def take(self, ref: str, *, message: str) -> Snapshot:
        """Save the work tree under ``ref``, replacing an earlier snapshot there."""
        ref = _require_own_ref(ref)
        tree, record = self._capture()
        sidecar = save_sidecar(record, repository=self._repository)
        parent = () if sidecar is None else ("-p", self._commit_tree(sidecar, message="files byte for byte"))
        commit = self._commit_tree(tree, *parent, message=message)
        self._repository.git("update-ref", ref, commit)
        self._sidecars.add(commit, record)
        self._trees[commit] = tree
        return Snapshot(ref=ref, commit=commit)

    def freeze_ignored(self, ref: str) -> None:
        """Exclude what was ignored when ``ref`` was first frozen, even if the ignore rules change.

        The list is saved under ``ref``, and other processes use it too.
        """
        if not self._repository.git("for-each-ref", ref):
            ignored = format_paths(self._repository.list_ignored())
            blob = self._repository.git("hash-object", "-w", "--stdin", stdin=ignored).strip()
            self._repository.git("update-ref", ref, blob)
        paths = [path for path in self._repository.git("cat-file", "blob", ref).split("\0") if path]
        self._ignored_folders = tuple(path for path in paths if path.endswith("/"))
        self._ignored_files = frozenset(paths)

    def find(self, ref: str) -> Snapshot | None:
        """Return the snapshot saved under ``ref``, or None."""
        found = self._repository.git("for-each-ref", "--format=%(objectname)", _require_own_ref(ref)).split()
        return Snapshot(ref=ref, commit=CommitId(found[0])) if found else None

    def list_changes_since(self, snapshot: Snapshot, *, until: Snapshot | None = None) -> tuple[Change, ...]:
        """Return the changes from the snapshot to the work tree, or to ``until``; line ends count too."""
        tree, record = self._capture() if until is None else (until.commit, self._sidecars.read(until.commit))
        is_same = self._trees.get(snapshot.commit) == tree
        changes = () if is_same else self._repository.list_changes(snapshot.commit, tree, submodules=False)
        if not snapshot.is_ours:
            return changes
        differing = self._sidecars.read(snapshot.commit).list_differing(record)
        found = {change.path: change for change in changes}
        for path in differing - list_filtered(self._repository, differing) if differing else ():
            found.setdefault(path, Change(path=path, kind="modified"))
        return tuple(found[path] for path in sorted(found, key=encode_text))

    def list_differing_paths(self, commit: CommitId, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the paths that differ between ``commit`` and the snapshot, without excluded ones."""
        paths = (change.path for change in self._repository.list_changes(commit, snapshot.commit, submodules=False))
        return tuple(path for path in paths if not self.is_excluded(path))

    def is_excluded(self, path: str) -> bool:
        """Return whether no snapshot contains ``path``: it was ignored, is in an excluded folder, or belongs to cdd."""
        return (
            path in self._ignored_files
            or path.startswith((*self._left_out, *self._ignored_folders))
            or _is_internal(path)
        )

    def forget(self, pattern: str) -> None:
        """Delete the refs that match ``pattern``; git keeps their objects for a while."""
        for ref in self._repository.git("for-each-ref", "--format=%(refname)", _require_own_ref(pattern)).split():
            self._repository.git("update-ref", "-d", ref)

    def restore(self, snapshot: Snapshot, *, only: Iterable[str] | None = None) -> tuple[Change, ...]:
        """Restore the work tree, or just the paths ``only``, and return the changes that this undid.

        The current work tree is lost unless there is a snapshot of it. Equal files are not written.
        """
        wanted = None if only is None else set(only)
        undone = tuple(c for c in self.list_changes_since(snapshot) if wanted is None or c.path in wanted)
        for change in undone:
            if change.kind == "created":
                _remove_file(self._repository.root, change.path)
        paths = [change.path for change in undone if change.kind != "created"]
        record = self._sidecars.read(snapshot.commit) if snapshot.is_ours else None
        restore_files(paths, snapshot.commit, record=record, files=self._files, repository=self._repository)
        if record is not None and record.bits:
            for path in record.bits.keys() & list_entries(self._repository, snapshot.commit).keys():
                if (wanted is None or path in wanted) and not self.is_excluded(path):
                    set_bits(path, record.bits[path], files=self._files, root=self._repository.root)
        return undone

    def _capture(self) -> tuple[str, Sidecar]:
        """Write the current work tree as a git tree; return its id and its sidecar.

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

    def _scan(self) -> bytes | None:
        """Return a digest of the state of all files and of the index; None if the last change is too recent to tell."""
        begun, newest, digest = time.time_ns(), 0, hashlib.sha256()
        folders = [""]
        try:
            digest.update(repr(_stat_key(os.stat(self._repository.location.git_dir / "index"))).encode())
            while folders:
                folder = folders.pop()
                with os.scandir(self._repository.root / folder) as entries:
                    for entry in sorted(entries, key=lambda each: each.name):
                        path = f"{folder}{entry.name}"
                        about = entry.stat(follow_symlinks=False)
                        key: tuple[int, ...] = ()
                        if not stat.S_ISDIR(about.st_mode):
                            newest, key = max(newest, about.st_mtime_ns, about.st_ctime_ns), _stat_key(about)
                        elif entry.name == ".git" or self.is_excluded(f"{path}/config.yaml") or _ignores_itself(entry):
                            continue
                        else:
                            folders.append(f"{path}/")
                        digest.update(f"{path}\0{about.st_mode}{key}".encode("utf-8", "surrogateescape"))
        except OSError:
            return None
        is_recent = newest > begun - (_TICK_NS if newest % _SECOND_NS else _SETTLED_NS)
        return None if is_recent else digest.digest()

    def _write_tree(self) -> tuple[str, Sidecar]:
        repository = self._repository
        with unmarked_index(repository) as index:
            # Not `add --update`: it runs git inside each submodule, with the configuration of that repository.
            changed = repository.git("diff-files", "--name-only", "-z", "--ignore-submodules=all", variables=index)
            untracked = repository.git("ls-files", "--others", "--exclude-standard", "-z", variables=index)
            files = (path for path in untracked.split("\0") if path and not path.endswith("/"))
            added = "".join(f"{path}\0" for path in files if not self.is_excluded(path))
            _update_index(repository, changed + added, *_ADD, index=index)
            tracked = (
                entry for entry in repository.git("ls-files", "--stage", "-z", variables=index).split("\0") if entry
            )
            entries = {path: about.split()[:2] for about, _, path in (entry.partition("\t") for entry in tracked)}
            dropped = {p for p, about in entries.items() if about[0] == _SUBMODULE or self.is_excluded(p)}
            _update_index(repository, "".join(f"{path}\0" for path in dropped), "--force-remove", index=index)
            tree = repository.git("write-tree", variables=index).strip()
        saved = {path: (mode, blob) for path, (mode, blob) in entries.items() if path not in dropped}
        by_filter = list_filtered(repository, saved)
        head = repository.read_head() if by_filter else None
        committed = {} if head is None else list_entries(repository, head)
        unchanged = frozenset(path for path in by_filter if committed.get(path) == saved[path])
        return tree, make_sidecar(saved, files=self._files, unchanged=unchanged)

    def _commit_tree(self, tree: str, *options: str, message: str) -> CommitId:
        commit = self._repository.git("commit-tree", tree, *options, "-m", message, variables=CDD_IDENTITY)
        return CommitId(commit.strip())


def _ignores_itself(folder: os.DirEntry[str]) -> bool:
    """Return whether git ignores everything in a folder, as test tools make it in their caches."""
    try:
        rules = read_ordinary(Path(folder.path) / ".gitignore", limit_bytes=_RULES_BYTES)
    except OSError:
        return False
    return rules.split()[-1:] == [b"*"]


def _update_index(repository: Repository, listed: str, *options: str, index: Mapping[str, str]) -> None:
    if listed:
        repository.git("update-index", *options, "-z", "--stdin", stdin=encode_text(listed), variables=index)


def _require_own_ref(ref: str) -> str:
    # The name may come from a file that somebody else wrote, and must not overwrite a branch of the user.
    if not ref.startswith(_PREFIX):
        raise UsageError(f"{ref!r} is not a checkpoint.", hint="list the checkpoints: git for-each-ref refs/cdd")
    return ref


def _is_internal(path: str) -> bool:
    # Everything in a .cdd folder belongs to cdd, except for the user's settings.
    parts = path.split("/")
    return ".cdd" in parts[:-1] and parts[-2:] != [".cdd", "config.yaml"]


def _remove_file(root: Path, path: str) -> None:
    # Also remove the folders that this empties: git does not keep empty folders.
    target = root / path
    target.unlink(missing_ok=True)
    for folder in target.relative_to(root).parents:
        if folder == Path("."):
            break
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
