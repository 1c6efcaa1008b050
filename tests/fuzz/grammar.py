"""What random documents are made of: words, odd texts, JSON values, and documents bent in a few places."""

import json
from collections.abc import Callable, Sequence
from random import Random

from cdd_agent.model.conversation import JSON

WORDS = (
    "",
    "a",
    "csv",
    "Header",
    "src/a.py",
    "tests/test_a.py::test_b",
    "AC-1",
    "none",
    "Write the header",
    "1",
    "done",
)

ODD = (
    *(
        "\0",
        "\t",
        "\r",
        "\n",
        "\r\n",
        "\x0b",
        "\x1b[2J",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\ufffe",
    ),
    *("\ud800", "\udc80", "\udfff", "\U000e0041", "\u202e", "\u200b", "e\u0301", "\U0001f600", "\u0660", "\u00b2"),
    *(
        "'",
        '"',
        "`",
        "``",
        "```",
        "````",
        "~~~",
        "\\",
        "\\n",
        "\\ud800",
        "\\x",
        "\\U99999999",
        "%",
        "@",
        "&a",
        "*a",
        "!",
    ),
    *(
        "#",
        "# ",
        ": ",
        ":",
        "- ",
        "-",
        "? ",
        "---",
        "...",
        "|",
        ">",
        "|2-",
        "[",
        "]",
        "{",
        "}",
        ",",
        "<<: *a",
        "<!--",
        "-->",
    ),
    *("!!int ''", "!!bool x", "!!timestamp x", "!!binary x", "!!set {a}", "!!python/name:os.system", "!<x>"),
    *(
        "NaN",
        "Infinity",
        "-0",
        "1e999",
        "0x_",
        "0b_",
        "._",
        "12:30:45",
        "1_0",
        "0o8",
        "no",
        "~",
        "null",
        "true",
        "=",
        "<<",
    ),
    *("2026-01-31", "2026-99-99", "2026-01-31T25:00:00Z", "0001-01-01 00:00:00 +23:59", "9" * 400, "9" * 5000, "-1"),
    *(
        "../..",
        "/etc/passwd",
        "C:\\x",
        "~/x",
        ".git/config",
        "(?P<",
        "(((",
        "a{99999999999}",
        "[[:a:]]",
        "(a+)+$",
        "\\1",
    ),
)


def pick(random: Random, choices: Sequence[str]) -> str:
    """One of ``choices``; faster than ``random.choice``, as most of the time goes here."""
    return choices[int(random.random() * len(choices))]


def text(random: Random, *, most: int = 4) -> str:
    """A few words and, now and then, something odd among them."""
    parts = [pick(random, WORDS if random.random() < 0.7 else ODD) for _ in range(random.randint(0, most))]
    return pick(random, (" ", "", "\n", ", ")).join(parts)


def plain(random: Random) -> str:
    """A word without anything odd."""
    return pick(random, WORDS[1:])


def value(random: Random, *, depth: int = 3) -> JSON:
    """A JSON value."""
    kind = int(random.random() * (9 if depth else 7))
    if kind == 7:
        return [value(random, depth=depth - 1) for _ in range(random.randint(0, 3))]
    if kind == 8:
        return {text(random, most=1): value(random, depth=depth - 1) for _ in range(random.randint(0, 3))}
    scalars: tuple[Callable[[], JSON], ...] = (
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.randint(-3, 12),
        lambda: random.choice([2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 16**5000, 0.5, -0.0, 1e308]),
        lambda: random.choice([float("nan"), float("inf"), 1e-320, 1.5]),
        lambda: text(random),
        lambda: plain(random),
    )
    return scalars[kind]()


def as_json(random: Random, document: JSON) -> str:
    """``document`` as JSON, in one of the ways it can be written; huge integers stay out."""
    indent = 1 if random.random() < 0.3 else None
    return json.dumps(_writable(document), indent=indent, ensure_ascii=random.random() < 0.7)


def _writable(document: JSON) -> JSON:
    match document:
        case int() if abs(document) >= 10**4000:
            return 10**400
        case list():
            return [_writable(item) for item in document]
        case dict():
            return {key: _writable(item) for key, item in document.items()}
        case _:
            return document


def nested(random: Random, opening: str, *, closing: str = "") -> str:
    """Brackets in brackets, some levels or thousands."""
    depth = random.choice([2, 30, 49, 51, 70, 600, 3000])
    return opening * depth + closing * (depth if random.random() < 0.7 else 0)


def bent(random: Random, document: str, *, tokens: Sequence[str] = ODD) -> str:
    """``document`` changed in a few places: cut, repeated, swapped, with odd things put in."""
    for _ in range(1 + int(random.random() ** 2 * 5)):
        start, end = sorted((random.randint(0, len(document)), random.randint(0, len(document))))
        end = min(end, start + random.choice([1, 1, 3, 20, 200]))
        piece = document[start:end]
        match int(random.random() * 8):
            case 0:
                document = document[:start] + document[end:]
            case 1:
                document = document[:end] + piece * random.choice([1, 1, 2, 30]) + document[end:]
            case 2 | 3:
                document = document[:start] + pick(random, tokens) + document[start:]
            case 4:
                document = document[:start] + pick(random, tokens) + document[end:]
            case 5:
                document = (
                    document[:start] if random.random() < 0.3 else document[:start] + piece[::-1] + document[end:]
                )
            case 6:
                document = _lines_bent(random, document)
            case _:
                document = document[:start] + chr(random.randrange(0x110000)) + document[end:]
    return document


def _lines_bent(random: Random, document: str) -> str:
    lines = document.split("\n")
    at, other = (random.randrange(len(lines)) for _ in range(2))
    match int(random.random() * 5):
        case 0:
            lines[at] = random.choice([" ", "  ", "\t", "      "]) + lines[at]
        case 1:
            lines[at] = lines[at].lstrip()
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines.insert(at, lines[other])
        case _:
            del lines[at]
    return pick(random, ("\n", "\n", "\n", "\r\n", "\r")).join(lines)


def as_bytes(random: Random, document: str) -> bytes:
    """``document`` in UTF-8, now and then damaged as a disk or another program would."""
    data = bytearray(document.encode("utf-8", "surrogatepass"))
    match int(random.random() * 12):
        case 0 if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case 1:
            data[:0] = b"\xef\xbb\xbf"
        case 2:
            return document.encode(random.choice(["utf-16", "utf-32", "utf-7"]), "replace")
        case 3:
            at = random.randint(0, len(data))
            data[at:] = bytes(len(data) - at)
        case _:
            pass
    return bytes(data)
