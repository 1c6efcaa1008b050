"""Handoff notes: JSON lines kept on commits under ``refs/notes/tdd-handoffs``.

git's own ``notes add`` loses notes when two processes add at once, so every writer holds one lock in the folder
that all work trees of the repository share.
"""

from collections.abc import Iterable

from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import CommitId, Repository, resolved
from cdd_agent.storage import exclusive

NOTES_REF = "tdd-handoffs"
LOCK_WAIT_S = 30.0


def append_line(repository: Repository, commit: CommitId, *, line: str) -> None:
    """Add ``line`` to the note on ``commit``; a line that is there already is not repeated."""
    line = line.encode("utf-8", "backslashreplace").decode("utf-8")  # half a character in its JSON form
    commit = CommitId(resolved(repository, commit))
    lock = repository.place.common_dir / "cdd-notes.lock"
    with exclusive(lock, purpose="Writing a handoff note", wait_s=LOCK_WAIT_S):
        lines = read_lines(repository, commit)
        if line in lines:
            return
        text = text_of((*lines, line))
        repository.git("notes", f"--ref={NOTES_REF}", "add", "--force", "--file=-", commit, stdin=text.encode())


def read_lines(repository: Repository, commit: CommitId) -> tuple[str, ...]:
    """The lines of the note on ``commit``, oldest first; empty if it has none."""
    try:
        text = repository.git("notes", f"--ref={NOTES_REF}", "show", resolved(repository, commit))
    except GitError as error:
        if "no note found" not in error.happened:
            raise  # what cannot be read now must not be taken for nothing, and written over
        return ()
    return lines_of(text)


def text_of(lines: Iterable[str]) -> str:
    """A note of these lines."""
    return "".join(f"{line}\n" for line in lines)


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a note; only a newline ends one, as JSON may hold every other character that a reader might."""
    return tuple(line for line in text.split("\n") if line.strip())
