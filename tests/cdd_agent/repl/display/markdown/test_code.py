"""Code between fences."""

import subprocess
import sys

import pytest
from rich.text import Text

from cdd_agent.repl.markdown import LARGEST, LONGEST_LINE, language, paint

PYTHON = '''\
@cache
def f(x: int) -> str:
    """Several

    lines."""
    if x is None:  # never
        return f"{x!r}" + 'y' * 2
'''


def painted(info: str, code: str, *, color: bool = True) -> list[Text]:
    painter = paint(info, color=color)
    return [painter(line) for line in code.splitlines()]


def styles(row: Text) -> dict[str, str]:
    return {row.plain[span.start : span.end]: str(span.style) for span in row.spans}


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("python", "python"),
        ("Python x=y", "python"),
        ("{.py}", "py"),
        ("c++", "c++"),
        ("py:a/b.py", "py"),
        ("", ""),
    ],
)
def test_a_language_is_the_first_word(info: str, name: str) -> None:
    assert language(info) == name


@pytest.mark.parametrize("info", ["python", "json", "yaml", "toml", "bash", "js", "html", "css", "rust", "diff", ""])
@pytest.mark.parametrize("code", [PYTHON, "<a\n href='x'>\n/* b\n*/ c\n", "```\n\t漢 \x7f'''\n", '"\\', "# \n'\n\n"])
def test_a_line_stays_as_it_is(info: str, code: str) -> None:
    assert [row.plain for row in painted(info, code)] == code.splitlines()


def test_keywords_names_strings_and_comments_differ() -> None:
    rows = painted("python", PYTHON)
    assert styles(rows[0])["@cache"] == "yellow"
    assert styles(rows[1]) == {"def": "magenta", "f": "bright_blue", "int": "cyan", "str": "cyan"}
    assert styles(rows[5])["# never"] == "dim italic"
    assert styles(rows[6])["return"] == "magenta"


def test_what_goes_over_lines_is_known_for_what_it_is() -> None:
    rows = painted("python", PYTHON)
    assert [set(styles(row).values()) for row in rows[2:5]] == [{"green"}, set(), {"green"}]
    rows = painted("js", "/* one\n const two\n three */\nconst x = `a\nb`")
    assert [set(styles(row).values()) or str(row.style) for row in rows[:3]] == ["dim italic"] * 3
    assert styles(rows[3])["const"] == "magenta"
    assert "green" in styles(rows[4]).values()


def test_a_diff_is_colored_by_what_its_lines_do() -> None:
    rows = painted("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n")
    assert [str(row.style) for row in rows] == ["bold", "bold", "cyan", "red", "green", ""]


@pytest.mark.parametrize("info", ["", "text", "no-such-language", "output"])
def test_what_has_no_language_has_no_colors(info: str) -> None:
    assert not [row for row in painted(info, PYTHON) if row.spans or row.style]


def test_without_colors_there_are_none() -> None:
    assert not [row for row in painted("python", PYTHON, color=False) if row.spans or row.style]


def test_very_long_lines_and_what_follows_very_much_code_have_no_colors() -> None:
    assert not painted("python", "x = 1 " * LONGEST_LINE)[0].spans
    rows = painted("python", "return 1\n" * (LARGEST // 8 + 2))
    assert rows[0].spans
    assert not rows[-1].spans


IMPORTS = """
import sys
from cdd_agent.repl.markdown import paint
before = set(sys.modules)
paint("{}", color={})("x = 1")
print(*sorted(name for name in set(sys.modules) - before if name.startswith("pygments.lexers.")))
"""


@pytest.mark.parametrize(
    ("name", "color", "imported"),
    [("python", False, ""), ("diff", True, ""), ("", True, ""), ("json", True, "pygments.lexers.data")],
)
def test_only_the_lexer_that_is_needed_is_imported(name: str, color: bool, *, imported: str) -> None:
    code = IMPORTS.format(name, color)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [module for module in told if module != "pygments.lexers._mapping"] == imported.split()
