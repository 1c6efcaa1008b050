"""Functions of pytest and of what it stands on that have been replaced."""

from __future__ import annotations

import os
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Iterator, Mapping

from .code import WRAPPERS, Places, call_of, codes_of

_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest", "doctest", "xdist"})


class Runner:
    """The functions of pytest and its like, as they were when the run began."""

    def __init__(self, places: Places) -> None:
        """Note them all, but for those that are the user's already."""
        self._places = places
        self._before: dict[str, tuple[CodeType, ...]] = {}
        self._plain: dict[type, bool] = {}
        for name, value in self._values():
            codes = (value.__code__,) if type(value) is FunctionType and not value.__dict__ else codes_of(value)
            if codes and not [1 for code in codes if places.of_user(code.co_filename) is not None]:
                self._before[name] = codes

    def patches(self) -> Iterator[tuple[str, str]]:
        """Yield each function that has been replaced, by its dotted name, and what is there now."""
        before = self._before
        for name, value in self._values():
            if type(value) is FunctionType and name in before and before[name] == (value.__code__,):
                continue  # the most, and the cheapest to tell
            now = self._replacement(name, value)
            if now is not None:
                yield name, now

    def _replacement(self, name: str, value: object) -> str | None:
        label = self._places.label(value)
        if label is not None or issubclass(type(value), type):
            return label
        codes = codes_of(value)
        before = self._before.get(name, codes)
        if codes == before or (type(value) is FunctionType and os.path.isabs(codes[0].co_filename)):
            return None  # as it was, or the work of an installed plugin
        return f"{codes[0].co_name}, made while the tests ran" if codes else f"{type(value).__name__}, not a function"

    def _values(self) -> Iterator[tuple[str, object]]:
        """What modules and their classes hold, but for plain values where no function was."""
        before, plain = self._before, self._plain
        for module_name, module in list(sys.modules.items()):
            is_runner = module_name.split(".", 1)[0] in _RUNNERS and isinstance(module, ModuleType)
            if not is_runner or self._places.of_module(module_name) is not None:
                continue  # a project may be one of these modules itself
            pending: list[tuple[str, Mapping[str, object]]] = [(module_name, module.__dict__)]
            for owner, values in pending:
                for key, value in list(values.items()):
                    name, kind = f"{owner}.{key}", type(value)
                    if kind not in plain:
                        plain[kind] = not (kind in WRAPPERS or issubclass(kind, type) or call_of(kind))
                    if plain[kind] and name not in before:
                        continue
                    yield name, value
                    if kind is not FunctionType and isinstance(value, type) and value.__module__ == module_name:
                        pending += [(name, value.__dict__)] if owner == module_name else []
