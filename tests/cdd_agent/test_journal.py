from pathlib import Path

from cdd_agent.events import Notice, TextDelta
from cdd_agent.journal import Journal, read
from tests.fakes.clock import FakeClock


def test_events_are_appended_in_order_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "t" / "events.jsonl"
    for text in ("one", "two"):
        with Journal(path, clock=FakeClock()) as journal:
            journal.write(Notice(text=text))
            journal.write(TextDelta(text="a piece, left out"))
    assert list(read(path)) == [Notice(text="one"), Notice(text="two")]
    assert path.read_bytes().startswith(b'{"time":"')


def test_an_unfinished_last_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Journal(path, clock=FakeClock()) as journal:
        journal.write(Notice(text="one"))
    with path.open("ab") as stream:
        stream.write(b'{"time":"2026')
    assert list(read(path)) == [Notice(text="one")]


def test_no_journal_has_no_events(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none.jsonl")) == []
