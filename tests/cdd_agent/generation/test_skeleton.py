import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.generation.layout import Layout
from cdd_agent.generation.signatures import check_signature
from cdd_agent.generation.skeleton import list_complete, make_skeleton
from cdd_agent.tickets.graph import Graph, Node
from cdd_agent.tickets.graph_file import parse_graph
from tests.fakes.graphs import composite, leaf, make_graph


def write(*nodes: Node) -> Mapping[str, str]:
    graph = make_graph(*nodes)
    return make_skeleton(graph, Layout.of(graph, "g"))


def write_one(*nodes: Node) -> str:
    return write(*nodes)["src/app/m.py"]


FUNCTION = '''"""All of it."""

from __future__ import annotations


def f(x: int) -> float:
    """Do it.

    Args:
      x (int): X.
    Returns:
      float: It.
    """
    raise NotImplementedError
'''


def test_a_function_has_its_signature_its_docstring_and_a_body_that_raises() -> None:
    docstring = "Do it.\n\nArgs:\n  x (int): X.\nReturns:\n  float: It."
    assert write_one(leaf("f", docstring=docstring), composite("m", docstring="All of it.")) == FUNCTION


def test_a_stub_raises_what_no_test_expects() -> None:
    assert "    raise NameError(\"name 'f' is not defined\")" in write_one(
        leaf("f", docstring="F.\n\nRaises:\n  RuntimeError: If.")
    )


def test_a_repository_has_its_project_files_and_a_folder_for_tests() -> None:
    texts = write(leaf("f"))
    assert [*texts] == [
        ".gitignore",
        "pyproject.toml",
        "pytest.ini",
        "src/app/__init__.py",
        "src/app/m.py",
        "tests/.gitkeep",
    ]
    assert 'requires = ["setuptools>=70.1"]' in texts["pyproject.toml"]
    graph = make_graph(leaf("f", "solo.py"), package="solo")
    assert 'py-modules = ["solo"]' in make_skeleton(graph, Layout.of(graph, "g"))["pyproject.toml"]


def test_init_generation() -> None:
    """Every package exports the public names of its modules, but none that two modules or a module itself has."""
    texts = write(
        leaf("mean", "app/stats/descriptive.py"),
        leaf("_sum", "app/stats/descriptive.py"),
        leaf("Reader", "app/stats/reader.py"),
        leaf("Reader.read", "app/stats/reader.py"),
        leaf("load", "app/stats/reader.py"),
        leaf("load", "app/stats/loader.py", id="2"),
        leaf("loader", "app/stats/reader.py"),
        leaf("run", "app/stats/__init__.py"),
        composite("stats", "app/stats", docstring="Statistics."),
        leaf("f", "app/net/deep/m.py"),
    )
    start, end = texts["src/app/stats/__init__.py"].split("\n\n\ndef run(")
    assert start == ('"""Statistics."""\n\nfrom app.stats.descriptive import mean\nfrom app.stats.reader import Reader')
    assert end.endswith('\n\n__all__ = ["Reader", "mean", "run"]\n')
    assert texts["src/app/__init__.py"] == texts["src/app/net/__init__.py"] == "__all__ = []\n"
    assert texts["src/app/net/deep/__init__.py"] == 'from app.net.deep.m import f\n\n__all__ = ["f"]\n'


def test_the_code_of_a_package_is_its_only_one() -> None:
    texts = write(leaf("f"), composite("app", "src/app/__init__.py", code="VERSION = 1\n", type="package"))
    assert texts["src/app/__init__.py"] == "VERSION = 1\n"


def test_methods_are_in_their_class_and_replace_what_its_signature_says_of_them() -> None:
    text = write_one(
        leaf("A.B.deep", signature="(self)"),
        leaf("A.read", signature="read(self, n: int)"),
        leaf("A", signature="class A(Base):\n    limit = 3\n    def read(self): ...\n    def close(self): ..."),
        leaf("Base"),
        leaf("Only.run", signature="(self)", docstring="Run."),
        composite("Only", type="class", docstring="Only methods.", signature="class Only(Base)", code="x = 1"),
    )
    tree = ast.parse(text)
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    assert [*classes] == ["Base", "A", "Only"]  # a base is needed first
    inside = [getattr(each, "name", "") for each in classes["A"].body]
    assert inside == ["", "", "read", "close", "B"]
    assert "def read(self, n: int):" in text
    assert 'class Only(Base):\n    """Only methods."""\n    x = 1\n\n    def run(self):\n        """Run."""\n' in text


def test_a_class_without_methods_raises_when_it_is_made_unless_it_is_data() -> None:
    nodes = (
        leaf("Plain"),
        leaf("Error", signature="class Error(ValueError): ..."),
        leaf("Color", signature="class Color(Enum):\n    RED = 1"),
        leaf("Point", signature="@dataclass\nclass Point:\n    x: int"),
        leaf("LIMIT", signature="LIMIT: int = 3"),
        leaf("f"),
    )
    text, graph = write_one(*nodes), make_graph(*nodes)
    assert text.count("def __init__(self, *args, **kwargs):\n        raise NotImplementedError") == 2
    assert list_complete(graph, Layout.of(graph, "g")) == ("Color", "Point", "LIMIT")
    assert "from dataclasses import dataclass\nfrom enum import Enum\n" in text


def test_overloads_get_an_implementation_and_protocols_stay_as_they_are() -> None:
    text = write_one(
        leaf("f", signature="@overload\ndef f(x: int) -> int: ...\n@overload\ndef f(x: str) -> str: ..."),
        leaf("P", signature="class P(Protocol):\n    def run(self) -> None: ..."),
    )
    assert text.count("raise") == 1
    assert 'def f(*args, **kwargs):\n    """Do f."""\n    raise NotImplementedError' in text


CODE = '''"""Own."""
from __future__ import annotations
import os

if os.name:
    # node: f
else:
    # node: none
    g = 1  # stays


# node: h
'''
MARKED = '''"""Own."""

from __future__ import annotations

import os

if os.name:
    def f():
        """Do f."""
        raise NotImplementedError
else:
    pass
    g = 1  # stays


def h():
    """Do h."""
    raise NotImplementedError


def k(x: int):
    """Do k."""
    raise NotImplementedError
'''


def test_module_level_code_has_the_definitions_at_their_marks() -> None:
    leaves = (leaf("f", signature="f()"), leaf("h", signature="h()"), leaf("k", signature="k(x: int)"))
    assert write_one(*leaves, composite("m", code=CODE)) == MARKED


def test_a_mark_inside_of_a_text_is_no_mark() -> None:
    text = write_one(leaf("f", signature="f()"), composite("m", code="x = '''\n# node: f\n'''\n"))
    assert text.startswith("x = '''\n# node: f\n'''\n\n\ndef f():\n")


def test_code_that_is_no_python_becomes_a_comment() -> None:
    assert write_one(leaf("f", signature="f()"), composite("m", code="def (\n  x")).endswith("\n\n\n# def (\n#   x\n")


def test_long_headers_get_a_line_for_each_parameter() -> None:
    names = ", ".join(f"parameter_{number}: int" for number in range(5))
    text = write_one(leaf("f", signature=f"def f({names}, /, *, last: str = 'x', **more) -> dict[str, int]"))
    assert "    parameter_4: int,\n    /,\n    *,\n    last: str = 'x',\n    **more,\n) -> dict[str, int]:\n" in text


HOSTILE = (
    'Quotes """ and \'\'\' and "',
    "Backslash \\ \\n \\x at the end \\",
    "Tabs\n\n\tand\r\n  \x0c odd \x85 lines\u2028here",
    "Null \x00, bell \x07, half \ud800, right to left \u202e",
    "{braces} %s # comment\n# node: f\n_cdd_late_0_",
    "    leading\n  blanks\n",
    "\N{SNOWMAN} ünïcode",
    "'''",
    '"',
)


def test_no_docstring_breaks_a_module() -> None:
    for docstring in HOSTILE:
        text = write_one(
            leaf("f", docstring=docstring),
            leaf("K.m", docstring=docstring),
            composite("m", docstring=docstring),
            composite("K", docstring=docstring, type="class"),
        )
        namespace: dict[str, object] = {"__name__": "m"}
        exec(compile(text.encode(), "m", "exec", dont_inherit=True), namespace)
        assert str(namespace["f"].__doc__).split()[:2] == docstring.split()[:2]


NAMES = st.sampled_from(["f", "g", "A", "B", "A.m", "B.n", "A.C.k"])
PATHS = st.sampled_from(["src/app/a.py", "src/app/b/__init__.py", "src/app/b/c.py", "src/app/d.py"])
TEXTS = st.one_of(
    st.text(max_size=60),
    st.builds(
        "Do.\n\nArgs:\n    x ({}): X.\n\nRaises:\n    {}: If.".format,
        st.text(max_size=9),
        st.sampled_from(["Exception", "RuntimeError", "V"]),
    ),
)
SIGNATURES = st.sampled_from(
    ["", "(self, x: A) -> 'B'", "(", "@B\ndef f(x=A()): ...", "def g(x: list[B] = None, *, y: B)"]
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    keys = draw(st.lists(st.tuples(PATHS, NAMES), min_size=1, max_size=8, unique=True))
    needs = st.lists(st.sampled_from([str(number) for number in range(len(keys))]), max_size=3)
    leaves = [
        leaf(name, path, *draw(needs), id=str(number), docstring=draw(TEXTS), signature=draw(SIGNATURES))
        for number, (path, name) in enumerate(keys)
    ]
    codes = st.sampled_from(
        ["", "X = f()\nY = X\n", "from app.d import *\n@g\ndef late(): ...\n", "# node: A\nimport app.a as a\na.f()\n"]
    )
    return make_graph(
        *leaves, *(composite(path, path, code=draw(codes)) for path in sorted({path for path, _ in keys}))
    )


@given(graphs())
def test_every_module_compiles_and_keeps_the_signatures_whatever_the_graph(graph: Graph) -> None:
    layout = Layout.of(graph, "g")
    texts = make_skeleton(graph, layout)
    assert texts == make_skeleton(graph, layout)
    for path, text in texts.items():
        if path.endswith(".py"):
            compile(text.encode(), path, "exec", dont_inherit=True)
    for node in graph.leaves:
        found = check_signature(texts[layout.map_path(node.file_path)], node.definitions[0], type=node.type)
        # A decorator that calls a stub waits for it, and a class has further methods.
        assert {each.part for each in found} <= {"decorators", "definition"}


STATS = (
    composite("descriptive", "src/stats/descriptive.py", docstring="Descriptive statistics."),
    leaf(
        "mean",
        "src/stats/descriptive.py",
        "check",
        docstring="Mean.\n\nArgs:\n    numbers: N.\nReturns:\n    float: M.",
    ),
    leaf("check", "src/stats/checks/basic.py", signature="check(numbers: Iterable[float], reader: Reader = None)"),
    leaf(
        "Reader", "src/stats/io/reader.py", "Source", "mean", signature="class Reader(Source):\n    def read(self): ..."
    ),
    leaf("Source", "src/stats/io/source.py", "Reader", signature="class Source:\n    def open(self): ..."),
    leaf("report", "src/stats/report.py", "mean", "Reader.close", signature="@memo\ndef report(a, *, b=None)"),
    leaf("memo", "src/stats/report.py", signature="memo(f)"),
    leaf("Reader.close", "src/stats/io/reader.py", "report", signature="(self)"),
)

CALLS = """
import importlib, inspect, pkgutil, stats
called = 0
def call(function, *first):
    global called
    called += 1
    given = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind < 2]
    try:
        function(*first, *given[len(first):])
    except NotImplementedError:
        return
    raise AssertionError(function)
names = [each.name for each in pkgutil.walk_packages(stats.__path__, "stats.")]
for module in [stats, *map(importlib.import_module, names)]:
    assert all(hasattr(module, name) for name in getattr(module, "__all__", ()))
    for value in vars(module).values():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and value.__name__ != "__getattr__":
            call(value)
        if inspect.isclass(value) and value.__module__ == module.__name__:
            for method in vars(value).values():
                if inspect.isfunction(method):
                    call(method, None)
print(called)
"""


ALONE = """
import importlib, sys
for each in sys.argv[1:]:
    importlib.import_module(each)
    for name in [name for name in sys.modules if name.partition(".")[0] == "stats"]:
        del sys.modules[name]
"""
EXAMPLE = """
import pytest
from stats.report import report

def test_report():
    with pytest.raises(NotImplementedError):
        report(1)
"""


def test_a_skeleton_can_be_imported_called_and_tested(tmp_path: Path) -> None:
    """Each module is imported first once, because that decides whether a circle breaks."""
    graph = make_graph(*STATS)
    layout = Layout.of(graph, "g")
    for path, text in {**make_skeleton(graph, layout), "tests/test_report.py": EXAMPLE}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    def run(*options: str) -> str:
        command = (sys.executable, "-B", *options)
        ended = subprocess.run(command, cwd=tmp_path / "src", capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    run("-c", ALONE, *sorted({layout.module_of(path) for path, _ in layout.rows}))
    assert run("-c", CALLS) == "7\n"
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "..")


def test_the_page_shows_what_a_graph_becomes() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/skeleton.md").read_text(encoding="utf-8")
    source, shown = (re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0] for language in ("json", "python"))
    graph, _ = parse_graph(source, path="graph.json")
    texts = make_skeleton(graph, Layout.of(graph, "graph"))
    assert texts["src/stats/descriptive.py"] == shown
    assert [path for path in texts if path.endswith(".py")] == [
        "src/stats/__init__.py",
        "src/stats/checks.py",
        "src/stats/descriptive.py",
    ]
