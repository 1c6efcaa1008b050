"""The Executor: runs the steps of a plan in the order of their dependencies, each as a cycle.

A ticket's documents are read and checked, committed, and turned into work items first. The state is saved after every
change, so ``execution-state.json`` is enough to continue after any interruption.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Self

import msgspec

from cdd_agent.agent.hooks import format_prompt, submit_prompt
from cdd_agent.clock import Clock
from cdd_agent.errors import CddError, UsageError, format_count
from cdd_agent.events import Committed, Emit, Notice, StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.hooks import HookReply, HookStream
from cdd_agent.model.budget import Meter, read_ticket_usage
from cdd_agent.runs.ahead import Ahead
from cdd_agent.tdd.briefing import describe_refusal, keep_interruption
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, WorkItem, phases_of
from cdd_agent.tdd.instructions import describe_item, describe_ticket
from cdd_agent.tdd.step import StepRecovery, alone_on
from cdd_agent.tdd.workflow_run import WorkflowRun, read_number
from cdd_agent.testrun.project import NoFramework, has_framework, map_projects
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step, find_dependents, find_ready, sort_by_dependencies
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.untrusted.text import format_line
from cdd_agent.work import state as states
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.journal import journal_path
from cdd_agent.work.state import RunState, Status, StepKey, Usage, reconcile
from cdd_agent.work.state_file import backup_path, load_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The spec and the plan of a ticket."""

    spec: Spec
    plan: Plan
    spec_sha256: str
    plan_sha256: str

    @classmethod
    def read(cls, ticket: Ticket) -> Self:
        """Read both files; raises ``UsageError`` for a missing one and ``DocumentError`` for their problems."""
        spec_text, plan_text = spec.load_text(ticket.spec_path), plan_markdown.load_text(ticket.plan_path)
        wanted = spec.parse(spec_text, path=str(ticket.spec_path))
        return cls(
            spec=wanted,
            plan=plan_markdown.parse_valid(plan_text, wanted, path=ticket.plan_path),
            # Without the status, which cdd itself changes.
            spec_sha256=hashlib.sha256(msgspec.json.encode(replace(wanted, status=""))).hexdigest(),
            plan_sha256=hashlib.sha256(plan_text.encode()).hexdigest(),
        )

    def record_in(self, state: RunState) -> RunState:
        """Return ``state`` with the digests of these documents, by which its last step was run."""
        return replace(state, plan_sha256=self.plan_sha256, spec_sha256=self.spec_sha256)

    def list_changes_since(self, state: RunState) -> tuple[str, ...]:
        """Return a sentence for each document that changed after the last step of ``state``."""
        changes = []
        if state.plan_sha256 not in (None, self.plan_sha256):
            changes.append("plan.md has changed since the last step")
        if state.spec_sha256 not in (None, self.spec_sha256):
            changes.append("spec.yaml has changed since the last step, so the plan may no longer match it")
        return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketFiles:
    """A ticket's files in the repository; all paths are relative to the work tree."""

    repository: Repository
    ticket: Ticket

    @property
    def folder(self) -> str:
        """The ticket's folder; raises ``UsageError`` if a link leads it out of the work tree."""
        folder, root = self.ticket.folder.resolve(), self.repository.root.resolve()
        if not folder.is_relative_to(root):
            raise UsageError(
                f"The ticket {self.ticket.slug} is in {folder}, outside the work tree {root}: "
                "cdd cannot commit its spec and plan.",
                hint=f"make {self.ticket.folder.parent} a folder of the project instead of a link",
            )
        return folder.relative_to(root).as_posix()

    @property
    def _ignore_file(self) -> str:
        return f"{self.folder.rpartition('/')[0]}/.gitignore".lstrip("/")

    def list_folders(self) -> tuple[str, ...]:
        """Return the folders of this ticket and of those beside it; they are not part of the product."""
        parent = self.ticket.folder.parent
        found = [Ticket(slug=path.name, folder=path) for path in (sorted(parent.iterdir()) if parent.is_dir() else ())]
        # Without a spec it is not a ticket: the product may have a package named tickets.
        others = [other for other in found if other.spec_path.is_file() and other.folder != self.ticket.folder]
        return tuple(replace(self, ticket=each).folder for each in (self.ticket, *others))

    def list_user_changes(self) -> tuple[str, ...]:
        """Return the uncommitted paths outside the tickets, in git's order."""
        own, ignore = tuple(f"{folder}/" for folder in self.list_folders()), self._ignore_file
        changed = commits.list_own_uncommitted(self.repository)
        return tuple(path for path in changed if not path.startswith(own) and path != ignore)

    def require_clean(self, *, allow_dirty: bool) -> None:
        """Raise ``UsageError`` for a merge in progress, and for the user's changes unless they are allowed."""
        commits.require_undisturbed(self.repository, () if allow_dirty else self.list_user_changes())

    def commit_documents(self, documents: Documents, *, emit: Emit) -> None:
        """Commit spec and plan if they differ from HEAD; the state file is never committed."""
        commits.require_identity(self.repository)
        self.ticket.ignore_state()
        own = {f"{self.folder}/{path.name}" for path in (self.ticket.spec_path, self.ticket.plan_path)}
        own.add(self._ignore_file)
        if not own.intersection(self.repository.list_uncommitted()):
            return
        spec.advance_file(self.ticket.spec_path, "executing")
        changed = [path for path in self.repository.list_uncommitted() if path in own]
        before = self.repository.read_head()
        is_new = not self.repository.git("ls-tree", "HEAD", ("--",), f"{self.folder}/{self.ticket.plan_path.name}")
        subject = f"plan: {format_line(documents.plan.title)}{'' if is_new else ', changed'}"
        short = commits.cut_subject(subject)
        body = "" if short == subject else f"{commits.wrap(subject)}\n\n"
        message = f"{short}\n\n{body}Ticket: {self.ticket.slug}\nPhase: PLAN\n"
        commit = commits.commit_paths(self.repository, message, paths=changed)
        if commit != before:
            emit(Committed(phase="plan", commit=commit, subject=short))


def step_key(step: Step) -> StepKey:
    """Return the key by which the state finds the step.

    The digest ignores number, title, box, size and dependencies: a step that is renumbered, renamed or ticked is still
    the same work.
    """
    work = [step.files, step.tests, step.criteria, step.kind, step.description]
    digest = hashlib.sha256(json.dumps(work).encode()).hexdigest()
    return StepKey(number=step.number, title=step.title, text_sha256=digest)


def suggest_project(missing: NoFramework, ticket: Ticket, *, root: Path) -> NoFramework:
    """Return ``missing`` with a better hint if all files of the plan are in one folder that has a framework."""
    try:
        steps = Documents.read(ticket).plan.steps
    except CddError:
        return missing
    names = (name.partition("::")[0] for step in steps for name in (*step.files, *step.tests))
    folders = [folder for folder in map_projects(root, names) if folder != root and has_framework(folder)]
    if len(folders) != 1:
        return missing
    project, tickets = (shlex.quote(os.path.relpath(folder)) for folder in (folders[0], folders[0] / "tickets"))
    hint = (
        f"the plan's files are in {folders[0].relative_to(root).as_posix()}: move the ticket there, "
        f"mkdir -p {tickets} && mv {shlex.quote(os.path.relpath(ticket.folder))} {tickets}/, "
        f"make the paths in its plan relative to that folder, then: cdd --project {project} exec {ticket.slug}"
    )
    return NoFramework(missing.happened, hint=hint)


def require_prerequisites(ticket: Ticket, *, project: Path) -> None:
    """Raise ``UsageError`` unless all tickets are done on which ``ticket`` depends, directly or through others."""
    graph: dict[str, tuple[str, ...]] = {}
    waiting: dict[str, str] = {}
    queue = [(ticket.slug, ticket)]
    while queue:
        slug, each = queue.pop()
        graph[slug] = spec.load(each.spec_path).depends_on if each.spec_path.exists() else ()
        for other in graph[slug]:
            if other not in graph:
                found = _find_prerequisite(other, of=slug, project=project)
                queue.append((other, found))
                if lacks := _describe_progress(found):
                    waiting[other] = lacks
    anyway = f"or run it anyway: cdd exec {ticket.slug} --anyway"
    try:
        first = next((slug for slug in TopologicalSorter(graph).static_order() if slug in waiting), None)
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        hint = f"remove one from depends_on in its spec.yaml; {anyway}"
        raise UsageError(f"These tickets depend on each other: {circle}.", hint=hint) from error
    if first is not None:
        listed = ", ".join(f"{slug} ({why})" for slug, why in waiting.items())
        hint = f"finish it first: cdd exec {first}; {anyway}"
        raise UsageError(f"The ticket {ticket.slug} depends on {listed}.", hint=hint)


def _find_prerequisite(slug: str, *, of: str, project: Path) -> Ticket:
    try:
        return find(project, slug)
    except UsageError as error:
        happened = f"The ticket {of} depends on {format_line(slug)!r}. {error.happened}"
        raise UsageError(happened, hint=f"correct depends_on in the spec of {of}, or {error.hint}") from error


def _describe_progress(ticket: Ticket) -> str:
    """Return what is missing until the ticket is done, or nothing."""
    state = load_state(ticket.state_path)
    if state is None:  # git ignores the state, so a clone only has the word of the spec
        is_done = ticket.spec_path.exists() and spec.load(ticket.spec_path).status == "done"
        return "" if is_done else "not started"
    if state.status == Status.COMPLETED:
        return ""
    return f"{len(state.numbers(Status.COMPLETED))} of {format_count(len(state.step_executions), 'step')} done"


def make_work_item(ticket: Ticket, step: Step, *, spec: Spec, refactor: bool = True) -> WorkItem:
    """Return the step as a work item with the full text of its criteria; ``refactor`` as for ``phases_of``."""
    served = [criterion for criterion in spec.acceptance_criteria if criterion.id in step.criteria]
    criteria = "".join(f"\n- {criterion.id}: {criterion.text}" for criterion in served) or " none"
    test_files = {test.partition("::")[0] for test in step.tests}
    about = describe_ticket(spec, but=step.description)
    return WorkItem(
        ticket=ticket.slug,
        number=step.number,
        title=format_line(step.title),
        goal=f"{step.description}\n\nAcceptance criteria of this step:{criteria}{about}".strip(),
        kind=step.kind,
        phases=phases_of(step.kind, refactor=refactor),
        tests=step.tests,
        sources=tuple(path for path in step.files if path not in test_files),
        named=(*step.files, *sorted(test_files)),
        criteria=tuple((criterion.id, criterion.text) for criterion in served),
    )


_PROMPTS = Path(__file__).parent / "prompts"
_DEPENDENCY_SKIPPED = "it depends on a step that was skipped"


def make_brief_for() -> BriefFor:
    """Return the function that makes the brief for a phase of a step."""
    role = (_PROMPTS / "executor.md").read_text(encoding="utf-8")

    def make_brief(item: WorkItem, phase: Phase) -> Brief:
        return Brief(
            phase=phase,
            kind=item.kind,
            agent="executor",
            role=role,
            work=f"executor {item.ticket} step {item.number} {phase}",
            task=f"Carry out step {item.number} of the plan.",
            requirements=describe_item(item, heading=f"Step {item.number}"),
            source="plan.md",
        )

    return make_brief


class Executor:
    """Runs the plan of one ticket."""

    def __init__(
        self,
        ticket: Ticket,
        *,
        context: Context,
        clock: Clock,
        refactor: bool = True,
        allow_dirty: bool = False,
        meter: Meter | None = None,
    ) -> None:
        """Read spec, plan and state, or raise ``DocumentError``. ``refactor``: feature steps end with REFACTOR."""
        self.ticket = ticket
        self.sandbox = context.suite.sandbox.level
        self.clock = clock
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes are taken along, and stay out of every commit."""
        self.keeps_changes = False
        """As ``allows_dirty``, from the next step on."""
        self.leaves_changes = False
        """The next steps run without the user's uncommitted changes."""
        self.files = TicketFiles(repository=context.repository, ticket=ticket)
        self.reported_remarks: tuple[str, ...] = ()
        """Remarks that the user has seen."""
        self.postponed = ""
        """The user's words that wait for a decision about uncommitted changes."""
        self._refactor = refactor
        self._has_checked = False
        """Uncommitted changes since then are not the run's concern."""
        self.given_up: int | None = None
        """The step whose last iteration was given up, so that it counts as it landed before."""
        self._brief = ""
        """The error of the last step without the reasons of its gate."""
        self._ahead: Ahead | None = None
        self._emit = context.emit
        hooks = HookStream(context.hooks, {"TaskStart": self._commit_documents, "TaskCompletion": self._report_end})
        self._run = WorkflowRun("exec", ticket, context=replace(context, hooks=hooks), clock=clock, meter=meter)
        self.context = self._run.context
        self.save = self._run.save
        self.read()

    def work_ahead(self, ahead: Ahead) -> None:
        """Let ``ahead`` work out steps, unless this run is in a fork."""
        if not self.context.fork:
            self._ahead = ahead
            self.context = self._run.context = replace(self.context, bring_ahead=ahead.bring)

    @property
    def state(self) -> RunState:
        """The current state."""
        return self._run.state

    def read(self) -> None:
        """Read the ticket's files again."""
        self.documents = Documents.read(self.ticket)
        self.depends = {step.number: step.depends_on for step in self.documents.plan.steps}
        keys = tuple(step_key(step) for step in self.documents.plan.steps)
        known = load_state(self.ticket.state_path)
        self.is_new = known is None
        pending = states.pending_steps(keys)
        first = RunState(ticket_slug=self.ticket.slug, started_at=self.clock.now(), step_executions=pending)
        self.changed = () if known is None else self.documents.list_changes_since(known)
        state, notices = reconcile(known or first, keys)
        self.remarks = (*self.changed, *notices)
        path, copy = self.ticket.state_path, backup_path(self.ticket.state_path)
        if self.is_new and copy.exists():
            lost = (
                f"{path.name} is missing, so every step counts as pending. {copy.name} holds the state before its last "
                f"change: to continue from there, mv {copy.name} {path.name} in {self.ticket.folder}"
            )
            self.remarks = (lost, *self.remarks)
        self._run.resume(state)

    def read_usage(self) -> Usage:
        """Return everything that the ticket has used, as ``cdd status`` shows it."""
        return read_ticket_usage(self.state, journal_path(self.context.project, self.ticket.slug))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock ticket and repository while steps run, or raise ``UsageError``; save the state when the block ends."""
        with alone_on(self.ticket.folder, context=self.context):
            self._has_checked = False
            self.read()  # another process may have worked on the ticket before the lock was taken
            known = self.reported_remarks
            self.reported_remarks = (*self.remarks, *commits.list_warnings(self.context.repository))
            with self._run.report([remark for remark in self.reported_remarks if remark not in known]):
                try:
                    yield
                finally:
                    if self._ahead is not None:
                        self._ahead.close()

    def find_next_step(self) -> Step | None:
        """Return the step to run: the one in progress, else the first pending one whose dependencies are completed."""
        in_progress, pending = self.state.numbers(Status.IN_PROGRESS), self.state.numbers(Status.PENDING)
        can_run = find_ready(self.depends, completed=self.state.numbers(Status.COMPLETED))
        runnable = (*in_progress, *(n for n in sort_by_dependencies(self.depends) if n in can_run and n in pending))
        return self.step(runnable[0]) if runnable else None

    def step(self, number: int) -> Step:
        """Return the step with this number; raises ``UsageError`` if the plan has none."""
        self.state.execution(number)
        return next(step for step in self.documents.plan.steps if step.number == number)

    def list_stale_steps(self) -> tuple[int, ...]:
        """Return the completed steps whose text has changed since."""
        state = self.state
        completed = state.numbers(Status.COMPLETED)
        return tuple(n for n in completed if state.execution(n).text_sha256 != step_key(self.step(n)).text_sha256)

    def list_blocking_steps(self, step: Step) -> tuple[int, ...]:
        """Return the dependencies of ``step`` that are not completed."""
        return tuple(n for n in step.depends_on if self.state.execution(n).status != Status.COMPLETED)

    def require_dependencies(self, step: Step) -> None:
        """Raise ``UsageError`` if a dependency of ``step`` is not completed."""
        blocking = self.list_blocking_steps(step)
        if blocking:
            shown = ", ".join(f"step {n} ({self.state.execution(n).status})" for n in blocking)
            hint = f"run that step first, or skip this one: cdd exec {self.ticket.slug} --skip {step.number}"
            raise UsageError(f"Step {step.number} depends on {shown}.", hint=hint)

    def prepare_repository(self, *, allow_dirty: bool) -> None:
        """Refuse uncommitted changes of the user unless they are allowed, then commit spec and plan."""
        self._require_clean(allow_dirty=allow_dirty)
        self.files.commit_documents(self.documents, emit=self._emit)

    def _require_clean(self, *, allow_dirty: bool) -> None:
        # In a run tree, changes that the user makes while steps run concern nobody.
        self.files.require_clean(allow_dirty=allow_dirty or self.leaves_changes or self._has_checked)
        self._has_checked = True

    def make_recovery(self, number: int) -> StepRecovery:
        """Return the recovery of a step."""
        return StepRecovery(self.ticket.slug, self.state.execution(number), context=self.context)

    def find_phase(self, step: Step) -> str:
        """Return the name of the first phase of ``step`` without a commit; empty if there is none."""
        landed = self.state.execution(step.number).commits
        phases = phases_of(step.kind, refactor=self._refactor)
        return next((phase_name(phase) for phase in phases if phase not in landed), "")

    def run_step(self, step: Step) -> bool:
        """Run ``step`` and return whether it was completed; roll it back if it fails.

        Raises, before anything changes, ``UsageError`` if a dependency is not completed, or for uncommitted changes or
        a merge in progress, and ``ModelError`` if the model cannot be used.
        """
        number, self.given_up = step.number, None
        try:
            is_resumed = self._start_step(step)
        except CddError:
            if self.state.execution(number).status == Status.PENDING:
                self._restore_landed(number)
            raise
        total, guidance = len(self.documents.plan.steps), self.state.execution(number).guidance
        self._emit(StepStarted(number=number, total=total, title=step.title, guidance=guidance))
        self._work_ahead(number, is_resumed=is_resumed)
        item = make_work_item(self.ticket, step, spec=self.documents.spec, refactor=self._refactor)
        if set(self.state.numbers(Status.COMPLETED)) == self.state.step_executions.keys() - {number}:
            item = replace(item, closes=f"{self.files.folder}/{self.ticket.spec_path.name}")
        self.context.workplace.carries = self.allows_dirty or self.keeps_changes
        ending = self._run.run_cycle(item)
        is_done = ending.how in ("done", "covered")
        try:
            self._brief = ending.brief
            self._run.complete_step(number, error=None if is_done else ending.why or ending.how)
        finally:
            self.given_up = number if self._restore_landed(number) else None
        return is_done

    def _commit_documents(self, fields: Mapping[str, object], _: HookReply) -> None:
        """Commit spec and plan before a step is saved as started; one that is resumed has its commit."""
        if self.state.execution(read_number(fields)).status == Status.PENDING:
            self.files.commit_documents(self.documents, emit=self._emit)

    def _report_end(self, fields: Mapping[str, object], _: HookReply) -> None:
        """Report a step whose end is saved."""
        step = self.step(read_number(fields))
        done = self.state.execution(step.number)
        if done.status == Status.COMPLETED:
            self._report_untouched_files(step)
        else:
            self._suggest_split(step)
        self._discard_ahead(step.number, is_landed=done.status == Status.COMPLETED)
        self._emit(StepFinished(number=step.number, status=done.status, error=done.error, brief=self._brief))

    def _start_step(self, step: Step) -> bool:
        """Check everything that ``step`` needs, start it, and return whether it was begun before."""
        number = step.number
        self.require_dependencies(step)
        self._run.require_budget(self.state.execution(number))
        commits.require_finished(self.context.repository)
        recovery = self.make_recovery(number)
        recovery.require_snapshots()
        is_resumed = recovery.is_underway()
        if not is_resumed:
            self._require_clean(allow_dirty=self.allows_dirty or self.keeps_changes)
            if self.state.execution(number).status == Status.IN_PROGRESS:
                kept = keep_interruption(self.state, recovery)  # before its files are made again
                work = kept.execution(number).interrupted
                self.save(states.record_interruption(states.retry_step(self.state, number), number, work=work))
        self._run.start_step(self.documents.record_in(self.state), step_key(step), is_resumed=is_resumed)
        return is_resumed

    def _restore_landed(self, number: int) -> bool:
        """Let a step whose iteration was not accepted count as it landed before; return whether it was one."""
        step = self.state.execution(number)
        if step.status == Status.COMPLETED or step.landed is None:
            return False
        self.save(states.restore_landed(self.state, number, now=self.clock.now()))
        self._emit(Notice(text=f"Step {number} counts as before this iteration: its earlier commits stay."))
        return True

    def _work_ahead(self, number: int, *, is_resumed: bool) -> None:
        """Let other processes work out the steps after ``number`` that are ready, and take their work on it."""
        head = self.context.repository.read_head()
        if self._ahead is None or head is None:
            return
        can_run = find_ready(self.depends, completed=self.state.numbers(Status.COMPLETED))
        waiting = [n for n in self.state.numbers(Status.PENDING) if n in can_run and n != number]
        self._ahead.begin([step_key(self.step(n)) for n in waiting], self.state, base=head)
        used = self._ahead.take(number)
        if not is_resumed:  # else it has been counted
            self._run.meter.add(used)

    def _discard_ahead(self, number: int, *, is_landed: bool = False) -> None:
        if self._ahead is not None:
            self._ahead.discard(number, is_landed=is_landed)

    def _report_untouched_files(self, step: Step) -> None:
        touched = self.state.execution(step.number).files
        untouched = [path for path in step.files if self.context.to_repository_path(path) not in touched]
        if untouched:
            names = ", ".join(untouched)
            self._emit(Notice(text=f"Step {step.number} did not change {names}, which the plan lists among its files."))

    def count_exhausted(self, number: int) -> int:
        """Return in how many attempts at a step the agent ran out of turns, calls or tokens."""
        attempts = self.state.execution(number).attempts
        return sum(any(found.case == "ran_out" for found in each.evidence) for each in attempts)

    def _suggest_split(self, step: Step) -> None:
        """Propose smaller steps if the agent ran out of turns, calls or tokens in a failed step."""
        if count := self.count_exhausted(step.number):
            several = (names for names in (step.tests, step.criteria, step.files) if len(names) > 1)
            parts = f", one for each of {', '.join(next(several, ()))}".removesuffix(", one for each of ")
            tries = format_count(count, "attempt")
            happened = f"Step {step.number} may be too large: the agent used up its limit in {tries} at it."
            plan = f"To plan it anew: cdd plan {self.ticket.slug}, then say: split step {step.number}."
            more = "To allow more: max_turns in .cdd/config.yaml."
            self._emit(Notice(text=f"{happened} Split it into smaller steps{parts}. {plan} {more}"))

    def run_all(self) -> None:
        """Run steps until none can run or one fails. Steps that depend on a skipped step are skipped."""
        for number in find_dependents(self.depends, self.state.numbers(Status.SKIPPED)):
            if self.state.execution(number).status == Status.PENDING:
                self.skip(number, reason=_DEPENDENCY_SKIPPED)
        while (step := self.find_next_step()) is not None:
            if not self.run_step(step):
                return

    def skip(self, number: int, *, reason: str) -> None:
        """Skip a step, undoing it first if it is in progress. Its dependents cannot run."""
        self._discard_ahead(number)
        skipped = states.end_step(self.state, number, status=Status.SKIPPED, now=self.clock.now(), error=reason)
        self.make_recovery(number).undo_if_underway(why="the step is skipped")
        self.save(skipped)
        if not self._restore_landed(number):
            self._emit(StepFinished(number=number, status=Status.SKIPPED, error=reason))

    def guide(self, number: int, words: str) -> None:
        """Add the user's words to the guidance that the next attempts at a step begin with. Nothing is restarted."""
        with alone_on(self.ticket.folder, context=self.context):
            self.read()  # another process may have worked on the ticket
            self._require_model(number)
            self._take_words(number, words)

    def _take_words(self, number: int, words: str) -> None:
        """Pass the user's words for a step to the hooks, whose subscriber saves them unless one blocks them."""

        def save(fields: Mapping[str, object], reply: HookReply) -> None:
            said = format_prompt(str(fields["prompt"]), reply)
            self.save(states.add_guidance(self.state, number, words=said))

        submit_prompt(words, HookStream(self.context.hooks, {"UserPromptSubmit": save}))

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
                hint=f"say what to do differently: cdd exec {self.ticket.slug} --retry {number} --guidance TEXT",
            )
        self._require_model(number)
        if status == Status.PENDING:
            self._report_first_run(self.step(number))
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
            self._run.meter.check()

    def _report_first_run(self, step: Step) -> None:
        """Say that ``step`` was never run. Raises ``UsageError`` if it waits for a step that failed or was skipped."""
        for number in self.list_blocking_steps(step):
            status = self.state.execution(number).status
            if status in {Status.FAILED, Status.SKIPPED}:
                raise UsageError(
                    f"Step {step.number} has not run yet: it depends on step {number}, which is {status}.",
                    hint=f"retry that one: cdd exec {self.ticket.slug} --retry {number}",
                )
        self._emit(Notice(text=f"Step {step.number} has not run yet; this will be its first run."))

    def unskip_dependents(self, state: RunState, number: int) -> RunState:
        """Return ``state`` with the steps pending again that were skipped only because they depend on ``number``."""
        for dependent in find_dependents(self.depends, (number,)):
            execution = state.execution(dependent)
            if execution.status == Status.SKIPPED and execution.error == _DEPENDENCY_SKIPPED:
                state = states.retry_step(state, dependent)
        return state
