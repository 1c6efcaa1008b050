"""What the model is told about one attempt: the phase's rules, the item, and what earlier attempts came to.

What a cycle is given and how far it may go: the work item, its phases, the limits.

Everything a cycle works with, gathered once by whoever starts it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cdd_agent.agent.budget import Budget
from cdd_agent.agent.quoting import Marks
from cdd_agent.clock import Clock
from cdd_agent.events import Emit, Notice, RunFinished, RunStarted, SuiteStarted
from cdd_agent.git.repository import Repository
from cdd_agent.git.snapshot import Snapshot, Snapshots
from cdd_agent.model.conversation import Model
from cdd_agent.shell.permission import Permission
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.tickets import plan
from cdd_agent.untrusted.keys import mask
from cdd_agent.work import state
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import NO_MEMORY, Memory
from pytest_tdd_agent.report import Reason, SuiteReport, Verdict, summary

Kind: TypeAlias = plan.Kind
"""What a work item changes; decides the prefix of its commits."""

Phase: TypeAlias = state.Phase
"""The part of a cycle that one gate judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a work item stands among others, for the handoff notes of a workflow that takes them from a list."""

    completed: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    following: str = "COMPLETE"
    """The phase after the item's last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One unit of work that ends in commits."""

    ticket: str
    number: int
    """Of the step or cycle, 1-based."""
    title: str
    goal: str
    """Description and acceptance criteria, as the model is to read them."""
    kind: Kind
    phases: tuple[Phase, ...]
    """Those it goes through, in order."""
    tests: tuple[str, ...]
    """Node ids or files; empty: whatever tests RED adds."""
    sources: tuple[str, ...]
    """Root-relative paths that are expected to change; in PLAN the only ones that may."""
    shown: tuple[str, ...] = ()
    """Root-relative files that a model without tools is given besides tests and sources."""
    progress: Progress | None = None
    """None: the item's own tests are all there are."""
    told: str = ""
    """What else PLAN's commit says, between its subject and its trailers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of a cycle, and what becomes of what they end."""

    max_attempts: int
    """At one phase."""
    budget: Budget
    """Of one attempt."""
    evidence_timeout_s: float
    """Wall clock of the runs that check one open gate from outside, all together."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the model changes files."""
    most_alike: int = 3
    """Closed attempts in a row with the same failures, after which there is no progress."""
    is_strict: bool = False
    """An attempt that breaks one test is taken back, however many others it mends."""
    keeps_landed: bool = False
    """A phase that fails takes back its own changes only, so that a person can go on from it; else the whole item."""
    one_test: bool = False
    """RED adds one new test, with as many parameters as it likes."""
    takes_covered: bool = False
    """A new test that passes at once ends the item, and stays if it notices altered code; else RED is tried again."""
    commits_nothing: bool = False
    """A phase that changes nothing makes an empty commit."""
    gate_runs: tuple[str, ...] = ()
    """The test files that baseline and gate run; empty: all tests."""
    targets_first: bool = False
    """An attempt at GREEN is judged by the item's tests alone first; the others are run only if those pass."""
    tests_each_write: bool = False
    """In GREEN the answer to each Write and Edit tells what the item's tests say then."""
    has_commands: bool = True
    """The model may run commands."""
    keeps_part: bool = False
    """A GREEN that mends some of the item's tests and breaks none is committed once its attempts are used up."""


def phases_of(kind: Kind, *, refactor: bool) -> tuple[Phase, ...]:
    """The phases a plan's step of this kind goes through; ``refactor``: whether feature and bug end with REFACTOR."""
    match kind:
        case "feature" | "bug":
            return ("red", "green", "refactor") if refactor else ("red", "green")
        case "refactor":
            return ("refactor",)
        case "docs" | "chore":
            return ("green",)


def commit_prefix(phase: Phase, kind: Kind) -> str:
    """The word before the colon of a commit's subject."""
    match phase:
        case "plan" | "refactor":
            return phase
        case "red":
            return "test"
        case "green":
            return {"feature": "feat", "bug": "fix", "docs": "docs", "chore": "chore"}.get(kind, "feat")


MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500
MAX_ATTEMPTS_SHOWN = 3
BREAKAGES = ("broke_others:", "test_removed:", "collect_error:")
"""How reasons begin that tell of tests which passed before."""

_PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """How the model is spoken to in one phase of one work item."""

    phase: Phase
    agent: str
    """Who works, as events name it."""
    role: str
    """Who the model is told it is; the beginning of the system prompt."""
    rules: str
    """Of the phase."""
    work: str
    """What is worked on: the last line of the system prompt, by which a recording finds its turns."""
    task: str
    """What it is asked to do, in words of the program's."""
    stated: str
    """What is wanted, in words of plan, list or user."""
    source: str
    """Where those words come from."""
    judge: Callable[[str], tuple[Reason, ...]] | None = None
    """What speaks against the agent's last words and the files as they are, in PLAN; elsewhere the tests judge."""
    settled: Callable[[WorkItem, str], WorkItem] | None = None
    """The item as the agent's last words, once they stand, make it."""


BriefFor: TypeAlias = Callable[[WorkItem, Phase], Brief]


def rules_of(phase: Phase) -> str:
    """The rules of a phase that every workflow has."""
    return (_PROMPTS / f"{phase}.md").read_text(encoding="utf-8").strip()


def system_prompt(brief: Brief, *, attempt: int, marks: Marks) -> str:
    """Role, rules of the phase and of the marks, and a last line that names the attempt."""
    return f"{brief.role.strip()}\n\n{brief.rules.strip()}\n\n{marks.rule}\n\nWork: {brief.work} attempt {attempt}"


def task(
    brief: Brief,
    *,
    earlier: tuple[AttemptRecord, ...],
    is_anew: bool,
    failing: str,
    marks: Marks,
    remedies: Sequence[str] = (),
) -> str:
    """The first message of an attempt: what the plan, the tests and the gate say stands between the marks.

    ``earlier`` are the closed attempts at this phase, of which nothing is left in the files if it ``is_anew``;
    ``failing`` is what is red at the moment, if anything, and ``remedies`` what mends it. Tests that the last attempt
    broke come before everything else.
    """
    parts = [*_broken(earlier, is_anew=is_anew, marks=marks), brief.task]
    parts.append(marks.around(brief.stated, source=brief.source))
    if failing:
        when = "What failed then" if is_anew else "What fails now"
        parts.append(f"{when}:\n\n{marks.around(failing, source='tests')}")
    if remedies:
        parts.append(f"What mends failures of these kinds:\n{bullets(remedies)}")
    if len(earlier) > MAX_ATTEMPTS_SHOWN:
        parts.append(f"{len(earlier) - MAX_ATTEMPTS_SHOWN} attempts before those below were refused too.")
    for attempt in earlier[-MAX_ATTEMPTS_SHOWN:]:
        reasons = marks.around(bullets(attempt.reasons), source=f"gate, attempt {attempt.number}")
        parts.append(f"Attempt {attempt.number} was refused by the gate:\n{reasons}")
    if earlier:
        here = (
            "Its changes were taken back: the files are as they were when the phase began. Take another way."
            if is_anew
            else "Your work so far is in the files."
        )
        parts.append(f"{here} This is attempt {len(earlier) + 1} at {brief.phase.upper()}.")
    return "\n\n".join(parts)


def _broken(earlier: tuple[AttemptRecord, ...], *, is_anew: bool, marks: Marks) -> tuple[str, ...]:
    """What passed before the phase and did not after the last attempt, if anything."""
    reasons = earlier[-1].reasons if earlier else ()
    broken = [reason for reason in reasons if reason.startswith(BREAKAGES)]
    if not broken:
        return ()
    todo = "It was taken back; do not break them again" if is_anew else "Mend that before anything else"
    shown = marks.around(bullets(broken), source="gate")
    return (f"The last attempt broke tests that passed before. {todo}:\n{shown}",)


def stated(item: WorkItem, *, heading: str) -> str:
    """What is asked for, with the tests and files that are named, below ``heading``."""
    parts = [f"# {heading}: {item.title}", item.goal.strip()]
    if item.tests:
        parts.append("Tests:\n" + bullets([f"`{test}`" for test in item.tests]))
    if item.sources:
        parts.append("Files that are expected to change:\n" + bullets([f"`{path}`" for path in item.sources]))
    return "\n\n".join(part for part in parts if part)


def bullets(lines: Sequence[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def failures(report: SuiteReport, *, rank: Callable[[str], int] = lambda _: 0) -> str:
    """The failing tests of a report with what pytest says of each, for a model to read: keys masked, then capped.

    ``rank`` takes a node id; the lowest come first.
    """
    failed = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None]
    failed += [(error.nodeid, error.failure) for error in report.collect_errors]
    failed.sort(key=lambda known: rank(known[0]))
    shown = []
    for nodeid, failure in failed[:MAX_FAILURES_SHOWN]:
        place = f" at {failure.path}:{failure.line}" if failure.path else ""
        text = mask(failure.text).text[-MAX_FAILURE_CHARACTERS:]
        shown.append(f"{nodeid}: {failure.kind}: {failure.message}{place}\n{text}".rstrip())
    if len(failed) > MAX_FAILURES_SHOWN:
        shown.append(f"... and {len(failed) - MAX_FAILURES_SHOWN} more")
    return "\n\n".join(shown)


def reason_lines(verdict: Verdict) -> tuple[str, ...]:
    """Each reason of a verdict as ``code: message``."""
    return tuple(f"{reason.code}: {reason.message}" for reason in verdict.reasons)


def evidence(verdict: Verdict, report: SuiteReport | None) -> str:
    """What a verdict rests on, in one line."""
    if report is None:
        ran = any(reason.code == "run_incomplete" for reason in verdict.reasons)
        return "the tests did not run to their end" if ran else "nothing was changed"
    count = {word: number for word, number in summary(report).items() if number and word in _COUNTED}
    if report.collect_errors:
        count["not importable"] = len(report.collect_errors)
    told = ", ".join(f"{number} {word}" for word, number in count.items())
    if verdict.phase == "red" and verdict.open:
        kinds = sorted({case.failure.kind for case in report.tests if case.failure is not None})
        kinds += sorted({error.failure.kind for error in report.collect_errors})
        return f"{told or 'no test was collected'}; fails by {', '.join(dict.fromkeys(kinds))}"
    return told or "no test was collected"


_COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The commands by which a person goes on with work that was interrupted."""

    go_on: str
    anew: str
    """Takes back what is half done first."""
    unit: str
    """What work items are called: ``step`` or ``cycle``; ``run`` where there is one only."""


class Keeping(Protocol):
    """As much of a context as tells what is kept of a step."""

    @property
    def repository(self) -> Repository:
        """The project's work tree and history."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """What its files were."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One project with its history, files, tests, and who answers."""

    repository: Repository
    snapshots: Snapshots
    workspace: Workspace
    suite: Suite
    model: Model
    policy: Policy
    brief: BriefFor
    """How the model is spoken to in a phase of an item."""
    reports: Path
    """Folder for the evidence of the ticket in work."""
    emit: Emit
    permission: Permission | None = None
    """Says whether a person has to be asked before a command runs; None: the sandbox alone says what happens."""
    memory: Memory = NO_MEMORY
    """Conventions of the project, with which every attempt begins."""
    ways: Ways | None = None
    """None: those of the Executor."""

    def ways_on(self, ticket: str, step: StepExecution) -> Ways:
        """How to go on with an interrupted step."""
        go_on = f"cdd exec {ticket}"
        return self.ways or Ways(go_on=go_on, anew=f"{go_on} --retry {step.step_number}", unit="step")

    def called(self, step: StepExecution) -> str:
        """What a step is called in a sentence."""
        unit = self.ways.unit if self.ways else "step"
        return "the run" if unit == "run" else f"{unit} {step.step_number}"

    def in_repository(self, path: str) -> str:
        """A path of the project as the repository names it: the project may be a folder inside the work tree."""
        inside = self.workspace.root.resolve().relative_to(self.repository.root.resolve()).as_posix()
        return path if inside == "." else f"{inside}/{path}"

    def run_suite(
        self,
        purpose: str,
        *,
        keep: Path | None = None,
        targets: tuple[str, ...] = (),
        before: Snapshot | None = None,
    ) -> SuiteRun:
        """Run tests and say so before and after; files they leave behind, or change, are put back as they were.

        Otherwise a database or a picture that a test writes would count as the agent's work, and be committed. A run
        whose report is kept is evidence: no compiled code that an earlier one may have planted takes part.
        ``before``: the files as they are, if they have just been kept.
        """
        framework = self.suite.conventions.framework
        self.emit(SuiteStarted(purpose=purpose, targets=targets, framework=framework))
        before = before or self.snapshots.take("refs/cdd/tests/before", message="before a test run")
        suite = self.suite if keep is None else self.suite.anew()
        run = suite.run(targets, keep=keep)
        for notice in run.notices:
            self.emit(Notice(text=notice))
        if self.snapshots.changes_since(before):
            self.snapshots.take("refs/cdd/tests/after", message="what a test run left behind")
            self.snapshots.restore(before)
        self.emit(run.finished(purpose, framework=framework))
        return run

    def run_targets(
        self, purpose: str, *, targets: tuple[str, ...], keep: Path | None = None, before: Snapshot | None = None
    ) -> SuiteRun:
        """Run the tests that ``targets`` name; their whole files if pytest cannot find a test in one of them.

        A file that cannot be imported has no tests for pytest, and only a run of the file says why.
        """
        run = self.run_suite(purpose, targets=targets, keep=keep, before=before)
        files = tuple(dict.fromkeys(target.partition("::")[0] for target in targets))
        if run.was_refused and files != targets:
            return self.run_suite(purpose, targets=files, keep=keep, before=before)
        return run


Workflow: TypeAlias = Literal["exec", "tdd", "green"]


@contextmanager
def told(
    workflow: Workflow,
    ticket: str,
    *,
    context: Context,
    clock: Clock,
    remarks: Iterable[str],
    settle: Callable[[], RunState],
) -> Iterator[None]:
    """Tell that the run begins and how it has ended, an error that passes through included.

    ``settle`` gives the state as it stays, and keeps it durably; where it fails, the run counts as not ended.
    """
    began, status = clock.monotonic(), Status.IN_PROGRESS
    sandbox = context.suite.sandbox.level
    context.emit(RunStarted(workflow=workflow, ticket=ticket, model=context.model.name, sandbox=sandbox))
    for remark in remarks:
        context.emit(Notice(text=remark))
    try:
        try:
            yield
        finally:
            status = settle().status
    finally:
        took = clock.monotonic() - began
        context.emit(RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=took))
