"""The one error of this package."""


class UnfitError(ValueError):
    """A document would exhaust or mislead its reader: too large, too deep, or a key that is there twice."""

    def __init__(self, message: str, *, line: int = 0, hint: str = "") -> None:
        """``line`` is 1-based; 0 where the whole document is meant. ``hint`` says what to write instead."""
        super().__init__(message)
        self.line = line
        self.hint = hint


def check_size(text: str, *, limit_bytes: int) -> None:
    """Refuse a text that is longer in UTF-8, or that UTF-8 cannot hold."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UnfitError(f"half a character (U+{ord(text[error.start]):04X}) is in it") from error
    if size > limit_bytes:
        raise UnfitError(f"it has {size} bytes; at most {limit_bytes} are read")
