"""The test list of a feature: Markdown checkboxes, one a test, read as people and models write them. Pure.

What the list agent answers, and what speaks against it: the test list, the cycles so far and the files. Pure.

The program never believes the answer or the list alone: a box is ticked by the cycle that completed its test, and the
feature is complete when answer, list and cycles say so all three.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.text import in_one_line
from pytest_tdd_agent.report import Reason

NAME = "test-list.md"
"""In the project's folder."""
LONGEST_LINE = 1_000
"""Characters; what is longer lists no test."""
COVERED = "(covered)"
"""What stands behind a test that passed at once, so that it needed no code."""

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_BOX = re.compile(r"\s*(?:>\s*)*(?:[-*+•]|\d{1,9}[.)])\s*\[(?P<mark>[^\[\]]?)\]\s*(?P<text>\S.*)")
_MARK = re.compile(r"\s*(?:-|\u2013|\u2014|:|,)?\s*[*_]*[(\[]\s*(?:already\s+)?covered\s*[)\]][*_]*\s*$", re.IGNORECASE)
_DECORATION = re.compile(r"[*_`~]+")
_DONE = frozenset("xX✓✔☑~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One test of the list."""

    text: str
    """What it is to show, without its mark."""
    line: int
    """1-based."""
    is_done: bool
    """Its box is ticked."""
    is_covered: bool = False
    """It is marked as one that passed at once."""


def parse(text: str) -> tuple[Entry, ...]:
    """The tests of a list, in its order; everything that is no checkbox is the writer's own, fenced code too."""
    return tuple(_entries(text.removeprefix("\ufeff")))


def _entries(text: str) -> Iterator[Entry]:
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        opened = _FENCE.match(line)
        if fence or opened:
            is_end = bool(fence and opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]))
            fence = "" if is_end else fence or (opened[1] if opened else "")
            continue
        box = _BOX.fullmatch(line.rstrip()) if len(line) <= LONGEST_LINE else None
        if box is None:
            continue
        said = _MARK.sub("", box["text"]).strip()
        is_covered = said != box["text"].strip()
        if said:
            yield Entry(
                text=said, line=number, is_done=box["mark"] in _DONE and bool(box["mark"]), is_covered=is_covered
            )


def same(description: str) -> str:
    """What two descriptions of one test have in common: case, decoration, spaces and a full stop tell nothing.

    >>> same("**Adds** `two` numbers.") == same("adds two  numbers")
    True
    """
    plain = _DECORATION.sub("", _MARK.sub("", description))
    return " ".join(plain.split()).rstrip(".!;").rstrip().casefold()


def find(entries: tuple[Entry, ...], description: str) -> Entry | None:
    """The entry of this description; of several the first one that is open."""
    alike = [entry for entry in entries if same(entry.text) == same(description)]
    return next((entry for entry in alike if not entry.is_done), alike[0] if alike else None)


def open_ones(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The descriptions of those that are still to do."""
    return tuple(entry.text for entry in entries if not entry.is_done)


LONGEST = 20_000
"""Characters of an answer that are looked at."""
LONGEST_DESCRIPTION = 300

_FORM = '{"currentTest": {"description": "...", "testFile": "...", "implFile": "..."}} or {"currentTest": null}'
_NAMED_SO = re.compile(r"(test_\w+|\w+_test|[\w.-]+[.-](test|spec)|\w*(Test|Tests|Spec|IT))\.\w+")
_IN_A_FOLDER = re.compile(r"(?:.*/)?(?:tests?|__tests__|specs?)/(?:.*/)?[^/]+\.\w+")
_PYTHON = re.compile(r"(test_\w*|\w+_test)\.py")
_SETTINGS = frozenset({"conftest.py", "__init__.py"})
_NAMES = re.compile(
    r"""\b(?:def|func|fn|fun|void|async)\s+(?P<function>\w*test\w*)\s*[(<]"""
    r"""|\b(?:it|test|specify)(?:\.\w+)*(?:\([^()]{0,300}\))?\s*\(\s*(?P<quote>["'`])(?P<words>.{1,300}?)(?P=quote)""",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The test that comes next."""

    description: str
    test_file: str
    """Relative to the project."""
    impl_file: str
    """Relative to the project; empty if nobody knows any more."""


class _Test(msgspec.Struct, rename="camel"):
    description: str
    test_file: str
    impl_file: str


class Unreadable(ValueError):
    """The words hold no answer of the form that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an answer is held against."""

    before: tuple[Entry, ...]
    """The list as it was last committed."""
    now: tuple[Entry, ...]
    """The list as the agent left it."""
    completed: tuple[str, ...]
    """Descriptions of the tests whose cycles are completed."""
    relative: Callable[[str], str]
    """The name of a path in the project; raises ``UsageError`` for one outside."""
    content: Callable[[str], str | None]
    """What is in a file; None if there is no such file."""


def read(words: str) -> Choice | None:
    """The test that an agent's last words choose, or None if they say that all are done.

    Raises ``Unreadable`` where they say neither. Text round the JSON is passed over; the last answer of several counts.
    """
    found = list(_objects(words[:LONGEST]))
    if not found:
        raise Unreadable("the last words of the answer hold no JSON with the key currentTest")
    chosen = found[-1]["currentTest"]
    if chosen is None:
        return None
    try:
        test = msgspec.convert(chosen, _Test)
    except msgspec.ValidationError as error:
        raise Unreadable(f"currentTest is not of the form that is asked for: {error}") from error
    description = in_one_line(test.description)[:LONGEST_DESCRIPTION].strip()
    if not description:
        raise Unreadable("the description of currentTest is empty")
    return Choice(description=description, test_file=test.test_file.strip(), impl_file=test.impl_file.strip())


def placed(choice: Choice, relative: Callable[[str], str]) -> Choice:
    """``choice`` with its paths as records name them; raises ``UsageError`` for one outside the project."""
    test_file, impl_file = (relative(path) if path else "" for path in (choice.test_file, choice.impl_file))
    return Choice(description=choice.description, test_file=test_file, impl_file=impl_file)


def written(choice: Choice | None) -> str:
    """The answer that makes this choice."""
    if choice is None:
        return '{"currentTest": null}'
    test = _Test(description=choice.description, test_file=choice.test_file, impl_file=choice.impl_file)
    return json.dumps({"currentTest": msgspec.to_builtins(test)})


def objections(words: str, known: Known) -> tuple[Reason, ...]:
    """What speaks against an answer and the list that goes with it; nothing if both stand."""
    return tuple(Reason(code=code, nodeid=None, message=message) for code, message in _all_objections(words, known))


def is_test_file(path: str, *, is_there: bool = False) -> bool:
    """Whether tests would be looked for in a file of this name; ``is_there``: it lies among the tests already.

    >>> is_test_file("tests/test_sum.py"), is_test_file("src/sum.test.ts"), is_test_file("tests/conftest.py")
    (True, True, False)
    """
    name = path.rpartition("/")[2]
    if name in _SETTINGS:
        return False
    if name.endswith(".py") and not is_there:
        return _PYTHON.fullmatch(name) is not None
    return _NAMED_SO.fullmatch(name) is not None or _IN_A_FOLDER.fullmatch(path) is not None


def _all_objections(words: str, known: Known) -> Iterator[tuple[str, str]]:
    yield from _of_list(known)
    try:
        choice = read(words)
    except Unreadable as error:
        yield "no_answer", f"{str(error)[0].upper()}{str(error)[1:]}. End your answer with {_FORM}."
        return
    if choice is None:
        yield from _of_the_end(known)
    else:
        yield from _of_choice(choice, known)


def _of_list(known: Known) -> Iterator[tuple[str, str]]:
    """What is wrong with the list itself."""
    if not known.now:
        yield "list_missing", f"{NAME} has no test. Write one line `- [ ] what it shows` for each test."
        return
    lost = len(known.before) - len(known.now)
    if lost > 0:
        yield "list_shrunk", f"{NAME} has lost {lost} of its {len(known.before)} tests. Put them back."
    completed = {same(each) for each in known.completed}
    may_be = completed | {same(entry.text) for entry in known.before if entry.is_done}
    for entry in known.now:
        if entry.is_done and same(entry.text) not in may_be:
            told = f"Line {entry.line} of {NAME} ticks {entry.text!r}, which no cycle has completed."
            yield "ticked_too_early", f"{told} Make its box [ ] again."
    present = {same(entry.text): entry for entry in known.now}
    for description in known.completed:
        listed = present.get(same(description))
        if listed is None:
            told = f"{NAME} does not name the completed test {description!r} any more."
            yield "list_shrunk", f"{told} Put it back as `- [x] {description}`."
        elif not listed.is_done:
            told = f"{description!r} is completed, and line {listed.line} of {NAME} has it open."
            yield "not_ticked", f"{told} Make its box [x]."
    seen: set[str] = set()
    for entry in known.now:
        if same(entry.text) in seen:
            yield (
                "duplicate",
                f"Line {entry.line} of {NAME} lists {entry.text!r} a second time. Word it anew.",
            )
        seen.add(same(entry.text))


def _of_the_end(known: Known) -> Iterator[tuple[str, str]]:
    """What speaks against that all is done."""
    left = open_ones(known.now)
    if left:
        shown = "; ".join(left[:3]) + (f"; and {len(left) - 3} more" if len(left) > 3 else "")
        told = f"The answer says that all tests are done, and {len(left)} of {len(known.now)} are open: {shown}."
        yield "list_open", f"{told} Choose one of them."


def _of_choice(choice: Choice, known: Known) -> Iterator[tuple[str, str]]:
    """What speaks against a test that is chosen."""
    entry = find(known.now, choice.description)
    if entry is None:
        told = f"{choice.description!r} is not in {NAME}."
        yield "not_listed", f"{told} Choose a description that is there, word for word, or add it to the list first."
    elif entry.is_done or same(choice.description) in {same(each) for each in known.completed}:
        yield "already_done", f"{choice.description!r} is done already. Choose an open one."
    try:
        choice = placed(choice, known.relative)
    except UsageError as error:
        yield "outside_project", f"{error.happened} Name files of the project, relative to its folder."
        return
    content = known.content(choice.test_file)
    if not is_test_file(choice.test_file, is_there=content is not None):
        told = f"testFile {choice.test_file!r} is no file that tests are looked for in."
        yield "no_test_file", f"{told} Name it as the project names its tests, tests/test_....py for example."
    if is_test_file(choice.impl_file) or choice.impl_file in (choice.test_file, NAME, "", "."):
        yield "no_source_file", f"implFile {choice.impl_file!r} is no source. Name the file that the code belongs in."
    double = next((name for name in _tests_in(content or "") if _words(name) == _words(choice.description)), None)
    if double is not None:
        told = f"{choice.test_file} has a test {double!r} already."
        yield "duplicate", f"{told} If it shows what {choice.description!r} asks for, word another test."


def _objects(words: str) -> Iterator[dict[str, object]]:
    """The JSON objects in a text that have the key, in their order, none inside another."""
    decoder, at = json.JSONDecoder(), words.find("{")
    while at != -1:
        try:
            value, end = decoder.raw_decode(words, at)
        except (ValueError, RecursionError):
            value, end = None, at + 1
        if isinstance(value, dict) and "currentTest" in value:
            yield value
        else:
            end = at + 1
        at = words.find("{", end)


def _tests_in(source: str) -> Iterator[str]:
    """The names of the tests in a source, of whatever language."""
    for found in _NAMES.finditer(source):
        yield found["function"] or found["words"]


def _words(name: str) -> tuple[str, ...]:
    """What a name or a sentence says, ``test`` left out."""
    words = (word.casefold() for word in _WORD.findall(_HUMP.sub(" ", name)))
    return tuple(word for word in words if word not in ("test", "tests"))
