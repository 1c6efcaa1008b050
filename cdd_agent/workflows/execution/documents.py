"""A ticket's documents as the Executor needs them: read and checked, committed, and turned into work items."""

import hashlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cdd_agent.errors import CddError, DocumentError, UsageError
from cdd_agent.events import Committed, Emit
from cdd_agent.git.commits import commit_paths, require_identity, require_undisturbed, uncommitted
from cdd_agent.git.repository import Repository
from cdd_agent.storage import write_atomic
from cdd_agent.tdd.context import WorkItem, phases_of
from cdd_agent.testrun.frameworks.detect import NoFramework, has_framework, projects_of
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step, find_problems, kind_of_ticket
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import in_one_line
from cdd_agent.work.state import RunState, StepKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What is wanted and how."""

    spec: Spec
    plan: Plan
    spec_sha256: str
    plan_sha256: str

    @classmethod
    def read(cls, ticket: Ticket) -> Self:
        """Both documents; raises ``UsageError`` if one is missing and ``DocumentError`` for what is wrong in them."""
        spec_text, plan_text = spec.load_text(ticket.spec_path), plan_markdown.load_text(ticket.plan_path)
        wanted = spec.parse(spec_text, path=str(ticket.spec_path))
        default = kind_of_ticket(wanted.type)
        plan = plan_markdown.parse(plan_text, path=str(ticket.plan_path), default_kind=default)
        found = find_problems(plan, criteria=[criterion.id for criterion in wanted.acceptance_criteria])
        if found:
            raise DocumentError(
                str(ticket.plan_path), found, hint=f"correct the lines above, or draft it anew: cdd plan {ticket.slug}"
            )
        return cls(
            spec=wanted,
            plan=plan,
            spec_sha256=hashlib.sha256(spec_text.encode()).hexdigest(),
            plan_sha256=hashlib.sha256(plan_text.encode()).hexdigest(),
        )

    def carried_out(self, state: RunState) -> RunState:
        """``state`` as that of a run whose last step was run, or taken as done, by these documents."""
        return replace(state, plan_sha256=self.plan_sha256, spec_sha256=self.spec_sha256)

    def changed_since(self, state: RunState) -> tuple[str, ...]:
        """What is to be known of the documents that are not those the last step of ``state`` was run by."""
        told = {
            "plan.md has changed since the last step was run": (state.plan_sha256, self.plan_sha256),
            "spec.yaml has changed since the last step was run, so the plan may not fit it any more": (
                state.spec_sha256,
                self.spec_sha256,
            ),
        }
        return tuple(text for text, (before, now) in told.items() if before is not None and before != now)


def changes_of_users(repository: Repository, ticket: Ticket) -> tuple[str, ...]:
    """Paths outside the tickets that are changed, staged or untracked and not committed, in git's order."""
    own = tuple(f"{folder}/" for folder in ticket_folders(repository, ticket))
    ignore = _ignore_file(repository, ticket)
    return tuple(path for path in uncommitted(repository) if not path.startswith(own) and path != ignore)


def require_clean(repository: Repository, ticket: Ticket, *, allow_dirty: bool) -> None:
    """Raise ``UsageError`` if there are uncommitted changes outside the tickets, unless they are allowed.

    A merge, rebase or the like in progress is never allowed: the first commit would conclude it.
    """
    require_undisturbed(repository, () if allow_dirty else changes_of_users(repository, ticket))


def require_ready(
    repository: Repository, ticket: Ticket, *, documents: Documents, allow_dirty: bool, emit: Emit
) -> None:
    """Make sure that a step can begin: nothing of the user's uncommitted, spec and plan committed."""
    require_clean(repository, ticket, allow_dirty=allow_dirty)
    commit_documents(repository, ticket, documents=documents, emit=emit)


def commit_documents(repository: Repository, ticket: Ticket, *, documents: Documents, emit: Emit) -> None:
    """Commit spec and plan, where they differ from HEAD, as the first commit of the run; never the state of runs."""
    require_identity(repository)
    folder = ticket_folder(repository, ticket)
    ignore = ticket.folder.parent / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, b"execution-state.json*\n")
    own = {f"{folder}/{path.name}" for path in (ticket.spec_path, ticket.plan_path)}
    own.add(_ignore_file(repository, ticket))
    changed = [path for path in repository.uncommitted() if path in own]
    if not changed:
        return
    subject = f"plan: {in_one_line(documents.plan.title)}"
    message = f"{subject}\n\nTicket: {ticket.slug}\nPhase: PLAN\n"
    before = repository.head()
    commit = commit_paths(repository, message, paths=changed)
    if commit != before:
        emit(Committed(phase="plan", commit=commit, subject=subject))


def step_key(step: Step) -> StepKey:
    """What the state knows the step by."""
    return StepKey(number=step.number, title=step.title, text_sha256=step.text_sha256)


def meant_elsewhere(missing: NoFramework, ticket: Ticket, *, root: Path) -> NoFramework:
    """``missing`` with what to type, if all files that the plan names lie in one folder below that has a framework."""
    try:
        steps = Documents.read(ticket).plan.steps
    except CddError:
        return missing
    named = (name.partition("::")[0] for step in steps for name in (*step.files, *step.tests))
    folders = [folder for folder in projects_of(root, named) if folder != root and has_framework(folder)]
    if len(folders) != 1:
        return missing
    project, tickets = (shlex.quote(os.path.relpath(folder)) for folder in (folders[0], folders[0] / "tickets"))
    hint = (
        f"the plan's files lie in {folders[0].relative_to(root).as_posix()}: move the ticket there, "
        f"mkdir -p {tickets} && mv {shlex.quote(os.path.relpath(ticket.folder))} {tickets}/, "
        f"name the files of its plan from there, then: cdd --project {project} exec {ticket.slug}"
    )
    return NoFramework(missing.happened, hint=hint)


def work_item(ticket: Ticket, step: Step, *, spec: Spec, refactor: bool = True) -> WorkItem:
    """The step as a cycle takes it, with the criteria it serves in full; ``refactor`` as for ``phases_of``."""
    served = [criterion for criterion in spec.acceptance_criteria if criterion.id in step.criteria]
    criteria = "".join(f"\n- {criterion.id}: {criterion.text}" for criterion in served)
    notes = (
        f"\n\nTechnical notes of the ticket:\n{spec.technical_notes.strip()}" if spec.technical_notes.strip() else ""
    )
    goal = f"{step.description}\n\nAcceptance criteria it serves:{criteria or ' none'}{notes}"
    return WorkItem(
        ticket=ticket.slug,
        number=step.number,
        title=in_one_line(step.title),
        goal=goal.strip(),
        kind=step.kind,
        phases=phases_of(step.kind, refactor=refactor),
        tests=step.tests,
        sources=tuple(path for path in step.files if path not in {test.partition("::")[0] for test in step.tests}),
    )


def ticket_folder(repository: Repository, ticket: Ticket) -> str:
    """The ticket's folder relative to the work tree; raises ``UsageError`` if a link leads it out of there."""
    folder, root = ticket.folder.resolve(), repository.root.resolve()
    if not folder.is_relative_to(root):
        raise UsageError(
            f"The ticket {ticket.slug} lies in {folder}, outside the work tree {root}: "
            "spec and plan cannot be committed.",
            hint=f"make {ticket.folder.parent} a folder of the project instead of a link",
        )
    return folder.relative_to(root).as_posix()


def ticket_folders(repository: Repository, ticket: Ticket) -> tuple[str, ...]:
    """The folders of this ticket and of those beside it, relative to the work tree: none is part of the product.

    What lies beside a ticket and holds no spec is none; a product may have a package of that name.
    """
    beside = ticket.folder.parent.iterdir() if ticket.folder.parent.is_dir() else ()
    found = [Ticket(slug=folder.name, folder=folder) for folder in sorted(beside)]
    others = [other for other in found if other.spec_path.is_file() and other.folder != ticket.folder]
    return tuple(ticket_folder(repository, each) for each in (ticket, *others))


def _ignore_file(repository: Repository, ticket: Ticket) -> str:
    """What keeps the states of runs out of git, relative to the work tree."""
    return f"{ticket_folder(repository, ticket).rpartition('/')[0]}/.gitignore".lstrip("/")
