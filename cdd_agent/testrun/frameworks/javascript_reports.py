"""JavaScript: reads the reports of jest and vitest (one JSON format), and of cdd's reporters for mocha and node."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults
from cdd_agent.testrun.frameworks.javascript import is_mocha_test, is_node_test, is_test, select
from cdd_agent.testrun.frameworks.javascript_errors import (
    ErrorContext,
    describe_error,
    find_printed_error,
    make_relative,
)
from cdd_agent.testrun.frameworks.reports import (
    REPORT,
    SEPARATOR,
    ReportLine,
    format_last_lines,
    number_titles,
    read_lines,
    read_report,
)
from cdd_agent.testrun.frameworks.sources import Language, Sources, strip_terminal_codes
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure

# The JSON of jest and vitest

_OUTCOMES = {"passed": "passed", "failed": "failed", "todo": "xfailed"}
_OUTCOMES |= dict.fromkeys(("pending", "skipped", "disabled"), "skipped")
_SUITE_FAILED = "Test suite failed to run"
_UNEXPLAINED = "The file failed although none of its tests did, and {} gives no reason. Check the hooks after the tests"


class _Assertion(msgspec.Struct, rename="camel"):
    title: str
    status: str
    ancestor_titles: list[str] = []
    failure_messages: list[str] | None = None
    failure_details: list[object] | None = None
    duration: float | None = None
    location: dict[str, int | None] | None = None
    failing: bool = False
    invocations: int | None = None

    @property
    def is_in_hook(self) -> bool:
        """Whether a hook failed: the stack then contains jest's function that calls hooks, not the one for tests."""
        before, hook, _ = "\n".join(self.failure_messages or ()).partition("_callCircusHook")
        return bool(hook) and "_callCircusTest" not in before


class _File(msgspec.Struct, rename="camel"):
    name: str
    status: str = ""
    message: str | None = None
    assertion_results: list[_Assertion] = []


class _JestRun(msgspec.Struct, rename="camel"):
    test_results: list[_File]
    was_interrupted: bool = False


def read_jest(run: FinishedRun, tool: str = "jest") -> ParsedResults:
    """Read the JSON of jest, or of another ``tool`` that writes the same."""

    def parse(data: bytes) -> ParsedResults:
        report = msgspec.json.decode(data, type=_JestRun)
        files = [(make_relative(file.name, run.root), file) for file in report.test_results]
        cases = (
            _convert_jest(test, ErrorContext(root=run.root, file=name, is_test=is_test))
            for name, file in files
            for test in file.assertion_results
        )
        is_selected = bool(select(run.targets).names)
        # Tests that the selection leaves out are reported as skipped. A selected test that is skipped looks the same.
        tests = tuple(case for case in number_titles(cases) if not (is_selected and case.outcome == "skipped"))
        errors = tuple(_find_jest_errors(report, run.root, tool=tool))
        problem = f"{tool} was interrupted{format_last_lines(run)}" if report.was_interrupted else None
        return ParsedResults(tests=tests, collect_errors=errors, problem=problem)

    return read_report(run, tool, parse=parse)


def _convert_jest(test: _Assertion, context: ErrorContext) -> Case:
    outcome = _OUTCOMES.get(test.status, "error")
    if outcome == "failed" and test.is_in_hook:
        outcome, context = "error", replace(context, phase="setup")
    if outcome == "passed" and test.failing:
        outcome = "xfailed"
    failure = None
    if outcome in FAILING:
        is_matcher = any(isinstance(each, dict) and "matcherResult" in each for each in test.failure_details or ())
        failure = describe_error("\n".join(test.failure_messages or ()), context, is_expectation=is_matcher)
    file, line, duration_s = context.file, (test.location or {}).get("line") or 0, max(test.duration or 0.0, 0.0) / 1000
    nodeid = f"{file}::{SEPARATOR.join((*test.ancestor_titles, test.title))}"
    reruns = max((test.invocations or 1) - 1, 0)
    return Case(nodeid, outcome, file, line, duration_s, reruns=reruns, failure=failure)


def _find_jest_errors(report: _JestRun, root: Path, *, tool: str) -> Iterator[CollectError]:
    """Yield the files that could not be loaded, and those that failed although none of their tests did."""
    for file in report.test_results:
        message = strip_terminal_codes(file.message or "")
        has_failed = any(_OUTCOMES.get(test.status, "error") in FAILING for test in file.assertion_results)
        is_of_file = not file.assertion_results or _SUITE_FAILED in message or not has_failed
        if file.status == "failed" and is_of_file:
            name = make_relative(file.name, root)
            context = ErrorContext(root=root, file=name, is_test=is_test, phase="collect")
            yield CollectError(name, describe_error(_unindent(message) or _UNEXPLAINED.format(tool), context))


def _unindent(message: str) -> str:
    # The error is below the heading that a file could not be run.
    _, found, rest = message.partition(f"● {_SUITE_FAILED}")
    lines = (rest if found else message).strip("\n").splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines).strip("\n")
    details = text.partition("\nDetails:\n")[2] if text.startswith("Jest encountered an unexpected token") else ""
    return f"{details.strip()}\n\n{text}" if details else text


# The lines of cdd's reporters for mocha and node; mocha's are not written if a file cannot be loaded

_UNLOADED = re.compile(r"^\s*(?:✖ ERROR: ?|Exception during run: )(?P<error>.+)", re.MULTILINE | re.DOTALL)
_PLAIN_UNLOADED = re.compile(r"^(?P<error>(?:/|file://).+?:\d+\n.+)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"imported from (?P<importer>\S+)|\[ @(?P<parsed>\S+) \]|^- (?P<required>/\S+)", re.MULTILINE)
_SPECIFIER = re.compile(r"(?:module|package) ['\"]([^'\"\n]+)['\"]")
_SCRIPTS = Language(suffixes=("js", "ts", "jsx", "tsx"), built=("dist", "build", "coverage"), is_test=is_mocha_test)
_EXPORT = re.compile(r"export named ['\"]([^'\"\n]+)['\"]")


def read_mocha(run: FinishedRun) -> ParsedResults:
    """Read the lines of cdd's reporter; without them, the file that could not be loaded."""
    is_written = os.path.lexists(run.results / REPORT)
    return (None if is_written else _read_unloaded(run)) or _read_lines(run, "mocha", is_test=is_mocha_test)


def read_node(run: FinishedRun) -> ParsedResults:
    """Read the lines of cdd's reporter."""
    return _read_lines(run, "node --test", is_test=is_node_test)


def _read_lines(run: FinishedRun, tool: str, *, is_test: Callable[[str], bool]) -> ParsedResults:
    def describe(line: ReportLine) -> Failure | None:
        if line.error is None:
            return None
        context = ErrorContext(root=run.root, file=line.file, is_test=is_test, phase=line.phase)
        return describe_error(find_printed_error(line.printed) or line.error.text, context)

    return read_lines(run, tool, describe=describe, find=lambda file: make_relative(file, run.root))


def _read_unloaded(run: FinishedRun) -> ParsedResults | None:
    """Return the file that could not be loaded, which keeps mocha from running any test; None if there is none."""
    found = _UNLOADED.search(run.plain_output) or _PLAIN_UNLOADED.search(run.plain_output)
    if run.exit_status == 0 or found is None:
        return None
    error = find_printed_error(found["error"])
    context = ErrorContext(root=run.root, file="", is_test=is_mocha_test, phase="collect")
    first = describe_error(error, context)
    match = _FILE.search(error)
    named = next((make_relative(path, run.root) for path in match.groups() if path), "") if match else ""
    in_stack = next((frame.path for frame in first.frames if is_mocha_test(frame.path)), "")
    file = named if is_mocha_test(named) else in_stack
    file = file or find_importer(run.root, error) or named or first.path or "."
    return ParsedResults(collect_errors=(CollectError(file, describe_error(error, replace(context, file=file))),))


def find_importer(root: Path, error: str) -> str | None:
    """Return the only test file that imports the module an error calls missing; None if there is none or more."""
    module, name = _SPECIFIER.search(error), _EXPORT.search(error)
    if module is None:
        return None
    sources = Sources(root, _SCRIPTS)
    wanted = [found[1] for found in (module, name) if found]
    tests = filter(is_mocha_test, sources.files())
    importers = [path for path in tests if all(word in sources.text(path) for word in wanted)]
    return importers[0] if len(importers) == 1 else None
