"""All handoff notes of a ref at once: a handful of git processes, however many notes there are.

A note that is there and cannot be read, or whose commit is no longer part of the history, is damage. It is told beside
what can be read, or raised: it never only makes the history shorter.

Handoff notes of another repository, once they were fetched: git brings no notes along, in neither direction.

A new tree of notes in place of another, in one change of the ref, with the old one kept.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.notes import (
    NOTES_REF,
    REF,
    REPAIR,
    NotesDamaged,
    is_there,
    lines_of,
    lock_of,
    loose_content,
    loose_file,
    read_lines,
    require_whole_ref,
    stale_lock,
    text_of,
    tip,
    unreadable,
    writing,
)
from cdd_agent.git.repository import CommitId, Repository, encoded, listing, private_index
from cdd_agent.git.runner import GitError, GitTimeout, GitUnable
from cdd_agent.storage import read_ordinary
from cdd_agent.work.handoff import Handoff, decode_line, is_newer

BACKUPS = "refs/cdd/notes-backup"
"""Below it lie the notes as they were before they were mended."""
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHALLOW_BYTES = 100_000_000
_SHOWN = 3
"""Damages that one error tells in full."""

Kind: TypeAlias = Literal["unreadable", "newer", "dangling", "lock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one commit's note says."""

    commit: CommitId
    handoffs: tuple[Handoff, ...]
    """In the order of the note, at least one."""

    @property
    def latest(self) -> Handoff:
        """What counts."""
        return max(reversed(self.handoffs), key=lambda each: (each.seq, not each.reconstructed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One thing wrong with the notes."""

    kind: Kind
    what: str
    """A sentence."""
    commit: CommitId | None = None
    """Whose note it is; None for a lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One note as it lies in the tree of a ref."""

    commit: CommitId
    """What it is on, whether that is there or not."""
    paths: tuple[str, ...]
    """In the tree; more than one after a merge that went wrong."""
    lines: tuple[str, ...]
    """Oldest first; none where they cannot be read."""
    handoffs: tuple[Handoff, ...]
    """Those lines that are one."""
    damage: Damage | None
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that there is in a ref of notes."""

    tip: str | None
    """The commit that holds them; None if there is no such ref."""
    entries: tuple[Entry, ...]
    """Newest commit first; a commit that is gone comes last."""
    damages: tuple[Damage, ...]


def history(repository: Repository, *, ref: str = REF) -> tuple[Entry, ...]:
    """The notes of ``ref``, newest commit first; empty only if there are none.

    Raises ``NotesDamaged`` if anything is wrong with any of them; ``survey`` tells what is right besides.
    """
    found = survey(repository, ref=ref)
    if found.damages:
        raise _error(found.damages)
    return found.entries


def handoffs(repository: Repository, commit: CommitId) -> tuple[Handoff, ...]:
    """What the note on ``commit`` says, line by line; empty only if it has none.

    Raises ``NotesDamaged`` if it has one that holds no handoff.
    """
    lines = read_lines(repository, commit)
    found = decoded(lines)
    if lines and not found:
        raise _error((_unfit(commit, lines),))
    return found


def survey(repository: Repository, *, ref: str = REF) -> Survey:
    """All notes of ``ref``, the good and the bad; raises ``NotesDamaged`` only if the ref itself cannot be read."""
    top = tip(repository, ref)
    lock = stale_lock(repository.place, ref)
    damages = [] if lock is None else [_locked(ref, str(lock))]
    if top is None:
        return Survey(tip=None, entries=(), damages=tuple(damages))
    notes = {note.commit: note for note in read_notes(repository, top)}
    damages += [note.damage for note in notes.values() if note.damage is not None]
    readable = sorted((note for note in notes.values() if note.damage is None), key=lambda note: -note.handoffs[-1].seq)
    ordered, gone = newest_first(repository, [note.commit for note in readable])
    if shallow_at(repository):  # they are where the history was not brought along
        gone = ()
    lost = {*gone, *unreachable(repository, ordered)}
    astray = dangling([notes[commit] for commit in (*ordered, *gone)], lost=lost, gone=set(gone))
    damages += astray.values()
    entries = (
        Entry(commit=commit, handoffs=notes[commit].handoffs)
        for commit in (*ordered, *gone)
        if commit not in lost or commit in astray
    )
    return Survey(tip=top, entries=tuple(entries), damages=tuple(damages))


def read_notes(repository: Repository, top: str) -> tuple[Note, ...]:
    """The notes in the tree of ``top``, in the order of their commits; ``NotesDamaged`` if the tree cannot be read."""
    try:
        listed = repository.git("ls-tree", "-r", "-z", "--full-tree", top)
    except GitTimeout:
        raise
    except GitError as error:
        raise NotesDamaged(f"The notes in {top} cannot be listed. {error.happened}", status=error.status) from error
    blobs: dict[CommitId, list[tuple[str, str]]] = {}
    for about, _, path in (entry.partition("\t") for entry in listed.split("\0") if entry):
        name = path.replace("/", "")
        if _OBJECT.fullmatch(name):
            blobs.setdefault(CommitId(name), []).append((path, about.split(" ")[2]))
    content = contents(repository, {blob for held in blobs.values() for _, blob in held})
    return tuple(_note(commit, held, content=content) for commit, held in sorted(blobs.items()))


def identities(note: Note) -> frozenset[tuple[str, str | None]]:
    """What tells the lines of a note from others: id, and why the phase failed if it did.

    None of what was made up from a commit, which proves nothing.
    """
    return frozenset((each.id, each.error) for each in note.handoffs if not each.reconstructed)


def contents(repository: Repository, objects: Iterable[str]) -> dict[str, bytes]:
    """Object id -> its bytes; one that is missing or damaged has none."""
    wanted = sorted(objects)
    if not wanted:
        return {}
    try:
        answer = encoded(repository.git("cat-file", "--batch", stdin=listing(wanted)))
    except GitTimeout:
        raise
    except GitError:  # git gives up at a damaged one: find it
        if len(wanted) == 1:
            return {}
        half = len(wanted) // 2
        return contents(repository, wanted[:half]) | contents(repository, wanted[half:])
    return dict(_batch(answer))


def put(repository: Repository, datas: Iterable[bytes]) -> list[str]:
    """The ids of objects that hold these bytes, made by one call of git."""
    with tempfile.TemporaryDirectory(prefix="cdd-objects-") as folder:
        paths = []
        for number, data in enumerate(datas):
            paths.append(Path(folder, str(number)))
            paths[-1].write_bytes(data)
        return repository.git(
            "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listing(map(str, paths))
        ).split()


def newest_first(
    repository: Repository, commits: Sequence[CommitId]
) -> tuple[tuple[CommitId, ...], tuple[CommitId, ...]]:
    """Those of ``commits`` that there are, newest first, a commit before its parents; and those that are gone.

    Where the history says nothing they keep their order.
    """
    if not commits:
        return (), ()
    log = ("log", "--no-walk=unsorted", "--ignore-missing", "--stdin", "--format=%H %ct %P")
    rows = [line.split(" ") for line in repository.git(*log, stdin=listing(commits)).splitlines()]
    told = {row[0]: (int(row[1]), row[2:]) for row in rows}
    about = {commit: told[commit] for commit in commits if commit in told}
    ordered: list[CommitId] = []
    by_time = sorted(about, key=lambda commit: about[commit][0], reverse=True)
    for _, group in groupby(by_time, key=lambda commit: about[commit][0]):
        ordered += _children_first({commit: about[commit][1] for commit in group})
    return tuple(ordered), tuple(commit for commit in commits if commit not in about)


def shallow_at(repository: Repository) -> frozenset[CommitId]:
    """The commits at which a clone ends that has not all of the history; empty of any other repository."""
    try:
        listed = read_ordinary(repository.place.common_dir / "shallow", limit_bytes=_SHALLOW_BYTES)
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(CommitId, listed.decode("ascii", "replace").split()))


def unreachable(repository: Repository, commits: Sequence[CommitId]) -> set[CommitId]:
    """Those of ``commits`` that no branch, tag, or other ref leads to; notes and their backups lead nowhere."""
    if not commits:
        return set()
    refs = ("--not", "--exclude=refs/notes/*", f"--exclude={BACKUPS}/*", "--all")
    walked = repository.git("rev-list", "--ignore-missing", "--stdin", *refs, stdin=listing(commits))
    return {CommitId(line) for line in walked.splitlines()} & set(commits)


def _note(commit: CommitId, held: Sequence[tuple[str, str]], *, content: dict[str, bytes]) -> Note:
    """The note in these paths and blobs."""
    paths = tuple(path for path, _ in held)
    missing = [blob for _, blob in held if blob not in content]
    text = "" if missing else b"\n".join(content[blob] for _, blob in held).decode("utf-8", "surrogateescape")
    wrong = f"cannot be read: the object {missing[0]} is missing or damaged" if missing else unreadable(text)
    if wrong is not None:
        damage = Damage(kind="unreadable", what=f"The handoff note on {commit} {wrong}.", commit=commit)
        return Note(commit=commit, paths=paths, lines=(), handoffs=(), damage=damage)
    lines = lines_of(text)
    found = decoded(lines)
    unfit = None if found else _unfit(commit, lines)
    return Note(commit=commit, paths=paths, lines=lines, handoffs=found, damage=unfit)


def decoded(lines: Iterable[str]) -> tuple[Handoff, ...]:
    """Those lines that are a handoff."""
    return tuple(handoff for line in lines if (handoff := decode_line(line)) is not None)


def _unfit(commit: CommitId, lines: Sequence[str]) -> Damage:
    """Why none of the lines of a note is a handoff."""
    if any(is_newer(line) for line in lines):
        newer = f"The handoff note on {commit} was written by a later version of this program."
        return Damage(kind="newer", what=newer, commit=commit)
    what = f"The handoff note on {commit} holds no handoff that can be read."
    return Damage(kind="unreadable", what=what, commit=commit)


def _error(damages: Sequence[Damage]) -> NotesDamaged:
    """The error that tells the first of them."""
    told = " ".join(damage.what for damage in damages[:_SHOWN])
    more = f" And {len(damages) - _SHOWN} more." if len(damages) > _SHOWN else ""
    upgrade = all(damage.kind == "newer" for damage in damages)
    return NotesDamaged(told + more, hint="upgrade with: pip install --upgrade cdd-agent" if upgrade else "")


def dangling(notes: Sequence[Note], *, lost: set[CommitId], gone: set[CommitId]) -> dict[CommitId, Damage]:
    """What is wrong with notes on commits that are no longer part of the history.

    Nothing, if another note says the same: git carries notes over to a commit that takes the place of another.
    """
    kept = {identity for note in notes if note.commit not in lost for identity in identities(note)}
    found = {}
    for note in notes:
        if note.commit in lost and not identities(note) <= kept:
            where = "is not in the repository" if note.commit in gone else "is in no branch"
            what = f"There is a handoff note on {note.commit}, which {where}."
            found[note.commit] = Damage(kind="dangling", what=what, commit=note.commit)
    return found


def _locked(ref: str, lock: str) -> Damage:
    return Damage(kind="lock", what=f"No note can be written to {ref}: a git that was ended left {lock}.")


def _children_first(parents: dict[CommitId, list[str]]) -> list[CommitId]:
    """Commits of the same second, in the order of the history; as they are given where that says nothing."""
    place = {commit: number for number, commit in enumerate(parents)}
    if all(place.get(CommitId(parent), at) >= at for commit, at in place.items() for parent in parents[commit]):
        return list(parents)
    sorter = TopologicalSorter({commit: [each for each in named if each in place] for commit, named in parents.items()})
    try:
        return [CommitId(commit) for commit in sorter.static_order()][::-1]
    except CycleError:  # by a replacement of git's; there is no order then
        return list(parents)


def _batch(answer: bytes) -> Iterator[tuple[str, bytes]]:
    """Object id and bytes of each object in what ``cat-file --batch`` prints."""
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        fields = answer[at:end].split(b" ")
        at = end + 1
        if len(fields) == 3:
            size = int(fields[2])
            yield fields[0].decode(), answer[at : at + size]
            at += size + 1


def merge_fetched(repository: Repository, ref: str) -> int:
    """Take the notes that lie under ``ref`` into ours, line by line; how many commits' notes that changed.

    The lines of both are united, without repeating any. Raises ``UsageError`` if there is no such ref or a note in it
    cannot be read, and ``NotesDamaged`` if ours cannot: nothing is changed then. Whose word the notes are is not
    looked at: whoever can push can write one.
    """
    _require_ref(repository, ref)
    with writing(repository):
        theirs = tip(repository, ref)
        if theirs is None:
            raise UsageError(
                f"There is no {ref} in this repository.", hint=f"bring it first: git fetch REMOTE {REF}:{ref}"
            )
        bad = [note.damage.what for note in read_notes(repository, theirs) if note.damage is not None]
        if bad:
            more = f" And {len(bad) - _SHOWN} more." if len(bad) > _SHOWN else ""
            raise UsageError(
                f"The notes in {ref} were not taken over. {' '.join(bad[:_SHOWN])}{more}",
                hint="mend them where they come from, with: cdd tdd repair-notes --apply; then fetch them again",
            )
        before = _lines(repository)
        repository.git("notes", f"--ref={NOTES_REF}", "merge", "--quiet", "--strategy=cat_sort_uniq", ref)
        after = _lines(repository)
    return sum(lines != before.get(commit) for commit, lines in after.items())


def left_behind(repository: Repository) -> NotesDamaged | None:
    """The error for a history of ours without any notes, as a clone is; None if no commit of it says that it had one.

    Only for where there is no ref of notes.
    """
    head = repository.head()
    if head is None:
        return None
    log = ("log", "-1", "--format=%H", "--basic-regexp", "--grep=^Handoff-Id: ")
    if not repository.git(*log, head).strip():
        return None
    return NotesDamaged(
        f"There is no {REF} in this repository, but commits that had notes are there.",
        hint=f"a clone brings no notes along: git fetch origin {REF}:{REF}; if they are lost: {REPAIR}",
    )


def _lines(repository: Repository) -> dict[str, tuple[str, ...]]:
    """Commit -> the lines of its note."""
    ours = tip(repository)
    return {} if ours is None else {note.commit: note.lines for note in read_notes(repository, ours)}


def _require_ref(repository: Repository, ref: str) -> None:
    """Raise ``UsageError`` unless ``ref`` is the full name that a ref other than ours may have."""
    try:
        repository.git("check-ref-format", ref)
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{ref!r} cannot be a ref.", hint=_EXAMPLE) from error
    if not ref.startswith("refs/") or ref == REF:
        raise UsageError(f"{ref!r} is no full name of a ref beside {REF}.", hint=_EXAMPLE)
    require_whole_ref(repository, ref)


_EXAMPLE = f"fetch into one of its own: git fetch REMOTE {REF}:refs/notes/fetched"


_MESSAGE = "Notes repaired by 'cdd tdd repair-notes'"
_NAMES_AN_OBJECT = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64})\s*")


def notes_commit(
    repository: Repository, base: str | None, *, notes: Iterable[Note], changes: Mapping[CommitId, tuple[str, ...]]
) -> str:
    """The commit of ``base``'s ``notes`` with these ``changes``: commit -> its lines, none to remove its note."""
    if base is not None and not changes:
        return base
    known = {note.commit: note.paths for note in notes}
    is_deep = any("/" in path for paths in known.values() for path in paths)
    blobs = _blobs(repository, [text_of(lines) for lines in changes.values() if lines])
    entries = []
    for commit, lines in changes.items():
        entries += [f"0 {'0' * len(commit)}\t{path}\0" for path in known.get(commit, ())]
        if lines:
            path = f"{commit[:2]}/{commit[2:]}" if is_deep else commit
            entries.append(f"100644 {blobs[text_of(lines)]}\t{path}\0")
    with private_index() as index:
        repository.git("read-tree", *((base,) if base else ("--empty",)), variables=index)
        repository.git("update-index", "-z", "--index-info", stdin="".join(entries).encode(), variables=index)
        tree = repository.git("write-tree", variables=index).strip()
    return repository.git("commit-tree", tree, *(("-p", base) if base else ()), "-m", _MESSAGE).strip()


def change_ref(repository: Repository, new: str, *, found: str | None, now: str) -> str | None:
    """Let the ref name ``new``; the name under which what it held is kept, None if there was no ref.

    ``found`` is the commit it names if it names one; then both refs change at once, and only if it still does.
    """
    backup = _free_name(repository, now)
    why = ("-m", "cdd: notes repaired")
    if found is not None:
        both = f"create {backup} {found}\nupdate {REF} {new} {found}\n"
        repository.git("update-ref", *why, "--stdin", stdin=both.encode())
        return backup
    held = loose_content(repository, REF)
    if held is None and not is_there(repository, REF):
        repository.git("update-ref", *why, REF, new, "0" * len(new))
        return None
    kept = repository.git("hash-object", "-w", "--stdin", stdin=b"broken\n" if held is None else held).strip()
    repository.git("update-ref", backup, kept, "0" * len(kept))
    if held is None or _NAMES_AN_OBJECT.fullmatch(held):
        repository.git("update-ref", *why, REF, new)
    else:
        _write_over(repository, new)
    return backup


def undoing(repository: Repository, backup: str | None, *, found: str | None) -> str:
    """The command that takes ``change_ref`` back."""
    if backup is None:
        return f"git update-ref -d {REF}"
    if found is not None:
        return f"git update-ref {REF} {backup}"
    return f"git cat-file blob {backup} > {shlex.quote(str(loose_file(repository, REF)))}"


def _write_over(repository: Repository, new: str) -> None:
    """Put ``new`` in the place of a file that git refuses to change, as git does it: by its lock, in one step."""
    lock = lock_of(repository.place, REF)
    try:
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise NotesDamaged(f"{lock} is there: another git process is at work, or one was killed.") from error
    with os.fdopen(handle, "w") as stream:
        stream.write(f"{new}\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(lock, loose_file(repository, REF))


def _free_name(repository: Repository, now: str) -> str:
    """A ref for a backup that is not taken."""
    name = f"{BACKUPS}/{re.sub(r'[^0-9A-Za-z]', '', now)}"
    taken = set(repository.git("for-each-ref", "--format=%(refname)", f"{BACKUPS}/").split())
    return next(each for each in (name, *(f"{name}-{number}" for number in range(2, 10**6))) if each not in taken)


def _blobs(repository: Repository, texts: Iterable[str]) -> dict[str, str]:
    """Text -> the object that holds it."""
    wanted = tuple(dict.fromkeys(texts))
    return dict(zip(wanted, put(repository, (text.encode() for text in wanted)), strict=True))
