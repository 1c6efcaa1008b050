"""A run: takes work items from a source, carries out each in a cycle, and saves its state after every change.

Everything that is the same for all sources is here: lock, preconditions, resumption, loop, saves and report. A
``Source`` says which items there are, and what the end of one means for the run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from cdd_agent.agent.hooks import submit_prompt
from cdd_agent.clock import Clock
from cdd_agent.errors import CddError, GateClosed, UsageError
from cdd_agent.events import Notice, RunFinished, RunStarted, StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.model.budget import Meter, read_ticket_usage
from cdd_agent.runs.ahead import Ahead
from cdd_agent.tdd.baseline import TargetsLeftOut
from cdd_agent.tdd.briefing import describe_refusal, keep_interruption
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, ResumeCommands, WorkItem
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.locks import alone_on
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tickets.plan import find_dependents, find_ready
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.journal import journal_path
from cdd_agent.work.outcome import Covered
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, Usage
from cdd_agent.work.state_file import save_state

DEPENDENCY_SKIPPED = "it depends on a part that was not completed"
"""Why a step was skipped that can run once the other step is completed."""


class Source(Protocol):
    """Where a run takes its work items from. Several items in a row can belong to one step of the state."""

    workflow: str
    """The name of the workflow, as in ``RunStarted``."""
    ticket: Ticket
    """The folder of the run, with its state."""
    title: str
    """The purpose of the run, in one line."""
    commands: ResumeCommands
    """The commands that continue the run."""
    makes_project: bool
    """Whether the run makes the project in which it is, and not a change of it."""
    is_open_ended: bool
    """Whether more items can follow those in the state, so that only ``accept`` completes the run."""
    depends: Mapping[int, tuple[int, ...]]
    """Number of a step -> the steps that must be completed before it; empty if they are simply in order."""
    remarks: tuple[str, ...]
    """Notices to the user before the run continues."""

    def adapt_policy(self, policy: Policy) -> Policy:
        """Return ``policy`` with the rules of this workflow."""

    def read(self, *, now: str) -> RunState:
        """Read the input again, and return the saved state adapted to it, or a new one. Changes nothing."""

    def open(self, run: "Run[Source]") -> RunState:
        """Check what this workflow requires of the project, and return the state to continue from; the lock is held."""

    def next(self, state: RunState) -> WorkItem | None:
        """Return the next item of a run; None if none can be carried out."""

    def find(self, state: RunState, number: int) -> WorkItem | None:
        """Return the item of a step that the user names; None if the step cannot be run by itself."""

    def list_changes(self, context: Context) -> tuple[str, ...]:
        """Return the user's uncommitted changes, relative to the work tree, that are in the way of a step."""

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        """Prepare the project for a step, and return the state with which it starts."""

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        """Return the instructions to the model for a phase of an item."""

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        """Return what the end of a cycle means for the run.

        The step ends, or it continues with a further item, or it has an error and can be continued by a person.
        """

    def describe_end(self, step: StepExecution, *, context: Context) -> Iterable[str]:
        """Yield notices about a step that has ended."""


SourceT_co = TypeVar("SourceT_co", bound=Source, covariant=True)


class Run(Generic[SourceT_co]):
    """The state of one run, and what can be done with its steps."""

    def __init__(
        self,
        source: SourceT_co,
        *,
        context: Context,
        clock: Clock,
        meter: Meter | None = None,
        allow_dirty: bool = False,
        is_attended: bool = False,
    ) -> None:
        """Read the input and the state, saving nothing. Without a ``meter``, usage is counted but not limited.

        ``is_attended``: a person can continue after a failed phase.
        """
        self.source: SourceT_co = source
        self.ticket = source.ticket
        self.clock = clock
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes are taken along, and stay out of every commit."""
        self.keeps_changes = False
        """As ``allows_dirty``, from the next step on."""
        self.leaves_changes = False
        """The next steps run without the user's uncommitted changes."""
        self.reported_remarks: tuple[str, ...] = ()
        """Remarks that the user has seen."""
        self.given_up: int | None = None
        """The step whose last iteration was given up, so that it counts as it landed before."""
        self.postponed = ""
        """The user's words that wait for a decision about uncommitted changes."""
        self._is_attended = is_attended
        resume = source.commands.resume
        self.meter = meter or Meter(context.model, clock=clock, work=f"the ticket {self.ticket.slug}", go_on=resume)
        self.context = replace(context, model=self.meter)
        self._ahead: Ahead | None = None
        self._has_checked = False
        """Uncommitted changes since then are not the run's concern."""
        self._counted: int | None = None
        """The step to which usage belongs."""
        self._underway: int | None = None
        """The step that was started by this process and has not ended."""
        self.read()

    def work_ahead(self, ahead: Ahead) -> None:
        """Let ``ahead`` work out steps, unless this run is in a fork."""
        if not self.context.fork:
            self._ahead = ahead
            self.context = replace(self.context, bring_ahead=ahead.bring)

    def read(self) -> None:
        """Read the input and the saved state again."""
        self._resume(self.source.read(now=self.clock.now()))

    def _resume(self, state: RunState) -> None:
        self.state = state
        self.meter.resume(state.usage)
        self._counted = self._underway = None

    def save(self, state: RunState) -> None:
        """Write ``state`` with the usage so far, then make it the current state."""
        state = self._count_usage(state)
        save_state(self.ticket.state_path, state)
        self.state = state

    def _count_usage(self, state: RunState) -> RunState:
        return states.record_usage(state, self._counted, step=self.meter.step, ticket=self.meter.ticket)

    def read_usage(self) -> Usage:
        """Return everything that the ticket has used, as ``cdd status`` shows it."""
        return read_ticket_usage(self.state, journal_path(self.context.project, self.ticket.slug))

    def make_recovery(self, number: int) -> StepRecovery:
        """Return the recovery of a step."""
        return StepRecovery(self.ticket.slug, self.state.execution(number), context=self.context)

    # The run as a whole

    def run(self, guidance: str = "") -> RunState:
        """Begin or continue, until no step can run or one fails.

        The next attempts at the step that comes first begin with ``guidance``, the user's words.
        """
        with self.running():
            self.run_all(guidance)
        return self.state

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock ticket and repository while steps run, or raise ``UsageError``; save the state when the block ends."""
        with alone_on(self.ticket.folder, context=self.context):
            self._has_checked = False
            self.read()  # another process may have worked on the ticket before the lock was taken
            self._resume(self.source.open(self))
            known = self.reported_remarks
            self.reported_remarks = (*self.source.remarks, *commits.list_warnings(self.context.repository))
            with self._report([remark for remark in self.reported_remarks if remark not in known]):
                try:
                    yield
                finally:
                    if self._ahead is not None:
                        self._ahead.close()

    @contextmanager
    def _report(self, remarks: Iterable[str]) -> Iterator[None]:
        """Emit the events of the run around the block, and save the final state, however the block ends.

        If the state cannot be saved, the run is reported as still in progress.
        """
        context, began, status, found = self.context, self.clock.monotonic(), Status.IN_PROGRESS, self.state
        workflow, ticket = self.source.workflow, self.ticket.slug
        sandbox, unit = context.suite.sandbox.level, self.source.commands.unit
        context.emit(RunStarted(workflow=workflow, ticket=ticket, model=context.model.name, sandbox=sandbox, unit=unit))
        for remark in remarks:
            context.emit(Notice(text=remark))
        try:
            try:
                yield
            finally:
                self.meter.pause()
                if self._count_usage(self.state) != found:
                    is_open_ended = self.source.is_open_ended
                    self.save(self.state if is_open_ended else states.finish(self.state, now=self.clock.now()))
                status = self.state.status
        finally:
            took = self.clock.monotonic() - began
            context.emit(RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=took))

    def run_all(self, guidance: str = "") -> None:
        """Run steps until none can run or one fails. Steps that depend on a skipped step are skipped."""
        for number in find_dependents(self.source.depends, self.state.numbers(Status.SKIPPED)):
            if self.state.execution(number).status == Status.PENDING:
                self.skip(number, reason=DEPENDENCY_SKIPPED)
        while (item := self.find_next_step()) is not None:
            if guidance:
                self.state = _add_step(self.state, item)
                self._take_words(item.number, guidance)
                guidance = ""
            if not self.run_step(item):
                return

    # One step

    def find_next_step(self) -> WorkItem | None:
        """Return the item to carry out next; None if there is none."""
        return self.source.next(self.state)

    def step(self, number: int) -> WorkItem:
        """Return the item of this step; raises ``UsageError`` if there is none."""
        self.state.execution(number)
        item = self.source.find(self.state, number)
        if item is None:
            name, resume = self.context.step_name(self.state.execution(number)), self.source.commands.resume
            raise UsageError(
                f"{name[0].upper()}{name[1:]} cannot be run by itself.", hint=f"continue the run: {resume}"
            )
        return item

    def run_step(self, item: WorkItem) -> bool:
        """Carry out ``item`` and return whether the run may go on; roll it back if it fails.

        Raises, before anything changes, ``UsageError`` if a dependency is not completed, or for uncommitted changes or
        a merge in progress, and ``ModelError`` if the model cannot be used.
        """
        number, self.given_up = item.number, None
        is_resumed = self._underway == number
        if not is_resumed:
            try:
                is_resumed = self._start(item)
            except CddError:
                if number in self.state.step_executions and self.state.execution(number).status == Status.PENDING:
                    self._restore_landed(number)
                raise
        self._announce(item)
        self._work_ahead(number, is_resumed=is_resumed)
        carries = self.context.policy.carries_changes
        self.context.workplace.carries = carries or self.allows_dirty or self.keeps_changes
        try:
            ending = Cycle(item, self.state, context=self.context, save=self.save).run()
        except TargetsLeftOut:
            self.make_recovery(number).undo_if_underway(why="its tests do not run")
            raise
        state = self.source.accept(ending.state, ending, now=self.clock.now())
        step = state.execution(number)
        if step.status == Status.COMPLETED and self._ahead is not None:
            state = self._ahead.add_attempts(state)
        if step.status in (Status.COMPLETED, Status.FAILED, Status.SKIPPED):
            return self._end(item, state, brief=ending.brief)
        if step.error is not None:
            self._pause(item, state)
        self.save(state)
        return True

    def _start(self, item: WorkItem) -> bool:
        """Check everything that the step of ``item`` needs, start it, and return whether it was begun before."""
        number = item.number
        self.require_dependencies(number)
        self.state = _add_step(self.state, item)
        step = self.state.execution(number)
        self._require_budget(step)
        commits.require_finished(self.context.repository)
        recovery = self.make_recovery(number)
        recovery.require_snapshots()
        is_resumed = recovery.is_underway()
        if not is_resumed:
            self.require_clean(allow_dirty=self.allows_dirty or self.keeps_changes)
            if step.status == Status.IN_PROGRESS and not step.commits:
                kept = keep_interruption(self.state, recovery)  # before its files are made again
                work = kept.execution(number).interrupted
                self.save(states.record_interruption(states.retry_step(self.state, number), number, work=work))
        reply = self.context.hooks.run("TaskStart", self._describe_task(number, step.title))
        if reply.block:
            happened = f"A hook blocked {self.context.step_name(step)}: {reply.block}"
            raise GateClosed(happened, hint="do what it asks for first")
        state = self.source.start(self.state, number, context=self.context)
        self._save_start(state, item, is_resumed=is_resumed, words=reply.context)
        self._underway = number
        return is_resumed

    def _save_start(self, state: RunState, item: WorkItem, *, is_resumed: bool, words: str) -> None:
        """Save that a step has started at HEAD, or continues on the branch where it was started."""
        repository, context = self.context.repository, self.context
        head = repository.read_head()
        state = replace(
            state,
            base_commit=state.base_commit or head,
            branch=state.branch if is_resumed else repository.read_branch(),
            sandbox=context.suite.sandbox.level,
            model=context.model.name,
            origin=self._make_origin(),
        )
        state = states.start_step(state, item.key, now=self.clock.now(), base_commit=head)
        self._counted = item.number
        self.save(states.add_guidance(state, item.number, words=words))

    def _make_origin(self) -> states.Origin:
        source = self.source
        resume, makes_project = source.commands.resume, source.makes_project
        return states.Origin(workflow=source.workflow, title=source.title, resume=resume, makes_project=makes_project)

    def _require_budget(self, step: StepExecution) -> None:
        self._counted = None  # a save from here on must not count for the step before
        self.meter.begin(f"{self.context.step_name(step)} of {self.ticket.slug}", used=step.usage)
        self.meter.check()

    def require_clean(self, *, allow_dirty: bool) -> None:
        """Raise ``UsageError`` for a merge in progress, and for the user's changes unless they are allowed."""
        # In a run tree, changes that the user makes while steps run concern nobody.
        may_stay = allow_dirty or self.leaves_changes or self._has_checked
        changes = () if may_stay else self.source.list_changes(self.context)
        commits.require_undisturbed(self.context.repository, changes)
        self._has_checked = True

    def _announce(self, item: WorkItem) -> None:
        if not item.total:
            return
        step = self.state.execution(item.number)
        self.context.emit(StepStarted(number=item.number, total=item.total, title=item.title, guidance=step.guidance))
        if step.title != item.key.title:
            self.save(states.replace_step(self.state, replace(step, title=item.title)))

    def _end(self, item: WorkItem, state: RunState, *, brief: str) -> bool:
        """Save and report the end of a step; raise ``GateClosed`` if a hook wants no further one."""
        number, context = item.number, self.context
        step = state.execution(number)
        base, head = step.base_commit, context.repository.read_head()
        if step.status == Status.COMPLETED and base is not None and head is not None:
            changes = context.repository.list_changes(base, head)
            own = [each for each in changes if not context.snapshots.is_excluded(each.path)]
            state = states.record_files(state, number, changes=own)
        self._underway = None
        self.save(state)  # first: a hook of the user cannot prevent it
        self._report_end(item, brief=brief)
        fields = {**self._describe_task(number, step.title), "status": str(step.status), "error": step.error or ""}
        try:
            # Where no further step would follow, the hook's notice has told the user.
            with suppress(*(() if item.total else (GateClosed,))):
                if reason := context.hooks.run("TaskCompletion", fields).block:
                    happened = f"A hook ended the run after {context.step_name(step)}: {reason}"
                    hint = "the step itself is saved; do what the hook asks for, then continue"
                    raise GateClosed(happened, hint=hint)
        finally:
            self.given_up = number if self._restore_landed(number) else None
        return step.status == Status.COMPLETED

    def _report_end(self, item: WorkItem, *, brief: str) -> None:
        step = self.state.execution(item.number)
        for text in self.source.describe_end(step, context=self.context):
            self.context.emit(Notice(text=text))
        self._discard_ahead(item.number, is_landed=step.status == Status.COMPLETED)
        if item.total:
            status = "dropped" if is_dropped(step) else step.status
            self.context.emit(StepFinished(number=item.number, status=status, error=step.error, brief=brief))

    def _pause(self, item: WorkItem, state: RunState) -> None:
        """Save a failed phase whose earlier phases stay, and raise ``GateClosed``."""
        word, slug, resume = "paused", self.ticket.slug, self.source.commands.resume
        if not self._is_attended:
            word, state = "aborted", replace(state, status=Status.FAILED, completed_at=self.clock.now())
        self._underway = None
        self.save(state)
        step = state.execution(item.number)
        back = self.context.restart_command(step)
        self.context.emit(StepFinished(number=item.number, status=word, error=step.error))
        title = f" ({step.title})" if item.total else ""
        raise GateClosed(
            f"The run {slug} is {word} in {self.context.step_name(step)}{title}: {step.error}\n"
            f"The changes of {phase_name(step.phase or item.phases[0])} were rolled back; the earlier phases stay.",
            hint=f"fix the cause, commit that, and continue with: {resume}; or go back with {back}",
        )

    def _describe_task(self, number: int, title: str) -> dict[str, object]:
        return {"task_id": f"{self.ticket.slug}/{number}", "task_subject": title}

    def _restore_landed(self, number: int) -> bool:
        """Let a step whose iteration was not accepted count as it landed before; return whether it was one."""
        step = self.state.execution(number)
        if step.status == Status.COMPLETED or step.landed is None:
            return False
        self.save(states.restore_landed(self.state, number, now=self.clock.now()))
        self.context.emit(Notice(text=f"Step {number} counts as before this iteration: its earlier commits stay."))
        return True

    def _work_ahead(self, number: int, *, is_resumed: bool) -> None:
        """Let other processes work out the steps after ``number`` that are ready, and take their work on it."""
        head = self.context.repository.read_head()
        if self._ahead is None or head is None:
            return
        can_run = find_ready(self.source.depends, completed=self.state.numbers(Status.COMPLETED))
        waiting = [n for n in self.state.numbers(Status.PENDING) if n in can_run and n != number]
        free = self._list_free(number, waiting)
        if self._ahead.takes_present and not is_resumed and self._is_fresh(number):
            free.insert(0, self.step(number).key)
        self._ahead.begin(free, self.state, base=head)
        used = self._ahead.take(number)
        if self._ahead.takes_present:
            self.meter.reserved = self._ahead.measure_reserved(without=number)
        if not is_resumed:  # else it has been counted
            self.meter.add(used)

    def _is_fresh(self, number: int) -> bool:
        """Return whether a step is carried out for the first time, by the rules of every step."""
        step = self.state.execution(number)
        is_first = not (step.guidance or step.landed or step.refusal or step.attempts or step.commits)
        return is_first and number in self.source.depends

    def _list_free(self, number: int, waiting: Sequence[int]) -> list[StepKey]:
        """Return the steps of ``waiting`` that share no exclusive file with ``number`` or with an earlier one."""
        taken = set(self.step(number).exclusive)
        free = []
        for item in map(self.step, waiting):
            if taken.isdisjoint(item.exclusive):
                free.append(item.key)
            taken.update(item.exclusive)
        return free

    def _discard_ahead(self, number: int, *, is_landed: bool = False) -> None:
        if self._ahead is not None:
            self._ahead.discard(number, is_landed=is_landed)

    # The user's acts between steps

    def list_blocking_steps(self, number: int) -> tuple[int, ...]:
        """Return the dependencies of a step that are not completed."""
        needed = self.source.depends.get(number, ())
        return tuple(n for n in needed if self.state.execution(n).status != Status.COMPLETED)

    def require_dependencies(self, number: int) -> None:
        """Raise ``UsageError`` if a dependency of a step is not completed."""
        blocking = self.list_blocking_steps(number)
        if blocking:
            shown = ", ".join(f"step {n} ({self.state.execution(n).status})" for n in blocking)
            hint = f"run that step first, or skip this one: {self.source.commands.resume} --skip {number}"
            raise UsageError(f"Step {number} depends on {shown}.", hint=hint)

    def list_stale_steps(self) -> tuple[int, ...]:
        """Return the completed steps whose text has changed since."""
        found = {number: self.source.find(self.state, number) for number in self.state.numbers(Status.COMPLETED)}
        return tuple(
            number
            for number, item in found.items()
            if item is not None and item.text_sha256 != self.state.execution(number).text_sha256
        )

    def find_phase(self, item: WorkItem) -> str:
        """Return the name of the first phase of ``item`` without a commit; empty if there is none."""
        landed = self.state.execution(item.number).commits
        return next((phase_name(phase) for phase in item.phases if phase not in landed), "")

    def skip(self, number: int, *, reason: str) -> None:
        """Skip a step, undoing it first if it is in progress. Its dependents cannot run."""
        self._discard_ahead(number)
        skipped = states.end_step(self.state, number, status=Status.SKIPPED, now=self.clock.now(), error=reason)
        self.make_recovery(number).undo_if_underway(why="the step is skipped")
        self.save(skipped)
        if not self._restore_landed(number):
            self.context.emit(StepFinished(number=number, status=Status.SKIPPED, error=reason))

    def guide(self, number: int, words: str) -> None:
        """Add the user's words to the guidance that the next attempts at a step begin with. Nothing is restarted."""
        with alone_on(self.ticket.folder, context=self.context):
            self.read()  # another process may have worked on the ticket
            self._require_model(number)
            self._take_words(number, words)

    def _take_words(self, number: int, words: str) -> None:
        """Save the user's words for a step, unless a hook blocks them."""
        said = submit_prompt(words, self.context.hooks)
        self.save(states.add_guidance(self.state, number, words=said))

    def retry(self, number: int, *, guidance: str = "") -> None:
        """Make a step pending again, and the steps that were skipped because of it; undo it if it is in progress.

        Its next attempts begin with why the last one was refused, and with the user's ``guidance``. A completed step
        can only be retried if its text has changed since, or with guidance; its commits stay. One that never ran must
        not wait for a step that has ended.
        """
        step = self.state.execution(number)
        status, is_asked = step.status, bool(guidance or step.guidance) or number in self.list_stale_steps()
        if status == Status.COMPLETED and not is_asked:
            raise UsageError(
                f"Step {number} is completed, and its text has not changed.",
                hint=f"say what to do differently: {self.source.commands.resume} --retry {number} --guidance TEXT",
            )
        self._require_model(number)
        if status == Status.PENDING:
            self._report_first_run(number)
        if guidance:
            self._take_words(number, guidance)
        self._discard_ahead(number)
        recovery = self.make_recovery(number)
        refusal = describe_refusal(recovery)
        recovery.undo_if_underway(why="the step is restarted")
        state = states.record_refusal(self.state, number, refusal=refusal) if refusal else self.state
        self.save(self.unskip_dependents(states.retry_step(state, number), number))

    def _require_model(self, number: int) -> None:
        # Without a model a completed step would count as pending, and nobody could review it.
        if self.state.execution(number).status == Status.COMPLETED:
            self.meter.check()

    def _report_first_run(self, waiting: int) -> None:
        """Say that a step was never run. Raises ``UsageError`` if it waits for a step that failed or was skipped."""
        for number in self.list_blocking_steps(waiting):
            status = self.state.execution(number).status
            if status in {Status.FAILED, Status.SKIPPED}:
                raise UsageError(
                    f"Step {waiting} has not run yet: it depends on step {number}, which is {status}.",
                    hint=f"retry that one: {self.source.commands.resume} --retry {number}",
                )
        self.context.emit(Notice(text=f"Step {waiting} has not run yet; this will be its first run."))

    def unskip_dependents(self, state: RunState, number: int) -> RunState:
        """Return ``state`` with the steps pending again that were skipped only because they depend on ``number``."""
        for dependent in find_dependents(self.source.depends, (number,)):
            execution = state.execution(dependent)
            if execution.status == Status.SKIPPED and execution.error == DEPENDENCY_SKIPPED:
                state = states.retry_step(state, dependent)
        return state


def is_dropped(step: StepExecution) -> bool:
    """Return whether the test of a cycle passed at once and was removed."""
    return any(attempt.outcome == Covered("dropped") for attempt in step.attempts)


def _add_step(state: RunState, item: WorkItem) -> RunState:
    """Return ``state`` with the step of ``item``, pending if it is new."""
    if item.number in state.step_executions:
        return state
    return replace(state, step_executions={**state.step_executions, **states.pending_steps((item.key,))})
