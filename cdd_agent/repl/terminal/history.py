"""What was typed before: kept in a private file of the project, long texts as chips again when they come back."""

import contextlib
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from prompt_toolkit.history import History

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.terminal.paste import Pastes

MOST_READ_BYTES = 1_000_000
"""Of the file, from its end."""
MOST_KEPT_CHARACTERS = 50_000
"""Of one message; a longer one is remembered for this sitting only."""


class ProjectHistory(History):
    """A history in a file that may fail: what cannot be read or written is remembered for this sitting only.

    The file has the form of prompt_toolkit's own: ``# when``, then each line of a message behind a ``+``.
    """

    def __init__(self, path: Path | None, *, pastes: Pastes) -> None:
        """Without a ``path`` nothing outlives the sitting; ``pastes`` knows what the chips stand for."""
        super().__init__()
        self._path = path
        self._pastes = pastes
        self._is_draft = False

    def remember(self, text: str) -> None:
        """Take up what was typed and not sent: for this sitting, never for the file."""
        self._is_draft = True
        self.append_string(text)
        self._is_draft = False

    def load_history_strings(self) -> Iterable[str]:
        """The messages of earlier sittings, newest first."""
        return [self._pastes.folded(clean(text)) for text in reversed(_messages(self._tail()))]

    def store_string(self, string: str) -> None:
        """Keep a message, its pastes in full."""
        text = self._pastes.whole(string)
        if self._path is None or self._is_draft or len(text) > MOST_KEPT_CHARACTERS:
            return
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        entry = f"\n# {datetime.now()}\n{lines}".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "ab") as file:
                file.write(entry)

    def _tail(self) -> str:
        """The end of the file, from the beginning of a message on."""
        if self._path is None:
            return ""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MOST_READ_BYTES))
                found = file.read(MOST_READ_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return found if size <= MOST_READ_BYTES else found[found.find("\n#") + 1 :]


def _messages(text: str) -> list[str]:
    """The messages in the text of a history file, oldest first."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("+"):
            found[-1].append(line[1:])
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]
