from dataclasses import replace

from cdd_agent.evidence import clean_copy
from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.testrun.suite import PLAIN_LAYOUT
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.steps import FILES, report_of

TEST = "def test_it():\n    assert f('\u00e9') == 7\n"


def test_a_change_is_read_from_the_trees_without_tests_and_configuration(make: Make) -> None:
    red = {"tests/test_product.py": TEST, "checks.py": "x = 1\n", "gone.py": "x = 1\n"}
    step = make(
        red, {"data.bin": "1", "product.py": "x = '\u00e9'\n", "old.py": "", "checks.py": "", "conftest.py": ""}
    )
    found = clean_copy.list_product_changes(
        step.repository, layout=PLAIN_LAYOUT, red=step.red, green=step.green, tests=("checks.py",)
    )
    assert found == (
        ProductChange(path="data.bin", old=None, new=None),
        ProductChange(path="old.py", old=FILES["old.py"], new=""),
        ProductChange(path="product.py", old=None, new="x = '\u00e9'\n"),
    )
    (deleted,) = clean_copy.list_product_changes(
        step.repository, layout=PLAIN_LAYOUT, red=step.green, green=step.red, tests=("checks.py",)
    )[2:]
    assert deleted == ProductChange(path="product.py", old="x = '\u00e9'\n", new=None)


def test_paths_are_relative_to_the_project(make: Make) -> None:
    step = make({"tests/test_product.py": TEST}, {"product.py": "x = 1\n"}, inside="tests/sums")
    layout = clean_copy.find_layout(step.repository, step.suite)
    project = layout.project
    assert project == "tests/sums"
    (change,) = clean_copy.list_product_changes(step.repository, layout=layout, red=step.red, green=step.green)
    assert change.path == "product.py"
    targets = ("tests/test_product.py::test_it", "tests/gone.py::test_it")
    sources = clean_copy.read_sources(step.repository, project=project, tree=step.red, paths=targets)
    assert sources == {"tests/test_product.py": TEST}
    assert list(clean_copy.read_product_sources(step.repository, project=project, tree=step.red)) == [FILES["old.py"]]


def test_newly_passing_tests_are_those_that_failed_or_were_not_there() -> None:
    before = report_of(("a.py::test_old",), failed=("a.py::test_red", "a.py::test_still"))
    after = report_of(("a.py::test_old", "a.py::test_red", "b.py::test_hidden"), failed=("a.py::test_still",))
    assert clean_copy.find_newly_passing(after, baseline=before) == ("a.py::test_red", "b.py::test_hidden")
    known = replace(before, old_failures=("a.py::test_red",))
    assert clean_copy.find_newly_passing(after, baseline=known) == ("b.py::test_hidden",)
    only = replace(before, old_failures=("a.py::test_red", "b.py::test_hidden"))
    assert clean_copy.find_newly_passing(after, baseline=only) == ("a.py::test_red", "b.py::test_hidden")
