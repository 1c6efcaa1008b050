"""Text from models, tests and files made safe for a terminal. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from cdd_agent.errors import UsageError

SHOWN_KINDS = 4


SHOWN_LINES = 8


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


def number(character: str) -> str:
    """The character as Unicode names it, such as ``U+202E``."""
    return f"U+{ord(character):04X}"


def show_controls(text: str) -> str:
    """``text`` with each control character as ``<U+001B>``."""
    return _CONTROLS.sub(lambda found: f"<{number(found[0])}>", text)


def show_unseen(text: str) -> str:
    """``text`` with each unseen character that is no control as ``<U+202E>``."""
    return text if text.isascii() else _UNSEEN.sub(lambda found: f"<{number(found[0])}>", text)


def in_one_line(text: str) -> str:
    """``text`` as a line for people, such as a commit's subject: what cannot be seen is shown by number."""
    return show_controls(show_unseen(" ".join(text.split())))


def unseen(text: str) -> list[str]:
    """The unseen characters of ``text`` that are no controls, in order."""
    return [] if text.isascii() else _UNSEEN.findall(text)


def controls(text: str) -> list[str]:
    """The control characters of ``text``, in order."""
    return _CONTROLS.findall(text)


def steering(text: str) -> list[str]:
    """Characters that turn the order of letters round or spell words that nobody sees; code never needs one."""
    return [] if text.isascii() else _STEERING.findall(text)


def require_seen(after: str, *, before: str) -> None:
    """Raise ``UsageError`` if ``after`` holds a control character, or one that steers, of a kind not in ``before``."""
    added = set(controls(after) + steering(after)) - set(before)
    if added:
        first = min(after.index(character) for character in added)
        raise UsageError(
            f"The text holds characters that no reader would see: {told(sorted(added))}, first in line "
            f"{after.count(chr(10), 0, first) + 1} of the file. Nothing was changed.",
            hint="leave them out, or write them as escapes of the language, such as \\x1b or \\u202e",
        )


def told(characters: Sequence[str]) -> str:
    """The characters by number with their counts, the most frequent first, a few kinds at most."""
    return _counted(Counter(map(number, characters)))


def told_by_line(lines: Mapping[int, str]) -> str:
    """Where the unseen characters are in ``lines`` (number -> text), a few lines at most; empty if there are none."""
    found = {at: _counted(Counter(map(number, unseen(line)))) for at, line in lines.items() if unseen(line)}
    shown = [f"line {at} {kinds}" for at, kinds in list(found.items())[:SHOWN_LINES]]
    more = [f"and {len(found) - SHOWN_LINES} more lines"] if len(found) > SHOWN_LINES else []
    return "; ".join([*shown, *more])


def _counted(kinds: Counter[str]) -> str:
    """``2 x U+202E, U+200B``."""
    shown = [name if count == 1 else f"{count} x {name}" for name, count in kinds.most_common(SHOWN_KINDS)]
    more = [f"{len(kinds) - SHOWN_KINDS} kinds more"] if len(kinds) > SHOWN_KINDS else []
    return ", ".join([*shown, *more])


_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI: colors, cursor, clearing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC that end in the same line
    r"|\x1b[ -/]*+[0-~]?"  # any other, or only the beginning of one that swallows what follows
)
_TERMINAL_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    r"""``text`` without escape sequences and control characters, and with characters shown that cannot be seen.

    Line feeds and tabs stay. In time linear to the length of the text.

    >>> clean("\x1b[2Jred\u202e!")
    'red<U+202E>!'
    """
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")
    text = _ESCAPE_SEQUENCES.sub("", text) if "\x1b" in text else text
    return show_unseen(_TERMINAL_CONTROLS.sub("", text))
