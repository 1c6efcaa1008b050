import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cdd_agent.git.notes import REF, NotesDamaged, append_line, read_handoffs, read_note, survey_notes
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.installation import suggest_upgrade
from cdd_agent.work.handoff import encode
from tests.cdd_agent.git.hostile.repository import plain
from tests.cdd_agent.git.notes_written import (
    blob_of,
    broken,
    commit_of,
    emptied,
    handoff,
    head,
    landed,
    lose,
    names_nothing,
    names_nothing_packed,
    note,
    read_history,
    top,
)
from tests.fakes.cases import soak_after


def damage_of(repository: Repository) -> str:
    return " ".join(damage.what for damage in survey_notes(repository).damages)


def test_without_a_ref_there_is_no_history(repository: Repository) -> None:
    assert read_history(repository) == ()
    assert read_handoffs(repository, head(repository)) == ()
    assert survey_notes(repository).tip is None


def test_the_newest_commit_comes_first_also_within_a_second(repository: Repository) -> None:
    commits = [landed(repository, phase=phase, cycle=cycle) for cycle in (1, 2, 3) for phase in ("RED", "GREEN")]
    entries = read_history(repository)
    assert [entry.commit for entry in entries] == commits[::-1]
    assert [entry.latest.seq for entry in entries] == [11, 10, 7, 6, 3, 2]
    assert entries[0].latest == handoff(commits[-1], phase="GREEN", cycle=3)


def test_lines_of_two_phases_on_one_commit_are_both_there(repository: Repository) -> None:
    commit = landed(repository, phase="GREEN")
    append_line(repository, commit, line=encode(handoff(commit, phase="REFACTOR")))
    append_line(repository, commit, line="a word by hand")
    (entry,) = read_history(repository)
    assert [each.phase for each in entry.handoffs] == ["GREEN", "REFACTOR"]
    assert entry.latest.next_phase == "COMPLETE"
    assert read_handoffs(repository, commit) == entry.handoffs


def test_notes_of_other_branches_are_history_too(repository: Repository) -> None:
    first = landed(repository)
    plain(repository.root, "checkout", "--quiet", "--detach")
    second = landed(repository, cycle=2)
    plain(repository.root, "update-ref", "refs/cdd/abandoned/csv/1", second)
    plain(repository.root, "checkout", "--quiet", "main")
    assert {entry.commit for entry in read_history(repository)} == {first, second}


def zeroed(repository: Repository) -> None:
    (repository.location.common_dir / REF).write_text("0" * 40 + "\n")


def without_its_tree(repository: Repository) -> None:
    lose(repository, plain(repository.root, "rev-parse", f"{REF}^{{tree}}").stdout.decode().strip())


@soak_after(2, "harm", [broken, emptied, zeroed, names_nothing, names_nothing_packed, without_its_tree])
def test_a_broken_ref_is_an_error_and_never_no_history(
    repository: Repository, harm: Callable[[Repository], None]
) -> None:
    commit = landed(repository)
    harm(repository)
    asked = (
        lambda: survey_notes(repository),
        lambda: read_note(repository, commit).lines,
        lambda: append_line(repository, commit, line="{}"),
    )
    before = (repository.location.common_dir / REF).read_bytes() if harm is not names_nothing_packed else b""
    for ask in asked:
        with pytest.raises(NotesDamaged) as caught:
            ask()
        assert "cdd tdd repair-notes" in caught.value.hint
    if before:
        assert (repository.location.common_dir / REF).read_bytes() == before


@soak_after(
    1,
    ("text", "words"),
    [
        (b"fixed the header\n", "does not hold a readable handoff"),
        (b'{"v":1,"seq":1}\n', "does not hold a readable handoff"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x7fELF\x00\x01", "is not text"),
        (b'{"v":1,"id":"\xff"}\n', "is not text"),
    ],
    ids=["words", "half", "empty", "blank", "binary", "latin"],
)
def test_a_note_that_cannot_be_read_is_an_error_beside_the_others(
    repository: Repository, text: bytes, words: str
) -> None:
    good = landed(repository)
    bad = landed(repository, cycle=2)
    note(repository, bad, text=text)
    error = damage_of(repository)
    assert f"The handoff note on {bad} {words}" in error
    with pytest.raises(NotesDamaged, match=words):
        read_handoffs(repository, bad)
    found = survey_notes(repository)
    assert [entry.commit for entry in found.entries] == [good]
    assert [damage.kind for damage in found.damages] == ["unreadable"]


def test_a_note_that_is_no_text_is_not_written_over(repository: Repository) -> None:
    commit = landed(repository)
    note(repository, commit, text=b'\xff{"v":1}\n')
    before = top(repository)
    with pytest.raises(NotesDamaged):
        append_line(repository, commit, line="{}")
    assert top(repository) == before


@soak_after(1, "damage", ["missing", "damaged"])
def test_notes_whose_objects_are_missing_or_damaged_are_named_and_the_others_read(
    repository: Repository, damage: str
) -> None:
    commits = [landed(repository, cycle=cycle) for cycle in range(1, 8)]
    for commit in (commits[1], commits[4]):
        blob = blob_of(repository, commit)
        lose(repository, blob)
        if damage == "damaged":
            (repository.location.common_dir / "objects" / blob[:2] / blob[2:]).write_bytes(b"x\x9c")
    error = damage_of(repository)
    assert error.count("is missing or damaged") == 2
    found = survey_notes(repository)
    assert all(commit in error for commit in (commits[1], commits[4]))
    assert len(found.entries) == 5


def test_a_note_of_a_later_version_asks_for_an_upgrade(repository: Repository) -> None:
    commit = landed(repository)
    note(repository, commit, text=encode(handoff(commit)).replace('"v":2', '"v":3').encode())
    error = damage_of(repository)
    assert "later version" in error
    with pytest.raises(NotesDamaged) as caught:
        read_handoffs(repository, commit)
    assert suggest_upgrade() in caught.value.hint


def test_a_note_on_a_commit_that_no_branch_leads_to_is_an_error(repository: Repository) -> None:
    first = landed(repository)
    second = landed(repository, cycle=2)
    plain(repository.root, "reset", "--quiet", "--hard", "HEAD~1")
    error = damage_of(repository)
    assert error == f"There is a handoff note on {second}, which is not on any branch."
    assert [entry.commit for entry in survey_notes(repository).entries] == [second, first]


def test_a_note_on_a_commit_that_is_gone_is_an_error(repository: Repository) -> None:
    first = landed(repository)
    second = landed(repository, cycle=2)
    plain(repository.root, "reset", "--quiet", "--hard", "HEAD~1")
    (repository.location.git_dir / "ORIG_HEAD").unlink()
    lose(repository, second)
    assert damage_of(repository) == f"There is a handoff note on {second}, which is not in the repository."
    assert [entry.commit for entry in survey_notes(repository).entries] == [first, second]


def test_what_an_amended_commit_left_behind_is_no_damage_once_its_note_went_along(repository: Repository) -> None:
    landed(repository)
    repository.git("commit", ("--amend", "--quiet", "--allow-empty", "-m"), "feat: another word")
    (entry,) = read_history(repository)
    assert entry.commit == head(repository)


@pytest.mark.slow
def test_a_lock_that_a_killed_git_left_is_an_error_that_says_so(repository: Repository) -> None:
    commit = landed(repository)
    lock = repository.location.common_dir / f"{REF}.lock"
    lock.touch()
    assert len(read_history(repository)) == 1, "somebody is writing"
    an_hour_ago = time.time() - 3600
    os.utime(lock, (an_hour_ago, an_hour_ago))
    error = damage_of(repository)
    assert str(lock) in error
    with pytest.raises(NotesDamaged, match=r"tdd-handoffs\.lock") as caught:
        append_line(repository, commit, line="{}")
    assert "cdd tdd repair-notes" in caught.value.hint
    assert lock.exists()


@pytest.mark.slow
def test_a_linked_work_tree_reads_the_same_history(repository: Repository, tmp_path: Path) -> None:
    landed(repository)
    plain(repository.root, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    linked = Repository.find(tmp_path / "linked")
    second = landed(linked, cycle=2)
    assert read_history(linked) == read_history(repository)
    assert read_history(repository)[0].commit == second, "the head of a work tree is part of the history"


def imported(folder: Path, *, count: int) -> Repository:
    """A repository with so many commits, each with a note of ordinary size."""
    repository = Repository.create(folder)
    who = b"Ada <ada@example.org>"
    stream = bytearray()
    for number in range(1, count + 1):
        stream += b"commit refs/heads/main\nmark :%d\ncommitter %s %d +0000\n" % (
            number,
            who,
            1_700_000_000 + number // 3,
        )
        stream += b"data 5\nfeat:\n\n"
    stream += b"commit refs/notes/tdd-handoffs\ncommitter %s 1800000000 +0000\ndata 5\nNotes\n" % who
    for number in range(1, count + 1):
        said = msgspec.structs.replace(
            handoff("c0", cycle=number), completed_tests=tuple(f"tests/test_csv.py::test_{each}" for each in range(6))
        )
        text = encode(said).encode() + b"\n"
        stream += b"N inline :%d\ndata %d\n%s\n" % (number, len(text), text)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=bytes(stream), check=True, timeout=120)
    return repository


def used_s() -> float:
    """CPU time of this process and of all that it has waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def cost_of(ask: Callable[[], object]) -> float:
    """The least of three tries, in seconds of CPU."""
    tries = []
    for _ in range(3):
        before = used_s()
        ask()
        tries.append(used_s() - before)
    return min(tries)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000, 10_000])
def test_thousands_of_notes_are_read_at_once(
    count: int, *, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A process for each note would take a thousand times as long as listing them."""
    (tmp_path / "project").mkdir()
    repository = imported(tmp_path / "project", count=count)
    entries = read_history(repository)
    log = plain(repository.root, "log", "--format=%H").stdout.decode().split()
    assert [entry.commit for entry in entries] == log
    assert [entry.latest.cycle_number for entry in entries] == list(range(count, 0, -1))
    listed = cost_of(lambda: plain(repository.root, "notes", f"--ref={REF}", "list"))
    read = cost_of(lambda: read_history(repository))
    record_property("cpu_s", f"history {read:.2f}, notes list {listed:.3f}")
    assert read < 100 * listed


@pytest.mark.slow
def test_a_history_takes_as_many_processes_for_ten_notes_as_for_one(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    ask = Repository.git

    def counted(self: Repository, *arguments: str, stdin: bytes = b"") -> str:
        calls.append(arguments[0])
        return ask(self, *arguments, stdin=stdin)

    landed(repository)
    monkeypatch.setattr(Repository, "git", counted)
    read_history(repository)
    one = len(calls)
    monkeypatch.undo()
    for cycle in range(2, 11):
        landed(repository, cycle=cycle)
    calls.clear()
    monkeypatch.setattr(Repository, "git", counted)
    assert len(read_history(repository)) == 10
    assert len(calls) == one <= 6


def test_a_commit_that_is_not_ours_has_no_part_in_it(repository: Repository) -> None:
    landed(repository)
    other = commit_of(repository, "docs: by hand", name="other")
    assert read_handoffs(repository, other) == ()
    assert [entry.commit for entry in read_history(repository)] == [CommitId(head_parent(repository))]


def head_parent(repository: Repository) -> str:
    return plain(repository.root, "rev-parse", "HEAD~1").stdout.decode().strip()
