"""Exact edits. Each row of ``ROWS`` is a replacement in ``SOURCE``, which is written in six styles."""

import ast
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.symbols import edit
from cdd_agent.symbols.definitions import SourceFile
from cdd_agent.symbols.edit import insert_after, insert_before, replace_body
from cdd_agent.symbols.symbol import Symbol

SOURCE = '''\
"""Prices."""
import functools, sys
# caf\u00e9
LIMIT = 3  # of all
TABLE = {
    "a": 1,
}


def plain(x):
    return x + 1


@functools.cache
@functools.wraps(
    plain,
)
def decorated(x: int, *, y: str = "#:") -> dict[str, int]:  # a remark
    # the first comment
    total = x  # one
    return {y: total}  # the last
    # after the body

# about the next one
def documented(x):
    """Return x.

     Much more.
    """
    if x:
        return 1
    return 2


def only_docstring():
    """Do it later."""


def one_line(x): return x  # so

def semicolons(x): a = x; b = a; return b

def continued(x): \\
    return x


def nested_first(x):
    @functools.cache
    def inner():
        return 1

    return inner()


async def coroutine(x):
    async with x as y:
        await y
    return y


def strings(x):
    text = """
 not indented
  at all \u00e9
"""
    return text


class Box(dict):
    """A box."""

    size = 3

    @property
    def width(self):
        return 1

    @width.setter
    def width(self, value):
        self.size = value

    def area(self): return 4

    def deep(self):
        class Local:
            def method(self):
                return 1
        return Local


class Small: pass


if sys.platform == "win32":
    def twin():
        return 1
else:
    def twin():
        return 2


def stub(a, b):
    raise NotImplementedError


def last(x):
    pass'''

ROWS: dict[str, tuple[str, str, str, str]] = {
    "plain": ("plain", "return x + 2", "    return x + 1\n", "    return x + 2\n"),
    "a whole definition, with decorators and comments that stay": (
        "decorated",
        "def decorated(x, y):\n    # the first comment\n    total = [\n        x,\n    ]\n    return total\n"
        "    # after the body",
        "    total = x  # one\n    return {y: total}  # the last\n",
        "    total = [\n        x,\n    ]\n    return total  # the last\n",
    ),
    "a comment beside the last statement, which replaces the old one": (
        "decorated",
        "\n\n        # new\n        return {}  # now\n\n",
        "    total = x  # one\n    return {y: total}  # the last\n",
        "    # new\n    return {}  # now\n",
    ),
    "a docstring that stays": (
        "documented",
        "for each in x:\n  if each:\n    return 1\nreturn 2",
        "    if x:\n        return 1\n    return 2\n",
        "    for each in x:\n        if each:\n            return 1\n    return 2\n",
    ),
    "a new docstring": (
        "documented",
        "'''Return 3.'''\nreturn 3",
        '    """Return x.\n\n     Much more.\n    """\n    if x:\n        return 1\n    return 2\n',
        "    '''Return 3.'''\n    return 3\n",
    ),
    "a body that was only a docstring": (
        "only_docstring",
        "return 1",
        '    """Do it later."""\n',
        '    """Do it later."""\n    return 1\n',
    ),
    "one line": (
        "one_line",
        "def one_line(x): return [\n    x]",
        "def one_line(x): return x  # so\n",
        "def one_line(x):\n    return [\n        x]  # so\n",
    ),
    "statements in one line": (
        "semicolons",
        "if x:\n    return x\nreturn 0",
        "def semicolons(x): a = x; b = a; return b\n",
        "def semicolons(x):\n    if x:\n        return x\n    return 0\n",
    ),
    "a continued header": (
        "continued",
        "return 5",
        "def continued(x): \\\n    return x\n",
        "def continued(x):\n    return 5\n",
    ),
    "a nested function first": (
        "nested_first",
        "return 1",
        "    @functools.cache\n    def inner():\n        return 1\n\n    return inner()\n",
        "    return 1\n",
    ),
    "the nested function": (
        "nested_first.inner",
        "return [1,\n  2]",
        "    def inner():\n        return 1\n",
        "    def inner():\n        return [1,\n          2]\n",
    ),
    "a coroutine": (
        "coroutine",
        "async for y in x:\n    yield y",
        "    async with x as y:\n        await y\n    return y\n",
        "    async for y in x:\n        yield y\n",
    ),
    "strings of several lines": (
        "strings",
        '    # \u00fc\n    if x:\n        text = """\n keep me\n  \u00e4"""\n    return f"""\n {x}\n"""',
        '    text = """\n not indented\n  at all \u00e9\n"""\n    return text\n',
        '    # \u00fc\n    if x:\n        text = """\n keep me\n  \u00e4"""\n    return f"""\n {x}\n"""\n',
    ),
    "a setter": (
        "Box.width[1]",
        "self.size = int(\n    value\n)",
        "        self.size = value\n",
        "        self.size = int(\n            value\n        )\n",
    ),
    "a method, sent with its class": (
        "Box.area",
        "class Box:\n    def area(self):\n        return 5",
        "    def area(self): return 4\n",
        "    def area(self):\n        return 5\n",
    ),
    "a method of a local class": (
        "Box.deep.Local.method",
        "return 2",
        "            def method(self):\n                return 1\n",
        "            def method(self):\n                return 2\n",
    ),
    "a class": ("Small", "x: int = 1", "class Small: pass\n", "class Small:\n    x: int = 1\n"),
    "the last line, without an end": (
        "last",
        "if x:\n    return 1",
        "def last(x):\n    pass",
        "def last(x):\n    if x:\n        return 1",
    ),
    "one of two twins": ("twin[1]", "return 3", "        return 2\n\n\ndef stub", "        return 3\n\n\ndef stub"),
    "a variable": ("LIMIT", "LIMIT = 4", "LIMIT = 3  # of all\n", "LIMIT = 4  # of all\n"),
    "a table": (
        "TABLE",
        "TABLE = {\n    'a': 2,\n}  # new",
        'TABLE = {\n    "a": 1,\n}\n',
        "TABLE = {\n    'a': 2,\n}  # new\n",
    ),
}


def write_tabs(text: str) -> str:
    lines = text.split("\n")
    stripped = [line.lstrip(" ") for line in lines]
    levels = [(len(line) - len(rest)) // 4 for line, rest in zip(lines, stripped, strict=True)]
    return "\n".join("\t" * level + line[level * 4 :] for level, line in zip(levels, lines, strict=True))


def add_form_feeds(text: str) -> str:
    return re.sub(r"\n\ndef (?!added)", "\n\n\f\ndef ", text).replace(
        "\n@functools.cache\n@", "\n\f@functools.cache\n@"
    )


STYLES: dict[str, Callable[[str], bytes]] = {
    "LF": lambda text: text.encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "tabs": lambda text: write_tabs(text).encode(),
    "BOM": lambda text: text.encode("utf-8-sig"),
    "latin-1": lambda text: f"#!/bin/python\n# -*- coding: latin-1 -*-\n{text}".encode("latin-1"),
    "form feed": lambda text: add_form_feeds(text).encode(),
}


def find(content: bytes, name: str) -> Symbol:
    [found] = [each for each in SourceFile("a.py", content).symbols if each.reference == name]
    return found


def dump_others(content: bytes, name: str) -> dict[str, str]:
    """Return the other definitions, without those inside of this one and around it."""
    source = SourceFile("a.py", content)
    return {
        symbol.reference: ast.dump(each.node)
        for symbol, each in zip(source.symbols, source.definitions, strict=True)
        if not f"{symbol.reference}.".startswith(f"{name}.") and not name.startswith(f"{symbol.name}.")
    }


@pytest.mark.parametrize("style", STYLES)
def test_replacements_are_exact(style: str) -> None:
    write = STYLES[style]
    content = write(SOURCE)
    assert len(ROWS) >= 18
    for title, (name, code, old, new) in ROWS.items():
        assert SOURCE.count(old) == 1, title
        changed = replace_body(content, find(content, name), code=code)
        assert changed.decode("latin-1") == write(SOURCE.replace(old, new)).decode("latin-1"), title
        if title not in ("a variable", "a table"):
            assert dump_others(changed, name) == dump_others(content, name), title


def test_replace_symbol_body() -> None:
    content = b"@cache\ndef mean(values: list[float], *, start: int = 0) -> float:\n    return 0.0\n\n\nx = mean([])\n"
    changed = replace_body(content, find(content, "mean"), code="def mean(values):\n    return sum(values)\n")
    assert changed == content.replace(b"return 0.0", b"return sum(values)")


@pytest.mark.parametrize("style", STYLES)
def test_insertions_are_exact(style: str) -> None:
    write, content = STYLES[style], STYLES[style](SOURCE)
    method = "    def added(self):\n        return [\n            0,\n        ]\n"
    code = "def added(self):\n    return [\n        0,\n    ]"
    top = "def added(self):\n    return [\n        0,\n    ]\n"
    rows: list[tuple[Callable[..., bytes], str, str, str]] = [
        (insert_after, "Box.area", "    def area(self): return 4\n", "    def area(self): return 4\n\n" + method),
        (insert_before, "Box.width[0]", "    size = 3\n\n", "    size = 3\n\n" + method + "\n"),
        (insert_after, "Box.deep", "        return Local\n", "        return Local\n\n" + method),
        (insert_after, "decorated", "    # after the body\n", "    # after the body\n\n\n" + top + "\n"),
        (insert_before, "documented", "# about the next one\n", "\n" + top + "\n\n# about the next one\n"),
        (insert_after, "LIMIT", "# of all\n", "# of all\n\n\n" + top + "\n\n"),
        (insert_after, "last", "    pass", "    pass\n\n\n" + top.removesuffix("\n")),
        (insert_after, "twin[0]", "        return 1\nelse", "        return 1\n\n" + method + "else"),
    ]
    for insert, name, old, new in rows:
        changed = insert(content, find(content, name), code=code)
        assert changed.decode("latin-1") == write(SOURCE.replace(old, new)).decode("latin-1"), name
        assert dump_others(content, name).items() <= dump_others(changed, name).items()


def test_insert_after_symbol() -> None:
    content = b"class K:\n    @wraps\n    def a(self):\n        return 1\n\n    def b(self):\n        return 2\n"
    changed = insert_after(content, find(content, "K.a"), code="def c(self):\n    return 3\n")
    added = b"        return 1\n\n    def c(self):\n        return 3\n"
    assert changed == content.replace(b"        return 1\n", added)


def test_an_insertion_follows_comments_at_the_end_of_the_body() -> None:
    content = b"def f():\n    pass  # a\n\n    # b"
    assert insert_after(content, find(content, "f"), code="x = 1") == content + b"\n\n\nx = 1"


def test_a_constant_is_inserted_without_blank_lines() -> None:
    content = b"#!/usr/bin/python\nA = 1\nB = 2\n"
    assert insert_after(content, find(content, "A"), code="C = 3") == b"#!/usr/bin/python\nA = 1\nC = 3\nB = 2\n"
    assert insert_before(content, find(content, "A"), code="C = 3") == b"#!/usr/bin/python\nC = 3\nA = 1\nB = 2\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1\n  return x", r"Line 2 of the new code is wrong: unexpected indent: return x"),
        ("    x = 1\n  return x", r"Line 2 of the new code is wrong: unindent does not match"),
        ("    x = 1\nreturn x", r"Line 2 of the new code is wrong: its indentation is less"),
        ("    if x:\n        y = 1\nelse:\n    y = 2", r"Line 3 of the new code is wrong"),
        ("if x:\nreturn x", r"Line 2 of the new code is wrong: expected an indented block"),
        ("a = 1\nb = (2", r"Line 2 of the new code is wrong: '\(' was never closed: b = \(2"),
        ("a = '''1", r"Line 1 of the new code is wrong: unterminated triple-quoted string"),
        ("if x:\n\ta = 1\n        b = 2", r"Line 3 of the new code is wrong: inconsistent use of tabs"),
        ("# nothing", r"The new code has no statement"),
        ("", r"The new code has no statement"),
        ("a = '\ud800'", r"Line 1 of the new code is wrong: it contains half of a character"),
        ("a = 1\0", r"source code string cannot contain null bytes"),
        ("def plain(x, y):\n    return y", r"The new body uses y, which is not a parameter of plain"),
        ("import os\ndef plain(x):\n    return os", r"defines plain itself, with other statements besides"),
        ("class plain:\n    pass", r"defines plain itself, as a class, and it is a function"),
        ("async def plain(x):\n    return x", r"defines plain itself, as an async function, and it is a function"),
        ("return " + "-" * 20_000 + "1", r"it is nested too deeply"),
        ("await x", r"line \d+: 'await' outside async function"),
        ("break", r"line \d+: 'break' outside loop"),
        ("global x", r"line \d+: name 'x' is parameter and global"),
        ("from __future__ import annotations", r"from __future__ imports must occur at the beginning"),
    ],
)
def test_wrong_code_is_refused_with_its_line(code: str, reason: str) -> None:
    content = SOURCE.encode()
    with pytest.raises(UsageError, match=reason) as caught:
        replace_body(content, find(content, "plain"), code=code)
    assert caught.value.hint


def test_code_that_a_file_cannot_hold_is_refused_with_the_character() -> None:
    for encoding, letter in (("latin-1", "\u20ac"), ("ascii", "\u00e9"), ("cp1252", "\u0142")):
        content = f"# coding: {encoding}\ndef f():\n    return 1\n".encode(encoding)
        with pytest.raises(UsageError, match=rf"cannot hold {letter} ?\(U\+{ord(letter):04X}\), in line 2"):
            replace_body(content, find(content, "f"), code=f"x = 1\nreturn '{letter}'")
    content = "# coding: cp1252\ndef f():\n    return '\u20ac'\n".encode("cp1252")
    changed = replace_body(content, find(content, "f"), code="return '\u20ac\u20ac'")
    assert changed == content.replace(b"'\x80'", b"'\x80\x80'")
    content = "# coding: shift_jis\n# \u30bd\ndef f():\n    return '\u8868'\n".encode("shift_jis")
    changed = replace_body(content, find(content, "f"), code="return 1")
    assert changed == content.replace("'\u8868'".encode("shift_jis"), b"1")


def test_files_that_python_refuses_or_reads_as_other_code_are_not_edited() -> None:
    symbol = find(b"def f():\n    return 1\n", "f")
    for content, reason in (
        (b"def f():\n    return 1\ndef g(:\n", r"a\.py cannot be parsed: line 3: "),
        ("def f():\n    return 1\n".encode("utf-16"), r"a\.py cannot be (read|parsed)"),
        (b"# coding: utf-16\ndef f():\n    return 1\n", r"a\.py cannot be read"),
        (b"# coding: utf-7\ndef f():\n    return 1 # +AGE-\n", r"a\.py cannot be read"),
        (b"# coding: nonsense\ndef f():\n    return 1\n", r"unknown encoding: nonsense"),
        (b"def f():\n    return '\xe9'\n", r"a\.py cannot be parsed"),
        (b"def f():\n    return 1\0\n", r"a\.py cannot be"),
        (b"def g():\n    return 1\n", r"a\.py does not define f any longer"),
        (b"def f(): 1\ndef f(): 2\n", r"f is ambiguous: a\.py defines f\[0\] in line 1, f\[1\] in line 2"),
    ):
        for function in (replace_body, insert_after, insert_before):
            with pytest.raises(UsageError, match=reason):
                function(content, symbol, code="x = 1")


def test_bytes_in_comments_and_mixed_line_ends_stay() -> None:
    content = b"# caf\xe9 \xff\r\ndef f():  # \xe9\n    return 1  # \xfe\r\n\r# \xff\r"
    changed = replace_body(content, find(content, "f"), code="x = 1\nreturn x")
    assert changed == content.replace(b"return 1", b"x = 1\n    return x")


def test_comments_that_stay_are_not_repeated() -> None:
    content = b"def f():\n    # one\n    # two\n\n    return 1\n    # three\n\n    # four\nx = 1\n"
    whole = content.decode().removesuffix("x = 1\n").replace("return 1", "return 2")
    assert replace_body(content, find(content, "f"), code=whole) == content.replace(b"return 1", b"return 2")
    content = b"def f():\n    'Doc.'  # one\n"
    assert replace_body(content, find(content, "f"), code="return 1") == content + b"    return 1\n"


def test_code_does_not_change_the_encoding_of_the_file() -> None:
    content = b"def f(): return 1\n"
    with pytest.raises(UsageError, match=r"would reach more of a\.py than f\. Nothing was changed"):
        insert_before(content, find(content, "f"), code="# coding: latin-1\nx = 2")


def test_a_statement_that_shares_its_line_gets_no_neighbor() -> None:
    content = b"a = 1; b = 2\nclass K: x = 1\n"
    for name in ("a", "b", "K.x"):
        for insert in (insert_after, insert_before):
            with pytest.raises(UsageError, match=r"shares a line of a\.py with another statement"):
                insert(content, find(content, name), code="c = 3")
    assert replace_body(content, find(content, "b"), code="b = 5") == b"a = 1; b = 5\nclass K: x = 1\n"


def test_a_repeated_insertion_is_refused() -> None:
    content = b"def f():\n    pass\n"
    changed = insert_after(content, find(content, "f"), code="def g():\n    pass")
    with pytest.raises(UsageError, match=r"a\.py defines g already, in line 5"):
        insert_after(changed, find(changed, "f"), code="def g():\n    pass")


def test_an_edit_of_a_small_file_is_fast() -> None:
    content = "\n\n".join(SOURCE.replace("LIMIT", f"LIMIT_{at}") for at in range(2)).encode()
    symbol, times = find(content, "Box.deep[0]"), list[float]()
    for _ in range(5):
        start = time.process_time()
        replace_body(content, symbol, code="return 5")
        times.append(time.process_time() - start)
    assert min(times) < 0.05  # a bench has the bar


@pytest.mark.slow
def test_each_definition_of_this_program_is_replaced_by_itself() -> None:
    for path in sorted(Path(edit.__file__).parents[1].rglob("*.py")):
        content = path.read_bytes()
        source = SourceFile("a.py", content)
        for symbol in source.symbols[::9]:
            code = "\n".join(source.lines[symbol.line - 1 : symbol.end_line])
            assert replace_body(content, symbol, code=code) == content, (path, symbol.reference)


def test_code_that_is_nested_deeply_is_no_obstacle() -> None:
    chain = "def g(x):\n    if x == 0: return 0\n" + "".join(f"    elif x == {n}: return {n}\n" for n in range(3000))
    content = f"def f(): return 1\n\n\nx = {'-' * 5000}1\ny = {' + '.join(['1'] * 5000)}\n{chain}".encode()
    changed = replace_body(content, find(content, "f"), code="return 2")
    assert changed == content.replace(b"def f(): return 1", b"def f():\n    return 2")
    assert SourceFile("a.py", content).symbols[-1].name == "g"


BODIES = st.recursive(
    st.sampled_from(
        ["pass", "x = 1", "return x", "y = '''\n a\n\n  b\\\n'''", "z = [\n    1,\n]", "# note\nw = f'{x}'", "x; y"]
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: "if x:\n" + "\n".join(indent_code(part) for part in parts)
        )
        | st.lists(inner, min_size=1, max_size=3).map("\n".join)
    ),
    max_leaves=6,
)


def indent_code(code: str) -> str:
    """Indent the lines outside of strings: the ones in ``BODIES`` begin with at most two spaces."""
    is_inside, rows = False, list[str]()
    for line in code.split("\n"):
        rows.append(line if is_inside or not line else f"    {line}")
        is_inside ^= line.count("'''") % 2 == 1
    return "\n".join(rows)


@given(style=st.sampled_from(sorted(STYLES)), body=BODIES, data=st.data())
def test_outside_of_the_body_nothing_changes(style: str, body: str, data: st.DataObject) -> None:
    content = STYLES[style](SOURCE)
    symbols = [each for each in SourceFile("a.py", content).symbols if each.kind in ("function", "method")]
    symbol = data.draw(st.sampled_from(symbols))
    code = body if data.draw(st.booleans()) else f"def {symbol.last_name}(*args):\n{indent_code(body)}"
    changed = replace_body(content, symbol, code=code)
    before, after = content.splitlines(keepends=True), changed.splitlines(keepends=True)
    end = len(before) - symbol.end_line
    assert after[: symbol.line - 1] == before[: symbol.line - 1]
    assert end == 0 or after[-end:] == before[-end:]
    assert dump_others(changed, symbol.reference) == dump_others(content, symbol.reference)
    [new] = [each for each in SourceFile("a.py", changed).definitions if each.name == symbol.name][
        symbol.index or 0 : (symbol.index or 0) + 1
    ]
    wanted = ast.parse("async def f():\n" + indent_code(body)).body[0]
    assert isinstance(new.node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert isinstance(wanted, ast.AsyncFunctionDef)
    own = new.node.body[ast.get_docstring(new.node) is not None :]
    assert [ast.dump(each) for each in own] == [ast.dump(each) for each in wanted.body]
