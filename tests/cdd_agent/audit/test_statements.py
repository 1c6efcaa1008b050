"""Details of what a note states about checks."""

import pytest

from cdd_agent.audit.statements import find_false_details, find_other_details
from cdd_agent.evidence.clean_copy import ProductChange

OLD = "def half(number):\n    return number // 2\n\n\ndef double(number):\n    return number + number\n"
NEW = OLD.replace("number + number", "number * 2")
CHANGES = [ProductChange(path="sums.py", old=OLD, new=NEW)]
CHECKED = (
    "Checked in a clean copy: the tests pass there too, and fail with sums.py:6 altered; outside of a test run, "
    "3 calls of double had the same result (4 runs, 2.1 s)."
)
COMPARED = "Compared with the code before: 902 calls of double have the same results."
SIGN = "To review in the change: sums.py:6 names a test tool."


def find(*stated: str) -> list[str]:
    return list(find_false_details(stated, CHANGES, product=NEW))


def test_true_details_are_accepted() -> None:
    assert find(CHECKED, COMPARED, SIGN) == []
    assert find("No test fails if these changed functions raise an exception: double (sums.py:5).") == []


@pytest.mark.parametrize(
    ("stated", "error"),
    [
        (CHECKED.replace(":6", ":2"), "It names sums.py:2, but this line is not part of the change."),
        (CHECKED.replace(":6", ":600"), "It names sums.py:600, but this line is not part of the change."),
        (SIGN.replace("sums", "other"), "It names other.py:6, but the commit does not change this file."),
        (CHECKED.replace("3 calls", "300 calls"), "It states 300 calls of double, but cdd compares at most 10"),
        (COMPARED.replace("902", "90200"), "It states 90200 calls of double, but cdd compares at most 7000"),
        (COMPARED.replace("double", "triple"), "It states calls of triple, which the product does not have."),
    ],
)
def test_a_detail_that_cannot_be_true_is_found(stated: str, error: str) -> None:
    (found,) = find(stated)
    assert found.startswith(error)


def test_times_and_numbers_of_runs_may_differ_and_nothing_else() -> None:
    now = CHECKED.replace("4 runs, 2.1 s", "9 runs, 7.0 s")
    assert list(find_other_details([CHECKED], [now], compares=True)) == []
    (other,) = find_other_details([CHECKED.replace("3 calls", "8 calls")], [now], compares=True)
    assert "8 calls of double" in other
    assert "Now: " in other
    assert "3 calls of double" in other


def test_what_the_note_leaves_out_or_adds_is_told() -> None:
    about_run = [
        "Test results reused: the same tests on the same files, from RunTests.",
        "Checked in a fork, in which it was made.",
    ]
    assert list(find_other_details([*about_run, CHECKED], [CHECKED], compares=True)) == []
    assert list(find_other_details([], [SIGN], compares=True)) == [f"It does not state: {SIGN}"]
    assert list(find_other_details([SIGN], [], compares=True)) == [f"It states: {SIGN} Now: not found"]


def test_a_note_with_endless_words_and_numbers_is_read_at_once() -> None:
    digits, words = "1" * 100_000, "a." * 50_000
    assert find(f"{SIGN} {words}{digits}", f"{SIGN} sums.py:{digits}", f"{digits} calls of {words}") != []
    assert len(find(f"{digits} calls of double have the same result")) == 1


def test_statements_are_compared_in_their_order() -> None:
    stated = [f"{word}: this" for word in ("One", "Two", "Three", "Four")]
    assert list(find_other_details(stated, [], compares=True)) == [
        f"It states: {each} Now: not found" for each in stated
    ]


def test_what_is_said_of_calls_is_left_out_where_no_call_is_compared() -> None:
    stated = (CHECKED, "Also changed: f(1) returns 1 before the change and returns 2 after it.")
    now = CHECKED.partition("; outside")[0] + " (6 runs, 1.0 s)."
    assert "; outside" in CHECKED
    assert list(find_other_details(stated, [now], compares=False)) == []
    assert len(list(find_other_details(stated, [now], compares=True))) == 2
