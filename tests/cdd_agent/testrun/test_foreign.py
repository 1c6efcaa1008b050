"""Code for a newer Python than cdd's is read with the project's interpreter."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.evidence.product_runs import add_trace
from cdd_agent.evidence.source import find_changed_lines, list_functions, name_definitions, read_names
from cdd_agent.testrun.foreign import build_tree, describe_newer, learn_syntax, make_syntax_check
from cdd_agent.testrun.inside import parser
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.untrusted.python_source import ForeignModule, find_syntax_error, parse
from tests.pytest_tdd_agent.matrix.environments import interpreter as find_python

NEW = '''\
"""A module."""
type Pair[T: (int, str)] = tuple[T, T]


def total[T: Limit](prices: list[T], words={"#": -1.5}) -> T:  # the sum
    """Add."""
    try:
        return f"{words["#"]} and {prices!r:>{10}}"  # nested
    except* ValueError as error:
        match error:
            case {"a": [1, *_], **rest} | Limit(x=True):
                return ... if rest else b"x" + 1_000_000_000_000_000_000_000j
    return None
'''


@pytest.fixture
def newer(suite: PytestSuite) -> PytestSuite:
    """A suite whose interpreter is newer than cdd's."""
    python = find_python("3.13")
    if python is None or sys.version_info >= (3, 12):
        pytest.skip("Python 3.13 is missing among pyenv's versions and on PATH, or runs cdd")
    interpreter = replace(suite.interpreter, path=python, python="3.13.0", reads=(python.parents[1],))
    return replace(suite, interpreter=interpreter)


def test_new_syntax_is_read_like_other_code(newer: PytestSuite) -> None:
    assert parse(NEW) is None
    assert describe_newer(newer).startswith("Python 3.1")
    learn_syntax([NEW, "x = 1\n", "def f(:\n"], suite=newer)

    tree = parse(NEW)
    assert isinstance(tree, ForeignModule)
    assert [function.name for function in list_functions(tree)] == ["total"]
    assert {"Limit", "prices", "words", "tuple", "ValueError"} <= read_names(tree)
    assert ast.get_docstring(list_functions(tree)[0]) == "Add."
    assert [name for name, _ in name_definitions(tree) if "<" not in name] == ["total"]
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert {1.5, b"x", 1_000_000_000_000_000_000_000j, "#", True} <= {*constants}
    assert ... in constants
    changed = NEW.replace('words["#"]', 'words["#"]} {cheat()').replace("# the sum", "# the sum of all")
    learn_syntax([changed], suite=newer)
    assert find_changed_lines(NEW, changed)[0] == {8}, "a comment is no code, and a # in a text is no comment"
    assert (parse("def f(:\n"), parse("x = 1\n") is None) == (None, False)
    traced = add_trace(NEW, log=".log")
    assert traced is not None
    assert make_syntax_check(newer)(traced.encode()) is None
    assert traced.count("_cdd_trace(); try:") + traced.count("_cdd_trace()\n    try:") == 1


def test_a_syntax_check_believes_the_interpreter_of_the_project(newer: PytestSuite, suite: PytestSuite) -> None:
    check = make_syntax_check(newer)
    assert find_syntax_error(NEW.encode()) is not None
    assert check(NEW.encode()) is None
    assert check(b"x = 1\n") is None
    assert str(check(b"def f[T](:\n")).startswith("line 1: ")
    assert "line 1" in str(make_syntax_check(suite)(b"type X = int\n"))
    absent = make_syntax_check(replace(newer, interpreter=replace(newer.interpreter, path=Path("/nonexistent/python"))))
    assert absent(b"type X = int\n") is None, "the tests will tell"


def test_a_syntax_check_knows_what_an_older_interpreter_lacks(suite: PytestSuite) -> None:
    old = find_python("3.8")
    if old is None:
        pytest.skip("Python 3.8 is missing among pyenv's versions and on PATH")
    interpreter = replace(suite.interpreter, path=old, python="3.8.18", reads=(old.parents[1],))
    check = make_syntax_check(replace(suite, interpreter=interpreter))
    assert "line 1" in str(check(b"match x:\n    case 1:\n        pass\n"))
    assert check(b"x = 1\n") is None
    broken = make_syntax_check(replace(suite, interpreter=replace(interpreter, path=Path("/nonexistent/python"))))
    assert broken(b"x = 1\n") is None
    assert "line 1" in str(broken(b"def f(:\n"))


def test_the_trees_of_this_interpreter_are_rebuilt() -> None:
    text = (
        "@d\nasync def f(a, *b, c: int = 2, **d):\n    global x\n    return -1.5e300, 10**30, 'ü\\ud800', [*b], {**d}\n"
    )
    answer = parser.parse(text.encode(), needs_tree=True)
    nodes = answer["nodes"]
    assert isinstance(nodes, list)
    tree = build_tree([(name, base, fields) for name, base, fields in nodes], [])
    assert tree is not None
    assert ast.unparse(tree) == ast.unparse(ast.parse(text))
    assert parser.parse(b"x" * 10 + b"\n" + b"a\n" * 200_000, needs_tree=True) == {"error": "it is too long"}


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [("Expr", "stmt", {"value": None})],
        [("Module", "mod", {"body": [1, [[0, 0]]], "type_ignores": [1, []]})],
        [("Module", "mod", {"body": [1, [[0, 7]]], "type_ignores": [1, []]})],
        [("Module", "mod", {"body": [1, []]})],
        [("Module", "mod", {"body": [1, []], "type_ignores": [1, []], "__class__": "x"})],
        [("Module", "mod", {"body": [2, "int", "many"], "type_ignores": [1, []]})],
        [("Module", "mod", {"body": [2, "code", "1"], "type_ignores": [1, []]})],
        [("Module", "mod", {"body": {}, "type_ignores": [1, []]})],
        [("Module", "mod", {"body": [1, []], "type_ignores": [1, []], "lineno": "one"})],
    ],
)
def test_what_is_no_tree_is_refused(nodes: list[tuple[str, str, dict[str, object]]]) -> None:
    assert build_tree(nodes, []) is None
