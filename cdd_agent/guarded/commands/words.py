r"""Words of a command line: what bash makes of their quotes and backslashes, where that can be told. Pure.

The parser finds where commands begin and end; what a word means is worked out here, so that two readings have to
agree before a command counts as harmless.

>>> literal("r''m").value, literal(r"\rm").value, literal("$x").value
('rm', 'rm', None)
"""

import re
import shlex
from dataclasses import dataclass
from itertools import product

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
