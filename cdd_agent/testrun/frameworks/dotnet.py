"""C#, F# and Visual Basic: reads the TRX files of ``dotnet test`` and the compilers' messages."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults, XmlCase, read_trx
from cdd_agent.testrun.frameworks.sources import Call, Language, Sources, classify, match_path
from pytest_tdd_agent.report import Case, Failure

TRX_CAP = 1000

_FRAME = re.compile(r"^\s*at (?P<function>.+?) in (?P<path>.+?):line (?P<line>\d+)\s*$", re.MULTILINE)
_CALL = re.compile(r"^\s*at (?P<function>\S+)\(", re.MULTILINE)
_RUNNERS = ("System.", "Microsoft.", "Xunit.", "NUnit.", "FluentAssertions.", "Shouldly.", "Moq.")
_THREW = r"(?:Test method \S+ threw exception:\s*)?"
_THROWN = re.compile(rf"^{_THREW}(?P<type>[\w.]+(?:Exception|Error))\s*:\s?(?P<message>.*)", re.DOTALL)
_ERROR = re.compile(
    r"^\s*(?P<path>[^\n(]+\.(?:cs|fs|vb))\((?P<line>\d+),\d+(?:,\d+,\d+)?\): error (?P<code>[A-Z]+\d+): "
    r"(?P<message>[^\n]+?)(?: \[[^\n\]]+\])?$",
    re.MULTILINE,
)
_OTHER_ERROR = re.compile(r"^.*?: error (?P<code>[A-Z]*\d+)?\s*: (?P<message>[^\n]+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
is_test = match_path(
    r"(?:(?:^|[./])(?:\w*Tests?|Specs?)|(?:^|/)tests?)/(?!.*proj$)|Tests?\.(?:cs|fs|vb)$|\.runsettings$"
)
LANGUAGE = Language(
    suffixes=(".cs", ".fs", ".vb"),
    built=("bin", "obj", "packages", "TestResults"),
    is_test=is_test,
    error=_ERROR,
    explain=lambda _, match: classify(
        "dotnet.compiler", f"{match['code']}: {match['message']}", default="collection_error"
    ),
)


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each class, with its folders as namespace and alone."""
    for source in sources:
        if source.endswith(LANGUAGE.suffixes):
            inside = source.rpartition(".")[0]
            yield from (inside.replace("/", "."), posixpath.basename(inside))


def build_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for a TRX file for each project, and for the classes of ``files`` unless they contain a folder."""
    # A class has the name of its file.
    classes = [file.rpartition("/")[2].partition(".")[0] for file in files if file.endswith(LANGUAGE.suffixes)]
    is_exact = len(classes) == len(files) and all(map(_IDENTIFIER.fullmatch, classes))
    filters = ("--filter", "|".join(f"FullyQualifiedName~{name}" for name in classes)) if classes and is_exact else ()
    return ("--logger", "trx", "--results-directory", str(results), "--nologo", *filters)


def read(run: FinishedRun) -> ParsedResults:
    """Read the results of each project of tests, and the compile errors of the others."""
    sources = Sources(run.root, LANGUAGE)
    errors = sources.read_errors(run.plain_output)
    read = [read_trx(path) for path in sorted(run.results.glob("*.trx"))[:TRX_CAP]]
    tests = tuple(_convert(case, sources) for cases, _ in read for case in cases)
    problem = "; ".join(problem for _, problem in read if problem) or None
    other = _OTHER_ERROR.search(run.plain_output)
    reason = other["message"] if other else run.plain_output.strip()[-300:] or "no output"
    found = ParsedResults(tests=tests, collect_errors=errors, problem=problem)
    return run.conclude(found, f"dotnet failed outside of the tests: {reason}")


def _convert(case: XmlCase, sources: Sources) -> Case:
    simple = re.split(r"[.+]", case.classname)[-1]
    file = _find_file(case.classname, sources) or case.classname or "."
    method = re.escape(case.name.partition("(")[0])
    line = sources.find_line(file, rf"\b{method}\s*\(\s*[^;]*?\)\s*(?:\{{|=>|where)")
    failure = _describe_failure(case, sources) if case.outcome == "failed" else None
    nodeid = f"{file}::{simple}.{case.name}" if simple else f"{file}::{case.name}"
    return Case(nodeid, case.outcome, file, line, case.duration_s, failure=failure)


def _find_file(owner: str, sources: Sources) -> str | None:
    """Return the file named like a class; of several, the one whose folders are most like the namespace."""
    parts = re.split(r"[.+]", owner)
    for name in reversed(parts):
        if found := [path for path in sources.files() if path.rpartition("/")[2].partition(".")[0] == name]:
            return max(found, key=lambda path: sum(part in path.split("/") for part in parts))
    return None


def _describe_failure(case: XmlCase, sources: Sources) -> Failure:
    thrown = _THROWN.match(case.message)
    ending = {"timeout": "timeout", "aborted": "crash"}.get(case.type)
    kind = ending or classify("dotnet.thrown", case.message, default="assertion").kind
    calls = sources.list_calls(_FRAME, case.text)
    functions = (match["function"] for match in _CALL.finditer(case.text))
    first = next((function for function in functions if not function.startswith(_RUNNERS)), "")
    # Calls into packages have no file. If the innermost call outside of the runners is not own, a package raised.
    outside: list[Call] = [(None, 0, first)] if calls and first not in calls[0][2] else []
    return sources.describe_failure(
        kind,
        thrown["message"] if thrown else case.message,
        text=f"{case.message}\n{case.text}",
        calls=(*outside, *calls),
        exception=thrown["type"].rpartition(".")[2] if thrown else "",
        output=case.output,
    )
