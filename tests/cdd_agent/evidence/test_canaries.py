from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.evidence.canaries import Canary, find_misreport, plant, remove
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import SuiteReport
from tests.cdd_agent.evidence.steps import report_of
from tests.fakes.project import QUICK


@pytest.mark.parametrize(
    ("target", "file", "test"),
    [
        ("tests/test_a.py::test_one[x::y]", "tests/test_w*_a.py", "test_w*_one"),
        ("spec/a_test.py::TestIt::check_it", "spec/a_w*_test.py", "check_w*_it"),
        ("tests/case.py::testOne", "tests/case_w*.py", "testOne_w*"),
        ("docs/usage.md::usage.md", "test_w*_it.py", "test_w*_it"),
        ("ledger/total.py::ledger.total.add", "ledger/total_w*.py", "test_w*_it"),
    ],
)
def test_names_are_those_that_the_target_is_an_example_of(target: str, *, file: str, test: str, tmp_path: Path) -> None:
    planted = plant(tmp_path, (target,))
    assert planted is not None
    first, last = planted
    assert first != last
    for canary in (first, last):
        assert Path(canary.file).match(file)
        assert (tmp_path / canary.file).exists()
        assert Path(canary.passes.rpartition("::")[2]).match(test)


@pytest.mark.slow
def test_pytest_reports_both_as_they_are(tmp_path: Path, interpreter: Interpreter, bytecode: Path) -> None:
    (tmp_path / "pytest.ini").write_text(QUICK + "python_files = *_spec.py\npython_functions = check_*\n")
    (tmp_path / "a_spec.py").write_text("def check_it(): pass\n")
    planted = plant(tmp_path, ("a_spec.py::check_it",))
    assert planted is not None
    first, last = planted
    suite = PytestSuite(root=tmp_path, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=bytecode)
    report = suite.run((first.file, "a_spec.py::check_it", last.file)).report
    assert report is not None
    assert [case.nodeid.partition("::")[0] for case in report.tests] == [first.file] * 2 + ["a_spec.py"] + [
        last.file
    ] * 2
    assert (find_misreport(first, report), find_misreport(last, report)) == (None, None)

    def describe(canary: Canary, report: SuiteReport) -> str:
        found = find_misreport(canary, report)
        return "" if found is None else explain(found)

    def changed(nodeid: str, outcome: str) -> SuiteReport:
        cases = (replace(case, outcome=outcome) if case.nodeid == nodeid else case for case in report.tests)
        return replace(report, tests=tuple(cases))

    assert describe(first, changed(first.passes, "failed")) == "a test that passes is reported as failed"
    assert describe(first, changed(first.fails, "passed")) == ("a test that fails, as expected, is reported as passed")
    assert describe(first, report_of((first.passes,))) == "a test that ran is not in the report"


@pytest.mark.parametrize("to", ["../away", "../gone", "file"])
def test_nothing_is_written_through_a_link_or_over_a_file(to: str, tmp_path: Path) -> None:
    root, away = tmp_path / "project", tmp_path / "away"
    root.mkdir()
    away.mkdir()
    (root / "file").touch()
    (root / "tests").symlink_to(to)
    assert plant(root, ("tests/test_it.py::test_it",)) is None
    assert list(away.iterdir()) == []


def test_a_known_test_is_taken_away_and_nothing_that_was_put_in_its_place(tmp_path: Path) -> None:
    root, away = tmp_path / "project", tmp_path / "away"
    away.mkdir()
    root.mkdir()
    planted = plant(root, ("tests/test_it.py::test_it",))
    assert planted is not None
    first, last = planted
    remove(root, first)
    remove(root, first)
    assert [path.name for path in (root / "tests").iterdir()] == [Path(last.file).name]
    (root / "tests").rename(away / "tests")
    (root / "tests").symlink_to(away / "tests")
    remove(root, last)
    assert (away / last.file).exists()
