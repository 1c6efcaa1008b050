"""Which files a model without tools is given besides the tests: the code that these name, as far as there is room."""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from cdd_agent.errors import CddError
from cdd_agent.workspace.files import Workspace, decode

MOST_CHARACTERS = 48_000
"""Of all files together."""
MOST_FILES = 20
_NAMED_BY_FOLDER = frozenset({"__init__", "__main__", "index", "main", "mod", "lib"})
"""Files that are called by the name of their folder."""
_PRIVATE = frozenset({"", "src", "lib", "app"})
"""Folders that no test names."""


def code_of(tests: Sequence[str], *, workspace: Workspace, is_test: Callable[[str], bool]) -> tuple[str, ...]:
    """The files that hold no tests and whose names stand in ``tests``, files or folders; those named most often first.

    What could not be given back as it is, in one answer, is left out.
    """
    listing = workspace.listing()
    files = [name for name in listing if any(name == test or name.startswith(f"{test.rstrip('/')}/") for test in tests)]
    counts: dict[str, int] = {}
    for word in re.findall(r"\w+", "\n".join(_text(name, workspace) for name in files)):
        counts[word] = counts.get(word, 0) + 1
    named = {name: counts[word] for name in listing if not is_test(name) and (word := _word(name)) in counts}
    found, room = list[str](), MOST_CHARACTERS
    for name in sorted(named, key=lambda name: (-named[name], name)):
        text = _text(name, workspace)
        if text and len(text) <= room and len(found) < MOST_FILES and _can_come_back(text):
            found.append(name)
            room -= len(text)
    return tuple(found)


def _word(name: str) -> str:
    """What a test calls a file."""
    path = PurePosixPath(name)
    stem = path.name.partition(".")[0]
    return path.parent.name if stem in _NAMED_BY_FOLDER and path.parent.name not in _PRIVATE else stem


def _text(name: str, workspace: Workspace) -> str:
    """What is in a file; nothing of one that cannot be read or is no text."""
    try:
        return decode(workspace.read(name))
    except (CddError, OSError):
        return ""


def _can_come_back(text: str) -> bool:
    return all(letter in "\t\r\n\ufeff" or letter.isprintable() for letter in text)
