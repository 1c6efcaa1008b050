import dataclasses

import pytest

from cdd_agent.tickets.plan import MANY_FILES, MANY_STEPS, Plan, Step, choose_default_kind, find_problems, find_warnings


def step(number: int, *depends_on: int, **changes: object) -> Step:
    made = Step(
        number=number,
        title=f"Step {number}",
        depends_on=depends_on,
        tests=("tests/test_a.py",),
        criteria=("AC-1",),
        description="Do it.",
        line=10 * number,
        key_lines={"depends_on": 10 * number + 1, "files": 10 * number + 2},
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def found(*steps: Step, criteria: tuple[str, ...] = ("AC-1",)) -> list[tuple[int, str]]:
    return [
        (problem.line, problem.message) for problem in find_problems(Plan(title="x", steps=steps), criteria=criteria)
    ]


def test_a_plan_that_keeps_the_rules_has_no_problems() -> None:
    assert found(step(1), step(2, 1), step(3, 1, 2)) == []


def test_a_dependency_on_a_later_step_is_no_problem() -> None:
    assert found(step(1, 2), step(2)) == []


def test_a_cycle_is_reported_with_its_way_round() -> None:
    assert found(step(1, 3), step(2, 1), step(3, 2), step(4, 3)) == [
        (11, "the steps wait for each other: 1 -> 3 -> 2 -> 1")
    ]


def test_a_step_that_waits_for_itself_is_a_cycle() -> None:
    assert found(step(1), step(2, 2)) == [(21, "the steps wait for each other: 2 -> 2")]


def test_an_unknown_dependency_is_reported_at_its_key() -> None:
    assert found(step(1, 9)) == [(11, "step 1 depends on step 9, which does not exist")]


def test_criteria_and_steps_must_meet() -> None:
    assert found(step(1, criteria=()), step(2, criteria=("AC-9",))) == [
        (0, "no step implements the criterion AC-1"),
        (10, "step 1 names no acceptance criterion"),
        (20, "step 2 names the criterion AC-9, which the spec does not have"),
    ]


@pytest.mark.parametrize(("kind", "count"), [("feature", 1), ("bug", 1), ("refactor", 0), ("docs", 0), ("chore", 0)])
def test_only_steps_that_begin_with_a_test_must_name_one(kind: str, count: int) -> None:
    assert len(found(step(1, tests=(), kind=kind))) == count


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "~/x", "C:\\x", "c:/x", "\\\\host\\x", "a\\..\\x"])
def test_a_path_outside_the_project_is_reported(path: str) -> None:
    assert found(step(1, files=(path,))) == [(12, f"step 1 names {path}, which is outside the project")]


def test_a_test_outside_the_project_is_reported() -> None:
    assert found(step(1, tests=("../t.py::test_a",))) == [
        (10, "step 1 names ../t.py::test_a, which is outside the project")
    ]


@pytest.mark.parametrize("path", ["a..b/c.py", "..a.py", "tests/t.py::test_a[../x]", "a:b.py"])
def test_a_path_that_only_looks_odd_is_inside(path: str) -> None:
    assert found(step(1, files=(path,))) == []


def test_a_step_without_title_is_reported() -> None:
    assert found(step(1, title="")) == [(10, "step 1 has no title")]


def test_an_unknown_size_is_a_warning_and_not_a_problem() -> None:
    plan = Plan(title="x", steps=(step(1, size="2 days"), step(2, size="Low"), step(3)))

    assert [(warning.line, warning.message) for warning in find_warnings(plan)] == [
        (10, "step 1 has the unknown size '2 days'")
    ]


@pytest.mark.parametrize(
    ("odd", "line", "message", "hint"),
    [
        (step(1, size="2 days"), 10, "step 1 has the unknown size '2 days'", "known sizes are small, medium and large"),
        (step(1, size="Large"), 10, "step 1 is large", "split it"),
        (step(1, size="XL"), 10, "step 1 is xl", "split it"),
        (
            step(1, files=tuple(f"{n}.py" for n in range(MANY_FILES + 1))),
            12,
            "step 1 names 9 files, more than 8",
            "split it",
        ),
        (step(1, description=""), 10, "step 1 has no description", "describe the work below the keys"),
    ],
    ids=["unknown size", "large", "extra large", "many files", "no description"],
)
def test_what_is_odd_in_a_step_is_a_warning_with_its_line_and_no_problem(
    odd: Step, *, line: int, message: str, hint: str
) -> None:
    assert found(odd) == []
    (warning,) = find_warnings(Plan(title="x", steps=(odd,)))
    assert (warning.line, warning.message) == (line, message)
    assert hint in warning.hint


def test_many_steps_are_a_warning() -> None:
    plan = Plan(title="x", steps=tuple(step(number) for number in range(1, MANY_STEPS + 2)))

    assert [str(warning) for warning in find_warnings(plan)] == [
        "the plan has 21 steps, more than 20 (split it into several tickets)"
    ]
    assert find_warnings(Plan(title="x", steps=plan.steps[1:])) == ()


def test_the_ticket_type_gives_the_kind_of_its_steps() -> None:
    kinds = [
        choose_default_kind(name) for name in ("feature", "enhancement", "bug", "refactor", "doc", "chore", "spike")
    ]

    assert kinds == ["feature", "feature", "bug", "refactor", "docs", "chore", "chore"]
