import re

import pytest

from cdd_agent.testrun.frameworks.framework import number_cases
from cdd_agent.testrun.frameworks.javascript import spell_path, spell_pattern
from pytest_tdd_agent.report import Case


def test_tests_of_one_name_are_numbered() -> None:
    cases = (Case(name, "passed", file="", line=0, duration_s=0.0) for name in ("a", "b", "a", "a"))
    assert [case.nodeid for case in number_cases(cases, form="{name} ({count})")] == ["a", "b", "a (2)", "a (3)"]


def test_no_path_is_an_option() -> None:
    assert spell_path("--version.test.js") == "./--version.test.js"
    assert spell_path("a.test.js") == "a.test.js"


@pytest.mark.parametrize("path", ["--version.test.js", "a+b/(c).test.js", "ünïcode ✓.js"])
def test_a_pattern_matches_only_its_file(path: str) -> None:
    pattern = spell_pattern(path)
    assert not pattern.startswith("-")
    assert re.search(pattern, f"/project/{path}")
    assert not re.search(pattern, f"/project/{path}on")


def test_a_pattern_of_a_folder_matches_what_is_in_it() -> None:
    assert re.search(spell_pattern("test/unit"), "/project/test/unit/a.js")
    assert not re.search(spell_pattern("test/unit"), "/project/test/unit.js")
