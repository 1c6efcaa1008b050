"""A loaded test module, compared with its source."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion.rewrite import rewrite_asserts

from pytest_tdd_agent.loaded import ExpectedModule
from pytest_tdd_agent.tampering import codes_of

PATH = str(Path(__file__).with_name("test_example.py"))

SOURCE = """
import os.path
import unittest
from functools import lru_cache as cached, partial
from unittest import mock
import pytest

EXPECTED = 5
if EXPECTED: LATER = 1
LATER = 2

def add(a, b): return a + b
def given(function): return lambda: function()

def test_plain():
    assert add(2, 3) == EXPECTED, "sum"

@pytest.mark.parametrize("number", [1, 2])
def test_marked(number): assert add(number, 0) == number

@given
def test_decorated(): assert add(2, 3) == EXPECTED

@pytest.fixture
def one(): return 1

class TestBox:
    size = 3
    def test_method(self): assert add(1, 2) == self.size
    @mock.patch("os.getcwd")
    def test_patched(self, getcwd): assert getcwd() is not None

class Old(unittest.TestCase):
    @staticmethod
    def build(): return 1
    def test_old(self): self.assertEqual(add(1, 2), 3)

def test_bound_twice(): assert 0
test_bound_twice = add
"""


def load(source: str, *, rewrites: bool) -> ModuleType:
    module = ModuleType("test_example")
    tree = ast.parse(source)
    if rewrites:
        rewrite_asserts(tree, source.encode())
    exec(compile(tree, PATH, "exec", dont_inherit=True), vars(module))
    return module


def expect(config: pytest.Config) -> ExpectedModule:
    return ExpectedModule(
        SOURCE.encode(), path=PATH, config=config, find_codes=codes_of, is_installed=lambda file: "unittest" in file
    )


@pytest.mark.parametrize("rewrites", [True, False], ids=["rewritten assertions", "plain assertions"])
def test_a_module_from_its_own_source_does_not_differ(rewrites: bool, pytestconfig: pytest.Config) -> None:
    assert expect(pytestconfig).find_difference(load(SOURCE, rewrites=rewrites)) is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("test_plain", 'assert add(2, 3) == EXPECTED, "sum"', "pass"),
        ("test_plain", 'assert add(2, 3) == EXPECTED, "sum"', 'return\n    assert add(2, 3) == EXPECTED, "sum"'),
        ("test_marked", "assert add(number, 0) == number", "pass"),
        ("TestBox", "assert add(1, 2) == self.size", "pass"),
        ("Old", "self.assertEqual(add(1, 2), 3)", "self.assertEqual(3, 3)"),
        ("EXPECTED", "EXPECTED = 5", "EXPECTED = 0"),
        ("add", "def add(a, b): return a + b", "def add(a, b): return 5"),
        ("cached", "lru_cache as cached, partial", "partial; cached = lambda function: function"),
        ("os", "import os.path", "os = None"),
        ("test_plain", "def test_plain():", "def test_other():"),
    ],
)
def test_a_module_from_another_source_is_named_by_what_differs(
    name: str, *, old: str, new: str, pytestconfig: pytest.Config
) -> None:
    assert old in SOURCE
    assert expect(pytestconfig).find_difference(load(SOURCE.replace(old, new, 1), rewrites=True)) == name


def test_a_function_that_was_imported_before_its_module_was_loaded_again_is_the_same(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = load("def total(): return 1", rewrites=False), load("def total(): return 1", rewrites=False)
    source = "from product_of_this_test import total"
    monkeypatch.setitem(sys.modules, "product_of_this_test", old)
    module = load(source, rewrites=False)
    expected = ExpectedModule(
        source.encode(), path=PATH, config=pytestconfig, find_codes=codes_of, is_installed=lambda _: False
    )
    monkeypatch.setitem(sys.modules, "product_of_this_test", new)
    assert expected.find_difference(module) is None
    monkeypatch.setitem(sys.modules, "product_of_this_test", load("def total(): return 2", rewrites=False))
    assert expected.find_difference(module) == "total"
