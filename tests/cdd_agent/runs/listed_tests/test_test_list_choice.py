import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.runs.test_list import (
    ListFacts,
    UnreadableAnswer,
    find_objections,
    format_answer,
    is_test_file,
    parse,
    read_answer,
)
from cdd_agent.work.handoff import CurrentTest

CHOICE = CurrentTest(description="adds two numbers", test_file="tests/test_sum.py", impl_file="sum.py")
ANSWER = format_answer(CHOICE)
LIST = "- [x] adds nothing\n- [ ] adds two numbers\n- [ ] adds three\n"


def relative(path: str) -> str:
    if path.startswith(("/", "..")):
        raise UsageError(f"{path} lies outside the project.", hint="")
    return path.removeprefix("./")


def codes(
    words: str,
    *,
    now: str = LIST,
    before: str = LIST,
    completed: tuple[str, ...] = ("adds nothing",),
    dropped: tuple[str, ...] = (),
    tests: str = "",
) -> list[str]:
    known = ListFacts(
        before=parse(before),
        now=parse(now),
        completed=completed,
        dropped=dropped,
        resolve_path=relative,
        read_text=lambda path: tests if path == "tests/test_sum.py" and tests else None,
    )
    return [reason.code for reason in find_objections(words, known)]


@pytest.mark.parametrize(
    "words",
    [
        ANSWER,
        f"Here it is.\n\n```json\n{ANSWER}\n```\n",
        f'First {{"currentTest": null}}, no: {ANSWER}',
        f"{{not json}} {ANSWER} and a word.",
        json.dumps({"currentTest": json.loads(ANSWER)["currentTest"] | {"why": "small"}, "note": {"currentTest": 1}}),
    ],
)
def test_the_last_answer_counts_whatever_stands_round_it(words: str) -> None:
    assert read_answer(words) == CHOICE


def test_a_dropped_test_has_its_mark_an_open_box_and_is_not_chosen_again() -> None:
    marked, gone = LIST.replace("adds three", "adds three (dropped)"), ("adds three",)
    assert codes(ANSWER, now=marked, dropped=gone) == []
    assert codes(ANSWER, dropped=gone) == ["not_dropped"]
    assert codes(ANSWER, now=marked) == ["dropped_too_early"]
    assert codes(ANSWER, now=marked.replace("[ ] adds three", "[x] adds three"), dropped=gone) == ["ticked_too_early"]
    assert codes(ANSWER.replace("adds two numbers", "adds three"), now=marked, dropped=gone) == ["already_done"]
    done = marked.replace("[ ] adds two", "[x] adds two")
    assert codes('{"currentTest": null}', now=done, completed=("adds nothing", "adds two numbers"), dropped=gone) == []


def test_all_done_is_an_answer_too() -> None:
    assert read_answer('{"currentTest": null}') is None
    assert read_answer(format_answer(None)) is None


@pytest.mark.parametrize(
    "words",
    [
        "",
        "The next test is adds two numbers.",
        '{"test": "adds", "complete": false}',
        '{"currentTest": "adds two numbers"}',
        '{"currentTest": {"description": "adds"}}',
        '{"currentTest": {"description": "  ", "testFile": "a", "implFile": "b"}}',
        '{"currentTest": ' + "[" * 5_000,
        '{"a":' * 3_000,
    ],
)
def test_what_says_neither_is_refused_with_the_form_that_is_asked_for(words: str) -> None:
    with pytest.raises(UnreadableAnswer):
        read_answer(words)
    assert codes(words) == ["no_answer"]


@given(st.text(), st.text(min_size=1), st.text())
def test_an_answer_that_is_written_is_read_again(before: str, name: str, after: str) -> None:
    choice = CurrentTest(description="adds", test_file=name.strip(), impl_file="a.py")
    assert read_answer(before.replace("{", "") + format_answer(choice) + after.replace("{", "")) == choice


def test_an_open_test_of_the_list_stands() -> None:
    assert codes(ANSWER) == []
    assert codes(ANSWER.replace("adds two numbers", "**Adds** two numbers.")) == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ANSWER.replace("adds two numbers", "adds four"), "not_listed"),
        (ANSWER.replace("adds two numbers", "adds nothing"), "already_done"),
        (ANSWER.replace("tests/test_sum.py", "/etc/test_sum.py"), "outside_project"),
        (ANSWER.replace('"sum.py"', '"../sum.py"'), "outside_project"),
        (ANSWER.replace("tests/test_sum.py", "lib/sums.py"), "no_test_file"),
        (ANSWER.replace("tests/test_sum.py", "tests/conftest.py"), "no_test_file"),
        (ANSWER.replace('"sum.py"', '"tests/test_other.py"'), "no_source_file"),
        (ANSWER.replace('"sum.py"', '"test-list.md"'), "no_source_file"),
        (ANSWER.replace('"sum.py"', '""'), "no_source_file"),
        ('{"currentTest": null}', "list_open"),
    ],
)
def test_a_disagreement_is_an_objection(answer: str, code: str) -> None:
    assert codes(answer) == [code]


@pytest.mark.parametrize(
    "test",
    [
        "def test_adds_two_numbers():\n    pass",
        "async def testAddsTwoNumbers():",
        "it('adds two numbers', () => {",
        'test.each([1])("Adds two numbers", x =>',
        "func TestAddsTwoNumbers(t *testing.T) {",
        "void testAddsTwoNumbers() {",
    ],
)
def test_a_test_that_is_there_is_not_written_again(test: str) -> None:
    assert codes(ANSWER, tests=test) == ["duplicate"]
    assert codes(ANSWER, tests=test.replace("wo", "hree")) == []


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("", ["list_missing", "not_listed"]),
        (LIST.replace("[ ] adds three", "[x] adds three"), ["ticked_too_early"]),
        (LIST.replace("[x] adds nothing", "[ ] adds nothing"), ["not_ticked"]),
        (LIST.replace("- [ ] adds three\n", ""), ["list_shrunk"]),
        (LIST.replace("adds nothing", "adds nothing at all"), ["ticked_too_early", "list_shrunk"]),
        (LIST + "- [ ] Adds three.\n", ["duplicate"]),
        (LIST.replace("adds three", "adds many"), []),
        (LIST + "- [ ] adds four\n", []),
    ],
)
def test_the_list_is_held_against_the_cycles_and_the_list_before(now: str, expected: list[str]) -> None:
    assert codes(ANSWER, now=now) == expected


def test_what_was_ticked_before_the_run_stays_so() -> None:
    assert codes(ANSWER, completed=()) == []


def test_all_is_done_when_answer_list_and_cycles_say_so() -> None:
    done = LIST.replace("[ ]", "[x]")
    assert codes('{"currentTest": null}', now=done, completed=("adds nothing", "adds two numbers", "adds three")) == []
    assert codes('{"currentTest": null}', now=done) == ["ticked_too_early", "ticked_too_early"]


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_a.py",
        "a_test.py",
        "src/a.test.ts",
        "src/a.spec.js",
        "pkg/a_test.go",
        "src/FooTest.java",
        "tests/a.rs",
    ],
)
def test_files_that_tests_are_looked_for_in(path: str) -> None:
    assert is_test_file(path)


@pytest.mark.parametrize("path", ["a.py", "contest.py", "tests/a.py", "src/test.ts", "tests/__init__.py", "testing.md"])
def test_files_that_none_are_looked_for_in(path: str) -> None:
    assert not is_test_file(path)
