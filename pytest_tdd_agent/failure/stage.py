"""The right reasons to fail in RED, in two stages: the code is not there yet; it is, and does something else. Pure."""

from __future__ import annotations

from typing import Sequence

from ..report import Failure
from .missing import KINDS as MISSING_KINDS
from .missing import covers

BEHAVIORAL = ("assertion", "did_not_raise", "did_not_warn", "raises_match_mismatch", "wrong_exception")
"""Kinds that show the test's body at work: it ran the code and the code did something else."""

STRUCTURAL = (
    "missing_module",
    "import_error",
    "attribute_error",
    "name_error",
    "signature_mismatch",
    "not_implemented",
)
"""Kinds that show that the code is not there yet; right only for a name that was expected to be missing."""

_NAMED = {**MISSING_KINDS, "NotImplementedError": "not_implemented", "SyntaxError": "syntax_error"}
_NAMED_IN_PRODUCT = ("ImportError", "ModuleNotFoundError", "NameError", "NotImplementedError", "UnboundLocalError")
_LOOKED_UP = ("missing_module", "import_error", "signature_mismatch")
"""Kinds that say in which module the name was looked for; an attribute may be missing in an object of any library."""
_NO_DEFECT = ("syntax_error", "fixture_missing", "missing_module", "timeout", "crash", "resource")
"""Kinds that no declaration of their exception makes a right reason."""


def stage(failure: Failure, expects: Sequence[str]) -> str | None:
    """Return which right reason to fail in RED a failure is; None if it is a wrong one.

    ``behavioral``: the test ran the code, and the code did something else. ``structural``: the code is not there yet,
    so the test has not judged it. ``expects`` is as for ``gate.judge``.
    """
    kind = kind_inside(failure)
    is_declared = failure.origin == "project" and failure.exception in expects
    is_defect = is_declared and kind not in _NO_DEFECT and not is_of_third_party(failure)
    if failure.phase == "call" and (kind in BEHAVIORAL or is_defect):
        return "behavioral"
    if failure.phase not in ("call", "collect") or kind not in STRUCTURAL:
        return None
    says_so_itself = failure.origin == "project" and kind in ("not_implemented", "name_error")
    return "structural" if says_so_itself or _is_expected(failure, expects) else None


def kind_inside(failure: Failure) -> str:
    """Return the kind; of a name that is missing inside ``raises``, the kind it would have outside."""
    if failure.kind != "wrong_exception" or not (failure.origin == "test" or failure.exception in _NAMED_IN_PRODUCT):
        return failure.kind
    if failure.exception == "TypeError" and failure.missing_name is not None:
        return "signature_mismatch"
    return _NAMED.get(failure.exception, failure.kind)


def is_of_third_party(failure: Failure) -> bool:
    """Say whether the name was looked for in a module that is installed, so that the project cannot make it."""
    return kind_inside(failure) in _LOOKED_UP and failure.missing_in_project is False


def _is_expected(failure: Failure, expects: Sequence[str]) -> bool:
    kind, missing = kind_inside(failure), failure.missing_name
    if missing is None or is_of_third_party(failure):
        return False
    return any(covers(expected, missing, kind=kind) for expected in expects)
