"""Tables."""

import pytest
from rich.cells import cell_len

from cdd_agent.repl.rows import ASCII, UNICODE
from cdd_agent.repl.markdown import MarkdownStream


def shown(text: str, *, width: int = 40) -> list[str]:
    prose = MarkdownStream(width, look=ASCII)
    return [row.plain for row in [*prose.feed(text), *prose.end()]]


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert shown("| a | number |\n|---|--:|\n| 漢字 | **1** |\n| `x` | 22 |\n") == [
        *("a    | number", "-----+-------", "漢字 |      1", "x    |     22"),
    ]


def test_a_table_too_wide_is_fitted_to_the_screen() -> None:
    text = "| name | what it is |\n|:--|:--|\n| a | a cell with more words than there is room for |\n| b | c |\n"
    rows = shown(text, width=30)
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
    assert shown(text, width=30) == ["-" * 20, *(f"{name}: some value" for name in names)]
    assert shown("".join(text.splitlines(keepends=True)[:2]), width=30)[0].startswith("column0, column1")


def test_no_cell_is_lost() -> None:
    assert shown("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n| 4 |\n") == ["a | b", "--+------", "1 | 2 | 3", "4 |"]


def test_a_break_in_a_cell_is_a_new_line() -> None:
    assert shown("| a | b |\n|---|---|\n| 1<br>2 | 3 |\n") == ["a | b", "--+--", "1 | 3", "2 |"]


@pytest.mark.parametrize(
    "text", ["| no | table |\n", "a | b\nc | d\n", "| a | b |\n\n|---|---|\n", "| a | b |\n|---|\n", "|\n"]
)
def test_lines_with_pipes_that_are_no_table_are_text(text: str) -> None:
    assert " ".join(" ".join(shown(text)).split()) == " ".join(text.split())


def test_a_table_may_follow_a_line_of_text_and_ends_before_one() -> None:
    assert shown("See:\n| a |\n|---|\n| b |\nand so on\n") == ["See:", "a", "-", "b", "and so on"]


def test_a_table_is_held_back_and_it_is_said_how_long_it_is() -> None:
    prose = MarkdownStream(40, look=UNICODE)
    assert prose.feed("| a | b |\n|---|---|\n| 1 | 2 |\n| 3") == []
    assert prose.tail == "table, 1 row"
    assert prose.feed(" | 4 |\n| 5 |") == []
    assert prose.tail == "table, 2 rows"
    assert len(prose.feed(" 6 |\n\n")) == 5
