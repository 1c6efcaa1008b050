import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.tickets import spec
from cdd_agent.tickets.plan import KINDS, Plan, Step, find_problems
from cdd_agent.tickets.plan_markdown import (
    Outline,
    load,
    parse,
    parse_criteria,
    parse_dependencies,
    parse_kind,
    parse_paths,
    split_lines,
)
from tests.fakes.cases import soak_after
from tests.fakes.examples import fewer

TWO_STEPS = """\
# Implementation Plan: Export as CSV

## Overview

Write rows with the csv module.

## Steps

### Step 1: Header only for an empty list
- [ ] done
- Depends on: none
- Files: `src/export.py`
- Tests: `tests/test_export.py::test_empty`
- Criteria: AC-1
- Kind: feature
- Size: small

Write the header.

### Step 2: Quote commas
- [ ] done
- Depends on: 1
- Files: `src/export.py`, `src/quote.py`
- Tests: `tests/test_export.py::test_quotes`
- Criteria: AC-2
- Kind: feature
- Size: medium

## Risks

Excel.
"""


def read(text: str) -> Plan:
    return parse(text, path="plan.md")


FIRST, SECOND = read(TWO_STEPS).steps


def changed(old: str, new: str) -> Plan:
    assert old in TWO_STEPS
    return read(TWO_STEPS.replace(old, new))


def with_first(**changes: object) -> tuple[Step, ...]:
    return (dataclasses.replace(FIRST, **changes), SECOND)  # type: ignore[arg-type]


FENCED = "Write the header.\n\n```markdown\n### Step 9: Example\n- Depends on: 8\n```\n\nAs above."
BULLETED = "Write the header:\n\n- `csv.writer` is enough\n- `src/old.py` stays"


MEANT = [
    pytest.param("", "", (FIRST, SECOND), id="unchanged"),
    pytest.param("\n", "\r\n", (FIRST, SECOND), id="CRLF"),
    pytest.param(
        "Write the header.",
        "Write the header.\nThen stop.",
        with_first(description="Write the header.\nThen stop."),
        id="second description line",
    ),
    pytest.param("- Size: small", "- Complexity: Low", with_first(size="Low"), id="Complexity: Low"),
    pytest.param("- Depends on: 1", "- Dependencies: 1", (FIRST, SECOND), id="Dependencies: 1"),
    pytest.param("### Step 1:", "### step 1:", (FIRST, SECOND), id="lower-case step 1"),
    pytest.param("### Step 2: Quote", "### Step 2 - Quote", (FIRST, SECOND), id="### Step 2 - b"),
    pytest.param("### Step", "## Step", (FIRST, SECOND), id="## Step"),
    pytest.param("\n- ", "\n* ", (FIRST, SECOND), id="* bullets"),
    pytest.param("`src/export.py`", "src/export.py", (FIRST, SECOND), id="path without backticks"),
    pytest.param("`src/export.py`\n", "`src/export.py` (new, uses `csv`)\n", (FIRST, SECOND), id="path with a note"),
    pytest.param(
        "Write the header.", BULLETED, with_first(description=BULLETED), id="backticked bullet inside a description"
    ),
    pytest.param("Write the header.", FENCED, with_first(description=FENCED), id="a fenced example step"),
    pytest.param("# Implementation", "\ufeff# Implementation", (FIRST, SECOND), id="BOM"),
]
"""Hand edits that change nothing but the form, or just what their writer meant: id -> old, new, the steps meant."""


@pytest.mark.parametrize(("old", "new", "meant"), MEANT)
def test_a_hand_edit_reads_back_as_its_writer_meant(old: str, new: str, meant: tuple[Step, ...]) -> None:
    plan = changed(old, new)

    assert plan.steps == meant
    assert plan.title == "Export as CSV"
    assert find_problems(plan, criteria=["AC-1", "AC-2"]) == ()


BROKEN = [
    pytest.param(TWO_STEPS.replace("Step 2", "Step 1"), 20, "step 1 exists twice", id="duplicate numbers"),
    pytest.param(TWO_STEPS.replace("on: 1", "on: 7"), 22, "depends on step 7, which does not", id="missing dependency"),
    pytest.param("", 0, "the plan has no steps", id="empty plan"),
]
"""Hand edits that leave a plan which cannot be carried out: id -> text, line, message."""


@pytest.mark.parametrize(("text", "line", "message"), BROKEN)
def test_a_hand_edit_that_breaks_the_plan_is_reported_with_its_line(text: str, line: int, message: str) -> None:
    found = [(problem.line, problem.message) for problem in find_problems(read(text), criteria=["AC-1", "AC-2"])]

    assert any(at == line and message in said for at, said in found), found


def test_the_hand_edits_are_the_17_that_the_format_promises() -> None:
    assert [case.id for case in (*MEANT, *BROKEN)] == [
        "unchanged",
        "CRLF",
        "second description line",
        "Complexity: Low",
        "Dependencies: 1",
        "lower-case step 1",
        "### Step 2 - b",
        "## Step",
        "* bullets",
        "path without backticks",
        "path with a note",
        "backticked bullet inside a description",
        "a fenced example step",
        "BOM",
        "duplicate numbers",
        "missing dependency",
        "empty plan",
    ]


@pytest.mark.parametrize(
    "heading", ["### 1. A", "### 1) A", "#### Step 1. A", "### STEP #1 \u2014 A", "### **Step 1: A**"]
)
def test_a_step_heading_may_take_other_forms(heading: str) -> None:
    assert [(step.number, step.title) for step in read(f"## Steps\n{heading}\n").steps] == [(1, "A")]


def test_the_form_with_bold_keys_and_lists_below_them_is_read() -> None:
    plan = read(
        "# Implementation Plan: X\n\n**Ticket:** x\n\n## Overview\n\nShort.\n\n### Step 1: A\n\n"
        "**Description:** Do it\nwell.\n\n**Complexity:** medium\n**Estimated Time:** 2 h\n**Dependencies:** None\n\n"
        "**Files Affected:**\n\n- `a.py` - adds `run`\n- Makefile\n\n**Tests:** tests/test_a.py\n\n"
        "## Risks & Considerations\n\n- none known\n"
    )

    assert plan.steps == (
        Step(
            number=1,
            title="A",
            files=("a.py", "Makefile"),
            tests=("tests/test_a.py",),
            size="medium",
            description="Do it\nwell.",
        ),
    )


def test_nested_bullets_and_wrapped_lines_go_on_with_a_list() -> None:
    step = read(
        "### Step 1: A\n- Depends on:\n  - Step 2\n  - 3\n- Files: `a.py`,\n  `b.py`\n- Tests:\n- `t.py`\n"
    ).steps[0]

    assert (step.depends_on, step.files, step.tests) == ((2, 3), ("a.py", "b.py"), ("t.py",))


def test_numbered_headings_elsewhere_are_not_steps() -> None:
    plan = read("## 1. Overview\nx\n## 2. Steps\n### Step 1: A\n#### 1. First\nb\n## 3. Risks\n### 1. Loss\nof data\n")

    assert [(step.number, step.description) for step in plan.steps] == [(1, "#### 1. First\nb")]


def test_a_numbered_heading_in_the_risks_is_no_step_and_one_after_a_step_there_is_refused() -> None:
    assert [step.number for step in read("## Steps\n### Step 1: A\n## Risks\n### 3. Loss\n").steps] == [1]
    with pytest.raises(DocumentError, match=r"line 5: '### 3\. Loss' looks like a step"):
        read("## Steps\n### Step 1: A\n## Risks\n### Step 2: B\n### 3. Loss\n")


def test_text_below_a_list_under_a_bold_key_is_description() -> None:
    step = read("### Step 1: A\n**Files:**\n\n- `a.py`\n  then the parser\n").steps[0]

    assert (step.files, step.description) == (("a.py",), "  then the parser")


def test_a_heading_of_a_higher_level_ends_a_step() -> None:
    plan = read("### Step 1: A\nfirst\n## Notes\nnot of the step\n### Step 2: B\n#### Notes\nof the step\n")

    assert [step.description for step in plan.steps] == ["first", "#### Notes\nof the step"]


def test_a_step_in_a_comment_is_no_step() -> None:
    assert [step.number for step in read("<!--\n### Step 1: A\n-->\n### Step 2: B\n").steps] == [2]


def test_a_task_list_in_a_description_is_not_the_box_of_the_step() -> None:
    step = read("### Step 1: A\n- [ ] done\n\n- [x] done\n- [x] write it\n").steps[0]

    assert not step.done
    assert step.description == "- [x] done\n- [x] write it"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("## Steps\n### Step A: x\n", 2, "looks like a step"),
        ("### Step 1.2: x\n", 1, "looks like a step"),
        ("# Step 1: x\n", 1, "looks like a step"),
        ("### Step 1: x\n```\ncode\n### Step 2: y\n", 2, "never closed"),
        ("### Step 1: x\n<!-- ### Step 2: y\n", 2, "never closed"),
        ("### Step 1: x\n- Depends on: the parser\n", 2, "cannot tell which step 'the parser' is"),
        ("### Step 1: x\n- Kind: party\n", 2, "'party' is not a kind of step"),
        ("### Step 1: x\n- Files: a\n- Files: b\n", 3, "'Files' is given twice"),
        ("### Step 1: x\n- Dependson: 2\n", 2, "the key 'Dependson' is unknown"),
    ],
)
def test_what_cannot_be_understood_is_an_error_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(text)

    assert [problem.line for problem in error.value.problems] == [line]
    assert message in str(error.value)


LOST_STEPS = [
    *("### Task 2: B", "### \u00c9tape 2 : B", "### Schritt 2 \u2013 B", "### \u7b2c2\u6b65\uff1aB", "### B"),
    *("### \u2705 Step 2: B", "### ~~Step 2: B~~", "### [Step 2: B](b.md)", "### `Step 2`: B", "### #2 B"),
    *("#### \u2705 Step 2: B", "##### Step 2: B", "## Task 2: B", "## \u2705 Step 2: B", "# Task 2", "### Step II: B"),
    *("###Step 2: B", "###\u00a0Step 2: B", "<h3>Step 2: B</h3>", "**Step 2: B**", "**Step 2:** B", "__Task 2__"),
    *("Step 2: B\n---------", "~~Step 2: B~~", "[Step 2: B](b.md)"),
]
"""Lines that their writer meant as the heading of step 2."""
LOST_STEPS_BY_THEIR_KEYS = ["2. B", "- [ ] Step 2: B", "Step 2: B", "**B**", "\uff03\uff03\uff03 B", "#### B"]
"""Lines that are no heading of a step in themselves, with the keys of a step below them."""


def test_a_line_that_is_meant_as_a_step_is_a_step_or_an_error() -> None:
    keys = "- Files: `b.py`\n- Tests: `t.py`\n- Criteria: AC-1\n"
    first = f"# Plan\n## Steps\n### Step 1: A\n{keys}\nText.\n\n"
    bodies = ["", "Show it.\n", keys, f"\n{keys}"]
    cases = [(line, body) for line in LOST_STEPS for body in bodies]
    cases += [(line, keys) for line in LOST_STEPS_BY_THEIR_KEYS]

    for line, body in cases:
        with pytest.raises(DocumentError, match="looks like a step") as error:
            read(f"{first}{line}\n{body}\n## Risks\nNone.\n")
        assert [problem.line for problem in error.value.problems] == [10], line


def test_without_any_step_each_heading_below_the_steps_is_reported() -> None:
    with pytest.raises(DocumentError) as error:
        read("# Plan\n## Overview\n### Why\n## Steps\n### Task 1: A\n#### Notes\n### Task 2: B\n## Risks\n")

    assert [problem.line for problem in error.value.problems] == [5, 7]


def test_a_first_step_that_is_a_list_with_keys_is_reported() -> None:
    with pytest.raises(DocumentError, match=r"line 2: '1\. A' looks like a step"):
        read("## Steps\n1. A\n   - Files: a.py\n   - Criteria: AC-1\n### Step 2: B\n")


def test_the_colon_and_the_digits_of_other_scripts_are_read() -> None:
    steps = read("### Step \uff11\uff1aA\n- Tests\uff1a`t.py`\n### 2\uff1aB\n").steps

    assert [(step.number, step.title, step.tests) for step in steps] == [(1, "A", ("t.py",)), (2, "B", ())]


LOST_KEYS = [
    *("- Fichiers: `b.py`", "- Crit\u00e8res: AC-1", "- \u6587\u4ef6: b.py", "- File(s): b.py", "- Owner: Anna"),
    *("- \u2705 Tests: b.py", "\u2022 Files: b.py", "-Files: b.py", "1. Files: b.py", "- ~~Files: b.py~~"),
    *(
        "- `Files`: b.py",
        "- [ ] Files: b.py",
        "| Files | b.py |",
        "- Files `b.py`",
        "- Files = b.py",
        "- Files \u2192 b.py",
    ),
    *("- **Files** b.py", "- Depends on 1", "- Kind docs", "- Depend on: 1", "Filez: b.py", "> Files: b.py"),
    *("- Files\u2236 b.py", "- Files\ufe55 b.py", "- Files\u200d: b.py", "- [Files](x): b.py", "<li>Files: b.py</li>"),
]
"""Lines in the list of keys of a step that no key can be read from."""


def test_a_line_in_the_list_of_keys_is_a_key_or_an_error() -> None:
    for line in LOST_KEYS:
        for text in (f"- Size: small\n{line}\n", f"- [ ] done\n{line}\n- Size: small\n", f"{line}\n- Size: small\n"):
            with pytest.raises(DocumentError) as error:
                read(f"### Step 1: A\n{text}\nText.\n")
            at = 2 if text.startswith(line) else 3
            assert [problem.line for problem in error.value.problems] == [at], line


def test_a_key_as_a_heading_or_without_a_bullet_below_a_blank_line_is_an_error() -> None:
    for lost in (
        "#### Depends on\n- 1\n",
        "\nDepends on: Step 1\n",
        "Text.\nFiles: `b.py`\n",
        "\n- Files\ufe55 b.py\n",
    ):
        with pytest.raises(DocumentError, match="cannot be read as a key"):
            read(f"### Step 1: A\n- Tests: `t.py`\n{lost}")
    assert read("### Step 1: A\n- Files: `a.py`\n\nFiles: `b.py` stays.\nTests: all pass\n").steps[0].files == ("a.py",)


def test_a_bold_key_that_is_nearly_one_is_an_error_wherever_it_is() -> None:
    with pytest.raises(DocumentError, match="line 5: the key 'Dependancies' is unknown"):
        read("### Step 1: A\n**Description:** Do it.\n\nWell.\n**Dependancies:** 2\n")


ORDINARY = [
    *("Note: be careful\nwith it.", "- First: parse\n- Then: emit", "1. parse\n2. emit", "**Note:** be careful"),
    *("**Details**\n\n- `a` is\n- Files are read", "#### Notes\n- why: so", "##### 1. First", "#### Phase 2: parse"),
    *("**Step 1:** parse\n\n**Step 2:** emit", "Step 1: parse\nStep 2: emit", "- **Step 2:** emit", "text\n---\nmore"),
    *("> ### Step 9: quoted", "| Key | Value |\n|---|---|\n| Files | b |", "    ### Step 9: code", "Time: 3 h"),
    *("```\n### Task 2\n- Files: x\n- Tests: y\n```", "- Tests: cover the empty list", "- [ ] parse\n- [x] emit"),
    *("[Step 2](#x) comes first.", "Python 3: careful\n\n**Python 3**", "- Note: a\n- Size of it: big", "#tag: x"),
]
"""Descriptions that look a little like steps or keys, and are neither."""


def test_an_ordinary_description_stays_one() -> None:
    for description in ORDINARY:
        plan = changed("Write the header.", description)
        assert plan.steps == with_first(description=description), description


def test_a_heading_above_the_steps_may_group_them() -> None:
    plan = read("## Steps\n### Phase A\n#### Step 1: A\n### Phase B\nLater:\n#### Step 2: B\n## Notes\n- Tests: all\n")

    assert [(step.number, step.description) for step in plan.steps] == [(1, ""), (2, "")]


def test_all_that_cannot_be_understood_is_reported_at_once() -> None:
    with pytest.raises(DocumentError) as error:
        read("### Step 1: x\n- Kind: party\n### Step 2: x\n- Depends on: y\n### Step C: z\n")

    assert [problem.line for problem in error.value.problems] == [2, 4, 5]


def test_a_step_without_a_kind_takes_the_one_given_by_the_caller() -> None:
    assert parse("### Step 1: x\n", path="plan.md", default_kind="bug").steps[0].kind == "bug"


def test_lines_are_known_of_a_step_and_of_its_keys() -> None:
    assert (SECOND.line, SECOND.line_of("depends_on"), SECOND.line_of("description")) == (20, 22, 20)


words = st.from_regex(r"[A-Za-z0-9][\w .,:'()/-]{0,20}", fullmatch=True).map(lambda text: " ".join(text.split()))
prose_lines = st.one_of(
    words,
    words.map("- {}".format),
    words.map("  * `{}`".format),
    st.sampled_from(
        ["", "```\n## in a fence\n- Files: no\n```", "- Size: huge", "**Files:** `x`", "#hash", "- [ ] more"]
    ),
)
prose = st.lists(prose_lines, max_size=5).map("\n".join).map(lambda text: text.strip())
paths = st.from_regex(r"[a-z_][a-z0-9_ ,]{0,8}(/[a-z_(\[]{1,9})?\.py(::test_[a-z]{1,5}(\[a, b\])?)?", fullmatch=True)
steps = st.builds(
    Step,
    number=st.integers(0, 10**6),
    title=words,
    done=st.booleans(),
    depends_on=st.lists(st.integers(0, 99), unique=True, max_size=3).map(tuple),
    files=st.lists(paths, unique=True, max_size=3).map(tuple),
    tests=st.lists(paths, unique=True, max_size=3).map(tuple),
    criteria=st.lists(st.from_regex(r"AC-[0-9]{1,3}", fullmatch=True), unique=True, max_size=3).map(tuple),
    kind=st.sampled_from(KINDS),
    size=st.sampled_from(["", "small", "Low", "2 days"]),
    description=prose,
)
plans = st.builds(Plan, title=words, steps=st.lists(steps, max_size=4).map(tuple))


def write(plan: Plan) -> str:
    """The plan in the form that the Planner is asked to write."""
    parts = [f"# Implementation Plan: {plan.title}", "## Overview", "Write rows.", "## Steps"]
    for step in plan.steps:
        keys = (
            f"### Step {step.number}: {step.title}",
            f"- [{'x' if step.done else ' '}] done",
            f"- Depends on: {', '.join(str(number) for number in step.depends_on) or 'none'}",
            f"- Files: {', '.join(f'`{path}`' for path in step.files) or 'none'}",
            f"- Tests: {', '.join(f'`{test}`' for test in step.tests) or 'none'}",
            f"- Criteria: {', '.join(step.criteria) or 'none'}",
            f"- Kind: {step.kind}",
            f"- Size: {step.size}".rstrip(),
        )
        parts += ["\n".join(keys), step.description]
    return "\n\n".join(part for part in (*parts, "## Risks", "Excel.") if part) + "\n"


@fewer()
@given(plans)
def test_every_plan_reads_back_as_it_was_written(plan: Plan) -> None:
    assert read(write(plan)) == plan


@given(
    st.lists(st.sampled_from(["### Step 1: a", "## 2. b", "- [ ] done", "- Files: `a", "```", "", "# t", "- Size:"]))
)
def test_any_sequence_of_lines_is_read_or_refused(lines: list[str]) -> None:
    with contextlib.suppress(DocumentError):
        read("\n".join(lines))


def test_a_plan_is_loaded_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_bytes(TWO_STEPS.encode())

    assert load(tmp_path / "plan.md") == read(TWO_STEPS)


def test_a_missing_plan_is_reported_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path / "csv" / "plan.md")

    assert error.value.hint == "write it with: cdd plan csv"


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"x" * 1_000_001])
def test_a_file_that_is_no_plan_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "plan.md").write_bytes(data)

    with pytest.raises(DocumentError):
        load(tmp_path / "plan.md")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 1_000_001, "it has 1000001 characters; a plan has at most 1000000"),
        ("\n" * 40_001, "it has 40001 lines; a plan has at most 40000"),
        ("".join(f"### Step {number}: a\n" for number in range(1001)), "it has 1001 steps; a plan has at most 1000"),
    ],
)
def test_a_plan_that_nobody_could_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse(text, path="plan.md")


def test_a_file_too_large_for_a_plan_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "plan.md").open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(DocumentError, match="at most 1000000 bytes are read"):
        load(tmp_path / "plan.md")


@pytest.mark.parametrize("read", [load, spec.load])
def test_a_pipe_in_the_place_of_a_document_is_refused_at_once(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "document")
    with pytest.raises(DocumentError, match="a pipe or a device"):
        read(tmp_path / "document")


@soak_after(1, "line", ["  b\n", "--><!--", "[a](b"])
def test_a_list_of_files_is_read_in_time_that_grows_with_its_length(line: str) -> None:
    text = "### Step 1: a\n- Files: a" + line * (150_000 // len(line))
    started = time.thread_time()
    parse(text, path="plan.md")
    assert time.thread_time() - started < 1


def outline(text: str) -> list[tuple[str, str]]:
    return [(block.name, block.text) for block in Outline(split_lines(text)[0]).blocks]


def test_lines_are_numbered_whatever_ends_them() -> None:
    text = "\ufeffa\r\nb\rc\n"

    lines, _ = split_lines(text)

    assert [(line.number, line.text) for line in lines] == [(1, "a"), (2, "b"), (3, "c"), (4, "")]


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
    lines, problems = split_lines(f"{text}\n## y")

    assert problems == []
    assert [line.text for line in lines if line.text and not line.is_quoted] == ["## y"]


def test_inline_code_of_three_backticks_opens_no_fence() -> None:
    assert outline("```a``` b\n## x") == [("other", "x")]


def test_a_quotation_without_end_is_a_problem_at_its_start() -> None:
    assert [(problem.line, problem.message) for problem in split_lines("a\n```py\nb\n")[1]] == [
        (2, "'```py' is never closed")
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
    found = Outline(split_lines(f"### Step {'1' * 5000}: a")[0])

    assert found.blocks == []
    assert [problem.line for problem in found.problems] == [1]


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
    assert parse_dependencies(value) == meant


@pytest.mark.parametrize("value", ["the parser", "1, header", "3-1", "1-99999", "none, 2 later"])
def test_a_dependency_that_names_no_step_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="step"):
        parse_dependencies(value)


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
        ("`a.py` - like x and b.py", ("a.py",)),
        ("`` a`b ``", ("a`b",)),
    ],
)
def test_paths_are_read_as_people_write_them(value: str, meant: tuple[str, ...]) -> None:
    assert parse_paths(value) == meant


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
    assert parse_criteria(value) == meant


@pytest.mark.parametrize(
    ("value", "meant"), [("Bug", "bug"), ("`fix`", "bug"), ("documentation", "docs"), ("feat", "feature")]
)
def test_kinds_have_other_names(value: str, meant: str) -> None:
    assert parse_kind(value) == meant


def test_an_unknown_kind_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="'party' is not a kind of step; write one of feature, bug"):
        parse_kind("party")


def test_brackets_of_a_parametrized_test_belong_to_its_name() -> None:
    value = "tests/t.py::test_a[x, y], `b.py`, tests/t.py::test_c[[1]]: new, d.py."
    assert parse_paths(value) == ("tests/t.py::test_a[x, y]", "b.py", "tests/t.py::test_c[[1]]", "d.py")


@soak_after(1, "value", ["[", "[[", "[a](b", "(", "`a`` ", "a[", "[a ", ":" * 50 + "x", ".a", "and ", "--><!--"])
def test_a_long_value_is_read_in_time_that_grows_with_its_length(value: str) -> None:
    started = time.thread_time()
    parse_paths(value * (200_000 // len(value)))
    assert time.thread_time() - started < 1


def test_more_steps_than_a_plan_has_are_no_dependency() -> None:
    with pytest.raises(ValueError, match="more than 1000 steps are named"):
        parse_dependencies("1-999, " * 100_000)
