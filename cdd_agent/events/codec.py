"""Events as lines of JSON, each with its tag: ``{"event": "GateJudged", ...}``."""

import json
import re
from dataclasses import asdict
from typing import Any, get_args

import msgspec

from cdd_agent.events import Event

_BYTE = re.compile("[\udc80-\udcff]")

_BY_TAG: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_BEYOND_ASCII = re.compile(r"[^ -~]")


def encode(event: Event) -> bytes:
    """One line of JSON, without its newline; what is no character to a terminal is escaped, so that ``cat`` is safe."""
    line = msgspec.json.encode({"event": type(event).__name__, **_writable(asdict(event))}).decode()
    return _BEYOND_ASCII.sub(_escaped, line).encode()


def _escaped(found: re.Match[str]) -> str:
    """A character as it is if it can be seen, else as JSON escapes it."""
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def _writable(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with what UTF-8 cannot hold written out: bytes of file names as ``\\xNN``, half characters alike."""

    def shown(value: object) -> object:
        if isinstance(value, str):
            shown_bytes = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", value)
            return shown_bytes.encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, dict):
            return _writable(value)
        return tuple(shown(item) for item in value) if isinstance(value, tuple) else value

    return {name: shown(value) for name, value in fields.items()}


def decode(line: bytes) -> Event:
    """The event that ``encode`` wrote; raises ``ValueError`` for anything else."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("nested too deep for an event") from error
    kind = _BY_TAG.get(str(fields.pop("event", None)))
    if kind is None:
        raise ValueError("not an event of this program")
    return msgspec.convert(fields, kind)
