"""Missing imports are added when one candidate exists, and imports are sorted."""

import ast
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.generation.imports import Available, ImportSources, add_imports, find_undefined, sort_imports
from cdd_agent.generation.layout import Layout
from cdd_agent.untrusted.python_source import Import
from tests.fakes.graphs import leaf, make_graph

SKELETON = '''"""Statistics."""

import math

from stats.checks import check


def mean(numbers):
    """Return the mean."""
    return {body}
'''


def names(text: str) -> list[str]:
    return [use.name for use in find_undefined(text)]


def test_a_name_of_the_standard_library_gets_its_import_in_its_group() -> None:
    done = add_imports(
        SKELETON.format(body="Fraction(sum(numbers), 1)"), Available(symbols={"check": ["stats.checks"]})
    )
    assert done.text.startswith(
        '"""Statistics."""\n\nimport math\nfrom fractions import Fraction\n\nfrom stats.checks import check\n\n\ndef'
    )
    assert done.added == (Import("fractions", "Fraction"),)
    assert not done.open


def test_a_symbol_of_the_graph_gets_its_import_beside_the_others() -> None:
    symbols = {"check": ["stats.checks"], "total": ["stats.sums"]}
    done = add_imports(SKELETON.format(body="total(numbers)"), Available(symbols=symbols))
    assert "\nfrom stats.checks import check\nfrom stats.sums import total\n" in done.text


def test_names_of_one_module_are_in_one_statement() -> None:
    symbols = {"Bounds": ["stats.checks"], "LIMIT": ["stats.checks"]}
    done = add_imports(SKELETON.format(body="Bounds(LIMIT)"), Available(symbols=symbols))
    assert "\nfrom stats.checks import LIMIT, Bounds, check\n" in done.text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("datetime.now()", "from datetime import datetime"),
        ("datetime.timedelta(1)", "import datetime"),
        ("time.sleep(1)", "import time"),
        ("json.dumps(1)", "import json"),
        ("statistics.mean(numbers)", "import statistics"),
        ("defaultdict(list)", "from collections import defaultdict"),
        ("Path('x')", "from pathlib import Path"),
        ("Iterable()", "from collections.abc import Iterable"),
        ("replace(x=1)", "from dataclasses import replace"),
        ("reduce(max, numbers)", "from functools import reduce"),
        ("np.array(numbers)", "import numpy as np"),
        ("requests.get(1)", "import requests"),
    ],
)
def test_the_uses_of_a_name_decide(body: str, expected: str) -> None:
    done = add_imports(SKELETON.format(body=body), Available(installed=("numpy", "requests")))
    assert [*map(str, done.added)] == [expected]


@pytest.mark.parametrize(
    ("body", "candidates"),
    [
        ("mean_of(numbers)", []),
        ("pandas.DataFrame()", []),  # not installed
        ("json(numbers)", []),  # a module cannot be called
        ("loads(numbers)", ["from json import loads", "from pickle import loads"]),
        ("total(numbers)", ["from a.x import total", "from a.y import total"]),
    ],
)
def test_without_exactly_one_candidate_nothing_is_added(body: str, candidates: list[str]) -> None:
    text = SKELETON.format(body=body)
    done = add_imports(text, Available(symbols={"total": ["a.x", "a.y"]}))
    assert done.text == text
    assert [*done.open] == [body.partition("(")[0].partition(".")[0]]
    assert [str(each) for found in done.open.values() for each in found] == candidates


def test_a_module_without_imports_gets_them_after_its_docstring_or_first_comments() -> None:
    body = "def f():\n    return math.pi\n"
    assert add_imports(body, Available()).text == f"import math\n\n{body}"
    assert add_imports(f'"""Doc."""\n\n{body}', Available()).text == f'"""Doc."""\n\nimport math\n\n{body}'
    assert add_imports(f"#!/bin/sh\n# x\n{body}", Available()).text == f"#!/bin/sh\n# x\n\nimport math\n\n{body}"
    future = f"from __future__ import annotations\n\n{body}"
    assert add_imports(future, Available()).text == (f"from __future__ import annotations\n\nimport math\n\n{body}")


def test_imports_with_comments_stay_in_their_order() -> None:
    text = "import zlib  # noqa\nimport ast\n\nprint(zlib, ast, math.pi)\n"
    assert add_imports(text, Available()).text == text.replace("\n\n", "\nimport math\n\n", 1)
    assert sort_imports(text, local=()) == text


def test_imports_are_sorted_grouped_and_each_once() -> None:
    text = "import sys\nimport numpy\nfrom lib import b\nimport os\nimport sys\nfrom lib import a\nX = 1\n"
    assert (
        sort_imports(text, local=("lib",)) == "import os\nimport sys\n\nimport numpy\n\nfrom lib import a, b\nX = 1\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "from a import x\nfrom b import x\n",  # the last one counts
        "from b import *\nfrom a import *\n",
        "import b; import a\n",
        "import b, \\\n    a\n",
        "def f(:\n",
        "import b\rimport a\r",
        "",
    ],
)
def test_imports_whose_order_may_matter_are_left_alone(text: str) -> None:
    assert sort_imports(text, local=()) == text


def test_line_ends_of_windows_are_kept() -> None:
    assert sort_imports("import b\r\nimport a\r\nx = 1\r\n", local=()) == "import a\r\nimport b\r\nx = 1\r\n"


def test_a_module_imports_nothing_from_those_that_need_it() -> None:
    graph = make_graph(
        leaf("top", "app/a.py", "middle"),
        leaf("middle", "app/b.py", "low"),
        leaf("low", "app/c.py"),
        leaf("other", "app/d.py"),
        leaf("Other.method", "app/d.py"),
    )
    sources = ImportSources.of(graph, Layout.of(graph, "g"), installed=("numpy",))
    available = sources.find_available("app.b")
    assert {name for name, modules in available.symbols.items() if modules} == {"low", "other"}
    assert {*available.modules} == {"app.c", "app.d"}
    text = "x = low, top, other, np.array\n"
    done = add_imports(text, available)
    assert [*map(str, done.added)] == ["from app.c import low", "import numpy as np", "from app.d import other"]
    assert [*done.open] == ["top"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(x, *a, k=1, **b): return x, a, k, b, y", ["y"]),
        ("class A:\n    x = 1\n    def f(self): return x", ["x"]),
        ("class A:\n    x = [1]\n    y = [i for i in x]\n    def f(self): return __class__, super()", []),
        ("print([i for i in range(3) if (n := i)], n, i)", ["i"]),
        ("try: import a\nexcept E as e: print(e)", ["E"]),
        ("match v:\n    case {'a': b, **rest}: b, rest\n    case [c, *d] as e: c, d, e", ["v"]),
        ("def f():\n    global x\n    x = 1\nprint(x, __name__, __file__)", []),
        ("from a import *\nprint(x)", []),
        ("f = lambda x: x + z\nwith open('a') as (b, c): b, c\ndel b", ["z"]),
        ("def f():\n    return g()\ndef g(): ...", []),
        ("def f():\n    def g(): return x\n    x = 1\n    return g", []),
        ("x: List = 1\ndef f(a: Dict) -> Set: ...", ["Dict", "List", "Set"]),
        ("def f(:", []),
        ("class A:\n    x = x", ["x"]),
    ],
)
def test_undefined_names_are_found(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are new in 3.12")
def test_type_parameters_are_defined() -> None:
    assert names("def f[T](x: T) -> T: return x\nclass A[T]:\n    x: T\ntype B[T] = list[T]") == []


def test_no_name_of_the_standard_library_seems_undefined() -> None:
    folder = Path(ast.__file__).parent
    found = {}
    for name in ("argparse", "dataclasses", "typing", "enum", "functools", "asyncio/tasks", "unittest/mock"):
        found[name] = names((folder / f"{name}.py").read_text())
    assert {name: each for name, each in found.items() if each} == {}


def test_a_deep_expression_is_read() -> None:
    assert names(f"x = y{'.a' * 3_000}") == ["y"]


def test_imports_are_in_the_order_of_ruff() -> None:
    changed = {}
    for path in sorted((Path(__file__).parents[3] / "cdd_agent" / "repl").glob("*.py")):
        text = path.read_text()
        if drop_layout(sort_imports(text, local=("cdd_agent", "pytest_tdd_agent"))) != drop_layout(text):
            changed[path.name] = text
    assert changed == {}


def drop_layout(text: str) -> str:
    """Return the text without parentheses, spaces and line ends, which depend on the longest line."""
    return re.sub(r"[()\s]+", " ", re.sub(r",\s*\)", ")", text)).replace(" ,", ",")


STATEMENTS = st.sampled_from(
    [
        *("import os", "import sys, ast", "import a.b", "import a.b as c", "from x import y", "from x import y as z"),
        *(
            "from . import w",
            "from .v import u",
            "from x import (\n    p,\n    q,\n)",
            "from __future__ import division",
        ),
    ]
)


@given(st.lists(STATEMENTS, max_size=6), st.booleans())
def test_sorting_changes_no_import_and_is_stable(statements: list[str], has_docstring: bool) -> None:
    statements.sort(key=lambda each: "__future__" not in each)
    text = "\n".join([*(['"""Doc."""', ""] if has_docstring else []), *statements, "", "x = 1", ""])
    once = sort_imports(text, local=("x",))
    assert sort_imports(once, local=("x",)) == once
    assert {*list_imports(once)} == {*list_imports(text)}


def list_imports(text: str) -> list[str]:
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [f"{ast.unparse(node).partition('import')[0]}{ast.unparse(each)}" for node in nodes for each in node.names]
