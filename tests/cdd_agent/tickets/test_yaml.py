import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.tickets.yaml import Document, Edit, Item, QuotedSource, YamlNode, parse, quote


def document(source: str) -> Document:
    return parse(source, path="a.yaml")


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
        line=2, message="column 15: mapping values are not allowed here", hint='in quotes it is `other: "Given a: b"`'
    )


@pytest.mark.parametrize("item", ["`a`", "@a", "%a"])
def test_an_item_that_is_no_yaml_is_refused_with_its_quoted_form(item: str) -> None:
    problem = refused(f"other:\n  - b\n  - {item}\n")

    assert (problem.line, problem.hint) == (3, f'in quotes it is `- "{item}"`')


def test_a_key_that_is_there_twice_is_refused() -> None:
    assert refused("a: 1\nb:\n  c: 1\n  c: 2\n").message == "the key 'c' occurs twice, first in line 3"


def test_something_else_than_keys_and_values_is_refused() -> None:
    assert refused("- a\n").message == "it is not a list of keys and values"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: " + "x" * 70_000, "it has 70003 bytes; at most 65536 are read"),
        ("a: " + "[" * 60_000, "more than 50 levels"),
        ("a: &a b\nc: [*a]\n", "the alias *a is not allowed"),
        ("b:\n" + "- a\n" * 5_000, "more than 5000 values"),
        ("a: \0\n", "the character U+0000 is not allowed"),
        ('a: "\\U99999999"\n', "an escape in it is not valid"),
        ('a: "\\ud800"\n', "it contains a lone surrogate"),
        ('"\\ud800": a\n', "it contains a lone surrogate"),
    ],
)
def test_a_document_that_would_exhaust_the_reader_is_refused(source: str, message: str) -> None:
    assert message in refused(source).message


@given(st.text())
def test_quoted_text_reads_back_as_it_is(text: str) -> None:
    written = quote(text)

    assert text_of(f"a: {written}\n", "a") == text
    assert "\n" not in written


@given(st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x20)))
def test_quoted_text_of_plain_characters_is_json_too(text: str) -> None:
    assert json.loads(quote(text)) == text


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        ("title: a: b\n", 'title: "a: b"\n'),
        ("title: a \t\n", 'title: "a" \t\n'),
        ("out_of_scope:\n-\ntext: a\n", "out_of_scope:\n-\ntext: a\n"),
        ("out_of_scope:\n  - a\n- b\n", 'out_of_scope:\n  - "a"\n- b\n'),
        ("title:  # why\nid: a: b\n", "title:  # why\nid: a: b\n"),
        ("title:\n  a\n  # why\n", 'title:\n  "a"\n  # why\n'),
        ("other: a # b\n", "other: a # b\n"),
        ("out_of_scope:\n- a\n  b\n\n- # c\n", 'out_of_scope:\n- "a\n  b"\n\n- "# c"\n'),
        ("out_of_scope: # why\n  # why\n  - a\n", 'out_of_scope: # why\n  # why\n  - "a"\n'),
        ("out_of_scope: [a, b]\n", "out_of_scope: [a, b]\n"),
        ("out_of_scope:\n- text: a: b\n  id: c\n", 'out_of_scope:\n- text: "a: b"\n  id: c\n'),
        ("out_of_scope:\n-\n  id: c\n  text: a\n", 'out_of_scope:\n-\n  id: c\n  text: "a"\n'),
        ("out_of_scope:\n- {id: c, text: a}\n", "out_of_scope:\n- {id: c, text: a}\n"),
        ("out_of_scope:\n- {a}\n", 'out_of_scope:\n- "{a}"\n'),
        ("out_of_scope:\n- |\n  a\n- >- # b\n  c\n", "out_of_scope:\n- |\n  a\n- >- # b\n  c\n"),
        ('out_of_scope:\n- "a" # b\n- "a" b\n', 'out_of_scope:\n- "a" # b\n- "\\"a\\" b"\n'),
        ('out_of_scope:\n- "a\n  # b"\n', 'out_of_scope:\n- "a\n  # b"\n'),
        ("out_of_scope:\n- !!python/name:os.system\n", "out_of_scope:\n- !!python/name:os.system\n"),
        ("out_of_scope:\n- a\\b\u2028c\n", 'out_of_scope:\n- "a\\\\b\\Lc"\n'),
        ("title: a\r\nout_of_scope:\r\n  - b\r\n", 'title: "a"\r\nout_of_scope:\r\n  - "b"\r\n'),
    ],
)
def test_sentences_are_quoted_and_nothing_else_is(body: str, quoted: str) -> None:
    assert QuotedSource(body).text == quoted


def test_offsets_lead_back_to_the_source() -> None:
    body = 'title: a "b"\nother: c\nout_of_scope:\n- d\n'
    source = QuotedSource(body)

    for word in ("title", "other", "c\n", "out_of_scope"):
        assert source.offset(source.text.index(word)) == body.index(word)
    assert source.offset(source.text.index('"d"')) == body.index("d\n")
    assert source.offset(source.text.index('"d"') + 3) == body.index("d\n") + 1


def test_a_byte_order_mark_takes_no_column() -> None:
    assert refused("\ufeffother: Given a: b\n").message.startswith("column 15: ")


def test_columns_count_from_one() -> None:
    source = QuotedSource("title: a\nother: c\n")

    assert source.column(source.text.index("c")) == 8


def with_text(source: str, key: str, text: str) -> str:
    parsed = document(source)
    return parsed.apply([parsed.edit_text(key, text=text)])


def items_of(node: YamlNode | None, texts: Sequence[str]) -> list[Item]:
    known = [item.text for item in node.items] if node else []
    return [Item(lines=(quote(text),), index=known.index(text) if text in known else None) for text in texts]


def with_list(source: str, key: str, *texts: str) -> str:
    parsed = document(source)
    return parsed.apply(parsed.edit_list(key, items=items_of(parsed.root.get(key), texts)))


def test_edits_are_made_in_the_line_ends_of_the_source() -> None:
    assert document("a:\r\nb:").apply([Edit(0, 1, "x\ny"), Edit(6, 6, "\n")]) == "x\r\ny:\r\nb:\r\n"


def test_edits_at_one_place_keep_their_order() -> None:
    assert document("a:").apply([Edit(1, 1, "b"), Edit(1, 1, "c")]) == "abc:"


def test_a_text_takes_the_place_of_the_one_before() -> None:
    assert with_text("a: 'x' # why\nb: y\n", "a", "z z") == 'a: "z z" # why\nb: y\n'


def test_an_empty_value_is_filled_beside_its_comment() -> None:
    assert with_text("a: # why\n", "a", "z z") == 'a: "z z" # why\n'
    assert with_text("a:\nb: y\n", "a", "z\nz") == "a: |\n  z\n  z\nb: y\n"


def test_a_block_keeps_the_comment_of_its_line() -> None:
    assert with_text("a: x # why\nb: y\n", "a", "z\n\nz") == "a: | # why\n  z\n\n  z\nb: y\n"


def test_a_text_in_brackets_stays_on_its_line() -> None:
    assert with_text("{a: x, b: y}\n", "a", "z\nz") == '{a: "z\\nz", b: y}\n'
    assert with_text("{a: x # why\n}\n", "a", "z\nz") == '{a: "z\\nz" # why\n}\n'


def test_a_missing_key_is_added_at_the_end() -> None:
    assert with_text("b: y", "a", "z z") == 'b: y\na: "z z"\n'


def test_items_are_added_in_the_indentation_of_the_list() -> None:
    assert with_list("a:\n- x # why\nb: y\n", "a", "x", "z") == 'a:\n- x # why\n- "z"\nb: y\n'
    assert with_list("a:\n    - x", "a", "x", "z") == 'a:\n    - x\n    - "z"\n'


def test_a_removed_item_takes_its_line_and_leaves_the_comments_round_it() -> None:
    assert with_list("a:\n  # one\n  - x # why\n  # two\n  - y\n", "a", "y") == "a:\n  # one\n  # two\n  - y\n"


def test_a_list_without_items_is_written_in_brackets() -> None:
    assert with_list("a: # why\n  - x\nb: y\n", "a") == "a: [] # why\nb: y\n"


def test_a_list_in_brackets_is_written_with_dashes_when_it_changes() -> None:
    assert with_list("a: [x, y] # why\n", "a", "x") == 'a: # why\n  - "x"\n'
    assert with_list("a: [x, y] # why\n", "a", "x", "y") == "a: [x, y] # why\n"


def test_a_list_in_another_order_is_written_anew() -> None:
    assert with_list("a:\n- x\n- y\n", "a", "y", "x") == 'a:\n- "y"\n- "x"\n'


def test_an_item_below_its_dash_and_a_comment_is_removed_with_its_dash() -> None:
    assert with_list("a:\n  -\n    # well - known\n    x\n  - y\n", "a", "y") == "a:\n  - y\n"


def test_an_anchor_before_a_list_does_not_change_its_indentation() -> None:
    assert with_list("a: &all\n  - x\n", "a", "x", "z") == 'a: &all\n  - x\n  - "z"\n'


def test_a_space_before_the_colon_stays_when_the_list_is_emptied() -> None:
    assert with_list("a :\n  - x\n", "a") == "a : []\n"


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a:\n-   x # why\n", 'a:\n-   id: A\n    text: "x" # why\n'),
        ("a:\n  -\n    x\n", 'a:\n  -\n    id: A\n    text: "x"\n'),
        ("a:\n  -\n  - y\n", 'a:\n  - id: A\n    text: "x"\n  - y\n'),
    ],
)
def test_a_record_takes_the_column_of_the_text_that_it_replaces(source: str, changed: str) -> None:
    parsed = document(source)
    node = parsed.root.items[0].items[0]

    assert parsed.apply([parsed.edit_node(node, lines=["id: A", 'text: "x"'])]) == changed


@pytest.mark.parametrize("text", ["title: x\n\ttype: bug\n", "list:\n\t- a\n", "notes: |\n\ta\n"])
def test_a_tab_is_to_be_spaces(text: str) -> None:
    with pytest.raises(DocumentError, match="indent with spaces, not with a tab"):
        parse(text, path="spec.yaml")
