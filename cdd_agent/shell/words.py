r"""The words of a command line, and the effect of reading or writing a path that a word names.

A word is parsed here independently of the syntax tree, and both readings have to agree before a command counts as
harmless. Everything is pure except ``Project.look``, which inspects the file system.

>>> parse_word("r''m").value, parse_word(r"\rm").value, parse_word("$x").value
('rm', 'rm', None)
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

from cdd_agent.untrusted.paths import PRIVATE_FOLDERS, explain_protection, find_private_part, is_secret

CommandClass: TypeAlias = Literal["read", "tests", "write", "other", "outside"]
"""``read``, ``tests`` and ``write`` stay in the project, ``outside`` changes something else, ``other`` is unknown."""
CLASSES: tuple[CommandClass, ...] = get_args(CommandClass)
"""From harmless to strictest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The known effect of a command, before it runs."""

    kind: CommandClass
    why: str = ""
    """Why the command is not harmless: a clause, or empty."""
    loses: str = ""
    """The loss it would cause: a clause, or empty if none is known."""
    lines: tuple[str, ...] = ()
    """Command lines that it runs, to be judged separately."""
    moves: bool = False
    """Whether it may change the shell's folder."""
    taints: bool = False
    """Whether it may change the meaning of later commands."""


def other_effect(why: str = "its effect is not clear from its text", *, loses: str = "") -> Effect:
    """Return the effect of a command that is not known to be harmless."""
    return Effect(kind="other", why=why, loses=loses)


READ = Effect(kind="read")


def combine(effects: Iterable[Effect]) -> Effect:
    """Return the strictest effect, with the losses, inner lines and flags of all."""
    result = READ
    for effect in effects:
        stricter = effect if CLASSES.index(effect.kind) > CLASSES.index(result.kind) else result
        result = replace(
            stricter,
            loses=result.loses or effect.loses,
            lines=result.lines + effect.lines,
            moves=result.moves or effect.moves,
            taints=result.taints or effect.taints,
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
    """The source text."""
    value: str | None
    """The argument that the program receives, with wildcards unexpanded; None if it is known only at run time."""
    is_pattern: bool = False
    """Whether ``value`` contains wildcards and may expand to several arguments."""
    is_home: bool = False
    """Whether it names a home folder with a tilde."""
    is_inside: bool = False
    """Whether it expands to paths inside the project that are not known yet."""

    @property
    def is_exact(self) -> bool:
        """Whether the program receives exactly ``value``."""
        return self.value is not None and not self.is_pattern

    @property
    def is_single(self) -> bool:
        """Whether the program receives exactly one argument for it."""
        return self.is_exact or (_QUOTED.fullmatch(self.text) is not None and "@" not in self.text)

    @property
    def canonical(self) -> str:
        """One spelling for all equal known words; the source text of any other word."""
        return shlex.quote(self.value) if self.value is not None and not self.is_pattern else self.text


def make_word(value: str) -> Word:
    """Return a word whose value is known."""
    return Word(text=shlex.quote(value), value=value)


def make_unknown_word(text: str, *, is_inside: bool = False) -> Word:
    """Return a word whose value is known only at run time."""
    return Word(text=text, value=None, is_inside=is_inside)


def expand_braces(text: str) -> tuple[Word, ...]:
    """Return the words that ``text`` expands to: several if it has one group of alternatives in braces."""
    braces = _BRACES.fullmatch(text)
    if braces is None or ".." in braces[2]:
        return (parse_word(text),)
    return tuple(parse_word(f"{braces[1]}{alternative}{braces[3]}") for alternative in braces[2].split(","))


def parse_word(text: str) -> Word:
    """Parse one word: remove its quotes and backslashes as bash does."""
    if text == "[":
        return Word(text=text, value=text)
    value: list[str] = []
    at, is_pattern = 0, False
    while at < len(text):
        letter = text[at]
        if letter == "'":
            piece, at = _parse_single_quoted(text, at)
        elif letter == '"':
            piece, at = _parse_double_quoted(text, at)
        elif letter == "\\":
            piece, at = (text[at + 1 : at + 2].replace("\n", "") if at + 1 < len(text) else None), at + 2
        elif letter == "~" and (at == 0 or text[at - 1] in "=:"):
            return Word(text=text, value=None, is_home=True)
        elif (
            letter in _BREAKS
            or letter == "`"
            or (letter == "#" and at == 0)
            or _is_brace_expansion(text, at)
            or (letter == "$" and (_EXPANDS.match(text, at) or text[at + 1 : at + 2] in ("'", '"')))
        ):
            return make_unknown_word(text)
        else:
            is_pattern = is_pattern or letter in _WILDCARDS
            piece, at = letter, at + 1
        if piece is None:
            return make_unknown_word(text)
        value.append(piece)
    return Word(text=text, value="".join(value), is_pattern=is_pattern)


def _is_brace_expansion(text: str, at: int) -> bool:
    # bash takes `{}` and a lone brace literally.
    if text[at] != "{" or text[at : at + 2] == "{}":
        return False
    rest = text[at:]
    return "}" in rest and ("," in rest or ".." in rest)


def _parse_single_quoted(text: str, at: int) -> tuple[str | None, int]:
    """Return the quoted text, or None if the quotes never close, and the offset behind the closing quote."""
    end = text.find("'", at + 1)
    return (None, len(text)) if end < 0 else (text[at + 1 : end], end + 1)


def _parse_double_quoted(text: str, at: int) -> tuple[str | None, int]:
    """Do the same for double quotes; the text is None also if bash expands something in it."""
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
"""The kind of a path: empty if nothing could be lost there, ``elsewhere`` if a link leads out of the project."""

Folders: TypeAlias = frozenset[str] | None
"""The absolute folders in which a command may run; None if it could be any folder."""

STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero", "/dev/urandom"})
"""Devices that commands may read and write."""
_OVERWRITES = "{} would be overwritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project in which commands would run."""

    root: str
    """Its absolute folder."""
    look: Callable[[str], Kind]
    """Returns the kind of an absolute path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The folders in which a command may run, and its input."""

    project: Project
    folders: Folders
    feeds_paths: bool = False
    """Whether its standard input contains only paths of the project."""

    def resolve(self, value: str) -> list[str] | None:
        """Return the absolute paths that ``value`` may name; None if its folder is not known."""
        if value.startswith("/"):
            return [_normalize(value)]
        if self.folders is None:
            return None
        return [_normalize(f"{folder}/{value}") for folder in self.folders]

    def is_outside(self, value: str) -> bool:
        """Return whether ``value`` may name a path outside the project."""
        root = self.project.root
        # A wildcard that matches `..` climbs out of its folder.
        climbing = (
            ".." if part.startswith(".") and _has_wildcard(part) and fnmatchcase("..", part) else part
            for part in value.split("/")
        )
        paths = self.resolve("/".join(climbing))
        return paths is None or any(path != root and not path.startswith(f"{root}/") for path in paths)

    def is_folder(self, word: Word) -> bool:
        """Return whether ``word`` certainly names a folder of the project."""
        paths = self.resolve(word.value) if word.value is not None else None
        return bool(paths) and all(self.project.look(path) == "folder" for path in paths or ())

    def is_linked_outside(self, value: str) -> bool:
        """Return whether a link in the project leads ``value`` out of it."""
        # The path is not normalized: `link/..` is the parent of the link's target.
        if value.startswith("/"):
            return self.project.look(value) == "elsewhere"
        return any(self.project.look(f"{folder}/{value}") == "elsewhere" for folder in self.folders or ())

    def move_to(self, word: Word) -> "CommandContext":
        """Return the context after the folder changes to ``word``."""
        paths = self.resolve(word.value) if word.value is not None and word.is_exact else None
        return replace(self, folders=None if paths is None else frozenset(paths))


def judge_read(word: Word, context: CommandContext) -> Effect:
    """Return the effect of reading the path that ``word`` names."""
    if word.is_inside:
        return READ
    if word.value is None:
        return other_effect("which file it reads is not clear from its text")
    value = word.value
    if value in STREAMS or value == "-":
        return READ
    if context.is_outside(value):
        return other_effect(f"{value} may be outside the project")
    if context.is_linked_outside(value):
        return other_effect(f"{value} leads out of the project")
    if word.is_pattern and any(part.startswith(".") and _has_wildcard(part) for part in value.split("/")):
        return other_effect(f"{value} may match files that hold secrets")
    inside = [path[len(context.project.root) + 1 :] for path in context.resolve(value) or ()]
    if any(is_secret(path) or find_private_part(path) is not None for path in inside):
        return other_effect(f"the model may not read {value}")
    return READ


def judge_write(word: Word, context: CommandContext, *, truncates: bool = False, follows: bool = True) -> Effect:
    """Return the effect of writing to the path that ``word`` names.

    Args:
        word: the path.
        context: the folders in which the command may run.
        truncates: the old content is lost.
        follows: if the path is a link, its target is written, not the link itself.
    """
    if word.value is None:
        kind: CommandClass = "outside" if word.is_home else "other"
        loses = f"the files that {word.text} names would be overwritten" if truncates else ""
        where = f"{word.text} is outside the project" if word.is_home else "where it writes is not clear from its text"
        return Effect(kind=kind, why=where, loses=loses)
    value = word.value
    if value in STREAMS:
        return READ
    if context.resolve(value) is None and not value.startswith("/"):
        climbs = ".." in value.split("/")
        loses = _OVERWRITES.format(value) if truncates else ""
        return Effect(kind="outside" if climbs else "other", why=f"the folder of {value} is not known", loses=loses)
    if context.is_outside(value):
        return Effect(kind="outside", why=f"{value} is outside the project")
    if context.is_linked_outside(value if follows or value.endswith("/") else posixpath.dirname(value) or "."):
        return Effect(kind="outside", why=f"{value} leads out of the project")
    parts = value.split("/") if word.is_pattern else []
    hidden = [part for part in parts if part.startswith(".") and _has_wildcard(part)]
    for path in context.resolve(value) or ():
        relative = path[len(context.project.root) + 1 :]
        why = "is private to git and cdd" if find_private_part(relative) is not None else explain_protection(relative)
        if why is not None:
            return Effect(kind="outside", why=f"{value} {why}")
    if any(fnmatchcase(name, part) for part in hidden for name in PRIVATE_FOLDERS):
        return Effect(kind="outside", why=f"{value} may match files that are private to git and cdd")
    exists = word.is_pattern or any(context.project.look(path) for path in context.resolve(value) or ())
    loses = _OVERWRITES.format(value) if truncates and exists else ""
    return other_effect(f"{value} may match settings", loses=loses) if hidden else Effect(kind="write", loses=loses)


def _normalize(path: str) -> str:
    # normpath keeps two leading slashes, as POSIX demands.
    return posixpath.normpath("/" + path.lstrip("/"))


def _has_wildcard(part: str) -> bool:
    return any(letter in part for letter in _WILDCARDS)
