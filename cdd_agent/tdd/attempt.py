"""One attempt at a phase: a fresh conversation with the model, and the verdict on the work tree it leaves.

What to do about a failure, by its kind: one line for the model. Pure.

What a phase stands on: the files, the history and the test results from before its first attempt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.agent.blocks import WholeFiles
from cdd_agent.agent.loop import AgentRun, run_agent, run_without_tools
from cdd_agent.agent.quoting import Marks, conventions
from cdd_agent.agent.tool import read_input
from cdd_agent.agent.tools import signals
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import AttemptStarted, GateJudged, Notice
from cdd_agent.evidence.clean_copy import (
    layout_of,
    newly_passing,
    product_changes,
    product_sources,
    project_in,
    sources_in,
    sources_of_tests,
)
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.request import Findings, Request
from cdd_agent.evidence.stubs import NewTests, vacuous_tests
from cdd_agent.git.repository import Change
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.model.conversation import CHARACTERS_PER_TOKEN, Conversation, ToolCall, draw_token
from cdd_agent.tdd import context as briefing
from cdd_agent.tdd import recovery, verdict
from cdd_agent.tdd.context import Brief, Context, Phase, WorkItem
from cdd_agent.tdd.recovery import Position
from cdd_agent.tdd.tools import locks_for, tools_for
from cdd_agent.tdd.verdict import RedVerdict, surplus
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import in_one_line
from cdd_agent.work.state import AttemptRecord, StepExecution
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import Failure, Reason, SuiteReport, Verdict, failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The same from the first attempt at a phase to the last."""

    snapshot: Snapshot
    """The work tree as it was when the phase began."""
    position: Position
    """Where HEAD, branch and index were."""
    baseline: SuiteReport
    """In GREEN with what RED's report cannot say of the tests before the step: see ``with_tests_before``."""
    baseline_path: str
    """Of the report, relative to the work tree."""
    off_limits: frozenset[str]
    """Files with uncommitted changes of the user's."""


def lay(item: WorkItem, phase: Phase, *, step: StepExecution, at: Position, context: Context) -> Ground:
    """The ground of ``phase``: found if an attempt was made at it, laid now if not; ``at`` is where history stands.

    Raises ``EnvironmentMissing`` if the tests cannot be run, or if there are none and the phase adds none.
    """
    ref = recovery.checkpoint_ref(item.ticket, step, name=f"{phase}-0")
    snapshot = context.snapshots.find(ref) or context.snapshots.take(ref, message=f"before {phase}")
    baseline, path = _baseline(step, snapshot=snapshot, context=context)
    if phase == "green" and not mends_what_fails(item):
        baseline = _with_the_tests_before(baseline, step=step, context=context)
    has_none = baseline.structured and not baseline.tests and not baseline.collect_errors
    if phase in ("green", "refactor") and has_none:
        root = context.suite.root
        raise EnvironmentMissing(
            f"No tests found: {context.suite.conventions.framework} in {root} has none (by default "
            f"{context.suite.conventions.looked_for}), and without a test the gate cannot say that step {item.number}, "
            f"a step of kind {item.kind}, left everything working.",
            hint=f"write one test and commit it (see what is found: {_listing(context)}), or "
            "give the step the kind feature",
        )
    return Ground(
        snapshot=snapshot,
        position=at,
        baseline=baseline,
        baseline_path=path,
        off_limits=recovery.user_files(step, context=context),
    )


def mends_what_fails(item: WorkItem) -> bool:
    """Whether the item is to make tests pass that fail before it, rather than tests of its own RED."""
    return item.phases[0] == "green" and item.kind not in ("docs", "chore")


def _listing(context: Context) -> str:
    """The command that shows which tests there are."""
    only = " --collect-only" if context.suite.conventions.framework == "pytest" else ""
    return f"{context.suite.command}{only}"


def _baseline(step: StepExecution, *, snapshot: Snapshot, context: Context) -> tuple[SuiteReport, str]:
    """What the tests said when the last phase landed, or, before the first one, what they say now; and its path.

    A report that is lost is made again from the files as they were before the phase.
    """
    root = context.repository.root
    opened = [a.report for a in step.attempts if a.phase in step.commits and a.verdict == "open"]
    landed = [root / report for report in opened if report]
    path = landed[-1] if landed else recovery.report_path(step, "baseline", context=context)
    shown = str(path.relative_to(root))
    try:
        return load(path), shown
    except ReportError:
        present = recovery.last_checkpoint(step, context=context)
        context.snapshots.restore(snapshot)
        scope = context.policy.gate_runs
        run = context.run_suite(f"{scope_words(scope)} as a baseline", keep=path, targets=scope)
        if present is not None:
            context.snapshots.restore(present)
    if run.report is None:
        raise EnvironmentMissing(
            f"The project's tests cannot be run: {run.problem}.\n{run.output.strip()[-2000:]}",
            hint=f"make `{context.suite.command}` work in {context.suite.root}",
        )
    return run.report, shown


def scope_words(files: tuple[str, ...]) -> str:
    """What a run of ``files`` is called; none: of all tests."""
    return "the tests of the targets' files" if files else "all tests"


def _with_the_tests_before(baseline: SuiteReport, *, step: StepExecution, context: Context) -> SuiteReport:
    """``baseline`` with what the step's first report adds; as it is if that one is lost."""
    try:
        first = load(recovery.report_path(step, "baseline", context=context))
    except ReportError:
        return baseline
    return with_tests_before(baseline, first=first)


def with_tests_before(red: SuiteReport, *, first: SuiteReport) -> SuiteReport:
    """RED's report as a baseline of GREEN: with the tests of files that RED's import hides, as they were in ``first``.

    What failed in ``first`` is noted as old, so that GREEN is not asked to mend it.
    """
    present = {case.nodeid for case in red.tests}
    hiding = tuple(_inside(error.nodeid) for error in red.collect_errors)
    hidden = tuple(case for case in first.tests if case.nodeid not in present and case.nodeid.startswith(hiding))
    opened = Verdict(phase="red", open=True)
    return replace(red, tests=(*red.tests, *hidden), old_failures=failing(first), gate=opened)


def _inside(nodeid: str) -> str:
    """What the node ids begin with of the tests in the file, or the package, that could not be collected."""
    return nodeid.removesuffix("__init__.py") if nodeid.endswith("/__init__.py") else f"{nodeid}::"


REMEDIES: Mapping[str, str] = {
    "syntax_error": "a file cannot be parsed: write valid syntax at the place that is named",
    "missing_module": "the module does not exist: create it where the import looks for it",
    "import_error": "the module is there without that name: define the name in it",
    "collection_error": "the import of a test file raises: mend what it runs while it is imported",
    "fixture_missing": "the test asks for a fixture that does not exist, which only a test file can define: report it",
    "did_not_raise": "an exception is missing: raise the one that is named for that input",
    "did_not_warn": "a warning is missing: give the one that is named for that input",
    "raises_match_mismatch": "the exception is right and its message is not: word it as the test asks",
    "wrong_exception": "another exception is expected: raise that class, and define it if it is missing",
    "not_implemented": "there is only a stub: implement it",
    "attribute_error": "the attribute or method is missing: add it to the object that is named",
    "name_error": "the name is not defined: define or import it where it is used",
    "signature_mismatch": "the call does not fit: give the function the parameters that the test calls it with",
    "assertion": "the code runs and its result is wrong: mend its logic, from the values that are compared",
    "timeout": "it takes too long: look for a loop without end, or for waiting",
    "crash": "the process died: look for os._exit, a signal or native code, and take it out",
    "resource": "memory, disk or file descriptors ran out: use less, and close what is opened",
    "recursion": "it calls itself without end: give it a case that ends",
    "system_exit": "the code ends the process: raise an exception or return instead",
    "xpass_strict": "the test is marked to fail and passes, which only a test file can mend: report it",
    "pytest_fail": "the test fails itself: do what its message asks for",
    "exception": "an exception that no test expects: mend the cause at the place that is named",
}
"""Kind of a failure, one of ``pytest_tdd_agent.failure.KINDS`` -> what mends it."""


def remedies(failures: Iterable[Failure]) -> tuple[str, ...]:
    """A line for each kind of these failures, those that keep tests from running at all first."""
    kinds = [failure.kind for failure in failures]
    return tuple(f"{kind} ({kinds.count(kind)}): {remedy}" for kind, remedy in REMEDIES.items() if kind in kinds)


ANSWER_CAP = 20_000
"""Characters of an agent's last words that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """The files as an attempt left them."""

    snapshot: Snapshot
    changes: tuple[Change, ...]
    """Since the phase began."""


def attempts_at(phase: Phase, step: StepExecution) -> tuple[AttemptRecord, ...]:
    """The attempts at one phase so far."""
    return tuple(attempt for attempt in step.attempts if attempt.phase == phase)


def report_of(attempt: AttemptRecord, *, root: Path) -> SuiteReport | None:
    """The report that an attempt was judged by; None if there was none, or it is lost."""
    try:
        return load(root / attempt.report) if attempt.report else None
    except ReportError:
        return None


def gave_up(attempt: AttemptRecord) -> bool:
    """Whether the agent itself says that it cannot go on."""
    return attempt.reasons[:1] != () and attempt.reasons[0].partition(":")[0] in signals.WHY


def make_attempt(
    item: WorkItem, phase: Phase, *, step: StepExecution, ground: Ground, is_anew: bool, context: Context
) -> AttemptRecord:
    """Let the model work once, judge what it left, and keep that as a checkpoint.

    ``is_anew``: the files are as they were when the phase began. Commits that the agent made itself are taken back,
    unless the gate let them pass as they are.
    """
    number = len(attempts_at(phase, step)) + 1
    context.emit(AttemptStarted(phase=phase, number=number, limit=context.policy.max_attempts))
    brief = context.brief(item, phase)
    run = _worked(item, brief, step=step, ground=ground, is_anew=is_anew, context=context)
    path = recovery.report_path(step, f"{phase}-{number}", context=context)
    left = _kept(item, step=step, name=f"{phase}-{number}", ground=ground, context=context)
    checkpoint = left.snapshot
    report: SuiteReport | None = None
    evidence = ""
    offences: tuple[Reason, ...] = ()
    if run.ended_by is not None and run.ended_by.name == signals.NAME:
        judged, evidence = _given_up(phase, run.ended_by), "the agent gave up"
    elif brief.judge is None:
        judged, report = _judged_by_tests(item, phase, left=left, keep=path, ground=ground, context=context)
        offences, checkpoint = _put_back_offences(item, phase, left=left, step=step, ground=ground, context=context)
    else:
        offences, checkpoint = _put_back_offences(item, phase, left=left, step=step, ground=ground, context=context)
        judged, evidence = _judged_by_words(brief, run.text, left=left)
    judged = verdict.joined(judged, offences)
    if phase == "green" and judged.open and report is not None:
        doubts = _doubts(item, report=report, checkpoint=checkpoint, ground=ground, context=context)
        judged = verdict.joined(judged, doubts)
    elif phase == "red" and report is not None:
        if context.policy.one_test:
            judged = verdict.joined(judged, _surplus(report, checkpoint=checkpoint, ground=ground, context=context))
        if _red_finding(item, judged, report=report, ground=ground, context=context) is RedVerdict.VALID_MISSING_SYMBOL:
            vacuous = _vacuous(item, report=report, checkpoint=checkpoint, ground=ground, context=context)
            judged = verdict.joined(judged, vacuous)
    finding = _red_finding(item, judged, report=report, ground=ground, context=context) if phase == "red" else None
    reasons = briefing.reason_lines(judged)
    context.emit(
        GateJudged(
            phase=phase,
            attempt=number,
            open=judged.open,
            reasons=reasons,
            evidence=evidence or briefing.evidence(judged, report),
            finding=finding or "",
        )
    )
    if not (judged.open and _is_whole(step, checkpoint, ground=ground, context=context)):
        recovery.put_back(ground.position, ticket=item.ticket, step=step, context=context)
    return AttemptRecord(
        phase=phase,
        number=number,
        verdict="open" if judged.open else "closed",
        reasons=reasons,
        report=None if report is None else str(path.relative_to(context.repository.root)),
        checkpoint=checkpoint.ref,
        finding=finding,
        answer=None if brief.judge is None else run.text[:ANSWER_CAP],
    )


def judge_part(
    item: WorkItem, attempt: AttemptRecord, *, step: StepExecution, ground: Ground, context: Context
) -> AttemptRecord:
    """``attempt`` at GREEN as the gate judges the files as they are by ``item``, a part of what the attempt was for.

    Files and report are kept apart from the attempt's own.
    """
    path = recovery.report_path(step, "green-part", context=context)
    left = _kept(item, step=step, name="green-part", ground=ground, context=context)
    judged, report = _judged_by_tests(item, "green", left=left, keep=path, ground=ground, context=context)
    offences, checkpoint = _put_back_offences(item, "green", left=left, step=step, ground=ground, context=context)
    judged = verdict.joined(judged, offences)
    if judged.open and report is not None:
        judged = verdict.joined(
            judged, _doubts(item, report=report, checkpoint=checkpoint, ground=ground, context=context)
        )
    return replace(
        attempt,
        verdict="open" if judged.open else "closed",
        reasons=briefing.reason_lines(judged),
        report=None if report is None else str(path.relative_to(context.repository.root)),
        checkpoint=checkpoint.ref,
    )


def _worked(
    item: WorkItem, brief: Brief, *, step: StepExecution, ground: Ground, is_anew: bool, context: Context
) -> AgentRun:
    """A fresh conversation with the model, until it ends or its budget does."""
    phase, earlier = brief.phase, attempts_at(brief.phase, step)
    marks = Marks(draw_token())
    conversation = Conversation(
        briefing.system_prompt(brief, attempt=len(earlier) + 1, marks=marks),
        token=marks.token,
        preface=conventions(context.memory, marks=marks),
    )
    report = _last_report(phase, earlier, ground=ground, root=context.repository.root)
    failing, advice = ("", ()) if report is None else _failing(item, phase, report=report, baseline=ground.baseline)
    task = briefing.task(brief, earlier=earlier, is_anew=is_anew, failing=failing, marks=marks, remedies=advice)
    model, budget, emit = context.model, context.policy.budget, context.emit
    if context.policy.edit_format == "blocks":
        hands = _whole_files(item, phase, ground=ground, context=context)
        given = hands.give(_files_of(item, step=step, context=context), marks=marks)
        conversation.say(f"{task}\n\nThe files of the step as they are now, each whole:\n\n{given or 'none'}")
        return run_without_tools(conversation, hands, model=model, budget=budget, emit=emit, agent=brief.agent)
    tools = tools_for(
        phase,
        context,
        off_limits=ground.off_limits,
        tests=_named_tests(item, context),
        listed=_listed(item, context),
        after_writing=item.tests if phase == "green" and context.policy.tests_each_write else (),
    )
    conversation.say(task)
    return run_agent(conversation, tools, model=model, budget=budget, emit=emit, agent=brief.agent)


def _red_finding(
    item: WorkItem, judged: Verdict, *, report: SuiteReport | None, ground: Ground, context: Context
) -> RedVerdict:
    conventions = context.suite.conventions
    return verdict.red_finding(item, judged, report=report, baseline=ground.baseline, conventions=conventions)


def _given_up(phase: Phase, call: ToolCall) -> Verdict:
    """The verdict on an attempt that the agent gave up, with its reason."""
    said = read_input(call.input, signals.Blocked)
    reason = Reason(code=said.why, nodeid=None, message=in_one_line(mask(said.reason).text)[:ANSWER_CAP])
    return Verdict(phase=phase, open=False, reasons=(reason,))


def _kept(item: WorkItem, *, step: StepExecution, name: str, ground: Ground, context: Context) -> _Left:
    """The files as they are, kept as a checkpoint before they are judged."""
    ref = recovery.checkpoint_ref(item.ticket, step, name=name)
    snapshot = context.snapshots.take(ref, message=f"what was left by {name}")
    return _Left(snapshot=snapshot, changes=context.snapshots.changes_since(ground.snapshot, until=snapshot))


def _judged_by_words(brief: Brief, text: str, *, left: _Left) -> tuple[Verdict, str]:
    """The verdict where no test can judge, and what it rests on."""
    assert brief.judge is not None
    reasons = tuple(brief.judge(text))
    changed = ", ".join(change.path for change in left.changes) or "no file"
    return Verdict(phase=brief.phase, open=not reasons, reasons=reasons), f"the answer, and {changed} changed"


def _whole_files(item: WorkItem, phase: Phase, *, ground: Ground, context: Context) -> WholeFiles:
    """What a model without tools is given and hands in, with the locks of the phase."""
    locks = locks_for(
        phase, context, off_limits=ground.off_limits, tests=_named_tests(item, context), listed=_listed(item, context)
    )
    most = context.policy.budget.max_answer_tokens * CHARACTERS_PER_TOKEN
    return WholeFiles(context.workspace, locks, most_characters=most)


def _files_of(item: WorkItem, *, step: StepExecution, context: Context) -> tuple[str, ...]:
    """The files that the item names, and those that were changed since it was begun, relative to the project."""
    start = context.snapshots.find(step.checkpoint) if step.checkpoint else None
    changed = [] if start is None else [change.path for change in context.snapshots.changes_since(start)]
    inside = context.in_repository("")
    own = [path.removeprefix(inside) for path in changed if path.startswith(inside)]
    return tuple(dict.fromkeys((*item.sources, *item.shown, *verdict.named_test_files(item), *own)))


def _is_whole(step: StepExecution, checkpoint: Snapshot, *, ground: Ground, context: Context) -> bool:
    """Whether the agent committed all of its work and nothing else, on the branch it was given."""
    repository, base = context.repository, ground.position.head
    head = repository.head()
    if head is None or base is None or head == base or repository.branch() != ground.position.branch:
        return False
    return recovery.holds_only(head, checkpoint, step=step, base=base, context=context)


def _last_report(phase: Phase, earlier: tuple[AttemptRecord, ...], *, ground: Ground, root: Path) -> SuiteReport | None:
    """What tells of all that is red before the attempt begins."""
    judged = [attempt for attempt in earlier if attempt.report]
    if judged:
        return report_of(judged[-1], root=root)
    return ground.baseline if phase == "green" else None


def _failing(
    item: WorkItem, phase: Phase, *, report: SuiteReport, baseline: SuiteReport
) -> tuple[str, tuple[str, ...]]:
    """What fails, as the model is to read it, what was broken first, then the item's own; in GREEN, what mends it."""
    passed = {case.nodeid for case in baseline.tests if case.outcome == "passed"}
    old = set(baseline.old_failures)

    def rank(nodeid: str) -> int:
        return 0 if nodeid in passed else 1 if verdict.concerns(item, nodeid) else 2

    def is_to_mend(nodeid: str) -> bool:
        return nodeid not in old and (not item.tests or rank(nodeid) < 2)

    failed = [(error.nodeid, error.failure) for error in report.collect_errors]
    failed += [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
    advice = remedies(failure for nodeid, failure in failed if is_to_mend(nodeid)) if phase == "green" else ()
    return briefing.failures(report, rank=rank), advice


def _named_tests(item: WorkItem, context: Context) -> tuple[str, ...]:
    """The test files that the item names, as the repository names them: tests whatever they are called."""
    return tuple(context.in_repository(path) for path in verdict.named_test_files(item))


def _listed(item: WorkItem, context: Context) -> tuple[str, ...]:
    """The files that the item names as its sources, as the repository names them."""
    return tuple(map(context.in_repository, item.sources))


def _judged_by_tests(
    item: WorkItem, phase: Phase, *, left: _Left, keep: Path, ground: Ground, context: Context
) -> tuple[Verdict, SuiteReport | None]:
    """The gate's verdict on the files that are ``left``, and the report it rests on.

    By the item's tests alone if they come first, are not all, and do not pass; else by all.
    """
    if not left.changes:
        return verdict.nothing_done(item, phase), None
    scope = context.policy.gate_runs
    before = (*(case.nodeid for case in ground.baseline.tests), *(e.nodeid for e in ground.baseline.collect_errors))
    are_all = all(verdict.concerns(item, nodeid) for nodeid in before)
    if phase == "green" and item.tests and context.policy.targets_first and not are_all:
        run = context.run_targets("the targets", targets=item.tests, keep=keep, before=left.snapshot)
        if run.report is not None:
            alone = verdict.of_targets(item, phase, report=run.report, baseline=ground.baseline)
            if not alone.open:
                return alone, run.report
    run = context.run_suite(f"{scope_words(scope)} for the gate", keep=keep, targets=scope, before=left.snapshot)
    if run.report is None:
        return verdict.not_run(phase, run.problem or "no report"), None
    return verdict.of_run(
        item, phase, report=run.report, baseline=ground.baseline, conventions=context.suite.conventions
    ), run.report


def _put_back_offences(
    item: WorkItem, phase: Phase, *, left: _Left, step: StepExecution, ground: Ground, context: Context
) -> tuple[tuple[Reason, ...], Snapshot]:
    """Put back what the phase does not allow to be changed; a reason for each, and the files as they stay."""
    stays = left.snapshot
    offences = verdict.trespasses(
        phase,
        left.changes,
        off_limits=ground.off_limits,
        tests=_named_tests(item, context),
        layout=layout_of(context.repository, context.suite),
        listed=_listed(item, context),
    )
    if offences:
        recovery.put_files_back(ground.snapshot, ticket=item.ticket, step=step, only=tuple(offences), context=context)
        stays = context.snapshots.take(stays.ref, message=f"what stays of {phase}")
    return tuple(offences.values()), stays


def _surplus(report: SuiteReport, *, checkpoint: Snapshot, ground: Ground, context: Context) -> tuple[Reason, ...]:
    """What speaks against an attempt at RED that adds more than one test."""
    old = {error.nodeid for error in ground.baseline.collect_errors}
    files = [error.nodeid for error in report.collect_errors if error.nodeid not in old]
    project = project_in(context.repository, context.suite)
    sources = sources_in(context.repository, project=project, tree=checkpoint.commit, paths=files) if files else {}
    return surplus(report, baseline=ground.baseline, sources=sources)


def _vacuous(
    item: WorkItem, *, report: SuiteReport, checkpoint: Snapshot, ground: Ground, context: Context
) -> tuple[Reason, ...]:
    """What speaks against an open RED whose tests fail for want of a name: they pass once anything has that name."""
    new = NewTests(
        report=report,
        baseline=ground.baseline,
        sources=item.sources,
        tree=checkpoint.commit,
        time_box_s=context.policy.evidence_timeout_s,
    )
    return _told(
        vacuous_tests(new, suite=context.suite, repository=context.repository, emit=context.emit), context=context
    )


def _doubts(
    item: WorkItem, *, report: SuiteReport, checkpoint: Snapshot, ground: Ground, context: Context
) -> tuple[Reason, ...]:
    """What speaks against an open GREEN when it is looked at from outside the process that ran the tests."""
    repository, red, green = context.repository, ground.snapshot.commit, checkpoint.commit
    layout = layout_of(repository, context.suite)
    project = layout.project
    targets = newly_passing(report, baseline=ground.baseline)
    request = Request(
        targets=targets,
        changes=product_changes(repository, layout=layout, red=red, green=green, tests=verdict.named_test_files(item)),
        tests=sources_of_tests(repository, project=project, tree=red, targets=targets),
        stated=f"{item.title}\n{item.goal}",
        red=red,
        green=green,
        baseline=ground.baseline,
        time_box_s=context.policy.evidence_timeout_s,
        elsewhere=lambda: product_sources(repository, project=project, tree=red),
    )
    return _told(confirm(request, suite=context.suite, repository=repository, emit=context.emit), context=context)


def _told(findings: Findings, *, context: Context) -> tuple[Reason, ...]:
    """The reasons; what could not be checked is told."""
    for notice in findings.notices:
        context.emit(Notice(text=notice))
    return findings.reasons
