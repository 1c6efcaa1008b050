"""The parts of Python that the plugin uses while tests run, bound before a test can replace them.

A test may replace a builtin, a function or a constant of the standard library such as ``os.sep``, for itself or for all
that follow, and the plugin then still has to judge it and them. So once the tests run, the plugin calls no Python code
of the standard library, whose every step can be replaced, and asks nothing of the process that can change, such as the
current folder. It calls compiled functions, which this module holds, and each of its modules has builtins of its own.
"""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from json import JSONDecoder
from json.encoder import encode_basestring_ascii
from typing import Any, Callable, Iterable

BUILTINS = dict(vars(builtins))
"""All builtins from before the first test."""


def bind_builtins(names: dict[str, Any]) -> None:
    """Let a module, whose ``globals()`` these are, find its builtins in ``BUILTINS``; call it before any definition."""
    names["__builtins__"] = BUILTINS


bind_builtins(globals())

SEPARATOR = os.sep
PYTHON = sys.version.split()[0]


class System:
    """Compiled functions of the operating system; here because tools that fake one search the names of all modules."""

    open = staticmethod(os.open)
    write = staticmethod(os.write)
    close = staticmethod(os.close)
    dup2 = staticmethod(os.dup2)
    getpid = staticmethod(os.getpid)
    stat = staticmethod(os.stat)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)


_scan: Callable[[str, int], tuple[object, int]] = vars(JSONDecoder())["scan_once"]
_quote = encode_basestring_ascii
_to_text = str.__str__


def to_plain_text(text: str) -> str:
    """Return a text without the methods of a subclass, which could answer anything."""
    return text if type(text) is str else "".join((_to_text(text),))


def exists(path: str) -> bool:
    """Return whether there is a file or folder."""
    try:
        System.stat(path)
    except (OSError, ValueError):
        return False
    return True


def read_bytes(path: str) -> bytes:
    """Return the content of a file; raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def replace_file(path: str, parts: Iterable[str]) -> os.stat_result:
    """Write a file of ASCII atomically, without waiting for the disk; return its status. Raises OSError."""
    temporary = f"{path}.{System.getpid()}.tmp"
    with Shield():
        System.unlink(temporary)  # a test may have put a link or a pipe there
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part.encode("ascii"))
        System.replace(temporary, path)
    except BaseException:
        if exists(temporary):
            System.unlink(temporary)
        raise
    return System.stat(path)  # replacing changes its times


def join_path(folder: str, path: str) -> str:
    """Return a path as ``os.path.abspath`` does if ``folder``, which is absolute, is the current one."""
    is_absolute = path.startswith(SEPARATOR) or path[1:2] == ":"
    parts: list[str] = []
    for part in (path if is_absolute else f"{folder}{SEPARATOR}{path}").split(SEPARATOR):
        if part == "..":
            parts[1:] = parts[1:-1]
        elif part != "." and (part or not parts):
            parts.append(part)
    return SEPARATOR.join(parts) if len(parts) > 1 else f"{parts[0]}{SEPARATOR}"


def decode_json(text: str) -> object:
    """Return the value of a JSON text; raises ValueError."""
    text = text.strip()
    try:
        value, end = _scan(text, 0)
    except StopIteration as error:
        raise ValueError("not JSON") from error
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


def encode_json(value: object, *, indent: str = "") -> str:
    """Return the JSON text of a plain value: compact, or with a line for each value, each level indented so much."""
    return _encode(value, indent=indent, end="\n" if indent else "")


def _encode(value: object, *, indent: str, end: str) -> str:
    if isinstance(value, str):
        return _quote(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
    inner = f"{end}{indent}"
    if isinstance(value, dict):
        colon = ": " if indent else ":"
        parts = [f"{_quote(key)}{colon}{_encode(value[key], indent=indent, end=inner)}" for key in value]
    elif isinstance(value, (list, tuple)):
        parts = [_encode(each, indent=indent, end=inner) for each in value]
    else:
        raise TypeError(f"{type(value).__name__} is no plain value")
    opening, closing = ("[", "]") if isinstance(value, (list, tuple)) else ("{", "}")
    return f"{opening}{inner}{f',{inner}'.join(parts)}{end}{closing}" if parts else opening + closing


class Shield:
    """A context that an Exception ends early; ``contextlib.suppress`` is Python code."""

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, _: object, error: BaseException | None, at: object) -> bool:
        """Suppress an Exception, but not KeyboardInterrupt and similar."""
        return isinstance(error, Exception)


class Silence:
    """A context without warnings, whatever a test has made of them: as errors, they would stop the parser."""

    def __enter__(self) -> None:
        """Ignore all warnings."""
        settings = vars(warnings)
        self._filters = settings["filters"]
        settings["filters"] = [("ignore", None, Warning, None, 0)]

    def __exit__(self, *_: object) -> None:
        """Restore the filters."""
        vars(warnings)["filters"] = self._filters
