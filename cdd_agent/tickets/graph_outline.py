"""Makes the beginning of a planning graph from a plan or from the tasks of Task Master. Pure.

A step or task becomes a composite with the dependencies that it states. A function or class becomes a leaf only if the
text writes it as code with its parameters, and if one module is named for it. The rest is a gap: guesses here would
look like decisions of the author.
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.tickets.graph import Graph, Node, NodeId
from cdd_agent.tickets.plan import TEST_FIRST, Plan
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.python_source import parse, with_deep_stack
from cdd_agent.untrusted.text import format_line, shorten

_MOST_NAME = 200
_MOST_DOCSTRING = 4_000
_MOST_TEXT = 50_000
"""Characters of a step in which functions are looked for."""
_MOST_TASKS = 5_000
_MASTER = "master"
"""The tag of Task Master that is used if several exist."""
_LEFT_OUT = frozenset({"cancelled", "deferred"})
_FENCE = re.compile(r"\s*(```+|~~~+)(.*)")
_INLINE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"(?<![\w/.-])[\w][\w./-]*\.py(?![\w/])")
_TEST = re.compile(r"(^|/)(tests?/|test_[^/]*$|[^/]*_test\.py$|conftest\.py$)")
_CALL = re.compile(r"(?P<name>[^\W\d]\w*)\((?P<inside>.*)\)(\s*->\s*.+)?")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOutline:
    """The beginning of a graph."""

    graph: Graph
    gaps: tuple[str, ...]
    """The steps or tasks without a function or class; each entry is a sentence without a full stop."""
    notices: tuple[str, ...] = ()
    """The parts of the source that were left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutlinePart:
    """A step, a task or a subtask."""

    id: str
    title: str
    text: str
    files: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """The ids of other parts."""
    parent: str = ""
    subgraph: str = ""
    has_code: bool = True
    """Whether a function or class is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A definition in a text."""

    name: str
    type: str
    signature: str
    docstring: str
    context: str
    """The paragraph around it."""


def outline_plan(plan: Plan) -> GraphOutline:
    """Return the outline of a plan: each step is a subgraph."""
    known = {step.number for step in plan.steps}
    parts = [
        _OutlinePart(
            id=f"step-{step.number}",
            title=step.title,
            text=step.description,
            files=step.files,
            needs=tuple(f"step-{number}" for number in step.depends_on if number in known),
            has_code=step.kind in TEST_FIRST,
        )
        for step in plan.steps
    ]
    lost = [
        f"step {step.number} depends on step {each}, which is not in the plan"
        for step in plan.steps
        for each in step.depends_on
        if each not in known
    ]
    return _make_outline(parts, name=plan.title, notices=lost)


class _TaskShape(msgspec.Struct, kw_only=True, rename="camel"):
    """A task or subtask, as far as it is read. Task Master writes ids as numbers or texts."""

    id: int | str
    title: str | None = None
    description: str | None = None
    details: str | None = None
    test_strategy: str | None = None
    status: str | None = None
    dependencies: list[int | str] | None = None
    subtasks: "list[_TaskShape] | None" = None

    @property
    def text(self) -> str:
        """All its texts."""
        parts = (self.description, self.details, self.test_strategy and f"Test strategy: {self.test_strategy}")
        return "\n\n".join(part.strip() for part in parts if part and part.strip())


def outline_tasks(text: str, *, path: str, tag: str = "") -> GraphOutline:
    """Return the outline of a ``tasks.json``: each task is a subgraph, with its subtasks.

    ``tag``: the list of tasks; empty: ``master``, or the only one. Raises ``DocumentError`` if it is no such file.
    """
    tasks = _load_tasks(text, path=path, tag=tag)
    parts, notices = list[_OutlinePart](), list[str]()
    left_out = {id for id, task in _walk(tasks) if (task.status or "").lower() in _LEFT_OUT}
    known = {id: task for id, task in _walk(tasks) if id not in left_out and id.partition(".")[0] not in left_out}
    for id, task in _walk(tasks):
        if id not in known:
            if id in left_out:
                notices.append(f"task {id} is {task.status}, so it is left out")
            continue
        parent = id.rpartition(".")[0]
        needs = []
        for each in map(str, task.dependencies or ()):
            sibling = f"{parent}.{each}"
            found = sibling if parent and sibling in known else each
            if found in known and found not in (id, parent):
                needs.append(f"task-{found}")
            else:
                notices.append(f"task {id} depends on {each}, which is not among the tasks")
        has_subtasks = any(each in known for each in (f"{id}.{sub.id}" for sub in task.subtasks or ()))
        parts.append(
            _OutlinePart(
                id=f"task-{id}",
                title=task.title or f"Task {id}",
                text=task.text,
                files=tuple(_FILE.findall(task.text)),
                needs=tuple(needs),
                parent=f"task-{parent}" if parent else "",
                subgraph="" if parent else f"task-{id}",
                has_code=not has_subtasks,
            )
        )
    return _make_outline(parts, name="", notices=notices)


def _walk(tasks: Iterable[_TaskShape]) -> Iterator[tuple[str, _TaskShape]]:
    """Yield id -> task, each followed by its subtasks, whose ids are such as ``3.1``. Deeper levels are not read."""
    for task in tasks:
        yield str(task.id), task
        yield from ((f"{task.id}.{sub.id}", sub) for sub in task.subtasks or ())


def _load_tasks(text: str, *, path: str, tag: str) -> list[_TaskShape]:
    try:
        document = documents.load_json(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise DocumentError(path, (Problem(line=0, message=f"it is not JSON: {error}"),), hint="correct it") from error
    lists: Mapping[object, object] = document if isinstance(document, dict) else {}
    tags = {key: value["tasks"] for key, value in lists.items() if isinstance(value, dict) and "tasks" in value}
    if "tasks" in lists and not tag:
        tags = {"": lists["tasks"]}
    chosen = tag or (_MASTER if _MASTER in tags else next(iter(tags), "") if len(tags) == 1 else None)
    if not tags:
        message = 'it has no "tasks", as a tasks.json of Task Master has'
        raise DocumentError(path, (Problem(line=0, message=message),), hint="name a plan.md or a tasks.json")
    if chosen not in tags:
        names = ", ".join(map(str, tags)) or "none"
        raise UsageError(f"{path} has several lists of tasks: {names}.", hint="choose one: --tag NAME")
    try:
        tasks = msgspec.convert(tags[chosen], list[_TaskShape])
    except msgspec.ValidationError as error:
        hint = "correct it, or write the tasks with Task Master"
        raise DocumentError(path, (Problem(line=0, message=str(error)),), hint=hint) from error
    if len(tasks) > _MOST_TASKS:
        message = f"it has {len(tasks)} tasks; at most {_MOST_TASKS} are read"
        raise DocumentError(path, (Problem(line=0, message=message),), hint="split the list")
    return tasks


@dataclass(slots=True)
class _Leaves:
    """The leaves so far, and what is missing."""

    nodes: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    gaps: list[str] = field(default_factory=list)


@with_deep_stack
def _make_outline(parts: list[_OutlinePart], *, name: str, notices: Iterable[str]) -> GraphOutline:
    leaves = _Leaves()
    nodes = list[Node]()
    for part in parts:
        nodes.append(
            Node(
                id=NodeId(part.id),
                name=shorten(format_line(part.title), _MOST_NAME),
                type="step" if part.id.startswith("step") else "task",
                node_type="composite",
                file_path="",
                docstring=part.text[:_MOST_DOCSTRING],
                dependencies=tuple(NodeId(each) for each in dict.fromkeys(part.needs)),
                subgraph_id=part.subgraph,
                parent=NodeId(part.parent) if part.parent else None,
            )
        )
        _add_leaves(part, leaves)
    graph = Graph(nodes=(*nodes, *leaves.nodes), metadata={"name": format_line(name)} if name else {})
    return GraphOutline(graph=graph, gaps=tuple(leaves.gaps), notices=tuple(notices))


def _add_leaves(part: _OutlinePart, leaves: _Leaves) -> None:
    """Add a leaf for each definition that the text of a part writes first, or a gap."""
    label = part.id.replace("-", " ")
    sources = [path for path in dict.fromkeys(part.files) if path.endswith(".py") and not _TEST.search(path)]
    new = dict[str, _Mention]()
    for mention in _find_mentions(part.text[:_MOST_TEXT]):
        if mention.name not in leaves.names:
            new.setdefault(mention.name, mention)
    unplaced = []
    for mention in new.values():
        named = [path for path in sources if path in mention.context]
        places = named if len(named) == 1 else sources
        if len(places) != 1:
            unplaced.append(mention.name)
            continue
        leaves.names.add(mention.name)
        leaves.nodes.append(
            Node(
                id=NodeId(f"{part.id}.{mention.name}"),
                name=mention.name,
                type=mention.type,
                node_type="leaf",
                file_path=places[0],
                docstring=mention.docstring or shorten(mention.context, _MOST_DOCSTRING) or part.title,
                signature=mention.signature,
                parent=NodeId(part.id),
            )
        )
    if unplaced:
        where = f"which of {', '.join(sources)}" if sources else "which module"
        leaves.gaps.append(f"{label} does not say in {where} it wants {', '.join(unplaced)}")
    elif not new and part.has_code:
        leaves.gaps.append(f"{label} ({shorten(format_line(part.title), 60)}) writes no function or class as code")


def _find_mentions(text: str) -> Iterator[_Mention]:
    """Yield the definitions in code blocks, and then those in backticks."""
    blocks, prose = _split_fences(text)
    for block in blocks:
        tree = parse(block)
        for each in tree.body if tree is not None else ():
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_new(each.name):
                yield _describe(each, context="")
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)", prose):
        context = " ".join(_BULLET.sub("", paragraph).split())
        for code in _INLINE.findall(paragraph):
            found = _read_mention(code.strip(), context=context)
            if found is not None:
                yield found


def _split_fences(text: str) -> tuple[list[str], str]:
    """Return the contents of the code blocks, and the text around them. A block that is not closed ends the text."""
    blocks, prose, mark = list[str](), list[str](), ""
    for line in text.splitlines():
        fence = _FENCE.fullmatch(line)
        if mark:
            if line.strip() == mark:
                mark = ""
            else:
                blocks[-1] += f"{line}\n"
        elif fence is not None:
            mark = fence[1]
            blocks.append("")
            prose.append("")
        else:
            prose.append(line)
    return [textwrap.dedent(block) for block in blocks], "\n".join(prose)


def _is_new(name: str) -> bool:
    return name not in _BUILTINS and not name.startswith(("test_", "Test", "__"))


def _read_mention(code: str, *, context: str) -> _Mention | None:
    """Return the definition that code in backticks writes: ``def f(x)``, ``f(x) -> int``, ``class C`` or ``C(x)``."""
    called = _CALL.fullmatch(code)
    if called is None:
        written = code.rstrip(":") + ": ..." if code.startswith(("def ", "async def ", "class ")) else ""
    elif called["name"][0].isupper():
        inside = called["inside"].strip()
        written = f"class {called['name']}:\n    def __init__(self{', ' if inside else ''}{inside}): ..."
    else:
        written = f"def {code}: ..."
    tree = parse(written)
    match tree.body if tree is not None else []:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as found] if _is_new(found.name):
            described = _describe(found, context=context)
            # ``load()`` often only names a function, whatever its parameters are, and ``class C`` says nothing of it.
            is_name = not called["inside"].strip() if called is not None else isinstance(found, ast.ClassDef)
            return replace(described, signature="") if is_name else described
        case _:
            return None


class _Stub(ast.NodeTransformer):
    """Leaves ``...`` of the body of each function."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Strip a function."""
        node.body = [ast.Expr(ast.Constant(...))]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Strip a coroutine."""
        node.body = [ast.Expr(ast.Constant(...))]
        return node


def _describe(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *, context: str) -> _Mention:
    docstring = ast.get_docstring(node) or ""
    return _Mention(
        name=node.name,
        type="class" if isinstance(node, ast.ClassDef) else "function",
        signature=ast.unparse(_Stub().visit(node)),
        docstring=docstring,
        context=context,
    )
