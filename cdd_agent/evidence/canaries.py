"""Tests with a known result, put beside the targets in the clean copy: one passes, one fails with a word drawn anew.

Code under test that forges the report, or changes what counts as passed, does not know them. They come twice, in files
that run before and after the targets, in the same process.
"""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdd_agent.workspace.beneath import Beneath
from pytest_tdd_agent.report import Case, SuiteReport

_SOURCE = """\
def {passes}():
    assert {word!r}.upper().lower() == {word!r}


def {fails}():
    assert {word!r}.upper() == {word!r}, {word!r}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One file of two tests."""

    file: str
    passes: str
    """Node id of the test that has to pass."""
    fails: str
    """Node id of the test that has to fail."""
    word: str
    """In the message of its failure."""


def plant(root: Path, targets: tuple[str, ...]) -> tuple[Canary, Canary] | None:
    """Write the two files below ``root``, beside the first target's, under names that its name is a pattern for.

    None, and nothing is written, if a link leads from there to another place.
    """
    beside = next((target for target in targets if target.partition("::")[0].endswith(".py")), "test_it.py::test_it")
    folder = (root / beside.partition("::")[0]).parent
    is_free = not os.path.lexists(folder) or folder.is_dir()
    if not is_free or not folder.resolve().is_relative_to(root.resolve()):
        return None
    return _write(root, beside), _write(root, beside)


def remove(root: Path, canary: Canary) -> None:
    """Take the file away if it is still there; what the tests put in its place, or on the way to it, stays."""
    with contextlib.suppress(OSError, ValueError):
        Beneath(root.resolve()).unlink(_place(root, canary.file))


def _write(root: Path, beside: str) -> Canary:
    """A file whose name, and whose tests' names, are those of ``beside`` with a word in them."""
    file, _, test = beside.partition("::")
    function = test.partition("[")[0].rpartition("::")[2]
    name = function if function.isidentifier() and function.isascii() else "test_it"
    mark, word = _drawn(), _drawn()
    path = PurePosixPath(file).with_name(f"{_marked(PurePosixPath(file).stem, mark)}.py")
    passes, fails = _marked(name, f"{mark}a"), _marked(name, f"{mark}b")
    source = _SOURCE.format(passes=passes, fails=fails, word=word)
    Beneath(root.resolve()).write(_place(root, str(path)), source.encode())
    return Canary(file=str(path), passes=f"{path}::{passes}", fails=f"{path}::{fails}", word=word)


def _place(root: Path, path: str) -> str:
    """``path`` below ``root`` without the links that its folders may be; ``ValueError`` if they lead out of there."""
    place = (root / path).parent.resolve() / PurePosixPath(path).name
    return place.relative_to(root.resolve()).as_posix()


def _marked(name: str, mark: str) -> str:
    """``name`` with ``mark`` inside, so that what it begins and ends with stays."""
    head, _, tail = name.partition("_")
    return f"{head}_{mark}_{tail}" if tail else f"{name}_{mark}"


def _drawn() -> str:
    return f"w{secrets.token_hex(6)}"


def misreported(canary: Canary, report: SuiteReport) -> str | None:
    """What the report says of the two tests that is not so; None if it is right."""
    cases = {case.nodeid: case for case in report.tests}
    passing, failing = cases.get(canary.passes), cases.get(canary.fails)
    if passing is None or failing is None:
        return "a test that was run is not in the report"
    if passing.outcome != "passed":
        return f"a test that passes is reported as {passing.outcome}{_message(passing)}"
    if failing.outcome != "failed" or failing.failure is None:
        return f"a test that fails is reported as {failing.outcome}"
    if canary.word not in failing.failure.message:
        return f"a test that fails is reported with another message{_message(failing)}"
    return None


def _message(case: Case) -> str:
    """The first line of what is said of its failure."""
    lines = case.failure.message.strip().splitlines() if case.failure is not None else []
    return f": {lines[0][:200]}" if lines else ""
