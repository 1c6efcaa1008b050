import ast
import re

import pytest

from cdd_agent.evidence.stubs import Gap, Stubs, add_stubs, find_gap, list_answers, quote_texts
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Failure

CALC = (
    "def add(a, b):\n    return a + b\n\n\nclass Calculator:\n    def __init__(self):\n        self.total = 0\n\n"
    "    def add(self, number):\n        def inner():\n            raise NotImplementedError\n\n        inner()\n"
)
FILES = {"calc.py": CALC, "src/ledger/__init__.py": "", "src/ledger/rows.py": "ROWS = []\n", "lib/pure.py": ""}


def gap(
    kind: str,
    missing: str | None = None,
    *,
    sources: tuple[str, ...] = (),
    origin: str = "test",
    line: int | None = None,
) -> Gap | None:
    path = "calc.py" if origin == "project" else "tests/test_it.py"
    told = Failure(
        phase="call", kind=kind, origin=origin, exception="E", message="m", missing_name=missing, path=path, line=line
    )
    return find_gap(told, sources=sources, read=FILES.get)


@pytest.mark.parametrize(
    ("missing", "source", "path"),
    [
        ("money", "money.py", "money.py"),
        ("ledger.export", "src/ledger/export.py", "src/ledger/export.py"),
        ("shop", "src/shop/cart/total.py", "src/shop/cart/total.py"),
        ("shop", "shop/__init__.py", "shop/__init__.py"),
        ("ledger.other", "src/ledger/__init__.py", "src/ledger/other.py"),
        ("money", "calc.py", None),
        ("calc.money", "calc.py", None),
        ("calc", "calc.py", None),
        ("ledger.rows", "src/ledger/rows.py", None),
    ],
)
def test_a_module_is_made_where_the_item_has_it_or_in_a_package_that_is_there(
    missing: str, source: str, path: str | None
) -> None:
    assert gap("missing_module", missing, sources=(source,)) == (Gap(path, "") if path else None)


@pytest.mark.parametrize("kind", ["import_error", "attribute_error"])
@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("calc.subtract", Gap("calc.py", "subtract")),
        ("calc.Calculator.subtract", Gap("calc.py", "Calculator.subtract")),
        ("ledger.rows.Row", Gap("src/ledger/rows.py", "Row")),
        ("ledger.Row", Gap("src/ledger/__init__.py", "Row")),
        ("pure.f", Gap("lib/pure.py", "f")),
        ("ledger.export", Gap("src/ledger/export.py", "")),
        ("calc.make.<locals>.C.x", None),
        ("elsewhere.x", None),
        ("x", None),
        (None, None),
    ],
)
def test_a_name_is_missing_in_the_module_that_is_there(kind: str, missing: str | None, expected: Gap | None) -> None:
    assert gap(kind, missing, sources=("calc.py", "src/ledger/export.py")) == expected


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ("calc.add", "add"),
        ("calc.add.precision", "add"),
        ("calc.Calculator.add.precision", "Calculator.add"),
        ("calc.Calculator.__init__", "Calculator"),
        ("calc.Calculator.__init__.precision", "Calculator"),
        ("calc.Calculator.__new__", "Calculator"),
        ("calc.other", None),
    ],
)
def test_a_call_that_does_not_fit_is_one_of_the_function_or_the_class(missing: str, name: str | None) -> None:
    assert gap("signature_mismatch", missing) == (Gap("calc.py", name) if name else None)


def test_a_name_that_the_product_itself_misses_is_missing_there() -> None:
    assert gap("name_error", "helper", origin="project") == Gap("calc.py", "helper")
    assert gap("name_error", "helper") is None, "the test forgot to import it"


def test_what_is_not_implemented_is_the_function_that_says_so() -> None:
    assert gap("not_implemented", origin="project", line=2) == Gap("calc.py", "add")
    assert gap("not_implemented", origin="project", line=11) == Gap("calc.py", "Calculator.add")
    assert gap("not_implemented", origin="project", line=7) == Gap("calc.py", "Calculator")
    assert gap("not_implemented", origin="project", line=4) is None


def test_other_failures_are_no_gaps() -> None:
    assert gap("assertion", "calc.add") is None
    assert gap("fixture_missing") is None


def test_a_module_that_is_not_there_has_every_name() -> None:
    module: dict[str, object] = {}
    exec(add_stubs(None, [""], stubs=Stubs()), module)
    ask = module["__getattr__"]
    assert callable(ask)
    assert not ask("add")(1, 2)
    assert ask("add") is ask("add")
    assert module["add"] is ask("add")
    with pytest.raises(AttributeError, match="__path__"):
        ask("__path__")


def test_names_are_added_to_what_a_module_has() -> None:
    module: dict[str, object] = {"__name__": "calc"}
    exec(add_stubs(CALC, ["Calculator.subtract", "subtract"], stubs=Stubs(truth=True)), module)
    assert eval("add(1, 2)", module) == 3
    assert eval("bool(subtract(1, 2)) and Calculator().subtract(1) == 5 and Calculator().total == 0", module)


@pytest.mark.parametrize(
    ("source", "answers"),
    [
        ("assert add(1, 2) == 3", [1009, -1009, 0, 3]),
        ("assert 'x' in show()", ["cdd-wrong", "", "x"]),
        ("assert is_odd(3) is True", [False, True]),
        ("assert rows() == [['a', 1]]", [["cdd-wrong"], [], [["a", 1]]]),
        ("assert cut(3) != -2 or cut(3) < 1.5", [1009, -1009, 1009.5, -1009.5, 0, -2]),
        ("assert cut(1009) == 1009", [-1009, 0, 1009]),
        ("assert f(1) == f(2)", [1009, -1009, "cdd-wrong", 0]),
        ("assert f(1) == 1e999", [1009, -1009, "cdd-wrong", 0]),
    ],
)
def test_wrong_answers_are_of_the_types_that_the_tests_compare_with(source: str, *, answers: list[object]) -> None:
    assert [stubs.answer[0] for stubs in list_answers([ast.parse(source)])] == answers


def test_the_source_of_stubs_has_the_texts_that_a_test_may_look_for() -> None:
    source = "def test_a():\n    assert 'def add(' in read()\n    assert 'a\\nb' != 'def add('\n"
    assert quote_texts([ast.parse(source)]) == "# def add(\n# a\n# b\n"


def test_what_stands_in_is_python_of_the_oldest_version_that_tests_run_on() -> None:
    compile(add_stubs(CALC, ["x"], stubs=Stubs()), "calc.py", "exec")
    assert not re.search(
        r"match |:=|\bimport (?!annotations|AsyncIterator|logging|os|sys|suppress)", add_stubs(None, [], stubs=Stubs())
    )


def test_a_gap_is_called_by_its_name_and_place() -> None:
    assert Gap("calc.py", "").what == "calc.py"
    assert explain(Gap("calc.py", "add").what) == "add in calc.py"
