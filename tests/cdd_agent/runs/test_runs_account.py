import os
import resource
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.notes import REF, NotesDamaged, append_line
from cdd_agent.git.repository import Repository
from cdd_agent.runs import feature
from cdd_agent.runs.history import find_status, list_handoffs, read_reachable_notes, status_from_notes
from cdd_agent.storage import exclusive_lock
from cdd_agent.work.handoff import encode
from cdd_agent.work.records import find_records
from cdd_agent.work.state_file import load_state, save_state
from tests.cdd_agent.runs.made_runs import SLUG, TITLES, Run, said
from tests.fakes.cases import soak_after

NOTES = 10_000


def words(run: Run, **options: int) -> list[str]:
    rows = list_handoffs(read_reachable_notes(run.repository).entries, most=options.get("most"))
    return [f"{row.cycle} {row.phase} {row.result or '-'} {row.retries} {row.description}" for row in rows]


def test_where_a_run_stands_and_its_phases_newest_first_with_what_they_came_to(begun: Run, tmp_path: Path) -> None:
    run = begun
    run.cycle(1)
    run.cycle(2, until="RED")
    stands = status_from_notes(read_reachable_notes(run.repository), locks=tmp_path)
    assert stands.last is not None
    assert (stands.last.cycle, stands.last.phase, stands.last.following) == (2, "RED", "GREEN")
    assert (stands.completed, stands.pending) == (TITLES[:1], TITLES[1:])
    assert (stands.next, stands.details, stands.at_work) == ("cdd tdd resume", "", "")
    failed = said("GREEN", 2, commit=run.commits["red 2"], following="GREEN", error="assertion: 1 == 2", retries=2)
    append_line(run.repository, run.commits["red 2"], line=encode(failed))
    stands = status_from_notes(read_reachable_notes(run.repository), locks=tmp_path)
    assert stands.last is not None
    assert (stands.last.phase, stands.last.error, stands.last.retries) == ("GREEN", "assertion: 1 == 2", 2)
    assert stands.details == "assertion: 1 == 2\nother: and more"
    assert words(run) == [
        "2 GREEN CLOSED 2 subtracts",
        "2 RED FAIL 0 subtracts",
        "2 PLAN - 0 subtracts",
        "1 REFACTOR PASS 0 adds two numbers",
        "1 GREEN PASS 0 adds two numbers",
        "1 RED FAIL 0 adds two numbers",
        "1 PLAN - 0 adds two numbers",
    ]
    assert words(run, most=1) == ["2 GREEN CLOSED 2 subtracts"]
    first = list_handoffs(read_reachable_notes(run.repository).entries)[0]
    assert (first.commit, first.error) == (run.commits["red 2"], "assertion: 1 == 2")


@pytest.mark.slow
def test_a_complete_run_says_how_to_begin_another(begun: Run, tmp_path: Path) -> None:
    begun.begin(1)
    begun.land("PLAN", {"test-list.md": "- [x] it\n"}, following="COMPLETE")
    assert "the run is complete" in status_from_notes(read_reachable_notes(begun.repository), locks=tmp_path).next


def test_who_is_at_work_is_told_as_long_as_he_is(run: Run) -> None:
    locks = find_records(run.root).folder / "locks"
    with exclusive_lock(locks / f"{SLUG}.lock", purpose="Testing"):
        stands = status_from_notes(read_reachable_notes(run.repository), locks=locks)
        assert stands.at_work.startswith(f"pid {os.getpid()} on ")
        assert stands.next == "wait until it finishes"
    assert status_from_notes(read_reachable_notes(run.repository), locks=locks).at_work == ""


@soak_after(1, "holder", ["{", '{"pid": "x", "host": "HOST", "since": "", "command": ""}', "DEAD"])
def test_a_lock_that_says_nothing_true_holds_up_nobody(holder: str, run: Run) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    told = f'{{"pid": {dead.pid}, "host": "HOST", "since": "", "command": ""}}' if holder == "DEAD" else holder
    locks = find_records(run.root).folder / "locks"
    locks.mkdir()
    (locks / f"{SLUG}.lock").write_text(told.replace("HOST", socket.gethostname()))
    stands = status_from_notes(read_reachable_notes(run.repository), locks=locks)
    assert not stands.at_work.startswith(f"pid {dead.pid} ")


def test_a_run_that_was_begun_last_and_has_left_no_note_is_the_one_that_is_told(run: Run) -> None:
    locks = find_records(run.root).folder / "locks"
    older, _ = find_status(run.repository, run.root, locks=locks)
    assert (older.run, older.last is not None) == (SLUG, True)
    feature.locate_feature(run.root, "tdd-newer", text="newer").save()
    with exclusive_lock(locks / "tdd-newer.lock", purpose="Testing"):
        stands, damages = find_status(run.repository, run.root, locks=locks)
    assert (stands.run, stands.last, damages) == ("tdd-newer", None, ())
    assert stands.at_work.startswith(f"pid {os.getpid()} on ")


def test_a_run_that_has_just_begun_stands_at_its_beginning(begun: Run, tmp_path: Path) -> None:
    stands, _ = find_status(begun.repository, begun.root, locks=tmp_path)
    assert (stands.run, stands.last, stands.next) == (SLUG, None, "cdd tdd resume")
    with pytest.raises(UsageError, match="has not run here"):
        find_status(begun.repository, tmp_path, locks=tmp_path)


def test_notes_that_head_does_not_reach_have_no_part_in_it(run: Run) -> None:
    run.repository.git("branch", "kept", "HEAD")
    run.repository.git("reset", ("--quiet", "--hard"), run.commits["red 1"])
    assert words(run) == ["1 RED FAIL 0 adds two numbers", "1 PLAN - 0 adds two numbers"]
    run.repository.git("switch", ("--quiet", "--detach"), f"{run.commits['plan 1']}^")
    with pytest.raises(UsageError, match="None of the 8 handoff notes is on a commit of HEAD") as caught:
        read_reachable_notes(run.repository)
    assert "git switch BRANCH" in caught.value.hint


def test_notes_of_tickets_are_listed_and_say_nothing_of_where_a_run_stands(begun: Run, tmp_path: Path) -> None:
    commit = begun.repository.read_head()
    assert commit is not None
    note = msgspec.structs.replace(said("GREEN", 1, commit=commit, following="COMPLETE"), ticket="csv-export")
    append_line(begun.repository, commit, line=encode(note))
    told = read_reachable_notes(begun.repository)
    assert [row.ticket for row in list_handoffs(told.entries)] == ["csv-export"]
    with pytest.raises(UsageError, match="'csv-export'"):
        status_from_notes(told, locks=tmp_path)


def test_without_notes_nothing_was_run_yet(begun: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has not run here"):
        read_reachable_notes(begun.repository)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has not run here"):
        read_reachable_notes(Repository.create(tmp_path / "empty"))


def test_a_ref_that_is_lost_or_broken_is_no_empty_history(run: Run) -> None:
    ref = run.repository.location.common_dir / REF
    kept = ref.read_text()
    ref.write_text("junk\n")
    with pytest.raises(NotesDamaged, match="is damaged") as caught:
        read_reachable_notes(run.repository)
    assert "cdd tdd repair-notes" in caught.value.hint
    ref.unlink()
    with pytest.raises(NotesDamaged, match="it has commits that had notes") as caught:
        read_reachable_notes(run.repository)
    assert "git fetch origin refs/notes/tdd-handoffs:refs/notes/tdd-handoffs" in caught.value.hint
    ref.write_text(kept)
    assert len(words(run)) == 8


def test_a_note_that_cannot_be_read_is_told_beside_the_others(run: Run) -> None:
    note = (("--ref=tdd-handoffs",), "add", ("--force", "-m"), "no JSON")
    run.repository.git("notes", *note, run.commits["green 1"])
    told = read_reachable_notes(run.repository)
    assert len(told.entries) == 7
    (damage,) = told.damages
    assert run.commits["green 1"] in damage.what
    for commit in run.commits.values():
        run.repository.git("notes", *note, commit)
    with pytest.raises(NotesDamaged, match="No handoff note here can be read"):
        read_reachable_notes(run.repository)


def cpu_s(ask: Callable[[], object]) -> float:
    """The least that it takes in three tries, this process and all that it waits for."""

    def used() -> float:
        found = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in found)

    tries = []
    for _ in range(3):
        before = used()
        ask()
        tries.append(used() - before)
    return min(tries)


@pytest.mark.slow
def test_a_history_of_ten_thousand_costs_little_more_than_git_needs_to_print_it(
    begun: Run, record_property: Callable[[str, object], None]
) -> None:
    """A process for each note would take a hundred times as long."""
    stream = bytearray()
    for number in range(1, NOTES + 1):
        parent = b"from :%d\n" % (number - 1) if number > 1 else b""
        stream += b"commit refs/heads/long\nmark :%d\ncommitter A <a@b> %d +0000\ndata 5\nfeat:\n%s\n" % (
            number,
            1_700_000_000 + number,
            parent,
        )
    stream += b"commit refs/notes/tdd-handoffs\ncommitter A <a@b> 1800000000 +0000\ndata 5\nNotes\n"
    for number in range(1, NOTES + 1):
        note = msgspec.structs.replace(said("GREEN", 1, commit="c0", following="PLAN"), cycle_number=number, seq=number)
        text = encode(note).encode()
        stream += b"N inline :%d\ndata %d\n%s\n" % (number, len(text), text)
    root = begun.root
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=bytes(stream), check=True, timeout=120)
    begun.repository.git("symbolic-ref", "HEAD", "refs/heads/long")

    def ask() -> None:
        assert [row.cycle for row in list_handoffs(read_reachable_notes(begun.repository).entries, most=3)] == [
            NOTES,
            NOTES - 1,
            NOTES - 2,
        ]

    def by_git() -> None:
        log = ["git", "log", "--notes=tdd-handoffs", "--format=%H%x00%N", "long"]
        subprocess.run(log, cwd=root, check=True, stdout=subprocess.DEVNULL, timeout=120)

    taken, printed = cpu_s(ask), cpu_s(by_git)
    record_property("cpu_s", f"history {taken:.2f}, git log --notes {printed:.2f}")
    assert taken < 40 * printed


def test_what_somebody_committed_by_hand_is_no_phase(run: Run) -> None:
    (run.root / "by_hand.txt").write_text("x")
    commit_paths(run.repository, "docs: by hand", paths=["by_hand.txt"])
    assert len(words(run)) == 8


@pytest.mark.slow
def test_where_the_first_note_could_not_be_written_the_run_stands_at_its_beginning(begun: Run, tmp_path: Path) -> None:
    begun.cycle(1, until="PLAN")
    begun.repository.git("update-ref", ("-d",), REF)
    known = feature.locate_feature(begun.root, SLUG, text="")
    state = load_state(known.ticket.state_path)
    assert state is not None
    landed = {number: replace(step, commits={}) for number, step in state.step_executions.items()}
    save_state(known.ticket.state_path, replace(state, step_executions=landed))
    stands, _ = find_status(begun.repository, begun.root, locks=tmp_path)
    assert (stands.last, stands.next) == (None, "cdd tdd resume")


def test_a_run_that_has_landed_phases_on_another_branch_is_not_told_as_one_without(run: Run, tmp_path: Path) -> None:
    run.repository.git("switch", ("--quiet", "-c"), "other", f"{run.commits['plan 1']}^")
    with pytest.raises(UsageError, match="None of the 8 handoff notes is on a commit of other"):
        find_status(run.repository, run.root, locks=tmp_path)
