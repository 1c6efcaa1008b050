"""The parent of a test process: it starts it, reads its records, judges them and writes the report.

Everything that the verdict depends on is read before the child starts: options, baseline and fingerprints. So are all
modules, because the code under test may change files of installed packages, too.
"""

from __future__ import annotations

import codecs
import os
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from platform import python_version
from time import perf_counter
from typing import BinaryIO

import pytest
from _pytest._io import TerminalWriter

from .. import codec, fingerprint, gate, screen
from ..options import NO_PARENT, PluginOptions, format_now, is_inherited, is_report_of_outer_run, read_options
from ..plugin import OWN_STATUSES, apply_gate, prepare_files
from ..recording.assembly import UNFINISHED, Assembler, Recording
from ..recording.spool import RECORDS
from ..report import FAILING, SuiteReport, count_outcomes, list_failing, replace
from ..system import bind_builtins, encode_json, read_bytes
from ..wording import explain
from .process import CAN_WAIT, Child, ProcessEnd, find_prctl
from .start import NoParentError, find_command

bind_builtins(globals())

_MOST_SHOWN = 3
_WITHOUT_TESTS = ("cacheshow", "collectonly", "setuponly", "setupplan", "show_fixtures_per_test", "showfixtures")
"""PluginOptions with which pytest runs no test to its end."""
_REFUSED = int(pytest.ExitCode.USAGE_ERROR)
codecs.lookup("unicode-escape")  # which pytest's writer would import if the terminal lacks a character


def judge_from_outside(config: pytest.Config, option: Namespace) -> None:
    """Run the tests in a child process, judge them and exit; return if that is impossible, and note why.

    ``option`` is not checked yet.
    """
    if is_inherited(config) or option.markers:
        return
    try:
        options = read_options(config, option)
        if is_report_of_outer_run(options.report):
            return
        if not CAN_WAIT:
            raise NoParentError(f"{sys.platform} lacks what a parent needs")
        command = find_command(config)
        prepare_files(config, options)
        is_quiet = bool(getattr(option, "no_summary", False)) or not config.pluginmanager.has_plugin("terminal")
        runs_tests = not any(getattr(option, name, False) for name in _WITHOUT_TESTS)
        run = _Run(config, options, is_quiet=is_quiet, runs_tests=runs_tests)
    except pytest.UsageError:
        return  # the process will find the same error when it is configured
    except (NoParentError, OSError) as reason:
        config.stash[NO_PARENT] = str(reason)
        return
    status = run.judge(command)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # what runs at a regular exit could import files that the tests have changed


class _Run:
    """One run, seen from the parent."""

    def __init__(self, config: pytest.Config, options: PluginOptions, *, is_quiet: bool, runs_tests: bool) -> None:
        """Read what the verdict depends on."""
        self._options = options
        self._is_quiet = is_quiet
        self._runs_tests = runs_tests
        self._shown_path = os.path.relpath(str(options.report), str(config.invocation_params.dir))
        self._start_s = perf_counter()
        self._stream = open(options.stream, "wb", buffering=0)  # noqa: SIM115 (open to the end)
        self._assembler = Assembler(options.nonce, listen=StreamFile(self._stream).write)
        self._child = Child(prctl=find_prctl(), is_stopping=lambda: self._assembler.is_stopped)
        self._base = SuiteReport(
            complete=False,
            exit_status=int(pytest.ExitCode.USAGE_ERROR),
            nonce=options.nonce,
            python=python_version(),
            pytest=pytest.__version__,
            rootdir=str(config.rootpath),
            started_at=format_now(),
            duration_s=0.0,
            fingerprints=_compute_fingerprints(config),
            supervised=True,
        )

    def judge(self, command: list[str]) -> int:
        """Run the command, write and show the report; return the exit status."""
        try:
            recording, ending = self._record(command)
            report, spared = self._complete(recording, ending)
            self._options.report.parent.mkdir(parents=True, exist_ok=True)  # tests may clean their folder
            codec.dump(report, self._options.report)
        except BaseException as error:
            with suppress(OSError):
                self._options.report.unlink()  # whatever is there, the parent did not write it
            if not isinstance(error, OSError):
                raise
            sys.stderr.write(f"--tdd-agent-report: {error.filename}: {error.strerror}\n")
            return int(pytest.ExitCode.INTERNAL_ERROR)
        status = find_exit_status(report, ending, runs_tests=self._runs_tests)
        try:
            self._print(report, spared=len(spared), notes=list_notes(report, recording.running, ending=ending))
            sys.stdout.flush()
        except (OSError, AttributeError):
            return status or 1  # pytest, too, ends with 1 if nobody reads what it prints
        return status

    def _print(self, report: SuiteReport, *, spared: int, notes: list[str]) -> None:
        is_refused = report.problem is not None and report.problem.code == "no_start" and report.exit_status == _REFUSED
        if self._options.is_printed:
            sys.stdout.write(read_bytes(str(self._options.report)).decode("ascii"))
        elif not (self._is_quiet or is_refused):  # pytest has said why it refused
            self._show(report, spared=spared, notes=notes)

    def _record(self, command: list[str]) -> tuple[Recording, ProcessEnd]:
        ending = self._child.run(
            command,
            environment={**os.environ, RECORDS: str(self._child.descriptor)},
            output=2 if self._options.is_printed else None,  # standard output is for the report alone
            receive=self._assembler.feed,
        )
        return self._assembler.finish(_as_in_a_shell(ending.status)), ending

    def _complete(self, recording: Recording, ending: ProcessEnd) -> tuple[SuiteReport, set[str]]:
        """Return the report with what only the parent knows for sure, and the node ids that the gate spares."""
        options, base = self._options, self._base
        found = recording.report or replace(base, exit_status=_as_in_a_shell(ending.status))
        report = replace(
            base,
            **{name: vars(found)[name] for name in _FROM_RECORDS},
            duration_s=found.duration_s or round(perf_counter() - self._start_s, 3),
            fingerprints={**found.fingerprints, **base.fingerprints},
            problem=recording.problem,
        )
        if options.gate is None:
            return report, set()
        if options.gate == "red" and options.baseline is not None:
            report = replace(report, old_failures=list_failing(options.baseline))
        return apply_gate(options.gate, report, options=options, judge=gate.judge)

    def _show(self, report: SuiteReport, *, spared: int, notes: list[str]) -> None:
        causes, flaky = screen.Causes(), screen.Causes()
        for error in report.collect_errors:
            causes.add_error(error)
        for case in report.tests:
            if case.outcome != "passed" or case.reruns:
                causes.add(case)
            if case.outcome == "passed" and case.reruns:
                flaky.add(case)
        counts = count_outcomes(report)
        lines = screen.format_summary(
            report, counts=counts, causes=causes, flaky=flaky, spared=spared, where=self._shown_path
        )
        writer = TerminalWriter(sys.stdout)
        if notes:
            writer.line()  # the process may have ended in the middle of a line
        writer.sep("=", "tdd-agent")
        for line in (*notes, *lines):
            # With line ends or escape sequences, a message of a test could imitate a verdict, or erase one.
            writer.line("".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in line))


_FROM_RECORDS = (
    "complete",
    "exit_status",
    "tests",
    "collect_errors",
    "collected",
    "deselected",
    "warnings",
    "audited",
    "signs",
    "internal_error",
)
"""Fields of the report that only the test process knows."""


def _compute_fingerprints(config: pytest.Config) -> dict[str, str]:
    """Return the digests from before any code of the project runs, so none can choose what they say."""
    path = list(sys.path)
    with suppress(ValueError):  # without pytest's plugin for it
        path += map(str, config.getini("pythonpath"))
    return fingerprint.compute_digests(
        config.rootpath,
        inifile=config.inipath,
        python_files=config.getini("python_files"),
        testpaths=config.getini("testpaths"),
        entries=fingerprint.list_import_entries(config.rootpath, path),
    )


class StreamFile:
    """The stream that users follow while the tests run; nothing is read back from it."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to a file without a buffer."""
        self._file = file
        self._last_begun = ""

    def write(self, record: codec.Value, text: bytes) -> None:
        """Write a record as the test process would write it into a file: without the results, which the report has."""
        last, self._last_begun, event = self._last_begun, "", record["event"].text()
        if event in ("settings", "skipped"):
            return
        if event == "begin":
            self._last_begun = record["nodeid"].text()
        if event == "test":
            case = record["case"]
            nodeid = case["nodeid"].text()
            name = {} if nodeid == last else {"nodeid": nodeid}
            text = encode_json({"event": "test", **name, "outcome": case["outcome"].text()}).encode("ascii")
        if event == "finish":
            text = encode_json({"event": "finish", "exit_status": record["exit_status"].integer()}).encode("ascii")
        with suppress(OSError):  # a full disk shows when the report is written
            self._file.write(text + b"\n")


def _as_in_a_shell(status: int) -> int:
    return 128 - status if status < 0 else status


def find_exit_status(report: SuiteReport, ending: ProcessEnd, *, runs_tests: bool = True) -> int:
    """Return the exit status of the whole run.

    That of the process stays if something other than pytest chose it, unless it is 0. ``runs_tests``: no option limits
    the run to collecting tests, or to their fixtures.
    """
    status, verdict = _as_in_a_shell(ending.status), report.gate
    if report.problem is not None:
        return status or int(pytest.ExitCode.TESTS_FAILED)
    if verdict is None or report.exit_status in OWN_STATUSES:
        # Code under test can call `pytest.exit(returncode=0)`, or change the session's count of failures.
        has_failed = report.collect_errors or any(each.outcome in FAILING for each in report.tests)
        return status or report.exit_status or int(bool(has_failed or (runs_tests and not report.complete)))
    return status or int(not verdict.open)  # with a gate, a session that ends regularly has 0


def list_notes(report: SuiteReport, running: tuple[str, ...], *, ending: ProcessEnd) -> list[str]:
    """Return what the user must know before the results."""
    notes = []
    how = f"ended with status {ending.status}"
    if ending.status < 0:
        how = f"was ended by {signal.Signals(-ending.status).name}"
    problem = report.problem
    if problem is not None and problem.code in UNFINISHED:
        more = f" and {len(running) - _MOST_SHOWN} more" if len(running) > _MOST_SHOWN else ""
        tests = f" while {', '.join(running[:_MOST_SHOWN])}{more} ran" if running else ""
        notes.append(f"the test process {how}{tests}")
    elif problem is not None:
        notes.append(f"do not trust the results: {explain(problem)}.")
    elif report.gate is None and ending.status != report.exit_status:
        notes.append(f"the test process {how}, although pytest's own status was {report.exit_status}")
    elif report.gate is not None and ending.status not in (0, *OWN_STATUSES):
        notes.append(f"the test process {how} after its tests")
    if ending.survivors is None:
        notes.append("processes that the tests left may still run: this system does not tell which there are")
    elif ending.survivors:
        pids = ", ".join(map(str, ending.survivors[:_MOST_SHOWN]))
        notes.append(f"{len(ending.survivors)} processes that the tests left could not be ended, such as {pids}")
    return notes
