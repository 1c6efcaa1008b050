"""Decode text files, and encode new text in the format of the file.

A file is shown, searched and edited as text whose lines end with a line feed. ``TextFile.render`` turns the new text
back into bytes with the file's byte order mark, encoding and line ends. A line that did not change keeps its bytes.

The encoding is that of the byte order mark, or the one that the file declares. In Python the declaration (PEP 263)
decides, as for the interpreter. Elsewhere it is believed where the bytes agree with it. Without either, a file is
UTF-8, or its encoding is unknown: then only ASCII can be added to it.
"""

import codecs
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.text import format_code_point, shorten
from pytest_tdd_agent.sources import UnreadableSource, decode_source, find_declaration, find_encoding

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""The byte order mark as a character."""
_MARKS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PYTHON = frozenset({".py", ".pyi", ".pyw"})
# Python ends lines with carriage returns, too.
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_TWO_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?[^\r\n]*")
_COMMENT_OR_BLANK = re.compile(r"[ \t\f]*(?:#.*)?")
_DECLARED = re.compile(rb"(?:coding|charset)[ \t]*[:=]?[ \t]*[\"']?([-\w.]+)")
"""A declaration in XML, HTML or CSS, or in a line for Emacs, Vim or Ruby."""
_DECLARED_WITHIN_BYTES = 1024
_ASCII = bytes([*b"\t\n\f\r", *range(0x20, 0x7F)])
# Decoding takes time that grows with the square of the length.
_SLOW = frozenset({"punycode", "idna"})
_ENDS = re.compile(r"\r*\n")
_ENDS_WITH_CARRIAGE_RETURNS = re.compile(r"\r\n|\n|\r")
_LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\r*\n)")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ENDING_NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}
_SHOWN = 60
"""Characters of an encoding line in a remark."""
_CONVERT = "write it as an escape sequence or in ASCII; convert the file to UTF-8 only if your task asks for that"


class Rendered(NamedTuple):
    """The new content of a file."""

    data: bytes
    remarks: tuple[str, ...]
    """Sentences that name the differences from the text of the model."""


class _Encoding(NamedTuple):
    codec: str
    name: str
    """As the file names it."""


_UTF_8 = _Encoding("utf-8", "UTF-8")


class _Declaration(NamedTuple):
    text: str
    """The line, without its end."""
    start: int
    end: int
    """Where the next line starts."""
    name: str
    codec: str | None
    """None if Python has no codec of that name."""


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file; ``data`` is empty for one that is to be created."""

    name: str
    data: bytes

    @cached_property
    def text(self) -> str:
        """The text without byte order mark, with line feeds as line ends.

        Bytes that are not in the file's encoding are lone surrogates, as by ``surrogateescape``.
        """
        return self._ends.sub("\n", self._raw) if "\r" in self._raw else self._raw

    @cached_property
    def encoding(self) -> str:
        """The name of the encoding; empty if it is unknown."""
        return "" if self._is_unknown else self._encoding.name

    @cached_property
    def has_undecoded(self) -> bool:
        """Whether some bytes are not in the file's encoding."""
        return not self._raw.isascii() and _LONE_SURROGATE.search(self._raw) is not None

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """The names of the line ends, the most frequent first; for example ``("CRLF", "LF")``."""
        return tuple(_ENDING_NAMES.get(end, "CR CR LF") for end in self._ending_counts)

    def normalize(self, text: str) -> str:
        """Return ``text`` of a model with line feeds as line ends.

        A carriage return alone ends a line only if it does so in the file.
        """
        return self._ends.sub("\n", text) if "\r" in text else text

    def render(self, text: str, *, is_whole: bool) -> Rendered:
        """Return the new content of the file; raise ``UsageError`` if its encoding cannot hold it.

        ``text`` is an edited version of ``self.text``, or, with ``is_whole``, the whole file as a model sent it.
        """
        remarks: list[str] = []
        if text.startswith(MARK) and not self.text.startswith(MARK):
            text = text.lstrip(MARK)
            if not self._mark:
                why = "the file had none" if self.data else "a new file gets none"
                remarks.append(f"The byte order mark was left out: {why}.")
        if is_whole:
            text = self._keep_last_end(self.normalize(text))
        if self._is_python:
            text = self._keep_declaration(text, remarks=remarks)
        self._require_characters(text)
        return Rendered(self._mark + self._encode(self._restore_ends(text)), tuple(remarks))

    @cached_property
    def _is_python(self) -> bool:
        first = self.data[:_DECLARED_WITHIN_BYTES].partition(b"\n")[0]
        return PurePosixPath(self.name).suffix.lower() in _PYTHON or (first.startswith(b"#!") and b"python" in first)

    @cached_property
    def _mark(self) -> bytes:
        return next((mark for mark, _ in _MARKS if self.data.startswith(mark)), b"")

    @cached_property
    def _declaration(self) -> _Declaration | None:
        """The encoding line of a Python file."""
        return _find_declaration(self._raw) if self._is_python else None

    @cached_property
    def _encoding(self) -> _Encoding:
        body = self.data[len(self._mark) :]
        if self._mark:
            codec = next(codec for mark, codec in _MARKS if mark == self._mark)
            return _Encoding(codec, codec.upper()) if _can_decode(body, codec) else _UTF_8
        if self._is_python:
            return _find_python_encoding(body)
        if body.isascii() or not _can_decode(body, "utf-8"):
            for found in _DECLARED.finditer(body[:_DECLARED_WITHIN_BYTES]):
                name = found[1].decode()
                codec = _find_codec(name) or ""
                if codec and _extends_ascii(codec) and _can_decode(body, codec):
                    return _Encoding(codec, name)
        return _UTF_8

    @cached_property
    def _is_unknown(self) -> bool:
        """Whether the file is neither UTF-8 nor in an encoding that it declares."""
        if self._encoding.codec != "utf-8" or not self.has_undecoded:
            return False
        # A few wrong bytes among many right ones are a damaged UTF-8 file.
        undecoded = len(_LONE_SURROGATE.findall(self._raw))
        return sum(not letter.isascii() for letter in self._raw) <= 2 * undecoded

    @cached_property
    def _errors(self) -> str:
        return "surrogatepass" if self._encoding.codec.startswith(("utf-16", "utf-32")) else "surrogateescape"

    @cached_property
    def _raw(self) -> str:
        """The text with its line ends."""
        return self._decode(self.data[len(self._mark) :])

    @cached_property
    def _ends(self) -> re.Pattern[str]:
        """Matches the ends of lines. Carriage returns alone are among them if most lines end so."""
        carriage_returns = len(_LONE_CARRIAGE_RETURN.findall(self._raw)) if "\r" in self._raw else 0
        return _ENDS_WITH_CARRIAGE_RETURNS if carriage_returns > self._raw.count("\n") else _ENDS

    @cached_property
    def _ending_counts(self) -> Mapping[str, int]:
        """The line ends and how often they occur, the most frequent first."""
        if "\r" not in self._raw:
            return {"\n": self._raw.count("\n")} if "\n" in self._raw else {}
        return dict(Counter(self._ends.findall(self._raw)).most_common())

    def _keep_last_end(self, text: str) -> str:
        # A block cannot say that the last line has no end, and in a call it is rarely meant.
        if not text or not self.text or text.endswith("\n") == self.text.endswith("\n"):
            return text
        return text.removesuffix("\n") if text.endswith("\n") else f"{text}\n"

    def _keep_declaration(self, text: str, *, remarks: list[str]) -> str:
        """Return ``text`` without an encoding line that the file did not have, and with the one that it needs."""
        own = self._declaration
        own_text = own.text if own is not None else None
        allowed: str | None
        if own is not None and own.codec == self._encoding.codec and not self.has_undecoded:
            allowed = own.codec
        else:
            # A new file may say that it is UTF-8, and a wrong line may be corrected to that.
            allowed, own = "utf-8" if own is not None or not self.data else None, None
        found, others = _find_declaration(text), list[str]()
        while found is not None and found.text != own_text and (found.codec is None or found.codec != allowed):
            text = text[: found.start] + text[found.end :]
            others.append(shorten(found.text, _SHOWN))
            found = _find_declaration(text)
        is_needed = bool(others) or (allowed != "utf-8" and not text.isascii())
        if own is not None and found is None and is_needed:
            first = _LINE.match(text)
            at = first.end() if own.start and first is not None and _COMMENT_OR_BLANK.fullmatch(first[1]) else 0
            text = f"{text[:at]}{own.text}\n{text[at:]}"
            remarks.append(f"The encoding line `{shorten(own.text, _SHOWN)}` was kept: the file is in {self.encoding}.")
        if others:
            why = f"the file is in {self.encoding or 'an unknown encoding'}, and that stays"
            why = why if self.data else "a new file is in UTF-8"
            remarks.append(f"The encoding line `{'`, `'.join(others)}` was left out: {why}.")
        return text

    def _require_characters(self, text: str) -> None:
        """Raise ``UsageError`` with the first character that cannot be written in the file's encoding."""
        added = {letter for letter in set(text) - set(self.text) if not letter.isascii()}
        refused = added if self._is_unknown else {letter for letter in added if not self._can_encode(letter)}
        if not refused:
            return
        at = min(text.index(letter) for letter in refused)
        letter, line = text[at], text.count("\n", 0, at) + 1
        code = format_code_point(letter)
        if _LONE_SURROGATE.match(letter):
            happened = f"Line {line} of the new text contains half of a character, {code}. Nothing was changed."
            raise UsageError(happened, hint="write the whole character")
        if self._is_unknown:
            own = self._declaration
            is_not = (
                "is not UTF-8 and declares no other encoding"
                if own is None
                else f"declares {own.name} but is not in it"
            )
            why = f"{is_not}, so only ASCII can be added to it"
        else:
            why = f"is in {self.encoding}, which cannot hold every character"
        happened = f"{self.name} {why}. Line {line} of the new text contains {letter} ({code}). Nothing was changed."
        raise UsageError(happened, hint=_CONVERT)

    def _can_encode(self, letter: str) -> bool:
        try:
            letter.encode(self._encoding.codec)
        except UnicodeError:
            return False
        return True

    def _restore_ends(self, text: str) -> str:
        """Return ``text`` with the file's line ends; a line that stays or replaces one line keeps its own."""
        usual = next(iter(self._ending_counts), "\n")
        if len(self._ending_counts) < 2:
            return text.replace("\n", usual)
        ends, lines = self._ends.findall(self._raw), text.split("\n")
        old_lines = self.text.split("\n")
        old_numbers = _pair_replaced(_match_lines(old_lines, lines), old=len(old_lines), new=len(lines))
        rows = []
        for number, line in enumerate(lines[:-1]):
            old = old_numbers.get(number, len(ends))
            rows.append(line + (ends[old] if old < len(ends) else usual))
        return "".join([*rows, lines[-1]])

    def _decode(self, data: bytes) -> str:
        return _decode(data, self._encoding.codec, errors=self._errors)

    def _encode(self, text: str) -> bytes:
        """Encode ``text``; a line that did not change keeps its bytes, even where the encoder would write others."""
        body, codec = self.data[len(self._mark) :], self._encoding.codec
        if text == self._raw:
            return body  # an encoding may have several forms, and characters without width
        try:
            if self._raw.encode(codec, self._errors) == body:
                data = text.encode(codec, self._errors)
            else:
                old, new = body.splitlines(keepends=True), [found[0] for found in _LINE.finditer(text) if found[0]]
                numbers = _match_lines([self._decode(line) for line in old], new)
                rows = enumerate(new)
                data = b"".join(old[numbers[at]] if at in numbers else self._encode_line(line) for at, line in rows)
            is_right = self._decode(data) == text
        except UnicodeError:
            is_right = False
        if not is_right:
            happened = f"{self.name} is in {self.encoding}, which cannot hold the new text. Nothing was changed."
            raise UsageError(happened, hint=_CONVERT)
        return data

    def _encode_line(self, line: str) -> bytes:
        # unicode_escape would write the line end as an escape sequence.
        content = line.rstrip("\r\n")
        return content.encode(self._encoding.codec, self._errors) + line[len(content) :].encode()


def _find_declaration(text: str) -> _Declaration | None:
    """Return the encoding line of a Python source."""
    head = _TWO_LINES.match(text)
    found = find_declaration(head[0].encode("utf-8", "surrogatepass")) if head is not None else None
    first = _LINE.match(text)
    if found is None or first is None:
        return None
    line = (_LINE.match(text, first.end()) if found.start() else first) or first
    name = found[1].decode()
    return _Declaration(line[1], line.start(), line.end(), name, _find_codec(name))


def _find_python_encoding(content: bytes) -> _Encoding:
    try:
        codec = _find_codec(find_encoding(content)) or ""
        text = decode_source(content)
    except UnreadableSource:
        return _UTF_8
    # ASCII read as UTF-16 is text, too, but text that declares nothing.
    own = _find_declaration(text)
    return _Encoding(codec, own.name) if own is not None and own.codec == codec and codec != "utf-8" else _UTF_8


@lru_cache(maxsize=100)
def _find_codec(name: str) -> str | None:
    """Return the name of the text codec that Python finds for a declared encoding."""
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # raises LookupError for codecs that are not for text, such as hex and zlib
    except (LookupError, ValueError):
        return None
    # Python reads utf-8-sig as UTF-8; its encoder would add a byte order mark.
    return "utf-8" if codec.startswith("utf-8") else None if codec in _SLOW else codec


def _decode(data: bytes, codec: str, *, errors: str = "strict") -> str:
    if "escape" not in codec:
        return data.decode(codec, errors)
    with warnings.catch_warnings():  # "invalid escape sequence"
        warnings.simplefilter("ignore")
        return data.decode(codec, errors)


def _can_decode(data: bytes, codec: str) -> bool:
    try:
        _decode(data, codec)
    except ValueError:
        return False
    return True


def _extends_ascii(codec: str) -> bool:
    try:
        return _decode(_ASCII, codec) == _ASCII.decode() and _ASCII.decode().encode(codec) == _ASCII
    except ValueError:
        return False


def _match_lines(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return new line -> old line for the lines that did not change."""
    most = min(len(old), len(new))
    start = next((at for at in range(most) if old[at] != new[at]), most)
    end = next((at for at in range(most - start) if old[-1 - at] != new[-1 - at]), most - start)
    pairs = {at: at for at in range(start)} | {len(new) - 1 - at: len(old) - 1 - at for at in range(end)}
    matcher = SequenceMatcher(None, old[start : len(old) - end], new[start : len(new) - end])
    for first_old, first_new, size in matcher.get_matching_blocks():
        pairs |= {start + first_new + at: start + first_old + at for at in range(size)}
    return pairs


def _pair_replaced(pairs: Mapping[int, int], *, old: int, new: int) -> dict[int, int]:
    """Add the lines between two of ``pairs`` that replace as many old lines, one by one."""
    found = dict(pairs)
    for (new_start, old_start), (new_end, old_end) in pairwise([(-1, -1), *sorted(pairs.items()), (new, old)]):
        if new_end - new_start == old_end - old_start:
            found |= {new_start + at: old_start + at for at in range(1, new_end - new_start)}
    return found
