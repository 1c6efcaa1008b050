"""The transcript of a session at the prompt: write it, list earlier sessions, and load one to resume it.

A transcript has one JSON line for each message, appended immediately, so a killed session loses at most its last line.
Thoughts of the model are not saved, because only that model can use them, and neither are keys. On loading, a tool
call without an answer is answered as interrupted.
"""

import contextlib
import fcntl
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import msgspec

from cdd_agent.agent.loop import INTERRUPTED
from cdd_agent.clock import Clock
from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.model.conversation import (
    AssistantMessage,
    Conversation,
    Message,
    Opaque,
    RecordMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    decode_message,
    draw_token,
    encode_messages,
    replace_surrogates,
)
from cdd_agent.model.recording import as_json
from cdd_agent.storage import Log, read_ordinary, write_atomic
from cdd_agent.untrusted.documents import map_texts
from cdd_agent.untrusted.keys import redact_keys
from cdd_agent.untrusted.text import shorten
from cdd_agent.work.records import find_records

SCHEMA = 1
"""The schema of the file; a file with a greater number is refused."""
FILE = "transcript.jsonl"
ARCHIVED = "archive/"
"""The prefix of the name of an archived session."""


class SessionStarted(msgspec.Struct, kw_only=True, tag_field="kind", tag="begun"):
    """The first line of a transcript."""

    schema: int
    time: str


class ConversationStarted(msgspec.Struct, kw_only=True, tag_field="kind", tag="opened"):
    """The start of a conversation, which replaces an earlier one of this agent about this ticket."""

    agent: str
    ticket: str
    model: str
    token: str
    """The token of its marks, which identifies the conversation in later lines."""


class MessageAdded(msgspec.Struct, kw_only=True, tag_field="kind", tag="said"):
    """One message of a conversation."""

    token: str
    message: dict[str, object]
    """The message in the form that is sent to the model."""


class AgentSwitched(msgspec.Struct, kw_only=True, tag_field="kind", tag="turned"):
    """A switch of the prompt to another agent."""

    agent: str
    ticket: str
    time: str


class UserInput(msgspec.Struct, kw_only=True, tag_field="kind", tag="typed"):
    """A text that the user sent to the current agent."""

    text: str


class SessionContinued(msgspec.Struct, kw_only=True, tag_field="kind", tag="continued"):
    """The conversations of an earlier session were copied into this one."""

    session: str


Line = SessionStarted | ConversationStarted | MessageAdded | AgentSwitched | UserInput | SessionContinued


def sessions_folder(project: Path) -> Path:
    """Return the folder that contains one folder for each session of ``project``."""
    return find_records(project).folder / "sessions"


def archive_folder(project: Path) -> Path:
    """Return the folder of archived sessions, and of conversations before they were compacted."""
    return find_records(project).folder / "archive"


def make_session_id(time: str) -> str:
    """Return a new id for a session that begins at ``time``, such as ``20260301-140435-qqf``."""
    digits = "".join(filter(str.isdigit, time))
    return f"{digits[:8]}-{digits[8:14]}-{draw_token()[:3]}"


class Transcript:
    """The transcript of the current session, created with its first line; a write error is reported once."""

    def __init__(self, project: Path, *, clock: Clock, tell: Emit) -> None:
        """Prepare a transcript; ``tell`` gets a notice if it cannot be written."""
        self.id = ""
        """The id of the session; empty until the first line is written."""
        self._project = project
        self._clock = clock
        self._tell = tell
        self._log: Log | None = None
        self._is_whole = True

    def switch_agent(self, agent: str, *, ticket: str) -> None:
        """Record that the prompt now belongs to ``agent``."""
        self._write(AgentSwitched(agent=agent, ticket=ticket, time=self._clock.now()))

    def record_input(self, words: str) -> None:
        """Record a text that the user sent to the current agent."""
        self._write(UserInput(text=redact_keys(replace_surrogates(words))))

    def make_recorder(
        self, agent: str, *, ticket: str, model: Callable[[], str], token: str, is_begun: bool = False
    ) -> RecordMessage:
        """Return a function that records the messages of a conversation, and its start unless it ``is_begun``."""

        def record(message: Message) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                self._write(ConversationStarted(agent=agent, ticket=ticket, model=model(), token=token))
            self._append_message(token, message)

        return record

    def copy_conversation(self, conversation: Conversation, agent: str, *, ticket: str, model: str) -> None:
        """Record a conversation with all its messages; it replaces an earlier one."""
        self._write(ConversationStarted(agent=agent, ticket=ticket, model=model, token=conversation.token))
        for message in conversation.messages:
            self._append_message(conversation.token, message)

    def record_continuation(self, session: str) -> None:
        """Record that the conversations of ``session`` were copied into this one."""
        self._write(SessionContinued(session=session))

    def close(self) -> None:
        """Close and unlock the file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _append_message(self, token: str, message: Message) -> None:
        for line in _encode([message], token=token):
            self._write(line)

    def _write(self, line: Line) -> None:
        try:
            if self._log is None:
                self._create()
            why = None if self._log is None else self._log.append(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            why = error.strerror or str(error)
        if why is not None and self._is_whole:
            self._is_whole = False
            what = f"The transcript cannot be written ({why}). /resume may not restore this session completely."
            self._tell(Notice(text=what))

    def _create(self) -> None:
        time = self._clock.now()
        folder = sessions_folder(self._project)
        while not self.id:
            name = make_session_id(time)
            with contextlib.suppress(FileExistsError):
                (folder / name).mkdir(parents=True, mode=0o700)
                self.id = name
        self._log = Log(folder / self.id / FILE)
        # The lock hides an open session from other processes; some file systems have none.
        with contextlib.suppress(OSError):
            fcntl.flock(self._log.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._log.append(msgspec.json.encode(SessionStarted(schema=SCHEMA, time=time)) + b"\n")


def _encode(messages: Iterable[Message], *, token: str) -> Iterator[MessageAdded]:
    # Thoughts go back only to the model that wrote them.
    for encoded in encode_messages(remove_thoughts(messages)):
        content = map_texts(encoded["content"], lambda text: redact_keys(replace_surrogates(text)))
        yield MessageAdded(token=token, message={"role": encoded["role"], "content": content})


def archive_conversation(conversation: Conversation, project: Path, *, name: str) -> Path:
    """Save the messages in a new file ``archive/NAME-1.jsonl`` of the records and return its path.

    Raises ``EnvironmentMissing`` if it cannot be written.
    """
    folder = archive_folder(project)
    number = next(number for number in itertools.count(1) if not (folder / f"{name}-{number}.jsonl").exists())
    path = folder / f"{name}-{number}.jsonl"
    lines = _encode(conversation.messages, token=conversation.token)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines), mode=0o600)
    except OSError as error:
        happened = f"The conversation cannot be archived in {path}: {error.strerror or error}. It is unchanged."
        raise EnvironmentMissing(happened, hint="make room or grant access, then try again") from error
    return path


MAX_SESSIONS = 50
"""Number of saved sessions; the oldest are removed first."""
MAX_TRANSCRIPT_BYTES = 64_000_000
MAX_FIRST_WORDS = 60
"""Characters of the first input that are shown in the list."""

_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z]{3}")
_TOKEN = re.compile(r"[a-z]{6}")
_CONVERSING_AGENTS = frozenset({"socrates", "planner", "scout"})
# A line with this prefix that is not valid JSON was cut off when the session was killed.
_PREFIX = b'{"kind":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """A conversation of an earlier session."""

    agent: str
    ticket: str
    model: str
    token: str
    """The token of its marks."""
    messages: tuple[Message, ...]
    """The messages, repaired so that they can be sent again."""
    typed: str = ""
    """The last text that the user sent to the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSession:
    """An earlier session."""

    id: str
    agent: str
    """The last agent at the prompt: ``socrates``, ``planner``, ``executor``, ``review``, ``scout``."""
    ticket: str
    """Empty for the scout."""
    time: str
    """The UTC time of the switch to that agent."""
    conversations: tuple[SavedConversation, ...]
    first_words: str = ""
    """The first input of the user, in one line."""
    continues: tuple[str, ...] = ()
    """The sessions that were copied into it."""
    tickets: frozenset[str] = frozenset()
    """The tickets that it was about."""


def list_sessions(project: Path, *, present: str = "") -> tuple[EarlierSession, ...]:
    """Return the sessions that can be resumed, latest first, without their conversations.

    Excluded are the ``present`` one, sessions open in another terminal, those copied into a later one, and unreadable
    ones.
    """
    sessions = []
    for name in sorted(_list_names(sessions_folder(project)), reverse=True):
        if name != present and not _is_open(_transcript_path(project, name)):
            with contextlib.suppress(UsageError, OSError):
                path = _transcript_path(project, name)
                status = os.stat(path, follow_symlinks=False)
                sessions.append(_read_outline(path, (status.st_mtime_ns, status.st_size)))
    copied = {name for session in sessions for name in session.continues}
    return tuple(session for session in sessions if session.agent and session.id not in copied)


def load_last_session(project: Path, *, present: str = "") -> EarlierSession:
    """Return the latest session that can be resumed; raise ``UsageError`` if none exists or a later file is damaged."""
    known = list_sessions(project, present=present)
    later = {name for name in _list_names(sessions_folder(project)) if not known or name > known[0].id} - {present}
    for name in sorted(later, reverse=True):
        if not _is_open(_transcript_path(project, name)) and _transcript_path(project, name).exists():
            load_session(project, name)
    if not known:
        hint = "start one with /spec, /plan or /exec and a ticket"
        raise UsageError("There is no earlier session to resume.", hint=hint)
    return load_session(project, known[0].id)


def load_session(project: Path, name: str, *, present: str = "") -> EarlierSession:
    """Return the session ``name`` with its conversations.

    Raises ``UsageError`` if it does not exist, is open in another terminal, may come from somebody else, has a newer
    schema, or is damaged. Nothing is changed.
    """
    path = _transcript_path(project, name)
    archived = {f"{ARCHIVED}{each}" for each in _list_names(archive_folder(project))}
    if f"{ARCHIVED}{name}" in archived:
        happened = f"The session {name} is archived, because its ticket is finished."
        raise UsageError(happened, hint=f"open it with: cdd --resume {ARCHIVED}{name}")
    if name not in _list_names(sessions_folder(project)) | archived:
        known = [session.id for session in list_sessions(project, present=present)]
        near = get_close_matches(name, known, n=1, cutoff=0.3) or known[:1]
        hint = f"did you mean {near[0]}" if near else "start one with /spec"
        raise UsageError(f"There is no session {name}.", hint=hint)
    if name == present:
        hint = "continue here; /back returns to the previous agent"
        raise UsageError(f"The session {name} is the current one.", hint=hint)
    if _is_open(path):
        hint = "continue there, or close it there with /exit"
        raise UsageError(f"The session {name} is open in another terminal.", hint=hint)
    try:
        return _read(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=f"inspect the file: ls -l {path}") from error


def archive_sessions(project: Path, finished: Collection[str], *, present: str = "") -> tuple[str, ...]:
    """Move the closed sessions that were only about ``finished`` tickets to the archive, and return their ids.

    Nothing removes them from there. Sessions that cannot be read or moved stay.
    """
    moved = []
    for name in sorted(_list_names(sessions_folder(project)) - {present}) if finished else ():
        path = _transcript_path(project, name)
        if not _is_open(path):
            with contextlib.suppress(UsageError, OSError):
                status = os.stat(path, follow_symlinks=False)
                tickets = _read_outline(path, (status.st_mtime_ns, status.st_size)).tickets
                if tickets and tickets <= set(finished):
                    archive_folder(project).mkdir(exist_ok=True, mode=0o700)
                    path.parent.rename(archive_folder(project) / name)
                    moved.append(name)
    return tuple(moved)


def prune_sessions(project: Path, *, present: str = "") -> None:
    """Remove the oldest sessions beyond ``MAX_SESSIONS``, except open ones and folders with other files."""
    for name in sorted(_list_names(sessions_folder(project)))[:-MAX_SESSIONS]:
        path = _transcript_path(project, name)
        if name != present and not _is_open(path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def fork_session(project: Path, target: Path, *, ticket: str, talks: Mapping[str, int], clock: Clock) -> str:
    """Copy the latest conversations about ``ticket`` into a new session of the project ``target`` and return its id.

    ``talks`` is token -> the number of messages to copy, for those that are cut. Returns nothing without conversations.
    """
    archived = (f"{ARCHIVED}{name}" for name in _list_names(archive_folder(project)))
    names = (*_list_names(sessions_folder(project)), *archived)
    for name in sorted(names, key=lambda name: name.removeprefix(ARCHIVED), reverse=True):
        with contextlib.suppress(UsageError, OSError):
            found = [each for each in _read(_transcript_path(project, name)).conversations if each.ticket == ticket]
            if not found:
                continue
            transcript = Transcript(target, clock=clock, tell=lambda _: None)
            for each in found:
                messages = repair_messages(each.messages[: talks.get(each.token, len(each.messages))])
                transcript.switch_agent(each.agent, ticket=ticket)
                cut = Conversation("", token=each.token, messages=messages)
                transcript.copy_conversation(cut, each.agent, ticket=ticket, model=each.model)
            transcript.close()
            return transcript.id
    return ""


def save_conversation(conversation: Conversation, path: Path) -> None:
    """Save a conversation without thoughts and keys, so that a later one can continue it."""
    lines: tuple[Line, ...] = (
        SessionStarted(schema=SCHEMA, time=""),
        *_encode(conversation.messages, token=conversation.token),
    )
    write_atomic(path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines), mode=0o600)


def load_conversation(path: Path) -> tuple[str, tuple[Message, ...]] | None:
    """Return the token and the messages of a saved conversation, or None without one. Raises ``UsageError``."""
    try:
        data = read_ordinary(path, limit_bytes=MAX_TRANSCRIPT_BYTES)
        lines: list[Line] = [msgspec.json.decode(line, type=Line) for line in data.splitlines()]
        if not (lines and isinstance(lines[0], SessionStarted) and lines[0].schema <= SCHEMA):
            raise ValueError("its schema is not one of this version")
        added = [line for line in lines if isinstance(line, MessageAdded)]
        messages = [decode_message(as_json(line.message, "message")) for line in added]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UsageError(f"{path} cannot be read: {error}.", hint=f"move it away: mv {path} /tmp") from error
    return (added[0].token, repair_messages(messages)) if added else None


def repair_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return ``messages`` as a valid conversation: every tool call is answered, and nothing else is."""
    repaired: list[Message] = []
    open_calls: tuple[str, ...] = ()
    for message in (*messages, UserMessage(content=())):  # the last one answers the calls of the last turn
        match message:
            case UserMessage(content=content):
                words = tuple(block for block in content if isinstance(block, Text) and block.text.strip())
                results = {block.tool_use_id: block for block in content if isinstance(block, ToolResult)}
                answers = tuple(results.get(call_id, _make_interrupted(call_id)) for call_id in open_calls)
                if answers or words:
                    repaired.append(UserMessage(content=(*answers, *words)))
                open_calls = ()
            case AssistantMessage(content=blocks) if repaired:
                if open_calls:
                    repaired.append(UserMessage(content=tuple(map(_make_interrupted, open_calls))))
                repaired.append(message)
                open_calls = tuple(block.id for block in blocks if isinstance(block, ToolCall))
    return tuple(repaired)


def _make_interrupted(call_id: str) -> ToolResult:
    return ToolResult(tool_use_id=call_id, content=INTERRUPTED, is_error=True)


def remove_thoughts(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return ``messages`` without the blocks that only the model which wrote them accepts."""
    plain: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage(content=content):
                blocks = tuple(block for block in content if not isinstance(block, Opaque))
                plain += [AssistantMessage(content=blocks)] if blocks else []
            case UserMessage():
                plain.append(message)
    return tuple(plain)


def _list_names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if _ID.fullmatch(entry.name) and not entry.is_symlink()}
    except OSError:
        return set()


def _transcript_path(project: Path, name: str) -> Path:
    folder = archive_folder(project) if name.startswith(ARCHIVED) else sessions_folder(project)
    return folder / name.removeprefix(ARCHIVED) / FILE


def _is_open(path: Path) -> bool:
    # A live process holds the lock.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


@lru_cache(maxsize=4 * MAX_SESSIONS)
def _read_outline(path: Path, _state: tuple[int, int]) -> EarlierSession:
    return replace(_read(path, with_messages=False), conversations=())


def _read(path: Path, *, with_messages: bool = True) -> EarlierSession:
    content = read_ordinary(path, limit_bytes=MAX_TRANSCRIPT_BYTES)
    reader = _TranscriptReader(path, with_messages=with_messages)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            reader.read_line(line, number)
    return reader.build_session()


class _TranscriptReader:
    def __init__(self, path: Path, *, with_messages: bool) -> None:
        self._path = path
        self._with_messages = with_messages
        self._conversations: dict[str, tuple[ConversationStarted, list[Message]]] = {}
        """Token -> the start of the conversation, and its messages."""
        self._switch = AgentSwitched(agent="", ticket="", time="")
        self._typed: dict[tuple[str, str], str] = {}
        self._first = ""
        self._continues: list[str] = []
        self._tickets: set[str] = set()

    def read_line(self, line: bytes, number: int) -> None:
        """Read one line; ignore it if it was cut off."""
        try:
            read: Line = msgspec.json.decode(line, type=Line)
            self._add(read)
        except (msgspec.DecodeError, RecursionError) as error:
            if isinstance(error, msgspec.ValidationError):
                raise self._make_error(number, str(error)) from error
            if not (line.startswith(_PREFIX) or _PREFIX.startswith(line)):
                raise self._make_error(number, "it is not JSON") from error
        except ValueError as error:
            raise self._make_error(number, str(error)) from error

    def _add(self, line: Line) -> None:
        if isinstance(line, ConversationStarted | AgentSwitched):
            self._tickets.add(line.ticket)
        match line:
            case SessionStarted(schema=schema) if schema > SCHEMA:
                raise UsageError(
                    f"{self._path} was written by a newer cdd: it has schema {schema}, this version reads {SCHEMA}.",
                    hint=f"resume it with that version, or {self._alternative}",
                )
            case ConversationStarted(token=token) if not _TOKEN.fullmatch(token):
                raise ValueError("the token is invalid")
            case ConversationStarted(agent=agent) if agent not in _CONVERSING_AGENTS:
                raise ValueError("the agent is unknown")
            case ConversationStarted(token=token):
                self._conversations.pop(token, None)  # The dictionary is ordered by the latest start.
                self._conversations[token] = (line, [])
            case MessageAdded(token=token, message=message):
                if self._with_messages and token in self._conversations:
                    self._conversations[token][1].append(decode_message(as_json(message, "message")))
            case AgentSwitched(time=time):
                try:
                    datetime.fromisoformat(time).astimezone()
                except (ValueError, OverflowError) as error:
                    raise ValueError("the time is invalid") from error
                self._switch = line
            case UserInput(text=text):
                self._typed[self._switch.agent, self._switch.ticket] = text
                self._first = self._first or text
            case SessionContinued(session=session):
                self._continues.append(session)

    def build_session(self) -> EarlierSession:
        latest = {(start.agent, start.ticket): (start, messages) for start, messages in self._conversations.values()}
        conversations = (
            SavedConversation(
                agent=start.agent,
                ticket=start.ticket,
                model=start.model,
                token=start.token,
                messages=repair_messages(messages),
                typed=self._typed.get((start.agent, start.ticket), ""),
            )
            for start, messages in latest.values()
        )
        return EarlierSession(
            id=self._path.parent.name,
            agent=self._switch.agent,
            ticket=self._switch.ticket,
            time=self._switch.time,
            conversations=tuple(each for each in conversations if each.messages),
            first_words=shorten(self._first, MAX_FIRST_WORDS),
            continues=tuple(self._continues),
            tickets=frozenset(self._tickets - {""}),
        )

    def _make_error(self, number: int, why: str) -> UsageError:
        return UsageError(
            f"The session in {self._path} is damaged, line {number}: {why}.",
            hint=f"it was not changed; {self._alternative}",
        )

    @property
    def _alternative(self) -> str:
        return f"resume another session by its id, or move this one away: mv {self._path.parent} /tmp"
