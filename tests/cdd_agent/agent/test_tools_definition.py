from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from cdd_agent.agent.tools import Tool, ToolOutput, define_tool, read_input
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Input of the tool under test."""

    color: Annotated[str, msgspec.Meta(description="name of a color")]
    coats: Annotated[int, msgspec.Meta(ge=1)] = 1
    walls: tuple[str, ...] = ()


def paint(inputs: Paint) -> ToolOutput:
    match inputs.color:
        case "refused":
            raise UsageError("refused is no color.", hint="name another")
        case "broken":
            raise ZeroDivisionError("division by zero")
        case "stop":
            raise KeyboardInterrupt
    return ToolOutput(text=f"{inputs.coats} of {inputs.color} on {', '.join(inputs.walls)}")


def nested(levels: int) -> JSON:
    """Lists in lists."""
    found: JSON = "a"
    for _ in range(levels):
        found = [found]
    return found


TOOL: Tool = define_tool("Paint", Paint, run=paint, subject=lambda inputs: inputs.color)


def test_valid_input_reaches_the_tool_as_its_record() -> None:
    output = TOOL.run({"color": "red", "coats": 2, "walls": ["north"]})
    assert output == ToolOutput(text="2 of red on north")


def test_the_model_sees_a_flat_schema_without_other_properties() -> None:
    assert TOOL.spec.name == "Paint"
    assert TOOL.spec.input_schema == {
        "type": "object",
        "properties": {
            "color": {"type": "string", "description": "name of a color"},
            "coats": {"type": "integer", "minimum": 1, "default": 1},
            "walls": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["color"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "missing required field `color`"),
        ({"color": 3}, "got `int` - at `$.color`"),
        ({"color": None}, "got `null` - at `$.color`"),
        ({"color": "red", "coats": "2"}, "got `str` - at `$.coats`"),
        ({"color": "red", "coats": 0}, ">= 1 - at `$.coats`"),
        ({"color": "red", "coats": True}, "got `bool` - at `$.coats`"),
        ({"color": "red", "walls": ["a", 1]}, "at `$.walls[1]`"),
        ({"color": "red", "colour": "red"}, "no field `colour`, did you mean `color`?"),
        ({"color": "\ud800"}, "lone surrogate"),
        ({"color": "red", "coats": 16**5000}, "Exceeds the limit"),
        ({"color": nested(5000)}, "recursion depth exceeded"),
        ({"x" * 100_000: 1}, f"no field `{'x' * 60}`"),
    ],
)
def test_invalid_input_is_answered_with_its_place_and_the_schema(fields: Mapping[str, JSON], said: str) -> None:
    output = TOOL.run(fields)
    assert output.is_error
    assert said in output.text
    assert "Paint was not run" in output.text
    assert '"color":{"description":"name of a color","type":"string"}' in output.text


def test_an_error_of_ours_is_answered_with_its_hint() -> None:
    assert TOOL.run({"color": "refused"}) == ToolOutput(text="refused is no color. (name another)", is_error=True)


def test_an_unexpected_exception_is_answered_with_its_class() -> None:
    output = TOOL.run({"color": "broken"})
    assert output == ToolOutput(text="Paint failed: ZeroDivisionError: division by zero", is_error=True)


def test_an_interrupt_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        TOOL.run({"color": "stop"})


def test_the_subject_of_a_call_comes_from_its_input_and_is_empty_if_that_is_invalid() -> None:
    assert TOOL.subject({"color": "red"}) == "red"
    assert TOOL.subject({"color": 1}) == ""


def test_input_can_be_read_again_as_its_record() -> None:
    assert read_input({"color": "red"}, Paint) == Paint(color="red")


def test_an_answer_that_no_encoder_takes_is_written_out() -> None:
    tool = define_tool("Show", Paint, run=lambda _: ToolOutput(text="caf\udce9 \ud800"), subject=lambda _: "")
    assert tool.run({"color": "red"}).text == "caf\\xe9 \\ud800"


@pytest.mark.parametrize("fails", [False, True])
def test_no_answer_shows_a_key(*, fails: bool) -> None:
    key = f"AKIA{'Q' * 16}"

    def told(_: Paint) -> ToolOutput:
        if fails:
            raise UsageError(f"There is no {key}.", hint="name another")
        return ToolOutput(text=f"KEY={key}")

    output = define_tool("Show", Paint, run=told, subject=lambda _: "").run({"color": "red"})
    assert key not in output.text
    assert "[masked: AWS key]" in output.text
