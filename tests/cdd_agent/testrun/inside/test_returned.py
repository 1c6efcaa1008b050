"""Calls of what a call returns, also with stand-ins for the function of a decorator."""

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cdd_agent.testrun.inside.answers import answer
from cdd_agent.testrun.inside.returned import follow_calls
from cdd_agent.testrun.inside.values import describe, show
from tests.cdd_agent.evidence.requests import tell_answer
from tests.cdd_agent.testrun.inside.test_calls import call, node_of

if TYPE_CHECKING:
    from cdd_agent.testrun.inside.returned import Level


def at_most(times: int) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        count = 0

        @functools.wraps(function)
        def wrapper(*args: object, **named: object) -> object:
            nonlocal count
            if count >= times:
                raise RuntimeError("called too often")
            count += 1
            return function(*args, **named)

        return wrapper

    return decorate


def cell(value: int) -> tuple[Callable[[], int], Callable[[int], None]]:
    def read() -> int:
        return value

    def write(new: int) -> None:
        nonlocal value
        value = new

    return read, write


def negate(check: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *args: not check(*args)


def is_even(number: int) -> bool:
    return number % 2 == 0


async def fetch(name: str) -> str:
    return name


class _Box:
    def read(self) -> None:
        pass


def step(*args: object, at: int | None = None) -> list[object]:
    return [[node_of(each) for each in args], {}, at]


def stand_in(answer: str, name: str) -> list[object]:
    return [[["stand-in", answer, False, name]], {}, None]


@pytest.mark.parametrize(
    ("name", "args", "levels", "text"),
    [
        ("cell", [3], [[step(at=0), step(5, at=1), step(at=0)]], "returns [3, None, 5]"),
        ("cell", [3], [[step()]], "unfit: TypeError"),
        ("is_even", [3], [[step()]], "unfit: returns no function"),
        ("negate", [is_even], [[step(3), step(4)]], "returns [True, False]"),
        (
            "at_most",
            [1],
            [[stand_in("text", "first"), stand_in("error", "second")], [step(7), step(8)]],
            "returns [<function first>, <function second>] and then ['first of (7) and {}', "
            "raises ValueError: second fails, raises RuntimeError: called too often, "
            "raises RuntimeError: called too often] and calls functions that then hold [[7]], [[7]]",
        ),
    ],
)
def test_functions_that_a_call_returns_are_called_in_turn(
    name: str, args: list[object], *, levels: "list[Level]", text: str
) -> None:
    assert tell_answer(answer({**call(name, *args), "module": __name__, "then": levels})) == text


def follow(name: str, *args: object, inner: "dict[int, Level]") -> list[str]:
    made = {**call(name, *args), "module": __name__, "is_recorded": True}
    return [show(each) for each in follow_calls([made], inner, constants=[9])]


def test_recorded_calls_of_a_returned_function_are_repeated_and_varied() -> None:
    found = follow("cell", 3, inner={1: [step(at=20), step(5, at=30)]})
    assert found[0] == "cell(3), then (), (5), (), (5)"
    assert {"cell(3), then (), (9), (), (5)", "cell(9), then (), (5)"} <= set(found)


def test_the_function_of_a_decorator_is_replaced_by_stand_ins() -> None:
    assert follow("negate", is_even, inner={})[::3] == [
        "negate(first), then (3), (4), (3)",
        "negate(first), then (3), (3, key=4), (3, 4)",
        "negate(first), then (), ()",
    ]
    known = follow("at_most", 2, inner={1: [step(is_even)], 2: [step(6)]})
    assert known[:2] == [
        "at_most(2), then (is_even), then (6), (6)",
        "at_most(2), then (first), (second), then (6), (6)",
    ]
    imported = follow("at_most", 2, inner={2: [step(6)]})
    assert imported[0] == "at_most(2), then (first), (second), then (6), (6)"
    assert not any("stand" in each for each in follow("cell", 3, inner={}))


def test_the_stand_in_of_an_async_function_is_async() -> None:
    made = {**call("negate", fetch), "module": __name__, "is_recorded": True}
    (first, *_) = follow_calls([made], {}, constants=[])
    assert first["args"][0][:3] == ["stand-in", "text", True]


def test_what_only_its_maker_can_name_has_no_name() -> None:
    read, write = cell(1)
    wrapped = at_most(1)(is_even)
    values = [read, lambda: 1, _Box().read, wrapped, functools.cache(is_even), is_even, functools.partial(write, 3)]
    assert list(map(describe, values)) == [*["<function>"] * 3, *["<function is_even>"] * 2, "is_even", "partial(3)"]


def test_few_calls_follow_one_function() -> None:
    levels = {
        1: [step(is_even)],
        2: [step(number, at=line) for number, line in itertools.product((1, 2), (20, 30, 40))],
    }
    assert len(follow("at_most", 2, inner=levels)) < 700
