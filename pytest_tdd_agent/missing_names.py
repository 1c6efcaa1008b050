"""The name that was not there: what it is, whose it would be, and whether an expected name accounts for it.

Asks the interpreter which modules it has and would find; imports nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from re import match
from types import ModuleType, TracebackType
from typing import Callable, Iterable

KINDS = {
    "AttributeError": "attribute_error",
    "ImportError": "import_error",
    "ModuleNotFoundError": "missing_module",
    "NameError": "name_error",
    "UnboundLocalError": "name_error",
}
"""Class of an exception that says that a name is not there -> the kind of failure."""

# Patterns are compiled when a test has failed: that takes long, and most runs have no use for it.
_SIGNATURE = (
    r"(?P<function>[\w.<>]+)\(\) (takes |missing \d+ required |got an unexpected keyword argument "
    r"'(?P<keyword>\w+)'|got multiple values for |got some positional-only )"
)
_CANNOT_IMPORT = r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'"
_NO_ATTRIBUTE = r"(?:partially initialized )?(?:module|type object)? ?'([\w.]+)'(?: object)? has no attribute '(\w+)'"
_TYPE = vars(type)  # asked of it, not of a class, whose metaclass may answer
_NO_NAME = r"(?:free variable|name|cannot access local variable|local variable) '(\w+)'"


def is_signature_mismatch(error: BaseException, message: str) -> bool:
    """Say whether a call did not fit the parameters of its function."""
    return isinstance(error, TypeError) and match(_SIGNATURE, message) is not None


def missing_name(error: BaseException, message: str) -> str | None:
    """Return the module, attribute, name, function or keyword that was not there, as fully as is known."""
    name = _kept(error, "name")
    if isinstance(error, ModuleNotFoundError):
        return name if isinstance(name, str) else None
    if isinstance(error, ImportError):
        found = match(_CANNOT_IMPORT, message)
        return f"{found.group(2)}.{found.group(1)}" if found else name if isinstance(name, str) else None
    if isinstance(error, AttributeError):
        if isinstance(name, str):
            owner = _owner(_kept(error, "obj"))
            return f"{owner}.{name}" if owner else name
        found = match(_NO_ATTRIBUTE, message)
        return f"{found.group(1)}.{found.group(2)}" if found else None
    if isinstance(error, NameError):
        found = match(_NO_NAME, message)
        return found.group(1) if found else None
    found = match(_SIGNATURE, message) if isinstance(error, TypeError) else None
    if found is None:
        return None
    function = found.group("function")
    home = _home(error.__traceback__, function)
    return ".".join(part for part in (home, function, found.group("keyword")) if part)


def _kept(error: BaseException, field: str) -> object:
    """What the interpreter put into an exception, whatever a class of the project answers."""
    classes: tuple[type[BaseException], ...] = (ImportError, AttributeError)
    slots = [vars(cls)[field] for cls in classes if isinstance(error, cls) and field in vars(cls)]
    return slots[0].__get__(error) if slots else None


def _is_module(value: object) -> bool:
    """Ask the type, as a lazy object answers ``isinstance`` by loading what it stands for."""
    return issubclass(type(value), ModuleType)


def _owner(value: object) -> str:
    """The dotted name of a module, a class, or the class of another object."""
    if _is_module(value):
        return str(vars(value).get("__name__", ""))
    cls: type = value if issubclass(type(value), type) else type(value)  # type: ignore[assignment]
    module, name = _TYPE["__module__"].__get__(cls), _TYPE["__qualname__"].__get__(cls)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else str(name)


def _home(traceback: TracebackType | None, function: str) -> str:
    """The module of a function that could not be called, looked up where the call stands."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    names = {**traceback.tb_frame.f_globals, **traceback.tb_frame.f_locals}
    first = function.split(".", 1)[0]
    found = [names.get(first), *(vars(value).get(first) for value in names.values() if _is_module(value))]
    home = next((getattr(value, "__module__", None) for value in found if value is not None), None)
    return home if isinstance(home, str) else ""


def is_in_project(name: str, root: str, *, is_own: Callable[[str], bool | None]) -> bool | None:
    """Say whether the top module of a dotted name is the project's; None if that cannot be told.

    ``root`` is the project's folder; ``is_own`` says whether a file is the project's or is installed, None if neither.
    """
    top = name.split(".", 1)[0]
    folders = (root, os.path.join(root, "src"))
    if any(os.path.exists(os.path.join(folder, top + end)) for folder in folders for end in (".py", "")):
        return True  # even if a copy of it is installed
    if top in sys.builtin_module_names:
        return False
    module = sys.modules.get(top)
    if module is not None:
        own = getattr(module, "__dict__", {})
        places = _paths((own.get("__file__"), *(own.get("__path__") or ())))
    else:
        spec = PathFinder.find_spec(top)
        places = _paths((spec.origin, *(spec.submodule_search_locations or ()))) if spec is not None else []
    answers = {is_own(place) for place in places}
    return True if True in answers else False if False in answers else None


def _paths(values: Iterable[object]) -> list[str]:
    return [os.path.abspath(value) for value in values if isinstance(value, str)]


def covers(expected: str, missing: str, *, kind: str) -> bool:
    """Say whether an expected name accounts for a missing one of a structural kind.

    A dotted name accounts for itself, for what is inside it, and for a module it lies in that is missing too.
    A plain name accounts for an attribute or import of that name wherever it was looked for.
    """
    if missing == expected:
        return True
    if kind == "name_error":
        return False
    if missing.startswith(expected + ".") or expected.startswith(missing + "."):
        return True
    if kind == "missing_module":
        return False
    if "." not in expected:
        return expected in missing.split(".")[-2:]
    owner = missing.rpartition(".")[0]
    return expected.endswith("." + missing) or (kind == "signature_mismatch" and expected.endswith("." + owner))
