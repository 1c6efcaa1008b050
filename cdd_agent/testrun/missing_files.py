"""Finds the files that tests failed for because a run tree or clean copy lacks them, from what the failures say.

A failure is text that a test wrote, so it only points: a path counts if the user has a file there and the copy has not.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.report import FAILING, Failure, SuiteReport

_MOST_CHARACTERS = 20_000
_MOST_WORDS = 2_000
_MOST_SOURCES, _SOURCE_BYTES = 5, 200_000
Lookup: TypeAlias = Callable[[str, bool], tuple[str, ...]]
"""Returns the missing files that a word names; the flag says that the text is about something missing."""
_QUOTED = re.compile(r"'([^'\n]{1,300})'|\"([^\"\n]{1,300})\"|`([^`\n]{1,300})`")
_WORD = re.compile(r"[\w.@+~/\\-]{2,300}")
_SAYS_MISSING = re.compile(
    r"no such file|filenotfound|enoent|notfound|not found|no module|cannot find|can't (?:find|open|load|read)|"
    r"cannot (?:open|load|read)|unable to (?:open|load|read|find)|could not (?:open|load|read|find)|does ?n.t exist|"
    r"does not exist|nosuchfile|missing|os error 2\b|errno 2\b|failed to (?:open|load|read|find)"
)
"""In small letters: with IGNORECASE, a search takes ten times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlaces:
    """A copy of a work tree in which tests ran, and the user's."""

    user: Path
    """The top of the user's work tree."""
    copy: Path
    """The top of the copy."""
    project: str = ""
    """The project's folder in both, with a slash at the end; empty for the top."""
    left_out: Collection[str] = ()
    """Ignored files of the user that the copy does not have."""
    has_others: bool = False
    """Whether files of other repositories in the work tree, and files outside of it, count too."""

    def find_other(self, path: str) -> str:
        """Return the other repository in the work tree to which ``path`` belongs, ``..`` outside of it, or ""."""
        folders = [path, *map(str, Path(path).parents)][:-1]
        is_link = any(os.path.islink(self.copy / folder) for folder in folders)
        target = Path(os.path.realpath(self.user / path)) if is_link else None
        if path.startswith("../") or (target is not None and not target.is_relative_to(self.user.resolve())):
            return ".."
        return next((folder for folder in folders if os.path.lexists(self.user / folder / ".git")), "")


def find_missing_files(report: SuiteReport | None, places: CopyPlaces, *, output: str = "") -> dict[str, str]:
    """Return path -> node id of the first test that failed for it; paths are relative to the top of the work tree.

    Without a report, the ``output`` of the run counts as a failure of ``The run``.
    """
    found: dict[str, str] = {}
    if not (places.left_out or places.has_others):
        return found
    lookup = _make_lookup(places)
    for nodeid, failure, files in _list_failures(report):
        if failure.missing_name and failure.kind != "assertion":
            found |= {path: nodeid for path in _find_module(failure.missing_name, places) if path not in found}
        text = "\n".join((failure.exception, failure.message, failure.text, failure.output))
        named = _search_text(text, lookup)
        if not named and _SAYS_MISSING.search(text[:_MOST_CHARACTERS].lower()):
            # The messages of databases and of other languages do not name the file, but the code does.
            sources = (_read_source(places.copy / places.project / file) for file in files)
            named = [path for source in sources for path in _search_text(source, lookup, says_missing=True)]
        for path in named:
            found.setdefault(path, nodeid)
    if report is None:
        found |= dict.fromkeys(_search_text(output, lookup), "The run")
    # A failure that shows the code names the folder of a file beside it.
    return {path: test for path, test in found.items() if not any(each.startswith(f"{path}/") for each in found)}


def _list_failures(report: SuiteReport | None) -> Iterator[tuple[str, Failure, tuple[str, ...]]]:
    """Yield node id, failure and files of code of the tests that did not pass."""
    for case in report.tests if report is not None else ():
        if case.outcome in FAILING and case.failure is not None:
            yield case.nodeid, case.failure, _list_files(case.file, case.failure)
    for error in report.collect_errors if report is not None else ():
        yield error.nodeid, error.failure, _list_files(error.nodeid, error.failure)


def _list_files(file: str, failure: Failure) -> tuple[str, ...]:
    paths = (file, *(frame.path for frame in reversed(failure.frames)))
    return tuple(islice(dict.fromkeys(filter(None, paths)), _MOST_SOURCES))


def _read_source(path: Path) -> str:
    try:
        return read_ordinary(path, limit_bytes=_SOURCE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _search_text(text: str, lookup: Lookup, *, says_missing: bool | None = None) -> list[str]:
    text = text[:_MOST_CHARACTERS]
    if says_missing is None:
        says_missing = _SAYS_MISSING.search(text.lower()) is not None
    quoted = {next(filter(None, match.groups())): None for match in _QUOTED.finditer(text)}
    unquoted = dict.fromkeys(match[0].rstrip(".") for match in _WORD.finditer(text))
    words = islice(quoted | unquoted, _MOST_WORDS)
    found = ((word, path) for word in words for path in lookup(word, says_missing))
    # A traceback can name installed packages by such a path, but not in quotes.
    return [path for word, path in found if word in quoted or not path.startswith("../")]


def _make_lookup(places: CopyPlaces) -> Lookup:
    """Return a function that returns the missing files that a word of a failure names."""
    copies = [str(places.copy), str(places.copy.resolve())]
    within = {os.path.dirname(top): top for top in copies} if places.has_others else {}
    within |= {top: top for top in (*copies, str(places.user), str(places.user.resolve()))}
    # The longest first: a run tree is in a folder of the user's work tree.
    ordered = sorted(within.items(), key=lambda each: len(each[0]), reverse=True)
    by_name: dict[str, list[str]] = {}
    for path in places.left_out:
        name = path.rpartition("/")[2]
        for key in {name, os.path.splitext(name)[0]}:
            by_name.setdefault(key, []).append(path)

    def find(word: str, says_missing: bool) -> Iterator[str]:
        word = word.replace("\\\\", "/").replace("\\", "/").strip()
        inside = next((os.path.relpath(word, top) for folder, top in ordered if word.startswith(f"{folder}/")), None)
        if inside is None and word.startswith("/"):
            return
        tried = (places.project + word, word) if inside is None else (inside,)
        for each in dict.fromkeys(map(os.path.normpath, tried)):
            # A single word can be anything, but not a path with folders in the work tree.
            is_path = ("/" in each or "." in each) and not each.startswith("../")
            if (is_path or says_missing) and _is_missing(each, places):
                yield each
                return
        alike = by_name.get(os.path.basename(word), []) if says_missing and "." in word else []
        tail = os.path.normpath(word).removeprefix("../")
        nearer = [path for path in alike if f"/{path}".startswith(f"/{tail}") or f"/{tail}" in f"/{path}"]
        if len(nearer) == 1 and _is_missing(nearer[0], places):
            yield nearer[0]

    # The failures of one run have most words in common.
    return cache(lambda word, says_missing: tuple(find(word, says_missing)))


def _is_missing(path: str, places: CopyPlaces) -> bool:
    """Return whether the user has a file or folder there that the copy lacks and that is not mounted into it."""
    if path.startswith("/") or path in (".", "..", "") or "\0" in path:
        return False
    if path.startswith("../") and not places.has_others:
        return False
    if os.path.exists(places.copy / path) or not os.path.lexists(places.user / path):
        return False
    if os.path.islink(places.copy / path) and not (places.has_others and os.path.exists(places.user / path)):
        return False
    if path in places.left_out or any(each.startswith(f"{path}/") for each in places.left_out):
        return True
    return places.has_others and bool(places.find_other(path))


def _find_module(name: str, places: CopyPlaces) -> Iterator[str]:
    """Yield the ignored Python module of this dotted name."""
    inner = name.replace(".", "/")
    ends = (f"/{inner}.py", f"/{inner}/__init__.py")
    found = [path for path in places.left_out if f"/{path}".endswith(ends)]
    if len(found) == 1 and not os.path.lexists(places.copy / found[0]):
        yield found[0]
