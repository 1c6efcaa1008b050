"""GREEN on its own: one work item with a single phase, which the same command begins and continues."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cdd_agent.clock import Clock
from cdd_agent.config.settings import GreenSettings
from cdd_agent.errors import CddError, GateClosed, UsageError, format_count
from cdd_agent.events import Notice
from cdd_agent.evidence.clean_copy import find_layout
from cdd_agent.git import commits
from cdd_agent.model.budget import Meter
from cdd_agent.runs import request as requests
from cdd_agent.runs.artifact import GreenArtifact, make_artifact
from cdd_agent.runs.request import GreenRequest, Wanted
from cdd_agent.tdd.baseline import TargetsLeftOut, name_scope
from cdd_agent.tdd.briefing import describe_refusal, keep_interruption
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, Policy, WorkItem
from cdd_agent.tdd.cycle import is_partial
from cdd_agent.tdd.instructions import describe_item
from cdd_agent.tdd.step import StepRecovery, alone_on
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.tdd.workflow_run import WorkflowRun
from cdd_agent.work import state as states
from cdd_agent.work.state import InterruptedWork, RefusedTry, Status, StepKey
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


def adapt_policy(policy: Policy, settings: GreenSettings, *, wanted: Wanted) -> Policy:
    """Return ``policy`` with the rules of this workflow and its settings."""
    return replace(
        policy,
        max_attempts=settings.max_iterations,
        budget=replace(policy.budget, max_calls_total=settings.max_tool_calls),
        if_slow="raise green.test_timeout_s in .cdd/config.yaml, or run only the files of the targets with "
        "green.full_suite_on_completion: false",
        gate_runs=() if settings.full_suite_on_completion else wanted.files,
        targets_first=settings.run_specific_test_first,
        tests_after_write=settings.run_after_each_file,
        has_commands=False,
        keeps_partial=settings.continue_on_partial_success,
    )


def format_manner(settings: GreenSettings) -> str:
    """Return the instructions on style, docstrings and annotations."""
    docstrings = "Write docstrings" if settings.include_docstrings else "Write no docstrings"
    hints = "Annotate new code with types" if settings.include_type_hints else "Write no type annotations"
    matching = ", in the style of the surrounding code."
    return f"## Manner\n\n- {STYLES[settings.style]}\n- {docstrings}{matching}\n- {hints}{matching}"


def make_brief_for(settings: GreenSettings) -> BriefFor:
    """Return the function that makes the brief."""
    role = (_PROMPTS / "green.md").read_text(encoding="utf-8")

    def make_brief(item: WorkItem, phase: Phase) -> Brief:
        return Brief(
            phase=phase,
            kind=item.kind,
            agent="green",
            role=role,
            rules=format_manner(settings),
            work=f"green {item.ticket}",
            task="Make these tests pass. They define what is required.",
            requirements=describe_item(item, heading="Tests to pass"),
            source="tests to pass",
        )

    return make_brief


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


class Green:
    """Makes the tests pass that a user names."""

    def __init__(
        self, wanted: Wanted, *, context: Context, clock: Clock, allow_dirty: bool = False, meter: Meter | None = None
    ) -> None:
        """Does nothing before ``run``. Without a ``meter``, usage is not limited."""
        self.wanted = wanted
        self.ticket = wanted.find_run(context.project)
        self.clock = clock
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes may stay, out of the commit."""
        self._refusal: RefusedTry | None = None
        """Of an earlier run on the same tests."""
        self._interrupted: InterruptedWork | None = None
        """The work of its interrupted first attempt."""
        context = replace(context, commands=wanted.commands)
        self._run = WorkflowRun("green", self.ticket, context=context, clock=clock, meter=meter)
        self.context = self._run.context

    def run(self, *, anew: bool = False) -> GreenArtifact:
        """Begin, or continue an interrupted run, until the tests pass or the iterations are used up.

        ``anew`` undoes an interrupted run first. Raises, before anything changes, ``UsageError`` if a target does not
        fail or for uncommitted changes other than tests, and other errors if model, git or tests are missing.
        """
        context = self.context
        with alone_on(self.ticket.folder, context=context):
            context.workplace.carries = True  # the tests to pass may be uncommitted
            request = self._resume_interrupted(anew=anew) or self._begin()
            remarks = list(commits.list_warnings(context.repository))
            if files := ", ".join(context.policy.gate_runs):
                remarks.insert(0, f"full_suite_on_completion is false: the gate runs only the tests of {files}.")
            with self._run.report(remarks):
                why = self._run_cycle(request)
        return make_artifact(request, self._run.state.execution(_STEP), why=why, context=context)

    def _run_cycle(self, request: GreenRequest) -> str | None:
        step = self._run.state.execution(_STEP)
        key = StepKey(number=_STEP, title=step.title, text_sha256=step.text_sha256)
        self._run.start_step(self._run.state, key, is_resumed=step.status == Status.IN_PROGRESS)
        item = replace(request.make_item(self.ticket.slug), extra_files=self._list_extra_files(request))
        try:
            ending = self._run.run_cycle(item)
        except TargetsLeftOut:
            step = self._run.state.execution(_STEP)
            StepRecovery(self.ticket.slug, step, context=self.context).undo_if_underway(why="its tests do not run")
            raise
        last = ending.state.execution(_STEP).attempts[-1]
        why = ending.why
        if why is None and is_partial(last):  # the run was killed after the commit, before the state knew of the part
            why = f"GREEN is committed in part; still failing: {'; '.join(map(format_reason, last.reasons))}"
        with suppress(GateClosed):  # no further step would follow, and the hook's notice has told the user
            self._run.complete_step(_STEP, error=why)
        return why

    def _list_extra_files(self, request: GreenRequest) -> tuple[str, ...]:
        context = self.context
        if context.policy.edit_format == "tools":
            return ()
        tests, is_test = request.test_files, context.suite.conventions.is_test
        return (*tests, *find_related_code(tests, workspace=context.workspace, is_test=is_test))

    def _resume_interrupted(self, *, anew: bool) -> GreenRequest | None:
        """Return the request of the interrupted run; None if there is none, or if ``anew`` undid it."""
        context = self.context
        known = load_state(self.ticket.state_path)
        if known is not None:
            self._run.meter.resume(known.usage)
        if known is None:
            return None
        step = known.execution(_STEP)
        self._refusal = step.refusal
        if step.status != Status.IN_PROGRESS:
            return None
        request = requests.load(self.ticket)
        if request is not None:
            self._keep_words(request)
        recovery = StepRecovery(self.ticket.slug, step, context=context)
        commits.require_finished(context.repository)
        if anew:
            self._refusal = describe_refusal(recovery) or step.refusal
            recovery.undo_if_underway(why="the run is restarted")
            return None
        recovery.require_snapshots()
        known = keep_interruption(known, recovery)
        if not recovery.is_underway():
            self._interrupted = known.execution(_STEP).interrupted
            return None
        if request is None or sorted(request.targets) != sorted(self.wanted.targets):
            raise UsageError(
                f"The request of the interrupted run cannot be read: {requests.request_path(self.ticket)}.\n"
                "Nothing was touched.",
                hint=f"restart the run: {self.wanted.commands.restart}",
            )
        done = format_count(len(step.attempts), "iteration")
        context.emit(Notice(text=f"Continuing the interrupted run after {done}."))
        request = replace(request, goal=self.wanted.goal, criteria=self.wanted.criteria)
        requests.save(self.ticket, request)
        self._run.save(known)
        return request

    def _keep_words(self, request: GreenRequest) -> None:
        """Take the purpose of an interrupted run, unless the user has now given another one."""
        if not (self.wanted.goal or self.wanted.criteria):
            self.wanted = replace(self.wanted, goal=request.goal, criteria=request.criteria)

    def _begin(self) -> GreenRequest:
        context, repository = self.context, self.context.repository
        commits.require_undisturbed(repository, () if self.allows_dirty else tuple(self._list_blocking_changes()))
        head = commits.require_base(repository)
        self._run.meter.check()
        tip = context.workplace.begin()
        request = self.wanted.make_request(self._run_before(), now=self.clock.now(), head=head)
        requests.save(self.ticket, request)
        key = StepKey(number=_STEP, title=request.title, text_sha256="")
        fresh = replace(self._run.state, step_executions=states.pending_steps((key,)))
        if self._refusal is not None:
            fresh = states.record_refusal(fresh, _STEP, refusal=self._refusal)
        self._run.resume(states.record_interruption(fresh, _STEP, work=self._interrupted))
        context.workplace.prepared = tip
        return request

    def _run_before(self) -> SuiteReport:
        """Return the report of the tests as they are. It is the cycle's baseline, if it contains the targets."""
        context, targets = self.context, self.wanted.targets
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

    def _list_blocking_changes(self) -> Iterator[str]:
        # Uncommitted tests do not block: GREEN takes them along, locked, and leaves them uncommitted.
        context = self.context
        layout = find_layout(context.workplace.tree, context.suite)
        tests = {context.to_repository_path(file) for file in self.wanted.files}
        for path in commits.list_own_uncommitted(context.repository, project=context.project):
            if path not in tests and not layout.is_test(path):
                yield path
