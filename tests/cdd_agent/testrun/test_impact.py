import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.impact import ImpactMap, load_impact, save_impact
from cdd_agent.testrun.interpreter import find_interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import SuiteRun
from tests.fakes.lean import lean_python
from tests.pytest_tdd_agent.matrix.environments import interpreter

SHOP = """\
CACHE = {}


class Basket:
    def add(self, price):
        return price


def total(prices):
    return sum(prices)
"""
TESTS = """\
import pytest

import shop


@pytest.mark.parametrize("price", [1, 2])
def test_add(price):
    assert shop.Basket().add(price) == price


def test_total():
    assert shop.total([1, 2]) == 3


def test_total_twice():
    import names  # its code runs now, but no function of it

    assert shop.total([1]) == 1


def test_nothing():
    assert shop.CACHE == {}
"""
ENTERED = {"shop.py": {"test_shop.py::test_add", "test_shop.py::test_total", "test_shop.py::test_total_twice"}}


def write_project(root: Path) -> None:
    (root / "shop.py").write_text(SHOP)
    (root / "names.py").write_text("def unused():\n    return 0\n\n\nNAME = [each for each in 'ab']\n")
    (root / "test_shop.py").write_text(TESTS)


def run_for_evidence(suite: PytestSuite, python: Path) -> SuiteRun:
    write_project(suite.root)
    found = find_interpreter(suite.root, environment={"CDD_PYTHON": str(python)})
    run = replace(suite, interpreter=found).without_cache().run()
    assert run.problem is None
    return run


def test_from_python_3_12_on_a_run_for_evidence_knows_which_tests_entered_which_file(
    suite: PytestSuite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    newer = next((found for release in ("3.13", "3.12") if (found := interpreter(release))), None)
    if newer is None:
        pytest.skip("Python 3.12 or newer is missing among pyenv's versions and on PATH")
    python = lean_python(tmp_path_factory.mktemp("newer") / "env", python=newer)
    assert run_for_evidence(suite, python).entered == ENTERED


def test_before_python_3_12_it_knows_them_from_the_coverage_that_the_project_measures(
    suite: PytestSuite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("this Python reports calls itself")
    python = lean_python(tmp_path_factory.mktemp("covered") / "env", "coverage")
    measure = (
        "from coverage import Coverage\n\nmeasured = Coverage(data_file=None, include='*/shop.py')\nmeasured.start()\n"
    )
    (suite.root / "conftest.py").write_text(measure)
    assert run_for_evidence(suite, python).entered == ENTERED


def test_a_suite_that_traces_notes_functions_and_what_an_import_enters(suite: PytestSuite) -> None:
    write_project(suite.root)
    (suite.root / "test_import.py").write_text("import shop\n\nCART = shop.Basket().add(1)\n\n\ndef test(): pass\n")
    found = suite.without_cache().with_tracing().run().entered
    assert found["shop.py::Basket.add"] == {"test_shop.py::test_add", "test_import.py"}
    assert found["shop.py::total"] == {"test_shop.py::test_total", "test_shop.py::test_total_twice"}
    assert found["shop.py"] == found["shop.py::Basket.add"] | found["shop.py::total"]


def test_a_suite_that_traces_reports_a_conftest_that_cannot_be_imported_as_a_file(suite: PytestSuite) -> None:
    write_project(suite.root)
    (suite.root / "conftest.py").write_text("import shop\n\nCART = shop.Basket().missing()\n")
    tracing = suite.without_cache().with_tracing()
    report = tracing.run().report
    assert report is not None
    assert report.complete
    (error,) = report.collect_errors
    assert (error.nodeid, error.failure.exception) == ("conftest.py", "AttributeError")
    assert [(frame.path, frame.line) for frame in error.failure.frames] == [("conftest.py", 3)]
    (suite.root / "conftest.py").unlink()
    (suite.root / "test_shop.py").write_text("def test(): assert False\n")
    run = tracing.run()
    assert run.report is not None
    assert [case.outcome for case in run.report.tests] == ["failed"]
    assert "FAILURES" not in run.output


def test_a_run_of_some_tests_changes_only_what_is_known_of_them() -> None:
    known = ImpactMap(files={"a.py": ("t.py::one", "t.py::two"), "b.py": ("t.py::two",)})
    now = known.update({"c.py": {"t.py::two"}}, ran=["t.py::two[1]", "t.py::two[2]"])
    assert now.files == {"a.py": ("t.py::one",), "c.py": ("t.py::two",)}


def test_tests_are_listed_by_file_without_those_of_the_step_and_many_are_counted() -> None:
    many = tuple(f"tests/test_b.py::test_{number}" for number in range(20))
    known = ImpactMap(files={"a.py": ("tests/test_a.py::test_new", "tests/test_a.py::test_old", *many), "b.py": many})
    assert known.describe(["a.py", "none.py"], but=["tests/test_a.py::test_new"]) == (
        "- `a.py`: tests/test_a.py (test_old), tests/test_b.py (20 tests)"
    )
    assert known.describe(["b.py"], but=["tests/test_b.py"]) == ""


def test_a_map_is_saved_and_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "impact.json"
    save_impact(ImpactMap(files={"a.py": ("t.py::one",)}), path)
    assert load_impact(path).files == {"a.py": ("t.py::one",)}
    path.write_bytes(b"{")
    assert load_impact(path) == ImpactMap()
