"""Test runs in clean copies of commits: one for each tree, however many claims rest on it.

A run in a copy sees the copy: paths of installed packages, and PYTHONPATH, that lead into the project lead there.

An editable install names the project's folder, whatever a copy holds. Without this the tests of an old commit would
judge the product of today.

What the tests say, run again, beside what was handed over. Pure: runs are made by whoever asks.

Which commits have to be run, and beside which, so that a handoff's claims about tests can be judged.
"""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from cdd_agent.audit.handoffs import PHASES, Chain, Claim, Commit, Handed, Span, Standing, false, true, unknown
from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy, entries, layout_of, lend
from cdd_agent.evidence.request import not_passing
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.runner import GitError
from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.tdd import verdict
from cdd_agent.tdd.attempt import with_tests_before
from cdd_agent.tdd.context import Phase, WorkItem
from cdd_agent.tdd.verdict import files_named
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Layout, Suite
from pytest_tdd_agent.comparison import function_of, lies_in
from pytest_tdd_agent.fingerprint import changed
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import FAILING, Reason, SuiteReport, Verdict, failing, summary

_SITECUSTOMIZE = """\
import os, sys

HERE, ROOTS, COPY = {here!r}, {roots!r}, {copy!r}


def is_of_environment(path, root):
    parts = path[len(root):].strip(os.sep).split(os.sep)
    folders = [os.path.join(root, *parts[:end]) for end in range(1, len(parts) + 1)]
    marks = [os.path.join(folder, mark) for folder in folders for mark in ("pyvenv.cfg", "conda-meta")]
    return any(part.endswith("-packages") for part in parts) or any(map(os.path.exists, marks))


def moved(path):
    for root in ROOTS:
        if isinstance(path, str) and (path + os.sep).startswith(root + os.sep) and not is_of_environment(path, root):
            return COPY + path[len(root):]
    return path


sys.path[:] = [moved(path) for path in sys.path if path != HERE]
for finder in list(sys.meta_path):
    module = sys.modules.get(getattr(finder, "__module__", ""))
    mapping = getattr(module, "MAPPING", None)
    if getattr(module, "__name__", "").startswith("__editable__") and isinstance(mapping, dict):
        mapping.update((name, moved(path)) for name, path in list(mapping.items()))
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    pass
finally:
    sys.modules.setdefault("sitecustomize", this)
"""
"""Python 3.8, run at every start of the interpreter, once its path is made; then comes the one that is there else."""


@contextmanager
def seeing_itself(copy: Suite, *, top: Path, copied: Path) -> Iterator[Suite]:
    """``copy`` with what leads into the work tree ``top`` leading into ``copied``, but for environments in it."""
    if not isinstance(copy, PytestSuite):
        yield copy
        return
    roots = tuple(dict.fromkeys(map(str, (top, top.resolve()))))
    with tempfile.TemporaryDirectory(prefix="cdd-audit-", ignore_cleanup_errors=True) as folder:
        here = Path(folder).resolve()
        text = _SITECUSTOMIZE.format(here=str(here), roots=roots, copy=str(copied))
        (here / "sitecustomize.py").write_text(text, encoding="utf-8", errors="surrogateescape")
        yield copy.shut_in(_Redirected(copy.sandbox, here))


class _Redirected:
    """A sandbox in which every Python begins by moving its paths."""

    def __init__(self, sandbox: Sandbox, here: Path) -> None:
        self.level = sandbox.level
        self._sandbox = sandbox
        self._here = here

    def run(self, command: Command) -> Result:
        """Run the program with our folder before all others on Python's path."""
        given = [entry for entry in command.variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        variables = {**command.variables, "PYTHONPATH": os.pathsep.join((str(self._here), *given))}
        access = replace(command.access, read_only=(*command.access.read_only, self._here))
        return self._sandbox.run(replace(command, variables=variables, access=access))


_SHORT = 8
_TIME_OUT = "did not end within"
"""In what a suite says of a run that took too long, which may be this machine's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the tests of one tree say."""

    report: SuiteReport | None
    problem: str
    """Why there is no report; empty if there is one."""
    has_timed_out: bool
    digests: Mapping[str, str]
    """Test file, or part of a file that configures the tests -> what tells its content, before anything was run."""


@dataclass(kw_only=True)
class Reruns:
    """Runs the tests of commits outside the project; nothing of the user's repository or work tree is changed."""

    repository: Repository
    suite: Suite
    emit: Emit
    without: "Reruns | None" = None
    """The runs without what git ignores in the project, if these are given it; None: they are not."""
    has_lent: bool = False
    """Whether there was any such file."""
    has_tried: bool = False
    """Whether any run was to be made."""
    has_run: bool = False
    """Whether any has come to a report."""
    _known: dict[str, Evidence] = field(default_factory=dict)
    """Tree -> what its tests say."""

    def of(self, commit: Commit, *, called: str) -> Evidence:
        """What the tests of this commit say; ``called`` names it to whoever waits for that."""
        if commit.tree not in self._known:
            self.has_tried = True
            self._known[commit.tree] = self._evidence(commit, called=called)
        return self._known[commit.tree]

    def lending(self) -> "Reruns":
        """The same with what git ignores in the copies."""
        return Reruns(repository=self.repository, suite=self.suite, emit=self.emit, without=self)

    def _evidence(self, commit: Commit, *, called: str) -> Evidence:
        """One run of all tests, or why there is none."""
        try:
            return self._run(commit, called=called)
        except (GitError, OSError) as error:
            why = error.happened if isinstance(error, GitError) else str(error)
            told = why.strip().partition("\n")[0].rstrip(".")
            problem = f"no clean copy of {commit.id[:_SHORT]} could be made: {told}"
            return Evidence(report=None, problem=problem, has_timed_out=False, digests={})

    def _run(self, commit: Commit, *, called: str) -> Evidence:
        purpose = f"{called}, {commit.id[:_SHORT]} in a clean copy"
        with clean_copy(self.repository, self.suite, green=commit.id, red=commit.id) as copy:
            if self.without is not None:
                if not lend(self.repository, self.suite.root.resolve(), copy=copy.root):
                    return self.without.of(commit, called=called)
                self.has_lent = True
                purpose += ", with what git ignores"
            found = self._digests(commit, copy=copy)
            framework = self.suite.conventions.framework
            self.emit(SuiteStarted(purpose=purpose, targets=(), framework=framework))
            parts = Path(layout_of(self.repository, self.suite).project).parts
            copied = copy.root.parents[len(parts) - 1] if parts else copy.root
            with seeing_itself(copy, top=self.repository.root, copied=copied) as itself:
                run = itself.run()
        self.emit(run.finished(purpose, framework=framework))
        self.has_run = self.has_run or run.report is not None
        return Evidence(
            report=run.report,
            problem=run.problem or "",
            has_timed_out=_TIME_OUT in (run.problem or ""),
            digests=found,
        )

    def _digests(self, commit: Commit, *, copy: Suite) -> dict[str, str]:
        """What the tests of a commit are, as git has them."""
        layout = layout_of(self.repository, self.suite)
        held = entries(self.repository, commit.id)
        tests = {layout.name(path): " ".join(held[path]) for path in held if layout.is_test(path)}
        return {**tests, **layout.conventions.parts(copy.root)}


_SHOWN = 3
"""Reasons, or files, that one sentence tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A phase whose tests were run again."""

    item: WorkItem
    """As far as notes and commits tell: its tests as they were named, its sources with all that GREEN changed."""
    now: Evidence
    before: Evidence | None
    """Of the commit before the phase; None: it is the first of all."""
    files: frozenset[str] = frozenset()
    """What the phase changed, relative to the project."""
    recorded: SuiteReport | None = None
    """The report that the gate judged by, if it is still there."""
    knows_sources: bool = True
    """Whether GREEN has told what the item's sources are."""


def new_tests(trial: Trial) -> tuple[str, ...]:
    """What RED added: tests and files that were not there, or passed in a file that it changed and fail now."""
    now, before = trial.now.report, trial.before.report if trial.before else None
    if now is None:
        return ()
    then = {case.nodeid: case.outcome for case in before.tests} if before else {}
    uncollected = {error.nodeid for error in before.collect_errors} if before else set()
    cases = (
        case.nodeid
        for case in now.tests
        if case.nodeid not in then
        or (case.file in trial.files and then[case.nodeid] not in FAILING and case.outcome in FAILING)
    )
    return (*cases, *(error.nodeid for error in now.collect_errors if error.nodeid not in uncollected))


def of_red(trial: Trial) -> Claim:
    """Whether the new tests fail, for a reason that the gate accepts and that was recorded."""
    report = trial.now.report
    if report is None or (trial.before is not None and trial.before.report is None):
        return _not_run(trial.now if report is None else trial.before or trial.now, beside=trial.before)
    baseline = trial.before.report if trial.before else None
    fresh = new_tests(trial)
    choices = [choice for choice in (_named(trial.item, report), fresh) if choice]
    judged = [
        verdict.of_run(replace(trial.item, tests=choice), "red", report=report, baseline=baseline or _nothing(report))
        for choice in (choices or [()])
    ]
    opened = next((number for number, each in enumerate(judged) if each.open), None)
    if opened is not None and choices:
        then, now = _kinds(trial.recorded, choices[opened]), _kinds(report, choices[opened])
        if trial.recorded is not None and then != now:
            return false("run", f"RED failed by {_told(then)}, says its report, and fails by {_told(now)}.")
        return true("run", f"The new tests fail by {_told(now)}.")
    reasons = judged[0].reasons
    codes = {reason.code for reason in reasons}
    if codes == {"name_not_expected"} and not trial.knows_sources:
        if trial.recorded is not None and _kinds(trial.recorded, fresh) == _kinds(report, fresh):
            return true("run", f"The new tests fail as the report says, by {_told(_kinds(report, fresh))}.")
        return unknown("run", f"The step goes on, and does not tell yet what it is to make: {_listed(reasons)}")
    return false("run", f"RED is not red: {_listed(reasons)}")


def of_covered_red(trial: Trial) -> Claim:
    """Whether the tests that passed at once do, and nothing else was broken."""
    report = trial.now.report
    if report is None or (trial.before is not None and trial.before.report is None):
        return _not_run(trial.now if report is None else trial.before or trial.now, beside=trial.before)
    fresh = new_tests(trial) or _named(trial.item, report)
    baseline = trial.before.report if trial.before else None
    judged = _without_files(judge("green", report, baseline=baseline, targets=fresh))
    if not fresh:
        return false("run", "There is no new test that could have passed at once.")
    if not judged.open:
        return false("run", f"The tests do not pass at once: {_listed(judged.reasons)}")
    return true("run", f"{_count(len(fresh), 'new test')} pass at once.")


def of_green(trial: Trial, *, red: Trial | None) -> Claim:
    """Whether the tests that failed in ``red`` pass, and all that passed before; without a RED only the latter."""
    report, before = trial.now.report, (red.now if red else trial.before)
    if report is None:
        return _not_run(trial.now, beside=before)
    if before is not None and before.report is None:
        return _not_run(before, beside=None)
    baseline = before.report if before else None
    targets = _named(trial.item, report) if began_red(trial) else ()
    if red is not None and red.now.report is not None:
        first = red.before.report if red.before else None
        opened = Verdict(phase="red", open=True)
        baseline = with_tests_before(red.now.report, first=first) if first else replace(red.now.report, gate=opened)
        targets = _failing_of(red.now.report, new_tests(red)) or _named(red.item, red.now.report)
    judged = _without_files(judge("green", report, baseline=baseline, targets=targets))
    if not judged.open:
        return false("run", f"GREEN is not green: {_listed(judged.reasons)}")
    wanted = [case.nodeid for case in (trial.recorded.tests if trial.recorded else ()) if case.outcome == "passed"]
    if lost := not_passing(wanted, report):
        return false("run", f"{lost[0]} passed, says GREEN's report, and does not.")
    return true("run", f"{_count(summary(report)['passed'], 'test')} pass, {len(targets) or 'no'} of them anew.")


def began_red(trial: Trial) -> bool:
    """Whether the item's tests failed before GREEN, so that it needed no RED of its own."""
    before = trial.before.report if trial.before else None
    return before is not None and any(verdict.concerns(trial.item, nodeid) for nodeid in failing(before))


def of_refactor(trial: Trial) -> Claim:
    """Whether the same tests are there as before, and pass."""
    report, before = trial.now.report, trial.before
    if report is None or before is None or before.report is None:
        return _not_run(trial.now if report is None else before or trial.now, beside=before)
    judged = _without_files(judge("refactor", report, baseline=before.report))
    if not judged.open:
        return false("run", f"REFACTOR did not leave everything working: {_listed(judged.reasons)}")
    return true("run", f"The same {_count(len(report.tests), 'test')} as before it, and they pass.")


def of_files(now: Evidence, before: Evidence, *, named: Collection[str]) -> Claim:
    """Whether tests, and what configures pytest, are what they were; ``named`` are tests besides that have changed."""
    names = {*changed(before.digests, now.digests), *named}
    if now.report is not None and before.report is not None:
        names |= set(changed(before.report.fingerprints, now.report.fingerprints))
    if not names:
        return true("tests", f"{_count(len(now.digests), 'file')} of the tests are the same, byte by byte.")
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return false("tests", f"Not what it was in the phase before: {shown}{more}.")


def _nothing(like: SuiteReport) -> SuiteReport:
    """The report of a project without tests, of which nothing else is known."""
    return replace(like, tests=(), collect_errors=(), fingerprints={}, signs=(), audited=False, collected=0)


def _not_run(evidence: Evidence, *, beside: Evidence | None) -> Claim:
    """What to say where tests did not run to their end: it is the commit's fault if they do ``beside`` it."""
    told = evidence.problem or "there is no commit before it to compare with"
    if evidence.has_timed_out or evidence is beside or beside is None or beside.report is None:
        return unknown("run", f"The tests cannot be run: {told}.")
    return false("run", f"The tests do not run to their end, as they do on the commit before: {told}.")


def _named(item: WorkItem, report: SuiteReport) -> tuple[str, ...]:
    """Those of the item's tests that the run has something of."""
    ids = [case.nodeid for case in report.tests] + [error.nodeid for error in report.collect_errors]
    return tuple(test for test in item.tests if any(each == test or lies_in(each, test) for each in ids))


def _failing_of(report: SuiteReport, tests: Sequence[str]) -> tuple[str, ...]:
    """Those of ``tests``, node ids and files, that do not pass."""
    failed = {case.nodeid for case in report.tests if case.outcome in FAILING}
    failed |= {error.nodeid for error in report.collect_errors}
    return tuple(test for test in tests if test in failed)


def _without_files(judged: Verdict) -> Verdict:
    """The verdict but for changed files, which are a claim of their own."""
    reasons = tuple(reason for reason in judged.reasons if reason.code != "protected_changed")
    return replace(judged, open=not reasons, reasons=reasons)


def _kinds(report: SuiteReport | None, tests: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Function, or file, of ``tests`` -> the kinds it fails by; parameters may have another name in each run."""
    found: dict[str, list[str]] = {}
    failures = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None] if report else []
    failures += [(error.nodeid, error.failure) for error in report.collect_errors] if report else []
    for nodeid, failure in failures:
        if any(nodeid == test or lies_in(nodeid, test) for test in tests):
            found.setdefault(function_of(nodeid), []).append(failure.kind)
    return {name: tuple(sorted(kinds)) for name, kinds in found.items()}


def _told(kinds: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(sorted({kind for each in kinds.values() for kind in each})) or "nothing"


def _listed(reasons: Sequence[Reason]) -> str:
    """The first reasons, as sentences."""
    more = f" And {len(reasons) - _SHOWN} more reasons." if len(reasons) > _SHOWN else ""
    return " ".join(reason.message for reason in reasons[:_SHOWN]) + more


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the history tells of a phase."""

    repository: Repository
    span: Span
    layout: Layout

    def before(self, handed: Handed, chain: Chain) -> Commit | None:
        """The commit that a phase is compared with; None if there is none."""
        earlier = [chain.landed[phase].commit for phase in _earlier(handed.phase) if phase in chain.landed]
        if handed.standing is Standing.LATER:
            return handed.commit
        if earlier and handed.phase != "red":
            return earlier[-1]
        if handed.standing is Standing.ADOPTED and (earlier or handed.base):
            return earlier[-1] if earlier else self._commit(handed.base)
        return self._commit(handed.commit.parent)

    def _commit(self, name: str | None) -> Commit | None:
        return self.span.commits.get(CommitId(name or ""))

    def item(self, handed: Handed, chain: Chain) -> WorkItem:
        """The work item as far as note and history tell."""
        green, handoff = chain.landed.get("green"), handed.handoff
        named = (*handoff.pending_tests, *handoff.completed_tests) if handoff is not None else ()
        about = handoff.current_test if handoff is not None else None
        made = self.files(green.commit, self.before(green, chain)) if green is not None else frozenset()
        sources = (about.impl_file,) if about is not None and about.impl_file else ()
        is_test = self.layout.conventions.is_test
        is_feature = green is not None and green.commit.subject.startswith("feat:")
        return WorkItem(
            ticket=handed.ticket,
            number=handed.cycle,
            title=about.description if about is not None else "",
            goal="",
            kind="feature" if is_feature else "bug",
            phases=PHASES,
            tests=named or ((about.test_file,) if about is not None and about.test_file else ()),
            sources=(*sources, *sorted(path for path in made.difference(sources) if not is_test(path))),
        )

    def files(self, commit: Commit, before: Commit | None) -> frozenset[str]:
        """What differs between two commits, relative to the project."""
        if before is None:
            paths = list(entries(self.repository, commit.id))
        else:
            paths = [change.path for change in self.repository.changes(before.id, commit.id)]
        return frozenset(self.layout.name(path) for path in paths)

    def changed_tests(self, handed: Handed, before: Commit) -> frozenset[str]:
        """What differs of files that the note names as tests, whatever they are called."""
        handoff = handed.handoff
        if handoff is None:
            return frozenset()
        about = handoff.current_test
        tests = tuple(filter(None, (about.test_file, *handoff.pending_tests, *handoff.completed_tests)))
        named = files_named(tests, apart_from=(about.impl_file,))
        files = self.files(handed.commit, before)
        return frozenset(path for path in files if any(path == name or path.startswith(f"{name}/") for name in named))


class Trials:
    """Has tests run, and judges what they say of handoffs."""

    def __init__(self, *, repository: Repository, span: Span, suite: Callable[[], Suite], emit: Emit) -> None:
        """Nothing is run yet; ``suite`` is asked for with the first run."""
        self._repository = repository
        self._span = span
        self._suite = suite
        self._emit = emit

    @cached_property
    def _reruns(self) -> Reruns:
        return Reruns(repository=self._repository, suite=self._suite(), emit=self._emit)

    @cached_property
    def _lending(self) -> Reruns:
        return self._reruns.lending()

    @cached_property
    def _past(self) -> Past:
        layout = layout_of(self._repository, self._reruns.suite)
        return Past(repository=self._repository, span=self._span, layout=layout)

    @property
    def are_vain(self) -> bool:
        """Whether tests were to be run, and no run has come to a report."""
        return "_reruns" in self.__dict__ and self._reruns.has_tried and not self._reruns.has_run

    def began_red(self, handed: Handed, chain: Chain) -> bool:
        """Whether the tests of a GREEN failed on the commit before it."""
        return began_red(self._trial(handed, chain=chain, reruns=self._reruns, report=None))

    def claims(self, handed: Handed, chain: Chain, *, report: SuiteReport | None) -> Iterator[Claim]:
        """What the tests say of a phase that has landed; nothing of one that rests on none.

        ``report`` is the one that the gate judged by, if it is still there.
        """
        if handed.phase == "plan" or (handed.phase == "red" and handed.standing is Standing.LATER):
            return
        squashed = _squashed(handed, chain)
        if squashed:
            yield unknown("run", f"{squashed}: what it was before is not in the history any more.")
            return
        claim = self._judged(handed, chain, report=report, reruns=self._reruns)
        if claim.holds is False:
            again = self._judged(handed, chain, report=report, reruns=self._lending)
            if again.holds and self._lending.has_lent:
                claim = unknown("run", "It is so only with files that git ignores, which nobody else has.")
        yield claim
        before = self._past.before(handed, chain)
        if handed.phase != "red" and before is not None:
            now, then = self._of(handed.commit, handed), self._of(before, handed)
            yield of_files(now, then, named=self._past.changed_tests(handed, before))

    def _judged(self, handed: Handed, chain: Chain, *, report: SuiteReport | None, reruns: Reruns) -> Claim:
        """The claim about the run of one phase."""
        lay = partial(self._trial, chain=chain, reruns=reruns)
        trial = lay(handed, report=report)
        match handed.phase:
            case "red":
                return of_covered_red(trial) if handed.is_covered else of_red(trial)
            case "green":
                red = chain.landed.get("red")
                return of_green(trial, red=lay(red, report=None) if red is not None else None)
            case _:
                return of_refactor(trial)

    def _trial(self, handed: Handed, *, chain: Chain, reruns: Reruns, report: SuiteReport | None) -> Trial:
        """The phase with what its tests say, and those of the commit before it."""
        before = self._past.before(handed, chain)
        now = self._of(handed.commit, handed, reruns=reruns)
        return Trial(
            item=self._past.item(handed, chain),
            now=now,
            before=self._of(before, handed, reruns=reruns) if before is not None else None,
            files=self._past.files(handed.commit, before),
            recorded=report,
            knows_sources="green" in chain.landed,
        )

    def _of(self, commit: Commit, handed: Handed, *, reruns: Reruns | None = None) -> Evidence:
        """What the tests of a commit say, which is that of the phase or the one before it."""
        called = handed.called if commit.id == handed.commit.id else f"before {handed.called}"
        return (reruns or self._reruns).of(commit, called=called)


def _earlier(phase: Phase | None) -> tuple[Phase, ...]:
    """The phases before this one that have a commit to compare with."""
    return PHASES[1 : PHASES.index(phase)] if phase is not None else ()


def _squashed(handed: Handed, chain: Chain) -> str:
    """What to say of a phase that shares its commit with another of its cycle; empty if it has its own."""
    if handed.standing is not Standing.OWN:
        return ""
    others = (
        other.phase_name
        for other in chain.landed.values()
        if other is not handed and other.standing is Standing.OWN and other.commit.id == handed.commit.id
    )
    other = next(others, None)
    return f"It was squashed with {other} into one commit" if other is not None else ""
