import re

import pytest

from cdd_agent.testrun.frameworks.framework import number_cases
from cdd_agent.testrun.frameworks.javascript import escape, match_full_names, match_titles, select, spell_path
from pytest_tdd_agent.report import Case


def test_names_are_selected_only_if_all_targets_have_one() -> None:
    both = select(("a.test.js::x", "b.test.js::y", "a.test.js::z"))
    assert both.paths == ("a.test.js", "b.test.js")
    assert both.names == ("x", "y", "z")
    mixed = select(("a.test.js::x", "b.test.js"))
    assert mixed.paths == ("a.test.js", "b.test.js")
    assert mixed.names == ()
    assert select(()) == select([])


@pytest.mark.parametrize(
    "name", ["adds", "(a|b)* [x] $1 \\d.", "ünïcode ✓ 日本", "a > b", "\"q\" 'q' `q`", "a/b", "x {1}"]
)
def test_a_name_matches_itself_and_nothing_longer(name: str) -> None:
    pattern = re.compile(match_full_names([name]))
    assert pattern.search(name)
    assert pattern.search(f"group {name}")
    assert not pattern.search(f"{name} more")
    assert not pattern.search(f"more{name}")


def test_titles_that_a_tool_joins_by_spaces_are_found_by_their_node_id() -> None:
    pattern = re.compile(match_full_names(["shelf > deeper > is > nested"]))
    assert pattern.search("shelf deeper is > nested")
    assert not pattern.search("shelf deeper is nested too")


def test_a_numbered_name_is_found_with_its_number_or_without() -> None:
    pattern = re.compile(match_full_names(["same name (2)"]))
    assert pattern.search("same name")
    assert pattern.search("same name (2)")
    cases = (Case(name, "passed", file="", line=0, duration_s=0.0) for name in ("a", "b", "a", "a"))
    assert [case.nodeid for case in number_cases(cases, form="{name} ({count})")] == ["a", "b", "a (2)", "a (3)"]


def test_each_title_on_the_way_is_told_and_each_way_to_cut_it() -> None:
    pattern = re.compile(match_titles(["a > b > c"]))
    assert all(pattern.search(title) for title in ("a", "b", "c", "b > c", "a > b > c"))
    assert not pattern.search("a b c")


def test_no_path_is_an_option() -> None:
    assert spell_path("--version.test.js") == "./--version.test.js"
    assert spell_path("a.test.js") == "a.test.js"
    assert escape("a.b") == r"a\.b"
