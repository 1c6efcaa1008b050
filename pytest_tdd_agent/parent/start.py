"""Find out how this pytest was started, and the command that starts it again.

A parent may judge only if no code of the project runs in it. So nothing but Python may have called pytest, and no file
of the project may have been imported yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from sysconfig import get_paths
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Sequence

from ..fingerprint import PACKAGES_FOLDERS
from ..system import bind_builtins

if TYPE_CHECKING:
    import pytest

bind_builtins(globals())


class NoParentError(Exception):
    """The test process must judge itself; the message says why."""


def find_command(config: pytest.Config) -> list[str]:
    """Return the command that starts this pytest again, before any file of the project is imported.

    Raises NoParentError, which says why there is no such command.
    """
    frame = _find_caller_of_pytest()
    if frame is None or tuple(config.invocation_params.args) != tuple(sys.argv[1:]) or sys.flags.inspect:
        raise NoParentError("pytest was not started as `pytest` or `python -m pytest`")
    if sys.gettrace() is not None:
        raise NoParentError("a debugger or a measurement of coverage traces pytest")
    loaded = find_loaded_module(config)
    if loaded is not None:
        raise NoParentError(f"pytest loaded {loaded} of the project before the plugin")
    return [sys.executable, *_find_arguments(is_module=frame.f_globals.get("__spec__") is not None)]


def _find_caller_of_pytest() -> FrameType | None:
    """Return the frame of the program's main module if it does nothing but call pytest, otherwise None."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    while frames and frames[0].f_globals.get("__name__") == "runpy":
        del frames[0]  # python -m; debuggers and profilers have their own module below these
    if len(frames) < 2:
        return None
    outer, inner = frames[:2]
    is_main = outer.f_globals is vars(sys.modules["__main__"]) and outer.f_code.co_name == "<module>"
    called = inner.f_globals.get("__name__"), inner.f_code.co_name.lstrip("_")
    spec = outer.f_globals.get("__spec__")
    is_pytest = spec.name == "pytest.__main__" if spec is not None else os.path.isfile(sys.argv[0])
    return outer if is_main and is_pytest and called == ("_pytest.config", "console_main") else None


def _find_arguments(*, is_module: bool) -> Sequence[str]:
    # A console script must stay one: `python -m` would put the current folder on the import path.
    words = sys.argv[1:]
    original: Sequence[str] = getattr(sys, "orig_argv", ())
    if original and list(original[len(original) - len(words) :]) == words:
        return original[1:]
    options: Sequence[str] = vars(subprocess)["_args_from_interpreter_flags"]()  # as multiprocessing does
    return [*options, *(("-m", "pytest") if is_module else sys.argv[:1]), *words]


def find_loaded_module(config: pytest.Config) -> str | None:
    """Return the location of a file of the project that is imported already, None if there is none."""
    tops = {_find_top(os.path.realpath(str(folder))) for folder in (config.rootpath, config.invocation_params.dir)}
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if not isinstance(file, str):
            continue
        for path in (os.path.abspath(file), os.path.realpath(file)):
            top = next((top for top in tops if f"{path}{os.sep}".startswith(f"{top.rstrip(os.sep)}{os.sep}")), None)
            if top is not None and not _is_installed(path):
                return os.path.relpath(path, str(config.rootpath))
    return None


def _find_top(folder: str) -> str:
    """Return the repository of a folder, or the folder itself: a project may import its neighbors there."""
    top = folder
    while not os.path.exists(os.path.join(top, ".git")):
        top, below = os.path.dirname(top), top
        if top == below:
            return folder
    return top


def _list_installation_folders() -> tuple[str, ...]:
    found = [path for name, path in get_paths().items() if name != "data"]  # that is the environment's own folder
    found += [os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    return tuple({f"{path.rstrip(os.sep)}{os.sep}" for each in found for path in (each, os.path.realpath(each))})


_INSTALLATION = _list_installation_folders()


def _is_installed(path: str) -> bool:
    return path.startswith(_INSTALLATION) or not PACKAGES_FOLDERS.isdisjoint(path.split(os.sep))
