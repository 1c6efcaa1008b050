"""The key of the model's service: taken out of the environment once, and shown to nobody by accident.

What a run lets out: events in which no key is, neither that of the model's service nor a text shaped like one.

A server, or a model, can repeat what it was sent. So every text of every event is looked through before a screen, a
journal or a program that reads the events gets it, and the pieces in which a model's text comes are cut anew, so that
none ends inside a key.
"""

import os
from collections.abc import Iterator

VARIABLE = "ANTHROPIC_API_KEY"
HIDDEN = "(the key)"
"""What stands in the place of the key."""

_SHORTEST = 8
"""A key below it, as local servers take, is no secret, and would be found in ordinary words."""
_START = 20
"""Characters of a key by which a service or a person would know it."""
_PR_SET_DUMPABLE = 4

_TAKEN: list["Secret"] = []
"""The key of this process, once it is taken: a crash report has to leave it out, wherever the defect is."""


class Secret:
    """A text that neither ``repr``, ``vars`` nor a pickle shows."""

    __slots__ = ("_tell",)

    def __init__(self, text: str) -> None:
        """``text`` is taken without white space around it; it may be empty."""
        stripped = text.strip()

        def tell() -> str:
            return stripped

        self._tell = tell

    def __repr__(self) -> str:
        """Never the text."""
        return f"<{HIDDEN}>"

    def __reduce__(self) -> str:
        """Raise ``TypeError``: a copy on a disk would be one too many."""
        raise TypeError("a key is never pickled")

    def __bool__(self) -> bool:
        """Whether there is one at all."""
        return bool(self._tell())

    def tell(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._tell()

    def is_in(self, text: str) -> bool:
        """Whether ``text`` holds the key, its beginning, or its base64."""
        return any(form in text for form in self._forms())

    def hidden_in(self, text: str) -> str:
        """``text`` with ``(the key)`` wherever ``is_in`` would find it."""
        for form in self._forms():
            text = text.replace(form, HIDDEN)
        return text

    def _forms(self) -> Iterator[str]:
        """What would give the key away, the longest first."""
        text = self._tell()
        if len(text) < _SHORTEST:
            return
        import base64  # here, not above: the key is taken before it is known what is asked for

        encoded = text.encode("utf-8", "surrogateescape")
        yield base64.b64encode(encoded).decode().rstrip("=")
        yield base64.urlsafe_b64encode(encoded).decode().rstrip("=")
        yield text
        if len(text) > _START:
            yield text[:_START]


def take() -> Secret | None:
    """The key of this process's environment, which no longer holds it; None if there was none.

    It is overwritten where the process began, too: ``/proc/PID/environ`` shows that memory for as long as the process
    lives, whatever becomes of ``os.environ``.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    _overwrite(VARIABLE, len(os.fsencode(text)))
    del os.environ[VARIABLE]
    _TAKEN[:] = [Secret(text)]
    return _TAKEN[0]


def hidden(text: str, *, key: Secret | None = None) -> str:
    """``text`` as it may be shown or kept: without ``key``, the key of this process, and what is shaped like one."""
    from cdd_agent.untrusted.keys import mask

    for known in (*_TAKEN, *([] if key is None else [key])):
        text = known.hidden_in(text)
    return mask(text).text


def close_memory() -> None:
    """Let no other process of this user read or stop this one (Linux): its memory, environment, a debugger.

    Programs that it starts are not affected. Nor is a crash report, which the process writes itself; the system
    keeps no core file of it.
    """
    import ctypes  # here, not above: `cdd --version` has no need of it

    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _overwrite(variable: str, length: int) -> None:
    """Write over the value of ``variable`` where the C library keeps it."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(variable.encode())
    if address:
        ctypes.memset(address, ord("x"), length)
