"""Values that travel as nodes, their variations, and answers as text."""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdd_agent.testrun.inside import answers, values
from cdd_agent.testrun.inside.answers import answer
from cdd_agent.testrun.inside.values import (
    Encoder,
    Unfit,
    build,
    describe,
    held,
    show,
    use_earlier,
    vary,
    vary_calls,
    vary_functions,
)
from tests.cdd_agent.evidence.requests import tell_answer
from tests.fakes.cases import soak_after

SIMPLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Stack:
    @property
    def size(self) -> int:
        return 0

    @functools.cached_property
    def depth(self) -> int:
        return len(self._items)

    @property
    def _items(self) -> list[int]:
        return vars(self).setdefault("_all", [])  # type: ignore[no-any-return]

    def push(self, item: int) -> None:
        self._items.append(item)

    def count(self) -> int:
        return self.depth

    @classmethod
    def make(cls, count: int) -> str:
        return cls.__name__ * count

    @staticmethod
    def twice(number: int) -> int:
        return number * 2


class Unsized(Stack):
    @property
    def size(self) -> int:
        return 1 // 0


def node_of(value: object) -> list[object]:
    return json.loads(json.dumps(Encoder({}).encode(value)))  # type: ignore[no-any-return]


def call(name: str, *args: object, **named: object) -> dict[str, object]:
    nodes = {key: node_of(value) for key, value in named.items()}
    made = {"module": __name__, "name": name, "args": [node_of(value) for value in args], "named": nodes}
    return {**made, "is_recorded": False, "is_start": False}


@settings(max_examples=50)
@given(SIMPLE)
def test_a_value_is_rebuilt_from_its_node(value: object) -> None:
    assert build(node_of(value)) == value


@settings(max_examples=30, deadline=None)
@given(SIMPLE)
def test_variations_can_be_built_and_shown(value: object) -> None:
    for node in itertools.islice(vary(node_of(value), [3, 0.5, "word"]), 40):
        describe(build(node))
        show({"name": "f", "args": [node], "named": {}})


def name_kind(value: object) -> str:
    """What identifies a case; an object's text may hold its address."""
    return type(value).__name__


@pytest.mark.parametrize(
    "value",
    [
        Color.BLUE,
        Point(1, 2),
        decimal.Decimal("1.50"),
        datetime.date(2026, 1, 31),
        datetime.timedelta(days=3),
        collections.deque([1, 2]),
        collections.OrderedDict(a=1),
        range(3),
        {1, 2},
        frozenset("a"),
        len,
        Point,
    ],
    ids=name_kind,
)
def test_library_and_project_values_are_rebuilt(value: object) -> None:
    assert build(node_of(value)) == value


def test_an_iterator_is_encoded_without_reading_it() -> None:
    iterator = iter([1, 2])
    assert list(build(node_of(iterator))) == [1, 2]
    assert list(iterator) == [1, 2]


@pytest.mark.parametrize("value", [(i for i in "a"), "x" * 40_000, [0] * 400, 10**400], ids=name_kind)
def test_what_cannot_be_rebuilt_or_is_large_is_refused(value: object) -> None:
    with pytest.raises((Unfit, AttributeError, TypeError)):
        node_of(value)


def test_a_function_without_a_name_is_rebuilt_with_copies_of_what_it_holds() -> None:
    seen = [1]
    held.clear()
    add = build(node_of(lambda each, times=2, *, more=3: seen.append(each * times + more)))
    add(5)
    add(5, more=0)
    assert (held, seen) == ([[1, 13, 10]], [1])
    built = build(node_of(seen.append))
    built(2)
    assert (held[-1], seen) == ([1, 2], [1])


def test_an_object_whose_steps_cannot_be_built_is_no_object_without_them() -> None:
    node = ["new", ["ref", "collections", "deque"], [], {}, [["append", [["ref", "of_the_tests", "missing"]], {}]]]
    with pytest.raises(ModuleNotFoundError):
        build(node)


def test_a_function_without_a_name_of_the_product_is_refused() -> None:
    with pytest.raises(Unfit):
        Encoder({}, product=(__file__,)).encode(lambda: 1)


def test_arguments_are_varied_by_type_and_by_constants_of_the_code() -> None:
    numbers = [build(each) for each in vary(["is", 7], [1000])]
    assert all(each in numbers for each in (0, 8, -7, 1000, 1001, 999, None))
    texts = [build(each) for each in vary(["is", "ab"], [5, "word"])]
    assert {"", "AB", "word", "abword", "ababa", "ababab", None} <= set(texts)
    lists = [build(each) for each in vary(node_of([1, 2]))]
    assert all(each in lists for each in ([], [1], [2], [2, 1], [1, 2, 1, 2], [0, 2], None))
    points = [build(each) for each in vary(node_of(Point(1, 2)))]
    assert Point(0, 2) in points
    assert Point(1, 0) in points
    assert [build(each) for each in vary(node_of(Color.RED))] == [Color.RED, Color.BLUE, None]


def test_calls_are_varied_in_one_argument_first_and_mixed() -> None:
    recorded = [call("f", 5, key="a"), call("f", 9, key="b")]
    varied = vary_calls(recorded, most=60)
    assert len(varied) == 60
    assert not any(each["is_recorded"] for each in varied)
    assert {"f(0, key='a')", "f(0, key='b')", "f(5, key='')", "f(9, key='a')"} <= {show(each) for each in varied[:8]}


@soak_after(1, ("functions", "each"), [(1, 1000), (30, 200), (300, 20)])
def test_many_functions_share_the_further_calls(*, functions: int, each: int) -> None:
    varied = vary_functions([[call("f", 5, key=[1, 2, 3])]] * functions)
    assert {len(calls) for calls in varied} == {each}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        ({3, 1, 2}, "{1, 2, 3}"),
        ({"b": 1, "a": [None, True]}, "{'b': 1, 'a': [None, True]}"),
        (Point(1), "Point(x=1, y=0)"),
        (Stack(), "Stack()"),
        (Color.RED, "Color.RED"),
        (ValueError("no", 1), "ValueError('no', 1)"),
        (iter([1, 2]), "iterator of [1, 2]"),
        ((i for i in (1, 2)), "iterator of [1, 2]"),
        (collections.Counter("aa"), "Counter({'a': 2})"),
        (decimal.Decimal("1.5"), "Decimal('1.5')"),
        (asyncio.sleep(0, result=5), "5"),
    ],
    ids=name_kind,
)
def test_a_value_is_described_by_its_structure(value: object, text: str) -> None:
    assert describe(value) == text


def test_an_attribute_that_the_other_tree_stores_is_described_with_its_value() -> None:
    values.computed.update(["size", "depth", "other"])
    try:
        assert describe(Stack()) == "Stack(depth=0, size=0)"
        assert describe(Unsized()) == "Unsized(depth=0, size=an exception)"
    finally:
        values.computed.clear()


def fail(kind: str) -> Iterator[int]:
    if kind == "stated":
        raise ValueError("no such kind")
    if kind == "sum":
        raise ValueError("no such kind" + kind.count("n"))  # type: ignore[operator]
    assert kind != "asserted", "no such kind"
    if kind == "explicit":
        raise AssertionError("no such kind")
    yield int(kind)


def open_file(path: str) -> str:
    return Path(path).read_text()


def change(items: list[int]) -> int:
    sys.stderr.write("changing")
    items.append(len(items))
    return items[-1]


def read_late(text: str) -> Iterator[int]:
    yield int(text)


@contextlib.contextmanager
def enter(number: int) -> Iterator[int]:
    yield number


class Enter:
    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *error: object) -> bool:
        return True


@contextlib.asynccontextmanager
async def enter_later(number: int) -> AsyncIterator[int]:
    yield number


SHARED = [1]


def share() -> list[int]:
    return SHARED


def add_pairs(pairs: list[tuple[int, int]]) -> int:
    return sum(first + second for first, second in pairs)


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def loop() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("change", [7]), "returns 1 and changes its arguments to ([7, 1]) and prints 'changing'"),
        (call("fail", "stated"), "returns a value that, when it is read, raises ValueError: no such kind"),
        (call("fail", "asserted"), "returns a value that, when it is read, raises AssertionError"),
        (call("fail", "explicit"), "returns a value that, when it is read, raises AssertionError: no such kind"),
        (call("fail", "sum"), "unfit: TypeError"),
        (call("fail", "4"), "returns iterator of [4]"),
        (call("open_file", "/no/file"), "raises OSError"),
        (call("fail", None), "unfit: TypeError"),
        (call("fail", 1, 2, 3), "unfit: TypeError"),
        (call("add_pairs", [()]), "unfit: ValueError"),
        ({**call("add_pairs", [()]), "is_recorded": True}, "raises ValueError"),
        (call("gone"), "missing"),
        (call("Stack.size", Stack()), "returns 0"),
        (call("Stack.make", Stack, 2), "returns 'StackStack'"),
        (call("Stack.twice", 4), "returns 8"),
        (call("read_late", "x"), "returns a value that, when it is read, raises ValueError"),
        (call("enter", 4), "returns <context manager>, which gives its block 4"),
        (call("enter_later", 4), "returns <context manager>, which gives its block 4"),
        (
            call("Enter", 4),
            "returns Enter(number=4), which gives its block 4, and if it is left by an exception and stops the "
            "exception",
        ),
        (call("Stack.count", Stack()), "returns 0"),
        ({**call("Point", 1), "is_start": True}, "returns Point(x=1, y=0), which cannot be hashed"),
        ({**call("Enter", 1, 2), "is_start": True}, "unfit: TypeError"),
        (call("share"), "returns [1] and returns [] after a caller has emptied it"),
        (call("loop"), "does not end within 0.05 s"),
        (call("wait", 0.1), "returns 0.1"),
        (call("wait", 9), "does not end within 0.05 s"),
    ],
    ids=name_kind,
)
def test_a_call_is_answered_by_its_outcome(
    made: dict[str, object], *, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_CALL_S", 0.05)
    monkeypatch.setattr(answers, "ROOT", __file__.rpartition("/")[0])
    assert tell_answer(answer(made)) == text


def test_a_call_is_shown_as_code() -> None:
    stack = ["new", ["ref", __name__, "Stack"], [], {}, [["push", [["is", 1]], {}]]]
    made = {"name": "Stack.pop", "args": [stack, node_of((1, [b"a"]))], "named": {"key": node_of({"a": 0.5})}}
    assert show(made) == "Stack().push(1).pop(tuple([1, [b'a']]), key={'a': 0.5})"


def test_a_method_is_also_called_before_something_else_happens_to_its_object() -> None:
    stack = ["new", ["ref", __name__, "Stack"], [], {}, [["push", [["is", 1]], {}], ["push", [["is", 2]], {}]]]
    emptied = [*stack[:4], [["clear", [], {}]]]
    used = list(use_earlier([{**call("Stack.depth"), "args": [stack], "is_recorded": True}], [stack, emptied]))
    assert [show(each).removeprefix("Stack()") for each in used] == [
        ".depth().push(1).push(2).depth()",
        ".push(1).depth().push(2).depth()",
        ".push(1).push(2).depth().push(1).depth()",
        ".push(1).push(2).depth().clear().depth()",
    ]
    assert [tell_answer(answer(each)) for each in used] == ["returns 0", "returns 1", "returns 2", "returns 2"]
    assert not any(each["is_recorded"] for each in used)
    assert list(use_earlier([call("share")], [stack])) == []


def test_a_value_of_the_standard_library_is_shown_as_its_own_text() -> None:
    made = call("change", datetime.date(2026, 1, 31), decimal.Decimal("1.50"))
    assert show(made) == "change(datetime.date(2026, 1, 31), Decimal('1.50'))"
    invalid = ["new", ["ref", "datetime", "date"], [["bytes", ""]], {}, []]
    assert show({**made, "args": [invalid]}) == "change(date(b''))"
