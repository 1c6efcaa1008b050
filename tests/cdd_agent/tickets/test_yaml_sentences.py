import pytest

from cdd_agent.tickets.yaml_sentences import Layout, QuotedSource

LAYOUT = Layout(texts=frozenset({"title"}), lists=frozenset({"criteria"}), fields=("id", "text"), sentence="text")


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        ("title: a: b\n", 'title: "a: b"\n'),
        ("title:  # why\nid: a: b\n", "title:  # why\nid: a: b\n"),
        ("title:\n  a\n  # why\n", 'title:\n  "a"\n  # why\n'),
        ("other: a # b\n", "other: a # b\n"),
        ("criteria:\n- a\n  b\n\n- # c\n", 'criteria:\n- "a\n  b"\n\n- "# c"\n'),
        ("criteria: # why\n  # why\n  - a\n", 'criteria: # why\n  # why\n  - "a"\n'),
        ("criteria: [a, b]\n", "criteria: [a, b]\n"),
        ("criteria:\n- text: a: b\n  id: c\n", 'criteria:\n- text: "a: b"\n  id: c\n'),
        ("criteria:\n-\n  id: c\n  text: a\n", 'criteria:\n-\n  id: c\n  text: "a"\n'),
        ("criteria:\n- {id: c, text: a}\n", "criteria:\n- {id: c, text: a}\n"),
        ("criteria:\n- {a}\n", 'criteria:\n- "{a}"\n'),
        ("criteria:\n- |\n  a\n- >- # b\n  c\n", "criteria:\n- |\n  a\n- >- # b\n  c\n"),
        ('criteria:\n- "a" # b\n- "a" b\n', 'criteria:\n- "a" # b\n- "\\"a\\" b"\n'),
        ('criteria:\n- "a\n  # b"\n', 'criteria:\n- "a\n  # b"\n'),
        ("criteria:\n- !!python/name:os.system\n", "criteria:\n- !!python/name:os.system\n"),
        ("criteria:\n- a\\b\u2028c\n", 'criteria:\n- "a\\\\b\\Lc"\n'),
        ("title: a\r\ncriteria:\r\n  - b\r\n", 'title: "a"\r\ncriteria:\r\n  - "b"\r\n'),
    ],
)
def test_sentences_are_quoted_and_nothing_else_is(body: str, quoted: str) -> None:
    assert QuotedSource(body, LAYOUT).text == quoted


def test_offsets_lead_back_to_the_source() -> None:
    body = 'title: a "b"\nother: c\ncriteria:\n- d\n'
    source = QuotedSource(body, LAYOUT)

    for word in ("title", "other", "c\n", "criteria"):
        assert source.offset(source.text.index(word)) == body.index(word)
    assert source.offset(source.text.index('"d"')) == body.index("d\n")
    assert source.offset(source.text.index('"d"') + 3) == body.index("d\n") + 1


def test_columns_count_from_one() -> None:
    source = QuotedSource("title: a\nother: c\n", LAYOUT)

    assert source.column(source.text.index("c")) == 8
