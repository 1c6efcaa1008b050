"""C#, F# and Visual Basic: reads the TRX files of ``dotnet test`` and the compilers' messages."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults
from cdd_agent.testrun.frameworks.junit_xml import read_xml
from cdd_agent.testrun.frameworks.sources import Call, Language, Missing, Sources, match_path, shorten, split_target
from pytest_tdd_agent.report import Case, Failure

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
    r"[Nn]o exception was thrown|Expected: <\S+>\s+But was:\s+null|Expected a <\S+> to be thrown", re.DOTALL
)
_OTHER_RAISED = re.compile(r"Assert\.Throws\w*\(\) Failure: Exception type was not|Expected exception type:")
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
_ABSENT = r"does not exist in the namespace '(?P<owner>[^']+)'"
_TYPE = r"(?:'(?P<owner>[^']+)' does not contain a definition for '(?P<name>[^']+)')?"
_ERROR = re.compile(
    r"^\s*(?P<path>[^\n(]+\.(?:cs|fs|vb))\((?P<line>\d+),\d+(?:,\d+,\d+)?\): error (?P<code>[A-Z]+\d+): "
    r"(?P<message>[^\n]+?)(?: \[[^\n\]]+\])?$",
    re.MULTILINE,
)
_OTHER_ERROR = re.compile(r"^.*?: error (?P<code>[A-Z]*\d+)?\s*: (?P<message>[^\n]+)", re.MULTILINE)
_RULES = (
    (r"CS0103: (?:The name '(?P<name>[^']+)')?", "name_error"),
    (r"CS0246: (?:The type or namespace name '(?P<name>[^'<]+))?", "name_error"),
    (rf"CS0234: (?:The type or namespace name '(?P<name>[^'<]+)[^']*' {_ABSENT})?", "import_error"),
    (rf"CS(?:0117|1061): {_TYPE}", "attribute_error"),
    (r"CS0426: (?:The type name '(?P<name>[^']+)' does not exist in the type '(?P<owner>[^']+)')?", "attribute_error"),
    (r"CS1501: (?:No overload for method '(?P<name>[^']+)')?", "signature_mismatch"),
    (r"CS1729: (?:'(?P<name>[^']+)' does not contain a constructor)?", "signature_mismatch"),
    (r"CS7036: (?:.*of '(?P<name>[\w.]+)\()?", "signature_mismatch"),
    (r"CS1739: (?:The best overload for '(?P<name>[^']+)')?", "signature_mismatch"),
    (r"FS0039: (?:.*'(?P<name>[^']+)' is not defined)?", "name_error"),
    (r"BC30451: (?:'(?P<name>[^']+)' is not declared)?", "name_error"),
    (r"(?:CS1(?:00[1-9]|0[1-4]\d|5(?:13|14|19|25))|CS8(?:124|180)|FS0010|BC30\d)", "syntax_error"),
)
"""Code and beginning of a compiler's message -> kind."""
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
is_test = match_path(
    r"(?:(?:^|[./])(?:\w*Tests?|Specs?)|(?:^|/)tests?)/(?!.*proj$)|Tests?\.(?:cs|fs|vb)$|\.runsettings$"
)
LANGUAGE = Language(
    suffixes=(".cs", ".fs", ".vb"),
    built=("bin", "obj", "packages", "TestResults"),
    is_test=is_test,
    error=_ERROR,
    explain=lambda _, match: Missing.from_rules(_RULES, f"{match['code']}: {match['message']}"),
)


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each class, with its folders as namespace and alone."""
    for source in sources:
        if source.endswith(LANGUAGE.suffixes):
            inside = source.rpartition(".")[0]
            yield from (inside.replace("/", "."), posixpath.basename(inside))


def build_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for a TRX file for each project, and for the tests in ``targets`` unless a target is a folder."""
    chosen = [_build_filter(target) for target in targets]
    filters = ("--filter", "|".join(dict.fromkeys(filter(None, chosen)))) if chosen and all(chosen) else ()
    return ("--logger", "trx", "--results-directory", str(results), "--nologo", *filters)


def _build_filter(target: str) -> str | None:
    file, name = split_target(target)
    if not file.endswith(LANGUAGE.suffixes):
        return None
    # A class has the name of its file.
    words = _IDENTIFIER.findall(name.partition("(")[0]) or [file.rpartition("/")[2].partition(".")[0]]
    return f"FullyQualifiedName~{'.'.join(words)}" if all(map(_IDENTIFIER.fullmatch, words)) else None


def read(run: FinishedRun) -> ParsedResults:
    """Read the results of each project of tests, and the compile errors of the others."""
    sources = Sources(run.root, LANGUAGE)
    errors = sources.read_errors(run.plain_output)
    trx = [_read_trx(path, sources) for path in sorted(run.results.glob("*.trx"))[:TRX_CAP]]
    tests = [case for cases, _ in trx for case in cases]
    problems = [problem for _, problem in trx if problem]
    if run.exit_status and not (any(case.failure for case in tests) or errors or problems):
        other = _OTHER_ERROR.search(run.plain_output)
        reason = other["message"] if other else run.plain_output.strip()[-300:] or "no output"
        problems.append(f"dotnet failed outside of the tests: {reason}")
    return ParsedResults(tests=tuple(tests), collect_errors=errors, problem="; ".join(problems) or None)


def _read_trx(path: Path, sources: Sources) -> tuple[list[Case], str | None]:
    root = read_xml(path)
    if isinstance(root, str):
        return [], root
    methods = {}
    for test in root.iter("UnitTest"):
        if (method := test.find("TestMethod")) is not None:
            methods[test.get("id", "")] = (method.get("className", "").partition(",")[0], method.get("name", ""))
    results = root.iter("UnitTestResult")
    cases = [_convert(result, methods.get(result.get("testId", "")), sources=sources) for result in results]
    summary = next((element.get("outcome", "") for element in root.iter("ResultSummary")), "")
    return cases, f"the run of {path.name} ended as {summary}" if summary in _CUT_OFF else None


def _convert(result: Element, method: tuple[str, str] | None, *, sources: Sources) -> Case:
    shown = result.get("testName", "")
    owner, name = method or ("", shown)
    arguments = shown[at:] if (at := shown.find("(")) >= 0 and "(" not in name else ""
    name = name.removeprefix(f"{owner}.") + arguments
    simple = re.split(r"[.+]", owner)[-1]
    file = _find_file(owner, sources) or owner or "."
    outcome = result.get("outcome", "").lower()
    kind = "skipped" if outcome in _SKIPPED else "passed" if outcome in _PASSED else "failed"
    line = sources.find_line(file, rf"\b{re.escape(name.partition('(')[0])}\s*\(\s*[^;]*?\)\s*(?:\{{|=>|where)")
    time = re.fullmatch(r"(\d{1,5}):(\d\d):(\d\d(?:\.\d+)?)", result.get("duration", ""))
    duration_s = int(time[1]) * 3600 + int(time[2]) * 60 + float(time[3]) if time else 0.0
    failure = _describe_failure(result, outcome, sources=sources) if kind == "failed" else None
    nodeid = f"{file}::{simple}.{name}" if simple else f"{file}::{name}"
    return Case(nodeid, kind, file, line, duration_s, failure=failure)


def _find_file(owner: str, sources: Sources) -> str | None:
    """Return the file named like a class; of several, the one whose folders are most like the namespace."""
    parts = re.split(r"[.+]", owner)
    for name in reversed(parts):
        if found := [path for path in sources.files() if path.rpartition("/")[2].partition(".")[0] == name]:
            return max(found, key=lambda path: sum(part in path.split("/") for part in parts))
    return None


def _describe_failure(result: Element, outcome: str, *, sources: Sources) -> Failure:
    message, trace, printed = (
        result.findtext(f"Output/{name}", "").replace("\r\n", "\n")
        for name in ("ErrorInfo/Message", "ErrorInfo/StackTrace", "StdOut")
    )
    message = message.strip()
    thrown = _THROWN.match(message)
    kind = {"timeout": "timeout", "aborted": "crash"}.get(outcome) or _classify(message, thrown)
    calls = [
        (own, int(match["line"]), match["function"])
        for match in _FRAME.finditer(trace)
        if (own := sources.find_own(match["path"].replace("\\", "/")))
    ]
    functions = (match["function"] for match in _CALL.finditer(trace))
    first = next((function for function in functions if not function.startswith(_RUNNERS)), "")
    # Calls into packages have no file. If the innermost call outside of the runners is not own, a package raised.
    outside: list[Call] = [(None, 0, first)] if calls and first not in calls[0][2] else []
    shown = thrown["message"] if thrown else message
    return replace(
        sources.describe_failure(kind, shown, text=f"{message}\n{trace}", calls=(*outside, *calls)),
        exception=thrown["type"].rpartition(".")[2] if thrown else "",
        output=shorten(printed),
    )


def _classify(message: str, thrown: re.Match[str] | None) -> str:
    if _NOT_RAISED.search(message):
        return "did_not_raise"
    if _OTHER_RAISED.match(message):
        return "wrong_exception"
    if thrown and not thrown["type"].startswith(_ASSERTION_LIBRARIES):
        return _KINDS.get(thrown["type"], "exception")
    if _TIMED_OUT.match(message):
        return "timeout"
    return "assertion" if _ASSERTION.search(message) or not thrown else "exception"
