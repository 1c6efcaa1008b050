"""Markdown that arrives in pieces becomes rows that are final when they are returned."""

import io
import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from cdd_agent.repl.markdown import MarkdownStream
from cdd_agent.repl.rows import ASCII, UNICODE, read_inline
from cdd_agent.repl.screen import Screen
from cdd_agent.untrusted.text import clean
from tests.fakes.cases import soak_after
from tests.fakes.examples import fewer

DATA = Path(__file__).parent / "data"
RULE = "-" * 20
MARKS = st.sampled_from(
    [
        *("a", "bb ", "ccc", " ", "\n", "\n\n", "  \n", "\r\n", "\t", "    ", "\\", "&amp;", "漢", "字", "👩\u200d"),
        *("*", "**", "_", "~~", "`", "``", "[", "](", "]", ")", "(", "!", "<", "<b>", "`x`", "**b**", "http://x.y"),
        *("```", "~~~", "> ", "- ", "+ ", "1. ", "# ", "|", "| a |", "|-|-|", "---", "===", "[x] ", "\x1b[1m", "\x1b"),
    ]
)
TEXTS = st.lists(MARKS, max_size=50).map("".join)
SENTENCES = st.lists(st.sampled_from(["one", "two,", "three", "**four**", "`five`", "six."]), min_size=1, max_size=60)
NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u200d\u202e]")


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


def given_out(prose: MarkdownStream, pieces: list[str]) -> list[Text]:
    return [row for piece in pieces for row in prose.feed(piece)] + prose.end()


def seen(rows: list[Text]) -> list[tuple[str, list[tuple[int, int, str]]]]:
    return [(row.plain, [(span.start, span.end, str(span.style)) for span in row.spans]) for row in rows]


def formatted(text: str, *, width: int = 20) -> list[str]:
    return [row.plain for row in given_out(MarkdownStream(width, look=UNICODE), [text])]


def shown(text: str, *, width: int = 20) -> list[str]:
    stream = MarkdownStream(width, look=ASCII)
    return [row.plain for row in [*stream.feed(text), *stream.end()]]


# A stream.


@fewer()
@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12), width=st.sampled_from([12, 20, 40]))
def test_however_it_is_cut_a_text_becomes_the_same_rows(text: str, cuts: list[int], *, width: int) -> None:
    whole = seen(given_out(MarkdownStream(width, look=UNICODE), [text]))
    assert seen(given_out(MarkdownStream(width, look=UNICODE), pieces_of(text, cuts))) == whole
    assert seen(given_out(MarkdownStream(width, look=UNICODE), list(text))) == whole


@given(text=TEXTS)
def test_a_row_is_nothing_but_text(text: str) -> None:
    # A joiner between two emoji is part of one character.
    assert not NOT_TEXT.findall(re.sub("(?<=👩)\u200d(?=👩)", "", "".join(formatted(text))))


@fewer()
@given(words=SENTENCES, indent=st.sampled_from(["", "> ", "- ", "1. ", "- > "]))
def test_no_row_of_text_is_wider_than_the_screen(words: list[str], indent: str) -> None:
    assert all(cell_len(row) <= 20 for row in formatted(indent + " ".join(words)))


@fewer()
@given(text=TEXTS)
def test_every_word_that_can_be_seen_is_there(text: str) -> None:
    """On a screen so wide that no word is folded; of what follows a fence only the name of a language is shown."""
    shown = " ".join(formatted(text.replace("```", "").replace("~~", ""), width=5_000))
    for word in ("bb", "ccc", "http", "字"):
        assert shown.count(word) >= clean(text).count(word), word


def test_a_row_is_given_out_when_the_next_one_begins() -> None:
    prose = MarkdownStream(20, look=UNICODE)
    assert [row.plain for row in prose.feed("one two three four five six")] == ["one two three four"]
    assert prose.tail == "five six"
    assert [row.plain for row in prose.end()] == ["five six"]
    assert prose.tail == ""


def test_a_mark_that_is_still_open_holds_its_row_back() -> None:
    prose = MarkdownStream(20, look=UNICODE)
    assert prose.feed("a **bold word that is longer than a row") == []
    assert prose.tail == "…longer than a row"
    assert [row.plain for row in prose.feed("** b\n\n")] == ["a bold word that is", "longer than a row b"]


def test_a_mark_that_stays_open_for_a_screenful_is_text() -> None:
    prose = MarkdownStream(80, look=UNICODE)
    rows = prose.feed("an *open " + "word " * 600)
    assert len(rows) > 20
    assert rows[0].plain.startswith("an *open word")


def test_a_paragraph_without_an_end_is_given_out_while_it_comes() -> None:
    prose = MarkdownStream(80, look=UNICODE)
    given = [len(prose.feed("word " * 16)) for _ in range(50)]
    assert sum(given) >= 48
    assert max(given) <= 2


@pytest.mark.parametrize("text", ["x" * 5_000, "漢" * 5_000, "漢字 and " * 600])
def test_text_without_blanks_is_given_out_too(text: str) -> None:
    prose = MarkdownStream(80, look=UNICODE)
    assert len(prose.feed(text)) >= len(text) // 80 - 15
    assert all(row.cell_len <= 80 for row in prose.end())


@pytest.mark.parametrize("width", [-3, 0, 1, 9])
def test_a_screen_too_narrow_for_anything_shows_ten_columns(width: int) -> None:
    text = "> - one two three\n\n| a | b |\n|---|---|\n| c | d |\n\n```py\nx\n```\n"
    assert formatted(text, width=width) == formatted(text, width=10)


def test_blank_lines_neither_begin_nor_end_a_text() -> None:
    assert formatted("\n\none\n\n\ntwo\n\n") == ["one", "", "two"]


def test_escape_sequences_are_dropped_wherever_they_are_cut() -> None:
    text = "\x1b[2Jred\x1b]0;a title\x07 \x1b]8;;http://x y\x1b\\link"
    assert formatted(text) == ["red link"]
    assert [row.plain for row in given_out(MarkdownStream(20, look=UNICODE), list(text))] == ["red link"]


WORDS = st.sampled_from(
    [" ", " ", " ", "  ", " | ", "**", " `", "` ", " *", "_", "[", "](", "<b>", "  \n", "\\\n", "\n"]
)
STARTS = st.sampled_from(
    [
        *(
            "",
            "",
            "",
            "> ",
            "- ",
            "  - ",
            "1. ",
            "2) ",
            "   ",
            "    ",
            "> > ",
            "> - ",
            "- > ",
            "# ",
            "| ",
            "- [ ] ",
            "\t",
        ),
        *("```\n", "~~~\n", "  ```\n", "- ```\n", "> ```\n", "\n", "---\n", "===\n", "|---|---|\n", "  |---|---|\n"),
        *("-\n", "1.\n", ">\n", "- - ", "10. ", "        "),
    ]
)
LINES = st.lists(
    st.tuples(STARTS, st.lists(WORDS, min_size=1, max_size=6), st.sampled_from(["\n", "\n\n"])), max_size=25
)


@fewer()
@given(lines=LINES, width=st.sampled_from([100, 5_000]))
def test_each_word_is_printed_once_and_in_order(lines: list[tuple[str, list[str], str]], width: int) -> None:
    numbers = itertools.count()
    text = "".join(
        start + "".join(f"w{next(numbers)}x{between}" for between in words) + end for start, words, end in lines
    )
    rows = formatted(text, width=width)
    found = re.findall(r"w\d+x", " ".join(rows))
    written = re.findall(r"w\d+x", text)
    assert found == written if width == 5_000 else sorted(found) == sorted(written)


# A paragraph.


INLINE = st.sampled_from(
    [
        *("a", "bb ", " ", "*", "**", "_", "~~", "`", "``", "[", "](", "]", ")", "(", "\\", "&amp;", "!", "漢"),
        *("`x` ", "**b** ", "<http://a> ", "x "),
    ]
)
CONSOLE = Console()


def characters(rows: list[Text]) -> list[tuple[str, str]]:
    return [
        (character, str(row.get_style_at_offset(CONSOLE, at)))
        for row in rows
        for at, character in enumerate(row.plain)
        if character != " "
    ]


@fewer()
@given(text=st.lists(INLINE, min_size=1, max_size=30).map("".join).map(str.strip))
def test_given_out_bit_by_bit_it_is_read_as_a_whole(text: str) -> None:
    stream = MarkdownStream(10, look=UNICODE)
    rows = [row for character in f"x {text}" for row in stream.feed(character)] + stream.end()
    assert characters(rows) == characters([read_inline(f"x {text}")[0]])


def test_lines_of_html_stay_lines() -> None:
    assert shown("<ul>\n<li>one\n") == ["<ul>", "<li>one"]


# What a stream costs.


REPLY = (DATA / "reply.md").read_text(encoding="utf-8")
"""A reply with all that Markdown has."""

PIECE = 20
WIDTH = 100


class Terminal(io.StringIO):
    """Keeps what is shown."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU for one reply."""

    characters: int
    ours_s: float
    naive_s: float
    """Of all pieces, of which ``measured`` may have drawn some only."""

    @property
    def ratio(self) -> float:
        """How much of the naive way's cost ours is."""
        return self.ours_s / self.naive_s


def reply(characters: int) -> str:
    """So much of a long reply."""
    return (REPLY * (characters // len(REPLY) + 1))[:characters]


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """The text as a model sends it."""
    return (text[at : at + size] for at in range(0, len(text), size))


def ours(text: str, *, size: int = PIECE) -> float:
    """Seconds of CPU for showing ``text`` on a screen, the row that grows included."""
    screen = Screen(Terminal(), color=True)
    screen.console.width = WIDTH
    started = time.process_time()
    with screen.working("waiting"):
        for piece in pieces(text, size):
            screen.stream(piece)
        screen.end_prose()
    return time.process_time() - started


def naive(text: str, *, every: int = 1) -> float:
    """Seconds of CPU for drawing all that has come with each piece; ``every`` 10: estimated from each tenth drawing."""
    console = Console(file=Terminal(), force_terminal=True, width=WIDTH, height=50, color_system="truecolor")
    drawn = 0.0
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for number, end in enumerate(range(PIECE, len(text) + PIECE, PIECE)):
            if number % every == every // 2:
                started = time.process_time()
                live.update(Markdown(text[:end]), refresh=True)
                drawn += time.process_time() - started
    return drawn * every


def measured(characters: int, *, every: int = 1) -> Cost:
    """What both cost in this process, each having shown something before."""
    ours(REPLY), naive(REPLY[:PIECE])
    text = reply(characters)
    return Cost(characters=characters, ours_s=ours(text), naive_s=naive(text, every=every))


UNITS = [
    *("a b ", "x", "漢", "*a ", "**a b** ", "[", "![", "[a](", "`a ", "_a ", "\\\n", "&amp; ", "> a\n", "- a\n"),
    *("| a ", "| a |\n", "| a |\n|---|\n", "```py\nx = '''\n", "  - a\n\n", "# a\n", "a\n=\n", " ", "\n"),
    *("\x1b[", "- - "),
]


@pytest.mark.slow
def test_eight_thousand_characters_cost_a_tenth_of_drawing_all_anew_at_most() -> None:
    """Of the naive way each tenth drawing is made; ten times that is what all of them take."""
    assert measured(8_000, every=10).ratio <= 1 / 10


@pytest.mark.slow
def test_eight_thousand_characters_cost_a_tenth_of_drawing_all_anew_with_each_piece() -> None:
    assert measured(8_000).ratio <= 1 / 10


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 20])
def test_a_reply_that_is_longer_costs_more_only_in_line_with_its_length(size: int) -> None:
    short, long = (min(ours(reply(length), size=size) for _ in range(3)) for length in (8_000, 20_000))
    assert long < 5 * short


@soak_after(3, "unit", UNITS)
@pytest.mark.parametrize(
    ("length", "limit_s"), [(8_000, 2.5), pytest.param(24_000, 8.0, marks=pytest.mark.slow)], ids=["long", "longest"]
)
def test_no_text_takes_time_with_the_square_of_its_length(unit: str, *, length: int, limit_s: float) -> None:
    """Far more text than a reply has, all of it hard to read, within seconds."""
    prose = MarkdownStream(80, look=UNICODE)
    started = time.process_time()
    for piece in pieces(unit * (length // len(unit)), size=7):
        prose.feed(piece)
        assert len(prose.tail) <= 90
    prose.end()
    assert time.process_time() - started < limit_s


# Blocks.


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("name", ["ascii", "unicode"])
@soak_after(1, "size", [1, 20, len(REPLY)])
def test_a_long_reply_looks_like_this(width: int, name: str, *, size: int) -> None:
    prose = MarkdownStream(width, look={"ascii": ASCII, "unicode": UNICODE}[name])
    rows = [row for piece in pieces(REPLY, size) for row in prose.feed(piece)] + prose.end()
    shown = "".join(f"{row.plain.rstrip()}\n" for row in rows)
    assert shown == (DATA / f"reply-{width}-{name}.txt").read_text(encoding="utf-8")


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
        ("[a]: http://x.y\n\n[a]\n", ["[a]: http://x.y", "", "[a]"]),
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
        *("bold underline", "", "bold", "", "bold italic", "", "italic", "", "")
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
        ("> - one **bo", "> - one bo"),
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


# Tables.


def table_rows(text: str, *, width: int = 40) -> list[str]:
    return shown(text, width=width)


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table_rows("| a | number |\n|---|--:|\n| 漢字 | **1** |\n| `x` | 22 |\n") == [
        *("a    | number", "-----+-------", "漢字 |      1", "x    |     22")
    ]


def test_a_table_too_wide_is_fitted_to_the_screen() -> None:
    text = "| name | what it is |\n|:--|:--|\n| a | a cell with more words than there is room for |\n| b | c |\n"
    rows = table_rows(text, width=30)
    assert rows == [
        "name | what it is",
        "-----+------------------------",
        "a    | a cell with more words",
        "     | than there is room for",
        "-----+------------------------",
        "b    | c",
    ]
    assert all(cell_len(row) <= 30 for row in rows)


def test_where_columns_have_no_room_each_cell_has_a_line() -> None:
    names = [f"column{number}" for number in range(8)]
    text = f"| {' | '.join(names)} |\n|{'---|' * 8}\n| {' | '.join('some value' for _ in names)} |\n"
    assert table_rows(text, width=30) == ["-" * 20, *(f"{name}: some value" for name in names)]
    assert table_rows("".join(text.splitlines(keepends=True)[:2]), width=30)[0].startswith("column0, column1")


def test_no_cell_is_lost() -> None:
    assert table_rows("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n| 4 |\n") == ["a | b", "--+------", "1 | 2 | 3", "4 |"]


def test_a_break_in_a_cell_is_a_new_line() -> None:
    assert table_rows("| a | b |\n|---|---|\n| 1<br>2 | 3 |\n") == ["a | b", "--+--", "1 | 3", "2 |"]


@pytest.mark.parametrize(
    "text", ["| no | table |\n", "a | b\nc | d\n", "| a | b |\n\n|---|---|\n", "| a | b |\n|---|\n", "|\n"]
)
def test_lines_with_pipes_that_are_no_table_are_text(text: str) -> None:
    assert " ".join(" ".join(table_rows(text)).split()) == " ".join(text.split())


def test_a_table_may_follow_a_line_of_text_and_goes_on_to_a_blank_line() -> None:
    assert table_rows("See:\n| a |\n|---|\n| b |\nand so on\n") == ["See:", "a", "---------", "b", "and so on"]


def test_a_table_is_held_back_and_it_is_said_how_long_it_is() -> None:
    prose = MarkdownStream(40, look=UNICODE)
    assert prose.feed("| a | b |\n|---|---|\n| 1 | 2 |\n| 3") == []
    assert prose.tail == "table, 1 row"
    assert prose.feed(" | 4 |\n| 5 |") == []
    assert prose.tail == "table, 2 rows"
    assert len(prose.feed(" 6 |\n\n")) == 5
