"""The command ``cdd graph``: draft a planning graph or take that of a package, check it, and show it."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import BudgetSpent, GateClosed, UsageError, format_count

if TYPE_CHECKING:
    from cdd_agent.conversation.architect import LibraryDescription
    from cdd_agent.generation.layout import Layout
    from cdd_agent.generation.plan import GenerationPlan
    from cdd_agent.repl.screen import Screen
    from cdd_agent.tickets.graph import Graph, Group, ImportCycle, Node, NodeId
    from cdd_agent.tickets.graph_outline import GraphOutline
    from cdd_agent.tickets.graph_problems import GraphProblem
    from cdd_agent.tickets.ticket import Ticket

_MOST_NOTICES = 20
_MOST_ROWS = 1_500
"""Nodes in the picture of a page; a larger graph has only its list."""
_MOST_TIP = 300
"""Characters of a docstring in a tip of the picture."""
_COLUMN, _ROW, _HEAD, _GAP, _SPACE = 240, 20, 44, 24, 90
"""Width of a module, height of a node, height of a module's title, space between modules and between columns."""
_PARAGRAPH = "\n\n"
_MOST_DESCRIPTION = 400_000
"""Bytes of a description; a model reads it whole."""
_MOST_LABEL = 30
"""Characters of a name in the picture."""


@click.group(short_help="Draft a planning graph, check it, or show it as a tree or a picture.")
def graph() -> None:
    """Draft, check and show planning graphs, which say what `cdd generate` is to build."""


@graph.command(short_help="The Architect drafts a planning graph from a description.")
@click.argument("words", nargs=-1, required=True, metavar="TEXT|FILE|SLUG")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The file of the graph.")
@headless
def draft(invocation: Invocation, *, words: tuple[str, ...], out: Path | None) -> None:
    """Let the Architect draft a planning graph from TEXT, from a FILE such as nl_spec.md, or from the spec of a ticket.

    The graph is shown as a tree before it is saved: in graph.json beside FILE, in the ticket's folder, or here.
    """
    GraphDrafting.of(" ".join(words), out=out, invocation=invocation).carry_out(invocation)


@graph.command("from", short_help="Make a planning graph of a package, of a plan, or of the tasks of Task Master.")
@click.argument("source", metavar="PACKAGE|PLAN|TASKS")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The file of the graph.")
@click.option("--tag", default="", metavar="NAME", help="The list in a tasks.json that has several.")
@headless
def from_(invocation: Invocation, *, source: str, out: Path | None, tag: str) -> None:
    """Make a planning graph of an existing package, of a plan.md, or of a tasks.json of Task Master.

    PACKAGE is a folder, the file of a module, or the name of an installed package. Its sources are read, and nothing of
    it is imported; the graph goes to graph.json. Functions and classes that the text of a plan or of tasks does not
    write as code are left to the Architect; the graph goes to graph.json beside the text.
    """
    path = Path(source)
    if path.suffix in (".json", ".md"):
        _make_from_text(invocation, path, out=out or path.parent / "graph.json", tag=tag)
    else:
        _make_from_package(invocation, source, out=out or Path("graph.json"))


def _make_from_package(invocation: Invocation, package: str, *, out: Path) -> None:
    from cdd_agent.generation.data_files import copy_data, find_data_folder
    from cdd_agent.generation.extract import extract_graph
    from cdd_agent.generation.package_files import list_search_path, read_package

    files = read_package(package, search=list_search_path(Path.cwd()))
    extraction = extract_graph(files)
    data = find_data_folder(out)
    if data == out:
        hint = "name a file: --out graph.json"
        raise UsageError(f"{out} is the name of the folder for the package's data.", hint=hint)
    present = [str(path) for path in (out, data) if path.exists()]
    question = f"{present[0]} exists. Replace it?" if len(present) == 1 else f"{out} and {data} exist. Replace them?"
    if present and not invocation.is_agreed(question):
        return
    copied = copy_data(extraction.graph, files, to=data)
    _save(extraction.graph, out)
    view = _make_view(extraction.graph, file=out, notices=())
    if invocation.as_json:
        counts = {"nodes": len(view.graph.leaves), "subgraphs": len(set(view.graph.subgraphs.values()))}
        _print({"event": "GraphExtracted", "file": str(out), **counts, "notices": list(extraction.notices)})
        return
    invocation.screen.line(f"{view.summary}.", style="bold green")
    for notice in extraction.notices[:_MOST_NOTICES]:
        invocation.screen.note(notice)
    if len(extraction.notices) > _MOST_NOTICES:
        invocation.screen.note(f"and {format_count(len(extraction.notices) - _MOST_NOTICES, 'more remark')}")
    if copied:
        invocation.screen.line(f"These files are in {data}: keep that folder beside the graph.")
    invocation.screen.line(f"Next: cdd graph show {shlex.quote(str(out))}")


def _make_from_text(invocation: Invocation, source: Path, *, out: Path, tag: str) -> None:
    from cdd_agent.conversation.architect import LibraryDescription

    text, outline = _read_outline(source, tag=tag)
    named = os.path.relpath(source.resolve(), out.resolve().parent)
    described = LibraryDescription(text=text, source=source.name, start=outline.graph, gaps=outline.gaps)
    drafting = GraphDrafting(description=described, out=out, metadata={"nl_spec_path": named})
    for notice in outline.notices[:_MOST_NOTICES]:
        invocation.screen.note(notice)
    if outline.gaps:
        count = format_count(len(outline.gaps), "gap")
        invocation.screen.line(f"The text alone makes no graph; the Architect closes {count}:")
        invocation.screen.items(outline.gaps, most=_MOST_NOTICES)
        drafting.carry_out(invocation)
    else:
        drafting.save_outline(invocation)


def _read_outline(source: Path, *, tag: str) -> "tuple[str, GraphOutline]":
    """Return the text of a plan or of tasks, and its outline."""
    from cdd_agent.storage import read_text
    from cdd_agent.tickets import plan_markdown
    from cdd_agent.tickets.graph_outline import outline_plan, outline_tasks

    text = read_text(source, limit_bytes=_MOST_DESCRIPTION, missing_hint="name a plan.md or a tasks.json")
    if source.suffix == ".json":
        return text, outline_tasks(text, path=str(source), tag=tag)
    return text, outline_plan(plan_markdown.parse(text, path=str(source)))


@graph.command(short_help="Say what is wrong with a planning graph.")
@click.argument("file", type=click.Path(path_type=Path))
@headless
def check(invocation: Invocation, *, file: Path) -> None:
    """Check the planning graph FILE: names, files, dependencies and circles. Exit code 2 if it has problems."""
    from cdd_agent.tickets.graph_file import read_graph
    from cdd_agent.tickets.graph_problems import find_problems, make_error

    read, notices = read_graph(file)
    problems = find_problems(read, lambda graph: _lay_out(graph, file).map_path)
    view = None if problems else _make_view(read, file=file, notices=notices)
    if invocation.as_json:
        circles = [asdict(each) for each in view.import_cycles] if view else []
        subgraphs = len(set(read.subgraphs.values())) if view else None
        counts = {"file": str(file), "nodes": len(read.leaves), "subgraphs": subgraphs}
        told = {"problems": [asdict(each) for each in problems], "notices": [asdict(each) for each in notices]}
        _print({"event": "GraphChecked", **counts, **told, "import_cycles": circles})
    if problems:
        raise make_error(problems, path=str(file))
    if view is not None and not invocation.as_json:
        invocation.screen.line(f"{view.summary}. No problems.", style="bold green")
        _show_remarks(view, screen=invocation.screen)


@graph.command(short_help="Show a planning graph as a tree, a Mermaid diagram or a page of HTML.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--mermaid", is_flag=True, help="Print a Mermaid diagram, for a Markdown page.")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page of HTML to FILE.")
@headless
def show(invocation: Invocation, *, file: Path, mermaid: bool, page: Path | None) -> None:
    """Show the planning graph FILE in the order in which it is generated.

    The page of HTML is one file with a picture. It needs no network and no script.
    """
    from cdd_agent.storage import write_atomic
    from cdd_agent.tickets.graph_file import load_graph

    read, notices = load_graph(file, lambda graph: _lay_out(graph, file).map_path)
    view = _make_view(read, file=file, notices=notices)
    if page is not None:
        try:
            write_atomic(page, format_page(view).encode("utf-8", "replace"))
        except OSError as error:
            happened = f"{page} cannot be written: {error.strerror or error}."
            raise UsageError(happened, hint="name another file: --html graph.html") from error
        invocation.screen.line(f"The page is in {page}.")
    elif mermaid:
        for line in list_mermaid(view):
            click.echo(line)
    elif invocation.as_json:
        _print_view(view)
    else:
        show_tree(view, screen=invocation.screen)


@dataclass(frozen=True, kw_only=True)
class GraphDrafting:
    """A description, and the file to which its graph goes."""

    description: "LibraryDescription"
    out: Path
    metadata: Mapping[str, object]
    """The source and the request, as the graph names them."""
    ticket: "Ticket | None" = None

    @classmethod
    def of(cls, words: str, *, out: Path | None, invocation: Invocation) -> "GraphDrafting":
        """Read what ``words`` name: a file, a ticket, or what the library is to do."""
        from cdd_agent.conversation.architect import LibraryDescription
        from cdd_agent.conversation.planner import load_complete_spec
        from cdd_agent.storage import read_text
        from cdd_agent.tickets import spec
        from cdd_agent.tickets.ticket import find

        is_word, file, ticket = len(words.split()) == 1, Path(words), None
        if not words.strip():
            raise UsageError("The description is empty.", hint='cdd graph draft "a library that converts units"')
        if not is_word and not file.is_file():
            description = LibraryDescription(text=words, source="description")
            return cls(description=description, out=out or Path("graph.json"), metadata={"request": words})
        is_path = "/" in words or file.suffix or words == "." or (file.exists() and not file.is_dir())
        if not is_path:  # a ticket often has the name of a folder
            ticket = find(invocation.project.root, words)
            load_complete_spec(ticket)
            file, text = ticket.spec_path, spec.load_text(ticket.spec_path)
        else:
            hint = "check the path, or say in several words what the library is to do"
            text = read_text(file, limit_bytes=_MOST_DESCRIPTION, missing_hint=hint)
        target = out or file.parent / "graph.json"
        return cls(
            description=LibraryDescription(text=text.removeprefix("\ufeff"), source=file.name),
            out=target,
            metadata={"nl_spec_path": os.path.relpath(file.resolve(), target.resolve().parent)},
            ticket=ticket,
        )

    def carry_out(self, invocation: Invocation) -> None:
        """Draft the graph, show it, and save it if the user agrees."""
        from cdd_agent.events import Notice
        from cdd_agent.repl.render import READY

        if not self._may_save(invocation):
            return
        project = invocation.project
        with nullcontext() if invocation.at_prompt else closing(project), invocation.screen.working(READY):
            if self.ticket is not None:
                project.follow(self.ticket.slug)
            graph = self._draft(invocation)
            if graph is None:
                invocation.screen.line("Nothing was saved.")
                return
            _save(graph, self.out)
            project.emit(Notice(text=f"The graph is saved. Next: cdd generate {shlex.quote(str(self.out))} --out DIR"))

    def _may_save(self, invocation: Invocation) -> bool:
        """Return whether the graph may be saved; raises ``UsageError`` if it cannot, before a model is paid."""
        folder = self.out.parent
        if not os.access(folder, os.W_OK | os.X_OK) or self.out.is_dir():
            raise UsageError(
                f"{self.out} cannot be written.", hint="name a file in an existing folder: --out graph.json"
            )
        return not self.out.exists() or invocation.is_agreed(f"{self.out} exists. Replace it?")

    def save_outline(self, invocation: Invocation) -> None:
        """Show and save a graph that needs no model; raises ``DocumentError`` if it has problems."""
        from cdd_agent.tickets.graph_problems import find_problems, make_error

        assert self.description.start is not None
        start = self.description.start
        made = replace(start, metadata={**start.metadata, **self.metadata})
        if problems := find_problems(made, lambda graph: _lay_out(graph, self.out).map_path):
            raise make_error(problems, path=self.description.source)
        if not self._may_save(invocation):
            return
        view = _make_view(made, file=self.out, notices=())
        _save(made, self.out)
        if invocation.as_json:
            _print_view(view)
            return
        show_tree(view, screen=invocation.screen)
        _show_remarks(view, screen=invocation.screen)
        invocation.screen.line(f"The graph is saved. Next: cdd generate {shlex.quote(str(self.out))} --out DIR")

    def _draft(self, invocation: Invocation) -> "Graph | None":
        """Return a graph to which the user agrees, if there is one; save a refused draft in another file."""
        from cdd_agent.generation.plan import find_draft_problems

        architect = invocation.project.architect(self.ticket)

        def show(drafted: "Graph") -> None:
            if not invocation.as_json:
                show_tree(_make_view(drafted, file=self.out, notices=()), screen=invocation.screen)

        try:
            found = architect.draft(
                self.description, find_problems=lambda drafted: find_draft_problems(drafted, self.out.stem), show=show
            )
        except (GateClosed, BudgetSpent) as error:
            if not architect.nodes:
                raise
            kept = self.out.with_suffix(".refused.json")
            _save(architect.graph, kept)
            hint = f"{error.hint}; the draft is in {kept}: correct it, then: cdd graph check {shlex.quote(str(kept))}"
            raise type(error)(error.happened, hint=hint) from error
        if found is None:
            return None
        facts = {"model": architect.dialog.model.name, "time": invocation.project.clock.now()}
        return replace(found, metadata={**found.metadata, **self.metadata, **facts})


def _save(graph: "Graph", path: Path) -> None:
    from cdd_agent.tickets.graph_file import save_graph

    try:
        save_graph(graph, path)
    except OSError as error:
        happened = f"{path} cannot be written: {error.strerror or error}."
        raise UsageError(happened, hint="name another file: --out graph.json") from error


def _lay_out(graph: "Graph", file: Path) -> "Layout":
    from cdd_agent.generation.layout import Layout

    return Layout.of(graph, file.stem)


def _make_view(graph: "Graph", *, file: Path, notices: "tuple[GraphProblem, ...]") -> "GraphView":
    from cdd_agent.generation.plan import GenerationPlan

    return GraphView(plan=GenerationPlan(graph=graph, layout=_lay_out(graph, file), source=file), notices=notices)


def _print_view(view: "GraphView") -> None:
    package, groups = view.layout.package, view.as_fields()
    _print({"event": "GraphShown", "file": str(view.plan.source), "package": package, "groups": groups})


def _print(fields: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """A graph without problems, as it is shown: its nodes in the order in which they are generated."""

    plan: "GenerationPlan"
    notices: "tuple[GraphProblem, ...]"

    @property
    def graph(self) -> "Graph":
        """The graph."""
        return self.plan.graph

    @property
    def layout(self) -> "Layout":
        """Where the files will be."""
        return self.plan.layout

    @property
    def groups(self) -> "tuple[Group, ...]":
        """The subgraphs in the order in which they land."""
        return self.plan.groups

    @cached_property
    def positions(self) -> "Mapping[NodeId, int]":
        """Leaf -> its number in the order, 1-based."""
        return {node.id: number for number, node in enumerate(self.plan.nodes, start=1)}

    @cached_property
    def needs(self) -> "Mapping[NodeId, tuple[NodeId, ...]]":
        """Leaf -> the leaves that it needs directly."""
        from cdd_agent.tickets.graph import find_needs

        return find_needs(self.graph)

    @cached_property
    def needed_by(self) -> "Mapping[NodeId, tuple[NodeId, ...]]":
        """Leaf -> the leaves that need it directly."""
        found: dict[NodeId, list[NodeId]] = {id: [] for id in self.positions}
        for id in self.positions:
            for each in self.needs[id]:
                found[each].append(id)
        return {id: tuple(each) for id, each in found.items()}

    @cached_property
    def import_cycles(self) -> "tuple[ImportCycle, ...]":
        """The circular imports between modules."""
        from cdd_agent.tickets.graph import find_import_cycles

        return find_import_cycles(self.graph, self.layout.module_of)

    @property
    def summary(self) -> str:
        """The size of the graph in one line."""
        files = {self.layout.map_path(node.file_path) for node in self.graph.leaves}
        counts = f"{format_count(len(self.graph.leaves), 'node')} in {format_count(len(files), 'file')}"
        subgraphs = format_count(len(set(self.graph.subgraphs.values())), "subgraph")
        return f"{self.plan.source.name}: {counts}, {subgraphs}, package {self.layout.package}"

    def list_modules(self, group: "Group") -> "Mapping[str, list[Node]]":
        """Return path in the repository -> the nodes of a group there, in order."""
        found: dict[str, list[Node]] = {}
        for id in group.nodes:
            node = self.graph.by_id[id]
            found.setdefault(self.layout.map_path(node.file_path), []).append(node)
        return found

    def describe_links(self, node: "Node") -> str:
        """Return how many nodes a node needs, and how many need it."""
        needs, needed_by = len(self.needs[node.id]), len(self.needed_by[node.id])
        counts = (("needs", needs), ("needed by", needed_by))
        return ", ".join(f"{verb} {format_count(count, 'node')}" for verb, count in counts if count)

    def as_fields(self) -> list[dict[str, object]]:
        """Return the groups as JSON."""
        return [
            {
                "subgraphs": list(group.ids),
                "nodes": [
                    {
                        "position": self.positions[node.id],
                        "id": node.id,
                        "title": self.layout.title_of(node),
                        "file": path,
                        "needs": list(self.needs[node.id]),
                    }
                    for path, nodes in self.list_modules(group).items()
                    for node in nodes
                ],
            }
            for group in self.groups
        ]


def _show_remarks(view: GraphView, *, screen: "Screen") -> None:
    from cdd_agent.generation.signatures import find_open_questions
    from cdd_agent.tickets.graph import format_import_cycle

    moved = [f"{path} becomes {real}" for path, real in view.layout.rows if path != real]
    texts = [str(notice) for notice in view.notices]
    texts += [format_import_cycle(view.graph, each) for each in view.import_cycles]
    texts += [f"{each.name} ({each.id}): {each.what}" for each in find_open_questions(view.graph)]
    for text in texts[:_MOST_NOTICES]:
        screen.note(text)
    if len(texts) > _MOST_NOTICES:
        screen.note(f"and {format_count(len(texts) - _MOST_NOTICES, 'more remark')}")
    if moved:
        screen.line(f"cdd generate has one import package, {view.layout.package}:", style="dim")
        screen.items(moved, most=_MOST_NOTICES)


def show_tree(view: GraphView, *, screen: "Screen") -> None:
    """Show subgraphs, modules and nodes as a tree."""
    from rich.text import Text
    from rich.tree import Tree

    screen.line(view.summary, style="bold")
    for group in view.groups:
        screen.gap()
        together = "  (land together, because they need each other)" if len(group.ids) > 1 else ""
        count = format_count(len(group.nodes), "node")
        tree = Tree(Text.assemble((group.name, "bold"), (f"  {count}{together}", "dim")), guide_style="dim")
        for path, nodes in view.list_modules(group).items():
            branch = tree.add(Text(path, style="cyan"))
            for node in nodes:
                number = f"{view.positions[node.id]} "
                branch.add(Text.assemble((number, "dim"), node.name, (f"  {view.describe_links(node)}", "dim")))
        screen.show(tree)
    screen.gap()


def list_mermaid(view: GraphView) -> Iterator[str]:
    """Yield the lines of a Mermaid diagram; each arrow runs from a node to one that it needs."""
    yield "flowchart LR"
    for number, group in enumerate(view.groups, start=1):
        yield f'  subgraph s{number}["{_escape_mermaid(group.name)}"]'
        for id in group.nodes:
            yield f'    n{view.positions[id]}["{_escape_mermaid(view.layout.title_of(view.graph.by_id[id]))}"]'
        yield "  end"
    for id, position in view.positions.items():
        for each in view.needs[id]:
            yield f"  n{position} --> n{view.positions[each]}"


def _escape_mermaid(text: str) -> str:
    """Return a label in which no character has a meaning for Mermaid, HTML or Markdown."""
    return "".join(
        letter if letter.isalnum() or letter in " ._-" else f"#{ord(letter)};"
        for letter in text
        if letter.isprintable()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node in the picture, at its upper left corner."""

    position: int
    x: int
    y: int
    label: str
    tip: str
    arrows: tuple[str, ...]
    """The paths of SVG from the nodes that it needs."""


@dataclass(slots=True, kw_only=True)
class ModuleBox:
    """A module in the picture, at its upper left corner."""

    path: str
    subgraph: str
    hue: int
    """The color of its subgraph, in degrees."""
    x: int = 0
    y: int = 0
    height: int = 0
    nodes: "list[Node]" = field(default_factory=list)

    @property
    def label(self) -> str:
        """The end of its path."""
        return self.path if len(self.path) <= _MOST_LABEL else f"…{self.path[-_MOST_LABEL + 1 :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPicture:
    """The modules in columns, each to the right of those that it needs."""

    boxes: tuple[ModuleBox, ...]
    rows: tuple[NodeRow, ...]
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class GraphDrawing:
    """Draws a graph: the modules in columns, and in each the nodes with lines to those that they need."""

    view: GraphView
    hues: Mapping[str, int]
    """Subgraph -> the color of its modules."""

    @classmethod
    def of(cls, view: GraphView) -> "GraphDrawing":
        """Choose the colors; neighbors get different ones."""
        names = sorted(set(view.graph.subgraphs.values()))
        return cls(view=view, hues={name: number * 137 % 360 for number, name in enumerate(names)})

    @cached_property
    def box_of(self) -> "Mapping[NodeId, ModuleBox]":
        """Leaf -> its module."""
        boxes: dict[tuple[str, str], ModuleBox] = {}
        found = {}
        for id in self.view.positions:
            node, subgraph = self.view.graph.by_id[id], self.view.graph.subgraphs[id]
            path = self.view.layout.map_path(node.file_path)
            box = ModuleBox(path=path, subgraph=subgraph, hue=self.hues[subgraph])
            found[id] = boxes.setdefault((subgraph, path), box)
            found[id].nodes.append(node)
        return found

    @cached_property
    def boxes(self) -> tuple[ModuleBox, ...]:
        """The modules."""
        return tuple({id(box): box for box in self.box_of.values()}.values())

    def draw(self) -> GraphPicture:
        """Return the picture."""
        columns = self._choose_columns()
        for number, column in enumerate(columns):
            y = _GAP
            # Each about as high as those on its left that it needs, so that lines are short.
            for box in sorted(column, key=self._average_height):
                box.x, box.y, box.height = _GAP + number * (_COLUMN + _SPACE), y, _HEAD + len(box.nodes) * _ROW + 8
                y += box.height + _GAP
        return GraphPicture(
            boxes=self.boxes,
            rows=self._list_rows(),
            width=_GAP + len(columns) * (_COLUMN + _SPACE),
            height=max(box.y + box.height for box in self.boxes) + _GAP,
        )

    def _list_needed(self, box: ModuleBox) -> list[ModuleBox]:
        return [self.box_of[each] for node in box.nodes for each in self.view.needs[node.id]]

    def _choose_columns(self) -> list[list[ModuleBox]]:
        """Return the modules by column: those that need each other share one, the others are right of their needs."""
        from cdd_agent.tickets.graph import find_components

        numbers = {id(box): number for number, box in enumerate(self.boxes)}
        needs = [{numbers[id(each)] for each in self._list_needed(box)} for box in self.boxes]
        levels = [0] * len(needs)
        for component in find_components(needs):
            others = {each for number in component for each in needs[number]}.difference(component)
            for number in component:
                levels[number] = max((levels[each] + 1 for each in others), default=0)
        columns: list[list[ModuleBox]] = [[] for _ in range(max(levels) + 1)]
        for box, level in zip(self.boxes, levels, strict=True):
            columns[level].append(box)
        return columns

    def _average_height(self, box: ModuleBox) -> float:
        heights = [each.y for each in self._list_needed(box) if each.y]
        return sum(heights) / len(heights) if heights else 0.0

    def _list_rows(self) -> tuple[NodeRow, ...]:
        places: dict[NodeId, tuple[int, int]] = {}
        for box in self.boxes:
            for number, node in enumerate(box.nodes):
                places[node.id] = (box.x, box.y + _HEAD + number * _ROW)
        return tuple(
            NodeRow(
                position=self.view.positions[node.id],
                x=places[node.id][0],
                y=places[node.id][1],
                label=node.name if len(node.name) <= _MOST_LABEL else f"{node.name[: _MOST_LABEL - 1]}…",
                tip=f"{node.name}: {node.docstring.strip().partition(_PARAGRAPH)[0][:_MOST_TIP]}",
                arrows=tuple(_draw_arrow(places[each], places[node.id]) for each in self.view.needs[node.id]),
            )
            for box in self.boxes
            for node in box.nodes
        )


def _draw_arrow(needed: tuple[int, int], node: tuple[int, int]) -> str:
    """Return the path of a line from the needed node to the node that needs it."""
    middle = _ROW // 2
    start = (needed[0] + _COLUMN, needed[1] + middle)
    end = (node[0], node[1] + middle)
    if needed[0] == node[0]:  # in one column: around its right side
        end = (node[0] + _COLUMN, end[1])
        bend = min(24 + abs(end[1] - start[1]) // 6, _SPACE - 10)
        return f"M{start[0]} {start[1]}c{bend} 0 {bend} {end[1] - start[1]} 0 {end[1] - start[1]}"
    bend = max(40, abs(end[0] - start[0]) // 2)
    return f"M{start[0]} {start[1]}C{start[0] + bend} {start[1]} {end[0] - bend} {end[1]} {end[0]} {end[1]}"


def format_page(view: GraphView) -> str:
    """Return the graph as one page of HTML. All texts are escaped, and keys in them masked."""
    from cdd_agent.cli.report import create_environment
    from cdd_agent.tickets.graph import format_import_cycle
    from cdd_agent.untrusted.text import shorten

    environment = create_environment()
    environment.filters["links"] = view.describe_links
    remarks = [str(notice) for notice in view.notices]
    remarks += [format_import_cycle(view.graph, each) for each in view.import_cycles]
    return environment.get_template("graph.html").render(
        view=view,
        title=shorten(str(view.graph.metadata.get("name") or view.layout.package), _MOST_TIP),
        remarks=remarks[:_MOST_NOTICES],
        picture=GraphDrawing.of(view).draw() if len(view.positions) <= _MOST_ROWS else None,
        most_rows=_MOST_ROWS,
        most_path=_MOST_LABEL,
    )
