"""A tool of an agent: its specification for the model, and the function that runs it.

The input of a tool is a frozen dataclass, whose fields are described with ``Annotated[str, msgspec.Meta(...)]``; a
field may be a list of equally flat records. Input is validated before the function runs, and errors are returned to
the model as text. Texts shaped like keys are masked in every output, because a command or a failing test can print
one.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from cdd_agent.errors import CddError, UsageError, suggest
from cdd_agent.model.conversation import JSON, ToolSpec
from cdd_agent.untrusted.keys import mask

T = TypeVar("T")
_MAX_SHOWN = 60
"""Characters of an unknown field in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """The answer of a tool to the model."""

    text: str
    is_error: bool = False
    ends_run: bool = False
    """Whether the agent's run ends after all calls of this turn are answered."""
    exact: bool = False
    """Whether the model copies the text back, which requires invisible characters to stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool whose functions do not raise, except that ``run`` may raise ``KeyboardInterrupt``."""

    spec: ToolSpec
    run: Callable[[Mapping[str, JSON]], ToolOutput]
    subject: Callable[[Mapping[str, JSON]], str]
    """Returns the subject of a call in a few words, or an empty text if its input is not valid."""


def define_tool(name: str, inputs: type[T], *, run: Callable[[T], ToolOutput], subject: Callable[[T], str]) -> Tool:
    """Return a tool that validates its input against ``inputs``, whose docstring describes the tool to the model."""
    description = " ".join((inputs.__doc__ or "").split())
    spec = ToolSpec(name=name, description=description, input_schema=_build_schema(inputs))

    def run_checked(fields: Mapping[str, JSON]) -> ToolOutput:
        try:
            checked = read_input(fields, inputs)
        except UsageError as error:
            return _make_error(f"{name} was not run: {error.happened} ({error.hint})")
        try:
            output = run(checked)
        except CddError as error:
            return _make_error(f"{error.happened} ({error.hint})")
        except Exception as error:  # noqa: BLE001 - a defect of one tool must not end the agent's run
            return _make_error(f"{name} failed: {type(error).__name__}: {error}")
        return dataclasses.replace(output, text=_clean(output.text))

    def subject_checked(fields: Mapping[str, JSON]) -> str:
        try:
            return subject(read_input(fields, inputs))
        except UsageError:
            return ""

    return Tool(spec=spec, run=run_checked, subject=subject_checked)


def read_input(fields: Mapping[str, JSON], inputs: type[T]) -> T:
    """Convert ``fields`` to the dataclass ``inputs``; raise ``UsageError``, which names the field, if they differ."""
    schema = _build_schema(inputs)
    expected = f"it takes {msgspec.json.encode(schema).decode()}"
    known = schema["properties"]
    assert isinstance(known, dict)
    for key in fields:
        if key not in known:
            suggestion = suggest(key[:_MAX_SHOWN], known, text=", did you mean `{}`?")
            raise UsageError(f"Object has no field `{key[:_MAX_SHOWN]}`{suggestion}", hint=expected)
    try:
        msgspec.json.encode(dict(fields))
        return msgspec.convert(dict(fields), inputs)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint=expected) from error
    except UnicodeEncodeError as error:
        raise UsageError("The text contains a lone surrogate (half of a character)", hint=expected) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input cannot be read: {error}", hint=expected) from error


def _make_error(text: str) -> ToolOutput:
    return ToolOutput(text=_clean(text), is_error=True)


def _clean(text: str) -> str:
    # Bytes that are not UTF-8 arrive as surrogates and are shown as ``\xNN``.
    printable = re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", mask(text).text)
    return printable.encode("utf-8", "backslashreplace").decode()


def _build_schema(inputs: type) -> dict[str, JSON]:
    """Return the JSON Schema of a dataclass, without references and additional properties."""
    _, components = msgspec.json.schema_components((inputs,), ref_template="{name}")
    definitions: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(components))

    def inline(part: JSON) -> JSON:
        if isinstance(part, list):
            return [inline(value) for value in part]
        if not isinstance(part, dict):
            return part
        name = part.get("$ref")
        return record(name) if isinstance(name, str) else {key: inline(value) for key, value in part.items()}

    def record(name: str) -> dict[str, JSON]:
        definition = definitions[name]
        assert isinstance(definition, dict)
        schema = {key: inline(value) for key, value in definition.items() if key not in ("title", "description")}
        return schema | {"additionalProperties": False}

    return record(inputs.__name__)
