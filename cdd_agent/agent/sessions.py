"""Transcripts read back: which sessions there were, and what was said in one, as conversations that can go on.

A line that was cut off is passed over. What a killed session left open is closed: a tool call without an answer is
answered as interrupted; words of the user's without an answer stay and are gone on from.

The transcript of a session at the prompt: what is said, and to whom, one JSON line each, appended as it happens.

A killed session leaves at most its last line unfinished. ``recall`` reads a transcript back. Thoughts of the model
are not kept, as only the model that thought them can use them, and no key is: neither that of the model's service
nor a text shaped like one.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import msgspec

from cdd_agent.agent.loop import INTERRUPTED
from cdd_agent.clock import Clock
from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.model.conversation import (
    JSON,
    AssistantMessage,
    Conversation,
    Keep,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    decode_message,
    draw_token,
    encode_messages,
    sendable,
)
from cdd_agent.model.recording import as_json
from cdd_agent.model.secret import hidden
from cdd_agent.storage import Log, read_ordinary

SCHEMA = 1
"""The number of the file's form; a file with a greater one is refused."""

FILE = "transcript.jsonl"


class Begun(msgspec.Struct, kw_only=True, tag_field="kind", tag="begun"):
    """The first line."""

    schema: int
    time: str


class Opened(msgspec.Struct, kw_only=True, tag_field="kind", tag="opened"):
    """A conversation begins, in place of an earlier one of this agent about this ticket."""

    agent: str
    ticket: str
    model: str
    """Who answers."""
    token: str
    """Of the marks in it; names the conversation in the lines that follow."""


class Said(msgspec.Struct, kw_only=True, tag_field="kind", tag="said"):
    """One message of a conversation."""

    token: str
    message: dict[str, object]
    """As it is sent."""


class Turned(msgspec.Struct, kw_only=True, tag_field="kind", tag="turned"):
    """An agent listens from here on."""

    agent: str
    ticket: str
    time: str


class Typed(msgspec.Struct, kw_only=True, tag_field="kind", tag="typed"):
    """What the user said to the agent that listens."""

    text: str


class Continued(msgspec.Struct, kw_only=True, tag_field="kind", tag="continued"):
    """All conversations of an earlier session have been taken over."""

    session: str


Line = Begun | Opened | Said | Turned | Typed | Continued


def sessions_folder(project: Path) -> Path:
    """Where the sessions of ``project`` are kept, each in a folder of its own; neither it nor ``.cdd`` is made."""
    return project / ".cdd" / "sessions"


class Transcript:
    """Keeps what is said in one session; its file is made with the first line, and held for as long as it is open.

    What cannot be written is told once, and never ends the session.
    """

    def __init__(self, project: Path, *, clock: Clock, tell: Emit) -> None:
        """Nothing is made yet; ``tell`` hears once if something could not be kept."""
        self.id = ""
        """Of the session; empty until there is something to keep."""
        self._project = project
        self._clock = clock
        self._tell = tell
        self._log: Log | None = None
        self._is_whole = True

    def turn_to(self, agent: str, *, ticket: str) -> None:
        """From here on ``agent`` listens."""
        self._write(Turned(agent=agent, ticket=ticket, time=self._clock.now()))

    def typed(self, words: str) -> None:
        """The user said ``words`` to the agent that listens."""
        self._write(Typed(text=_kept(words)))

    def keeper(self, agent: str, *, ticket: str, model: Callable[[], str], token: str, is_begun: bool = False) -> Keep:
        """Takes the messages of a conversation; the first of a new one puts it in the place of an earlier one.

        ``is_begun``: what it has already is, or will be, put there by ``copy``.
        """

        def keep(message: Message) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                self._write(Opened(agent=agent, ticket=ticket, model=model(), token=token))
            self._say(token, message)

        return keep

    def copy(self, conversation: Conversation, agent: str, *, ticket: str, model: str) -> None:
        """``conversation``, with the messages that it has, in the place of an earlier one."""
        self._write(Opened(agent=agent, ticket=ticket, model=model, token=conversation.token))
        for message in conversation.messages:
            self._say(conversation.token, message)

    def continued(self, session: str) -> None:
        """All that ``session`` held is in here."""
        self._write(Continued(session=session))

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _say(self, token: str, message: Message) -> None:
        """Append one message, if anything of it is to be kept."""
        for encoded in encode_messages([message]):
            content = encoded["content"]
            blocks = [block for block in content if _is_plain(block)] if isinstance(content, list) else []
            if blocks:
                self._write(Said(token=token, message={"role": encoded["role"], "content": _without_keys(blocks)}))

    def _write(self, line: Line) -> None:
        """Append ``line``; the first one begins the file."""
        try:
            if self._log is None:
                self._begin()
            why = None if self._log is None else self._log.append(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            why = error.strerror or str(error)
        if why is not None and self._is_whole:
            self._is_whole = False
            self._tell(Notice(text=f"What is said from here on may not be there for /resume ({why})."))

    def _begin(self) -> None:
        """Make the session's folder and file, and hold the file: others pass over a session that is open."""
        time = self._clock.now()
        digits = "".join(filter(str.isdigit, time))
        folder = sessions_folder(self._project)
        private_folder(self._project)
        while not self.id:
            name = f"{digits[:8]}-{digits[8:14]}-{draw_token()[:3]}"
            with contextlib.suppress(FileExistsError):
                (folder / name).mkdir(parents=True, mode=0o700)
                self.id = name
        self._log = Log(folder / self.id / FILE)
        with contextlib.suppress(OSError):  # a disk without locks
            fcntl.flock(self._log.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._log.append(msgspec.json.encode(Begun(schema=SCHEMA, time=time)) + b"\n")


def _is_plain(block: JSON) -> bool:
    """Whether a block is one that any model can be given again."""
    return isinstance(block, dict) and block.get("type") in {"text", "tool_use", "tool_result"}


def _without_keys(value: JSON) -> JSON:
    """``value`` with its texts as they may be kept."""
    match value:
        case str():
            return _kept(value)
        case list():
            return [_without_keys(item) for item in value]
        case dict():
            return {_kept(key): _without_keys(item) for key, item in value.items()}
        case _:
            return value


def _kept(text: str) -> str:
    """``text`` as it may be kept: a key in it is hidden, half a character is none."""
    return hidden(sendable(text))


MOST_KEPT = 50
"""Sessions; the oldest go first."""

LIMIT_BYTES = 64_000_000
"""Of one transcript."""

MOST_FIRST_WORDS = 60
"""Characters by which a session is recognized."""

_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z]{3}")
_TOKEN = re.compile(r"[a-z]{6}")
_TALKING = frozenset({"socrates", "planner"})
"""Agents whose conversations are kept."""
_BEGINNING = b'{"kind":"'
"""Of every line; one that has it and does not end was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation of an earlier session."""

    agent: str
    ticket: str
    model: str
    """Who answered."""
    token: str
    """Of the marks in it."""
    messages: tuple[Message, ...]
    """As they can be sent again."""
    typed: str = ""
    """What the user said to the agent last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier session."""

    id: str
    agent: str
    """Who listened last: ``socrates``, ``planner``, ``executor``."""
    ticket: str
    time: str
    """When that began, UTC."""
    talks: tuple[Talk, ...]
    first_words: str = ""
    """What the user said first, in one line."""
    continues: tuple[str, ...] = ()
    """The sessions that it took over."""


def earlier_sessions(project: Path, *, present: str = "") -> tuple[Earlier, ...]:
    """The sessions that can be resumed, the last one first, without their conversations.

    Without the ``present`` one, those that are open in another terminal, those that a later one took over, and those
    that cannot be read.
    """
    found = []
    for name in sorted(_names(project), reverse=True):
        if name != present and not _is_open(_path(project, name)):
            with contextlib.suppress(UsageError, OSError):
                found.append(_outline(_path(project, name)))
    taken_over = {name for session in found for name in session.continues}
    return tuple(session for session in found if session.agent and session.id not in taken_over)


def last_session(project: Path, *, present: str = "") -> Earlier:
    """The session to resume if none is named, with its conversations.

    Raises ``UsageError`` if there is none, and what ``load`` raises if a later one than that cannot be read.
    """
    known = earlier_sessions(project, present=present)
    later = {name for name in _names(project) if not known or name > known[0].id} - {present}
    for name in sorted(later, reverse=True):
        if not _is_open(_path(project, name)) and _path(project, name).exists():
            load(project, name)
    if not known:
        raise UsageError(
            "There is no earlier session to resume.", hint="/spec, /plan or /exec with a ticket begins one"
        )
    return load(project, known[0].id)


def load(project: Path, name: str, *, present: str = "") -> Earlier:
    """The session ``name`` with its conversations.

    Raises ``UsageError`` if there is none, it is open in another terminal, it was not written by this program for
    this user, it is newer than this program or damaged; nothing is changed.
    """
    path = _path(project, name)
    if name not in _names(project):
        known = [session.id for session in earlier_sessions(project, present=present)]
        near = get_close_matches(name, known, n=1, cutoff=0.3) or known[:1]
        hint = f"did you mean /resume {near[0]}" if near else "there is none to resume yet; /spec begins one"
        raise UsageError(f"There is no session {name}.", hint=hint)
    if name == present:
        raise UsageError(f"The session {name} is this one.", hint="go on in it; /back returns to the agent before")
    if _is_open(path):
        raise UsageError(
            f"The session {name} is open in another terminal.", hint="go on there, or leave it there first: /exit"
        )
    try:
        return _read(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=f"see what it is: ls -l {path}") from error


def prune(project: Path, *, present: str = "") -> None:
    """Remove the oldest sessions beyond ``MOST_KEPT``; never one that is open, and no file that is not ours."""
    for name in sorted(_names(project))[:-MOST_KEPT]:
        path = _path(project, name)
        if name != present and not _is_open(path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def mended(messages: Iterable[Message]) -> tuple[Message, ...]:
    """``messages`` as a conversation that can be sent: every tool call is answered, and nothing else is."""
    whole: list[Message] = []
    asked: tuple[str, ...] = ()
    for message in messages:
        match message:
            case UserMessage(content=content):
                words = tuple(block for block in content if isinstance(block, Text) and block.text.strip())
                given = {block.tool_use_id: block for block in content if isinstance(block, ToolResult)}
                answers = tuple(given.get(call_id, _interrupted(call_id)) for call_id in asked)
                if answers or words:
                    whole.append(UserMessage(content=(*answers, *words)))
                asked = ()
            case AssistantMessage(content=blocks) if whole:
                if asked:
                    whole.append(UserMessage(content=tuple(map(_interrupted, asked))))
                whole.append(message)
                asked = tuple(block.id for block in blocks if isinstance(block, ToolCall))
    if asked:
        whole.append(UserMessage(content=tuple(map(_interrupted, asked))))
    return tuple(whole)


def without_thoughts(messages: Iterable[Message]) -> tuple[Message, ...]:
    """``messages`` as any model may be given them: without blocks that go back only to the model they came from."""
    plain: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage(content=content):
                kept = tuple(block for block in content if not isinstance(block, Opaque))
                plain += [AssistantMessage(content=kept)] if kept else []
            case UserMessage():
                plain.append(message)
    return tuple(plain)


def _doubt(line: Line) -> str | None:
    """Why nothing can be gone on with by ``line``; None if it can."""
    match line:
        case Opened(token=token) if not _TOKEN.fullmatch(token):
            return "its token is none"
        case Opened(agent=agent) if agent not in _TALKING:
            return "no agent of that name has conversations"
        case Turned(time=time) if not _is_time(time):
            return "its time is none"
    return None


def _is_time(text: str) -> bool:
    """Whether ``text`` is a time that can be told in that of any place."""
    try:
        datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return False
    return True


def _interrupted(call_id: str) -> ToolResult:
    """The answer to a call that never had one."""
    return ToolResult(tool_use_id=call_id, content=INTERRUPTED, is_error=True)


def _names(project: Path) -> set[str]:
    """The sessions that have a folder; none if these cannot be listed."""
    try:
        with os.scandir(sessions_folder(project)) as entries:
            return {entry.name for entry in entries if _ID.fullmatch(entry.name) and not entry.is_symlink()}
    except OSError:
        return set()


def _path(project: Path, name: str) -> Path:
    return sessions_folder(project) / name / FILE


def _is_open(path: Path) -> bool:
    """Whether a process that lives writes the transcript."""
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


def _outline(path: Path) -> Earlier:
    """The session without its conversations."""
    about = os.stat(path, follow_symlinks=False)
    return _outline_of(path, (about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=4 * MOST_KEPT)
def _outline_of(path: Path, _state: tuple[int, int]) -> Earlier:
    """The same, read once for each state of the file."""
    return replace(_read(path, with_messages=False), talks=())


def _read(path: Path, *, with_messages: bool = True) -> Earlier:
    """The session in a transcript; raises ``UsageError``, and ``OSError`` if it is no file of ours."""
    _require_ours(path)
    content = read_ordinary(path, limit_bytes=LIMIT_BYTES)
    reading = _Reading(path, with_messages=with_messages)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            reading.take(line, number)
    return reading.session()


def _require_ours(path: Path) -> None:
    """Raise ``UsageError`` for a file that another could have written: a repository may bring one of this name."""
    about = os.stat(path, follow_symlinks=False)
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise UsageError(
            f"{path} is open to others, as no session of cdd's is: it may have come with the project.",
            hint="if it is yours, close it to them: chmod 600, and name it again; else remove it",
        )


class _Reading:
    """The lines of one transcript put together."""

    def __init__(self, path: Path, *, with_messages: bool) -> None:
        self._path = path
        self._with_messages = with_messages
        self._talks: dict[str, tuple[Opened, list[Message]]] = {}
        """Token -> how the conversation began, and its messages."""
        self._turned = Turned(agent="", ticket="", time="")
        self._typed: dict[tuple[str, str], str] = {}
        self._first = ""
        self._continues: list[str] = []

    def take(self, line: bytes, number: int) -> None:
        """Take one line in; one that was cut off is passed over."""
        try:
            read: Line = msgspec.json.decode(line, type=Line)
        except msgspec.ValidationError as error:
            raise self._damaged(number, str(error)) from error
        except (msgspec.DecodeError, RecursionError) as error:
            if line.startswith(_BEGINNING) or _BEGINNING.startswith(line):
                return
            raise self._damaged(number, "it is no JSON") from error
        doubt = _doubt(read)
        if doubt is not None:
            raise self._damaged(number, doubt)
        match read:
            case Begun(schema=schema) if schema > SCHEMA:
                raise UsageError(
                    f"{self._path} was written by a newer cdd: schema {schema}, and this one reads {SCHEMA}.",
                    hint=f"resume it with that version, or {self._without()}",
                )
            case Opened(token=token):
                self._talks.pop(token, None)  # so that the one that began last is the last one
                self._talks[token] = (read, [])
            case Said(token=token, message=message):
                if self._with_messages and token in self._talks:
                    self._talks[token][1].append(self._message(message, number))
            case Turned():
                self._turned = read
            case Typed(text=text):
                self._typed[self._turned.agent, self._turned.ticket] = text
                self._first = self._first or text
            case Continued(session=session):
                self._continues.append(session)

    def session(self) -> Earlier:
        """What the lines came to."""
        last = {(opened.agent, opened.ticket): (opened, messages) for opened, messages in self._talks.values()}
        talks = (
            Talk(
                agent=opened.agent,
                ticket=opened.ticket,
                model=opened.model,
                token=opened.token,
                messages=mended(messages),
                typed=self._typed.get((opened.agent, opened.ticket), ""),
            )
            for opened, messages in last.values()
        )
        words = " ".join(self._first.split())
        return Earlier(
            id=self._path.parent.name,
            agent=self._turned.agent,
            ticket=self._turned.ticket,
            time=self._turned.time,
            talks=tuple(talk for talk in talks if talk.messages),
            first_words=words if len(words) <= MOST_FIRST_WORDS else f"{words[: MOST_FIRST_WORDS - 3]}...",
            continues=tuple(self._continues),
        )

    def _message(self, message: dict[str, object], number: int) -> Message:
        try:
            return decode_message(as_json(message, "message"))
        except ValueError as error:
            raise self._damaged(number, str(error)) from error

    def _damaged(self, number: int, why: str) -> UsageError:
        return UsageError(
            f"The session in {self._path} is damaged, line {number}: {why}.",
            hint=f"nothing of it was changed; {self._without()}",
        )

    def _without(self) -> str:
        """What to do without this session."""
        return f"resume another one by its id, or move this one away: mv {self._path.parent} /tmp"
