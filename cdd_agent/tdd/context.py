"""The inputs of a cycle: the work item, the policy, the brief for the model, and the context.

A workflow makes these records. The context holds the parts that a cycle works with: the project's files, history and
tests, the model, and the place for reports. The functions at the end summarize a verdict in a line.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Literal, Protocol, TypeAlias

from cdd_agent.agent.loop import AgentRun
from cdd_agent.agent.symbol_tools import KeepName
from cdd_agent.agent.tools import Tool
from cdd_agent.config.options import Choose
from cdd_agent.config.settings import Settings
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Emit, Notice, SuiteStarted
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.tree_store import Description, Snapshot, TreeStore
from cdd_agent.hooks import NO_HOOKS, Hooks
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import HearUser, Model, draw_token
from cdd_agent.review import Comments
from cdd_agent.sandbox.supervised import end_runs
from cdd_agent.shell.permission import Permission
from cdd_agent.symbols.project import Symbols
from cdd_agent.tdd.kinds import FileKinds
from cdd_agent.tdd.workplace import Workplace
from cdd_agent.testrun.impact import ImpactMap, find_impact, load_impact, save_impact
from cdd_agent.testrun.store import Looked, ReportStore, Scene
from cdd_agent.testrun.suite import PYTEST, Suite, SuiteRun, save_report
from cdd_agent.tickets import plan
from cdd_agent.untrusted.text import format_line
from cdd_agent.work import state
from cdd_agent.work.finding import Finding
from cdd_agent.work.handoff import NumberKey
from cdd_agent.work.records import Records
from cdd_agent.work.state import Diagnosis, StepExecution, StepKey
from cdd_agent.work.wording import explain
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import NO_MEMORY, Memory
from pytest_tdd_agent.comparison import find_spared
from pytest_tdd_agent.report import Clause, Reason, SuiteReport, Verdict, add_tests, count_outcomes, list_failing
from pytest_tdd_agent.wording import explain as explain_problem

Kind: TypeAlias = plan.Kind
"""The kind of change; it decides the prefix of the commits."""

Phase: TypeAlias = state.Phase
"""The part of a cycle that one gate judges."""

_POLL_S = 0.05
_MOST_WAITING = 10
_REFUSED_SOCKET = re.compile(
    r"^(?:INTERNALERROR>|E)?([^\n]*\bsocket\([^\n]*AF_INET[^\n]*)\n(?:[^\n]*\n){1,8}?[^\n]*PermissionError: ", re.M
)
"""Most files of unusual kinds that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The other items of a workflow's list, for the handoff notes."""

    completed: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Removed, because they passed at once and prove nothing."""
    following: str = "COMPLETE"
    """The phase after the item's last phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """A unit of work that ends in commits."""

    ticket: str
    number: int
    """1-based number of the step or cycle."""
    number_key: NumberKey = "Step"
    """The trailer of its commits that names the number."""
    title: str
    goal: str
    """Description and acceptance criteria for the model."""
    kind: Kind
    phases: tuple[Phase, ...]
    """In order."""
    tests: tuple[str, ...]
    """Node ids or files; empty: any tests that RED adds."""
    sources: tuple[str, ...]
    """Root-relative paths that are expected to change; PLAN may write no others."""
    named: tuple[str, ...] = ()
    """Root-relative files that a plan names, which may therefore be of any kind: see ``FileKinds``."""
    extra_files: tuple[str, ...] = ()
    """Root-relative files that a model without tools gets in addition to tests and sources."""
    progress: Progress | None = None
    """None: the item's own tests are the whole list."""
    criteria: tuple[tuple[str, str], ...] = ()
    """Id and text of each acceptance criterion; empty: the title and the tests say what is wanted."""
    title_end: str = ""
    """The end of a commit's subject, which is never cut."""
    plan_body: str = ""
    """Text between the subject and the trailers of PLAN's commit."""
    closes: str = ""
    """The spec of a ticket that this item completes, from the top of the work tree: the commit that completes its code
    sets it to done."""
    text_sha256: str = ""
    """The digest of the text that it was made from; empty if no text can change."""
    expects: tuple[str, ...] = ()
    """Further exceptions that RED's tests may raise in the code, because it is missing."""
    exclusive: tuple[str, ...] = ()
    """Files that no other item may change at the same time."""
    total: int = 0
    """How many steps the run has, as far as is known; 0: the item is not announced as a step of a run."""

    @property
    def key(self) -> StepKey:
        """The key by which the state finds the step of the item."""
        return StepKey(number=self.number, title=self.title, text_sha256=self.text_sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of a cycle, and the rules by which a phase may end."""

    max_attempts: int
    """Per phase."""
    budget: Budget
    """Per attempt."""
    evidence_timeout_s: float
    """Wall clock of all runs that check one open gate from outside."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the model changes files."""
    max_identical_failures: int = 3
    """Consecutive attempts with the same failures after which the phase fails."""
    is_strict: bool = False
    """Roll back an attempt that breaks a test, even if it fixes others."""
    keeps_landed: bool = False
    """Roll back only the phase that fails, not the whole item, so that a person can continue from there."""
    single_test: bool = False
    """RED adds exactly one test, which may be parametrized."""
    accepts_covered: bool = False
    """A new test that passes at once ends the item; it is kept if it notices altered code."""
    expects_pass: bool = False
    """New tests must pass at once, because they are about code that exists; with ``accepts_covered``."""
    allows_empty_commits: bool = False
    """A phase without changes makes an empty commit."""
    gate_runs: tuple[str, ...] = ()
    """Test files that baseline and gate run; empty: all tests."""
    targets_first: bool = False
    """GREEN runs the item's tests first, and the others only if those pass."""
    tests_after_write: bool = False
    """In GREEN each Write and Edit also reports the results of the item's tests."""
    has_commands: bool = True
    """The model may run commands."""
    max_examples: int = 0
    """Further examples with which the Examiner tries to refute an open GREEN; 0: no Examiner."""
    examiner_model: str = ""
    """Empty: the model of the others."""
    if_slow: str = "raise test_timeout_s in .cdd/config.yaml"
    """The hint if the tests take longer than the time limit."""
    context_tokens: int = 8_000
    """The most tokens of the step's files in the first request of an attempt."""
    continues_interrupted: bool = True
    """An attempt begins with the files of one that was interrupted; without, it begins anew."""
    carries_changes: bool = False
    """The files begin with the user's uncommitted changes, which stay out of every commit."""
    test_timeout_s: float | None = None
    """Of one run of tests; None: that of the project's settings."""
    seconds_per_test: float | None = None
    """After this time, a test has failed and those after it are skipped; None: no limit."""
    keeps_partial: bool = False
    """Commit a failed GREEN that fixes some of the item's tests and breaks none."""
    named_only: bool = False
    """The model may only change files that the item names."""
    defers_checks: bool = False
    """The gate alone opens GREEN; the experiments follow for several items together."""
    max_returns: int = 1
    """How often GREEN may send an item back to RED, because its test is wrong."""
    reruns_failures: bool = False
    """Failed tests that should pass run again on the same files; if all pass then, that counts."""
    runs_targets_only: bool = False
    """GREEN runs only the files of the item's tests; the other tests count as in the baseline."""
    has_symbols: bool = False
    """From the second attempt on, the model has tools that find and change definitions."""
    traces: bool = False
    """Runs of tests note the functions that each test enters."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "Policy":
        """Return the policy of ``cdd exec``; the other workflows adapt it."""
        return cls(
            max_attempts=settings.max_attempts,
            budget=Budget.from_settings(settings),
            evidence_timeout_s=settings.evidence_timeout_s,
            edit_format=settings.edit_format,
            context_tokens=settings.context_tokens,
            max_examples=settings.examples,
            examiner_model=settings.examiner_model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The instructions to the model for one phase of one work item."""

    phase: Phase
    kind: Kind
    agent: str
    """The agent's name in events."""
    role: str
    """The beginning of the system prompt, the same in all phases of an agent."""
    rules: str = ""
    """Rules of the workflow, besides those of the phase."""
    work: str
    """The last line of the first message without the attempt; recordings are matched by it."""
    task: str
    """The instruction, written by cdd."""
    requirements: str
    """The text of the plan, the list or the user; the model reads it as data."""
    source: str
    """Origin of ``requirements``."""
    judge: Callable[[str], tuple[Reason, ...]] | None = None
    """Returns objections to the agent's answer, in PLAN; the other phases are judged by tests."""
    finalize_item: Callable[[WorkItem, str], WorkItem] | None = None
    """Completes the item with the accepted answer."""
    check: Callable[[SuiteReport, SuiteReport], tuple[Reason, ...]] | None = None
    """Returns further reasons against the files of an attempt, by its report and that of the baseline."""
    complete: Callable[[], Iterable[str]] | None = None
    """Completes the files that the agent has left, before they are judged, and returns notices about that."""
    diagnose: Callable[[SuiteReport, SuiteReport | None], Diagnosis | None] | None = None
    """Returns why the tests of a closed attempt fail, by its report and that of a second run of the failed tests."""
    list_affected: Callable[[], Collection[str]] | None = None
    """Returns further test files that the change of an attempt can break, if only the files of targets run."""
    find_waiting: Callable[[SuiteReport], Collection[str]] | None = None
    """Returns the failing tests that wait for code of later items: GREEN need not make them pass."""
    keep_name: KeepName = lambda _: ""
    make_tools: Callable[[int], tuple[Tool, ...]] = lambda _: ()
    """Returns further tools for an attempt, by its number; they are offered from the second one on."""
    find_places: Callable[[int], str] = lambda _: ""
    """Returns where the failures of the attempt before lead, as Markdown, for an attempt by its number."""


class BriefFor(Protocol):
    """Makes the instructions to the model."""

    def __call__(self, item: WorkItem, phase: Phase, *, context: "Context") -> Brief:
        """Return the brief for a phase of an item."""


def phases_of(kind: Kind, *, refactor: bool) -> tuple[Phase, ...]:
    """Return the phases of a plan step; ``refactor`` adds REFACTOR to features and bugs."""
    match kind:
        case "feature" | "bug":
            return ("red", "green", "refactor") if refactor else ("red", "green")
        case "refactor":
            return ("refactor",)
        case "docs" | "chore":
            return ("green",)


def commit_prefix(phase: Phase, kind: Kind) -> str:
    """Return the word before the colon of a commit's subject."""
    match phase:
        case "plan" | "refactor":
            return phase
        case "red":
            return "test"
        case "green":
            return {"bug": "fix", "docs": "docs", "chore": "chore"}.get(kind, "feat")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCommands:
    """The commands with which a person continues interrupted work."""

    resume: str
    restart: str
    """Undoes the unfinished work first; ``{step}`` is replaced by the number of the step."""
    unit: str
    """The word for a work item: ``step``, ``cycle``, or ``run`` if there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """The changes of a phase that were worked out ahead, and are in the files now."""

    run: AgentRun
    """The agent's part, with its summary and no turns."""
    evidence: tuple[Finding, ...] | None
    """The findings of the gate's checks there; None: the gate accepted nothing."""
    examples: Path | None = None
    """The file with the further examples that passed there."""


class BringAhead(Protocol):
    """See ``Context.bring_ahead``."""

    def __call__(self, number: int, phase: Phase, *, context: "Context") -> Brought | None:
        """Bring in the changes of the phase and return them; None if no changes fit."""


@dataclass(kw_only=True)
class SuiteTask:
    """One run of tests, which may take place while something else is under way."""

    context: "Context"
    purpose: str
    keep: Path | None = None
    targets: tuple[str, ...] = ()
    before: Snapshot | None = None
    spans_commits: bool = False
    """As in ``ReportStore.find``."""
    is_anew: bool = False
    """The tests run whatever earlier runs have shown, and later ones do not rely on it."""
    _scene: Scene | None = None
    _run: SuiteRun | None = None
    _error: BaseException | None = None

    def run(self) -> SuiteRun:
        """Run the tests now."""
        suite = self._prepare()
        if suite is not None:
            self._execute(suite)
        return self._finish()

    @contextmanager
    def run_meanwhile(self) -> Iterator[None]:
        """Run the tests during the block, which must not touch the files; ``run`` gives the result afterwards.

        An error in the block, as Ctrl-C, ends the tests too, and the files are restored.
        """
        suite = self._prepare()
        if suite is None:
            yield
            return
        thread = Thread(target=self._execute, args=(suite,), daemon=True)
        thread.start()
        try:
            yield
            thread.join()
        except BaseException:
            while thread.is_alive():
                end_runs()
                thread.join(_POLL_S)
            self._restore()
            raise

    def _prepare(self) -> Suite | None:
        """Return the suite to run; None if the result is known."""
        context = self.context
        if self._run is not None or self._error is not None:
            return None
        framework = context.suite.conventions.framework
        self.before = self.before or context.snapshots.take_unsaved()
        # A saved report is evidence: an earlier run could have planted compiled code in the bytecode cache. For pytest,
        # all runs do without it, so that the gate can use the report of RunTests.
        is_clean = self.keep is not None or framework == PYTEST.framework
        suite = context.suite.without_cache() if is_clean else context.suite
        if is_clean and not self.is_anew:
            self._scene = context.store.describe(suite, self.targets)
        if self._scene is not None:
            self._run = context.store.find(self._scene, spans_commits=self.spans_commits)
        if self._run is not None and self._run.report is not None:
            save_report(self._run.report, self.keep)
            return None
        context.emit(SuiteStarted(purpose=self.purpose, targets=self.targets, framework=framework))
        context.save_files_before_tests(self.before)
        return suite

    def _execute(self, suite: Suite) -> None:
        store, purpose = self.context.store, self.purpose
        try:
            self._run = store.run(self._scene, suite, targets=self.targets, keep=self.keep, purpose=purpose)
        except BaseException as error:  # noqa: BLE001 (raised again by ``run``, in the thread that waits)
            self._error = error

    def _finish(self) -> SuiteRun:
        if self._error is not None:
            raise self._error
        context, run = self.context, self._run
        assert run is not None
        lacking = context.workplace.explain_missing(run.report, output=f"{run.problem}\n{run.output}")
        for notice in dict.fromkeys((*run.notices, *lacking)):
            if notice not in context.told:
                context.told.add(notice)
                context.emit(Notice(text=notice))
        self._restore()
        context.emit(run.as_event(self.purpose, framework=context.suite.conventions.framework))
        if run.outdated is not None:
            raise EnvironmentMissing(
                run.outdated[0], hint=f"install it in a mode that finds new files: {run.outdated[1]}"
            )
        return run

    def _restore(self) -> None:
        """Restore the files that the tests changed: the agent did not make a database that a test writes."""
        snapshots, before = self.context.snapshots, self.before
        if before is not None and snapshots.list_changes_since(before):
            ref = f"refs/cdd/tests/{self.context.reports.name}/after"
            snapshots.take(ref, message="changes made by a test run")
            snapshots.restore(before)
        self.context.forget_files_before_tests()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of one project that a cycle works with."""

    repository: Repository
    """The user's."""
    workplace: Workplace
    """The files in which the cycle works; the next three belong to them."""
    snapshots: TreeStore
    workspace: Workspace
    suite: Suite
    model: Model
    policy: Policy
    brief: BriefFor
    source: str
    """The name of the run's source, for its notes."""
    commands: ResumeCommands
    """The commands that continue the run."""
    project: Path
    """The folder of the project, with its tickets: the user's, or that of a fork."""
    records: Records
    """Where its records lie."""
    reports: Path
    """Folder for the test reports of the ticket, in the records."""
    emit: Emit
    permission: Permission | None = None
    """Decides whether a person must approve a command; None: only the sandbox restricts commands."""
    memory: Memory = NO_MEMORY
    """Conventions of the project; every attempt begins with them."""
    choose: Choose | None = None
    """Asks a person to decide; None: nobody is there."""
    hear: HearUser | None = None
    """Returns what a person says to the model while it works."""
    checkpoint: Callable[[Description], str] = lambda _: ""
    """Saves the user's files before a phase, and returns trailers for its commit; ``CddError`` stops the phase."""
    record_file: Callable[[str, bool], None] = lambda *_: None
    """Saves that the agent has written a file, by its path in the project; True: it is new."""
    hooks: Hooks = NO_HOOKS
    """Commands of the user that get events of the run."""
    bring_ahead: "BringAhead" = lambda *_, **__: None
    """Brings in the changes for a phase of a step that were worked out ahead; None: there are none that fit."""
    store: ReportStore = field(default_factory=ReportStore)
    """The reports of earlier runs."""
    told: set[str] = field(default_factory=set)
    """The notices of test runs that were emitted; each is emitted once."""
    allowed: set[str] = field(default_factory=set)
    """The files of unusual kinds that the developer has allowed, relative to the work tree."""
    declined: set[str] = field(default_factory=set)
    """Those that the developer has declined."""
    symbols: Symbols | None = None
    """The definitions in the files of the run."""
    outlines: dict[str, str] = field(default_factory=dict)
    """Commit with which a step began -> the outline of the project there; at most one."""
    comments: Comments | None = None
    """The reviewer's comments; None: nobody reviews."""
    fork: str = ""
    """The folder of the fork in which the run works: all forks of a ticket have their refs in one repository."""
    token: str = field(default_factory=draw_token)
    """The token of the marks around text that others wrote; the same in all runs, for the server's cache."""

    @property
    def impact_path(self) -> Path:
        """The file that says which tests enter which files."""
        return find_impact(self.project)

    def restart_command(self, step: StepExecution) -> str:
        """Return the command that undoes an unfinished step and begins it again."""
        return self.commands.restart.replace("{step}", str(step.step_number))

    def step_name(self, step: StepExecution) -> str:
        """Return the name of a step for a sentence, such as ``cycle 2``."""
        return "the run" if self.commands.unit == "run" else f"{self.commands.unit} {step.step_number}"

    def to_repository_path(self, path: str) -> str:
        """Return a project path relative to the work tree, whose root may be above the project."""
        inside = self.workspace.root.resolve().relative_to(self.workplace.tree.root.resolve()).as_posix()
        return path if inside == "." else f"{inside}/{path}"

    def run_suite(
        self, purpose: str, *, keep: Path | None = None, targets: tuple[str, ...] = (), before: Snapshot | None = None
    ) -> SuiteRun:
        """Run tests, report the run as events, and restore the files that it changed.

        If an earlier run was the same, its report is used again, and no test runs. ``keep`` is the path for the report,
        ``before`` a snapshot of the current files if there is one. Raises ``EnvironmentMissing`` if the user has to
        install the project again.
        """
        return SuiteTask(context=self, purpose=purpose, keep=keep, targets=targets, before=before).run()

    def refuse_waiting(self, waiting: Mapping[str, Clause], *, kinds: FileKinds) -> Reason:
        """Tell the user how to allow files of unusual kinds, each once, and return the reason against all of them.

        ``waiting`` is path -> why.
        """
        new = [path for path in waiting if f"{kinds.allow} {path}" not in self.told]
        if self.choose is None and new:
            self.told.update(f"{kinds.allow} {path}" for path in new)
            options = " ".join(f"--allow-file {shlex.quote(path)}" for path in new[:_MOST_WAITING])
            shown = " ".join(f"{format_line(path)}: {explain(waiting[path])}" for path in new[:_MOST_WAITING])
            shown += f" And {len(new) - _MOST_WAITING} more." if len(new) > _MOST_WAITING else ""
            self.emit(Notice(text=f"Not without your yes: {shown} To allow it: {kinds.allow} {options}"))
        by = Clause("nobody_to_ask" if self.choose is None else "developer_said_no")
        files = tuple(Clause("waiting_file", {"path": format_line(path), "why": why}) for path, why in waiting.items())
        return Reason(code="needs_approval", nodeid=None, parts={"files": files, "by": by})

    @property
    def _before_tests(self) -> str:
        return "/".join(filter(None, ("refs/cdd/tests", self.reports.name, self.fork, "before")))

    def save_files_before_tests(self, before: Snapshot) -> None:
        """Remember the files from before a test run, in case it is interrupted."""
        self.repository.refs.set(self._before_tests, before.commit)

    def find_files_before_tests(self) -> CommitId | None:
        """Return the files from before a test run that was interrupted, without those that it left; else None."""
        return self.repository.read_ref(self._before_tests)

    def forget_files_before_tests(self) -> None:
        """Forget the files from before a test run, which are as they were, or no longer wanted."""
        if self.find_files_before_tests() is not None:
            self.repository.refs.delete(self._before_tests)

    def knows_all_tests(self) -> bool:
        """Return whether an earlier run of the gate's tests saw the same files."""
        scene = self.store.describe(self.suite.without_cache(), self.policy.gate_runs)
        return scene is not None and self.store.find(scene) is not None

    def run_for_gate(
        self,
        purpose: str,
        *,
        keep: Path,
        before: Snapshot | None = None,
        added: tuple[str, ...] = (),
        others: SuiteReport | None = None,
    ) -> SuiteRun:
        """Run the tests of baseline and gate.

        With ``others``, only the files ``added`` run, and the report has the tests of ``others`` too.
        """
        task = SuiteTask(
            context=self, purpose=purpose, keep=keep, targets=added or self.policy.gate_runs, before=before
        )
        return self.finish_for_gate(task, others=others)

    def finish_for_gate(self, task: SuiteTask, *, others: SuiteReport | None = None) -> SuiteRun:
        """Return the result of a run of the tests of baseline and gate, which may have begun before."""
        added, keep = task.targets != self.policy.gate_runs, task.keep
        run = task.run()
        if run.report is not None and run.entered:
            known = load_impact(self.impact_path) if added or self.policy.gate_runs else ImpactMap()
            ran = [*(case.nodeid for case in run.report.tests), *(task.targets if added else ())]
            save_impact(known.update(run.entered, ran=ran), self.impact_path)
        if run.report is not None and others is not None:
            report = add_tests(run.report, others)
            save_report(report, keep)
            run = replace(run, report=report)
        return run

    def replace_results(self, report: SuiteReport, run: SuiteRun, *, keep: Path) -> None:
        """Save ``report`` in place of that of ``run``, a run of the gate's tests; later runs use it again."""
        save_report(report, keep)
        scene = self.store.describe(self.suite.without_cache(), self.policy.gate_runs)
        if scene is not None:
            entered = {path: frozenset(tests) for path, tests in load_impact(self.impact_path).files.items()}
            results = replace(run, report=report, entered=entered)
            self.store.add(scene, results, looked=Looked(), purpose="a run of some of them")

    def run_targets(
        self, purpose: str, *, targets: tuple[str, ...], keep: Path | None = None, before: Snapshot | None = None
    ) -> SuiteRun:
        """Run the tests in ``targets``, or their whole files if pytest cannot find one of the tests."""
        run = self.run_suite(purpose, targets=targets, keep=keep, before=before)
        files = tuple(dict.fromkeys(target.partition("::")[0] for target in targets))
        # pytest finds no tests in a file that cannot be imported; only a run of the file reports the reason.
        if run.cause == "refused" and files != targets:
            return self.run_suite(purpose, targets=files, keep=keep, before=before)
        return run

    def require_report(self, run: SuiteRun) -> SuiteReport:
        """Return the report of a run before any work; raises ``EnvironmentMissing`` if it is not complete."""
        endless = None if run.report is None else run.report.problem
        if run.report is None or endless is not None:
            why = run.problem if endless is None else explain_problem(endless)
            happened = f"The project's tests cannot be run: {why}.\n{run.output.strip()[-2000:]}"
            hint = (
                self.policy.if_slow
                if run.cause == "timed_out"
                else f"make `{self.suite.command}` work in {self.project}"
            )
            level = self.suite.sandbox.level
            if level == "landlock" and (line := find_refused_socket(run.output)):
                happened += f"\nThe sandbox at level {level} refuses network sockets: {line}"
                hint = "use --sandbox bwrap, where tests have a separate network, or remove the plugin that opens it"
            if run.broken is not None and run.broken.nodeid:
                hint = f"see what happens there: {self.suite.command} {shlex.quote(run.broken.nodeid)}"
            raise EnvironmentMissing(happened, hint=hint)
        return run.report


_COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def summarize_evidence(verdict: Verdict, report: SuiteReport | None, *, baseline: SuiteReport | None = None) -> str:
    """Return one line that says which test results a verdict is based on, and how many failures are old."""
    if report is None:
        ran = any(reason.code in ("run_incomplete", "untrusted") for reason in verdict.reasons)
        return "the tests did not run to their end" if ran else "nothing was changed"
    if not report.structured:
        return f"exit status {report.exit_status}"
    count = {word: number for word, number in count_outcomes(report).items() if number and word in _COUNTED}
    if report.collect_errors:
        count["not importable"] = len(report.collect_errors)
    results = ", ".join(f"{number} {word}" for word, number in count.items()) or "no test was collected"
    if verdict.phase == "red" and verdict.open:
        kinds = sorted({case.failure.kind for case in report.tests if case.failure is not None})
        kinds += sorted({error.failure.kind for error in report.collect_errors})
        return f"{results}; fails by {', '.join(dict.fromkeys(kinds))}"
    if "passed" in count and not (verdict.open or list_failing(report) or verdict.phase == "red"):
        return f"{results}, but the change is refused"
    spared = len(find_spared(report, verdict, baseline=baseline))
    return f"{results} ({spared} failed before)" if spared else results


def find_refused_socket(output: str) -> str | None:
    """Return the line of a traceback that opens a socket and was refused, None if there is none."""
    found = _REFUSED_SOCKET.search(output)
    return None if found is None else found[1].strip()
