import msgspec
import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import ROLLBACK, CommitId
from cdd_agent.runs import records
from cdd_agent.runs.records import RollbackRecord
from cdd_agent.work.handoff import encode
from cdd_agent.work.records import find_records
from tests.cdd_agent.runs.made_runs import SLUG, Run, back, refused, said, work_tree
from tests.fakes.cases import soak_after


def record_of(run: Run, **changes: object) -> RollbackRecord:
    head = run.commits["refactor 2"]
    made = RollbackRecord(
        number=1,
        ticket=SLUG,
        branch="main",
        source=head,
        target=run.commits["plan 1"],
        snapshot=head,
        restored=("a\nb", "caf\udce9", "\udc80"),
        refs={f"refs/cdd/checkpoints/{SLUG}/a": head},
    )
    return msgspec.structs.replace(made, **changes)


def test_a_record_is_read_as_it_was_stored_with_the_files_of_the_runs(run: Run) -> None:
    blob = run.repository.git("hash-object", ("-w", "--stdin"), stdin=b"ignored").strip()
    tree = run.repository.git("rev-parse", "HEAD^{tree}").strip()
    refs = {f"refs/cdd/checkpoints/{SLUG}/{name}": each for name, each in (("ignored", blob), ("running", tree))}
    record = record_of(run, refs=refs)
    folders = {
        "before/state": {f"{SLUG}/a": b"\0\xff"},
        "before/reports": {f"{SLUG}/deep/b.json": b""},
        "after/state": {f"{SLUG}/c": b"x"},
    }
    stored = records.store(run.repository, record, folders=folders)
    assert records.read(run.repository, stored.commit).record == record
    found = {each: records.read_stored_files(stored.commit, run.repository, folder=each) for each in folders}
    assert found == folders
    kept = run.repository.git("rev-list", ("--objects",), stored.commit)
    assert blob in kept
    assert tree in kept


@soak_after(
    3,
    "changes",
    [
        {"ticket": "tdd-../../up"},
        {"refs": {"refs/heads/main": "0" * 40}},
        {"refs": {"refs/cdd/checkpoints/tdd-a/x\ndelete refs/heads/main": "0" * 40}},
        {"ticket": "csv"},
        {"refs": {"refs/cdd/checkpoints/tdd-a/x": "0\ndelete refs/heads/main"}},
        {"schema": 2},
    ],
)
def test_what_a_stranger_may_have_put_there_is_refused(changes: dict[str, object], run: Run) -> None:
    told = msgspec.json.encode({**msgspec.to_builtins(record_of(run, restored=())), **changes})
    made = run.repository.git("commit-tree", "HEAD^{tree}", ("-F", "-"), stdin=told).strip()
    before = work_tree(run.root)
    with pytest.raises(UsageError, match="cannot read a rollback record"):
        records.read(run.repository, CommitId(made))
    run.repository.git("update-ref", ROLLBACK, made)
    run.rollbacks.finish_interrupted()
    assert work_tree(run.root) == before
    assert run.repository.read_head() == run.commits["refactor 2"]


def test_a_rollback_that_only_a_ref_names_is_neither_finished_nor_undone(run: Run) -> None:
    head = run.commits["refactor 2"]
    made = records.store(run.repository, record_of(run, restored=(), refs={}), folders={}).commit
    run.repository.git("update-ref", ROLLBACK, made)
    run.rollbacks.finish_interrupted()
    assert run.repository.read_head() == head
    assert f"git update-ref -d {ROLLBACK}" in said_last(run)
    run.repository.git("update-ref", ("-d",), ROLLBACK)
    run.repository.git("update-ref", f"refs/cdd/abandoned/{SLUG}/rollback-1", made)
    with pytest.raises(UsageError, match="did not make"):
        run.rollbacks.plan_undo()
    records.remember(made, path=run.rollbacks.made)
    run.repository.git("update-ref", ROLLBACK, made)
    run.rollbacks.finish_interrupted()
    assert run.repository.read_head() == run.commits["plan 1"]


def said_last(run: Run) -> str:
    event = run.events[-1]
    assert isinstance(event, Notice)
    return event.text


@soak_after(2, "name", [f"{SLUG}/../../../up", "tdd-/x", "other/x", f"{SLUG}"])
def test_no_file_is_written_outside_the_folder_of_a_run(name: str, run: Run) -> None:
    stored = records.store(run.repository, record_of(run), folders={})
    blob = run.repository.git("hash-object", ("-w", "--stdin"), stdin=b"x").strip()
    tree = run.repository.git(
        "mktree", ("-z",), stdin=f"100644 blob {blob}\t{name.rpartition('/')[2]}\0".encode()
    ).strip()
    for part in (*reversed(name.split("/")[:-1]), "state", "after"):
        tree = _inside(run, tree, name=part)
    message = run.repository.git("log", ("-1", "--format=%B"), stored.commit).encode()
    made = run.repository.git("commit-tree", tree, ("-F", "-"), stdin=message).strip()
    with pytest.raises(UsageError, match="not in a run's folder"):
        records.read_stored_files(CommitId(made), run.repository, folder="after/state")


def _inside(run: Run, tree: str, *, name: str) -> str:
    """A tree that holds ``tree`` by a name that git itself would not give."""
    data = f"40000 {name}\0".encode() + bytes.fromhex(tree)
    return run.repository.git("hash-object", ("-w", "-t"), "tree", ("--literally", "--stdin"), stdin=data).strip()


@pytest.mark.slow
def test_what_else_lies_beside_the_runs_is_neither_kept_nor_touched(run: Run) -> None:
    strange = find_records(run.root).folder / "runs" / "tdd-Mine" / "x"
    strange.parent.mkdir()
    strange.write_text("mine")
    assert "tdd-Mine/x" not in records.read_runs(run.rollbacks.runs)
    back(run, run.commits["red 1"])
    assert strange.read_text() == "mine"


def test_a_note_with_a_strange_name_leads_nowhere(run: Run) -> None:
    note = said("GREEN", 2, commit="c0", following="PLAN")
    strange = msgspec.structs.replace(note, ticket="tdd-../../up", seq=99)
    append_line(run.repository, run.commits["red 1"], line=encode(strange))
    assert "'tdd-../../up'" in refused(run, run.commits["red 1"]).happened


@pytest.mark.slow
def test_the_newest_record_is_the_one_with_the_greatest_number(run: Run) -> None:
    assert records.load_newest(run.repository) is None
    for name in ("green 2", "red 2", "plan 2"):
        back(run, run.commits[name])
    newest = records.load_newest(run.repository)
    assert newest is not None
    assert newest.record.target == run.commits["plan 2"]
    assert records.next_number(run.repository) == 4
