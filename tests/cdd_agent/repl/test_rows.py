"""Text as rows of a terminal."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cdd_agent.repl.rows import LONGEST_CODE_LINE, Code, read_inline, wrap, wrap_hanging

# Wrapping.


WORDS = st.lists(st.sampled_from(["a", "bcd", "long-word-of-twenty!", "漢字", "👩", "e\n"]), max_size=30)


def plain(rows: list[Text]) -> list[str]:
    return [row.plain for row in rows]


@given(words=WORDS)
def test_no_row_is_too_wide_and_no_word_is_lost(words: list[str]) -> None:
    rows = plain(wrap(Text(" ".join(words)), 10))
    assert all(cell_len(row) <= 10 for row in rows)
    assert "".join("".join(rows).split()) == "".join("".join(words).split())


def test_styles_stay_with_their_words() -> None:
    rows = wrap(Text.assemble("one ", ("two three", "bold"), " four"), 8)
    assert plain(rows) == ["one two", "three", "four"]
    assert [(span.start, span.end) for row in rows for span in row.spans] == [(4, 7), (0, 5)]


def test_a_word_longer_than_a_row_has_its_own_rows() -> None:
    assert plain(wrap(Text("a bcdefghijklmn o"), 5)) == ["a", "bcdef", "ghijk", "lmn o"]


def test_text_without_blanks_fills_its_rows() -> None:
    assert plain(wrap(Text("漢字。漢字漢字"), 8)) == ["漢字。漢", "字漢字"]


def test_rows_hang() -> None:
    assert plain(wrap_hanging(Text("one two three four"), width=12, hang=2)) == ["one two", "  three four"]
    assert plain(wrap_hanging(Text("a" * 25), width=12, hang=2)) == ["a" * 12, "  " + "a" * 10, "  aaa"]


# Marks.


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("**bold** *it* _it_ ~~no~~ `code`", "bold it it no code"),
        ("2 * 3 * 4, snake_case_name, a~b", "2 * 3 * 4, snake_case_name, a~b"),
        ("__init__.py and __main__, but __this one__", "__init__.py and __main__, but this one"),
        (r"\*no\* \`no\` \[no\] \\", r"*no* `no` [no] \ ".rstrip()),
        ("`` a`b `` and `**x**`", "a`b and **x**"),
        ("[text](http://x.y/z)", "text (http://x.y/z)"),
        ('[text](http://x.y "Title")', 'text (http://x.y "Title")'),
        ("[http://x.y](http://x.y) <http://x.y/a_b>", "http://x.y http://x.y/a_b"),
        ("<me@x.y>", "me@x.y"),
        ("[`a.py`](src/a.py)", "a.py (src/a.py)"),
        ("[x](javascript:alert(1)) [y](file:///etc/passwd)", "x (javascript:alert(1)) y (file:///etc/passwd)"),
        ("[ü](http://münchen.de/ü)", "ü (http://münchen.de/ü)"),
        ("![a picture](a.png)", "a picture (a.png)"),
        ("[no link] [a][b] array[0]", "[no link] [a][b] array[0]"),
        ("<b>HTML</b> <script>x</script>", "<b>HTML</b> <script>x</script>"),
        ("&lt;div&gt; &amp; &copy; &#x202e;x &#27;[1m", "<div> & © <U+202E>x �[1m"),
        ("soft\nbreak", "soft break"),
        ("hard  \nand\\\nhard", "hard\nand\nhard"),
        ("**soft\nbold**  \nx", "soft bold\nx"),
    ],
)
def test_it_is_shown_so(source: str, shown: str) -> None:
    assert read_inline(source)[0].plain == shown


@pytest.mark.parametrize(
    ("source", "style"),
    [
        ("**x**", "bold"),
        ("*x*", "italic"),
        ("***x***", "bold italic"),
        ("~~x~~", "strike"),
        ("`x`", "cyan"),
        ("**`x`**", "bold cyan"),
        ("[x](y)", "underline"),
    ],
)
def test_a_mark_is_a_style(source: str, style: str) -> None:
    console = Console()
    assert read_inline(source)[0].get_style_at_offset(console, 0) == console.get_style(style)


def test_a_target_is_text_and_no_link_of_the_terminal() -> None:
    text = read_inline("[x](http://y)")[0]
    assert not [span for span in text.spans if getattr(span.style, "link", None)]


@pytest.mark.parametrize("source", ["**a** ", "2 * 3 ", "`a` ", "[a](b) ", "a_b ", "[a] ", r"\* \[ \` ", "a&b ", "<a "])
def test_it_is_known_when_no_mark_is_open(source: str) -> None:
    assert read_inline(source)[1]


@pytest.mark.parametrize("source", ["**a ", "*args ", "`a ", "[a ", "[a](b ", "~~a ", "_a ", "**a* ", "`` a` "])
def test_it_is_known_when_a_mark_is_open(source: str) -> None:
    assert not read_inline(source)[1]


def test_a_text_that_nobody_writes_is_not_read_for_marks() -> None:
    source = "[*" * 5_000
    assert read_inline(source)[0].plain == source


def test_the_parser_is_imported_with_the_first_mark() -> None:
    code = (
        "import sys; from cdd_agent.repl.rows import read_inline; "
        "read_inline('text'); print('markdown_it' in sys.modules); "
        "read_inline('**x**'); print('markdown_it' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "True"]


# Code.


PYTHON = '''\
@cache
def f(x: int) -> str:
    """Several

    lines."""
    if x is None:  # never
        return f"{x!r}" + 'y' * 2
'''


def fence(info: str, *, color: bool = True) -> Code:
    return Code(Token("fence", "code", 0, info=info, markup="```"), color=color)


def painted(info: str, code: str, *, color: bool = True) -> list[Text]:
    block = fence(info, color=color)
    return [block.paint(line) for line in code.splitlines()]


def styles(row: Text) -> dict[str, str]:
    return {row.plain[span.start : span.end]: str(span.style) for span in row.spans}


@pytest.mark.parametrize(
    ("info", "name"),
    [("python", "python"), ("Python x=y", "python"), ("{.py}", "py"), ("c++", "c++"), ("py:a/b.py", "py"), ("", "")],
)
def test_a_language_is_the_first_word(info: str, name: str) -> None:
    assert fence(info).language == name


@pytest.mark.parametrize("info", ["python", "json", "yaml", "toml", "bash", "js", "html", "css", "rust", "diff", ""])
@pytest.mark.parametrize("code", [PYTHON, "<a\n href='x'>\n/* b\n*/ c\n", "```\n\t漢 \x7f'''\n", '"\\', "# \n'\n\n"])
def test_a_line_stays_as_it_is(info: str, code: str) -> None:
    assert [row.plain for row in painted(info, code)] == code.splitlines()


def test_keywords_names_strings_and_comments_differ() -> None:
    rows = painted("python", PYTHON)
    assert styles(rows[0])["@cache"] == "bold bright_magenta"
    assert styles(rows[1])["def"] == "bright_blue"
    assert styles(rows[1])["f"] == "bright_green"
    assert styles(rows[1])["int"] == "bright_cyan"
    assert styles(rows[5])["# never"] == "dim"
    assert styles(rows[6])["y"] == "yellow"


def test_strings_and_comments_of_several_lines_are_recognized_before_they_end() -> None:
    rows = painted("python", PYTHON)
    assert [set(styles(row).values()) for row in rows[2:5]] == [{"yellow"}, set(), {"yellow"}]
    rows = painted("js", "/* one\n const two\n three */\nconst x = `a\nb`")
    assert [set(styles(row).values()) for row in rows[:3]] == [{"dim"}] * 3
    assert styles(rows[3])["const"] == "bright_blue"
    assert set(styles(rows[4]).values()) == {"yellow"}


def test_removed_and_added_lines_of_a_diff_differ() -> None:
    rows = painted("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n")
    assert styles(rows[3]) == {"-old": "bright_red"}
    assert styles(rows[4]) == {"+new": "bright_green"}
    assert "same" not in styles(rows[5])


@pytest.mark.parametrize("info", ["", "text", "no-such-language", "output"])
def test_what_has_no_language_has_no_colors(info: str) -> None:
    assert not [row for row in painted(info, PYTHON) if row.spans or row.style]


def test_without_colors_there_are_none() -> None:
    assert not [row for row in painted("python", PYTHON, color=False) if row.spans or row.style]


def test_a_very_long_line_has_no_colors() -> None:
    assert not painted("python", "x = 1 " * LONGEST_CODE_LINE)[0].spans


def test_the_colors_of_a_line_are_those_of_the_whole_block_however_long_it_is() -> None:
    """In a block of which most lines are forgotten before the last one arrives."""
    code = PYTHON * 30
    rows = [[(span.start, span.end, span.style) for span in row.spans] for row in painted("python", code)]
    assert len(rows) == 210
    assert rows == rows[: len(PYTHON.splitlines())] * 30


IMPORTS = """
import sys
from markdown_it.token import Token
from cdd_agent.repl.rows import Code
before = set(sys.modules)
Code(Token("fence", "code", 0, info="{}", markup="```"), color={}).paint("x = 1")
print(*sorted(name for name in set(sys.modules) - before if name.startswith("pygments.lexers.")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "color", "imported"),
    [
        ("python", False, ""),
        ("diff", True, "pygments.lexers.diff"),
        ("", True, ""),
        ("json", True, "pygments.lexers.data"),
    ],
)
def test_only_the_lexer_that_is_needed_is_imported(name: str, color: bool, *, imported: str) -> None:
    code = IMPORTS.format(name, color)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [module for module in told if module != "pygments.lexers._mapping"] == imported.split()
