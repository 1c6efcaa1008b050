"""Recordings: the model's turns of a run as YAML or JSON, and the models that play them back and write them.

A recording needs no network and no key, and yields the same turns every time.

``docs/reference/recording.md`` describes the format. ``parse_recording(print_turns(turns)) == turns`` always holds.
"""

import getpass
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from cdd_agent.errors import RecordingError, TurnMissing
from cdd_agent.events import Emit, TextDelta
from cdd_agent.model.budget import make_answer_lost
from cdd_agent.model.conversation import JSON, Model, Opaque, Request, Text, ToolCall, ToolResult, Turn, UserMessage
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.untrusted import documents, keys
from cdd_agent.untrusted.documents import UnfitError, check_size
from cdd_agent.untrusted.keys import Secret
from cdd_agent.work.state import Usage

RecordedStop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence"]
"""The possible stop reasons of a recorded turn."""

RecordedBlock: TypeAlias = Text | ToolCall

_STOPS: dict[str, RecordedStop] = {stop: stop for stop in get_args(RecordedStop)}
MAX_BYTES = 8_000_000
MAX_TURNS = 10_000
MAX_PATTERN = 10_000
"""Characters of one ``when``."""
_MAX_DEPTH = 60
"""Nesting of a tool's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of a recording."""

    number: int
    """The position in the file, 1-based."""
    content: tuple[RecordedBlock, ...]
    stop_reason: RecordedStop
    usage: Usage = field(default_factory=Usage)
    when: str | None = None
    """A regular expression that the request must match; None matches any request."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the turn, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolCall))


class _CallShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    name: str
    input: dict[str, object]
    id: str | None = None


class _UsageShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class _TurnShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    content: list[str | _CallShape]
    when: str | None = None
    stop_reason: str | None = None
    usage: _UsageShape | None = None


def load_recording(path: Path) -> tuple[RecordedTurn, ...]:
    """Return the turns in a JSON or YAML file; raise ``RecordingError`` if it is invalid."""
    return parse_recording(read_recording(path), source=str(path), is_json=path.suffix == ".json")


def read_recording(path: Path) -> str:
    """Return the text of a recording; raise ``RecordingError`` if it cannot be read or contains a key."""
    try:
        text = read_ordinary(path, limit_bytes=MAX_BYTES, through_links=True).decode("utf-8")
    except FileNotFoundError as error:
        hint = "check the path given to --replay, or record a run with --record FILE"
        raise RecordingError(f"There is no recording at {path}.", hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        hint = f"a recording is a regular UTF-8 file of at most {MAX_BYTES} bytes"
        raise RecordingError(f"The recording {path} cannot be read: {why}.", hint=hint) from error
    kind = keys.find_key_kind(text)
    if kind is not None:
        hint = "remove it, and replace the key if it is real: everyone with the file has it"
        raise RecordingError(f"The recording {path} contains a text shaped like a key ({kind}).", hint=hint)
    return text


def parse_recording(text: str, *, source: str, is_json: bool = False) -> tuple[RecordedTurn, ...]:
    """Return the turns in ``text``; raise ``RecordingError``, which names ``source``, if it is invalid."""
    document = _read_json(text, source) if is_json else _read_yaml(text, source)
    if not isinstance(document, list):
        raise _make_error(source, f"expected a list of turns, not {_describe_type(document)}")
    if len(document) > MAX_TURNS:
        raise _make_error(source, f"it has {len(document)} turns, but at most {MAX_TURNS} are allowed")
    turns = tuple(_convert_turn(item, number, source=source) for number, item in enumerate(document, start=1))
    used: dict[str, int] = {}
    for turn in turns:
        for call in turn.calls:
            if call.id in used:
                raise _make_error(source, f"turn {turn.number}: turn {used[call.id]} already uses the id {call.id!r}")
            used[call.id] = turn.number
    return turns


def print_turns(turns: Iterable[RecordedTurn], *, is_json: bool = False) -> str:
    """Format the turns as a file; in YAML, text of several lines becomes an editable block."""
    document = [_encode_turn(turn) for turn in turns]
    if is_json:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return _print_yaml(document) if document else ""


def infer_stop_reason(content: Iterable[RecordedBlock]) -> RecordedStop:
    """Return the stop reason of a turn for which the recording names none."""
    return "tool_use" if any(isinstance(block, ToolCall) for block in content) else "end_turn"


def make_call_id(turn: int, call: int) -> str:
    """Return the id of a call that was recorded without one; the same each time."""
    return f"toolu_{turn:04d}_{call:02d}"


def as_json(value: object, where: str, *, depth: int = 0) -> JSON:
    """Return ``value`` if it is valid JSON; raise ``ValueError`` with the path ``where`` if not."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested too deeply")
    match value:
        case None | bool() | str():
            return value
        case int():
            try:
                str(value)  # Python refuses to print very large integers.
            except ValueError as error:
                raise ValueError(f"{where} is an integer of thousands of digits: put it in quotes") from error
            return value
        case float() if isfinite(value):
            return value
        case list():
            return [as_json(item, f"{where}[{index}]", depth=depth + 1) for index, item in enumerate(value)]
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"{where} has the key {key!r}, which is {_describe_type(key)}: put it in quotes")
            return {key: as_json(item, f"{where}.{key}", depth=depth + 1) for key, item in value.items()}
        case _:
            raise ValueError(f"{where} is {_describe_type(value)}, which JSON cannot represent: put it in quotes")


def _convert_turn(item: object, number: int, *, source: str) -> RecordedTurn:
    try:
        shape = msgspec.convert(item, _TurnShape)
        content = tuple(
            Text(text=block)
            if isinstance(block, str)
            else _convert_call(block, f"content[{index}]", spare_id=make_call_id(number, index))
            for index, block in enumerate(shape.content)
        )
        return RecordedTurn(
            number=number,
            content=content,
            stop_reason=_check_stop(shape.stop_reason, content),
            usage=Usage(**msgspec.structs.asdict(shape.usage)) if shape.usage else Usage(),
            when=_check_pattern(shape.when),
        )
    except (msgspec.ValidationError, ValueError) as error:
        complaint = str(error).replace("`$.", "`").replace(" - at `$`", "")
        raise _make_error(source, f"turn {number}: {complaint}") from error


def _convert_call(shape: _CallShape, where: str, *, spare_id: str) -> ToolCall:
    if not shape.name:
        raise ValueError(f"{where}.name is empty")
    value = {key: as_json(item, f"{where}.input.{key}") for key, item in shape.input.items()}
    return ToolCall(id=shape.id or spare_id, name=shape.name, input=value)


def _check_stop(named: str | None, content: tuple[RecordedBlock, ...]) -> RecordedStop:
    usual = infer_stop_reason(content)
    if named is None:
        return usual
    stop = _STOPS.get(named)
    if stop is None:
        raise ValueError(f"stop_reason {named!r} is not one of {', '.join(_STOPS)}")
    if (stop == "tool_use") != (usual == "tool_use"):
        calls = "calls a tool" if usual == "tool_use" else "calls no tool"
        raise ValueError(f"stop_reason is {stop}, but the turn {calls}: leave stop_reason out")
    return stop


def _check_pattern(when: str | None) -> str | None:
    if when is None:
        return None
    if len(when) > MAX_PATTERN:
        raise ValueError(f"when has {len(when)} characters, but at most {MAX_PATTERN} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning: a later Python may parse the pattern differently.
            re.compile(when)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"when is not a regular expression: {error}: {when[:80]!r}") from error
    return when


def _read_json(text: str, source: str) -> object:
    try:
        check_size(text, limit_bytes=MAX_BYTES)
        document: object = msgspec.json.decode(text)
        documents.check_json(text, limit_bytes=MAX_BYTES)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _make_error(source, str(error)) from error
    return document


def _read_yaml(text: str, source: str) -> object:
    import yaml  # Not at the top: it slows down the start of the program.

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents.check_yaml(text, limit_bytes=MAX_BYTES)  # First: the C loader may crash on deep nesting.
        document: object = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise _make_error(source, f"{line}{error.problem or error.context}") from error
    except UnfitError as error:
        raise _make_error(source, f"line {error.line}: {error}" if error.line else str(error)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise _make_error(source, str(error)) from error
    return [] if document is None else document


def _encode_turn(turn: RecordedTurn) -> dict[str, JSON]:
    # Values that the parser adds by itself are omitted.
    encoded: dict[str, JSON] = {} if turn.when is None else {"when": turn.when}
    encoded["content"] = [_encode_block(block, make_call_id(turn.number, at)) for at, block in enumerate(turn.content)]
    if turn.stop_reason != infer_stop_reason(turn.content):
        encoded["stop_reason"] = turn.stop_reason
    usage: dict[str, JSON] = {name: count for name, count in turn.usage.token_counts.items() if count}
    return encoded | ({"usage": usage} if usage else {})


def _encode_block(block: RecordedBlock, spare_id: str) -> JSON:
    if isinstance(block, Text):
        return block.text
    named: Mapping[str, JSON] = {} if block.id == spare_id else {"id": block.id}
    return {"type": "tool_use", **named, "name": block.name, "input": dict(block.input)}


def _print_yaml(document: list[dict[str, JSON]]) -> str:
    import yaml

    class Printer(yaml.SafeDumper):
        """A YAML dumper without aliases."""

        def ignore_aliases(self, data: object) -> bool:
            return True

        def represent_text(self, text: str) -> yaml.ScalarNode:
            # PyYAML does not quote every character that its parser takes for a line ending.
            is_printable = all(line.isprintable() for line in text.split("\n"))
            style = '"' if not is_printable else "|" if "\n" in text else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Printer.add_representer(str, Printer.represent_text)
    return yaml.dump(document, Dumper=Printer, sort_keys=False, allow_unicode=True, width=110)


def _describe_type(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _make_error(source: str, complaint: str) -> RecordingError:
    return RecordingError(
        f"The recording {source} is invalid: {complaint}.", hint="docs/reference/recording.md describes the format"
    )


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
        return cls(load_recording(path), source=str(path))

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
_MATCHED_CHARACTERS = MAX_PATTERN // 4


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
            self._content = read_recording(path)
            self._turns += parse_recording(self._content, source=str(path), is_json=self._is_json)
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
            replace(block, id=make_call_id(number, at)) if isinstance(block, ToolCall) else block
            for at, block in enumerate(blocks)
        )
        stop = infer_stop_reason(content)
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
        if len(content.encode()) > MAX_BYTES:
            happened = f"Turn {turn.number} was not saved: {self._path} would exceed {MAX_BYTES} bytes."
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
            longer = parse_recording(self._format_with(probe), source=str(self._path), is_json=self._is_json)
        if longer != (*self._turns, probe):
            why = "it is not a list with a dash before each turn"
            hint = "choose another file with --record FILE"
            raise RecordingError(f"Turns cannot be appended to the recording {self._path}: {why}.", hint=hint)

    def _format_with(self, turn: RecordedTurn) -> str:
        # YAML is appended, not rewritten, so that comments and formatting stay.
        if self._is_json:
            return print_turns([*self._turns, turn], is_json=True)
        gap = "\n" if self._content and not self._content.endswith("\n") else ""
        return f"{self._content}{gap}{print_turns([turn])}"


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
