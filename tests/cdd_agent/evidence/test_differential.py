"""Calls of changed functions, answered by the code before and after."""

import textwrap
from dataclasses import replace

import pytest

from cdd_agent.evidence.changed_code import find_changed_code, list_watched
from cdd_agent.evidence.clean_copy import Findings, ProductChange
from cdd_agent.evidence.differential import (
    Answer,
    ComparedTrees,
    describe,
    is_other_behavior,
    list_changed_behavior,
    refuse_changed_behavior,
)
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import tell
from tests.cdd_agent.evidence.steps import Step
from tests.fakes.cases import soak_after
from tests.fakes.suite import TrustedSandbox

PRICE = """\
import random


def price(amount, rate=0.2):
    total = amount * (1 + rate)
    if total > 1000:
        total = total - 50
    return round(total, 2)


def draw(count):
    return [random.random() for _ in range(min(count, 1000))]


class Basket:
    def __init__(self, prices):
        self._prices = prices

    def add(self, amount):
        self._prices.append(price(amount))

    def total(self):
        return sum(self._prices)
"""
TEST = """\
import shop


def test_price():
    assert shop.price(10) == 12
    assert shop.price(amount=10, rate=0.5) == 15


def test_draw():
    assert len(shop.draw(3)) == 3


def test_basket():
    basket = shop.Basket([1])
    basket.add(10)
    assert basket.total() == 13
"""


SMALL = PRICE[PRICE.index("def price") : PRICE.index("def draw")].rstrip() + "\n"
"""Only the first function. A test calls it once, which makes the quickest comparison."""
SMALL_TEST = "import shop\n\n\ndef test_price():\n    assert shop.price(10) == 12\n"


def compare(make: Make, before: str, after: str, *, test: str = TEST, is_green: bool = False) -> Findings:
    step = make({"shop.py": before, "tests/test_shop.py": test}, {"shop.py": after}, runs_pytest=True)
    return judge(step, is_green=is_green)


def judge(step: Step, *, is_green: bool = False, sandbox: Sandbox | None = None) -> Findings:
    compared = ComparedTrees(
        before=step.red,
        after=step.green,
        changes=step.request().changes,
        tests=("tests/test_shop.py", "tests/test_old.py"),
        records_after=is_green,
    )
    runs = replace(step, suite=step.suite.with_sandbox(sandbox or TrustedSandbox())).runs()
    judge_changes = list_changed_behavior if is_green else refuse_changed_behavior
    return judge_changes(compared, runs=runs)


@pytest.mark.slow
def test_an_honest_refactor_has_no_difference_whatever_it_renames(make: Make) -> None:
    after = """\
import random


def _discount(value):
    return value - 50 if value > 1000 else value


def price(amount, rate=0.2):
    return round(_discount(amount * (1 + rate)), 2)


def draw(count):
    numbers = []
    while len(numbers) < min(count, 1000):
        numbers.append(random.random())
    return numbers


class Basket:
    def __init__(self, prices):
        self._items = list(prices)

    def add(self, amount):
        self._items.append(price(amount))

    def total(self):
        total = 0
        for each in self._items:
            total += each
        return total
"""
    found = compare(make, PRICE, after)
    assert found.reasons == ()
    compared, unstable = tell(found)
    assert compared.startswith("Compared with the code before: ")
    assert compared.endswith(" calls of price, Basket.__init__, Basket.add, Basket.total have the same results.")
    assert unstable == (
        "Not compared with the code before: draw (the code before gives other results when it runs again)."
    )


TAKE = """\
def take(stock, name):
    if name not in stock:
        raise KeyError(name)
    return stock[name]


def number(lines, start=1):
    for line in lines:
        yield f"{start}: {line}"
        start += 1
"""
TAKE_TEST = """\
import shop


def test_take():
    assert shop.take({"nut": 3}, "nut") == 3


def test_number():
    assert list(shop.number(["x", "y"], 5)) == ["5: x", "6: y"]
"""


@pytest.mark.slow
def test_an_operation_may_raise_what_the_code_raised_and_may_come_earlier(make: Make) -> None:
    after = (
        "def take(stock, name):\n    return stock[name]\n\n\n"
        "def number(lines, start=1):\n    return (f'{at}: {line}' for at, line in enumerate(lines, start))\n"
    )
    found = compare(make, TAKE, after, test=TAKE_TEST)
    assert found.reasons == ()
    assert " calls of take, number have the same results." in tell(found)[0]


def test_a_changed_rule_of_one_function_is_refused_with_the_smallest_call(make: Make) -> None:
    (reason,) = compare(make, SMALL, SMALL.replace("> 1000", "> 500"), test=SMALL_TEST).reasons
    assert (reason.code, explain(reason)) == (
        "behavior_changed",
        "price(420) returns 504.0 before the change and returns 454.0 after it. "
        "REFACTOR keeps the behavior: restore it in shop.py:1.",
    )


@soak_after(
    0,
    ("old", "new", "place", "message"),
    [
        ("> 1000", "> 500", "shop.py:4", "price(490) returns 588.0 before the change and returns 538.0 after it"),
        (
            "sum(self._prices)",
            "max(self._prices)",
            "shop.py:22",
            "Basket([1]).add(10).total() returns 13.0 before the change and returns 12.0 after it",
        ),
    ],
)
def test_a_changed_rule_is_refused_with_the_smallest_call(
    make: Make, old: str, *, new: str, place: str, message: str
) -> None:
    found = compare(make, PRICE, PRICE.replace(old, new))
    assert [(reason.code, explain(reason)) for reason in found.reasons] == [
        ("behavior_changed", f"{message}. REFACTOR keeps the behavior: restore it in {place}.")
    ]


@pytest.mark.slow
def test_green_lists_what_else_it_changed(make: Make) -> None:
    test = f"{TEST}\n\ndef test_negative():\n    assert shop.price(-5) == 0\n"
    after = PRICE.replace(
        "    total = amount", "    amount = max(amount, 0) if amount != 50 else 7\n    total = amount"
    )
    found = compare(make, PRICE, after, test=test, is_green=True)
    assert found.reasons == ()
    assert tell(found) == ("Also changed: price(-1) returns -1.2 before the change and returns 0.0 after it.",)


def test_nothing_is_called_where_it_could_write_anywhere(make: Make) -> None:
    step = make({"shop.py": PRICE, "tests/test_shop.py": TEST}, {"shop.py": PRICE.replace("1000", "500")})
    assert tell(judge(step, sandbox=PlainSandbox())) == (
        "Not compared with the code before: that needs the sandbox bwrap or docker, because a call may write anywhere.",
    )
    assert judge(step, sandbox=PlainSandbox(), is_green=True) == Findings()


@pytest.mark.slow
def test_what_no_test_calls_is_named(make: Make) -> None:
    test = "def test_nothing():\n    pass\n"
    found = compare(make, PRICE, PRICE.replace("> 1000", "> 500"), test=test)
    assert tell(found) == (
        "Not compared with the code before: price (no test calls them with values that cdd can rebuild).",
    )


def test_comments_docstrings_and_format_change_no_code() -> None:
    old = "def double(x):\n    '''Double.'''\n    return x * 2\n"
    new = "def double(x):\n    return x*2  # twice\n"
    assert find_changed_code([ProductChange(path="a.py", old=old, new=new)]).names == frozenset()


def test_changed_code_is_found_in_classes_branches_and_tables() -> None:
    old = textwrap.dedent("""\
        import os
        RATES = [("a(b)c$", 1), ("d", 2)]
        if os.name:
            def one(): return 1
        else:
            def one(): return 2
        class Thing:
            limit = 3
            @property
            def size(self): return self.a
            @size.setter
            def size(self, value): self.a = value
            def __add__(self, other): return other
        """)
    new = old.replace('c$", 1', 'c$", 5').replace("return 2", "return 22").replace("= value", "= value + 1")
    new = new.replace("(self, other): return other", "(self, more): return more").replace("limit = 3", "limit = 4")
    code = find_changed_code([ProductChange(path="a.py", old=old, new=new)])
    assert code.functions == {("a.py", "one"): True, ("a.py", "Thing.size"): True, ("a.py", "Thing.__add__"): False}
    assert code.names == {"RATES", "one", "Thing", "size", "limit"}
    assert code.variables == {"RATES", "Thing", "limit"}
    assert {5, "abc", 22, 4} <= set(code.constants)


def test_attributes_that_become_properties_or_the_reverse_are_found() -> None:
    stored = textwrap.dedent("""\
        class Box:
            color: str = "red"
            def __init__(self, width):
                self.width, self.area, self._key = width, width * 2, 0
            @property
            def label(self): return self.color
        """)
    properties = "".join(
        f"    @property\n    def {name}(self): return 1\n" for name in ("area", "color", "_key", "new")
    )
    computed = f"class Box:\n    def __init__(self, width):\n        self.label = self.width = width\n{properties}"
    for old, new in ((stored, computed), (computed, stored)):
        code = find_changed_code([ProductChange(path="a.py", old=old, new=new)])
        assert code.computed == {"area", "color", "label"}
    assert find_changed_code([ProductChange(path="a.py", old=stored, new=stored + "# same")]).computed == frozenset()


def test_functions_that_use_changed_code_are_watched_too() -> None:
    old = "def _inner(x):\n    return x\n"
    code = find_changed_code([ProductChange(path="a.py", old=old, new=old.replace("return x", "return -x"))])
    user = "from a import _inner\n@cache\ndef outer(x):\n    return _inner(x)\ndef main():\n    return outer(1)\n"
    watched = list_watched(code, {"a.py": old, "b.py": f"{user}def other():\n    pass\n"})
    assert [(each.name, each.line, each.is_changed, each.counts_inside) for each in watched] == [
        ("_inner", 1, True, False),
        ("outer", 2, False, False),
        ("main", 5, False, False),
    ]


def test_functions_in_a_watched_function_are_listed_with_their_depth() -> None:
    old = "def outer(x):\n    @cache\n    def inner(y):\n        return lambda: x + y\n    return inner\n"
    code = find_changed_code([ProductChange(path="a.py", old=old, new=old.replace("x + y", "x - y"))])
    (watched,) = list_watched(code, {"a.py": old})
    assert watched.inner == ((2, 1), (4, 2))


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ((("returns", "1"),), (("returns", "1"),), False),
        ((("returns", "1"),), (("returns", "2"),), True),
        ((("returns", "1"),), (("endless", "1"),), True),
        ((("endless", "1"),), (("returns", "1"),), False),
        ((("returns", "Lock()"), ("gives", "1")), (("returns", "<context manager>"), ("gives", "1")), False),
        ((("returns", "<context manager>"), ("gives", "1")), (("returns", "Lock()"), ("gives", "1")), False),
        ((("returns", "Lock()"), ("gives", "1")), (("returns", "Gate()"), ("gives", "1")), True),
        ((("returns", "Lock()"), ("gives", "1")), (("returns", "<context manager>"), ("gives", "2")), True),
        ((("returns", "Lock()"),), (("returns", "<context manager>"),), True),
        ((("returns", "<function>"), ("called",)), (("returns", "Limit(count=1)"), ("called",)), False),
        ((("returns", "_Limit(count=1)"), ("called",)), (("returns", "<function>"), ("called",)), False),
        ((("returns", "Limit(count=1)"), ("called",)), (("returns", "<function>"), ("called",)), True),
        ((("returns", "_add"), ("called",)), (("returns", "_sum"), ("called",)), False),
        ((("returns", "<function>"), ("called",)), (("returns", "None"),), True),
        ((("returns", "<function>"), ("called",)), (("returns", "<function add>"), ("called",)), False),
        ((("returns", "<function add>"), ("called",)), (("returns", "<function>"), ("called",)), True),
        ((("returns", "[<function>] and then [3]"),), (("returns", "[<function add>] and then [3]"),), False),
        ((("returns", "[<function>] and then [3]"),), (("returns", "[<function>] and then [4]"),), True),
        ((("raises", "AssertionError"),), (("states", "AssertionError", "too low"),), False),
        (
            (("states", "AssertionError", "too low"), ("prints", "'x'")),
            (("raises", "AssertionError"), ("prints", "'x'")),
            False,
        ),
        ((("states", "AssertionError", "too low"),), (("states", "AssertionError", "too high"),), True),
        (
            (("raises", "AssertionError"), ("prints", "'x'")),
            (("states", "AssertionError", "too low"), ("prints", "'y'")),
            True,
        ),
    ],
)
def test_another_answer_is_another_behavior_unless_a_caller_does_not_see_it(
    old: Answer, new: Answer, *, is_other: bool
) -> None:
    assert is_other_behavior(old, new) is is_other


@pytest.mark.parametrize(
    "answer", [(), ((),), (("returns",),), (("states",),), (("s3cret",), ("returns", "1", "2", "3"))]
)
def test_an_answer_that_the_product_forged_is_compared_and_told_without_its_codes(answer: Answer) -> None:
    assert is_other_behavior(answer, (("returns", "7"),))
    assert not is_other_behavior(answer, answer)
    assert "s3cret" not in repr(describe(answer))
