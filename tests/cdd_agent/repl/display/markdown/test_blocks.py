"""Which block a line belongs to."""

import pytest

from cdd_agent.repl.rows import ASCII
from cdd_agent.repl.markdown import MarkdownStream

RULE = "-" * 20


def shown(text: str, *, width: int = 20) -> list[str]:
    prose = MarkdownStream(width, look=ASCII)
    return [row.plain for row in [*prose.feed(text), *prose.end()]]


def styles(text: str) -> list[str]:
    prose = MarkdownStream(40, look=ASCII)
    return [" ".join(sorted({str(span.style) for span in row.spans})) for row in [*prose.feed(text), *prose.end()]]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one\ntwo\n\nthree", ["one two", "", "three"]),
        ("# One #\n## Two\n####### seven", ["One", "Two", "####### seven"]),
        ("#hashtag\n# c#\n#\n", ["#hashtag", "c#"]),
        ("One\n===\nTwo\n---\n", ["One", "Two"]),
        ("one\ntwo\n---\n", ["one two", RULE]),
        ("---\n* * *\n___\n--x\n", [RULE, RULE, RULE, "--x"]),
        ("one\n# Two\n- three\n> four\n```\nx\n```\n", ["one", "Two", "- three", "| four", RULE, "x", RULE]),
        ("    code\n      more\n\ntext\n", ["code", "  more", "", "text"]),
        ("text\n    no code\n", ["text no code"]),
        ("<div>\n<p>x</p>\n</div>\n", ["<div>", "<p>x</p>", "</div>"]),
    ],
)
def test_lines_are_blocks(text: str, rows: list[str]) -> None:
    assert shown(text) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("- one\n- two\n\n- three\n", ["- one", "- two", "", "- three"]),
        ("- one\n  - two\n    - three\n- four\n", ["- one", "  * two", "    - three", "- four"]),
        ("1. one\n  - two spaces\n   - three\n", ["1. one", "   * two spaces", "   * three"]),
        ("1. one\n1. two\n1. three\n", ["1. one", "2. two", "3. three"]),
        ("3. three\n7. seven\n\ntext\n\n8. eight\n", ["3. three", "7. seven", "", "text", "", "8. eight"]),
        ("9) nine\n10) ten\n", ["9) nine", "10) ten"]),
        ("- one two three four five\n  six\n", ["- one two three four", "  five six"]),
        ("10. one two three four\n", ["10. one two three", "    four"]),
        ("- one\n\n  two\n\nthree\n", ["- one", "", "  two", "", "three"]),
        ("- one\nlazy\n", ["- one lazy"]),
        ("- [ ] one\n- [x] two\n- [X]\n1. [ ] three\n", ["[ ] one", "[x] two", "- [X]", "1. [ ] three"]),
        ("-\n- a\n-\n", ["-", "- a", "-"]),
        ("- - a\n", ["- * a"]),
        ("- # Head\n- ***\n", ["- Head", "- " + "-" * 18]),
        ("-5 degrees\n1.5 kilos\n*a* b\n", ["-5 degrees 1.5 kilos", "a b"]),
        ("in\n2020. Then\n", ["in 2020. Then"]),
        ("- a\n  ```\n  x\n    y\n  ```\n  b\n", ["- a", "  " + "-" * 18, "  x", "    y", "  " + "-" * 18, "  b"]),
    ],
)
def test_lists(text: str, rows: list[str]) -> None:
    assert shown(text) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("> one\n> two\n>\n> three\n", ["| one two", "|", "| three"]),
        ("> one\nlazy\n\nout\n", ["| one lazy", "", "out"]),
        ("> > one\n> two\n", ["| | one two"]),
        ("> - one two three four five\n", ["| - one two three", "|   four five"]),
        ("> ```\n> x\ny\n", ["| " + "-" * 18, "| x", "| " + "-" * 18, "y"]),
    ],
)
def test_quotations(text: str, rows: list[str]) -> None:
    assert shown(text) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("```python\n**x** = `y`\n```\n**z**", ["-- python ----------", "**x** = `y`", RULE, "z"]),
        ("````\n```\nx\n```\n````\ny", [RULE, "```", "x", "```", RULE, "y"]),
        ("~~~\n```\n~~~\n", [RULE, "```", RULE]),
        ("```\n~~~\n", [RULE, "~~~", RULE]),
        ("```\n\n  x\n\n```\n", [RULE, "", "  x", "", RULE]),
        ("``` not `a` fence\n", ["not a fence"]),
        ("```\nnever closed", [RULE, "never closed", RULE]),
        ("  ```\n   x\n  ```\n", [RULE, " x", RULE]),
        ("```\n- [x] # a | b\n|-|\n```\n", [RULE, "- [x] # a | b", "|-|", RULE]),
    ],
)
def test_code(text: str, rows: list[str]) -> None:
    assert shown(text) == [row.replace("not a fence", "``` not a fence") for row in rows]


def test_code_is_never_wrapped() -> None:
    line = "x = " + " + ".join(["word"] * 30)
    assert shown(f"```\n{line}\n```\n")[1] == line


def test_a_line_of_code_is_given_out_when_it_is_complete() -> None:
    prose = MarkdownStream(40, look=ASCII)
    assert [row.plain for row in prose.feed("```python\nx = 1\ny =")] == ["-- python " + "-" * 30, "x = 1"]
    assert prose.tail == "y ="


def test_levels_of_headings_differ() -> None:
    assert styles("# a\n\n## b\n\n### c\n\n#### d\n\ne\n") == [
        *("bold underline", "", "bold", "", "bold italic", "", "italic", "", ""),
    ]


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", "> - "])
def test_however_deep_it_is_nested_there_is_room_for_text(mark: str) -> None:
    rows = shown(mark * 50 + "one two three four\n" + mark * 10 + "five\n")
    assert max(map(len, rows)) <= 20
    assert [word for word in ("one", "four", "five") if word not in " ".join(rows)] == []


@pytest.mark.parametrize(
    ("begun", "tail"),
    [
        ("one two", "one two"),
        ("- one", "- one"),
        ("> - one **bo", "| - one bo"),
        ("- one\n- tw", "- tw"),
        ("## Hea", "## Hea"),
        ("| a | b", "| a | b"),
        ("one\n\n", ""),
    ],
)
def test_what_has_come_of_the_next_row_is_known(begun: str, tail: str) -> None:
    prose = MarkdownStream(20, look=ASCII)
    prose.feed(begun)
    assert prose.tail == tail
