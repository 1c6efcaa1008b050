"""The Architect drafts a planning graph from a description, and answers what a graph leaves open.

A draft is accepted only if it has no problems. Otherwise the model gets the list of problems and changes the draft,
node by node: a whole graph could be longer than one answer may be.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from cdd_agent.agent.loop import AgentRun
from cdd_agent.agent.tools import ToolOutput, define_tool
from cdd_agent.conversation.dialog import Dialog
from cdd_agent.errors import GateClosed, UsageError, format_count
from cdd_agent.events import GraphDrafted
from cdd_agent.model.conversation import Marks
from cdd_agent.tickets.graph import Definition, Graph, Node, NodeId, set_sources
from cdd_agent.tickets.graph_file import encode_node
from cdd_agent.tickets.graph_problems import MOST_LISTED, GraphProblem
from cdd_agent.untrusted.keys import redact_keys

AGENT = "architect"
MOST_DRAFTED = 2_000
"""Nodes of a draft."""
_MOST_ASKED = 200
"""Questions in one request."""

FindProblems: TypeAlias = Callable[[Graph], Sequence[GraphProblem]]
Show: TypeAlias = Callable[[Graph], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDefinition:
    """A definition that is written with another one, because they need each other."""

    name: str
    docstring: str
    signature: str
    file_path: Annotated[str, Meta(description="Empty: that of its node")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNode:
    """A function or class to be written, or a module or package about which there is something to say."""

    id: Annotated[str, Meta(description="Unique, such as stats.mean", min_length=1)]
    name: Annotated[str, Meta(description="The name in its module, such as mean")]
    file_path: Annotated[str, Meta(description="The module, such as src/stats/descriptive.py")]
    docstring: str
    signature: Annotated[str, Meta(description="Python source without bodies, as in a stub file")] = ""
    type: Literal["function", "class", "module", "package"] = "function"
    node_type: Literal["leaf", "composite"] = "leaf"
    dependencies: Annotated[tuple[str, ...], Meta(description="The ids of the nodes that it needs")] = ()
    subgraph_id: Annotated[str, Meta(description="The part of the library that is delivered as one")] = ""
    parent: Annotated[str, Meta(description="The id of the composite that contains it, if there is one")] = ""
    also: Annotated[tuple[DraftDefinition, ...], Meta(description="Definitions that need it, and that it needs")] = ()
    example: str = ""
    requirements: Annotated[tuple[str, ...], Meta(description="Distributions, as in requirements.txt")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDraft:
    """Add nodes to the draft; one with the id of an earlier node replaces it.

    With is_complete, the draft is checked. Without problems it ends your turn; else they are listed.
    """

    is_complete: Annotated[bool, Meta(description="false: more nodes follow in the next call")]
    nodes: tuple[DraftNode, ...] = ()
    remove: Annotated[tuple[str, ...], Meta(description="The ids of nodes to take out of the draft")] = ()
    name: Annotated[str, Meta(description="The name of the library; empty: as before")] = ""
    package: Annotated[str, Meta(description="The name under which it is imported; empty: as before")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAnswer:
    """What one question asks for."""

    id: Annotated[str, Meta(description="The id of the node")]
    name: Annotated[str, Meta(description="The name of the definition, as in the question")]
    source: Annotated[str, Meta(description="Its signature, as in a stub file; of a module, its code")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAnswers:
    """Answer the questions, all of them in one call."""

    answers: tuple[SourceAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryDescription:
    """A description of a library."""

    text: str
    source: str
    """Where the text is from, such as the name of a file."""
    start: Graph | None = None
    """A graph that is not complete yet."""
    gaps: tuple[str, ...] = ()
    """The parts that ``start`` lacks."""


class Architect:
    """One conversation about one graph."""

    def __init__(self, *, dialog: Dialog, max_drafts: int) -> None:
        """Start a conversation without calling the model."""
        self.dialog = dialog
        self.conversation = dialog.start()
        self.nodes: dict[NodeId, Node] = {}
        """The draft, which outlives its refusal."""
        self.metadata: dict[str, object] = {}
        self._max_drafts = max_drafts
        self._drafts: list[tuple[str, ...]] = []
        self._end: Literal["accepted", "declined"] | None = None

    @property
    def graph(self) -> Graph:
        """The draft so far."""
        return Graph(nodes=tuple(self.nodes.values()), metadata=self.metadata)

    def draft(self, description: LibraryDescription, *, find_problems: FindProblems, show: Show) -> Graph | None:
        """Return a graph without problems to which the developer agrees; None if they decline it without a reason.

        ``show`` shows it to them before they are asked. Raises ``GateClosed`` with the problems of the last draft.
        """
        self.dialog.model.check()
        if description.start is not None:
            self.nodes = {node.id: node for node in description.start.nodes}
            self.metadata = dict(description.start.metadata)
        marks = Marks(self.conversation.token)
        parts = [f"The description of the library:\n\n{marks.wrap(description.text, source=description.source)}"]
        if self.nodes:
            rows = _format_nodes(self.nodes.values())
            parts.append(f"The draft so far, made of its words:\n\n{marks.wrap(rows, source='draft')}")
        if description.gaps:
            gaps = "\n".join(f"- {gap}" for gap in description.gaps)
            parts.append(f"Its gaps:\n\n{marks.wrap(gaps, source='gaps of the draft')}")
        self.conversation.say("\n\n".join((*parts, "Write the graph.")))
        tool = define_tool(
            "WriteGraph",
            GraphDraft,
            run=lambda draft: self._submit(draft, find_problems=find_problems, show=show),
            subject=lambda draft: format_count(len(draft.nodes), "node"),
        )
        run = self.dialog.ask(self.conversation, tool)
        if self._end == "declined":
            return None
        if self._end is None:
            raise self._make_error(run)
        return self.graph

    def _submit(self, draft: GraphDraft, *, find_problems: FindProblems, show: Show) -> ToolOutput:
        unknown = [id for id in draft.remove if id not in self.nodes]
        if unknown:
            raise UsageError(f"The draft has no node {unknown[0]!r} to remove.", hint=_list_ids(self.nodes))
        for id in draft.remove:
            del self.nodes[NodeId(id)]
        self.nodes |= {NodeId(each.id): _make_node(each) for each in draft.nodes}
        self.metadata |= {key: value for key in ("name", "package") if (value := getattr(draft, key))}
        count = format_count(len(self.nodes), "node")
        if len(self.nodes) > MOST_DRAFTED:
            raise UsageError(f"The draft has {count}; {MOST_DRAFTED} are allowed.", hint="plan larger nodes")
        if not draft.is_complete:
            return ToolOutput(text=f"The draft has {count} now. Submit the next ones.")
        problems = tuple(map(str, find_problems(self.graph)))
        self._drafts.append(problems)
        number, refused = len(self._drafts), sum(map(bool, self._drafts))
        self.dialog.emit(GraphDrafted(number=number, nodes=len(self.nodes), problems=problems[:MOST_LISTED]))
        if problems:
            rows = "\n".join(f"- {problem}" for problem in problems[:MOST_LISTED])
            more = len(problems) - MOST_LISTED
            rows += f"\n- and {format_count(more, 'more problem')}" if more > 0 else ""
            return ToolOutput(text=f"Draft {number} was refused:\n{rows}", ends_run=refused >= self._max_drafts)
        return self._propose(show)

    def _propose(self, show: Show) -> ToolOutput:
        show(self.graph)
        objection = self.dialog.objection() if self.dialog.objection is not None else None
        if objection:
            text = f"Not saved, because the developer wants changes: {objection}\nSubmit the nodes that change."
            return ToolOutput(text=text)
        self._end = "accepted" if objection is None else "declined"
        return ToolOutput(text="Saved." if objection is None else "The developer declined the graph.", ends_run=True)

    def _make_error(self, run: AgentRun) -> GateClosed:
        last = self._drafts[-1] if self._drafts else ()
        problems = "".join(f"\n  {problem}" for problem in last[:MOST_LISTED])
        answer = f" It said: {redact_keys(run.text.strip())}" if run.text.strip() and not problems else ""
        count = format_count(len(self._drafts), "draft") if self._drafts else "no complete draft"
        happened = f"No graph was accepted: the Architect submitted {count}.{problems}{answer}"
        return GateClosed(happened, hint="add details to the description, or raise max_drafts in .cdd/config.yaml")

    def answer(self, graph: Graph, *, find_open: FindProblems) -> Graph:
        """Return the graph with signatures for the definitions that ``find_open`` lists, as far as the answers fit."""
        asked = find_open(graph)[:_MOST_ASKED]
        if not asked:
            return graph
        self.dialog.model.check()
        found = [graph]
        marks = Marks(self.conversation.token)
        rows = "\n".join(f"- {each.node}, {each.name}: {each.message}" for each in asked)
        nodes = _format_nodes(graph.by_id[NodeId(id)] for id in dict.fromkeys(each.node for each in asked))
        self.conversation.say(
            f"These nodes of a planning graph:\n\n{marks.wrap(nodes, source='nodes')}\n\nleave open:\n\n"
            f"{marks.wrap(rows, source='questions')}\n\nAnswer with AnswerQuestions. Each signature has to fit the "
            "docstring: its parameters in their order, types that the docstring supports, and all methods of a class."
        )

        def run(given: GraphAnswers) -> ToolOutput:
            wanted = {(each.node, each.name) for each in asked}
            answers = {(each.id, each.name): each.source for each in given.answers if (each.id, each.name) in wanted}
            left = [each for each in find_open(set_sources(found[-1], answers)) if (each.node, each.name) in wanted]
            unsound = {(each.node, each.name) for each in left}
            found.append(set_sources(found[-1], {key: source for key, source in answers.items() if key not in unsound}))
            rows = "".join(f"\n- {each.node}, {each.name}: {each.message}" for each in left)
            is_last = not left or len(found) > self._max_drafts
            return ToolOutput(text=f"Still open:{rows}" if left else "Thank you.", ends_run=is_last)

        tool = define_tool(
            "AnswerQuestions", GraphAnswers, run=run, subject=lambda given: format_count(len(given.answers), "answer")
        )
        self.dialog.ask(self.conversation, tool)
        return found[-1]


def _make_node(draft: DraftNode) -> Node:
    return Node(
        id=NodeId(draft.id),
        name=draft.name,
        type=draft.type,
        node_type=draft.node_type,
        file_path=draft.file_path,
        docstring=draft.docstring,
        signature=draft.signature,
        also=tuple(
            Definition(
                name=each.name,
                file_path=each.file_path or draft.file_path,
                docstring=each.docstring,
                signature=each.signature,
            )
            for each in draft.also
        ),
        dependencies=tuple(NodeId(id) for id in dict.fromkeys(draft.dependencies)),
        subgraph_id=draft.subgraph_id,
        parent=NodeId(draft.parent) if draft.parent else None,
        example=draft.example,
        requirements=draft.requirements,
        place=f"nodes[{draft.id}]",
    )


def _format_nodes(nodes: Iterable[Node]) -> str:
    return "\n".join(json.dumps(encode_node(node), ensure_ascii=False) for node in nodes)


def _list_ids(nodes: Iterable[str]) -> str:
    return f"its ids are {', '.join(list(nodes)[:MOST_LISTED])}"
