"""The report of a run that ends before it is configured: a conftest that fails, an option that nobody knows."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from platform import python_version

import pytest

from . import codec
from .options import is_inherited, is_written_around, now, report_path
from .report import SuiteReport


def leave_report(config: pytest.Config, option: Namespace) -> None:
    """Have a report written when pytest ends without having configured the plugin; ``option`` is not yet checked."""
    try:
        path = report_path(config, option)
    except pytest.UsageError:
        return  # there is no place for it; the options are refused when they are read
    if is_inherited(config) or is_written_around(path):
        return
    report = SuiteReport(
        complete=False,
        exit_status=int(pytest.ExitCode.USAGE_ERROR),
        nonce=option.tdd_agent_nonce,
        python=python_version(),
        pytest=pytest.__version__,
        rootdir=str(config.rootpath),
        started_at=now(),
        duration_s=0.0,
    )

    def end() -> None:
        if not (config.pluginmanager.has_plugin("tdd-agent-closing") or hasattr(config, "workerinput")):
            with suppress(OSError):
                _write(report, path)
                if option.tdd_agent_report == "-":
                    sys.stdout.write(path.read_text(encoding="ascii"))

    config.add_cleanup(end)


def _write(report: SuiteReport, path: Path) -> None:
    """Write the report, in place of what an earlier run has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.with_suffix(".jsonl")
    if stream.exists():
        stream.unlink()
    codec.dump(report, path)
