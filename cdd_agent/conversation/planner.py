"""The Planner turns a complete spec into ``plan.md``.

A draft is saved only if it has no problems, alone and in this project: the files it names can be written, and the ids
of its tests are valid. Otherwise the model gets the list of problems and drafts again.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, TypeAlias

from msgspec import Meta

from cdd_agent.agent.tools import ToolOutput, define_tool
from cdd_agent.conversation.dialog import Dialog
from cdd_agent.errors import DocumentError, GateClosed, Problem, UsageError
from cdd_agent.events import Notice, PlanDrafted
from cdd_agent.evidence.source import list_definitions
from cdd_agent.model.conversation import Marks
from cdd_agent.storage import write_atomic
from cdd_agent.testrun.impact import find_impact, load_impact
from cdd_agent.tickets import plan as plans
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import TEST_FIRST, Plan, Step, choose_default_kind, is_outside
from cdd_agent.tickets.spec import Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.keys import redact_keys
from cdd_agent.untrusted.paths import find_dotted_part
from cdd_agent.untrusted.python_source import parse
from cdd_agent.work.state import Status
from cdd_agent.work.state_file import load_state
from cdd_agent.workspace.files import Workspace

Objection: TypeAlias = tuple[str, str] | None
"""A step's mistake, worded to follow its number, and the fix. None if the step is correct."""
_SETTINGS = "leave it out; the developer can add it to the plan, because programs may obey it"
_NAME = re.compile(r"[^\W\d]\w*")


def find_problems(plan: Plan, *, workspace: Workspace) -> tuple[Problem, ...]:
    """List the files that cannot be written as planned and the impossible test ids of the project, by line."""
    present = _Paths(workspace.list_files())
    planned = _Paths(path for step in plan.steps for _, path in _list_paths(step))
    problems: list[Problem] = []
    for step in plan.steps:
        for field, path in _list_paths(step):
            objection = (
                _check_path(path, workspace, planned=planned)
                or present.find_other_case(path, known=present)
                or planned.find_other_case(path, known=present)
            )
            if objection:
                problems.append(step.problem(field, objection[0], hint=objection[1]))
        node_ids = (objection for test in step.tests if (objection := _check_node_id(test)))
        problems += [step.problem("tests", message, hint=hint) for message, hint in node_ids]
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))


def find_warnings(plan: Plan, *, workspace: Workspace, begun: Collection[str] = ()) -> tuple[Problem, ...]:
    """List the planned tests that exist already, unless the step's title or description names them.

    ``begun``: titles of steps that have run, whose tests therefore may exist.
    """
    warnings: list[Problem] = []
    first: dict[str, Step] = {}
    for step in plan.steps:
        if step.kind not in TEST_FIRST or step.done or step.title in begun:
            continue
        for test in step.tests:
            name = test.split("[", 1)[0].rpartition("::")[2]
            if "::" not in test or name in step.description or name in step.title:
                continue
            hint = f"rename it, or describe the change to {name} in the step"
            if first.setdefault(test, step) is not step:
                message = f"names the test {test} of step {first[test].number}"
            elif _is_defined(test, workspace):
                message = f"plans to add the test {test}, which exists already"
            else:
                continue
            warnings.append(step.problem("tests", message, hint=hint))
    return tuple(warnings)


def find_settings(plan: Plan, *, known: Collection[str]) -> tuple[Problem, ...]:
    """List the files of the plan that are not ``known`` and have names of settings: a step may land what it names."""
    return tuple(
        step.problem(field, f"names {path}, and {dotted} begins with a dot, as settings of tools do", hint=_SETTINGS)
        for step in plan.steps
        for field, path in _list_paths(step)
        if path not in known and (dotted := find_dotted_part(path)) is not None
    )


def find_new_files(plan: Plan, *, workspace: Workspace) -> frozenset[str]:
    """Return the files that the plan names and that do not exist."""
    return frozenset(path for step in plan.steps for _, path in _list_paths(step) if not workspace.is_file(path))


class _Paths:
    def __init__(self, paths: Iterable[str]) -> None:
        self._by_folded: dict[str, str] = {}
        self.files: set[str] = set()
        self.folders: set[str] = set()
        for path in paths:
            folders = _list_folders(path)
            self.files.add(path)
            self.folders.update(folders)
            for name in (path, *folders):
                self._by_folded.setdefault(name.casefold(), name)

    def find_other_case(self, path: str, *, known: "_Paths") -> Objection:
        """Object if a part of ``path`` exists in another case, unless it is ``known`` as written."""
        for name in (*_list_folders(path), path):
            other = self._by_folded.get(name.casefold(), name)
            if other != name and name not in known.files and name not in known.folders:
                return f"names {path}, which differs from {other} only in case", f"write {other}{path[len(name) :]}"
        return None


def _list_paths(step: Step) -> Iterator[tuple[str, str]]:
    for field, names in (("files", step.files), ("tests", step.tests)):
        for path in dict.fromkeys(name.partition("::")[0] for name in names):
            if path and not is_outside(path):
                yield field, path


def _list_folders(path: str) -> list[str]:
    # The outermost first, without the project's.
    return [str(folder) for folder in reversed(PurePosixPath(path).parents[:-1])]


def _check_path(path: str, workspace: Workspace, *, planned: _Paths) -> Objection:
    if "\\" in path:
        return f"names {path}, which contains a backslash", "write " + path.replace("\\", "/")
    try:
        workspace.resolve_writable(path)
    except UsageError as error:
        return f"names a file that cannot be written: {error.happened.rstrip('.')}", error.hint
    if re.search(r"[*?]", path) and not workspace.exists(path):
        return f"names {path}, which is a pattern", "name each file"
    if path.endswith("/") or path in planned.folders or (workspace.exists(path) and not workspace.is_file(path)):
        return f"names {path}, which is a folder", "name the files in it that the step changes"
    for folder in _list_folders(path):
        if workspace.is_file(folder) or folder in planned.files:
            return f"names {path}, but {folder} is a file", "put it into a folder"
    if str(PurePosixPath(path)) != path:
        return f"names {path}, which contains redundant parts", f"write {PurePosixPath(path)}"
    return None


def _check_node_id(test: str) -> Objection:
    path, *names = test.split("[", 1)[0].split("::")
    why = next((f"'{name}' is not a Python name" for name in names if not _NAME.fullmatch(name)), "")
    if names and not path.endswith(".py"):
        why = f"{path or 'its file'} is not a Python file"
    elif "[" in test and not (names and test.endswith("]")):
        why = "brackets belong at the end of a test's name"
    hint = "write a test file, or a node id such as tests/test_it.py::test_name"
    return (f"names the test {test}, but {why}", hint) if why else None


def _is_defined(test: str, workspace: Workspace) -> bool:
    path, *names = test.split("[", 1)[0].split("::")
    try:
        scope: ast.AST | None = parse(workspace.read_text(path).text)
    except (UsageError, ValueError):
        return False
    for name in names:
        scope = next((node for node in list_definitions(scope) if node.name == name), None)
    return scope is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Submit the whole plan.md. Without problems it is saved, which ends your turn; else they are listed."""

    content: Annotated[str, Meta(description="The whole file plan.md")]


class Planner:
    """One conversation about the plan of one ticket."""

    def __init__(self, ticket: Ticket, *, dialog: Dialog, max_drafts: int) -> None:
        """Start a conversation without calling the model. Raises ``UsageError`` if the spec is incomplete."""
        self.ticket = ticket
        self.dialog = dialog.of("planner", ticket.slug)
        self._max_drafts = max_drafts
        self._spec = load_complete_spec(ticket)
        self.conversation = self.dialog.start()
        """The conversation. The caller may replace it between two drafts."""
        self._drafts: list[tuple[str, ...]] = []
        self._accepted: Plan | None = None
        self._shown: str | None = None
        """The text of ``plan.md`` that the model has seen."""

    def check(self) -> None:
        """Raise ``ModelError`` if the plan does not exist yet and no model can draft it."""
        if not self.ticket.plan_path.exists():
            self.dialog.model.check()

    def draft(self, request: str = "") -> Plan:
        """Return the accepted and saved plan; raise ``GateClosed`` with the problems of the last draft."""
        self._spec = load_complete_spec(self.ticket)
        self._drafts, self._accepted = [], None
        self.conversation = self.dialog.summarize_if_long(self.conversation)
        outline = self.dialog.outline(self.conversation)
        impact = self._format_impact() if outline else ""
        self.conversation.say(*filter(None, (outline, impact, self._format_task(request))))
        tool = define_tool(
            "WritePlan", Draft, run=self._submit, subject=lambda draft: f"{len(draft.content.splitlines())} lines"
        )
        run = self.dialog.ask(self.conversation, tool)
        accepted: Plan | None = self._accepted
        if accepted is None:
            problems = "".join(f"\n  {problem}" for problem in self._drafts[-1]) if self._drafts else ""
            answer = f" It said: {redact_keys(run.text.strip())}" if run.text.strip() and not problems else ""
            count = {0: "no draft", 1: "1 draft"}.get(len(self._drafts), f"{len(self._drafts)} drafts")
            hint = f"add details to the spec, or write {self.ticket.plan_path} by hand"
            raise GateClosed(f"No plan was accepted: the Planner submitted {count}.{problems}{answer}", hint=hint)
        return accepted

    def load(self) -> Plan:
        """Load the plan from disk, even if it has problems. Raises ``DocumentError`` if it cannot be parsed."""
        self._spec = load_complete_spec(self.ticket)
        return plan_markdown.load(self.ticket.plan_path, default_kind=choose_default_kind(self._spec.type))

    def find_problems(self, plan: Plan) -> tuple[Problem, ...]:
        """List the problems of ``plan``, in itself and in this project, by line."""
        problems = plans.find_problems(plan, criteria=self._spec.criterion_ids)
        here = find_problems(plan, workspace=self.dialog.workspace)
        return tuple(sorted((*problems, *here), key=lambda problem: problem.line))

    def find_warnings(self, plan: Plan) -> tuple[Problem, ...]:
        """List the oddities of ``plan`` by line."""
        begun: tuple[str, ...] = ()
        with suppress(UsageError):  # without a readable state, no step counts as begun
            state = load_state(self.ticket.state_path)
            steps = state.step_executions.values() if state is not None else ()
            begun = tuple(step.title for step in steps if step.status != Status.PENDING)
        warnings = find_warnings(plan, workspace=self.dialog.workspace, begun=begun)
        return tuple(sorted((*plans.find_warnings(plan), *warnings), key=lambda problem: problem.line))

    def find_new_files(self, plan: Plan) -> frozenset[str]:
        """Return the files that ``plan`` names and that do not exist yet."""
        return find_new_files(plan, workspace=self.dialog.workspace)

    @property
    def criteria(self) -> tuple[str, ...]:
        """The ids of the spec's criteria."""
        return self._spec.criterion_ids

    def _format_impact(self) -> str:
        known = load_impact(find_impact(self.dialog.workspace.root))
        rows = known.describe(path for path in known.files if self.dialog.workspace.is_file(path))
        if not rows:
            return ""
        marks = Marks(self.conversation.token)
        return (
            "The tests that run code of each file, from the last run of all tests. If a step changes what one of them "
            f"expects, say so in the step:\n\n{marks.wrap(rows, source='the last run of all tests')}"
        )

    def _format_task(self, request: str) -> str:
        text = spec.load_text(self.ticket.spec_path).removeprefix("\ufeff")
        marks = Marks(self.conversation.token)
        parts = [f"The specification of `{self.ticket.slug}`:\n\n{marks.wrap(text, source='spec.yaml')}"]
        self._shown = self._read_plan()
        if self._shown is not None:
            plan = self._shown.removeprefix("\ufeff")
            parts.append(f"The current plan:\n\n{marks.wrap(plan, source='plan.md')}")
            rows = "\n".join(f"- {problem}" for problem in self._parse(plan)[1])
            if rows:
                parts.append(f"Its problems:\n\n{marks.wrap(rows, source='problems of plan.md')}")
        parts.append(self.dialog.submit(self.conversation, request) if request else "Write the plan.")
        return "\n\n".join(parts)

    def _submit(self, draft: Draft) -> ToolOutput:
        """Save the draft, or list its problems; raise ``UsageError`` if someone else has changed the file meanwhile."""
        present = self._read_plan()
        if present is not None and present != self._shown:
            self._shown = present
            hint = "include these changes and submit the whole plan again"
            raise UsageError(f"Not saved: plan.md has changed. It says now:\n{present}", hint=hint)
        number = len(self._drafts) + 1
        plan, problems = self._parse(draft.content)
        settings = self._find_settings(plan) if plan is not None else ()
        if settings and self.dialog.objection is None:  # nobody would see them before they land
            plan, problems = None, tuple(map(str, settings))
        self._drafts.append(problems)
        self.dialog.emit(PlanDrafted(ticket=self.ticket.slug, number=number, problems=problems))
        if plan is None:
            rows = "\n".join(f"- {problem}" for problem in problems)
            return ToolOutput(text=f"Draft {number} was refused:\n{rows}", ends_run=number >= self._max_drafts)
        write_atomic(self.ticket.plan_path, draft.content.encode("utf-8"))
        self._accepted, self._shown = plan, draft.content
        spec.advance_file(self.ticket.spec_path, "planned")
        for warning in (*self.find_warnings(plan), *settings):
            self.dialog.emit(Notice(text=str(warning)))
        return ToolOutput(text=f"Saved: {len(plan.steps)} steps.", ends_run=True)

    def _find_settings(self, plan: Plan) -> tuple[Problem, ...]:
        """List the files with names of settings that the plan has not named so far."""
        known: set[str] = set()
        with suppress(DocumentError):
            before = plan_markdown.parse(self._shown or "", path="plan.md", default_kind="feature")
            known = {path for step in before.steps for _, path in _list_paths(step)}
        return find_settings(plan, known=known)

    def _parse(self, content: str) -> tuple[Plan | None, tuple[str, ...]]:
        try:
            plan = plan_markdown.parse(content, path="plan.md", default_kind=choose_default_kind(self._spec.type))
        except DocumentError as error:
            return None, tuple(str(problem) for problem in error.problems)
        problems = tuple(str(problem) for problem in self.find_problems(plan))
        return (None, problems) if problems else (plan, ())

    def _read_plan(self) -> str | None:
        return plan_markdown.load_text(self.ticket.plan_path) if self.ticket.plan_path.exists() else None


def load_complete_spec(ticket: Ticket) -> Spec:
    """Return the spec of a ticket; raise ``UsageError`` if it is not complete."""
    complete = spec.load(ticket.spec_path)
    missing = spec.find_missing(complete)
    if missing:
        happened = f"The spec of {ticket.slug} is not complete; it lacks {', '.join(missing)}."
        raise UsageError(happened, hint=f"cdd spec {ticket.slug}")
    return complete
