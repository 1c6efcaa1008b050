"""A plan as a tree on terminals of several widths."""

import io

import pytest

from cdd_agent.repl.render import show_plan
from cdd_agent.repl.screen import Screen
from cdd_agent.tickets.plan import Plan, Step
from tests.fakes.demo import captured


def step(number: int, *depends_on: int, **changes: object) -> Step:
    return Step(number=number, title=f"Do {number}", depends_on=depends_on, **changes)  # type: ignore[arg-type]


def shown(*steps: Step, width: int = 80, criteria: tuple[str, ...] = (), created: tuple[str, ...] = ()) -> list[str]:
    with captured(width) as (screen, out):
        show_plan(Plan(title="A sale", steps=steps), screen=screen, criteria=criteria, created=created)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def titles(lines: list[str]) -> list[str]:
    return [line for line in lines if "  Do " in line]


def test_each_step_shows_its_kind_size_files_tests_and_criteria() -> None:
    full = step(
        1,
        kind="bug",
        size="small",
        files=("src/a.py", "b.py"),
        tests=("tests/test_a.py::test_x", "tests/test_a.py::TestY::test_z", "tests/test_b.py"),
        criteria=("AC-1", "AC-2"),
    )
    assert shown(full, criteria=("AC-1",), created=("b.py", "tests/test_a.py")) == [
        "A sale",
        "└── 1  Do 1",
        "    bug, small",
        "    files src/a.py",
        "          b.py (new)",
        "    tests tests/test_a.py (new)",
        "            test_x",
        "            TestY::test_z",
        "          tests/test_b.py",
        "    for   AC-1, AC-2",
        "",
        "AC-1: step 1",
        "AC-2: step 1",
    ]


def test_a_step_hangs_below_the_last_one_it_depends_on_and_names_the_others() -> None:
    lines = shown(step(4, 3, 1), step(1), step(3, 1), step(2))
    assert titles(lines) == ["├── 1  Do 1", "│   └── 3  Do 3", "│       └── 4  Do 4", "└── 2  Do 2"]
    assert lines[lines.index("│       └── 4  Do 4") + 1].endswith("feature, after 3, 1")


def test_a_file_is_new_only_in_the_step_that_makes_it() -> None:
    lines = shown(step(2, 1, files=("a.py",)), step(1, files=("a.py",)), created=("a.py",))
    assert [line.split("a.py")[1] for line in lines if "a.py" in line] == [" (new)", ""]


def test_a_criterion_without_a_step_is_told() -> None:
    assert shown(step(1, criteria=("AC-2",)), step(2, criteria=("AC-2",)), criteria=("AC-1", "AC-2"))[-2:] == [
        "AC-1: no step",
        "AC-2: steps 1, 2",
    ]


@pytest.mark.parametrize("width", [80, 50, 24])
def test_a_long_chain_stays_readable(width: int) -> None:
    steps = [step(number, *([number - 1] if number > 1 else [])) for number in range(1, 61)]
    lines = shown(*steps, width=width)
    assert max(map(len, lines)) <= width
    told = [line.rpartition("─ ")[2] for line in titles(lines)]
    assert told == [f"{number}  Do {number}" for number in range(1, 61)]
    assert "after 59" in lines[-2]


def test_long_names_are_folded_and_not_cut() -> None:
    name = f"test_{'x' * 90}"
    lines = shown(step(1, tests=(f"tests/test_a.py::{name}",)), width=50)
    assert "".join(line.strip() for line in lines[4:]) == name


@pytest.mark.parametrize("steps", [(step(1, 2), step(2, 1)), (step(1, 9),), (step(1), step(1))])
def test_a_plan_that_cannot_be_carried_out_is_shown_all_the_same(steps: tuple[Step, ...]) -> None:
    assert len(titles(shown(*steps))) == len(steps)


def test_a_terminal_that_knows_no_lines_gets_ascii() -> None:
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, encoding="ascii"))
    show_plan(Plan(title="A sale", steps=(step(1), step(2, 1))), screen=screen)
    screen.console.file.flush()
    assert b"+-- 1  Do 1" in raw.getvalue() or b"`-- 1  Do 1" in raw.getvalue()
    assert b"?" not in raw.getvalue()
