"""C#, F# and Visual Basic: reads the TRX files of ``dotnet test`` and the compilers' messages."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import FinishedRun, Results
from cdd_agent.testrun.frameworks.junit_xml import LIMIT_BYTES, local_name, parse_xml
from cdd_agent.testrun.frameworks.sources import (
    CompilerError,
    Sources,
    collect_errors,
    own_frames,
    shorten,
    split_target,
    strip_terminal_codes,
    unique,
)
from pytest_tdd_agent.failure import MESSAGE_CAP
from pytest_tdd_agent.report import Case, Failure

LANGUAGES = (".cs", ".fs", ".vb")
TRX_CAP = 1000

_PASSED = frozenset({"passed", "passedbutrunaborted", "warning", "completed"})
_SKIPPED = frozenset({"notexecuted", "notrunnable", "inconclusive", "pending"})
_CUT_OFF = frozenset({"Aborted", "Error", "Timeout", "Disconnected"})
_FRAME = re.compile(r"^\s*at (?P<function>.+?) in (?P<path>.+?):line (?P<line>\d+)\s*$", re.MULTILINE)
_CALL = re.compile(r"^\s*at (?P<function>\S+)\(", re.MULTILINE)
_THROWN = re.compile(
    r"^(?:Test method \S+ threw exception:\s*)?(?P<type>[\w.]+(?:Exception|Error))\s*:\s?(?P<message>.*)", re.DOTALL
)
_NOT_RAISED = re.compile(
    r".*(?:[Nn]o exception was thrown"
    r"|Expected: <\S+>\s+But was:\s+null|Expected a <\S+> to be thrown)",
    re.DOTALL,
)
_OTHER_RAISED = re.compile(
    r"(?:Assert\.Throws\w*\(\) Failure: Exception type was not|Expected exception type:)", re.DOTALL
)
_TIMED_OUT = re.compile(r"Test '.*' exceeded execution timeout|Test exceeded Timeout")
_ASSERTION = re.compile(r"Assert\b|Expected\b|  Expected|Xunit\.Sdk\.|  Assert|Shouldly\.")
_ASSERTION_LIBRARIES = ("Xunit.", "NUnit.", "Shouldly.")
_RUNNERS = ("System.", "Microsoft.", "Xunit.", "NUnit.", "FluentAssertions.", "Shouldly.", "Moq.")
_KINDS = {
    "System.NotImplementedException": "not_implemented",
    "System.TimeoutException": "timeout",
    "System.OutOfMemoryException": "resource",
    "System.MissingMethodException": "attribute_error",
    "System.MissingFieldException": "attribute_error",
}
_ERROR = re.compile(
    r"^\s*(?P<path>[^\n(]+\.(?:cs|fs|vb))\((?P<line>\d+),\d+(?:,\d+,\d+)?\): error (?P<code>[A-Z]+\d+): "
    r"(?P<message>[^\n]+?)(?: \[[^\n\]]+\])?$",
    re.MULTILINE,
)
_OTHER_ERROR = re.compile(r"^.*?: error (?P<code>[A-Z]*\d+)?\s*: (?P<message>[^\n]+)", re.MULTILINE)
_CODES = {
    "CS0103": ("name_error", r"The name '(?P<name>[^']+)'"),
    "CS0246": ("name_error", r"The type or namespace name '(?P<name>[^'<]+)"),
    "CS0234": (
        "import_error",
        r"The type or namespace name '(?P<name>[^'<]+)[^']*' does not exist in the namespace '(?P<owner>[^']+)'",
    ),
    "CS0117": ("attribute_error", r"'(?P<owner>[^']+)' does not contain a definition for '(?P<name>[^']+)'"),
    "CS1061": ("attribute_error", r"'(?P<owner>[^']+)' does not contain a definition for '(?P<name>[^']+)'"),
    "CS0426": ("attribute_error", r"The type name '(?P<name>[^']+)' does not exist in the type '(?P<owner>[^']+)'"),
    "CS1501": ("signature_mismatch", r"No overload for method '(?P<name>[^']+)'"),
    "CS1729": ("signature_mismatch", r"'(?P<name>[^']+)' does not contain a constructor"),
    "CS7036": ("signature_mismatch", r".*of '(?P<name>[\w.]+)\("),
    "CS1739": ("signature_mismatch", r"The best overload for '(?P<name>[^']+)'"),
    "FS0039": ("name_error", r".*'(?P<name>[^']+)' is not defined"),
    "BC30451": ("name_error", r"'(?P<name>[^']+)' is not declared"),
}
"""Compiler's code -> kind, and the missing name in its message."""
_SYNTAX = re.compile(r"CS1(?:00[1-9]|0[1-4]\d|5(?:13|14|19|25))|CS8(?:124|180)|FS0010|BC30\d")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_TEST_FOLDER = re.compile(r"(?:^|\.)(?:\w*Tests?|Specs?)$|^tests?$")
_TEST_FILE = re.compile(r"Tests?\.(?:cs|fs|vb)$|\.runsettings$")


def is_test(path: str) -> bool:
    """Return whether a file lies in a project of tests, is named like a test, or configures how tests run."""
    *folders, name = path.split("/")
    is_in_tests = any(map(_TEST_FOLDER.search, folders))
    return _TEST_FILE.search(name) is not None or (is_in_tests and not name.endswith("proj"))


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each class, with its folders as namespace and alone."""
    for source in sources:
        if source.endswith(LANGUAGES):
            inside = source.rpartition(".")[0]
            yield inside.replace("/", ".")
            yield posixpath.basename(inside)


def begins_build(folder: Path) -> bool:
    """Return whether ``folder`` has a solution."""
    return any(next(folder.glob(pattern), None) for pattern in ("*.sln", "*.slnx"))


def build_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for a TRX file for each project, and for the tests of ``targets`` unless one is a folder."""
    chosen = [_build_filter(target) for target in targets]
    filters = ("--filter", "|".join(unique(filter(None, chosen)))) if chosen and all(chosen) else ()
    return ("--logger", "trx", "--results-directory", str(results), "--nologo", *filters)


def _build_filter(target: str) -> str | None:
    """Return the condition that selects a target; a class is named like its file."""
    file, name = split_target(target)
    if not file.endswith(LANGUAGES):
        return None
    words = _IDENTIFIER.findall(name.partition("(")[0]) or [file.rpartition("/")[2].partition(".")[0]]
    return f"FullyQualifiedName~{'.'.join(words)}" if all(map(_IDENTIFIER.fullmatch, words)) else None


def read(run: FinishedRun) -> Results:
    """Read the results of each project of tests, and the compile errors of the others."""
    sources = Sources(run.root, suffixes=LANGUAGES, built=("bin", "obj", "packages", "TestResults"))
    output = strip_terminal_codes(run.output)
    errors = collect_errors(_parse_compiler(output), sources, is_test=is_test)
    tests: list[Case] = []
    problems: list[str] = []
    for path in sorted(run.results.glob("*.trx"))[:TRX_CAP]:
        cases, problem = _read_trx(path, sources)
        tests += cases
        problems += [problem] if problem else []
    failed = any(case.failure for case in tests)
    if run.exit_status and not (failed or errors or problems):
        other = _OTHER_ERROR.search(output)
        reason = other["message"] if other else output.strip()[-300:] or "no output"
        problems.append(f"dotnet failed outside of the tests: {reason}")
    return Results(tests=tuple(tests), collect_errors=errors, problem="; ".join(problems) or None)


def _read_trx(path: Path, sources: Sources) -> tuple[list[Case], str | None]:
    try:
        root = parse_xml(read_ordinary(path, limit_bytes=LIMIT_BYTES))
    except OSError as error:
        return [], f"{path.name} cannot be read: {error.strerror or error}"
    if isinstance(root, str):
        return [], f"{path.name} cannot be read: {root}"
    named: dict[str, list[Element]] = {}
    for element in root.iter():
        named.setdefault(local_name(element.tag), []).append(element)
    methods = {}
    for element in named.get("UnitTest", ()):
        if (method := _find_child(element, "TestMethod")) is not None:
            methods[element.get("id", "")] = (method.get("className", "").partition(",")[0], method.get("name", ""))
    results = named.get("UnitTestResult", ())
    cases = [_convert(result, methods.get(result.get("testId", "")), sources=sources) for result in results]
    summary = next((element.get("outcome", "") for element in named.get("ResultSummary", ())), "")
    return cases, f"the run of {path.name} ended as {summary}" if summary in _CUT_OFF else None


def _find_child(element: Element, *names: str) -> Element | None:
    """Return the element that a path of names leads to."""
    found: Element | None = element
    for name in names:
        found = None if found is None else next((each for each in found if local_name(each.tag) == name), None)
    return found


def _text(element: Element, *names: str) -> str:
    found = _find_child(element, *names)
    return "" if found is None else (found.text or "").replace("\r\n", "\n")


def _convert(result: Element, method: tuple[str, str] | None, *, sources: Sources) -> Case:
    shown = result.get("testName", "")
    owner, name = method or ("", shown)
    arguments = shown[at:] if (at := shown.find("(")) >= 0 and "(" not in name else ""
    name = name.removeprefix(f"{owner}.") + arguments
    simple = re.split(r"[.+]", owner)[-1]
    file = _file_of(owner, sources) or owner or "."
    outcome = result.get("outcome", "").lower()
    kind = "skipped" if outcome in _SKIPPED else "passed" if outcome in _PASSED else "failed"
    bare = re.escape(name.partition("(")[0])
    return Case(
        nodeid=f"{file}::{simple}.{name}" if simple else f"{file}::{name}",
        outcome=kind,
        file=file,
        line=sources.line_of(file, rf"\b{bare}\s*\(\s*[^;]*?\)\s*(?:\{{|=>|where)"),
        duration_s=_parse_duration(result.get("duration", "")),
        failure=_describe_failure(result, outcome, sources=sources) if kind == "failed" else None,
    )


def _file_of(owner: str, sources: Sources) -> str | None:
    """Return the file named like a class; of several, the one whose folders are most like the namespace."""
    parts = re.split(r"[.+]", owner)
    for name in reversed(parts):
        found = [path for path in sources.files() if path.rpartition("/")[2].partition(".")[0] == name]
        if found:
            return max(found, key=lambda path: sum(part in path.split("/") for part in parts))
    return None


def _parse_duration(text: str) -> float:
    found = re.fullmatch(r"(\d{1,5}):(\d\d):(\d\d(?:\.\d+)?)", text)
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else 0.0


def _describe_failure(result: Element, outcome: str, *, sources: Sources) -> Failure:
    message = _text(result, "Output", "ErrorInfo", "Message").strip()
    trace = _text(result, "Output", "ErrorInfo", "StackTrace")
    thrown = _THROWN.match(message)
    kind = {"timeout": "timeout", "aborted": "crash"}.get(outcome) or _classify(message, thrown)
    calls = ((_own(match["path"], sources), match) for match in _FRAME.finditer(trace))
    frames, _ = own_frames((path, int(match["line"]), match["function"]) for path, match in calls if path)
    at = frames[-1] if frames else None
    functions = (match["function"] for match in _CALL.finditer(trace))
    first = next((function for function in functions if not function.startswith(_RUNNERS)), "")
    # Calls into packages have no file: the innermost call that is no runner's must be the innermost own one.
    is_foreign = kind not in ("assertion", "did_not_raise") and at is not None and first not in at.function
    return Failure(
        phase="call",
        kind=kind,
        origin="third_party" if is_foreign else "test" if at is None or is_test(at.path) else "project",
        exception=thrown["type"].rpartition(".")[2] if thrown else "",
        message=(thrown["message"] if thrown else message)[:MESSAGE_CAP],
        path=at.path if at else None,
        line=at.line if at else None,
        frames=frames,
        text=shorten(f"{message}\n{trace}".strip("\n")),
        output=shorten(_text(result, "Output", "StdOut")),
    )


def _own(path: str, sources: Sources) -> str | None:
    return sources.own(path.replace("\\", "/"))


def _classify(message: str, thrown: re.Match[str] | None) -> str:
    if _NOT_RAISED.match(message):
        return "did_not_raise"
    if _OTHER_RAISED.match(message):
        return "wrong_exception"
    if thrown and not thrown["type"].startswith(_ASSERTION_LIBRARIES):
        return _KINDS.get(thrown["type"], "exception")
    if _TIMED_OUT.match(message):
        return "timeout"
    return "assertion" if _ASSERTION.search(message) or not thrown else "exception"


def _parse_compiler(output: str) -> Iterator[CompilerError]:
    for match in _ERROR.finditer(output):
        kind, name = _find_missing(match["code"], match["message"])
        yield CompilerError(
            path=match["path"].replace("\\", "/"),
            line=int(match["line"]),
            kind=kind,
            message=match["message"],
            text=match[0].strip(),
            code=match["code"],
            missing_name=name,
        )


def _find_missing(code: str, message: str) -> tuple[str, str | None]:
    """Return the kind of an error, and the name that does not exist."""
    kind, pattern = _CODES.get(code, ("", ""))
    if kind:
        found = re.match(pattern, message)
        parts = found.groupdict() if found else {}
        name, owner = parts.get("name"), parts.get("owner")
        return kind, f"{owner}.{name}" if owner and name else name
    return ("syntax_error" if _SYNTAX.match(code) else "collection_error"), None
