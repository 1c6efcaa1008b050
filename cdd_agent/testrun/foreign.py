"""Ask the project's interpreter about sources that cdd's own Python reads in another way.

A project may use a newer Python than cdd. Its interpreter then parses what cdd cannot, in the sandbox and without
running anything of the project. The trees that it returns can be read like others; see ``ForeignModule``.
"""

import ast
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from cdd_agent.sandbox.port import Command
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import build_access
from cdd_agent.testrun.inside.parser import CONSTANT, LIST, NODE
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.python_source import ForeignModule, find_syntax_error, parse, remember_tree
from pytest_tdd_agent.sources import encode_source

_MOST_BYTES = 100_000_000
_TIMEOUT_S = 60.0
_OWN = sys.version_info[:2]


class _Answer(msgspec.Struct):
    error: str = ""
    nodes: list[tuple[str, str, dict[str, object]]] = []
    comments: list[tuple[int, int]] = []


def describe_newer(suite: Suite) -> str:
    """Return what a source needs that cdd cannot parse, such as ``Python 3.13``; empty if cdd's Python is as new."""
    version = _read_version(suite)
    return f"Python {version[0]}.{version[1]}" if version is not None and version > _OWN else ""


def learn_syntax(texts: Iterable[str], *, suite: Suite) -> None:
    """Let the project's interpreter parse the sources that only a newer Python than cdd's can parse."""
    if not describe_newer(suite):
        return
    unknown = [text for text in dict.fromkeys(texts) if parse(text) is None and find_syntax_error(text) is not None]
    for text, answer in zip(unknown, _ask(map(encode_source, unknown), suite=suite, needs_trees=True), strict=False):
        tree = None if answer.error else build_tree(answer.nodes, answer.comments)
        if tree is not None:
            remember_tree(text, tree)


def make_syntax_check(suite: Suite) -> Callable[[bytes], str | None]:
    """Return a function that returns why Python cannot parse a source: the project's, where that may differ."""

    # An edit asks about the file before and after it, and the next edit begins with the latter.
    @lru_cache(maxsize=16)
    def check(content: bytes) -> str | None:
        own, version = find_syntax_error(content), _read_version(suite)
        if version is None or version == _OWN or (version > _OWN and own is None):
            return own
        answers = _ask([content], suite=suite, needs_trees=False)
        if answers:
            return answers[0].error or None
        return None if version > _OWN else own  # the tests will tell

    return check


def _read_version(suite: Suite) -> tuple[int, ...] | None:
    if not isinstance(suite, PytestSuite):
        return None
    return tuple(int(part) for part in suite.interpreter.python.split(".")[:2] if part.isdecimal())


def _ask(contents: Iterable[bytes], *, suite: Suite, needs_trees: bool) -> Sequence[_Answer]:
    """Let the project's interpreter parse sources; return nothing if it does not answer."""
    listed = [*contents]
    if not listed or not isinstance(suite, PytestSuite):
        return ()
    with tempfile.TemporaryDirectory(prefix="cdd-syntax-", ignore_cleanup_errors=True) as name:
        place = Path(name).resolve()
        (place / "sources").mkdir()
        for number, content in enumerate(listed):
            (place / "sources" / f"{number:06}.py").write_bytes(content)
        program, result = shutil.copy(Path(__file__).parent / "inside" / "parser.py", place), place / "result"
        arguments = (str(place / "sources"), str(result), "trees" if needs_trees else "errors")
        command = Command(
            # Isolated: neither the project's variables nor its packages can change what parses.
            argv=(str(suite.interpreter.path), "-I", "-S", "-B", str(program), *arguments),
            cwd=place,
            access=build_access(place, suite.interpreter),
            timeout_s=_TIMEOUT_S,
        )
        try:
            suite.sandbox.run(command)
            lines = read_ordinary(result, limit_bytes=_MOST_BYTES).splitlines()
            answers = [msgspec.json.decode(line, type=_Answer) for line in lines]
        except (OSError, msgspec.DecodeError, RecursionError):
            return ()
    return answers if len(answers) == len(listed) else ()


def build_tree(
    nodes: Sequence[tuple[str, str, Mapping[str, object]]], comments: Iterable[tuple[int, int]]
) -> ForeignModule | None:
    """Return the tree of a flat list of nodes, each before its parts; None if it is none."""
    made: dict[int, ast.AST] = {}
    try:
        for index in range(len(nodes) - 1, -1, -1):
            name, base, fields = nodes[index]
            made[index] = _make_node(name, base, fields={key: _decode(each, made) for key, each in fields.items()})
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError):
        return None
    top = made.get(0)
    if not isinstance(top, ForeignModule):
        return None
    top.comments = tuple(comments)
    return top


def _make_node(name: str, base: str, *, fields: Mapping[str, object]) -> ast.AST:
    cls = ForeignModule if name == "Module" else _find_class(name, base)
    if not {*cls._fields} <= fields.keys() or not all(key.isidentifier() and key[0] != "_" for key in fields):
        raise ValueError(name)
    node = cls()
    for key, value in fields.items():
        setattr(node, key, value)
    # Also the parts that this Python does not know, such as ``type_params``.
    vars(node)["_fields"] = tuple(key for key in fields if key not in _POSITIONS)
    if not all(isinstance(fields.get(key, 0), int) for key in _POSITIONS):
        raise ValueError(name)
    return node


_POSITIONS = ("lineno", "col_offset", "end_lineno", "end_col_offset")


@lru_cache(maxsize=256)
def _find_class(name: str, base: str) -> type[ast.AST]:
    """Return the class of a node; one that this Python does not have is made from its base."""
    known = getattr(ast, name, None)
    if isinstance(known, type) and issubclass(known, ast.AST):
        return known
    above = getattr(ast, base, None)
    return type(name, (above if isinstance(above, type) and issubclass(above, ast.AST) else ast.AST,), {"_fields": ()})


def _decode(value: object, made: Mapping[int, ast.AST]) -> object:
    match value:
        case None | str() | int():
            return value
        case [int(kind), int(index)] if kind == NODE:
            return made[index]
        case [int(kind), list(values)] if kind == LIST:
            return [_decode(each, made) for each in values]
        case [int(kind), str(name), str(text)] if kind == CONSTANT:
            return _decode_constant(name, text)
        case _:
            raise ValueError(value)


def _decode_constant(name: str, text: str) -> object:
    match name:
        case "int":
            return int(text, 16)
        case "float":
            return float(text)
        case "complex":
            return complex(text)
        case "ellipsis":
            return ...
        case "str" | "bytes" | "bool" | "NoneType":
            return ast.literal_eval(text)
        case _:
            raise ValueError(name)
