"""Words of a command line: what bash makes of their quotes and backslashes, where that can be told. Pure.

The parser finds where commands begin and end; what a word means is worked out here, so that two readings have to
agree before a command counts as harmless.

>>> literal("r''m").value, literal(r"\rm").value, literal("$x").value
('rm', 'rm', None)

The classes of commands, from the harmless to the one that is refused, and what is found about one command. Pure.

Paths in commands: whether they lie in the project, and whether a command may write there. Pure but for one look.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Literal, TypeAlias, get_args

from cdd_agent.untrusted.paths import PRIVATE_FOLDERS, is_secret, private_part, protected_by

CommandClass: TypeAlias = Literal["read", "tests", "write", "other", "outside"]
"""What a command does: reads the project, runs its tests, writes in it, anything else, changes what is not its own."""

CLASSES: tuple[CommandClass, ...] = get_args(CommandClass)
"""From the harmless one to the strictest."""

UNTOLD = "what it does cannot be told from its text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is known about a command before it runs."""

    kind: CommandClass
    why: str = ""
    """Of a class that is not harmless, as a clause."""
    loses: str = ""
    """What would be lost, as a clause; empty: nothing that is known."""
    lines: tuple[str, ...] = ()
    """Command lines that it runs in its turn, to be judged by themselves."""
    moves: bool = False
    """Whether it may leave the shell in another folder."""
    taints: bool = False
    """Whether it may change what the commands after it mean."""


def other(why: str = UNTOLD, *, loses: str = "") -> Finding:
    """What nobody knows to be harmless."""
    return Finding(kind="other", why=why, loses=loses)


READ = Finding(kind="read")


def strictness(kind: CommandClass) -> int:
    """The place of a class in the order."""
    return CLASSES.index(kind)


def joined(findings: Iterable[Finding]) -> Finding:
    """All findings about one command as one: the strictest class, and all else that any of them says."""
    result = READ
    for found in findings:
        stricter = found if strictness(found.kind) > strictness(result.kind) else result
        result = replace(
            stricter,
            loses=result.loses or found.loses,
            lines=result.lines + found.lines,
            moves=result.moves or found.moves,
            taints=result.taints or found.taints,
        )
    return result


_BRACES = re.compile(r"([\w./+-]*)\{([\w./+-]+(?:,[\w./+-]*)+)\}([\w./+-]*)")
"""One group of alternatives, as in ``src/{a,b}.py``."""
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPECIAL_IN_QUOTES = '$`"\\\n'
_BREAKS = frozenset(" \t\n;|&()<>")
_WILDCARDS = frozenset("*?[")
_EXPANDS = re.compile(r"\$[\w@*#?$!{(\[-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command."""

    text: str
    """As it is written."""
    value: str | None
    """What the program is given, wildcards unexpanded; None: known only when it runs."""
    is_pattern: bool = False
    """Whether ``value`` holds wildcards, so that several words may take its place."""
    is_home: bool = False
    """Whether it names a home folder by a tilde."""
    is_inside: bool = False
    """Whether it stands for paths inside the project, though nobody knows yet for which."""

    @property
    def is_exact(self) -> bool:
        """Whether the program is given ``value`` and nothing else."""
        return self.value is not None and not self.is_pattern

    @property
    def is_single(self) -> bool:
        """Whether the program is given one word for it, and neither none nor several."""
        return self.is_exact or (_QUOTED.fullmatch(self.text) is not None and "@" not in self.text)

    @property
    def canonical(self) -> str:
        """The same for all spellings of a word that is known, as written for any other."""
        return shlex.quote(self.value) if self.value is not None and not self.is_pattern else self.text


def of_value(value: str) -> Word:
    """A word that is known."""
    return Word(text=shlex.quote(value), value=value)


def unknown(text: str, *, is_inside: bool = False) -> Word:
    """A word that is known only when it runs."""
    return Word(text=text, value=None, is_inside=is_inside)


def expanded(text: str) -> tuple[Word, ...]:
    """The words that ``text`` stands for: several where braces list alternatives."""
    found = _BRACES.fullmatch(text)
    if found is None or ".." in found[2]:
        return (literal(text),)
    return tuple(literal("".join(parts)) for parts in product((found[1],), found[2].split(","), (found[3],)))


def literal(text: str) -> Word:
    """One word, its quotes and backslashes undone."""
    if text == "[":
        return Word(text=text, value=text)
    value: list[str] = []
    at, is_pattern = 0, False
    while at < len(text):
        letter = text[at]
        if letter == "'":
            piece, at = _single_quoted(text, at)
        elif letter == '"':
            piece, at = _double_quoted(text, at)
        elif letter == "\\":
            piece, at = (text[at + 1 : at + 2].replace("\n", "") if at + 1 < len(text) else None), at + 2
        elif letter == "~" and (at == 0 or text[at - 1] in "=:"):
            return Word(text=text, value=None, is_home=True)
        elif (
            letter in _BREAKS
            or letter == "`"
            or (letter == "#" and at == 0)
            or _opens_braces(text, at)
            or (letter == "$" and (_EXPANDS.match(text, at) or text[at + 1 : at + 2] in ("'", '"')))
        ):
            return unknown(text)
        else:
            is_pattern = is_pattern or letter in _WILDCARDS
            piece, at = letter, at + 1
        if piece is None:
            return unknown(text)
        value.append(piece)
    return Word(text=text, value="".join(value), is_pattern=is_pattern)


def _opens_braces(text: str, at: int) -> bool:
    """Whether a brace here may list alternatives; ``{}`` and a lone one stand for themselves."""
    if text[at] != "{" or text[at : at + 2] == "{}":
        return False
    rest = text[at:]
    return "}" in rest and ("," in rest or ".." in rest)


def _single_quoted(text: str, at: int) -> tuple[str | None, int]:
    """What stands between the quotes that open at ``at``, and where they end; None if they do not."""
    end = text.find("'", at + 1)
    return (None, len(text)) if end < 0 else (text[at + 1 : end], end + 1)


def _double_quoted(text: str, at: int) -> tuple[str | None, int]:
    """The same of double quotes; None also if something in them is expanded."""
    value: list[str] = []
    at += 1
    while at < len(text):
        letter = text[at]
        if letter == '"':
            return "".join(value), at + 1
        if letter == "`" or (letter == "$" and _EXPANDS.match(text, at)):
            return None, len(text)
        if letter == "\\" and text[at + 1 : at + 2] and text[at + 1] in _SPECIAL_IN_QUOTES:
            value.append(text[at + 1].replace("\n", ""))
            at += 2
            continue
        value.append(letter)
        at += 1
    return None, len(text)


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
