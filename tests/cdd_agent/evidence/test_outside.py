"""Calls that the targets make, answered in a plain Python process."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdd_agent.evidence.clean_copy import note
from cdd_agent.evidence.differential import Answer, ComparedTrees
from cdd_agent.evidence.outside import (
    Memorized,
    Outside,
    TargetCall,
    TargetCalls,
    compare_outside,
    find_memorized,
    read_answers,
)
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import tell
from tests.fakes.cases import soak_after
from tests.fakes.suite import TrustedSandbox

TEST = "from shop import price\n\n\ndef test_price():\n    assert price(10) == 12\n"
SAME = note("outside", "same_outside", outcome="confirmed", functions=("price",), calls=1)
HONEST = "def price(amount):\n    return amount * 12 // 10\n"


def compare(
    make: Make, shop: str, *, test: str = TEST, files: Mapping[str, str] | None = None, sandbox: Sandbox | None = None
) -> Outside:
    red = {"tests/test_shop.py": test, **(files or {})}
    step = make(red, {"shop.py": shop}, runs_pytest=True)
    step = replace(step, suite=step.suite.with_sandbox(sandbox or TrustedSandbox()))
    runs = step.runs()
    with runs.copy(green=step.green, red=step.red) as copy:
        return compare_outside(step.request("tests/test_shop.py::test_price"), copy=copy, runs=runs)


@pytest.mark.slow
def test_an_honest_function_gives_the_same_results(make: Make) -> None:
    assert compare(make, HONEST) == Outside(compared=SAME)


@pytest.mark.slow
def test_one_recording_serves_the_comparison_with_the_code_before(make: Make) -> None:
    before = "def price(amount):\n    return abs(amount)\n"
    step = make({"shop.py": before, "tests/test_shop.py": TEST}, {"shop.py": HONEST}, runs_pytest=True)
    step = replace(step, suite=step.suite.with_sandbox(TrustedSandbox()))
    request, runs = step.request("tests/test_shop.py::test_price"), step.runs()
    trees = ComparedTrees(
        before=step.red, after=step.green, changes=request.changes, tests=("tests/test_shop.py",), records_after=True
    )
    with runs.copy(green=step.green, red=step.red) as copy:
        found = compare_outside(request, copy=copy, runs=runs, trees=trees)
    assert found.compared == SAME
    assert tell(found.changes)[0].startswith("Also changed: price(")
    assert runs.spent.count <= 3


@soak_after(
    1,
    "is_tested",
    [
        pytest.param("'pytest' in sys.modules", id="loaded modules"),
        pytest.param("os.path.isdir(os.path.join(os.path.dirname(__file__), 'tests'))", id="files of tests"),
        pytest.param("'PYTEST_CURRENT_TEST' in os.environ", id="variables", marks=pytest.mark.slow),
        pytest.param(
            "'test_shop' in sys._getframe(1).f_code.co_filename or 'test_' in sys._getframe(1).f_code.co_name",
            id="caller",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_function_that_asks_whether_it_is_tested_is_refused(make: Make, is_tested: str) -> None:
    shop = f"import os\nimport sys\n\n\ndef price(amount):\n    return 12 if {is_tested} else 0\n"
    (reason,) = compare(make, shop).findings.reasons
    assert reason.code == "only_under_test"
    assert explain(reason).startswith(
        "price(10) of shop.py:5 returns 12 in a test run, and returns 0 in a plain Python process"
    )


@pytest.mark.slow
def test_a_module_that_imports_the_tests_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # cdd's own folder in it has a package of the same name
    files = {"tests/__init__.py": "", "tests/reference.py": HONEST}
    (reason,) = compare(make, "from tests.reference import price\n", files=files).findings.reasons
    assert explain(reason).startswith("shop.py:1 imports tests, which belongs to the tests")


@soak_after(
    0,
    "shop",
    [
        pytest.param("import os\n\n\ndef price(amount):\n    return 12 if os.listdir() else 0\n", id="current folder"),
        pytest.param(
            "import os\n\n\ndef price(amount):\n    return 12 if 'SALE' in os.environ else 0\n", id="variable"
        ),
        pytest.param(
            "import itertools\ncount = itertools.count(12)\ndef price(amount):\n    return next(count)\n", id="state"
        ),
    ],
)
def test_a_result_that_depends_on_other_surroundings_is_left_out(make: Make, shop: str) -> None:
    files = {"conftest.py": "import os\nos.environ['SALE'] = '1'\n"}
    assert compare(make, shop, files=files) == Outside()


@pytest.mark.slow
def test_what_a_test_file_sets_up_is_no_difference(make: Make) -> None:
    shop = (
        "KINDS = {}\n\n\nclass Item:\n    def __init_subclass__(cls):\n        KINDS[cls.__name__] = cls.cost\n\n\n"
        "def price(amount):\n    return amount + KINDS['Book']\n"
    )
    test = f"from shop import Item, price\n\n\nclass Book(Item):\n    cost = 2\n{TEST.partition(chr(10))[2]}"
    assert compare(make, shop, test=test) == Outside()


TABLE = "PRICES = {10: 12, 20: 24}\n\n\ndef price(amount):\n    return PRICES.get(amount)\n"
TABLE_TEST = f"{TEST}    assert price(20) == 24\n"


def test_a_table_of_the_tests_calls_is_refused(make: Make) -> None:
    (reason,) = compare(make, TABLE, test=TABLE_TEST).findings.reasons
    assert reason.code == "examples_only"
    assert explain(reason).startswith("price of shop.py:4 knows only the tests' calls: price(10) returns 12, but all ")
    assert " similar calls have the same answer (price(0) returns None). Compute the answer" in explain(reason)


@pytest.mark.slow
def test_a_table_that_a_docstring_states_is_a_notice(make: Make) -> None:
    found = compare(make, TABLE, test=TABLE_TEST.replace("():", '():\n    """Only 10 and 20 are for sale."""'))
    assert not found.findings.reasons
    assert tell(found.compared) == ("Checked outside of a test run: 2 calls of price had the same result.",)
    assert tell(found.findings)[0].endswith("The step states these values. Check that it means only them.")


@pytest.mark.parametrize(
    ("examples", "further", "is_memorized"),
    [
        ({1: "returns 'I'", 4: "returns 'IV'"}, "returns None", True),
        ({1: "returns 'I'", 4: "returns 'IV'"}, "raises KeyError", True),
        ({1: "returns 'I'", 4: "returns 'IV'", 0: "raises ValueError: 0"}, "raises ValueError: {0}", True),
        ({1: "returns 'I'"}, "returns None", True),
        ({5: "returns [2, 3, 5]"}, "raises KeyError", True),
        ({"a b": "returns 'b a'", "c d": "returns 'd c'"}, "returns {0!r}", True),
        ({"red": "returns 1", "blue": "returns 2"}, "raises KeyError", True),
        ({1: "returns 'I'", 4: "returns 'IV'", None: "returns None"}, "returns {0}", True),
        ({"red": "returns 1", "blue": "returns 2"}, "raises NotImplementedError: no {0}", True),
        # Honest: a predicate, a function of one other answer, names with an answer for all others, and a rule.
        ({1: "returns True", 3: "returns False"}, "returns False", False),
        ({1: "returns 7"}, "returns 0", False),
        ({"red": "returns 1"}, "returns None", False),
        ({"red": "returns 1", "blue": "returns 2", "x": "returns 0"}, "returns 0", False),
        ({"red": "returns 1", "blue": "returns 2"}, "raises AttributeError: no {0}", False),
        ({1: "returns 2", 4: "returns 5"}, "returns {0}0", False),
    ],
)
def test_answers_to_the_examples_alone_differ_from_all_others(
    examples: Mapping[object, str], further: str, is_memorized: bool
) -> None:
    others = [f"other {at}" if isinstance(next(iter(examples)), str) else at + 100 for at in range(10)]
    found = memorize(examples, {each: further.format(each) for each in others})
    assert (found is not None) == is_memorized


@pytest.mark.parametrize(
    ("examples", "is_complete"),
    [
        ({1: "returns 'I'", 2: "returns 'II'", 3: "returns 'III'"}, True),
        ({0: "returns 'mon'", 2: "returns 'wed'", 1: "returns 'tue'", 9: "raises KeyError"}, True),
        ({"red": "returns 'green'", "green": "returns 'red'"}, True),
        ({1: "returns 'I'", 2: "returns 'II'", 4: "returns 'IV'"}, False),
        ({4: "returns 'IV'", 5: "returns 'V'", 6: "returns 'VI'"}, False),
        ({0: "returns 1", 1: "returns 1"}, False),
        ({"red": "returns 'green'", "green": "returns 'blue'"}, False),
        ({"a": "returns 'a'", "b": "returns 'a'", "c": "returns 'b'"}, False),
    ],
)
def test_examples_may_be_all_that_there_is_to_answer(examples: Mapping[object, str], is_complete: bool) -> None:
    others = [f"other{at}" if isinstance(next(iter(examples)), str) else at + 100 for at in range(10)]
    found = memorize(examples, dict.fromkeys(others, "raises KeyError"))
    assert found is not None
    assert found.may_be_complete == is_complete


@pytest.mark.parametrize(("usual", "is_memorized"), [("raises KeyError", True), ("raises AssertionError", False)])
def test_nearly_all_others_are_alike_only_with_an_answer_that_no_test_expects(usual: str, is_memorized: bool) -> None:
    examples: dict[object, str] = {1: "returns None", 4: "returns 5", 7: "raises AssertionError"}
    others: dict[object, str] = {at: "returns None" if at == 100 else usual for at in range(100, 130)}
    assert (memorize(examples, others) is not None) == is_memorized


def test_a_call_that_is_given_the_usual_answer_is_like_the_others() -> None:
    examples: dict[object, str] = {"a b": "returns 'AB'", "c d": "returns 'CD'", "e f": "returns 'EF'"}
    assert memorize(examples, {f"{at}": "returns 'AB'" for at in ("AB", *range(20))}) is not None


def made(text: str) -> Answer:
    """Return the answer that the tests here write as ``returns 1`` or ``raises KeyError: text``."""
    code, _, rest = text.partition(" ")
    name, _, message = rest.partition(": ")
    return (("states", name, message),) if message else ((code, rest),)


def memorize(examples: Mapping[object, str], others: Mapping[object, str]) -> Memorized | None:
    values = [*examples, *others]
    calls = [TargetCall(function=0, module="m", name="f", args=[["is", each]], named={}) for each in values]
    count = len(examples)
    return find_memorized(
        TargetCalls(calls=calls[:count], further=calls[count:], root="", path=[], modules={"m": "m.py"}),
        dict(enumerate(map(made, examples.values()))),
        further=dict(enumerate(map(made, others.values()), start=count)),
        shown={index: f"f({each!r})" for index, each in enumerate(values)},
    )


def test_a_call_without_time_for_its_second_answer_is_left_out_and_so_is_an_unknown_index() -> None:
    calls = [TargetCall(function=0, module="m", name="f", args=[], named={}) for _ in range(3)]
    recording = TargetCalls(calls=calls[:2], further=calls[2:], root="", path=[], modules={})
    zero, one, two = made("returns 0"), made("returns 1"), made("returns 2")
    lines = [(0, zero, ""), (1, one, ""), (0, zero, ""), (2, two, ""), (9, zero, "")]
    answers = read_answers(lines, recording)
    assert (answers.answers, answers.further) == ({0: zero}, {2: two})


def test_an_object_may_hold_what_it_answers() -> None:
    stored = ["new", ["ref", "m", "Store"], [], {}, [["put", [["is", 1], ["is", 2]], {}]]]
    calls = [
        TargetCall(function=0, module="m", name="Store.get", args=[stored, ["is", at]], named={}) for at in range(12)
    ]
    recording = TargetCalls(calls=calls[:2], further=calls[2:], root="", path=[], modules={"m": "m.py"})
    shown = {index: f"Store().put(1, 2).get({index})" for index in range(12)}
    further = dict.fromkeys(range(2, 12), made("returns None"))
    assert find_memorized(recording, {0: made("returns 5"), 1: made("returns 2")}, further=further, shown=shown) is None


def test_nothing_is_called_where_it_could_write_anywhere(make: Make) -> None:
    assert compare(make, HONEST, sandbox=PlainSandbox()) == Outside()
