"""Marks inside a paragraph."""

import subprocess
import sys

import pytest
from rich.console import Console

from cdd_agent.repl.markdown import inline


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
    assert inline(source)[0].plain == shown


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
    assert inline(source)[0].get_style_at_offset(console, 0) == console.get_style(style)


def test_a_target_is_text_and_no_link_of_the_terminal() -> None:
    text = inline("[x](http://y)")[0]
    assert not [span for span in text.spans if getattr(span.style, "link", None)]


@pytest.mark.parametrize("source", ["**a** ", "2 * 3 ", "`a` ", "[a](b) ", "a_b ", "[a] ", r"\* \[ \` ", "a&b ", "<a "])
def test_it_is_known_when_no_mark_is_open(source: str) -> None:
    assert inline(source)[1]


@pytest.mark.parametrize("source", ["**a ", "*args ", "`a ", "[a ", "[a](b ", "~~a ", "_a ", "**a* ", "`` a` "])
def test_it_is_known_when_a_mark_is_open(source: str) -> None:
    assert not inline(source)[1]


def test_a_text_that_nobody_writes_is_not_read_for_marks() -> None:
    source = "[*" * 5_000
    assert inline(source)[0].plain == source


def test_the_parser_is_imported_with_the_first_mark() -> None:
    code = (
        "import sys; from cdd_agent.repl.markdown import inline; "
        "inline('text'); print('markdown_it' in sys.modules); inline('**x**'); print('markdown_it' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "True"]
