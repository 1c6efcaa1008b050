"""Runs of pytest without the plugin, whose results are in JUnit XML."""

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import pytest_tdd_agent
from cdd_agent.testrun.plain_run import FLAGS, build_arguments, delete_bytecode, override_addopts, read_results
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.cdd_agent.testrun.conftest import outcomes
from tests.fakes.cases import soak_after

SUITE = '<testsuites><testsuite name="pytest">{}</testsuite></testsuites>'


def read(folder: Path, cases: str, *, selects: Iterable[str], exit_status: int = 0) -> dict[str, str]:
    file = folder / "results.xml"
    file.write_text(SUITE.format(cases))
    report, problem = read_results(file, selects=selects, exit_status=exit_status)
    assert report is not None, problem
    assert report.exit_status == exit_status
    return {case.nodeid: case.outcome for case in report.tests}


def test_each_case_of_the_xml_gets_the_node_id_of_its_test(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '<testcase classname="tests.test_a" name="test_one"/>'
        '<testcase classname="tests.test_a" name="test_one[1.5-x::y]"/>'
        '<testcase classname="tests.test_a.TestB.TestC" name="test_two"><failure message="assert 0"/></testcase>'
        '<testcase classname="tests.test_a" name="test_three"><skipped type="pytest.skip" message="later"/></testcase>'
        '<testcase classname="tests.test_a" name="test_four"><skipped type="pytest.xfail" message=""/></testcase>'
        '<testcase classname="ledger.total" name="ledger.total.add"/>'
        '<testcase classname="docs.usage.md" name="usage.md"/>'
        '<testcase classname="" name="tests.test_b"><error message="collection failure"/></testcase>'
        '<testcase classname="elsewhere.test_c" name="test_five"/>',
        selects=("tests/test_a.py", "ledger/total.py::ledger.total.add", "docs/usage.md::usage.md", "tests/test_b.py"),
    )
    assert found == {
        "tests/test_a.py::test_one": "passed",
        "tests/test_a.py::test_one[1.5-x::y]": "passed",
        "tests/test_a.py::TestB::TestC::test_two": "failed",
        "tests/test_a.py::test_three": "skipped",
        "tests/test_a.py::test_four": "xfailed",
        "ledger/total.py::ledger.total.add": "passed",
        "docs/usage.md::usage.md": "passed",
        "tests/test_b.py": "error",
        "elsewhere.test_c.test_five": "passed",
    }


@pytest.mark.parametrize(
    ("tests", "expected"),
    [(6, "passed"), (4, "skipped")],
    ids=["more passed than the elements show", "each element is one result"],
)
def test_a_mark_of_a_subtest_is_not_the_result_of_its_test(tests: int, expected: str, tmp_path: Path) -> None:
    skipped = '<skipped type="pytest.skip" message="not here"/>'
    expected_failure = '<skipped type="pytest.xfail" message=""/>'
    case = '<testcase classname="{}" name="{}">{}</testcase>'.format
    file = tmp_path / "results.xml"
    file.write_text(
        f'<testsuites><testsuite errors="0" failures="0" skipped="3" tests="{tests}">'
        f"{case('test_a', 'test_one', skipped)}{case('test_a', 'test_two', '')}"
        f"{case('test_b', 'test_one', expected_failure)}{case('test_b', 'test_two', skipped)}</testsuite></testsuites>"
    )
    report, problem = read_results(file, selects=("test_a.py::test_one", "test_b.py"), exit_status=0)
    assert report is not None, problem
    assert {case.nodeid: case.outcome for case in report.tests} == {
        "test_a.py::test_one": expected,
        "test_a.py::test_two": "passed",
        "test_b.py::test_one": "xfailed",
        "test_b.py::test_two": "skipped",
    }


def test_of_several_results_of_a_test_the_worst_counts(tmp_path: Path) -> None:
    case = '<testcase classname="test_a" name="test_one">{}</testcase>'
    error = '<error message="at teardown"/>'
    for cases in ((error, ""), ("", error)):
        found = read(tmp_path, "".join(map(case.format, cases)), selects=("test_a.py::test_one",), exit_status=1)
        assert found == {"test_a.py::test_one": "error"}


BAD = {
    "no file": (None, "pytest wrote no JUnit XML"),
    "no XML": ("passed", "results.xml cannot be read: syntax error: line 1, column 0"),
    "half of one": ("<testsuites><testsuite>", "results.xml cannot be read: no element found: line 1, column 23"),
    "two": ("<a/><a/>", "results.xml cannot be read: junk after document element: line 1, column 4"),
    "entities": (
        '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        "results.xml cannot be read: it has a document type (a, its own), which is refused",
    ),
}


def test_a_file_that_is_no_plain_xml_is_a_problem(tmp_path: Path) -> None:
    found = {}
    for number, (name, (text, _)) in enumerate(BAD.items()):
        file = tmp_path / str(number) / "results.xml"
        file.parent.mkdir()
        if text is not None:
            file.write_text(text)
        found[name] = read_results(file, selects=(), exit_status=0)
    assert found == {name: (None, problem) for name, (_, problem) in BAD.items()}
    (tmp_path / "link.xml").symlink_to(tmp_path / "2" / "results.xml")
    assert read_results(tmp_path / "link.xml", selects=(), exit_status=0)[0] is None


CONFIGURED = {
    "pytest.ini": "[pytest]\naddopts = -q --tdd-agent --tdd-agent-report x.json --tdd-agent-flaky=2 -x\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['-q', '--tdd-agent-report', 'x.json', '-x']\n",
    "tox.ini": "[pytest]\naddopts =\n    -q --tdd-agent-audit\n    -x\n",
    "setup.cfg": "[tool:pytest]\naddopts = -q --tdd-agent-target a.py::test_b -x\n",
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_options_of_the_plugin_are_left_out_of_addopts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CONFIGURED[name])
    assert override_addopts(tmp_path) == ("-o", "addopts=", "-q", "-x")


def test_settings_of_the_plugin_are_no_error_without_it(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-config -q\ntdd_agent_report = x.json\n")
    assert override_addopts(tmp_path) == ("-o", "addopts=", "-o", "strict_config=false", "-q")


def test_other_addopts_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-q'\n")
    (tmp_path / "tox.ini").write_text("[pytest]\naddopts = --tdd-agent\n")
    assert override_addopts(tmp_path) == (), "pytest reads the first of these files only"
    assert override_addopts(tmp_path / "none") == ()
    (tmp_path / "inner").mkdir()
    (tmp_path / "pyproject.toml").unlink()
    assert override_addopts(tmp_path / "inner") == ("-o", "addopts=")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:junitxml -p no:x -pno:junitxml\n")
    assert override_addopts(tmp_path) == ("-o", "addopts=", "-p", "no:x"), "the results are needed"


def test_the_options_without_a_value_are_those_of_the_plugin() -> None:
    tree = ast.parse(Path(pytest_tdd_agent.__file__).read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    declared = {ast.unparse(call.args[0]): [ast.unparse(word.value) for word in call.keywords] for call in calls}
    assert {name for name, given in declared.items() if "'store_true'" in given} == set(map(repr, FLAGS))


def test_the_options_of_cdd_come_after_those_of_the_project(tmp_path: Path) -> None:
    given = build_arguments(tmp_path / "r.xml", root=tmp_path, options=("--junit-xml=a.xml", "-q"), selects=("a.py",))
    assert given.index("--junit-xml=a.xml") < given.index(f"--junit-xml={tmp_path / 'r.xml'}")
    assert given[-1] == "a.py"
    assert given[:2] == ("-p", "no:pytest_tdd_agent")


def test_bytecode_of_a_copy_is_deleted_but_not_that_of_its_environment(tmp_path: Path) -> None:
    for name in ("__pycache__", "a/__pycache__", "env/lib/__pycache__", "x/site-packages/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.pyc").touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    delete_bytecode(tmp_path)
    assert sorted(file.relative_to(tmp_path).parts[0] for file in tmp_path.rglob("*.pyc")) == ["env", "x"]


TESTS = """\
import sys, unittest
import pytest


@pytest.mark.parametrize("x", [1, "a/b::c", None])
def test_one(x): assert x


class TestTwo:
    class TestInner:
        def test_it(self): print("\\x1b[31m" + chr(0))


class Case(unittest.TestCase):
    def test_parts(self):
        for number in range(2):
            with self.subTest(number=number):
                self.assertEqual(number, 0)


@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")


def test_teardown(broken): pass


@pytest.mark.xfail(strict=True)
def test_expected(): assert 0


@pytest.mark.skip
def test_later(): pass


def test_alone():
    assert not [name for name in sys.modules if "tdd_agent" in name]
    assert not any("tdd" in word for word in sys.argv if word != "no:pytest_tdd_agent")
"""
CONFTEST = (
    "def pytest_configure(config): config.option.verbose = 1\n"
    "def pytest_collection_modifyitems(items): items.reverse()\n"
)
FORMS = {
    "as it is": "",
    "another family": "junit_family = xunit2\njunit_suite_name = shop\n",
    "with logs": "junit_logging = all\naddopts = --junit-prefix=shop --junitxml=own.xml -p no:junitxml\n",
    "with the plugin's options": "addopts = --tdd-agent --tdd-agent-report own.json --strict-config\n",
}


@soak_after(1, "name", FORMS)
def test_a_plain_run_reports_what_the_run_with_the_plugin_reports(
    name: str, tmp_path: Path, *, suite: PytestSuite
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{FORMS[name]}")
    plain = replace(suite, is_plain=True).run(("tests/test_a.py",))
    found = outcomes(plain)
    alone = found.pop("tests/test_a.py::test_alone")
    expected = outcomes(suite.run(("tests/test_a.py",)))
    assert expected.pop("tests/test_a.py::test_alone") == "failed"
    assert (alone, found) == ("passed", expected)
    assert plain.report is not None
    assert plain.report.exit_status == 1
    assert not [*tmp_path.rglob("*.xml"), *tmp_path.rglob("*.json")]
    assert re.fullmatch(r".*/tests/test_a.py", plain.origins["test_a"])


def test_a_process_that_ends_early_has_no_results(tmp_path: Path, suite: PytestSuite) -> None:
    (tmp_path / "test_a.py").write_text("import os\ndef test_one(): os._exit(0)\n")
    run = replace(suite, is_plain=True).run(("test_a.py",))
    assert (run.report, run.problem) == (None, "pytest wrote no JUnit XML")
