"""Run the tests of commits again, and compare them with the handoffs.

``Reruns`` runs the tests of each tree once, in a clean copy. ``check_red`` and the functions after it are pure: they
compare runs with what a handoff claims. ``RerunClaims`` decides which commits to run and compare.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import dropwhile, islice
from pathlib import Path
from typing import Literal

from cdd_agent.audit import handoffs
from cdd_agent.audit.handoffs import Chain, Claim, PlacedHandoff, Placement, Span, confirm, leave_open, refute
from cdd_agent.errors import format_count, join_first
from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.evidence.clean_copy import clean_copy, copy_ignored_files, explain_failure, find_layout, find_not_passing
from cdd_agent.git.ignored import format_inclusion, select_ignored
from cdd_agent.git.repository import CommitId, Entry, Repository
from cdd_agent.git.runner import GitError
from cdd_agent.tdd import verdict
from cdd_agent.tdd.baseline import add_hidden_tests, has_committed_test, leave_out
from cdd_agent.tdd.context import Phase, WorkItem
from cdd_agent.tdd.verdict import list_files
from cdd_agent.testrun.missing_files import CopyPlaces, find_missing_files
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import PYTEST, Conventions, ProjectLayout, Suite, SuiteRun
from cdd_agent.work.wording import explain
from pytest_tdd_agent.comparison import is_inside, strip_parameters
from pytest_tdd_agent.fingerprint import find_changes
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import FAILING, Reason, SuiteReport, Verdict, count_outcomes, list_failing

_SHORT = 8
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunResult:
    """The result of running one tree's tests."""

    report: SuiteReport | None
    problem: str
    digests: Mapping[str, str]
    """Test file, or test configuration in a file -> digest before the run."""
    lacking: tuple[str, ...] = ()
    """Ignored files of the user that failing tests name and that the copy did not have."""
    has_timed_out: bool = False
    """Whether the run took too long, perhaps because this machine is slow."""


@dataclass(kw_only=True)
class Reruns:
    """Runs the tests of commits outside the project. The user's repository and work tree stay unchanged."""

    repository: Repository
    make_suite: Callable[[], Suite]
    """Called for the first run only."""
    emit: Emit
    has_copied: bool = False
    """Whether a copy got ignored files."""
    has_run: bool = False
    """Whether a run produced a report."""
    missing: set[str] = field(default_factory=set)
    """Modules of the environment whose lack was reported."""
    results: dict[tuple[str, bool], RerunResult] = field(default_factory=dict)
    """Tree, and whether ignored files were asked for -> result."""

    @cached_property
    def suite(self) -> Suite:
        """The suite of the project."""
        return self.make_suite()

    @cached_property
    def layout(self) -> ProjectLayout:
        """The layout of the project."""
        return find_layout(self.repository, self.suite)

    def run(self, commit: handoffs.AuditedCommit, *, called: str, with_ignored: bool = False) -> RerunResult:
        """Run the tests of a commit, unless they have run. ``called`` names the commit on the screen.

        ``with_ignored`` copies the files that git ignores from the project.
        """
        key = (commit.tree, with_ignored)
        if key not in self.results:
            try:
                self.results[key] = self._run(commit, called=called, with_ignored=with_ignored)
            except (GitError, OSError) as error:
                problem = f"cdd could not create a clean copy of {commit.id[:_SHORT]}: {explain_failure(error)}"
                self.results[key] = RerunResult(report=None, problem=problem, digests={})
        return self.results[key]

    def _run(self, commit: handoffs.AuditedCommit, *, called: str, with_ignored: bool) -> RerunResult:
        purpose = f"{called}, {commit.id[:_SHORT]} in a clean copy"
        layout = self.layout
        with clean_copy(
            self.repository, self.suite, green=commit.tree, red=commit.tree, has_included=with_ignored
        ) as copy:
            if with_ignored:
                included = self.repository.read_included()
                if not copy_ignored_files(self.repository, self.suite, copy=copy.root) and not included:
                    return self.run(commit, called=called)
                self.has_copied = True
                purpose += ", with ignored files"
            entries = self.repository.objects.list_files(commit.tree)
            digests = {
                layout.relativize(path): f"{entry.mode} {entry.id}"
                for path, entry in entries.items()
                if layout.is_test(path)
            }
            digests |= layout.conventions.digest_parts(copy.root)
            framework = self.suite.conventions.framework
            self.emit(SuiteStarted(purpose=purpose, targets=(), framework=framework))
            parts = Path(layout.project).parts
            copied = copy.root.parents[len(parts) - 1] if parts else copy.root
            # The tests of an old commit must not test today's product.
            redirects = (self.repository.root, copied)
            run = (replace(copy, redirects=redirects) if isinstance(copy, PytestSuite) else copy).run()
            # While the copy exists.
            lacking = self._find_lacking(run, copied)
        self.emit(run.as_event(purpose, framework=framework))
        self.has_run = self.has_run or run.report is not None
        return RerunResult(
            report=run.report,
            problem=run.problem or "",
            digests=digests,
            lacking=lacking,
            has_timed_out=run.cause == "timed_out",
        )

    def _find_lacking(self, run: SuiteRun, copied: Path) -> tuple[str, ...]:
        if run.report is not None and not list_failing(run.report):
            return ()
        places = CopyPlaces(user=self.repository.root, copy=copied, project=self.project, left_out=self._ignored)
        return tuple(find_missing_files(run.report, places, output=f"{run.problem}\n{run.output}"))

    @cached_property
    def _ignored(self) -> frozenset[str]:
        found = select_ignored(self.repository)
        return frozenset((*found.chosen, *found.secret, *found.others))

    @property
    def project(self) -> str:
        """The project's folder in the work tree, with a slash at the end; empty for the top."""
        return f"{self.layout.project}/" if self.layout.project else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRerun:
    """A phase whose tests were run again."""

    item: WorkItem
    """The work item as far as notes and commits describe it: the named tests, and all sources that GREEN changed."""
    report: SuiteReport
    baseline: SuiteReport | None
    """The report on the commit before the phase."""
    files: frozenset[str]
    """The paths that the phase changed."""
    recorded: SuiteReport | None
    """The report that the gate judged, if it still exists."""
    knows_sources: bool
    """Whether the cycle has a GREEN, which shows the item's sources."""
    conventions: Conventions = PYTEST
    """Those of the framework whose report this is."""


def find_missing_modules(report: SuiteReport | None) -> dict[str, set[str]]:
    """Return module -> files that cannot be collected because it is missing."""
    found: dict[str, set[str]] = {}
    for error in report.collect_errors if report is not None else ():
        if error.failure.kind == "missing_module" and error.failure.missing_name:
            found.setdefault(error.failure.missing_name, set()).add(error.nodeid)
    return found


def find_new_tests(rerun: PhaseRerun) -> tuple[str, ...]:
    """Return the tests and files that RED added, or changed from passing to failing."""
    now, before = rerun.report, rerun.baseline
    then = {case.nodeid: case.outcome for case in before.tests} if before else {}
    uncollected = {error.nodeid for error in before.collect_errors} if before else set()
    cases = (
        case.nodeid
        for case in now.tests
        if case.nodeid not in then
        or (case.file in rerun.files and then[case.nodeid] not in FAILING and case.outcome in FAILING)
    )
    return (*cases, *(error.nodeid for error in now.collect_errors if error.nodeid not in uncollected))


def check_red(rerun: PhaseRerun) -> Claim:
    """Check whether the new tests fail for an acceptable reason, the recorded one."""
    report = rerun.report
    # The gate compares with the tests before RED; without a commit before, there were none.
    empty = replace(report, tests=(), collect_errors=(), fingerprints={}, signs=(), audited=False, collected=0)
    new = find_new_tests(rerun)
    functions = tuple(dict.fromkeys(map(strip_parameters, new)))
    choices = [choice for choice in (_match_tests(rerun.item, report), functions) if choice]
    verdicts = [
        verdict.judge_run(
            replace(rerun.item, tests=choice),
            "red",
            report=report,
            baseline=rerun.baseline or empty,
            conventions=rerun.conventions,
        )
        for choice in (choices or [()])
    ]
    if not report.structured:
        return _judge_exit_status(verdicts[0], report)
    open_index = next((index for index, each in enumerate(verdicts) if each.open), None)
    if open_index is not None and choices:
        tests = choices[open_index]
        then, now = _find_failure_kinds(rerun.recorded, tests), _find_failure_kinds(report, tests)
        if rerun.recorded is not None and then != now:
            return refute("run", f"RED failed by {_join(then)} in its report, but now fails by {_join(now)}.")
        return confirm("run", f"The new tests fail by {_join(now)}.")
    reasons = verdicts[0].reasons
    if {reason.code for reason in reasons} == {"name_not_expected"} and not rerun.knows_sources:
        kinds = _find_failure_kinds(report, new)
        if rerun.recorded is not None and _find_failure_kinds(rerun.recorded, new) == kinds:
            return confirm("run", f"The new tests fail as in the report, by {_join(kinds)}.")
        text = f"The step is not finished, so its source files are unknown: {_list_reasons(reasons)}"
        return leave_open("run", text)
    return refute("run", f"RED is not red: {_list_reasons(reasons)}")


def check_covered_red(rerun: PhaseRerun) -> Claim:
    """Check whether the tests that passed at once still do, and nothing else broke."""
    new = find_new_tests(rerun) or _match_tests(rerun.item, rerun.report)
    if not rerun.report.structured:
        return _judge_exit_status(_judge_again("green", rerun), rerun.report)
    if not new:
        return refute("run", "No new test could have passed at once.")
    if objections := _find_objections("green", rerun.report, baseline=rerun.baseline, targets=new):
        return refute("run", f"The tests do not pass at once: {_list_reasons(objections)}")
    return confirm("run", f"{format_count(len(new), 'new test')} pass at once.")


def check_green(rerun: PhaseRerun, *, red: PhaseRerun | None) -> Claim:
    """Check whether the tests that failed in ``red``, and all that passed before, pass now."""
    report, baseline = rerun.report, rerun.baseline
    if not report.structured:
        return _judge_exit_status(_judge_again("green", rerun), report)
    targets: tuple[str, ...] = ()
    if red is not None:
        opened = replace(red.report, gate=Verdict(phase="red", open=True))
        baseline = add_hidden_tests(red.report, first=red.baseline) if red.baseline else opened
        failed = set(list_failing(red.report))
        targets = tuple(test for test in find_new_tests(red) if test in failed) or _match_tests(red.item, red.report)
    elif began_red(rerun.item, baseline):
        targets = _match_tests(rerun.item, report)
    objections = _find_objections("green", report, baseline=baseline, targets=targets)
    if red is None and objections and all(each.code == "no_tests" for each in objections):
        return leave_open("run", "No test passes on its commit, so nothing shows its code.")
    if objections:
        return refute("run", f"GREEN is not green: {_list_reasons(objections)}")
    passed = [case.nodeid for case in (rerun.recorded.tests if rerun.recorded else ()) if case.outcome == "passed"]
    if lost := find_not_passing(passed, report):
        return refute("run", f"{lost[0]} passed in GREEN's report, but does not pass now.")
    return confirm(
        "run", f"{format_count(count_outcomes(report)['passed'], 'test')} pass, {len(targets) or 'none'} of them newly."
    )


def began_red(item: WorkItem, baseline: SuiteReport | None) -> bool:
    """Return whether the item's tests failed before GREEN, so that it needed no RED."""
    return baseline is not None and any(verdict.has_test(item, nodeid) for nodeid in list_failing(baseline))


def check_refactor(rerun: PhaseRerun) -> Claim:
    """Check whether the same tests exist as before and pass."""
    if rerun.baseline is None:
        return leave_open("run", "The tests cannot be run: an earlier commit to compare with does not exist.")
    if not rerun.report.structured:
        return _judge_exit_status(_judge_again("refactor", rerun), rerun.report)
    if objections := _find_objections("refactor", rerun.report, baseline=rerun.baseline):
        return refute("run", f"REFACTOR broke something: {_list_reasons(objections)}")
    return confirm("run", f"The same {format_count(len(rerun.report.tests), 'test')} as before pass.")


def check_files(now: RerunResult, before: RerunResult, *, changed_tests: Collection[str]) -> Claim:
    """Check whether tests and test configuration are unchanged. ``changed_tests`` are known changes."""
    names = {*find_changes(before.digests, now.digests), *changed_tests}
    if now.report is not None and before.report is not None:
        names |= set(find_changes(before.report.fingerprints, now.report.fingerprints))
    if not names:
        return confirm("tests", f"{format_count(len(now.digests), 'test file')} unchanged, byte by byte.")
    shown = join_first(sorted(names), most=_MOST_SHOWN)
    return refute("tests", f"Changed since the phase before: {shown}.")


def _explain_missing(result: RerunResult, *, beside: RerunResult | None) -> Claim:
    """Return the claim for tests without a report. The commit is at fault if they run ``beside`` it."""
    if result.has_timed_out or beside is None or beside.report is None:
        return leave_open("run", f"The tests cannot be run: {result.problem}.")
    return refute("run", f"The tests do not run to their end, but do on the commit before: {result.problem}.")


def _leave_out(report: SuiteReport, names: Collection[str]) -> SuiteReport:
    """Return the report without the tests and files that are named, or are in what is named."""
    if not names:
        return report
    inside = {
        case.nodeid
        for case in report.tests
        if case.nodeid.partition("::")[0] in names or any(is_inside(case.nodeid, name) for name in names)
    }
    return leave_out(report, {*names, *inside})


def _match_tests(item: WorkItem, report: SuiteReport) -> tuple[str, ...]:
    ids = [case.nodeid for case in report.tests] + [error.nodeid for error in report.collect_errors]
    return tuple(test for test in item.tests if any(each == test or is_inside(each, test) for each in ids))


def _find_objections(
    phase: Literal["green", "refactor"],
    report: SuiteReport,
    *,
    baseline: SuiteReport | None,
    targets: Sequence[str] = (),
) -> list[Reason]:
    """Return why the gate would stay closed, or nothing if it would open."""
    reasons = judge(phase, report, baseline=baseline, targets=targets).reasons
    # check_files makes the claim about changed files.
    return [reason for reason in reasons if reason.code != "protected_changed"]


def _judge_again(phase: Literal["green", "refactor"], rerun: PhaseRerun) -> Verdict:
    accepts = rerun.conventions.accepts_exit_status
    judged = judge(phase, rerun.report, baseline=rerun.baseline, accepts_unstructured=accepts)
    reasons = tuple(reason for reason in judged.reasons if reason.code != "protected_changed")
    return replace(judged, open=not reasons, reasons=reasons)


def _judge_exit_status(judged: Verdict, report: SuiteReport) -> Claim:
    """Return the claim about a run without results of single tests."""
    if any(reason.code == "unstructured" for reason in judged.reasons):
        return leave_open("run", f"{report.framework} reports only an exit status; accept_unstructured is not set.")
    if not judged.open:
        return refute("run", f"{judged.phase.upper()} does not hold: {_list_reasons(judged.reasons)}")
    return confirm("run", f"{report.framework} ends with status {report.exit_status}, as {judged.phase.upper()} must.")


def _find_failure_kinds(report: SuiteReport | None, tests: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return function or file of ``tests`` -> kinds of failure. Parameters may differ between runs."""
    kinds: dict[str, list[str]] = {}
    failures = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None] if report else []
    failures += [(error.nodeid, error.failure) for error in report.collect_errors] if report else []
    for nodeid, failure in failures:
        if any(nodeid == test or is_inside(nodeid, test) for test in tests):
            kinds.setdefault(strip_parameters(nodeid), []).append(failure.kind)
    return {name: tuple(sorted(each)) for name, each in kinds.items()}


def _join(kinds: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(sorted({kind for each in kinds.values() for kind in each})) or "nothing"


def _list_reasons(reasons: Sequence[Reason]) -> str:
    more = f" And {len(reasons) - _MOST_SHOWN} more reasons." if len(reasons) > _MOST_SHOWN else ""
    return " ".join(explain(reason) for reason in reasons[:_MOST_SHOWN]) + more


@dataclass(frozen=True, kw_only=True)
class PhaseChange:
    """An open phase between two commits, with the reports of their tests."""

    phase: Phase | None
    old: str
    """The commit, or a tree with the tests that were committed later; so is the next."""
    new: str
    before: SuiteReport
    after: SuiteReport
    tests: tuple[str, ...]
    """Files of the item's tests."""
    sources: tuple[str, ...]
    """Those that GREEN changed; empty without one."""
    title: str


@dataclass(frozen=True, kw_only=True)
class RerunClaims:
    """What one handoff claims about tests."""

    placed: PlacedHandoff
    chain: Chain
    span: Span
    runs: Reruns
    recorded: SuiteReport | None = None
    """The report that the gate judged, if it is known."""

    def began_red(self) -> bool | None:
        """Return whether the tests of a GREEN failed on the commit before it; None if they cannot be run there."""
        _, before = self._run()
        if before is not None and before.report is None:
            return None
        return began_red(self._item, before.report if before is not None else None)

    @cached_property
    def uncommitted(self) -> tuple[str, ...]:
        """The listed tests of a GREEN without a RED that git lacks: ``cdd green`` takes uncommitted tests along."""
        handoff = self.placed.handoff
        if self.placed.phase != "green" or "red" in self.chain or handoff is None:
            return ()
        return tuple(test for test in handoff.completed_tests if self._is_test(test) and self._is_missing(test))

    def explain_uncommitted(self) -> str:
        """Return why the recorded results cannot be checked: git lacks the tests. Empty if that proves nothing."""
        handoff = self.placed.handoff
        if not self.uncommitted or handoff is None:
            return ""
        # A rebase may have dropped the commit of RED, whose tests are missing in the same way.
        if handoff.commit != self.placed.commit.id:
            return ""
        passed = [case.nodeid for case in self.recorded.tests if case.outcome == "passed"] if self.recorded else None
        if passed is not None and not all(
            any(each == test or is_inside(each, test) for each in passed) for test in self.uncommitted
        ):
            return ""  # the note names tests that the gate never saw pass
        files = {test.partition("::")[0] for test in self.uncommitted}
        absent = sorted(file for file in files if self._is_missing(file))
        named, kind = (absent, "test file") if absent else (self.uncommitted, "test")
        missing = f"The {kind} {join_first(named, most=_MOST_SHOWN)} is not in the commit"
        if self._added_tests:
            return f"{missing}, and with the version of a later commit it does not give the recorded result."
        return f"{missing}. Commit it, and run cdd audit again."

    def _is_test(self, test: str) -> bool:
        file, handoff = test.partition("::")[0], self.placed.handoff
        is_named = handoff is not None and file == handoff.current_test.test_file
        return is_named or self.runs.layout.conventions.is_test(file)

    def _is_missing(self, test: str) -> bool:
        """Return whether neither the commit nor the one before has the file of a test, with its name in it."""
        commits = [commit for commit in (self.placed.commit, self._before) if commit is not None]
        return not any(self._has_test(commit.id, test) for commit in commits)

    def _has_test(self, commit: str, test: str) -> bool:
        runs = self.runs
        return has_committed_test(test, commit, objects=runs.repository.objects, folder=runs.project)

    @cached_property
    def _added_tests(self) -> Mapping[str, Entry]:
        """The files of uncommitted tests as the first later commit has them that has all these tests."""
        objects, found = self.runs.repository.objects, dict[str, Entry]()
        for file in dict.fromkeys(test.partition("::")[0] for test in self.uncommitted):
            tests = [test for test in self.uncommitted if test.partition("::")[0] == file]
            commit = next((each for each in self._later if all(self._has_test(each, test) for test in tests)), None)
            path = f"{self.runs.project}{file}"
            entry = objects.find_entry(commit, path) if commit is not None else None
            if entry is not None:
                found[path] = entry
        return found

    @property
    def _later(self) -> Iterator[CommitId]:
        """The commits after this one, oldest first."""
        after = dropwhile(lambda each: each != self.placed.commit.id, self.span.commits)
        return islice(after, 1, handoffs.MOST_ANCESTORS)

    @property
    def tree(self) -> str:
        """The tree of the commit, with the tests that were committed later."""
        return self._add_tests(self.placed.commit).tree

    def _add_tests(self, commit: handoffs.AuditedCommit) -> handoffs.AuditedCommit:
        if not self._added_tests:
            return commit
        return replace(commit, tree=self.runs.repository.edit_tree(commit.tree, self._added_tests))

    @property
    def report(self) -> SuiteReport | None:
        """The report of the tests on the commit."""
        return self._run()[0].report

    @property
    def change(self) -> PhaseChange | None:
        """The change of an open phase whose tests run again."""
        now, before = self._run()
        if self._before is None or before is None or now.report is None or before.report is None:
            return None
        has_added = bool(self._added_tests)
        return PhaseChange(
            phase=self.placed.phase,
            old=self._add_tests(self._before).tree if has_added else self._before.id,
            new=self.tree if has_added else self.placed.commit.id,
            before=before.report,
            after=now.report,
            tests=list_files(self._item.tests, apart_from=self._item.sources),
            sources=self._item.sources,
            title=self._item.title,
        )

    def check(self) -> Iterator[Claim]:
        """Check the claims of a landed phase, if it makes any."""
        placed = self.placed
        if placed.phase == "plan" or (placed.phase == "red" and placed.placement is Placement.WITHOUT_COMMIT):
            return
        other = _find_squashed_phase(placed, self.chain)
        if other is not None:
            text = f"It was squashed with {other} into one commit, so the state between them is lost."
            yield leave_open("run", text)
            return
        claim = self._check_run()
        unproven = self._find_unproven() or self._find_uncommitted() if claim.holds is False else None
        if unproven is not None:
            claim = unproven
        elif claim.holds is False or self._may_lack_approved():
            again = self._check_run(with_ignored=True)
            if again.holds and self.runs.has_copied:
                claim = leave_open("run", "It holds only with files that git ignores, which nobody else has.")
            elif lacking := self._run(with_ignored=True)[0].lacking:
                claim = replace(claim, text=f"{claim.text} {self._explain_lacking(lacking)}")
        yield claim
        now, before = self._run()
        if placed.phase != "red" and before is not None:
            yield check_files(now, before, changed_tests=self._list_changed_tests())

    def _may_lack_approved(self) -> bool:
        """Return whether the tests could not be run without ignored files that the user approved."""
        return self._run()[0].report is None and bool(self.runs.repository.read_included())

    def _explain_lacking(self, lacking: Sequence[str]) -> str:
        line = format_inclusion(self.runs.repository, lacking[0], project=self.runs.project)
        named = join_first(lacking, most=_MOST_SHOWN)
        return f"Failing tests name what git ignores and the copy lacks: {named}. To add the first: {line}"

    def _find_uncommitted(self) -> Claim | None:
        """Return the claim for a GREEN without a RED that ran with tests which git lacks; None if others refute it."""
        handoff, now = self.placed.handoff, self._run()[0].report
        if self.placed.phase != "green" or "red" in self.chain or handoff is None:
            return None
        if handoff.commit != self.placed.commit.id:
            return None
        recorded = [case.nodeid for case in self.recorded.tests] if self.recorded is not None else []
        lacking = {test for test in recorded if self._is_missing(test)}
        if lacking and (self._added_tests or not self.uncommitted):
            listed = {
                test for test in lacking if any(test == each or is_inside(test, each) for each in self.uncommitted)
            }
            claim = self._check_run(without=lacking - listed)
            if claim.holds:
                return claim
        why = self.explain_uncommitted()
        if not why:
            return None
        lacking |= {*self.uncommitted}
        lacking |= {file for file in {test.partition("::")[0] for test in lacking} if self._is_missing(file)}
        others = _leave_out(now, lacking) if now is not None else None
        if others is not None and (others.tests or others.collect_errors):
            rest = self._check_run(without=lacking)
            if rest.holds is False:
                return None
        return leave_open("run", why)

    def _find_unproven(self) -> Claim | None:
        """Return the claim for tests that cannot be collected here because of the environment; None for others."""
        now, before = self._run()
        red = self.chain.get("red") if self.placed.phase == "green" else None
        first = replace(self, placed=red)._run()[1] if red is not None else before
        before_change = find_missing_modules(first.report if first is not None else None)
        lacking = {
            name: files
            for name, files in find_missing_modules(now.report).items()
            if name in before_change or self._is_built(name)
        }
        files = {file for each in lacking.values() for file in each}
        if not files:
            return None
        own = list_files((*self._item.tests, *self._changes), apart_from=())
        if files.isdisjoint(own) and self._check_run(without=files).holds is False:
            return None  # false already by the tests that can be collected
        name = next(iter(lacking))
        if name in self.runs.missing:
            return leave_open("run", f"As above, the module {name} is missing here.")
        self.runs.missing.add(name)
        shown = join_first(sorted(files), most=_MOST_SHOWN)
        return leave_open(
            "run",
            f"The module {name} is missing here, before the change too, so {shown} cannot be collected and the rerun "
            "proves nothing. Build or install the project, then audit again.",
        )

    def _is_built(self, module: str) -> bool:
        """Return whether git ignores the file of ``module``, because a build writes it, as with ``_version.py``."""
        repository, (*packages, name) = self.runs.repository, module.split(".")
        inside = "/".join((*packages, "__init__.py"))
        tops = (path.removesuffix(inside) for path in repository.objects.list_files(self.placed.commit.id))
        folders = (
            {top + "/".join(packages) for top in tops if top == "" or top.endswith("/")} if packages else {"", "src"}
        )
        paths = [f"{folder}/{name}{end}".lstrip("/") for folder in folders for end in (".py", "/__init__.py")]
        return bool(repository.match_ignored(paths))

    def _check_run(self, *, with_ignored: bool = False, without: Collection[str] = ()) -> Claim:
        """Check the results of the tests, except those of the tests and files ``without``."""
        now, before = self._run(with_ignored=with_ignored)
        if now.report is None:
            return _explain_missing(now, beside=before)
        if before is not None and before.report is None:
            return _explain_missing(before, beside=before)
        now_report, baseline = (
            None if each is None or each.report is None else _leave_out(each.report, without) for each in (now, before)
        )
        assert now_report is not None
        recorded = None if self.recorded is None else _leave_out(self.recorded, without)
        rerun = self._describe(report=now_report, baseline=baseline, recorded=recorded)
        if self.placed.phase == "red":
            return check_covered_red(rerun) if self.placed.is_covered else check_red(rerun)
        if self.placed.phase == "refactor":
            return check_refactor(rerun)
        if "red" not in self.chain or baseline is None:
            return check_green(rerun, red=None)
        # The commit before GREEN is that of RED, so only the commit before RED remains to be run.
        red = replace(self, placed=self.chain["red"])
        _, first = red._run(with_ignored=with_ignored)
        before_red = _leave_out(first.report, without) if first is not None and first.report else None
        return check_green(rerun, red=red._describe(report=baseline, baseline=before_red))

    def _run(self, *, with_ignored: bool = False) -> tuple[RerunResult, RerunResult | None]:
        """Return the results on the commit of the phase and on the one before it."""
        placed, before = self.placed, self._before
        now = self.runs.run(self._add_tests(placed.commit), called=placed.description, with_ignored=with_ignored)
        if before is None:
            return now, None
        called = placed.description if before.id == placed.commit.id else f"before {placed.description}"
        return now, self.runs.run(self._add_tests(before), called=called, with_ignored=with_ignored)

    def _describe(
        self, *, report: SuiteReport, baseline: SuiteReport | None, recorded: SuiteReport | None = None
    ) -> PhaseRerun:
        return PhaseRerun(
            item=self._item,
            report=report,
            baseline=baseline,
            files=self._changes,
            recorded=recorded,
            knows_sources="green" in self.chain,
            conventions=self.runs.suite.conventions,
        )

    @cached_property
    def _before(self) -> handoffs.AuditedCommit | None:
        """The commit to compare the phase with."""
        placed = self.placed
        if placed.placement is Placement.WITHOUT_COMMIT:
            return placed.commit
        phases = handoffs.PHASES[1 : handoffs.PHASES.index(placed.phase)] if placed.phase is not None else ()
        earlier = [self.chain[phase].commit for phase in phases if phase in self.chain]
        if earlier:
            return earlier[-1]
        parent = placed.base if placed.placement is Placement.ADOPTED and placed.base else placed.commit.parent
        return self.span.commits.get(CommitId(parent or ""))

    @cached_property
    def _item(self) -> WorkItem:
        """The work item as far as note and history describe it."""
        green, handoff = self.chain.get("green"), self.placed.handoff
        listed = (*handoff.pending_tests, *handoff.completed_tests) if handoff is not None else ()
        current = handoff.current_test if handoff is not None else None
        changes = replace(self, placed=green)._changes if green is not None else frozenset()
        sources = (current.impl_file,) if current is not None and current.impl_file else ()
        is_test = self.runs.layout.conventions.is_test
        is_feature = green is not None and green.commit.subject.startswith("feat:")
        return WorkItem(
            ticket=self.placed.ticket,
            number=self.placed.cycle,
            title=current.description if current is not None else "",
            goal="",
            kind="feature" if is_feature else "bug",
            phases=handoffs.PHASES,
            tests=listed or ((current.test_file,) if current is not None and current.test_file else ()),
            sources=(*sources, *sorted(path for path in changes.difference(sources) if not is_test(path))),
        )

    @cached_property
    def _changes(self) -> frozenset[str]:
        """The paths that the phase changed, relative to the project."""
        repository, commit, before = self.runs.repository, self.placed.commit, self._before
        if before is None:
            paths = list(repository.objects.list_files(commit.id))
        else:
            paths = [change.path for change in repository.list_changes(before.id, commit.id)]
        return frozenset(map(self.runs.layout.relativize, paths))

    def _list_changed_tests(self) -> frozenset[str]:
        """Return the changed files that the note lists as tests, whatever their names."""
        handoff = self.placed.handoff
        if handoff is None:
            return frozenset()
        current = handoff.current_test
        tests = tuple(filter(None, (current.test_file, *handoff.pending_tests, *handoff.completed_tests)))
        names = list_files(tests, apart_from=(current.impl_file,))
        return frozenset(
            path for path in self._changes if any(path == name or path.startswith(f"{name}/") for name in names)
        )


def _find_squashed_phase(placed: PlacedHandoff, chain: Chain) -> str | None:
    if placed.placement is not Placement.OWN:
        return None
    others = (
        other.phase_name
        for other in chain.values()
        if other is not placed and other.placement is Placement.OWN and other.commit.id == placed.commit.id
    )
    return next(others, None)
