"""What is drawn besides letters, on the screen and below the prompt, and what takes its place in ASCII."""

from collections.abc import Mapping

_NAMES = ("open", "closed", "tool", "commit", "back", "note", "todo", "cut", "bar")

SYMBOLS: Mapping[str, str] = dict(zip(_NAMES, "✔✘→●↶•○…│", strict=True))
ASCII: Mapping[str, str] = dict(zip(_NAMES, "+x>*<-o~|", strict=True))


def symbols_for(encoding: str | None, *, besides: str = "") -> Mapping[str, str]:
    """``SYMBOLS`` where a terminal of that encoding can show them, and what is shown ``besides``; else ``ASCII``."""
    try:
        ("".join(SYMBOLS.values()) + besides).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return SYMBOLS
