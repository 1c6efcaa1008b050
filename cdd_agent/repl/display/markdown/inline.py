"""What is marked inside a paragraph: emphasis, code, links. Read by markdown-it, shown as a rich ``Text``.

markdown-it is imported with the first mark: most commands show none.
"""

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from cdd_agent.repl.display.clean import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MARK = re.compile(r"[\\`*_~\[<&]")
"""A text without any of these is shown as it is written."""

_STYLES = {"em": "italic", "strong": "bold", "s": "strike", "link": "underline"}
_CODE = "cyan"
_TARGET = "dim"
_DUNDER = re.compile(r"__[a-z][a-z0-9]*(?:_[a-z0-9]+)*__(?![A-Za-z0-9_])")
_OPEN_LINK = re.compile(r"\]\([^)]*$|\]\[[^\]]*$")
_LINE_END = re.compile(r"(?<! ) *+\n")
_IS_OPEN = "cdd_is_open"
_LARGEST = 5_000
"""Characters of a longer text are not read for marks: nobody writes it, and some marks take time with the square."""


def inline(source: str) -> tuple[Text, bool]:
    """``source`` as it is shown, and whether that holds whatever follows after a blank: no mark in it is left open.

    Line feeds of the result are hard breaks.
    """
    if len(source) > _LARGEST or not MARK.search(source):
        return Text(_LINE_END.sub(lambda found: "\n" if len(found[0]) > 2 else " ", source)), True
    tokens: list[Token] = []
    told: dict[str, bool] = {}
    parser = _parser()
    parser.inline.parse(source, parser, told, tokens)
    return _shown(tokens), not told.get(_IS_OPEN, False) and not _is_open(tokens)


def _is_open(tokens: Iterable["Token"]) -> bool:
    """Whether a code span or a link has begun that what follows may end."""
    text = "".join(token.content for token in tokens if token.type == "text")
    depth = 0
    for bracket in re.findall(r"[\[\]]", text):
        depth = max(0, depth + (1 if bracket == "[" else -1))
    return depth > 0 or "`" in text or _OPEN_LINK.search(text) is not None


@functools.cache
def _parser() -> "MarkdownIt":
    """CommonMark's marks and ``~~``; HTML is text, and a target is shown as it is written, whatever it is."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
    parser.inline.ruler.before("strikethrough", "dunder", _dunder)
    parser.inline.ruler2.push("left_open", _tell_open)
    for name, rule in {"normalizeLink": str, "normalizeLinkText": str, "validateLink": bool}.items():
        setattr(parser, name, rule)
    return parser


def _dunder(state: "StateInline", silent: bool) -> bool:
    """A rule of the parser: a name such as ``__init__`` is a name, though Markdown would make it bold."""
    found = _DUNDER.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "_" else None
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _tell_open(state: "StateInline") -> None:
    """A rule of the parser that tells whether emphasis has begun that has not ended."""
    state.env[_IS_OPEN] = any(mark.open and mark.end < 0 for mark in state.delimiters)


def _shown(tokens: Iterable["Token"]) -> Text:
    """The tokens of a paragraph."""
    text, styles = Text(), [Style()]
    links: list[tuple[Token, int]] = []
    for token in tokens:
        kind, _, edge = token.type.rpartition("_")
        match edge:
            case "open":
                styles.append(styles[-1] + Style.parse(_STYLES[kind]))
                if kind == "link":
                    links.append((token, len(text)))
            case "close":
                styles.pop()
                if kind == "link":
                    link, start = links.pop()
                    _append_target(
                        text, str(link.attrs["href"]), title=link.attrs.get("title"), named=text.plain[start:]
                    )
            case "softbreak":
                text.append(" ", styles[-1])
            case "hardbreak":
                text.append("\n")
            case "inline":
                text.append(token.content, styles[-1] + Style.parse(_CODE))
            case "image":
                text.append(token.content, styles[-1])
                _append_target(text, str(token.attrs["src"]), title=token.attrs.get("title"), named=token.content)
            case _:
                text.append(clean(token.content).replace("\n", " "), styles[-1])
    return text


def _append_target(text: Text, target: str, *, title: object, named: str) -> None:
    """Say where a link leads, unless its own words do."""
    told = [] if target.removeprefix("mailto:") == named else [target]
    told += [f'"{title}"'] if title else []
    if told:
        text.append(f" ({' '.join(told)})" if named else " ".join(told), _TARGET)
