"""Models that play back a recording, and that record the turns of another model.

A recording needs no network and no key, and yields the same turns every time.
"""

import getpass
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.errors import RecordingError, TurnMissing
from cdd_agent.events import Emit, TextDelta
from cdd_agent.model import recording
from cdd_agent.model.budget import make_answer_lost
from cdd_agent.model.conversation import JSON, Model, Opaque, Request, Text, ToolCall, ToolResult, Turn, UserMessage
from cdd_agent.model.recording import RecordedBlock, RecordedTurn
from cdd_agent.storage import write_atomic
from cdd_agent.untrusted import keys
from cdd_agent.untrusted.keys import Secret

WORK = "Work: "
"""The beginning of the line that names agent, ticket, step and phase."""
PIECE_LENGTH = 80
"""Characters of one ``TextDelta``."""
_RECORD_AGAIN = "record the run again with --record FILE"
_SHOWN_CHARACTERS = 600
_SHOWN_TURNS = 8


class ReplayModel:
    """A model that plays back a recording."""

    def __init__(self, turns: Sequence[RecordedTurn], *, source: str = "(in memory)") -> None:
        """Answer each request with one of ``turns``; ``source`` names the recording in errors."""
        self.name = f"replay:{Path(source).name}"
        self._source = source
        self._total = len(turns)
        self.unused = tuple(turns)
        """The turns that were not played yet, in file order."""

    @classmethod
    def load(cls, path: Path) -> "ReplayModel":
        """Load the file at ``path``; raise ``RecordingError`` if it is missing or invalid."""
        return cls(recording.load_recording(path), source=str(path))

    def check(self) -> None:
        """Do nothing: a missing turn is found only by its request."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the first unused turn that matches, or raise ``RecordingError``; emit its text in pieces."""
        turn = self.find_turn(request)
        self.mark_used(turn)
        for block in turn.content:
            if isinstance(block, Text):
                for start in range(0, len(block.text), PIECE_LENGTH):
                    emit(TextDelta(text=block.text[start : start + PIECE_LENGTH]))
        return Turn(content=turn.content, stop_reason=turn.stop_reason, usage=turn.usage)

    def mark_used(self, turn: RecordedTurn) -> None:
        """Remove ``turn`` from the unused ones."""
        self.unused = tuple(each for each in self.unused if each is not turn)

    def find_turn(self, request: Request) -> RecordedTurn:
        """Return the first unused turn that matches; raise ``RecordingError`` with the request if none does."""
        message = extract_last_user_text(request)
        if request.is_optional:
            # A turn that was meant for another agent must not be used up.
            work = extract_work(request)
            found = (turn for turn in self.unused if turn.when is not None and re.fullmatch(turn.when, work))
            if (own := next(found, None)) is None:
                raise TurnMissing(f"The recording {self._source} has no turn for {work!r}.", hint=_RECORD_AGAIN)
            return own
        searched = (message, request.system, extract_work(request))
        for turn in self.unused:
            if turn.when is None or any(re.search(turn.when, text, re.MULTILINE) for text in searched):
                return turn
        used = self._total - len(self.unused)
        what = "has no turn that matches" if self.unused else "has no turn left for"
        lines = [
            f"The recording {self._source} {what} this request ({used} of {self._total} turns used).",
            "It is about:",
            *_quote(extract_work(request)),
            "The last user message begins:",
            *_quote(message),
        ]
        hint = f"add turns to the recording, or {_RECORD_AGAIN}"
        if self.unused:
            lines.append(f"Unused turns ({len(self.unused)}):")
            lines += [f"  turn {turn.number}, when: {turn.when}" for turn in self.unused[:_SHOWN_TURNS]]
            hint = f"correct the `when` of the intended turn, or {_RECORD_AGAIN}"
        raise RecordingError("\n".join(lines), hint=hint)


def extract_last_user_text(request: Request) -> str:
    """Return the texts and tool results of the last user message; empty if there is none."""
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            texts = (block.content if isinstance(block, ToolResult) else block.text for block in message.content)
            return "\n".join(texts)
    return ""


def extract_work(request: Request) -> str:
    """Return the line that names agent, ticket, step and phase; empty if there is none.

    It is the last line of the first message, or else of the system prompt.
    """
    first = request.messages[0].content if request.messages else ()
    last = first[-1].text if first and isinstance(first[-1], Text) else ""
    line = get_last_line(last)
    return line if line.startswith(WORK) else get_last_line(request.system)


def get_last_line(text: str) -> str:
    """Return the last line of ``text`` that is not blank; empty if there is none."""
    return next((line for line in reversed(text.split("\n")) if line.strip()), "")


def _quote(text: str) -> list[str]:
    shown = text[:_SHOWN_CHARACTERS] + (" ..." if len(text) > _SHOWN_CHARACTERS else "")
    return [f"  | {line}" for line in shown.split("\n")] if shown else ["  (nothing)"]


_ESCAPED_SPACE = "\\ "
_MATCHED_CHARACTERS = recording.MAX_PATTERN // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateData:
    """Private data that a recording must not contain, besides keys."""

    folders: tuple[str, ...] = ()
    """Absolute paths: the home directory, the project."""
    user: str = ""
    key: Secret | None = None
    """The API key."""

    @classmethod
    def on_this_machine(cls, project: Path, *, key: Secret | None = None) -> "PrivateData":
        """Return the private data of this machine and ``project``."""
        folders = (os.path.expanduser("~"), str(project.absolute()), str(project.resolve()))
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = ""
        return cls(folders=tuple(dict.fromkeys(folders)), user=user, key=key)

    def find_in(self, text: str) -> str | None:
        """Describe the private data in ``text`` without repeating a key; return None if there is none."""
        if self.key is not None and self.key.is_in(text):
            return "the API key"
        kind = keys.find_key_kind(text)
        if kind is not None:
            return f"a text shaped like an API key or another secret ({kind})"
        for folder in self.folders:
            if len(folder) > 1 and _contains_path(re.escape(folder), text):
                return f"the absolute path {folder}"
        if self.user and _contains_path(rf"[/\\]{re.escape(self.user)}", text):
            return f"a path with the user name {self.user}"
        return None


class RecordingModel:
    """A model that saves each turn of another model before returning it."""

    def __init__(self, inner: Model, path: Path, *, private: PrivateData) -> None:
        """Continue the recording at ``path`` if there is one; raise ``RecordingError`` if turns cannot be appended."""
        self.name = inner.name
        self._inner = inner
        self._path = path
        self._is_json = path.suffix == ".json"
        self._private = private
        self._turns: list[RecordedTurn] = []
        self._content = ""
        if path.exists():
            self._content = recording.read_recording(path)
            self._turns += recording.parse_recording(self._content, source=str(path), is_json=self._is_json)
            self._require_appendable()

    def check(self) -> None:
        """Check the inner model; raise ``RecordingError`` if the file cannot be written."""
        folder = self._path.absolute().parent
        if not os.access(self._path if self._path.exists() else folder, os.W_OK):
            hint = f"choose a file in an existing, writable folder; this one is in {folder}"
            raise RecordingError(f"The recording {self._path} cannot be written.", hint=hint)
        self._inner.check()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the inner model's turn and save it; raise ``RecordingError`` if it contains private data."""
        self.check()
        turn = self._inner.reply(request, emit=emit)
        try:
            self._save(self._make_recorded(request, turn))
        except RecordingError:
            emit(make_answer_lost(request.model or self.name, turn.usage))
            raise
        return turn

    def _make_recorded(self, request: Request, turn: Turn) -> RecordedTurn:
        number = len(self._turns) + 1
        # Only the model that wrote a thinking block can use it.
        blocks = [block for block in turn.content if not isinstance(block, Opaque)]
        content: tuple[RecordedBlock, ...] = tuple(
            replace(block, id=recording.make_call_id(number, at)) if isinstance(block, ToolCall) else block
            for at, block in enumerate(blocks)
        )
        stop = recording.infer_stop_reason(content)
        if stop == "end_turn" and turn.stop_reason in ("max_tokens", "stop_sequence"):
            stop = turn.stop_reason
        when = make_pattern(extract_work(request))
        return RecordedTurn(number=number, content=content, stop_reason=stop, usage=turn.usage, when=when)

    def _save(self, turn: RecordedTurn) -> None:
        for text in _iter_texts(turn):
            what = self._private.find_in(text)
            if what is not None:
                raise RecordingError(
                    f"Turn {turn.number} was not saved in {self._path}: it contains {what}.",
                    hint="run without --record, or in a project whose paths do not appear in the model's answers",
                )
        content = self._format_with(turn)
        if len(content.encode()) > recording.MAX_BYTES:
            happened = f"Turn {turn.number} was not saved: {self._path} would exceed {recording.MAX_BYTES} bytes."
            raise RecordingError(happened, hint="continue with another file: --record FILE")
        try:
            write_atomic(self._path, content.encode())
        except OSError as error:
            happened = f"Turn {turn.number} cannot be saved in {self._path}: {error.strerror}."
            raise RecordingError(happened, hint="free some space, or run without --record") from error
        self._turns.append(turn)
        self._content = content

    def _require_appendable(self) -> None:
        # A flow-style YAML list, for example, is invalid with another turn behind it.
        number = len(self._turns) + 1
        probe = RecordedTurn(number=number, content=(Text(text="probe"),), stop_reason="end_turn")
        longer: tuple[RecordedTurn, ...] = ()
        with suppress(RecordingError):
            longer = recording.parse_recording(self._format_with(probe), source=str(self._path), is_json=self._is_json)
        if longer != (*self._turns, probe):
            why = "it is not a list with a dash before each turn"
            hint = "choose another file with --record FILE"
            raise RecordingError(f"Turns cannot be appended to the recording {self._path}: {why}.", hint=hint)

    def _format_with(self, turn: RecordedTurn) -> str:
        # YAML is appended, not rewritten, so that comments and formatting stay.
        if self._is_json:
            return recording.print_turns([*self._turns, turn], is_json=True)
        gap = "\n" if self._content and not self._content.endswith("\n") else ""
        return f"{self._content}{gap}{recording.print_turns([turn])}"


def make_pattern(line: str) -> str | None:
    """Return a pattern for the (start of the) line that names agent, ticket, step and phase."""
    end = "$" if len(line) <= _MATCHED_CHARACTERS else ""
    return f"^{re.escape(line[:_MATCHED_CHARACTERS]).replace(_ESCAPED_SPACE, ' ')}{end}" if line else None


def _iter_texts(turn: RecordedTurn) -> Iterator[str]:
    yield re.sub(r"\\(.)", r"\1", turn.when or "")
    for block in turn.content:
        if isinstance(block, Text):
            yield block.text
        else:
            yield from (block.id, block.name)
            yield from _iter_strings(dict(block.input))


def _iter_strings(value: JSON) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _iter_strings(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from _iter_strings(item)
        case int() | float():
            yield str(value)


def _contains_path(pattern: str, text: str) -> bool:
    # Only whole path components count: /home/ann is not in /home/anna.
    return re.search(rf"{pattern}(?![\w-])(?!\.\w)", text) is not None
