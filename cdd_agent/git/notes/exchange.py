"""Handoff notes of another repository, once they were fetched: git brings no notes along, in neither direction."""

from cdd_agent.errors import UsageError
from cdd_agent.git.failure import GitError, GitUnable
from cdd_agent.git.notes.history import read_notes
from cdd_agent.git.notes.store import NOTES_REF, REF, REPAIR, NotesDamaged, require_whole_ref, tip, writing
from cdd_agent.git.repository import Repository

_SHOWN = 3


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
