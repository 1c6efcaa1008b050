import pytest

from cdd_agent.tickets.plan_outline import blocks, read_lines


def outline(text: str) -> list[tuple[str, str]]:
    return [(block.name, block.text) for block in blocks(read_lines(text)[0])[0]]


def test_lines_are_known_by_number_and_offset_whatever_ends_them() -> None:
    text = "\ufeffa\r\nb\rc\n"

    lines, _ = read_lines(text)

    assert [(line.number, line.start, line.text) for line in lines] == [
        (1, 1, "a"),
        (2, 4, "b"),
        (3, 6, "c"),
        (4, 8, ""),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```\n## x\n```",
        "~~~ md\n## x\n```\n~~~",
        "````\n```\n## x\n````",
        "- ```\n  ## x\n  ```",
        "<!-- ## x -->",
        "<!--\n## x\n-->",
        "---\n## x\n---",
    ],
)
def test_what_is_quoted_is_no_structure(text: str) -> None:
    lines, problems = read_lines(f"{text}\n## y")

    assert problems == []
    assert [line.text for line in lines if line.text and not line.is_quoted] == ["## y"]


def test_inline_code_of_three_backticks_opens_no_fence() -> None:
    assert outline("```a``` b\n## x") == [("other", "x")]


def test_a_quotation_without_end_is_a_problem_at_its_start() -> None:
    assert [(problem.line, problem.message) for problem in read_lines("a\n```py\nb\n")[1]] == [
        (2, "what begins here with '```py' is never closed")
    ]


def test_headings_begin_the_blocks_they_name() -> None:
    text = "# T\n## Overview\n### Part\n## 2. Steps:\n### Step 1: A #\n#### Sub\n## RISKS AND CONSIDERATIONS\n## Notes"

    assert outline(text) == [
        ("title", "T"),
        ("overview", "Overview"),
        ("steps", "2. Steps:"),
        ("step", "A"),
        ("risks", "RISKS AND CONSIDERATIONS"),
        ("other", "Notes"),
    ]


def test_a_hash_that_belongs_to_a_word_stays() -> None:
    assert outline("## Step 1: Port to C#") == [("step", "Port to C#")]


def test_a_number_that_is_too_long_is_no_step() -> None:
    found, problems = blocks(read_lines(f"### Step {'1' * 5000}: a")[0])

    assert found == []
    assert [problem.line for problem in problems] == [1]
