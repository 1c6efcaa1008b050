"""A pytest plugin that reports every test as data and opens or closes the gates of test-driven development.

This package is the plugin (``-p pytest_tdd_agent``). It declares the options and loads everything else only if one of
them is given, so other runs pay nothing. It contains no assertions: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Generator

if TYPE_CHECKING:
    from argparse import Namespace

    import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the options and their default settings; no setting turns the plugin on."""
    pluginmanager.register(_Start())
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
        help="Write the report to FILE and the event stream beside it (suffix .jsonl); existing ones are removed when "
        "the run starts. -: print only the report. Turns --tdd-agent on.",
    )
    _add_gate_options(group)
    group.addoption(
        "--tdd-agent-flaky",
        metavar="N",
        type=int,
        help="After all tests, rerun each unexpectedly failed test alone, up to N times, and report it as flaky if it "
        "passes. In red, a target must fail in the same way every time. Turns --tdd-agent on.",
    )
    group.addoption(
        "--tdd-agent-test-timeout",
        metavar="SECONDS",
        type=float,
        help="Report a test as failed that takes longer, with the calls that ran then, and skip the tests after it. "
        "If it cannot be interrupted, end its process. Turns --tdd-agent on.",
    )
    group.addoption(
        "--tdd-agent-audit",
        action="store_true",
        default=False,
        help="Judge from outside of the process that runs the tests, and search for signs that something manipulates "
        "test results, such as patched functions of pytest; a gate always does. Turns --tdd-agent on.",
    )
    group.addoption(
        "--tdd-agent-nonce",
        metavar="TEXT",
        default="",
        help="Text that the report repeats, so that the caller can identify the run.",
    )
    parser.addini("tdd_agent_report", "default of --tdd-agent-report, relative to the root directory")
    parser.addini("tdd_agent_baseline", "default of --tdd-agent-baseline for gates, relative to the root directory")
    parser.addini("tdd_agent_expects", "default of --tdd-agent-expects for gates", type="args", default=[])
    parser.addini("tdd_agent_flaky", "default of --tdd-agent-flaky")


def _add_gate_options(group: pytest.OptionGroup) -> None:
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
        help="A test that the gate is about: a node id, or a function, class, file or folder for its tests "
        "(repeatable). Default: all tests that are not in the baseline (red), all that ran (green, refactor).",
    )
    group.addoption("--tdd-agent-baseline", metavar="FILE", help="The earlier report that the gate compares with.")
    group.addoption(
        "--tdd-agent-expects",
        metavar="NAME",
        action="append",
        default=[],
        help="A name that does not exist yet, such as package.module or package.module.function, so failing because of "
        "it is a right reason; or the class of an exception that the product wrongly raises (repeatable).",
    )


class _Start:
    """The hook that comes before any code of the project."""

    def __init__(self) -> None:
        import pytest  # not above, because other programs read reports without pytest

        # A wrapper, because pytest's own wrapper redirects the output before the other hooks.
        pytest.hookimpl(hookwrapper=True, tryfirst=True)(_Start.pytest_load_initial_conftests)

    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Generator[None, None, None]:
        """Judge in a parent if an audit is asked for, otherwise arrange for a report even if the run ends early."""
        option = early_config.known_args_namespace
        if _is_requested(option):
            from .unstarted import prepare_report, take_over_channel

            if not take_over_channel(early_config):
                if option.tdd_agent_audit or option.tdd_agent_gate or option.tdd_agent_test_timeout:
                    # By name, because a program that reads reports imports this package, but never its hooks.
                    import_module(f"{__name__}.parent.judging").judge_from_outside(early_config, option)
                prepare_report(early_config, option)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin's hooks if an option asks for them."""
    if _is_requested(config.option):
        config.pluginmanager.import_plugin(f"{__name__}.plugin")


def _is_requested(option: Namespace) -> bool:
    wanted = (
        option.tdd_agent,
        option.tdd_agent_report,
        option.tdd_agent_gate,
        option.tdd_agent_target,
        option.tdd_agent_baseline,
        option.tdd_agent_expects,
        option.tdd_agent_flaky,
        option.tdd_agent_test_timeout,
        option.tdd_agent_audit,
        option.tdd_agent_nonce,
    )
    return any(wanted) and not (option.help or option.version)
