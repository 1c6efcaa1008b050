from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import find_interpreter
from pytest_tdd_agent.report import Failure, SuiteReport
from tests.fakes.cases import soak_after
from tests.fakes.project import Project
from tests.fakes.suite import no_report, with_report

FILES = {
    "prices.py": (
        "def total(prices):\n    return sum(prices)\n\n\n"
        "class Till:\n    def open(self, drawer):\n        raise KeyError(drawer)\n"
    ),
    "tests/test_fails.py": (
        "import pytest\n\nimport prices\n\n\n"
        "def test_assertion():\n    number = 1\n    assert number + 1 == 3\n\n\n"
        "def test_attribute():\n    prices.mean([1])\n\n\n"
        "def test_signature():\n    prices.total(1, 2)\n\n\n"
        "def test_product():\n    prices.Till().open('a')\n\n\n"
        "def test_no_raise():\n    with pytest.raises(ValueError):\n        pass\n\n\n"
        "def test_name():\n    total([])\n\n\n"
        "def test_skipped():\n    pytest.skip('later')\n\n\n"
        "@pytest.mark.xfail\ndef test_expected():\n    assert prices is None\n"
    ),
    "tests/test_import.py": "from prices import mean\n\n\ndef test_mean():\n    assert mean([1]) == 1\n",
    "tests/test_missing.py": "import discount\n\n\ndef test_discount():\n    assert discount\n",
    "tests/test_passes.py": (
        "import pytest\n\nfrom prices import total\n\n\n"
        "@pytest.mark.parametrize(('prices', 'sum_'), [([1], 1), ([], 0)])\n"
        "@pytest.mark.parametrize('word', ['a', 2])\n"
        "def test_total(prices, sum_, word):\n    assert total(prices) == sum_\n\n\n"
        "class TestTill:\n    def test_folder(self, tmp_path):\n        assert tmp_path.is_dir()\n"
    ),
    "tests/test_syntax.py": "def test_it(:\n    pass\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("suites")
    interpreter = find_interpreter(folder)
    made = Project.make(folder / "project", interpreter=interpreter, bytecode=folder / "bytecode")
    made.write(FILES)
    return made


def without_times(report: SuiteReport | None) -> SuiteReport:
    """The report without what differs between two runs of the same suite, and without how pytest shows a failure."""
    assert report is not None

    def plain(found: Failure) -> Failure:
        return replace(found, text="", output="")

    return replace(
        report,
        started_at="",
        duration_s=0.0,
        nonce="",
        tests=tuple(
            replace(case, duration_s=0.0, phases={}, failure=case.failure and plain(case.failure))
            for case in sorted(report.tests, key=lambda case: case.nodeid)
        ),
        collect_errors=tuple(replace(error, failure=plain(error.failure)) for error in report.collect_errors),
    )


def test_the_report_is_that_of_the_real_suite(project: Project) -> None:
    real, fake = replace(project, runs_pytest=True).suite.run(), project.suite.run()
    assert without_times(fake.report) == without_times(real.report)
    assert real.report is not None
    assert fake.report is not None
    for ours, theirs in zip(fake.report.tests, real.report.tests, strict=True):
        if theirs.failure and theirs.failure.kind != "did_not_raise":
            shown = [line for line in theirs.failure.text.splitlines() if line[:1] in {">", "E"}]
            assert ours.failure is not None
            assert set(shown) >= {line for line in ours.failure.text.splitlines() if line[:1] == "E"}


@soak_after(1, "target", ["tests/test_passes.py::test_none", "tests/none.py", "tests/test_import.py::test_it"])
def test_a_name_that_is_not_there_is_refused_in_the_words_of_the_real_suite(project: Project, target: str) -> None:
    real, fake = replace(project, runs_pytest=True).suite.run((target,)), project.suite.run((target,))
    assert (fake.problem, fake.cause, fake.report) == (real.problem, "refused", None)


def test_targets_select_files_and_tests(project: Project) -> None:
    report = project.suite.run(("tests/test_fails.py::test_name", "tests/test_passes.py")).report
    assert report is not None
    assert [case.nodeid for case in report.tests][:2] == [
        "tests/test_fails.py::test_name",
        "tests/test_passes.py::test_total[a-prices0-1]",
    ]
    assert len(report.tests) == 6


def test_a_file_that_changes_between_two_runs_is_read_anew(project: Project) -> None:
    outcomes = []
    for number in (1, 2):
        project.write(
            {
                "more.py": f"NUMBER = {number}\n",
                "test_more.py": "import more\n\n\ndef test_more():\n    assert more.NUMBER == 2\n",
            }
        )
        report = project.suite.run(("test_more.py",)).report
        assert report is not None
        outcomes.append(report.tests[0].outcome)
    (project.folder / "more.py").unlink()
    (project.folder / "test_more.py").unlink()
    assert outcomes == ["failed", "passed"]


def test_scripted_answers_come_first_and_every_run_is_noted(project: Project, tmp_path: Path) -> None:
    suite = replace(project.fake, answers=[], asked=[])
    scripted = with_report("tests/a.py::one", failed={"tests/a.py::two": "assertion"})
    suite.answers.extend([no_report("the tests did not end within 60 s"), scripted, KeyboardInterrupt()])
    assert suite.run().problem == "the tests did not end within 60 s"
    kept = suite.without_cache().run(("tests/a.py",), keep=tmp_path / "reports" / "a.json")
    assert kept == scripted
    assert (tmp_path / "reports" / "a.json").is_file()
    with pytest.raises(KeyboardInterrupt):
        suite.with_root(tmp_path).run()
    assert [(asked.root, asked.targets, asked.is_anew) for asked in suite.asked] == [
        (project.folder, (), False),
        (project.folder, ("tests/a.py",), True),
        (tmp_path, (), False),
    ]


@pytest.mark.parametrize(
    "content",
    ["def test_it(capsys):\n    pass\n", "import os\n\n\ndef test_it():\n    os._exit(0)\n"],
    ids=["fixture", "exit"],
)
def test_what_only_the_real_suite_can_do_is_said(project: Project, content: str) -> None:
    project.write({"test_more.py": content})
    with pytest.raises(NotImplementedError, match="takes the real suite"):
        project.suite.run(("test_more.py",))
    (project.folder / "test_more.py").unlink()
