import os
from contextlib import closing
from pathlib import Path

from cdd_agent.events import Notice, TurnEnded
from cdd_agent.model.budget import read_conversation_usage, read_step_usage
from cdd_agent.work.journal import Journal
from cdd_agent.work.state import RunState, Usage
from cdd_agent.work.state_file import save_state
from tests.fakes.clock import FakeClock


def turn(agent: str, tokens: int, *, cost_usd: float | None = None) -> TurnEnded:
    return TurnEnded(
        agent=agent,
        text="so",
        stop_reason="end_turn",
        input_tokens=tokens,
        output_tokens=1,
        cache_read_tokens=2,
        cache_write_tokens=3,
        cost_usd=cost_usd,
    )


def journal(path: Path, *events: TurnEnded | Notice) -> Path:
    with closing(Journal(path, clock=FakeClock())) as made:
        for event in events:
            made.write(event)
    return path


def test_the_turns_of_conversations_are_added_up_and_those_of_steps_are_not(tmp_path: Path) -> None:
    path = journal(
        tmp_path / "events.jsonl",
        turn("socrates", 10, cost_usd=0.5),
        Notice(text='"TurnEnded"'),
        turn("executor", 1000, cost_usd=9.0),
        turn("examiner", 1000, cost_usd=9.0),
        turn("implementer", 1000, cost_usd=9.0),
        turn("planner", 20, cost_usd=0.25),
    )
    assert read_conversation_usage(path) == Usage(
        input_tokens=30,
        output_tokens=2,
        cache_read_tokens=4,
        cache_write_tokens=6,
        calls=2,
        cost_usd=0.75,
        known_usd=0.75,
    )


def test_of_a_turn_without_a_price_the_cost_is_not_known(tmp_path: Path) -> None:
    path = journal(tmp_path / "events.jsonl", turn("socrates", 10, cost_usd=0.5), turn("socrates", 10))
    assert (read_conversation_usage(path).cost_usd, read_conversation_usage(path).known_usd) == (None, 0.5)


def test_lines_that_no_run_wrote_count_for_nothing(tmp_path: Path) -> None:
    path = journal(tmp_path / "events.jsonl", turn("socrates", 10), turn("socrates", -(10**9)))
    with path.open("ab") as stream:
        stream.write(b'{"event":"TurnEnded"}\n{"event":"TurnEnded"\n\xff"TurnEnded"\n[["TurnEnded"]]\n')
    assert read_conversation_usage(path).input_tokens == 10


def test_without_a_journal_nothing_was_said(tmp_path: Path) -> None:
    assert read_conversation_usage(tmp_path / "none.jsonl") == Usage()


def test_a_pipe_in_place_of_a_journal_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    assert read_conversation_usage(tmp_path / "events.jsonl") == Usage()


def test_what_steps_used_is_in_the_state(tmp_path: Path) -> None:
    path, used = tmp_path / "execution-state.json", Usage(input_tokens=7, calls=1)
    assert read_step_usage(path) == Usage()
    save_state(path, RunState(ticket_slug="sale", started_at="t", usage=used))
    assert read_step_usage(path) == used


def test_of_a_state_that_is_damaged_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    path.write_text("{")
    assert read_step_usage(path) == Usage()
