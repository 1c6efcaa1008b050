"""vitest: a JSON report in jest's format."""

from dataclasses import replace
from pathlib import Path

from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.javascript.files import is_test
from cdd_agent.testrun.frameworks.javascript.manifests import Tool, find_tool, installed_major
from cdd_agent.testrun.frameworks.javascript.reports import written
from cdd_agent.testrun.frameworks.javascript.selection import full_names, select, spelled

_TOOL = Tool(
    name="vitest",
    drops=("run", "watch", "dev", "--run", "-w"),
    configuration=("vitest.config.*", "vitest.workspace.*"),
    adds=("run",),
)
_FORMAT = written.Format(tool="vitest", result="vitest.json", is_test=is_test)


_SAYS_LINES = 2
"""The first major version that is known to take an option for the lines of tests."""


def _find(folder: Path) -> Finding | None:
    found = find_tool(folder, _TOOL)
    if found is None or installed_major(folder, _TOOL.name) < _SAYS_LINES:
        return found
    return replace(found, argv=(*found.argv, "--includeTaskLocation"))


def _arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Paths are looked for in those of the test files, so that one with the same ending may come along."""
    selection = select(targets)
    named = (f"--testNamePattern={full_names(selection.names)}",) if selection.names else ()
    return (
        "--reporter=json",
        f"--outputFile={results / selection.result(_FORMAT.result)}",
        "--coverage.enabled=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *named,
        *map(spelled, selection.paths),
    )


def _read(ended: Ended) -> Results:
    return written.read(ended, _FORMAT)


VITEST = Framework(
    name="vitest",
    looked_for="vitest in a package.json's dependencies or scripts, or a vitest.config file",
    find=_find,
    arguments=_arguments,
    read=_read,
    is_test=is_test,
    variables=(("CI", "true"), ("NO_COLOR", "1")),  # no snapshot is written by the test that it is to judge
)
