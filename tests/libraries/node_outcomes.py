"""A pytest plugin that notes what became of each node id, as pytest's own reports say; it knows nothing of ours.

Written to the file that the variable NODE_OUTCOMES names: node id -> outcome and the name that JUnit's XML has for it.
"""

import json
import os
from pathlib import Path

import pytest
from _pytest.junitxml import bin_xml_escape, mangle_test_address

ORDER = ("passed", "skipped", "xpassed", "xfailed", "failed", "error")
"""The later counts when the phases of a test came to different things."""


class Notes:
    """Gathers the reports of the controlling process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}

    def note(self, nodeid: str, outcome: str) -> None:
        self.outcomes[nodeid] = max(self.outcomes.get(nodeid, "passed"), outcome, key=ORDER.index)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) != "rerun":
            self.note(report.nodeid, outcome_of(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note(report.nodeid, "error")

    def pytest_unconfigure(self) -> None:
        found = {nodeid: [outcome, junit_name(nodeid)] for nodeid, outcome in self.outcomes.items()}
        self.path.write_text(json.dumps(found), encoding="utf-8")


def outcome_of(report: pytest.TestReport) -> str:
    """Return what one phase, or one subtest, came to; a subtest that did not fail says nothing of its test."""
    is_subtest = type(report).__name__.lower() == "subtestreport"
    if report.failed:
        return "failed" if report.when == "call" or is_subtest else "error"
    if is_subtest:
        return "passed"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome


def junit_name(nodeid: str) -> str:
    """Return ``classname::name`` as JUnit's XML has it."""
    *classes, name = mangle_test_address(nodeid)
    return f"{bin_xml_escape('.'.join(classes))}::{bin_xml_escape(name)}"


def pytest_configure(config: pytest.Config) -> None:
    """Take notes, except in a worker of xdist."""
    path = os.environ.get("NODE_OUTCOMES")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(path)), "node-outcomes")
