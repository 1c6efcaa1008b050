"""Text that stands for code which somebody left out: ``# ... rest of the code unchanged`` and its like. Pure.

Models shorten what they hand in. Written to a file, such a line is a loss that no parser sees. A line counts if it is
a comment, or begins with an ellipsis, and says nothing but that something else would be here. Python's own ``...``
stays what it is.
"""

import re
from pathlib import PurePosixPath

from cdd_agent.errors import UsageError

_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ""})
"""Endings of files where ``#`` and ``--`` begin no comment."""
_LONGEST = 160
"""Characters of a line that is looked at: a sentence says more than that something is left out."""

_DOTS = r"(?:(?<!\.)\.{3,5}(?!\.)|…)"
_OPENINGS = r"(?://+|/\*+|\{/\*|<!--+|#+(?!!)|--+|;+|%+|\(\*|\"\"\"|'''|\*|rem\s)"
_CLOSINGS = r"(?:\*+/\}?|--+>|\*\)|\"\"\"|''')"
_COMMENT = re.compile(rf"(?:(?:pass|{_DOTS})\s+)?{_OPENINGS}\s*(?P<said>.*?)\s*{_CLOSINGS}?", re.IGNORECASE)
_DOTS_DEEPER = re.compile(rf"^(?:\W\s{{2,}}|\*\s*|-+\s*){_DOTS}$")
"""Dots in a comment that itself shows code, or in a list of one."""
_PROSE_COMMENT = re.compile(r"<!--+\s*(?P<said>.*?)\s*--+>")
_BARE = re.compile(rf"[\[(<{{]?\s*(?P<said>{_DOTS}.*\w.*?)\s*[\])>}}]?")

_THING = (
    r"(?:code|file|function|class|method|module|script|program|implementation|body|logic|contents?|document|"
    r"(?:test )?cases|tests?|imports?|definitions?|declarations?|functions|methods|classes|fields|properties|routes|"
    r"handlers|lines|parts?|sections?|items|entries|options|settings|rows|setup|stuff|things|styles|rules|markup|html|"
    r"jsx|elements|components|page|template|query|queries|columns|keys|values|constants|attributes|it|this)"
)
_NAMED = rf"(?:(?:the|your|our|all|any|of|this|that|these|its|my|[\w`.()-]{{1,30}}) ){{0,2}}{_THING}(?: {_THING})?"
_STAYS = (
    r"(?:(?:is|are|be|was|were|left|kept|remains?|stays?|goes|go|continues|follows|exactly|completely|all|here|"
    r"omitted|elided|skipped|truncated|abbreviated|shortened|unchanged|unmodified|untouched|unaltered|intact|identical|"
    r"the same|same|as before|as above|as is|as it was|as they were|as in the original|from before|below|above|"
    r"for brevity|for clarity|for space|to save space|not shown|no changes?)[ ,.]*)+"
)
_ENDS = (
    r"(?:unchanged|unmodified|untouched|unaltered|omitted|elided|intact|identical|the same|same|here|brevity|as before|"
    r"as above|as is|as it was|as they were|in the original|not shown|truncated|remains?|stays?|continues|follows)"
)
_REST = rf"(?:the )?(?:rest|remainder|remaining|others?|everything else|all else)(?: of)?(?: {_NAMED})?"
_EXISTING = (
    rf"(?:keep |your |the |all |any |my )*(?:existing|previous|original|current|old|earlier|prior|same) {_NAMED}"
)

_SUSPECT = re.compile(
    r"\.{3}|…|rest|remain|others?|else|existing|previous|original|current|old|earlier|prior|same|unchanged|omitted|snip|"
    r"truncated|elided|keep|leave",
    re.IGNORECASE,
)
"""One of these is in every stand-in: without any, no line need be looked at."""
_STATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:keep |leave )?{_REST} (?={_STAYS}$).*{_ENDS}[ .]*",
        rf"{_EXISTING} (?={_STAYS}$).*{_ENDS}[ .]*",
        rf"(?:{_NAMED} )?(?:(?:is|are|remains?|stays?|left) )*"
        r"(?:unchanged|omitted for (?:brevity|clarity|space)|(?:the )?same as before)[ .]*",
        r"(?:the )?(?:rest|remainder) of (?:the|your|this) (?:[\w`]{1,20} )?"
        r"(?:code|file|function|class|method|implementation|module|script)[ .]*",
        r"unchanged(?: (?:here|below|above))?[ .]*",
        r"(?:snip(?:ped)?|code omitted|omitted|truncated|elided)(?: for (?:brevity|clarity|space))?[ .]*",
        rf"(?:keep|leave) (?:the |your |all |everything )*(?:rest|existing|others?|else)(?: of)?(?: {_NAMED})? "
        r"(?:as is|unchanged|intact|as before|the same|as it was|as they were)[ .]*",
    )
)
"""What a comment says that is nothing but a stand-in, with dots or without."""

_WITH_DOTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:and )?{_REST}",
        r"(?:and )?(?:the )?(?:rest|remainder) of [\w `.()]{1,40}",
        rf"(?:{_REST}|{_EXISTING}|{_NAMED}) (?:{_STAYS})",
        _EXISTING,
        rf"(?:more|other|further|similar|additional|old|existing|previous) {_NAMED}",
        _STAYS,
        r"(?:etc|and so on|continued|snip|omitted)",
    )
)
"""What a comment says, besides, between or beside dots."""


def elisions(text: str, *, before: str, name: str) -> tuple[tuple[int, str], ...]:
    """Lines of ``text`` that stand for code left out, each with its number; those that ``before`` has are spared.

    ``name``: of the file; its ending says what begins a comment.
    """
    if _SUSPECT.search(text) is None:
        return ()
    known = {line.strip() for line in before.split("\n")}
    rows = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    is_prose = PurePosixPath(name).suffix.lower() in _PROSE and PurePosixPath(name).name not in {
        "Makefile",
        "Dockerfile",
    }
    return tuple(
        (number, line) for number, line in rows if line not in known and _stands_for_code(line, is_prose=is_prose)
    )


def require_whole(text: str, *, before: str, name: str) -> None:
    """Raise ``UsageError`` naming the first line of ``text`` that stands for code left out."""
    found = elisions(text, before=before, name=name)
    if found:
        number, line = found[0]
        raise UsageError(
            f"Line {number} of the new text for {name} stands for code that is left out: {line}\nNothing was changed.",
            hint="write the code itself; to change a part, replace that part alone, with text that is all there; a "
            "comment that means something else has to say what",
        )


def _stands_for_code(line: str, *, is_prose: bool) -> bool:
    """Whether a line, without white space around it, says only that something else would be here."""
    if not 3 <= len(line) <= _LONGEST or _SUSPECT.search(line) is None:
        return False
    if _DOTS_DEEPER.search(line):
        return False
    found = (_PROSE_COMMENT if is_prose else _COMMENT).fullmatch(line) or _BARE.fullmatch(line)
    return found is not None and _is_stand_in(found["said"])


def _is_stand_in(said: str) -> bool:
    """Whether the words of a comment are nothing but a stand-in."""
    words = re.sub(rf"^[\s\[(<{{]*{_DOTS}?[\s\[(<{{:,=-]*|[\s\])>}}=-]*{_DOTS}?[\s\])>}}.!]*$", "", said)
    words = " ".join(words.replace("'", "").replace("(", "").replace(")", "").split())
    has_dots = re.search(_DOTS, said) is not None
    if not words:
        return has_dots
    return any(state.fullmatch(words) for state in _STATES) or (
        has_dots and any(pattern.fullmatch(words) for pattern in _WITH_DOTS)
    )
