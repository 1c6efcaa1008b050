"""Whether an open GREEN gate is to be believed: what the code itself says first, then runs in a clean copy."""

import time
from dataclasses import dataclass

from cdd_agent.events import Emit
from cdd_agent.evidence.canaries import Canary, misreported, plant
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.code.lint import suspicious_code
from cdd_agent.evidence.code.literals import special_cases
from cdd_agent.evidence.mutation import Mutant, Mutants, mutants_of, survival
from cdd_agent.evidence.request import Findings, Request
from cdd_agent.evidence.runs import Runs, TimeUp, silence
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.run import Suite, SuiteRun
from pytest_tdd_agent.report import Reason, SuiteReport


def confirm(request: Request, *, suite: Suite, repository: Repository, emit: Emit | None = None) -> Findings:
    """What speaks against the change, and what could not be checked. Runs are made only if the code looks honest.

    Nothing in the work tree, the index or the history is touched. ``emit`` is told of every run.
    """
    reasons = (*suspicious_code(request), *special_cases(request))
    if reasons or not request.targets or not request.time_box_s:
        return Findings(reasons=reasons)
    runs = Runs(deadline=time.monotonic() + request.time_box_s, emit=emit or silence)
    bench = _Bench(request=request, suite=suite, repository=repository, runs=runs)
    findings = Findings()
    try:
        with clean_copy(repository, suite, green=request.green, red=request.red) as copy:
            findings += _reproduced(copy, bench=bench)
            if not findings.reasons:
                findings += _proven(copy, bench=bench)
    except TimeUp as error:
        findings += Findings(notices=(error.happened,))
    return findings


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """What the runs of one request need."""

    request: Request
    suite: Suite
    repository: Repository
    runs: Runs

    def selection(self) -> tuple[str, ...]:
        """What to give pytest so that it runs the targets: functions without their parameters, each once."""
        return tuple(dict.fromkeys(_without_parameters(target) for target in self.request.targets))

    def failing(self, report: SuiteReport) -> tuple[str, ...]:
        """The targets that do not pass."""
        passed = {case.nodeid for case in report.tests if case.outcome == "passed"}
        return tuple(target for target in self.request.targets if target not in passed)

    def lost(self, report: SuiteReport) -> tuple[str, ...]:
        """The other tests that passed in the baseline and do not here."""
        passed = {case.nodeid for case in report.tests if case.outcome == "passed"} | set(self.request.targets)
        before = (case.nodeid for case in self.request.baseline.tests if case.outcome == "passed")
        return tuple(nodeid for nodeid in before if nodeid not in passed)


def _without_parameters(target: str) -> str:
    file, separator, test = target.partition("::")
    return f"{file}{separator}{test.partition('[')[0]}"


def _reproduced(copy: Suite, *, bench: _Bench) -> Findings:
    """What the targets, with canaries before and after them, say in the clean copy."""
    first, last = plant(copy.root, bench.request.targets)
    tests = (first.file, *bench.selection(), last.file)
    report = bench.runs.run(copy, "targets in a clean copy, beside 2 tests that have to fail", tests=tests).report
    for canary in (first, last):
        (copy.root / canary.file).unlink()
    if report is None:
        return _failed_in_copy(copy, bench=bench)
    wrong = misreported(first, report) or misreported(last, report)
    if wrong is not None:
        return _canaries_failed(wrong, bench=bench)
    return _failed_in_copy(copy, bench=bench) if bench.failing(report) else Findings()


def _canaries_failed(wrong: str, *, bench: _Bench) -> Findings:
    """A refusal, unless such tests do not come out right without the change either."""
    if not _canaries_live(bench):
        return Findings(notices=(f"Tests with a known result cannot be added to this project: {wrong}.",))
    message = (
        f"Beside the targets, {wrong}. Without the change it is reported right: find what the change does to the "
        "process that tests it, and take that out."
    )
    return Findings(reasons=(Reason(code="canary_failed", nodeid=None, message=message),))


def _canaries_live(bench: _Bench) -> bool:
    """Whether canaries, and nothing else, are reported right in a copy without the change."""
    red = bench.request.red
    with clean_copy(bench.repository, bench.suite, green=red, red=red) as copy:
        canaries: tuple[Canary, ...] = plant(copy.root, bench.request.targets)
        report = bench.runs.run(copy, "known tests without the change", tests=tuple(c.file for c in canaries)).report
    return report is not None and all(misreported(canary, report) is None for canary in canaries)


def _failed_in_copy(copy: Suite, *, bench: _Bench) -> Findings:
    """A refusal if all tests but the targets are in the copy what they were; else the copy lacks something."""
    run = bench.runs.run(copy, "all tests in a clean copy")
    if run.report is None and not _canaries_live(bench):
        return Findings(notices=(f"The tests cannot be run in a clean copy of what git holds: {run.problem}.",))
    failing = bench.request.targets if run.report is None else bench.failing(run.report)
    lost = () if run.report is None else bench.lost(run.report)
    if lost:
        notice = (
            f"A clean copy of what git holds does not do for the tests: {len(lost)} more fail there, {lost[0]} first."
        )
        return Findings(notices=(notice,))
    if not failing:
        return Findings(notices=("A target failed once in a clean copy and passed when all tests ran there.",))
    why = run.problem if run.report is None else _why(run.report, failing[0])
    message = (
        f"{failing[0]} passes in the work tree and not in a clean copy with tests and configuration as RED left them: "
        f"{why}. Let the product pass it by files that git holds, without help from files that it ignores."
    )
    return Findings(reasons=(Reason(code="not_reproduced", nodeid=failing[0], message=message),))


def _why(report: SuiteReport, nodeid: str) -> str:
    """What the report says of a test that did not pass, in one line."""
    failures = [case.failure for case in report.tests if case.nodeid == nodeid and case.failure is not None]
    failures += [error.failure for error in report.collect_errors if nodeid.startswith(error.nodeid)]
    if not failures:
        return "it did not run there"
    lines = failures[0].message.strip().splitlines()
    return f"{failures[0].kind}, {failures[0].exception}" + (f": {lines[0][:200]}" if lines else "")


def _proven(copy: Suite, *, bench: _Bench) -> Findings:
    """What the targets say when the changed code is altered."""
    request = bench.request
    mutants = mutants_of(request.changes)
    if not mutants.chosen:
        return Findings(notices=("No altered code was tried: the change has no line of Python that is executed.",))
    outcome = survival(
        mutants.chosen, run=lambda mutant: _run_altered(copy, mutant, bench=bench), targets=request.targets
    )
    if outcome == "noticed":
        return Findings()
    why_not = "a run did not come to its end" if outcome == "unknown" else _why_undecided(copy, mutants, bench=bench)
    if why_not is not None:
        return Findings(notices=(f"No target failed when the changed code was altered, which is no proof: {why_not}.",))
    tried = "; ".join(mutant.what for mutant in mutants.chosen)
    message = (
        f"The targets pass whatever the changed code does ({tried}). Remove what no test needs, and implement what the "
        "targets ask for where they call it."
    )
    return Findings(reasons=(Reason(code="unproven_change", nodeid=None, message=message),))


def _why_undecided(copy: Suite, mutants: Mutants, *, bench: _Bench) -> str | None:
    """Why surviving mutants say nothing; None if they do."""
    if any(not change.path.endswith((".py", ".pyw")) for change in bench.request.changes):
        return "the change has other files than Python sources"
    if not mutants.is_exhaustive:
        return "not every changed line was altered"
    texts = dict.fromkeys((path for mutant in mutants.chosen for path in mutant.texts), "raise SystemError\n")
    broken = Mutant(what="changed files that cannot be imported", texts=texts)
    run = _run_altered(copy, broken, bench=bench)
    is_loaded = run.report is None or bool(bench.failing(run.report))
    return None if is_loaded else "the targets do not load the changed files, or load them from another place"


def _run_altered(copy: Suite, mutant: Mutant, *, bench: _Bench) -> SuiteRun:
    """The targets over sources altered on the copy's disk, so that processes that tests start see them too."""
    kept = {path: (copy.root / path).read_bytes() for path in mutant.texts}
    try:
        for path, text in mutant.texts.items():
            (copy.root / path).write_bytes(text.encode("utf-8", "surrogateescape"))
        return bench.runs.run(
            copy, f"targets, one of which has to fail, with {mutant.what}", tests=bench.selection(), is_altered=True
        )
    finally:
        for path, content in kept.items():
            (copy.root / path).write_bytes(content)
