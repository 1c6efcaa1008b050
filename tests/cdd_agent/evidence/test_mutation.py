import ast
import inspect
from dataclasses import replace

import pytest

from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.evidence.mutation import MOST, Mutant, Mutants, build_mutants, find_unnoticed_functions, try_mutants
from cdd_agent.testrun.suite import NoReport, SuiteRun
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Clause, Failure
from tests.cdd_agent.evidence.requests import tell
from tests.cdd_agent.evidence.steps import report_of

T1, T2 = "tests/test_a.py::test_one", "tests/test_a.py::test_two[a::b]"


def of(new: str | None, *, old: str | None = None, path: str = "product.py") -> Mutants:
    return build_mutants((ProductChange(path=path, old=old, new=new),))


def what(mutants: Mutants) -> list[str]:
    return [explain(mutant.what) for mutant in mutants.chosen]


def test_each_kind_of_thing_is_altered_and_then_all_functions_raise() -> None:
    code = "def f(x):\n    if x > 10:\n        return x < 5\n    return 7\n"
    mutants = of(code)
    assert what(mutants) == [
        "product.py:3: return not x < 5 instead of x < 5",
        "the changed functions of product.py: all raise",
        "product.py:2: the condition x > 10 is negated",
        "product.py:2: 11 instead of 10",
    ]
    assert mutants.is_exhaustive
    assert "raise SystemError('altered f (product.py:1)')" in mutants.chosen[1].texts["product.py"]
    for mutant in mutants.chosen:
        altered = mutant.texts["product.py"]
        assert ast.dump(ast.parse(altered)) != ast.dump(ast.parse(code))


def test_only_changed_lines_are_altered() -> None:
    old = "def f():\n    return 7\n\n\ndef g():\n    return 8\n"
    mutants = of(old.replace("8", "9"), old=old)
    assert {mutant.where for mutant in mutants.chosen if not mutant.functions} == {"product.py:6"}
    assert "return 7" in mutants.chosen[1].texts["product.py"]


def test_a_removed_line_is_a_change_of_its_function() -> None:
    old = "def f(x):\n    x += 1\n    return g(x)\n"
    assert what(of(old.replace("    x += 1\n", ""), old=old))[-1].endswith("product.py: all raise")


@pytest.mark.parametrize(
    "code",
    [
        '"""Text."""\n\nimport os\n',
        "from typing import Protocol\n\n\nclass P(Protocol):\n    x: 'int'\n\n    def f(self) -> int:\n        ...\n",
        "__all__ = ['f', 'g']\n__version__ = '1.2'\n",
        "def f(x:\n",
    ],
)
def test_declarations_are_not_altered(code: str) -> None:
    assert of(code).chosen == ()


def test_data_and_deleted_files_are_not_altered() -> None:
    assert of("1;2\n", path="data.csv").chosen == ()
    assert of(None, old="x = 1\n").chosen == ()


def test_there_are_few_mutants_and_a_module_of_constants_may_have_more_than_are_tried() -> None:
    assert len(of("".join(f"def f{n}():\n    return {n}\n" for n in range(20))).chosen) == MOST
    table = of("TABLE = [" + ", ".join(map(str, range(10, 30))) + "]\n")
    assert not table.is_exhaustive
    assert len(table.chosen) == MOST - 1


def test_documentation_of_an_altered_function_stays_for_its_doctests() -> None:
    mutants = of('def f():\n    """Say.\n\n    >>> f()\n    7\n    """\n    return 7\n')
    assert ">>> f()" in mutants.chosen[1].texts["product.py"]


def run_with(*passed: str, whole: bool = True) -> SuiteRun:
    report = report_of(passed, failed=tuple({T1, T2} - set(passed))) if whole else None
    return SuiteRun(report=report, failed=None if whole else NoReport(happened="crashed"), output="", duration_s=0.1)


@pytest.mark.parametrize(
    ("runs", "expected", "tried"),
    [
        ([run_with(T1)], "noticed", 1),
        ([run_with(T1, T2), run_with()], "noticed", 2),
        ([run_with(T1, T2), run_with(T1, T2)], "survived", 2),
        ([run_with(T1, T2), run_with(whole=False)], "unknown", 2),
        ([], "unknown", 0),
    ],
)
def test_the_first_mutant_that_is_noticed_is_enough(runs: list[SuiteRun], expected: str, tried: int) -> None:
    seen: list[Mutant] = []

    def run(mutant: Mutant) -> SuiteRun:
        seen.append(mutant)
        return runs[len(seen) - 1]

    mutants = [
        Mutant(where=str(number), how=Clause(""), texts={}) for number in range(len(runs) + (expected == "noticed"))
    ]
    found = try_mutants(mutants, run=run, targets=(T1, T2))
    assert (found.noticed is not None, found.all_ended) == (expected == "noticed", expected == "survived")
    assert found.noticed in (None, *mutants[tried - 1 :])
    assert len(seen) == tried


def test_a_target_with_another_name_is_not_one_that_fails() -> None:
    target = "tests/test_a.py::test_two[/copy/a.txt]"
    other = SuiteRun(report=report_of(("tests/test_a.py::test_two[/b.txt]",)), output="", duration_s=0.1)
    mutants = [Mutant(where="x", how=Clause("y"), texts={})]
    assert try_mutants(mutants, run=lambda _: other, targets=(target,)).noticed is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, 'def f():\n    """Say it."""\n    return 7\n'),
        ("def f():\n    return 7\n", "X = 9\n\n\ndef f():\n    return 8\n"),
        ("class A:\n    x = 3\n", "class A:\n    x = 4\n\n    def f(self):\n        return 8\n"),
        ("def f():\n    return 7\n", "import functools\n\n\n@functools.cache\ndef f():\n    return 8\n"),
    ],
)
def test_lines_outside_functions_and_docstrings_leave_it_open(old: str | None, new: str) -> None:
    mutants = of(new, old=old)
    assert mutants.chosen
    assert not mutants.is_exhaustive


def test_comments_and_docstrings_change_nothing() -> None:
    old = 'def f():\n    """Old."""\n    # old\n    return 7\n'
    assert of(old.replace("ld", "LD"), old=old).chosen == ()


def test_an_asynchronous_generator_stays_one_when_it_raises() -> None:
    nested = "async def g():\n    def h():\n        yield 2\n    return h()\n"
    code = f"async def f():\n    if True:\n        yield 1\n\n\n{nested}"
    altered = next(each for each in of(code).chosen if each.functions).texts["product.py"]
    names: dict[str, object] = {}
    exec(altered, names)
    assert (inspect.isasyncgenfunction(names["f"]), inspect.iscoroutinefunction(names["g"])) == (True, True)


def test_code_that_is_nested_thousands_of_levels_deep_is_altered() -> None:
    found = what(of("def f():\n    return " + " + ".join(["'a'"] * 2400) + "\n"))
    assert found[0].startswith("product.py:2: return None instead of 'a' + 'a'")
    assert found[1].endswith("all raise")


def test_an_altered_text_is_told_with_both_its_ends_and_no_constant_of_an_altered_value_is_tried() -> None:
    mutants = of(f"X = {'long' * 30!r}\n\n\ndef f():\n    return g(5, 'five')\n")
    first, _, last = what(mutants)
    assert first == "product.py:5: return None instead of g(5, 'five')"
    altered, _, was = last.partition(": ")[2].partition(" instead of ")
    assert altered != was
    assert altered.endswith("altered'")
    assert was.endswith("long'")


def test_what_altering_does_not_change_is_not_tried() -> None:
    assert what(of("X = 1e400\nY = 5\n")) == ["product.py:2: 6 instead of 5"]


def test_each_changed_function_must_be_noticed_even_behind_another() -> None:
    new = "def outer():\n    return inner()\n\n\ndef inner():\n    return 1\n\n\ndef spare():\n    return 2\n"
    change = ProductChange(path="a.py", old=None, new=new)
    ran: list[tuple[str, ...]] = []

    def run(mutant: Mutant) -> SuiteRun:
        ran.append(tuple(mutant.functions))
        first = next((name for name in mutant.functions if not name.startswith("spare")), None)
        report = report_of(() if first else (T1,), failed=(T1,) if first else ())
        message = f"SystemError: altered {first}"
        failure = Failure(phase="call", kind="other", origin="project", exception="SystemError", message=message)
        cases = [replace(case, failure=failure if first else None) for case in report.tests]
        return SuiteRun(report=replace(report, tests=tuple(cases)), output="", duration_s=0.0)

    found = find_unnoticed_functions([change], run=run, targets=(T1,))
    assert tell(found) == ("No test fails if these changed functions raise an exception: spare (a.py:9).",)
    outer, inner, spare = "outer (a.py:1)", "inner (a.py:5)", "spare (a.py:9)"
    assert ran == [(outer, inner, spare), (inner, spare), (spare,)]
