from datetime import date
from decimal import Decimal

import pytest

from ledger.entries import Entry, parse_line, read, total


def test_a_line_is_an_entry():
    assert parse_line("2026-03-01;Coffee;3.20\n") == Entry(date(2026, 3, 1), "Coffee", Decimal("3.20"))


def test_blank_lines_are_passed_over():
    assert len(read(["2026-03-01;Coffee;3.20", "", "2026-03-02;Bread;4.10"])) == 2


@pytest.mark.parametrize("line", ["", "2026-03-01;Coffee", "yesterday;Coffee;3.20"])
def test_a_damaged_line_is_an_error(line):
    with pytest.raises(ValueError):
        parse_line(line)


def test_the_total_of_nothing_is_zero():
    assert total([]) == Decimal("0.00")
