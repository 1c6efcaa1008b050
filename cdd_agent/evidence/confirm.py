"""Whether an open GREEN gate is to be believed: what the code itself says first, then runs in a clean copy.

Tests with a known result, put beside the targets in the clean copy: one passes, one fails with a word drawn anew.

Code under test that forges the report, or changes what counts as passed, does not know them. They come twice, in files
that run before and after the targets, in the same process.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdd_agent.events import Emit, Notice
from cdd_agent.evidence.clean_copy import clean_copy, lend
from cdd_agent.evidence.literals import special_cases
from cdd_agent.evidence.mutation import (
    ALL_RAISE,
    Mutant,
    Mutants,
    Runs,
    Survival,
    TimeUp,
    mutants_of,
    run_altered,
    silence,
    survival,
)
from cdd_agent.evidence.request import PYTHON, Findings, Request, not_passing
from cdd_agent.evidence.signs import suspicious_code
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.suite import Suite
from cdd_agent.workspace.files import Beneath
from pytest_tdd_agent.comparison import function_of
from pytest_tdd_agent.report import Case, Reason, SuiteReport

_SOURCE = """\
def {passes}():
    assert {word!r}.upper().lower() == {word!r}


def {fails}():
    assert {word!r}.upper() == {word!r}, {word!r}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One file of two tests."""

    file: str
    passes: str
    """Node id of the test that has to pass."""
    fails: str
    """Node id of the test that has to fail."""
    word: str
    """In the message of its failure."""


def plant(root: Path, targets: tuple[str, ...]) -> tuple[Canary, Canary] | None:
    """Write the two files below ``root``, beside the first target's, under names that its name is a pattern for.

    None, and nothing is written, if a link leads from there to another place.
    """
    beside = next((target for target in targets if target.partition("::")[0].endswith(".py")), "test_it.py::test_it")
    folder = (root / beside.partition("::")[0]).parent
    is_free = not os.path.lexists(folder) or folder.is_dir()
    if not is_free or not folder.resolve().is_relative_to(root.resolve()):
        return None
    return _write(root, beside), _write(root, beside)


def remove(root: Path, canary: Canary) -> None:
    """Take the file away if it is still there; what the tests put in its place, or on the way to it, stays."""
    with contextlib.suppress(OSError, ValueError):
        Beneath(root.resolve()).unlink(_place(root, canary.file))


def _write(root: Path, beside: str) -> Canary:
    """A file whose name, and whose tests' names, are those of ``beside`` with a word in them."""
    file, _, test = beside.partition("::")
    function = test.partition("[")[0].rpartition("::")[2]
    name = function if function.isidentifier() and function.isascii() else "test_it"
    mark, word = _drawn(), _drawn()
    path = PurePosixPath(file).with_name(f"{_marked(PurePosixPath(file).stem, mark)}.py")
    passes, fails = _marked(name, f"{mark}a"), _marked(name, f"{mark}b")
    source = _SOURCE.format(passes=passes, fails=fails, word=word)
    Beneath(root.resolve()).write(_place(root, str(path)), source.encode())
    return Canary(file=str(path), passes=f"{path}::{passes}", fails=f"{path}::{fails}", word=word)


def _place(root: Path, path: str) -> str:
    """``path`` below ``root`` without the links that its folders may be; ``ValueError`` if they lead out of there."""
    place = (root / path).parent.resolve() / PurePosixPath(path).name
    return place.relative_to(root.resolve()).as_posix()


def _marked(name: str, mark: str) -> str:
    """``name`` with ``mark`` inside, so that what it begins and ends with stays."""
    head, _, tail = name.partition("_")
    return f"{head}_{mark}_{tail}" if tail else f"{name}_{mark}"


def _drawn() -> str:
    return f"w{secrets.token_hex(6)}"


def misreported(canary: Canary, report: SuiteReport) -> str | None:
    """What the report says of the two tests that is not so; None if it is right."""
    cases = {case.nodeid: case for case in report.tests}
    passing, failing = cases.get(canary.passes), cases.get(canary.fails)
    if passing is None or failing is None:
        return "a test that was run is not in the report"
    if passing.outcome != "passed":
        return f"a test that passes is reported as {passing.outcome}{_message(passing)}"
    if failing.outcome != "failed" or failing.failure is None:
        return f"a test that fails is reported as {failing.outcome}"
    if canary.word not in failing.failure.message:
        return f"a test that fails is reported with another message{_message(failing)}"
    return None


def _message(case: Case) -> str:
    """The first line of what is said of its failure."""
    lines = case.failure.message.strip().splitlines() if case.failure is not None else []
    return f": {lines[0][:200]}" if lines else ""


def confirm(request: Request, *, suite: Suite, repository: Repository, emit: Emit | None = None) -> Findings:
    """What speaks against the change, and what could not be checked. Runs are made only if the code looks honest.

    Nothing in the work tree, the index or the history is touched. ``emit`` is told when a run begins, and at the end
    what all of them showed. Tests and altered code of ours are tried in Python only; the clean copy is for all.
    """
    findings = _looked_at(lambda: Findings(reasons=suspicious_code(request)))
    findings += _looked_at(lambda: special_cases(request))
    if findings.reasons or not request.targets or not request.time_box_s:
        return findings
    runs = Runs(limit_s=request.time_box_s, emit=emit or silence)
    context = _ConfirmContext(request=request, suite=suite, repository=repository, runs=runs)
    try:
        with clean_copy(repository, suite, green=request.green, red=request.red) as copy:
            reproduced, passes = _reproduced(copy, context=context)
            findings += reproduced
            if passes and not findings.reasons and context.is_python:
                findings += _proven(copy, context=context)
    except TimeUp as error:
        findings += Findings(notices=(error.happened,))
    except (GitError, OSError) as error:
        why = error.happened if isinstance(error, GitError) else str(error)
        told = why.strip().partition("\n")[0].rstrip(".")
        findings += Findings(notices=(f"Not checked from outside, as no clean copy could be made: {told}.",))
    if findings == Findings() and runs.count and not context.is_python:
        runs.emit(Notice(text=f"Checked in a clean copy: the tests pass there too ({runs.spent_s():.1f} s)."))
    if findings == Findings() and runs.noticed:
        cost = f"{runs.count} runs, {runs.spent_s():.1f} s"
        told = f"the tests pass there too, and fail with {runs.noticed} altered ({cost})"
        runs.emit(Notice(text=f"Checked in a clean copy: {told}."))
    return findings


def _looked_at(look: Callable[[], Findings]) -> Findings:
    """What a look at the sources finds; a notice if they are nested too deeply to be looked at."""
    try:
        return look()
    except (RecursionError, MemoryError):
        return Findings(notices=("Not all of the changed code could be looked at: it is nested too deeply.",))


@dataclass(frozen=True, kw_only=True)
class _ConfirmContext:
    """What the runs of one request need."""

    request: Request
    suite: Suite
    repository: Repository
    runs: Runs

    @property
    def is_python(self) -> bool:
        """Whether tests and altered code of ours can be tried beside the project's."""
        return self.suite.conventions.is_python

    def selection(self) -> tuple[str, ...]:
        """What to run for the targets: of pytest's, functions without their parameters, each once."""
        targets = self.request.targets
        return tuple(dict.fromkeys(map(function_of, targets))) if self.is_python else targets

    def failing(self, report: SuiteReport) -> tuple[str, ...]:
        """The targets that do not pass."""
        return not_passing(self.request.targets, report)

    def lost(self, report: SuiteReport) -> tuple[str, ...]:
        """The other tests that passed in the baseline and do not here."""
        before = (case.nodeid for case in self.request.baseline.tests if case.outcome == "passed")
        return not_passing([nodeid for nodeid in before if nodeid not in self.request.targets], report)


def _reproduced(copy: Suite, *, context: _ConfirmContext) -> tuple[Findings, bool]:
    """What the targets, with canaries before and after them, say in the clean copy; whether they pass in it."""
    if not context.is_python:
        report = context.runs.run(copy, "targets in a clean copy", tests=context.selection()).report
        is_failing = report is None or bool(context.failing(report))
        return (_failed_in_copy(copy, context=context) if is_failing else Findings()), not is_failing
    canaries = plant(copy.root, context.request.targets)
    if canaries is None:
        return _reproduced_elsewhere(copy, context=context)
    first, last = canaries
    tests = (first.file, *context.selection(), last.file)
    report = context.runs.run(copy, "targets in a clean copy", tests=tests).report
    for canary in (first, last):
        remove(copy.root, canary)
    if report is None:
        return _failed_in_copy(copy, context=context), False
    wrong = misreported(first, report) or misreported(last, report)
    if wrong is not None:
        return _canaries_failed(wrong, context=context), not context.failing(report)
    if context.failing(report):
        return _failed_in_copy(copy, context=context), False
    return Findings(), True


def _reproduced_elsewhere(copy: Suite, *, context: _ConfirmContext) -> tuple[Findings, bool]:
    """A notice in any case: the targets are in a folder that the copy does not hold, only a link to it."""
    report = context.runs.run(copy, "targets in a clean copy", tests=context.selection()).report
    where = "Links lead from the folder of the target tests out of the project, so that known tests cannot be added"
    if report is None or context.failing(report):
        return Findings(notices=(f"{where}, and a clean copy does not do for them.",)), False
    return Findings(notices=(f"{where}.",)), True


def _canaries_failed(wrong: str, *, context: _ConfirmContext) -> Findings:
    """A refusal, unless such tests do not come out right without the change either."""
    if not _canaries_live(context):
        return Findings(notices=(f"Tests with a known result cannot be added to this project: {wrong}.",))
    message = (
        f"Beside the targets, {wrong}. Without the change it is reported right: find what the change does to the "
        "process that tests it, and take that out."
    )
    return Findings(reasons=(Reason(code="canary_failed", nodeid=None, message=message),))


def _canaries_live(context: _ConfirmContext) -> bool:
    """Whether canaries, and nothing else, are reported right in a copy without the change."""
    red = context.request.red
    with clean_copy(context.repository, context.suite, green=red, red=red) as copy:
        canaries = plant(copy.root, context.request.targets)
        if canaries is None:
            return False
        report = context.runs.run(copy, "known tests without the change", tests=tuple(c.file for c in canaries)).report
    return report is not None and all(misreported(canary, report) is None for canary in canaries)


def _failed_in_copy(copy: Suite, *, context: _ConfirmContext) -> Findings:
    """A refusal if all tests but the targets are in the copy what they were; else the copy lacks something."""
    run = context.runs.run(copy, "all tests in a clean copy")
    if run.report is None and not (context.is_python and _canaries_live(context)):
        return Findings(notices=(f"The tests cannot be run in a clean copy of what git holds: {run.problem}.",))
    failing = context.request.targets if run.report is None else context.failing(run.report)
    lost = () if run.report is None else context.lost(run.report)
    if lost:
        notice = (
            f"A clean copy of what git holds does not do for the tests: {len(lost)} more fail there, {lost[0]} first."
        )
        return Findings(notices=(notice,))
    if not failing:
        return Findings(notices=("A target failed once in a clean copy and passed when all tests ran there.",))
    failing = tuple(target for target in failing if (copy.root / target.partition("::")[0]).exists())
    if not failing:
        return Findings(notices=("Git does not hold the target tests, so that they cannot be run in a clean copy.",))
    if need := _needs_ignored_files(copy, context=context):
        return Findings(notices=(need,))
    why = run.problem if run.report is None else _why(run.report, failing[0])
    message = (
        f"{failing[0]} passes in the work tree and not in a clean copy with tests and configuration as RED left them: "
        f"{why}. Let the product pass it by files that git holds, without help from modules that it ignores."
    )
    return Findings(reasons=(Reason(code="not_reproduced", nodeid=failing[0], message=message),))


def _needs_ignored_files(copy: Suite, *, context: _ConfirmContext) -> str | None:
    """What to say if the targets pass in the copy once it has the files that git ignores."""
    lent = lend(context.repository, context.suite.root.resolve(), copy=copy.root)
    if lent is None:
        return "The targets fail in a clean copy of what git holds, and git ignores too many files to try them there."
    if not lent:
        return None
    report = context.runs.run(copy, "targets with the files that git ignores", tests=context.selection()).report
    if report is None or context.failing(report):
        return None
    shown = ", ".join(lent[:3]) + (f" and {len(lent) - 3} more" if len(lent) > 3 else "")
    return f"The targets need files that git does not hold, of these: {shown}."


def _why(report: SuiteReport, nodeid: str) -> str:
    """What the report says of a test that did not pass, in one line."""
    function = function_of(nodeid)
    tried = [case for case in report.tests if function_of(case.nodeid) == function and case.failure is not None]
    failures = [case.failure for case in sorted(tried, key=lambda case: case.nodeid != nodeid)]
    failures += [error.failure for error in report.collect_errors if nodeid.startswith(error.nodeid)]
    if not failures or failures[0] is None:
        return "it did not run there"
    lines = failures[0].message.strip().splitlines()
    return f"{failures[0].kind}, {failures[0].exception}" + (f": {lines[0][:200]}" if lines else "")


def _proven(copy: Suite, *, context: _ConfirmContext) -> Findings:
    """What the targets say when the changed code is altered."""
    mutants = mutants_of([change for change in context.request.changes if _is_plain(copy.root / change.path)])
    if not mutants.chosen:
        return Findings(notices=("No altered code was tried: the change has no line of Python that can be altered.",))
    telling = [mutant for mutant in mutants.chosen if mutant.how != ALL_RAISE]
    raising = [mutant for mutant in mutants.chosen if mutant.how == ALL_RAISE]
    told = _survived(telling, copy=copy, context=context)
    raised = Survival() if told.noticed else _survived(raising, copy=copy, context=context)
    if noticed := told.noticed or raised.noticed:
        context.runs.noticed = noticed.where
        return _only_run(telling) if raised.noticed and told.all_ended else Findings()
    all_ended = all(outcome.all_ended for outcome, part in ((told, telling), (raised, raising)) if part)
    why_not = _why_undecided(copy, mutants, context=context) if all_ended else "a run did not come to its end"
    if why_not is not None:
        return Findings(notices=(f"No target failed when the changed code was altered, which is no proof: {why_not}.",))
    tried = "; ".join(mutant.what for mutant in mutants.chosen)
    message = (
        f"The targets pass whatever the changed code does ({tried}). Remove what no test needs, and implement what the "
        "targets ask for where they call it."
    )
    return Findings(reasons=(Reason(code="unproven_change", nodeid=None, message=message),))


def _survived(mutants: Sequence[Mutant], *, copy: Suite, context: _ConfirmContext) -> Survival:
    """What becomes of mutants when the targets run over them."""
    return survival(
        mutants,
        run=lambda mutant: run_altered(copy, mutant, tests=context.selection(), runs=context.runs),
        targets=context.request.targets,
    )


def _only_run(telling: Sequence[Mutant]) -> Findings:
    """A notice that no target notices what the changed code gives, only that it runs.

    No refusal: the change may be one of what is written or called, or that nothing is raised any more.
    """
    tried = "; ".join(mutant.what for mutant in telling)
    notice = (
        f"The targets fail if the changed functions raise, and pass with what these give altered ({tried}): see that "
        "they assert what the change is for."
    )
    return Findings(notices=(notice,))


def _is_plain(path: Path) -> bool:
    """Whether no link leads from the path to another file: what is written there stays in the copy."""
    return path.resolve() == Path(os.path.normpath(path))


def _why_undecided(copy: Suite, mutants: Mutants, *, context: _ConfirmContext) -> str | None:
    """Why surviving mutants say nothing; None if they do."""
    changes = context.request.changes
    if any(not change.path.endswith(PYTHON) for change in changes):
        return "the change has other files than Python sources"
    if not mutants.is_exhaustive or not all(_is_plain(copy.root / change.path) for change in changes):
        return "not every changed line was altered"
    texts = dict.fromkeys((path for mutant in mutants.chosen for path in mutant.texts), "raise SystemError\n")
    broken = Mutant(where="changed files", how="cannot be imported", texts=texts)
    run = run_altered(copy, broken, tests=context.selection(), runs=context.runs)
    is_loaded = run.report is None or bool(context.failing(run.report))
    return None if is_loaded else "the targets do not load the changed files, or load them from another place"
