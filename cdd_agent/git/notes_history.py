"""All handoff notes of a ref, read or changed with a few git processes however many notes there are.

A note that cannot be read, or whose commit is not part of the history any more, is reported as damage, and never just
left out. The module also merges notes that were fetched from another repository, since git neither pushes nor fetches
notes by itself, and replaces the notes of a ref in one step, with a backup of the old ones.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.notes import (
    REF,
    REF_NAME,
    REPAIR_COMMAND,
    NotesDamaged,
    describe_text_error,
    find_stale_lock,
    format_note,
    has_ref,
    lock_notes,
    loose_ref_path,
    read_lines,
    read_loose_ref,
    read_tip,
    ref_lock_path,
    require_valid_ref,
    split_note,
)
from cdd_agent.git.repository import CommitId, Repository, encode_text, format_lines, private_index
from cdd_agent.git.runner import GitError, GitTimeout, GitUnable
from cdd_agent.storage import read_ordinary
from cdd_agent.work.handoff import Handoff, decode_line, is_newer

BACKUPS = "refs/cdd/notes-backup"
"""Prefix of the refs that hold notes as they were before a repair."""
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHALLOW_BYTES = 100_000_000
_SHOWN = 3
"""Number of damaged notes that one error describes."""

DamageKind: TypeAlias = Literal["unreadable", "newer", "dangling", "lock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedCommit:
    """A commit and the handoffs in its note."""

    commit: CommitId
    handoffs: tuple[Handoff, ...]
    """In the order of the note, at least one."""

    @property
    def latest(self) -> Handoff:
        """The handoff that counts."""
        return max(reversed(self.handoffs), key=lambda each: (each.seq, not each.reconstructed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One problem with the notes."""

    kind: DamageKind
    what: str
    """A sentence."""
    commit: CommitId | None = None
    """The commit of the note; None for a lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One note in the tree of a ref."""

    commit: CommitId
    """The commit that the note is on; it may not exist any more."""
    paths: tuple[str, ...]
    """In the tree; more than one after a faulty merge."""
    lines: tuple[str, ...]
    """Oldest first; empty if the note cannot be read."""
    handoffs: tuple[Handoff, ...]
    """Decoded from those lines that are handoffs."""
    damage: Damage | None
    """Why the note cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All readable notes of a ref, and all damage."""

    tip: str | None
    """The commit that holds the notes; None if the ref does not exist."""
    entries: tuple[NotedCommit, ...]
    """Newest commit first; commits that do not exist any more come last."""
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachability:
    """Which commits of readable notes are still part of the history."""

    ordered: tuple[CommitId, ...]
    """All of them, newest first, then those in ``gone``."""
    gone: frozenset[CommitId]
    """Those that do not exist any more."""
    lost: frozenset[CommitId]
    """Those that no branch, tag or other ref reaches, including ``gone``."""
    dangling: dict[CommitId, Damage]
    """Lost commit -> damage, unless a note on another commit holds the same handoffs."""


def read_handoffs(repository: Repository, commit: CommitId) -> tuple[Handoff, ...]:
    """Return the handoffs in the note on ``commit``; empty only if it has no note.

    Raises ``NotesDamaged`` if it has a note without a handoff.
    """
    lines = read_lines(repository, commit)
    handoffs = decode_handoffs(lines)
    if lines and not handoffs:
        damage = _describe_undecodable(commit, lines)
        upgrade = "upgrade with: pip install --upgrade cdd-agent"
        raise NotesDamaged(damage.what, hint=upgrade if damage.kind == "newer" else "")
    return handoffs


def survey_notes(repository: Repository, *, ref: str = REF) -> Survey:
    """Return all notes of ``ref`` and their damage; raises ``NotesDamaged`` only if the ref itself is unreadable."""
    tip = read_tip(repository, ref)
    damages = []
    if lock := find_stale_lock(repository.location, ref):
        what = f"cdd cannot write notes to {ref}: a killed git left {lock}."
        damages.append(Damage(kind="lock", what=what))
    if tip is None:
        return Survey(tip=None, entries=(), damages=tuple(damages))
    notes = {note.commit: note for note in read_notes(repository, tip)}
    damages += [note.damage for note in notes.values() if note.damage is not None]
    reach = check_reachability(repository, [note for note in notes.values() if note.damage is None])
    damages += reach.dangling.values()
    entries = (
        NotedCommit(commit=commit, handoffs=notes[commit].handoffs)
        for commit in reach.ordered
        if commit not in reach.lost or commit in reach.dangling
    )
    return Survey(tip=tip, entries=tuple(entries), damages=tuple(damages))


def check_reachability(repository: Repository, notes: Iterable[Note]) -> Reachability:
    """Order the commits of readable ``notes``, and find those that left the history.

    In a shallow clone, missing commits are left out: they are in the part of the history that was not fetched.
    """
    by_seq = {note.commit: note for note in sorted(notes, key=lambda note: -note.handoffs[-1].seq)}
    existing, gone = _sort_newest_first(repository, list(by_seq))
    if read_shallow_commits(repository):
        gone = ()
    lost = set(gone)
    if existing:
        refs = ("--not", "--exclude=refs/notes/*", f"--exclude={BACKUPS}/*", "--all")
        unreachable = repository.git("rev-list", "--ignore-missing", "--stdin", *refs, stdin=format_lines(existing))
        lost |= {CommitId(line) for line in unreachable.splitlines()} & set(existing)
    # git copies a note when it replaces the commit, so the old note may be redundant.
    saved = {identity for commit in existing if commit not in lost for identity in identify_handoffs(by_seq[commit])}
    dangling = {}
    for commit in (*existing, *gone):
        if commit in lost and not identify_handoffs(by_seq[commit]) <= saved:
            where = "is not in the repository" if commit in gone else "is not on any branch"
            what = f"There is a handoff note on {commit}, which {where}."
            dangling[commit] = Damage(kind="dangling", what=what, commit=commit)
    return Reachability(ordered=(*existing, *gone), gone=frozenset(gone), lost=frozenset(lost), dangling=dangling)


def read_notes(repository: Repository, top: str) -> tuple[Note, ...]:
    """Return the notes in the tree of ``top``, ordered by commit id; ``NotesDamaged`` if the tree cannot be read."""
    try:
        listing = repository.git("ls-tree", "-r", "-z", "--full-tree", top)
    except GitTimeout:
        raise
    except GitError as error:
        raise NotesDamaged(f"The notes in {top} cannot be listed. {error.happened}", status=error.status) from error
    blobs: dict[CommitId, list[tuple[str, str]]] = {}
    for about, _, path in (entry.partition("\t") for entry in listing.split("\0") if entry):
        name = path.replace("/", "")
        if _OBJECT.fullmatch(name):
            blobs.setdefault(CommitId(name), []).append((path, about.split(" ")[2]))
    content = read_objects(repository, {blob for found in blobs.values() for _, blob in found})
    return tuple(_decode_note(commit, found, content=content) for commit, found in sorted(blobs.items()))


def identify_handoffs(note: Note) -> frozenset[tuple[str, str | None]]:
    """Return id and error of each handoff in ``note``, except reconstructed ones, which are not evidence."""
    return frozenset((each.id, each.error) for each in note.handoffs if not each.reconstructed)


def read_objects(repository: Repository, objects: Iterable[str]) -> dict[str, bytes]:
    """Return object id -> content, without missing and damaged objects."""
    wanted = sorted(objects)
    if not wanted:
        return {}
    try:
        answer = encode_text(repository.git("cat-file", "--batch", stdin=format_lines(wanted)))
    except GitTimeout:
        raise
    except GitError:  # git stops at a damaged object; find it by bisection
        if len(wanted) == 1:
            return {}
        half = len(wanted) // 2
        return read_objects(repository, wanted[:half]) | read_objects(repository, wanted[half:])
    found = {}
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        fields = answer[at:end].split(b" ")
        at = end + 1
        if len(fields) == 3:  # otherwise the object is missing
            size = int(fields[2])
            found[fields[0].decode()] = answer[at : at + size]
            at += size + 1
    return found


def write_objects(repository: Repository, contents: Iterable[bytes]) -> list[str]:
    """Store each of ``contents`` as a blob, with one call of git, and return the ids."""
    with tempfile.TemporaryDirectory(prefix="cdd-objects-") as folder:
        paths = []
        for number, content in enumerate(contents):
            paths.append(Path(folder, str(number)))
            paths[-1].write_bytes(content)
        listing = format_lines(map(str, paths))
        return repository.git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listing).split()


def _sort_newest_first(
    repository: Repository, commits: Sequence[CommitId]
) -> tuple[tuple[CommitId, ...], tuple[CommitId, ...]]:
    """Return the commits that exist, newest first and before their parents, and those that do not exist.

    Otherwise the order stays the same.
    """
    if not commits:
        return (), ()
    log = ("log", "--no-walk=unsorted", "--ignore-missing", "--stdin", "--format=%H %ct %P")
    rows = [line.split(" ") for line in repository.git(*log, stdin=format_lines(commits)).splitlines()]
    listed = {row[0]: (int(row[1]), row[2:]) for row in rows}
    existing = {commit: listed[commit] for commit in commits if commit in listed}
    ordered: list[CommitId] = []
    by_time = sorted(existing, key=lambda commit: existing[commit][0], reverse=True)
    for _, group in groupby(by_time, key=lambda commit: existing[commit][0]):
        ordered += _sort_children_first({commit: existing[commit][1] for commit in group})
    return tuple(ordered), tuple(commit for commit in commits if commit not in existing)


def _sort_children_first(parents: dict[CommitId, list[str]]) -> list[CommitId]:
    """Return commits of the same second, each before its parents."""
    position = {commit: number for number, commit in enumerate(parents)}
    if all(position.get(CommitId(parent), at) >= at for commit, at in position.items() for parent in parents[commit]):
        return list(parents)
    sorter = TopologicalSorter(
        {commit: [each for each in named if each in position] for commit, named in parents.items()}
    )
    try:
        return [CommitId(commit) for commit in sorter.static_order()][::-1]
    except CycleError:  # `git replace` can make commits their own ancestors
        return list(parents)


def read_shallow_commits(repository: Repository) -> frozenset[CommitId]:
    """Return the oldest commits of a shallow clone; empty for a complete repository."""
    try:
        listing = read_ordinary(repository.location.common_dir / "shallow", limit_bytes=_SHALLOW_BYTES)
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(CommitId, listing.decode("ascii", "replace").split()))


def _decode_note(commit: CommitId, found: Sequence[tuple[str, str]], *, content: Mapping[str, bytes]) -> Note:
    """Return the note in these paths and blobs."""
    paths = tuple(path for path, _ in found)
    missing = [blob for _, blob in found if blob not in content]
    text = "" if missing else b"\n".join(content[blob] for _, blob in found).decode("utf-8", "surrogateescape")
    wrong = f"cannot be read: the object {missing[0]} is missing or damaged" if missing else describe_text_error(text)
    if wrong is not None:
        damage = Damage(kind="unreadable", what=f"The handoff note on {commit} {wrong}.", commit=commit)
        return Note(commit=commit, paths=paths, lines=(), handoffs=(), damage=damage)
    lines = split_note(text)
    handoffs = decode_handoffs(lines)
    undecodable = None if handoffs else _describe_undecodable(commit, lines)
    return Note(commit=commit, paths=paths, lines=lines, handoffs=handoffs, damage=undecodable)


def decode_handoffs(lines: Iterable[str]) -> tuple[Handoff, ...]:
    """Return the handoffs in ``lines``; other lines are ignored."""
    return tuple(handoff for line in lines if (handoff := decode_line(line)) is not None)


def _describe_undecodable(commit: CommitId, lines: Sequence[str]) -> Damage:
    if any(is_newer(line) for line in lines):
        newer = f"A later version of cdd wrote the handoff note on {commit}."
        return Damage(kind="newer", what=newer, commit=commit)
    what = f"The handoff note on {commit} does not hold a readable handoff."
    return Damage(kind="unreadable", what=what, commit=commit)


def merge_fetched(repository: Repository, ref: str) -> int:
    """Merge the notes under ``ref`` into ours, line by line, and return how many notes changed.

    Raises ``UsageError`` if ``ref`` does not exist or is damaged, and ``NotesDamaged`` if our notes are; nothing
    changes then. The merge does not check who wrote the notes: anyone who can push can write one.
    """
    _require_foreign_ref(repository, ref)
    with lock_notes(repository):
        theirs = read_tip(repository, ref)
        if theirs is None:
            raise UsageError(f"This repository has no {ref}.", hint=f"fetch it first: git fetch REMOTE {REF}:{ref}")
        damages = [note.damage.what for note in read_notes(repository, theirs) if note.damage is not None]
        if damages:
            more = f" And {len(damages) - _SHOWN} more." if len(damages) > _SHOWN else ""
            raise UsageError(
                f"The notes in {ref} were not merged. {' '.join(damages[:_SHOWN])}{more}",
                hint="in the repository that they come from: cdd tdd repair-notes --apply; then fetch them again",
            )
        before = _read_lines_by_commit(repository)
        repository.git("notes", f"--ref={REF_NAME}", "merge", "--quiet", "--strategy=cat_sort_uniq", ref)
        after = _read_lines_by_commit(repository)
    return sum(lines != before.get(commit) for commit, lines in after.items())


def find_missing_ref(repository: Repository) -> NotesDamaged | None:
    """Return the error for a history whose notes were not cloned; None if no commit has a handoff trailer.

    Call it only if the ref of notes does not exist.
    """
    head = repository.read_head()
    log = ("log", "-1", "--format=%H", "--basic-regexp", "--grep=^Handoff-Id: ")
    if head is None or not repository.git(*log, head).strip():
        return None
    return NotesDamaged(
        f"This repository has no {REF}, but it has commits that had notes.",
        hint=f"git clone does not copy notes; fetch them: git fetch origin {REF}:{REF}; if they are lost: "
        f"{REPAIR_COMMAND}",
    )


def _read_lines_by_commit(repository: Repository) -> dict[str, tuple[str, ...]]:
    tip = read_tip(repository)
    return {} if tip is None else {note.commit: note.lines for note in read_notes(repository, tip)}


def _require_foreign_ref(repository: Repository, ref: str) -> None:
    """Raise ``UsageError`` unless ``ref`` is the full name of a ref other than ours."""
    hint = f"fetch into a separate ref: git fetch REMOTE {REF}:refs/notes/fetched"
    try:
        repository.git("check-ref-format", ref)
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{ref!r} is not a valid ref name.", hint=hint) from error
    if not ref.startswith("refs/") or ref == REF:
        raise UsageError(f"{ref!r} is not the full name of a ref other than {REF}.", hint=hint)
    require_valid_ref(repository, ref)


_MESSAGE = "Notes repaired by 'cdd tdd repair-notes'"
_NAMES_AN_OBJECT = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64})\s*")


def write_notes_commit(
    repository: Repository, base: str | None, *, notes: Iterable[Note], changes: Mapping[CommitId, tuple[str, ...]]
) -> str:
    """Write a commit of the ``notes`` in ``base`` with ``changes``: commit -> new lines, or none to remove the note."""
    if base is not None and not changes:
        return base
    known = {note.commit: note.paths for note in notes}
    is_deep = any("/" in path for paths in known.values() for path in paths)
    texts = tuple(dict.fromkeys(format_note(lines) for lines in changes.values() if lines))
    blobs = dict(zip(texts, write_objects(repository, (text.encode() for text in texts)), strict=True))
    entries = []
    for commit, lines in changes.items():
        entries += [f"0 {'0' * len(commit)}\t{path}\0" for path in known.get(commit, ())]
        if lines:
            path = f"{commit[:2]}/{commit[2:]}" if is_deep else commit
            entries.append(f"100644 {blobs[format_note(lines)]}\t{path}\0")
    with private_index() as index:
        repository.git("read-tree", base or "--empty", variables=index)
        repository.git("update-index", "-z", "--index-info", stdin="".join(entries).encode(), variables=index)
        tree = repository.git("write-tree", variables=index).strip()
    return repository.git("commit-tree", tree, *(("-p", base) if base else ()), "-m", _MESSAGE).strip()


def replace_tip(repository: Repository, new: str, *, found: str | None, now: str) -> str | None:
    """Set the ref of notes to ``new``, and return the backup ref of its old content; None if there was none.

    ``found`` is the commit that the ref names, if any; then git changes both refs at once, and only if it still does.
    """
    backup = _find_free_ref(repository, now)
    why = ("-m", "cdd: notes repaired")
    if found is not None:
        both = f"create {backup} {found}\nupdate {REF} {new} {found}\n"
        repository.git("update-ref", *why, "--stdin", stdin=both.encode())
        return backup
    content = read_loose_ref(repository, REF)
    if content is None and not has_ref(repository, REF):
        repository.git("update-ref", *why, REF, new, "0" * len(new))
        return None
    saved = repository.git("hash-object", "-w", "--stdin", stdin=b"broken\n" if content is None else content).strip()
    repository.git("update-ref", backup, saved, "0" * len(saved))
    if content is None or _NAMES_AN_OBJECT.fullmatch(content):
        repository.git("update-ref", *why, REF, new)
    else:
        _overwrite_ref(repository, new)
    return backup


def format_undo_command(repository: Repository, backup: str | None, *, found: str | None) -> str:
    """Return the shell command that undoes ``replace_tip``."""
    if backup is None:
        return f"git update-ref -d {REF}"
    if found is not None:
        return f"git update-ref {REF} {backup}"
    return f"git cat-file blob {backup} > {shlex.quote(str(loose_ref_path(repository, REF)))}"


def _overwrite_ref(repository: Repository, new: str) -> None:
    # git refuses to update a ref whose file is damaged. Replace the file as git would: lock, write, rename.
    lock = ref_lock_path(repository.location, REF)
    try:
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise NotesDamaged(f"{lock} exists: another git process is running, or was killed.") from error
    with os.fdopen(handle, "w") as stream:
        stream.write(f"{new}\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(lock, loose_ref_path(repository, REF))


def _find_free_ref(repository: Repository, now: str) -> str:
    name = f"{BACKUPS}/{re.sub(r'[^0-9A-Za-z]', '', now)}"
    existing = set(repository.git("for-each-ref", "--format=%(refname)", f"{BACKUPS}/").split())
    return next(each for each in (name, *(f"{name}-{number}" for number in range(2, 10**6))) if each not in existing)
