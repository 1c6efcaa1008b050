import importlib
import importlib.abc
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.generation.layout import Layout
from cdd_agent.generation.skeleton import make_skeleton
from cdd_agent.tickets.graph import Graph, Node
from tests.fakes.graphs import composite, leaf, make_graph


def write(*nodes: Node) -> Mapping[str, str]:
    graph = make_graph(*nodes)
    texts = make_skeleton(graph, Layout.of(graph, "g"))
    return {path.removeprefix("src/app/"): text for path, text in texts.items()}


def list_imports(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.lstrip().startswith(("import ", "from ", "if TYPE"))]


def test_import_resolution() -> None:
    """A node that needs `bar` of `foo` gets `from app.foo import bar`: absolute, sorted, once."""
    texts = write(
        leaf("main", "app/main.py", "bar", "Reader.read", "@tools", "bar2", signature="main(path: Path)"),
        leaf("other", "app/main.py", "bar", "main"),
        leaf("bar", "app/foo.py"),
        leaf("bar2", "app/foo.py"),
        leaf("Reader.read", "app/io/reader.py"),
        leaf("tool", "app/tools.py"),
        composite("tools", "app/tools.py"),
    )
    assert list_imports(texts["main.py"]) == [
        "from __future__ import annotations",
        "from pathlib import Path",
        "from app import tools",
        "from app.foo import bar, bar2",
        "from app.io.reader import Reader",
    ]


def test_equal_names_of_two_modules_get_another_name() -> None:
    texts = write(
        leaf("load", "app/main.py", "a", "b"), leaf("load", "app/a.py", id="a"), leaf("load", "app/b.py", id="b")
    )
    assert list_imports(texts["main.py"]) == ["from app.a import load as a_load", "from app.b import load as b_load"]


def test_a_class_that_only_an_annotation_names_is_imported_for_types_alone() -> None:
    texts = write(leaf("f", "app/main.py", signature="f(x: 'Reader | None')"), leaf("Reader", "app/io.py"))
    assert list_imports(texts["main.py"]) == [
        "from __future__ import annotations",
        "from typing import TYPE_CHECKING",
        "if TYPE_CHECKING:",
        "    from app.io import Reader",
    ]


def test_an_import_that_closes_a_circle_is_inside_the_functions() -> None:
    texts = write(
        leaf("f", "app/a.py", "g"),
        leaf("g", "app/b.py", "h"),
        leaf("h", "app/c.py", "f", signature="h(x: K)"),
        leaf("K", "app/a.py", "h"),
    )
    assert list_imports(texts["a.py"]) == ["from app.b import g", "from app.c import h"]
    assert list_imports(texts["b.py"]) == ["    from app.c import h"] or list_imports(texts["c.py"])[-1:] == [
        "    from app.a import f"
    ]


def test_what_is_needed_at_import_is_never_inside_a_function() -> None:
    texts = write(
        leaf("A.run", "app/a.py", "B"),
        leaf("A", "app/a.py", signature="class A: ..."),
        leaf("B", "app/b.py", "A", signature="class B(A): ..."),
    )
    assert list_imports(texts["b.py"]) == ["from app.a import A"]
    assert list_imports(texts["a.py"]) == ["        from app.b import B"]


def test_a_package_that_would_import_its_modules_in_a_circle_waits() -> None:
    texts = write(leaf("x", "app/sub/m.py", "y"), leaf("y", "app/other/n.py"), leaf("z", "app/other/o.py", "x"))
    assert "__getattr__" not in texts["sub/__init__.py"] + texts["__init__.py"]
    assert '    "z": "app.other.o",\n' in texts["other/__init__.py"]
    assert '__all__ = ["y", "z"]' in texts["other/__init__.py"]


def test_what_the_code_of_a_module_imports_is_not_imported_again() -> None:
    needs = ("a", "b", "c", "d")
    code = "from .io import a as first\nfrom app.io import *\nfrom app import net\n"
    code += "if TYPE_CHECKING:\n    from app.late import d\n"
    texts = write(
        leaf("f", "app/main.py", *needs),
        composite("main", "app/main.py", code=code),
        leaf("a", "app/io.py"),
        leaf("b", "app/io.py"),
        leaf("c", "app/net.py"),
        leaf("d", "app/late.py"),
    )
    assert list_imports(texts["main.py"])[0] == "from app.late import d"
    assert list_imports(texts["main.py"])[1:] == [line for line in code.split("\n") if line]


class Texts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules from texts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {path.removesuffix(".py").replace("/", "."): text for path, text in texts.items()}

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        is_package = f"{name}.__init__" in self.texts
        if not is_package and name not in self.texts:
            return None
        return ModuleSpec(name, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        exec(compile(self.texts.get(name) or self.texts[f"{name}.__init__"], name, "exec"), vars(module))

    def forget(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "skel"]:
            del sys.modules[name]


FILES = ("__init__", "a", "b", "p/__init__", "p/c", "p/d", "p/q/e", "q/f", "q/__init__")


@st.composite
def needs(draw: st.DrawFn) -> Graph:
    ids = [str(number) for number in range(draw(st.integers(2, 14)))]
    some = st.lists(st.sampled_from(ids), max_size=3)
    files = st.sampled_from(FILES)
    return make_graph(*(leaf(f"f{id}", f"skel/{draw(files)}.py", *draw(some), id=id) for id in ids))


@given(needs())
def test_every_module_can_be_imported_first_and_every_stub_raises(graph: Graph) -> None:
    layout = Layout.of(graph, "g")
    finder = Texts({path[4:]: text for path, text in make_skeleton(graph, layout).items() if path.endswith(".py")})
    sys.meta_path.insert(0, finder)
    try:
        for name in sorted({layout.module_of(node.file_path) for node in graph.leaves}):
            module = importlib.import_module(name)
            assert all(hasattr(module, each) for each in getattr(module, "__all__", ()))
            finder.forget()
        for node in graph.leaves:
            stub = getattr(importlib.import_module(layout.module_of(node.file_path)), node.name)
            with pytest.raises(NotImplementedError):
                stub()
    finally:
        finder.forget()
        sys.meta_path.remove(finder)
