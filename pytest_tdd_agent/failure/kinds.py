"""From an exception to a failure kind: a closed list, and the rule of each. The first rule that fits decides.

Nothing of pytest is imported; its exceptions are known by name, as they are the same in every version.
"""

from __future__ import annotations

import errno
from traceback import format_exception_only

from .missing import KINDS as MISSING_KINDS
from .missing import is_signature_mismatch, missing_name
from .places import is_named, scopes, syntax_place

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

MESSAGE_CAP = 2000

_FAIL_PREFIXES = (
    ("DID NOT RAISE", "did_not_raise"),
    ("DID NOT WARN", "did_not_warn"),
    ("Regex pattern did not match any of ", "did_not_warn"),
    ("Timeout ", "timeout"),
    ("[XPASS(strict)]", "xpass_strict"),
    ("Unexpected success", "xpass_strict"),
    ("Raised exception ", "raises_match_mismatch"),
)
_UNITTEST_PHRASES = (
    (" not raised", "did_not_raise"),
    (" not triggered", "did_not_warn"),
    (" does not match ", "raises_match_mismatch"),
)
_TIMEOUTS = (
    ("TimeoutError", "asyncio"),
    ("TimeoutError", "concurrent"),
    ("TimeoutExpired", "subprocess"),
    ("timeout", "socket"),
    ("DeadlineExceeded", "hypothesis"),
)
_RESOURCE_ERRNOS = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EDQUOT})
_BEFORE_RAISES = ("timeout", "resource")
"""Kinds that hold inside ``raises`` too: what the surroundings did, not the code."""


def classify(error: BaseException, *, phase: str, in_raises: bool = False) -> tuple[str, str | None]:
    """Return the kind of an exception and the name that was missing.

    ``in_raises``: it came out of the body of a ``with raises(...)``. The first rule that fits decides.
    """
    if is_named(error, "PackageNotFoundError", package="importlib"):  # a distribution, though it says a module
        return ("collection_error" if phase == "collect" else "exception"), None
    message = message_of(error)
    kind = _kind_of_report(error, message)
    if kind is None and phase == "collect":
        kind = _kind_at_import(error)
    if kind is None:
        kind = _kind_of_class(error, message)
        if in_raises and kind not in _BEFORE_RAISES and not isinstance(error, KeyboardInterrupt):
            kind = "wrong_exception"
    return kind, missing_name(error, message)


def _kind_of_report(error: BaseException, message: str) -> str | None:
    """The kinds that hold wherever the exception comes from."""
    if isinstance(error, SyntaxError) and syntax_place(error):
        return "syntax_error"
    if is_named(error, "FixtureLookupError", package="_pytest"):
        return "fixture_missing"
    if is_named(error, "OutcomeException", package="_pytest") and type(error).__name__ == "Failed":
        return next((kind for prefix, kind in _FAIL_PREFIXES if message.startswith(prefix)), "pytest_fail")
    if is_named(error, "DocTestFailure", package="doctest"):
        return "assertion"
    if isinstance(error, AssertionError):
        module, function, _ = next(scopes(error), ("", "", {}))
        if module.startswith("_pytest.") and function in ("__exit__", "match"):
            return "raises_match_mismatch"
        if module == "unittest.case" and function == "_raiseFailure":
            return next((kind for phrase, kind in _UNITTEST_PHRASES if phrase in message), None)
    return None


def _kind_at_import(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return "syntax_error"
    if not isinstance(error, ImportError) or type(error).__module__.startswith("_pytest."):
        return "collection_error"
    return MISSING_KINDS.get(type(error).__name__, "import_error")


def _kind_of_class(error: BaseException, message: str) -> str:
    classes: tuple[tuple[type[BaseException], str], ...] = (
        (SyntaxError, "syntax_error"),
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
    if is_signature_mismatch(error, message):
        return "signature_mismatch"
    if isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS:
        return "resource"
    if any(is_named(error, name, package=package) for name, package in _TIMEOUTS):
        return "timeout"
    return next((kind for cls, kind in classes if isinstance(error, cls)), "exception")


def message_of(error: BaseException) -> str:
    """Return the text of an exception, capped; never raises, whatever its ``__str__`` does."""
    if isinstance(error, SyntaxError):
        return error.msg[:MESSAGE_CAP] if isinstance(error.msg, str) else ""
    if is_named(error, "DocTestFailure", package="doctest"):
        example, got = getattr(error, "example", None), getattr(error, "got", "")
        return f"Expected {getattr(example, 'want', '')!r}, got {got!r}"[:MESSAGE_CAP]
    if is_named(error, "FixtureLookupError", package="_pytest"):
        return f"fixture {getattr(error, 'argname', '')!r} not found"
    shown = "".join(format_exception_only(type(error), error)).rstrip("\n")
    return shown.partition(": ")[2][:MESSAGE_CAP]
