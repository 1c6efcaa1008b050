"""Makes text from models, tests and files safe to show in a terminal. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from cdd_agent.errors import UsageError, join_first

SHOWN_KINDS = 4
SHOWN_LINES = 8

# Joiners and variation selectors are legitimate in emoji and in some scripts, so they count as unseen only elsewhere.
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_JOINERS = "\u200c\u200d"
_PICTURES = "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED_LETTERS = "\u0600-\u061b\u061d-\u08ff\u0900-\u0dff"
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_NO_VARIANTS = f"\\x00-\\x22\\x24-\\x29\\x2b-\\x2f\\x3a-\\xa0{_HIDDEN}{_JOINERS}{_SELECTORS}"
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_UNSEEN = re.compile(
    f"[{_HIDDEN}]"
    f"|(?<![{_PICTURES}{_JOINED_LETTERS}])(?<![{_PICTURES}]\ufe0f)[{_JOINERS}]"
    f"|[{_JOINERS}](?![{_PICTURES}{_JOINED_LETTERS}])"
    f"|[{_SELECTORS}](?=[{_SELECTORS}])"
    f"|(?<![^{_NO_VARIANTS}])[\ufe00-\ufe0f]"
    f"|(?<![{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
_STEERING = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def format_code_point(character: str) -> str:
    """Return the character's code point, such as ``U+202E``."""
    return f"U+{ord(character):04X}"


def show_controls(text: str) -> str:
    """Replace each control character by its code point, such as ``<U+001B>``."""
    return _CONTROLS.sub(lambda found: f"<{format_code_point(found[0])}>", text)


def show_unseen(text: str) -> str:
    """Replace each other invisible character by its code point, such as ``<U+202E>``."""
    return text if text.isascii() else _UNSEEN.sub(lambda found: f"<{format_code_point(found[0])}>", text)


def format_line(text: str) -> str:
    """Format text as one line, such as a commit subject, with invisible characters shown by code point."""
    return show_controls(show_unseen(" ".join(text.split())))


def shorten(text: str, most: int) -> str:
    """Return ``text`` as one line of at most ``most`` characters.

    >>> shorten("in two\\nlines", 9)
    'in two...'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def cut_end(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text, and how many more there are.

    >>> cut_end("in two\\nlines", 6)
    'in two\\n[... 6 more characters]'
    """
    return text if len(text) <= most else f"{text[:most]}\n[... {len(text) - most} more characters]"


def fence(text: str, *, language: str = "") -> str:
    """Return a text as a block of Markdown, between marks that are longer than any in it."""
    marks = "`" * (max((len(found) for found in re.findall("`{3,}", text)), default=2) + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def find_unseen(text: str) -> list[str]:
    """Return the invisible characters of ``text`` in order, without control characters."""
    return [] if text.isascii() else _UNSEEN.findall(text)


def find_controls(text: str) -> list[str]:
    """Return the control characters of ``text`` in order."""
    return _CONTROLS.findall(text)


def find_steering(text: str) -> list[str]:
    """Return bidirectional overrides and invisible tag characters, which source code never needs."""
    return [] if text.isascii() else _STEERING.findall(text)


def require_visible(after: str, *, before: str) -> None:
    """Raise ``UsageError`` if ``after`` holds a control or steering character that ``before`` does not."""
    added = set(find_controls(after) + find_steering(after)) - set(before)
    if added:
        first = min(after.index(character) for character in added)
        raise UsageError(
            f"The text contains invisible characters: {format_counts(sorted(added))}, first in line "
            f"{after.count(chr(10), 0, first) + 1} of the file. Nothing was changed.",
            hint="remove them, or write them as escape sequences, such as \\x1b or \\u202e",
        )


def format_counts(characters: Sequence[str]) -> str:
    """Format characters by code point and count, the most frequent first, at most ``SHOWN_KINDS``."""
    kinds = Counter(map(format_code_point, characters))
    shown = [name if count == 1 else f"{count} x {name}" for name, count in kinds.most_common(SHOWN_KINDS)]
    more = [f"{len(kinds) - SHOWN_KINDS} kinds more"] if len(kinds) > SHOWN_KINDS else []
    return ", ".join([*shown, *more])


def format_counts_by_line(lines: Mapping[int, str]) -> str:
    """Format which of the ``lines`` (number -> text) hold which invisible characters; empty if none do."""
    found = [f"line {at} {format_counts(unseen)}" for at, line in lines.items() if (unseen := find_unseen(line))]
    return join_first(found, most=SHOWN_LINES, separator="; ")


_ESCAPE_SEQUENCES = re.compile(
    # Possessive quantifiers: hostile input must not cause backtracking.
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI: colors, cursor, clearing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC that end in the same line
    r"|\x1b[ -/]*+[0-~]?"  # any other, or an incomplete one, which would swallow the text after it
)
_TERMINAL_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    r"""Remove escape sequences and control characters, and show other invisible characters by code point.

    Line feeds and tabs stay. The time is linear in the length of the text.

    >>> clean("\x1b[2Jred\u202e!")
    'red<U+202E>!'
    """
    # A lone surrogate would make print() raise.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")
    text = _ESCAPE_SEQUENCES.sub("", text) if "\x1b" in text else text
    return show_unseen(_TERMINAL_CONTROLS.sub("", text))
