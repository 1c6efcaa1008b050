"""A new tree of notes in place of another, in one change of the ref, with the old one kept."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping

from cdd_agent.git.notes.history import BACKUPS, Note, put
from cdd_agent.git.notes.locks import lock_of
from cdd_agent.git.notes.store import REF, NotesDamaged, is_there, loose_content, loose_file, text_of
from cdd_agent.git.repository import CommitId, Repository, private_index

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
