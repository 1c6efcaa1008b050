"""The line below the prompt: where the user is, what matters most in the moment if there is not room for all. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.utils import get_cwidth

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.symbols import SYMBOLS
from cdd_agent.repl.place import Place

KEYS = "/help  Ctrl-D leaves"
NEARLY_FULL_PERCENT = 70
"""Of the model's context: from here on it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One thing that is told."""

    text: str
    rank: int
    """What has the highest is left out first."""
    style: str = ""


def toolbar(place: Place, *, width: int, symbols: Mapping[str, str] = SYMBOLS) -> StyleAndTextTuples:
    """What ``place`` says in one row of ``width`` columns, with the keys to know where there is room for them."""
    parts = _parts(place, symbols)
    while len(parts) > 1 and _width(parts) > width:
        parts.remove(max(parts, key=lambda part: part.rank))
    if _width(parts) > width:
        return [(parts[0].style, f" {fitted(parts[0].text, width - 1, cut=symbols['cut'])}")]
    shown: StyleAndTextTuples = []
    for part in parts:
        shown += [("", " | " if shown else " "), (part.style, part.text)]
    room = width - _width(parts) - 1
    return [*shown, ("class:toolbar.keys", f"{KEYS:>{room}} ")] if room > len(KEYS) else shown


def fitted(text: str, width: int, *, cut: str = "…") -> str:
    """``text`` in one line of at most ``width`` columns.

    >>> fitted("in two\\nlines", 9), fitted("日本語", 5)
    ('in two l…', '日本…')
    """
    line = clean(" ".join(text.split()))
    if get_cwidth(line) <= width:
        return line
    while line and get_cwidth(line) > width - get_cwidth(cut):
        line = line[:-1]
    return line + cut if width > 0 else ""


def _parts(place: Place, symbols: Mapping[str, str]) -> list[_Part]:
    """What there is to tell, from left to right."""
    is_nearly_full = place.context_percent is not None and place.context_percent >= NEARLY_FULL_PERCENT
    is_bare = place.sandbox == "none"
    told = (
        _Part(text=place.agent, rank=0, style="class:toolbar.agent"),
        _Part(text=place.ticket, rank=4),
        _Part(text=f"step {place.step}" if place.step else "", rank=1),
        _gate(place, symbols),
        _Part(text=place.model, rank=7),
        _Part(
            text="" if place.context_percent is None else f"context {place.context_percent}%",
            rank=3 if is_nearly_full else 6,
            style="class:toolbar.warning" if is_nearly_full else "",
        ),
        _Part(text=place.cost, rank=5),
        _Part(
            text="no sandbox" if is_bare else f"sandbox {place.sandbox}" if place.sandbox else "",
            rank=8,
            style="class:toolbar.warning" if is_bare else "",
        ),
    )
    cleaned = ((part, clean(" ".join(part.text.split()))) for part in told)
    return [_Part(text=text, rank=part.rank, style=part.style) for part, text in cleaned if text]


def _gate(place: Place, symbols: Mapping[str, str]) -> _Part:
    """The phase, and what its gate says of it."""
    if place.gate not in ("open", "closed"):
        return _Part(text=place.phase, rank=2)
    text = f"{place.phase} {symbols[place.gate]} gate {place.gate}"
    return _Part(text=text, rank=2, style=f"class:toolbar.{place.gate}")


def _width(parts: list[_Part]) -> int:
    """Columns that the parts take, with what stands between them and a blank before."""
    return 1 + sum(get_cwidth(part.text) for part in parts) + 3 * (len(parts) - 1)
