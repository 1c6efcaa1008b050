"""What git's tree cannot say of files: their bytes, where a filter changes them, and their permissions.

A tree holds what a commit would hold, so that it can be compared with commits: line ends are made alike, keywords are
taken out, and of the permissions one bit is kept. The rest is a commit of its own, the parent of the snapshot's.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.git.exact.files import Files
from cdd_agent.git.hardening import filters_in_force
from cdd_agent.git.repository import CommitId, Repository, encoded, listing, private_index
from cdd_agent.storage import write_atomic

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
