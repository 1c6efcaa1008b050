"""A model that plays a recording back: no network, no key, the same turns every time.

A model that writes down what another one answers, so that the run can be played back without a network.
"""

import getpass
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.errors import RecordingError
from cdd_agent.events import Emit, TextDelta
from cdd_agent.model import prices, recording
from cdd_agent.model.conversation import JSON, Model, Opaque, Request, Text, ToolCall, ToolResult, Turn, UserMessage
from cdd_agent.model.recording import RecordedBlock, RecordedTurn
from cdd_agent.model.secret import Secret
from cdd_agent.storage import write_atomic
from cdd_agent.untrusted import keys

PIECE_LENGTH = 80
"""Characters of one ``TextDelta``."""

_SHOWN_LINES = 3
_SHOWN_CHARACTERS = 600
_SHOWN_TURNS = 8


class Playback:
    """The turns of a recording that have not been used yet, and the rule that chooses among them."""

    def __init__(self, turns: Sequence[RecordedTurn], *, source: str) -> None:
        """``source`` names the recording in errors."""
        self.source = source
        self._total = len(turns)
        self._left = list(turns)

    @property
    def left(self) -> tuple[RecordedTurn, ...]:
        """The unused turns, in the order of the file."""
        return tuple(self._left)

    def find(self, request: Request) -> RecordedTurn:
        """The first unused turn that matches; raises ``RecordingError`` that shows the request if none does."""
        said = last_user_text(request)
        for turn in self._left:
            if turn.when is None or any(re.search(turn.when, text, re.MULTILINE) for text in (said, request.system)):
                return turn
        raise RecordingError(self._complaint(request), hint=self._advice())

    def use_up(self, turn: RecordedTurn) -> None:
        """Take ``turn``, which ``find`` gave, off the unused ones."""
        self._left.remove(turn)

    def _complaint(self, request: Request) -> str:
        used = self._total - len(self._left)
        what = "has no turn left" if not self._left else "has no turn that matches"
        lines = [
            f"The recording {self.source} {what} for this request ({used} of {self._total} turns used).",
            "The system prompt ends:",
            *_quoted("\n".join(_last_lines(request.system))),
            "The last user message begins:",
            *_quoted(last_user_text(request)),
        ]
        if self._left:
            lines.append(f"Turns left ({len(self._left)}):")
            lines += [f"  turn {turn.number}, when: {turn.when}" for turn in self._left[:_SHOWN_TURNS]]
        return "\n".join(lines)

    def _advice(self) -> str:
        if self._left:
            return "change the `when` of the turn that was meant, or record the run again with --record FILE"
        return "add turns to the recording, or record the run again with --record FILE"


class ReplayModel:
    """The model port over a recording."""

    def __init__(self, turns: Sequence[RecordedTurn], *, source: str = "(in memory)") -> None:
        """Play ``turns``; each answers one request."""
        self.name = f"replay:{Path(source).name}"
        self._playback = Playback(turns, source=source)

    @classmethod
    def load(cls, path: Path) -> "ReplayModel":
        """Play the file at ``path``; raises ``RecordingError`` if it is missing or invalid."""
        return cls(recording.load(path), source=str(path))

    @property
    def left(self) -> tuple[RecordedTurn, ...]:
        """The turns not played yet."""
        return self._playback.left

    def check(self) -> None:
        """A recording can always be asked; what it lacks shows with the request."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The first unused turn that matches ``request``, its text emitted in pieces; else ``RecordingError``."""
        turn = self._playback.find(request)
        self._playback.use_up(turn)
        for block in turn.content:
            match block:
                case Text(text=text):
                    for start in range(0, len(text), PIECE_LENGTH):
                        emit(TextDelta(text=text[start : start + PIECE_LENGTH]))
                case ToolCall():
                    pass
        return Turn(content=turn.content, stop_reason=turn.stop_reason, usage=turn.usage)


def last_user_text(request: Request) -> str:
    """The texts and tool results of the last user message, one after the other; empty if there is none."""
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            return "\n".join(
                block.content if isinstance(block, ToolResult) else block.text for block in message.content
            )
    return ""


def last_line(text: str) -> str:
    """The last line of ``text`` that is not blank; empty if there is none."""
    return next(iter(_last_lines(text, 1)), "")


def _last_lines(text: str, count: int = _SHOWN_LINES) -> list[str]:
    return [line for line in text.split("\n") if line.strip()][-count:]


def _quoted(text: str) -> list[str]:
    """``text`` cut to a length that can be shown, each line set off."""
    shown = text[:_SHOWN_CHARACTERS] + (" ..." if len(text) > _SHOWN_CHARACTERS else "")
    return [f"  | {line}" for line in shown.split("\n")] if shown else ["  (nothing)"]


_ESCAPED_SPACE = "\\ "
_MATCHED_CHARACTERS = recording.LONGEST_PATTERN // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """What must not be in a recording, besides keys."""

    folders: tuple[str, ...] = ()
    """Absolute paths: the home directory, the project."""
    user: str = ""
    key: Secret | None = None
    """Of the model's service, whatever its shape."""

    @classmethod
    def here(cls, project: Path, *, key: Secret | None = None) -> "Private":
        """What is private on this machine and in ``project``."""
        folders = (os.path.expanduser("~"), str(project.absolute()), str(project.resolve()))
        return cls(folders=tuple(dict.fromkeys(folders)), user=_user_name(), key=key)

    def found_in(self, text: str) -> str | None:
        """What is private in ``text``, in words that do not repeat a key; nothing if it may be written."""
        if self.key is not None and self.key.is_in(text):
            return "the key of the model's service"
        kind = keys.find(text)
        if kind is not None:
            return f"a text shaped like an API key or another secret ({kind})"
        for folder in self.folders:
            if len(folder) > 1 and _ends_there(re.escape(folder), text):
                return f"the absolute path {folder}"
        if self.user and _ends_there(rf"[/\\]{re.escape(self.user)}", text):
            return f"a path with the user name {self.user}"
        return None


class RecordingModel:
    """The model port around another model; each of its turns is in the file before it is given on."""

    def __init__(self, inner: Model, path: Path, *, private: Private | None = None) -> None:
        """Go on with the recording at ``path`` if there is one; raises ``RecordingError`` if it cannot grow.

        ``private`` is what is refused; by default this user's home directory and the current folder.
        """
        self.name = inner.name
        self._inner = inner
        self._path = path
        self._is_json = path.suffix == ".json"
        self._private = private or Private.here(Path.cwd())
        self._turns: list[RecordedTurn] = []
        self._printed = ""
        if path.exists():
            self._printed = recording.read(path)
            self._turns += recording.parse(self._printed, source=str(path), is_json=self._is_json)
            self._check_form()

    def check(self) -> None:
        """Raise what the inner model raises, and ``RecordingError`` where the file cannot be written."""
        folder = self._path.absolute().parent
        if not os.access(self._path if self._path.exists() else folder, os.W_OK):
            raise RecordingError(
                f"The recording {self._path} cannot be written.",
                hint=f"name a file in a folder that is there: {folder}",
            )
        self._inner.check()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The inner model's turn, written down; raises ``RecordingError`` if it holds what must not be saved."""
        self.check()
        turn = self._inner.reply(request, emit=emit)
        try:
            self._save(self._recorded(request, turn))
        except RecordingError:
            emit(prices.lost(self.name, turn.usage))
            raise
        return turn

    def _recorded(self, request: Request, turn: Turn) -> RecordedTurn:
        """The turn as the file holds it: thinking is left out, as only the model that thought it can use it."""
        number = len(self._turns) + 1
        kept = [block for block in turn.content if not isinstance(block, Opaque)]
        content: tuple[RecordedBlock, ...] = tuple(
            replace(block, id=recording.made_up_id(number, at)) if isinstance(block, ToolCall) else block
            for at, block in enumerate(kept)
        )
        stop = recording.default_stop(content)
        match stop, turn.stop_reason:
            case "end_turn", "max_tokens" | "stop_sequence" as named:
                stop = named
        return RecordedTurn(
            number=number, content=content, stop_reason=stop, usage=turn.usage, when=when_for(request.system)
        )

    def _save(self, turn: RecordedTurn) -> None:
        for text in _texts(turn):
            what = self._private.found_in(text)
            if what is not None:
                raise RecordingError(
                    f"Turn {turn.number} is not written to {self._path}: it holds {what}.",
                    hint="run without --record, or in a project whose paths the model has no need to name",
                )
        whole = self._with(turn)
        if len(whole.encode()) > recording.LIMIT_BYTES:
            raise RecordingError(
                f"Turn {turn.number} is not written to {self._path}, which would be larger than can be read back.",
                hint="go on with another file: --record FILE",
            )
        try:
            write_atomic(self._path, whole.encode())
        except OSError as error:
            raise RecordingError(
                f"Turn {turn.number} cannot be written to {self._path}: {error.strerror}.",
                hint="make room there, or run without --record",
            ) from error
        self._turns.append(turn)
        self._printed = whole

    def _check_form(self) -> None:
        """Refuse a file that would no longer be a recording with one more turn at its end."""
        number = len(self._turns) + 1
        probe = RecordedTurn(number=number, content=(Text(text="probe"),), stop_reason="end_turn")
        try:
            longer = recording.parse(self._with(probe), source=str(self._path), is_json=self._is_json)
        except RecordingError as error:
            raise self._unfit() from error
        if longer != (*self._turns, probe):
            raise self._unfit()

    def _unfit(self) -> RecordingError:
        return RecordingError(
            f"Nothing can be added to the recording {self._path}: it is not a list with a dash before each turn.",
            hint="choose another file with --record FILE",
        )

    def _with(self, turn: RecordedTurn) -> str:
        """The whole file with ``turn`` at its end; what a person wrote into it stays."""
        if self._is_json:
            return recording.print_turns([*self._turns, turn], is_json=True)
        gap = "\n" if self._printed and not self._printed.endswith("\n") else ""
        return f"{self._printed}{gap}{recording.print_turns([turn])}"


def when_for(system: str) -> str | None:
    """A pattern that matches the last line of ``system``, which names agent, ticket, step, phase and attempt.

    Of a line too long for a pattern, its beginning is matched.
    """
    line = last_line(system)
    end = "$" if len(line) <= _MATCHED_CHARACTERS else ""
    return f"^{re.escape(line[:_MATCHED_CHARACTERS]).replace(_ESCAPED_SPACE, ' ')}{end}" if line else None


def _texts(turn: RecordedTurn) -> Iterator[str]:
    """Every text that the turn would put into the file."""
    yield re.sub(r"\\(.)", r"\1", turn.when or "")
    for block in turn.content:
        if isinstance(block, Text):
            yield block.text
        else:
            yield from (block.id, block.name)
            yield from _texts_in(dict(block.input))


def _texts_in(value: JSON) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts_in(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from _texts_in(item)
        case int() | float():
            yield str(value)
        case _:
            pass


def _ends_there(pattern: str, text: str) -> bool:
    """Whether ``pattern`` is in ``text`` as whole components of a path: ``/home/ann`` is not in ``/home/anna``."""
    return re.search(rf"{pattern}(?![\w-])(?!\.\w)", text) is not None


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
