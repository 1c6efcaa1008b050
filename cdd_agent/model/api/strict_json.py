"""JSON objects read so that no two readers could take them differently. Pure."""

import json
from math import isfinite

from cdd_agent.model.conversation import JSON

MOST_DEEP = 64
"""Objects and lists in one another."""

_MOST_DIGITS = 400
"""Of a whole number: more than any number means, fewer than Python refuses to read."""


def read_object(text: str) -> dict[str, JSON]:
    """The one object in ``text``.

    Raises ``ValueError`` for anything else: a value of another kind, what comes after the object, a key that is there
    twice, ``NaN`` and infinite numbers, whole numbers of more than 400 digits, half characters, and too much nesting.
    """
    try:
        value: JSON = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite, parse_int=_short
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}, not an object")
    _check(value, 1)
    return value


def _check(value: JSON, depth: int) -> None:
    """Raise ``ValueError`` where something is nested too deeply, or holds what UTF-8 has no form for."""
    match value:
        case str():
            value.encode("utf-8")
        case list() | dict() if depth > MOST_DEEP:
            raise ValueError("it is nested too deeply")
        case list():
            for item in value:
                _check(item, depth + 1)
        case dict():
            for key, item in value.items():
                key.encode("utf-8")
                _check(item, depth + 1)
        case _:
            pass


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return value


def _no_number(name: str) -> JSON:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


def _short(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number is too large")
    return int(digits)
