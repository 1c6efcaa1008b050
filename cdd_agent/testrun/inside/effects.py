"""Watches what a call does besides its result: files, variables and the current folder. Afterwards all is as before.

The plugin ``calls`` uses this module, which is Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from .answers import ROOT, answer, place_files, shorten_texts
from .values import list_texts, overrides

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from .values import Answer, Call, Part

_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
_MOST_BYTES = 1_000_000
_MOST_FILES = 50
_OWN = os.path.dirname(os.path.abspath(__file__))
_FOLDER = "a folder"
_found: dict[str, bytes | str | None] = {}
"""Path that a call changes -> what was there before: the content of a file, a description, or nothing."""
_moved: list[tuple[str, str]] = []
"""Folders that a call moves, in order: from where, and to where."""
_prevented: list[str] = []
_places: list[str] = []
"""The folders in which changes count, while a call runs."""


def answer_with_effects(call: Call) -> Answer:
    """Make a call as ``answer`` does, and add its effects, which are undone then."""
    _start_to_watch()
    _found.clear()
    _moved.clear()
    _prevented.clear()
    variables, folder = dict(vars(os.environ)["_data"]), os.getcwd()  # reading them one by one takes long
    _places.clear()
    with contextlib.suppress(OSError):  # before cdd watches, so that only what the call does to them shows
        place_files(call)
    given = (os.path.abspath(text) for text in list_texts([call["args"], call["named"]]) if os.path.isabs(text))
    _places[:] = [ROOT, *(path for path in given if os.path.dirname(path) != os.sep)]
    try:
        parts = _answer_with_override(call)
    finally:
        _places.clear()
    effects: Answer = []
    if vars(os.environ)["_data"] != variables:
        now = dict(os.environ)
        _restore_variables(variables)
        names = sorted(name for name in {*now, *os.environ} if now.get(name) != os.environ.get(name))
        effects = [["sets", name, str(now.get(name))] for name in names]
    with contextlib.suppress(OSError):  # the call may have deleted the folder
        effects += [["enters", os.getcwd()]] if os.getcwd() != folder else []
    for source, target in reversed(_moved):
        if os.path.isdir(target) and not os.path.lexists(source):
            effects.append(["moves", source, target])
            with contextlib.suppress(OSError):
                os.rename(target, source)
    effects += _restore_files()
    os.chdir(folder)
    if _prevented:
        return [["unfit", "changes too many files"]]
    return parts if parts == [["missing"]] else [*parts, *shorten_texts(effects)]


def _answer_with_override(call: Call) -> Answer:
    """Make a call, and say if it runs a method of an object whose class overrides it, but not through the override."""
    if not (call["args"] and call["args"][0][0] == "new" and call["args"][0][1][0] == "sub"):
        return answer(call)
    passed: list[object] = []

    def watch(frame: FrameType, *event: object) -> None:
        for kind, method, override in overrides if event[0] == "call" else ():
            this = frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code is method else None
            if type(this) is kind and frame.f_back is not None and frame.f_back.f_code is not override:
                passed.append(this)

    sys.setprofile(watch)
    try:
        parts = answer(call)
    finally:
        sys.setprofile(None)
    return [*parts, ["past"]] if passed else parts


def _restore_variables(encoded: dict[bytes, bytes]) -> None:
    os.environ.clear()
    os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in encoded.items()})


def _start_to_watch() -> None:
    if not _hooks:
        sys.addaudithook(_watch)  # it cannot be removed
        _hooks.append(_watch)


_hooks: list[object] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _places or not (event == "open" or event in _CHANGING):
        return
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        return
    # In a folder that is open, the name is relative to it.
    folder = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
    start = f"/proc/self/fd/{folder}" if folder != -1 else ""
    count = 2 if event in ("os.rename", "os.link", "os.symlink") else 1
    with contextlib.suppress(TypeError, ValueError, FileNotFoundError):  # a number, or no folder
        names = (os.path.join(os.path.realpath(start), os.fsdecode(each)) for each in arguments[:count])
        paths = [*map(os.path.normpath, names)]
        is_own = any(f"{_OWN}{os.sep}".startswith(os.path.join(path, "")) for path in paths)
        if is_own or _prevented or len(_found) >= _MOST_FILES:
            _prevented.extend(paths)
            raise PermissionError(paths[0])  # such as a removal of the current folder
        if event == "os.rename" and os.path.isdir(paths[0]):
            _moved.append((paths[0], paths[1]))
            return
        for path in paths:
            is_here = any(path == place or path.startswith(place + os.sep) for place in _places)
            if is_here and not path.endswith((".pyc", "__pycache__")) and path not in _found:
                _found[path] = _read(path)


def _read(path: str) -> bytes | str | None:
    places, _places[:] = [*_places], []  # not to watch itself
    try:
        if not os.path.lexists(path):
            return None
        if os.path.islink(path) or not os.path.isfile(path):
            return _FOLDER if os.path.isdir(path) else "a link or a device"
        with open(path, "rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        return content if len(content) <= _MOST_BYTES else f"{os.path.getsize(path)} bytes"
    except OSError as error:
        return type(error).__name__
    finally:
        _places[:] = places


def _restore_files() -> Answer:
    """Restore what was at each path. Return what the call left there."""
    now = {path: _read(path) for path in sorted(_found)}
    changed = [path for path, content in now.items() if content != _found[path]]
    for path in reversed(changed):  # first what is in a folder
        with contextlib.suppress(OSError):
            if now[path] == _FOLDER:
                os.rmdir(path)  # all in it that the call made is removed
            elif now[path] is not None:
                os.unlink(path)
    for path in changed:
        before = _found[path]
        with contextlib.suppress(OSError):
            if before == _FOLDER:
                os.mkdir(path)
            elif isinstance(before, bytes):
                with open(path, "wb") as stream:
                    stream.write(before)
    return [_describe_file(path, now[path]) for path in changed]


def _describe_file(path: str, content: bytes | str | None) -> Part:
    if content is None:
        return ["removes", path]
    return ["leaves", path, content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content]
