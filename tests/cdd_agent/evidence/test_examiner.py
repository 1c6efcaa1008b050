from collections.abc import Mapping

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.evidence.examiner import (
    Examples,
    apply_decisions,
    format_doubt,
    format_question,
    judge_examples,
    list_criteria,
    obtain_examples,
    parse_answer,
    try_examples,
)
from cdd_agent.model.conversation import Marks
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import tell
from tests.cdd_agent.evidence.steps import Step
from tests.fakes.cases import soak_after
from tests.fakes.suite import FakeSuite, no_report

TARGET = "tests/test_product.py::test_it"
CRITERIA = {"AC-1": "WHEN n is given THE SYSTEM SHALL return its double", "AC-2": "IF n < 0 THEN ... SHALL raise"}
TEST = "from product import double\n\n\ndef test_it():\n    assert double(20) == 40\n"
RULE = "def double(n):\n    if n < 0:\n        raise ValueError(n)\n    return n * 2\n"
LOOKUP = "def double(n):\n    return {20: 40}.get(n)\n"
EXAMPLES = '''\
from product import double

SIZES = (3, 700)


def twice(n):
    """Add n to itself."""
    return n + n


def test_sizes():
    """AC-1: any size"""
    assert [double(n) for n in SIZES] == [twice(n) for n in SIZES]


@(lambda function: function)
def test_negative():
    """AC-2, the error"""
    try:
        double(-1)
    except ValueError:
        return
    assert False
'''


def answer(code: str) -> str:
    return f"I doubt it.\n\n```python\n{code}```\nThat is all."


def examples(code: str = EXAMPLES, *, most: int = 8) -> Examples:
    return parse_answer(answer(code), criteria=CRITERIA, most=most)


def outcomes(tried: Examples) -> dict[str, str]:
    return {example.name: example.outcome for example in tried.listed}


def one(body: str, *, first: str = "from product import double\n") -> Examples:
    return examples(f'{first}\n\ndef test_one():\n    """AC-1: x"""\n    {body}\n')


def step_of(make: Make, code: str = LOOKUP, *, old: Mapping[str, str] | None = None) -> Step:
    return make({"tests/test_product.py": TEST, **(old or {})}, {"product.py": code})


def fake(step: Step) -> FakeSuite:
    assert isinstance(step.suite, FakeSuite)
    return step.suite


def tried(step: Step, wanted: Examples) -> Examples:
    return try_examples(wanted, request=step.request(TARGET), runs=step.runs())


def test_an_answer_is_one_file_whose_functions_cite_criteria() -> None:
    assert [(each.name, each.criterion) for each in examples().listed] == [
        ("test_sizes", "AC-1"),
        ("test_negative", "AC-2"),
    ]
    assert [each.name for each in examples(most=1).listed] == ["test_sizes"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("All is well.", "no Python file"),
        (answer("def test_a(:\n"), "not valid Python"),
        (answer("def test_a():\n    assert True\n"), "docstring that begins with one of AC-1, AC-2"),
        (answer('def test_a():\n    """AC-11: no such criterion"""\n'), "docstring"),
    ],
)
def test_an_answer_that_cannot_be_used_is_asked_for_once_more(wrong: str, why: str) -> None:
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return wrong if len(asked) == 1 else answer(EXAMPLES)

    assert obtain_examples(ask, "Refute it.", criteria=CRITERIA, most=8) == examples()
    assert asked[0] == "Refute it."
    assert why in asked[1]
    with pytest.raises(UsageError, match=why):
        obtain_examples(lambda _: wrong, "Refute it.", criteria=CRITERIA, most=8)


def test_one_example_is_shown_with_what_it_needs_and_without_the_others() -> None:
    shown = examples().extract(["test_negative"])
    left_out = [line for line in EXAMPLES.splitlines() if line not in shown.splitlines()]
    assert left_out[0] == "def test_sizes():"
    assert len(left_out) == 3
    assert "lambda" not in examples().extract(["test_sizes"])


def test_the_question_holds_step_criteria_tests_change_and_signs(make: Make) -> None:
    step = step_of(make, old={"product.py": "def double(n):\n    return None\n"})
    request = step.request(TARGET, stated="Double numbers")
    question = format_question(request, criteria=CRITERIA, most=8, signs=["a table"], marks=Marks("kvqtzh"))
    for part in (
        "Double numbers",
        "- AC-1: WHEN n",
        "assert double(20) == 40",
        "-    return None\n+    return {20: 40}",
    ):
        assert part in question
    assert "a table" in question
    assert question.endswith("Write 3 to 8 further examples that would refute it.")
    few = format_question(request, criteria=CRITERIA, most=1, signs=(), marks=Marks("kvqtzh"))
    assert few.endswith("Write 1 further example that would refute it.")


def test_the_examiner_reads_each_criterion_once(make: Make) -> None:
    step = make({"product.py": "", "tests/test_product.py": TEST}, {"product.py": LOOKUP})
    rows = [f"- {name}: {text}" for name, text in CRITERIA.items()]
    for listed in (rows, rows[:1], []):
        stated = "\n".join(["Double numbers", *listed, *CRITERIA.values()])
        request = step.request(TARGET, stated=stated)
        question = format_question(request, criteria=CRITERIA, most=8, signs=(), marks=Marks("kvqtzh"))
        assert [question.count(text) for text in CRITERIA.values()] == [1, 1]


@pytest.mark.slow
def test_the_examiner_sees_the_docstrings_of_a_user(make: Make) -> None:
    function = 'def double(n):\n    """Return n twice; of a text its length."""\n    raise NotImplementedError\n'
    old = f'"""Numbers."""\n\n\n{function}'
    step = make({"product.py": old, "tests/test_product.py": TEST}, {"product.py": LOOKUP})
    question = format_question(step.request(TARGET), criteria={}, most=8, signs=(), marks=Marks("kvqtzh"))
    assert "\nproduct.py: Numbers.\n\ndouble: Return n twice; of a text its length.\n" in question


def test_without_criteria_the_title_and_the_targets_are_the_specification() -> None:
    assert list_criteria(CRITERIA, title="Double", targets=[TARGET]) == CRITERIA
    assert list_criteria({}, title="Double", targets=[f"{TARGET}[1]", f"{TARGET}[2]"]) == {
        "GOAL": "Double",
        "TEST-1": f"what {TARGET} shows",
    }


def test_a_lookup_fails_further_examples(make: Make) -> None:
    assert outcomes(tried(step_of(make), examples())) == {"test_sizes": "fails", "test_negative": "fails"}


def test_a_rule_passes_further_examples(make: Make) -> None:
    step = step_of(make, RULE)
    once = tried(step, examples())
    assert outcomes(once) == {"test_sizes": "passes", "test_negative": "passes"}
    before = len(fake(step).asked)
    assert outcomes(tried(step, once)) == outcomes(once)
    assert len(fake(step).asked) == before + 1, "what counts is known"


OLD = {"product.py": "def double(n):\n    return None\n\n\ndef half(n):\n    return n // 2\n"}


@soak_after(
    2,
    ("body", "why"),
    [
        ("assert undefined(1) == 2", "fails for another reason: name_error"),
        ("import pytest; pytest.skip()", "it is skipped"),
        ("import nowhere_to_be_found", "fails for another reason: missing_module"),
        (
            "import product; product.seen = getattr(product, 'seen', 0) + 1; assert product.seen != 1",
            "different results",
        ),
    ],
)
def test_an_example_that_proves_nothing_does_not_count(make: Make, *, body: str, why: str) -> None:
    step = step_of(make, old=OLD)
    (example,) = tried(step, one(body)).listed
    assert example.outcome == "unused"
    assert why in explain(example.why)


@soak_after(0, "body", ["assert double(1) == 2", "assert len(double([1])) == 2", "assert double(1).real == 2"])
def test_an_example_may_fail_on_whatever_the_product_returns(make: Make, body: str) -> None:
    assert outcomes(tried(step_of(make, old=OLD), one(body))) == {"test_one": "fails"}


@pytest.mark.slow
def test_an_example_may_need_a_name_that_the_change_brings(make: Make) -> None:
    (example,) = tried(step_of(make), one("assert double(1) == 2")).listed
    assert example.outcome == "fails"
    assert explain(example.why).startswith("assertion, AssertionError: assert None == 2")


def test_an_example_that_ends_the_process_fails_alone(make: Make) -> None:
    step = step_of(make, RULE, old=OLD)
    died = no_report("the process ended early")
    fake(step).answers.extend([None, died, died, None])
    after = tried(step, examples())
    assert outcomes(after) == {"test_sizes": "fails", "test_negative": "passes"}
    assert explain(after.listed[0].why) == "it does not run to its end"


@pytest.mark.slow
def test_examples_that_do_not_end_without_the_change_are_not_judged(make: Make) -> None:
    step = step_of(make, RULE, old=OLD)
    fake(step).answers.append(no_report("the process ended early"))
    with pytest.raises(UsageError, match="do not run to their end without the change"):
        tried(step, examples())


FAILED = examples().update({"test_sizes": ("fails", "assertion, AssertionError: assert [None] == [6]")})


def test_the_first_refusal_names_the_criterion_without_the_values() -> None:
    same, findings = judge_examples(FAILED, criteria=CRITERIA, is_first=True)
    (reason,) = findings.reasons
    assert same == FAILED
    assert reason.code == "example_failed"
    assert explain(reason).startswith(f"AC-1 is not met ({CRITERIA['AC-1']}): 1 of 1 further example fails")
    assert "700" not in explain(reason)
    assert "test_sizes" not in explain(reason)


def test_the_second_refusal_shows_one_example_that_stays_the_same() -> None:
    both = FAILED.update({"test_negative": ("fails", "did_not_raise")})
    after, findings = judge_examples(both, criteria=CRITERIA, is_first=False)
    (reason,) = findings.reasons
    assert after.shown == "test_sizes"
    assert "SIZES = (3, 700)" in explain(reason)
    assert "test_negative" not in explain(reason)
    turned = Examples(source=after.source, listed=after.listed[::-1], shown=after.shown)
    assert judge_examples(turned, criteria=CRITERIA, is_first=False)[0].shown == "test_sizes"


def test_examples_that_pass_are_a_notice_with_those_that_do_not_count() -> None:
    passed = examples().update({"test_sizes": ("passes", ""), "test_negative": ("unused", "it is skipped")})
    _, findings = judge_examples(passed, criteria=CRITERIA, is_first=True)
    assert findings.reasons == ()
    assert tell(findings) == (
        "Examined: 1 further example passed (AC-1 test_sizes). Left out: AC-2 test_negative: does not count (it is "
        "skipped).",
    )
    none = examples().update({name: ("unused", "it is skipped") for name in ("test_sizes", "test_negative")})
    _, findings = judge_examples(none, criteria=CRITERIA, is_first=True)
    assert tell(findings)[0].startswith("Not examined: none of the further examples counts. AC-1 test_sizes: does not")


def test_the_second_look_has_the_step_the_criteria_the_tests_the_change_and_the_question(make: Make) -> None:
    step = step_of(make, old=OLD)
    request = step.request(TARGET, stated="Double numbers")
    regressed = FAILED.update({"test_negative": ("regressed", "it passes without the change; with it: assertion")})
    for doubted, is_shown in ((FAILED, False), (regressed, True)):
        question = format_doubt(
            doubted, "Numbers are at most 20.", request=request, criteria=CRITERIA, marks=Marks("kvqtzh")
        )
        for part in (
            "Double numbers",
            "- AC-1: WHEN n",
            "- AC-2: IF n",
            "assert double(20) == 40",
            "+    return {20: 40}",
            "SIZES = (3, 700)",
            "test_sizes (cites AC-1): assertion",
            "Numbers are at most 20.",
            "would a reader who knows only the step",
        ):
            assert part in question
        assert ("def test_negative" in question) == is_shown
        assert ("If the step asks for the new result, withdraw it." in question) == is_shown
        assert question.endswith("`keep NAME: reason` or `withdraw NAME: reason`.")


# Rules that must stay.

BREAKS = RULE + "\n\ndef half(n):\n    return n / 2\n"
KEEPS = RULE + "\n\ndef half(n):\n    return n // 2\n"
GUARD = """from product import double, half


def test_half():
    \"\"\"KEPT: halves are whole\"\"\"
    assert half(5) == 2


def test_new():
    \"\"\"AC-1: another number\"\"\"
    assert double(7) == 14
"""


def test_an_example_that_passes_before_and_fails_after_the_change_refutes_it(make: Make) -> None:
    step = step_of(make, BREAKS, old=OLD)
    after = tried(step, examples(GUARD))
    assert outcomes(after) == {"test_half": "regressed", "test_new": "passes"}
    assert outcomes(tried(step, after)) == outcomes(after), "later attempts have to pass it, too"
    assert explain(after.listed[0].why).startswith("it passes without the change; with it: assertion")
    _, first = judge_examples(after, criteria=CRITERIA, is_first=True)
    (reason,) = first.reasons
    assert reason.code == "example_regressed"
    assert explain(reason).startswith("The change breaks a rule that held before the change: 1 further example passed")
    assert "half(5)" not in explain(reason)
    shown, second = judge_examples(after, criteria=CRITERIA, is_first=False)
    assert (shown.shown, second.reasons[0].code) == ("test_half", "example_regressed")
    assert "assert half(5) == 2" in explain(second.reasons[0])
    assert outcomes(apply_decisions(after, "withdraw test_half: the step asks for it"))["test_half"] == "withdrawn"


def test_an_example_that_passes_before_and_after_counts_for_nothing_and_is_recorded(make: Make) -> None:
    after = tried(step_of(make, KEEPS, old=OLD), examples(GUARD))
    assert outcomes(after) == {"test_half": "stays", "test_new": "passes"}
    assert tuple(map(explain, after.facts)) == ("KEPT test_half: passes as before", "AC-1 test_new: passes")
    _, findings = judge_examples(after, criteria=CRITERIA, is_first=True)
    assert tell(findings) == (
        "Examined: 1 further example passed (AC-1 test_new). 1 further example of what held before passed.",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("half", "body", "outcome"),
    [
        # It fails once in the run of all examples, or depends on what ran before it.
        (
            "TURNS = [1, 0]\n\n\ndef half(n):\n    return n // 2 + (TURNS.pop() if TURNS else 0)\n",
            "half(5) == 2",
            "undecided",
        ),
        ("def half(n, base):\n    return n // base\n", "half(5) == 2", "undecided"),
        ("def halved(n):\n    return n // 2\n", "half(5) == 2", "undecided"),
        ("def half(n):\n    import pytest\n    pytest.skip('no')\n", "half(5) == 2", "regressed"),
    ],
)
def test_only_a_failure_that_comes_back_and_that_the_interface_allows_is_a_regression(
    make: Make, *, half: str, body: str, outcome: str
) -> None:
    step = step_of(make, f"{RULE}\n\n{half}", old=OLD)
    guard = f'import product\n\n\ndef test_one():\n    """KEPT: x"""\n    assert product.{body}\n'
    assert outcomes(tried(step, examples(guard))) == {"test_one": outcome}


def test_a_change_that_ends_the_process_in_an_older_rule_breaks_it(make: Make) -> None:
    step = step_of(make, BREAKS, old=OLD)
    died = no_report("the process ended early")
    fake(step).answers.extend([None, died, died, None, died, None])
    assert outcomes(tried(step, examples(GUARD)))["test_half"] == "regressed"


def test_a_rule_that_does_not_hold_before_is_no_rule_that_must_stay(make: Make) -> None:
    step = step_of(make, LOOKUP, old=OLD)
    (example,) = tried(step, one("assert double(1) == 2", first="from product import double\n")).listed
    assert example.outcome == "fails"
    kept = examples('from product import double\n\n\ndef test_one():\n    """KEPT: x"""\n    assert double(1) == 2\n')
    (example,) = tried(step, kept).listed
    assert (example.outcome, explain(example.why)) == (
        "unused",
        "it fails without the change, so it was not a rule before the change",
    )


def test_only_failing_examples_can_be_withdrawn() -> None:
    after = apply_decisions(FAILED, "- withdraw test_sizes: 700 is too large\n- withdraw test_negative: no\nkeep x: y")
    assert after.was_doubted
    assert outcomes(after) == {"test_sizes": "withdrawn", "test_negative": "untried"}
    assert explain(after.listed[0].fact) == "AC-1 test_sizes: withdrawn (700 is too large)"
    assert outcomes(apply_decisions(FAILED, "Keep test_sizes: it follows."))["test_sizes"] == "fails"


ESCAPES = {
    "skips": "import pytest\n\n\ndef double(n):\n    return 40 if n == 20 else pytest.skip('no')\n",
    "raises in turn": (
        "import itertools\n\nERRORS = itertools.cycle([KeyError, ValueError])\n\n\n"
        "def double(n):\n    if n == 20:\n        return 40\n    raise next(ERRORS)\n"
    ),
    "answers in turn": (
        "import itertools\n\nANSWERS = itertools.cycle([3, 2])\n\n\n"
        "def double(n):\n    return 40 if n == 20 else next(ANSWERS)\n"
    ),
    "lacks its own name": (
        "import sys\n\nif any('_w' in str(f.co_filename) for f in [sys._getframe(d).f_code for d in range(1, 12)]):\n"
        "    pass\nelse:\n    def double(n):\n        return 40\n"
    ),
}


@soak_after(2, "name", ESCAPES)
def test_a_change_cannot_choose_that_an_example_does_not_count(make: Make, name: str) -> None:
    step = step_of(make, ESCAPES[name], old=OLD)
    assert outcomes(tried(step, one("assert double(1) == 2"))) == {"test_one": "fails"}


@pytest.mark.slow
def test_an_example_that_only_passes_once_in_a_process_does_not_count(make: Make) -> None:
    registers = "SEEN = set()\n\n\ndef double(n):\n    assert n not in SEEN\n    SEEN.add(n)\n    return n * 2\n"
    (example,) = tried(step_of(make, registers, old=OLD), one("assert double(1) == 2")).listed
    assert (example.outcome, explain(example.why)) == ("undecided", "two runs gave different results")


@soak_after(1, "body", ["assert double(1).whole == 2", "assert double(1, base=3) == 2", "assert doubles(1)"])
def test_an_example_cannot_demand_what_the_visible_tests_do_not_use(make: Make, body: str) -> None:
    product = "class Number(int):\n    pass\n\n\ndef double(n):\n    return Number(n * 2)\n"
    assert outcomes(tried(step_of(make, product), one(body))) == {"test_one": "undecided"}


def test_a_change_cannot_leave_out_a_name_that_the_visible_tests_use(make: Make) -> None:
    visible = TEST.replace("double(20) == 40", "double(20).amount == 40")
    hides = (
        "class Number:\n    pass\n\n\ndef double(n):\n    number = Number()\n    if n == 20:\n"
        "        number.amount = 40\n    return number\n"
    )
    step = step_of(make, hides, old={"tests/test_product.py": visible})
    assert outcomes(tried(step, one("assert double(1).amount == 2"))) == {"test_one": "fails"}


@pytest.mark.slow
def test_an_example_that_one_change_left_undecided_is_tried_on_the_next(make: Make) -> None:
    undecided = one("assert double(1) == 2").update({"test_one": ("undecided", "two runs gave different results")})
    assert outcomes(tried(step_of(make, RULE), undecided)) == {"test_one": "passes"}
