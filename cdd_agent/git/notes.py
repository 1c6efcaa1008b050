"""Handoff notes: JSON lines on commits, stored under ``refs/notes/tdd-handoffs``.

``git notes add`` loses notes when two processes run it at once, so every writer first takes a lock in the folder that
all work trees share. git also treats a damaged ref as a missing one. Here a damaged ref, or a note that cannot be read,
raises ``NotesDamaged``.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.git import hardening
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.git.runner import GitError, GitTimeout, GitUnable, RepositoryLocation
from cdd_agent.storage import exclusive_lock, read_ordinary

STALE_S = 600.0
"""Age of a lock that a killed process must have left; git itself holds it for a moment."""
_PROCESSES = Path("/proc")


def ref_lock_path(location: RepositoryLocation, ref: str) -> Path:
    """Return the path of git's own lock for ``ref``."""
    return location.common_dir / f"{ref}.lock"


def find_stale_lock(location: RepositoryLocation, ref: str) -> Path | None:
    """Return the lock of ``ref`` if it is older than ``STALE_S``; nobody can write the ref until it is removed."""
    lock = ref_lock_path(location, ref)
    with contextlib.suppress(OSError):
        if time.time() - lock.lstat().st_mtime >= STALE_S:
            return lock
    return None


def find_lock_owner(lock: Path, *, location: RepositoryLocation) -> str | None:
    """Return a process that may hold ``lock``: one that has it open, or a git in this repository."""
    if not (_PROCESSES / "self" / "fd").is_dir():
        return "a process that this system does not show"
    for process in _PROCESSES.glob("[0-9]*"):
        name = ""
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text(errors="replace").strip()
        is_git = name.split("-")[0] == "git" and _may_run_in(process, folders=(location.root, location.common_dir))
        if is_git or _has_open(process, lock):
            return f"{name} (process {process.name})"
    return None


def _may_run_in(process: Path, *, folders: tuple[Path, ...]) -> bool:
    try:
        cwd = Path(os.readlink(process / "cwd"))
    except PermissionError:  # another user's git may be at work in this repository
        return True
    except OSError:  # it has ended
        return False
    return any(cwd.is_relative_to(folder) for folder in folders)


def _has_open(process: Path, path: Path) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "fd" / name) == str(path):
                    return True
    return False


REF = hardening.NOTES_REF
REF_NAME = REF.removeprefix("refs/notes/")
"""The name of ``REF`` in the option ``git notes --ref``."""
LOCK_WAIT_S = 30.0
REPAIR_COMMAND = "cdd tdd repair-notes"

_LIMIT_BYTES = 500_000_000
"""``packed-refs`` holds a line for each ref."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_REF_CONTENT = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64}|ref: \S+)\s*")


class NotesDamaged(GitUnable):
    """Handoff notes exist but cannot be read or written; never treated as "no notes"."""

    def __init__(self, happened: str, *, hint: str = "", status: int | None = None) -> None:
        """Without a ``hint`` the error names the command that repairs notes."""
        preview = f"list the damage and the possible repairs, without changing anything: {REPAIR_COMMAND}"
        super().__init__(happened, hint=hint or preview, status=status)


def append_line(repository: Repository, commit: CommitId, *, line: str) -> None:
    """Add ``line`` to the note on ``commit`` unless the note already contains it.

    Raises ``NotesDamaged``, and changes nothing, if the note cannot be read.
    """
    line = line.encode("utf-8", "backslashreplace").decode("utf-8")  # JSON escapes for lone surrogates
    commit = CommitId(resolve_revision(repository, commit))
    with lock_notes(repository):
        lines = read_lines(repository, commit)
        if line in lines:
            return
        text = format_note((*lines, line))
        try:
            repository.git("notes", f"--ref={REF_NAME}", "add", "--force", "--file=-", commit, stdin=text.encode())
        except GitTimeout:
            raise
        except GitError as error:
            if lock := find_stale_lock(repository.location, REF):
                happened = f"cdd cannot write handoff notes: a killed git left {lock} more than ten minutes ago."
                raise NotesDamaged(happened, status=error.status) from error
            raise


def read_lines(repository: Repository, commit: CommitId) -> tuple[str, ...]:
    """Return the lines of the note on ``commit``, oldest first; empty if it has no note.

    Raises ``NotesDamaged`` if the note is empty, not text, or unreadable.
    """
    commit = CommitId(resolve_revision(repository, commit))
    require_valid_ref(repository, REF)
    try:
        text = repository.git("notes", f"--ref={REF_NAME}", "show", commit)
    except GitTimeout:
        raise
    except GitError as error:
        if "no note found" in error.happened:
            return ()
        happened = f"The handoff note on {commit} cannot be read. {error.happened}"
        raise NotesDamaged(happened, status=error.status) from error
    wrong = describe_text_error(text)
    if wrong is not None:
        raise NotesDamaged(f"The handoff note on {commit} {wrong}.")
    return split_note(text)


@contextlib.contextmanager
def lock_notes(repository: Repository) -> Iterator[None]:
    """Keep other processes from changing notes; use it around any git command that does, such as a rebase."""
    lock = repository.location.common_dir / "cdd-notes.lock"
    with exclusive_lock(lock, purpose="Writing a handoff note", wait_s=LOCK_WAIT_S):
        yield


def read_tip(repository: Repository, ref: str = REF) -> str | None:
    """Return the commit that holds all notes of ``ref``; None only if the ref does not exist.

    Raises ``NotesDamaged`` if the ref exists but does not name a readable commit.
    """
    require_valid_ref(repository, ref)
    try:
        return repository.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except GitTimeout:
        raise
    except GitError as error:
        if not has_ref(repository, ref):
            return None
        raise NotesDamaged(f"{ref} does not name a readable commit. {error.happened}", status=error.status) from error


def require_valid_ref(repository: Repository, ref: str) -> None:
    """Raise ``NotesDamaged`` if the file of ``ref`` exists but does not hold a commit."""
    content = read_loose_ref(repository, ref)
    if content is not None and _REF_CONTENT.fullmatch(content) is None:
        path = loose_ref_path(repository, ref)
        raise NotesDamaged(f"{ref} is damaged: its file {path} holds {content[:60]!r} instead of a commit.")


def read_loose_ref(repository: Repository, ref: str) -> bytes | None:
    """Return the content of the file of ``ref``, or None if the ref is packed or does not exist."""
    path = loose_ref_path(repository, ref)
    try:
        return read_ordinary(path, limit_bytes=_LIMIT_BYTES, through_links=True)
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


def describe_text_error(text: str) -> str | None:
    """Return the predicate of a sentence about a note that is not text, or None if it is."""
    if not text.strip():
        return "is empty"
    if "\0" in text or _SURROGATE.search(text):
        return "is not text"
    return None


def has_ref(repository: Repository, ref: str) -> bool:
    """Return whether ``ref`` exists, even if it is damaged."""
    if read_loose_ref(repository, ref) is not None:
        return True
    try:
        packed = read_ordinary(repository.location.common_dir / "packed-refs", limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: never report notes as missing
    return f" {ref}\n".encode() in packed


def loose_ref_path(repository: Repository, ref: str) -> Path:
    """Return where the file of ``ref`` is unless the ref is packed."""
    return repository.location.common_dir / ref
