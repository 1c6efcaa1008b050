"""``clean``: only text, line feeds and tabs are left of anything, and cleaning it again changes nothing.

``python -c "from tests.fuzz import terminal; print(terminal.run(1_000_000, 7))"``
"""

import re
from random import Random

from cdd_agent.untrusted.text import clean
from tests.fuzz.figures import Figures
from tests.fuzz.trial import Broken, Target

_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f\ud800-\udfff]")
_PIECES = (
    *("\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b^", "\x1b_", "\x1bX", "\x1b\\", "\x1bc", "\x1b(", "\x1b]8;;", "\x1b[8m"),
    *("\x07", "\x08", "\r", "\r\n", "\n", "\t", "\x00", "\x7f", "\x9b", "\x9d", "\x90", "\x9c", "\x85", "\x9b2J"),
    *(
        "2J",
        ";",
        "0",
        "m",
        "H",
        "http://x",
        "52;c;",
        "?25h",
        " ",
        "text",
        "é",
        "漢",
        "#",
        "1",
        "❤",
        "👩",
        "🔥",
        "م",
        "葛",
    ),
    *("\u202e", "\u2066", "\u200b", "\u200c", "\u200d", "\u00ad", "\ufeff", "\ufe0e", "\ufe0f", "\ufe00", "\u2028"),
    *("\U000e0001", "\U000e0041", "\U000e007f", "\U000e0101", "\U000e01ef", "\udc80", "\ud83d", "\ude00", "\u3164"),
)


def make(random: Random) -> str:
    """Pieces of escape sequences and of text, and now and then any character at all."""
    pieces = random.choices(_PIECES, k=random.randint(1, 12))
    if random.random() < 0.2:
        pieces.insert(random.randrange(len(pieces)), chr(random.randrange(0x110000)))
    return "".join(pieces)


def read(text: str) -> None:
    """Clean ``text``; raise ``Broken`` for what is left in it that is not text, and if it is not clean then."""
    shown = clean(text)
    left = _NOT_TEXT.search(shown)
    if left is not None:
        raise Broken(f"U+{ord(left[0]):04X} is left")
    if clean(shown) != shown:
        raise Broken("cleaning it again changes it")


TARGET = Target(make=make, read=read, allowed=())


def run(count: int, seed: int) -> Figures:
    """Try ``count`` texts."""
    return TARGET.run(count, seed)
