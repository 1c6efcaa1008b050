"""JavaScript: reads the reports of jest and vitest (one JSON format), mocha (JSON) and ``node --test`` (events)."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults, number_cases
from cdd_agent.testrun.frameworks.javascript import REPORT, SEPARATOR, is_mocha_test, is_node_test, is_test, select
from cdd_agent.testrun.frameworks.javascript_errors import (
    ErrorContext,
    describe_error,
    find_printed_error,
    make_relative,
)
from cdd_agent.testrun.frameworks.sources import Sources, read_text, strip_terminal_codes
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure

LIMIT_BYTES = 64 * 1024 * 1024
_TAIL_LINES = 12


_number_cases = partial(number_cases, form="{name} ({count})")


def _format_last_lines(run: FinishedRun) -> str:
    lines = [line.rstrip() for line in run.plain_output.splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else ""


def _read_report(run: FinishedRun, tool: str, *, parse: Callable[[bytes], ParsedResults]) -> ParsedResults:
    """Parse the report of a run. A command that failed although no test did is a problem."""
    last = _format_last_lines(run)
    try:
        results = parse(read_ordinary(run.results / REPORT, limit_bytes=LIMIT_BYTES))
    except FileNotFoundError:
        return ParsedResults(problem=f"{tool} ended with status {run.exit_status} and wrote no results{last}")
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return ParsedResults(problem=f"The results that {tool} wrote cannot be read: {error}")
    is_explained = bool(results.collect_errors) or any(case.outcome in FAILING for case in results.tests)
    if results.problem is not None or run.exit_status == 0 or is_explained:
        return results
    what = "no test failed" if results.tests else "no test ran"
    return replace(results, problem=f"{tool} ended with status {run.exit_status} although {what}{last}")


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
        tests = tuple(case for case in _number_cases(cases) if not (is_selected and case.outcome == "skipped"))
        errors = tuple(_find_jest_errors(report, run.root, tool=tool))
        problem = f"{tool} was interrupted{_format_last_lines(run)}" if report.was_interrupted else None
        return ParsedResults(tests=tests, collect_errors=errors, problem=problem)

    return _read_report(run, tool, parse=parse)


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


# The JSON of cdd's reporter for mocha, which is not written if a file cannot be loaded

_UNLOADED = re.compile(r"^\s*(?:✖ ERROR: ?|Exception during run: )(?P<error>.+)", re.MULTILINE | re.DOTALL)
_PLAIN_UNLOADED = re.compile(r"^(?P<error>(?:/|file://).+?:\d+\n.+)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"imported from (?P<importer>\S+)|\[ @(?P<parsed>\S+) \]|^- (?P<required>/\S+)", re.MULTILINE)
_SPECIFIER = re.compile(r"(?:module|package) ['\"]([^'\"\n]+)['\"]")
_EXPORT = re.compile(r"export named ['\"]([^'\"\n]+)['\"]")


class _Error(msgspec.Struct, rename="camel"):
    name: str | None = None
    message: str | None = None
    stack: str | None = None
    failure_type: str = ""
    exit_code: int | None = None
    cause: "_Error | None" = None

    @property
    def text(self) -> str:
        """Class, message and stack."""
        if self.stack and (self.message or "") in self.stack:
            return self.stack
        head = f"{self.name}: {self.message}" if self.name else self.message or ""
        return "\n".join(filter(None, (head, self.stack)))

    @property
    def phase(self) -> str:
        """The phase in which it was thrown."""
        if self.failure_type == "hookFailed":
            return "teardown" if "after" in (self.message or "") else "setup"
        return "setup" if self.failure_type == "cancelledByParent" else "call"


class _MochaTest(msgspec.Struct):
    titles: list[str]
    outcome: str
    phase: str
    file: str = ""
    duration: float | None = None
    reruns: int = 0
    error: _Error | None = None


def read_mocha(run: FinishedRun) -> ParsedResults:
    """Read mocha's JSON; without it, the file that could not be loaded."""

    def parse(data: bytes) -> ParsedResults:
        tests = msgspec.json.decode(data, type=list[_MochaTest])
        return ParsedResults(tests=_number_cases(_convert_mocha(test, run.root) for test in tests))

    is_written = os.path.lexists(run.results / REPORT)
    return (None if is_written else _read_unloaded(run)) or _read_report(run, "mocha", parse=parse)


def _convert_mocha(test: _MochaTest, root: Path) -> Case:
    file = make_relative(test.file, root)
    context = ErrorContext(root=root, file=file, is_test=is_mocha_test, phase=test.phase)
    failure = describe_error(test.error.text, context) if test.error else None
    nodeid, duration_s = f"{file}::{SEPARATOR.join(test.titles)}", max(test.duration or 0.0, 0.0) / 1000
    return Case(nodeid, test.outcome, file, 0, duration_s, reruns=test.reruns, failure=failure)


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
    sources = Sources(root, suffixes=("js", "ts", "jsx", "tsx"), built=("dist", "build", "coverage"))
    wanted = [found[1] for found in (module, name) if found]
    tests = filter(is_mocha_test, sources.files())
    importers = [path for path in tests if all(word in sources.text(path) for word in wanted)]
    return importers[0] if len(importers) == 1 else None


# The events of ``node --test``

_USES_RUNNER = re.compile(r"['\"]node:test['\"]")


class _NodeTestEvent(msgspec.Struct, rename="camel"):
    type: str
    name: str = ""
    nesting: int = 0
    file: str = ""
    line: int = 0
    message: str = ""
    is_suite: bool = False
    duration: float = 0.0
    skip: str | bool | None = None
    todo: str | bool | None = None
    error: _Error | None = None

    @property
    def key(self) -> tuple[str, int, str]:
        """File, level and title, which identify a running test."""
        return self.file, self.nesting, self.name

    @property
    def outcome(self) -> str:
        """The outcome of the test."""
        if self.skip not in (None, False):
            return "skipped"
        if self.todo not in (None, False):
            return "xfailed" if self.error else "xpassed"
        if self.error is None:
            return "passed"
        return "error" if self.error.phase != "call" else "failed"


def read_node(run: FinishedRun) -> ParsedResults:
    """Read the events that ``REPORTER`` wrote."""

    def parse(data: bytes) -> ParsedResults:
        events = _NodeEvents(root=run.root, is_selected=bool(select(run.targets).names))
        for line in data.decode().splitlines():
            events.add(msgspec.json.decode(line, type=_NodeTestEvent))
        if not data.strip():
            raise FileNotFoundError  # node creates the file before it runs
        errors = tuple(events.errors)
        return ParsedResults(tests=_number_cases(events.tests), collect_errors=errors, problem=events.problem)

    return _read_report(run, "node --test", parse=parse)


@dataclass(slots=True, kw_only=True)
class _NodeEvents:
    root: Path
    is_selected: bool
    is_complete: bool = False
    titles: dict[str, list[str]] = field(default_factory=dict)
    """File -> titles of the running test and its groups, outermost first."""
    parents: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    """Files with a test that ended."""
    printed: dict[str, list[str]] = field(default_factory=dict)
    """File -> its output on standard error."""
    open: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    tests: list[Case] = field(default_factory=list)
    errors: list[CollectError] = field(default_factory=list)
    exited: list[str] = field(default_factory=list)
    """Files that ended successfully before their tests ended."""

    @property
    def problem(self) -> str | None:
        """Why the results may be incomplete."""
        if not self.is_complete:
            return "node --test was cut off: the last event is missing"
        if self.exited:
            return f"{self.exited[0]} ended before its tests did, for example by process.exit()"
        unfinished = (f"{make_relative(file, self.root)}::{name} began and did not end" for file, _, name in self.open)
        return next(unfinished, None)

    def add(self, event: _NodeTestEvent) -> None:
        """Add the next event."""
        self.is_complete = event.type == "end"
        is_end = event.type in ("test:pass", "test:fail")
        if event.type == "test:stderr":
            self.printed.setdefault(make_relative(event.file, self.root), []).append(event.message)
        elif event.nesting == 0 and event.file and event.file in (event.name, str(self.root / event.name)):
            # Node reports a whole file as a test with the file's path for its name.
            if is_end:
                self._end_file(event)
        elif event.type == "test:enqueue":
            self.open[event.key] += 1
        elif event.type == "test:start":
            self.titles.setdefault(event.file, [])[event.nesting :] = [event.name]
        elif is_end:
            self._end_test(event)

    def _end_file(self, event: _NodeTestEvent) -> None:
        file = make_relative(event.file, self.root)
        if event.error is None:
            if event.file in self.ended or self.is_selected:  # or none of its tests was asked for
                return
            if _USES_RUNNER.search(read_text(Path(event.file))) and event.skip is None:
                self.exited.append(file)
            else:  # a program without tests inside is one test
                self._add_test(event, file, file=file)
        elif event.error.failure_type != "subtestsFailed":
            error = find_printed_error("".join(self.printed.get(file, ()))) or event.error.text
            context = ErrorContext(root=self.root, file=file, is_test=is_node_test, phase="collect")
            self.errors.append(CollectError(file, describe_error(error, context)))

    def _end_test(self, event: _NodeTestEvent) -> None:
        self.open[event.key] -= 1
        if self.open[event.key] <= 0:
            del self.open[event.key]
        self.ended.add(event.file)
        above = tuple(self.titles.get(event.file, ())[: event.nesting])
        self.parents.update((event.file, above[:depth]) for depth in range(1, len(above) + 1))
        if event.skip == "test name does not match pattern":
            return
        path = (*above, event.name)
        file = make_relative(event.file, self.root)
        nodeid, error = f"{file}::{SEPARATOR.join(path)}", event.error
        is_group = event.is_suite or (event.file, path) in self.parents
        if is_group and (error is None or error.failure_type in ("subtestsFailed", "cancelledByParent")):
            return
        is_unloaded = event.is_suite and error is not None and error.failure_type != "hookFailed"
        why = None
        if error is not None and (is_unloaded or event.outcome in ("failed", "error")):
            phase = "collect" if is_unloaded else error.phase
            context = ErrorContext(root=self.root, file=file, is_test=is_node_test, phase=phase)
            why = describe_error((error.cause or error).text, context)
        if why is not None and is_unloaded:
            self.errors.append(CollectError(nodeid, why))
        else:
            self._add_test(event, nodeid, file=file, failure=why)

    def _add_test(self, event: _NodeTestEvent, nodeid: str, *, file: str, failure: Failure | None = None) -> None:
        duration_s = max(event.duration, 0.0) / 1000
        self.tests.append(Case(nodeid, event.outcome, file, event.line, duration_s, failure=failure))
