"""Paths in commands: whether they lie in the project, and whether a command may write there. Pure but for one look."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from cdd_agent.guarded.commands.classes import READ, CommandClass, Finding, other
from cdd_agent.guarded.commands.words import Word
from cdd_agent.guarded.protected import PRIVATE_FOLDERS, private_part, protected_by
from cdd_agent.guarded.secret_files import is_secret

Kind: TypeAlias = Literal["", "file", "folder", "elsewhere"]
"""What lies at a path; nothing, as far as anybody would miss it, if empty; ``elsewhere``: a link leads out with it."""

Folders: TypeAlias = frozenset[str] | None
"""The absolute folders that a command may run in; None: any."""

STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero", "/dev/urandom"})
"""What takes, or gives, anything and keeps nothing."""
_OVERWRITES = "{} would be overwritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The project that commands are judged for."""

    root: str
    """Its folder, absolute."""
    look: Callable[[str], Kind]
    """What lies at an absolute path in the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a command stands."""

    ground: Ground
    folders: Folders
    feeds_paths: bool = False
    """Whether what comes before it in the pipe prints nothing but paths of the project."""

    def places(self, value: str) -> list[str] | None:
        """The absolute paths that ``value`` may name; None: it cannot be told."""
        if value.startswith("/"):
            return [_normal(value)]
        if self.folders is None:
            return None
        return [_normal(f"{folder}/{value}") for folder in self.folders]

    def is_outside(self, value: str) -> bool:
        """Whether ``value`` may name something that is not the project's."""
        root = self.ground.root
        places = self.places(_climbing(value))
        return places is None or any(place != root and not place.startswith(f"{root}/") for place in places)

    def is_led_out(self, value: str) -> bool:
        """Whether a link in the project leads ``value`` out of it; the way is gone as it is written."""
        if value.startswith("/"):
            return self.ground.look(value) == "elsewhere"
        return any(self.ground.look(f"{folder}/{value}") == "elsewhere" for folder in self.folders or ())


def reads(word: Word, setting: Setting) -> Finding:
    """What it means that a command reads the path that ``word`` names."""
    if word.is_inside:
        return READ
    if word.value is None:
        return other("which file it reads cannot be told from its text")
    value = word.value
    if value in STREAMS or value == "-":
        return READ
    if setting.is_outside(value):
        return other(f"{value} is not known to lie in the project")
    if setting.is_led_out(value):
        return other(f"{value} leads out of the project")
    if word.is_pattern and any(part.startswith(".") for part in _wild(value)):
        return other(f"{value} may name files of secrets")
    inside = [place[len(setting.ground.root) + 1 :] for place in setting.places(value) or ()]
    if any(is_secret(path) or private_part(path) is not None for path in inside):
        return other(f"{value} is not for a model to read")
    return READ


def writes(word: Word, setting: Setting, *, truncates: bool, follows: bool = True) -> Finding:
    """What it means that a command writes to the path that ``word`` names, or replaces what lies there.

    ``follows``: if a link lies there, what it leads to is written, and not the link.
    """
    if word.value is None:
        kind: CommandClass = "outside" if word.is_home else "other"
        loses = f"what {word.text} names would be overwritten" if truncates else ""
        why = f"{word.text} is outside the project" if word.is_home else "where it writes cannot be told from its text"
        return Finding(kind=kind, why=why, loses=loses)
    value = word.value
    if value in STREAMS:
        return READ
    if setting.places(value) is None and not value.startswith("/"):
        climbs = ".." in value.split("/")
        why = f"where {value} lies cannot be told from its text"
        loses = _OVERWRITES.format(value) if truncates else ""
        return Finding(kind="outside", why=why, loses=loses) if climbs else other(why, loses=loses)
    if setting.is_outside(value):
        return Finding(kind="outside", why=f"{value} is outside the project")
    if setting.is_led_out(value if follows or value.endswith("/") else posixpath.dirname(value) or "."):
        return Finding(kind="outside", why=f"{value} leads out of the project")
    kept = _why_kept(word, value, setting=setting)
    if kept:
        return Finding(kind="outside", why=f"{value} {kept}")
    there = word.is_pattern or any(setting.ground.look(place) for place in setting.places(value) or ())
    loses = _OVERWRITES.format(value) if truncates and there else ""
    return other(f"{value} may name settings", loses=loses) if _hidden(word) else Finding(kind="write", loses=loses)


def _why_kept(word: Word, value: str, *, setting: Setting) -> str:
    """Why no command may write to a path of the project, as the end of a sentence; empty if one may."""
    for place in setting.places(value) or ():
        path = place[len(setting.ground.root) + 1 :]
        why = "is private to git and cdd" if private_part(path) is not None else protected_by(path)
        if why is not None:
            return why
    is_private = any(fnmatchcase(name, part) for part in _hidden(word) for name in PRIVATE_FOLDERS)
    return "may name what is private to git and cdd" if is_private else ""


def _hidden(word: Word) -> list[str]:
    """The components of a pattern that match names with a leading dot."""
    return [part for part in _wild(word.value or "") if part.startswith(".")] if word.is_pattern else []


def _normal(path: str) -> str:
    """An absolute path without ``.``, ``..`` and doubled slashes."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _wild(value: str) -> list[str]:
    """The components of a pattern that hold wildcards."""
    return [part for part in value.split("/") if any(letter in part for letter in "*?[")]


def _climbing(value: str) -> str:
    """``value`` with ``..`` for each component that bash may take for that."""
    wild = {part for part in _wild(value) if part.startswith(".") and fnmatchcase("..", part)}
    return "/".join(".." if part in wild else part for part in value.split("/"))
