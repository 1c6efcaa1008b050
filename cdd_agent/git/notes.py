"""Handoff notes: JSON lines on commits, stored under ``refs/notes/tdd-handoffs``.

``git notes add`` loses notes when two processes run it at once, so every writer first takes a lock in the folder that
all work trees share. git also treats a damaged ref as a missing one. Here a damaged ref, or a note that cannot be read,
raises ``NotesDamaged``. All notes of a ref are read with a few git processes however many there are, and a note that
cannot be read, or whose commit left the history, is reported as damage. git neither pushes nor fetches notes by itself,
so this module also merges those that were fetched from another repository.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git import hardening
from cdd_agent.git.repository import (
    LIMIT_BYTES,
    OBJECT_ID,
    CommitId,
    Repository,
    format_lines,
    has_ref,
    resolve_revision,
)
from cdd_agent.git.runner import GitRefused, GitUnable, RepositoryLocation
from cdd_agent.installation import suggest_upgrade
from cdd_agent.storage import exclusive_lock, read_ordinary
from cdd_agent.work.handoff import Handoff, decode_line, is_newer
from pytest_tdd_agent.report import Reason

REF = hardening.NOTES_REF
REF_NAME = REF.removeprefix("refs/notes/")
"""The name of ``REF`` in the option ``git notes --ref``."""
LOCK_WAIT_S = 30.0
REPAIR_COMMAND = "cdd tdd repair-notes"

_SURROGATE = re.compile("[\ud800-\udfff]")
_REF_CONTENT = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64}|ref: \S+)\s*")
STALE_S = 600.0
"""Age of a lock that a killed process must have left; git itself holds it for a moment."""
BACKUPS = "refs/cdd/notes-backup"
"""Prefix of the refs that hold notes as they were before a repair."""
_SHOWN = 3

DamageKind: TypeAlias = Literal["unreadable", "newer", "dangling", "lock"]


def find_stale_lock(location: RepositoryLocation) -> Path | None:
    """Return the lock of the notes if it is older than ``STALE_S``; nobody can write them until it is removed."""
    lock = location.common_dir / f"{REF}.lock"  # git's own
    with contextlib.suppress(OSError):
        if time.time() - lock.lstat().st_mtime >= STALE_S:
            return lock
    return None


class NotesDamaged(GitUnable):
    """Handoff notes exist but cannot be read or written; never treated as "no notes"."""

    def __init__(self, happened: str, *, hint: str = "") -> None:
        """Without a ``hint`` the error names the command that repairs notes."""
        preview = f"list the damage and the possible repairs, without changing anything: {REPAIR_COMMAND}"
        super().__init__(happened, hint=hint or preview)


def append_line(repository: Repository, commit: CommitId, *, line: str) -> None:
    """Add ``line`` to the note on ``commit`` unless it is there; raises ``NotesDamaged`` if the note is unreadable."""
    line = line.encode("utf-8", "backslashreplace").decode("utf-8")  # JSON escapes for lone surrogates
    commit = CommitId(resolve_revision(repository, commit))
    with lock_notes(repository):
        lines = read_note(repository, commit).lines
        if line in lines:
            return
        text = format_note((*lines, line))
        try:
            repository.git("notes", (f"--ref={REF_NAME}",), "add", ("--force", "--file=-"), commit, stdin=text.encode())
        except (GitRefused, GitUnable) as error:
            if lock := find_stale_lock(repository.location):
                happened = f"cdd cannot write handoff notes: a killed git left {lock} more than ten minutes ago."
                raise NotesDamaged(happened) from error
            raise


@contextlib.contextmanager
def lock_notes(repository: Repository) -> Iterator[None]:
    """Keep other processes from changing notes; use it around any git command that does, such as a rebase."""
    lock = repository.location.common_dir / "cdd-notes.lock"
    with exclusive_lock(lock, purpose="Writing a handoff note", wait_s=LOCK_WAIT_S):
        yield


def read_tip(repository: Repository, ref: str = REF) -> str | None:
    """Return the commit that holds all notes of ``ref``, or None without the ref; raises ``NotesDamaged``."""
    require_valid_ref(repository, ref)
    tip = repository.read_ref(ref)
    if tip is not None:
        return repository.objects.require(f"{tip}^{{commit}}").id
    if has_ref(repository.location, ref):
        raise NotesDamaged(f"{ref} does not name a readable commit.")
    return None


def require_valid_ref(repository: Repository, ref: str) -> None:
    """Raise ``NotesDamaged`` if the file of ``ref`` exists but does not hold a commit."""
    content = read_loose_ref(repository, ref)
    if content is not None and _REF_CONTENT.fullmatch(content) is None:
        path = repository.location.common_dir / ref
        raise NotesDamaged(f"{ref} is damaged: its file {path} holds {content[:60]!r} instead of a commit.")


def read_loose_ref(repository: Repository, ref: str) -> bytes | None:
    """Return the content of the file of ``ref``, or None if the ref is packed or does not exist."""
    path = repository.location.common_dir / ref
    try:
        return read_ordinary(path, limit_bytes=LIMIT_BYTES, through_links=True)
    except (FileNotFoundError, NotADirectoryError):
        return b"" if path.is_symlink() else None
    except OSError as error:
        if path.is_dir():  # it holds refs below this name, or did
            return None
        raise NotesDamaged(f"{path} cannot be read: {error.strerror}.", hint=f"see the owner: ls -l {path}") from error


def format_note(lines: Iterable[str]) -> str:
    """Return the text of a note with these lines."""
    return "".join(f"{line}\n" for line in lines)


def split_note(text: str) -> tuple[str, ...]:
    """Return the lines of a note."""
    # Not splitlines: JSON may contain other characters that it takes for the end of a line.
    return tuple(line for line in text.split("\n") if line.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One problem with the notes."""

    kind: DamageKind
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The note on one commit."""

    commit: CommitId
    """The commit may not exist any more."""
    handoffs: tuple[Handoff, ...] = ()
    """Decoded from those lines that are handoffs; at least one without damage."""
    lines: tuple[str, ...] = ()
    """Oldest first; empty if the note cannot be read."""
    paths: tuple[str, ...] = ()
    """In the tree of the ref; more than one after a faulty merge."""
    damage: Damage | None = None

    @property
    def latest(self) -> Handoff:
        """The handoff that counts."""
        return max(reversed(self.handoffs), key=lambda each: (each.seq, not each.reconstructed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All readable notes, and all damage."""

    tip: str | None
    """The commit that holds the notes; None if the ref does not exist."""
    entries: tuple[Note, ...]
    """The undamaged ones, newest commit first; commits that do not exist any more come last."""
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachability:
    """Which commits of readable notes are still part of the history."""

    counting: tuple[CommitId, ...]
    """Newest first, then those in ``gone``; without lost commits whose handoffs are also in other notes."""
    gone: frozenset[CommitId]
    """Commits that do not exist any more."""
    dangling: dict[CommitId, Damage]
    """Lost commit, which no branch, tag or other ref reaches -> damage."""


def read_note(repository: Repository, commit: CommitId) -> Note:
    """Return the note on ``commit``, empty without one; raises ``NotesDamaged`` unless it is text."""
    commit = CommitId(resolve_revision(repository, commit))
    tip = read_tip(repository)
    for note in read_notes(repository, tip, only=commit) if tip is not None else ():
        if note.damage is not None and not note.lines:
            raise NotesDamaged(note.damage.what)
        return note
    return Note(commit=commit)


def read_handoffs(repository: Repository, commit: CommitId) -> tuple[Handoff, ...]:
    """Return the handoffs in the note on ``commit``, if any; raises ``NotesDamaged`` for a note without a handoff."""
    note = read_note(repository, commit)
    if note.damage is not None:
        hint = f"upgrade with: {suggest_upgrade()}" if note.damage.kind == "newer" else ""
        raise NotesDamaged(note.damage.what, hint=hint)
    return note.handoffs


def survey_notes(repository: Repository) -> Survey:
    """Return all notes and their damage; raises ``NotesDamaged`` only if the ref itself is unreadable."""
    tip = read_tip(repository)
    damages = []
    if lock := find_stale_lock(repository.location):
        what = f"cdd cannot write notes to {REF}: a killed git left {lock}."
        damages.append(Damage(kind="lock", what=what))
    if tip is None:
        return Survey(tip=None, entries=(), damages=tuple(damages))
    notes = {note.commit: note for note in read_notes(repository, tip)}
    damages += [note.damage for note in notes.values() if note.damage is not None]
    reach = check_reachability(repository, [note for note in notes.values() if note.damage is None])
    damages += reach.dangling.values()
    return Survey(tip=tip, entries=tuple(notes[commit] for commit in reach.counting), damages=tuple(damages))


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
        refs = ("--ignore-missing", "--stdin", "--not", "--exclude=refs/notes/*", f"--exclude={BACKUPS}/*", "--all")
        unreachable = repository.git("rev-list", refs, stdin=format_lines(existing))
        lost |= {CommitId(line) for line in unreachable.splitlines()} & set(existing)
    # git copies a note when it replaces the commit, so the old note may be redundant.
    saved = {identity for commit in existing if commit not in lost for identity in identify_handoffs(by_seq[commit])}
    dangling = {}
    for commit in (*existing, *gone):
        if commit in lost and not identify_handoffs(by_seq[commit]) <= saved:
            where = "is not in the repository" if commit in gone else "is not on any branch"
            what = f"There is a handoff note on {commit}, which {where}."
            dangling[commit] = Damage(kind="dangling", what=what)
    counting = tuple(commit for commit in (*existing, *gone) if commit not in lost or commit in dangling)
    return Reachability(counting=counting, gone=frozenset(gone), dangling=dangling)


def read_notes(repository: Repository, top: str, *, only: CommitId | None = None) -> tuple[Note, ...]:
    """Return the notes in the tree of ``top``, ordered by commit id; ``NotesDamaged`` if the tree cannot be read."""
    try:
        if only is None:
            entries = repository.objects.list_files(top)
        else:
            found = {path: repository.objects.find_entry(top, path) for path in _list_note_paths(only)}
            entries = {path: entry for path, entry in found.items() if entry is not None}
    except (GitRefused, GitUnable) as error:
        raise NotesDamaged(f"The notes in {top} cannot be listed. {error.happened}") from error
    blobs: dict[CommitId, list[tuple[str, str]]] = {}
    for path in sorted(entries):
        name = path.replace("/", "")
        if OBJECT_ID.fullmatch(name):
            blobs.setdefault(CommitId(name), []).append((path, entries[path].id))
    content = read_objects(repository, {blob for found in blobs.values() for _, blob in found})
    return tuple(_decode_note(commit, found, content=content) for commit, found in sorted(blobs.items()))


def _list_note_paths(commit: CommitId) -> list[str]:
    # git spreads many notes over nested folders, each named after two digits.
    pairs = [commit[at : at + 2] for at in range(0, len(commit), 2)]
    return ["/".join((*pairs[:depth], "".join(pairs[depth:]))) for depth in range(len(pairs))]


def identify_handoffs(note: Note) -> frozenset[tuple[str, Reason | None]]:
    """Return id and error of each handoff in ``note``, except reconstructed ones, which are not evidence."""
    return frozenset((each.id, each.error) for each in note.handoffs if not each.reconstructed)


def read_objects(repository: Repository, objects: Iterable[str]) -> dict[str, bytes]:
    """Return object id -> content, without missing and damaged objects."""
    found = {}
    for name in objects:
        with contextlib.suppress(GitRefused, GitUnable):
            if (each := repository.objects.read(name)) is not None:
                found[name] = each.data
    return found


def _sort_newest_first(
    repository: Repository, commits: Sequence[CommitId]
) -> tuple[tuple[CommitId, ...], tuple[CommitId, ...]]:
    """Return the existing commits, newest first and before their parents, and those that do not exist."""
    listed = []
    if commits:
        log = ("--no-walk=sorted", "--ignore-missing", "--stdin", "--format=%ct %H")
        listed = [line.split(" ") for line in repository.git("log", log, stdin=format_lines(commits)).splitlines()]
    if not listed:
        return (), tuple(commits)
    existing = [CommitId(commit) for _, commit in listed]
    # After a rebase many commits have the same time. Only a walk of the history orders them.
    since = min(int(time) for time, _ in listed)
    walk = repository.git("rev-list", ("--date-order", f"--max-age={since}", "--stdin"), stdin=format_lines(existing))
    position = {commit: number for number, commit in enumerate(walk.splitlines())}
    existing.sort(key=lambda commit: position.get(commit, len(position)))
    known = set(existing)
    return tuple(existing), tuple(commit for commit in commits if commit not in known)


def read_shallow_commits(repository: Repository) -> frozenset[CommitId]:
    """Return the oldest commits of a shallow clone; empty for a complete repository."""
    try:
        listing = read_ordinary(repository.location.common_dir / "shallow", limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(CommitId, listing.decode("ascii", "replace").split()))


def _decode_note(commit: CommitId, found: Sequence[tuple[str, str]], *, content: Mapping[str, bytes]) -> Note:
    paths = tuple(path for path, _ in found)
    missing = [blob for _, blob in found if blob not in content]
    if missing:
        what = f"The handoff note on {commit} cannot be read: the object {missing[0]} is missing or damaged."
        return Note(commit=commit, paths=paths, damage=Damage(kind="unreadable", what=what))
    return replace(decode_note(commit, b"\n".join(content[blob] for _, blob in found)), paths=paths)


def decode_note(commit: CommitId, data: bytes) -> Note:
    """Return the note on ``commit`` with the content ``data``."""
    text = data.decode("utf-8", "surrogateescape")
    is_text = "\0" not in text and not _SURROGATE.search(text)
    lines = split_note(text) if is_text else ()
    handoffs = decode_handoffs(lines)
    kind: DamageKind = "unreadable"
    if handoffs:
        return Note(commit=commit, lines=lines, handoffs=handoffs)
    if any(map(is_newer, lines)):
        kind, what = "newer", f"A later version of cdd wrote the handoff note on {commit}."
    elif lines:
        what = f"The handoff note on {commit} does not hold a readable handoff."
    else:
        what = f"The handoff note on {commit} is {'empty' if is_text else 'not text'}."
    return Note(commit=commit, lines=lines, damage=Damage(kind=kind, what=what))


def decode_handoffs(lines: Iterable[str]) -> tuple[Handoff, ...]:
    """Return the handoffs in ``lines``; other lines are ignored."""
    return tuple(handoff for line in lines if (handoff := decode_line(line)) is not None)


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
        repository.git("notes", (f"--ref={REF_NAME}",), "merge", ("--quiet", "--strategy=cat_sort_uniq"), ref)
        after = _read_lines_by_commit(repository)
    return sum(lines != before.get(commit) for commit, lines in after.items())


def find_missing_ref(repository: Repository) -> NotesDamaged | None:
    """Return the error for a missing ref of notes; None if no commit has a handoff trailer."""
    head = repository.read_head()
    log = ("-1", "--format=%H", "--basic-regexp", "--grep=^Handoff-Id: ")
    if head is None or not repository.git("log", log, head).strip():
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
    hint = f"fetch into a separate ref: git fetch REMOTE {REF}:refs/notes/fetched"
    try:
        repository.git("check-ref-format", ref)
    except GitRefused as error:
        raise UsageError(f"{ref!r} is not a valid ref name.", hint=hint) from error
    if not ref.startswith("refs/") or ref == REF:
        raise UsageError(f"{ref!r} is not the full name of a ref other than {REF}.", hint=hint)
    require_valid_ref(repository, ref)
