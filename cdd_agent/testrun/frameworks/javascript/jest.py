"""jest: a JSON report."""

from pathlib import Path

from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.javascript.files import is_file, is_test
from cdd_agent.testrun.frameworks.javascript.manifests import Tool, find_tool
from cdd_agent.testrun.frameworks.javascript.reports import written
from cdd_agent.testrun.frameworks.javascript.selection import escaped, full_names, select

_TOOL = Tool(name="jest", configuration=("jest.config.*",), key="jest")
_FORMAT = written.Format(tool="jest", result="jest.json", is_test=is_test)


def _find(folder: Path) -> Finding | None:
    return find_tool(folder, _TOOL)


def _arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Paths are patterns, so that a file with the same ending may come along."""
    selection = select(targets)
    named = (f"--testNamePattern={full_names(selection.names)}",) if selection.names else ()
    return (
        "--json",
        f"--outputFile={results / selection.result(_FORMAT.result)}",
        "--testLocationInResults",
        "--ci",  # no snapshot is written by the test that it is to judge
        "--coverage=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *named,
        *map(_pattern, selection.paths),
    )


def _pattern(path: str) -> str:
    dash = "\\" if path.startswith("-") else ""  # never an option
    return dash + escaped(path.rstrip("/")) + ("$" if is_file(path) else r"\/")


def _read(ended: Ended) -> Results:
    return written.read(ended, _FORMAT)


JEST = Framework(
    name="jest",
    looked_for="jest in a package.json's dependencies or scripts, or a jest.config file",
    find=_find,
    arguments=_arguments,
    read=_read,
    is_test=is_test,
    variables=(("CI", "true"), ("NO_COLOR", "1")),
)
