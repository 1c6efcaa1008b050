"""Long pastes: each is one character of the line, drawn as a chip, and is sent whole.

Keys that arrive at once: nobody types so fast, so text among them is a paste, whatever the terminal says.

What is typed before anything is asked: the terminal does not show it, and it answers nothing.
"""

import re
import select
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import groupby

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

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


LONG_LINES = 15
LONG_CHARACTERS = 1_000
"""From either on, a paste is shown as a chip."""
_SHORT_LINE = 80
"""Characters of a first line that stays beside the chip of an old message."""

_FIRST_MARK = 0x100000
_LAST_MARK = 0x10FFFD
_MARK = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]")
"""Characters for private use, which no font and no text has: the nth stands for the nth long paste."""


class Pastes:
    """The long pastes of one sitting.

    Since a chip is one character, whatever deletes, moves, copies or brings back a character does so with the paste,
    and what a person types can never be one.
    """

    def __init__(self) -> None:
        """There are none yet."""
        self._texts: list[str] = []
        self._labels: list[str] = []
        self._pasted = 0

    def taken(self, text: str) -> str:
        """What goes into the line for a paste: the text itself, or one character that stands for it."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        self._pasted += 1
        return self._chip(text, f"[pasted {_size(text)} #{self._pasted}]")

    def folded(self, text: str) -> str:
        """A message of earlier as it comes back to the line: if it is long, its first line and a chip for the rest."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        first, line_feed, rest = text.partition("\n")
        if not line_feed or len(first) > _SHORT_LINE or _MARK.search(first):
            return self._chip(text, f"[{_size(text)}]")
        return first + self._chip(f"{line_feed}{rest}", f" [{_size(rest)} more]")

    def whole(self, text: str) -> str:
        """``text`` with each chip's paste in its place."""
        return _MARK.sub(lambda found: self._texts[_number(found[0])] if self.label(found[0]) else found[0], text)

    def label(self, character: str) -> str | None:
        """How a character is drawn if it is a chip."""
        number = _number(character)
        return self._labels[number] if 0 <= number < len(self._labels) else None

    def _chip(self, text: str, label: str) -> str:
        """A new chip for ``text``; the text itself once there are no more marks."""
        if len(self._texts) > _LAST_MARK - _FIRST_MARK:
            return text
        self._texts.append(text)
        self._labels.append(label)
        return chr(_FIRST_MARK + len(self._texts) - 1)


class ChipProcessor(Processor):
    """Draws chips in the place of their characters."""

    def __init__(self, pastes: Pastes) -> None:
        """``pastes`` says which characters are chips."""
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """One line as it is drawn, and where each of its characters stands then."""
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


def _number(character: str) -> int:
    return ord(character) - _FIRST_MARK if len(character) == 1 else -1


def _is_long(text: str) -> bool:
    return len(text) >= LONG_CHARACTERS or _lines(text) >= LONG_LINES


def _lines(text: str) -> int:
    return text.strip("\n").count("\n") + 1


def _size(text: str) -> str:
    """``40 lines``, or ``1,200 characters`` of a single one."""
    lines = _lines(text)
    return f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
