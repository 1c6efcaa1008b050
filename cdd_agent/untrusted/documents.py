"""YAML looked through event by event, which takes neither recursion nor memory, before a loader sees it.

A loader may be led to recurse until the process dies, to repeat a value a billion times by aliases, to make objects by
tags (and to fail on them with any exception), and to drop all but the last of a key that is there twice.

The one error of this package.

JSON looked through before it is decoded: readers differ in what they make of a key that is there twice.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml


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


def check_json(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for what no reader should see, and another ``ValueError`` for what is no JSON."""
    check_size(text, limit_bytes=limit_bytes)
    try:
        json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise UnfitError("it is nested too deeply") from error


def _once(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise UnfitError(f"the key '{name:.80}' is there twice")
        seen.add(name)


MOST_VALUES = 50_000
MOST_LEVELS = 50
MOST_ALIASES = 100
MOST_REPEATED = 20_000
"""Values that aliases put in once more, all together."""

_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
"""Those that say no more than the form does."""


def check_yaml(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for what no loader should see, and ``yaml.YAMLError`` for what is no YAML."""
    check_size(text, limit_bytes=limit_bytes)
    check_events(_events(text))


def check_events(
    events: Iterable["yaml.Event"], *, limit_values: int = MOST_VALUES, limit_repeated: int = MOST_REPEATED
) -> None:
    """Raise ``UnfitError`` at the first event of a document that no loader should see.

    ``limit_repeated`` is for the values that aliases repeat, all together.
    """
    seen = _Seen(limit_values=limit_values, limit_repeated=limit_repeated)
    for event in events:
        seen.take(event)


def _events(text: str) -> Iterator["yaml.Event"]:
    import yaml

    yield from yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))


@dataclass(slots=True)
class _Collection:
    """A list or map that has begun."""

    anchor: str | None
    is_map: bool
    size: int = 1
    """Values in it, itself and those that aliases repeat included."""
    is_key: bool = True
    """Of a map: whether the next value is a key."""
    keys: dict[str, int] = field(default_factory=dict)
    """Each key with its line."""


class _Seen:
    """What the events so far come to."""

    def __init__(self, *, limit_values: int, limit_repeated: int) -> None:
        self._limit_values = limit_values
        self._limit_repeated = limit_repeated
        self._open: list[_Collection] = []
        self._sizes: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._values = self._aliases = self._repeated = 0

    def take(self, event: "yaml.Event") -> None:
        """Add one event; raises ``UnfitError``."""
        import yaml

        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.AliasEvent():
                self._alias(event.anchor or "", line)
            case yaml.ScalarEvent():
                self._check_tag(event.tag, line)
                self._check_text(event.value, line)
                if event.anchor:
                    self._sizes[event.anchor], self._texts[event.anchor] = 1, event.value
                self._value(event.value, line, size=1)
            case yaml.CollectionStartEvent():
                self._check_tag(event.tag, line)
                self._open.append(_Collection(event.anchor, isinstance(event, yaml.MappingStartEvent)))
                if len(self._open) > MOST_LEVELS:
                    raise UnfitError(f"more than {MOST_LEVELS} levels", line=line)
            case yaml.CollectionEndEvent():
                ended = self._open.pop()
                if ended.anchor:
                    self._sizes[ended.anchor] = ended.size
                    self._texts.pop(ended.anchor, None)
                self._value(None, line, size=ended.size)

    def _alias(self, anchor: str, line: int) -> None:
        self._aliases += 1
        self._repeated += self._sizes.get(anchor, 1)
        if self._aliases > MOST_ALIASES:
            raise UnfitError(f"more than {MOST_ALIASES} aliases", line=line)
        if self._repeated > self._limit_repeated or any(outer.anchor == anchor for outer in self._open):
            raise UnfitError("its aliases expand without end", line=line, hint="write the values out")
        self._value(self._texts.get(anchor), line, size=self._sizes.get(anchor, 1))

    def _value(self, text: str | None, line: int, *, size: int) -> None:
        """Count a whole value to what holds it; ``text`` is None for a collection."""
        self._values += 1
        if self._values > self._limit_values:
            raise UnfitError(f"more than {self._limit_values} values", line=line)
        if not self._open:
            return
        within = self._open[-1]
        within.size += size
        if within.is_map and within.is_key and text is not None:
            first = within.keys.get(text)
            if first is not None:
                message = f"the key '{text:.80}' is there twice, first in line {first}"
                raise UnfitError(message, line=line, hint="keep one of them")
            within.keys[text] = line
        within.is_key = not within.is_key

    def _check_tag(self, tag: str | None, line: int) -> None:
        if tag not in _TAGS:
            raise UnfitError(f"the tag {tag:.80} is not allowed", line=line, hint="remove it; every value is text")

    def _check_text(self, text: str, line: int) -> None:
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UnfitError("half a character (a lone surrogate) is in it", line=line)
