"""JavaScript: reads the reports of jest and vitest (one JSON format), mocha (JSON) and ``node --test`` (events)."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import FinishedRun, Results, number_repeated
from cdd_agent.testrun.frameworks.javascript import (
    REPORTS,
    SELECTED,
    SEPARATOR,
    is_mocha_test,
    is_node_test,
    is_test,
)
from cdd_agent.testrun.frameworks.javascript_errors import (
    Setting,
    describe_error,
    find_printed_error,
    relative,
    strip_colors,
)
from cdd_agent.testrun.frameworks.sources import read_text
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure

LIMIT_BYTES = 64 * 1024 * 1024
_TAIL_LINES = 12
_NUMBERED = "{name} ({count})"
"""Form of a repeated node id."""


# What all reports share


def _find_report(run: FinishedRun, tool: str) -> tuple[Path, bool]:
    """Return the report, and whether tests were left out of it by their names."""
    selected = run.results / f"{SELECTED}-{REPORTS[tool]}"
    return (selected, True) if selected.is_symlink() or selected.exists() else (run.results / REPORTS[tool], False)


def _explain_unwritten(run: FinishedRun, tool: str) -> Results:
    return Results(problem=f"{tool} ended with status {run.exit_status} and wrote no results{_last_words(run.output)}")


def _explain_unreadable(error: Exception, tool: str) -> Results:
    return Results(problem=f"The results that {tool} wrote cannot be read: {error}")


def _last_words(output: str) -> str:
    """Return ``: `` and the last lines of the output; nothing if there are none."""
    lines = [line.rstrip() for line in strip_colors(output).splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else ""


def _require_reason(run: FinishedRun, results: Results, *, tool: str) -> Results:
    """Return the results, with a problem if the command failed and no test says why."""
    is_explained = bool(results.collect_errors) or any(case.outcome in FAILING for case in results.tests)
    if results.problem is not None or run.exit_status == 0 or is_explained:
        return results
    what = "no test failed" if results.tests else "no test ran"
    problem = f"{tool} ended with status {run.exit_status} though {what}{_last_words(run.output)}"
    return replace(results, problem=problem)


# The JSON of jest, which vitest writes too

_OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "pending": "skipped",
    "skipped": "skipped",
    "disabled": "skipped",
    "todo": "xfailed",
}
_SUITE_FAILED = "Test suite failed to run"
_UNEXPLAINED = "The file failed, though none of its tests did, and {} does not say why: perhaps a hook after them"


class _Location(msgspec.Struct):
    line: int = 0


class _Assertion(msgspec.Struct, rename="camel"):
    title: str
    status: str
    ancestor_titles: list[str] = []
    failure_messages: list[str] | None = None
    failure_details: list[object] | None = None
    duration: float | None = None
    location: _Location | None = None
    failing: bool = False
    invocations: int | None = None

    @property
    def outcome(self) -> str:
        """Our outcome for the status."""
        return _OUTCOMES.get(self.status, "error")

    @property
    def is_in_hook(self) -> bool:
        """Whether a hook failed: the stack then contains jest's function that calls hooks, not the one for tests."""
        before, hook, _ = "\n".join(self.failure_messages or ()).partition("_callCircusHook")
        return bool(hook) and "_callCircusTest" not in before

    @property
    def is_matcher(self) -> bool:
        """Whether a matcher threw the error."""
        return any(isinstance(detail, dict) and "matcherResult" in detail for detail in self.failure_details or ())


class _File(msgspec.Struct, rename="camel"):
    name: str
    status: str = ""
    message: str | None = None
    assertion_results: list[_Assertion] = []


class _JestRun(msgspec.Struct, rename="camel"):
    test_results: list[_File]
    was_interrupted: bool = False


def read_jest(run: FinishedRun, tool: str = "jest") -> Results:
    """Read the JSON of jest, or of another ``tool`` that writes the same."""
    path, is_selected = _find_report(run, tool)
    try:
        report = msgspec.json.decode(read_ordinary(path, limit_bytes=LIMIT_BYTES), type=_JestRun)
    except FileNotFoundError:
        return _explain_unwritten(run, tool)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _explain_unreadable(error, tool)
    tests = tuple(_jest_cases(report, run.root, is_selected=is_selected))
    errors = tuple(_jest_errors(report, run.root, tool=tool))
    problem = f"{tool} was interrupted{_last_words(run.output)}" if report.was_interrupted else None
    return _require_reason(run, Results(tests=tests, collect_errors=errors, problem=problem), tool=tool)


def read_vitest(run: FinishedRun) -> Results:
    """Read vitest's JSON."""
    return read_jest(run, "vitest")


def _jest_cases(report: _JestRun, root: Path, *, is_selected: bool) -> Iterator[Case]:
    pairs = [(relative(file.name, root), test) for file in report.test_results for test in file.assertion_results]
    names = (f"{file}::{SEPARATOR.join((*test.ancestor_titles, test.title))}" for file, test in pairs)
    for nodeid, (file, test) in zip(number_repeated(names, form=_NUMBERED), pairs, strict=True):
        # Tests left out by their names are reported as skipped. A target that is skipped looks the same.
        if not (is_selected and test.outcome == "skipped"):
            yield _jest_case(nodeid, test, setting=Setting(root=root, file=file, is_test=is_test))


def _jest_case(nodeid: str, test: _Assertion, *, setting: Setting) -> Case:
    outcome = test.outcome
    if outcome == "failed" and test.is_in_hook:
        outcome, setting = "error", replace(setting, phase="setup")
    if outcome == "passed" and test.failing:
        outcome = "xfailed"
    failure = None
    if outcome in FAILING:
        failure = describe_error("\n".join(test.failure_messages or ()), setting, is_expectation=test.is_matcher)
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=setting.file,
        line=test.location.line if test.location else 0,
        duration_s=max(test.duration or 0.0, 0.0) / 1000,
        reruns=max((test.invocations or 1) - 1, 0),
        failure=failure,
    )


def _jest_errors(report: _JestRun, root: Path, *, tool: str) -> Iterator[CollectError]:
    """Yield the files that could not be loaded, and those that failed although none of their tests did."""
    for file in report.test_results:
        message = strip_colors(file.message or "")
        has_failed = any(test.outcome in FAILING for test in file.assertion_results)
        is_of_file = not file.assertion_results or _SUITE_FAILED in message or not has_failed
        if file.status == "failed" and is_of_file:
            name = relative(file.name, root)
            setting = Setting(root=root, file=name, is_test=is_test, phase="collect")
            yield CollectError(name, describe_error(_unindent(message) or _UNEXPLAINED.format(tool), setting))


def _unindent(message: str) -> str:
    """Return jest's text below the heading that a file could not be run."""
    _, found, rest = message.partition(f"● {_SUITE_FAILED}")
    lines = (rest if found else message).strip("\n").splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines).strip("\n")
    details = text.partition("\nDetails:\n")[2]
    if text.startswith("Jest encountered an unexpected token") and details:
        return f"{details.strip()}\n\n{text}"
    return text


# The JSON of mocha, in which titles are joined by spaces, and which is not written if a file cannot load

_HOOK = re.compile(r'"(?P<when>before|after) (?:each|all)" hook[^\n]*?(?: for "(?P<test>.*)"| in ".*")?', re.DOTALL)
_PHASES = {"before": "setup", "after": "teardown"}
_UNLOADED = re.compile(r"^\s*(?:✖ ERROR: ?|Exception during run: )(?P<error>.+)", re.MULTILINE | re.DOTALL)
_PLAIN_UNLOADED = re.compile(r"^(?P<error>(?:/|file://).+?:\d+\n.+)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"imported from (?P<importer>\S+)|\[ @(?P<parsed>\S+) \]|^- (?P<required>/\S+)", re.MULTILINE)
_DESCRIBE = re.compile(
    r"\b(?:describe|context|suite)(?:\.(?:only|skip))?\s*\(\s*(?P<quote>[\"'`])(?P<title>(?:\\.|(?!(?P=quote)).)*)(?P=quote)",
    re.DOTALL,
)
_SPECIFIER = re.compile(r"(?:module|package) ['\"](?P<specifier>[^'\"\n]+)['\"]")
_EXPORT = re.compile(r"export named ['\"](?P<name>[^'\"\n]+)['\"]")
_FILES_CAP = 2000
_NOT_SEARCHED = frozenset({"node_modules", ".git", "dist", "build", "coverage"})


class _Thrown(msgspec.Struct, frozen=True):
    name: str | None = None
    message: str | None = None
    stack: str | None = None

    @property
    def text(self) -> str:
        """Class, message and stack, as node shows them."""
        name, message, stack = self.name or "", self.message or "", self.stack or ""
        if message and message not in stack:
            stack = f"{message}\n{stack}"
        return stack if not name or stack.startswith(name) else f"{name}: {stack}"


class _MochaTest(msgspec.Struct, rename="camel"):
    title: str
    full_title: str
    file: str | None = None
    duration: float | None = None
    current_retry: int = 0
    err: _Thrown = _Thrown()

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other tests, as far as mocha does."""
        return self.file or "", self.full_title


class _MochaRun(msgspec.Struct):
    tests: list[_MochaTest]
    pending: list[_MochaTest] = []
    failures: list[_MochaTest] = []


def read_mocha(run: FinishedRun) -> Results:
    """Read mocha's JSON; without it, the file that could not be loaded."""
    path, _ = _find_report(run, "mocha")
    try:
        report = msgspec.json.decode(read_ordinary(path, limit_bytes=LIMIT_BYTES), type=_MochaRun)
    except FileNotFoundError:
        return _read_unloaded(run)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _explain_unreadable(error, "mocha")
    return _require_reason(run, Results(tests=tuple(_mocha_cases(report, run.root))), tool="mocha")


def _mocha_cases(report: _MochaRun, root: Path) -> Iterator[Case]:
    """Yield the tests in their order; a failed hook becomes the failure of the test that it belongs to."""
    groups = Groups(root)
    pending = Counter(test.key for test in report.pending)
    reported = {id(test) for test in report.tests}
    listed = Counter(test.key for test in report.tests)
    hooks = [
        (test, _test_of_hook(test, found), _PHASES[found["when"]])
        for test in report.failures
        if (found := _HOOK.fullmatch(test.title)) and not listed[test.key]
    ]
    hook_of = {test.key: (hook, phase) for hook, test, phase in hooks}
    tests = [*report.tests, *(test for _, test, _ in hooks if test.key not in listed)]
    names = (f"{relative(test.file or '', root)}::{_mocha_name(test, groups)}" for test in tests)
    for nodeid, test in zip(number_repeated(names, form=_NUMBERED), tests, strict=True):
        setting = Setting(root=root, file=relative(test.file or "", root), is_test=is_mocha_test)
        outcome, failure = "passed", None
        if id(test) in reported and pending[test.key] > 0 and not test.err.message:
            pending[test.key] -= 1
            outcome = "skipped"
        if test.err.stack or test.err.message:
            outcome, failure = "failed", describe_error(test.err.text, setting)
        elif test.key in hook_of:
            hook, phase = hook_of[test.key]
            outcome, failure = "error", describe_error(hook.err.text, replace(setting, phase=phase))
        yield Case(
            nodeid=nodeid,
            outcome=outcome,
            file=setting.file,
            line=0,
            duration_s=max(test.duration or 0.0, 0.0) / 1000,
            reruns=test.current_retry,
            failure=failure,
        )


def _test_of_hook(hook: _MochaTest, found: re.Match[str]) -> _MochaTest:
    """Return the test that a hook belongs to, which did not run if the hook came first; else the hook itself."""
    title = found["test"]
    if title is None:
        return _MochaTest(title=hook.title, full_title=hook.full_title, file=hook.file)
    full_title = hook.full_title.removesuffix(hook.title) + title
    return _MochaTest(title=title, full_title=full_title, file=hook.file)


def _mocha_name(test: _MochaTest, groups: "Groups") -> str:
    above = test.full_title.removesuffix(test.title).strip()
    return SEPARATOR.join((*groups.split(above, test.file or ""), test.title))


class Groups:
    """The titles of groups in test files, which mocha's report joins by spaces."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self._root = root
        self._titles: dict[str, tuple[str, ...]] = {}

    def split(self, joined: str, file: str) -> tuple[str, ...]:
        """Return the titles that ``joined`` consists of; one title if the file does not tell."""
        if not joined:
            return ()
        if file not in self._titles:
            found = _DESCRIBE.finditer(read_text(self._root / file))
            plain = {re.sub(r"\\(.)", r"\1", match["title"]) for match in found}
            self._titles[file] = tuple(sorted(filter(None, plain), key=len, reverse=True))
        return _split_titles(joined, self._titles[file], left=64) or (joined,)


def _split_titles(joined: str, titles: tuple[str, ...], *, left: int) -> tuple[str, ...] | None:
    """Return titles that make up ``joined``, longest first; None if there are none."""
    if joined in titles:
        return (joined,)
    for title in titles if left else ():
        if joined.startswith(f"{title} "):
            rest = _split_titles(joined[len(title) + 1 :], titles, left=left - 1)
            if rest is not None:
                return (title, *rest)
    return None


def _read_unloaded(run: FinishedRun) -> Results:
    """Return the file that could not be loaded: mocha then runs no test of any file."""
    output = strip_colors(run.output)
    found = _UNLOADED.search(output) or _PLAIN_UNLOADED.search(output)
    if run.exit_status == 0 or found is None:
        return _explain_unwritten(run, "mocha")
    error = find_printed_error(found["error"])
    setting = Setting(root=run.root, file="", is_test=is_mocha_test, phase="collect")
    first = describe_error(error, setting)
    match = _FILE.search(error)
    named = next((relative(path, run.root) for path in match.groups() if path), "") if match else ""
    in_stack = next((frame.path for frame in first.frames if is_mocha_test(frame.path)), "")
    file = named if is_mocha_test(named) else in_stack
    file = file or find_importer(run.root, error, is_test=is_mocha_test) or named or first.path or "."
    return Results(collect_errors=(CollectError(file, describe_error(error, replace(setting, file=file))),))


def find_importer(root: Path, error: str, *, is_test: Callable[[str], bool]) -> str | None:
    """Return the only test file that imports what an error calls missing; None if there is none or more."""
    module, name = _SPECIFIER.search(error), _EXPORT.search(error)
    if module is None:
        return None
    wanted = [module["specifier"], *([name["name"]] if name else [])]
    found = []
    for path in _find_tests(root, is_test):
        text = read_text(root / path)
        if all(word in text for word in wanted):
            found.append(path)
    return found[0] if len(found) == 1 else None


def _find_tests(root: Path, is_test: Callable[[str], bool]) -> Iterator[str]:
    seen = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _NOT_SEARCHED)
        for name in sorted(names):
            path = Path(folder, name).relative_to(root).as_posix()
            seen += 1
            if seen > _FILES_CAP:
                return
            if is_test(path):
                yield path


# The events of ``node --test``

_LEFT_OUT = "test name does not match pattern"
_USES_RUNNER = re.compile(r"['\"]node:test['\"]")


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
        """When it was thrown."""
        if self.failure_type == "hookFailed":
            return "teardown" if "after" in (self.message or "") else "setup"
        return "setup" if self.failure_type == "cancelledByParent" else "call"


class _Event(msgspec.Struct, rename="camel"):
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
        """What tells it from other tests while they run."""
        return self.file, self.nesting, self.name

    @property
    def outcome(self) -> str:
        """How the test ended."""
        if self.skip not in (None, False):
            return "skipped"
        if self.todo not in (None, False):
            return "xfailed" if self.error else "xpassed"
        if self.error is None:
            return "passed"
        return "error" if self.error.phase != "call" else "failed"


def read_node(run: FinishedRun) -> Results:
    """Read the events that ``REPORTER`` wrote."""
    path, is_selected = _find_report(run, "node")
    events = _NodeEvents(root=run.root, is_selected=is_selected)
    try:
        lines = read_ordinary(path, limit_bytes=LIMIT_BYTES).decode().splitlines()
        for line in lines:
            events.add(msgspec.json.decode(line, type=_Event))
    except FileNotFoundError:
        lines = []
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return _explain_unreadable(error, "node --test")
    if not lines:
        return _explain_unwritten(run, "node --test")
    names = number_repeated((case.nodeid for case in events.tests), form=_NUMBERED)
    tests = tuple(replace(case, nodeid=nodeid) for case, nodeid in zip(events.tests, names, strict=True))
    found = Results(tests=tests, collect_errors=tuple(events.errors), problem=events.problem)
    return _require_reason(run, found, tool="node --test")


@dataclass(slots=True, kw_only=True)
class _NodeEvents:
    """Tests and errors after some of the events of a run."""

    root: Path
    is_selected: bool
    """Whether tests were left out by their names."""
    is_complete: bool = False
    titles: dict[str, list[str]] = field(default_factory=dict)
    """File -> titles of what has begun, outermost first."""
    parents: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    """Those with a test that ended."""
    printed: dict[str, list[str]] = field(default_factory=dict)
    """File -> what it printed as errors."""
    open: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """Number of tests that have begun and not ended."""
    tests: list[Case] = field(default_factory=list)
    errors: list[CollectError] = field(default_factory=list)
    exited: list[str] = field(default_factory=list)
    """Files that ended well although their tests did not end."""

    @property
    def problem(self) -> str | None:
        """Why the results may be incomplete."""
        if not self.is_complete:
            return "node --test was cut off: its events have no end"
        if self.exited:
            return f"{self.exited[0]} ended before its tests did, as process.exit() lets it"
        if self.open:
            file, _, name = next(iter(self.open))
            return f"{relative(file, self.root)}::{name} has begun and has not ended"
        return None

    def add(self, event: _Event) -> None:
        """Add the next event."""
        self.is_complete = event.type == "end"
        is_end = event.type in ("test:pass", "test:fail")
        if event.type == "test:stderr":
            self.printed.setdefault(relative(event.file, self.root), []).append(event.message)
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

    def _end_file(self, event: _Event) -> None:
        file = relative(event.file, self.root)
        if event.error is None:
            if event.file in self.files or self.is_selected:  # or none of its tests was asked for
                return
            if _USES_RUNNER.search(read_text(Path(event.file))) and event.skip is None:
                self.exited.append(file)
            else:  # a program without tests inside is one test
                self.tests.append(_node_case(event, nodeid=file, file=file))
        elif event.error.failure_type != "subtestsFailed":
            error = find_printed_error("".join(self.printed.get(file, ()))) or event.error.text
            self.errors.append(CollectError(file, describe_error(error, self._setting(file, phase="collect"))))

    def _end_test(self, event: _Event) -> None:
        self.open[event.key] -= 1
        if self.open[event.key] <= 0:
            del self.open[event.key]
        self.files.add(event.file)
        above = tuple(self.titles.get(event.file, ())[: event.nesting])
        self.parents.update((event.file, above[:depth]) for depth in range(1, len(above) + 1))
        if event.skip == _LEFT_OUT:
            return
        path = (*above, event.name)
        file = relative(event.file, self.root)
        nodeid, error = f"{file}::{SEPARATOR.join(path)}", event.error
        is_group = event.is_suite or (event.file, path) in self.parents
        if is_group and (error is None or error.failure_type in ("subtestsFailed", "cancelledByParent")):
            return
        if is_group and event.is_suite and error is not None and error.failure_type != "hookFailed":
            failure = describe_error((error.cause or error).text, self._setting(file, phase="collect"))
            self.errors.append(CollectError(nodeid, failure))
            return
        why = None
        if event.outcome in ("failed", "error") and error is not None:
            why = describe_error((error.cause or error).text, self._setting(file, phase=error.phase))
        self.tests.append(_node_case(event, nodeid=nodeid, file=file, failure=why))

    def _setting(self, file: str, *, phase: str) -> Setting:
        return Setting(root=self.root, file=file, is_test=is_node_test, phase=phase)


def _node_case(event: _Event, *, nodeid: str, file: str, failure: Failure | None = None) -> Case:
    return Case(
        nodeid=nodeid,
        outcome=event.outcome,
        file=file,
        line=event.line,
        duration_s=max(event.duration, 0.0) / 1000,
        failure=failure,
    )
