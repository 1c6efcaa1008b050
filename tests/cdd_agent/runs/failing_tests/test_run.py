import json
from dataclasses import replace
from typing import Any

import pytest

from cdd_agent.errors import ModelError, UsageError
from cdd_agent.events import Notice
from cdd_agent.git.repository import ROLLBACK
from cdd_agent.model.conversation import Request, Text
from cdd_agent.sandbox.port import Result
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.failing_tests.conftest import (
    CART,
    CARTS,
    MENDED,
    NEGATIVE,
    TESTS,
    THREE,
    TOTAL,
    MakeShop,
    Shop,
    plays,
)
from tests.cdd_agent.runs.failing_tests.exercised.task import hands_in
from tests.fakes.cases import soak_after
from tests.fakes.ledger import check_ledger
from tests.fakes.model import call, says

KNOWN = {"cart.py": CART}
MENDS = hands_in({"cart.py": MENDED}, known=KNOWN)
FALLS_SHORT = hands_in({"cart.py": CART.replace("return 0", "return 1")}, known=KNOWN)


def test_the_test_passes_and_only_the_code_is_committed(shop: Shop) -> None:
    shop.project.write({"tests/test_mine.py": "def test_mine():\n    pass\n"})
    green = shop.green(model=plays(MENDS))
    artifact = green.run()
    check_ledger(shop.project.repository, green.ticket.state_path)
    assert artifact.error is None
    assert (artifact.outcome, artifact.iterations, artifact.scope) == ("green", 1, "all")
    assert shop.project.log == ["fix: make test_total pass"]
    assert shop.project.status == "?? tests/test_mine.py"
    assert artifact.implementation_files.edited == ("cart.py",)
    note = json.loads(shop.project.git("notes", "--ref=tdd-handoffs", "show", "HEAD"))
    assert (note["phase"], note["nextPhase"], note["testResult"]) == ("GREEN", "COMPLETE", "PASS")


@pytest.mark.slow
def test_a_test_that_is_not_committed_is_no_obstacle_and_stays_as_it_is(shop: Shop) -> None:
    test = "from cart import Cart\n\n\ndef test_count():\n    assert Cart().count() == 0\n"
    shop.project.write({"tests/test_count.py": test})
    counts = f"{CART}\n    def count(self):\n        return len(self.prices)\n"
    model = plays(hands_in({"cart.py": counts}, known=KNOWN))
    assert shop.green(["tests/test_count.py"], model=model, evidence_timeout_s=30).run().error is None
    assert shop.project.log == ["feat: make test_count pass"]
    assert shop.project.git("show", "--format=", "--name-only") == "cart.py"
    assert shop.project.status == "?? tests/test_count.py"


@pytest.mark.slow
def test_the_next_attempt_sees_its_targets_only_and_the_next_run_what_was_refused(make_shop: MakeShop) -> None:
    shop = make_shop({**CARTS, "tests/test_old.py": "def test_old():\n    assert 'old' == 'failure'\n"})
    first = plays(FALLS_SHORT, FALLS_SHORT, FALLS_SHORT)
    assert shop.green(model=first).run().outcome == "failed"
    attempt = str(first.requests[1].messages[0])
    assert f"{TOTAL}: assertion" in attempt
    assert "test_old" not in attempt.partition("## This phase: GREEN")[2], "only the outline of the project has it"
    assert attempt.count(TESTS.splitlines()[-1].strip()) == 1, "the test file is quoted once"
    then = plays(MENDS)
    assert shop.green(model=then).run().error is None
    assert "An earlier try at this step was refused in GREEN" in str(then.requests[0].messages[0])
    assert "+        return 1" in str(then.requests[0].messages[0])


@pytest.mark.slow
def test_other_changes_are_refused_unless_they_are_allowed(shop: Shop) -> None:
    shop.project.write({"notes.txt": "mine\n"})
    with pytest.raises(UsageError, match=r"uncommitted changes.*\n  notes.txt\n"):
        shop.green(model=plays()).run()
    assert shop.green(model=plays(MENDS), allow_dirty=True).run().error is None
    assert shop.project.status == "?? notes.txt"


@soak_after(
    1,
    ("targets", "told"),
    [
        (["tests/test_other.py"], "tests/test_other.py already passes"),
        (["tests/test_cart.py::test_empty", TOTAL], "test_empty already passes"),
        (["tests/test_cart.py::test_tota"], "does not match a test that was run"),
    ],
)
def test_what_does_not_fail_is_refused_before_anything_is_done(shop: Shop, targets: list[str], told: str) -> None:
    model = plays()
    with pytest.raises(UsageError, match=told):
        shop.green(targets, model=model).run()
    assert model.requests == []
    assert shop.project.status == ""


@pytest.mark.slow
def test_a_test_that_a_run_of_all_tests_leaves_out_is_refused_before_the_model_works(make_shop: MakeShop) -> None:
    shop, model = make_shop({**CARTS, "tests/checks.py": TESTS}), plays()
    with pytest.raises(UsageError, match=r"leaves it out.*pytest looks for functions test_\*") as caught:
        shop.green(["tests/checks.py::test_total"], model=model).run()
    assert "full_suite_on_completion: false" in str(caught.value.hint)
    assert model.requests == []
    # The same command begins again: nothing is underway.
    with pytest.raises(UsageError, match="leaves it out"):
        shop.green(["tests/checks.py::test_total"], model=model).run()


@pytest.mark.slow
def test_completion_that_is_claimed_only_runs_the_gate(shop: Shop) -> None:
    claims = says("All tests pass.", call("CompleteImplementation", implementation_files=["cart.py"]))
    artifact = shop.green(model=plays(claims, FALLS_SHORT, MENDS)).run()
    assert (artifact.outcome, artifact.iterations) == ("green", 3)


@pytest.mark.slow
def test_the_next_message_says_what_fails_and_what_mends_such_failures(shop: Shop) -> None:
    model = plays(FALLS_SHORT, MENDS)
    shop.green(model=model).run()
    first, second = (str(request.messages[0].content) for request in model.requests)
    assert "def test_total():" in first
    assert "assertion (1): The result is wrong." in first
    assert f"{TOTAL}: assertion at " in second
    assert "assert 1 == 3" in second
    assert "The gate refused attempt 1:" in second
    assert f"Work: green {shop.green(model=model).ticket.slug} attempt 1" in first


@pytest.mark.slow
def test_a_test_that_is_broken_is_told_first_in_the_next_message(make_shop: MakeShop) -> None:
    shop = make_shop(
        {
            "a.py": "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n",
            "tests/test_f.py": "from a import f\n\n\ndef test_f():\n    assert f(-1) == 1\n",
            "tests/test_g.py": "from a import g\n\n\ndef test_g():\n    assert g(-1) == -1\n",
        }
    )
    known = {"a.py": ""}
    breaks = "def f(x):\n    return abs(x)\n\n\ndef g(x):\n    return f(x)\n"
    model = plays(
        hands_in({"a.py": breaks}, known=known),
        hands_in({"a.py": breaks.replace("return f(x)", "return x")}, known=known),
    )
    artifact = shop.green(["tests/test_f.py"], model=model).run()
    assert (artifact.outcome, artifact.iterations) == ("green", 2)
    told = str(model.requests[1].messages[0].content)
    assert told.index("broke tests that passed before") < told.index("Make these tests pass")
    assert "tests/test_g.py::test_g passed before" in told


@pytest.mark.slow
def test_when_the_iterations_are_used_up_everything_is_as_before(shop: Shop) -> None:
    model = plays(FALLS_SHORT, hands_in({"cart.py": CART + "\n\nx = 1\n"}, known=KNOWN), FALLS_SHORT)
    artifact = shop.green(model=model).run()
    assert (artifact.outcome, artifact.iterations, artifact.commit) == ("failed", 3, None)
    assert "refused 3 times" in str(artifact.error)
    assert artifact.test_results.failed == 1
    assert (shop.project.folder / "cart.py").read_text() == CART
    assert (shop.project.log, shop.project.status) == ([], "")


@pytest.mark.slow
def test_a_run_that_stops_before_its_iterations_are_used_up_says_why(shop: Shop) -> None:
    settings = replace(THREE, max_iterations=20)
    artifact = shop.green(model=plays(FALLS_SHORT, FALLS_SHORT, FALLS_SHORT), settings=settings).run()
    assert artifact.iterations == 3
    assert str(artifact.error).startswith(
        "GREEN was refused 3 times (the last 3 with the same failures); the last reasons: "
    )


@pytest.mark.slow
def test_nothing_begins_while_a_rollback_of_an_earlier_version_is_unfinished(shop: Shop) -> None:
    shop.project.git("update-ref", ROLLBACK, "HEAD")
    with pytest.raises(UsageError, match="a rollback by an earlier version of cdd is in progress"):
        shop.green(model=plays(MENDS)).run()


@pytest.mark.slow
def test_a_model_that_gives_up_is_not_asked_again_and_nothing_stays(shop: Shop) -> None:
    gives_up = says(call("ReportBlocked", why="test_is_wrong", reason="1 + 2 is 3 in tests only."))
    artifact = shop.green(model=plays(gives_up)).run()
    assert (artifact.outcome, artifact.iterations) == ("blocked", 1)
    assert "1 + 2 is 3 in tests only." in str(artifact.error)
    assert shop.project.status == ""


def test_an_interrupted_run_is_gone_on_with_by_the_same_command(shop: Shop) -> None:
    with pytest.raises(ModelError):
        shop.green(model=plays(FALLS_SHORT, ModelError("busy", hint="wait"))).run()
    assert shop.project.status == ""
    again = shop.green(model=plays(MENDS))
    artifact = again.run()
    assert (artifact.outcome, artifact.iterations) == ("green", 2)
    assert any(
        "Continuing the interrupted run" in event.text for event in shop.project.seen if isinstance(event, Notice)
    )
    assert shop.saved(again).status == Status.COMPLETED


def test_the_first_attempt_of_a_run_continues_its_files_and_its_usage(shop: Shop) -> None:
    half = says(call("Read", file_path="cart.py"), call("Write", file_path="cart.py", content=MENDED))
    with pytest.raises(ModelError):
        (stopped := shop.green(model=plays(half, ModelError("busy", hint="wait")))).run()
    before = shop.saved(stopped)
    model = plays(says(call("CompleteImplementation", implementation_files=[])))
    again = shop.green(model=model)
    artifact = again.run()
    after = shop.saved(again)
    assert before.usage.calls > 0
    assert (after.started_at, after.usage.calls) == (before.started_at, before.usage.calls + 1)
    assert after.execution(1).usage.calls == after.usage.calls
    assert (artifact.outcome, artifact.iterations) == ("green", 1)
    assert "Your earlier, interrupted work is in the files." in str(model.requests[0].messages)


@pytest.mark.slow
def test_an_interrupted_run_can_be_begun_anew(shop: Shop) -> None:
    with pytest.raises(ModelError):
        shop.green(model=plays(FALLS_SHORT, ModelError("busy", hint="wait"))).run()
    artifact = shop.green(model=plays(MENDS), anew=True).run()
    assert (artifact.outcome, artifact.iterations) == ("green", 1)


@pytest.mark.slow
def test_a_finished_run_is_no_obstacle_to_another_on_the_same_test(shop: Shop) -> None:
    assert shop.green(model=plays(MENDS)).run().error is None
    shop.project.write({"cart.py": CART})
    shop.project.git("commit", "-qam", "back")
    again = shop.green(model=plays(MENDS))
    assert again.run().error is None
    assert shop.project.log[-1] == "fix: make test_total pass"
    assert shop.saved(again).execution(1).attempts[0].number == 1


@pytest.mark.slow
def test_the_files_are_prepared_once_for_the_check_of_the_targets_and_the_work(shop: Shop) -> None:
    prepared = []

    def set_up() -> Result:
        prepared.append(1)
        return Result(exit_status=0, head="", dropped_bytes=0, timed_out=False, duration_s=0, level="none")

    run = shop.green(model=plays(MENDS))
    run.context.workplace.setup = set_up
    assert run.run().error is None
    assert prepared == [1]


def test_the_model_is_told_the_purpose_of_the_tests_and_their_order_after_an_interruption_too(shop: Shop) -> None:
    words: dict[str, Any] = {
        "goal": "Shops add prices.",
        "criteria": ["WHEN a price is negative THE SYSTEM SHALL raise ValueError"],
    }
    targets, model = (NEGATIVE, TOTAL), plays(FALLS_SHORT, ModelError("busy", hint="wait"))
    with pytest.raises(ModelError):
        shop.green(targets, model=model, **words).run()
    again = plays(MENDS, ModelError("busy", hint="wait"))
    with pytest.raises(ModelError):
        shop.green(targets, model=again).run()
    anew = plays(MENDS, ModelError("busy", hint="wait"))
    with pytest.raises(ModelError):
        shop.green(targets, model=anew, goal="Shops sum up prices.", anew=True).run()
    for request in (model.requests[0], again.requests[0]):
        text = said_to(request)
        assert "Shops add prices." in text
        assert "- AC-1: WHEN a price is negative" in text
        assert "in the order in which they are listed" in text
        assert text.index(f"- `{NEGATIVE}`") < text.index(f"- `{TOTAL}`")
        assert text.index(f"{NEGATIVE}: assertion") < text.index(f"{TOTAL}: assertion")
    assert "Shops sum up prices." in said_to(anew.requests[0])
    assert "AC-1" not in said_to(anew.requests[0]), "other words replace all of the earlier ones"


def said_to(request: Request) -> str:
    return "\n".join(block.text for block in request.messages[0].content if isinstance(block, Text))
