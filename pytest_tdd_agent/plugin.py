"""The hooks: gather what happens, ask the gate, write the report, set the exit status.

Under xdist each worker has only the ``Witness``; the report is the controlling process's. No fault of the plugin
breaks a run: the ``Guard`` keeps it, the report is marked as incomplete, and so every gate is closed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from json import loads
from pathlib import Path
from platform import python_version
from time import perf_counter
from typing import Sequence

import pytest

from . import codec, failure, fingerprint, gate
from . import report as reports
from .recording.stream import Stream
from .recording.tally import Tally
from .recording.witness import ATTRIBUTE, Guard, Witness
from .report import CollectError, Failure, SuiteReport, Verdict

_DEFAULT_REPORT = Path(".tdd-agent", "report.json")
_ACTIVE = "PYTEST_TDD_AGENT_ACTIVE"
_SUBTESTS = ("SubtestReport", "SubTestReport")
_OWN_STATUSES = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
_SHOWN_REASONS = 20


@dataclass(frozen=True)
class Options:
    """What the command line asks of the plugin."""

    report: Path
    """Absolute."""
    stream: Path
    """Absolute."""
    gate: str | None
    targets: tuple[str, ...]
    expects: tuple[str, ...]
    nonce: str
    baseline: SuiteReport | None


def read_options(config: pytest.Config) -> Options:
    """Return the options of a run; raises pytest.UsageError for those that do not fit together or cannot be read."""
    option = config.option
    chosen: str | None = option.tdd_agent_report
    report = config.invocation_params.dir / chosen if chosen else config.rootpath / _DEFAULT_REPORT
    if report.name == "-" or report.suffix == ".jsonl":
        raise pytest.UsageError(
            f"--tdd-agent-report: {chosen}: name a file such as report.json; .jsonl is its stream's"
        )
    phase: str | None = option.tdd_agent_gate
    if phase is None and (option.tdd_agent_target or option.tdd_agent_expects or option.tdd_agent_baseline):
        raise pytest.UsageError(
            "--tdd-agent-target, --tdd-agent-expects and --tdd-agent-baseline are for a gate: add --tdd-agent-gate"
        )
    baseline = None
    if option.tdd_agent_baseline:
        try:
            baseline = codec.load(config.invocation_params.dir / option.tdd_agent_baseline)
        except codec.ReportError as error:
            raise pytest.UsageError(f"--tdd-agent-baseline: {error}") from error
    return Options(
        report=report,
        stream=report.with_suffix(".jsonl"),
        gate=phase,
        targets=tuple(option.tdd_agent_target),
        expects=tuple(option.tdd_agent_expects),
        nonce=option.tdd_agent_nonce,
        baseline=baseline,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that this process needs and, in the controlling process, start the report."""
    guard = Guard()
    witness = Witness(config, guard)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(witness, "tdd-agent-witness")
        return
    options = read_options(config)
    active = os.environ.get(_ACTIVE, "")
    if str(options.report) in active.split(os.pathsep):
        return  # pytest inside a test of the run that writes this very report
    if options.gate is not None:
        config.option.continue_on_collection_errors = True
        config.option.maxfail = 0
    stream = _start(config, options)
    os.environ[_ACTIVE] = os.pathsep.join(filter(None, (active, str(options.report))))
    recorder = Recorder(stream, guard)
    closing = Closing(config, options, recorder=recorder)
    config.add_cleanup(lambda: _restore(active))
    config.pluginmanager.register(witness, "tdd-agent-witness")
    config.pluginmanager.register(recorder, "tdd-agent-recorder")
    config.pluginmanager.register(closing, "tdd-agent-closing")


def _start(config: pytest.Config, options: Options) -> Stream:
    folder = options.report.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder == config.rootpath / _DEFAULT_REPORT.parent:
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        for path in (options.report, options.stream):
            if path.exists():
                path.unlink()
        stream = Stream(options.stream)
    except OSError as error:
        raise pytest.UsageError(f"--tdd-agent-report: {error.filename}: {error.strerror}") from error
    plugins = {f"{dist.project_name}-{dist.version}" for _, dist in config.pluginmanager.list_plugin_distinfo()}
    stream.send(
        "start",
        schema=reports.SCHEMA,
        nonce=options.nonce,
        python=python_version(),
        pytest=pytest.__version__,
        rootdir=str(config.rootpath),
        inifile=None if config.inipath is None else str(config.inipath),
        args=[str(arg) for arg in config.invocation_params.args],
        plugins=sorted(plugins),
        pid=os.getpid(),
        time=_now(),
    )
    return stream


def _restore(active: str) -> None:
    if active:
        os.environ[_ACTIVE] = active
    else:
        os.environ.pop(_ACTIVE, None)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """Hooks of the controlling process that gather what happened, and stream it."""

    def __init__(self, stream: Stream, guard: Guard) -> None:
        """Record to a stream."""
        self.stream = stream
        self.guard = guard
        self.tally = Tally()
        self.collected: frozenset[str] = frozenset()
        self.collect_errors: dict[str, CollectError] = {}
        self.deselected = 0
        self.stopped = False
        """Pytest was interrupted or failed itself."""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the tests that are left out."""
        self.deselected += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests that will run."""
        with self.guard:
            self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the tests that will run; every worker collects the same."""
        with self.guard:
            if not self.collected:
                self._collected(ids)

    def _collected(self, ids: Sequence[str]) -> None:
        self.collected = frozenset(ids)
        names = sorted(ids)
        digest = sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        self.stream.send("collected", count=len(names), sha256=digest, nodeids=names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the count of deselected tests from an xdist worker; every worker has the same."""
        with self.guard:
            output: dict[str, int] = getattr(node, "workeroutput", {})
            self.deselected = max(self.deselected, output.get("tdd_agent_deselected", 0))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected, once."""
        if report.failed and report.nodeid not in self.collect_errors:
            with self.guard:
                found = _failure_of(report, "collect")
                self.collect_errors[report.nodeid] = CollectError(report.nodeid, found)
                self.stream.send("collect_error", nodeid=report.nodeid, failure=codec.failure_to_json(found))

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Say which test begins: if the process dies in it, this line names it."""
        with self.guard:
            file, line, _ = location
            self.tally.begin(nodeid, file=file.replace(os.sep, "/"), line=0 if line is None else line + 1)
            self.stream.send("begin", nodeid=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase."""
        with self.guard:
            if str(report.outcome) == "rerun":
                self.stream.send("rerun", nodeid=report.nodeid, count=self.tally.rerun(report.nodeid))
                return
            outcome = outcome_of(report)
            is_subtest = type(report).__name__ in _SUBTESTS
            if is_subtest and outcome not in ("failed", "error"):
                return
            when = report.when if report.when in ("setup", "call", "teardown") else "call"
            found = _failure_of(report, str(report.when)) if outcome in ("failed", "error") else None
            duration = 0.0 if is_subtest else report.duration
            self.tally.phase(report.nodeid, when, outcome=outcome, duration_s=duration, failure=found)
            if outcome != "passed":
                document = None if found is None else codec.failure_to_json(found)
                self.stream.send("phase", nodeid=report.nodeid, when=when, outcome=outcome, failure=document)
            if when != report.when:
                self.pytest_runtest_logfinish(report.nodeid)  # its worker died, so nobody else says so

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note what a test came to."""
        with self.guard:
            case = self.tally.finish(nodeid)
            if case is not None:
                self.stream.send("test", nodeid=nodeid, outcome=case.outcome, duration_s=case.duration_s)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note that the run was stopped: by Ctrl-C, ``pytest.exit`` or pytest itself."""
        self.stopped = True
        with self.guard:
            self.stream.send("interrupt", exception=excinfo.typename, message=failure.message_of(excinfo.value))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Note that pytest or a plugin failed."""
        self.stopped = True
        with self.guard:
            self.stream.send("internal_error", text=str(excrepr)[-failure.TEXT_CAP :])


def outcome_of(report: pytest.TestReport) -> str:
    """Return what one phase came to, in the words of ``report.OUTCOMES``."""
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed" if report.skipped else "failed"
    if report.failed and report.when in ("setup", "teardown"):
        return "error"
    return report.outcome


def _failure_of(report: pytest.TestReport | pytest.CollectReport, phase: str) -> Failure:
    attached: str | None = report.__dict__.get(ATTRIBUTE)
    text = str(report.longrepr)  # without the line on the worker that longreprtext puts before it
    found = failure.from_text(text, phase) if attached is None else codec.failure_from_json(loads(attached))
    return replace(found, text=text[-failure.TEXT_CAP :])


class Closing:
    """Hooks of the controlling process that end the run: the verdict, the report, the exit status, what is shown."""

    def __init__(self, config: pytest.Config, options: Options, *, recorder: Recorder) -> None:
        """Take the fingerprints, before any test can touch a file."""
        self._config = config
        self._options = options
        self._recorder = recorder
        self._started_at = _now()
        self._start_s = perf_counter()
        self._report: SuiteReport | None = None
        self._fingerprints: dict[str, str] = {}
        with recorder.guard:
            self._fingerprints = fingerprint.digests(config.rootpath, inifile=config.inipath)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge, write the report, and set the exit status if there is a gate to speak."""
        if not self._recorder.stream.is_ours():
            return
        status = int(exitstatus)
        if self._options.gate is not None and status not in _OWN_STATUSES:
            session.exitstatus = 1
        with self._recorder.guard:
            self._recorder.stream.send("finish", exit_status=status)
            report = self._gathered(status)
            verdict = self._verdict(report)
            self._report = replace(report, gate=verdict)
            codec.dump(self._report, self._options.report)
            if verdict is not None and verdict.open:
                session.exitstatus = 0

    def _gathered(self, status: int) -> SuiteReport:
        recorder = self._recorder
        tally = recorder.tally
        baseline = self._options.baseline
        ended = frozenset(tally.cases)
        stopped = recorder.stopped or status in _OWN_STATUSES or recorder.guard.fault is not None
        return SuiteReport(
            complete=not stopped and not tally.in_flight() and ended == recorder.collected,
            exit_status=status,
            nonce=self._options.nonce,
            python=python_version(),
            pytest=pytest.__version__,
            rootdir=str(self._config.rootpath),
            started_at=self._started_at,
            duration_s=round(perf_counter() - self._start_s, 3),
            tests=tuple(tally.cases.values()),
            collect_errors=tuple(recorder.collect_errors.values()),
            fingerprints=self._fingerprints,
            collected=len(recorder.collected),
            deselected=recorder.deselected,
            old_failures=() if baseline is None or self._options.gate != "red" else reports.failing(baseline),
        )

    def _verdict(self, report: SuiteReport) -> Verdict | None:
        options = self._options
        if options.gate is None:
            return None
        return gate.judge(
            options.gate, report, baseline=options.baseline, targets=options.targets, expects=options.expects
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the verdict with its reasons, or the counts, and where the report is."""
        with self._recorder.guard:
            terminalreporter.section("tdd-agent")
            for line in self._lines():
                terminalreporter.write_line(line)

    def _lines(self) -> list[str]:
        report, fault = self._report, self._recorder.guard.fault
        if report is None or fault is not None:
            return [f"no report can be trusted: pytest_tdd_agent failed: {fault}"]
        where = os.path.relpath(str(self._options.report), str(self._config.invocation_params.dir))
        if report.gate is None:
            shown = [f"{count} {name}" for name, count in reports.summary(report).items() if count]
            state = "" if report.complete else "incomplete run: "
            return [f"{state}{', '.join(shown) or 'no tests'}; report: {where}"]
        reasons = report.gate.reasons
        lines = [f"{report.gate.phase.upper()} gate: {'open' if report.gate.open else 'closed'}"]
        lines += [f"  {reason.code}: {reason.message}" for reason in reasons[:_SHOWN_REASONS]]
        if len(reasons) > _SHOWN_REASONS:
            lines.append(f"  and {len(reasons) - _SHOWN_REASONS} more reasons in the report")
        return [*lines, f"report: {where}"]

    def pytest_unconfigure(self) -> None:
        """Close the stream: ``end`` is its last line."""
        with self._recorder.guard:
            self._recorder.stream.send("end")
            self._recorder.stream.close()
