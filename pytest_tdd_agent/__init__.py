"""A pytest plugin that reports every test as data and opens or closes the gates of test-driven development.

This package is the plugin (``-p pytest_tdd_agent``). It declares the options; everything else is loaded only when one
of them asks for it, so that a run without them is pytest's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("tdd-agent", "reports and gates of test-driven development")
    group.addoption(
        "--tdd-agent",
        action="store_true",
        default=False,
        help="Write a report of every test, with the kind of each failure, to .tdd-agent/report.json.",
    )
    group.addoption(
        "--tdd-agent-report",
        metavar="FILE",
        help="Write the report to FILE and the stream of events beside it (FILE with suffix .jsonl); both are "
        "removed when the run starts. Turns --tdd-agent on.",
    )
    group.addoption(
        "--tdd-agent-gate",
        choices=("red", "green", "refactor"),
        help="Judge the run; exit status 0 if the gate is open, 1 if it is closed. red: the targets fail for a right "
        "reason and nothing else broke. green: the targets pass, nothing broke, no test was changed. refactor: green, "
        "with the same tests. Turns --tdd-agent on.",
    )
    group.addoption(
        "--tdd-agent-target",
        metavar="NODEID",
        action="append",
        default=[],
        help="A test the gate is about: a node id, or a function, class, file or folder for the tests in it "
        "(repeatable). Default: all tests that are not in the baseline (red), all that ran (green, refactor).",
    )
    group.addoption(
        "--tdd-agent-baseline",
        metavar="FILE",
        help="The report of the run before, with which the gate compares.",
    )
    group.addoption(
        "--tdd-agent-expects",
        metavar="NAME",
        action="append",
        default=[],
        help="A name that is still to be made, such as package.module or package.module.function, whose absence is a "
        "right reason to fail; or the class of an exception that the product wrongly raises (repeatable).",
    )
    group.addoption(
        "--tdd-agent-nonce",
        metavar="TEXT",
        default="",
        help="Text that the report repeats, by which the caller knows it as that of this run.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin's hooks if an option asks for them."""
    option = config.option
    wanted = (
        option.tdd_agent,
        option.tdd_agent_report,
        option.tdd_agent_gate,
        option.tdd_agent_target,
        option.tdd_agent_baseline,
        option.tdd_agent_expects,
        option.tdd_agent_nonce,
    )
    if any(wanted) and not (option.help or option.version):
        config.pluginmanager.import_plugin(f"{__name__}.plugin")
