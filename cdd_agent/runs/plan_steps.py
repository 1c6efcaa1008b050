"""The steps of a ticket's plan as a source of work, in the order of their dependencies.

A ticket's documents are read and checked, committed, and turned into work items.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Self, assert_never

import msgspec

from cdd_agent.errors import CddError, UsageError, format_count
from cdd_agent.events import Committed, Emit
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.runs.run import Run, Source
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, ResumeCommands, WorkItem, phases_of
from cdd_agent.tdd.instructions import describe_item, describe_ticket
from cdd_agent.tdd.phase_run import Ending, How
from cdd_agent.testrun.project import NoFramework, has_framework, map_projects
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step, find_ready, sort_by_dependencies
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.untrusted.text import format_line
from cdd_agent.work import state as states
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, reconcile
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
    return StepKey(number=step.number, title=format_line(step.title), text_sha256=digest)


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
        text_sha256=step_key(step).text_sha256,
    )


_PROMPTS = Path(__file__).parent / "prompts"


def make_brief(item: WorkItem, phase: Phase) -> Brief:
    """Return the brief for a phase of a step."""
    return Brief(
        phase=phase,
        kind=item.kind,
        agent="executor",
        role=(_PROMPTS / "executor.md").read_text(encoding="utf-8"),
        work=f"executor {item.ticket} step {item.number} {phase}",
        task=f"Carry out step {item.number} of the plan.",
        requirements=describe_item(item, heading=f"Step {item.number}"),
        source="plan.md",
    )


class PlanSteps:
    """The steps of a ticket's plan, in the order of their dependencies."""

    workflow = "exec"
    makes_project = False
    is_open_ended = False

    def __init__(self, ticket: Ticket, *, repository: Repository, refactor: bool = True) -> None:
        """Read nothing yet. ``refactor``: feature steps end with REFACTOR."""
        self.ticket = ticket
        self.files = TicketFiles(repository=repository, ticket=ticket)
        self.title = ""
        resume = f"cdd exec {ticket.slug}"
        self.commands = ResumeCommands(resume=resume, restart=f"{resume} --retry {{step}}", unit="step")
        self.depends: Mapping[int, tuple[int, ...]] = {}
        self.changed: tuple[str, ...] = ()
        """A sentence for each document that changed after the last step."""
        self.remarks: tuple[str, ...] = ()
        self.is_new = True
        """Whether no state was saved."""
        self._refactor = refactor

    def adapt_policy(self, policy: Policy) -> Policy:
        """Return ``policy``, which is that of this workflow."""
        return policy

    def read(self, *, now: str) -> RunState:
        """Read spec, plan and state, or raise ``DocumentError``; adapt the state to the plan."""
        self.documents = Documents.read(self.ticket)
        self.title = self.documents.spec.title
        self.depends = {step.number: step.depends_on for step in self.documents.plan.steps}
        keys = tuple(step_key(step) for step in self.documents.plan.steps)
        known = load_state(self.ticket.state_path)
        self.is_new = known is None
        first = RunState(ticket_slug=self.ticket.slug, started_at=now, step_executions=states.pending_steps(keys))
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
        return state

    def open(self, run: Run[Source]) -> RunState:
        """Return the state: a plan requires nothing before its steps do."""
        return run.state

    def next(self, state: RunState) -> WorkItem | None:
        """Return the step in progress, else the first pending one whose dependencies are completed."""
        in_progress, pending = state.numbers(Status.IN_PROGRESS), state.numbers(Status.PENDING)
        can_run = find_ready(self.depends, completed=state.numbers(Status.COMPLETED))
        runnable = (*in_progress, *(n for n in sort_by_dependencies(self.depends) if n in can_run and n in pending))
        return self.find(state, runnable[0]) if runnable else None

    def find(self, state: RunState, number: int) -> WorkItem:
        """Return the work item of a step of the plan."""
        steps = self.documents.plan.steps
        step = next(step for step in steps if step.number == number)
        item = make_work_item(self.ticket, step, spec=self.documents.spec, refactor=self._refactor)
        is_last = set(state.numbers(Status.COMPLETED)) == state.step_executions.keys() - {number}
        closes = f"{self.files.folder}/{self.ticket.spec_path.name}" if is_last else ""
        return replace(item, total=len(steps), closes=closes)

    def list_changes(self, context: Context) -> tuple[str, ...]:
        """Return the uncommitted paths outside the tickets."""
        return self.files.list_user_changes()

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        """Commit spec and plan, unless the step continues, and record by which documents it runs."""
        if state.execution(number).status != Status.IN_PROGRESS:
            self.files.commit_documents(self.documents, emit=context.emit)
        return self.documents.record_in(state)

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        """Return the brief for a phase of a step."""
        return make_brief(item, phase)

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        """End the step: completed if all phases landed, else failed."""
        number = states.require_current(state).step_number
        match ending.how:
            case How.DONE | How.COVERED:
                return states.end_step(state, number, status=Status.COMPLETED, now=now)
            case How.DROPPED | How.PART | How.FAILED | How.BLOCKED | How.LACKING:
                return states.end_step(state, number, status=Status.FAILED, now=now, error=ending.why or ending.how)
            case _:
                assert_never(ending.how)

    def describe_end(self, step: StepExecution, *, context: Context) -> Iterator[str]:
        """Yield the planned files that a completed step left as they were, or how to split one that was too large."""
        planned = next(each for each in self.documents.plan.steps if each.number == step.step_number)
        if step.status == Status.COMPLETED:
            untouched = [path for path in planned.files if context.to_repository_path(path) not in step.files]
            if untouched:
                names = ", ".join(untouched)
                yield f"Step {planned.number} did not change {names}, which the plan lists among its files."
        elif count := count_exhausted(step):
            several = (names for names in (planned.tests, planned.criteria, planned.files) if len(names) > 1)
            parts = f", one for each of {', '.join(next(several, ()))}".removesuffix(", one for each of ")
            attempts = format_count(count, "attempt")
            happened = f"Step {planned.number} may be too large: the agent used up its limit in {attempts} at it."
            plan = f"To plan it anew: cdd plan {self.ticket.slug}, then say: split step {planned.number}."
            more = "To allow more: max_turns in .cdd/config.yaml."
            yield f"{happened} Split it into smaller steps{parts}. {plan} {more}"


def count_exhausted(step: StepExecution) -> int:
    """Return in how many attempts at a step the agent ran out of turns, calls or tokens."""
    return sum(any(found.case == "ran_out" for found in each.evidence) for each in step.attempts)
