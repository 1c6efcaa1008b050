"""Why a test failed: from an exception to a failure kind, its origin and the places in the user's own code.

Pure: the source of a test file is asked for through a function. Nothing of pytest is imported; its exceptions are
known by name, as they are the same in every version.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import sysconfig
from traceback import format_exception_only
from types import FrameType, ModuleType, TracebackType
from typing import Callable, Iterator

from .fingerprint import is_protected
from .report import Failure, Frame

KINDS = {
    "syntax_error": "Python cannot parse a file.",
    "missing_module": "A module that is imported does not exist; `missing_name` is the module.",
    "import_error": "A module exists, a name imported from it does not; `missing_name` is module and name.",
    "collection_error": "Another exception at the import of a test file.",
    "fixture_missing": "A fixture that the test asks for does not exist.",
    "did_not_raise": "`pytest.raises` saw no exception.",
    "did_not_warn": "`pytest.warns` saw no such warning.",
    "raises_match_mismatch": "The exception has the right class and the wrong content.",
    "wrong_exception": "Inside `raises`, an exception of another class came.",
    "not_implemented": "NotImplementedError.",
    "attribute_error": "AttributeError; `missing_name` is owner and attribute.",
    "name_error": "NameError; `missing_name` is the name.",
    "signature_mismatch": "A call does not fit the function's parameters; `missing_name` is the function, and the "
    "keyword if it is the keyword that does not fit.",
    "assertion": "An assertion does not hold; unittest's and doctest's too.",
    "timeout": "A time limit was exceeded.",
    "crash": "The process that ran the test died.",
    "resource": "Memory, disk space or file descriptors ran out.",
    "recursion": "RecursionError.",
    "system_exit": "SystemExit.",
    "xpass_strict": "The test is marked as a strict expected failure, and passes.",
    "pytest_fail": "`pytest.fail` was called.",
    "exception": "Any other exception.",
}
"""Kind of a failure -> what it means; a closed list."""

MISSING_KINDS = {
    "AttributeError": "attribute_error",
    "ImportError": "import_error",
    "ModuleNotFoundError": "missing_module",
    "NameError": "name_error",
    "UnboundLocalError": "name_error",
}
"""Class of an exception that says that a name is not there -> its kind."""

MESSAGE_CAP = 2000
TEXT_CAP = 6000
FRAMES_CAP = 20

_FAIL_PREFIXES = (
    ("DID NOT RAISE", "did_not_raise"),
    ("DID NOT WARN", "did_not_warn"),
    ("Timeout ", "timeout"),
    ("[XPASS(strict)]", "xpass_strict"),
    ("Raised exception ", "raises_match_mismatch"),
)
_MISMATCH = re.compile(
    r"(?s)\s*(Regex pattern |Pattern '.*' (does not match|not found)|check .*did not return True"
    r"|Expected regex: )|\".*\" does not match \""
)
_SIGNATURE = re.compile(
    r"(?P<function>[\w.<>]+)\(\) (takes |missing \d+ required |got an unexpected keyword argument "
    r"'(?P<keyword>\w+)'|got multiple values for |got some positional-only )"
)
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_ATTRIBUTE = re.compile(
    r"(?:partially initialized )?(?:module|type object)? ?'([\w.]+)'(?: object)? has no attribute '(\w+)'"
)
_NO_NAME = re.compile(r"(?:free variable|name|cannot access local variable|local variable) '(\w+)'")
_RAISES = frozenset({"raises", "RaisesGroup", "RaisesExc", "assertRaises", "assertRaisesRegex"})
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest", "doctest", "importlib", "xdist"})
_INSTALLED = frozenset({"site-packages", "dist-packages", ".tox", ".nox", ".venv", "venv", "node_modules"})
_STANDARD_LIBRARY = tuple({sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib")})
_RESOURCE_ERRNOS = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EDQUOT})


def describe(
    error: BaseException, *, phase: str, root: str, test_file: str, source: Callable[[str], str | None]
) -> Failure:
    """Return the failure that an exception stands for.

    ``root`` is the absolute root directory of the run, ``test_file`` relative to it; ``source`` returns the text of a
    file below the root, None if it cannot be read.
    """
    if _is_named(error, "MultipleDoctestFailures", package="_pytest"):
        error = next(iter(getattr(error, "failures", ())), error)
    doctest_place = _doctest_place(error)
    if _is_named(error, "UnexpectedException", package="doctest"):
        error = getattr(error, "exc_info", (None, error))[1]
    calls = [at for at in _calls(error) if _is_own(at[0], root)]
    frames = tuple(Frame(_relative(path, root), line, function) for path, line, function in calls[-FRAMES_CAP:])
    kind, missing_name = classify(error, phase=phase, in_raises=_is_in_raises(frames, test_file, source=source))
    place = doctest_place or _syntax_place(error) or next(((at.path, at.line) for at in reversed(frames)), None)
    path = None if place is None else _relative(place[0], root)
    return Failure(
        phase=phase,
        kind=kind,
        origin=_origin(error, root, test_file=test_file, place=path),
        exception=type(error).__name__,
        message=message_of(error),
        missing_name=missing_name,
        path=path,
        line=None if place is None else place[1],
        frames=frames,
    )


def from_text(text: str, phase: str) -> Failure:
    """Return the failure of a report that came without an exception: a strict pass, a worker that died."""
    kind = "exception"
    if text.startswith("[XPASS(strict)]"):
        kind = "xpass_strict"
    elif phase not in ("collect", "setup", "call", "teardown"):
        kind, phase = "crash", "call"
    return Failure(phase=phase, kind=kind, origin="test", exception="", message=text[:MESSAGE_CAP])


def classify(error: BaseException, *, phase: str, in_raises: bool = False) -> tuple[str, str | None]:
    """Return the kind of an exception and the name that was missing.

    ``in_raises``: it came out of the body of a ``with raises(...)``. The first rule that fits decides.
    """
    message = message_of(error)
    missing = _missing(error, message)
    kind = _kind_of_report(error, message)
    if kind is None and phase == "collect":
        kind = MISSING_KINDS.get(type(error).__name__, "") if isinstance(error, ImportError) else "collection_error"
        kind = kind or "import_error"
    if kind is None and in_raises:
        kind = "wrong_exception"
    return kind or _kind_of_class(error, message), missing


def _kind_of_report(error: BaseException, message: str) -> str | None:
    """The kinds that hold wherever the exception comes from."""
    if isinstance(error, SyntaxError):
        return "syntax_error"
    if _is_named(error, "FixtureLookupError", package="_pytest"):
        return "fixture_missing"
    if _is_named(error, "OutcomeException", package="_pytest"):
        return next((kind for prefix, kind in _FAIL_PREFIXES if message.startswith(prefix)), "pytest_fail")
    if isinstance(error, AssertionError) and _MISMATCH.match(message):
        return "raises_match_mismatch"
    if _is_named(error, "DocTestFailure", package="doctest"):
        return "assertion"
    return None


def _kind_of_class(error: BaseException, message: str) -> str:
    classes: tuple[tuple[type[BaseException], str], ...] = (
        (ModuleNotFoundError, "missing_module"),
        (ImportError, "import_error"),
        (NotImplementedError, "not_implemented"),
        (RecursionError, "recursion"),
        (AttributeError, "attribute_error"),
        (NameError, "name_error"),
        (AssertionError, "assertion"),
        (TimeoutError, "timeout"),
        (MemoryError, "resource"),
        (SystemExit, "system_exit"),
    )
    if isinstance(error, TypeError) and _SIGNATURE.match(message):
        return "signature_mismatch"
    if isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS:
        return "resource"
    return next((kind for cls, kind in classes if isinstance(error, cls)), "exception")


def message_of(error: BaseException) -> str:
    """Return the text of an exception, capped; never raises, whatever its ``__str__`` does."""
    if isinstance(error, SyntaxError):
        return str(error.msg)[:MESSAGE_CAP]
    if _is_named(error, "DocTestFailure", package="doctest"):
        example, got = getattr(error, "example", None), getattr(error, "got", "")
        return f"Expected {getattr(example, 'want', '')!r}, got {got!r}"[:MESSAGE_CAP]
    if _is_named(error, "FixtureLookupError", package="_pytest"):
        return f"fixture {getattr(error, 'argname', '')!r} not found"
    shown = "".join(format_exception_only(type(error), error)).rstrip("\n")
    return shown.partition(": ")[2][:MESSAGE_CAP]


def _missing(error: BaseException, message: str) -> str | None:
    name = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError):
        return name if isinstance(name, str) else None
    if isinstance(error, ImportError):
        found = _CANNOT_IMPORT.match(message)
        return f"{found.group(2)}.{found.group(1)}" if found else name if isinstance(name, str) else None
    if isinstance(error, AttributeError):
        found = _NO_ATTRIBUTE.match(message)
        if isinstance(name, str):
            owner = _owner(getattr(error, "obj", None))
            return f"{owner}.{name}" if owner else name
        return f"{found.group(1)}.{found.group(2)}" if found else None
    if isinstance(error, NameError):
        found = _NO_NAME.match(message)
        return found.group(1) if found else None
    found = _SIGNATURE.match(message) if isinstance(error, TypeError) else None
    if found is None:
        return None
    function = found.group("function")
    home = _home(error.__traceback__, function)
    return ".".join(part for part in (home, function, found.group("keyword")) if part)


def _owner(value: object) -> str:
    """The dotted name of a module, a class, or the class of another object."""
    if isinstance(value, ModuleType):
        return str(value.__name__)
    cls = value if isinstance(value, type) else type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _home(traceback: TracebackType | None, function: str) -> str:
    """The module of a function that could not be called, looked up where the call stands."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    names = {**traceback.tb_frame.f_globals, **traceback.tb_frame.f_locals}
    first = function.split(".", 1)[0]
    holders = (value for value in names.values() if isinstance(value, ModuleType))
    found = [names.get(first), *(vars(module).get(first) for module in holders)]
    home = next((getattr(value, "__module__", None) for value in found if value is not None), None)
    return home if isinstance(home, str) else ""


def _is_named(error: BaseException, name: str, *, package: str) -> bool:
    return any(cls.__name__ == name and cls.__module__.split(".", 1)[0] == package for cls in type(error).__mro__)


def _doctest_place(error: BaseException) -> tuple[str, int] | None:
    test, example = getattr(error, "test", None), getattr(error, "example", None)
    if not (
        _is_named(error, "DocTestFailure", package="doctest")
        or _is_named(error, "UnexpectedException", package="doctest")
    ):
        return None
    return str(getattr(test, "filename", "")), int(getattr(test, "lineno", 0) or 0) + getattr(example, "lineno", 0) + 1


def _syntax_place(error: BaseException) -> tuple[str, int] | None:
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return error.filename, error.lineno or 0
    return None


def _calls(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Absolute file, line and function of each frame, outermost first; those of the cause if it has none itself."""
    traceback = error.__traceback__
    if traceback is None and error.__cause__ is not None:
        traceback = error.__cause__.__traceback__
    while traceback is not None:
        if not _is_runner(traceback.tb_frame):
            code = traceback.tb_frame.f_code
            yield os.path.abspath(code.co_filename), traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next


def _is_runner(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return frame.f_code.co_filename.startswith("<frozen") or (
        isinstance(name, str) and name.split(".", 1)[0] in _RUNNERS
    )


def _is_own(path: str, root: str) -> bool:
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return inside and _INSTALLED.isdisjoint(_relative(path, root).split("/"))


def _relative(path: str, root: str) -> str:
    prefix = root.rstrip(os.sep) + os.sep
    return (path[len(prefix) :] if path.startswith(prefix) else path).replace(os.sep, "/")


def _origin(error: BaseException, root: str, *, test_file: str, place: str | None) -> str:
    """Whose code raised: that of the innermost frame which is neither the runner's nor the standard library's."""
    own = [path for path, _, _ in _calls(error) if not path.startswith(_STANDARD_LIBRARY) or "-packages" in path]
    innermost = own[-1] if own else None
    if innermost is None or isinstance(error, SyntaxError):
        innermost = None if place is None else os.path.join(root, place)
    if _is_named(error, "FixtureLookupError", package="_pytest"):
        return "test"
    if innermost is None or not _is_own(innermost, root):
        return "third_party"
    relative = _relative(innermost, root)
    return "test" if relative == test_file or is_protected(relative) else "project"


def _is_in_raises(frames: tuple[Frame, ...], test_file: str, *, source: Callable[[str], str | None]) -> bool:
    """Say whether the innermost line of the test file stands in a ``with raises(...)`` or calls ``raises(X, f)``."""
    line = next((at.line for at in reversed(frames) if at.path == test_file), None)
    text = None if line is None else source(test_file)
    if text is None or line is None or not any(name in text for name in _RAISES):
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(first <= line <= last for first, last in _raises_spans(tree))


def _raises_spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(_is_raises(item.context_expr) for item in node.items):
                yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
        elif isinstance(node, ast.Call) and _is_raises(node) and len(node.args) > 1:
            yield node.lineno, node.end_lineno or node.lineno


def _is_raises(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _RAISES


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
