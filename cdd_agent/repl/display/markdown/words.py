"""Text that comes in pieces, cut into words that do not depend on how it came, each of them clean.

All that follows is decided word by word. So it cannot matter whether a text comes at once or a character at a time.
"""

import re

from cdd_agent.repl.display.clean import clean

LONGEST = 1_000
"""Characters of a word; the rest of a longer one is another word."""

_LETTER = "\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Of scripts that put no blanks between words."""
BREAK = re.compile(f"[ \t](?=[^ \t])|[{_LETTER}\u3000-\u303f\uff01-\uff5e](?=[{_LETTER}])")
"""The last character before a place where a row may end."""


class Words:
    """Cuts text where rows can end, and after line feeds. A word has the blanks that follow it."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._begun = ""

    @property
    def begun(self) -> str:
        """The beginning of a word that may go on."""
        return clean(self._begun)

    def feed(self, piece: str) -> list[str]:
        """The words that ``piece`` completes."""
        *ended, begun = (self._begun + piece).split("\n")
        words: list[str] = []
        for line in ended:
            whole, rest = _cut(line)
            words += [*whole, clean(rest) + "\n"]
        whole, self._begun = _cut(begun)
        return words + whole

    def end(self) -> list[str]:
        """What is left of a line that did not end."""
        rest, self._begun = self._begun, ""
        return [clean(rest) + "\n"] if rest else []


def _cut(line: str) -> tuple[list[str], str]:
    """The words of ``line`` that end in it, and what follows the last of them.

    An escape sequence may have blanks in it, so that from its beginning on a line is one word.
    """
    words: list[str] = []
    start = 0
    escape = line.find("\x1b")
    while True:
        found = BREAK.search(line, start)
        end = found.end() if found and not 0 <= escape < found.end() else len(line) + 1
        if end - start > LONGEST and len(line) - start > LONGEST:
            end = start + LONGEST
            escape = line.find("\x1b", end)
        if end > len(line):
            return words, line[start:]
        words.append(clean(line[start:end]))
        start = end
