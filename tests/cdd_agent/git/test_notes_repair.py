import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs

from cdd_agent.events import NoteDamaged, NotesRepaired
from cdd_agent.git.notes import REF, NotesDamaged, append_line, read_note, survey_notes
from cdd_agent.git.notes_repair import apply_repairs, plan_repairs
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.installation import suggest_upgrade
from cdd_agent.work.handoff import Handoff, encode
from tests.cdd_agent.git.hostile.repository import plain, run_plain
from tests.cdd_agent.git.notes_written import (
    blob_of,
    broken,
    commit_of,
    copied,
    emptied,
    handoff,
    head,
    landed,
    lose,
    message,
    names_nothing,
    names_nothing_packed,
    note,
    read_history,
    top,
)
from tests.fakes.cases import soak_after
from tests.fakes.reasons import make_reason

NOW = "2026-01-31T12:00:00Z"
BACKUP = "refs/cdd/notes-backup/20260131T120000Z"
STILL_RED = make_reason("still_red: a test fails")


class Done(NamedTuple):
    """What was done."""

    repairs: tuple[NoteDamaged, ...]
    result: NotesRepaired


def mended(repository: Repository) -> Done:
    """What was done, after a dry run that said the same and did nothing."""
    before = everything(repository)
    dry = plan_repairs(repository)
    assert everything(repository) == before
    done = Done(*apply_repairs(repository, now=NOW))
    assert done.repairs == dry
    return done


def everything(repository: Repository) -> tuple[bytes, bytes | None]:
    """All refs, and the file of ours."""
    path = repository.location.common_dir / REF
    refs = run_plain(repository.root, ["for-each-ref"]).stdout
    return refs, path.read_bytes() if path.exists() else None


def only(repairs: tuple[NoteDamaged, ...]) -> NoteDamaged:
    (repair,) = repairs
    return repair


def undo(repository: Repository, done: Done) -> None:
    """Type the command that takes it back."""
    assert done.result.undo is not None
    subprocess.run(["sh", "-c", done.result.undo], cwd=repository.root, check=True, timeout=30)


def test_there_is_nothing_to_mend_in_whole_notes(repository: Repository) -> None:
    assert plan_repairs(repository) == ()
    for cycle in (1, 2):
        landed(repository, cycle=cycle)
    before = everything(repository)
    done = mended(repository)
    assert (done.repairs, done.result.backup, done.result.undo) == ((), None, None)
    assert everything(repository) == before


# The ref.


def deleted(repository: Repository) -> None:
    plain(repository.root, "update-ref", "-d", REF)


def without_reflog(harm: Callable[[Repository], None]) -> Callable[[Repository], None]:
    def both(repository: Repository) -> None:
        harm(repository)
        (repository.location.common_dir / "logs" / REF).unlink(missing_ok=True)

    return both


HARMS = {
    "broken": broken,
    "empty": emptied,
    "names-nothing": names_nothing,
    "names-nothing-packed": names_nothing_packed,
    "deleted": deleted,
    "broken-without-reflog": without_reflog(broken),
    "names-nothing-without-reflog": without_reflog(names_nothing),
}


@pytest.fixture(scope="module")
def noted(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with three notes, to be copied."""
    repository = copied(committed, tmp_path_factory.mktemp("noted") / "project")
    for cycle in (1, 2, 3):
        landed(repository, cycle=cycle)
    return repository.root


@soak_after(1, "harm", HARMS.values(), ids=HARMS)
def test_a_ref_that_is_broken_is_set_back_to_its_last_good_commit(
    noted: Path, tmp_path: Path, harm: Callable[[Repository], None]
) -> None:
    repository = copied(noted, tmp_path / "project")
    entries, whole = read_history(repository), top(repository)
    harm(repository)
    broken = everything(repository)
    done = mended(repository)
    repair = only(done.repairs)
    assert repair.mends
    assert f"It is set to {whole}" in repair.action
    assert "with 3 notes" in repair.action
    assert read_history(repository) == entries
    assert plan_repairs(repository) == ()
    undo(repository, done)
    kept = everything(repository)
    assert kept[1] == broken[1] or harm is names_nothing_packed
    if harm is not deleted:
        assert done.result.backup == BACKUP
        with pytest.raises(NotesDamaged):
            read_history(repository)


@pytest.mark.slow
def test_notes_without_their_tree_are_taken_from_before(repository: Repository) -> None:
    first = landed(repository)
    second = landed(repository, cycle=2)
    tip = top(repository)
    lose(repository, plain(repository.root, "rev-parse", f"{REF}^{{tree}}").stdout.decode().strip())
    done = mended(repository)
    assert [repair.commit for repair in done.repairs] == [None, second]
    newest, oldest = read_history(repository)
    assert (newest.commit, newest.latest.reconstructed) == (second, True), "it was not in the notes of before"
    assert (oldest.commit, oldest.latest.reconstructed) == (first, False)
    undo(repository, done)
    assert top(repository) == tip


@pytest.mark.slow
def test_where_nothing_is_left_of_the_notes_they_are_made_up(repository: Repository, tmp_path: Path) -> None:
    commits = [landed(repository, cycle=cycle) for cycle in (1, 2)]
    plain(tmp_path, "clone", "--quiet", "--no-local", str(repository.root), "copy")
    copy = Repository.find(tmp_path / "copy")
    for key, value in (("user.name", "Bob"), ("user.email", "bob@example.org")):
        plain(copy.root, "config", key, value)
    (copy.location.common_dir / "refs/notes").mkdir(parents=True)
    broken(copy)
    done = mended(copy)
    assert "No earlier version can be found" in done.repairs[0].action
    assert [(entry.commit, entry.latest.reconstructed) for entry in read_history(copy)] == [
        (commit, True) for commit in reversed(commits)
    ]


@pytest.mark.slow
def test_a_broken_ref_without_anything_to_hold_is_mended_too(repository: Repository) -> None:
    (repository.location.common_dir / "refs/notes").mkdir(parents=True)
    broken(repository)
    assert mended(repository).result.backup == BACKUP
    assert read_history(repository) == ()
    assert plan_repairs(repository) == ()


# Notes that cannot be read.


def test_bad_notes_get_their_last_good_versions(repository: Repository) -> None:
    landed(repository)
    commits = [landed(repository, phase="GREEN", cycle=cycle) for cycle in (2, 3, 4, 5)]
    for commit, cycle in zip(commits, (2, 3, 4, 5), strict=True):
        append_line(repository, commit, line=encode(handoff(commit, phase="REFACTOR", cycle=cycle)))
    entries = read_history(repository)
    note(repository, commits[0], text=b"first damage\n")
    for commit, text in zip(commits, (b"words\n", b"", b"\x00\xff\n", b'{"v":1}\n'), strict=True):
        note(repository, commit, text=text)
    bad = top(repository)
    done = mended(repository)
    assert {repair.commit for repair in done.repairs} == set(commits)
    for repair in done.repairs:
        assert repair.action.endswith("Its last readable version is restored.")
    assert read_history(repository) == entries
    assert len(entries) == 5
    assert plain(repository.root, "rev-parse", BACKUP).stdout.decode().strip() == bad
    undo(repository, done)
    assert top(repository) == bad


@pytest.mark.slow
def test_a_note_whose_object_is_missing_gets_the_version_before(repository: Repository) -> None:
    commit = landed(repository, phase="GREEN")
    entries = read_history(repository)
    append_line(repository, commit, line=encode(handoff(commit, phase="REFACTOR")))
    lose(repository, blob_of(repository, commit))
    assert only(mended(repository).repairs).commit == commit
    assert read_history(repository) == entries


@pytest.mark.slow
def test_a_bad_note_without_a_good_version_is_made_up_from_the_trailers(repository: Repository) -> None:
    commit = landed(repository, phase="GREEN", cycle=3)
    blob = blob_of(repository, commit)
    lose(repository, blob)
    repair = only(mended(repository).repairs)
    assert "is missing or damaged" in repair.what
    assert "reconstructed from the trailers" in repair.action
    made = only_handoff(repository)
    assert made.reconstructed
    assert (made.ticket, made.phase, made.next_phase, made.cycle_number) == ("csv", "GREEN", "REFACTOR", 3)
    assert (made.id, made.seq, made.commit, made.gate, made.test_result) == ("green-3-b0", 11, commit, None, None)
    assert made.current_test.description == "Header"


def only_handoff(repository: Repository) -> Handoff:
    (entry,) = read_history(repository)
    (made,) = entry.handoffs
    return made


def test_a_bad_note_that_nothing_tells_of_stays_and_is_told(repository: Repository) -> None:
    landed(repository)
    commit = commit_of(repository, "docs: by hand", name="other")
    note(repository, commit, text=b"reviewed by Bob\n")
    before = top(repository)
    done = mended(repository)
    repair = only(done.repairs)
    assert not repair.mends
    assert repair.action.endswith(f"to remove it: git notes --ref=tdd-handoffs remove {commit}")
    assert (done.result.undo, top(repository)) == (None, before)
    subprocess.run(["sh", "-c", repair.action.partition("to remove it: ")[2]], cwd=repository.root, check=True)
    assert len(read_history(repository)) == 1


def test_a_note_of_a_later_version_is_never_touched(repository: Repository) -> None:
    commit = landed(repository)
    note(repository, commit, text=encode(handoff(commit)).replace('"v":2', '"v":3').encode())
    before = top(repository)
    repair = only(mended(repository).repairs)
    assert not repair.mends
    assert suggest_upgrade() in repair.action
    assert top(repository) == before


def test_no_note_is_put_beside_one_of_a_later_version(repository: Repository) -> None:
    landed(repository)
    plain(repository.root, "commit", "--amend", "--quiet", "-m", message(handoff("c0")) + "Reviewed-by: Bob\n")
    later = encode(handoff(head(repository))).replace('"v":2', '"v":3') + "\n"
    note(repository, head(repository), text=later.encode())
    assert [repair.mends for repair in mended(repository).repairs] == [False, False]
    assert read_note(repository, head(repository)).lines == (later.strip(),)


@pytest.mark.slow
def test_a_squashed_commit_gets_all_that_its_trailers_tell(repository: Repository) -> None:
    said = [message(handoff("c0", phase=phase)) for phase in ("RED", "GREEN")]
    commit = commit_of(repository, "\n".join(said), name="both")
    repair = only(mended(repository).repairs[1:])
    assert repair.action == "Its 2 handoffs are reconstructed from the trailers, without the evidence."
    (entry,) = read_history(repository)
    assert (entry.commit, [each.phase for each in entry.handoffs]) == (commit, ["RED", "GREEN"])


# Notes whose commit was replaced.


def rebase(repository: Repository, *, by: str) -> None:
    """Move the commits after the first one, by plain git, which takes no notes along."""
    plain(repository.root, "checkout", "--quiet", "-b", "base", "main~2")
    commit_of(repository, "chore: before", name="before")
    plain(repository.root, "checkout", "--quiet", "main")
    plain(repository.root, "-c", f"sequence.editor={by}", "-c", "core.editor=true", "rebase", "--quiet", "-i", "base")


@pytest.mark.slow
@soak_after(1, "is_gone", [False, True], ids=["unreachable", "gone"])
def test_notes_follow_commits_that_were_rebased_by_their_handoff_ids(repository: Repository, *, is_gone: bool) -> None:
    old = [landed(repository, phase=phase) for phase in ("RED", "GREEN")]
    rebase(repository, by="true")
    if is_gone:
        plain(repository.root, "reflog", "expire", "--expire=now", "--all")
        (repository.location.git_dir / "ORIG_HEAD").unlink()
        for commit in old:
            lose(repository, commit)
    new = plain(repository.root, "log", "--format=%H", "-2").stdout.decode().split()
    done = mended(repository)
    assert [(repair.commit, repair.mends) for repair in done.repairs] == [(commit, True) for commit in old]
    assert f"It is moved to {new[1]}" in done.repairs[0].action
    entries = read_history(repository)
    assert [entry.commit for entry in entries] == new
    assert [entry.latest.commit for entry in entries] == old[::-1], "the note is the one that was written then"
    assert plan_repairs(repository) == ()
    undo(repository, done)
    assert len(survey_notes(repository).damages) == 2


@pytest.mark.slow
def test_the_notes_of_commits_squashed_into_one_come_together_on_it(repository: Repository) -> None:
    old = [landed(repository, phase=phase) for phase in ("RED", "GREEN")]
    rebase(repository, by="sed -i 2s/pick/squash/")
    assert len(mended(repository).repairs) == 2
    (entry,) = read_history(repository)
    assert entry.commit == head(repository)
    assert [(each.phase, each.commit) for each in entry.handoffs] == [("RED", old[0]), ("GREEN", old[1])]
    assert entry.latest.next_phase == "REFACTOR"


@pytest.mark.slow
def test_what_failed_after_a_phase_follows_that_phase_and_not_the_commit_of_the_next(repository: Repository) -> None:
    red = landed(repository)
    failed = structs.replace(handoff(red, phase="GREEN"), error=STILL_RED, test_result=None)
    append_line(repository, red, line=encode(failed))
    landed(repository, phase="GREEN")
    rebase(repository, by="true")
    done = mended(repository)
    assert [repair.mends for repair in done.repairs] == [True, True]
    assert [[each.error for each in entry.handoffs] for entry in read_history(repository)] == [
        [None],
        [None, STILL_RED],
    ]


@pytest.mark.slow
def test_a_note_follows_the_same_patch_where_the_trailers_are_gone(repository: Repository) -> None:
    old = landed(repository)
    plain(repository.root, "commit", "--amend", "--quiet", "-m", "test: in other words")
    repair = only(mended(repository).repairs)
    assert (repair.commit, repair.mends) == (old, True)
    (entry,) = read_history(repository)
    assert (entry.commit, entry.latest.commit) == (head(repository), old)


@pytest.mark.slow
def test_a_note_follows_ticket_phase_and_cycle_where_the_id_is_another(repository: Repository) -> None:
    landed(repository)
    said = message(handoff("c0", base="elsewhere"))
    (repository.root / "more.txt").write_text("more\n")
    plain(repository.root, "add", "more.txt")
    plain(repository.root, "commit", "--amend", "--quiet", "-m", said)
    done = mended(repository)
    assert f"It is moved to {head(repository)}" in done.repairs[0].action
    (entry,) = read_history(repository)
    assert not entry.handoffs[0].reconstructed
    assert entry.latest == entry.handoffs[0], "evidence counts before what was made up"


@pytest.mark.slow
def test_a_note_that_two_commits_may_have_is_kept_and_told(repository: Repository) -> None:
    first = head(repository)
    old = landed(repository)
    for branch in ("one", "two"):
        plain(repository.root, "checkout", "--quiet", "-b", branch, first)
        commit_of(repository, f"chore: {branch}", name=branch)
        plain(repository.root, "cherry-pick", old)
    plain(repository.root, "branch", "--quiet", "-D", "main")
    done = mended(repository)
    (told, *made_up) = done.repairs
    assert (told.commit, told.mends) == (old, False)
    assert told.action.startswith("2 commits may have replaced that commit: ")
    assert [repair.mends for repair in made_up] == [True, True]
    assert len(read_note(repository, old).lines) == 1
    again = only(plan_repairs(repository))
    assert (again.commit, again.mends) == (old, False)


# Commits without a note.


@pytest.mark.slow
def test_a_commit_that_was_picked_elsewhere_gets_a_note_of_its_trailers(repository: Repository) -> None:
    first = head(repository)
    landed(repository)
    green = landed(repository, phase="GREEN")
    plain(repository.root, "checkout", "--quiet", "-b", "other", first)
    plain(repository.root, "cherry-pick", green)
    repair = only(mended(repository).repairs)
    assert repair.commit == head(repository)
    assert f"{repair.what} {repair.action}" == (
        f"The commit {head(repository)} has the trailers of a handoff but no note. "
        "It is reconstructed from the trailers, without the evidence."
    )
    made = {entry.commit: entry.latest for entry in read_history(repository)}
    assert [made[green].reconstructed, made[head(repository)].reconstructed] == [False, True]


def test_trailers_that_no_phase_has_make_no_note(repository: Repository) -> None:
    landed(repository)
    for number, text in enumerate(
        (
            "feat: x\n\nTicket: csv\nPhase: SHIP\nStep: 1\nHandoff-Id: a\n",
            "feat: x\n\nTicket: csv\nPhase: RED\nStep: 0\nHandoff-Id: a\n",
            "feat: x\n\nTicket: csv\nPhase: RED\nStep: one\nHandoff-Id: a\n",
            "feat: x\n\nTicket: csv\nPhase: RED\nStep: 1\nHandoff-Id: a b\n",
            "feat: x\n\nPhase: RED\nStep: 1\nHandoff-Id: a\n",
            "feat: x\n\nIn words.\nTicket: csv\nPhase: RED\nCycle: 1\nHandoff-Id: a\n",
        )
    ):
        commit_of(repository, text, name=str(number))
    assert plan_repairs(repository) == ()


@pytest.mark.slow
def test_the_users_own_settings_of_git_do_not_hide_commits(repository: Repository) -> None:
    landed(repository)
    deleted(repository)
    for key, value in (("grep.patternType", "fixed"), ("log.showRoot", "false"), ("i18n.logOutputEncoding", "UTF-16")):
        plain(repository.root, "config", key, value)
    mended(repository)
    assert len(read_history(repository)) == 1


# The lock.


def locked(repository: Repository, *, age_s: float) -> Path:
    lock = repository.location.common_dir / f"{REF}.lock"
    lock.touch()
    then = time.time() - age_s
    os.utime(lock, (then, then))
    return lock


def test_an_old_lock_is_told_with_the_command_that_removes_it(repository: Repository) -> None:
    landed(repository)
    lock = locked(repository, age_s=601)
    repair = only(plan_repairs(repository))
    assert (str(lock) in repair.what, f"rm {lock}" in repair.action, repair.mends) == (True, True, False)
    assert mended(repository).repairs == (repair,)
    assert lock.exists()


def test_a_young_lock_is_let_alone(repository: Repository) -> None:
    landed(repository)
    lock = locked(repository, age_s=500)
    assert mended(repository).repairs == ()
    assert lock.exists()


@pytest.mark.slow
def test_all_is_mended_at_once_in_one_change_of_the_ref(repository: Repository) -> None:
    commits = [landed(repository, cycle=cycle) for cycle in (1, 2, 3, 4)]
    note(repository, commits[0], text=b"words\n")
    note(repository, commits[1], text=b"")
    plain(repository.root, "commit", "--amend", "--quiet", "-m", message(handoff("c0", cycle=4)) + "Reviewed-by: Bob\n")
    before = top(repository)
    done = mended(repository)
    assert len(done.repairs) == 3
    assert plain(repository.root, "rev-parse", f"{REF}~1").stdout.decode().strip() == before
    assert [entry.latest.cycle_number for entry in read_history(repository)] == [4, 3, 2, 1]
    note(repository, commits[0], text=b"again\n")
    assert apply_repairs(repository, now=NOW)[1].backup == f"{BACKUP}-2"


@pytest.mark.slow
def test_notes_that_git_has_spread_over_folders_are_mended_where_they_are(repository: Repository) -> None:
    said = "".join(
        f"commit refs/heads/many\nmark :{number}\ncommitter Ada <a@example.org> {1_700_000_000 + number} +0000\n"
        f"data 0\n{f'from refs/heads/main^0{chr(10)}' if number == 1 else ''}"
        for number in range(1, 401)
    )
    said += "commit refs/notes/tdd-handoffs\ncommitter Ada <a@example.org> 1800000000 +0000\ndata 5\nNotes\n"
    for number in range(1, 401):
        line = encode(handoff("c0", cycle=number)) + "\n"
        said += f"N inline :{number}\ndata {len(line)}\n{line}\n"
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository.root, input=said.encode(), check=True, timeout=60)
    commit = read_history(repository)[7].commit
    entries = read_history(repository)
    plain(repository.root, "notes", f"--ref={REF}", "add", "-f", "-m", "words", commit)
    paths = plain(repository.root, "ls-tree", "-r", "--name-only", REF).stdout
    assert b"/" in paths
    assert only(mended(repository).repairs).commit == CommitId(commit)
    assert read_history(repository) == entries
