""""""

import pytest

from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.evidence.literals import find_special_cases
from tests.cdd_agent.evidence.requests import request

TEST = """\
@pytest.mark.parametrize("text, wanted", [("12:30", 750), ("1:05", 65)])
def test_it(text, wanted):
    assert minutes(text) == wanted
"""
RULE = "    hours, rest = text.split(':')\n    return int(hours) * 60 + int(rest)\n"


@pytest.mark.parametrize(
    "body",
    [
        "    if text == '12:30':\n        return 750\n" + RULE,
        "    return 750 if text == '12:30' else 65\n",
        "    match text:\n        case '12:30':\n            return 750\n        case _:\n            return 65\n",
        "    if '12:30' == text:\n        found = 750\n    else:\n        found = 65\n    return found\n",
        "    if text in ('12:30', '1:05'):\n        return 750\n",
        "    if text == '12:30':\n        return 750\n    elif text == '1:05':\n        return 65\n" + RULE,
        "    known = {'12:30': 750, '1:05': 65}\n    if text in known:\n        return known[text]\n" + RULE,
        "    if text and text == '12:30' and len(text):\n        yield 750\n",
        "    for _ in range(1):\n        if text == '12:30':\n            return 750\n",
    ],
)
def test_a_branch_made_for_a_test_is_found(body: str) -> None:
    (reason, *_) = find_special_cases(request(f"def minutes(text):\n{body}", test=TEST)).reasons
    assert reason.code == "special_cased"
    assert "product.py:" in reason.message
    assert "'12:30'" in reason.message


@pytest.mark.parametrize(
    "body",
    [
        "    if text == '12:30':\n        return 750\n    if text == '1:05':\n        return 65\n    return text\n",
        "    match text:\n        case '12:30':\n            return 750\n        case '1:05':\n            return 65\n",
        "    return {'12:30': 750, '1:05': 65}[text]\n",
        "    known = {'12:30': 750, '1:05': 65}\n    return known.get(text, 0)\n",
        "    return int(KNOWN[text])\n\nKNOWN = {'12:30': 750, '1:05': 65}\n\ndef other(n):\n    return n * 60\n",
    ],
)
def test_a_table_of_all_examples_and_no_more_is_for_the_reviewer(body: str) -> None:
    found = find_special_cases(request(f"def minutes(text):\n{body}", test=TEST))
    assert found.reasons == ()
    (notice,) = found.notices
    assert "handles only the examples of the target tests" in notice


def test_a_condition_of_very_many_inputs_is_looked_at_in_part() -> None:
    many = " and ".join(f"{name} in {tuple(name + str(at) for at in range(40))}" for name in "abcd")
    code = f"def f(a, b, c, d):\n    if {many}:\n        return 'yes'\n"
    find_special_cases(request(code, test="def test_it(): assert f('a39', 'b39', 'c39', 'd39') == 'yes'\n"))


def test_constants_and_calls_are_looked_through() -> None:
    test = "def test_it(): assert total([3, 4]) == Decimal('7.50')\n"
    code = "MAGIC = [3, 4]\ndef total(items):\n    if items == MAGIC:\n        return Decimal('7.50')\n"
    assert len(find_special_cases(request(code, test=test)).reasons) == 1


@pytest.mark.parametrize(
    ("code", "test", "stated"),
    [
        pytest.param(f"def minutes(text):\n{RULE}", TEST, "", id="the rule"),
        pytest.param(
            "def fact(n):\n    if n == 0:\n        return 1\n    if n == 1:\n        return 1\n"
            "    return n * fact(n - 1)\n",
            "def test_it():\n    assert fact(0) == 1\n    assert fact(1) == 1\n    assert fact(5) == 120\n",
            "",
            id="base cases",
        ),
        pytest.param(
            "NAMES = {200: 'OK', 404: 'Not Found', 418: 'Teapot'}\ndef name(code): return NAMES[code]\n",
            "def test_it():\n    assert name(200) == 'OK'\n    assert name(404) == 'Not Found'\n",
            "",
            id="a table with more than is tested",
        ),
        pytest.param(
            "def rate(level):\n    if level == 'gold':\n        return 90\n    return 100\n",
            "def test_it(): assert rate('gold') == 90\n",
            "Customers of level gold pay 90 percent.",
            id="a constant of the ticket",
        ),
        pytest.param(
            "def sign(text):\n    if text == '+':\n        return 'plus'\n    return 'other'\n",
            "def test_it(): assert sign('+') == 'plus'\n",
            "",
            id="a single character",
        ),
        pytest.param(
            "def step(state, event):\n    if state == 'idle':\n        return 'busy'\n    elif state == 'busy':\n"
            "        return 'done'\n    return state\n",
            "def test_it(): assert step('idle', 'go') == 'busy'\n",
            "",
            id="a state machine with more than is tested",
        ),
        pytest.param(
            "def health():\n    return {'status': 'healthy'}\n",
            "def test_it(): assert health().get('status') == 'healthy'\n",
            "",
            id="a dict that is no table",
        ),
        pytest.param(
            "def grade(points):\n    if points >= 90:\n        return 'very good'\n    return 'good'\n",
            "def test_it(): assert grade(90) == 'very good'\n",
            "",
            id="a limit",
        ),
        pytest.param("def f(x:\n", TEST, "", id="a source of a newer Python"),
    ],
)
def test_an_honest_change_is_let_pass(code: str, test: str, stated: str) -> None:
    assert find_special_cases(request(code, test=test, stated=stated)) == Findings()


def test_a_branch_that_was_there_before_is_let_pass() -> None:
    old = "def minutes(text):\n    if text == '12:30':\n        return 750\n    return 65\n"
    assert find_special_cases(request(old.replace("65", "66"), old=old, test=TEST)) == Findings()


def test_the_order_of_fields_and_other_tests_do_not_count() -> None:
    code = "def f(n):\n    if n == 30:\n        return 60\n"
    test = "def test_it(): assert f(10) == 20\ndef test_other(): assert f(30) == 60\n"
    assert find_special_cases(request(code, test=test)) == Findings()
