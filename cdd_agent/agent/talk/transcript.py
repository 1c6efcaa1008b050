"""The transcript of a session at the prompt: what is said, and to whom, one JSON line each, appended as it happens.

A killed session leaves at most its last line unfinished. ``recall`` reads a transcript back. Thoughts of the model
are not kept, as only the model that thought them can use them, and no key is: neither that of the model's service
nor a text shaped like one.
"""

import contextlib
import fcntl
from collections.abc import Callable
from pathlib import Path

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.events import Emit, Notice
from cdd_agent.model.conversation import JSON, Conversation, Keep, Message, draw_token
from cdd_agent.model.secret import hidden
from cdd_agent.model.wire import encode_messages, sendable
from cdd_agent.settings import private_folder
from cdd_agent.storage import Log

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
