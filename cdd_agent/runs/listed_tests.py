"""The orchestrator: one cycle for each test of a list, until the list, the list agent and the cycles agree on the end.

A run continues from its own state. If HEAD is somewhere else, it continues from the handoff notes. The functions from
``make_brief_for`` on make the work items and briefs of the four agents: list, tester, implementer and refactorer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Notice, StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitRefused
from cdd_agent.hooks import HookReply, HookStream
from cdd_agent.model.budget import Meter
from cdd_agent.runs import test_list
from cdd_agent.runs.feature import (
    BEGIN,
    RESUME,
    Feature,
    is_dropped,
    list_completed,
    load_feature_state,
    read_history,
    rebuild_state,
)
from cdd_agent.runs.test_list import ListEntry, ListFacts
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.briefing import keep_interruption
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, Policy, Progress, ResumeCommands, WorkItem
from cdd_agent.tdd.instructions import describe_item, format_bullets
from cdd_agent.tdd.step import StepRecovery, alone_on, landed_head
from cdd_agent.tdd.verdict import RedVerdict
from cdd_agent.tdd.workflow_run import WorkflowRun, read_number
from cdd_agent.untrusted.text import format_line
from cdd_agent.work import state as states
from cdd_agent.work.handoff import CurrentTest, phase_name
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.report import Reason

_GO_BACK = "cdd tdd rollback COMMIT (cdd tdd history lists the commits)"
COMMANDS = ResumeCommands(resume=RESUME, restart=_GO_BACK, unit="cycle")
_UNCHOSEN_TITLE = "the next test"
"""Title of a cycle before its test is chosen."""
LIMIT_BYTES = 200_000
"""Of a list, or of a test file."""
_PROMPTS = Path(__file__).parent / "prompts"
_PLAN_HEADING = "## This phase: PLAN"
"""Separates role and rules in the list agent's prompt."""
_TASKS: dict[Phase, tuple[str, str]] = {
    "plan": ("list", "Bring the test list up to date and choose the next test."),
    "red": ("tester", "Write this one test."),
    "green": ("implementer", "Make the failing test pass."),
    "refactor": ("refactorer", "Review the changes of this cycle, and improve them if it is worth a commit."),
}
"""Phase -> agent and task."""


def adapt_policy(policy: Policy) -> Policy:
    """Return ``policy`` with the rules of this workflow."""
    return replace(
        policy,
        edit_format="tools",
        max_identical_failures=2,
        is_strict=True,
        keeps_landed=True,
        single_test=True,
        accepts_covered=True,
        allows_empty_commits=True,
    )


def find_state(feature: Feature, *, context: Context, now: str) -> RunState:
    """Return the state to continue from, or that of a new run; the phase that failed last gets new attempts.

    Raises ``UsageError`` if the run is complete, or if HEAD has no notes that lead to the run.
    """
    state = load_feature_state(feature)
    if state is None or _has_moved_away(state, feature=feature, context=context):
        state = _find_state_in_notes(state, feature=feature, context=context, now=now)
    if state is not None and state.status == Status.COMPLETED:
        raise UsageError(f"{feature.slug} is complete.", hint=f"begin another: {BEGIN}")
    return replace(
        _reset_failed_phase(state) if state is not None else RunState(ticket_slug=feature.slug, started_at=now),
        status=Status.IN_PROGRESS,
        completed_at=None,
        sandbox=context.suite.sandbox.level,
        model=context.model.name,
    )


def _has_moved_away(state: RunState, *, feature: Feature, context: Context) -> bool:
    if not state.step_executions:
        return False
    step = _last_cycle(state)
    head, landed = context.repository.read_head(), landed_head(step)
    if head == landed:
        return False
    has_begun = StepRecovery(feature.slug, step, context=context).has_begun()
    # After a failed phase, the commits of the user may correct its cause, so the run continues from HEAD.
    can_adapt = has_begun and step.error is None
    return not (can_adapt and head and landed and context.repository.is_ancestor(landed, of=head))


def _find_state_in_notes(known: RunState | None, *, feature: Feature, context: Context, now: str) -> RunState | None:
    """Return the state according to the notes; a new one if nothing has landed; None if the run is unknown."""
    repository = context.repository
    history = read_history(repository, slug=feature.slug)
    if history is not None:
        context.emit(Notice(text=f"Continuing from the handoff notes of {history.slug}."))
        state = rebuild_state(history, now=now, context=context)
        return replace(state, usage=known.usage) if known else state
    if known is None:
        return None
    has_landed = any(step.commits for step in known.step_executions.values())
    if not has_landed or repository.read_head() == known.base_commit:
        return RunState(ticket_slug=feature.slug, started_at=now, usage=known.usage)
    raise UsageError(
        f"HEAD is at {str(repository.read_head())[:10]}, which has no notes of the run {feature.slug}.\n"
        "Nothing was touched.",
        hint=f"git switch {known.branch or 'to the commit of the run'}, then: {RESUME}",
    )


def _reset_failed_phase(state: RunState) -> RunState:
    if not state.step_executions:
        return state
    step = _last_cycle(state)
    if step.error is None or step.status != Status.IN_PROGRESS:
        return state
    landed = tuple(attempt for attempt in step.attempts if attempt.phase in step.commits)
    return states.replace_step(state, replace(step, attempts=landed, error=None))


def _last_cycle(state: RunState) -> StepExecution:
    return state.execution(max(state.step_executions))


class Orchestrator:
    """Runs the cycles of one feature."""

    def __init__(
        self,
        feature: Feature,
        *,
        context: Context,
        clock: Clock,
        meter: Meter | None = None,
        allow_dirty: bool = False,
        is_attended: bool = False,
    ) -> None:
        """Does nothing before ``run``. ``is_attended``: a person can continue after a failed phase."""
        self.feature = feature
        self.clock = clock
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes may stay, out of every commit."""
        self._is_attended = is_attended
        hooks = HookStream(context.hooks, {"TaskCompletion": self._report_end})
        context = replace(context, commands=COMMANDS, hooks=hooks)
        self._run = WorkflowRun("tdd", feature.ticket, context=context, clock=clock, meter=meter)
        self.context = self._run.context

    @property
    def _state(self) -> RunState:
        return self._run.state

    def run(self, guidance: str = "") -> RunState:
        """Begin, or continue after the landed phases, until the feature is complete.

        The attempts of the cycle that comes first begin with ``guidance``, the user's words.
        Raises ``GateClosed`` if a phase fails, or if all tests were dropped.
        """
        with self._running():
            while self._state.status != Status.COMPLETED:
                self._run_cycle(guidance)
                guidance = ""
        cycles = list_completed(self._state)
        if cycles and all(map(is_dropped, cycles)):
            raise GateClosed(
                f"{self.feature.slug} has built nothing: each of its tests passed at once and was dropped.",
                hint="describe behavior that does not exist yet, or edit test-list.md and begin again",
            )
        return self._state

    @contextmanager
    def _running(self) -> Iterator[None]:
        context, repository = self.context, self.context.repository
        with alone_on(self.feature.folder, context=context):
            self._run.meter.check()
            commits.require_finished(repository)
            commits.require_base(repository)
            if not self.feature.request_path.exists():
                self._require_undisturbed()
            self.feature.save()
            self._run.resume(find_state(self.feature, context=context, now=self.clock.now()))
            with self._run.report(commits.list_warnings(repository), is_open_ended=True):
                yield

    def _run_cycle(self, guidance: str) -> None:
        """Run the cycle in progress, or a new one; if PLAN finds no open test, the run is complete."""
        step = self._start_cycle(guidance)
        number = step.step_number
        self.context.workplace.carries = self.allows_dirty
        recovery = StepRecovery(self.feature.slug, step, context=self.context)
        if recovery.has_begun():
            if (state := keep_interruption(self._state, recovery)) is not self._state:
                self._run.save(state)
                recovery = StepRecovery(self.feature.slug, state.execution(number), context=self.context)
            recovery.restore()
        at_once = ("open", RedVerdict.ALREADY_GREEN)
        cycles = list_completed(self._state)
        done = {
            each.title: any((attempt.verdict, attempt.finding) == at_once for attempt in each.attempts)
            for each in cycles
            if not is_dropped(each)
        }
        dropped = [each.title for each in cycles if is_dropped(each)]
        plan_item = make_plan_item(self.feature, number, done=done, dropped=dropped)
        if "plan" not in step.commits:
            self._carry_out(plan_item)
        step = self._state.execution(number)
        answers = [each.answer for each in step.attempts if each.phase == "plan" and each.verdict == "open"]
        answer = (answers[-1] if answers else None) or test_list.format_answer(None)
        chosen = read_choice(answer, self.context.workspace)
        if chosen is None:
            with suppress(GateClosed):  # no further cycle would follow, and the hook's notice has told the user
                self._run.complete_step(number)
            self._run.save(states.finish(self._state, now=self.clock.now()))
            return
        # After a rollback, the run tree has the later list until the cycle begins.
        entries = read_committed_list(self.context.repository, self.context.project)
        item = make_test_item(plan_item, chosen, feature=self.feature, entries=entries)
        self.context.emit(StepStarted(number=number, total=max(len(entries), number), title=item.title))
        self._run.save(states.replace_step(self._state, replace(step, title=item.title)))
        self._carry_out(item)
        self._run.complete_step(number)

    def _report_end(self, fields: Mapping[str, object], _: HookReply) -> None:
        """Report a cycle whose end is saved, unless PLAN has found no test for it."""
        step = self._state.execution(read_number(fields))
        if step.title != _UNCHOSEN_TITLE:
            status = "dropped" if is_dropped(step) else step.status
            self.context.emit(StepFinished(number=step.step_number, status=status, error=None))

    def _start_cycle(self, guidance: str) -> StepExecution:
        """Start a cycle, or resume the one in progress, with further guidance of the user."""
        state = self._state
        in_progress = state.numbers(Status.IN_PROGRESS)
        if in_progress:
            number = in_progress[-1]
            state = states.add_guidance(state, number, words=guidance)
            self._run.save(state)
            step = state.execution(number)
            key = StepKey(number=number, title=step.title, text_sha256=step.text_sha256)
        else:
            self._require_undisturbed()
            number = max(state.step_executions, default=0) + 1
            key = StepKey(number=number, title=_UNCHOSEN_TITLE, text_sha256="")
            state = replace(state, step_executions={**state.step_executions, **states.pending_steps((key,))})
            state = states.add_guidance(state, number, words=guidance)
        self._run.start_step(state, key, is_resumed=bool(in_progress))
        return self._state.execution(number)

    def _require_undisturbed(self) -> None:
        """Raise ``UsageError`` for uncommitted changes that are not allowed, or if the list cannot be saved."""
        require_list(self.context.project)
        repository = self.context.repository
        changes = commits.list_own_uncommitted(repository, project=self.context.project)
        commits.require_undisturbed(repository, () if self.allows_dirty else changes)

    def _carry_out(self, item: WorkItem) -> None:
        """Run the phases of ``item``; raises ``GateClosed`` if one fails."""
        ending = self._run.run_cycle(item)
        self._run.state = ending.state
        if ending.how not in ("failed", "blocked"):
            return
        step = ending.state.execution(item.number)
        why = ending.why or ending.how
        self._run.save(states.replace_step(self._state, replace(step, error=why)))
        if not self._is_attended:
            self._run.save(replace(self._state, status=Status.FAILED, completed_at=self.clock.now()))
        word = "paused" if self._is_attended else "aborted"
        title = f" ({step.title})" if step.title != _UNCHOSEN_TITLE else ""
        self.context.emit(StepFinished(number=item.number, status=word, error=why))
        raise GateClosed(
            f"The run {self.feature.slug} is {word} in cycle {item.number}{title}: {why}\n"
            f"The changes of {phase_name(step.phase or item.phases[0])} were rolled back; the earlier phases stay.",
            hint=f"fix the cause, commit that, and continue with: {RESUME}; or go back with {_GO_BACK}",
        )


def make_brief_for(repository: Repository, workspace: Workspace) -> BriefFor:
    """Return the function that makes the brief for a phase of a cycle."""

    def judge(item: WorkItem, answer: str) -> tuple[Reason, ...]:
        facts = ListFacts(
            before=read_committed_list(repository, workspace.root),
            now=read_list(workspace),
            completed=item.progress.completed if item.progress else (),
            dropped=item.progress.dropped if item.progress else (),
            resolve_path=workspace.resolve,
            read_text=lambda path: _read_text(workspace, path),
        )
        return test_list.find_objections(answer, facts)

    def finalize(item: WorkItem, answer: str) -> WorkItem:
        return finalize_plan_item(item, read_choice(answer, workspace), entries=read_list(workspace))

    def make_brief(item: WorkItem, phase: Phase) -> Brief:
        agent, task = _TASKS[phase]
        role, _, rules = (_PROMPTS / f"{agent}.md").read_text(encoding="utf-8").partition(_PLAN_HEADING)
        if phase == "plan":
            text = _read_text(workspace, test_list.NAME)
            listed = f"There is no {test_list.NAME} yet." if text is None else f"# {test_list.NAME}\n\n{text.strip()}"
            rules, requirements = f"{_PLAN_HEADING}\n\n{rules.strip()}", f"{item.goal}\n\n{listed}"
        else:
            rules, requirements = "", describe_item(item, heading="Test")
        return Brief(
            phase=phase,
            kind=item.kind,
            agent=agent,
            role=role,
            rules=rules,
            work=f"tdd {item.ticket} cycle {item.number} {phase}",
            task=task,
            requirements=requirements,
            source="test-list.md",
            judge=(lambda answer: judge(item, answer)) if phase == "plan" else None,
            finalize_item=finalize if phase == "plan" else None,
        )

    return make_brief


def make_plan_item(feature: Feature, number: int, *, done: Mapping[str, bool], dropped: Sequence[str] = ()) -> WorkItem:
    """Return the work item of PLAN; ``done`` maps each completed test to whether it passed at once."""
    completed = [f"{test} {test_list.COVERED}" if is_covered else test for test, is_covered in done.items()]
    listed = format_bullets(completed) if completed else "none yet"
    if dropped:
        removed = format_bullets([f"{test} {test_list.DROPPED}" for test in dropped])
        listed += f"\n\n# Dropped, because they passed at once and prove nothing\n\n{removed}"
    return WorkItem(
        ticket=feature.slug,
        number=number,
        number_key="Cycle",
        title="choose the next test",
        goal=f"# The request\n\n{feature.text}\n\n# Completed\n\n{listed}",
        kind="bug" if feature.is_fix else "feature",
        phases=("plan",),
        tests=(),
        sources=(test_list.NAME,),
        progress=Progress(completed=tuple(done), dropped=tuple(dropped), following="RED"),
        plan_body=feature.text if number == 1 else "",
    )


def finalize_plan_item(item: WorkItem, chosen: CurrentTest | None, *, entries: tuple[ListEntry, ...]) -> WorkItem:
    """Return PLAN's ``item`` with the list agent's choice, for its commit and its note."""
    done = item.progress.completed if item.progress else ()
    if chosen is None:
        dropped = sum(entry.is_dropped for entry in entries)
        count = len(entries) - dropped
        title = f"complete, {count} of {len(entries)} tests" + (f", {dropped} dropped" if dropped else "")
        if dropped and not count:
            title = f"no test was kept, {dropped} dropped"
        return replace(item, title=title, sources=(), progress=Progress(completed=done, following="COMPLETE"))
    listed = test_list.find_entry(entries, chosen.description)
    return replace(
        item,
        title=chosen.description if listed is None else format_line(listed.text),
        tests=(chosen.test_file,) if chosen.test_file else (),
        sources=(chosen.impl_file,) if chosen.impl_file else (),
        progress=Progress(completed=done, pending=test_list.list_open(entries), following="RED"),
    )


def make_test_item(
    item: WorkItem, chosen: CurrentTest, *, feature: Feature, entries: tuple[ListEntry, ...]
) -> WorkItem:
    """Return the work item of the phases after PLAN, whose ``item`` is given."""
    chosen_item = finalize_plan_item(item, chosen, entries=entries)
    return replace(
        chosen_item,
        goal=f"This is one test of the request below. Other cycles write the other tests.\n\n{feature.text}",
        phases=("red", "green", "refactor"),
        progress=replace(chosen_item.progress or Progress(), following="PLAN"),
        criteria=(("TEST", chosen_item.title),),
    )


def read_committed_list(repository: Repository, folder: Path) -> tuple[ListEntry, ...]:
    """Return the test list in HEAD, of the project at ``folder``."""
    inside = folder.resolve().relative_to(repository.root.resolve()) / test_list.NAME
    try:
        return test_list.parse(repository.git("show", f"HEAD:{inside.as_posix()}")[:LIMIT_BYTES])
    except GitRefused:
        return ()


def read_list(workspace: Workspace) -> tuple[ListEntry, ...]:
    """Return the test list in the work tree."""
    return test_list.parse(_read_text(workspace, test_list.NAME) or "")


def require_list(project: Path) -> None:
    """Raise ``UsageError`` if the path of the test list is taken by something that is not a readable file."""
    path = project / test_list.NAME
    try:
        read_ordinary(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{test_list.NAME} is the file for the list of tests, but it cannot be read: {error.strerror}.",
            hint=f"rename and commit it: git mv {test_list.NAME} OTHER-NAME; see what it is: ls -ld {path}",
        ) from error


def read_choice(answer: str, workspace: Workspace) -> CurrentTest | None:
    """Return the choice in an accepted answer, with paths relative to the project; None: all tests are done."""
    chosen = test_list.read_answer(answer)
    return None if chosen is None else test_list.resolve_paths(chosen, workspace.resolve)


def _read_text(workspace: Workspace, path: str) -> str | None:
    try:
        return read_ordinary(workspace.root / path, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
