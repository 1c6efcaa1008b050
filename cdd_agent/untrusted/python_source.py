"""Python sources as text and tree, whatever their encoding, their depth and the Python that they are written for.

``parse`` returns the tree of a text, or None if it has no code: it is empty, or no Python. ``explain_unreadable``
says of the bytes of a file why nobody can tell what code they have. All that recurses through a tree may meet one that
is nested thousands of levels deep: ``with_deep_stack`` runs such a function again, with room for it.
"""

import ast
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from pytest_tdd_agent.sources import UnreadableSource, decode_source, find_encoding, hides_code

PYTHON = (".py", ".pyw")
"""How the names of Python sources end that can run."""
MOST_LEVELS = 10_000
"""Depth of the trees that are read. Generated code has hundreds of levels."""
_STACK_BYTES = 512 * 1024 * 1024
"""Only what is used of it takes memory."""
_RECURSION_LIMIT = 20 * MOST_LEVELS
_MOST_FOREIGN = 1_000
_PARSES = threading.Lock()
_DEEP, _STARTS = threading.Lock(), threading.Lock()
_thread = threading.local()
_foreign: dict[str, "ForeignModule"] = {}

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class ForeignModule(ast.Module):
    """The tree of a source that only a newer Python than cdd's can parse. It can be read, but not written as code."""

    comments: tuple[tuple[int, int], ...] = ()
    """Line, 1-based, and column in characters of each comment."""


class NestedTooDeeply(ValueError):
    """A source is nested more deeply than cdd reads."""


def decode(content: bytes) -> str:
    """Return the text of a source, or of bytes that Python cannot read what they look like in UTF-8."""
    try:
        # Python allows other bytes in comments. Elsewhere it refuses the file, and it is harmless to see more code.
        is_utf_8 = find_encoding(content).startswith("utf-8")
        text = decode_source(content, errors="replace" if is_utf_8 else "strict")
        text.encode()
    except ValueError:
        text = content.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def split_lines(text: str) -> list[str]:
    """Return the lines without their ends, as Python numbers them: a form feed, for example, ends none."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One import: ``from module import name``, or ``import module`` without a name."""

    module: str
    """A relative one begins with its dots."""
    name: str = ""
    """``*`` for all."""
    alias: str = ""

    def __str__(self) -> str:
        """Return the statement."""
        alias = f" as {self.alias}" if self.alias else ""
        return f"from {self.module} import {self.name}{alias}" if self.name else f"import {self.module}{alias}"

    @property
    def bound(self) -> str:
        """The name that it binds; ``*`` for all."""
        return self.alias or self.name or self.module.partition(".")[0]

    @property
    def origin(self) -> str:
        """The dotted name of what is bound; a relative one begins with its dots."""
        if self.name:
            return f"{self.module}.{self.name}" if self.module.strip(".") else f"{self.module}{self.name}"
        return self.module if self.alias else self.bound


def list_imports(node: ast.AST) -> Iterator[Import]:
    """Yield the imports of a statement; other nodes have none."""
    match node:
        case ast.Import(names=names):
            yield from (Import(each.name, alias=each.asname or "") for each in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from (Import("." * level + (module or ""), each.name, each.asname or "") for each in names)
        case _:
            pass


def find_first_line(node: ast.stmt) -> int:
    """Return the line where a statement begins, with its decorators."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def parse(text: str | None) -> ast.Module | None:
    """Parse a source. Return None for None, and for a text that has no code or cannot be read."""
    if text is None:
        return None
    try:
        return parse_valid(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return _foreign.get(text)


def parse_valid(text: str | bytes) -> ast.Module:
    """Parse a source; raises the errors of ``ast.parse``, and ``NestedTooDeeply``."""
    try:
        return _parse(text)
    except RecursionError:
        pass
    tree = run_deep(_parse, text)
    if measure_depth(tree) > MOST_LEVELS:
        raise NestedTooDeeply(f"it is nested more than {MOST_LEVELS:,} levels deep")
    return tree


def _parse(text: str | bytes) -> ast.Module:
    # Python 3.11 counts the depth of all threads together, and ends with a SystemError if two parse at the same time.
    with _PARSES, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def list_quoted_types(annotation: ast.expr) -> Iterator[ast.Constant]:
    """Yield the texts in an annotation that are types, so not those in ``Literal``, nor what describes a type."""
    match annotation:
        case ast.Constant(value=str()):
            yield annotation
        case ast.Call():
            pass
        case ast.Subscript(value=ast.Name(id=last) | ast.Attribute(attr=last), slice=inner):
            if last == "Annotated" and isinstance(inner, ast.Tuple):
                yield from list_quoted_types(inner.elts[0])
            elif last != "Literal":
                yield from list_quoted_types(inner)
        case _:
            for each in ast.iter_child_nodes(annotation):
                if isinstance(each, ast.expr):
                    yield from list_quoted_types(each)


def find_syntax_error(source: str | bytes) -> str | None:
    """Return why cdd's own Python cannot parse a source; None if it can."""
    try:
        parse_valid(source)
    except SyntaxError as error:
        shown = f": {error.text.strip()}" if error.text else ""
        return f"line {error.lineno}: {error.msg}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


def measure_depth(tree: ast.AST) -> int:
    """Return the number of levels of a tree."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        level, depth = [inner for node in level for inner in ast.iter_child_nodes(node)], depth + 1
    return depth


def explain_unreadable(content: bytes) -> str:
    """Return why it is unknown which code the bytes of a file have; empty if that is known, or if they have none."""
    try:
        encoding = find_encoding(content)
        if hides_code(content):
            return f"its encoding {encoding} makes Python run other characters than the file shows"
        if not encoding.startswith("utf-8"):
            decode_source(content).encode()
        if b"\0" in content:
            return "it contains null bytes"
        if (text := decode(content)) not in _foreign:
            parse_valid(text)
    except (UnreadableSource, UnicodeError, NestedTooDeeply) as error:
        return str(error)
    except (RecursionError, MemoryError, SystemError):
        return "it is nested too deeply"
    except (SyntaxError, ValueError):
        pass
    return ""


def remember_tree(text: str, tree: ForeignModule) -> None:
    """Let ``parse`` return the tree that another Python made of a text."""
    if len(_foreign) >= _MOST_FOREIGN:
        _foreign.clear()
    _foreign[text] = tree


def with_deep_stack(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Run a pure function again, with a deep stack, if it meets a tree that is too deep for the usual one."""

    @functools.wraps(function)
    def run(*args: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return function(*args, **named)
        except RecursionError:
            return run_deep(function, *args, **named)

    return run


def run_deep(function: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs) -> _Result:
    """Run a function in a thread with a deep stack. Raises its errors, and ``RecursionError`` if that is not enough."""
    if getattr(_thread, "is_deep", False):
        return function(*args, **named)

    def run() -> _Result:
        _thread.is_deep = True
        # The limit holds for all threads, and the caller may be interrupted, so this thread sets and resets it.
        with _DEEP:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
            try:
                return function(*args, **named)
            finally:
                sys.setrecursionlimit(limit)

    executor = ThreadPoolExecutor(1)
    with _STARTS:
        before = threading.stack_size(_STACK_BYTES)
        try:
            future = executor.submit(run)
        except (RuntimeError, MemoryError) as error:
            raise RecursionError("a deep stack needs more memory than there is") from error
        finally:
            threading.stack_size(before)
    executor.shutdown(wait=False)
    return future.result()
