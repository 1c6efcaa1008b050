from cdd_agent.generation.late_code import list_effects, write_late_code
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.skeleton import make_skeleton
from cdd_agent.tickets.graph import Node
from tests.fakes.graphs import composite, leaf, make_graph

CODE = "LIMIT = 3\nX = make(\n    '''a\n  b''')\nY = X.part\nZ = 1\n"
KLASS = """
class K:
    a = Size()
    b: int = make()
    c = Heir()
    d = 1
    @make
    def m(self): ...
"""


def write(*nodes: Node) -> str:
    graph = make_graph(*nodes)
    return make_skeleton(graph, Layout.of(graph, "g"))["src/app/m.py"]


def test_code_that_calls_a_stub_when_it_is_imported_waits_for_it() -> None:
    text = write(leaf("make", signature="make(x)"), composite("m", code=f"# node: make\n{CODE}"))
    assert text.endswith(
        "LIMIT = 3\nX = None  #: until app.m.make\n#: after app.m.make: X = make(\n#: after app.m.make:     '''a\n"
        "#: after app.m.make:   b''')\nY = None  #: until app.m.make\n#: after app.m.make: Y = X.part\nZ = 1\n"
    )
    assert write_late_code(text, {"app.m.other"}) == text
    assert write_late_code(text, {"app.m.make"}).endswith(CODE)


def test_statements_that_bind_no_name_have_effects_elsewhere() -> None:
    code = "import io\n# node: make\nmake(\n    1)\nif io:\n    X = make(2)\n"
    text = write(
        leaf("make", signature="make(x)"), leaf("f", signature="@make\ndef f(): ..."), composite("m", code=code)
    )
    assert text.count("#: after app.m.make") == 5
    assert [*list_effects(text)] == ["app.m.make"]


def test_decorators_wait_for_all_they_call() -> None:
    nodes = (
        leaf("mark", "src/app/marks.py", signature="mark(text)"),
        leaf("Log.__init__", "src/app/marks.py", signature="(self)"),
        leaf("wrap", signature="wrap(f)"),
        leaf("f", signature="@mark(Log())\n@wrap\n@cache\ndef f(): ..."),
        composite("m", code="from .marks import *\n"),
    )
    text = write(*nodes)
    waiting = (
        "#: after app.marks.Log.__init__, app.marks.mark: @mark(Log())\n#: after app.m.wrap: @wrap\n@cache\ndef f():"
    )
    assert waiting in text
    written = write_late_code(text, {"app.m.wrap"})
    assert "app.marks.mark: @mark(Log())\n@wrap\n@cache\ndef f():" in written
    assert "\n@mark(Log())\n@wrap\n" in write_late_code(written, {"app.marks.mark", "app.marks.Log.__init__", "x"})


def test_class_level_code_waits_for_all_stubs_of_a_class_and_of_its_bases() -> None:
    text = write(
        leaf("make", signature="make()"),
        leaf("Size", signature="class Size:\n    def get(self): ..."),
        leaf("Own", signature="class Own(Size):\n    def __init__(self): ..."),
        leaf("Heir", signature="class Heir(Own):\n    def more(self): ..."),
        leaf("K", signature=KLASS),
    )
    assert "    a = None  #: until app.m.Size\n    #: after app.m.Size: a = Size()\n" in text
    assert "    b = None  #: until app.m.make\n    #: after app.m.make: b: int = make()\n" in text
    family = "app.m.Heir, app.m.Own, app.m.Size"
    assert f"    c = None  #: until {family}\n    #: after {family}: c = Heir()\n    d = 1\n" in text
    assert "    #: after app.m.make: @make\n    def m(self):\n        raise NotImplementedError\n" in text
    done = write_late_code(text, {"app.m.make", "app.m.Size", "app.m.Own", "app.m.Heir"})
    assert "    b: int = make()\n    c = Heir()\n    d = 1\n\n    @make\n    def m(self):" in done
    compile(done, "m", "exec")


def test_what_waits_is_found_through_other_modules_and_inside_of_classes() -> None:
    inner = "class Inner:\n        def __init__(self): ..."
    nodes = (
        leaf("make", "src/app/deep/a.py", signature="make()"),
        leaf("Sort.compare", signature="(op)"),
        leaf("Sort", signature=f"class Sort:\n    {inner}\n    x = Inner()\n    y = compare(1)\n    compare = 2"),
        leaf("value", signature="@property\ndef value(self): ...\n@value.setter\ndef value(self, v): ..."),
        composite("deep", "src/app/deep/__init__.py", code="from .a import *\nfrom . import a as other\n"),
        composite("app", "src/app/__init__.py", code="from .deep import make as first, other\nimport app.deep as d\n"),
        composite("m", code="import app\napp.first()\napp.d.a.make()\napp.other.make()\napp.other.none()\n"),
    )
    text = write(*nodes)
    calls = ("app.first()", "app.d.a.make()", "app.other.make()")
    assert all(f"\n#: after app.deep.a.make: {call}\n" in text for call in calls)
    assert "\napp.other.none()\n" in text
    assert "    x = None  #: until app.m.Sort\n    #: after app.m.Sort: x = Inner()\n" in text
    assert "    y = None  #: until app.m.Sort.compare\n    #: after app.m.Sort.compare: y = compare(1)\n" in text
    assert "@value.setter\n" in text


def test_statements_on_one_line_and_changes_of_a_name_wait_together() -> None:
    code = "y = 1; x = f()\nx += 1\nfor z in x: pass\nw = y\n"
    text = write(leaf("f", signature="f()"), composite("m", code=code))
    kept = [line for line in text.split("\n") if line.endswith("#: until app.m.f")]
    assert [line.partition(" ")[0] for line in kept] == ["y", "x", "x", "z", "w"]
    compile(text, "m", "exec")
    assert write_late_code(text, {"app.m.f"}).startswith(code)


def test_classes_wait_for_all_that_is_called_when_they_are_created() -> None:
    meta = "class Meta(type):\n    def __new__(cls, *a): ..."
    hooked = "class Hooked:\n    def __init_subclass__(cls): ..."
    nodes = (
        leaf("Meta", "src/app/meta.py", signature=meta),
        leaf("Hooked", "src/app/meta.py", signature=hooked),
        leaf("make", signature="make()"),
        leaf("Base", signature="class Base(metaclass=meta.Meta):\n    x = 1\n\n    def m(self): ..."),
        leaf("Heir", signature="class Heir(Base[int]):\n    def n(self): ..."),
        leaf("Own", signature="class Own(Hooked):\n    def n(self): ..."),
        leaf("Made", signature="class Made(make()):\n    def n(self): ..."),
        leaf("f", signature="def f(x=make()): ..."),
        composite("m", code="from app import meta\nfrom app.meta import *\n"),
        composite(
            "other", "src/app/other.py", code="from app.m import Heir as H\nimport app.m\nX = H\nY = app.m.Made.z\n"
        ),
    )
    graph = make_graph(*nodes)
    texts = make_skeleton(graph, Layout.of(graph, "g"))
    text = texts["src/app/m.py"]
    waiting = {"Base": "app.meta.Meta", "Heir": "app.meta.Meta", "Own": "app.meta.Hooked", "Made": "app.m.make"}
    assert all(
        f"\n{name} = None  #: until {needed}\n#: after {needed}: class {name}(" in text
        for name, needed in waiting.items()
    )
    assert "\nf = None  #: until app.m.make\n#: after app.m.make: def f(x=make()):\n" in text
    assert texts["src/app/other.py"].endswith(
        "X = None  #: until app.meta.Meta\n#: after app.meta.Meta: X = H\n"
        "Y = None  #: until app.m.make\n#: after app.m.make: Y = app.m.Made.z\n"
    )
    done = write_late_code(text, {"app.meta.Meta", "app.meta.Hooked", "app.m.make"})
    assert "#:" not in done
    assert 'class Base(metaclass=meta.Meta):\n    """Do Base."""\n    x = 1\n\n    def m(self):\n' in done
    compile(done, "m", "exec")


def test_objects_of_classes_and_functions_without_their_decorators_are_not_used() -> None:
    token = "class Token(tuple):\n    def __getattr__(self, name): ..."
    text = write(
        leaf("Token", signature=token),
        leaf("group", signature="def group(f): ..."),
        leaf("cli", signature="@group\ndef cli(): ..."),
        leaf("sub", signature="@staticmethod\n@cli.command\n@group\ndef sub(): ..."),
        leaf("K", signature="class K:\n    x = Token()\n    y = x.part\n\n    def m(self): ..."),
        composite("m", code="ROOT = Token()\nNAME = ROOT.name\n"),
    )
    assert "NAME = None  #: until app.m.Token\n#: after app.m.Token: NAME = ROOT.name\n" in text
    assert "@staticmethod\n#: after app.m.group: @cli.command\n#: after app.m.group: @group\ndef sub():" in text
    assert "    y = None  #: until app.m.Token\n    #: after app.m.Token: y = x.part\n" in text


def test_annotations_that_run_wait_for_the_names_in_them() -> None:
    code = "X = make()\nKIND = 3\n# node: f\n# node: K\n# node: make\n"
    nodes = (
        leaf("make", signature="make()"),
        leaf("f", signature="def f(x: X | None, y: KIND): ..."),
        leaf("K", signature="class K:\n    a: 'X'\n\n    def m(self) -> X.part: ..."),
    )
    for start, is_late in (("", True), ("from __future__ import annotations\n", False)):
        graph = make_graph(*nodes, composite("m", code=start + code), has_all_imports=True)
        text = make_skeleton(graph, Layout.of(graph, "g"))["src/app/m.py"]
        assert text.startswith(start)
        assert [f"{name} = None  #: until app.m.make" in text for name in ("X", "f", "K")] == [True, is_late, is_late]
