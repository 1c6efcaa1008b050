from pathlib import Path

from cdd_agent.testrun.frameworks.catalog import JEST

RESULTS = Path("/results")


def added(*files: str) -> list[str]:
    """Return the arguments that select the files."""
    return [word for word in JEST.arguments(files, RESULTS) if word not in JEST.arguments((), RESULTS)]


def test_results_are_written_where_it_is_told() -> None:
    assert "--outputFile=/results/report.json" in JEST.arguments((), RESULTS)
    assert "--ci" in JEST.arguments((), RESULTS)


def test_files_and_folders_are_patterns_of_paths() -> None:
    assert added("src/a.test.js") == [r"src/a\.test\.js$"]
    assert added("src/[id]", "lib") == [r"src/\[id\]\/", r"lib\/"]
    assert added("--version.test.js") == [r"\-\-version\.test\.js$"]
