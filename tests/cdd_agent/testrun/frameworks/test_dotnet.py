"""The TRX and the compiler's lines are written from Microsoft's schema and documentation: no .NET is at hand."""

from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import DOTNET
from tests.cdd_agent.testrun.frameworks.compiled_samples import blocked, case, ended, failure, outcomes, written

TRX = """<?xml version="1.0" encoding="utf-8"?>
<TestRun id="1" xmlns="http://microsoft.com/schemas/VisualStudio/TeamTest/2010">
 <Results>{results}</Results>
 <TestDefinitions>{definitions}</TestDefinitions>
 <ResultSummary outcome="{outcome}"><Counters total="1"/></ResultSummary>
</TestRun>"""
TESTS = "Demo.Tests/SumsTests.cs"


def trx(root: Path, *results: tuple[str, str, str, str], outcome: str = "Failed") -> Path:
    """The folder of a TRX with results: name, outcome, message, stack trace."""
    shown, definitions = "", ""
    for name, ending, message, trace in results:
        info = (
            f"<Output><StdOut>printed</StdOut><ErrorInfo><Message>{message}</Message><StackTrace>{trace}</StackTrace>"
        )
        info = f"{info}</ErrorInfo></Output>" if message else ""
        told = f"Demo.Tests.SumsTests.{name}"
        shown += f'<UnitTestResult testId="{name}" testName="{told}" duration="00:00:01.5" outcome="{ending}">{info}'
        shown += "</UnitTestResult>"
        method = f'<TestMethod className="Demo.Tests.SumsTests" name="{name.partition("(")[0]}"/>'
        definitions += f'<UnitTest name="{told}" id="{name}">{method}</UnitTest>'
    text = TRX.format(results=shown, definitions=definitions, outcome=outcome)
    return written(root / "results", {"a.trx": text})


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    tests = "public class SumsTests {\n    [Fact]\n    public void Adds() { }\n}\n"
    files = {TESTS: tests, "Demo/Sums.cs": "", "Demo.sln": "", "Demo.Tests/obj/SumsTests.cs": ""}
    return written(tmp_path / "demo", files)


def test_every_test_is_called_by_its_class_s_file(demo: Path) -> None:
    names = ("Adds", "Passed", "", ""), ("Waits", "NotExecuted", "", ""), ("Rows(a: 1)", "Passed", "", "")
    results = DOTNET.read(ended(demo, "", results=trx(demo.parent, *names), exit_status=0))
    assert outcomes(results) == {
        f"{TESTS}::SumsTests.Adds": "passed",
        f"{TESTS}::SumsTests.Waits": "skipped",
        f"{TESTS}::SumsTests.Rows(a: 1)": "passed",
    }
    assert (case(results, f"{TESTS}::SumsTests.Adds").line, results.tests[0].duration_s) == (3, 1.5)


@pytest.mark.parametrize(
    ("message", "inner", "kind", "origin", "exception"),
    [
        ("Assert.Equal() Failure&#xD;\nExpected: 3&#xD;\nActual: 2", "", "assertion", "test", ""),
        ("Assert.Throws() Failure: No exception was thrown\nExpected: typeof(X)", "", "did_not_raise", "test", ""),
        ("  Expected: 3\n  But was:  2", "", "assertion", "test", ""),
        (
            "System.DivideByZeroException : Attempted to divide by zero.",
            "Sums",
            "exception",
            "project",
            "DivideByZeroException",
        ),
        ("System.NotImplementedException : Not yet.", "Sums", "not_implemented", "project", "NotImplementedException"),
        ("Acme.OddException : odd", "Acme", "exception", "third_party", "OddException"),
    ],
)
def test_a_message_and_a_trace_say_why(
    demo: Path, message: str, *, inner: str, kind: str, origin: str, exception: str
) -> None:
    calls = {"Sums": f"   at Demo.Sums.Div(Int32 a) in {demo}/Demo/Sums.cs:line 9\n", "Acme": "   at Acme.Odd.Run()\n"}
    trace = f"{calls.get(inner, '')}   at Demo.Tests.SumsTests.Fails() in {demo}/{TESTS}:line 3"
    results = DOTNET.read(ended(demo, "", results=trx(demo.parent, ("Fails", "Failed", message, trace))))
    found = failure(results, f"{TESTS}::SumsTests.Fails")
    assert (found.kind, found.origin, found.exception, found.output) == (kind, origin, exception, "printed")
    assert (found.path, found.line) == (("Demo/Sums.cs", 9) if inner == "Sums" else (TESTS, 3))


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        ("CS0103: The name 'Multiply' does not exist in the current context", "name_error", "Multiply"),
        ("CS0246: The type or namespace name 'Shape' could not be found (are you missing ...?)", "name_error", "Shape"),
        (
            "CS0234: The type or namespace name 'X' does not exist in the namespace 'Demo' (...)",
            "import_error",
            "Demo.X",
        ),
        ("CS0117: 'Sums' does not contain a definition for 'Multiply'", "attribute_error", "Sums.Multiply"),
        ("CS1061: 'Sums' does not contain a definition for 'Go' and no accessible", "attribute_error", "Sums.Go"),
        ("CS1501: No overload for method 'Add' takes 1 arguments", "signature_mismatch", "Add"),
        (
            "CS7036: There is no argument given ... parameter 'b' of 'Sums.Add(int, int)'",
            "signature_mismatch",
            "Sums.Add",
        ),
        ("CS1002: ; expected", "syntax_error", None),
        ("CS0029: Cannot implicitly convert type 'int' to 'string'", "collection_error", None),
    ],
)
def test_what_does_not_compile_is_a_collect_error(demo: Path, error: str, *, kind: str, name: str | None) -> None:
    line = f"{demo}/{TESTS}(12,9): error {error} [{demo}/Demo.Tests/Demo.Tests.csproj]\n"
    results = DOTNET.read(ended(demo, f"  Determining projects...\n{line}\nBuild FAILED.\n\n{line}    1 Error(s)\n"))
    assert blocked(results) == {TESTS: (kind, name, 12, None)}


def test_an_aborted_run_is_a_problem(demo: Path) -> None:
    results = DOTNET.read(ended(demo, "", results=trx(demo.parent, ("Adds", "Passed", "", ""), outcome="Aborted")))
    assert results.problem == "the run of a.trx ended as Aborted"


def test_a_failure_that_no_file_explains_is_a_problem(demo: Path) -> None:
    results = DOTNET.read(ended(demo, "MSBUILD : error MSB1003: Specify a project or solution file."))
    assert results.problem == "dotnet failed outside of the tests: Specify a project or solution file."


def test_a_document_type_in_a_result_file_is_refused(demo: Path) -> None:
    results = written(demo.parent / "results", {"a.trx": "<!DOCTYPE r [<!ENTITY a 'a'>]><r>&a;</r>"})
    assert "document type" in (DOTNET.read(ended(demo, "", results=results)).problem or "")


@pytest.mark.parametrize(
    ("files", "condition"),
    [
        ((TESTS, "Demo.Tests/B.fs"), "FullyQualifiedName~SumsTests|FullyQualifiedName~B"),
        (("Demo.Tests",), None),
        (("--list-tests", TESTS), None),
    ],
)
def test_files_become_a_condition(files: tuple[str, ...], condition: str | None) -> None:
    arguments = DOTNET.arguments(files, Path("/r"))
    assert arguments[:4] == ("--logger", "trx", "--results-directory", "/r")
    assert arguments[5:] == (("--filter", condition) if condition else ())


def test_a_solution_comes_before_a_project(demo: Path) -> None:
    (demo / "A.csproj").touch()
    found = DOTNET.find(demo)
    assert found is not None
    assert found.argv == ("dotnet", "test", "Demo.sln")
    assert [DOTNET.is_test(path) for path in (TESTS, "Demo/Sums.cs", "Demo.Tests/Demo.Tests.csproj")] == [
        True,
        False,
        False,
    ]
