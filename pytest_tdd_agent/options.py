"""What a run is asked to do: the options of the command line over the settings of pytest's configuration."""

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

ACTIVE = "PYTEST_TDD_AGENT_ACTIVE"
"""Variable of the environment: the reports that this run and those around it write."""

DEFAULT_REPORT = Path(".tdd-agent", "report.json")
_WITH_FILE = ("--tdd-agent-report", "--tdd-agent-baseline")


def is_inherited(config: pytest.Config) -> bool:
    """Say whether a pytest inside a test has its options only from the run around it.

    They come through PYTEST_ADDOPTS or a configuration file. An xdist worker has those of its controller.
    """
    words = map(str, config.invocation_params.args)
    is_inside = ACTIVE in os.environ and not hasattr(config, "workerinput")
    return is_inside and not any(word.startswith("--tdd-agent") for word in words)


def is_written_around(report: Path) -> bool:
    """Say whether a run around this one writes that very report."""
    return os.path.realpath(str(report)) in os.environ.get(ACTIVE, "").split(os.pathsep)


def now() -> str:
    """Return the time of UTC as reports have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Options:
    """What is asked of the plugin."""

    report: Path
    """Absolute."""
    is_printed: bool
    """The report goes to standard output, and nothing else does."""
    gate: str | None
    targets: tuple[str, ...]
    expects: tuple[str, ...]
    flaky: int
    """How often a test that failed unexpectedly is run again."""
    is_audited: bool
    """Signs of tampering are looked for."""
    nonce: str
    baseline: SuiteReport | None

    def targets_among(self, nodeids: Collection[str]) -> set[str]:
        """Return the tests that a gate is about: those that a target names, or without targets those that are new."""
        if self.targets:
            inside = tuple(target.rstrip("/") + end for target in self.targets for end in ("[", "::", "/"))
            return {nodeid for nodeid in nodeids if nodeid in self.targets or nodeid.startswith(inside)}
        return set() if self.baseline is None else set(nodeids).difference(case.nodeid for case in self.baseline.tests)

    @property
    def stream(self) -> Path:
        """The stream's file, absolute."""
        return self.report.with_suffix(".jsonl")

    @property
    def spool(self) -> Path:
        """The file of the tests that have ended, while the run lasts; absolute, and of this process alone."""
        return self.report.with_name(f"{self.report.name}.{os.getpid()}.part")


def read_options(config: pytest.Config) -> Options:
    """Return the options of a run; raises pytest.UsageError for those that do not fit together or cannot be read."""
    _refuse_files_far_away(config)
    option = config.option
    phase: str | None = option.tdd_agent_gate
    if phase is None and (option.tdd_agent_target or option.tdd_agent_expects or option.tdd_agent_baseline):
        raise pytest.UsageError(
            "--tdd-agent-target, --tdd-agent-expects and --tdd-agent-baseline are for a gate: add --tdd-agent-gate"
        )
    if phase is not None and getattr(option, "dist", "no") == "each":
        raise pytest.UsageError("--tdd-agent-gate: a gate judges one run of each test; use --dist load, not each")
    return Options(
        report=report_path(config, option),
        is_printed=option.tdd_agent_report == "-",
        gate=phase,
        targets=tuple(target[2:] if target.startswith("./") else target for target in option.tdd_agent_target),
        expects=(*option.tdd_agent_expects, *config.getini("tdd_agent_expects")),
        flaky=_flaky(config),
        is_audited=option.tdd_agent_audit or phase is not None,
        nonce=option.tdd_agent_nonce,
        baseline=None if phase is None else _baseline(_path(config, option, name="baseline")),
    )


def _refuse_files_far_away(config: pytest.Config) -> None:
    """Raise for ``--OPTION FILE`` with a file outside the current folder, which would move the root directory.

    Pytest looks for that directory before it knows this plugin's options, so a file in a word of its own is taken for
    a test: node ids and configuration would be those of another folder.
    """
    if config.option.rootdir or config.option.inifilename:
        return  # it is not looked for
    here = config.invocation_params.dir
    words = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    for option, value in zip(words, words[1:]):
        if option in _WITH_FILE and (here / value).exists() and here not in (here / value).resolve().parents:
            raise pytest.UsageError(
                f"{option} {value}: pytest takes this file outside the current folder for a test, and that folder for "
                f"the root of the tests. Write {option}={value}"
            )


def report_path(config: pytest.Config, option: Namespace) -> Path:
    """Return where the report goes; ``option`` need not be checked yet.

    Raises pytest.UsageError if it would be written over the baseline of the run, or is no name for a report.
    """
    is_named = option.tdd_agent_report != "-"
    report = (_path(config, option, name="report") if is_named else None) or config.rootpath / DEFAULT_REPORT
    if report.suffix == ".jsonl":
        raise pytest.UsageError(
            f"--tdd-agent-report: {report}: name a file such as report.json; .jsonl is its stream's"
        )
    baseline = _path(config, option, name="baseline") if option.tdd_agent_gate else None
    if baseline is not None and os.path.realpath(str(baseline)) == os.path.realpath(str(report)):
        raise pytest.UsageError(
            f"--tdd-agent-baseline: {baseline}: this run's report would take its place. "
            f"Add --tdd-agent-report={option.tdd_agent_gate}.json"
        )
    return report


def _path(config: pytest.Config, option: Namespace, *, name: str) -> Path | None:
    """The file that an option names, relative to the current folder, or a setting, relative to the root directory."""
    chosen: str | None = getattr(option, f"tdd_agent_{name}")
    if chosen:
        return config.invocation_params.dir / chosen
    setting = str(config.getini(f"tdd_agent_{name}") or "")
    if setting == "-":
        raise pytest.UsageError(f"tdd_agent_{name}: - is no file; name one such as {DEFAULT_REPORT}")
    return config.rootpath / setting if setting else None


def _baseline(path: Path | None) -> SuiteReport | None:
    if path is None:
        return None
    try:
        return load(path)
    except ReportError as error:
        raise pytest.UsageError(
            f"--tdd-agent-baseline: {error}. Take one before the change: "
            "pytest --tdd-agent-report=before.json --tdd-agent-audit"
        ) from error


def _flaky(config: pytest.Config) -> int:
    chosen: int | None = config.option.tdd_agent_flaky
    setting = str(config.getini("tdd_agent_flaky") or "0")
    if chosen is None and not setting.isdigit():
        raise pytest.UsageError(f"tdd_agent_flaky: {setting!r} is not a number of times; write one such as 1")
    if chosen is not None and chosen < 0:
        raise pytest.UsageError(f"--tdd-agent-flaky: {chosen} is not a number of times; give one such as 1")
    return int(setting) if chosen is None else chosen
