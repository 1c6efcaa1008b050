"""The API key: take it out of the environment, and keep it out of everything that is shown or saved."""

import os
from collections.abc import Iterator

VARIABLE = "ANTHROPIC_API_KEY"
HIDDEN = "(the key)"
"""The text that replaces the key."""

# A shorter key, as local servers accept, is not a secret, and ordinary words may contain it.
_MIN_SECRET = 8
# The start of a key is enough to identify it.
_START = 20
_PR_SET_DUMPABLE = 4

# The key of this process. It is global because a crash report must omit it wherever the crash happens.
_TAKEN: list["Secret"] = []


class Secret:
    """A text that ``repr``, ``vars`` and pickle do not show."""

    __slots__ = ("_reveal",)

    def __init__(self, text: str) -> None:
        """Hold ``text``, which may be empty, without surrounding white space."""
        stripped = text.strip()

        # A closure hides the text from vars() and serializers.
        def reveal() -> str:
            return stripped

        self._reveal = reveal

    def __repr__(self) -> str:
        """Return a placeholder."""
        return f"<{HIDDEN}>"

    def __reduce__(self) -> str:
        """Raise ``TypeError``, so that the text is never saved."""
        raise TypeError("a key cannot be pickled")

    def __bool__(self) -> bool:
        """Return whether the text is not empty."""
        return bool(self._reveal())

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self._reveal()

    def is_in(self, text: str) -> bool:
        """Return whether ``text`` contains the key, its start, or its base64 form."""
        return any(form in text for form in self._iter_forms())

    def hide_in(self, text: str) -> str:
        """Replace everything that ``is_in`` finds in ``text`` by ``(the key)``."""
        for form in self._iter_forms():
            text = text.replace(form, HIDDEN)
        return text

    def _iter_forms(self) -> Iterator[str]:
        # Longest first, so that a replacement leaves no rest of a longer form.
        text = self._reveal()
        if len(text) < _MIN_SECRET:
            return
        import base64  # Not at the top: every command takes the key, few search for it.

        encoded = text.encode("utf-8", "surrogateescape")
        yield base64.b64encode(encoded).decode().rstrip("=")
        yield base64.urlsafe_b64encode(encoded).decode().rstrip("=")
        yield text
        if len(text) > _START:
            yield text[:_START]


def take_key() -> Secret | None:
    """Remove the key from the environment of this process and return it; None if there was none."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    import ctypes

    # /proc/PID/environ shows the initial memory of the process, which `del os.environ[...]` does not clear.
    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(VARIABLE.encode())
    if address:
        ctypes.memset(address, ord("x"), len(os.fsencode(text)))
    del os.environ[VARIABLE]
    _TAKEN[:] = [Secret(text)]
    return _TAKEN[0]


def redact_keys(text: str, *, key: Secret | None = None) -> str:
    """Remove ``key``, the key of this process, and texts shaped like keys from ``text``."""
    from cdd_agent.untrusted.keys import mask

    for known in (*_TAKEN, *([] if key is None else [key])):
        text = known.hide_in(text)
    return mask(text).text


def protect_memory() -> None:
    """Prevent other processes of this user from reading or debugging this one (Linux), and core files of it."""
    import ctypes  # Not at the top: `cdd --version` does not need it.

    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
