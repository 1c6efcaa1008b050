"""The levels of the sandbox: the one list that the command line, the choice and the permissions use.

The command line needs it before anything else is loaded, so this module imports only ``typing``.
"""

from typing import Literal, get_args

Level = Literal["docker", "bwrap", "landlock", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the most to the least confined."""
# Under `landlock`, a command could delete `.git` and use sockets in the file system.
ISOLATING_LEVELS = frozenset[str]({"docker", "bwrap"})
"""Levels at which a command reaches neither the network nor anything outside the project, and finds a run tree at the
project's own path."""
