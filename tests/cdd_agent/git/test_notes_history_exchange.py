from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.notes import (
    REF,
    NotesDamaged,
    append_line,
    merge_fetched,
    read_note,
    read_shallow_commits,
    survey_notes,
)
from cdd_agent.git.notes_repair import plan_repairs
from cdd_agent.git.repository import Repository
from cdd_agent.work.handoff import encode
from tests.cdd_agent.git.hostile.repository import plain
from tests.cdd_agent.git.notes_written import handoff, landed, note, read_history, top
from tests.fakes.cases import soak_after

FETCHED = "refs/notes/fetched"


def cloned(repository: Repository, folder: Path) -> Repository:
    """Another's copy, where commits have arrived and notes have not."""
    plain(repository.root, "clone", "--quiet", str(repository.root), str(folder))
    copy = Repository.find(folder)
    plain(folder, "config", "user.name", "Bob")
    plain(folder, "config", "user.email", "bob@example.org")
    return copy


def fetch(into: Repository) -> None:
    plain(into.root, "fetch", "--quiet", "origin", f"+{REF}:{FETCHED}")


def test_the_first_notes_are_taken_as_they_are(repository: Repository, tmp_path: Path) -> None:
    landed(repository)
    copy = cloned(repository, tmp_path / "copy")
    assert read_history(copy) == ()
    fetch(copy)
    assert merge_fetched(copy, FETCHED) == 1
    assert read_history(copy) == read_history(repository)
    assert merge_fetched(copy, FETCHED) == 0


def test_lines_of_both_sides_are_united_on_one_commit(repository: Repository, tmp_path: Path) -> None:
    commit = landed(repository, phase="GREEN")
    copy = cloned(repository, tmp_path / "copy")
    fetch(copy)
    merge_fetched(copy, FETCHED)
    append_line(repository, commit, line=encode(handoff(commit, phase="REFACTOR")))
    append_line(copy, commit, line=encode(handoff(commit, phase="GREEN", base="other")))
    theirs = landed(repository, cycle=2)
    plain(copy.root, "fetch", "--quiet", "origin")
    plain(copy.root, "update-ref", "refs/heads/theirs", theirs)
    fetch(copy)
    assert merge_fetched(copy, FETCHED) == 2
    newest, united = read_history(copy)
    assert newest.commit == theirs
    assert {(each.phase, each.id) for each in united.handoffs} == {
        ("GREEN", "green-1-b0"),
        ("GREEN", "green-1-other"),
        ("REFACTOR", "refactor-1-b0"),
    }
    assert united.latest.phase == "REFACTOR"
    assert len(read_note(copy, commit).lines) == 3
    assert not list((copy.location.common_dir).glob("NOTES_MERGE*"))


@pytest.mark.slow
def test_notes_that_cannot_be_read_are_not_taken_over(repository: Repository, tmp_path: Path) -> None:
    first = landed(repository)
    copy = cloned(repository, tmp_path / "copy")
    note(repository, first, text=b"words\n")
    fetch(copy)
    own = landed(copy, cycle=2)
    before = top(copy)
    with pytest.raises(UsageError, match=f"not merged.*{first} does not hold a readable handoff"):
        merge_fetched(copy, FETCHED)
    assert top(copy) == before
    assert [entry.commit for entry in read_history(copy)] == [own]


def test_broken_notes_of_our_own_are_never_replaced_by_fetched_ones(repository: Repository, tmp_path: Path) -> None:
    landed(repository)
    copy = cloned(repository, tmp_path / "copy")
    landed(copy, cycle=2)
    fetch(copy)
    (copy.location.common_dir / REF).write_text("")
    with pytest.raises(NotesDamaged) as caught:
        merge_fetched(copy, FETCHED)
    assert "cdd tdd repair-notes" in caught.value.hint
    assert (copy.location.common_dir / REF).read_bytes() == b""


@soak_after(2, "ref", ["--abort", "fetched", "refs/notes/..", REF, "refs/notes/none", "-s", ""])
def test_only_the_full_name_of_another_ref_will_do(repository: Repository, ref: str) -> None:
    landed(repository)
    before = top(repository)
    with pytest.raises(UsageError) as caught:
        merge_fetched(repository, ref)
    assert "git fetch REMOTE" in caught.value.hint
    assert top(repository) == before


@pytest.mark.slow
def test_in_a_shallow_clone_notes_on_what_was_not_brought_along_are_no_damage(
    repository: Repository, tmp_path: Path
) -> None:
    for cycle in (1, 2, 3):
        landed(repository, cycle=cycle)
    folder = tmp_path / "copy"
    plain(repository.root, "clone", "--quiet", "--depth=1", f"file://{repository.root}", str(folder))
    plain(folder, "fetch", "--quiet", "origin", f"{REF}:{REF}")
    copy = Repository.find(folder)
    found = survey_notes(copy)
    assert [entry.latest.cycle_number for entry in found.entries] == [3]
    assert found.damages == ()
    assert plan_repairs(copy) == ()
    assert len(read_shallow_commits(copy)) == 1
    assert read_shallow_commits(repository) == frozenset()
