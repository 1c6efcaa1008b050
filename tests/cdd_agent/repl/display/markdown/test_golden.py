"""A long reply, as it stands on four terminals."""

from pathlib import Path

import pytest

from cdd_agent.repl.rows import ASCII, UNICODE
from cdd_agent.repl.markdown import MarkdownStream
from tests.cdd_agent.repl.display.markdown.streaming import REPLY, pieces

DATA = Path(__file__).parents[2] / "markdown_data"


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("name", ["ascii", "unicode"])
@pytest.mark.parametrize("size", [1, 20, len(REPLY)])
def test_a_long_reply_looks_like_this(width: int, name: str, *, size: int) -> None:
    prose = MarkdownStream(width, look={"ascii": ASCII, "unicode": UNICODE}[name])
    rows = [row for piece in pieces(REPLY, size) for row in prose.feed(piece)] + prose.end()
    shown = "".join(f"{row.plain.rstrip()}\n" for row in rows)
    assert shown == (DATA / f"reply-{width}-{name}.txt").read_text(encoding="utf-8")
