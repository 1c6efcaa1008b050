"""What the plugin's own package holds, and whether anything of it has been replaced while the tests ran."""

from __future__ import annotations

import sys
from operator import is_
from types import FunctionType, ModuleType
from typing import Iterator, Mapping

from .code import Places, codes_of

_OWN_PACKAGE = __name__.split(".", 1)[0]
_CLOCKS = frozenset({"time", "datetime"})


class Seal:
    """The modules and classes of a package as they were when the run began.

    Nobody has a reason to change them, so everything counts: what a name stands for, the code and the defaults of its
    functions, what its tables hold, and names that were added, which could stand before a builtin.
    """

    def __init__(self, places: Places, *, package: str = _OWN_PACKAGE) -> None:
        """Note what is loaded of the package, by identity."""
        self._places = places
        self._package = package
        self._owners: dict[str, Mapping[str, object]] = {}
        for name, module in list(sys.modules.items()):
            if name.split(".", 1)[0] == package and isinstance(module, ModuleType):
                self._owners[name] = vars(module)
                for key, value in list(vars(module).items()):
                    if isinstance(value, type) and value.__module__ == name:
                        self._owners[f"{name}.{key}"] = vars(value)
        self._before = {
            name: {key: (value, _parts(key, value)) for key, value in owner.items()}
            for name, owner in self._owners.items()
        }

    def breaks(self) -> Iterator[tuple[str, str]]:
        """Yield each name that is not what it was, dotted, and what is there now."""
        for owner_name, owner in self._owners.items():
            before = self._before[owner_name]
            now = dict(owner)
            name = owner_name.replace(self._package, "pytest_tdd_agent", 1)
            for key in before:
                if key not in now:
                    yield f"{name}.{key}", "no longer there"
            for key, value in now.items():
                if (
                    _is_added(f"{owner_name}.{key}", value)
                    if key not in before
                    else _is_changed(key, value, before=before[key])
                ):
                    yield f"{name}.{key}", self._places.label(value) or "not what it was"


def _parts(key: str, value: object) -> tuple[object, ...]:
    """Return what a value is made of that can be changed in place; Python itself keeps books in its ``__names__``."""
    if isinstance(value, type):
        return value.__mro__
    if isinstance(value, ModuleType):
        return (type(value),)
    if type(value) is FunctionType:
        named = value.__kwdefaults__ or {}
        return (*codes_of(value), value.__defaults__, *named, *named.values())
    if _is_dunder(key):
        return codes_of(value)
    if type(value) is dict:
        return (*value, *value.values())
    return tuple(value) if type(value) is list or type(value) is set else codes_of(value)


def _is_changed(key: str, value: object, *, before: tuple[object, tuple[object, ...]]) -> bool:
    old, parts = before
    if value is not old:
        return getattr(old, "__module__", None) not in _CLOCKS  # libraries that stop the time replace it everywhere
    now = _parts(key, value)
    return len(now) != len(parts) or not all(map(is_, now, parts))


def _is_added(name: str, value: object) -> bool:
    """Say whether a new name is anything else than a submodule that was imported, or what Python keeps."""
    if type(value) is ModuleType:
        return sys.modules.get(name) is not value
    return not _is_dunder(name.rpartition(".")[2]) or isinstance(value, type) or bool(codes_of(value))


def _is_dunder(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")
