import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.tickets.yaml_sentences import Layout
from cdd_agent.tickets.yaml_text import Document, quoted, read

LAYOUT = Layout(texts=frozenset({"title"}), lists=frozenset({"criteria"}))


def document(source: str) -> Document:
    return read(source, path="a.yaml", layout=LAYOUT)


def refused(source: str) -> Problem:
    with pytest.raises(DocumentError) as error:
        document(source)
    return error.value.problems[0]


def text_of(source: str, key: str) -> str:
    node = document(source).root.get(key)
    assert node is not None
    return node.text


@pytest.mark.parametrize("value", ["no", "1.10", "12:30:45", "2026-01-31", "~", "0x1f", ".inf", "<<"])
def test_a_value_stays_the_text_it_is(value: str) -> None:
    assert text_of(f"a: {value}\n", "a") == value


def test_every_value_knows_its_place() -> None:
    source = "\ufefftitle: a: b  \r\nlist:\r\n  - c # why\r\n  - {d: e}\r\nblock: |\r\n  f\r\n\r\nlast: 'g'\r\n"
    root = document(source).root

    pairs = zip(root.keys, root.items, strict=True)
    found = {key.text: (item.line, source[item.start : item.end]) for key, item in pairs}

    assert found == {
        "title": (1, "a: b"),
        "list": (3, "- c # why\r\n  - {d: e}"),
        "block": (5, "|\r\n  f"),
        "last": (8, "'g'"),
    }


def test_a_tag_makes_no_object() -> None:
    assert "is not allowed" in refused("a: !!python/object/apply:os.system ['false']\n").message


def test_a_line_that_is_no_yaml_is_refused_with_its_quoted_form() -> None:
    assert refused("title: fine\nother: Given a: b\n") == Problem(
        line=2,
        message="column 15: mapping values are not allowed here",
        hint='quoted it would be `other: "Given a: b"`',
    )


@pytest.mark.parametrize("item", ["`a`", "@a", "%a"])
def test_an_item_that_is_no_yaml_is_refused_with_its_quoted_form(item: str) -> None:
    problem = refused(f"other:\n  - b\n  - {item}\n")

    assert (problem.line, problem.hint) == (3, f'quoted it would be `- "{item}"`')


def test_a_key_that_is_there_twice_is_refused() -> None:
    assert refused("a: 1\nb:\n  c: 1\n  c: 2\n").message == "the key 'c' is there twice, first in line 3"


def test_something_else_than_keys_and_values_is_refused() -> None:
    assert refused("- a\n").message == "it is not a list of keys and values"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: " + "x" * 70_000, "it has 70003 bytes; at most 65536 are read"),
        ("a: " + "[" * 60_000, "more than 50 levels or 100 aliases"),
        ("a: &a b\nc: [" + "*a, " * 101 + "]\n", "more than 50 levels or 100 aliases"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)),
            "its aliases expand without end",
        ),
        ("b:\n" + "- a\n" * 5_000, "more than 5000 values"),
        ("a: &a [*a]\n", "its aliases expand without end"),
        ("a: \0\n", "the character U+0000 is not allowed"),
        ('a: "\\U99999999"\n', "an escape in it cannot be read"),
        ('a: "\\ud800"\n', "half a character is written as an escape"),
        ('"\\ud800": a\n', "half a character is written as an escape"),
    ],
)
def test_a_document_that_would_exhaust_the_reader_is_refused(source: str, message: str) -> None:
    assert message in refused(source).message


@given(st.text())
def test_quoted_text_reads_back_as_it_is(text: str) -> None:
    written = quoted(text)

    assert text_of(f"a: {written}\n", "a") == text
    assert "\n" not in written


@given(st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x20)))
def test_quoted_text_of_plain_characters_is_json_too(text: str) -> None:
    assert json.loads(quoted(text)) == text
