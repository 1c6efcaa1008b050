"""Read the options of a run from the command line and from the settings in pytest's configuration."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Collection

import pytest

from .codec import ReportError, load
from .report import SuiteReport
from .system import bind_builtins

bind_builtins(globals())


ACTIVE = "PYTEST_TDD_AGENT_ACTIVE"
"""Environment variable with the report paths of this run and the runs around it."""

NO_PARENT = pytest.StashKey[str]()
"""Why an audit runs in the test process, which can forge its results, instead of in a parent."""

DEFAULT_REPORT = Path(".tdd-agent", "report.json")
_LONGEST_S = 1_000_000.0
_WITH_FILE = ("--tdd-agent-report", "--tdd-agent-baseline")


def is_inherited(config: pytest.Config) -> bool:
    """Return whether a pytest inside a test got its options only from the outer run.

    They come through PYTEST_ADDOPTS or a configuration file. An xdist worker has the options of its controller.
    """
    words = map(str, config.invocation_params.args)
    is_inside = ACTIVE in os.environ and not hasattr(config, "workerinput")
    return is_inside and not any(word.startswith("--tdd-agent") for word in words)


def is_report_of_outer_run(report: Path) -> bool:
    """Return whether an outer run writes this report."""
    return os.path.realpath(str(report)) in os.environ.get(ACTIVE, "").split(os.pathsep)


def format_now() -> str:
    """Return the current UTC time in the format of reports."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class PluginOptions:
    """The checked options of a run."""

    report: Path
    """Absolute."""
    is_printed: bool
    """Whether standard output contains only the report."""
    gate: str | None
    targets: tuple[str, ...]
    expects: tuple[str, ...]
    flaky: int
    """Reruns of an unexpectedly failed test."""
    test_timeout_s: float
    """The time limit of one test; 0: none."""
    is_audited: bool
    """Whether the plugin searches for signs of tampering."""
    nonce: str
    baseline: SuiteReport | None

    def select_targets(self, nodeids: Collection[str]) -> set[str]:
        """Return the node ids that belong to a target, or, without targets, those that are not in the baseline."""
        if self.targets:
            inside = tuple(target.rstrip("/") + end for target in self.targets for end in ("[", "::", "/"))
            return {nodeid for nodeid in nodeids if nodeid in self.targets or nodeid.startswith(inside)}
        return set() if self.baseline is None else set(nodeids).difference(case.nodeid for case in self.baseline.tests)

    @property
    def stream(self) -> Path:
        """The absolute path of the stream."""
        return self.report.with_suffix(".jsonl")

    @property
    def spool(self) -> Path:
        """The absolute path of this process's temporary file for finished tests."""
        return self.report.with_name(f"{self.report.name}.{os.getpid()}.part")


def read_options(config: pytest.Config, option: Namespace) -> PluginOptions:
    """Return the options of a run; raises pytest.UsageError for invalid or contradictory ones.

    ``option``: those of the command line, which ``config`` does not have before conftest files are loaded.
    """
    _refuse_outside_files(config, option)
    phase: str | None = option.tdd_agent_gate
    if phase is None and (option.tdd_agent_target or option.tdd_agent_expects or option.tdd_agent_baseline):
        raise pytest.UsageError(
            "--tdd-agent-target, --tdd-agent-expects and --tdd-agent-baseline are for a gate: add --tdd-agent-gate"
        )
    if phase is not None and getattr(option, "dist", "no") == "each":
        raise pytest.UsageError("--tdd-agent-gate: a gate judges one run of each test; use --dist load, not each")
    return PluginOptions(
        report=find_report_path(config, option),
        is_printed=option.tdd_agent_report == "-",
        gate=phase,
        targets=tuple(target[2:] if target.startswith("./") else target for target in option.tdd_agent_target),
        expects=(*option.tdd_agent_expects, *config.getini("tdd_agent_expects")),
        flaky=_read_flaky(config, option),
        test_timeout_s=_read_test_timeout(option),
        is_audited=option.tdd_agent_audit or phase is not None,
        nonce=option.tdd_agent_nonce,
        baseline=None if phase is None else _load_baseline(_read_path(config, option, name="baseline")),
    )


def _refuse_outside_files(config: pytest.Config, option: Namespace) -> None:
    """Raise pytest.UsageError for ``--OPTION FILE`` with an existing file outside the current folder.

    pytest determines its root directory before it knows this plugin's options and would take FILE for a test path, so
    node ids and configuration would be those of another folder.
    """
    if option.rootdir or option.inifilename:
        return  # pytest does not search for the root directory
    here = config.invocation_params.dir
    words = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    for word, value in zip(words, words[1:]):
        if word in _WITH_FILE and (here / value).exists() and here not in (here / value).resolve().parents:
            raise pytest.UsageError(
                f"{word} {value}: pytest would take this file outside the current folder for a test path and use its "
                f"folder as root directory. Write {word}={value}"
            )


def find_report_path(config: pytest.Config, option: Namespace) -> Path:
    """Return the path of the report; ``option`` need not be checked yet.

    Raises pytest.UsageError if the path is invalid or would overwrite the baseline.
    """
    is_named = option.tdd_agent_report != "-"
    report = (_read_path(config, option, name="report") if is_named else None) or config.rootpath / DEFAULT_REPORT
    if report.suffix == ".jsonl":
        raise pytest.UsageError(
            f"--tdd-agent-report: {report}: the suffix .jsonl is reserved for the stream; use report.json"
        )
    baseline = _read_path(config, option, name="baseline") if option.tdd_agent_gate else None
    if baseline is not None and os.path.realpath(str(baseline)) == os.path.realpath(str(report)):
        raise pytest.UsageError(
            f"--tdd-agent-baseline: {baseline}: this run's report would overwrite it. "
            f"Add --tdd-agent-report={option.tdd_agent_gate}.json"
        )
    return report


def _read_path(config: pytest.Config, option: Namespace, *, name: str) -> Path | None:
    # An option is relative to the current folder, a setting to the root directory.
    chosen: str | None = getattr(option, f"tdd_agent_{name}")
    if chosen:
        return config.invocation_params.dir / chosen
    setting = str(config.getini(f"tdd_agent_{name}") or "")
    if setting == "-":
        raise pytest.UsageError(f"tdd_agent_{name}: - is not a file name; use one such as {DEFAULT_REPORT}")
    return config.rootpath / setting if setting else None


def _load_baseline(path: Path | None) -> SuiteReport | None:
    if path is None:
        return None
    try:
        return load(path)
    except ReportError as error:
        raise pytest.UsageError(
            f"--tdd-agent-baseline: {error}. Take one before the change: "
            "pytest --tdd-agent-report=before.json --tdd-agent-audit"
        ) from error


def _read_flaky(config: pytest.Config, option: Namespace) -> int:
    chosen: int | None = option.tdd_agent_flaky
    setting = str(config.getini("tdd_agent_flaky") or "0")
    if chosen is None and not setting.isdigit():
        raise pytest.UsageError(f"tdd_agent_flaky: {setting!r} is not a number of reruns; use one such as 1")
    if chosen is not None and chosen < 0:
        raise pytest.UsageError(f"--tdd-agent-flaky: {chosen} is not a number of reruns; use one such as 1")
    return int(setting) if chosen is None else chosen


def _read_test_timeout(option: Namespace) -> float:
    chosen: float | None = option.tdd_agent_test_timeout
    if chosen is not None and not 0 < chosen <= _LONGEST_S:  # also refuses nan
        raise pytest.UsageError(f"--tdd-agent-test-timeout: {chosen:g} is not a number of seconds; use one such as 30")
    return chosen or 0.0
