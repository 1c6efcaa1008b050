"""``tdd.properties``: the file that other programs of this kind read; of it, how tests are run and for how long."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.storage import read_ordinary
from cdd_agent.trust import Offer

FILE = "tdd.properties"
_LIMIT_BYTES = 16_000
_LINE = re.compile(r"\s*(?P<key>test\.command|bash\.timeout)\s*[=:]\s*(?P<value>.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What the file says that is of use here."""

    command: str = ""
    """``test.command``."""
    timeout_s: float | None = None
    """``bash.timeout``, in seconds."""


def offered(project: Path) -> Offer | None:
    """The lines of the file that would take effect, if there are any."""
    found = _lines(project)
    if not found:
        return None
    shown = tuple(f"{key}={value}" for _, key, value in found)
    return Offer(subject="test command", source=FILE, shown=shown, content="\n".join(shown).encode())


def read(project: Path, *, allows: Callable[[Offer], bool]) -> Properties:
    """What the file says, if the user approves those very lines; raises ``DocumentError`` for a time that is none."""
    offer = offered(project)
    if offer is None or not allows(offer):
        return Properties()
    command, timeout_s = "", None
    for number, key, value in _lines(project):
        if key == "test.command":
            command = value
        elif value.isascii() and value.isdigit() and 0 < int(value) < 1_000_000:
            timeout_s = float(value)
        else:
            problem = Problem(line=number, message=f"{key} must be seconds, a number above 0, not {value[:20]!r}")
            raise DocumentError(FILE, (problem,), hint="correct it, or say test_timeout_s in .cdd/config.yaml")
    return Properties(command=command, timeout_s=timeout_s)


def _lines(project: Path) -> list[tuple[int, str, str]]:
    """Number, key and value of the lines that count."""
    try:
        text = read_ordinary(project / FILE, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = [(number, _LINE.fullmatch(line)) for number, line in enumerate(text.splitlines(), start=1)]
    return [(number, match["key"], match["value"]) for number, match in found if match and match["value"]]
