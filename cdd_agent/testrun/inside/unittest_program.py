"""Runs ``unittest`` in the project's interpreter and writes the outcome of each test as a line of JSON.

cdd copies this file into a private folder, together with the plugin's rules for failures. It needs Python 3.8. The
arguments are the file for results, and files and folders (without any, all tests run).
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import sys
import time
import traceback
import unittest
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, cast

from tdd_agent_rules.failure import TEXT_CAP, Places, describe  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from _typeshed import OptExcInfo

ROOT = os.getcwd()
PLACES = Places(ROOT)


class Lines(unittest.TestResult):
    """Writes the outcome of each test."""

    def __init__(self, stream: IO[str]) -> None:
        """Write the lines to ``stream``."""
        super().__init__()
        self.buffer = True
        self._lines = stream
        self._found: dict[str, object] = {}
        self._subtests: set[str] = set()
        self._began_s = 0.0
        self.is_good = True

    def startTest(self, test: unittest.TestCase) -> None:
        """Record that a test begins; if the process dies, this line names the test."""
        super().startTest(test)
        self._began_s = time.monotonic()
        self._found = {"outcome": "passed"}
        self._subtests = set()
        self.write(event="begun", nodeid=build_nodeid(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        """Record the outcome of a test."""
        seconds = time.monotonic() - self._began_s
        printed = "".join(part.getvalue() for part in (sys.stdout, sys.stderr) if isinstance(part, io.StringIO))
        if "failure" in self._found:
            failure = cast("dict[str, object]", self._found["failure"])
            self._found["failure"] = {**failure, "output": printed[-TEXT_CAP:]}
        if self._found.get("outcome") == "passed" and self._subtests == {"skipped"}:
            self._found = {"outcome": "skipped"}
        file, line = find_location(test)
        self.write(event="ended", nodeid=build_nodeid(test), file=file, line=line, duration_s=seconds, **self._found)
        self._found = {}
        super().stopTest(test)

    def addError(self, test: unittest.TestCase, err: OptExcInfo) -> None:
        """Record an exception other than a failed assertion, of a test or of a whole class or module."""
        if test.countTestCases():
            self._fail(test, err)
        elif err[1] is not None:  # unittest's stand-in for a class or a module
            failure = describe_error(err[1], phase="setup", file="")
            self.write(event="unready", nodeid=_find_owner(str(test)), failure=failure)

    def addFailure(self, test: unittest.TestCase, err: OptExcInfo) -> None:
        """Record a failed assertion."""
        self._fail(test, err)

    def addSubTest(self, *ended: object) -> None:
        """Record the first failed subtest as the test's failure; ``ended`` is test, subtest, exception."""
        test, err = cast("tuple[unittest.TestCase, OptExcInfo | None]", (ended[0], ended[2]))
        if err is None:
            self._subtests.add("passed")
        elif "failure" not in self._found:
            self._fail(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Record that a test, a class or a subtest is skipped."""
        if hasattr(test, "test_case"):  # a subtest
            self._subtests.add("skipped")
        elif "failure" not in self._found:
            self._found = {"outcome": "skipped"}

    def addExpectedFailure(self, test: unittest.TestCase, err: OptExcInfo) -> None:
        """Record that a test fails as expected."""
        self._found = {"outcome": "xfailed"}

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Record that a test passes although a failure is expected."""
        self._found = {"outcome": "xpassed"}

    def _fail(self, test: unittest.TestCase, err: OptExcInfo) -> None:
        error = err[1]
        if error is None:
            return
        phase = find_phase(error)
        failure = describe_error(error, phase=phase, file=find_location(test)[0])
        self._found = {"outcome": "failed" if phase == "call" else "error", "failure": failure}

    def write(self, **fields: object) -> None:
        """Write one line and flush it, because the process can die next."""
        self.is_good = self.is_good and "failure" not in fields and fields.get("outcome") != "xpassed"
        self._lines.write(json.dumps(fields) + "\n")
        self._lines.flush()


def find_phase(error: BaseException) -> str:
    """Return ``setup``, ``call`` or ``teardown``, by the functions of unittest in the stack."""
    names = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    if "_callSetUp" in names:
        return "setup"
    return "teardown" if names & {"_callTearDown", "_callCleanup", "doCleanups"} else "call"


def describe_error(error: BaseException, *, phase: str, file: str) -> dict[str, object]:
    """Return the failure for an exception."""

    def source(path: str) -> bytes | None:
        try:
            with open(os.path.join(ROOT, path), "rb") as stream:
                return stream.read()
        except (OSError, ValueError):
            return None

    found = dataclasses.asdict(describe(error, phase=phase, places=PLACES, test_file=file, source=source))
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {**found, "text": text[-TEXT_CAP:]}


def find_location(test: unittest.TestCase) -> tuple[str, int]:
    """Return file, relative to the project, and line of a test."""
    function = getattr(type(test), test.id().rpartition(".")[2], None)
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    module = sys.modules.get(type(test).__module__)
    path = getattr(module, "__file__", None) or (code.co_filename if code else "")
    line = code.co_firstlineno if code and os.path.abspath(code.co_filename) == os.path.abspath(path) else 0
    return os.path.relpath(os.path.abspath(path), ROOT) if path else "", line


def build_nodeid(test: unittest.TestCase) -> str:
    """Return the node id that pytest would give the test."""
    return "::".join((find_location(test)[0], *type(test).__qualname__.split("."), test.id().rpartition(".")[2]))


def _find_owner(holder: str) -> str:
    """Return file and class of a failed set-up, from unittest's ``setUpClass (module.Class)``."""
    name = holder.partition("(")[2].rstrip(")")
    module = name
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    path = getattr(sys.modules.get(module), "__file__", None)
    inside = name[len(module) :].strip(".").split(".")
    file = os.path.relpath(path, ROOT) if path else name
    return "::".join((file, *filter(None, inside)))


def find_import_root(folder: str) -> str:
    """Return the folder where imports of a test in ``folder`` begin: the first one upwards that is not a package."""
    while os.path.exists(os.path.join(folder, "__init__.py")) and folder != ROOT:
        folder = os.path.dirname(folder)
    return folder


def load_suites(paths: list[str]) -> Iterator[unittest.TestSuite]:
    """Yield the tests of each file or folder, or all tests without any."""
    loader = unittest.TestLoader()
    if not paths:
        folders = [os.path.abspath(name) for name in ("tests", "test") if os.path.isdir(name)]
        for folder in (ROOT, *(folder for folder in folders if find_import_root(folder) != ROOT)):
            yield loader.discover(folder, top_level_dir=folder)
    for path in map(os.path.abspath, paths):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        pattern = "test*.py" if os.path.isdir(path) else os.path.basename(path)
        yield loader.discover(folder, pattern=pattern, top_level_dir=find_import_root(folder))


def iterate_tests(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    """Yield the tests of a suite at any depth."""
    if isinstance(suite, unittest.TestSuite):
        for part in suite:
            yield from iterate_tests(part)
    else:
        yield suite


def main(out: str, paths: list[str]) -> int:
    """Run the tests; return 0 if all passed."""
    sys.path[0] = ROOT
    with open(out, "w", encoding="utf-8") as stream:
        result = Lines(stream)
        chosen: dict[str, unittest.TestCase] = {}
        for suite in load_suites(paths):
            for test in iterate_tests(suite):
                if type(test).__name__ == "_FailedTest":
                    _record_unloaded(test, result)
                else:
                    chosen.setdefault(build_nodeid(test), test)
        unittest.TestSuite(chosen.values()).run(result)
        result.write(event="over", count=len(chosen))
    return 0 if result.is_good else 1


class CapturedError(unittest.TestResult):
    """Keeps the exception of one test."""

    error: BaseException | None = None

    def addError(self, test: unittest.TestCase, err: OptExcInfo) -> None:
        """Keep an exception."""
        self.error = err[1]

    addFailure = addError


def _record_unloaded(test: unittest.TestCase, result: Lines) -> None:
    name = test.id().rpartition("_FailedTest.")[2]
    stems = [os.path.join(folder, *name.split(".")) for folder in sys.path if os.path.abspath(folder).startswith(ROOT)]
    files = (path for stem in stems for path in (stem + ".py", os.path.join(stem, "__init__.py")))
    file = next(filter(os.path.exists, files), name)
    # unittest keeps only the text of the error, so the module is imported again.
    caught = CapturedError()
    unittest.FunctionTestCase(lambda: importlib.import_module(name)).run(caught)
    if caught.error is not None:
        failure = describe_error(caught.error, phase="collect", file=os.path.relpath(file, ROOT))
        result.write(event="unready", nodeid=os.path.relpath(file, ROOT), failure=failure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
