"""A long paste is one character that looks like a chip and is sent whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import Transformation, TransformationInput

from cdd_agent.repl.prompt import ChipProcessor, Pastes

BLOCK = "\n".join(f"line {number}" for number in range(40))


def drawn(pastes: Pastes, line: str) -> Transformation:
    return ChipProcessor(pastes).apply_transformation(
        TransformationInput(BufferControl(Buffer()), Document(line), 0, lambda at: at, [("", line)], 80, 10)
    )


def shown(pastes: Pastes, line: str) -> str:
    return fragment_list_to_text(drawn(pastes, line).fragments)


@pytest.mark.parametrize("text", ["a", "a\nb", "\n".join("a" * 14), "x" * 999])
def test_a_short_paste_is_text(text: str) -> None:
    assert Pastes().shorten(text) == text


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        (BLOCK, "[pasted 40 lines #1]"),
        ("\n".join("a" * 15), "[pasted 15 lines #1]"),
        (BLOCK + "\n", "[pasted 40 lines #1]"),
        ("x" * 1_000, "[pasted 1,000 characters #1]"),
    ],
)
def test_a_long_one_is_a_character_that_looks_like_a_chip(text: str, chip: str) -> None:
    pastes = Pastes()
    taken = pastes.shorten(text)
    assert len(taken) == 1
    assert shown(pastes, f"look at {taken}!") == f"look at {chip}!"
    assert pastes.expand(f"look at {taken}!") == f"look at {text}!"


def test_each_paste_has_its_number() -> None:
    pastes = Pastes()
    line = f"{pastes.shorten(BLOCK)} and {pastes.shorten('x' * 2_000)}"
    assert shown(pastes, line) == "[pasted 40 lines #1] and [pasted 2,000 characters #2]"
    assert pastes.expand(line) == f"{BLOCK} and {'x' * 2_000}"


def test_what_looks_like_a_chip_and_was_typed_is_none() -> None:
    pastes = Pastes()
    pastes.shorten(BLOCK)
    assert pastes.expand("[pasted 40 lines #1]") == "[pasted 40 lines #1]"


def test_a_paste_that_holds_the_characters_of_chips_comes_out_as_it_is() -> None:
    pastes = Pastes()
    mark = pastes.shorten(BLOCK)
    assert pastes.expand(pastes.shorten(f"odd {mark}")) == f"odd {mark}"


def test_the_cursor_stands_where_it_is_drawn() -> None:
    pastes = Pastes()
    line = f"ab{pastes.shorten(BLOCK)}c"
    transformation = drawn(pastes, line)
    chip = len("[pasted 40 lines #1]")
    assert [transformation.source_to_display(at) for at in range(6)] == [0, 1, 2, 2 + chip, 3 + chip, 4 + chip]
    assert [transformation.display_to_source(at) for at in (0, 1, 2, 9, 2 + chip, 3 + chip, 4 + chip)] == [
        *(0, 1, 2, 2, 3, 4, 5)
    ]


def test_a_long_message_of_earlier_comes_back_with_its_first_line() -> None:
    pastes = Pastes()
    old = pastes.fold(f"Explain this:\n{BLOCK}")
    assert shown(pastes, old) == "Explain this: [40 lines more]"
    assert pastes.expand(old) == f"Explain this:\n{BLOCK}"


@settings(max_examples=50, deadline=None)
@given(st.text() | st.text(alphabet="a\n\U00100000", min_size=10, max_size=2_000))
def test_no_text_is_changed_on_its_way(text: str) -> None:
    pastes = Pastes()
    pastes.shorten(BLOCK)
    assert pastes.expand(pastes.shorten(text)) == text
    assert pastes.expand(pastes.fold(text)) == text
