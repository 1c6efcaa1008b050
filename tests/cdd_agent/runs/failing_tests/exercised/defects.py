"""Ten defects to mend."""

from tests.cdd_agent.runs.failing_tests.exercised.task import Task

DEFECTS = (
    Task(
        name="an off by one",
        before="def last(items, n):\n    return items[-n - 1:]\n",
        test="""\
from task import last


def test_last():
    assert last([1, 2, 3], 2) == [2, 3]
""",
        tries=("def last(items, n):\n    return items[-n:]\n",),
    ),
    Task(
        name="a completion that is claimed falsely",
        before="def mean(xs):\n    return sum(xs) / 2\n",
        test="""\
from task import mean


def test_mean():
    assert mean([3, 3, 3]) == 3
""",
        tries=("", "def mean(xs):\n    return sum(xs) / len(xs)\n"),
    ),
    Task(
        name="a missing check",
        before="def root(x):\n    return abs(x) ** 0.5\n",
        test="""\
import pytest

from task import root


def test_four():
    assert root(4) == 2


def test_negative():
    with pytest.raises(ValueError):
        root(-1)
""",
        tries=(
            """\
def root(x):
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x ** 0.5
""",
        ),
    ),
    Task(
        name="a mend that breaks another test first",
        before="""\
def clip(x):
    return x


def double(x):
    return clip(x) * 2
""",
        test="""\
from task import clip


def test_clip():
    assert clip(200) == 100
""",
        more={
            "tests/test_double.py": """\
from task import double


def test_double():
    assert double(200) == 400
"""
        },
        tries=(
            """\
def clip(x):
    return min(x, 100)


def double(x):
    return clip(x) * 2
""",
            """\
def clip(x):
    return min(x, 100)


def double(x):
    return x * 2
""",
        ),
    ),
    Task(
        name="a default that is shared",
        before="""\
def add(item, to=[]):
    to.append(item)
    return to
""",
        test="""\
from task import add


def test_add():
    assert add(1) == [1]
    assert add(2) == [2]
""",
        tries=(
            """\
def add(item, to=None):
    to = [] if to is None else to
    to.append(item)
    return to
""",
        ),
    ),
    Task(
        name="words that are split badly",
        before='def words(text):\n    return text.split(" ")\n',
        test="""\
from task import words


def test_words():
    assert words("a  b\\tc") == ["a", "b", "c"]
""",
        tries=(
            'def words(text):\n    return text.replace("\\t", " ").split(" ")\n',
            "def words(text):\n    return text.split()\n",
        ),
    ),
    Task(
        name="a wrong exception",
        before="def price(prices, name):\n    return prices[name]\n",
        test="""\
import pytest

from task import price


def test_unknown():
    with pytest.raises(ValueError):
        price({}, "tea")
""",
        tries=(
            """\
def price(prices, name):
    if name not in prices:
        raise ValueError(name)
    return prices[name]
""",
        ),
    ),
    Task(
        name="a comparison of texts",
        before="def newest(versions):\n    return max(versions)\n",
        test="""\
from task import newest


def test_newest():
    assert newest(["1.9", "1.10"]) == "1.10"
""",
        tries=(
            """\
def newest(versions):
    return max(versions, key=lambda v: [int(p) for p in v.split(".")])
""",
        ),
    ),
    Task(
        name="an order that gets lost",
        before="def unique(items):\n    return sorted(set(items))\n",
        test="""\
from task import unique


def test_unique():
    assert unique([3, 1, 3, 2]) == [3, 1, 2]
""",
        tries=("def unique(items):\n    return list(dict.fromkeys(items))\n",),
    ),
    Task(
        name="a leap year",
        before="def is_leap(year):\n    return year % 4 == 0\n",
        test="""\
from task import is_leap


def test_century():
    assert not is_leap(1900)


def test_others():
    assert is_leap(2024)
    assert is_leap(2000)
""",
        tries=(
            "def is_leap(year):\n    return year % 4 == 0 and year % 100 != 0\n",
            "def is_leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
        ),
    ),
)
