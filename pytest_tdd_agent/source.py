"""Read the bytes of a Python source as Python does: byte order mark, declared encoding (PEP 263), else UTF-8. Pure.

The rules are those of the compiler when a module is imported, which differ from ``tokenize`` in details: bytes that
are not UTF-8 are allowed in comments, and only spellings such as ``utf_8`` count as UTF-8.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Match

MARK = codecs.BOM_UTF8
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_NO_CODE = re.compile(rb"[ \t\f]*(#|$)")
_LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)?")
_LATIN_1 = ("latin-1", "iso-8859-1", "iso-latin-1")
_ASCII_ALONE = bytes(byte if byte < 128 else ord("?") for byte in range(256))


@dataclass(frozen=True)
class SourceText:
    """The text of a source."""

    text: str
    """Without a byte order mark. If there is a problem, what the bytes look like as UTF-8."""
    encoding: str = "utf-8"
    """As declared; other spellings of UTF-8 and Latin-1 are ``utf-8`` and ``iso-8859-1``."""
    has_mark: bool = False
    """Whether it begins with the byte order mark of UTF-8."""
    problem: str = ""
    """Why Python cannot decode the bytes; empty if it can."""
    hides_code: bool = False
    """Whether ASCII characters of the text are others in the bytes, so that a reader of the bytes sees other code."""


def read_source(data: bytes) -> SourceText:
    """Return the text that Python compiles for these bytes."""
    has_mark = data.startswith(MARK)
    body = data[len(MARK) :] if has_mark else data
    found = find_cookie(body)
    encoding = "utf-8" if found is None else _normalize(found.group(1).decode("ascii"))
    shown = body.decode("utf-8", "replace")
    if has_mark and encoding != "utf-8":
        problem = f"it declares {encoding} but begins with the byte order mark of UTF-8"
        return SourceText(shown, encoding, has_mark, problem)
    if encoding == "utf-8":
        # Invalid bytes are allowed in comments. Elsewhere, Python refuses the file, and to see more code is harmless.
        text, problem, hides_code = shown, "", False
    else:
        text, problem = _decode(body, encoding)
        hides_code = not problem and _hides_code(body, text, encoding=encoding)
    if not problem and "\0" in text:
        problem = "it contains null bytes"
    return SourceText(shown if problem else text, encoding, has_mark, problem, hides_code)


def find_cookie(data: bytes) -> Match[bytes] | None:
    """Return the match of the encoding that one of the first two lines declares, as group 1; None without one."""
    first = _LINE.match(data)
    assert first is not None
    found = _COOKIE.match(first.group().rstrip(b"\r\n"))
    if found is not None or _NO_CODE.match(first.group().rstrip(b"\r\n")) is None:
        return found
    second = _LINE.match(data, first.end())
    assert second is not None
    return _COOKIE.match(data, second.start(), second.start() + len(second.group().rstrip(b"\r\n")))


def encode_source(text: str) -> bytes:
    """Return UTF-8 bytes that Python reads as ``text``: another encoding that the text declares is replaced."""
    data = text.encode("utf-8", "surrogateescape")
    found = find_cookie(data)
    if found is None or _normalize(found.group(1).decode("ascii")) == "utf-8":
        return data
    return data[: found.start(1)] + b"utf-8" + data[found.end(1) :]


def _normalize(name: str) -> str:
    """Return the name of an encoding as the compiler normalizes it."""
    start = name[:12].lower().replace("_", "-")
    if start == "utf-8" or start.startswith("utf-8-"):
        return "utf-8"
    if any(start == each or start.startswith(f"{each}-") for each in _LATIN_1):
        return "iso-8859-1"
    return name


def _decode(data: bytes, encoding: str) -> tuple[str, str]:
    """Return the decoded text, and why it cannot be decoded; one of them is empty."""
    try:
        text = data.decode(encoding)
        text.encode("utf-8")
    except LookupError as error:
        return "", str(error)
    except (ValueError, Warning) as error:  # escapes that Python does not know give a warning
        return "", f"it is not {encoding}: {error}"
    return text, ""


def _hides_code(data: bytes, text: str, *, encoding: str) -> bool:
    """Return whether the ASCII characters of the text are other than the ASCII bytes, as in UTF-7."""
    if text.encode("ascii", "replace") == data.translate(_ASCII_ALONE):
        return False
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        is_inside = False
        for number in data:
            piece = decoder.decode(bytes([number]))
            is_own = number < 128 and not is_inside
            # The second byte of a character may be an ASCII byte, as in Shift JIS.
            if piece != chr(number) if is_own else any(letter < "\x80" for letter in piece):
                return True
            is_inside = bool(decoder.getstate()[0])
    except (LookupError, ValueError, Warning):
        return True
    return False
