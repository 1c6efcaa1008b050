"""Pastes at the prompt: they are recognized by speed, and long ones become chips in the line.

A terminal without bracketed paste sends a paste as keys, whose first Enter would send the first line. Nobody types that
fast, so text among keys that arrive together counts as a paste.
"""

import re
import select
from bisect import bisect_right
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import groupby

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

from cdd_agent.repl.terminal import BURST_S, SHORTEST_PASTE

MOST_KEYS = 100_000
LONGEST_TYPED = 32
"""A longer run of text is a paste, even without a line break."""
LONG_LINES = 15
LONG_CHARACTERS = 1_000
"""A paste with this many lines or characters becomes a chip."""
_SHORT_LINE = 80
"""A first line of at most this length is shown beside the chip of an old message."""

_ENTER = KeyPress(Keys.ControlM, "\r")
_LINE_FEED = KeyPress(Keys.ControlJ, "\n")
_LINE_ENDS = (Keys.ControlM, Keys.ControlJ)

# Private-use characters: no font draws them and no text contains them. The nth represents the nth chip.
_FIRST_MARK = 0x100000
_LAST_MARK = 0x10FFFD
_MARK = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]")


class BurstInput:
    """Wraps an input and turns bursts of text into pastes. All other methods are those of the input."""

    def __init__(self, inner: Input) -> None:
        """Read the keys from ``inner``."""
        self._inner = inner
        self._has_waited = False

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the input."""
        return getattr(self._inner, name)

    def read_keys(self) -> list[KeyPress]:
        """Return the keys that have arrived, each paste as one key."""
        keys = self._inner.read_keys()
        while 1 < len(keys) < MOST_KEYS and not self._inner.closed and self._has_more(BURST_S):
            keys += self._inner.read_keys()
        if self._has_waited and keys:
            self._has_waited = False
            keys = restore_enter(keys)
        return group_pastes(keys)

    def attach(self, input_ready_callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``input_ready_callback`` for new keys inside the context."""
        self._has_waited = self._has_more(0)
        return self._inner.attach(input_ready_callback)

    def _has_more(self, within_s: float) -> bool:
        return bool(select.select([self._inner.fileno()], [], [], within_s)[0])


def restore_enter(keys: list[KeyPress]) -> list[KeyPress]:
    """Return keys typed before the prompt appeared, with Enter at the end where the terminal sent a line feed."""
    return [*keys[:-1], _ENTER] if keys[-1].key == Keys.ControlJ else keys


def group_pastes(keys: list[KeyPress]) -> list[KeyPress]:
    """Return the keys of a burst with pasted text as one paste and Alt-Enter as a line feed."""
    joined: list[KeyPress] = []
    for key in keys:
        # A terminal sends Alt-Enter as Escape and Enter in one burst; pressed one by one, they arrive apart.
        if key.key == Keys.ControlM and joined and joined[-1].key == Keys.Escape:
            joined[-1] = _LINE_FEED
        else:
            joined.append(key)
    runs = groupby(joined, key=_is_text)
    return [key for is_text, run in runs for key in (_as_paste(list(run)) if is_text else run)]


def _is_text(key: KeyPress) -> bool:
    return key.key in (*_LINE_ENDS, Keys.ControlI) or (not isinstance(key.key, Keys) and len(key.key) == 1)


def _as_paste(run: list[KeyPress]) -> list[KeyPress]:
    """Return a run of text as a paste and its final line end, or unchanged if a person can have typed it."""
    text = "".join("\r" if key.key == Keys.ControlM else "\n" if key.key == Keys.ControlJ else key.data for key in run)
    pasted = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    is_long = len(pasted) > LONGEST_TYPED and "\t" not in pasted
    if not is_long and ("\n" not in pasted or len(pasted) < SHORTEST_PASTE):
        return run
    end = [run[-1]] if run[-1].key in _LINE_ENDS else []
    return [KeyPress(Keys.BracketedPaste, pasted), *end]


class Pastes:
    """The long pastes of a session.

    In the line, a long paste is one character. Deleting, moving or copying that character therefore acts on the whole
    paste, and nothing that the user types can be mistaken for one.
    """

    def __init__(self) -> None:
        """Start without pastes."""
        self._texts: dict[str, str] = {}
        """Chip -> the paste that it represents."""
        self._labels: dict[str, str] = {}
        self._pasted = 0

    def shorten(self, text: str) -> str:
        """Return a pasted text, or one character in its place if it is long."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        self._pasted += 1
        return self._add_chip(text, f"[pasted {_format_size(text)} #{self._pasted}]")

    def fold(self, text: str) -> str:
        """Return a message from the history; of a long one, the first line and a chip."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        first, line_feed, rest = text.partition("\n")
        if not line_feed or len(first) > _SHORT_LINE or _MARK.search(first):
            return self._add_chip(text, f"[{_format_size(text)}]")
        return first + self._add_chip(f"{line_feed}{rest}", f" [{_format_size(rest)} more]")

    def expand(self, text: str) -> str:
        """Return ``text`` with every chip replaced by its paste."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def label(self, character: str) -> str | None:
        """Return the label of a chip, or None for any other character."""
        return self._labels.get(character)

    def _add_chip(self, text: str, label: str) -> str:
        if len(self._texts) > _LAST_MARK - _FIRST_MARK:  # all marks are in use
            return text
        chip = chr(_FIRST_MARK + len(self._texts))
        self._texts[chip], self._labels[chip] = text, label
        return chip


class ChipProcessor(Processor):
    """Draws chips as their labels."""

    def __init__(self, pastes: Pastes) -> None:
        """Draw the chips of ``pastes``."""
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is drawn, with the positions of its characters."""
        fragments = transformation_input.fragments
        if not _MARK.search(fragment_list_to_text(fragments)):
            return Transformation(fragments)
        shown: StyleAndTextTuples = []
        starts = []
        end = 0
        for fragment in explode_text_fragments(fragments):
            starts.append(end)
            label = self._pastes.label(fragment[1])
            shown.append(fragment if label is None else (f"{fragment[0]} class:chip", label))
            end += len(shown[-1][1])
        starts.append(end)
        return Transformation(
            shown,
            source_to_display=lambda at: starts[at] if at < len(starts) else end + at - len(starts) + 1,
            display_to_source=lambda at: bisect_right(starts, at) - 1 if at < end else len(starts) - 1 + at - end,
        )


def _is_long(text: str) -> bool:
    return len(text) >= LONG_CHARACTERS or _count_lines(text) >= LONG_LINES


def _count_lines(text: str) -> int:
    return text.strip("\n").count("\n") + 1


def _format_size(text: str) -> str:
    lines = _count_lines(text)
    return f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
