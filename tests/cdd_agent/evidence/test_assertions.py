"""Assertions that an empty result skips, and calls that are awaited."""

import ast

import pytest

from cdd_agent.evidence.assertions import fail_when_asserting, find_awaited_names

CASES = {
    "for each in f(): assert each": "for each in f():\n    assert False",
    "while f(): self.assertEqual(1, 2)": "while f():\n    assert False",
    "if f(): assert each": "if f():\n    assert False",
    "assert all(each for each in f())": "assert all((False for each in f()))",
    "assert not any([each for each in f()])": "assert not any([True for each in f()])",
    "for each in own(): assert each": "for each in own():\n    assert False",
    "for each in f(): pass": None,
    "assert f()": None,
    "for each in f(): assert each\n    with raises(KeyError): f()": None,
    "for each in f(): assert each\n    seen.assert_called_once()": None,
    "for each in f(): assert each\n    judge(f)": None,
    "for each in f(): assert each\n    other(f)": None,
    "for each in f(): assert each\n    given(f)": None,
}
"""Body of a test -> what becomes of it; None: it may judge elsewhere too."""


@pytest.mark.parametrize("body", CASES)
def test_assertions_fail_where_an_empty_result_skips_them(body: str) -> None:
    helpers = "from product import f\nfrom tests.tools import other\ndef own(): return f()\ndef judge(f): assert f\n"
    text = f"{helpers}def test_it(self, given, seen):\n    {body}\n"
    found = fail_when_asserting(text, {"test_it"}, is_harmless=lambda name: name == "product.f")
    wanted = CASES[body]
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert ast.unparse(ast.parse(found).body[-1].body).endswith(wanted)  # type: ignore[attr-defined]


def test_no_other_function_is_altered() -> None:
    text = "def test_old():\n    assert 1\ndef test_it():\n    for each in []: assert each\n"
    found = fail_when_asserting(text, {"test_it"}, is_harmless=bool)
    assert found is not None
    assert found.startswith("def test_old():\n    assert 1\n")
    assert fail_when_asserting("def test_it(:", {"test_it"}, is_harmless=bool) is None


def test_calls_that_are_awaited_or_run_are_found() -> None:
    text = "async def use():\n    await queue.put(1)\nasyncio.run(drain())\nasyncio.gather(one(), two())\nother()\n"
    assert find_awaited_names([ast.parse(text)]) == {"put", "drain", "one", "two"}
