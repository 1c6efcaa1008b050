"""Find the name that a failing test lacks, whether it belongs to the project, and whether it is an expected one.

Modules are looked up without importing them.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, TracebackType
from typing import Callable, Iterable

from .system import SEPARATOR, Shield, bind_builtins, exists, to_plain_text

bind_builtins(globals())


KINDS = {
    "AttributeError": "attribute_error",
    "ImportError": "import_error",
    "ModuleNotFoundError": "missing_module",
    "NameError": "name_error",
    "UnboundLocalError": "name_error",
}
"""Class of an exception about a missing name -> failure kind."""

_SIGNATURE = re.compile(
    r"(?P<function>[\w.<>]+)\(\) (takes |missing \d+ required |got an unexpected keyword argument "
    r"'(?P<keyword>\w+)'|got multiple values for |got some positional-only )"
)
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_ATTRIBUTE = re.compile(
    r"(?:partially initialized )?(?:module|type object)? ?'([\w.]+)'(?: object)? has no attribute '(\w+)'"
)
_NOT_REPLACED = re.compile(
    r"(?:<(?:module|class) '([\w.]+)'[^>]*>|<([\w.]+) object at 0x\w+>|'\w+' object at ([\w.]+)) "
    r"(?:has no|does not have the) attribute '(\w+)'"
)
"""What ``unittest.mock.patch`` and ``monkeypatch`` say if the name that they have to replace is missing."""
_TYPE = vars(type)  # read from ``type``, because a class's metaclass may answer anything
_NO_NAME = re.compile(r"(?:free variable|name|cannot access local variable|local variable) '(\w+)'")


def is_signature_mismatch(error: BaseException, message: str) -> bool:
    """Return whether a call did not match the parameters of its function."""
    return isinstance(error, TypeError) and _SIGNATURE.match(message) is not None


def is_attribute_of_none(message: str) -> bool:
    """Return whether this is the message about an attribute of None, where no code is missing."""
    return message.startswith("'NoneType' object has no attribute ")


def find_missing_name(error: BaseException, message: str) -> str | None:
    """Return the missing module, attribute, name, function or keyword, as fully qualified as possible."""
    name = _read_field(error, "name")
    if isinstance(error, ModuleNotFoundError):
        return name if isinstance(name, str) else None
    if isinstance(error, ImportError):
        found = _CANNOT_IMPORT.match(message)
        return f"{found.group(2)}.{found.group(1)}" if found else name if isinstance(name, str) else None
    if isinstance(error, AttributeError):
        if is_attribute_of_none(message):
            return None
        if isinstance(name, str):
            owner = _name_owner(_read_field(error, "obj"))
            return f"{owner}.{name}" if owner else name
        found = _NO_ATTRIBUTE.match(message) or _NOT_REPLACED.match(message)
        return ".".join(part for part in found.groups() if part) if found else None
    if isinstance(error, NameError):
        found = _NO_NAME.match(message)
        return found.group(1) if found else None
    found = _SIGNATURE.match(message) if isinstance(error, TypeError) else None
    if found is None:
        return None
    function = found.group("function")
    home = _find_module_of(error.__traceback__, function)
    return ".".join(part for part in (home, function, found.group("keyword")) if part)


def _read_field(error: BaseException, field: str) -> object:
    """Return a value that the interpreter stored in an exception, bypassing attributes of the project's classes."""
    classes: tuple[type[BaseException], ...] = (ImportError, AttributeError)
    slots = [vars(cls)[field] for cls in classes if isinstance(error, cls) and field in vars(cls)]
    return slots[0].__get__(error) if slots else None


def _is_module(value: object) -> bool:
    # A lazy object would answer ``isinstance`` by importing its module.
    return issubclass(type(value), ModuleType)


def _name_owner(value: object) -> str:
    if _is_module(value):
        return str(vars(value).get("__name__", ""))
    cls: type = value if issubclass(type(value), type) else type(value)  # type: ignore[assignment]
    module, name = _TYPE["__module__"].__get__(cls), _TYPE["__qualname__"].__get__(cls)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else str(name)


def _find_module_of(traceback: TracebackType | None, function: str) -> str:
    """Return the module of a function that could not be called, looked up in the frame of the call."""
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
    """Return whether the top-level module of a dotted name belongs to the project; None if unknown.

    ``root`` is the project's folder. ``is_own`` returns True for files of the project, False for installed
    ones, None for others; a path may be relative.
    """
    top = name.split(".", 1)[0]
    folders = (root, f"{root}{SEPARATOR}src")
    if any(exists(f"{folder}{SEPARATOR}{top}{end}") for folder in folders for end in (".py", "")):
        return True  # even if a copy is installed
    if top in sys.builtin_module_names:
        return False
    module = sys.modules.get(top)
    if module is not None:
        own = getattr(module, "__dict__", {})
        places = _select_paths((own.get("__file__"), *(own.get("__path__") or ())))
    else:
        spec = _find_spec(top)
        places = _select_paths((spec.origin, *(spec.submodule_search_locations or ()))) if spec is not None else []
    answers = {is_own(place) for place in places}
    return True if True in answers else False if False in answers else None


def _find_spec(module: str) -> ModuleSpec | None:
    with Shield():  # it asks the hooks in ``sys``, which can be anything
        return PathFinder.find_spec(module)
    return None


def _select_paths(values: Iterable[object]) -> list[str]:
    return [to_plain_text(value) for value in values if isinstance(value, str)]


def covers(expected: str, missing: str, *, kind: str) -> bool:
    """Return whether an expected name covers a missing one of a structural kind.

    A dotted name covers itself, the names inside it, and the modules that contain it. A plain name covers an attribute
    or import of that name anywhere.
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
