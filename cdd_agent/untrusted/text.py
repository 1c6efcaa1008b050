"""Text from models, tests and files made safe for a terminal. Pure."""

import re

from cdd_agent.agent.quoting import show_unseen

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI: colors, cursor, clearing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC that end in the same line
    r"|\x1b[ -/]*+[0-~]?"  # any other, or only the beginning of one that swallows what follows
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    r"""``text`` without escape sequences and control characters, and with characters shown that cannot be seen.

    Line feeds and tabs stay. In time linear to the length of the text.

    >>> clean("\x1b[2Jred\u202e!")
    'red<U+202E>!'
    """
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")
    text = _ESCAPE_SEQUENCES.sub("", text) if "\x1b" in text else text
    return show_unseen(_CONTROLS.sub("", text))
