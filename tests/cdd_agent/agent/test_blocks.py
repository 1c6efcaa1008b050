"""Fences by CommonMark's rule, paths in three spellings, and an error for everything that cannot be understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.agent.blocks import MAX_BLOCKS, FileBlock, parse_files
from cdd_agent.errors import UsageError
from tests.fakes.examples import fewer


def only(answer: str) -> FileBlock:
    (block,) = parse_files(answer)
    return block


def refused(answer: str) -> str:
    with pytest.raises(UsageError) as refusal:
        parse_files(answer)
    assert refusal.value.hint
    return refusal.value.happened


def test_a_block_that_names_a_path_is_a_file() -> None:
    answer = "I write this:\n\n```python:src/table.py\ndef row():\n    return 1\n```\n\nThat is all.\n"
    assert parse_files(answer) == (FileBlock(path="src/table.py", content="def row():\n    return 1\n", line=3),)


@pytest.mark.parametrize(
    "info",
    [
        "python:src/a.py",
        "src/a.py",
        "python path=src/a.py",
        'python path="src/a.py"',
        "path='src/a.py'",
        "python title=x path=src/a.py",
        "{.python path=src/a.py}",
        "python: src/a.py",
        ":src/a.py",
        "python:./src/a.py",
        "c++:src//a.py",
    ],
)
def test_the_path_is_read_in_each_spelling(info: str) -> None:
    assert only(f"```{info}\nx\n```\n").path == "src/a.py"


@pytest.mark.parametrize("path", ["README.md", ".gitignore", ".github/x.yml", "a.tar.gz", "src/Makefile"])
def test_a_path_may_stand_alone(path: str) -> None:
    assert only(f"```{path}\nx\n```").path == path


def test_a_quoted_path_may_have_blanks_in_it() -> None:
    assert only('```text path="docs/a note.txt"\nx\n```').path == "docs/a note.txt"


@pytest.mark.parametrize(
    "info", ["", "python", "console", "c++", "vb.net", "python3.11", "python title=x", "{.python}"]
)
def test_a_block_without_a_path_is_an_example(info: str) -> None:
    assert parse_files(f"```{info}\nx\n```\n") == ()


def test_an_answer_without_blocks_names_no_file() -> None:
    assert parse_files("The step cannot be done: `a.py` is not there. ```code``` stands in a line.") == ()


def test_inner_fences_stay_in_a_longer_one() -> None:
    content = "# T\n\n```sh\nmake\n```\n\n~~~\nx\n~~~\n"
    assert only(f"````markdown:README.md\n{content}````\n").content == content


def test_only_the_same_character_closes() -> None:
    content = "# T\n\n```sh\nmake\n```\n"
    assert only(f"~~~markdown:README.md\n{content}~~~\n").content == content


def test_a_longer_fence_closes_and_white_space_may_follow_it() -> None:
    assert only("```a.py\nx = 1\n````` \t\n").content == "x = 1\n"


def test_a_fence_with_a_word_after_it_closes_nothing() -> None:
    assert only('```a.py\nx = """\n```python\n"""\n```\n').content == 'x = """\n```python\n"""\n'


def test_a_fence_deep_in_a_line_closes_nothing() -> None:
    assert only("```a.md\n    ```\n\t```\n```\n").content == "    ```\n\t```\n"


def test_blanks_before_the_opening_fence_are_taken_off_the_lines() -> None:
    assert only("  ```a.py\n  def f():\n      pass\n x\n  ```\n").content == "def f():\n    pass\nx\n"


@pytest.mark.parametrize(
    "content", ["", "\n", "x\n", "x\n\n\n", "x\r\ny\r\n", "\ufeffx\n", "a\x0cb\u2028c\n", "x\ry\n"]
)
def test_what_is_between_the_fences_survives_to_the_byte(content: str) -> None:
    assert only(f"```a.py\n{content}```").content == content


def test_a_byte_order_mark_before_the_answer_hides_no_fence() -> None:
    assert only("\ufeff```a.py\nx\n```\n").content == "x\n"


def test_an_answer_with_crlf_keeps_it_in_the_files() -> None:
    assert only("Hello\r\n```a.py\r\nx\r\n```\r\n").content == "x\r\n"


def test_a_block_that_is_not_closed_is_an_error_for_the_whole_answer() -> None:
    said = refused("```a.py\nx = 1\n```\n\n````b.py\ny = 1\n```\n")
    assert said.startswith("Line 5 of the answer: the block that starts here is not closed by a line of ````")


@pytest.mark.parametrize(
    "inner",
    ["```sh\nmake\n```\n", "```\nmake\n```\n", "```sh\na\n```\n\n```sh\nb\n```\n", "```\na\n```\n\n```\nb\n```\n"],
)
def test_a_file_with_fences_as_long_as_its_own_is_refused_and_never_cut(inner: str) -> None:
    assert "Nothing was written" in refused(f"```markdown:README.md\n# T\n\n{inner}\nMore.\n```\n")


def test_a_bare_example_before_the_first_file_is_one() -> None:
    assert only("```\nexample\n```\n\n```a.py\nx\n```\n").path == "a.py"


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("python:", "the path is empty"),
        ("python path=", "the path is empty"),
        ('python path=""', "the path is empty"),
        ("python:here is the file", "is not a path"),
        ("python:<your file>", "is not a path"),
        ("python:a.py:12", "is not a path"),
        ("python:src\\a.py", "is not a path"),
        ("src/a.py (new)", "the path is followed by '(new)'"),
        ("python src/a.py", "is neither a path nor a language"),
        ("python:src/", "is a folder"),
        (f"python:src/{'n' * 253}.py", "is too long"),
        ("python:path/to/file.py", "is the path of an example"),
        ("python:~/a.py", "is not a path in the project"),
        ("python:\u200ba.py", "is not a path in the project"),
        ("diff:src/a.py", "this block is a diff"),
    ],
)
def test_what_stands_in_the_place_of_a_path_is_told(info: str, said: str) -> None:
    told = refused(f"Here:\n```{info}\nx\n```\n")
    assert told.startswith("Line 2 of the answer: ")
    assert said in told


def test_a_path_that_comes_twice_is_an_error_in_any_spelling() -> None:
    said = refused("```a.py\n1\n```\n```python:./a.py\n2\n```\n")
    assert "Line 4 of the answer: a.py is already in the answer, in line 1" in said


def test_a_path_that_would_be_a_file_and_a_folder_is_an_error() -> None:
    assert "would be a file and a folder" in refused(
        "```src/a/b.py\n1\n```\n```text:src/a\n2\n```\n```src/a-b.py\n3\n```"
    )


@pytest.mark.parametrize("before", ["- ", "1. ", "> ", "    ", "\t", "   - "])
def test_a_file_in_a_list_or_deep_in_a_line_is_not_lost_silently(before: str) -> None:
    assert "is not at the start" in refused(f"{before}```python:a.py\n{before}x\n{before}```\n")


def test_a_flood_of_files_is_refused() -> None:
    assert "more than 200 files" in refused("".join(f"```{n}.py\n```\n" for n in range(MAX_BLOCKS + 1)))


@fewer()
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}/[a-z]{1,8}\.py", fullmatch=True),
        st.text(alphabet="ab `~#\n\r\t:", max_size=60).map(lambda text: f"{text}\n"),
        max_size=4,
    )
)
def test_files_in_fences_long_enough_come_back_as_they_are(files: dict[str, str]) -> None:
    fence = "`" * 70
    answer = "\n".join(f"{fence}python:{path}\n{content}{fence}" for path, content in files.items())
    assert {block.path: block.content for block in parse_files(answer)} == files
