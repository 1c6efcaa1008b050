"""Tests that a user gives: which files and settings come along, and which tests wait for code that is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.given_tests import (
    GivenResults,
    MissingCode,
    group_tests,
    list_lines,
    read_tests,
    write_settings,
)
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.plan import GenerationPlan
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport
from tests.fakes.graphs import leaf, make_graph

MODULE = """\
if True:
    def price():
        raise NotImplementedError


class Cart:
    def add(self):
        raise NotImplementedError

    def total(self):
        return 1
"""


def failed(nodeid: str, failure: Failure) -> Case:
    return Case(nodeid, "failed", nodeid.partition("::")[0], 1, 0.0, failure=failure)


def report(*cases: Case, errors: tuple[CollectError, ...] = ()) -> SuiteReport:
    return SuiteReport(
        complete=True,
        exit_status=1,
        nonce="",
        python="3.11",
        pytest="9",
        rootdir="/",
        started_at="",
        duration_s=0.0,
        tests=cases,
        collect_errors=errors,
    )


ASSERTION = Failure(phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 == 2")
AT_STUB = replace(ASSERTION, kind="exception", exception="LookupError", path="src/shop.py", line=3)
MISSING = MissingCode(stubs={"src/shop.py": {"price", "Cart.add"}}, texts={"src/shop.py": MODULE})


def test_all_files_but_caches_and_links_are_taken(tmp_path: Path) -> None:
    for name in ("test_a.py", "data/a.bin", "__pycache__/test_a.pyc", ".hidden/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff")
    (tmp_path / "link.py").symlink_to("test_a.py")
    assert read_tests(tmp_path) == {"tests/test_a.py": b"\xff", "tests/data/a.bin": b"\xff"}
    assert read_tests(tmp_path / "test_a.py") == {"tests/test_a.py": b"\xff"}


@pytest.mark.parametrize("name", ["none", "empty", "data"])
def test_a_folder_without_tests_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text("{}")
    with pytest.raises(UsageError, match=r"There is no folder|has no tests in Python"):
        read_tests(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\naddopts = "-q --cov --import-mode=importlib"\nmarkers = ["a: b"]\n',
        ),
        ("pyproject.toml", '[tool.pytest]\naddopts = ["-q", "--import-mode", "importlib"]\nmarkers = ["a: b"]\n'),
        ("setup.cfg", "[tool:pytest]\naddopts = --import-mode importlib\nmarkers =\n    a: b\ntestpaths = other\n"),
        ("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    a: b\n"),
    ],
)
def test_settings_come_along_but_not_those_about_the_other_project(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / file).write_text(text)
    written = write_settings(tmp_path / "tests")
    expected = (
        "[pytest]\npythonpath = src\ntestpaths = tests\naddopts = --import-mode=importlib\nmarkers = \n    a: b\n"
    )
    written = written.replace("-mode importlib", "-mode=importlib")
    assert written.replace("markers = a", "markers = \n    a") == expected


def test_options_that_choose_tests_and_paths_to_them_come_along(tmp_path: Path) -> None:
    (tmp_path / "test" / "lib").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -ra --cov=src -m 'not slow' -p no:cov\npythonpath = . src test/lib\nnorecursedirs = bad\n"
    )
    assert write_settings(tmp_path / "test") == (
        "[pytest]\npythonpath = src . tests/lib\ntestpaths = tests\naddopts = -m 'not slow' -p no:cov\n"
        "norecursedirs = bad\n"
    )


def test_the_nearest_conftest_above_the_tests_comes_along(tmp_path: Path) -> None:
    tests = tmp_path / "project" / "test"
    tests.mkdir(parents=True)
    for path in (tmp_path / "conftest.py", tmp_path / "project" / "conftest.py", tests / "test_a.py"):
        path.write_text(path.parent.name)
    assert {*read_tests(tests)} == {"tests/test_a.py"}, "pytest does not know where the project ends"
    (tmp_path / "project" / "pytest.ini").write_text("[pytest]\n")
    assert read_tests(tests) == {"conftest.py": b"project", "tests/test_a.py": b"test"}


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool")
    with pytest.raises(UsageError, match="The settings of pytest in"):
        write_settings(tmp_path)


def test_a_test_waits_if_it_enters_a_stub_or_its_failure_goes_through_one() -> None:
    cases = (
        failed("t.py::test_swallows[1]", ASSERTION),
        failed("t.py::test_other", ASSERTION),
        failed("t.py::test_fixture", AT_STUB),
    )
    errors = (CollectError("u.py", ASSERTION),)
    entered = {
        "src/shop.py::price.inner": {"t.py::test_swallows", "u.py"},
        "src/shop.py::Cart.total": {"t.py::test_other"},
    }
    found = MISSING.find_waiting(report(*cases, errors=errors), entered)
    assert found == {"t.py::test_swallows[1]", "t.py::test_fixture", "u.py"}


def test_a_test_waits_if_it_enters_a_module_with_code_that_waits() -> None:
    late = replace(MISSING, texts={"src/shop.py": f"{MODULE}#: after shop.price: RATE = price()\n"})
    case = failed("t.py::test_other", ASSERTION)
    entered = {"src/shop.py": {"t.py::test_other"}}
    assert late.find_waiting(report(case), entered) == {"t.py::test_other"}
    assert replace(late, counts_late=False).find_waiting(report(case), entered) == set()


def test_a_test_waits_if_it_enters_a_module_that_code_that_waits_can_change() -> None:
    texts = {"src/shop.py": MODULE, "src/plugins.py": "#: after shop.register, plugins.Tax: shop.register(Tax)\n"}
    case, entered = failed("t.py::test_other", ASSERTION), {"src/shop.py": {"t.py::test_other"}}
    assert replace(MISSING, texts=texts).find_waiting(report(case), entered) == {"t.py::test_other"}
    texts["src/plugins.py"] = "TAX = None  #: until shop.register\n#: after shop.register: TAX = shop.register()\n"
    assert replace(MISSING, texts=texts).find_waiting(report(case), entered) == set()


def test_the_outcome_of_all_tests_is_one_sentence() -> None:
    passed, skipped = (Case(f"t.py::{outcome}", outcome, "t.py", 1, 0.0) for outcome in ("passed", "skipped"))

    def summarize(*cases: Case) -> str:
        return GivenResults(plan=None, report=report(*cases), entered={}).summarize()  # type: ignore[arg-type]

    assert summarize(passed) == "1 given test passed, and none failed."
    assert (
        summarize(passed, passed, skipped) == "2 given tests passed, and none failed. Skipped, or expected to fail: 1."
    )
    assert summarize(passed, skipped, failed("t.py::a", ASSERTION)) == "1 of 3 given tests fail: t.py::a."


def test_a_node_is_proved_by_a_test_that_enters_it_unless_one_fails_or_the_checks_doubt_it() -> None:
    graph = make_graph(*(leaf(name, "src/shop.py") for name in ("price", "tax", "sale", "unused")), package="shop")
    plan = GenerationPlan(graph=graph, layout=Layout.of(graph, "shop"), source=Path("shop.json"))
    path = plan.layout.map_path("src/shop.py")
    passed = [Case(f"t.py::{name}", "passed", "t.py", 1, 0.0) for name in ("a", "b")]
    results = GivenResults(
        plan=plan,
        report=report(*passed, failed("t.py::c[1]", ASSERTION)),
        entered={
            f"{path}::price": {"t.py::a"},
            f"{path}::tax.inner": {"t.py::a", "t.py::c"},
            f"{path}::sale": {"t.py::b"},
        },
        doubts={"sale": "it recognizes the tests"},
    )
    assert {title: results.explain_doubt(title) for title in plan.by_title} == {
        "price": "",
        "tax": "t.py::c[1] fails and enters it",
        "sale": "it recognizes the tests",
        "unused": "no test that passes enters it",
    }
    assert [*results.find_suspects(())] == ["tax"]


def test_tests_are_grouped_where_nothing_else_is_in_the_group() -> None:
    among = [
        "a.py::A::x[1::2]",
        "a.py::A::x[3]",
        "a.py::A::y",
        "a.py::z",
        "b.py",
        "c.py::x",
        "c.py::y[1]",
        "c.py::y[2]",
    ]
    chosen = {"a.py::A::x[1::2]", "a.py::A::x[3]", "a.py::z", "b.py", "c.py::x", "c.py::y[1]", "c.py::y[2]"}
    assert group_tests(chosen, among) == ("a.py::A::x", "a.py::z", "b.py", "c.py")


def test_the_lines_of_a_definition_are_those_of_its_source() -> None:
    assert [*list_lines(MODULE, {"price", "Cart.add"})] == [2, 3, 7, 8]
    assert [*list_lines("def broken(:", {"broken"})] == []
