import time

import pytest

from cdd_agent.tickets import plan_step


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("", ()),
        ("none", ()),
        ("None (first step)", ()),
        ("none - can start at once", ()),
        ("n/a", ()),
        ("-", ()),
        ("`none`", ()),
        ("1", (1,)),
        ("1, 2", (1, 2)),
        ("Step 1 and #2", (1, 2)),
        ("steps 1 & 2", (1, 2)),
        ("Step 1: the header, Step 3 (quotes, maybe)", (1, 3)),
        ("1-3", (1, 2, 3)),
        ("Step 1 to step 3, 7", (1, 2, 3, 7)),
        ("`1`; `2`", (1, 2)),
        ("2, 2", (2,)),
    ],
)
def test_dependencies_are_read_as_people_write_them(value: str, meant: tuple[int, ...]) -> None:
    assert plan_step.read_dependencies(value) == meant


@pytest.mark.parametrize("value", ["the parser", "1, header", "3-1", "1-99999", "none, 2 later"])
def test_a_dependency_that_names_no_step_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="step"):
        plan_step.read_dependencies(value)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("none", ()),
        ("`none`", ()),
        ("None yet", ()),
        ("`a.py`", ("a.py",)),
        ("a.py, b.py", ("a.py", "b.py")),
        ("Makefile, Dockerfile", ("Makefile", "Dockerfile")),
        ("`a.py` `b.py`", ("a.py", "b.py")),
        ("a.py b.py", ("a.py", "b.py")),
        ("`a.py` and `b.py`", ("a.py", "b.py")),
        ("Makefile and README", ("Makefile", "README")),
        ("src/a.py (new, with tests), b.py", ("src/a.py", "b.py")),
        ("`a.py` - adds `x`, `y`", ("a.py",)),
        ("a.py: new, b.py: changed", ("a.py", "b.py")),
        ("a.py \u2014 new; b.py", ("a.py", "b.py")),
        ("[a.py](../a.py)", ("a.py",)),
        ("`with space.py`", ("with space.py",)),
        ("tests/t.py::test_a[x, y], b.py", ("tests/t.py::test_a[x, y]", "b.py")),
        ("tests/t.py::TestA::test_b", ("tests/t.py::TestA::test_b",)),
        ("pages/[slug].tsx.", ("pages/[slug].tsx",)),
        ("/etc/passwd", ("/etc/passwd",)),
        ("../x.py", ("../x.py",)),
        (".github/ci.yml", (".github/ci.yml",)),
        ("no.py", ("no.py",)),
    ],
)
def test_paths_are_read_as_people_write_them(value: str, meant: tuple[str, ...]) -> None:
    assert plan_step.read_paths(value) == meant


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("AC-1", ("AC-1",)),
        ("ac-1 and `AC-2`", ("AC-1", "AC-2")),
        ("AC-1 AC-2", ("AC-1", "AC-2")),
        ("AC-1: the header, AC-2: quotes", ("AC-1", "AC-2")),
        ("AC-1 (the header)", ("AC-1",)),
        ("none", ()),
        ("header-only", ("header-only",)),
    ],
)
def test_criteria_are_read_as_people_write_them(value: str, meant: tuple[str, ...]) -> None:
    assert plan_step.read_criteria(value) == meant


@pytest.mark.parametrize(
    ("value", "meant"), [("Bug", "bug"), ("`fix`", "bug"), ("documentation", "docs"), ("feat", "feature")]
)
def test_kinds_have_other_names(value: str, meant: str) -> None:
    assert plan_step.read_kind(value) == meant


def test_an_unknown_kind_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="'party' is not a kind of step; write one of feature, bug"):
        plan_step.read_kind("party")


def test_brackets_of_a_parametrized_test_belong_to_its_name() -> None:
    value = "tests/t.py::test_a[x, y], `b.py`, tests/t.py::test_c[[1]]: new, d.py."
    assert plan_step.read_paths(value) == ("tests/t.py::test_a[x, y]", "b.py", "tests/t.py::test_c[[1]]", "d.py")


@pytest.mark.parametrize(
    "value",
    ["[", "[[", "[a](b", "(", "`a`` ", "a[", "[a ", ":" * 50 + "x", ".a", "and ", "--><!--"],
)
def test_a_long_value_is_read_in_time_that_grows_with_its_length(value: str) -> None:
    started = time.thread_time()
    plan_step.read_paths(value * (200_000 // len(value)))
    assert time.thread_time() - started < 1


def test_more_steps_than_a_plan_has_are_no_dependency() -> None:
    with pytest.raises(ValueError, match="more than 1000 steps are named"):
        plan_step.read_dependencies("1-999, " * 100_000)
