from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import MOCHA
from tests.cdd_agent.testrun.frameworks.javascript_samples import BROKEN, copied, ended, expected, kept, unloaded, why

RESULTS = Path("/results")
OVER = '{"event":"over"}\n'


def added(*files: str) -> list[str]:
    """Return the arguments that select the files."""
    return [word for word in MOCHA.arguments(files, RESULTS) if word not in MOCHA.arguments((), RESULTS)]


def test_files_and_folders_are_paths_and_no_options() -> None:
    assert "--reporter-option=output=/results/report.json" in MOCHA.arguments((), RESULTS)
    assert added("test/a.js") == ["test/a.js"]
    assert added("test/unit") == ["--recursive", "test/unit"]
    assert added("-a.test.js") == ["./-a.test.js"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_loaded_is_told_of_what_was_printed(name: str, *, tmp_path: Path) -> None:
    root = copied("mocha", tmp_path)
    file = f"broken/{name}.test.js"
    found = MOCHA.read(ended(root, output="noise\n" + kept(root, f"mocha-{name}.txt")))
    assert (found.problem, found.tests) == (None, ())
    assert unloaded(found) == {file: expected("mocha", "unloaded")[file]}


def test_a_run_that_ends_well_without_results_was_left(tmp_path: Path) -> None:
    found = MOCHA.read(ended(tmp_path, exit_status=0, output="Exception during run: Error: no"))
    assert found.collect_errors == ()
    assert (found.problem or "").startswith("mocha ended with status 0 and wrote no results")


def test_results_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    found = MOCHA.read(ended(tmp_path, files={"report.json": '{"titles": 1}\n'}))
    assert (found.problem or "").startswith("The results that mocha wrote cannot be read: ")


def test_a_hook_that_failed_stands_for_its_test(tmp_path: Path) -> None:
    root = copied("mocha", tmp_path)
    found = MOCHA.read(ended(root, files={"report.json": kept(root, "mocha.jsonl")}))
    assert why(found, "test/calc.test.js::prepared > never runs").phase == "setup"
    assert why(found, "test/calc.test.js::cleaned > runs").phase == "teardown"


def test_a_status_that_no_test_explains_is_a_problem(tmp_path: Path) -> None:
    found = MOCHA.read(ended(tmp_path, exit_status=7, output="late", files={"report.json": OVER}))
    assert found.problem == "mocha ended with status 7 although no test ran:\nlate"
