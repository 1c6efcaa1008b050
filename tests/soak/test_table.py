import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.figures import Figures
from tests.soak.table import PARTS, Part, Row, carried_out, printed

PART = Part(what="plans", place="tests.fuzz.parsers.notes:run", count=1000, promise="a crash", p99_limit_s=0.005)


def row(figures: Figures) -> Row:
    return Row(part=PART, asked=1000, figures=figures, took_s=2.0)


def test_a_bar_is_kept_by_nothing_bad_in_as_many_tries_as_asked_and_in_time() -> None:
    assert row(Figures(tried=1000)).verdict == "kept"
    assert row(Figures(tried=1000, bad=1)).verdict == "MISSED"
    assert row(Figures(tried=999)).verdict == "MISSED"
    assert row(Figures(tried=1000, p99_s=0.006)).verdict == "MISSED"
    assert row(Figures(tried=0, cannot="strace is not installed")).verdict == "not run"


def test_the_table_shows_why_a_part_was_not_run_and_the_first_bad_input() -> None:
    table = printed(
        [row(Figures(tried=0, cannot="strace is not installed")), row(Figures(tried=9, bad=2, example="seed 1"))]
    )

    assert "strace is not installed" in table
    assert table.endswith("\nplans: seed 1")


def test_a_part_that_is_not_there_is_named() -> None:
    part = Part(what="x", place="tests.fuzz.nothing:run", count=10, promise="")
    done = carried_out(part, quick=True, seed=1, tell=print)

    assert done.verdict == "not run"
    assert "tests.fuzz.nothing" in done.found


def test_a_process_that_dies_without_a_word_is_a_missed_bar() -> None:
    part = Part(what="x", place="os:_exit", count=10, promise="", arguments="limit", is_split=False)
    done = carried_out(part, quick=True, seed=1, tell=print)

    assert (done.verdict, done.figures.example) == ("MISSED", "a process died without a word; seed 1")


def test_every_part_has_a_place_of_its_own() -> None:
    assert len({part.place for part in PARTS}) == len(PARTS)


@pytest.mark.slow
def test_a_part_can_be_tried_alone_and_quickly() -> None:
    command = [sys.executable, "-m", "tests.soak", "--quick", "--only", "handoff", "--seed", "5"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert "seed 5" in done.stdout
    assert "handoff notes  1,000" in done.stdout
    assert done.stdout.rstrip().endswith("kept")
