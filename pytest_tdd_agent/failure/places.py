"""Where an exception came from: the calls that it passed, and whose code they are."""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from typing import Callable, Iterator, Mapping, Sequence, Tuple

from ..fingerprint import PACKAGES_FOLDERS, STANDARD_LIBRARY, is_protected

_RAISES = frozenset({"raises", "RaisesGroup", "RaisesExc", "assertRaises", "assertRaisesRegex", "assertRaisesMessage"})
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest", "doctest", "importlib", "xdist", "pytest_timeout"})
_INSTALLED = PACKAGES_FOLDERS | {".tox", ".nox", ".venv", "venv", "node_modules"}

Call = Tuple[str, int, str]
"""Absolute file, line and function."""


def is_named(error: BaseException, name: str, *, package: str) -> bool:
    """Say whether an exception is of a class of that name, or of one below it, in that top package."""
    return (package, name) in _names(type(error).__mro__)


@lru_cache(maxsize=256)
def _names(classes: tuple[type, ...]) -> frozenset[tuple[str, str]]:
    """Top package and name of each class."""
    return frozenset((str(cls.__module__).split(".", 1)[0], cls.__name__) for cls in classes)


def doctest_place(error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the example that a doctest's exception is about."""
    if not any(is_named(error, name, package="doctest") for name in ("DocTestFailure", "UnexpectedException")):
        return None
    test, example = getattr(error, "test", None), getattr(error, "example", None)
    return str(getattr(test, "filename", "")), int(getattr(test, "lineno", 0) or 0) + getattr(example, "lineno", 0) + 1


def syntax_place(error: BaseException) -> tuple[str, int] | None:
    """Return file and line that Python could not parse; None if the source was no file."""
    name, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (None, None)  # may be anything
    if isinstance(name, str) and name and not name.startswith("<"):
        return name, line if isinstance(line, int) else 0
    return None


def scopes(error: BaseException) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Module, function and variables of each frame that the exception passed, innermost first."""
    tracebacks = []
    at = error.__traceback__
    while at is not None:
        tracebacks.append(at)
        at = at.tb_next
    for at in reversed(tracebacks):
        frame = at.tb_frame
        yield str(frame.f_globals.get("__name__")), frame.f_code.co_name, frame.f_locals


def calls_of(error: BaseException) -> Iterator[Call]:
    """Each frame that is not the runner's, outermost first; code without a file is looked through."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = code.co_filename
        if file[:1] != "<" and not _is_runner(traceback.tb_frame.f_globals.get("__name__")):
            yield file if file[:1] == "/" else os.path.abspath(file), traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next


@lru_cache(maxsize=1024)
def _is_runner(module: object) -> bool:
    return isinstance(module, str) and module.split(".", 1)[0] in _RUNNERS


@lru_cache(maxsize=256)
def is_own(path: str, root: str) -> bool:
    """Say whether an absolute path is the user's own code: below the root, and not installed there."""
    return path.startswith(_prefixes(root)) and _INSTALLED.isdisjoint(relative_path(path, root).split("/"))


def is_own_or_installed(path: str, root: str) -> bool | None:
    """Say true of the user's own code, false of the standard library and of what is installed, None of all else."""
    if is_own(path, root):
        return True
    is_installed = _is_standard(path) or not _INSTALLED.isdisjoint(path.replace(os.sep, "/").split("/"))
    return False if is_installed else None


@lru_cache(maxsize=256)
def _is_standard(path: str) -> bool:
    return path.startswith(STANDARD_LIBRARY) and "-packages" not in path


@lru_cache(maxsize=256)
def relative_path(path: str, root: str) -> str:
    """Return a path as reports have it: posix, and relative if it lies below the root."""
    prefix = next(filter(path.startswith, _prefixes(root)), "")
    return path[len(prefix) :].replace(os.sep, "/")


@lru_cache(maxsize=8)
def _prefixes(root: str) -> tuple[str, ...]:
    """What paths below a root directory begin with, which may be a link."""
    return tuple(path.rstrip(os.sep) + os.sep for path in (root, os.path.realpath(root)))


def origin_of(error: BaseException, stack: Sequence[Call], *, root: str, test_file: str, place: str | None) -> str:
    """Whose code raised: that of the innermost frame which is neither the runner's nor the standard library's."""
    if is_named(error, "FixtureLookupError", package="_pytest"):
        return "test"
    own = [path for path, _, _ in stack if not _is_standard(path)]
    innermost = own[-1] if own else None
    if innermost is None or syntax_place(error):
        innermost = None if place is None else os.path.join(root, place)
    if innermost is None or not is_own(innermost, root):
        return "third_party"
    file = relative_path(innermost, root)
    return "test" if file == test_file or is_protected(file) else "project"


def is_in_raises(lines: set[int], source: Callable[[str], str | None], *, test_file: str) -> bool:
    """Say whether one of the test file's lines stands in a ``with raises(...)`` or calls ``raises(X, f)``."""
    text = source(test_file) if lines else None
    if text is None or not any(name in text for name in _RAISES):
        return False
    return any(first <= line <= last for first, last in _raises_spans(text) for line in lines)


@lru_cache(maxsize=8)
def _raises_spans(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each block in the source that is expected to raise."""
    try:
        return tuple(_spans(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(_is_raises(item.context_expr) for item in node.items):
                yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
        elif isinstance(node, ast.Call) and _is_raises(node) and len(node.args) > 1:
            yield node.lineno, node.end_lineno or node.lineno


def _is_raises(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _RAISES
