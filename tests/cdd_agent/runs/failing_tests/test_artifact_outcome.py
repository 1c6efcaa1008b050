"""What is told of a run: its files, its components, its last tests; and a part that is kept, whatever comes between."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.events import Committed, Emit, Event
from cdd_agent.tdd.context import Context
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.failing_tests.conftest import CART, MENDED, NEGATIVE, THREE, TOTAL, MakeShop, Shop, plays
from tests.cdd_agent.runs.failing_tests.exercised.task import hands_in

KNOWN = {"cart.py": CART}
MENDS = hands_in({"cart.py": MENDED}, known=KNOWN)
ONE = replace(THREE, max_iterations=1)


@pytest.mark.slow
def test_what_the_commit_adds_to_modules_is_named(make_shop: MakeShop) -> None:
    test = "from a import F, f\nfrom b import g\n\n\ndef test_f():\n    assert (f(), F().x, g()) == (1, 2, 3)\n"
    shop = make_shop({"a.py": "def old():\n    return 0\n", "tests/test_f.py": test})
    written = {
        "a.py": "def old():\n    return 0\n\n\ndef f():\n    return 1\n\n\nclass F:\n    x = 2\n",
        "b.py": "def g():\n    return 3\n",
    }
    artifact = shop.green(["tests/test_f.py"], model=plays(hands_in(written, known={"a.py": ""}))).run()
    assert (artifact.implementation_files.created, artifact.implementation_files.edited) == (("b.py",), ("a.py",))
    assert {(part.name, part.file_path, part.type) for part in artifact.components} == {
        ("f", "a.py", "function"),
        ("F", "a.py", "class"),
        ("g", "b.py", "function"),
    }


@pytest.mark.slow
def test_the_results_are_those_of_the_last_run_and_say_what_it_ran(shop: Shop) -> None:
    falls_short = hands_in({"cart.py": CART.replace("return 0", "return 1")}, known=KNOWN)
    artifact = shop.green(model=plays(falls_short), settings=ONE).run()
    (detail,) = artifact.test_results.test_details
    assert (detail.name, detail.status, detail.kind) == (TOTAL, "failed", "assertion")
    assert detail.message.startswith("assert 1 == 3")
    assert artifact.scope == "targets"
    judged_by_all = replace(ONE, run_specific_test_first=False)
    artifact = shop.green(model=plays(falls_short), settings=judged_by_all).run()
    assert (artifact.scope, artifact.test_results.total) == ("all", 4)
    results = artifact.test_results
    counts = Counter(each.status for each in results.test_details)
    assert (results.passed, results.failed, results.total) == (counts["passed"], counts["failed"], counts.total())
    assert (artifact.passing_tests, artifact.all_tests_pass) == (counts["passed"], False)


@pytest.mark.slow
def test_a_part_that_a_commit_hook_refuses_is_taken_back(shop: Shop) -> None:
    hook = shop.project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    artifact = shop.green([TOTAL, NEGATIVE], model=plays(MENDS), settings=ONE).run()
    assert artifact.outcome == "failed"
    assert "commit_refused" in str(artifact.error)
    assert (shop.project.log, shop.project.status) == ([], "")


@pytest.mark.slow
def test_a_part_is_landed_once_though_the_run_is_interrupted_right_after_its_commit(shop: Shop) -> None:
    def interrupting(context: Context) -> Context:
        return replace(context, emit=_interrupting(context.emit))

    green = shop.green([TOTAL, NEGATIVE], model=plays(MENDS), settings=ONE, adapt=interrupting)
    with pytest.raises(KeyboardInterrupt):
        green.run()
    assert shop.saved(green).status == Status.IN_PROGRESS
    artifact = shop.green([TOTAL, NEGATIVE], model=plays(), settings=ONE).run()
    assert (artifact.outcome, artifact.iterations) == ("partial", 1)
    assert len(shop.project.log) == 1
    assert Path(shop.project.folder / "cart.py").read_text() == MENDED
    assert shop.project.status == ""


def _interrupting(emit: Emit) -> Emit:
    """``emit``, until something is committed."""

    def tell(event: Event) -> None:
        emit(event)
        if isinstance(event, Committed):
            raise KeyboardInterrupt

    return tell
