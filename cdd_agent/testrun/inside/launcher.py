"""Starts pytest in the project's interpreter, like ``python -m pytest`` but with the installed pytest.

``python -m`` puts the current folder first on the path, where a file ``pytest.py`` of the project would replace pytest.
``PytestSuite`` runs a copy of this file, which is Python 3.8 and needs only pytest. It adds the folder ``plugins`` to
the path itself: through PYTHONPATH, programs that tests start would get it too.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import ParamSpec

    P = ParamSpec("P")

    from _typeshed.importlib import MetaPathFinderProtocol


class _Redirected:
    """A finder that finds modules of a project in a copy of it, where another finder names the project's files."""

    def __init__(self, finder: MetaPathFinderProtocol, move: Callable[[str], str]) -> None:
        self.finder = finder
        self.find_spec = _redirect(finder.find_spec, move)

    def __getattr__(self, name: str) -> object:
        return getattr(self.finder, name)


def _redirect(find: Callable[P, ModuleSpec | None], move: Callable[[str], str]) -> Callable[P, ModuleSpec | None]:
    def find_spec(*arguments: P.args, **options: P.kwargs) -> ModuleSpec | None:
        spec = find(*arguments, **options)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        moved = None if folders is None else [move(folder) for folder in folders]
        if spec.origin and move(spec.origin) != spec.origin:
            return spec_from_file_location(spec.name, move(spec.origin), submodule_search_locations=moved)
        if spec.origin is None:
            spec.submodule_search_locations = moved
        return spec

    return find_spec


def _redirect_imports(original: str, copy: str) -> None:
    """Import from ``copy`` what an editable installation would import from ``original``.

    Such an installation adds folders to the path, or finders that know the files. What the copy does not have, such as
    an environment in the project's folder, stays where it is.
    """

    def move(path: str) -> str:
        inside = os.path.relpath(path, original)
        moved = os.path.normpath(os.path.join(copy, inside))
        return path if inside.startswith("..") or not os.path.exists(moved) else moved

    sys.path[:] = [move(entry) if os.path.isabs(entry) else entry for entry in sys.path]
    own = ("BuiltinImporter", "FrozenImporter", "PathFinder")
    sys.meta_path[:] = [
        finder if getattr(finder, "__name__", "") in own else _Redirected(finder, move) for finder in sys.meta_path
    ]


def main() -> int:
    """Run pytest with the arguments of this program, after those for the launcher.

    The launcher's arguments are a project's folder and the copy from which to import it, or two empty texts; the folder
    for bytecode, or an empty text; and the module names of the copies of ``run_plugin`` and of the plugin.
    """
    plugins = Path(__file__).with_name("plugins")
    sys.path[0] = str(plugins)
    original, copy = sys.argv.pop(1), sys.argv.pop(1)
    if original != copy:
        _redirect_imports(original, copy)
    cache = sys.argv.pop(1)
    if cache:
        os.environ["PYTHONPYCACHEPREFIX"] = cache
    import_module(sys.argv.pop(1))  # run_plugin changes how pytest itself is loaded
    plugin = sys.argv.pop(1)
    # Imported before pytest starts to rewrite assertions, which would double the time.
    for module in (f"{plugin}.plugin", f"{plugin}.audit"):
        import_module(module)

    import pytest

    if cache:  # only now: everything so far is compiled already
        sys.pycache_prefix, sys.dont_write_bytecode = cache, False
    sys.path[0] = os.getcwd()
    sys.path.append(str(plugins))
    sys.argv[0] = str(Path(pytest.__file__).with_name("__main__.py"))
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":  # processes that tests spawn import this file again
    sys.exit(main())
