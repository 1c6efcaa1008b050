"""The code behind a value, and where it lies as the user knows it."""

from __future__ import annotations

import os
import sys
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType

from ..fingerprint import IGNORED_FOLDERS, PACKAGES_FOLDERS, STANDARD_LIBRARY

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where this plugin lies."""

_INSTALLED = IGNORED_FOLDERS | PACKAGES_FOLDERS
_CACHED = type(lru_cache(maxsize=None)(len))
WRAPPERS = frozenset({FunctionType, MethodType, staticmethod, classmethod, property, partial, _CACHED})
"""Types of values that ``codes_of`` looks into."""


class Places:
    """Where code lies, as the user knows it."""

    def __init__(self, root: str) -> None:
        """Take them relative to ``root``, the root directory of the run."""
        self._roots = tuple({path.rstrip(os.sep) + os.sep for path in (root, os.path.realpath(root))})
        self._known: dict[str, str | None] = {}

    def of_user(self, file: str) -> str | None:
        """Return the place of a file that is not installed: below the root its path, elsewhere only its name."""
        if file not in self._known:
            self._known[file] = self._of_user(file)
        return self._known[file]

    def of_project(self, file: str) -> str | None:
        """Return the place of a file below the root that is not installed there."""
        return self.of_user(file) if file.startswith(self._roots) else None

    def of_module(self, name: str) -> str | None:
        """Return the place of a module that is loaded and not installed."""
        module = sys.modules.get(name)
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        return self.of_user(file) if isinstance(file, str) else None

    def label(self, value: object) -> str | None:
        """Return what of the user's a function or class is, None if it is not the user's."""
        if issubclass(type(value), type):
            place = self.of_module(str(vars(value).get("__module__")))
            return None if place is None else f"a class of {place}"
        for code in codes_of(value):
            place = self.of_user(code.co_filename)
            if place is not None:
                return f"{code.co_name} of {place}"
        return None

    def _of_user(self, file: str) -> str | None:
        if not os.path.isabs(file) or file.startswith(OWN_FOLDER):
            return None
        inside = next((file[len(root) :] for root in self._roots if file.startswith(root)), None)
        parts = (file if inside is None else inside).split(os.sep)
        if not _INSTALLED.isdisjoint(parts[:-1]):
            return None
        if inside is None:
            return None if file.startswith(STANDARD_LIBRARY) else parts[-1]
        return "/".join(parts)


def codes_of(value: object) -> tuple[CodeType, ...]:
    """Return the code that runs when a value is called, or read as a property; of a wrapper also what it wraps.

    Nothing of the value is asked but what Python itself keeps of its own types.
    """
    found: list[CodeType] = []
    pending = [value]
    while pending and len(found) < 10:
        one = pending.pop()
        if type(one) is FunctionType:
            found.append(one.__code__)
            pending.append(one.__dict__.get("__wrapped__"))
        elif type(one) is MethodType or type(one) is staticmethod or type(one) is classmethod:
            pending.append(one.__func__)
        elif type(one) is property:
            pending += [one.fget, one.fset, one.fdel]
        elif type(one) is partial:
            pending.append(one.func)
        elif type(one) is _CACHED:
            pending.append(one.__wrapped__)
        elif one is not None and not issubclass(type(one), type):
            found += call_of(type(one))
    return tuple(found)


def call_of(kind: type) -> list[CodeType]:
    """Return the code that makes values of a class callable."""
    call = vars(kind).get("__call__")
    return [call.__code__] if type(call) is FunctionType else []
