"""The hooks of the plugin: registration in each process, and the end of a run.

Under xdist, workers only observe their tests; the controlling process writes the report. An error in the plugin never
breaks a run: ``Guard`` catches it and the report is marked as incomplete, which closes every gate.
This module contains no assertions: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import os
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Callable, Generator, TextIO

import pytest

from . import codec, fingerprint, gate, screen
from .comparison import find_spared, find_unstable
from .options import (
    ACTIVE,
    DEFAULT_REPORT,
    NO_PARENT,
    PluginOptions,
    format_now,
    is_inherited,
    is_report_of_outer_run,
    read_options,
)
from .recording.recorder import CollectionRecorder, Recorder
from .recording.rerun import ControllerListener, Listener, Rerunner, WorkerListener
from .recording.spool import Spool, Stream, remove_abandoned
from .recording.witness import Guard, Witness, WorkerWitness
from .report import OUTCOMES, SCHEMA, Case, Sign, SuiteReport, Verdict, list_failing, replace
from .system import PYTHON, System, bind_builtins, exists, read_bytes
from .time_limit import LaterTests, TimeLimit
from .unstarted import CHANNEL

if TYPE_CHECKING:
    from _pytest.capture import CaptureManager

    from .tampering import TamperingWatch

bind_builtins(globals())


OWN_STATUSES = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
"""Exit statuses of a run that was interrupted, failed itself, or was refused."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that this process needs and, in the controlling process, start the report."""
    if is_inherited(config):
        return
    guard = Guard()
    witness = Witness(config, guard)
    options = read_options(config, config.option)
    is_worker = hasattr(config, "workerinput")
    if not is_worker and is_report_of_outer_run(options.report):
        return
    watch = None
    if options.is_audited:
        from .tampering import register

        watch = register(config, guard)
    config.pluginmanager.register(witness, "tdd-agent-witness")
    if is_worker:
        config.pluginmanager.register(WorkerWitness(config, witness), "tdd-agent-worker-witness")
        _register_limit(config, options, witness=witness, descriptor=2)
        _register_rerunner(config, options, witness=witness, guard=guard, listener=WorkerListener(config))
        return
    if options.gate is not None:
        config.option.continue_on_collection_errors = True
        config.option.maxfail = 0
    recorder = _start_recording(config, options, witness=witness, guard=guard)
    active = os.environ.get(ACTIVE, "")
    os.environ[ACTIVE] = os.pathsep.join(filter(None, (active, os.path.realpath(str(options.report)))))
    closing = Closing(config, options, recorder=recorder, watch=watch)
    config.add_cleanup(lambda: _restore_environment(active))
    config.add_cleanup(closing.end)
    config.pluginmanager.register(recorder.collection, "tdd-agent-collection")
    config.pluginmanager.register(recorder, "tdd-agent-recorder")
    config.pluginmanager.register(closing, "tdd-agent-closing")
    config.pluginmanager.register(FirstReport(closing), "tdd-agent-first-report")
    _register_limit(config, options, witness=witness, descriptor=recorder.stream.descriptor)
    reruns = ControllerListener(recorder.stream, spool=recorder.spool, guard=guard)
    _register_rerunner(config, options, witness=witness, guard=guard, listener=reruns)


def _register_limit(config: pytest.Config, options: PluginOptions, *, witness: Witness, descriptor: int) -> None:
    if options.test_timeout_s and not config.option.usepdb:
        limit = TimeLimit(options.test_timeout_s, witness=witness, descriptor=descriptor)
        config.pluginmanager.register(limit, "tdd-agent-time-limit")
        config.pluginmanager.register(LaterTests(options.test_timeout_s, witness), "tdd-agent-later-tests")


def _register_rerunner(
    config: pytest.Config, options: PluginOptions, *, witness: Witness, guard: Guard, listener: Listener
) -> None:
    if options.flaky:
        rerunner = Rerunner(options, witness=witness, guard=guard, listener=listener)
        config.pluginmanager.register(rerunner, "tdd-agent-rerunner")
        config.pluginmanager.register(listener, "tdd-agent-reruns")


def _start_recording(config: pytest.Config, options: PluginOptions, *, witness: Witness, guard: Guard) -> Recorder:
    """Send the first records, or open the files of a run; raises pytest.UsageError if that fails."""
    channel = config.stash.get(CHANNEL, None)
    stream, spool = _open_files(config, options) if channel is None else (Stream(channel), Spool(None))
    plugins = {f"{dist.project_name}-{dist.version}" for _, dist in config.pluginmanager.list_plugin_distinfo()}
    stream.send(
        "start",
        schema=SCHEMA,
        nonce=options.nonce,
        python=PYTHON,
        pytest=pytest.__version__,
        rootdir=str(config.rootpath),
        inifile=None if config.inipath is None else str(config.inipath),
        args=[str(arg) for arg in config.invocation_params.args],
        plugins=sorted(plugins),
        pid=os.getpid(),
        time=format_now(),
        # Nobody keeps it, so that no code under test can continue the digests of the records.
        **({"salt": os.urandom(16).hex()} if stream.is_whole else {}),
    )
    collection = CollectionRecorder(
        stream, spool=spool, guard=guard, is_each=getattr(config.option, "dist", "no") == "each"
    )
    return Recorder(stream, spool=spool, collection=collection, witness=witness, guard=guard)


def apply_gate(
    phase: str, report: SuiteReport, *, options: PluginOptions, judge: Callable[..., Verdict]
) -> tuple[SuiteReport, set[str]]:
    """Return the report with the verdict of a gate, and the node ids that the gate spares."""
    verdict = judge(phase, report, baseline=options.baseline, targets=options.targets, expects=options.expects)
    report = replace(report, gate=verdict)
    if phase == "red" and options.baseline is not None:
        report = replace(report, unstable=find_unstable(report, options.baseline))
    return report, find_spared(report, verdict, baseline=options.baseline)


def prepare_files(config: pytest.Config, options: PluginOptions) -> None:
    """Remove the report of an earlier run; raises pytest.UsageError if that fails."""
    folder = options.report.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder == config.rootpath / DEFAULT_REPORT.parent:
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        if options.report.exists():
            options.report.unlink()
        remove_abandoned(options.report)
    except OSError as error:
        raise _refuse_report(error) from error


def _open_files(config: pytest.Config, options: PluginOptions) -> tuple[Stream, Spool]:
    prepare_files(config, options)
    try:
        return Stream(options.stream), Spool(options.spool)
    except OSError as error:
        raise _refuse_report(error) from error


def _refuse_report(error: OSError) -> pytest.UsageError:
    return pytest.UsageError(f"--tdd-agent-report: {error.filename}: {error.strerror}")


def _restore_environment(active: str) -> None:
    if active:
        os.environ[ACTIVE] = active
    else:
        os.environ.pop(ACTIVE, None)


class Closing:
    """Hooks of the controlling process that end a run: verdict, report, exit status and terminal section."""

    def __init__(
        self, config: pytest.Config, options: PluginOptions, *, recorder: Recorder, watch: TamperingWatch | None
    ) -> None:
        """Compute the fingerprints before any test can change a file."""
        self._rootdir = str(config.rootpath)
        self._options = options
        self._path = str(options.report)
        self._shown_path = os.path.relpath(self._path, str(config.invocation_params.dir))
        self._no_parent = config.stash.get(NO_PARENT, None)
        self._recorder = recorder
        self._signs = (
            None if watch is None else watch.find_signs
        )  # bound now, because code under test may replace these later
        self._judge, self._dump = gate.judge, codec.dump
        self._started_at = format_now()
        self._clock = perf_counter  # bound now, because tests may replace it in every module
        self._start_s = perf_counter()
        self._report: SuiteReport | None = None
        self._written: tuple[object, ...] = ()
        """The exit status, the recorded events and the file of the last report."""
        self._counts = dict.fromkeys(OUTCOMES, 0)
        self._causes = screen.Causes()
        self._flaky = screen.Causes()
        self._not_passed: set[str] = set()
        self._spared: set[str] = set()
        self._fingerprints: dict[str, str] = {}
        self._has_started = False
        self._printer = ScreenPrinter(config) if options.is_printed else None
        with recorder.guard:
            self._fingerprints = fingerprint.compute_digests(
                config.rootpath,
                inifile=config.inipath,
                python_files=config.getini("python_files"),
                testpaths=config.getini("testpaths"),
                entries=fingerprint.list_import_entries(config.rootpath, sys.path),
            )
            if watch is not None:
                watch.watch_sources(self._fingerprints)
            if recorder.stream.is_whole:
                recorder.stream.send(
                    "settings",
                    audited=watch is not None,
                    each=getattr(config.option, "dist", "no") == "each",
                    flaky=options.flaky,
                    test_timeout_s=options.test_timeout_s,
                    fingerprints=self._fingerprints,
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Silence pytest's own output if standard output is reserved for the report."""
        self._has_started = True
        if self._printer is not None:
            self._printer.silence()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report again if other hooks have changed anything, and set the exit status if there is a gate."""
        verdict = self.judge(int(exitstatus))
        if self._options.gate is not None and int(exitstatus) not in OWN_STATUSES:
            # Another process that judges learns by 0 that the session ended regularly.
            is_open = self._recorder.stream.is_whole or (verdict is not None and verdict.open)
            session.exitstatus = 0 if is_open else 1

    def judge(self, status: int) -> Verdict | None:
        """Judge the run and write the report; do nothing if that was done since the last event."""
        if not self._recorder.stream.is_ours():
            return None
        if self._recorder.stream.is_whole:
            self._send_finish(status)
            return None
        with self._recorder.guard:
            if self._written != (status, self._recorder.stream.sent, self._identify_file()):
                self._recorder.stream.send("finish", exit_status=status)
                self._write(status)
                self._written = status, self._recorder.stream.sent, self._identify_file()
        return None if self._report is None or self._recorder.guard.fault else self._report.gate

    def _send_finish(self, status: int) -> None:
        """Send everything else that the report needs, unless that was done since the last event."""
        recorder = self._recorder
        signs: tuple[Sign, ...] = ()
        if self._written == (status, recorder.stream.sent):
            return
        with recorder.guard:
            if self._signs is not None:
                signs = self._signs(recorder.not_passed.difference(recorder.spool.list_rescued()))
        with recorder.guard:
            recorder.stream.send(
                "finish",
                exit_status=status,
                duration_s=round(self._clock() - self._start_s, 3),
                warnings=recorder.warnings,
                deselected=recorder.collection.deselected,
                signs=[codec.sign_to_json(sign) for sign in signs],
                fault=recorder.guard.fault,
            )
            self._written = status, recorder.stream.sent

    def _identify_file(self) -> tuple[int, ...]:
        return codec.describe_file(System.stat(self._path)) if exists(self._path) else ()

    def _write(self, status: int) -> None:
        recorder, options = self._recorder, self._options
        report = self._build_report(status, tests=tuple(self._count_tests()))
        if options.gate is not None:
            report, self._spared = apply_gate(options.gate, report, options=options, judge=self._judge)
        self._report = report
        self._dump(report, self._path, counts=self._counts, lines=recorder.spool.iterate_lines())

    def _count_tests(self) -> list[Case]:
        """Count tests and causes of failure; return the tests if there is a gate."""
        self._causes, self._flaky, self._not_passed = screen.Causes(), screen.Causes(), set()
        counts = self._counts = dict.fromkeys((*OUTCOMES, "collected", "deselected", "flaky"), 0)
        counts["collected"], counts["deselected"] = (
            self._recorder.collection.collected,
            self._recorder.collection.deselected,
        )
        for error in self._recorder.collection.errors.values():
            self._causes.add_error(error)
        cases = []
        for line, case in self._recorder.spool.iterate_cases():
            counts["passed" if case is None else case.outcome] += 1
            if case is not None:
                counts["flaky"] += case.outcome == "passed"
                self._causes.add(case)
                if case.outcome == "passed":
                    self._flaky.add(case)
                if case.outcome != "passed":
                    self._not_passed.add(case.nodeid)
            if self._options.gate is not None:
                cases.append(codec.case_from_line(line) if case is None else case)
        return cases

    def _build_report(self, status: int, *, tests: tuple[Case, ...]) -> SuiteReport:
        recorder = self._recorder
        baseline = self._options.baseline
        signs = () if self._signs is None else self._signs(self._not_passed)
        return SuiteReport(
            complete=recorder.is_complete() and status not in OWN_STATUSES,
            exit_status=status,
            nonce=self._options.nonce,
            python=PYTHON,
            pytest=pytest.__version__,
            rootdir=self._rootdir,
            started_at=self._started_at,
            duration_s=round(self._clock() - self._start_s, 3),
            tests=tests,
            collect_errors=tuple(recorder.collection.errors.values()),
            fingerprints=self._fingerprints,
            collected=recorder.collection.collected,
            deselected=recorder.collection.deselected,
            old_failures=() if baseline is None or self._options.gate != "red" else list_failing(baseline),
            warnings=recorder.warnings,
            audited=self._signs is not None,
            signs=signs,
            internal_error=recorder.internal_error,
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the verdict with its reasons or the causes of failure, and the path of the report."""
        if not self._recorder.stream.is_ours() or self._recorder.stream.is_whole:
            return
        with self._recorder.guard:
            terminalreporter.section("tdd-agent")
            for line in self._format_summary():
                terminalreporter.write_line(line)

    def _format_summary(self) -> list[str]:
        report, fault = self._report, self._recorder.guard.fault
        if report is None or fault is not None:
            return [f"do not trust the report: pytest_tdd_agent failed: {fault}"]
        lines = screen.format_summary(
            report,
            counts=self._counts,
            causes=self._causes,
            flaky=self._flaky,
            spared=len(self._spared),
            where=self._shown_path,
        )
        return lines if self._no_parent is None else [*lines, f"judged without a parent process: {self._no_parent}"]

    def end(self) -> None:
        """Close the files. A run that ended before its session gets a report too."""
        recorder = self._recorder
        if not recorder.stream.is_ours():
            return
        with recorder.guard:
            if self._report is None and not self._written:
                if recorder.stopped_with is None:
                    own = pytest.ExitCode.INTERNAL_ERROR if self._has_started else pytest.ExitCode.USAGE_ERROR
                    recorder.stopped_with = int(own)
                if recorder.stream.is_whole:
                    self.judge(recorder.stopped_with)
                else:
                    self._write(recorder.stopped_with)
        with recorder.guard:
            recorder.stream.send("end")
            recorder.stream.close()
            recorder.spool.close()
        if self._printer is not None and not recorder.stream.is_whole:
            with recorder.guard:
                self._printer.print(self._path)


class FirstReport:
    """The hook that writes the report before other plugins end the session, because one of them may end the process."""

    def __init__(self, closing: Closing) -> None:
        """Let ``closing`` write it."""
        self._closing = closing

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, None, None]:
        """Write the report, then call the other hooks."""
        self._closing.judge(int(exitstatus))
        yield


class ScreenPrinter:
    """Reserves standard output for the report."""

    def __init__(self, config: pytest.Config) -> None:
        """Redirect the descriptor to standard error, because hooks and tests could print into the report."""
        self._config = config
        self._output: TextIO = sys.stdout
        self._saved_descriptor: int | None = None
        if self._is_descriptor():
            sys.stdout.flush()
            capture = self._stop_capture()
            self._saved_descriptor = os.dup(1)
            os.dup2(2, 1)
            if capture is not None:
                capture.start_global_capturing()
                capture.suspend_global_capture(in_=False)

    def _is_descriptor(self) -> bool:
        try:
            return sys.stdout.fileno() == 1
        except (OSError, ValueError, AttributeError):
            return False  # the program that called pytest replaced standard output

    def _stop_capture(self) -> CaptureManager | None:
        # Capturing restores the descriptor that it saved, so it must be restarted after a redirect.
        capture: CaptureManager | None = self._config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
        return capture

    def silence(self) -> None:
        """Discard pytest's own output."""
        if self._config.pluginmanager.has_plugin("terminalreporter"):
            writer = self._config.get_terminal_writer()
            self._output = writer._file
            writer._file = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")

    def print(self, report: str) -> None:
        """Restore standard output and print the report."""
        text = read_bytes(report).decode("ascii")
        if self._saved_descriptor is None:
            self._output.write(text)
            self._output.flush()
            return
        self._stop_capture()
        sys.stdout.flush()
        System.dup2(self._saved_descriptor, 1)
        with open(self._saved_descriptor, "w", encoding="ascii") as output:
            output.write(text)
