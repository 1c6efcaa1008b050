import json
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import JEST, VITEST
from cdd_agent.testrun.frameworks.framework import FinishedRun, Framework, ParsedResults
from tests.cdd_agent.testrun.frameworks.javascript_samples import copied, ended, kept, outcomes, unloaded, why

BROKEN_LINE = 'test("x", () => { const = ;});'
BOTH = pytest.mark.parametrize("framework", [VITEST, JEST], ids=lambda it: it.name)


def written(
    root: Path, *files: dict[str, object], exit_status: int = 0, output: str = "", **more: object
) -> FinishedRun:
    """A run that wrote what is said of its files, as jest does."""
    run = {"testResults": list(files), "success": True, **more}
    return ended(root, exit_status=exit_status, output=output, files={"report.json": json.dumps(run)})


def file(root: Path, *tests: dict[str, object], status: str = "passed", message: str = "") -> dict[str, object]:
    name = str(root / "a.test.js")
    return {"name": name, "status": status, "message": message, "assertionResults": list(tests)}


def case(title: str, status: str = "passed", **more: object) -> dict[str, object]:
    return {"title": title, "status": status, "ancestorTitles": [], "failureMessages": [], **more}


def read(root: Path, *tests: dict[str, object]) -> ParsedResults:
    return JEST.read(written(root, file(root, *tests)))


@BOTH
def test_a_file_that_could_not_be_loaded_is_told_though_it_has_no_tests(
    framework: Framework, *, tmp_path: Path
) -> None:
    root = copied(framework.name, tmp_path)
    found = framework.read(ended(root, files={"report.json": kept(root, f"{framework.name}.json")}))
    assert unloaded(found)["test/missing.test.js"] == "missing_module test src/nowhere.js"
    failure = next(error.failure for error in found.collect_errors if error.nodeid == "test/third.test.js")
    assert (failure.phase, failure.missing_name, failure.missing_in_project) == ("collect", "left-pad-none", False)
    syntax = next(error.failure for error in found.collect_errors if error.nodeid == "test/syntax.test.js")
    assert (syntax.origin, syntax.path) == ("test", "test/syntax.test.js")
    assert syntax.line == (root / "test/syntax.test.js").read_text().splitlines().index(BROKEN_LINE) + 1


@BOTH
def test_an_old_output_file_in_the_project_is_not_read(framework: Framework, *, tmp_path: Path) -> None:
    root = copied(framework.name, tmp_path)
    (root / "report.json").write_text(kept(root, f"{framework.name}.json"))
    found = framework.read(ended(root, output="Segmentation fault", exit_status=139))
    assert found.tests == ()
    assert found.problem == f"{framework.name} ended with status 139 and wrote no results:\nSegmentation fault"


@BOTH
def test_what_the_tests_print_is_no_result(framework: Framework, *, tmp_path: Path) -> None:
    root = copied(framework.name, tmp_path)
    found = framework.read(ended(root, exit_status=0, output=kept(root, f"{framework.name}.json")))
    assert found.tests == ()
    assert (found.problem or "").startswith(f"{framework.name} ended with status 0 and wrote no results")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"testResults": [{"name": 1}]}', "[" * 100_000, "\x00"])
def test_results_that_cannot_be_read_are_a_problem(text: str, *, tmp_path: Path) -> None:
    found = JEST.read(ended(tmp_path, files={"report.json": text}))
    assert found.tests == ()
    assert (found.problem or "").startswith("The results that jest wrote cannot be read: ")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"testResults": []}')
    run = ended(tmp_path)
    (run.results / "report.json").symlink_to(secret)
    assert "is a link" in (JEST.read(run).problem or "") or "cannot be read" in (JEST.read(run).problem or "")


def test_a_run_that_was_interrupted_is_a_problem(tmp_path: Path) -> None:
    found = JEST.read(written(tmp_path, file(tmp_path, case("a")), wasInterrupted=True))
    assert found.problem == "jest was interrupted"


def test_a_status_that_no_test_explains_is_a_problem(tmp_path: Path) -> None:
    found = JEST.read(
        written(tmp_path, file(tmp_path, case("a")), exit_status=1, output="Unhandled\n\x1b[31mError\x1b[0m")
    )
    assert found.problem == "jest ended with status 1 although no test failed:\nUnhandled\nError"
    found = JEST.read(written(tmp_path, exit_status=1, output="No tests found"))
    assert found.problem == "jest ended with status 1 although no test ran:\nNo tests found"


def test_skipped_todo_and_expected_failures_did_not_pass(tmp_path: Path) -> None:
    found = read(tmp_path, case("s", "pending"), case("t", "todo"), case("f", "passed", failing=True), case("?", "new"))
    assert {nodeid: outcome.split(":")[0] for nodeid, outcome in outcomes(found).items()} == {
        "a.test.js::s": "skipped",
        "a.test.js::t": "xfailed",
        "a.test.js::f": "xfailed",
        "a.test.js::?": "error",
    }


def test_a_test_that_was_run_again_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, case("a", invocations=3, duration=1500, location={"line": 7, "column": 1}))
    assert (found.tests[0].reruns, found.tests[0].duration_s, found.tests[0].line) == (2, 1.5, 7)


def test_a_hook_that_failed_is_an_error_of_its_test(tmp_path: Path) -> None:
    root = copied("jest", tmp_path)
    found = JEST.read(ended(root, files={"report.json": kept(root, "jest.json")}))
    assert why(found, "test/calc.test.js::prepared > never runs").phase == "setup"


def test_a_file_that_failed_although_its_tests_passed_is_told(tmp_path: Path) -> None:
    found = JEST.read(written(tmp_path, file(tmp_path, case("a"), status="failed"), exit_status=1))
    assert found.problem is None
    assert found.collect_errors[0].failure.message.startswith("The file failed although none of its tests did")


def test_a_file_outside_the_project_keeps_its_path(tmp_path: Path) -> None:
    outside: dict[str, object] = {"name": "/elsewhere/a.test.js", "status": "passed", "assertionResults": [case("a")]}
    assert outcomes(JEST.read(written(tmp_path, outside))) == {"/elsewhere/a.test.js::a": "passed"}
