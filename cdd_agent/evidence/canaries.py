"""Canaries: tests with a known result, which run next to the targets.

One passes, the other fails, as its mark expects: so a run in which all is well still ends with exit status 0, and one
that swallows the failure does not. Code that changes which tests pass does not know their names.
"""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.report import Clause, Failure, SuiteReport

_SOURCE = """\
import pytest


def {passes}():
    assert {word!r}.upper().lower() == {word!r}


@pytest.mark.xfail(raises=AssertionError, strict=True)
def {fails}():
    assert {word!r}.upper() == {word!r}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One file with two tests."""

    file: str
    passes: str
    fails: str


def plant(root: Path, targets: tuple[str, ...]) -> tuple[Canary, Canary] | None:
    """Write two canaries next to the first target, under names like its own, so that pytest collects them.

    Returns None and writes nothing if a link leads from that folder out of ``root``.
    """
    model = _find_model(root, targets)
    return None if model is None else (_write(root, model), _write(root, model))


def add_test_file(root: Path, targets: tuple[str, ...], *, source: str) -> str | None:
    """Write a test file next to the first target, under a name like its own, and return its path.

    Returns None and writes nothing if a link leads from that folder out of ``root``.
    """
    model = _find_model(root, targets)
    return None if model is None else _write_file(root, model.partition("::")[0], source=source)


def _find_model(root: Path, targets: tuple[str, ...]) -> str | None:
    model = next((target for target in targets if target.partition("::")[0].endswith(".py")), "test_it.py::test_it")
    folder = (root / model.partition("::")[0]).parent
    is_free = not os.path.lexists(folder) or folder.is_dir()
    return model if is_free and folder.resolve().is_relative_to(root.resolve()) else None


def remove(root: Path, canary: Canary) -> None:
    """Delete the file, if it still exists. Whatever the tests put in its place stays."""
    with contextlib.suppress(OSError, ValueError):
        ConfinedFolder(root.resolve()).unlink(_resolve(root, canary.file))


def _write(root: Path, model: str) -> Canary:
    file, _, test = model.partition("::")
    function = test.partition("[")[0].rpartition("::")[2]
    name = function if function.isidentifier() and function.isascii() else "test_it"
    mark, word = _draw_word(), _draw_word()
    passes, fails = _insert(name, f"{mark}a"), _insert(name, f"{mark}b")
    path = _write_file(root, file, source=_SOURCE.format(passes=passes, fails=fails, word=word))
    return Canary(file=path, passes=f"{path}::{passes}", fails=f"{path}::{fails}")


def _write_file(root: Path, model: str, *, source: str) -> str:
    path = PurePosixPath(model).with_name(f"{_insert(PurePosixPath(model).stem, _draw_word())}.py")
    ConfinedFolder(root.resolve()).write(_resolve(root, str(path)), source.encode())
    return str(path)


def _draw_word() -> str:
    return f"w{secrets.token_hex(6)}"


def _resolve(root: Path, path: str) -> str:
    """Return ``path`` below ``root`` without links among its folders. Raises ``ValueError`` if they lead out."""
    resolved = (root / path).parent.resolve() / PurePosixPath(path).name
    return resolved.relative_to(root.resolve()).as_posix()


def _insert(name: str, mark: str) -> str:
    # pytest collects by the beginning and the end of a name, so the mark goes into the middle.
    head, _, tail = name.partition("_")
    return f"{head}_{mark}_{tail}" if tail else f"{name}_{mark}"


def find_misreport(canary: Canary, report: SuiteReport) -> Clause | None:
    """Return how the report is wrong about the two tests, or return None if it is right."""
    cases = {case.nodeid: case for case in report.tests}
    passing, failing = cases.get(canary.passes), cases.get(canary.fails)
    if passing is None or failing is None:
        return Clause("canary_missing")
    if passing.outcome != "passed":
        return Clause("passing_misreported", {"outcome": passing.outcome, "message": _quote(passing.failure)})
    if failing.outcome != "xfailed":
        return Clause("failing_misreported", {"outcome": failing.outcome, "message": _quote(failing.failure)})
    return None


def describe_failure(failure: Failure) -> Clause:
    """Return the kind of a failure, its exception and the beginning of its message."""
    parts = {"kind": failure.kind, "exception": failure.exception, "message": _quote(failure)}
    return Clause("failed_as", parts)


def _quote(failure: Failure | None) -> str | Clause:
    """Return the first line of a failure's message; empty if there is none."""
    lines = failure.message.strip().splitlines() if failure is not None else []
    return Clause("message", {"text": lines[0][:200]}) if lines else ""
