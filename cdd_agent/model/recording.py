"""The format of recordings: the model's turns of a run as YAML or JSON.

``docs/reference/recording.md`` describes the format. ``parse_recording(print_turns(turns)) == turns`` always holds.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from cdd_agent.errors import RecordingError
from cdd_agent.model.conversation import JSON, Text, ToolCall
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted import documents, keys
from cdd_agent.untrusted.documents import UnfitError, check_size
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
