"""``dotnet test``, read from the TRX file of each project of tests."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.junit_xml import LIMIT_BYTES, local, parse_xml
from cdd_agent.testrun.frameworks.sources import Sources, capped, only, plain, split_target
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP
from pytest_tdd_agent.report import Case, CollectError, Failure, Frame

LANGUAGES = (".cs", ".fs", ".vb")

_OUTCOMES = {"passed": "passed", "passedbutrunaborted": "passed", "warning": "passed", "completed": "passed"}
_SKIPPED = ("notexecuted", "notrunnable", "inconclusive", "pending")
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
_ASSERTION = re.compile(r"Assert\b|Expected\b|  Expected|Xunit\.Sdk\.|  Assert|Shouldly\.")
_MACHINERY = ("System.", "Microsoft.", "Xunit.", "NUnit.", "FluentAssertions.", "Shouldly.", "Moq.")
_KINDS = {
    "System.NotImplementedException": "not_implemented",
    "System.TimeoutException": "timeout",
    "System.OutOfMemoryException": "resource",
    "System.MissingMethodException": "attribute_error",
    "System.MissingFieldException": "attribute_error",
    "System.IO.FileNotFoundException": "exception",
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
"""Code of the compiler -> kind, and the name in its message."""
_STRUCTURAL = ("import_error", "attribute_error", "name_error", "signature_mismatch")
_SYNTAX = re.compile(r"CS1(?:00[1-9]|0[1-4]\d|5(?:13|14|19|25))|CS8(?:124|180)|FS0010|BC30\d")
_WORD = re.compile(r"[A-Za-z_]\w*")


def find(folder: Path) -> Finding | None:
    """A solution, or a project."""
    for pattern in ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"):
        manifest = next((path for path in sorted(folder.glob(pattern)) if path.is_file()), None)
        if manifest is not None:
            return Finding(manifest=manifest, argv=("dotnet", "test", manifest.name), why=f"there is a {manifest.name}")
    return None


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """A TRX file for each project, and what ``targets`` name, a class by its file; a folder is all tests."""
    chosen = [_filter(target) for target in targets]
    filters = ("--filter", "|".join(only(filter(None, chosen)))) if chosen and all(chosen) else ()
    return ("--logger", "trx", "--results-directory", str(results), "--nologo", *filters)


def _filter(target: str) -> str | None:
    """The condition that selects a target: a class is called like its file."""
    file, name = split_target(target)
    if not file.endswith(LANGUAGES):
        return None
    words = _WORD.findall(name.partition("(")[0])
    called = words if words else [file.rpartition("/")[2].partition(".")[0]]
    return f"FullyQualifiedName~{'.'.join(called)}" if all(map(_WORD.fullmatch, called)) else None


def read(ended: Ended) -> Results:
    """The results of each project of tests, and what did not compile in the others."""
    sources = Sources(ended.root, suffixes=LANGUAGES, made=("bin", "obj", "packages", "TestResults"))
    output = plain(ended.output)
    errors = _compile_errors(output, sources)
    tests: list[Case] = []
    problems: list[str] = []
    for path in sorted(ended.results.glob("*.trx"))[:1000]:
        cases, problem = _read_trx(path, sources)
        tests += cases
        problems += [problem] if problem else []
    failed = any(case.failure for case in tests)
    if ended.exit_status and not (failed or errors or problems):
        other = _OTHER_ERROR.search(output)
        said = other["message"] if other else output.strip()[-300:] or "no output"
        problems.append(f"dotnet failed outside of the tests: {said}")
    return Results(tests=tuple(tests), collect_errors=errors, problem="; ".join(problems) or None)


def _read_trx(path: Path, sources: Sources) -> tuple[list[Case], str | None]:
    try:
        root = parse_xml(read_ordinary(path, limit_bytes=LIMIT_BYTES))
    except OSError as error:
        return [], f"{path.name} cannot be read: {error.strerror or error}"
    if isinstance(root, str):
        return [], f"{path.name} cannot be read: {root}"
    elements = list(root.iter())
    methods = {}
    for element in elements:
        if local(element.tag) == "UnitTest" and (method := _child(element, "TestMethod")) is not None:
            methods[element.get("id", "")] = (method.get("className", "").partition(",")[0], method.get("name", ""))
    results = [element for element in elements if local(element.tag) == "UnitTestResult"]
    cases = [_case(result, methods.get(result.get("testId", "")), sources=sources) for result in results]
    summary = next((element.get("outcome", "") for element in elements if local(element.tag) == "ResultSummary"), "")
    is_cut = summary in ("Aborted", "Error", "Timeout", "Disconnected")
    return cases, f"the run of {path.name} ended as {summary}" if is_cut else None


def _child(element: Element, *names: str) -> Element | None:
    """The element that a path of names leads to."""
    found: Element | None = element
    for name in names:
        found = None if found is None else next((each for each in found if local(each.tag) == name), None)
    return found


def _text(element: Element, *names: str) -> str:
    found = _child(element, *names)
    return "" if found is None else (found.text or "").replace("\r\n", "\n")


def _case(result: Element, method: tuple[str, str] | None, *, sources: Sources) -> Case:
    told = result.get("testName", "")
    owner, name = method or ("", told)
    arguments = told[at:] if (at := told.find("(")) >= 0 and "(" not in name else ""
    name = name.removeprefix(f"{owner}.") + arguments
    simple = re.split(r"[.+]", owner)[-1]
    file = _file_of(owner, sources) or owner or "."
    outcome = result.get("outcome", "").lower()
    kind = "skipped" if outcome in _SKIPPED else _OUTCOMES.get(outcome, "failed")
    bare = re.escape(name.partition("(")[0])
    return Case(
        nodeid=f"{file}::{simple}.{name}" if simple else f"{file}::{name}",
        outcome=kind,
        file=file,
        line=sources.line_of(file, rf"\b{bare}\s*\(\s*[^;]*?\)\s*(?:\{{|=>|where)"),
        duration_s=_seconds(result.get("duration", "")),
        failure=_why_failed(result, outcome, sources=sources) if kind == "failed" else None,
    )


def _file_of(owner: str, sources: Sources) -> str | None:
    """The file of a class: the one that is called like it, if several by the folders that its namespace names."""
    parts = re.split(r"[.+]", owner)
    for name in reversed(parts):
        found = [path for path in sources.files() if path.rpartition("/")[2].partition(".")[0] == name]
        if found:
            return max(found, key=lambda path: sum(part in path.split("/") for part in parts))
    return None


def _seconds(told: str) -> float:
    found = re.fullmatch(r"(\d{1,5}):(\d\d):(\d\d(?:\.\d+)?)", told)
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else 0.0


def _why_failed(result: Element, outcome: str, *, sources: Sources) -> Failure:
    message = _text(result, "Output", "ErrorInfo", "Message").strip()
    trace = _text(result, "Output", "ErrorInfo", "StackTrace")
    thrown = _THROWN.match(message)
    kind = "timeout" if outcome == "timeout" else "crash" if outcome == "aborted" else _kind(message, thrown)
    frames = _frames(trace, sources)
    at = frames[-1] if frames else None
    first = next(
        (match["function"] for match in _CALL.finditer(trace) if not match["function"].startswith(_MACHINERY)), ""
    )
    is_foreign = (
        kind not in ("assertion", "did_not_raise") and bool(frames and first) and first not in at_function(frames)
    )
    return Failure(
        phase="call",
        kind=kind,
        origin="third_party" if is_foreign else "test" if at is None or is_test(at.path) else "project",
        exception=thrown["type"].rpartition(".")[2] if thrown else "",
        message=(thrown["message"] if thrown else message)[:MESSAGE_CAP],
        path=at.path if at else None,
        line=at.line if at else None,
        frames=frames,
        text=capped(f"{message}\n{trace}".strip("\n")),
        output=capped(_text(result, "Output", "StdOut")),
    )


def at_function(frames: tuple[Frame, ...]) -> str:
    """The innermost own call, with its parameters."""
    return frames[-1].function


def _kind(message: str, thrown: re.Match[str] | None) -> str:
    if _NOT_RAISED.match(message):
        return "did_not_raise"
    if _OTHER_RAISED.match(message):
        return "wrong_exception"
    if thrown and not thrown["type"].startswith(("Xunit.", "NUnit.", "Shouldly.")):
        return _KINDS.get(thrown["type"], "exception")
    if re.match(r"Test '.*' exceeded execution timeout|Test exceeded Timeout", message):
        return "timeout"
    return "assertion" if _ASSERTION.search(message) or not thrown else "exception"


def _frames(trace: str, sources: Sources) -> tuple[Frame, ...]:
    """Own calls, the innermost last."""
    found = []
    for match in _FRAME.finditer(trace):
        path = sources.own(match["path"].replace("\\", "/"))
        if path is not None:
            found.append(Frame(path=path, line=int(match["line"]), function=match["function"]))
    return tuple(reversed(found[:FRAMES_CAP]))


def _compile_errors(output: str, sources: Sources) -> tuple[CollectError, ...]:
    """One for each file with errors: the first that is no missing name, as that one is not expected, else the first."""
    found: dict[str, list[Failure]] = {}
    for path, failure in _failures(output, sources):
        found.setdefault(path, []).append(failure)
    return tuple(
        CollectError(
            nodeid=path, failure=next((each for each in failures if each.kind not in _STRUCTURAL), failures[0])
        )
        for path, failures in found.items()
    )


def _failures(output: str, sources: Sources) -> Iterator[tuple[str, Failure]]:
    for match in _ERROR.finditer(output):
        path = sources.own(match["path"].replace("\\", "/"))
        kind, name = _missing(match["code"], match["message"])
        yield (
            path or match["path"],
            Failure(
                phase="collect",
                kind=kind,
                origin="third_party" if path is None else "test" if is_test(path) else "project",
                exception=match["code"],
                message=match["message"][:MESSAGE_CAP],
                missing_name=name,
                path=path,
                line=int(match["line"]) if path else None,
                text=capped(match[0].strip()),
            ),
        )


def _missing(code: str, message: str) -> tuple[str, str | None]:
    """The kind of an error, and the name that is not there."""
    kind, pattern = _CODES.get(code, ("", ""))
    if kind:
        found = re.match(pattern, message)
        parts = found.groupdict() if found else {}
        name, owner = parts.get("name"), parts.get("owner")
        return kind, f"{owner}.{name}" if owner and name else name
    return ("syntax_error" if _SYNTAX.match(code) else "collection_error"), None


def is_test(path: str) -> bool:
    """Whether a file is in a project of tests, is called like one, or configures how they are run."""
    *folders, name = path.split("/")
    is_in_tests = any(re.search(r"(?:^|\.)(?:\w*Tests?|Specs?)$|^tests?$", folder) for folder in folders)
    is_called = re.search(r"Tests?\.(?:cs|fs|vb)$|\.runsettings$", name) is not None
    return is_called or (is_in_tests and not name.endswith("proj"))


DOTNET = Framework(
    name="dotnet",
    looked_for="*.sln or *.csproj",
    find=find,
    arguments=arguments,
    read=read,
    is_test=is_test,
    variables=(("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("DOTNET_NOLOGO", "1"), ("MSBUILDTERMINALLOGGER", "off")),
)
