"""The user's own slash commands: Markdown files whose text is sent to the active agent.

A project brings them in ``.cdd/commands``; they work only after the user has approved exactly that content. The user's
own are in ``$XDG_CONFIG_HOME/cdd/commands`` and win over a project's command of the same name.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.config.trust import Offer
from cdd_agent.errors import UsageError
from cdd_agent.storage import read_ordinary

FOLDER = Path(".cdd") / "commands"
MAX_SIZE_BYTES = 16_000
MOST_LISTED = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_HEAD = re.compile(r"---[ \t]*\n(?P<head>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r"^description:[ \t]*(?P<text>.+)$", re.MULTILINE)
_ARGUMENTS = "$ARGUMENTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommand:
    """One command that a file defines."""

    name: str
    source: str
    """The path of the file as the user would type it."""
    content: str
    offer: Offer | None
    """What the user must approve first; None for a file of the user."""

    @property
    def description(self) -> str:
        """The description at the head of the file, else its first line."""
        head = _HEAD.match(self.content)
        found = _DESCRIPTION.search(head["head"]) if head else None
        first = self._text.partition("\n")[0].lstrip("# ")
        return found["text"].strip(" \t\r\"'") if found else first

    @property
    def _text(self) -> str:
        head = _HEAD.match(self.content)
        return self.content[head.end() if head else 0 :].strip()

    def expand(self, argument: str) -> str:
        """Return the text for the agent: ``argument`` in place of ``$ARGUMENTS``, or behind a text without it.

        Raises ``UsageError`` for a file without text.
        """
        text = self._text
        if not text:
            raise UsageError(f"{self.source} has no text.", hint="write there what the agent should do")
        return text.replace(_ARGUMENTS, argument) if _ARGUMENTS in text else f"{text}\n\n{argument}".strip()


def list_own_commands(project: Path, *, environment: Mapping[str, str] = os.environ) -> dict[str, OwnCommand]:
    """Return name -> command. Links, large files and files whose name cannot be typed are left out."""
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home(), ".config"))
    theirs, mine = project / FOLDER, home / "cdd" / "commands"
    is_linked = theirs.is_symlink() or theirs.parent.is_symlink()
    return {**({} if is_linked else _read_folder(theirs, project=project)), **_read_folder(mine, project=None)}


def _read_folder(folder: Path, *, project: Path | None) -> dict[str, OwnCommand]:
    found: dict[str, OwnCommand] = {}
    try:
        names = sorted(name.removesuffix(".md") for name in os.listdir(folder) if name.endswith(".md"))
    except OSError:
        return found
    for name in filter(_NAME.fullmatch, names[:MOST_LISTED]):
        path = folder / f"{name}.md"
        try:
            content = read_ordinary(path, limit_bytes=MAX_SIZE_BYTES, through_links=project is None)
        except OSError:
            continue
        source, offer, text = str(path), None, content.decode("utf-8", "replace").replace("\r\n", "\n")
        if project is not None:
            source = str(path.relative_to(project))
            shown = tuple(line for line in text.splitlines() if line.strip())
            signed = f"{source}\0".encode() + content  # another name for the same text is another command
            offer = Offer(subject="own command", source=source, shown=shown, content=signed)
        found[name] = OwnCommand(name=name, source=source, content=text, offer=offer)
    return found
