"""A model that writes down what another one answers, so that the run can be played back without a network."""

import getpass
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.errors import RecordingError
from cdd_agent.events import Emit
from cdd_agent.guarded import keys
from cdd_agent.model import prices, recorded
from cdd_agent.model.conversation import JSON, Opaque, Text, ToolCall, Turn
from cdd_agent.model.port import Model, Request
from cdd_agent.model.recorded import RecordedBlock, RecordedTurn
from cdd_agent.model.replay import last_line
from cdd_agent.model.secret import Secret
from cdd_agent.storage import write_atomic

_ESCAPED_SPACE = "\\ "
_MATCHED_CHARACTERS = recorded.LONGEST_PATTERN // 4


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
            self._printed = recorded.read(path)
            self._turns += recorded.parse(self._printed, source=str(path), is_json=self._is_json)
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
            replace(block, id=recorded.made_up_id(number, at)) if isinstance(block, ToolCall) else block
            for at, block in enumerate(kept)
        )
        stop = recorded.default_stop(content)
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
        if len(whole.encode()) > recorded.LIMIT_BYTES:
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
            longer = recorded.parse(self._with(probe), source=str(self._path), is_json=self._is_json)
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
            return recorded.print_turns([*self._turns, turn], is_json=True)
        gap = "\n" if self._printed and not self._printed.endswith("\n") else ""
        return f"{self._printed}{gap}{recorded.print_turns([turn])}"


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
