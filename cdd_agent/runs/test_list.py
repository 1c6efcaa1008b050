"""The test list of a feature, the list agent's answer, and the objections to both.

The list is Markdown checkboxes, one per test, as people and models write them. cdd trusts neither the list nor the
answer alone: a test is done when its cycle is completed, and the feature when answer, list and cycles agree.
All functions are pure.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.handoff import CurrentTest
from pytest_tdd_agent.report import Clause, Part, Reason

NAME = "test-list.md"
"""In the project's folder."""
MAX_LINE_CHARACTERS = 1_000
"""A longer line does not list a test."""
MAX_ANSWER_CHARACTERS = 20_000
MAX_DESCRIPTION_CHARACTERS = 300
COVERED = "(covered)"
"""Mark behind a test that passed at once."""
DROPPED = "(dropped)"
"""Mark behind a test that passed at once and proves nothing; its box stays open."""
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_BOX = re.compile(r"\s*(?:>\s*)*(?:[-*+•]|\d{1,9}[.)])\s*\[(?P<mark>[^\[\]]?)\]\s*(?P<text>\S.*)")
_COVERED_MARK = re.compile(
    r"\s*(?:-|\u2013|\u2014|:|,)?\s*[*_]*[(\[]\s*(?:(?:already\s+)?covered|(?P<dropped>dropped))\s*[)\]][*_]*\s*$",
    re.IGNORECASE,
)
_DECORATION = re.compile(r"[*_`~]+")
_DONE_MARKS = frozenset("xX✓✔☑~")
_ANSWER_FORM = '{"currentTest": {"description": "...", "testFile": "...", "implFile": "..."}} or {"currentTest": null}'
_TEST_NAME = re.compile(r"(test_\w+|\w+_test|[\w.-]+[.-](test|spec)|\w*(Test|Tests|Spec|IT))\.\w+")
_IN_TEST_FOLDER = re.compile(r"(?:.*/)?(?:tests?|__tests__|specs?)/(?:.*/)?[^/]+\.\w+")
_PYTHON_TEST = re.compile(r"(test_\w*|\w+_test)\.py")
_NOT_TESTS = frozenset({"conftest.py", "__init__.py"})
_TEST_DEFINITION = re.compile(
    r"""\b(?:def|func|fn|fun|void|async)\s+(?P<function>\w*test\w*)\s*[(<]"""
    r"""|\b(?:it|test|specify)(?:\.\w+)*(?:\([^()]{0,300}\))?\s*\(\s*(?P<quote>["'`])(?P<words>.{1,300}?)(?P=quote)""",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One test of the list."""

    text: str
    """The description without its marks."""
    line: int
    """1-based."""
    is_done: bool
    """The box is ticked."""
    is_dropped: bool = False
    """The text has the mark of a dropped test."""


class UnreadableAnswer(ValueError):
    """An answer that does not have the required form."""

    def __init__(self, problem: Clause) -> None:
        """Say what is wrong with it."""
        super().__init__(problem.case)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFacts:
    """The facts against which an answer is checked."""

    before: tuple[ListEntry, ...]
    """The committed list."""
    now: tuple[ListEntry, ...]
    """The list as the agent left it."""
    completed: tuple[str, ...]
    """Descriptions of the tests whose cycles are completed."""
    dropped: tuple[str, ...] = ()
    """Descriptions of the tests that were removed."""
    resolve_path: Callable[[str], str]
    """Returns a path relative to the project; raises ``UsageError`` for one outside."""
    read_text: Callable[[str], str | None]
    """Returns the content of a file, or None if it does not exist."""


def parse(markdown: str) -> tuple[ListEntry, ...]:
    """Return the tests of a list in order; lines that are not checkboxes are ignored, and so is fenced code."""
    entries: list[ListEntry] = []
    fence = ""
    for number, line in enumerate(markdown.removeprefix("\ufeff").split("\n"), start=1):
        opened = _FENCE.match(line)
        if fence or opened:
            is_end = bool(fence and opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]))
            fence = "" if is_end else fence or (opened[1] if opened else "")
            continue
        box = _BOX.fullmatch(line.rstrip()) if len(line) <= MAX_LINE_CHARACTERS else None
        if box is None:
            continue
        mark, text = _COVERED_MARK.search(box["text"]), _COVERED_MARK.sub("", box["text"]).strip()
        if text:
            is_done = box["mark"] != "" and box["mark"] in _DONE_MARKS
            is_dropped = mark is not None and mark["dropped"] is not None
            entries.append(ListEntry(text=text, line=number, is_done=is_done, is_dropped=is_dropped))
    return tuple(entries)


def normalize(description: str) -> str:
    """Return a description without case, decoration, extra spaces and final punctuation, for comparison.

    >>> normalize("**Adds** `two` numbers.") == normalize("adds two  numbers")
    True
    """
    plain = _DECORATION.sub("", _COVERED_MARK.sub("", description))
    return " ".join(plain.split()).rstrip(".!;").rstrip().casefold()


def find_entry(entries: tuple[ListEntry, ...], description: str) -> ListEntry | None:
    """Return the entry with this description; the first open one if there are several."""
    alike = [entry for entry in entries if normalize(entry.text) == normalize(description)]
    return next((entry for entry in alike if not (entry.is_done or entry.is_dropped)), alike[0] if alike else None)


def list_open(entries: tuple[ListEntry, ...]) -> tuple[str, ...]:
    """Return the descriptions of the tests that are still to be written."""
    return tuple(entry.text for entry in entries if not (entry.is_done or entry.is_dropped))


def read_answer(answer: str) -> CurrentTest | None:
    """Return the test that an agent's answer chooses, or None if it says that all tests are done.

    Raises ``UnreadableAnswer`` if it says neither. Text around the JSON is ignored, and the last JSON object counts.
    """
    found = list(_find_answers(answer[:MAX_ANSWER_CHARACTERS]))
    if not found:
        raise UnreadableAnswer(Clause("answer_without_json"))
    chosen = found[-1]["currentTest"]
    if chosen is None:
        return None
    try:
        test = msgspec.convert(chosen, CurrentTest)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(Clause("answer_malformed", {"error": str(error)})) from error
    description = format_line(test.description)[:MAX_DESCRIPTION_CHARACTERS].strip()
    if not description:
        raise UnreadableAnswer(Clause("answer_empty"))
    return CurrentTest(description=description, test_file=test.test_file.strip(), impl_file=test.impl_file.strip())


def resolve_paths(choice: CurrentTest, resolve_path: Callable[[str], str]) -> CurrentTest:
    """Return ``choice`` with paths relative to the project; raises ``UsageError`` for a path outside."""
    test_file, impl_file = (resolve_path(path) if path else "" for path in (choice.test_file, choice.impl_file))
    return CurrentTest(description=choice.description, test_file=test_file, impl_file=impl_file)


def format_answer(choice: CurrentTest | None) -> str:
    """Return the answer with this choice."""
    return json.dumps({"currentTest": msgspec.to_builtins(choice)})


def find_objections(answer: str, facts: ListFacts) -> tuple[Reason, ...]:
    """Return the objections to an answer and to the list that the agent left."""
    found = [*_check_list(facts), *_check_dropped(facts)]
    try:
        choice = read_answer(answer)
    except UnreadableAnswer as error:
        return (*found, _object("no_answer", problem=error.problem, form=_ANSWER_FORM))
    if choice is not None:
        return (*found, *_check_choice(choice, facts))
    if left := list_open(facts.now):
        found.append(_object("list_open", left=len(left), count=len(facts.now), tests=left))
    return tuple(found)


def is_test_file(path: str, *, is_there: bool = False) -> bool:
    """Return whether test frameworks look for tests in a file with this name.

    If ``is_there``, the file exists, so a Python file in a test folder counts whatever its name is.

    >>> is_test_file("tests/test_sum.py"), is_test_file("src/sum.test.ts"), is_test_file("tests/conftest.py")
    (True, True, False)
    """
    name = path.rpartition("/")[2]
    if name in _NOT_TESTS:
        return False
    if name.endswith(".py") and not is_there:
        return _PYTHON_TEST.fullmatch(name) is not None
    return _TEST_NAME.fullmatch(name) is not None or _IN_TEST_FOLDER.fullmatch(path) is not None


def _check_list(facts: ListFacts) -> Iterator[Reason]:
    if not facts.now:
        yield _object("list_missing")
        return
    lost = len(facts.before) - len(facts.now)
    if lost > 0:
        yield _object("list_shrunk", lost=lost, count=len(facts.before))
    completed = {normalize(each) for each in facts.completed}
    may_be_done = completed | {normalize(entry.text) for entry in facts.before if entry.is_done}
    for entry in facts.now:
        if entry.is_done and normalize(entry.text) not in may_be_done:
            yield _object("ticked_too_early", line=entry.line, test=entry.text)
    present = {normalize(entry.text): entry for entry in facts.now}
    for description in facts.completed:
        listed = present.get(normalize(description))
        if listed is None:
            yield _object("list_shrunk", case="completed_test_lost", test=description)
        elif not listed.is_done:
            yield _object("not_ticked", line=listed.line, test=description)
    seen: set[str] = set()
    for entry in facts.now:
        if normalize(entry.text) in seen:
            yield _object("duplicate", line=entry.line, test=entry.text)
        seen.add(normalize(entry.text))


def _check_dropped(facts: ListFacts) -> Iterator[Reason]:
    dropped = {normalize(each) for each in facts.dropped}
    for entry in facts.now:
        if entry.is_dropped and normalize(entry.text) not in dropped:
            yield _object("dropped_too_early", line=entry.line, test=entry.text, mark=DROPPED)
        elif normalize(entry.text) in dropped and not entry.is_dropped:
            yield _object("not_dropped", line=entry.line, test=entry.text, mark=DROPPED)


def _check_choice(choice: CurrentTest, facts: ListFacts) -> Iterator[Reason]:
    entry = find_entry(facts.now, choice.description)
    if entry is None:
        yield _object("not_listed", test=choice.description)
    elif entry.is_done or normalize(choice.description) in {normalize(each) for each in facts.completed}:
        yield _object("already_done", test=choice.description)
    elif entry.is_dropped:
        yield _object("already_done", case="already_dropped", test=choice.description)
    try:
        choice = resolve_paths(choice, facts.resolve_path)
    except UsageError as error:
        yield _object("outside_project", error=error.happened)
        return
    content = facts.read_text(choice.test_file)
    if not is_test_file(choice.test_file, is_there=content is not None):
        yield _object("no_test_file", file=choice.test_file)
    if is_test_file(choice.impl_file) or choice.impl_file in (choice.test_file, NAME, "", "."):
        yield _object("no_source_file", file=choice.impl_file)
    wanted = _split_words(choice.description)
    names = (found["function"] or found["words"] for found in _TEST_DEFINITION.finditer(content or ""))
    double = next((name for name in names if _split_words(name) == wanted), None)
    if double is not None:
        yield _object(
            "duplicate", case="test_defined_already", file=choice.test_file, name=double, test=choice.description
        )


def _object(code: str, *, case: str = "", **parts: Part) -> Reason:
    return Reason(code=code, nodeid=None, case=case, parts={"list": NAME, **parts})


def _find_answers(words: str) -> Iterator[dict[str, object]]:
    """Yield the outermost JSON objects in a text that have the key ``currentTest``."""
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


def _split_words(name: str) -> tuple[str, ...]:
    words = (word.casefold() for word in _WORD.findall(_CAMEL_BOUNDARY.sub(" ", name)))
    return tuple(word for word in words if word not in ("test", "tests"))
