"""The statements of a note about checks, compared with the commit and with the checks that run again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.audit.recheck import find_false_details, find_other_details, recheck
from cdd_agent.audit.reruns import PhaseChange
from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.git.repository import CommitId
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.work.finding import Finding
from pytest_tdd_agent.report import Clause, Part
from tests.cdd_agent.evidence.steps import Step, report_of

OLD = "def half(number):\n    return number // 2\n\n\ndef double(number):\n    return number + number\n"
NEW = OLD.replace("number + number", "number * 2")
CHANGES = [ProductChange(path="sums.py", old=OLD, new=NEW)]
CHECKED = Finding(
    check="clean_copy",
    outcome="confirmed",
    case="passes_in_copy",
    places=("sums.py:6",),
    runs=4,
    seconds=2.1,
    parts={"altered": "sums.py:6"},
)
OUTSIDE = Finding(check="outside", outcome="confirmed", case="same_outside", functions=("double",), calls=3)
COMPARED = Finding(check="calls", outcome="confirmed", case="same_answers", functions=("double",), calls=902)
SIGN = Finding(
    check="suspicious",
    outcome="review",
    case="suspicious_lines",
    places=("sums.py:6",),
    parts={"lines": (Clause("suspicious_line", {"place": "sums.py:6", "what": Clause("names_tool")}),)},
)
UNNOTICED = Finding(
    check="mutants", outcome="review", case="unnoticed", places=("sums.py:5",), parts={"named": ("double",)}
)
ALSO = Finding(check="calls", outcome="review", case="also_changed", functions=("double",), parts={"differences": ()})
REUSED = Finding(check="run", outcome="noted", case="reused", parts={"run": "the same tests"})


def find(*stated: Finding) -> list[str]:
    return list(find_false_details(stated, CHANGES, product=NEW))


def compare(stated: Sequence[Finding], now: Sequence[Finding], *, compares: bool = True) -> list[str]:
    return list(find_other_details(stated, now, compares=compares))


def test_true_details_are_accepted() -> None:
    assert find(CHECKED, OUTSIDE, COMPARED, SIGN, UNNOTICED, ALSO) == []


@pytest.mark.parametrize(
    ("stated", "error"),
    [
        (replace(CHECKED, places=("sums.py:2",)), "It names sums.py:2, but this line is not part of the change."),
        (replace(CHECKED, places=("sums.py:600",)), "It names sums.py:600, but this line is not part of the change."),
        (replace(SIGN, places=("other.py:6",)), "It names other.py:6, but the commit does not change this file."),
        (replace(SIGN, places=("other.py",)), "It names other.py, but the commit does not change this file."),
        (replace(OUTSIDE, calls=300), "It states 300 calls of double, but cdd compares at most 10"),
        (replace(COMPARED, calls=90_200), "It states 90200 calls of double, but cdd compares at most 7000"),
        (replace(COMPARED, functions=("triple",)), "It states calls of triple, which the product does not have."),
        (replace(COMPARED, functions=()), "It states 902 calls of no function, but cdd compares at most 7000"),
        (replace(ALSO, functions=("Sums.triple",)), "It states calls of Sums.triple, which the product does not have."),
    ],
)
def test_a_detail_that_cannot_be_true_is_found(stated: Finding, error: str) -> None:
    (found,) = find(stated)
    assert found.startswith(error)


def test_times_and_numbers_of_runs_may_differ_and_nothing_else() -> None:
    now = [replace(CHECKED, runs=9, seconds=7.0), OUTSIDE]
    assert compare([CHECKED, OUTSIDE], now) == []
    assert compare([CHECKED, replace(OUTSIDE, calls=8)], now) == [
        "It states: Checked outside of a test run: 8 calls of double had the same result. "
        "Now: Checked outside of a test run: 3 calls of double had the same result."
    ]


def test_what_the_note_leaves_out_or_adds_is_told() -> None:
    shown = "To review in the change: sums.py:6 names a test tool."
    assert compare([REUSED, CHECKED], [CHECKED]) == []
    assert compare([], [SIGN]) == [f"It does not state: {shown}"]
    assert compare([SIGN], []) == [f"It states: {shown} Now: not found"]


def test_a_note_with_endless_places_and_names_is_read_at_once() -> None:
    places, names = ("sums.py:6",) * 200_000, ("double",) * 200_000
    assert find(replace(SIGN, places=places), replace(COMPARED, functions=names)) == []
    assert find(replace(SIGN, places=("sums.py:" + "1" * 100_000,))) != []


def test_statements_are_compared_in_their_order() -> None:
    stated = [replace(SIGN, case="not_verified", parts={"why": word}) for word in ("one", "two", "three", "four")]
    assert compare(stated, []) == [f"It states: Not verified: {each.parts['why']}. Now: not found" for each in stated]


def test_what_is_said_of_calls_is_left_out_where_no_call_is_compared() -> None:
    assert compare([CHECKED, OUTSIDE, ALSO], [CHECKED], compares=False) == []
    assert len(compare([CHECKED, OUTSIDE, ALSO], [CHECKED])) == 2


def test_what_the_checks_cannot_read_stays_undecided(
    tmp_path: Path, *, interpreter: Interpreter, bytecode: Path
) -> None:
    hidden = "# coding: utf-7\nx = 1  # +AAo-y = 2\n"
    step = Step.make(
        tmp_path / "project",
        interpreter=interpreter,
        bytecode=bytecode,
        red={"shop.py": hidden},
        green={"shop.py": hidden + "z = 3\n"},
    )
    same = report_of(())
    old, new = CommitId(step.red), CommitId(step.green)
    change = PhaseChange(phase="green", old=old, new=new, before=same, after=same, tests=(), sources=(), title="")
    why = "its encoding utf-7 makes Python run other characters than the file shows"
    parts: dict[str, Part] = {"path": "shop.py", "why": why}
    stated = Finding(check="readable", outcome="unverified", case="unread", parts=parts)
    shown = f"Not verified: shop.py could not be read: {why}."
    claim = recheck((stated,), change, repository=step.repository, suite=step.suite)
    assert (claim.holds, claim.text.partition("leave a part of it open: ")[2]) == (None, shown)
    forged = recheck((), change, repository=step.repository, suite=step.suite)
    assert (forged.holds, forged.text.partition("It does not state: ")[2]) == (None, shown)
    sentence = replace(stated, check="run", case="text", parts={"text": shown})
    old_note = recheck((sentence,), change, repository=step.repository, suite=step.suite)
    assert old_note.holds is None
    assert old_note.text.endswith(
        f"version 1 keeps sentences, which cannot be compared. It states: {shown} Now: {shown}"
    )
