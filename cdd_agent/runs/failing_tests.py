"""Tests that already fail as a source of work: one item with a single phase, GREEN."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cdd_agent.config.settings import GreenSettings
from cdd_agent.errors import CddError, UsageError, format_count
from cdd_agent.events import Notice
from cdd_agent.evidence.clean_copy import find_layout
from cdd_agent.git import commits
from cdd_agent.runs import request as requests
from cdd_agent.runs.artifact import GreenArtifact, make_artifact
from cdd_agent.runs.request import GreenRequest, Wanted
from cdd_agent.runs.run import Run, Source
from cdd_agent.tdd.baseline import name_scope
from cdd_agent.tdd.briefing import describe_refusal, keep_interruption
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, WorkItem
from cdd_agent.tdd.instructions import describe_item
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.outcome import Partial
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.work.state_file import load_state
from cdd_agent.work.wording import format_reason
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.report import SuiteReport, list_failing

MAX_RELATED_CHARACTERS = 48_000
"""Of all files that a model without tools gets besides the tests."""
MAX_RELATED_FILES = 20
_STEP = 1
"""The number of the only step."""
_PROMPTS = Path(__file__).parent / "prompts"
_NAMED_BY_FOLDER = frozenset({"__init__", "__main__", "index", "main", "mod", "lib"})
"""Files that other code calls by the name of their folder."""
_UNNAMED_FOLDERS = frozenset({"", "src", "lib", "app"})
"""Folders whose names do not appear in tests."""

STYLES = {
    "minimal": "Write the simplest correct code for what the tests describe, and nothing that no test requires.",
    "standard": "Write production code: implement what the tests require, validate inputs where the tests show that it "
    "matters, use clear names, and do not speculate.",
    "comprehensive": "Write complete code for the behavior that the tests describe, including edge cases and errors of "
    "the same kind, as long as every test passes.",
}
"""Setting ``style`` -> instruction."""


def format_manner(settings: GreenSettings) -> str:
    """Return the instructions on style, docstrings and annotations."""
    docstrings = "Write docstrings" if settings.include_docstrings else "Write no docstrings"
    hints = "Annotate new code with types" if settings.include_type_hints else "Write no type annotations"
    matching = ", in the style of the surrounding code."
    return f"## Manner\n\n- {STYLES[settings.style]}\n- {docstrings}{matching}\n- {hints}{matching}"


def _read_text(name: str, workspace: Workspace) -> str | None:
    try:
        return workspace.read_text(name).text
    except (CddError, OSError):
        return None


def find_related_code(tests: Sequence[str], *, workspace: Workspace, is_test: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the source files whose names occur in ``tests``, files or folders; the most frequent name first."""
    names = workspace.list_files()
    test_files = [name for name in names if any(name == t or name.startswith(f"{t.rstrip('/')}/") for t in tests)]
    counts = Counter(re.findall(r"\w+", "\n".join(_read_text(name, workspace) or "" for name in test_files)))
    mentions = {name: counts[_module_name(name)] for name in names if not is_test(name)}
    found, room = list[str](), MAX_RELATED_CHARACTERS
    for name in sorted((name for name in mentions if mentions[name]), key=lambda name: (-mentions[name], name)):
        text = _read_text(name, workspace)
        # The model has to return a whole file, and control characters would not survive that.
        is_plain = text and all(letter in "\t\r\n\ufeff" or letter.isprintable() for letter in text)
        if text and is_plain and len(text) <= room and len(found) < MAX_RELATED_FILES:
            found.append(name)
            room -= len(text)
    return tuple(found)


def _module_name(name: str) -> str:
    path = PurePosixPath(name)
    stem = path.name.partition(".")[0]
    return path.parent.name if stem in _NAMED_BY_FOLDER and path.parent.name not in _UNNAMED_FOLDERS else stem


class FailingTests:
    """The tests that a user names, which fail: one work item with a single phase, GREEN."""

    workflow = "green"
    makes_project = False
    is_open_ended = False

    def __init__(self, wanted: Wanted, settings: GreenSettings, *, ticket: Ticket, anew: bool = False) -> None:
        """Read nothing yet. ``anew``: undo an interrupted run first."""
        self.wanted = wanted
        self.ticket = ticket
        self.title = ", ".join(wanted.targets)
        self.commands = wanted.commands
        self.remarks: tuple[str, ...] = ()
        if not settings.full_suite_on_completion:
            files = ", ".join(wanted.files)
            self.remarks = (f"full_suite_on_completion is false: the gate runs only the tests of {files}.",)
        self.depends: Mapping[int, tuple[int, ...]] = {}
        self.request: GreenRequest | None = None
        """The request of the run, once it is open."""
        self._settings = settings
        self._anew = anew
        self._extra_files: tuple[str, ...] = ()

    def adapt_policy(self, policy: Policy) -> Policy:
        """Return ``policy`` with the rules of this workflow and its settings."""
        settings = self._settings
        return replace(
            policy,
            max_attempts=settings.max_iterations,
            budget=replace(policy.budget, max_calls_total=settings.max_tool_calls),
            if_slow="raise green.test_timeout_s in .cdd/config.yaml, or run only the files of the targets with "
            "green.full_suite_on_completion: false",
            gate_runs=() if settings.full_suite_on_completion else self.wanted.files,
            targets_first=settings.run_specific_test_first,
            tests_after_write=settings.run_after_each_file,
            has_commands=False,
            carries_changes=True,  # the tests to pass may be uncommitted
            test_timeout_s=settings.test_timeout_s,
            keeps_partial=settings.continue_on_partial_success,
        )

    def read(self, *, now: str) -> RunState:
        """Return the saved state of the run on these tests, or a new one."""
        return load_state(self.ticket.state_path) or RunState(ticket_slug=self.ticket.slug, started_at=now)

    def open(self, run: Run[Source]) -> RunState:
        """Continue an interrupted run, or check that the tests fail, and make a request.

        Raises, before anything changes, ``UsageError`` if a target does not fail or for uncommitted changes other than
        tests, and other errors if model, git or tests are missing.
        """
        context, known = run.context, run.state
        context.workplace.carries = True
        step = known.step_executions.get(_STEP)
        is_interrupted = step is not None and step.status == Status.IN_PROGRESS
        if is_interrupted and (request := requests.load(self.ticket)) is not None:
            self.request = request
            self._keep_words(request)
        if is_interrupted:
            commits.require_finished(context.repository)
            known = self._resume(run)
        recovery = run.make_recovery(_STEP) if step is not None else None
        if not is_interrupted or self._anew or recovery is None or not recovery.is_underway():
            known = self._begin(run, known)
        assert self.request is not None
        self.title = self.request.title
        self._extra_files = self._list_extra_files(self.request, context=context)
        return known

    def _resume(self, run: Run[Source]) -> RunState:
        """Return the state of the interrupted run, with what it leaves for another try, after ``anew`` undid it."""
        context, known, recovery = run.context, run.state, run.make_recovery(_STEP)
        if self._anew:
            if refusal := describe_refusal(recovery):
                known = states.record_refusal(known, _STEP, refusal=refusal)
            recovery.undo_if_underway(why="the run is restarted")
            return states.record_interruption(known, _STEP, work=None)
        recovery.require_snapshots()
        known = keep_interruption(known, recovery)
        if not recovery.is_underway():
            return known
        if self.request is None or sorted(self.request.targets) != sorted(self.wanted.targets):
            raise UsageError(
                f"The request of the interrupted run cannot be read: {requests.request_path(self.ticket)}.\n"
                "Nothing was touched.",
                hint=f"restart the run: {self.commands.restart}",
            )
        done = format_count(len(recovery.step.attempts), "iteration")
        context.emit(Notice(text=f"Continuing the interrupted run after {done}."))
        self.request = replace(self.request, goal=self.wanted.goal, criteria=self.wanted.criteria)
        requests.save(self.ticket, self.request)
        run.save(known)
        return known

    def _keep_words(self, request: GreenRequest) -> None:
        """Take the purpose of an interrupted run, unless the user has now given another one."""
        if not (self.wanted.goal or self.wanted.criteria):
            self.wanted = replace(self.wanted, goal=request.goal, criteria=request.criteria)

    def _begin(self, run: Run[Source], known: RunState) -> RunState:
        """Make a request, and return a new state, with the refusal and the interrupted work of the ``known`` one."""
        context, repository = run.context, run.context.repository
        run.require_clean(allow_dirty=run.allows_dirty)
        head = commits.require_base(repository)
        run.meter.check()
        tip = context.workplace.begin()
        self.request = self.wanted.make_request(self._run_before(context), now=run.clock.now(), head=head)
        requests.save(self.ticket, self.request)
        key = self._make_item(self.request).key
        fresh = RunState(
            ticket_slug=self.ticket.slug, started_at=run.clock.now(), step_executions=states.pending_steps((key,))
        )
        if before := known.step_executions.get(_STEP):
            step = replace(fresh.execution(_STEP), refusal=before.refusal)
            if before.status == Status.PENDING:  # a fork
                step = replace(step, guidance=before.guidance)
            if before.status == Status.IN_PROGRESS:
                step = replace(step, interrupted=before.interrupted, usage=before.usage)
                fresh = replace(fresh, started_at=known.started_at, usage=known.usage)
            fresh = states.replace_step(fresh, step)
        context.workplace.prepared = tip
        return fresh

    def _run_before(self, context: Context) -> SuiteReport:
        """Return the report of the tests as they are. It is the cycle's baseline, if it contains the targets."""
        targets = self.wanted.targets
        kept = context.reports / "targets.json"
        scope = name_scope(context.policy.gate_runs)
        run = context.run_for_gate(f"{scope} before the work", keep=kept)
        known = () if run.report is None else (*(each.nodeid for each in run.report.tests), *list_failing(run.report))
        if run.report is not None and all(
            any(requests.contains(target, each) or is_or_contains(each, target) for each in known) for target in targets
        ):
            return run.report
        if run.cause == "timed_out":
            return context.require_report(run)
        seen = context.run_targets("the tests to pass, before the work", targets=targets, keep=kept)
        if seen.cause == "refused":
            raise UsageError(f"The tests cannot be found: {seen.problem}.", hint="name test files, or tests in them")
        return context.require_report(seen)

    def _list_extra_files(self, request: GreenRequest, *, context: Context) -> tuple[str, ...]:
        if context.policy.edit_format == "tools":
            return ()
        tests, is_test = request.test_files, context.suite.conventions.is_test
        return (*tests, *find_related_code(tests, workspace=context.workspace, is_test=is_test))

    def list_changes(self, context: Context) -> tuple[str, ...]:
        """Return the user's uncommitted files besides tests: GREEN takes tests along, and does not commit them."""
        layout = find_layout(context.workplace.tree, context.suite)
        tests = {context.to_repository_path(file) for file in self.wanted.files}
        changed = commits.list_own_uncommitted(context.repository, project=context.project)
        return tuple(path for path in changed if path not in tests and not layout.is_test(path))

    def next(self, state: RunState) -> WorkItem | None:
        """Return the only item, until its step has ended."""
        has_ended = state.execution(_STEP).status in (Status.COMPLETED, Status.FAILED)
        return None if has_ended else self.find(state, _STEP)

    def find(self, state: RunState, number: int) -> WorkItem | None:
        """Return the only item, once the run is open."""
        return None if self.request is None else self._make_item(self.request)

    def _make_item(self, request: GreenRequest) -> WorkItem:
        return replace(request.make_item(self.ticket.slug), extra_files=self._extra_files)

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        """Return ``state``: everything is prepared once the run is open."""
        return state

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        """Return the brief."""
        return Brief(
            phase=phase,
            kind=item.kind,
            agent="green",
            role=(_PROMPTS / "green.md").read_text(encoding="utf-8"),
            rules=format_manner(self._settings),
            work=f"green {item.ticket}",
            task="Make these tests pass. They define what is required.",
            requirements=describe_item(item, heading="Tests to pass"),
            source="tests to pass",
        )

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        """End the run: completed if all targets pass."""
        last, why = state.execution(_STEP).attempts[-1], ending.why
        if why is None and isinstance(
            last.outcome, Partial
        ):  # the run was killed after the commit, before the state knew of the part
            why = f"GREEN is committed in part; still failing: {'; '.join(map(format_reason, last.reasons))}"
        status = Status.COMPLETED if why is None else Status.FAILED
        return states.end_step(state, _STEP, status=status, now=now, error=why)

    def describe_end(self, step: StepExecution, *, context: Context) -> tuple[str, ...]:
        """Return nothing: the artifact says everything."""
        return ()

    def make_artifact(self, run: Run[Source]) -> GreenArtifact:
        """Return the artifact of a run that has ended."""
        assert self.request is not None
        step = run.state.execution(_STEP)
        return make_artifact(self.request, step, why=step.error, context=run.context)
