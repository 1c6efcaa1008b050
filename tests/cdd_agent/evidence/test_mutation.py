import ast

import pytest

from cdd_agent.evidence.mutation import MOST, Mutant, Mutants, mutants_of, survival
from cdd_agent.evidence.request import ProductChange
from cdd_agent.testrun.run import SuiteRun
from tests.cdd_agent.evidence.steps import report_of

T1, T2 = "tests/test_a.py::test_one", "tests/test_a.py::test_two[a::b]"


def of(new: str | None, *, old: str | None = None, path: str = "product.py") -> Mutants:
    return mutants_of((ProductChange(path=path, old=old, new=new),))


def what(mutants: Mutants) -> list[str]:
    return [mutant.what for mutant in mutants.chosen]


def test_each_kind_of_thing_is_altered_and_then_all_functions_raise() -> None:
    code = "def f(x):\n    if x > 10:\n        return x < 5\n    return 7\n"
    mutants = of(code)
    assert what(mutants) == [
        "product.py:3: return not x < 5 in the place of x < 5",
        "product.py:2: the condition x > 10 is negated",
        "product.py:2: 11 in the place of 10",
        "every changed function of product.py raises",
    ]
    assert mutants.is_exhaustive
    assert "raise SystemError('altered')" in mutants.chosen[-1].texts["product.py"]
    for mutant in mutants.chosen:
        altered = mutant.texts["product.py"]
        assert ast.dump(ast.parse(altered)) != ast.dump(ast.parse(code))


def test_only_changed_lines_are_altered() -> None:
    old = "def f():\n    return 7\n\n\ndef g():\n    return 8\n"
    mutants = of(old.replace("8", "9"), old=old)
    assert {mutant.what.partition(": ")[0] for mutant in mutants.chosen[:-1]} == {"product.py:6"}
    assert "return 7" in mutants.chosen[-1].texts["product.py"]


def test_a_removed_line_is_a_change_of_its_function() -> None:
    old = "def f(x):\n    x += 1\n    return g(x)\n"
    assert what(of(old.replace("    x += 1\n", ""), old=old))[-1] == "every changed function of product.py raises"


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
    assert ">>> f()" in mutants.chosen[-1].texts["product.py"]


def run_with(*passed: str, whole: bool = True) -> SuiteRun:
    report = report_of(passed, failed=tuple({T1, T2} - set(passed))) if whole else None
    return SuiteRun(report=report, problem=None if whole else "crashed", output="", duration_s=0.1)


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

    mutants = [Mutant(what=str(number), texts={}) for number in range(len(runs) + (expected == "noticed"))]
    assert survival(mutants, run=run, targets=(T1, T2)) == expected
    assert len(seen) == tried
