"""The tests of a list as a source of work: one cycle each, until the list and the list agent agree on the end.

A cycle has two items: PLAN, which chooses the test, and the test. A run continues from its own state. If HEAD is
somewhere else, it continues from the handoff notes. The four agents are list, tester, implementer and refactorer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Notice
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitRefused
from cdd_agent.runs import test_list
from cdd_agent.runs.feature import BEGIN, SOURCE, Feature, list_completed, load_feature_state
from cdd_agent.runs.ledger import Known, Ledger, Unknown, continue_at
from cdd_agent.runs.places import RESUME
from cdd_agent.runs.run import Run, Source, is_dropped
from cdd_agent.runs.test_list import ListEntry, ListFacts
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, Progress, ResumeCommands, WorkItem
from cdd_agent.tdd.instructions import describe_item, format_bullets
from cdd_agent.tdd.phase_run import Ending, How
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import landed_head
from cdd_agent.untrusted.text import format_line
from cdd_agent.work import state as states
from cdd_agent.work.handoff import CurrentTest
from cdd_agent.work.outcome import Covered
from cdd_agent.work.state import RunState, Status, StepExecution
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


def find_state(feature: Feature, *, context: Context, now: str) -> RunState:
    """Return the state to continue from, or that of a new run; the phase that failed last gets new attempts.

    Raises ``UsageError`` if the run is complete, or if HEAD has no notes that lead to the run.
    """
    state = load_feature_state(feature)
    if state is None or _has_moved_away(state, feature=feature, context=context):
        state = _follow_head(state, feature=feature, context=context, now=now)
    if state is not None and state.status == Status.COMPLETED:
        raise UsageError(f"{feature.slug} is complete.", hint=f"begin another: {BEGIN}")
    if state is None:
        return RunState(ticket_slug=feature.slug, started_at=now)
    return replace(_reset_failed_phase(state), status=Status.IN_PROGRESS, completed_at=None)


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


def _follow_head(saved: RunState | None, *, feature: Feature, context: Context, now: str) -> RunState | None:
    """Return the state at HEAD, from where the cycle in progress continues; None if nothing is known of the run."""
    repository, head = context.repository, commits.require_base(context.repository)
    ledger = Ledger(slug=feature.slug, saved=saved, repository=repository, project=context.project)
    found = ledger.state_at(head)
    match found:
        case Known(state=state, basis=basis):
            pass
        case Unknown(why=why):
            if why == "no records":
                return None
            raise UsageError(
                f"This clone is shallow, so it may lack commits of the run {feature.slug}.\nNothing was touched.",
                hint=f"fetch them: git fetch --unshallow; then: {RESUME}",
            )
        case _:
            assert_never(found)
    if not any(step.commits for step in state.step_executions.values()):
        has_landed = saved is not None and any(step.commits for step in saved.step_executions.values())
        if saved is not None and has_landed and head != saved.base_commit:
            raise UsageError(
                f"HEAD is at {head[:10]}, which has no notes of the run {feature.slug}.\nNothing was touched.",
                hint=f"git switch {saved.branch or 'to the commit of the run'}, then: {RESUME}",
            )
        return RunState(ticket_slug=feature.slug, started_at=now, usage=state.usage, beyond=state.beyond)
    records = "saved state" if basis == "state alone" else f"handoff notes of {feature.slug}"
    context.emit(Notice(text=f"Continuing from the {records}."))
    step = _last_cycle(state)
    if step.status == Status.IN_PROGRESS:
        state = states.replace_step(state, continue_at(step, head, slug=feature.slug))
    return replace(state, branch=repository.read_branch())


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


class ListedTests:
    """The tests of a list, one at a time, until the list agent finds that all of them are done."""

    workflow = SOURCE
    makes_project = False
    is_open_ended = True
    commands = COMMANDS
    remarks: tuple[str, ...] = ()

    def __init__(self, feature: Feature, *, repository: Repository, project: Path) -> None:
        """Read nothing yet. ``project`` is the folder of the user's project."""
        self.feature = feature
        self.ticket = feature.ticket
        self.title = format_line(feature.text.partition("\n")[0])[:200]
        self.depends: Mapping[int, tuple[int, ...]] = {}
        self._repository = repository
        self._project = project

    def adapt_policy(self, policy: Policy) -> Policy:
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

    def read(self, *, now: str) -> RunState:
        """Return the saved state, or a new one."""
        return load_feature_state(self.feature) or RunState(ticket_slug=self.feature.slug, started_at=now)

    def open(self, run: Run[Source]) -> RunState:
        """Save the request of a new run, and return the state to continue from; see ``find_state``.

        Raises ``UsageError`` for uncommitted changes that are not allowed, or if the list cannot be saved.
        """
        run.meter.check()
        commits.require_finished(self._repository)
        commits.require_base(self._repository)
        if not self.feature.request_path.exists():
            require_list(self._project)
            run.require_clean(allow_dirty=run.allows_dirty)
        self.feature.save()
        return find_state(self.feature, context=run.context, now=run.clock.now())

    def next(self, state: RunState) -> WorkItem | None:
        """Return PLAN, which chooses a test, or the item of the test that it has chosen; None once all are done."""
        if state.status == Status.COMPLETED:
            return None
        # Cycles are pending after an undo, and in a fork.
        begun = (*state.numbers(Status.IN_PROGRESS)[-1:], *sorted(state.numbers(Status.PENDING)))
        number = begun[0] if begun else max(state.step_executions, default=0) + 1
        step = state.step_executions.get(number)
        cycles = list_completed(state)
        done = {
            each.title: any(attempt.outcome == Covered("kept") for attempt in each.attempts)
            for each in cycles
            if not is_dropped(each)
        }
        dropped = [each.title for each in cycles if is_dropped(each)]
        plan_item = make_plan_item(self.feature, number, done=done, dropped=dropped)
        if step is None or "plan" not in step.commits:
            return plan_item
        chosen = read_choice(_find_answer(step), Workspace(self._project))
        if chosen is None:  # killed before the end was saved
            return plan_item
        # After a rollback, the run tree has the later list until the cycle begins.
        entries = read_committed_list(self._repository, self._project)
        item = make_test_item(plan_item, chosen, feature=self.feature, entries=entries)
        return replace(item, total=max(len(entries), number))

    def find(self, state: RunState, number: int) -> WorkItem | None:
        """Return the item of the cycle in progress: the others depend on it."""
        item = self.next(state)
        return item if item is not None and item.number == number else None

    def list_changes(self, context: Context) -> tuple[str, ...]:
        """Return the user's uncommitted changes in the project."""
        return commits.list_own_uncommitted(self._repository, project=self._project)

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        """Return ``state``; raise ``UsageError`` if the list cannot be saved."""
        require_list(self._project)
        return state

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        """Return the brief for one of the four agents."""
        workspace, repository = context.workspace, context.workplace.tree

        def judge(answer: str) -> tuple[Reason, ...]:
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
            judge=judge if phase == "plan" else None,
            finalize_item=finalize if phase == "plan" else None,
        )

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        """End the cycle after its test, and the run if PLAN has chosen none; a failed phase can be continued."""
        step = states.require_current(state)
        match ending.how:
            case How.FAILED | How.BLOCKED | How.LACKING:
                return states.replace_step(state, replace(step, error=ending.why or ending.how))
            case How.DONE | How.COVERED | How.DROPPED | How.PART:
                pass
            case _:
                assert_never(ending.how)
        has_test = "red" in step.commits
        if not has_test and test_list.read_answer(_find_answer(step)) is not None:
            return state
        state = states.end_step(state, step.step_number, status=Status.COMPLETED, now=now)
        if has_test:
            return state
        done = {number: each for number, each in state.step_executions.items() if each.status != Status.PENDING}
        return states.finish(replace(state, step_executions=done), now=now)

    def describe_end(self, step: StepExecution, *, context: Context) -> tuple[str, ...]:
        """Return nothing: the list says what is left."""
        return ()


def _find_answer(step: StepExecution) -> str:
    """Return PLAN's accepted answer."""
    answers = [each.answer for each in step.attempts if each.phase == "plan" and each.is_open]
    return (answers[-1] if answers else None) or test_list.format_answer(None)


def require_built(state: RunState) -> None:
    """Raise ``GateClosed`` if all tests of a run were dropped."""
    cycles = list_completed(state)
    if cycles and all(map(is_dropped, cycles)):
        raise GateClosed(
            f"{state.ticket_slug} has built nothing: each of its tests passed at once and was dropped.",
            hint="describe behavior that does not exist yet, or edit test-list.md and begin again",
        )


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
        title=_UNCHOSEN_TITLE,
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
