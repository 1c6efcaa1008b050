import ast
from collections.abc import Mapping

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.extract import Extraction, extract_graph
from cdd_agent.generation.package_files import PackageFiles
from cdd_agent.tickets.graph import Node
from cdd_agent.tickets.graph_file import encode_graph, parse_graph


def extract(files: Mapping[str, str | bytes], *others: str, package: str = "app") -> Extraction:
    sources = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    return extract_graph(PackageFiles(package=package, sources=sources, others=others))


def read(text: str, **more: str) -> dict[str, Node]:
    """Return id without its module -> leaf, of a package with the module ``m``."""
    files = {"app/__init__.py": "", "app/m.py": text} | {f"app/{name}.py": code for name, code in more.items()}
    return {node.id.removeprefix("app.m:"): node for node in extract(files).graph.leaves}


def find_code(text: str) -> str:
    return next(node.code for node in extract({"app/__init__.py": "", "app/m.py": text}).graph.nodes if "m" in node.id)


def test_a_function_keeps_its_header_and_docstring_and_the_module_the_rest() -> None:
    text = (
        '"""Sums."""\nimport os\n\n# adds\n@os.fspath\ndef add(a: int, b=1) -> int:\n    """Add.\n\n    Two."""\n'
        "    return a + b\n\n\nZERO = 0\n"
    )
    (leaf,) = read(text).values()
    assert (leaf.name, leaf.type, leaf.file_path, leaf.subgraph_id) == ("add", "function", "src/app/m.py", "m")
    assert leaf.docstring == "Add.\n\nTwo."
    assert leaf.signature == "@os.fspath\ndef add(a: int, b=1) -> int:\n    ..."
    assert leaf.parent == "app.m"
    assert find_code(text) == '"""Sums."""\nimport os\n\n# adds\n# node: add\n\n\nZERO = 0\n'


def test_a_class_with_its_methods_is_one_node_and_one_without_any_is_code() -> None:
    text = (
        "class A(B):\n    '''Doc.'''\n    x = 1\n"
        "    @property\n    def y(self):\n        'Y.'\n        return 2\n\nclass B(Exception): pass\n"
    )
    (leaf,) = read(text).values()
    assert (leaf.name, leaf.type, leaf.docstring) == ("A", "class", "Doc.")
    assert leaf.signature == 'class A(B):\n    x = 1\n\n    @property\n    def y(self):\n        """Y."""\n        ...'
    assert find_code(text) == "# node: A\n\nclass B(Exception): pass\n"


def test_a_missing_docstring_becomes_the_signature() -> None:
    leaves = read("@x\nasync def f(a, *, b=2): return 1\nclass K(int):\n    def m(self): pass\n")
    assert {name: leaf.docstring for name, leaf in leaves.items()} == {
        "f": "async def f(a, *, b=2)",
        "K": "class K(int)",
    }


def test_references_are_resolved_through_imports_attributes_and_stars() -> None:
    leaves = read(
        "from .a import one as first\nfrom .star import *\nimport app.a\nfrom . import a as other\n"
        "def f(one): return first(one) + starred()\n"
        "def g(): return app.a.two(), other.Three.x\n"
        "def h():\n    from .a import two\n    return two()\n"
        "def k(f=None):\n    def one(): f\n    return [g for g in ()], one\n",
        a="def one(): pass\ndef two(): pass\nclass Three:\n    def m(self): pass\n",
        star="def starred(): pass\n",
    )
    found = {name: sorted(leaf.dependencies) for name, leaf in leaves.items() if not name.startswith("app.")}
    assert found == {
        "f": ["app.a:one", "app.star:starred"],
        "g": ["app.a:Three", "app.a:two"],
        "h": ["app.a:two"],
        "k": [],
    }


def test_bases_decorators_and_annotations_count_unless_they_are_never_evaluated() -> None:
    text = (
        "def deco(f): pass\nclass T:\n    def m(self): pass\nclass Sub(T):\n    def n(self): pass\n"
        "@deco\ndef f(x: T, *, y: 'Sub') -> T: z: T\n"
    )
    assert read(text)["f"].dependencies == ("app.m:deco", "app.m:T")
    assert read(text)["Sub"].dependencies == ("app.m:T",)
    assert read(f"from __future__ import annotations\n{text}")["f"].dependencies == ("app.m:deco",)


def test_definitions_that_need_each_other_are_one_node() -> None:
    leaves = read(
        "from . import b\ndef even(n): return n == 0 or b.odd(n - 1)\ndef user(): return b.odd(1)\n",
        b="from . import m\ndef odd(n): return n != 0 and m.even(n - 1)\n",
    )
    assert set(leaves) == {"app.b:odd", "user"}
    odd = leaves["app.b:odd"]
    assert [(each.name, each.file_path) for each in odd.also] == [("even", "src/app/m.py")]
    assert leaves["user"].dependencies == ("app.b:odd",)


def test_names_that_are_defined_more_than_once_are_one_node_with_everything_in_between() -> None:
    overloads = "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(a): return a\n"
    twins = "if sys.platform == 'x':\n    import y\n    def g(): return y\nelse:\n    def g(): return 1\n"
    leaves = read(f"import sys\n{overloads}A = 1\n{twins}def h(): g()\n")
    assert set(leaves) == {"f", "g", "h"}
    assert leaves["f"].signature.count("def f(") == 3
    assert "import y" in leaves["g"].signature
    assert "return" not in leaves["g"].signature
    assert find_code(f"import sys\n{overloads}A = 1\n{twins}def h(): g()\n") == (
        "import sys\n# node: f\nA = 1\n# node: g\n# node: h\n"
    )
    several = read("def f(): pass\ndef between(): pass\nx = between()\ndef f(): pass\ndef user(): between()\n")
    assert [*several] == ["f", "user"]
    assert several["user"].dependencies == ("app.m:f",)


def test_definitions_that_one_branch_has_alone_keep_their_places() -> None:
    text = (
        "try:\n    from fast import f\nexcept ImportError:\n    def f(): pass\nif TYPE_CHECKING:\n    def g(): pass\n"
    )
    assert [*read(text)] == ["f"]
    assert find_code(text) == (
        "try:\n    from fast import f\nexcept ImportError:\n    # node: f\nif TYPE_CHECKING:\n    def g(): pass\n"
    )


def test_what_runs_at_import_comes_first_unless_that_makes_a_circle() -> None:
    leaves = read(
        "from . import reg\ndef make(): return helper()\ndef helper(): return LIMITS\nLIMITS = make()\n"
        "def user(): return LIMITS\ndef other(): pass\ndef late(): return reg.NAMES\n",
        reg="def register(x): pass\nNAMES = []\nregister(NAMES)\n",
    )
    found = {name: leaf.dependencies for name, leaf in leaves.items()}
    assert found["make"] == ("app.m:helper",)
    assert found["helper"] == ()
    assert found["user"] == found["other"] == ("app.m:make",)
    assert found["late"] == ("app.m:make", "app.reg:register")


def test_functions_of_a_module_that_python_calls_itself_are_code() -> None:
    text = "def __getattr__(name): raise AttributeError\ndef f(): pass\n"
    assert [*read(text)] == ["f"]
    assert find_code(text) == text.replace("def f(): pass", "# node: f")


def test_files_without_a_node_are_listed_and_tests_left_out() -> None:
    files: dict[str, str | bytes] = {
        "app/__init__.py": "def f(): pass\n",
        "app/my-script.py": "1",
        "app/new.py": "def g(:\n",
        "app/latin.py": "# -*- coding: latin-1 -*-\nX = 'é'\n".encode("latin-1"),
        "app/tests/test_f.py": "def test_f(): pass\n",
        "app/tests/tools.py": "def tool(): pass\n",
    }
    found = extract(files, "app/py.typed", "app/tests/data.json", "app/_speed.cpython-311-x86_64-linux-gnu.so")
    assert found.graph.metadata["data"] == ["src/app/my-script.py", "src/app/new.py", "src/app/py.typed"]
    assert [node.id for node in found.graph.leaves] == ["app:f"]
    assert next(node.code for node in found.graph.nodes if node.id == "app.latin").endswith("\nX = 'é'\n")
    assert any(
        notice.startswith("app/new.py is copied as it is: this Python cannot read it: line 1")
        for notice in found.notices
    )
    assert "tests, and files that no node may write, are left out: app/tests/" in found.notices
    assert "compiled modules are left out: app/_speed.cpython-311-x86_64-linux-gnu.so" in found.notices


def test_the_graph_of_one_module_is_read_back_as_it_is() -> None:
    graph = extract({"app.py": "class A:\n    def m(self): return A()\n"}).graph
    assert graph.metadata == {"name": "app", "package": "app", "has_all_imports": True}
    assert [node.file_path for node in graph.nodes] == ["src/app.py", "src/app.py"]
    again, notices = parse_graph(encode_graph(graph).decode(), path="g.json")
    assert again == graph
    assert notices == ()


@pytest.mark.parametrize(
    ("files", "package", "words"),
    [
        ({"app/__init__.py": "X = 1\n"}, "app", "app defines no function"),
        (
            {"json/__init__.py": "def f(): pass\n"},
            "json",
            "the top-level name 'json' is that of a module of the standard",
        ),
        ({"app/__init__.py": "", "app/A.py": "def f(): pass", "app/a.py": ""}, "app", "differ only in case"),
    ],
)
def test_a_package_that_no_graph_can_describe_is_refused(files: dict[str, str], package: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        extract(files, package=package)


def test_deep_and_long_code_is_read() -> None:
    chain = "x" + ".y" * 400
    leaves = read(f"def f(): return {chain}\ndef g(): return {'(' * 90}f{')' * 90}\n")
    assert leaves["g"].dependencies == ("app.m:f",)
    assert ast.parse(leaves["f"].signature)
