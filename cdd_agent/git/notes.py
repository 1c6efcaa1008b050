"""Handoff notes: JSON lines kept on commits under ``refs/notes/tdd-handoffs``.

git's own ``notes add`` loses notes when two processes add at once, so every writer holds one lock in the folder
that all work trees of the repository share. git also takes a ref that is damaged for one that is not there, and says
so on the side only: here it is an error, as is every note that is there and cannot be read.

git's own lock of a ref: a file that says nothing of who made it, and stays if that process is killed.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.git import hardening
from cdd_agent.git.repository import CommitId, Repository, resolved
from cdd_agent.git.runner import GitError, GitTimeout, GitUnable, Place
from cdd_agent.storage import exclusive, read_ordinary

STALE_S = 600.0
"""How long a lock must have been there to be one that a killed process left: git holds it for a moment."""
_PROCESSES = Path("/proc")


def lock_of(place: Place, ref: str) -> Path:
    """Where git locks ``ref``."""
    return place.common_dir / f"{ref}.lock"


def stale_lock(place: Place, ref: str) -> Path | None:
    """The lock of ``ref`` if it has been there for ``STALE_S``: nothing can be written while it is."""
    lock = lock_of(place, ref)
    with contextlib.suppress(OSError):
        if time.time() - lock.lstat().st_mtime >= STALE_S:
            return lock
    return None


def owner(lock: Path, *, place: Place) -> str | None:
    """Who may hold ``lock``: a process that has it open, or a git that is at work in the repository; None if nobody.

    A git whose folder cannot be seen, another user's, may be at work here.
    """
    if not (_PROCESSES / "self" / "fd").is_dir():
        return "a process that this system does not show"
    for process in _PROCESSES.glob("[0-9]*"):
        name = _name(process)
        at_work = name.split("-")[0] == "git" and _is_in(process, folders=(place.root, place.common_dir))
        if at_work or str(lock) in _opened(process):
            return f"{name} (process {process.name})"
    return None


def _name(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return ""


def _is_in(process: Path, *, folders: tuple[Path, ...]) -> bool:
    """Whether a process stands in one of ``folders``, as far as can be seen."""
    try:
        cwd = Path(os.readlink(process / "cwd"))
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False
    return any(cwd.is_relative_to(folder) for folder in folders)


def _opened(process: Path) -> frozenset[str]:
    """What a process has open; nothing of those that may not be looked at."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(process / "fd" / name))
    return frozenset(found)


REF = hardening.NOTES_REF
NOTES_REF = REF.removeprefix("refs/notes/")
"""What git's own ``notes --ref`` is given."""
LOCK_WAIT_S = 30.0
REPAIR = "cdd tdd repair-notes"

_LIMIT_BYTES = 500_000_000
"""``packed-refs`` holds a line for each ref."""
_HALF = re.compile("[\ud800-\udfff]")
_WHOLE = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64}|ref: \S+)\s*")


class NotesDamaged(GitUnable):
    """Handoff notes are there and cannot be read, or not be written: it is never taken for "no notes"."""

    def __init__(self, happened: str, *, hint: str = "", status: int | None = None) -> None:
        """Without a ``hint`` it names the command that mends notes."""
        look = f"see what can be mended, without changing anything yet: {REPAIR}"
        super().__init__(happened, hint=hint or look, status=status)


def append_line(repository: Repository, commit: CommitId, *, line: str) -> None:
    """Add ``line`` to the note on ``commit``; a line that is there already is not repeated.

    Raises ``NotesDamaged`` if what is there cannot be read, and leaves it as it is.
    """
    line = line.encode("utf-8", "backslashreplace").decode("utf-8")  # half a character in its JSON form
    commit = CommitId(resolved(repository, commit))
    with writing(repository):
        lines = read_lines(repository, commit)
        if line in lines:
            return
        text = text_of((*lines, line))
        try:
            repository.git("notes", f"--ref={NOTES_REF}", "add", "--force", "--file=-", commit, stdin=text.encode())
        except GitError as error:
            raise _told(repository, error) from error


def read_lines(repository: Repository, commit: CommitId) -> tuple[str, ...]:
    """The lines of the note on ``commit``, oldest first; empty if it has none.

    Raises ``NotesDamaged`` if it has one that is empty, no text, or not to be had.
    """
    commit = CommitId(resolved(repository, commit))
    require_whole_ref(repository, REF)
    try:
        text = repository.git("notes", f"--ref={NOTES_REF}", "show", commit)
    except GitTimeout:
        raise
    except GitError as error:
        if "no note found" in error.happened:
            return ()
        happened = f"The handoff note on {commit} cannot be read. {error.happened}"
        raise NotesDamaged(happened, status=error.status) from error
    wrong = unreadable(text)
    if wrong is not None:
        raise NotesDamaged(f"The handoff note on {commit} {wrong}.")
    return lines_of(text)


@contextlib.contextmanager
def writing(repository: Repository) -> Iterator[None]:
    """Be the only one to change notes while the block runs: for whatever makes git do so, a rebase for example."""
    lock = repository.place.common_dir / "cdd-notes.lock"
    with exclusive(lock, purpose="Writing a handoff note", wait_s=LOCK_WAIT_S):
        yield


def tip(repository: Repository, ref: str = REF) -> str | None:
    """The commit that holds all notes of ``ref``; None only if there is no such ref.

    Raises ``NotesDamaged`` if it is there and names none that can be read.
    """
    require_whole_ref(repository, ref)
    try:
        return repository.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except GitTimeout:
        raise
    except GitError as error:
        if not is_there(repository, ref):
            return None
        raise NotesDamaged(f"{ref} names no commit that can be read. {error.happened}", status=error.status) from error


def require_whole_ref(repository: Repository, ref: str) -> None:
    """Raise ``NotesDamaged`` if the file of ``ref`` is there and holds something else than a ref's does."""
    held = loose_content(repository, ref)
    if held is not None and _WHOLE.fullmatch(held) is None:
        raise NotesDamaged(f"{ref} is damaged: its file {loose_file(repository, ref)} holds {held[:60]!r}, no commit.")


def loose_content(repository: Repository, ref: str) -> bytes | None:
    """What is in the file of ``ref``; None if it has none of its own."""
    path = loose_file(repository, ref)
    try:
        return read_ordinary(path, limit_bytes=_LIMIT_BYTES, through_links=True)
    except (FileNotFoundError, NotADirectoryError):
        return b"" if path.is_symlink() else None
    except OSError as error:
        if path.is_dir():
            return None  # of refs below it, or left by one that is gone
        raise NotesDamaged(
            f"{path} cannot be read: {error.strerror}.", hint=f"see whose it is: ls -l {path}"
        ) from error


def text_of(lines: Iterable[str]) -> str:
    """A note of these lines."""
    return "".join(f"{line}\n" for line in lines)


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a note; only a newline ends one, as JSON may hold every other character that a reader might."""
    return tuple(line for line in text.split("\n") if line.strip())


def unreadable(text: str) -> str | None:
    """Why this is no text of a note, in words that follow its name; None if it is one. Bytes are escaped in it."""
    if not text.strip():
        return "is empty"
    if "\0" in text or _HALF.search(text):
        return "is no text"
    return None


def _told(repository: Repository, error: GitError) -> GitError:
    """The error of a note that could not be written; a lock that was left is named for what it is."""
    lock = stale_lock(repository.place, REF)
    if lock is None or isinstance(error, GitTimeout):
        return error
    happened = f"No handoff note can be written: a git that was ended left {lock}, more than ten minutes ago."
    return NotesDamaged(happened, status=error.status)


def is_there(repository: Repository, ref: str) -> bool:
    """Whether there is a ref of this name, whatever it holds."""
    if loose_content(repository, ref) is not None:
        return True
    try:
        packed = read_ordinary(repository.place.common_dir / "packed-refs", limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody can tell
    return f" {ref}\n".encode() in packed


def loose_file(repository: Repository, ref: str) -> Path:
    """Where the file of ``ref`` is, if it has one of its own."""
    return repository.place.common_dir / ref
