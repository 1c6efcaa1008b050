"""What happens before a run is configured: for one that ends there, because a conftest file fails, write the report."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from platform import python_version

import pytest

from . import codec
from .options import find_report_path, format_now, is_inherited, is_report_of_outer_run
from .recording.spool import RECORDS, Channel
from .report import SuiteReport

CHANNEL = pytest.StashKey[Channel]()
"""The channel to a process that reads the records, if there is one."""


def prepare_report(config: pytest.Config, option: Namespace) -> None:
    """Write a report if pytest ends before it configures the plugin. ``option`` is not checked yet."""
    try:
        path = find_report_path(config, option)
    except pytest.UsageError:
        return  # reading the options will raise the same error
    if is_inherited(config) or is_report_of_outer_run(path):
        return
    report = SuiteReport(
        complete=False,
        exit_status=int(pytest.ExitCode.USAGE_ERROR),
        nonce=option.tdd_agent_nonce,
        python=python_version(),
        pytest=pytest.__version__,
        rootdir=str(config.rootpath),
        started_at=format_now(),
        duration_s=0.0,
    )

    def end() -> None:
        if not (config.pluginmanager.has_plugin("tdd-agent-closing") or hasattr(config, "workerinput")):
            with suppress(OSError):
                _write(report, path)
                if option.tdd_agent_report == "-":
                    sys.stdout.write(path.read_text(encoding="ascii"))

    config.add_cleanup(end)


def take_over_channel(config: pytest.Config) -> bool:
    """Take over the descriptor for the records before code of the project is loaded; return whether there is one."""
    descriptor = os.environ.pop(RECORDS, "")
    if not descriptor.isdigit() or hasattr(config, "workerinput"):
        return False
    with suppress(OSError):
        config.stash[CHANNEL] = Channel(int(descriptor))
    return True


def _write(report: SuiteReport, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.with_suffix(".jsonl")
    if stream.exists():
        stream.unlink()
    codec.dump(report, path)
