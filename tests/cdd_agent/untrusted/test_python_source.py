"""Sources in any encoding, at any depth and for any Python are code, or no code, or say why they cannot be read."""

import ast
import sys
import threading

import pytest

from cdd_agent.untrusted.python_source import (
    ForeignModule,
    decode,
    explain_unreadable,
    list_imports,
    measure_depth,
    parse,
    remember_tree,
    run_deep,
    split_lines,
    with_deep_stack,
)

DEEP = {
    "sum": "X = 1" + " + 1" * 3_000,
    "texts": "X = 'a'" + " + 'b'" * 3_000,
    "not": "X = " + "not " * 2_000 + "1",
    "attributes": "X = a" + ".b" * 3_000,
    "calls": "X = a" + "()" * 3_000,
    "elif": "if a:\n    pass\n" + "elif b:\n    pass\n" * 2_000,
}


def test_deep_code_is_parsed_written_and_compared() -> None:
    limit = sys.getrecursionlimit()
    for title, text in DEEP.items():
        tree = parse(text + "\n")
        assert tree is not None, title
        assert measure_depth(tree) > 1_900, title
        again = parse(with_deep_stack(ast.unparse)(tree))
        assert again is not None, title
        assert with_deep_stack(ast.dump)(again) == with_deep_stack(ast.dump)(tree), title
    assert sys.getrecursionlimit() == limit
    assert threading.stack_size() == 0


def test_several_threads_may_run_deep() -> None:
    found: list[ast.AST | None] = []
    threads = [threading.Thread(target=lambda: found.append(parse(DEEP["sum"]))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in found] == [ast.Module] * 6
    assert threading.stack_size() == 0


def test_an_error_of_a_deep_run_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_deep(lambda: 1 / 0)
    assert run_deep(lambda: run_deep(len, "ab")) == 2


def test_code_that_cannot_be_read_says_why_and_what_is_no_code_does_not() -> None:
    unreadable = {
        "# coding: unicode_escape\n# \\u000ax = 1\n": "other characters",
        "# coding: utf-7\n# +AAo-x = 1\n": "other characters",
        "# coding: no-such\n": "unknown encoding: no-such",
        "# coding: ascii\nx = '\u00e9'\n": "cannot be decoded",
        "x = 1\0\n": "null bytes",
        "\ufeff# coding: latin-1\n": "byte order mark",
        "X = 1" + "+1" * 20_000: "levels deep",
        "X = " + "not " * 20_000 + "1": "nested too deeply",
    }
    for text, reason in unreadable.items():
        assert reason in explain_unreadable(text.encode()), text[:60]
    assert explain_unreadable("x = 1\n".encode("utf-16")) == "it contains null bytes"
    for content in (b"", b"# only a comment\n", b"{{ template }}\n{% if %}\n", b"print 'old'\n", b"# caf\xe9\nx = 1\n"):
        assert explain_unreadable(content) == "", content
    assert explain_unreadable(b"# coding: latin-1\nx = '\xe9'\n") == ""


def test_the_text_is_that_which_python_runs() -> None:
    for content in (
        b"\xef\xbb\xbfx = 1\n",
        b"# coding: latin-1\nx = '\xe9'\n",
        b"# coding: utf-8-sig\nx = 1\n",
        b"# caf\xe9\nx = 1\n",
        b"x = 1\n# coding: latin-1\n",
    ):
        tree = parse(decode(content))
        assert tree is not None
        assert ast.dump(tree) == ast.dump(ast.parse(content))


def test_lines_are_counted_as_python_counts_them() -> None:
    text = "a = 1\r\n\x0cb = 2\rc = '\x1c\u2028'\nd = 4\n"
    assert [text.partition(" ")[0] for text in split_lines(text)] == ["a", "\x0cb", "c", "d", ""]


def test_the_tree_of_another_python_stands_for_a_text() -> None:
    text = "type Known[T] = list[T]  # of the test\n"
    assert parse(text) is None or sys.version_info >= (3, 12)
    remember_tree(text, tree := ForeignModule(body=[], type_ignores=[]))
    assert parse(text) is tree or sys.version_info >= (3, 12)


def test_an_import_binds_a_name_to_something() -> None:
    code = "import a.b, a.b as c\nfrom a import b, b as c\nfrom . import d\nfrom ..e.f import *\n"
    found = [each for node in ast.parse(code).body for each in list_imports(node)]
    assert [(each.bound, each.origin) for each in found] == [
        *(("a", "a"), ("c", "a.b"), ("b", "a.b"), ("c", "a.b"), ("d", ".d"), ("*", "..e.f.*"))
    ]
    assert list(map(str, found[-2:])) == ["from . import d", "from ..e.f import *"]
    assert not [*list_imports(ast.parse("a = b").body[0])]
