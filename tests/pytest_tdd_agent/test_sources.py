"""Sources are decoded and parsed as the interpreter does."""

import ast
import time
from contextlib import suppress
from itertools import product

import pytest

from pytest_tdd_agent.sources import (
    UnreadableSource,
    decode_source,
    encode_source,
    find_encoding,
    hides_code,
    parse_source,
)

_MARK = b"\xef\xbb\xbf"
_LETTER = {"utf-8": b"\xc3\xa9", "latin-1": b"\xe9", "utf-7": b"+AOk-", "unicode_escape": b"\\xe9", "cp1252": b"\xe9"}


@pytest.mark.parametrize("encoding", _LETTER)
def test_a_declared_encoding_is_used_for_text_and_tree(encoding: str) -> None:
    content = b"#!/usr/bin/python\r\n# vim: fileencoding=%s :\r\nx = '%s'\r\n" % (encoding.encode(), _LETTER[encoding])

    assert decode_source(content).endswith("x = 'é'\r\n")
    assert "'é'" in ast.unparse(parse_source(content))
    assert ast.dump(ast.parse(encode_source(decode_source(content)))) == ast.dump(ast.parse(content))


def test_a_mark_is_no_part_of_the_text_and_is_written_again() -> None:
    content = _MARK + b"# coding: UTF_8-unix\nx = 1\n"

    assert decode_source(content) == "# coding: UTF_8-unix\nx = 1\n"
    assert decode_source(content).encode(find_encoding(content)) == content


_LINES = (b"", b"#", b"# \xe9 coding: latin-1", b"#coding:utf8", b"x = 'coding: latin-1'", b"\x0c# coding = latin-1")
_ENDS = (b"\n", b"\r", b"\r\n")


@pytest.mark.parametrize("mark", [b"", _MARK])
def test_every_arrangement_of_the_first_lines_is_read_as_the_interpreter_reads_it(mark: bytes) -> None:
    for first, second, end in product(_LINES, _LINES, _ENDS):
        content = mark + first + end + second + end + b"y = '\xe9'" + end
        try:
            expected = ast.dump(ast.parse(content))
        except (SyntaxError, ValueError):
            with pytest.raises(UnreadableSource):
                parse_source(content)
            continue
        assert ast.dump(ast.parse(decode_source(content))) == expected == ast.dump(parse_source(content))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x = '\xe9'\n", "can't decode"),
        (_MARK + b"# coding: latin-1\n", "byte order mark"),
        (b"# coding: no-such\n", "unknown encoding: no-such"),
        (b"# coding: hex\n", "not a text encoding"),
        (b"# coding: undefined\nx = 1\n", "cannot be decoded"),
        (b"# coding: unicode_escape\n#\\rx = 1\n", "hides carriage returns"),
        (b"x = 1\0", "null bytes"),
        (b"def f(:\n", "invalid syntax"),
        (b"(" * 400, "too many nested|never closed"),
    ],
)
def test_a_source_that_cannot_be_read_gives_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableSource, match=reason):
        parse_source(content)


def test_a_comment_that_is_not_utf_8_can_be_parsed_and_decoded_with_replacements() -> None:
    content = b"x = 1  # \xe9\n"

    assert ast.unparse(parse_source(content)) == "x = 1"
    assert decode_source(content, errors="replace") == "x = 1  # \N{REPLACEMENT CHARACTER}\n"
    with pytest.raises(UnreadableSource):
        decode_source(content)


@pytest.mark.parametrize("depth", [2_400, 100_000])
def test_a_deep_expression_is_parsed_or_refused(depth: int) -> None:
    with suppress(UnreadableSource):
        assert isinstance(parse_source(b"x = " + b"1 + " * depth + b"1\n"), ast.Module)


def test_a_codec_of_quadratic_time_is_refused_at_once() -> None:
    started = time.perf_counter()
    with pytest.raises(UnreadableSource, match="not for sources"):
        decode_source(b"# coding: punycode\n" + b"a" * 500_000)

    assert time.perf_counter() - started < 1


def test_an_encoding_whose_characters_are_other_bytes_hides_code() -> None:
    def write(encoding: str, rest: bytes) -> bytes:
        return b"# coding: " + encoding.encode() + b"\n" + rest

    shown = {each: write(each, b"x = '\xc3\xa9'\n") for each in ("utf-8", "latin-1", "cp1252", "koi8-r", "ascii")}
    shown |= {each: write(each, f"x = '{chr(0x8868)}'\n".encode(each)) for each in ("shift_jis", "gbk", "euc_jp", "u8")}
    hidden = {
        "unicode_escape": write("unicode_escape", b"# \\u000ax = 1\n"),
        "raw_unicode_escape": write("raw_unicode_escape", b"# \\u000ax = 1\n"),
        "utf-7": write("utf-7", b"# +AAo-x = 1\n"),
        "utf-16-le": write("utf-16-le", b"x = 11\n"),
        "cp037": write("cp037", b"x = 1\n"),
        "hz": write("hz", b"# ~\nx = 1\n"),
    }

    assert not [name for name, content in shown.items() if hides_code(content)]
    assert [name for name, content in hidden.items() if hides_code(content)] == [*hidden]
