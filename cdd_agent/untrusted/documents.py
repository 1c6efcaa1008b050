"""Checks YAML and JSON from others before a loader reads them.

A hostile YAML document can make a loader recurse until the process dies, expand aliases a billion times, or create
objects by tags. It can also hide a value behind a duplicate key, since loaders keep only the last one. YAML is
therefore checked event by event, in constant stack depth. JSON is checked for its size and for duplicate keys.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import yaml


class UnfitError(ValueError):
    """A document that would exhaust or mislead its reader: too large, too deep, or with a duplicate key."""

    def __init__(self, message: str, *, line: int = 0, hint: str = "") -> None:
        """Create the error; ``line`` is 1-based, or 0 for the whole document."""
        super().__init__(message)
        self.line = line
        self.hint = hint


def check_size(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` if the UTF-8 encoding is longer, or if the text has a lone surrogate."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UnfitError(f"it contains a lone surrogate (U+{ord(text[error.start]):04X})") from error
    if size > limit_bytes:
        raise UnfitError(f"it has {size} bytes; at most {limit_bytes} are read")


def check_json(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for JSON that is not safe to load, another ``ValueError`` for invalid JSON."""
    check_size(text, limit_bytes=limit_bytes)
    try:
        json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except RecursionError as error:
        raise UnfitError("it is nested too deeply") from error


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise UnfitError(f"the key '{name:.80}' occurs twice")
        seen.add(name)


def map_texts(value: object, change: Callable[[str], str]) -> object:
    """Return a JSON value with ``change`` applied to every text in it, including keys."""
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [map_texts(item, change) for item in value]
        case dict():
            return {map_texts(key, change): map_texts(item, change) for key, item in value.items()}
        case _:
            return value


def encode_json(value: object) -> bytes:
    """Return a record as JSON, with everything escaped that UTF-8 cannot encode, such as bytes of file names."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, str_keys=True)
        return msgspec.json.encode(
            map_texts(plain, lambda text: text.encode("utf-8", "backslashreplace").decode("utf-8"))
        )


MOST_VALUES = 50_000
MOST_LEVELS = 50
MOST_ALIASES = 100
MOST_REPEATED = 20_000
"""Number of values that all aliases together may repeat."""
_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
"""Tags that only repeat the type of the node."""


def check_yaml(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for YAML that is not safe to load, ``yaml.YAMLError`` for invalid YAML."""
    check_size(text, limit_bytes=limit_bytes)
    import yaml

    check_events(yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))


def check_events(events: Iterable["yaml.Event"], *, limit_values: int = MOST_VALUES) -> None:
    """Raise ``UnfitError`` at the first unsafe event."""
    checker = _EventChecker(limit_values)
    for event in events:
        checker.check(event)


@dataclass(slots=True)
class _Collection:
    """A list or map that is still open."""

    anchor: str | None
    is_map: bool
    size: int = 1
    """Number of values, including itself and the values that aliases repeat."""
    is_key: bool = True
    """Whether the next value in a map is a key."""
    keys: dict[str, int] = field(default_factory=dict)
    """Each key with its line."""


class _EventChecker:
    def __init__(self, limit_values: int) -> None:
        self._limit_values = limit_values
        self._open: list[_Collection] = []
        self._sizes: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._values = self._aliases = self._repeated = 0

    def check(self, event: "yaml.Event") -> None:
        import yaml

        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.AliasEvent():
                self._check_alias(event.anchor or "", line)
            case yaml.ScalarEvent():
                self._check_tag(event.tag, line)
                if not event.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in event.value):
                    raise UnfitError("it contains a lone surrogate", line=line)
                if event.anchor:
                    self._sizes[event.anchor], self._texts[event.anchor] = 1, event.value
                self._add_value(event.value, line, size=1)
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
                self._add_value(None, line, size=ended.size)

    def _check_alias(self, anchor: str, line: int) -> None:
        self._aliases += 1
        self._repeated += self._sizes.get(anchor, 1)
        if self._aliases > MOST_ALIASES:
            raise UnfitError(f"more than {MOST_ALIASES} aliases", line=line)
        if self._repeated > min(self._limit_values, MOST_REPEATED) or any(
            outer.anchor == anchor for outer in self._open
        ):
            raise UnfitError("its aliases expand without end", line=line, hint="write the values out")
        self._add_value(self._texts.get(anchor), line, size=self._sizes.get(anchor, 1))

    def _add_value(self, text: str | None, line: int, *, size: int) -> None:
        """Add a complete value to its collection; ``text`` is None if it is a collection itself."""
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
                message = f"the key '{text:.80}' occurs twice, first in line {first}"
                raise UnfitError(message, line=line, hint="keep one of them")
            within.keys[text] = line
        within.is_key = not within.is_key

    def _check_tag(self, tag: str | None, line: int) -> None:
        if tag not in _TAGS:
            raise UnfitError(f"the tag {tag:.80} is not allowed", line=line, hint="remove it; every value is text")
