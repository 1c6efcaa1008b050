import pytest

from cdd_agent.events import Event, Notice, SuiteStarted
from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.evidence.stubs import NewTests, check_new_tests
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import leave_confirmed, tell
from tests.cdd_agent.evidence.steps import OLD_TEST, Step, report_of
from tests.fakes.cases import soak_after
from tests.fakes.suite import FakeSuite, no_report

FILE = "tests/test_product.py"
TARGET = f"{FILE}::test_it"


def asked(step: Step, *, sources: tuple[str, ...] = ("product.py",), passed: tuple[str, ...] = (OLD_TEST,)) -> NewTests:
    """What is asked of a RED that is in the work tree, after the gate's run."""
    report = step.suite.run().report
    assert report is not None
    return NewTests(report=report, baseline=report_of(passed), sources=sources, tree=step.red)


def found(step: Step, about: NewTests, seen: list[Event] | None = None) -> Findings:
    return leave_confirmed(check_new_tests(about, runs=step.runs(seen)), seen)


@soak_after(
    1,
    ("test", "runs_pytest"),
    [
        ("def test_it():\n    from product import add\n\n    add(1)\n", False),
        ("import product\n\n\ndef test_it():\n    assert True\n", True),
    ],
    ids=["asserts nothing", "asserts nothing of it"],
)
def test_a_test_that_passes_once_its_module_is_there_is_refused_and_named(
    test: str, make: Make, *, runs_pytest: bool
) -> None:
    step = make({FILE: test}, {}, runs_pytest=runs_pytest)
    (reason,) = found(step, asked(step)).reasons
    assert (reason.code, reason.nodeid) == ("vacuous_test", TARGET)
    assert explain(reason) == (
        f"{TARGET} passes with a stub of product.py, whether it answers 1009 or -1009 or 'cdd-wrong' or 0, so any code "
        "of that name would pass. "
        "Assert the value, exception or effect that the code must produce."
    )


@pytest.mark.slow
def test_names_that_are_missing_one_after_the_other_are_all_stood_in_for(make: Make) -> None:
    test = (
        "import old\nfrom old import half\n\n\ndef test_it():\n    from lib.sums import add\n\n"
        "    add(half(4), old.Third(9).value)\n    old.double(2, by=3)\n"
    )
    step, seen = make({FILE: test, "lib/__init__.py": ""}, {}), list[Event]()
    (reason,) = found(step, asked(step, sources=("old.py", "lib/sums.py")), seen).reasons
    assert "a stub of lib/sums.py, Third in old.py, double in old.py and 1 more" in explain(reason)
    runs = [event for event in seen if isinstance(event, SuiteStarted)]
    assert len(runs) == 10, "one for each name, four more answers, one that equals everything, one that acts"


def test_a_test_that_judges_costs_one_run_and_nothing_in_the_work_tree(make: Make) -> None:
    test = "from product import add\n\n\ndef test_it():\n    assert add(1, 2) == 3\n"
    step, seen = make({FILE: test}, {}), list[Event]()
    root = step.repository.root
    about = asked(step)

    def state() -> tuple[object, ...]:
        files = {p: p.read_bytes() for p in root.rglob("*") if p.is_file() and "objects" not in p.parts}
        return files, step.repository.git("for-each-ref")

    before = state()
    assert found(step, about, seen) == Findings()
    assert state() == before
    run, told = seen
    assert isinstance(run, SuiteStarted)
    assert (run.purpose, run.targets) == ("new tests with stubs", (FILE,))
    assert isinstance(told, Notice)
    assert told.text.startswith("Checked with a stub of product.py: a new test fails there too (1 run, ")


@soak_after(
    1,
    "body",
    [
        "assert add(1, 2) == add(2, 1)",
        "assert add.__name__ == 'add'",
        "assert 'def add(' in pathlib.Path('product.py').read_text()",
        "for each in add(1):\n        each.close()",
    ],
    ids=["compares with itself", "looks at an attribute", "reads the source", "cannot use an answer"],
)
def test_a_test_that_no_wrong_answer_fails_is_refused(body: str, make: Make) -> None:
    step = make({FILE: f"import pathlib\n\nfrom product import add\n\n\ndef test_it():\n    {body}\n"}, {})
    (reason,) = found(step, asked(step)).reasons
    assert reason.code == "vacuous_test"


@soak_after(
    1,
    ("body", "is_refused", "runs"),
    [
        ("assert hasattr(old, 'add') and callable(old.add)", True, 7),
        ("assert 'add' in dir(old)\n    assert old.add(1, 2) == 3", False, 1),
        ("assert old.double(4) == 'add'", False, 0),
    ],
    ids=["asks whether it exists", "asks, and judges", "asks for nothing"],
)
def test_a_test_that_asks_whether_a_name_exists_runs_with_a_stub_of_it(
    body: str, make: Make, *, is_refused: bool, runs: int
) -> None:
    step, seen = make({FILE: f"import old\n\n\ndef test_it():\n    {body}\n"}, {}), list[Event]()
    reasons = found(step, asked(step, sources=("old.py",)), seen).reasons
    assert [reason.code for reason in reasons] == ["vacuous_test"] * is_refused
    assert len([event for event in seen if isinstance(event, SuiteStarted)]) == runs


@pytest.mark.slow
def test_a_test_that_asserts_that_nothing_happens_is_accepted_and_left_to_green(make: Make) -> None:
    step = make(
        {FILE: "from product import show\n\n\ndef test_it():\n    seen = []\n    show(seen)\n    assert not seen\n"}, {}
    )
    told = found(step, asked(step))
    assert told.reasons == ()
    (notice,) = tell(told)
    assert notice.startswith(
        f"{TARGET} passes with code that does nothing, but not with code that prints, logs or writes."
    )


@pytest.mark.slow
def test_what_a_stub_satisfies_by_chance_is_let_pass(make: Make) -> None:
    test = "from product import is_odd\n\n\ndef test_it():\n    assert not is_odd(4)\n"
    step = make({FILE: test}, {})
    assert found(step, asked(step)) == Findings()


def test_one_test_that_judges_speaks_for_the_others(make: Make) -> None:
    test = "from product import add\n\n\ndef test_it():\n    pass\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
    step = make({FILE: test}, {})
    assert found(step, asked(step)) == Findings()


@pytest.mark.slow
def test_old_tests_of_the_file_do_not_speak_for_a_new_one(make: Make) -> None:
    old = "def test_old():\n    assert 1 == 1\n"
    step = make({FILE: f"import product\n\n\n{old}\n\ndef test_it(number=1):\n    product.add(number)\n"}, {})
    (reason,) = found(step, asked(step, passed=(OLD_TEST, f"{FILE}::test_old"))).reasons
    assert reason.nodeid == TARGET


@pytest.mark.slow
def test_what_only_says_that_it_is_not_implemented_is_missing_too(make: Make) -> None:
    code = "class Sums:\n    def add(self, a, b):\n        raise NotImplementedError\n"
    test = "from product import Sums\n\n\ndef test_it():\n    Sums().add(1, 2)\n"
    step = make({FILE: test, "product.py": code}, {})
    (reason,) = found(step, asked(step)).reasons
    assert "Sums.add in product.py" in explain(reason)


UNKNOWN = {
    "cdd cannot create a stub of product": "import product\n\n\ndef test_it():\n    pass\n",
    "more names are missing than 5 runs show": (
        f"from old import {', '.join(f'f{n}' for n in range(9))}\n\n\ndef test_it():\n    pass\n"
    ),
}


@soak_after(1, "why", UNKNOWN)
def test_what_cannot_be_found_out_is_told_and_refuses_nothing(why: str, make: Make) -> None:
    step = make({FILE: UNKNOWN[why]}, {})
    told = found(step, asked(step, sources=("old.py",)))
    assert told.reasons == ()
    assert tell(told) == (f"Not checked whether the new tests pass with code that does nothing: {why}.",)


@pytest.mark.slow
def test_a_run_with_stubs_that_does_not_end_refuses_nothing(make: Make) -> None:
    step = make({FILE: "import old\n\n\ndef test_it():\n    while not old.is_done():\n        pass\n"}, {})
    about = asked(step, sources=("old.py",))
    assert isinstance(step.suite, FakeSuite)
    step.suite.answers.append(no_report("the tests did not end within 5 s"))
    assert tell(found(step, about)) == (
        "Not checked whether the new tests pass with code that does nothing: a run with stubs did not end.",
    )


def test_without_time_there_are_no_runs_and_with_too_little_a_notice(make: Make) -> None:
    step, seen = make({FILE: "import product\n\n\ndef test_it():\n    pass\n"}, {}), list[Event]()
    about = asked(step)
    assert check_new_tests(about, runs=step.runs(seen, limit_s=0)) == Findings()
    (notice,) = tell(check_new_tests(about, runs=step.runs(seen, limit_s=0.5)))
    assert notice.startswith("Not verified: the time for checks ended before new tests with stubs (0.5 s")
    assert seen == []


def test_tests_that_fail_for_another_reason_are_not_run_again(make: Make) -> None:
    step, seen = make({FILE: "def test_it():\n    assert False\n"}, {}), list[Event]()
    assert found(step, asked(step), seen) == Findings()
    assert seen == []


@soak_after(0, "body", ["assert add(0, 0) is not None", "assert not isinstance(add(), type(None))", "assert add()"])
def test_a_test_that_asks_whether_it_got_something_is_accepted(body: str, make: Make) -> None:
    step = make({FILE: f"from product import add\n\n\ndef test_it():\n    {body}\n"}, {})
    assert found(step, asked(step)) == Findings()


@soak_after(
    0,
    ("body", "type_name"),
    [
        ("found = add(1)\n    assert isinstance(found, str) and found is not None", "str"),
        ("assert type(add()) is bool", "bool"),
        ("assert isinstance(add(), (Mapping, int))", "dict"),
        ("assert hasattr(add(), 'close')", "int"),
    ],
)
def test_a_test_that_any_value_of_the_right_type_passes_is_refused(body: str, type_name: str, make: Make) -> None:
    source = f"from collections.abc import Mapping\n\nfrom product import add\n\n\ndef test_it():\n    {body}\n"
    step = make({FILE: source}, {})
    (reason,) = found(step, asked(step)).reasons
    assert reason.code == "vacuous_test"
    assert f"passes with a stub of product.py, whatever {type_name} it answers, so" in explain(reason)


@soak_after(
    1,
    "body",
    [
        "found = add(1)\n    assert isinstance(found, str) and found == 'one'",
        "assert isinstance(add(), bool) and add()",
        "found = add()\n    assert isinstance(found, list)\n    assert [each * 2 for each in found] == [2]",
    ],
)
def test_a_test_that_asks_for_the_type_and_the_value_is_accepted(body: str, make: Make) -> None:
    step = make({FILE: f"from product import add\n\n\ndef test_it():\n    {body}\n"}, {})
    assert found(step, asked(step)) == Findings()


@soak_after(
    1,
    "body",
    [
        "for token in f('a b'):\n        assert token.kind in {'word', 'space'}",
        "for word, number in f('a b').items():\n        assert number == 1",
        "assert all(each.kind in {'a', 'b'} for each in f('x'))",
        "assert not any(each.kind == 'a' for each in f('x'))",
        "found = f('x')\n    if found:\n        assert found.name == 'x'",
    ],
)
def test_a_test_that_an_empty_result_passes_without_an_assertion_is_refused(body: str, make: Make) -> None:
    step = make({FILE: f"from product import f\n\n\ndef test_it():\n    {body}\n"}, {})
    (reason,) = found(step, asked(step)).reasons
    assert (reason.code, reason.nodeid) == ("vacuous_test", TARGET)
    assert explain(reason).startswith(f"{TARGET} runs no assertion if a stub of product.py returns empty results, so ")


@soak_after(
    1,
    "body",
    [
        "for given, wanted in [(1, 2), (4, 8)]:\n        assert f(given) == wanted",
        "found = f('a b')\n    assert len(found) == 3\n    for each in found:\n        assert each.kind in {'a', 'b'}",
        "for each, wanted in zip(f(3), [1, 2], strict=True):\n        assert each == wanted",
        "for each in f('x'):\n        assert each.kind in {'a'}\n    compare(f)",
        "seen = []\n    f(seen)\n    for each in seen:\n        assert each.kind in {'a'}",
    ],
)
def test_a_test_that_an_empty_result_fails_is_accepted(body: str, make: Make) -> None:
    helper = "def compare(f):\n    assert f('x').names == {'x'}\n"
    step = make({FILE: f"from product import f\n\n\n{helper}\n\ndef test_it():\n    {body}\n"}, {})
    assert found(step, asked(step)).reasons == ()


@soak_after(
    0,
    ("body", "is_refused"),
    [
        ("asyncio.run(drain())\n    assert drain()", True),
        ("asyncio.run(drain())\n    assert drain() is not None", True),
        ("assert asyncio.run(drain())", False),
        ("assert asyncio.run(drain()) == [1]", False),
    ],
)
def test_a_coroutine_that_nobody_awaits_is_no_result(body: str, *, is_refused: bool, make: Make) -> None:
    step = make({FILE: f"import asyncio\n\nfrom product import drain\n\n\ndef test_it():\n    {body}\n"}, {})
    assert [reason.code for reason in found(step, asked(step)).reasons] == ["vacuous_test"] * is_refused
