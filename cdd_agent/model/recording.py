"""The format of a recording: the model's turns of a run as YAML or JSON, read strictly and printed for people.

``docs/reference/recording.md`` describes it. The law is ``parse(print_turns(turns)) == turns``.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Literal, TypeAlias, assert_never, get_args

import msgspec

from cdd_agent.errors import RecordingError
from cdd_agent.model.conversation import JSON, Text, ToolCall, Usage
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted import documents, keys
from cdd_agent.untrusted.documents import UnfitError, check_size

RecordedStop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence"]
"""The stop reasons that a turn in a recording may have."""

RecordedBlock: TypeAlias = Text | ToolCall

_STOPS: dict[str, RecordedStop] = {stop: stop for stop in get_args(RecordedStop)}

LIMIT_BYTES = 8_000_000
"""Of a whole recording."""

MOST_TURNS = 10_000

LONGEST_PATTERN = 10_000
"""Characters of one ``when``."""

_DEEPEST = 60
"""Levels of a tool's input that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of a recording."""

    number: int
    """1-based place in the file."""
    content: tuple[RecordedBlock, ...]
    stop_reason: RecordedStop
    usage: Usage = field(default_factory=Usage)
    when: str | None = None
    """A regular expression that the request must match; nothing: any request will do."""

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


def load(path: Path) -> tuple[RecordedTurn, ...]:
    """The turns in the file at ``path``: JSON if its name ends so, else YAML. Raises ``RecordingError``."""
    return parse(read(path), source=str(path), is_json=path.suffix == ".json")


def read(path: Path) -> str:
    """The text of the file at ``path``; raises ``RecordingError`` for one that is none, and for one with a key in it.

    A pipe or a device is never waited for.
    """
    try:
        text = read_ordinary(path, limit_bytes=LIMIT_BYTES, through_links=True).decode("utf-8")
    except FileNotFoundError as error:
        raise RecordingError(
            f"There is no recording at {path}.",
            hint="check the path given to --replay, or record a run with --record FILE",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordingError(
            f"The recording {path} cannot be read: {why}.",
            hint=f"a recording is an ordinary file of UTF-8 text with at most {LIMIT_BYTES} bytes",
        ) from error
    kind = keys.find(text)
    if kind is not None:
        raise RecordingError(
            f"The recording {path} holds a text shaped like a key ({kind}).",
            hint="take it out, and make the key anew if it is one: whoever has the file has the key",
        )
    return text


def parse(text: str, *, source: str, is_json: bool = False) -> tuple[RecordedTurn, ...]:
    """The turns in ``text``; ``source`` names it in the ``RecordingError`` that anything invalid raises."""
    document = _read_json(text, source) if is_json else _read_yaml(text, source)
    if not isinstance(document, list):
        raise _invalid(source, f"a list of turns is expected, not {_kind(document)}")
    if len(document) > MOST_TURNS:
        raise _invalid(source, f"it has {len(document)} turns; at most {MOST_TURNS} are read")
    turns = tuple(_turn(item, number, source=source) for number, item in enumerate(document, start=1))
    taken: dict[str, int] = {}
    for turn in turns:
        for call in turn.calls:
            if call.id in taken:
                raise _invalid(source, f"turn {turn.number}: the id {call.id!r} is taken by turn {taken[call.id]}")
            taken[call.id] = turn.number
    return turns


def print_turns(turns: Iterable[RecordedTurn], *, is_json: bool = False) -> str:
    """The turns as a file holds them; text of several lines becomes a YAML block that can be read and edited."""
    document = [_plain(turn) for turn in turns]
    if is_json:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return _yaml_printer()(document) if document else ""


def default_stop(content: Iterable[RecordedBlock]) -> RecordedStop:
    """Why a turn with this content ends, where the recording does not say."""
    return "tool_use" if any(isinstance(block, ToolCall) for block in content) else "end_turn"


def made_up_id(turn: int, call: int) -> str:
    """The id of a call that was recorded without one: the same at every reading."""
    return f"toolu_{turn:04d}_{call:02d}"


def as_json(value: object, place: str, *, depth: int = 0) -> JSON:
    """``value`` if JSON can write it; raises ``ValueError`` that names ``place`` and the culprit."""
    if depth > _DEEPEST:
        raise ValueError(f"{place} is nested too deeply")
    match value:
        case None | bool() | str():
            return value
        case int():
            return _printable(value, place)
        case float() if isfinite(value):
            return value
        case list():
            return [as_json(item, f"{place}[{index}]", depth=depth + 1) for index, item in enumerate(value)]
        case dict():
            return {_key(key, place): as_json(item, f"{place}.{key}", depth=depth + 1) for key, item in value.items()}
        case _:
            raise ValueError(f"{place} is {_kind(value)}, which JSON has no form for: put it in quotes")


def _printable(value: int, place: str) -> int:
    try:
        str(value)
    except ValueError as error:
        raise ValueError(f"{place} is an integer of thousands of digits: put it in quotes") from error
    return value


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{place} has the key {key!r}, which is {_kind(key)}: put it in quotes")
    return key


def _turn(item: object, number: int, *, source: str) -> RecordedTurn:
    """One validated turn; every complaint names the file, the turn and the place in it."""
    try:
        shape = msgspec.convert(item, _TurnShape)
        content = tuple(
            Text(text=block)
            if isinstance(block, str)
            else _call(block, f"content[{index}]", spare_id=made_up_id(number, index))
            for index, block in enumerate(shape.content)
        )
        return RecordedTurn(
            number=number,
            content=content,
            stop_reason=_stop(shape.stop_reason, content),
            usage=Usage(**msgspec.structs.asdict(shape.usage)) if shape.usage else Usage(),
            when=_checked_pattern(shape.when),
        )
    except (msgspec.ValidationError, ValueError) as error:
        complaint = str(error).replace("`$.", "`").replace(" - at `$`", "")
        raise _invalid(source, f"turn {number}: {complaint}") from error


def _call(shape: _CallShape, place: str, *, spare_id: str) -> ToolCall:
    if not shape.name:
        raise ValueError(f"{place}.name is empty")
    value = {key: as_json(item, f"{place}.input.{key}") for key, item in shape.input.items()}
    return ToolCall(id=shape.id or spare_id, name=shape.name, input=value)


def _stop(named: str | None, content: tuple[RecordedBlock, ...]) -> RecordedStop:
    """The stop reason, which must agree with whether the turn calls a tool."""
    usual = default_stop(content)
    if named is None:
        return usual
    stop = _STOPS.get(named)
    if stop is None:
        raise ValueError(f"stop_reason {named!r} is not one of {', '.join(_STOPS)}")
    if (stop == "tool_use") != (usual == "tool_use"):
        calls = "calls a tool" if usual == "tool_use" else "calls no tool"
        raise ValueError(f"stop_reason is {stop}, but the turn {calls}: leave stop_reason out")
    return stop


def _checked_pattern(when: str | None) -> str | None:
    if when is None:
        return None
    if len(when) > LONGEST_PATTERN:
        raise ValueError(f"when has {len(when)} characters; at most {LONGEST_PATTERN} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a later Python may read the pattern otherwise
            re.compile(when)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"when is not a regular expression: {error}: {when[:80]!r}") from error
    return when


def _read_json(text: str, source: str) -> object:
    try:
        check_size(text, limit_bytes=LIMIT_BYTES)
        document: object = msgspec.json.decode(text)
        documents.check_json(text, limit_bytes=LIMIT_BYTES)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _invalid(source, str(error)) from error
    return document


def _read_yaml(text: str, source: str) -> object:
    import yaml  # here, not above: it would slow the start of the program

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents.check_yaml(text, limit_bytes=LIMIT_BYTES)  # first: the fast loader may crash on deep nesting
        document: object = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise _invalid(source, f"{line}{error.problem or error.context}") from error
    except UnfitError as error:
        raise _invalid(source, f"line {error.line}: {error}" if error.line else str(error)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(source, str(error)) from error
    return [] if document is None else document


def _plain(turn: RecordedTurn) -> dict[str, JSON]:
    """The turn as the file holds it, without what a reader would add by itself."""
    usage = {name: getattr(turn.usage, name) for name in turn.usage.__dataclass_fields__}
    plain: dict[str, JSON] = {} if turn.when is None else {"when": turn.when}
    plain["content"] = [_plain_block(block, made_up_id(turn.number, at)) for at, block in enumerate(turn.content)]
    if turn.stop_reason != default_stop(turn.content):
        plain["stop_reason"] = turn.stop_reason
    if any(usage.values()):
        plain["usage"] = {name: count for name, count in usage.items() if count}
    return plain


def _plain_block(block: RecordedBlock, spare_id: str) -> JSON:
    match block:
        case Text():
            return block.text
        case ToolCall():
            named: Mapping[str, JSON] = {} if block.id == spare_id else {"id": block.id}
            return {"type": "tool_use", **named, "name": block.name, "input": dict(block.input)}
        case _:
            assert_never(block)


@cache
def _yaml_printer() -> Callable[[list[dict[str, JSON]]], str]:
    """Prints a list of turns; made once, at the first use, as it needs the YAML library."""
    import yaml

    class Printer(yaml.SafeDumper):
        """Prints lines as a block, and the same list twice rather than as an alias."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def put_text(printer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # The library does not quote every character that its reader takes for the end of a line.
        plain = all(line.isprintable() for line in text.split("\n"))
        style = '"' if not plain else "|" if "\n" in text else None
        return printer.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Printer.add_representer(str, put_text)

    def dump(document: list[dict[str, JSON]]) -> str:
        return yaml.dump(document, Dumper=Printer, sort_keys=False, allow_unicode=True, width=110)

    return dump


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _invalid(source: str, complaint: str) -> RecordingError:
    return RecordingError(
        f"The recording {source} is not valid: {complaint}.", hint="docs/reference/recording.md describes the format"
    )
