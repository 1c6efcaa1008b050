"""The values in files that git ignores, and the places where a text has one of them, in any spelling.

A run tree can hold such files: settings, keys, data. Their content must not get into a commit. A value counts if no
tracked file holds it, and it has the shape of a key, or at least 12 characters with letters and digits. Shorter ones
are only reported, because they may be ordinary words.

A value is found in another case, backwards, split by quotes, operators, comments or line ends, with escapes, in percent
encoding, base64 or hexadecimal, as the numbers of its characters, and without a few characters at its end. Values
that programs compute from it are not found.
"""

import ast
import base64
import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import PurePosixPath
from urllib.parse import unquote

from cdd_agent.untrusted.keys import find_keys
from cdd_agent.untrusted.python_source import parse

MASK = "[masked: value of an ignored file]"
"""The replacement for a value."""

_LEAST = 12
_LEAST_PART, _PART = 11, 0.8
"""Characters of the beginning or the end of a value, and the share of it, that are as good as all of it."""
_LEAST_SHOWN, _MOST_SHOWN = 6, 64
"""Characters of a value that is only reported."""
_TOKEN = re.compile(r"[^\s\"'`=:;,(){}\[\]<>|&?/\\@#]{12,400}")
_ASSIGNED = re.compile(r"^[ \t]*(?:export +|set +|- +)?[\"']?[\w.\- ]{1,100}[\"']?[ \t]*:?[=:][ \t]*(.{6,500})$", re.M)
_QUOTED = re.compile(r"\"([^\"\n]{6,400})\"|'([^'\n]{6,400})'|`([^`\n]{6,400})`")
_WORD = re.compile(r"[^\s\"'`=:;,(){}\[\]<>]{6,64}")
_DATE_OR_VERSION = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T_ ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)? ?(?:Z|[A-Z]{3}|[+-]\d\d:?\d\d)?)?|"
    r"v?\d+(?:\.\d+)+(?:[.-]?(?:a|alpha|b|beta|c|dev|final|m|post|pre|rc|snapshot)[.-]?\d*)*"
    r"(?:\+(?:g?[0-9a-f]{6,40}|[a-z]{1,10}[.\d]*)(?:\.d\d{8})?)?",
    re.IGNORECASE,
)
"""All of a text: a secret can begin like a date."""
_ENDS_OF_CODE = frozenset(
    {".c", ".cc", ".cjs", ".cpp", ".cs", ".go", ".h", ".hpp", ".java", ".js", ".jsx", ".kt", ".mjs", ".php", ".pyi"}
    | {".rb", ".rs", ".scala", ".swift", ".ts", ".tsx"}
)
"""Of a source only what is in quotes is a value; other code may use its names."""
_OTHERS = re.compile(r"[^A-Za-z0-9]+")
_LINE_END = r"[ \t]*(?:(?:(?:#|//)[^\n]*)?\\?\r?\n[ \t]*)?"
_JOINT = re.compile(rf"[\"'`]\)?{_LINE_END}(?:[+.,&|~]{{1,2}}|<<)?{_LINE_END}\(?[rRbBuUfF@$]{{0,2}}[\"'`]")
"""The end of one text and the beginning of the next, which together are one."""
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4,6})\}?|\\([0-7]{3})")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEXADECIMAL = re.compile(r"(?:[0-9A-Fa-f]{2}[ \t:]?){12,}")
_CODE_POINT = r"(?:0x[0-9A-Fa-f]{2}|0o[0-7]{2,3}|0b[01]{5,8}|[01]{7,8}|\d{2,3})(?!\w)"
_BETWEEN = r"[^\w\n]{0,6}(?:(?:(?:#|//|/\*)[^\n]{0,80})?\n[^\w\n]{0,80})?"
_NUMBERS = re.compile(rf"(?<!\w)(?:{_CODE_POINT}{_BETWEEN}){{10,}}{_CODE_POINT}")
_NUMBER = re.compile(rf"(?<!\w){_CODE_POINT}")
_COMMENT = re.compile(r"(?:#|//|/\*)[^\n]*")
_PARTS = re.compile(r"[./\\]")
_ENDS_OF_TABLES = frozenset({".csv", ".db", ".jsonl", ".ndjson", ".psv", ".sqlite", ".sqlite3", ".tsv"})
"""Rows of data, which tests quote: only a value that looks made by chance closes the gate."""
_BY_CHANCE = re.compile(r"(?=[a-z\d]*[A-Z])(?=[A-Z\d]*[a-z])(?=[A-Za-z]*\d)[A-Za-z\d]{12,}|(?:[A-Za-z]+\d+){3,}")
_WITHOUT_ENDS_BYTES = 64_000
"""Up to this size of a file, most of each value is enough to find it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedValue:
    """One place of a text that holds a value."""

    line: int
    """Counted from 1."""
    source: str
    """The file with the value."""
    is_long: bool
    """Whether it is a key, or long enough to be no ordinary word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    text: str = field(repr=False)
    letters: str = field(repr=False)
    """Its letters and digits, in lower case."""
    source: str
    whole: str = field(repr=False)
    """The value that it is, or is most of."""


@dataclass(kw_only=True)
class KnownValues:
    """The values of some files."""

    is_public: Callable[[str], bool] = lambda _: False
    """Returns whether a tracked file holds a text. Called only for values that were found."""
    _by_start: dict[str, list[_Value]] = field(default_factory=dict, repr=False)
    """The first letters and digits of a value, or of most of it -> what begins with them."""
    _with_signs: dict[str, str] = field(default_factory=dict, repr=False)
    """A long value with few letters and digits -> its file."""
    _short: dict[str, str] = field(default_factory=dict, repr=False)
    """A value that is only reported -> its file."""
    _public: dict[str, bool] = field(default_factory=dict, repr=False)

    def add(self, path: str, content: bytes, *, names: Iterable[str] = ()) -> None:
        """Add the values in a file, without those that are ``names`` of files."""
        known = frozenset(names)
        is_table = PurePosixPath(path).suffix.lower() in _ENDS_OF_TABLES
        for text, is_key in _extract(path, content):
            letters = _fold(text)
            if not letters or text in known or known.issuperset(_PARTS.split(text)):
                continue
            is_doubtful = is_table and not is_key and _BY_CHANCE.search(text) is None
            if is_doubtful or not _is_long(text, is_key=is_key):
                if _LEAST_SHOWN <= len(text) <= _MOST_SHOWN:
                    self._short.setdefault(text, path)
            elif len(letters) < _LEAST:
                self._with_signs.setdefault(text, path)
            else:
                self._add_long(text, source=path)
                for part in _list_most(text, letters) if len(content) <= _WITHOUT_ENDS_BYTES else ():
                    self._add_long(part, source=path, whole=text)

    def _add_long(self, text: str, *, source: str, whole: str = "") -> None:
        letters = _fold(text)
        same = self._by_start.setdefault(letters[:_LEAST_PART], [])
        if not any(each.letters == letters for each in same):
            same.append(_Value(text=text, letters=letters, source=source, whole=whole or text))

    def __bool__(self) -> bool:
        """Return whether there is any value."""
        return bool(self._by_start or self._with_signs or self._short)

    def find(self, text: str) -> tuple[CopiedValue, ...]:
        """Return the first place of each value that ``text`` holds, those that are only reported last."""
        found: dict[str, CopiedValue] = {}
        for value, line in self._search_views(text):
            found.setdefault(value.whole, CopiedValue(line=line, source=value.source, is_long=True))
        has_others = self._with_signs or self._short
        for number, row in enumerate(text.split("\n"), start=1) if has_others else ():
            for each in self._list_with_signs(row):
                found.setdefault(each, CopiedValue(line=number, source=self._with_signs[each], is_long=True))
            for word in _list_words(row):
                if word in self._short and not self._is_public(word):
                    found.setdefault(word, CopiedValue(line=number, source=self._short[word], is_long=False))
        places = dict.fromkeys(found.values())
        return tuple(sorted(places, key=lambda each: (not each.is_long, each.line, each.source)))

    def hide_in(self, text: str) -> str:
        """Mask the long values in ``text``, or the whole line of one that is spelled otherwise."""
        values = {*(value.text for value, _ in self._search_views(text)), *self._list_with_signs(text)}
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, MASK)
        rows = text.split("\n")
        for _, line in self._search_views(text):
            rows[line - 1] = MASK
        return "\n".join(rows)

    def _list_with_signs(self, text: str) -> list[str]:
        return [each for each in self._with_signs if each in text and not self._is_public(each)]

    def _search_views(self, text: str) -> Iterator[tuple[_Value, int]]:
        """Yield each value in the text with its line, however it is spelled."""
        for rows in _list_views(text) if self._by_start else ():
            folded = [_fold(row) for row in rows]
            starts = [0]
            for row in folded:
                starts.append(starts[-1] + len(row))
            letters = "".join(folded)
            for is_backwards, run in ((False, letters), (True, letters[::-1])):
                for at in range(len(run) - _LEAST_PART + 1):
                    for value in self._by_start.get(run[at : at + _LEAST_PART], ()):
                        if run.startswith(value.letters, at) and not self._is_public_value(value):
                            begin = len(run) - at - len(value.letters) if is_backwards else at
                            yield value, bisect_right(starts, begin)

    def _is_public_value(self, value: _Value) -> bool:
        return self._is_public(value.whole) or (value.text != value.whole and self._is_public(value.text))

    def _is_public(self, text: str) -> bool:
        if text not in self._public:
            self._public[text] = self.is_public(text)
        return self._public[text]


def _fold(text: str) -> str:
    return _OTHERS.sub("", text).lower()


def _list_most(text: str, letters: str) -> Iterator[str]:
    """Yield the shortest beginning and end of a value that are as good as all of it."""
    most = max(_LEAST_PART, ceil(_PART * len(letters)))
    at = [place for place, letter in enumerate(text) if _fold(letter)]
    if most < len(letters) == len(at):
        for part in (text[: at[most - 1] + 1], text[at[-most] :]):
            if _is_mixed(part):
                yield part


def _is_mixed(text: str) -> bool:
    return re.search(r"[A-Za-z]", text) is not None and re.search(r"\d", text) is not None


def _is_long(text: str, *, is_key: bool = False) -> bool:
    return len(text) >= _LEAST and (is_key or _is_mixed(text))


def _extract(path: str, content: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the values in a file, and whether each has the shape of a key."""
    text = read_text(content)
    for key in find_keys(text):
        # One line of a private key is enough.
        rows = (row.strip("\"' \t\r") for row in re.split(r"\n|\\n", key))
        yield from ((row, True) for row in rows if not row.startswith("-----"))
    end = PurePosixPath(path).suffix.lower()
    tree = parse(text) if end == ".py" else None
    if tree is not None:
        values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        quoted = [value for value in values if isinstance(value, str)]
    else:
        quoted = [each for match in _QUOTED.finditer(text) for each in match.groups() if each]
    is_code = tree is not None or end in _ENDS_OF_CODE
    assigned = [] if is_code else _ASSIGNED.findall(text)
    for value in (*(_strip_quotes(each) for each in assigned), *quoted):
        if _stands_alone(value):
            yield value, False
    for found in _TOKEN.findall("\n".join(quoted) if is_code else text):
        token = found.strip(".,;!*_-")
        if _is_long(token) and not _DATE_OR_VERSION.fullmatch(token):
            yield token, False


def read_text(content: bytes) -> str:
    """Return the content of any file as text; of one that is not text, its readable parts."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    if b"\0" in content:  # a database, a key store
        return re.sub(r"[^ -~]+", "\n", content.decode("latin-1"))
    return content.decode("utf-8-sig", "replace")


def _strip_quotes(assigned: str) -> str:
    """Return an assigned value without quotes, a comment and the sign that ends it."""
    value = assigned.strip()
    end = value.find(value[:1], 1)
    if value[:1] in ("'", '"', "`") and end > 0:
        return value[1:end]
    return re.split(r"\s[#;]", value)[0].strip().rstrip(",;")


def _stands_alone(value: str) -> bool:
    """Return whether a whole text may be a value, so not a path, an address, a time or a version."""
    # Base64 has slashes too.
    is_encoded = all(re.search(kind, value) for kind in ("[A-Z]", "[a-z]", r"\d", r"^[\w+/=-]+$"))
    is_path = "/" in value and not (is_encoded and value[0] not in "/.~")
    return not (is_path or "\n" in value or _DATE_OR_VERSION.fullmatch(value))


def _list_words(row: str) -> Iterator[str]:
    """Yield the words of a line, and what is in quotes."""
    yield from _WORD.findall(row)
    yield from (each for match in _QUOTED.finditer(row) for each in match.groups() if each)


def _list_views(text: str) -> Iterator[list[str]]:
    """Yield the lines of a text as they are, and decoded in each way that changes it."""
    rows = _join(text)
    yield rows
    for decode in (unquote, html.unescape, _unescape):
        decoded = [decode(row) for row in rows]
        if decoded != rows:
            yield decoded
    hidden = [" ".join(_decode_parts(row)) for row in rows]
    if any(hidden):
        yield hidden
    if numbered := _decode_numbers(text):
        yield numbered


def _join(text: str) -> list[str]:
    """Return the lines of a text; parts of one that was split over lines are in the first of them."""
    rows: list[str] = []
    closed = _JOINT.sub(lambda match: "\0" * match[0].count("\n"), text.replace("\0", " "))
    for row in closed.split("\n"):
        rows += [row.replace("\0", ""), *[""] * row.count("\0")]
    return rows


def _unescape(row: str) -> str:
    def decode(match: re.Match[str]) -> str:
        number = int(match[3], 8) if match[3] else int(match[1] or match[2], 16)
        return chr(number) if number < 0x110000 else ""

    return _ESCAPE.sub(decode, row) if "\\" in row else row


def _decode_parts(row: str) -> Iterator[str]:
    """Yield the texts that parts of a line encode."""
    for match in _BASE64.finditer(row):
        for cut in range(4):  # other letters may stand before it
            part = match[0][cut:].replace("-", "+").replace("_", "/")
            part = part[:-1] if len(part) % 4 == 1 else part
            yield base64.b64decode(part + "=" * (-len(part) % 4)).decode("latin-1")
    for match in _HEXADECIMAL.finditer(row):
        with suppress(ValueError):
            yield bytes.fromhex(match[0].replace(":", "")).decode("latin-1")


def _decode_numbers(text: str) -> list[str]:
    """Return the lines of a text with what numbers spell, at the line of the first one; nothing if there are none."""
    rows: dict[int, str] = {}
    for match in _NUMBERS.finditer(text):
        numbers = _NUMBER.findall(_COMMENT.sub("", match[0]))
        # Digits without a mark may be decimal, octal or binary.
        spelled = ("".join(map(_read_number, numbers)), *(_spell(numbers, base=base) for base in (8, 2)))
        line = text.count("\n", 0, match.start())
        rows[line] = " ".join((rows.get(line, ""), *spelled))
    return [rows.get(number, "") for number in range(max(rows) + 1)] if rows else []


def _read_number(digits: str) -> str:
    return chr(int(digits, 0 if digits[1:2] in ("x", "o", "b") else 10))


def _spell(numbers: list[str], *, base: int) -> str:
    try:
        return "".join(chr(int(each, base)) for each in numbers)
    except ValueError:
        return ""
