"""Which tests enter which nodes, which wait for code that is missing, and what they prove."""

from dataclasses import replace
from pathlib import Path

from cdd_agent.generation.layout import Layout
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.generation.traceability import MissingCode, TracedResults, group_tests, list_lines
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport
from tests.cdd_agent.evidence.requests import EMPTY
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
    return replace(EMPTY, tests=cases, collect_errors=errors)


ASSERTION = Failure(phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 == 2")
AT_STUB = replace(ASSERTION, kind="exception", exception="LookupError", path="src/shop.py", line=3)
MISSING = MissingCode(stubs={"src/shop.py": {"price", "Cart.add"}}, texts={"src/shop.py": MODULE})


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
        return TracedResults(plan=None, report=report(*cases), entered={}).summarize()  # type: ignore[arg-type]

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
    results = TracedResults(
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
        "tax": "tests that enter it fail: t.py::c[1]",
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
