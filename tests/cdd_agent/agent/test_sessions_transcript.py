"""What is said is in the file as it happens."""

import os
import stat
import sys
from pathlib import Path

import pytest

from cdd_agent.agent.sessions import Transcript, load_session, sessions_folder
from cdd_agent.events import Event, Notice
from cdd_agent.model.conversation import Conversation, Opaque, Text, UserMessage
from cdd_agent.work.records import find_records
from tests.fakes.clock import FakeClock
from tests.fakes.model import call, says

KEY = "ghp_" + "a" * 36


def begun(project: Path) -> tuple[Transcript, list[Event]]:
    told: list[Event] = []
    return Transcript(project, clock=FakeClock(), tell=told.append), told


def talk(transcript: Transcript, agent: str = "socrates", *, token: str = "bcdfgh") -> Conversation:
    keep = transcript.make_recorder(agent, ticket="sale", model=lambda: "some-model", token=token)
    return Conversation("You ask.", token=token, keep=keep)


def test_nothing_is_made_before_there_is_something_to_keep(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    talk(transcript)
    transcript.close()
    assert list(tmp_path.iterdir()) == []


def test_a_session_is_read_back_as_it_was(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    conversation = talk(transcript)
    transcript.switch_agent("socrates", ticket="sale")
    conversation.say("The ticket.")
    conversation.hear(says("What?"))
    transcript.record_input("A sale.")
    conversation.say("A sale.")
    transcript.close()
    session = load_session(tmp_path, transcript.id)
    assert (session.agent, session.ticket, session.first_words) == ("socrates", "sale", "A sale.")
    (read,) = session.conversations
    assert read.messages == conversation.messages
    assert (read.model, read.token, read.typed) == ("some-model", "bcdfgh", "A sale.")


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    talk(transcript).say("A secret.")
    path = sessions_folder(tmp_path) / transcript.id / "transcript.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    transcript.close()


def test_no_key_and_no_thought_is_kept(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    conversation = talk(transcript)
    transcript.switch_agent("socrates", ticket="sale")
    transcript.record_input(f"It is {KEY}")
    conversation.say("Look.")
    conversation.hear(says(Opaque(wire={"type": "thinking", "thinking": "hmm"}), f"I see {KEY}"))
    conversation.say("And?")
    conversation.hear(says(call("Read", file_path=KEY)))
    transcript.close()
    text = (sessions_folder(tmp_path) / transcript.id / "transcript.jsonl").read_text()
    assert "ghp_" not in text
    assert "hmm" not in text
    assert text.count("[masked: ") == 3


def test_a_turn_of_thoughts_alone_leaves_no_empty_message(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    conversation = talk(transcript)
    conversation.say("Look.")
    conversation.hear(says(Opaque(wire={"type": "thinking", "thinking": "hmm"})))
    transcript.close()
    (read,) = load_session(tmp_path, transcript.id).conversations
    assert read.messages == (UserMessage(content=(Text(text="Look."),)),)


def test_a_new_conversation_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    talk(transcript).say("Old.")
    talk(transcript, token="ghjkmn").say("New.")
    transcript.close()
    (read,) = load_session(tmp_path, transcript.id).conversations
    assert read.messages == (UserMessage(content=(Text(text="New."),)),)


def test_a_conversation_that_goes_on_elsewhere_is_copied_whole(tmp_path: Path) -> None:
    first, _ = begun(tmp_path)
    conversation = talk(first)
    conversation.say("Hello.")
    conversation.hear(says("Yes?"))
    first.close()
    second, _ = begun(tmp_path)
    second.copy_conversation(conversation, "socrates", ticket="sale", model="some-model")
    second.close()
    assert load_session(tmp_path, second.id).conversations == load_session(tmp_path, first.id).conversations


def test_half_a_character_is_kept_as_a_question_mark(tmp_path: Path) -> None:
    transcript, _ = begun(tmp_path)
    conversation = talk(transcript)
    conversation.say("Look.")
    conversation.hear(says(call("Read", file_path="a\ud800")))
    transcript.close()
    assert '"file_path":"a?"' in (sessions_folder(tmp_path) / transcript.id / "transcript.jsonl").read_text()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() == 0, reason="root may write everywhere")
def test_what_cannot_be_kept_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    transcript, told = begun(tmp_path)
    conversation = talk(transcript)
    folder = find_records(tmp_path).folder
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    conversation.say("One.")
    conversation.say("Two.")
    folder.chmod(0o700)
    assert len(conversation.messages) == 2
    (notice,) = told
    assert isinstance(notice, Notice)
    assert "may not be there for /resume (Permission denied)" in notice.text


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    transcript, told = begun(tmp_path)
    conversation = talk(transcript)
    conversation.say("One.")
    full = os.open("/dev/full", os.O_WRONLY)
    assert transcript._log is not None
    os.dup2(full, transcript._log.descriptor)
    conversation.say("Two.")
    conversation.say("Three.")
    os.close(full)
    transcript.close()
    assert len(told) == 1
