"""JavaScript: reads the reports of jest and vitest (one JSON format), and of cdd's reporters for mocha and node."""

import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec

from cdd_agent.testrun.frameworks.framework import (
    REPORT,
    SEPARATOR,
    FinishedRun,
    ParsedResults,
    ReportLine,
    format_last_lines,
    number_titles,
    read_lines,
    read_report,
)
from cdd_agent.testrun.frameworks.javascript import is_mocha_test, is_node_test, is_test
from cdd_agent.testrun.frameworks.sources import Language, Sources, match_rule, strip_terminal_codes
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure, Frame

# Errors: kind, missing name and location of a failure

_TEXT_READ_CAP = 100_000
_MESSAGE_READ_CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A failure kind, and the missing member, export or name in the message."""

    name: str
    missing: str | None = None
    module: str | None = None
    """The module as the import spells it."""
    importer: str | None = None
    """The file with that import, if the message names it."""


_EXPECTATION = re.compile(r"expect(?:\.\w+)?\(|assert(?:\.\w+)?\(")
_ASSERTION_CLASSES = ("AssertionError", "JestAssertionError", "AssertionFailedError")
_STRUCTURAL = ("attribute_error", "name_error", "not_implemented", "missing_module", "import_error")
_GENERATED = re.compile(r"(?:__vi(?:te_ssr)?_import_\d+__|_[\w$]*|\(intermediate value\)|\{\})\.")


def classify(message: str, *, name: str, is_expectation: bool = False) -> Kind:
    """Return the kind of an error by the first rule that matches; ``name`` is its class or empty.

    ``is_expectation`` is for an error that, according to the tool, a matcher threw.
    """
    message = message.strip()[:_MESSAGE_READ_CAP]
    if is_expectation or name in _ASSERTION_CLASSES or (name in ("", "Error") and _EXPECTATION.match(message)):
        kind, parts = match_rule("javascript.expectation", message) or ("assertion", {})
        inner = classify((parts.get("thrown") or "").strip().strip("'\""), name="")
        # An expected error that came because a name is missing is about that name.
        return inner if inner.name in _STRUCTURAL else Kind(name=kind)
    found = match_rule("javascript.message", message) or match_rule("javascript.error", f"{name}: {message}")
    kind, parts = found or ("exception", {})
    missing = _clean_name(spelled) if (spelled := parts.get("name")) else None
    return Kind(name=kind, missing=missing, module=parts.get("module"), importer=parts.get("importer"))


def _clean_name(name: str) -> str | None:
    """Return a name as the source spells it, without the compiler's additions."""
    inner = re.fullmatch(r"\(0\s*,\s*(.+)\)", name)
    found = re.search(r"[\w$#.]+\Z", _GENERATED.sub("", inner[1] if inner else name, count=1))
    return found[0].strip(".") if found else None


_HEAD = re.compile(r"(?:Uncaught )?(?P<name>[A-Z][\w$]*)(?: ?\[[^\]\n]*\])?: (?P<message>.*)", re.DOTALL)
_STACK = re.compile(r"^\s+at .*:\d+\)?$|^\s+at .*\(<anonymous>\)$", re.MULTILINE)
_PLACE = re.compile(
    r"^[^\S\n]*(?:at (?:async )?(?:(?P<function>[^\n(]*?) \()?|At file: )?"
    r"(?P<path>[^\s()'\"][^()'\"\n]*?\.(?:[cm]?[jt]sx?|vue|svelte))(?:\?[^\s:]*)?:(?P<line>\d+)(?::\d+)?\)?:?$",
    re.MULTILINE,
)
_BABEL = re.compile(r"(?P<path>/\S+?\.[cm]?[jt]sx?): [^\n]*\((?P<line>\d+):\d+\)")
_PRINTED = re.compile(r"^(?:\w+Error|Error)(?: ?\[[^\]\n]*\])?: .*", re.MULTILINE)
_ABOVE = re.compile(r"^(?:/|file://)[^\n]*:\d+$", re.MULTILINE)
_AFTER = re.compile(r"\n\s*\nNode\.js v.*", re.DOTALL)
_RUNNERS = {
    *("vitest", "@vitest", "jest", "@jest", "mocha", "chai", "expect", "vite", "vite-node", "tinypool", "tinyspy"),
    *("yargs", "emittery"),
}
"""Packages and scopes of test runners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """The test that threw an error."""

    root: Path
    file: str
    """The test file, relative to the root."""
    is_test: Callable[[str], bool]
    phase: str = "call"


def describe_error(text: str, context: ErrorContext, *, is_expectation: bool = False) -> Failure:
    """Return the failure of an error; ``text`` is its class, message and stack as the tool shows them.

    ``is_expectation`` is for an error that, according to the tool, a matcher threw.
    """
    text = strip_terminal_codes(text[:_TEXT_READ_CAP]).strip("\n")
    stack = _STACK.search(text)
    head = text[: stack.start()] if stack else text
    found = _HEAD.match(head)
    name, message = (found["name"], found["message"]) if found else ("", head)
    places = _parse_places(text, context.root)
    own = [place for place in places if _is_own(place.path)]
    inner = places[0].path if places else context.file
    is_in_test = inner == context.file or context.is_test(inner)
    origin = "third_party" if places and not _is_own(inner) else "test" if is_in_test else "project"
    kind = classify(message, name=name, is_expectation=is_expectation)
    if context.phase == "collect" and kind.name == "exception":
        kind = replace(kind, name="collection_error")
    if kind.name == "timeout" and message.strip() == "STACK_TRACE_ERROR":  # vitest's stand-in for a message
        message = "A time limit was exceeded"
    missing = _find_missing(kind, context)
    return Failure(
        phase=context.phase,
        kind=kind.name,
        origin=origin,
        exception=name or "Error",
        message=message.strip()[:MESSAGE_CAP],
        missing_name=missing,
        path=own[0].path if own else context.file if context.phase == "collect" else None,
        line=own[0].line if own else None,
        frames=tuple(reversed(own[:FRAMES_CAP])),
        text=text[:TEXT_CAP],
        missing_in_project=_is_in_project(kind, missing, root=context.root, origin=origin),
    )


def find_printed_error(text: str) -> str:
    """Return the error that ended a process, from its output, followed by the location that is printed above it."""
    text = strip_terminal_codes(text[-_TEXT_READ_CAP:])
    heads = list(_PRINTED.finditer(text))
    if not heads:
        return text.strip("\n")
    head = heads[-1]
    places = list(_ABOVE.finditer(text[: head.start()]))
    error = _AFTER.sub("", text[head.start() :]).strip("\n")
    return f"{error}\n{places[-1][0]}" if places else error


def make_relative(path: str, root: Path) -> str:
    """Return a file as node ids name it: posix, and relative if it is below the root."""
    path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    path = path.partition("?")[0]
    for folder in (str(root).rstrip("/"), str(root.resolve()).rstrip("/")):
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/")
    return path if path.startswith(("/", "node:")) else posixpath.normpath(path)


def _parse_places(text: str, root: Path) -> list[Frame]:
    """Return the places of the stack, innermost first, without those in node and in the test runner."""
    frames = []
    for place in (*_BABEL.finditer(text), *_PLACE.finditer(text)):
        path = make_relative(place["path"], root)
        package = f"/{path}".rpartition("/node_modules/")[2].partition("/")[0] if "node_modules/" in path else ""
        if not path.startswith("node:") and package not in _RUNNERS and not package.startswith("jest-"):
            frames.append(Frame(path, int(place["line"]), place.groupdict().get("function") or ""))
    return frames


def _is_own(path: str) -> bool:
    return not path.startswith(("/", "../", "node:")) and "node_modules" not in path.split("/")


def _find_missing(kind: Kind, context: ErrorContext) -> str | None:
    """Return the missing name; for a module, its file relative to the root if the import shows it."""
    module = kind.module
    if module is None:
        return kind.missing
    if module.startswith("."):
        importer = make_relative(kind.importer, context.root) if kind.importer else context.file
        module = posixpath.normpath(posixpath.join(posixpath.dirname(importer), module))
    elif module.startswith(("/", "file://")):
        module = make_relative(module, context.root)
        # Vite's paths begin at the root of the project, so their first folder need not exist in the file system.
        if module.startswith("/") and not Path("/", *Path(module).parts[1:2]).is_dir():
            module = module.removeprefix("/")
    return f"{module}.{kind.missing}" if kind.missing else module


def _is_in_project(kind: Kind, missing: str | None, *, root: Path, origin: str) -> bool | None:
    if missing is None:
        return None
    if kind.module is None:
        return origin != "third_party" if kind.name == "name_error" else None
    if "/node_modules/" in f"/{kind.module}":
        return False
    if kind.module.startswith((".", "/", "#", "@/", "~", "file://")):
        return True
    first = kind.module.split("/")[0]
    return "/" in kind.module and not first.startswith("@") and first not in ("", "..") and (root / first).is_dir()


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
        tests, errors = list[Case](), list[CollectError]()
        for file in report.test_results:
            context = ErrorContext(root=run.root, file=make_relative(file.name, run.root), is_test=is_test)
            cases = [_convert_jest(test, context) for test in file.assertion_results]
            tests += cases
            message = strip_terminal_codes(file.message or "")
            has_failed = any(case.outcome in FAILING for case in cases)
            # The file could not be loaded, or it failed although none of its tests did.
            if file.status == "failed" and (_SUITE_FAILED in message or not has_failed):
                text = _unindent(message) or _UNEXPLAINED.format(tool)
                errors.append(CollectError(context.file, describe_error(text, replace(context, phase="collect"))))
        problem = f"{tool} was interrupted{format_last_lines(run)}" if report.was_interrupted else None
        return ParsedResults(tests=number_titles(tests), collect_errors=tuple(errors), problem=problem)

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


def _read_lines(run: FinishedRun, tool: str, *, is_test: Callable[[str], bool]) -> ParsedResults:
    def describe(line: ReportLine) -> Failure | None:
        if line.error is None:
            return None
        context = ErrorContext(root=run.root, file=line.file, is_test=is_test, phase=line.phase)
        return describe_error(find_printed_error(line.printed) or line.error.text, context)

    return read_lines(run, tool, describe=describe, find=lambda file: make_relative(file, run.root))


read_node = partial(_read_lines, tool="node --test", is_test=is_node_test)


def read_mocha(run: FinishedRun) -> ParsedResults:
    """Read the lines of cdd's reporter; without them, the file that could not be loaded."""
    unloaded = None if os.path.lexists(run.results / REPORT) else _read_unloaded(run)
    return unloaded or _read_lines(run, "mocha", is_test=is_mocha_test)


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
