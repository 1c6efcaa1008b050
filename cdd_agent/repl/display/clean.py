"""Text from models, tests and files made safe for a terminal. Pure."""

import re

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor, clearing
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC up to their end
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def clean(text: str) -> str:
    r"""``text`` without escape sequences and control characters, and with invisible characters shown.

    Line feeds and tabs stay.

    >>> clean("\x1b[2Jred\u202e!")
    'red<U+202E>!'
    """
    text = _ESCAPE_SEQUENCES.sub("", text.replace("\r\n", "\n"))
    text = _CONTROLS.sub("", text)
    text = _INVISIBLE.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)
    return text.encode("utf-8", "replace").decode("utf-8")
