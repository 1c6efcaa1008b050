"""Checks YAML and JSON from others before a loader reads them.

A hostile YAML document can make a loader recurse until the process dies, expand aliases a billion times, or create
objects by tags. It can also hide a value behind a duplicate key, since loaders keep only the last one. YAML is
therefore checked event by event, in constant stack depth, and may have no aliases. JSON is checked for its size and
for duplicate keys.
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
    load_json(text)


def load_json(text: str) -> object:
    """Return the value; raise ``UnfitError`` for deep nesting or a duplicate key, another ``ValueError`` if invalid."""
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except RecursionError as error:
        raise UnfitError("it is nested too deeply") from error


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, value in pairs:
        if name in made:
            raise UnfitError(f"the key '{name}' occurs twice")
        made[name] = value
    return made


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
_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
"""Tags that only repeat the type of the node."""


def check_yaml(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for YAML that is not safe to load, ``yaml.YAMLError`` for invalid YAML."""
    check_size(text, limit_bytes=limit_bytes)
    import yaml

    check_events(yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))


@dataclass(slots=True)
class _Collection:
    """A list or map that is still open."""

    is_map: bool
    is_key: bool = True
    """Whether the next value in a map is a key."""
    keys: dict[str, int] = field(default_factory=dict)
    """Each key with its line."""

    def add(self, text: str | None, line: int) -> None:
        """Add a complete value; ``text`` is None if it is a collection itself."""
        if text is not None and not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UnfitError("it contains a lone surrogate", line=line)
        if self.is_map and self.is_key and text is not None:
            if text in self.keys:
                message = f"the key '{text:.80}' occurs twice, first in line {self.keys[text]}"
                raise UnfitError(message, line=line, hint="keep one of them")
            self.keys[text] = line
        self.is_key = not self.is_key


def check_events(events: Iterable["yaml.Event"], *, limit_values: int = MOST_VALUES) -> None:
    """Raise ``UnfitError`` at the first unsafe event."""
    import yaml

    collections: list[_Collection] = []
    count = 0
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.AliasEvent():
                raise UnfitError(f"the alias *{event.anchor:.80} is not allowed", line=line, hint="write the value out")
            case yaml.ScalarEvent() | yaml.CollectionStartEvent() if event.tag not in _TAGS:
                hint = "remove it; every value is text"
                raise UnfitError(f"the tag {event.tag:.80} is not allowed", line=line, hint=hint)
            case yaml.CollectionStartEvent():
                collections.append(_Collection(isinstance(event, yaml.MappingStartEvent)))
                if len(collections) > MOST_LEVELS:
                    raise UnfitError(f"more than {MOST_LEVELS} levels", line=line)
                continue
            case yaml.CollectionEndEvent():
                collections.pop()
            case _ if not isinstance(event, yaml.ScalarEvent):
                continue
        count += 1
        if count > limit_values:
            raise UnfitError(f"more than {limit_values} values", line=line)
        if collections:
            collections[-1].add(event.value if isinstance(event, yaml.ScalarEvent) else None, line)
