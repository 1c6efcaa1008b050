"""The text of a source is the one that Python compiles."""

import ast

import pytest

from pytest_tdd_agent.source import encode_source, read_source

MARK = b"\xef\xbb\xbf"
ACCENT = b"x = '\xe9'\n"

READABLE = {
    "plain": b"x = 1\n",
    "mark": MARK + b"x = 1\n",
    "mark and the same encoding": MARK + b"# coding: utf-8\nx = '\xc3\xa9'\n",
    "line 1": b"# -*- coding: latin-1 -*-\n" + ACCENT,
    "line 2": b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n" + ACCENT,
    "line 2 after a form feed": b"\x0c\n# coding: latin-1\n" + ACCENT,
    "line 2 after carriage returns": b"#\r# coding: latin-1\rx = '\xe9'\r",
    "with a name of Emacs": b"# coding: latin-1-unix\n" + ACCENT,
    "without a last line end": b"#coding:latin-1\nx='\xe9'",
    "Shift JIS": "# coding: shift_jis\nx = '\u8868'\n".encode("shift_jis"),
    "form feeds": b"\x0cx = 1\n\x0cy = 2\n",
    "escapes": b"# coding: unicode_escape\nx = 1 # \\u000ay = 2\n",
    "UTF-7": b"# coding: utf-7\nx = 1 # +AAo-y = 2\n",
    "another byte in a comment": b"x = 1  # caf\xe9\ny = 2\n",
    "a declaration after code": b"y = 1\n# coding: latin-1\nx = '\xc3\xa9'\n",
    "a declaration in a docstring": b"'''\n# coding: latin-1\n'''\nx = '\xc3\xa9'\n",
    "a declaration in line 3": b"#\n#\n# coding: latin-1\nx = '\xc3\xa9'\n",
}

UNREADABLE = {
    "mark and another encoding": MARK + b"# coding: latin-1\nx = 1\n",
    "mark and another name of UTF-8": MARK + b"# coding: u8\nx = 1\n",
    "unknown": b"# coding: foo\nx = 1\n",
    "no text encoding": b"# coding: rot13\nk = 1\n",
    "other bytes": b"# coding: ascii\n" + ACCENT,
    "UTF-16": "x = 1\n".encode("utf-16"),
    "null byte": b"x = 1 # \0\n",
    "hidden null byte": b"# coding: unicode_escape\nx = 1 # \\u0000\n",
    "lone surrogate": b"# coding: unicode_escape\nx = '\\ud800'\n",
}


def test_the_text_has_the_code_that_python_compiles() -> None:
    """Also written again, as UTF-8."""
    for title, data in READABLE.items():
        source = read_source(data)
        assert source.problem == "", title
        assert ast.dump(ast.parse(source.text)) == ast.dump(ast.parse(data)), title
        assert ast.dump(ast.parse(encode_source(source.text))) == ast.dump(ast.parse(data)), title


def test_what_python_cannot_decode_is_a_problem() -> None:
    """Python refuses most of them too; a text that ends at a null byte is none."""
    for title, data in UNREADABLE.items():
        assert read_source(data).problem, title
        if title != "hidden null byte":
            with pytest.raises((SyntaxError, ValueError)):
                ast.parse(data)


def test_an_encoding_that_shows_other_characters_than_its_bytes_hides_code() -> None:
    """Those that keep ASCII do not."""
    hiding = {title for title, data in READABLE.items() if read_source(data).hides_code}
    assert hiding == {"escapes", "UTF-7"}
    for encoding in ("utf-16-le", "cp037", "iso2022_jp", "hz"):
        text = f"# coding: {encoding}\nx = '\u8868'\n"
        data = text.encode("ascii", "ignore") + "\u8868 + 1".encode(encoding, "replace")
        assert read_source(data).hides_code or read_source(data).problem, encoding


def test_spellings_of_an_encoding_have_one_name() -> None:
    """As the compiler normalizes them."""
    names = {name: read_source(b"# coding: %s\n" % name.encode()).encoding for name in ("UTF_8", "latin-1", "koi8-r")}
    assert names == {"UTF_8": "utf-8", "latin-1": "iso-8859-1", "koi8-r": "koi8-r"}
