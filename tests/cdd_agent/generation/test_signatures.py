import ast

from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.generation.signatures import check_signature, choose_stub_error, find_open_questions, read_signature
from cdd_agent.tickets.graph import Definition
from pytest_tdd_agent.failure import classify, find_stage
from pytest_tdd_agent.report import Failure
from tests.fakes.graphs import composite, leaf, make_graph


def define(docstring: str = "Do.", signature: str = "", name: str = "f") -> Definition:
    return Definition(name=name, file_path="m.py", docstring=docstring, signature=signature)


def read(definition: Definition, type: str = "function", *, known: tuple[str, ...] = ()) -> str:
    statements = read_signature(definition, type=type, known=known).statements
    return "\n".join(map(ast.unparse, statements)).replace("\n    ...", " ...").replace("\n\n", "\n")


def test_a_signature_may_lack_its_body_its_def_or_its_name() -> None:
    expected = "def f(x: int) -> int: ..."
    for signature in (
        "def f(x: int) -> int: ...",
        "def f(x: int) -> int",
        "def f(x: int) -> int:",
        "def f(x: int) -> int:\n\treturn x",
        "  def f(x: int) -> int:\n    pass",
        "f(x: int) -> int",
        "m.f (x: int) -> int",
        "(x: int) -> int",
    ):
        assert read(define(signature=signature)) == expected
    assert read(define(signature="f(x)")) == "def f(x): ..."
    assert read(define(signature="async f(x)")) == "async def f(x): ..."


def test_a_signature_may_have_several_statements() -> None:
    twins = "if TYPE:\n    def f(x): ...\nelse:\n    def f(y): ..."
    assert read(define(signature=twins)) == "if TYPE:\n    def f(x):\n        ...\nelse:\n    def f(y):\n        ..."
    pair = "@property\ndef f(self): ...\n@f.setter\ndef f(self, value): ..."
    assert read(define(signature=pair)) == pair


def test_the_signature_of_a_method_may_name_its_class_or_be_inside_it() -> None:
    for signature in ("def read(self, n)", "Reader.read(self, n)", "class Reader:\n    def read(self, n): ..."):
        assert read(define(signature=signature, name="Reader.read")) == "def read(self, n): ..."


def test_what_is_no_signature_is_open_and_the_docstring_counts() -> None:
    for signature in ("def g(x): ...", "((((", "def f(x, x): ...", "def f(x): \0", "class g: ...", "f", "x" * 300_000):
        found = read_signature(define("Do.\n\nArgs:\n    y: A.", signature))
        assert ([kind for kind, _ in found.open], found.is_given) == (["signature", "types"], False)
        assert ast.unparse(found.statements[0]).startswith("def f(y)")


GOOGLE = """Calculate arithmetic mean of numbers.

Args:
    numbers: List of floats
    places (int, optional): Digits. Defaults to 3.
    *more (float): Further.
Returns:
    float: Mean value
Raises:
    ValueError: If empty
"""
NUMPY = """Calculate.

Parameters
----------
x, y : int, optional
    X.
z : {'a', 'b'}

Returns
-------
list[Reader]
    All.
"""
SPHINX = """Calculate.

:param int x: X
:param y: Y, defaults to 'a'
:type y: Optional[str]
:rtype: Dict[str, np.ndarray]
"""


def test_a_google_docstring_gives_parameters_and_certain_types() -> None:
    assert read(define(GOOGLE)) == "def f(numbers, places: int=3, *more: float) -> float: ..."


def test_numpy_and_sphinx_docstrings_count_too() -> None:
    assert read(define(NUMPY), known=("Reader",)) == "def f(x: int=None, y: int=None, z=None) -> list[Reader]: ..."
    assert read(define(SPHINX)) == "def f(x: int, y: Optional[str]='a'): ..."


def test_types_in_prose_are_no_types() -> None:
    for prose in (
        "list of float",
        "array-like",
        "Reader",
        "np.ndarray",
        "callable",
        "True",
        "'x'",
        "int()",
        "int or None",
    ):
        assert read(define(f"F.\n\nArgs:\n    x ({prose}): X.")) == "def f(x): ..."
    for certain in (
        "int | None",
        "Callable[[int, str], None]",
        "tuple[int, ...]",
        "Literal['a', 'b']",
        "dict[str, list[int]]",
    ):
        assert read(define(f"F.\n\nArgs:\n    x ({certain}): X.")) == f"def f(x: {certain}): ..."


def test_the_first_line_of_a_docstring_may_be_the_signature() -> None:
    assert read(define("f(x: int, y=2) -> str\n\nDo it.")) == "def f(x: int, y=2) -> str: ..."
    assert read(define("def f(x): ...")) == "def f(x): ..."
    assert read(define("f is nice (very)")) == "def f(*args, **kwargs): ..."


def test_a_method_gets_its_receiver() -> None:
    docstring = "Do.\n\nArgs:\n    self: Ignored.\n    n (int): N."
    assert read(define(docstring, name="A.f"), "method") == "def f(self, n: int): ..."
    assert read(define(docstring, name="A.f"), "classmethod") == "@classmethod\ndef f(cls, n: int): ..."
    assert read(define(docstring, name="A.f"), "staticmethod") == "@staticmethod\ndef f(n: int): ..."
    assert read(define(name="A.f"), "property") == "@property\ndef f(self): ..."
    assert read(define(docstring), "async function") == "async def f(n: int): ..."


METHODS = """A.

Args:
    path (str): P.

Attributes:
    x: X.

Methods:
    read(n: int = 3) -> bytes: R.
        (more)
    peek: P.

Note:
    n()
"""


def test_a_class_gets_the_methods_of_its_docstring() -> None:
    bodies = ("__init__(self, path: str)", "read(self, n: int=3) -> bytes", "peek(self, *args, **kwargs)")
    expected = "\n".join(["class A:", *(f"    def {body}:\n        ..." for body in bodies)])
    assert read(define(METHODS, name="A"), "class") == expected
    numpy = "A.\n\nMethods\n-------\nread(n)\n    R.\nasync close()\n    C.\n"
    assert read(define(numpy, name="A"), "class") == (
        "class A:\n    def read(self, n):\n        ...\n    async def close(self):\n        ..."
    )
    assert "def __init__(self, *args, **kwargs)" in read(define(name="A"), "class")


def test_what_no_python_can_say_is_open() -> None:
    docstring = "F.\n\nArgs:\n    a (int, optional): A.\n    b (int): B.\n    not-a-name (int): N.\n    class (int): C."
    graph = make_graph(
        leaf("f", docstring=docstring),
        leaf("g", docstring="Go."),
        leaf("K"),
        leaf("L"),
        leaf("L.run", signature="(self)"),
        leaf("MAX", type="constant"),
        leaf("h", docstring="H.\n\nArgs:\n    x: X."),
        composite("m", code="def ("),
    )
    assert [(each.id, each.kind) for each in find_open_questions(graph)] == [
        ("f", "parameters"),
        ("f", "parameters"),
        ("f", "parameters"),
        ("g", "parameters"),
        ("K", "methods"),
        ("MAX", "value"),
        ("h", "types"),
        ("@m", "code"),
    ]
    assert read(define(docstring)) == "def f(a: int=None, b: int=None): ..."


def test_a_stub_raises_no_exception_that_the_docstring_names() -> None:
    """``NotImplementedError`` is a ``RuntimeError``, so ``raises(RuntimeError)`` would pass on the stub."""
    names = ("ValueError", "RuntimeError", "NotImplementedError", "RuntimeError, NameError", "Exception", "MyError")
    assert [choose_stub_error(f"F.\n\nRaises:\n    {name}: If.") for name in names] == [
        "NotImplementedError",
        "NameError",
        "NameError",
        "BaseException",
        "BaseException",
        "NotImplementedError",
    ]


def test_red_takes_what_a_stub_raises_for_missing_code() -> None:
    def judge(error: BaseException, *expects: str) -> str | None:
        kind, missing = classify(error, phase="call")
        name = type(error).__name__
        return find_stage(
            Failure(
                phase="call", kind=kind, origin="project", exception=name, message=str(error), missing_name=missing
            ),
            expects,
        )

    assert judge(NotImplementedError()) == "structural"
    assert judge(NameError("name 'f' is not defined")) == "structural"
    assert (judge(BaseException()), judge(BaseException(), "BaseException")) == (None, "behavioral")


def differ(text: str, definition: Definition, type: str = "function") -> list[tuple[str, str, str, str]]:
    return [(each.name, each.part, each.expected, each.found) for each in check_signature(text, definition, type=type)]


def test_the_signature_of_the_graph_wins() -> None:
    given = define(signature="@cache\ndef f(x: int, *, y=4) -> int")
    assert differ("import os\n@cache\ndef f(x: 'int', *, y=4) -> int:\n    return x", given) == []
    assert differ("def f(x, y=3): return 1", given) == [
        ("f", "parameters", "(x: int, *, y=4)", "(x, y=3)"),
        ("f", "returns", "int", ""),
        ("f", "decorators", "@cache", ""),
    ]
    assert differ("async def f(x: int, *, y=4) -> int: pass", given) == [
        ("f", "definition", "def f(x: int, *, y=4) -> int", "async def f(x: int, *, y=4) -> int")
    ]
    assert [part for _, part, *_ in differ("def g(): pass", given)] == ["definition"]
    assert [part for _, part, *_ in differ("def f(:", given)] == ["definition"]
    assert [part for _, part, *_ in differ("def f(x): ...\ndef f(x): ...", given)] == ["definition"]


def test_a_signature_from_a_docstring_leaves_annotations_to_the_author() -> None:
    assert differ("def f(x: list[float]) -> float: pass", define("F.\n\nArgs:\n    x: X.")) == []
    assert differ("def f(x, z): pass", define("F.\n\nArgs:\n    x: X.")) == [("f", "parameters", "(x)", "(x, z)")]
    assert differ("def f(anything, *, more=1): pass", define()) == []


def test_a_class_keeps_its_bases_fields_and_methods_and_may_have_more() -> None:
    given = define(signature="class A(B):\n    x: int = 1\n    def m(self, z): ...", name="A")
    assert differ("class A(B):\n    x: int = 1\n    def m(self, z): pass\n    def n(self): pass", given, "class") == []
    assert sorted(
        part for _, part, *_ in differ("class A:\n    x: int = 2\n    def n(self): pass", given, "class")
    ) == ["bases", "definition", "value"]
    method = define(signature="(self, n)", name="A.m")
    assert differ("class A:\n    if X:\n        def m(self, n): pass", method) == []
    assert differ("class A:\n    def m(self): pass", method) == [("A.m", "parameters", "(self, n)", "(self)")]


@given(st.text(max_size=300), st.sampled_from(["function", "class", "method", "property", "constant"]))
def test_any_text_can_be_a_docstring_or_a_signature(text: str, type: str) -> None:
    for definition in (
        define(text),
        define(signature=text),
        define(f"F.\n\nArgs:\n    {text}\nRaises:\n    {text}: x"),
    ):
        statements = read_signature(definition, type=type).statements
        compile("\n".join(map(ast.unparse, statements)), "", "exec")
        choose_stub_error(definition.docstring)
