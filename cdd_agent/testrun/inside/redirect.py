"""Imports a project's modules from its copy, where an editable installation or PYTHONPATH names the project's files.

``PytestSuite`` copies this file into a folder at the start of PYTHONPATH, as ``sitecustomize.py``, beside a file that
names both folders. So every Python of a test run executes it, also one that a test starts. It is Python 3.8 and imports
the environment's own ``sitecustomize`` at the end.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import ParamSpec

    P = ParamSpec("P")

    from _typeshed.importlib import MetaPathFinderProtocol

_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = ("BuiltinImporter", "FrozenImporter")


def move(path: str) -> str:
    """Return the path in the copy; what the copy lacks, such as an environment in the project's folder, stays."""
    inside = os.path.relpath(path, original)
    moved = os.path.normpath(os.path.join(copy, inside))
    return path if inside.startswith("..") or not os.path.exists(moved) else moved


class _Redirected:
    """A finder that finds modules of a project in its copy, where another finder names the project's files."""

    def __init__(self, finder: MetaPathFinderProtocol) -> None:
        self.finder = finder
        self.find_spec = _redirect(finder.find_spec)

    def __getattr__(self, name: str) -> object:
        return getattr(self.finder, name)


def _redirect(find: Callable[P, ModuleSpec | None]) -> Callable[P, ModuleSpec | None]:
    def find_spec(*arguments: P.args, **options: P.kwargs) -> ModuleSpec | None:
        spec = find(*arguments, **options)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        moved = None if folders is None else [move(folder) for folder in folders]
        if spec.origin and move(spec.origin) != spec.origin:
            return spec_from_file_location(spec.name, move(spec.origin), submodule_search_locations=moved)
        if spec.origin is None and moved != list(folders or ()):
            spec.submodule_search_locations = moved
        return spec

    return find_spec


if __name__ == "sitecustomize":
    with open(os.path.join(_HERE, "folders"), encoding="utf-8", errors="surrogateescape") as _stream:
        original, copy = _stream.read().split("\0")
    sys.path[:] = [move(entry) if os.path.isabs(entry) else entry for entry in sys.path if entry != _HERE]
    sys.meta_path[:] = [
        finder if getattr(finder, "__name__", "") in _OWN else _Redirected(finder) for finder in sys.meta_path
    ]
    _this = sys.modules.pop(__name__)
    try:
        import_module(__name__)
    except ImportError:
        pass
    finally:
        sys.modules.setdefault(__name__, _this)
