import ast
import asyncio
import contextlib
import copy
import io
import math
from pathlib import Path

import pytest

from cdd_agent.evidence.stubs import Stubs, list_answers
from cdd_agent.testrun.inside.inert import Stub

INERT, EQUAL = Stubs(), Stubs(truth=True)
JUDGING = [
    "assert add(1, 2) == 3",
    "assert 3 == add(1, 2)",
    "assert add(1, 2) != 4",
    "assert not add(1, 2) == 4",
    "assert add(1, 2) > 2",
    "assert add(1, 2)",
    "assert not add(1, 2)",
    "assert add(1, 2) is None",
    "assert add(1, 2) is True",
    "assert add([1]) == [1]",
    "assert add(0.1, 0.2) == pytest.approx(0.3)",
    "assert math.isclose(add(0.1, 0.2), 0.3)",
    "assert len(add()) == 2",
    "assert len(add()) == 0",
    "assert list(add()) == []",
    "assert [*add()] == [1]",
    "assert 'x' in add()",
    "assert 'x' not in add()",
    "assert int(add(1, 2)) == 3",
    "assert str(add(1, 2)) == '3'",
    "assert f'{add(1, 2):.1f}' == '3.0'",
    "assert isinstance(add(1, 2), int)",
    "assert add.total == 5",
    "assert add().total == 5",
    "assert add()['total'] == 5",
    "assert add(1) + add(2) == 3",
    "assert 1 + add(2) == 3",
    "assert -add(1) == -1",
    "with pytest.raises(ValueError):\n    add(1)",
    "with pytest.raises(add):\n    add.two(1)",
    "with add():\n    assert False",
    "with add() as each:\n    assert each.total == 5",
    "for _ in range(3):\n    assert add(1) == 1",
    "calls = []\nadd(calls.append)\nassert calls == [1]",
    "class Mine(add):\n    x = 1\nassert Mine().x == 2",
    "async def later():\n    return await add()\nassert asyncio.run(later()) == 3",
    "out = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    add()\nassert out.getvalue() == '3'",
]
VACUOUS = [
    "assert True",
    "add(1, 2)",
    "assert add(1, 2) or True",
    "assert callable(add)",
    "assert hasattr(add, 'total')",
    "add().one.two(3)[4].five = 6",
    "add()[1] = 2\ndel add()[1]",
    "1 + add(2) * 3 ** add(4)",
    "for each in add():\n    each.one()",
    "with add() as each:\n    each.one()",
    "try:\n    add()\nexcept ValueError:\n    pass",
    "print(add(1), repr(add), {add: 1})",
    "if add(1) > 2:\n    add(2)",
    "class Mine(add):\n    x = 1\nassert Mine().x == 1",
    "add.shown = 5\nassert add.shown == 5",
    (
        "async def later():\n    async with add() as each:\n        async for other in each:\n            await other\n"
        "asyncio.run(later())"
    ),
]


SELF = [
    "from unittest.mock import patch\nwith patch.object(Calc, 'add', return_value=5) as add:\n"
    "    assert Calc.add(2) == 5\nadd.assert_called_once_with(2)",
    "assert add(1, 2) == add(2, 1)",
    "x = add(1)\nassert x == x",
    "assert len(add()) == len(add())",
    "assert sorted(add()) == sorted(add())",
    "assert add.total == add.total",
    "assert Calc().add(1) == Calc().add(1)",
    "async def later():\n    return await add(1)\nassert asyncio.run(later()) == asyncio.run(later())",
]
NOTHING = [
    "out = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    add()\nassert not out.getvalue()",
    "calls = []\nadd(lambda: calls.append(1))\nassert not calls",
    "calls = []\nadd(calls.append)\nassert not calls",
    "given = [1]\nadd(given)\nassert given == [1]",
    "given = {}\nadd(by=given)\nassert given == {}",
    "given = set()\nadd(given)\nassert not given",
]


def ends(source: str, *, stubs: Stubs) -> bool:
    """Whether the source passes as a test does in which ``add`` and ``Calc`` are stubs."""
    names = {"asyncio": asyncio, "contextlib": contextlib, "io": io, "math": math, "pytest": pytest}
    ended = False
    with contextlib.suppress(Exception, pytest.fail.Exception):
        made = {name: eval(f"Stub(name, {stubs.arguments})", {"Stub": Stub, "name": name}) for name in ("add", "Calc")}
        exec(source, {**names, **made})
        ended = True
    return ended


@pytest.mark.parametrize("source", JUDGING)
def test_what_judges_the_code_fails_with_one_of_two_stubs(source: str) -> None:
    assert not (ends(source, stubs=INERT) and ends(source, stubs=EQUAL))


@pytest.mark.parametrize("source", VACUOUS)
def test_what_judges_nothing_passes_with_both(source: str) -> None:
    assert ends(source, stubs=INERT)
    assert ends(source, stubs=EQUAL)


@pytest.mark.parametrize("source", JUDGING)
def test_what_judges_the_code_fails_with_a_wrong_answer(source: str) -> None:
    answers = (*list_answers([ast.parse(source)]), Stubs(answer=(None,)), EQUAL)
    assert not all(ends(source, stubs=stubs) for stubs in answers)


@pytest.mark.parametrize("source", SELF)
def test_what_compares_the_code_with_itself_passes_whatever_it_answers(source: str) -> None:
    assert all(ends(source, stubs=stubs) for stubs in (*list_answers([ast.parse(source)]), EQUAL))


@pytest.mark.parametrize("source", ["assert Calc(1, 2) == Calc(1, 2)", "assert add([1, 2]) == add([1]) + add([2])"])
def test_what_a_constant_would_not_do_is_no_comparison_with_itself(source: str) -> None:
    assert not all(ends(source, stubs=stubs) for stubs in (*list_answers([ast.parse(source)]), EQUAL))


@pytest.mark.parametrize("source", NOTHING)
def test_what_asserts_that_nothing_happens_fails_only_if_something_does(source: str, tmp_path: Path) -> None:
    assert ends(source, stubs=EQUAL)
    assert not ends(source, stubs=Stubs(truth=True, acts=True))
    exec("add(folder)", {"add": Stub("add", truth=True, acts=True), "folder": tmp_path})
    assert (tmp_path / "stub").exists()


def test_it_looks_ordinary_to_what_inspects_it() -> None:
    one = Stub("add", truth=False)
    assert not hasattr(one, "__wrapped__")
    assert one.total is one.total, "a test may patch what it got"
    assert copy.deepcopy(one) is not one
    assert one.__name__ == "add"
