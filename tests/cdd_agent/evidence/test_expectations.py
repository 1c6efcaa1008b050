import ast

import pytest

from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.evidence.expectations import Expected, alter_content, alter_source, check_expectations, find_expectations
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.steps import Step
from tests.fakes.cases import soak_after

HEAD = """\
import math
import pytest
from decimal import Decimal
from pathlib import Path

from helpers import same
from product import Money, add

CASES = [("a", 1), ("b", 2)]
TABLE = {"x": 1}


def equal(want, got):
    if want != got:
        raise AssertionError("no")


@pytest.fixture
def wanted():
    return [6, 7]


"""
BODIES = {
    "def test_it(): assert add(20, 15) == 35": "35",
    "def test_it(): assert 35 == add(20, 15)": "35",
    "def test_it():\n    got = add(1, 2)\n    equal(3, got)": "3",
    "def test_it():\n    got = add(1, 2)\n    same(got, 'three')": "'three'",
    "@pytest.mark.parametrize('a, expected', [(1, 2), pytest.param(3, 4, id='x')])\n"
    "def test_it(a, expected): assert add(a) == expected": "2 4",
    "def test_it():\n    for given, want in CASES:\n        assert add(given) == want": "1 2",
    "def test_it():\n    for given, want in TABLE.items():\n        assert add(given) == want": "1",
    "def test_it(wanted): assert add() == wanted": "6 7",
    "def test_it():\n    with pytest.raises(ValueError, match='bad'):\n        add(None)": "ValueError 'bad'",
    "def test_it(): assert add(1.5) == pytest.approx(3.0)": "3.0",
    "def test_it(): assert add('1') == Decimal('1.5')": "'1.5'",
    "def test_it(capsys):\n    add()\n    assert 'hello' in capsys.readouterr().out": "'hello'",
    "def test_it(): assert add('x').startswith('y') and add(1) == []": "'y' []",
    "class TestIt:\n    def test_it(self):\n        expected = {'a': 1}\n"
    "        self.assertEqual(add(1), expected)": "'a' 1",
    "def test_it():\n    given, want = CASES[0]\n    assert add(given) == want": "1 2",
    "def test_it(): assert abs(add(1) - 5) < 1e-9": "5",
    "def test_it(): assert math.isclose(add(1), 5)": "5",
    "def test_it(): assert add(1) == Money(3)": "3",
    "def test_it():\n    one = Money(1)\n    assert one + Money(2) == Money(amount=3)": "3",
    "def test_it(mocked):\n    add(mocked)\n    mocked.call.assert_called_once_with('a', by=3)": "'a' 3",
    "def test_it(mocked):\n    add(mocked)\n    mocked.assert_any_call(1)\n    mocked.assert_any_call(2)": "1 2",
    # Of a test that is defined twice, the last definition is run:
    "def test_it(): assert add(1) == 3\n\n\ndef test_it(): assert add(1) == 4": "4",
    "class TestIt:\n    def test_it(self): assert add(1) == 3\n\n    def test_it(self): assert add(1) == 4": "4",
    # What has no expected value, or one that may be anything:
    "def test_it(): assert Money() == 3 and Money() == 'x'": "",
    "@pytest.mark.parametrize('other', [1, 'x'])\ndef test_it(other): assert Money() == other": "",
    "def test_it(): assert Money(1, 'x') == Money(1, 'y')": "",
    "def test_it(): assert add(1) != 10": "",
    "def test_it(): assert not add(1)": "",
    "def test_it():\n    add(1)\n    print(3)": "",
    "def test_it(): assert sorted(add(CASES)) == CASES": "",
    "def test_it():\n    got = add(CASES)\n    assert sorted(got) == CASES": "",
    "def test_it(): assert round(add(1), 3)": "",
    "def test_it():\n    with pytest.raises(KeyError):\n        assert add(1) == 3": "KeyError",
    "def test_it(mocked):\n    given = 3\n    add(mocked, given)\n    mocked.assert_called_with(given)": "",
    "def test_it(mocked):\n    add(mocked)\n    mocked.assert_called_once()": "",
}


def find(module: str) -> ast.Module | None:
    helper = "def same(got, want):\n    assert got == want, 'differs from 5'\n"
    known = {"helpers": helper, "product": "", "helpers.same": "", "product.add": "", "product.Money": ""}
    return ast.parse(known[module]) if module in known else None


@pytest.mark.parametrize("body", BODIES)
def test_literals_that_are_compared_with_something_computed_are_expected(body: str) -> None:
    text = f"# é\n{HEAD}{body}\n"
    name = "TestIt::test_it" if "class TestIt" in body else "test_it"
    found = find_expectations(text, [name], find=find).get(name, Expected())
    places = sorted(found.places, key=lambda each: each.start)
    assert " ".join(text.encode()[each.start : each.end].decode() for each in places) == BODIES[body]
    for attempt in (0, 1):
        altered = alter_source(text, places, attempt=attempt)
        ast.parse(altered)
        assert (altered != text) == bool(places)


def test_the_content_of_a_golden_file_is_expected_unless_the_product_reads_it_too() -> None:
    golden = "from pathlib import Path\nfrom product import add\n\n\ndef test_it():\n    place = Path('tests/{}.txt')\n"
    compared = golden.format("golden") + "    assert add(1) == place.read_text()\n"
    found = find_expectations(compared, ["test_it"], find=find, files=["tests/golden.txt"])
    assert found["test_it"].files == {"tests/golden.txt": True}
    in_part = (
        golden.format("golden") + "    assert add(1) in place.read_text() and add(2) == place.read_text().split()\n"
    )
    found = find_expectations(in_part, ["test_it"], find=find, files=["tests/golden.txt"])
    assert found["test_it"].files == {"tests/golden.txt": False}
    loaded = golden.format("table") + "    assert add('table.txt') == place.read_text()\n"
    assert find_expectations(loaded, ["test_it"], find=find, files=["tests/table.txt"]) == {}


def test_altered_content_stays_of_its_kind() -> None:
    assert alter_content('{"a": 17}', attempt=0) == '{"a": 13}'
    assert alter_content('{"a": 17}', attempt=1) == '{"q": 17}'
    assert alter_content("", attempt=0) == "altered"


CHEATS = {
    "equal to everything": "made = type('S', (int,), {'__eq__': lambda self, other: True})\n"
    "def add(a, b): return made(0)\n",
    "reads the test": "import os\nfor at, _, names in os.walk('.'):\n    for name in names:\n"
    "        if name == ''.join(['test', '_product.py']):\n"
    "            wanted = int(open(os.path.join(at, name)).read().split('==')[1])\n"
    "def add(a, b): return wanted\n",
}
TEST = "from product import add\n\n\ndef test_it():\n    assert add(20, 15) == 35\n"
TARGET = "tests/test_product.py::test_it"


def check(step: Step) -> Findings:
    runs: TimedRuns = step.runs()
    with runs.copy(green=step.green, red=step.red) as copy:
        return check_expectations(step.request(TARGET), copy=copy, runs=runs)


@pytest.mark.slow
def test_an_assertion_that_fails_in_a_thread_is_noticed(make: Make) -> None:
    body = "    def check():\n        assert add(20, 15) == 35\n    thread = Thread(target=check)\n    thread.start()\n"
    test = f"from threading import Thread\nfrom product import add\n\n\ndef test_it():\n{body}    thread.join()\n"
    product = "def add(a, b):\n    return a + b\n"
    step = make({"tests/test_product.py": test}, {"product.py": product}, runs_pytest=True)
    assert check(step) == Findings()


@soak_after(1, "name", CHEATS)
def test_an_answer_that_follows_the_expected_value_is_refused(name: str, make: Make) -> None:
    step = make({"tests/test_product.py": TEST}, {"product.py": CHEATS[name]}, runs_pytest=True)
    (reason,) = check(step).reasons
    assert (reason.code, reason.nodeid) == ("expectation_ignored", TARGET)
    assert "line 5: 7954 instead of 35" in explain(reason)


def test_a_text_that_is_a_limit_or_contains_the_answer_is_replaced_by_the_greatest_and_the_empty_one() -> None:
    test = "from product import add\n\n\ndef test_it():\n    assert add(1) in 'aeiou'\n    assert 'b' in add(2)\n"
    test += "    assert add(3) < '2026'\n"
    places = find_expectations(test, ["test_it"], find=find)["test_it"].places
    assert [(place.values, place.is_exact) for place in places] == [
        ((r"'\U0010ffff'", "''"), False),
        (("'baltered'", "'altered'"), True),
        ((r"'\U0010ffff'", "''"), False),
    ]


@pytest.mark.slow
def test_a_golden_file_that_the_product_writes_proves_nothing(make: Make) -> None:
    test = "from pathlib import Path\nfrom product import add\n\n\ndef test_it():\n"
    test += "    assert add(20, 15) == Path('tests/sum.txt').read_text()\n"
    code = (
        "from pathlib import Path\n\n\ndef add(a, b):\n    Path('tests', 'sum.txt').write_text('0')\n    return '0'\n"
    )
    step = make({"tests/test_product.py": test, "tests/sum.txt": "35"}, {"product.py": code}, runs_pytest=True)
    (reason,) = check(step).reasons
    assert "another content of tests/sum.txt" in explain(reason)


@soak_after(
    1,
    ("test", "code"),
    [
        pytest.param(TEST.replace("== 35", "< 36"), "def add(a, b):\n    return a + b\n", id="limit"),
        pytest.param(
            "import pytest\nfrom product import add\n\n\ndef test_it():\n"
            "    with pytest.raises(BlockingIOError):\n        add(1, 2)\n",
            "def add(a, b):\n    raise BlockingIOError\n",
            id="the exception of the first try",
        ),
    ],
)
def test_what_an_altered_value_may_meet_is_tried_twice(make: Make, *, test: str, code: str) -> None:
    assert check(make({"tests/test_product.py": test}, {"product.py": code})) == Findings()
