"""What can only be told by the text of test files, where a tool's report leaves it out."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cdd_agent.storage import read_ordinary

_LIMIT_BYTES = 2 * 1024 * 1024
_FILES_CAP = 2000
_LEFT_OUT = frozenset({"node_modules", ".git", "dist", "build", "coverage"})
_DESCRIBE = re.compile(
    r"\b(?:describe|context|suite)(?:\.(?:only|skip))?\s*\(\s*(?P<quote>[\"'`])(?P<title>(?:\\.|(?!(?P=quote)).)*)(?P=quote)",
    re.DOTALL,
)
_SPECIFIER = re.compile(r"(?:module|package) ['\"](?P<specifier>[^'\"\n]+)['\"]")
_EXPORT = re.compile(r"export named ['\"](?P<name>[^'\"\n]+)['\"]")


def text_of(path: Path) -> str:
    """The text of an ordinary file; nothing if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=_LIMIT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


class Describes:
    """The titles of groups in test files, which a report gives joined by spaces."""

    def __init__(self, root: Path) -> None:
        """Nothing is read before it is asked for."""
        self._root = root
        self._titles: dict[str, tuple[str, ...]] = {}

    def split(self, joined: str, file: str) -> tuple[str, ...]:
        """The titles that ``joined`` is made of; if the file does not tell, it is taken for one."""
        if not joined:
            return ()
        if file not in self._titles:
            found = _DESCRIBE.finditer(text_of(self._root / file))
            plain = {re.sub(r"\\(.)", r"\1", match["title"]) for match in found}
            self._titles[file] = tuple(sorted(filter(None, plain), key=len, reverse=True))
        return _split(joined, self._titles[file], left=64) or (joined,)


def _split(joined: str, titles: tuple[str, ...], *, left: int) -> tuple[str, ...] | None:
    """Titles that make up ``joined``, longest first; None if there are none."""
    if joined in titles:
        return (joined,)
    for title in titles if left else ():
        if joined.startswith(f"{title} "):
            rest = _split(joined[len(title) + 1 :], titles, left=left - 1)
            if rest is not None:
                return (title, *rest)
    return None


def importer(root: Path, said: str, *, is_test: Callable[[str], bool]) -> str | None:
    """The one test file that imports what an error message says is missing; None if there is none, or more."""
    module, name = _SPECIFIER.search(said), _EXPORT.search(said)
    if module is None:
        return None
    wanted = [module["specifier"], *([name["name"]] if name else [])]
    found = []
    for path in _test_files(root, is_test):
        text = text_of(root / path)
        if all(word in text for word in wanted):
            found.append(path)
    return found[0] if len(found) == 1 else None


def _test_files(root: Path, is_test: Callable[[str], bool]) -> Iterator[str]:
    seen = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name).relative_to(root).as_posix()
            seen += 1
            if seen > _FILES_CAP:
                return
            if is_test(path):
                yield path
