"""Ten exercises."""

from tests.cdd_agent.runs.failing_tests.exercised.task import Task

EXERCISES = (
    Task(
        name="fizz buzz",
        test="""\
from task import fizz


def test_fizz():
    assert [fizz(n) for n in (2, 3, 5, 15)] == ["2", "Fizz", "Buzz", "FizzBuzz"]
""",
        tries=('def fizz(n):\n    return "Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n)\n',),
    ),
    Task(
        name="a stack",
        test="""\
import pytest

from task import Stack


def test_pop():
    s = Stack()
    s.push(1)
    s.push(2)
    assert s.pop() == 2


def test_empty():
    with pytest.raises(IndexError):
        Stack().pop()
""",
        tries=(
            "class Stack:\n    pass\n",
            """\
class Stack:
    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def pop(self):
        return self._items.pop()
""",
        ),
    ),
    Task(
        name="roman numbers",
        test="""\
from task import roman


def test_roman():
    assert roman(1994) == "MCMXCIV"
    assert roman(3) == "III"
""",
        tries=(
            """\
SIGNS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
         (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


def roman(n):
    text = ""
    for value, sign in SIGNS:
        count, n = divmod(n, value)
        text += sign * count
    return text
""",
        ),
    ),
    Task(
        name="primes",
        test="""\
from task import primes


def test_primes():
    assert primes(20) == [2, 3, 5, 7, 11, 13, 17, 19]
""",
        tries=(
            "def primes(n):\n    return [k for k in range(2, n) if k % 2]\n",
            """\
def primes(n):
    return [k for k in range(2, n + 1) if all(k % d for d in range(2, k))]
""",
        ),
    ),
    Task(
        name="an anagram",
        test="""\
from task import is_anagram


def test_anagram():
    assert is_anagram("Listen", "silent")
    assert not is_anagram("abc", "abd")
""",
        tries=("def is_anagram(a, b):\n    return sorted(a.lower()) == sorted(b.lower())\n",),
    ),
    Task(
        name="run lengths",
        test="""\
from task import encode


def test_encode():
    assert encode("aaab") == "3a1b"
    assert encode("") == ""
""",
        tries=(
            "",
            """\
from itertools import groupby


def encode(text):
    return "".join(f"{len(list(run))}{letter}" for letter, run in groupby(text))
""",
        ),
    ),
    Task(
        name="a bank account",
        test="""\
import pytest

from task import Account, Overdrawn


def test_overdrawn():
    account = Account(10)
    with pytest.raises(Overdrawn):
        account.withdraw(20)
    assert account.balance == 10
""",
        tries=(
            """\
class Overdrawn(Exception):
    pass


class Account:
    def __init__(self, balance):
        self.balance = balance

    def withdraw(self, amount):
        if amount > self.balance:
            raise Overdrawn(amount)
        self.balance -= amount
""",
        ),
    ),
    Task(
        name="a flattened list",
        test="""\
from task import flat


def test_flat():
    assert flat([1, [2, [3, []]]]) == [1, 2, 3]
""",
        tries=(
            "def flat(items):\n    return [x for item in items for x in item]\n",
            """\
def flat(items):
    found = []
    for item in items:
        found += flat(item) if isinstance(item, list) else [item]
    return found
""",
        ),
    ),
    Task(
        name="a caesar cipher",
        test="""\
from task import shift


def test_shift():
    assert shift("xyz A!", 3) == "abc D!"
""",
        tries=(
            """\
def shift(text, by):
    def moved(letter, first):
        return chr((ord(letter) - first + by) % 26 + first)

    return "".join(
        moved(c, 97) if "a" <= c <= "z" else moved(c, 65) if "A" <= c <= "Z" else c
        for c in text
    )
""",
        ),
    ),
    Task(
        name="a matrix turned",
        test="""\
from task import turned


def test_turned():
    assert turned([[1, 2], [3, 4]]) == [[3, 1], [4, 2]]
""",
        tries=("def turned(rows):\n    return [list(row) for row in zip(*rows[::-1])]\n",),
    ),
)
