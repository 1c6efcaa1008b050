"""What was typed outlives the sitting, in full, in a file that is the user's alone."""

from pathlib import Path

from cdd_agent.repl.prompt import MOST_KEPT_CHARACTERS, Pastes, ProjectHistory

BLOCK = "\n".join(f"line {number}" for number in range(40))


def opened(path: Path | None) -> ProjectHistory:
    return ProjectHistory(path, pastes=Pastes())


def test_messages_come_back_newest_first(tmp_path: Path) -> None:
    history = opened(tmp_path / "history")
    for message in ("one", "two\nlines", "+three"):
        history.append_string(message)
    assert list(opened(tmp_path / "history").load_history_strings()) == ["+three", "two\nlines", "one"]


def test_the_file_is_for_the_user_alone(tmp_path: Path) -> None:
    opened(tmp_path / "history").append_string("one")
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600


def test_a_paste_is_kept_in_full_and_comes_back_short(tmp_path: Path) -> None:
    pastes = Pastes()
    ProjectHistory(tmp_path / "history", pastes=pastes).append_string(f"Why?\n{pastes.shorten(BLOCK)}")
    assert "+line 39\n" in (tmp_path / "history").read_text(encoding="utf-8")
    later = Pastes()
    (message,) = ProjectHistory(tmp_path / "history", pastes=later).load_history_strings()
    assert len(message) < 10
    assert later.expand(message) == f"Why?\n{BLOCK}"


def test_what_was_not_sent_is_never_written(tmp_path: Path) -> None:
    history = opened(tmp_path / "history")
    history.remember("a password, by mistake")
    assert history.get_strings() == ["a password, by mistake"]
    assert not (tmp_path / "history").exists()


def test_a_message_beyond_measure_is_not_written(tmp_path: Path) -> None:
    opened(tmp_path / "history").append_string("x" * (MOST_KEPT_CHARACTERS + 1))
    assert not (tmp_path / "history").exists()


def test_a_file_that_cannot_be_used_stops_nothing(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.append_string("one")
    assert history.get_strings() == ["one"]
    assert list(history.load_history_strings()) == []


def test_what_another_wrote_into_it_is_text(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"\n# when\n+be\x1b[2Jhold\n\xff")
    assert list(opened(tmp_path / "history").load_history_strings()) == ["behold"]
