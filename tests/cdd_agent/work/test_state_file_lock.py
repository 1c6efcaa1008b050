from pathlib import Path

import pytest

from cdd_agent.errors import FolderMoved, UsageError
from cdd_agent.storage import write_atomic
from cdd_agent.work.records import find_records
from cdd_agent.work.state import REPOSITORY_LOCK, lock_repository, lock_ticket


def test_a_ticket_is_held_by_one_and_another_ticket_is_not(tmp_path: Path) -> None:
    one, other = tmp_path / "tickets" / "one", tmp_path / "tickets" / "other"
    with (
        lock_ticket(tmp_path, one),
        lock_ticket(tmp_path, other),
        pytest.raises(UsageError, match="Work on the ticket one is already in progress: pid "),
        lock_ticket(tmp_path, one),
    ):
        pass
    with lock_ticket(tmp_path, one) as was_killed:
        assert not was_killed


def test_no_state_is_saved_into_the_ticket_of_another_project(tmp_path: Path) -> None:
    folder, other = tmp_path / "project" / "tickets" / "one", tmp_path / "other" / "one"
    folder.mkdir(parents=True)
    other.mkdir(parents=True)
    with lock_ticket(tmp_path / "project", folder):
        folder.parent.rename(tmp_path / "away")
        folder.parent.symlink_to(other.parent)
        with pytest.raises(FolderMoved, match=f"leads to {other}"):
            write_atomic(folder / "execution-state.json", b"{}")
    assert list(other.iterdir()) == []


def test_what_killed_writes_left_beside_a_ticket_is_removed_and_nothing_else(tmp_path: Path) -> None:
    folder, reports = tmp_path / "tickets" / "one", find_records(tmp_path).folder / "reports" / "one"
    left = [
        folder / ".plan.md.cdd-abcd1234.tmp",
        reports / "step-1.json.4711.tmp",
        find_records(tmp_path).folder / ".x.cdd-abcd1234.tmp",
        find_records(tmp_path).repository / "reports" / ".y.json.cdd-abcd1234.tmp",
    ]
    kept = [folder / "plan.md", folder / ".plan.md.swp", reports / "step-1.json", folder / "notes.tmp"]
    for path in (*left, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with lock_ticket(tmp_path, folder):
        assert [path.exists() for path in (*left, *kept)] == [False] * 4 + [True] * 4


def test_a_repository_is_held_by_one_and_says_whether_the_last_one_was_killed(tmp_path: Path) -> None:
    (tmp_path / REPOSITORY_LOCK).write_text('{"pid": 1')
    with (
        lock_repository(tmp_path) as was_killed,
        pytest.raises(UsageError, match="Carrying out a plan in this repository is already in progress"),
        lock_repository(tmp_path),
    ):
        pass
    assert was_killed
    with lock_repository(tmp_path) as was_killed:
        assert not was_killed
