from cdd_agent.generation.late_code import write_late_code
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


def test_class_level_code_waits_and_classes_without_a_constructor_do_not_count() -> None:
    text = write(
        leaf("make", signature="make()"),
        leaf("Size", signature="class Size:\n    def get(self): ..."),
        leaf("Own", signature="class Own(Size):\n    def __init__(self): ..."),
        leaf("Heir", signature="class Heir(Own):\n    def more(self): ..."),
        leaf("K", signature=KLASS),
    )
    assert "    a = Size()\n    b = None  #: until app.m.make\n    #: after app.m.make: b: int = make()\n" in text
    assert "    c = None  #: until app.m.Own\n    #: after app.m.Own: c = Heir()\n    d = 1\n" in text
    assert "    #: after app.m.make: @make\n    def m(self):\n        raise NotImplementedError\n" in text
    done = write_late_code(text, {"app.m.make", "app.m.Own"})
    assert "    b: int = make()\n    c = Heir()\n    d = 1\n    @make\n    def m(self):" in done
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
