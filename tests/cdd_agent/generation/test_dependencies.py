"""The dependencies of code are found as far as its text shows them, and compared with the graph."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from cdd_agent.generation.dependencies import compare_dependencies
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.outcome import Dependencies
from cdd_agent.tickets.graph import Node, NodeId
from tests.fakes.graphs import composite, leaf, make_graph


def compare(
    code: Mapping[str, str],
    *nodes: Node,
    failed: Collection[str] = (),
    exported: Collection[str] = (),
    entering: Mapping[str, Collection[str]] | None = None,
) -> Dependencies:
    """Compare the modules of a package ``app``, module -> text, with a graph."""
    graph = make_graph(*nodes, package="app")
    texts = {f"src/app/{name}.py": text for name, text in code.items()}
    return compare_dependencies(
        graph,
        Layout.of(graph, "app"),
        files={"src/app/__init__.py": "", **texts},
        passed=[node.id for node in graph.leaves if node.id not in failed],
        exported=exported,
        entering={NodeId(id): tests for id, tests in (entering or {}).items()},
    )


def node(name: str, *needs: str, module: str = "m", type: str = "function") -> Node:
    return leaf(name, f"src/app/{module}.py", *needs, type=type)


MEAN = node("mean", module="stats")
STATS = "def mean(values):\n    return sum(values)\n"


def judge(text: str, *more: Node, code: Mapping[str, str] | None = None) -> str:
    """Return what is said about the dependency of ``report``, in the module ``m``, on ``mean``."""
    found = compare({"stats": STATS, "m": text, **(code or {})}, MEAN, node("report", "mean"), *more)
    kinds = ("confirmed", "missing", "unknown")
    return next(kind for kind in kinds if ("report", "mean") in getattr(found, kind))


def test_a_planned_dependency_is_confirmed_however_its_name_is_imported() -> None:
    for text in (
        "from .stats import mean\ndef report(v): return mean(v)\n",
        "from app.stats import mean as average\ndef report(v): return average(v)\n",
        "from app import stats\ndef report(v): return stats.mean(v)\n",
        "import app.stats as s\ndef report(v): return s.mean(v)\n",
        "import app.stats\ndef report(v): return app.stats.mean(v)\n",
        "from .stats import *\ndef report(v): return mean(v)\n",
        "def report(v):\n    from .stats import mean\n    return mean(v)\n",
        "from .stats import mean\ndef report(v): return [*map(mean, v)]\n",
        "from .stats import mean\n@mean\ndef report(v): return v\n",
        "from .stats import mean\nKINDS = {'mean': mean}\ndef report(v, kind): return KINDS[kind](v)\n",
        "from .stats import mean\ndef _help(v): return mean(v)\ndef report(v): return _help(v)\n",
        "from .stats import mean\nfrom functools import singledispatch\n@singledispatch\ndef report(v): return v\n"
        "@report.register\ndef _(v: list): return mean(v)\n",
        "from . import stats\nfrom functools import partial\ndef report(v): return partial(stats.mean, v)\n",
    ):
        assert judge(text) == "confirmed", text


def test_names_are_followed_through_packages_that_export_them_also_late() -> None:
    again = {"sub/__init__": "from ..stats import mean as average\n", "sub/x": ""}
    assert judge("from .sub import average\ndef report(v): return average(v)\n", code=again) == "confirmed"
    late = {
        "sub/__init__": "from importlib import import_module\n_HOMES = {'mean': 'app.stats'}\n"
        "def __getattr__(name):\n    return getattr(import_module(_HOMES[name]), name)\n"
    }
    assert judge("from .sub import mean\ndef report(v): return mean(v)\n", code=late) == "confirmed"


def test_a_planned_dependency_that_the_code_does_not_have_is_missing() -> None:
    for text in (
        "def report(v): return sum(v)\n",
        "from .stats import mean\ndef report(v): return sum(v)\n",
        "from .stats import mean\ndef report(mean): return mean(1)\n",
        "def report(v):\n    'Like mean.'\n    return {'mean': 1}\n",
        "import statistics\ndef report(v): return statistics.mean(v)\n",
        "def report(v):\n    found = {}\n    return found.mean\n",
    ):
        assert judge(text) == "missing", text


def test_what_only_a_run_shows_is_unknown() -> None:
    for text in (
        "def report(v, how): return how.mean(v)\n",
        "from . import stats\ndef report(v, name): return getattr(stats, name)(v)\n",
        "from . import stats\ndef report(v): return getattr(stats, f'me{v}')\n",
        "from importlib import import_module\ndef report(v): return import_module(v)\n",
        "def report(v): return eval(v)\n",
        "from .stats import mean as report\n",
        "from . import stats\ndef report(v): return v(stats)\n",
        "from . import stats\ndef report(v): return getattr(stats, 'mean')(v)\n",
    ):
        assert judge(text) == "unknown", text
    assert judge("def report(v): return getattr(v, f'visit_{v}')\n") == "missing"


def test_tests_that_enter_both_nodes_confirm_what_the_code_does_not_show() -> None:
    code = {"stats": STATS, "m": "def report(v, how): return how.mean(v)\n"}
    tests = {"report": {"t::a"}, "mean": {"t::a", "t::b"}}
    found = compare(code, MEAN, node("report", "mean"), entering=tests)
    assert (found.entered, found.unknown) == ((("report", "mean"),), ())
    assert found.actual[NodeId("report")] == ("mean",)
    found = compare(code, MEAN, node("report", "mean"), entering={"report": {"t::a", "t::c"}, "mean": {"t::a"}})
    assert found.unknown == (("report", "mean"),)


STACK = """
class Base:
    def size(self): return 0

class Stack(Base):
    top: "Stack | None" = None
    def __init__(self): self.items = []
    def push(self, item): self._grow(); self.items.append(item)
    def pop(self): return super().size()
    def _grow(self): pass
    @classmethod
    def make(cls): return cls()
"""
METHODS = (
    node("Base", type="class"),
    node("Base.size", type="method"),
    node("Stack", "Base", type="class"),
    node("Stack.push", "Stack._grow", type="method"),
    node("Stack.pop", "Base.size", type="method"),
    node("Stack._grow", type="method"),
    node("Stack.make", type="method"),
)


def test_methods_are_found_through_self_super_annotations_and_assignments() -> None:
    assert compare({"m": STACK}, *METHODS).missing == ()
    for text in (
        "def use(): Stack().push(1)\n",
        "def use():\n    stack = Stack()\n    stack.push(1)\n",
        "def use(stack: Stack): stack.push(1)\n",
        "def use(stack: 'Stack | None' = None): stack.push(1)\n",
        "def use(stack: Stack): stack.top.push(1)\n",
        "def use(f): Stack.push(f, 1)\n",
        "def build() -> Stack: return Stack()\ndef use(): build().push(1)\n",
        "STACK = Stack()\ndef use(): STACK.push(1)\n",
        "async def use(stack: Stack):\n    async with stack as it:\n        it.push(1)\n",
        "def use(stack: Stack):\n    def inner(): return stack.push(1)\n    return inner\n",
        "class Box:\n    def __init__(self, s: Stack): self.s = s\n    def go(self): self.s.push(1)\n"
        "def use(box: Box): box.go()\n",
    ):
        found = compare({"m": f"{STACK}\n{text}"}, *METHODS, node("use", "Stack.push"))
        assert ("use", "Stack.push") in found.confirmed, text
    found = compare({"m": f"{STACK}\ndef use(stack: Stack): return stack.size()\n"}, *METHODS, node("use"))
    assert found.extra == {("use", "Base.size"): "src/app/m.py:14"}


def test_a_class_counts_as_used_where_only_annotations_name_it_but_is_nothing_extra() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .m import Stack\n"
    code = {"m": STACK, "n": text + "def use(s: 'Stack'): return s\n"}
    found = compare(code, *METHODS, node("use", "Stack", module="n"))
    assert ("use", "Stack") in found.confirmed
    assert compare(code, *METHODS, node("use", module="n")).extra == {}
    code["n"] = text + "from typing import Literal\ndef use(s: Literal['Stack']): return s\n"
    assert ("use", "Stack") not in compare(code, *METHODS, node("use", "Stack", module="n")).confirmed


def test_a_dependency_that_is_not_planned_has_its_place() -> None:
    code = {"stats": STATS, "m": "from .stats import mean\n\ndef report(v):\n    x = 1\n    return mean(v)\n"}
    found = compare(code, MEAN, node("report"))
    assert found.extra == {("report", "mean"): "src/app/m.py:5"}
    assert found.actual == {"mean": (), "report": ("mean",)}
    code["m"] = "from .stats import mean\ndef _help(v):\n    return mean(v)\n\ndef report(v): return _help(v)\n"
    assert compare(code, MEAN, node("report")).extra == {("report", "mean"): "src/app/m.py:3"}


def test_a_dependency_on_what_runs_when_a_module_is_imported_is_confirmed() -> None:
    code = {"stats": STATS, "limits": "from .stats import mean\nLIMIT = mean([1])\ndef clip(v): return v\n"}
    code["m"] = "from .limits import clip\ndef report(v): return clip(v)\n"
    clip = node("clip", "mean", module="limits")
    found = compare(code, MEAN, clip, node("report", "mean", "clip"))
    assert found.missing == ()
    assert found.extra == {}
    assert found.actual[NodeId("report")] == ("clip",)


def test_nodes_that_have_not_passed_are_not_compared() -> None:
    found = compare({"stats": STATS, "m": "def report(v): pass\n"}, MEAN, node("report", "mean"), failed=["report"])
    assert (found.planned, found.actual) == (0, {"mean": ()})


def test_an_unused_function_is_one_that_others_should_need_or_that_is_private() -> None:
    nodes = (MEAN, node("_trim"), node("report", "mean"), node("other"))
    plain = {"stats": STATS, "m": "def _trim(v): return v\ndef report(v): return 1\ndef other(): pass\n"}
    assert compare(plain, *nodes).unused == {"mean": "src/app/stats.py:1", "_trim": "src/app/m.py:1"}
    exported = compare(plain, *nodes, exported=["app.stats:mean"])
    assert [*exported.unused] == ["_trim"]
    for more in (
        "from .stats import mean\nDONE = mean([1])\n",
        "def anyone(x): return x.mean(), x._trim()\n",
        "from . import stats\nNAMES = ['mean', '_trim']\ndef go(): return [getattr(stats, n) for n in NAMES]\n",
    ):
        assert "mean" not in compare({**plain, "n": more}, *nodes).unused, more
    assert compare({**plain, "n": "def ("}, *nodes).unused == {}


def test_what_python_or_a_decorator_calls_is_not_unused() -> None:
    text = "import json\ndef deco(f): return f\n@deco\ndef _kept(): pass\n"
    text += "class E(json.JSONEncoder):\n    def _default(self): pass\n    def __len__(self): return 0\n"
    names = ("_kept", "E._default", "E.__len__")
    assert compare({"m": text}, node("E", type="class"), *(node(name) for name in names)).unused == {}


def test_a_composite_is_needed_if_something_in_it_is() -> None:
    module = composite("stats", "src/app/stats.py")
    mean = replace(MEAN, parent=module.id)
    code = {"stats": STATS, "m": "from .stats import mean\ndef report(v): return mean(v)\n"}
    found = compare(code, module, mean, node("report", "@stats"))
    assert found.confirmed == (("report", "@stats"),)
    assert found.extra == {}


@pytest.mark.parametrize("text", ["x = " + "a." * 5000 + "b", "def report(v): return " + "(" * 150 + "v" + ")" * 150])
def test_deep_code_is_read(text: str) -> None:
    compare({"m": f"def report(v): pass\n{text}\n"}, node("report"))


def test_an_object_that_is_made_of_itself_has_no_known_class() -> None:
    text = "class A(A):\n    def f(self):\n        self.x = self.y\n        self.y = self.x\n        self.x.go()\n"
    text += "X = Y\nY = X\n"
    assert compare({"m": text + "def use(): X.go()\n"}, node("A", type="class"), node("use")).missing == ()
