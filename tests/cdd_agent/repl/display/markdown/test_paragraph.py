"""A paragraph that grows."""

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from cdd_agent.repl.markdown import inline
from cdd_agent.repl.markdown import Paragraph
from cdd_agent.repl.markdown import Words

MARKS = st.sampled_from(
    [
        *("a", "bb ", " ", "*", "**", "_", "~~", "`", "``", "[", "](", "]", ")", "(", "\\", "&amp;", "!", "漢"),
        *("`x` ", "**b** ", "<http://a> ", "x "),
    ]
)
CONSOLE = Console()


def seen(rows: list[Text]) -> list[tuple[str, str]]:
    return [
        (character, str(row.get_style_at_offset(CONSOLE, at)))
        for row in rows
        for at, character in enumerate(row.plain)
        if character != " "
    ]


@given(text=st.lists(MARKS, min_size=1, max_size=30).map("".join).map(str.strip))
def test_given_out_bit_by_bit_it_is_read_as_a_whole(text: str) -> None:
    paragraph, words = Paragraph(7), Words()
    rows = [row for word in [*words.feed(text), *words.end()] for row in paragraph.write(word)] + paragraph.end()
    assert seen(rows) == seen([inline(text)[0]])


def test_its_first_line_is_held_back_while_it_fits_into_a_row() -> None:
    paragraph = Paragraph(12)
    assert paragraph.write("one ") == paragraph.write("two ") == []
    assert paragraph.held == "one two "
    assert [row.plain for row in paragraph.write("three four ")] == ["one two"]
    assert paragraph.held is None


def test_lines_of_html_stay_lines() -> None:
    paragraph = Paragraph(20)
    rows = paragraph.write("<ul>\n") + paragraph.next_line(held=False) + paragraph.write("<li>one\n") + paragraph.end()
    assert [row.plain for row in rows] == ["<ul>", "<li>one"]
