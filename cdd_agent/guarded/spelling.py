"""Names as the most forgiving file system would compare them, so that no spelling of a guarded name gets past. Pure."""

import unicodedata

_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


def folded(name: str) -> str:
    """One component of a path with case, width, invisible characters, and dots and blanks at its end gone.

    What follows a colon is dropped: to NTFS it names a stream of the same file. ``.`` and ``..`` stay as they are.
    """
    if name.strip(".") == "":
        return name
    plain = name if name.isascii() else _unadorned(name)
    return plain.lower().partition(":")[0].rstrip(". \t\r\n")


def _unadorned(name: str) -> str:
    """``name`` without what cannot be seen, in compatibility form, its case folded."""
    visible = "".join(
        letter
        for letter in name
        if unicodedata.category(letter) != "Cf" and ord(letter) not in _VARIATION_SELECTORS and letter != "\u034f"
    )
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
