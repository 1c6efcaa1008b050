"""The Planner: turns a complete spec into ``plan.md``; a draft with problems goes back to the model, not to disk.

A plan held against the project it is for: the files it names can be written, and the tests it names are to come.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, TypeAlias

from msgspec import Meta

from cdd_agent.agent.quoting import Marks
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import DocumentError, GateClosed, Problem, UsageError
from cdd_agent.events import Notice, PlanDrafted
from cdd_agent.model.secret import hidden
from cdd_agent.storage import write_atomic
from cdd_agent.tickets import plan as plans
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import TEST_FIRST, Plan, Step, is_outside, kind_of_ticket
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import Status
from cdd_agent.workflows.conversation.desk import Desk
from cdd_agent.workspace.files import Workspace, decode

Told: TypeAlias = tuple[str, str] | None
"""What a step does wrong, as words that fit behind its number, and what to write instead; None for nothing."""

_NAME = re.compile(r"[^\W\d]\w*")


def problems(plan: Plan, *, workspace: Workspace) -> tuple[Problem, ...]:
    """Every file that cannot become what the plan says, and every test id that pytest could not have, by line.

    What ``plan.find_problems`` finds without a project, a path outside of it, is not looked for.
    """
    there = _Names(workspace.listing())
    planned = _Names(path for step in plan.steps for _, path in _paths(step))
    found: list[Problem] = []
    for step in plan.steps:
        for field, path in _paths(step):
            told = (
                _not_writable(path, workspace)
                or _not_a_file(path, workspace, planned=planned)
                or there.other_case(path, known=there)
                or planned.other_case(path, known=there)
            )
            if told:
                found.append(_problem(step, field, told=told))
        found += [_problem(step, "tests", told=told) for test in step.tests if (told := _no_node_id(test))]
    return tuple(sorted(dict.fromkeys(found), key=lambda problem: problem.line))


def warnings(plan: Plan, *, workspace: Workspace, begun: Collection[str] = ()) -> tuple[Problem, ...]:
    """The tests to come that are there already, unless the step says so by naming them in its title or description.

    ``begun``: titles of steps whose tests may be there because they were run.
    """
    found: list[Problem] = []
    first: dict[str, Step] = {}
    for step in plan.steps:
        if step.kind not in TEST_FIRST or step.done or step.title in begun:
            continue
        for test in step.tests:
            name = test.split("[", 1)[0].rpartition("::")[2]
            if "::" not in test or name in step.description or name in step.title:
                continue
            hint = f"name it otherwise, or say in the description what becomes of {name}"
            if first.setdefault(test, step) is not step:
                message = f"names the test {test} of step {first[test].number}"
            elif _is_defined(test, workspace):
                message = f"is to add the test {test}, which is there already"
            else:
                continue
            found.append(_problem(step, "tests", told=(message, hint)))
    return tuple(found)


def created(plan: Plan, *, workspace: Workspace) -> frozenset[str]:
    """The files that the plan names and that are not there."""
    return frozenset(path for step in plan.steps for _, path in _paths(step) if not workspace.is_file(path))


class _Names:
    """Paths and the folders they lie in, found again whatever their case."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_folded: dict[str, str] = {}
        self.files: set[str] = set()
        self.folders: set[str] = set()
        for path in paths:
            self.files.add(path)
            self.folders.update(_folders(path))
            for name in (path, *_folders(path)):
                self._by_folded.setdefault(name.casefold(), name)

    def other_case(self, path: str, *, known: "_Names") -> Told:
        """That a part of ``path`` is here in another case, unless it is one of the ``known`` as it is written."""
        for name in (*_folders(path), path):
            here = self._by_folded.get(name.casefold(), name)
            if here != name and name not in known.files and name not in known.folders:
                return f"names {path}, which differs from {here} in its case only", f"write {here}{path[len(name) :]}"
        return None


def _paths(step: Step) -> Iterator[tuple[str, str]]:
    """Field and path of each file in the project that a step names, without the names of tests."""
    for field, named in (("files", step.files), ("tests", step.tests)):
        for path in dict.fromkeys(name.partition("::")[0] for name in named):
            if path and not is_outside(path):
                yield field, path


def _folders(path: str) -> list[str]:
    """The folders that ``path`` lies in, the outermost first, the project's own excepted."""
    return [str(folder) for folder in reversed(PurePosixPath(path).parents[:-1])]


def _problem(step: Step, field: str, *, told: tuple[str, str]) -> Problem:
    return Problem(line=step.line_of(field), message=f"step {step.number} {told[0]}", hint=told[1])


def _not_writable(path: str, workspace: Workspace) -> Told:
    """Why no agent could write the file; None if it could, and for what is outside the project anyway."""
    if "\\" in path:
        slashed = path.replace("\\", "/")
        return f"names {path}, which has a backslash", f"write {slashed}"
    try:
        workspace.writable(path)
    except UsageError as error:
        return f"names what cannot be written: {error.happened.rstrip('.')}", error.hint
    return None


def _not_a_file(path: str, workspace: Workspace, *, planned: _Names) -> Told:
    """Why the path cannot be a file: it is a folder, or a file stands where its folder would be."""
    if re.search(r"[*?]", path) and not workspace.exists(path):
        return f"names {path}, which is a pattern", "name each file"
    if path.endswith("/") or path in planned.folders or (workspace.exists(path) and not workspace.is_file(path)):
        return f"names {path}, which is a folder", "name the files in it that the step changes"
    for folder in _folders(path):
        if workspace.is_file(folder) or folder in planned.files:
            return f"names {path}, but {folder} is a file", "put it into a folder"
    if str(PurePosixPath(path)) != path:
        return f"names {path}, which has parts that mean nothing", f"write {PurePosixPath(path)}"
    return None


def _no_node_id(test: str) -> Told:
    """What is wrong with the form of a node id."""
    path, *names = test.split("[", 1)[0].split("::")
    why = next((f"'{name}' is no name of Python's" for name in names if not _NAME.fullmatch(name)), "")
    if names and not path.endswith(".py"):
        why = f"{path or 'its file'} is no Python file"
    elif "[" in test and not (names and test.endswith("]")):
        why = "brackets stand at the end of a test's name"
    hint = "write a test file, or a node id such as tests/test_it.py::test_name"
    return (f"names the test {test}, but {why}", hint) if why else None


def _is_defined(test: str, workspace: Workspace) -> bool:
    """Whether the file of a node id holds that function, in that class."""
    path, *names = test.split("[", 1)[0].split("::")
    try:
        body: list[ast.stmt] = ast.parse(decode(workspace.read(path))).body
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for name in names:
        found = next((node for node in body if _is_named(node, name)), None)
        if found is None:
            return False
        body = found.body if isinstance(found, ast.ClassDef) else []
    return True


def _is_named(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A plan as the model hands it in."""

    content: Annotated[str, Meta(description="The whole file plan.md")]


class Planner:
    """One conversation about the plan of one ticket."""

    def __init__(self, ticket: Ticket, *, desk: Desk, max_drafts: int) -> None:
        """Raises ``UsageError`` while the spec is not complete."""
        self.ticket = ticket
        self._desk = desk
        self._max_drafts = max_drafts
        self._spec = _complete_spec(self.ticket)
        self.conversation = desk.conversation("planner", ticket=ticket.slug)
        """May be replaced by another one between two drafts."""
        self._drafts: list[tuple[str, ...]] = []
        self._accepted: Plan | None = None
        self._known: str | None = None
        """What the model was told of the plan that is there."""

    def check(self) -> None:
        """Raise ``ModelError`` if there is no plan yet and no model to draft one."""
        if not self.ticket.plan_path.exists():
            self._desk.model.check()

    def draft(self, request: str = "") -> Plan:
        """The plan that was accepted and saved; ``request`` is what the developer wants of it.

        Raises ``GateClosed`` with the problems of the last draft if none was accepted.
        """
        self._spec = _complete_spec(self.ticket)
        self._drafts, self._accepted = [], None
        self.conversation = self._desk.fitting(self.conversation, "planner", ticket=self.ticket.slug)
        self.conversation.say(self._task(request))
        run = self._desk.ask(self.conversation, self._write_tool(), agent="planner")
        accepted: Plan | None = self._accepted
        if accepted is None:
            problems = "".join(f"\n  {problem}" for problem in self._drafts[-1]) if self._drafts else ""
            said = f" It said: {hidden(run.text.strip())}" if run.text.strip() and not problems else ""
            count = {0: "no draft", 1: "1 draft"}.get(len(self._drafts), f"{len(self._drafts)} drafts")
            raise GateClosed(
                f"No plan was accepted: the Planner handed in {count}.{problems}{said}",
                hint=f"say more in the spec, or write {self.ticket.plan_path} by hand",
            )
        return accepted

    def saved(self) -> Plan:
        """The plan on disk, whatever is wrong with it; ``DocumentError`` for one that cannot be understood."""
        self._spec = _complete_spec(self.ticket)
        return plan_markdown.load(self.ticket.plan_path, default_kind=kind_of_ticket(self._spec.type))

    def problems(self, plan: Plan) -> tuple[Problem, ...]:
        """What must be mended in ``plan``, by itself and in this project, by line."""
        found = plans.find_problems(plan, criteria=self._spec.criterion_ids)
        found += problems(plan, workspace=self._desk.workspace)
        return tuple(sorted(found, key=lambda problem: problem.line))

    def warnings(self, plan: Plan) -> tuple[Problem, ...]:
        """What is odd in ``plan``, by line."""
        found = warnings(plan, workspace=self._desk.workspace, begun=_begun(self.ticket))
        return tuple(sorted((*plans.find_warnings(plan), *found), key=lambda problem: problem.line))

    def created(self, plan: Plan) -> frozenset[str]:
        """The files that ``plan`` names and that are not there yet."""
        return created(plan, workspace=self._desk.workspace)

    @property
    def criteria(self) -> tuple[str, ...]:
        """The ids of the criteria that the plan is to serve."""
        return self._spec.criterion_ids

    def _task(self, request: str) -> str:
        """The message that asks for a plan."""
        text = spec.load_text(self.ticket.spec_path).removeprefix("\ufeff")
        marks = Marks(self.conversation.token)
        parts = [f"The specification of `{self.ticket.slug}`:\n\n{marks.around(text, source='spec.yaml')}"]
        self._known = _on_disk(self.ticket)
        if self._known is not None:
            plan = self._known.removeprefix("\ufeff")
            parts.append(f"The plan so far:\n\n{marks.around(plan, source='plan.md')}")
            listed = "\n".join(f"- {problem}" for problem in self._read(plan)[1])
            if listed:
                parts.append(f"What is wrong with it:\n\n{marks.around(listed, source='problems of plan.md')}")
        parts.append(request or "Write the plan.")
        return "\n\n".join(parts)

    def _write_tool(self) -> Tool:
        """WritePlan: checks the draft and saves it only if nothing is wrong with it."""
        return define(
            "WritePlan",
            "Hand in the whole plan.md. It is saved if it has no problems; otherwise the problems are listed.",
            inputs=Draft,
            run=self._judge,
            subject=lambda draft: f"{len(draft.content.splitlines())} lines",
        )

    def _judge(self, draft: Draft) -> ToolOutput:
        """Save the draft, or say what is wrong with it; the last refused one ends the run.

        Raises ``UsageError`` if somebody else has changed the file since the model was told of it.
        """
        there = _on_disk(self.ticket)
        if there is not None and there != self._known:
            self._known = there
            raise UsageError(
                f"Not saved: plan.md was changed meanwhile. It says now:\n{there}",
                hint="hand in the whole plan with these changes in it",
            )
        number = len(self._drafts) + 1
        plan, problems = self._read(draft.content)
        self._drafts.append(problems)
        self._desk.emit(PlanDrafted(ticket=self.ticket.slug, number=number, problems=problems))
        if plan is None:
            listed = "\n".join(f"- {problem}" for problem in problems)
            return ToolOutput(text=f"Draft {number} was refused:\n{listed}", ends_run=number >= self._max_drafts)
        write_atomic(self.ticket.plan_path, draft.content.encode("utf-8"))
        self._accepted, self._known = plan, draft.content
        for warning in self.warnings(plan):
            self._desk.emit(Notice(text=str(warning)))
        return ToolOutput(text=f"Saved: {len(plan.steps)} steps.", ends_run=True)

    def _read(self, content: str) -> tuple[Plan | None, tuple[str, ...]]:
        """The plan if it can be carried out, else its problems with their lines."""
        try:
            plan = plan_markdown.parse(content, path="plan.md", default_kind=kind_of_ticket(self._spec.type))
        except DocumentError as error:
            return None, tuple(str(problem) for problem in error.problems)
        problems = tuple(str(problem) for problem in self.problems(plan))
        return (None, problems) if problems else (plan, ())


def _complete_spec(ticket: Ticket) -> Spec:
    """The spec as it is now; raises ``UsageError`` if it is not complete."""
    wanted = spec.load(ticket.spec_path)
    missing = spec.find_missing(wanted)
    if missing:
        raise UsageError(
            f"The spec of {ticket.slug} is not complete; it lacks {', '.join(missing)}.", hint=f"cdd spec {ticket.slug}"
        )
    return wanted


def _on_disk(ticket: Ticket) -> str | None:
    """The text of the plan that is there, if there is one."""
    return plan_markdown.load_text(ticket.plan_path) if ticket.plan_path.exists() else None


def _begun(ticket: Ticket) -> tuple[str, ...]:
    """The titles of the steps that were run, as far as a state on disk tells."""
    with suppress(UsageError):
        state = state_file.load(ticket.state_path)
        steps = state.step_executions.values() if state is not None else ()
        return tuple(step.title for step in steps if step.status != Status.PENDING)
    return ()
