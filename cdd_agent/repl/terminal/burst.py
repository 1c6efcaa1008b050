"""Keys that arrive at once: nobody types so fast, so text among them is a paste, whatever the terminal says."""

import select
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import groupby

from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

WITHIN_S = 0.01
"""Keys that follow others within this time belong to the same burst."""
MOST_KEYS = 100_000
"""Of one burst; what comes after them is the next one."""
LONGEST_TYPED = 32
"""A longer run of text is a paste, even without a line break in it."""

_ENTER = KeyPress(Keys.ControlM, "\r")
_LINE_FEED = KeyPress(Keys.ControlJ, "\n")
_LINE_ENDS = (Keys.ControlM, Keys.ControlJ)


class BurstInput(Input):
    """An input that tells pastes from typing where the terminal does not bracket them.

    Without that, the first line of a pasted block would be sent on its own, and the next ones after it.
    """

    def __init__(self, inner: Input) -> None:
        """``inner`` is what the keys are read from."""
        self._inner = inner
        self._has_waited = False

    def read_keys(self) -> list[KeyPress]:
        """The keys that have arrived, pastes among them as one key."""
        keys = self._inner.read_keys()
        while 1 < len(keys) < MOST_KEYS and not self.closed and self._follows(WITHIN_S):
            keys += self._inner.read_keys()
        if self._has_waited and keys:
            self._has_waited = False
            keys = as_sent_by_a_line(keys)
        return as_pastes(keys)

    def attach(self, input_ready_callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``input_ready_callback`` when there are keys, as long as the context lasts."""
        self._has_waited = self._follows(0)
        return self._inner.attach(input_ready_callback)

    def _follows(self, within_s: float) -> bool:
        """Whether more arrives within that time."""
        return bool(select.select([self._inner.fileno()], [], [], within_s)[0])

    def flush_keys(self) -> list[KeyPress]:
        """What may have been the beginning of a longer sequence, and was not."""
        return self._inner.flush_keys()

    def fileno(self) -> int:
        """The descriptor that is read."""
        return self._inner.fileno()

    def typeahead_hash(self) -> str:
        """What keys read too early are kept under."""
        return self._inner.typeahead_hash()

    @property
    def closed(self) -> bool:
        """Whether no more can come."""
        return self._inner.closed

    def raw_mode(self) -> AbstractContextManager[None]:
        """The terminal gives each key as it is pressed, as long as the context lasts."""
        return self._inner.raw_mode()

    def cooked_mode(self) -> AbstractContextManager[None]:
        """The terminal gives whole lines, as long as the context lasts."""
        return self._inner.cooked_mode()

    def detach(self) -> AbstractContextManager[None]:
        """Nothing is read here, as long as the context lasts."""
        return self._inner.detach()

    def close(self) -> None:
        """Let go of what is read."""
        self._inner.close()


def as_sent_by_a_line(keys: list[KeyPress]) -> list[KeyPress]:
    """``keys`` that waited before the prompt was there: the terminal has made a line feed of an Enter at their end."""
    return [*keys[:-1], _ENTER] if keys[-1].key == Keys.ControlJ else keys


def as_pastes(keys: list[KeyPress]) -> list[KeyPress]:
    """``keys`` of one burst, text in them that nobody has typed as one paste, and Alt-Enter as a line feed."""
    runs = groupby(_with_alt_enter(keys), key=_is_text)
    return [key for is_text, run in runs for key in (_as_paste(list(run)) if is_text else run)]


def _with_alt_enter(keys: list[KeyPress]) -> Iterator[KeyPress]:
    """A terminal sends Alt-Enter as Escape and Enter at once; pressed one after the other they come apart."""
    left = iter(keys)
    for key in left:
        if key.key != Keys.Escape:
            yield key
            continue
        following = next(left, None)
        if following is not None and following.key == Keys.ControlM:
            yield _LINE_FEED
        else:
            yield from (key,) if following is None else (key, following)


def _is_text(key: KeyPress) -> bool:
    return key.key in (*_LINE_ENDS, Keys.ControlI) or (not isinstance(key.key, Keys) and len(key.key) == 1)


def _as_paste(run: list[KeyPress]) -> list[KeyPress]:
    """One paste, and a line end behind it as the key that it was; or the run as it is, if it can have been typed."""
    text = "".join("\r" if key.key == Keys.ControlM else "\n" if key.key == Keys.ControlJ else key.data for key in run)
    pasted = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    is_long = len(pasted) > LONGEST_TYPED and "\t" not in pasted
    if not ("\n" in pasted or is_long):
        return run
    end = [run[-1]] if run[-1].key in _LINE_ENDS else []
    return [KeyPress(Keys.BracketedPaste, pasted), *end]
