"""Text for a file or another program stays as the model wrote it."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cdd_agent.repl.screen import PlainStream
from tests.fakes.examples import fewer

TEXTS = st.lists(
    st.sampled_from(
        ["a", "bb ", " ", "\n", "\n\n", "  \n", "\r\n", "\t", "漢", "👩\u200d", "**", "> ", "\x1b[1m", "\x1b"]
    ),
    max_size=50,
).map("".join)


def written(pieces: list[str]) -> list[str]:
    text = PlainStream()
    rows: list[Text] = [row for piece in pieces for row in text.feed(piece)] + text.end()
    return [row.plain for row in rows]


@fewer()
@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_however_it_is_cut_a_text_is_written_the_same(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(text)]
    assert written([text[start:end] for start, end in itertools.pairwise(places)]) == written([text])


def test_off_a_terminal_a_text_stays_as_it_was_written() -> None:
    text = "\n# Why\n\n\n- **bold** and `code`, much longer than a row\n\n```\n\x1b[1mx = 1\n```\n\n"
    assert written([text]) == [
        *("# Why", "", "", "- **bold** and `code`, much longer than a row", "", "```", "x = 1", "```")
    ]
