"""A planning graph: the functions, classes and modules of a repository to be generated, and what needs what. Pure.

``graph_file`` reads and writes the JSON of a graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NewType, TypeAlias

NodeId = NewType("NodeId", str)
"""The id of a node, unique in its graph."""
NodeType: TypeAlias = Literal["leaf", "composite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One function or class in one file."""

    name: str
    """The qualified name in its module, such as ``Reader.read``."""
    file_path: str
    """Relative to the graph's root, as the graph has it."""
    docstring: str
    signature: str = ""
    """Python source without bodies, as in a stub file; several statements for overloads, properties and twins under
    an ``if``. Empty if the graph leaves it to the docstring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A definition to be generated, or a module or package that contains some."""

    id: NodeId
    name: str
    """As in ``Definition`` for a leaf; the module's or package's own name for a composite."""
    type: str
    """The author's word: function, class, method, module, package ..."""
    node_type: NodeType
    file_path: str
    docstring: str
    signature: str = ""
    """As in ``Definition``."""
    also: tuple[Definition, ...] = ()
    """Further definitions of a leaf, which are written with it because they need each other."""
    dependencies: tuple[NodeId, ...] = ()
    """What the node needs, in the order of the graph, without duplicates; edges are included."""
    subgraph_id: str = ""
    parent: NodeId | None = None
    """The composite that contains it."""
    example: str = ""
    """An example of its use."""
    requirements: tuple[str, ...] = ()
    """The distributions that it needs, as in requirements.txt."""
    code: str = ""
    """Module-level code of a composite with a file. A line ``# node: NAME`` marks the place of a definition; the
    others follow at the end."""
    place: str = field(default="", compare=False)
    """Where the file has it, such as ``$.nodes[3]``; empty in a graph made in code."""

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """All definitions of a leaf, its own first; none for a composite."""
        if self.node_type == "composite":
            return ()
        own = Definition(name=self.name, file_path=self.file_path, docstring=self.docstring, signature=self.signature)
        return (own, *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``source`` needs ``target``, or contains it if ``type`` says so."""

    source: NodeId
    target: NodeId
    type: str
    """The author's word, such as ``function_call``."""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A planning graph with normalized edges: every node's ``dependencies`` say what it needs."""

    nodes: tuple[Node, ...]
    """In the order of the file."""
    edges: tuple[Edge, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Kept and written again; ``name``, ``package``, ``nl_spec_path``, ``requirements`` have a meaning for cdd."""

    @cached_property
    def by_id(self) -> Mapping[NodeId, Node]:
        """Id -> node; the last of duplicates."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The nodes that are generated."""
        return tuple(node for node in self.nodes if node.node_type == "leaf")
