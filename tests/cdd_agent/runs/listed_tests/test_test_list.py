import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.runs.test_list import ListEntry, find_entry, list_open, normalize, parse

LIST = """\
# Calculator

Some words, and a box [ ] that is none.

- [x] adds two numbers
- [X] adds zero (covered)
* [ ] **subtracts** `zero`.
  1. [ ] divides by zero
+ [✓] multiplies - (already covered)

```markdown
- [ ] only an example
```
- [] no space in the box
- [ ]
"""


def test_boxes_are_read_however_they_are_written() -> None:
    assert [(entry.text, entry.is_done) for entry in parse(LIST)] == [
        ("adds two numbers", True),
        ("adds zero", True),
        ("**subtracts** `zero`.", False),
        ("divides by zero", False),
        ("multiplies", True),
        ("no space in the box", False),
    ]
    assert [entry.line for entry in parse(LIST)][:3] == [5, 6, 7]


@pytest.mark.parametrize("text", ["\ufeff- [ ] one\r\n- [x] two\r\n", "> - [ ] one\n> - [x] two"])
def test_other_line_ends_a_mark_at_the_start_and_quotes_change_nothing(text: str) -> None:
    assert [(entry.text, entry.is_done) for entry in parse(text)] == [("one", False), ("two", True)]


def test_a_fence_ends_with_one_of_its_own_kind() -> None:
    assert parse("````\n```\n- [ ] inside\n~~~\n````\n- [ ] outside\n")[0].text == "outside"


@pytest.mark.parametrize("other", ["Adds  two numbers.", "**adds** two `numbers`", "adds two numbers (covered)"])
def test_how_a_description_is_decorated_tells_nothing(other: str) -> None:
    assert normalize(other) == normalize("adds two numbers")
    assert normalize("adds three numbers") != normalize("adds two numbers")


def test_of_two_entries_of_one_description_the_open_one_is_found() -> None:
    done = ListEntry(text="adds", line=1, is_done=True)
    still = ListEntry(text="Adds.", line=2, is_done=False)
    assert find_entry((done, still), "adds") == still
    assert find_entry((done,), "adds") == done
    assert find_entry((done,), "subtracts") is None
    assert list_open((done, still)) == ("Adds.",)


@given(st.text())
def test_any_text_is_a_list_of_some_tests_or_none(text: str) -> None:
    for entry in parse(text):
        assert entry.text.strip()
        assert text.removeprefix("\ufeff").split("\n")[entry.line - 1].count(entry.text)


def test_a_long_line_of_spaces_takes_no_time() -> None:
    assert parse("- [ ] " + " " * 190_000 + "x") == ()
