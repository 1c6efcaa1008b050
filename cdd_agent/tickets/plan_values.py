"""The values of a step's key lines as people write them: dependencies, paths, criteria, kinds.

Each reader takes the text after the colon and raises ``ValueError``, with a sentence for the writer, where it cannot
tell what is meant.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeVar

from cdd_agent.tickets.plan import KINDS, Kind

Item = TypeVar("Item", int, str)

_KINDS: dict[str, Kind] = {
    **{kind: kind for kind in KINDS},
    "feat": "feature",
    "enhancement": "feature",
    "fix": "bug",
    "bugfix": "bug",
    "refactoring": "refactor",
    "doc": "docs",
    "documentation": "docs",
}

_NOTHING = re.compile(r"(?:(?:none|nothing|no|n/a|tbd|[-\u2013\u2014])(?:\.|[\s,;:(][^`]*)?)?", re.IGNORECASE)
_DEPENDENCY = re.compile(
    r"(?:steps?\b\s*)?\#?(?P<first>\d+)(?:\s*(?:-|\u2013|\.\.|to|through)\s*(?:step\s*)?\#?(?P<last>\d+))?"
    r"(?:\s*(?:\(|:|-\s|\u2013|\u2014).*)?",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"(?P<span>(?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`))"
    r"|(?P<link>\[(?P<label>[^\]]+)\]\([^)]*\))"
    r"|(?P<note>\([^()]*\))"
    r"|(?P<separator>[,;])"
    r"|(?P<join>(?:and|&|\+)(?=\s))"
    r"|(?P<word>(?:\[[^\]]*\]|[^\s,;`])+|`)",
    re.IGNORECASE,
)
_TRAILING = re.compile(r":+$|(?<=\w)\.$")
_PATH = re.compile(r".*(?:/|\.\w+$|::)", re.DOTALL)
_CRITERION = re.compile(r"[A-Za-z]+[-_]?\d+")


def dependencies(value: str) -> tuple[int, ...]:
    """The step numbers in ``none``, ``1, 2``, ``Step 1 and #2`` or ``1-3``; text in parentheses is a note."""
    text = re.sub(r"\([^()]*\)", " ", value.replace("`", "")).strip().rstrip(".")
    if not re.search(r"\d", text) and _NOTHING.fullmatch(text):
        return ()
    found: list[int] = []
    for part in re.split(r"\s*(?:[,;&+]|\band\b)\s*", text, flags=re.IGNORECASE):
        match = _DEPENDENCY.fullmatch(part.strip())
        if part.strip() and not match:
            raise ValueError(f"cannot tell which step '{part.strip()}' is; write `1, 2` or `none`")
        if match:
            first, last = int(match["first"]), int(match["last"] or match["first"])
            if not 0 <= last - first < 1000:
                raise ValueError(f"'{part.strip()}' is not a range of steps; name each step")
            found += range(first, last + 1)
    return _once(found)


def paths(value: str) -> tuple[str, ...]:
    """Paths or node ids, with or without backticks, each perhaps followed by a note."""
    return _once(_items(value, _PATH))


def criteria(value: str) -> tuple[str, ...]:
    """Ids of acceptance criteria; ``ac-1`` is ``AC-1``."""
    return _once(item.upper() if _CRITERION.fullmatch(item) else item for item in _items(value, _CRITERION))


def kind(value: str) -> Kind:
    """One of the kinds, or a common other name of it."""
    word = value.strip().strip("`*").lower()
    if word not in _KINDS:
        raise ValueError(f"'{value.strip()}' is not a kind of step; write one of {', '.join(KINDS)}")
    return _KINDS[word]


class _Token(NamedTuple):
    kind: Literal["quoted", "note", "separator", "join", "word"]
    text: str


def _tokens(value: str) -> Iterable[_Token]:
    for match in _TOKEN.finditer(value):
        if match["span"]:
            code = match["code"]
            padded = len(code) > 2 and code[0] == code[-1] == " " and code.strip()
            yield _Token("quoted", code[1:-1] if padded else code)
        elif match["link"]:
            yield _Token("quoted", match["label"].strip("`"))
        elif match["note"]:
            yield _Token("note", "")
        elif match["separator"]:
            yield _Token("separator", match["separator"])
        elif match["join"]:
            yield _Token("join", match["join"])
        else:
            yield _Token("word", _TRAILING.sub("", match["word"]))


def _items(value: str, looks_right: re.Pattern[str]) -> Iterable[str]:
    """The items of a list whose items may carry notes.

    The first thing, and whatever follows a separator, is an item. Words after an item are its note, up to the next
    comma; after a note only what is quoted or ``looks_right`` is an item again.
    """
    if _NOTHING.fullmatch(value.strip().strip("`")):
        return
    expected, in_note = True, False
    for token in _tokens(value):
        is_item = token.kind in ("quoted", "word") and bool(token.text)
        likely = is_item and looks_right.match(token.text) is not None
        if token.kind == "separator":
            expected = True
        elif token.kind == "join":
            expected = expected or not in_note
        elif in_note:
            if expected and likely:
                yield token.text
                in_note = False
            expected = False
        elif is_item and (expected or likely or token.kind == "quoted"):
            yield token.text
            expected = False
        elif is_item:
            in_note, expected = True, False


def _once(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(items))
