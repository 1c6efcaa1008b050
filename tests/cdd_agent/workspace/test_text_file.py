import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.workspace.text_file import TextFile
from tests.fakes.examples import fewer

KATAKANA = "テスト"


def rewrite(data: bytes, text: str, name: str = "a.py") -> bytes:
    return TextFile(name=name, data=data).render(text, is_whole=True).data


def explain(data: bytes, text: str, name: str = "a.py") -> tuple[str, ...]:
    return TextFile(name=name, data=data).render(text, is_whole=True).remarks


def test_line_ends_stay_as_most_of_the_file_has_them() -> None:
    rows = {
        b"a\r\nb\r\n": b"a\r\nc\r\nd\r\n",
        b"a\nb\n": b"a\nc\nd\n",
        b"a\rb\r": b"a\rc\rd\r",
        b"a\r\nb": b"a\r\nc\r\nd",
        b"x\r\na\nb\r\n": b"a\nc\r\nd\r\n",
        b"a\nb\r\nd\n": b"a\nc\r\nd\n",
        b"a\nb\ny\r\n": b"a\nc\nd\r\n",
        b"a\r\r\nb\r\r\n": b"a\r\r\nc\r\r\nd\r\r\n",
        b"a\rb\rc\r\nb\r": b"a\rc\r\nd\r",
        b"a": b"a\nc\nd",
        b"": b"a\nc\nd\n",
        b"a\r\nb\r\nc\nb\n": b"a\r\nc\nd\n",
    }
    for sent in ("a\nc\nd\n", "a\r\nc\r\nd\r\n"):
        assert {data: rewrite(data, sent, "a.txt") for data in rows} == rows


def test_a_carriage_return_inside_a_line_is_a_character_unless_most_lines_end_so() -> None:
    file = TextFile(name="a.txt", data=b"10%\r20%\ndone\n")
    assert file.text == "10%\r20%\ndone\n"
    assert file.render("10%\r20%\nover\n", is_whole=True).data == b"10%\r20%\nover\n"
    assert TextFile(name="a.txt", data=b"a\rb\rc\n").text == "a\nb\nc\n"


def test_a_file_is_read_in_the_encoding_of_its_mark_or_its_declaration() -> None:
    shebang = "#!/usr/bin/env python3\n"
    rows = {
        ("a.py", codecs.BOM_UTF8 + "é\n".encode()): ("é\n", "UTF-8"),
        ("a.txt", codecs.BOM_UTF16_LE + "é\n".encode("utf-16-le")): ("é\n", "UTF-16-LE"),
        ("a.txt", codecs.BOM_UTF16_BE + "é\r\n".encode("utf-16-be")): ("é\n", "UTF-16-BE"),
        ("a.txt", codecs.BOM_UTF32_LE + "é\n".encode("utf-32-le")): ("é\n", "UTF-32-LE"),
        ("a.py", "# coding: latin-1\né\n".encode("latin-1")): ("# coding: latin-1\né\n", "latin-1"),
        ("a.py", "#\r# vim: fileencoding=cp1252\r“\r".encode("cp1252")): (
            "#\n# vim: fileencoding=cp1252\n“\n",
            "cp1252",
        ),
        ("tool", f"{shebang}# coding: cp932\n{KATAKANA}\n".encode("cp932")): (
            f"{shebang}# coding: cp932\n{KATAKANA}\n",
            "cp932",
        ),
        ("a.xml", '<?xml version="1.0" encoding="ISO-8859-1"?>é'.encode("latin-1")): (
            '<?xml version="1.0" encoding="ISO-8859-1"?>é',
            "ISO-8859-1",
        ),
        ("a.html", b"<meta charset=utf-7>"): ("<meta charset=utf-7>", "UTF-8"),
        ("a.md", "charset=latin-1 é".encode()): ("charset=latin-1 é", "UTF-8"),
        ("a.py", "x = 1\n# x\n# coding: latin-1 é".encode()): ("x = 1\n# x\n# coding: latin-1 é", "UTF-8"),
        ("a.py", b"# coding: nonsense\nx = 1\n"): ("# coding: nonsense\nx = 1\n", "UTF-8"),
        ("a.py", b"# coding: hex\n6162\n"): ("# coding: hex\n6162\n", "UTF-8"),
        ("a.py", b"# coding: utf-16\nx = 12\n"): ("# coding: utf-16\nx = 12\n", "UTF-8"),
        ("a.py", "# coding: shift_jis\n# naïve é".encode("latin-1")): ("# coding: shift_jis\n# na\udcefve \udce9", ""),
        ("a.txt", b"caf\xe9\n"): ("caf\udce9\n", ""),
        ("a.txt", "éèà".encode() + b"\xe9"): ("éèà\udce9", "UTF-8"),
    }
    read = {key: TextFile(name=key[0], data=key[1]) for key in rows}
    assert {key: (file.text, file.encoding) for key, file in read.items()} == rows


def test_new_text_is_written_in_the_files_own_encoding() -> None:
    latin = "# -*- coding: latin-1 -*-\nA = 'ß'\n".encode("latin-1")
    assert rewrite(latin, "# -*- coding: latin-1 -*-\nA = 'ßü'\n") == latin.replace(b"\xdf", b"\xdf\xfc")
    wide = codecs.BOM_UTF16_LE + "a\r\n".encode("utf-16-le")
    assert rewrite(wide, "é\n€\n", "a.txt") == codecs.BOM_UTF16_LE + "é\r\n€\r\n".encode("utf-16-le")
    assert rewrite(b'<?xml encoding="latin-1"?>\n', '<?xml encoding="latin-1"?>é\n', "a.xml").endswith(b"?>\xe9\n")


def test_a_character_that_the_encoding_lacks_is_refused_by_name_and_place() -> None:
    rows = {
        ("# coding: latin-1\n€\n", b"# coding: latin-1\n"): ("latin-1", "Line 2", "€ (U+20AC)"),
        ("# coding: ascii\n\n'é'\n", b"# coding: ascii\n"): ("ascii", "Line 3", "é (U+00E9)"),
        ("# coding: cp932\n👍\n", f"# coding: cp932\n{KATAKANA}".encode("cp932")): ("cp932", "Line 2", "👍 (U+1F44D)"),
        ("caf\udce9 é\n", b"caf\xe9\n"): ("not UTF-8", "declares no other", "é (U+00E9)"),
        ("# coding: ascii\n# \udcfc é\n", b"# coding: ascii\n# \xfc\n"): (
            "declares ascii but is not in it",
            "é (U+00E9)",
        ),
        ("half \ud83d\n", b""): ("half of a character", "Line 1", "U+D83D"),
        ("x \udce9\n", b"x\n"): ("half of a character", "Line 1", "U+DCE9"),
    }
    for (text, data), parts in rows.items():
        with pytest.raises(UsageError) as refusal:
            rewrite(data, text)
        said = str(refusal.value)
        assert [part for part in (*parts, "Nothing was changed") if part not in said] == []
        assert refusal.value.hint


def test_a_line_that_did_not_change_keeps_bytes_that_its_encoder_would_not_write() -> None:
    # Both bytes sequences are U+222A in cp932; the encoder writes the first.
    data = b"# coding: cp932\na = '\x81\xbe'\nb = '\x87\x9b'\na = '\x87\x9b'\n"
    text = TextFile(name="a.py", data=data).text
    assert rewrite(data, text + "c = '\N{UNION}'\n") == data + b"c = '\x81\xbe'\n"
    # Both line feeds of an escaped source are real ones.
    escaped = b"# coding: unicode_escape\nx = '\\xe9'\n"
    assert rewrite(escaped, "# coding: unicode_escape\nx = 'é'\ny = '€'\n") == escaped + b"y = '\\u20ac'\n"


def test_a_mark_or_encoding_line_that_the_file_did_not_have_is_left_out_and_reported() -> None:
    rows = {
        (b"x = 1\n", "\ufeffx = 2\n"): (b"x = 2\n", 1),
        (b"", "\ufeffx = 2\n"): (b"x = 2\n", 1),
        (b"x = 1\n", "# coding: latin-1\nx = 'é'\n"): ("x = 'é'\n".encode(), 1),
        (b"x = 1\n", "# coding: utf-8\nx = 2\n"): (b"x = 2\n", 1),
        (b"x = 1\n", "#!/bin/x\n# coding: utf-7\n# coding: hex\nx = 2\n"): (b"#!/bin/x\nx = 2\n", 1),
        (b"x = 1\n", "\r# coding: utf-7\nx = 2\n"): (b"\rx = 2\n", 1),
        (b"", "# coding: cp037\nx = 2\n"): (b"x = 2\n", 1),
        (b"", "# coding: utf-8\nx = 2\n"): (b"# coding: utf-8\nx = 2\n", 0),
        (b"# coding: utf8\nx = 1\n", "x = 'é'\n"): ("x = 'é'\n".encode(), 0),
        (b"# coding: latin-1\nx = 1\n", "x = 2\n"): (b"x = 2\n", 0),
        (b"# coding: latin-1\nx = 1\n", "x = 'é'\n"): (b"# coding: latin-1\nx = '\xe9'\n", 1),
        (b"# coding: latin-1\nx = 1\n", "# coding: utf-8\nx = 2\n"): (b"# coding: latin-1\nx = 2\n", 2),
        (b"#!/x\n# coding: latin-1\n", "#!/x\nx = 'é'\n"): (b"#!/x\n# coding: latin-1\nx = '\xe9'\n", 1),
        (b"#\n# coding: latin-1\n", "x = 'é'\n"): (b"# coding: latin-1\nx = '\xe9'\n", 1),
        (b"# coding: latin-1\n", "# vim: fileencoding=iso8859-1\nx = 2\n"): (
            b"# vim: fileencoding=iso8859-1\nx = 2\n",
            0,
        ),
        (b"# coding: nonsense\nx = 1\n", "# coding: utf-8\nx = 2\n"): (b"# coding: utf-8\nx = 2\n", 0),
        (b"\xef\xbb\xbfx = 1\n", "# coding: latin-1\nx = 2\n"): (b"\xef\xbb\xbfx = 2\n", 1),
    }
    assert {key: (rewrite(*key), len(explain(*key))) for key in rows} == rows
    assert rewrite(b"x\n", "# coding: latin-1\nx\n", "a.md") == b"# coding: latin-1\nx\n"


MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE)
CODECS = ("latin-1", "cp1252", "cp932", "utf-7", "iso2022_jp", "unicode_escape", "gb18030", "utf-16", "nonsense")
PIECES = (b"a", b"\r", b"\n", b"\\", b"\x81\xbe", b"\x87\x9b", b"+A", b"\x1b$B", b"\xef\xbb\xbf")


@fewer()
@given(
    head=st.sampled_from([b"", *MARKS, *(f"# coding: {name}\n".encode() for name in CODECS)]),
    body=st.binary(max_size=40) | st.lists(st.sampled_from(PIECES)).map(b"".join),
    name=st.sampled_from(["a.py", "a.txt"]),
)
def test_text_that_did_not_change_is_written_byte_for_byte(head: bytes, body: bytes, name: str) -> None:
    file = TextFile(name=name, data=head + body)
    assert file.render(file.text, is_whole=False) == (file.data, ())
