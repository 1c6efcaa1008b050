"""What it costs to show a reply while it comes: of ours, and of drawing all of it anew with each piece.

``python -c "from tests.cdd_agent.repl.display.markdown import streaming; print(streaming.measured(8_000))"``
"""

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from cdd_agent.repl.display.screen import Screen

REPLY = (Path(__file__).parents[2] / "markdown_data" / "reply.md").read_text(encoding="utf-8")
"""A reply with all that Markdown has."""

PIECE = 20
WIDTH = 100


class Terminal(io.StringIO):
    """Takes what is shown."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU for one reply."""

    characters: int
    ours_s: float
    naive_s: float
    """Of all pieces, of which ``measured`` may have drawn some only."""

    @property
    def ratio(self) -> float:
        """How much of the naive way's cost ours is."""
        return self.ours_s / self.naive_s


def reply(characters: int) -> str:
    """So much of a long reply."""
    return (REPLY * (characters // len(REPLY) + 1))[:characters]


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """The text as a model sends it."""
    return (text[at : at + size] for at in range(0, len(text), size))


def ours(text: str, *, size: int = PIECE) -> float:
    """Seconds of CPU for showing ``text`` on a screen, the row that grows included."""
    screen = Screen(Terminal(), color=True)
    screen.console.width = WIDTH
    started = time.process_time()
    with screen.working("waiting"):
        for piece in pieces(text, size):
            screen.stream(piece)
        screen.end_prose()
    return time.process_time() - started


def naive(text: str, *, every: int = 1) -> float:
    """Seconds of CPU for drawing all that has come with each piece; ``every`` 10: estimated from each tenth drawing."""
    console = Console(file=Terminal(), force_terminal=True, width=WIDTH, height=50, color_system="truecolor")
    drawn = 0.0
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for number, end in enumerate(range(PIECE, len(text) + PIECE, PIECE)):
            if number % every == every // 2:
                started = time.process_time()
                live.update(Markdown(text[:end]), refresh=True)
                drawn += time.process_time() - started
    return drawn * every


def measured(characters: int, *, every: int = 1) -> Cost:
    """What both cost in this process, each having shown something before."""
    ours(REPLY), naive(REPLY[:PIECE])
    text = reply(characters)
    return Cost(characters=characters, ours_s=ours(text), naive_s=naive(text, every=every))
