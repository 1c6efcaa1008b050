"""Decode and parse Python sources as the interpreter does: byte order mark, declared encoding (PEP 263). Pure.

Python's own ``tokenize.detect_encoding`` differs from the interpreter: it does not end a line at a carriage return, and
requires UTF-8 in the line that declares another encoding.
"""

from __future__ import annotations

import ast
import codecs
import re
from typing import Match

from .system import bind_builtins

bind_builtins(globals())


_MARK = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n?|\n")
_BLANK = re.compile(rb"[ \t\f]*(?:#.*)?", re.DOTALL)
_DECLARED = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.DOTALL | re.ASCII)
_ONLY_TREE: int = ast.PyCF_ONLY_AST
_QUADRATIC = ("idna", "punycode")
"""Codecs whose time grows with the square of the size, so a small file could stop the reader for hours."""
_ASCII_ALONE = bytes(byte if byte < 128 else ord("?") for byte in range(256))


class UnreadableSource(ValueError):
    """The interpreter would refuse a source before or while it parses it; the message says why."""


def find_encoding(content: bytes) -> str:
    """Return the encoding of a source, which also encodes it again; ``utf-8-sig`` if it begins with a mark.

    Raises UnreadableSource for an unknown encoding, and for one that contradicts the mark.
    """
    is_marked = content.startswith(_MARK)
    declared = _find_declared(content[len(_MARK) :] if is_marked else content)
    if is_marked and declared not in (None, "utf-8"):
        raise UnreadableSource(f"it declares the encoding {declared}, but has the byte order mark of utf-8")
    if is_marked:
        return "utf-8-sig"
    if declared is None:
        return "utf-8"
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError) as error:
        raise UnreadableSource(f"unknown encoding: {declared}") from error
    if name in _QUADRATIC:
        raise UnreadableSource(f"the encoding {declared} is not for sources")
    return declared


def _find_declared(content: bytes) -> str | None:
    found = find_declaration(content)
    return None if found is None else _normalize(found[1].decode("ascii"))


def find_declaration(content: bytes) -> Match[bytes] | None:
    """Return the match of the line that declares the encoding, the first or second; its group 1 is the name."""
    start = 0
    for _ in range(2):
        found_end = _LINE_END.search(content, start)
        end = len(content) if found_end is None else found_end.start()
        found = _DECLARED.match(content, start, end)
        if found is not None or found_end is None or _BLANK.fullmatch(content, start, end) is None:
            return found
        start = found_end.end()
    return None


def _normalize(name: str) -> str:
    """Return a name as the interpreter compares it."""
    start = name[:12].lower().replace("_", "-")
    if start == "utf-8" or start.startswith("utf-8-"):
        return "utf-8"
    latin = ("latin-1", "iso-8859-1", "iso-latin-1")
    return "iso-8859-1" if start in latin or start.startswith(tuple(f"{each}-" for each in latin)) else name


def decode_source(content: bytes, *, errors: str = "strict") -> str:
    """Return the text of a source with its own line ends and without the mark; raises UnreadableSource.

    ``errors`` is as for ``bytes.decode``. The interpreter accepts bytes in a comment that are not UTF-8.
    """
    encoding = find_encoding(content)
    try:
        text = content.decode(encoding, errors)
    except (LookupError, ValueError, Warning) as error:
        raise UnreadableSource(f"it cannot be decoded: {error}") from error
    # The interpreter divides into lines before it decodes: such a character would hide code from other readers.
    if text.count("\r") != content.count(b"\r"):
        raise UnreadableSource(f"its encoding {encoding} hides carriage returns")
    return text


def encode_source(text: str) -> bytes:
    """Return UTF-8 that the interpreter reads as ``text``; another encoding that the text declares is replaced."""
    content = text.encode("utf-8", "surrogateescape")
    found = find_declaration(content)
    if found is None or _normalize(found[1].decode("ascii")) == "utf-8":
        return content
    return content[: found.start(1)] + b"utf-8" + content[found.end(1) :]


def hides_code(content: bytes) -> bool:
    """Return whether the ASCII characters of the text are other than the ASCII bytes, as in UTF-7.

    Whoever reads the bytes, as in a diff, sees other code than the interpreter. Raises UnreadableSource.
    """
    encoding = find_encoding(content)
    if encoding in ("utf-8", "utf-8-sig"):
        return False
    if decode_source(content, errors="replace").encode("ascii", "replace") == content.translate(_ASCII_ALONE):
        return False
    try:
        decoder, is_inside = codecs.getincrementaldecoder(encoding)("replace"), False
        for byte in content:
            piece = decoder.decode(bytes([byte]))
            # The second byte of a character may be an ASCII byte, as in Shift JIS.
            if piece != chr(byte) if byte < 128 and not is_inside else any(letter < "\x80" for letter in piece):
                return True
            is_inside = bool(decoder.getstate()[0])
    except (LookupError, ValueError, Warning):
        return True
    return False


def parse_source(content: bytes) -> ast.Module:
    """Return the syntax tree of a source; raises UnreadableSource if this interpreter cannot parse it."""
    decode_source(content, errors="replace")
    try:
        # Not ``ast.parse``, which a test can replace.
        tree: ast.Module = compile(content, "<source>", "exec", _ONLY_TREE, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
        # Python raises SystemError for "AST constructor recursion depth mismatch" near the limits of a sandbox.
        raise UnreadableSource(str(error) or type(error).__name__) from error
    return tree
