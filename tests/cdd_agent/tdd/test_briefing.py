from dataclasses import replace

import pytest

from cdd_agent.model.conversation import Marks, Text, Turn
from cdd_agent.tdd.briefing import find_words, show_files
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST_FILE, Project, content_as_it_is, green, item, red

MARKS = Marks("kvqtzh")


def test_small_files_are_whole_and_a_missing_one_is_named() -> None:
    shown = show_files({"a.py": "x = 1\n", "b.py": None}, words=(), limit=1_000, marks=MARKS)
    assert shown.text == "`a.py`:\n<data-kvqtzh a.py>\nx = 1\n</data-kvqtzh>\n\n`b.py` does not exist yet."
    assert shown.whole == {"a.py"}


def test_a_long_file_is_an_outline_and_the_parts_that_are_named() -> None:
    long = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(200))
    shown = show_files({"a.py": long, "b.py": "y = 1\n"}, words=("f42",), limit=6_500, marks=MARKS)
    assert "def f9():  [37-38]" in shown.text
    assert "   170\t    return 42" in shown.text
    assert "return 43" not in shown.text
    assert shown.whole == {"b.py"}


def test_other_tests_of_the_file_do_not_choose_the_parts() -> None:
    tests = (
        "from prices import total\n\n\ndef test_new():\n    assert total([1]) == 1\n\n\ndef test_old():\n    f42()\n"
    )
    one = item(tests=("tests/test_new.py::test_new[1]",))
    assert find_words(one, {"tests/test_new.py": tests}) >= {"total", "test_new"}
    assert "f42" not in find_words(one, {"tests/test_new.py": tests})
    assert "f42" in find_words(item(tests=("tests/test_new.py",)), {"tests/test_new.py": tests})


def texts(model: ScriptedModel, number: int) -> tuple[str, str]:
    """What all attempts at the step begin with, and what is special to this one."""
    step, task = model.requests[number].messages[0].content
    assert isinstance(step, Text)
    assert isinstance(task, Text)
    return step.text, task.text


def overwrites() -> Turn:
    """The code, written over the file without a Read."""
    return says(
        call("Write", file_path="prices.py", content="def total(prices):\n    return sum(prices) + 0\n"),
        call("CompleteImplementation", implementation_files=[]),
    )


def test_all_attempts_at_a_step_begin_alike_and_then_have_the_changes(project: Project) -> None:
    model = ScriptedModel([red(), green(), content_as_it_is()])
    work = replace(item(), sources=("discount.py", "prices.py"))
    project.run(work, context=project.context(model))
    (red_step, red_task), (green_step, green_task), (tidy_step, tidy_task) = (texts(model, n) for n in range(3))
    assert red_step == green_step == tidy_step
    assert f"`{TEST_FILE}` does not exist yet." in red_step
    assert "return sum(prices)" in red_step
    assert "The project's tests run with pytest: `" in red_step
    assert "The changes of this step so far" not in red_task
    assert "+    assert discount(100) == 90" in green_task
    assert f"+++ b/{TEST_FILE}" in tidy_task
    assert f"+{CODE.splitlines()[0]}" in tidy_task
    assert len({request.system for request in model.requests}) == 1
    assert len({tuple(tool.name for tool in request.tools) for request in model.requests}) == 1


@pytest.mark.slow
def test_a_file_that_the_first_message_shows_needs_no_read(project: Project) -> None:
    model = ScriptedModel([overwrites()])
    work = replace(item("refactor", tests=()), sources=("prices.py",))
    _, why = project.run(work, context=project.context(model))
    assert why is None
    assert project.log == ["refactor: Ten percent off"]
