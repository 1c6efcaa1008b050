"""A tool: what the model is told of it and what it does, its input checked before and its errors told as answers.

No answer holds a text shaped like a key, whatever the tool: a command or a failing test can print one too.

The input of a tool is a frozen dataclass, its fields described with ``Annotated[str, msgspec.Meta(...)]``; a field may
be a list of records as flat as that.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from cdd_agent.errors import CddError, UsageError
from cdd_agent.model.conversation import JSON, ToolSpec
from cdd_agent.untrusted.keys import mask

T = TypeVar("T")

_SHOWN = 60
"""Characters of a key that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool answers the model."""

    text: str
    is_error: bool = False
    ends_run: bool = False
    """Whether the agent's run is over once all calls of this turn are answered."""
    exact: bool = False
    """Whether the text is to be copied back, so that characters which cannot be seen have to stay in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool ready to be called; neither function raises, except that ``run`` lets ``KeyboardInterrupt`` pass."""

    spec: ToolSpec
    run: Callable[[Mapping[str, JSON]], ToolOutput]
    subject: Callable[[Mapping[str, JSON]], str]
    """What a call works on, in a few words; empty if its input is not valid."""


def define(
    name: str,
    description: str,
    *,
    inputs: type[T],
    run: Callable[[T], ToolOutput],
    subject: Callable[[T], str],
) -> Tool:
    """A tool whose input is checked against the dataclass ``inputs`` before ``run`` sees it."""
    schema = _schema(inputs)

    def run_checked(fields: Mapping[str, JSON]) -> ToolOutput:
        try:
            checked = read_input(fields, inputs)
        except UsageError as error:
            return _failed(f"{name} was not run: {error.happened} ({error.hint})")
        try:
            output = run(checked)
        except CddError as error:
            return _failed(f"{error.happened} ({error.hint})")
        except Exception as error:  # noqa: BLE001 - a defect of one tool is told to the model, not the end of its run
            return _failed(f"{name} failed: {type(error).__name__}: {error}")
        return dataclasses.replace(output, text=_shown(output.text))

    def subject_checked(fields: Mapping[str, JSON]) -> str:
        try:
            return subject(read_input(fields, inputs))
        except UsageError:
            return ""

    return Tool(
        spec=ToolSpec(name=name, description=description, input_schema=schema),
        run=run_checked,
        subject=subject_checked,
    )


def read_input(fields: Mapping[str, JSON], inputs: type[T]) -> T:
    """``fields`` as the dataclass ``inputs``.

    Raises ``UsageError`` naming the place and what is expected there: wrong types, missing and unknown keys, text
    that no file could hold.
    """
    schema = _schema(inputs)
    expected = f"it takes {msgspec.json.encode(schema).decode()}"
    known = schema["properties"]
    assert isinstance(known, dict)
    for key in fields:
        if key not in known:
            near = get_close_matches(key[:_SHOWN], known, n=1)
            meant = f", did you mean `{near[0]}`?" if near else ""
            raise UsageError(f"Object has no field `{key[:_SHOWN]}`{meant}", hint=expected)
    try:
        msgspec.json.encode(dict(fields))
        return msgspec.convert(dict(fields), inputs)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint=expected) from error
    except UnicodeEncodeError as error:
        raise UsageError("Half a character (a lone surrogate) is in the text", hint=expected) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input cannot be read: {error}", hint=expected) from error


def _failed(text: str) -> ToolOutput:
    """An answer that says what went wrong."""
    return ToolOutput(text=_shown(text), is_error=True)


def _shown(text: str) -> str:
    """``text`` as it may be sent: its keys masked, a byte of a file that is not UTF-8 written ``\\xNN``."""
    shown = re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", mask(text).text)
    return shown.encode("utf-8", "backslashreplace").decode()


def _schema(inputs: type) -> dict[str, JSON]:
    """The JSON Schema of a dataclass: an object with these properties and no other, the records in it likewise."""
    _, components = msgspec.json.schema_components((inputs,), ref_template="{name}")
    written: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(components))

    def inlined(part: JSON) -> JSON:
        if isinstance(part, list):
            return [inlined(value) for value in part]
        if not isinstance(part, dict):
            return part
        name = part.get("$ref")
        return record(name) if isinstance(name, str) else {key: inlined(value) for key, value in part.items()}

    def record(name: str) -> dict[str, JSON]:
        described = written[name]
        assert isinstance(described, dict)
        kept = {key: inlined(value) for key, value in described.items() if key not in ("title", "description")}
        return kept | {"additionalProperties": False}

    return record(inputs.__name__)
