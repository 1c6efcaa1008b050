"""One attempt at a phase: a fresh conversation with the model, and the verdict on the work tree it leaves."""

from dataclasses import dataclass
from pathlib import Path

from cdd_agent.agent.loop import run_agent
from cdd_agent.events import AttemptStarted, GateJudged
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.model.conversation import Conversation
from cdd_agent.tdd import briefing, recovery, verdict
from cdd_agent.tdd.equipment import tools_for
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import AttemptRecord
from pytest_tdd_agent.report import SuiteReport, Verdict, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a phase stands on, the same from its first attempt to its last."""

    snapshot: Snapshot
    """The work tree as it was when the phase began."""
    baseline: SuiteReport
    off_limits: frozenset[str]
    """Files with uncommitted changes of the user's."""


def make_attempt(
    item: WorkItem, phase: Phase, *, earlier: tuple[AttemptRecord, ...], ground: Ground, bench: Workbench
) -> AttemptRecord:
    """Let the model work once, judge what it left, and keep that as a checkpoint."""
    number = len(earlier) + 1
    bench.emit(AttemptStarted(phase=phase, number=number, limit=bench.policy.max_attempts))
    conversation = Conversation(briefing.system_prompt(bench.role, item, phase=phase, attempt=number))
    failing = _failing(phase, earlier, ground=ground, root=bench.repository.root)
    conversation.say(briefing.task(item, phase, earlier=earlier, failing=failing))
    tools = tools_for(phase, bench, off_limits=ground.off_limits)
    run_agent(conversation, tools, model=bench.model, budget=bench.policy.budget, emit=bench.emit, agent="executor")

    path = recovery.report_path(item, f"{phase}-{number}", bench=bench)
    judged, report = _judge(item, phase, keep=path, ground=ground, bench=bench)
    reasons = briefing.reason_lines(judged)
    evidence = briefing.evidence(judged, report)
    bench.emit(GateJudged(phase=phase, attempt=number, open=judged.open, reasons=reasons, evidence=evidence))
    ref = recovery.checkpoint_ref(item, f"{phase}-{number}")
    return AttemptRecord(
        phase=phase,
        number=number,
        verdict="open" if judged.open else "closed",
        reasons=reasons,
        report=None if report is None else str(path.relative_to(bench.repository.root)),
        checkpoint=bench.snapshots.take(ref, message=f"{phase} attempt {number}").ref,
    )


def _failing(phase: Phase, earlier: tuple[AttemptRecord, ...], *, ground: Ground, root: Path) -> str:
    """What is red before the attempt begins, as the model is to read it."""
    reports = [root / attempt.report for attempt in earlier if attempt.report]
    if reports:
        return briefing.failures(load(reports[-1])) if reports[-1].exists() else ""
    return briefing.failures(ground.baseline) if phase == "green" else ""


def _judge(
    item: WorkItem, phase: Phase, *, keep: Path, ground: Ground, bench: Workbench
) -> tuple[Verdict, SuiteReport | None]:
    """The verdict on the work tree and the report it rests on; changes the phase does not allow are put back."""
    changes = bench.snapshots.changes_since(ground.snapshot)
    if not changes:
        return verdict.nothing_done(phase), None
    run = bench.run_suite("all tests for the gate", keep=keep)
    if run.report is None:
        judged = verdict.not_run(phase, run.problem or "no report")
    else:
        judged = verdict.of_run(item, phase, report=run.report, baseline=ground.baseline)
    offences = verdict.trespasses(phase, changes, off_limits=ground.off_limits)
    if offences:
        locked = [
            change.path for change in changes if verdict.lock_reason(phase, change.path, off_limits=ground.off_limits)
        ]
        bench.snapshots.restore(ground.snapshot, only=locked)
    return verdict.joined(judged, offences), run.report
