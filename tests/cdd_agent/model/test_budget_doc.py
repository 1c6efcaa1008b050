"""What ``docs/reference/budget.md`` says of prices, limits and counts is what there is."""

import re
from dataclasses import fields
from datetime import date
from pathlib import Path

from cdd_agent.config.settings import Settings
from cdd_agent.errors import ExitCode
from cdd_agent.model.budget import BYTES_PER_TOKEN, load_prices

DOC = (Path(__file__).parents[3] / "docs/reference/budget.md").read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    """The table of prices, without its heading."""
    table = re.findall(r"^\| (claude-.*) \|$", DOC, re.MULTILINE)
    return [row.split(" | ") for row in table]


def test_the_table_of_prices_is_the_file() -> None:
    told = [(name.partition(",")[0], *(float(cell.replace(",", "")) for cell in cells)) for name, *cells in rows()]
    assert told == [
        (name, family.context_window, family.max_output, *(tier.input, tier.output, tier.cache_read, tier.cache_write))
        for name, family in load_prices().models.items()
        for tier in family.tiers
    ]


def test_the_page_says_of_which_day_the_prices_are() -> None:
    day = date.fromisoformat(load_prices().date)
    assert f"as of {day.day} {day:%B %Y}:" in DOC


def test_the_page_names_every_limit_and_no_other() -> None:
    limits = {field.name for field in fields(Settings) if field.name.endswith(("_per_step", "_per_ticket"))}
    assert set(re.findall(r"`(max_\w+_per_\w+)`", DOC)) == limits


def test_the_page_says_how_a_run_ends_and_how_a_request_is_measured() -> None:
    assert f"ends with exit code {ExitCode.BUDGET}." in DOC
    assert BYTES_PER_TOKEN == 3
    assert "at one token for every three bytes" in DOC
