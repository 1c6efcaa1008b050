"""Code between fences: its lines as they are written, in colors where its language is known.

A line is colored when it is complete, going on from the state in which pygments left the line before.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from rich.text import Text

LONGEST_LINE = 1_000
"""A longer line has no colors."""
LARGEST = 64_000
"""Characters of a block; what follows them has no colors."""

Paint = Callable[[str], Text]

_LANGUAGE = re.compile(r"\{?\.?([\w+#.-]+)")
_DIFFS = {"diff", "patch", "udiff"}
_PLAIN = {"text", "plain", "plaintext", "txt", "output"}
_COMMENT = "dim italic"
_STYLES = {
    "Token.Comment": _COMMENT,
    "Token.Keyword": "magenta",
    "Token.Operator.Word": "magenta",
    "Token.Name.Builtin": "cyan",
    "Token.Name.Function": "bright_blue",
    "Token.Name.Class": "bright_blue",
    "Token.Name.Decorator": "yellow",
    "Token.Name.Tag": "bright_blue",
    "Token.Name.Attribute": "cyan",
    "Token.Name.Exception": "cyan",
    "Token.Literal.String": "green",
    "Token.Literal.Number": "yellow",
    "Token.Generic.Deleted": "red",
    "Token.Generic.Inserted": "green",
    "Token.Generic.Heading": "bold",
    "Token.Generic.Subheading": "cyan",
    "Token.Generic.Prompt": "dim",
    "Token.Generic.Error": "red",
    "Token.Generic.Traceback": "red",
}
"""In the sixteen colors that a terminal's own theme defines; a kind not here looks as the kind it belongs to."""


def language(info: str) -> str:
    """The name of a language in what follows a fence."""
    found = _LANGUAGE.match(info)
    return found[1].lower() if found else ""


def paint(info: str, *, color: bool) -> Paint:
    """What makes a ``Text`` of each line of a block in turn."""
    name = language(info)
    if not color or not name or name in _PLAIN:
        return Text
    if name in _DIFFS:
        return _diff
    lexer = _lexer(name)
    return _Colors(lexer).paint if lexer is not None else Text


def _diff(line: str) -> Text:
    """A line of a diff."""
    if line.startswith(("+++", "---")):
        return Text(line, "bold")
    return Text(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))


class _Kind(Protocol):
    """A token's type."""

    @property
    def parent(self) -> "_Kind | None": ...

    def __hash__(self) -> int: ...


_Token = tuple[int, _Kind, str]


class _Lexer(Protocol):
    """What is used of a lexer of pygments."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[_Token]: ...


_Action = _Kind | Callable[[_Lexer, re.Match[str]], Iterator[_Token]] | None
_NewState = tuple[str, ...] | str | int | None
_Rules = dict[str, list[tuple[Callable[[str, int], re.Match[str] | None], _Action, _NewState]]]


@functools.cache
def _names() -> dict[str, str]:
    """Each name that a language is called by -> the name of its lexer; those of other packages are not asked for."""
    from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]

    return {alias: name for name, aliases, _, _ in get_all_lexers(plugins=False) for alias in aliases}


def _lexer(name: str) -> _Lexer | None:
    """A lexer for the language called ``name``; only its own module is imported."""
    from pygments.lexers import find_lexer_class

    known = _names().get(name)
    found = find_lexer_class(known) if known else None
    return cast(_Lexer, found()) if found is not None else None


class _Colors:
    """Colors the lines of one block in turn."""

    def __init__(self, lexer: _Lexer) -> None:
        """``lexer`` is at its beginning."""
        from pygments.lexer import RegexLexer  # type: ignore[import-untyped]

        self._lexer = lexer
        own = getattr(type(lexer), "get_tokens_unprocessed", None)
        has_states = own is RegexLexer.get_tokens_unprocessed
        self._rules = cast("_Rules | None", getattr(lexer, "_tokens", None)) if has_states else None
        self._states = ["root"]
        self._is_in_comment = False
        self._left = LARGEST

    def paint(self, line: str) -> Text:
        """One line."""
        self._left -= len(line)
        if len(line) > LONGEST_LINE or self._left < 0:
            return Text(line)
        if self._is_in_comment or self._begins_comment(line):
            self._is_in_comment = "*/" not in line
            return Text(line, _COMMENT)
        text = Text(line)
        for at, kind, value in self._tokens(f"{line}\n"):
            style = _style(kind)
            if style:
                text.stylize(style, at, min(at + len(value), len(line)))
        return text

    def _begins_comment(self, line: str) -> bool:
        """Whether ``line`` begins a comment of C's kind, which lexers see only when they see its end."""
        if not line.lstrip().startswith("/*"):
            return False
        kinds = [kind for _, kind, value in self._lexer.get_tokens_unprocessed("/**/") if value]
        return _style(kinds[0]) == _COMMENT

    def _tokens(self, line: str) -> Iterator[_Token]:
        """The tokens of ``line``: of a lexer that has states going on from the last, of another for itself."""
        if self._rules is None:
            yield from self._lexer.get_tokens_unprocessed(line)
            return
        at = 0
        while at < len(line):
            for match, action, new_state in self._rules[self._states[-1]]:
                found = match(line, at)
                if found is None:
                    continue
                if callable(action) and not isinstance(action, tuple):
                    yield from action(self._lexer, found)
                elif action is not None:
                    yield at, action, found[0]
                at = found.end()
                self._move(new_state)
                break
            else:
                if line[at] == "\n":
                    self._states = ["root"]
                at += 1

    def _move(self, new_state: _NewState) -> None:
        """Change the state as a rule says: go back, by name or by number, or into others."""
        if isinstance(new_state, int):
            del self._states[max(1, len(self._states) + new_state) :]
            return
        for state in (new_state,) if isinstance(new_state, str) else new_state or ():
            if state == "#pop":
                del self._states[max(1, len(self._states) - 1) :]
            else:
                self._states.append(self._states[-1] if state == "#push" else state)


@functools.cache
def _style(kind: _Kind) -> str:
    """The style of a kind of token."""
    look: _Kind | None = kind
    while look is not None:
        found = _STYLES.get(repr(look))
        if found:
            return found
        look = look.parent
    return ""
