"""Entries of a ledger: how they are read and what they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True)
class Entry:
    """One expense."""

    day: date
    text: str
    amount: Decimal


def parse_line(line: str) -> Entry:
    """Read `2026-03-01;Coffee;3.20`."""
    day, text, amount = line.strip().split(";")
    return Entry(date.fromisoformat(day), text, Decimal(amount))


def read(lines: Iterable[str]) -> list[Entry]:
    """Read every line that is not blank."""
    return [parse_line(line) for line in lines if line.strip()]


def total(entries: Iterable[Entry]) -> Decimal:
    """Add up the amounts."""
    return sum((entry.amount for entry in entries), Decimal("0.00"))
