"""A model that plays a recording back: no network, no key, the same turns every time."""

import re
from collections.abc import Sequence
from pathlib import Path

from cdd_agent.errors import RecordingError
from cdd_agent.events import Emit, TextDelta
from cdd_agent.model import recorded
from cdd_agent.model.conversation import Text, ToolCall, ToolResult, Turn, UserMessage
from cdd_agent.model.port import Request
from cdd_agent.model.recorded import RecordedTurn

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
        return cls(recorded.load(path), source=str(path))

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
