"""Compare a note's statements about the checks of a phase with the commit, and with the findings of a new check. Pure.

A place or function that cannot be in the change refutes the note. The number of calls depends on the time that a check
had, and the chosen places on the version of cdd, so another possible value is only reported. Times and numbers of runs
cannot be checked.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.evidence.source import find_changed_lines, list_lines
from cdd_agent.untrusted.python_source import parse

_OF_CHANGE = (
    "Checked in a clean copy",
    "To review in the change",
    "No test fails if these changed functions raise",
    "The targets fail if the changed functions raise",
)
"""Statements whose places are in the change."""
# Anybody may write notes. These patterns begin only where a word or number does, and read a few digits of a number, so
# that no long line takes minutes.
_PLACE = re.compile(r"(?<![^\s:(,;])([^\s:(,;]+\.\w+):(\d{1,9})")
_SPENT = re.compile(r" \((?:\d+ runs?, )?[\d.]+ s\)")
_CALLS = re.compile(r"(?<!\d)(\d{1,9})\d* calls? of (.{1,2000}?) (?:had|have) the same result")
_OUTSIDE = re.compile(r"; outside of a test run, .+? had the same result")
_OF_CALLS = ("Also changed", "Checked outside", "Compared with the code before", "Not compared with")
_OF_RUN = ("Test results reused", "Checked in a fork", "No change was needed")
_OTHERS = re.compile(r"(?:,| and) (\d{1,9}) more$")
_MOST_OUTSIDE, _MOST_COMPARED = 10, 7_000
"""Calls of one function that cdd compares, at most: outside of a test run, and with the code before."""


def find_false_details(stated: Sequence[str], changes: Sequence[ProductChange], *, product: str) -> Iterator[str]:
    """Yield the details that cannot be true: places outside of the change, unknown functions, too many calls.

    ``product``: the sources of the product, one after the other.
    """
    texts = {change.path: change for change in changes}
    for line in stated:
        if line.startswith(_OF_CHANGE):
            yield from _find_wrong_places(line, texts)
        for count, names in _read_calls(line):
            functions = _split_names(names)
            others = _OTHERS.search(names)
            number = len(functions) + (int(others.group(1)) if others else 0)
            most = _MOST_OUTSIDE if "outside of a test run" in line else _MOST_COMPARED
            unknown = [name for name in functions if not re.search(rf"\b{re.escape(_last(name))}\b", product)]
            if unknown:
                yield f"It states calls of {unknown[0]}, which the product does not have."
            elif count > most * number:
                yield f"It states {count} calls of {names}, but cdd compares at most {most} of each function."


def find_other_details(stated: Sequence[str], now: Sequence[str], *, compares: bool) -> Iterator[str]:
    """Yield the statements that the checks do not find again, and their findings that the note lacks.

    Statements about compared calls count only if the sandbox ``compares`` calls.
    """
    if not compares:
        stated, now = (
            [_OUTSIDE.sub("", line) for line in lines if not line.startswith(_OF_CALLS)] for lines in (stated, now)
        )
    stated = [line for line in stated if not line.startswith(_OF_RUN)]
    known, found = ({_SPENT.sub("", line): line for line in lines} for lines in (stated, now))
    kinds = {_get_kind(line): line for line in found}
    for text in (text for text in known if text not in found):
        other = kinds.get(_get_kind(text))
        yield f"It states: {text} Now: {other or 'not found'}"
    stated_kinds = set(map(_get_kind, known))
    for text in found:
        if text not in known and _get_kind(text) not in stated_kinds:
            yield f"It does not state: {text}"


def _get_kind(line: str) -> str:
    """Return the words that begin each statement of a kind."""
    return " ".join(re.split(r"[:;,.(]", line, maxsplit=1)[0].split()[:5])


def _read_calls(line: str) -> Iterator[tuple[int, str]]:
    for match in _CALLS.finditer(line):
        yield int(match.group(1)), match.group(2)


def _split_names(names: str) -> list[str]:
    return [name for name in re.split(r", | and ", _OTHERS.sub("", names)) if name]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _find_wrong_places(line: str, texts: Mapping[str, ProductChange]) -> Iterator[str]:
    for path, number in _PLACE.findall(line):
        change = texts.get(path)
        if change is None or change.new is None:
            yield f"It names {path}:{number}, but the commit does not change this file."
        elif int(number) not in _list_changed_places(change):
            yield f"It names {path}:{number}, but this line is not part of the change."


def _list_changed_places(change: ProductChange) -> set[int]:
    """Return the lines that are changed, or on which a statement or function begins that has a changed line."""
    assert change.new is not None
    _, touched = find_changed_lines(change.old, change.new)
    tree = parse(change.new)
    nodes = ast.walk(tree) if tree is not None else ()
    begun = {
        node.lineno
        for node in nodes
        if isinstance(node, (ast.stmt, ast.expr)) and not touched.isdisjoint(list_lines(node))
    }
    return {*touched, *begun}
