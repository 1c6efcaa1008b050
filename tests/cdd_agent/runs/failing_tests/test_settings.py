"""Each key of the section ``green`` changes what happens."""

from dataclasses import replace

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.config.settings import GreenSettings
from cdd_agent.events import Notice, SuiteStarted
from cdd_agent.runs.request import Wanted
from cdd_agent.tdd.context import Context
from pytest_tdd_agent.report import SuiteReport
from tests.cdd_agent.runs.failing_tests.conftest import (
    CART,
    CARTS,
    MENDED,
    NEGATIVE,
    THREE,
    TOTAL,
    MakeShop,
    Shop,
    plays,
)
from tests.cdd_agent.runs.failing_tests.exercised.task import hands_in
from tests.fakes.approval import approves

KNOWN = {"cart.py": CART}
MENDS = hands_in({"cart.py": MENDED}, known=KNOWN)
FALLS_SHORT = hands_in({"cart.py": CART.replace("return 0", "return 1")}, known=KNOWN)


def targets_of_runs(shop: Shop) -> list[tuple[str, ...]]:
    return [event.targets for event in shop.project.seen if isinstance(event, SuiteStarted)]


@pytest.mark.slow
def test_max_iterations(shop: Shop) -> None:
    settings = replace(THREE, max_iterations=1)
    assert shop.green(model=plays(FALLS_SHORT, MENDS), settings=settings).run().iterations == 1
    assert shop.green(model=plays(FALLS_SHORT, MENDS), settings=THREE).run().iterations == 2


@pytest.mark.slow
def test_the_settings_of_a_project_reach_the_run(shop: Shop) -> None:
    text = (
        "test_timeout_s: 300\ngreen:\n  max_iterations: 7\n  max_tool_calls: 4\n  test_timeout_s: 33\n"
        "  continue_on_partial_success: false\n  run_after_each_file: false\n  run_specific_test_first: false\n"
        "  full_suite_on_completion: false\n"
    )
    shop.project.write({".cdd/config.yaml": text})
    project = Composition(Options(project=shop.project.folder, ask=approves), emit=lambda _: None)
    context = project.green(Wanted(targets=(TOTAL,))).context
    policy = context.policy
    assert (policy.max_attempts, policy.budget.max_calls_total) == (7, 4)
    assert (policy.keeps_partial, policy.tests_after_write, policy.targets_first) == (False, False, False)
    assert policy.gate_runs == ("tests/test_cart.py",)
    assert getattr(context.suite, "timeout_s", None) == 33


@pytest.mark.slow
def test_test_timeout_s_ends_a_run_of_tests(make_real_shop: MakeShop) -> None:
    shop = make_real_shop(CARTS)
    slow = hands_in({"cart.py": f"import time\n\ntime.sleep(60)\n\n\n{MENDED}"}, known=KNOWN)
    settings = replace(THREE, max_iterations=1, run_after_each_file=False)

    def with_timeout(context: Context) -> Context:
        return replace(context, suite=context.suite.with_timeout(10))

    artifact = shop.green(model=plays(slow), settings=settings, adapt=with_timeout).run()
    assert "did not end within 10 s" in str(artifact.error)


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_continue_on_partial_success(shop: Shop, *, keeps: bool) -> None:
    settings = replace(THREE, max_iterations=2, continue_on_partial_success=keeps)
    artifact = shop.green([TOTAL, NEGATIVE], model=plays(MENDS, FALLS_SHORT), settings=settings).run()
    assert artifact.iterations == 2
    assert artifact.error is not None
    if not keeps:
        assert (artifact.outcome, artifact.commit, shop.project.log) == ("failed", None, [])
        return
    assert (artifact.outcome, artifact.all_tests_pass) == ("partial", False)
    assert shop.project.log == ["fix: make 2 tests of tests/test_cart.py pass (1 of 2 pass)"]
    assert (shop.project.folder / "cart.py").read_text() == MENDED
    passing = {detail.name: detail.status for detail in artifact.test_results.test_details}
    assert (passing[TOTAL], passing[NEGATIVE]) == ("passed", "failed")
    assert NEGATIVE in artifact.error
    note = shop.project.git("notes", "--ref=tdd-handoffs", "show", "HEAD")
    assert '"nextPhase":"GREEN"' in note
    assert '"open":false' in note
    assert f'"completedTests":["{TOTAL}"],"pendingTests":["{NEGATIVE}"]' in note


@pytest.mark.slow
def test_a_part_is_kept_of_a_file_that_could_not_be_imported_before(make_shop: MakeShop) -> None:
    test = "from cart import Cart, empty\n\n\ndef test_empty():\n    assert empty(Cart())\n\n\n"
    shop = make_shop({"cart.py": CART, "tests/test_empty.py": f"{test}def test_other():\n    assert Cart().lid\n"})
    written = {"cart.py": f"{CART}\n\ndef empty(cart):\n    return not cart.prices\n"}
    artifact = shop.green(
        ["tests/test_empty.py"], model=plays(hands_in(written, known=KNOWN)), settings=replace(THREE, max_iterations=1)
    ).run()
    assert (artifact.outcome, artifact.passing_tests) == ("partial", 1)
    assert shop.project.log == ["feat: make tests/test_empty.py pass (1 of 2 pass)"]


@pytest.mark.slow
def test_a_part_that_breaks_another_test_is_not_kept(shop: Shop) -> None:
    worse = MENDED.replace("class Cart:", "class Basket:") + "\n\ndef Cart():\n    return Basket()\n"
    settings = replace(THREE, max_iterations=1)
    artifact = shop.green(
        [TOTAL, NEGATIVE], model=plays(hands_in({"cart.py": worse}, known=KNOWN)), settings=settings
    ).run()
    assert (artifact.outcome, shop.project.log, shop.project.status) == ("failed", [], "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "told", "untold"),
    [
        (GreenSettings(style="minimal"), "simplest correct code", "Write production code"),
        (GreenSettings(style="standard"), "Write production code", "simplest correct code for what"),
        (GreenSettings(style="comprehensive"), "Write complete code", "Write production code"),
        (GreenSettings(include_docstrings=True), "- Write docstrings", "Write no docstrings"),
        (GreenSettings(include_docstrings=False), "Write no docstrings", "- Write docstrings"),
        (GreenSettings(include_type_hints=True), "Annotate new code", "Write no type annotations"),
        (GreenSettings(include_type_hints=False), "Write no type annotations", "Annotate new code"),
    ],
)
def test_style_docstrings_and_type_hints_are_what_the_model_is_asked_for(
    shop: Shop, *, settings: GreenSettings, told: str, untold: str
) -> None:
    green = shop.green(model=plays(), settings=settings)
    item = Wanted(targets=(TOTAL,))
    work = item.make_request(_failing(shop), now="", head="").make_item(item.slug)
    brief = green.context.brief(work, "green", context=green.context)
    assert told in brief.rules
    assert untold not in brief.rules


def _failing(shop: Shop) -> SuiteReport:
    context = shop.green(model=plays()).context
    context.workplace.begin()
    run = context.suite.run((TOTAL,))
    assert run.report is not None
    return run.report


@pytest.mark.slow
@pytest.mark.parametrize("tells", [True, False])
def test_run_after_each_file(shop: Shop, *, tells: bool) -> None:
    settings = replace(THREE, run_after_each_file=tells)
    reads_and_writes = replace(MENDS, content=MENDS.content[:-1])
    model = plays(reads_and_writes, replace(MENDS, content=MENDS.content[-1:]))
    assert shop.green(model=model, settings=settings).run().error is None
    answers = str(model.requests[1].messages[-1])
    assert ("Results of the tests to pass: 1 passed" in answers) == tells


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_run_specific_test_first(shop: Shop, *, first: bool) -> None:
    settings = replace(THREE, run_after_each_file=False, run_specific_test_first=first)
    assert shop.green(model=plays(FALLS_SHORT, MENDS), settings=settings).run().error is None
    baseline, *judged = targets_of_runs(shop)
    assert baseline == ()
    assert judged == ([(TOTAL,), (TOTAL,), ()] if first else [(), ()])


@pytest.mark.slow
@pytest.mark.parametrize("full", [True, False])
def test_full_suite_on_completion(shop: Shop, *, full: bool) -> None:
    settings = replace(THREE, max_iterations=1, run_after_each_file=False, full_suite_on_completion=full)
    breaks = MENDED.replace("class Cart:", "class Basket:") + "\n\ndef Cart():\n    return Basket()\n"
    artifact = shop.green(model=plays(hands_in({"cart.py": breaks}, known=KNOWN)), settings=settings).run()
    told = [event.text for event in shop.project.seen if isinstance(event, Notice)]
    is_told = any("the gate runs only the tests of tests/test_cart.py" in text for text in told)
    if full:
        assert (artifact.outcome, is_told) == ("failed", False)
        assert "broke_others: tests/test_other.py::test_is_a_class" in str(artifact.error)
    else:
        assert (artifact.outcome, artifact.scope, is_told) == ("green", "target_files", True)
        assert {run for run in targets_of_runs(shop)} == {(TOTAL,), ("tests/test_cart.py",)}


@pytest.mark.slow
def test_tests_that_are_all_there_are_run_once_for_the_gate(make_shop: MakeShop) -> None:
    tests = "from cart import Cart\n\n\ndef test_total():\n    assert Cart().total() is not None\n"
    broken = CART.replace("return 0", "return None")
    shop = make_shop({"cart.py": broken, "tests/test_cart.py": tests})
    mends = hands_in({"cart.py": CART}, known={"cart.py": broken})
    settings = replace(THREE, run_after_each_file=False)
    assert shop.green(["tests"], model=plays(mends), settings=settings).run().outcome == "green"
    assert targets_of_runs(shop) == [(), ()]
