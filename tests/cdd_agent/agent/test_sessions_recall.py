"""What a killed, damaged, newer or foreign session is read as."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.agent.sessions import (
    ARCHIVED,
    MAX_SESSIONS,
    Transcript,
    archive_sessions,
    list_sessions,
    load_last_session,
    load_session,
    prune_sessions,
    repair_messages,
    sessions_folder,
)
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import (
    JSON,
    AssistantBlock,
    AssistantMessage,
    Conversation,
    Message,
    Text,
    ToolCall,
    ToolResult,
    UserBlock,
    UserMessage,
    encode_messages,
)
from tests.fakes.clock import FakeClock
from tests.fakes.examples import fewer
from tests.fakes.message_rules import broken_rule
from tests.fakes.model import call, says


def path_of(project: Path, name: str) -> Path:
    return sessions_folder(project) / name / "transcript.jsonl"


def held(project: Path, words: str = "A sale.", *, close: bool = True) -> Transcript:
    """A session in which Socrates has asked and the user has answered."""
    transcript = Transcript(project, clock=FakeClock(), tell=lambda _: None)
    keep = transcript.make_recorder("socrates", ticket="sale", model=lambda: "some-model", token="bcdfgh")
    conversation = Conversation("You ask.", token="bcdfgh", keep=keep)
    transcript.switch_agent("socrates", ticket="sale")
    conversation.say("The ticket.")
    conversation.hear(says("What?"))
    transcript.record_input(words)
    conversation.say(words)
    if close:
        transcript.close()
    return transcript


def rename(project: Path, transcript: Transcript, name: str) -> str:
    (sessions_folder(project) / transcript.id).rename(sessions_folder(project) / name)
    return name


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    name = held(tmp_path).id
    whole = path_of(tmp_path, name).read_bytes()
    for end in range(whole.rindex(b"\n", 0, -1) + 1, len(whole)):
        path_of(tmp_path, name).write_bytes(whole[:end])
        (talk,) = load_session(tmp_path, name).conversations
        assert [type(message) for message in talk.messages] == [UserMessage, AssistantMessage, UserMessage][
            : 2 + (end == len(whole) - 1)
        ]


def test_words_without_an_answer_are_kept(tmp_path: Path) -> None:
    (talk,) = load_session(tmp_path, held(tmp_path).id).conversations
    assert talk.messages[-1] == UserMessage(content=(Text(text="A sale."),))


def test_a_call_without_an_answer_is_answered_as_interrupted() -> None:
    asked = AssistantMessage(content=(call("Read", file_path="a.py"), call("Glob", pattern="*")))
    *_, last = repair_messages([UserMessage(content=(Text(text="Look."),)), asked])
    assert isinstance(last, UserMessage)
    assert [(block.tool_use_id, block.is_error) for block in last.content if isinstance(block, ToolResult)] == [
        ("toolu_Read", True),
        ("toolu_Glob", True),
    ]


_IDS = st.sampled_from(["a", "b", "c"])
_RESULTS: st.SearchStrategy[UserBlock] = _IDS.map(lambda name: ToolResult(tool_use_id=name, content="x"))
_CALLS: st.SearchStrategy[AssistantBlock] = _IDS.map(lambda name: ToolCall(id=name, name="Read", input={}))
_WORDS = st.just(Text(text="words"))
_MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.lists(_WORDS | _RESULTS, min_size=1, max_size=3, unique_by=repr).map(
        lambda blocks: UserMessage(content=tuple(blocks))
    )
    | st.lists(_WORDS | _CALLS, min_size=1, max_size=3, unique_by=repr).map(
        lambda blocks: AssistantMessage(content=tuple(blocks))
    ),
    max_size=8,
)


@fewer()
@given(messages=_MESSAGES)
def test_whatever_is_lost_what_is_read_back_can_be_sent(messages: list[Message]) -> None:
    whole = [*repair_messages(messages), UserMessage(content=(Text(text="Go on."),))]
    body: JSON = {"model": "m", "max_tokens": 1, "messages": [*encode_messages(whole)]}
    assert broken_rule(body, ()) is None


@fewer()
@given(messages=_MESSAGES)
def test_what_is_mended_needs_no_mending(messages: list[Message]) -> None:
    assert repair_messages(repair_messages(messages)) == repair_messages(messages)


def test_the_last_session_is_the_one_to_resume(tmp_path: Path) -> None:
    rename(tmp_path, held(tmp_path, "First."), "20260101-120000-bcd")
    rename(tmp_path, held(tmp_path, "Second."), "20260102-120000-bcd")
    assert [session.first_words for session in list_sessions(tmp_path)] == ["Second.", "First."]
    assert load_last_session(tmp_path).conversations[0].typed == "Second."
    assert load_last_session(tmp_path, present="20260102-120000-bcd").first_words == "First."


def test_a_session_that_a_later_one_took_over_is_not_offered(tmp_path: Path) -> None:
    name = rename(tmp_path, held(tmp_path, "First."), "20260101-120000-bcd")
    later = Transcript(tmp_path, clock=FakeClock(), tell=lambda _: None)
    later.switch_agent("socrates", ticket="sale")
    later.record_continuation(name)
    later.close()
    assert [session.id for session in list_sessions(tmp_path)] == [later.id]
    assert load_session(tmp_path, name).first_words == "First."


def test_a_session_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    open_one = held(tmp_path, close=False)
    assert list_sessions(tmp_path) == ()
    with pytest.raises(UsageError, match="open in another terminal"):
        load_session(tmp_path, open_one.id)
    with pytest.raises(UsageError, match="no earlier session to resume"):
        load_last_session(tmp_path)
    open_one.close()
    assert load_last_session(tmp_path).id == open_one.id


def test_an_unknown_id_names_the_nearest(tmp_path: Path) -> None:
    name = held(tmp_path).id
    with pytest.raises(UsageError) as error:
        load_session(tmp_path, name[:-1] + ("y" if name.endswith("x") else "x"))
    assert error.value.hint == f"did you mean {name}"
    with pytest.raises(UsageError, match="There is no session"):
        load_session(tmp_path, "../../etc")


def test_the_sessions_of_finished_tickets_are_archived_and_can_still_be_read(tmp_path: Path) -> None:
    done, both, still_open = held(tmp_path), held(tmp_path), held(tmp_path, close=False)
    for folder in sessions_folder(tmp_path).iterdir():  # a session about a second ticket, which is not finished
        if folder.name == both.id:
            lines = (folder / "transcript.jsonl").read_bytes()
            (folder / "transcript.jsonl").write_bytes(lines + lines.split(b"\n")[1].replace(b"sale", b"menu") + b"\n")
    before = load_session(tmp_path, done.id)
    assert archive_sessions(tmp_path, {"sale"}) == (done.id,)
    assert load_session(tmp_path, f"{ARCHIVED}{done.id}") == before
    assert [session.id for session in list_sessions(tmp_path)] == [both.id]
    with pytest.raises(UsageError, match="is archived, because its ticket is finished") as refused:
        load_session(tmp_path, done.id)
    assert refused.value.hint.endswith(f"cdd --resume {ARCHIVED}{done.id}")
    prune_sessions(tmp_path)
    still_open.close()
    assert archive_sessions(tmp_path, {"sale", "menu"}, present=both.id) == (still_open.id,)
    assert archive_sessions(tmp_path, ()) == ()


def test_a_newer_form_is_refused_and_kept(tmp_path: Path) -> None:
    name = held(tmp_path).id
    path = path_of(tmp_path, name)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2').replace(b'"typed"', b'"uttered"'))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="written by a newer cdd: it has schema 2, this version reads 1"):
        load_last_session(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        b"\x00\x01\x02",
        b'{"kind":"said","token":"bcdfgh","message":{"role":"system","content":[]}}',
        b'{"kind":"said","token":"bcdfgh","message":{"role":"user","content":[{"type":"image"}]}}',
        b'{"kind":"opened","agent":"socrates","ticket":"sale","model":"m","token":"no token"}',
        b'{"kind":"sung"}',
        b"[1]",
    ],
)
def test_a_damaged_one_is_refused_with_the_line_and_kept(tmp_path: Path, line: bytes) -> None:
    name = held(tmp_path).id
    path = path_of(tmp_path, name)
    path.write_bytes(path.read_bytes() + line + b"\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"{re.escape(name)}.* is damaged, line 8: ") as error:
        load_session(tmp_path, name)
    assert "mv " in error.value.hint
    assert path.read_bytes() == before


def test_a_line_cut_off_by_a_full_disk_costs_only_itself(tmp_path: Path) -> None:
    name = held(tmp_path).id
    path = path_of(tmp_path, name)
    rest = json.dumps(
        {
            "kind": "said",
            "token": "bcdfgh",
            "message": {"role": "user", "content": [{"type": "text", "text": "Later."}]},
        },
        separators=(",", ":"),
    ).encode()
    path.write_bytes(path.read_bytes() + rest[:40] + b"\n" + rest + b"\n")
    (talk,) = load_session(tmp_path, name).conversations
    assert talk.messages[-1] == UserMessage(content=(Text(text="Later."),))


def test_a_link_is_no_session(tmp_path: Path) -> None:
    name = held(tmp_path).id
    path = path_of(tmp_path, name)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        load_session(tmp_path, name)


def test_a_folder_that_cannot_be_listed_has_no_sessions(tmp_path: Path) -> None:
    sessions_folder(tmp_path).parent.mkdir(parents=True)
    sessions_folder(tmp_path).symlink_to(sessions_folder(tmp_path))
    prune_sessions(tmp_path)
    assert list_sessions(tmp_path) == ()
    with pytest.raises(UsageError, match="no earlier session"):
        load_last_session(tmp_path)


def test_the_oldest_go_and_what_is_open_or_not_ours_stays(tmp_path: Path) -> None:
    folder = sessions_folder(tmp_path)
    for day in range(MAX_SESSIONS + 3):
        rename(tmp_path, held(tmp_path), f"2026{day:04d}-120000-bcd")
    open_one = held(tmp_path, close=False)
    rename(tmp_path, open_one, "20250101-120000-bcd")
    (folder / "20260001-120000-bcd" / "notes.txt").write_text("mine")
    prune_sessions(tmp_path)
    left = sorted(entry.name for entry in folder.iterdir())
    assert left[0] == "20250101-120000-bcd"
    assert (folder / "20260001-120000-bcd" / "notes.txt").exists()
    assert "20260000-120000-bcd" not in left
    assert len(left) == MAX_SESSIONS + 2
    open_one.close()


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ('"kind":"opened","agent":"socrates"', '"kind":"opened","agent":"nobody"'),
        ('"time":"20', '"time":"some day in 20'),
        ('"time":"20', '"time":"0001-01-01T00:00:00+23:00 20'),
    ],
)
def test_who_and_when_have_to_be_such(tmp_path: Path, true: str, false: str) -> None:
    name = held(tmp_path).id
    path = path_of(tmp_path, name)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], *(line.replace(true, false) for line in lines[1:])]), encoding="utf-8")
    with pytest.raises(UsageError, match="is damaged, line"):
        load_session(tmp_path, name)
