"""A ticket's documents: read and checked, committed, and turned into work items."""

import hashlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cdd_agent.errors import CddError, DocumentError, UsageError
from cdd_agent.events import Committed, Emit
from cdd_agent.git.commits import commit_paths, list_own_uncommitted, require_identity, require_undisturbed
from cdd_agent.git.repository import Repository
from cdd_agent.storage import write_atomic
from cdd_agent.tdd.context import WorkItem, phases_of
from cdd_agent.testrun.frameworks.detect import NoFramework, has_framework, map_projects
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step, choose_default_kind, find_problems
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.state import RunState, StepKey


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
        default = choose_default_kind(wanted.type)
        plan = plan_markdown.parse(plan_text, path=str(ticket.plan_path), default_kind=default)
        problems = find_problems(plan, criteria=wanted.criterion_ids)
        if problems:
            hint = f"correct these lines, or draft the plan again: cdd plan {ticket.slug}"
            raise DocumentError(str(ticket.plan_path), problems, hint=hint)
        return cls(
            spec=wanted,
            plan=plan,
            spec_sha256=hashlib.sha256(spec_text.encode()).hexdigest(),
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
        changed = list_own_uncommitted(self.repository)
        return tuple(path for path in changed if not path.startswith(own) and path != ignore)

    def require_clean(self, *, allow_dirty: bool) -> None:
        """Raise ``UsageError`` for a merge in progress, and for the user's changes unless they are allowed."""
        require_undisturbed(self.repository, () if allow_dirty else self.list_user_changes())

    def commit_documents(self, documents: Documents, *, emit: Emit) -> None:
        """Commit spec and plan if they differ from HEAD; the state file is never committed."""
        require_identity(self.repository)
        ignore = self.ticket.folder.parent / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, b"execution-state.json*\n")
        own = {f"{self.folder}/{path.name}" for path in (self.ticket.spec_path, self.ticket.plan_path)}
        own.add(self._ignore_file)
        changed = [path for path in self.repository.list_uncommitted() if path in own]
        if not changed:
            return
        subject, before = f"plan: {format_line(documents.plan.title)}", self.repository.read_head()
        message = f"{subject}\n\nTicket: {self.ticket.slug}\nPhase: PLAN\n"
        commit = commit_paths(self.repository, message, paths=changed)
        if commit != before:
            emit(Committed(phase="plan", commit=commit, subject=subject))


def step_key(step: Step) -> StepKey:
    """Return the key by which the state finds the step."""
    return StepKey(number=step.number, title=step.title, text_sha256=step.text_sha256)


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


def make_work_item(ticket: Ticket, step: Step, *, spec: Spec, refactor: bool = True) -> WorkItem:
    """Return the step as a work item with the full text of its criteria; ``refactor`` as for ``phases_of``."""
    served = [criterion for criterion in spec.acceptance_criteria if criterion.id in step.criteria]
    criteria = "".join(f"\n- {criterion.id}: {criterion.text}" for criterion in served) or " none"
    notes = spec.technical_notes.strip()
    notes = f"\n\nTechnical notes of the ticket:\n{notes}" if notes else ""
    test_files = {test.partition("::")[0] for test in step.tests}
    return WorkItem(
        ticket=ticket.slug,
        number=step.number,
        title=format_line(step.title),
        goal=f"{step.description}\n\nAcceptance criteria of this step:{criteria}{notes}".strip(),
        kind=step.kind,
        phases=phases_of(step.kind, refactor=refactor),
        tests=step.tests,
        sources=tuple(path for path in step.files if path not in test_files),
    )
