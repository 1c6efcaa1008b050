"""Long pastes: each is one character of the line, drawn as a chip, and is sent whole."""

import re
from bisect import bisect_right

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

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
