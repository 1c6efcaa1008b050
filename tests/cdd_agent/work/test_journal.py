import os
from contextlib import closing
from pathlib import Path

import pytest

from cdd_agent.events import FileChanged, Notice, TextDelta, Waiting
from cdd_agent.work.journal import MAX_DIFF_CHARACTERS, Journal, read
from tests.fakes.clock import FakeClock


def test_events_are_appended_in_order_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "t" / "events.jsonl"
    for text in ("one", "two"):
        with closing(Journal(path, clock=FakeClock())) as journal:
            journal.write(Notice(text=text))
            journal.write(TextDelta(text="a piece, left out"))
    assert list(read(path)) == [Notice(text="one"), Notice(text="two")]
    assert path.read_bytes().startswith(b'{"time":"')


def test_a_long_diff_is_cut_and_counted_and_a_wait_left_out(tmp_path: Path) -> None:
    diff = "\n".join(["@@ -1,2 +1,9000 @@", "-old", *["+new line"] * 9_000])
    journal = Journal(tmp_path / "events.jsonl", clock=FakeClock())
    journal.write(Waiting(what="waiting for the model"))
    journal.write(FileChanged(path="a.py", diff=diff))
    journal.close()
    [event] = read(tmp_path / "events.jsonl")
    assert isinstance(event, FileChanged)
    assert event.diff.endswith("... (+9000 -1 in all)")
    assert len(event.diff) < MAX_DIFF_CHARACTERS + 50


def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch(mode=0o644)
    with closing(Journal(path, clock=FakeClock())) as journal:
        journal.write(Notice(text="one"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_unfinished_last_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with closing(Journal(path, clock=FakeClock())) as journal:
        journal.write(Notice(text="one"))
    with path.open("ab") as stream:
        stream.write(b'{"time":"2026')
    assert list(read(path)) == [Notice(text="one")]


def test_no_journal_has_no_events(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none.jsonl")) == []


def test_a_line_that_was_cut_off_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"time":"2026')
    with closing(Journal(path, clock=FakeClock())) as journal:
        journal.write(Notice(text="one"))
        journal.write(Notice(text="two"))
    assert list(read(path)) == [Notice(text="one"), Notice(text="two")]
    assert path.read_bytes().count(b"\n") == 3


def test_a_whole_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"Nothing"}\n')
    with pytest.raises(ValueError, match="not an event"):
        list(read(path))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_journal_that_is_no_ordinary_file_is_refused_without_waiting(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"events\.jsonl"):
        Journal(path, clock=FakeClock())
