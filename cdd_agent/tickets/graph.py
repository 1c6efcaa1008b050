"""A planning graph: the functions, classes and modules of a repository to be generated, and what needs what. Pure.

``graph_problems`` finds what is wrong with a graph; ``graph_file`` reads and writes its JSON.

A composite is complete when everything in it is. A node in a composite also needs what the composite needs. So the
order is found among *vertices*: vertex ``i`` is the completion of node ``i``. A composite has a second one, its
beginning, after which its contents can begin. This keeps the number of arrows linear, where "each function of this
module needs each function of that one" would not be.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NewType, TypeAlias

from cdd_agent.errors import UsageError, join_first

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
    """The nodes that it needs, in the order of the graph, without duplicates; edges are included."""
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
    further: Mapping[str, object] = field(default_factory=dict, hash=False)
    """The author's other keys, which are kept and written again."""
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
    """Kept and written again; docs/reference/graph.md names the keys that have a meaning for cdd."""
    further: Mapping[str, object] = field(default_factory=dict)
    """The author's other keys beside ``nodes`` and ``edges``, which are kept and written again."""

    @cached_property
    def by_id(self) -> Mapping[NodeId, Node]:
        """Id -> node; the last of duplicates."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The nodes that are generated."""
        return tuple(node for node in self.nodes if node.node_type == "leaf")

    @cached_property
    def subgraphs(self) -> Mapping[NodeId, str]:
        """Leaf -> its subgraph.

        A leaf without ``subgraph_id`` is in that of the nearest composite around it which has one, else its parent is
        its subgraph, else its top folder.
        """
        common = _find_common_folder(self)
        return {node.id: _choose_subgraph(self, node, common=common) for node in self.leaves}

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """Position of each node -> the position of the composite around it. A circle of composites is cut."""
        positions = {node.id: position for position, node in enumerate(self.nodes)}
        found = [None if node.parent is None else positions.get(node.parent) for node in self.nodes]
        found = [None if each is None or self.nodes[each].node_type == "leaf" else each for each in found]
        checked = [False] * len(found)
        for start in range(len(found)):
            path: dict[int, None] = {}
            here: int | None = start
            while here is not None and not checked[here] and here not in path:
                path[here] = None
                here = found[here]
            if here is not None and here in path:
                found[here] = None
            for each in path:
                checked[each] = True
        return tuple(found)

    @cached_property
    def composites(self) -> tuple[int, ...]:
        """The positions of the composites. Number ``k`` of them begins at the vertex ``len(nodes) + k``."""
        return tuple(position for position, node in enumerate(self.nodes) if node.node_type == "composite")

    @cached_property
    def vertices(self) -> Sequence[Sequence[int]]:
        """Vertex -> the vertices that it needs.

        Unknown dependencies are left out, and those between a composite and what is in it.
        """
        count, parents = len(self.nodes), self.parents
        positions = {node.id: position for position, node in enumerate(self.nodes)}
        begins = list(range(count))
        for vertex, position in enumerate(self.composites, start=count):
            begins[position] = vertex
        needs: list[list[int]] = [[positions[id] for id in node.dependencies if id in positions] for node in self.nodes]
        needs += [[] for _ in self.composites]
        if not self.composites:
            return needs
        for position, begin in enumerate(begins):
            needed = needs[position]
            if any(begins[each] != each for each in (position, *needed)):
                needed = [
                    each for each in needed if not (self.is_inside(position, each) or self.is_inside(each, position))
                ]
            needs[position] = [begin] if begin != position else []
            needs[begin] += needed
        for position, parent in enumerate(parents):
            if parent is not None:
                needs[begins[position]].append(begins[parent])
                needs[parent].append(position)
        return needs

    @cached_property
    def reversed_vertices(self) -> Sequence[Sequence[int]]:
        """Vertex -> the vertices that need it."""
        return _reverse(self.vertices)

    def is_inside(self, position: int, other: int) -> bool:
        """Return whether the composite at ``other`` contains the node at ``position``, directly or not."""
        if self.nodes[other].node_type == "leaf":
            return False
        parent = self.parents[position]
        while parent is not None and parent != other:
            parent = self.parents[parent]
        return parent is not None


def set_sources(graph: Graph, sources: Mapping[tuple[str, str], str]) -> Graph:
    """Return a graph with other signatures of leaves and code of composites. ``sources``: id and name -> source."""
    return replace(graph, nodes=tuple(_set_source(node, sources) for node in graph.nodes))


def _set_source(node: Node, sources: Mapping[tuple[str, str], str]) -> Node:
    own = sources.get((node.id, node.name))
    if node.node_type == "composite":
        return node if own is None else replace(node, code=own)
    also = tuple(replace(each, signature=sources.get((node.id, each.name), each.signature)) for each in node.also)
    return replace(node, signature=node.signature if own is None else own, also=also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Subgraphs that land together: one, or several that need each other."""

    ids: tuple[str, ...]
    """Sorted."""
    nodes: tuple[NodeId, ...]
    """The leaves in the order in which they are generated."""

    @property
    def name(self) -> str:
        """The subgraphs as a text."""
        return " and ".join(self.ids)


def order_subgraphs(graph: Graph) -> tuple[Group, ...]:
    """Return the subgraphs in the order in which they land, each after those that it needs.

    Ties are decided by the ids, so the order of the file does not matter. Raises ``UsageError`` if nodes need each
    other in a circle.
    """
    names = sorted(set(graph.subgraphs.values()))
    numbers = {name: number for number, name in enumerate(names)}
    # Vertex of the graph -> vertex of the subgraphs: one for each of them, two for each composite.
    places = list(range(len(graph.vertices)))
    for vertex, place in enumerate(_list_composite_vertices(graph), start=len(names)):
        places[place] = vertex
    leaves = [position for position, node in enumerate(graph.nodes) if node.node_type == "leaf"]
    for position in leaves:
        places[position] = numbers[graph.subgraphs[graph.nodes[position].id]]
    arrows: list[set[int]] = [set() for _ in range(len(names) + 2 * len(graph.composites))]
    for place, needs in zip(places, graph.vertices, strict=True):
        arrows[place].update([places[each] for each in needs])
    components = find_components(arrows)
    component_of = [0] * len(arrows)
    for number, component in enumerate(components):
        for each in component:
            component_of[each] = number
    between = [
        {component_of[each] for vertex in component for each in arrows[vertex]} - {number}
        for number, component in enumerate(components)
    ]
    smallest = [min(component) for component in components]
    ordered = _sort(between, [each + 1 if each < len(names) else 0 for each in smallest])
    groups = [sorted(each for each in components[number] if each < len(names)) for number in ordered]
    groups = [group for group in groups if group]
    group_of = {each: number for number, group in enumerate(groups) for each in group}
    ranks = [0] * len(graph.vertices)
    by_rank = sorted(leaves, key=lambda position: (group_of[places[position]], graph.nodes[position].id))
    for rank, position in enumerate(by_rank, start=1):
        ranks[position] = rank
    # The leaves of a later group have higher ranks, and no earlier group waits for them.
    found = _sort(graph.vertices, ranks)
    if len(found) < len(graph.vertices):
        paths = [format_cycle(graph, cycle) for cycle in find_cycles(graph)]
        hint = (
            'remove a dependency of each circle, or make one node of those that need each other: "also" holds the rest'
        )
        raise UsageError(f"Nodes need each other in a circle: {join_first(paths, most=5, separator='; ')}.", hint=hint)
    nodes: list[list[NodeId]] = [[] for _ in groups]
    for vertex in found:
        if ranks[vertex]:
            nodes[group_of[places[vertex]]].append(graph.nodes[vertex].id)
    return tuple(
        Group(ids=tuple(names[each] for each in group), nodes=tuple(members))
        for group, members in zip(groups, nodes, strict=True)
    )


def _list_composite_vertices(graph: Graph) -> tuple[int, ...]:
    return (*graph.composites, *range(len(graph.nodes), len(graph.vertices)))


def find_needs(graph: Graph) -> Mapping[NodeId, tuple[NodeId, ...]]:
    """Return each leaf -> the leaves that it needs directly, in order.

    A composite that it needs, or that a composite around it needs, counts as the leaves in it.
    """
    count = len(graph.nodes)
    found: dict[NodeId, tuple[NodeId, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.node_type == "composite":
            continue
        needed: dict[int, None] = {}
        waiting, seen = list(graph.vertices[position]), set(graph.vertices[position])
        while waiting:
            vertex = waiting.pop()
            if vertex < count and graph.nodes[vertex].node_type == "leaf":
                needed[vertex] = None
                continue
            following = graph.vertices[vertex]
            if vertex < count and len(following) > 1:
                following = following[1:]  # not its beginning, which everything in it needs
            new = [each for each in following if each not in seen]
            seen.update(new)
            waiting += new
        found[node.id] = tuple(graph.nodes[each].id for each in sorted(needed))
    return found


def find_closure(graph: Graph, id: NodeId) -> tuple[NodeId, ...]:
    """Return a node and the leaves that it needs, directly or not; the node first, then in the order of the file."""
    reached = _reach(graph, id, arrows=graph.vertices)
    return (id, *(each for each in reached if each != id))


def find_dependents(graph: Graph, id: NodeId) -> tuple[NodeId, ...]:
    """Return the leaves that need a node, directly or not, in the order of the file, without itself."""
    return tuple(each for each in _reach(graph, id, arrows=graph.reversed_vertices) if each != id)


def find_ends(graph: Graph, ids: Iterable[str]) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
    """Return the entry and exit nodes of subgraphs: those that need no leaf of them, and those that none needs."""
    wanted = set(ids)
    own = [id for id, subgraph in graph.subgraphs.items() if subgraph in wanted]
    inside, needs = set(own), find_needs(graph)
    needed = {each for id in own for each in needs[id]}
    return (tuple(id for id in own if inside.isdisjoint(needs[id])), tuple(id for id in own if id not in needed))


MOST_CYCLES = 100
"""So many cycles are listed; there can be more than anyone can read."""


def find_cycles(graph: Graph) -> tuple[tuple[NodeId, ...], ...]:
    """Return cycles, each beginning with its smallest id. Every dependency on a cycle is in one of those returned.

    Each node of a cycle needs the next one, and the last one needs the first. At most ``MOST_CYCLES`` are returned.
    """
    if len(_sort(graph.vertices, [0] * len(graph.vertices))) == len(graph.vertices):
        return ()
    found: dict[tuple[NodeId, ...], None] = {}
    for component in find_components(graph.vertices):
        for cycle in _list_cycles(graph.vertices, component):
            ids = tuple(graph.nodes[each].id for each in _skip_contents(graph, cycle))
            if ids:
                first = ids.index(min(ids))
                found[ids[first:] + ids[:first]] = None
            if len(found) == MOST_CYCLES:
                return tuple(found)
    return tuple(found)


def format_cycle(graph: Graph, cycle: Sequence[NodeId]) -> str:
    """Return a cycle as a path of names; the id is added to a name that several nodes of it have."""
    names = [graph.by_id[id].name for id in cycle]
    counts = Counter(names)
    texts = [name if counts[name] == 1 else f"{name} ({id})" for name, id in zip(names, cycle, strict=True)]
    if len(texts) > _MOST_NAMES:
        left_out = len(texts) - _MOST_NAMES
        texts[_MOST_NAMES // 2 : -_MOST_NAMES // 2] = [f"... {left_out} more ..."]
    return " -> ".join((*texts, texts[0]))


_MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCycle:
    """Modules that import each other in a circle."""

    modules: tuple[str, ...]
    """Each imports the next one, and the last one imports the first."""
    source: NodeId
    """The node in the last module whose dependency closes the circle."""
    target: NodeId
    """The node in the first module that it needs."""


def format_import_cycle(graph: Graph, cycle: ImportCycle) -> str:
    """Return a circular import as a clause: its modules, and the edge that closes it."""
    source, target = graph.by_id[cycle.source], graph.by_id[cycle.target]
    path = " -> ".join((*cycle.modules, cycle.modules[0]))
    closed = f"{source.name} ({source.id}) needs {target.name} ({target.id})"
    return f"modules import each other in a circle, {path}, closed because {closed}"


def find_import_cycles(graph: Graph, module_of: Callable[[str], str]) -> tuple[ImportCycle, ...]:
    """Return the circular imports that the dependencies between definitions cause. ``module_of``: file path -> module.

    A circle is closed by the dependency of the node that is generated last. Raises as ``order_subgraphs``.
    """
    arrows: dict[str, dict[str, tuple[int, NodeId, NodeId]]] = {}
    ordered = [graph.by_id[id] for group in order_subgraphs(graph) for id in group.nodes]
    for position, node in enumerate(ordered):
        targets = [graph.by_id[id] for id in node.dependencies if graph.by_id[id].node_type == "leaf"]
        for module in {module_of(each.file_path) for each in node.definitions}:
            for target in targets:
                for other in {module_of(each.file_path) for each in target.definitions} - {module}:
                    arrows.setdefault(module, {}).setdefault(other, (position, node.id, target.id))
                    arrows.setdefault(other, {})
    modules = sorted(arrows)
    numbers = {module: number for number, module in enumerate(modules)}
    imports = [[numbers[other] for other in sorted(arrows[module])] for module in modules]
    found: dict[tuple[str, ...], ImportCycle] = {}
    for component in find_components(imports):
        for cycle in _list_cycles(imports, component):
            names = [modules[each] for each in cycle]
            edges = [arrows[name][names[(at + 1) % len(names)]] for at, name in enumerate(names)]
            last = max(range(len(edges)), key=lambda at: edges[at])
            modules_in_turn = tuple(names[last + 1 :] + names[: last + 1])
            found[modules_in_turn] = ImportCycle(modules=modules_in_turn, source=edges[last][1], target=edges[last][2])
            if len(found) == MOST_CYCLES:
                return tuple(found.values())
    return tuple(found.values())


def find_components(needs: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the strongly connected components (Tarjan), each after those that it needs."""
    numbers, lowest, count = [0] * len(needs), [0] * len(needs), 0
    path: list[int] = []
    is_on_path = [False] * len(needs)
    components: list[list[int]] = []
    for start in range(len(needs)):
        if numbers[start]:
            continue
        calls: list[tuple[int, Iterator[int]]] = [(start, iter(needs[start]))]
        while calls:
            vertex, rest = calls[-1]
            if not numbers[vertex]:
                count += 1
                numbers[vertex] = lowest[vertex] = count
                path.append(vertex)
                is_on_path[vertex] = True
            for other in rest:
                if not numbers[other]:
                    calls.append((other, iter(needs[other])))
                    break
                if is_on_path[other] and numbers[other] < lowest[vertex]:
                    lowest[vertex] = numbers[other]
            else:
                calls.pop()
                if calls and lowest[vertex] < lowest[calls[-1][0]]:
                    lowest[calls[-1][0]] = lowest[vertex]
                if lowest[vertex] == numbers[vertex]:
                    component: list[int] = []
                    while not component or component[-1] != vertex:
                        component.append(path.pop())
                        is_on_path[component[-1]] = False
                    components.append(component)
    return components


def _sort(needs: Sequence[Collection[int]], ranks: Sequence[int]) -> list[int]:
    """Return the vertices, each after those that it needs (Kahn), of those that could follow the one of lowest rank.

    Vertices that are part of a cycle, or need one that is, are missing.
    """
    size = len(needs)
    dependents = _reverse(needs)
    waiting = [len(each) for each in needs]
    ready = [ranks[vertex] * size + vertex for vertex in range(size) if not waiting[vertex]]
    heapq.heapify(ready)
    found = []
    while ready:
        vertex = heapq.heappop(ready) % size
        found.append(vertex)
        for each in dependents[vertex]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, ranks[each] * size + each)
    return found


def _reverse(needs: Sequence[Collection[int]]) -> list[list[int]]:
    dependents: list[list[int]] = [[] for _ in needs]
    for vertex, needed in enumerate(needs):
        for each in needed:
            dependents[each].append(vertex)
    return dependents


def _reach(graph: Graph, id: NodeId, *, arrows: Sequence[Sequence[int]]) -> Iterator[NodeId]:
    start = next(position for position, node in enumerate(graph.nodes) if node.id == id)
    reached, waiting = {start}, [start]
    while waiting:
        new = [each for each in arrows[waiting.pop()] if each not in reached]
        reached.update(new)
        waiting += new
    positions = sorted(each for each in reached if each < len(graph.nodes))
    return (graph.nodes[each].id for each in positions if graph.nodes[each].node_type == "leaf")


def _list_cycles(needs: Sequence[Collection[int]], component: list[int]) -> Iterator[list[int]]:
    """Yield cycles so that each arrow inside a component is in one of them."""
    members = set(component)
    covered: set[tuple[int, int]] = set()
    for vertex in sorted(component):
        for other in needs[vertex]:
            if other in members and (vertex, other) not in covered:
                cycle = [vertex, *_find_path(needs, other, to=vertex, members=members)][:-1]
                covered.update(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
                yield cycle


def _find_path(needs: Sequence[Collection[int]], start: int, *, to: int, members: set[int]) -> list[int]:
    """Return a shortest path from ``start``, with both ends."""
    came_from = {start: start}
    level = [start]
    while to not in came_from:
        following = []
        for vertex in level:
            for other in needs[vertex]:
                if other in members and other not in came_from:
                    came_from[other] = vertex
                    following.append(other)
        level = following
    path = [to]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def _skip_contents(graph: Graph, cycle: list[int]) -> list[int]:
    """Return the positions of a cycle of vertices, without what lies between the completion and beginning of a node."""
    count = len(graph.nodes)
    # A rotation that does not begin within a composite.
    start = next((at for at, vertex in enumerate(cycle) if vertex < count and cycle[at - 1] >= count), 0)
    found: dict[int, None] = {}
    for vertex in (*cycle[start:], *cycle[:start]):
        position = vertex if vertex < count else graph.composites[vertex - count]
        if vertex >= count and position in found:
            while next(reversed(found)) != position:
                found.popitem()
        found[position] = None
    return list(found)


def _find_common_folder(graph: Graph) -> str:
    """Return the folder with a slash in which all files are, below ``src`` if it is there."""
    tops = {_drop_sources(node.file_path).partition("/")[0] for node in graph.leaves}
    is_common = len(tops) == 1 and all("/" in _drop_sources(node.file_path) for node in graph.leaves)
    return f"{tops.pop()}/" if is_common else ""


def _choose_subgraph(graph: Graph, node: Node, *, common: str) -> str:
    if node.subgraph_id:
        return node.subgraph_id
    around = node.parent
    seen = {node.id}
    while around is not None and around not in seen and around in graph.by_id:
        seen.add(around)
        if graph.by_id[around].subgraph_id:
            return graph.by_id[around].subgraph_id
        around = graph.by_id[around].parent
    if node.parent is not None:
        return node.parent
    folder, slash, _ = _drop_sources(node.file_path).removeprefix(common).partition("/")
    return folder if slash else common.removesuffix("/") or "main"


def _drop_sources(path: str) -> str:
    return path.removeprefix("./").removeprefix("src/")
