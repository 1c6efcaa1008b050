from pathlib import Path

from cdd_agent.testrun.frameworks.catalog import VITEST
from tests.cdd_agent.testrun.frameworks.javascript_samples import copied, ended, kept, why

RESULTS = Path("/results")


def added(*files: str) -> list[str]:
    """Return the arguments that select the files."""
    return [word for word in VITEST.arguments(files, RESULTS) if word not in VITEST.arguments((), RESULTS)]


def test_results_are_written_where_it_is_told() -> None:
    assert "--outputFile=/results/report.json" in VITEST.arguments((), RESULTS)


def test_files_are_paths_and_no_options() -> None:
    assert added("src/a.test.js", "lib/") == ["src/a.test.js", "lib/"]
    assert added("--ui.test.js") == ["./--ui.test.js"]


def test_a_time_limit_is_told_though_the_report_has_only_a_mark(tmp_path: Path) -> None:
    root = copied("vitest", tmp_path)
    found = why(
        VITEST.read(ended(root, files={"report.json": kept(root, "vitest.json")})), "test/calc.test.js::takes too long"
    )
    assert (found.kind, found.message, found.line) == ("timeout", "A time limit was exceeded", 16)


def test_a_test_that_calls_process_exit_fails(tmp_path: Path) -> None:
    root = copied("vitest", tmp_path)
    found = why(VITEST.read(ended(root, files={"report.json": kept(root, "vitest.json")})), "test/exit.test.js::two")
    assert found.kind == "system_exit"
