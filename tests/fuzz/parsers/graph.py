"""A planning graph: a graph or ``DocumentError``; one without problems is written and read back, and has an order."""

from random import Random

from cdd_agent.errors import DocumentError
from cdd_agent.generation.layout import Layout
from cdd_agent.model.conversation import JSON
from cdd_agent.tickets.graph import find_closure, order_subgraphs
from cdd_agent.tickets.graph_file import encode_graph, parse_graph
from cdd_agent.tickets.graph_problems import find_problems
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_json, bent, nested, pick, text, value
from tests.fuzz.trial import Broken, Target

_IDS = ("a", "b", "c", "d", "", "1", "A", "node_001")
_NAMES = ("load", "Reader.read", "class", "a b", "", "\uff46oo", "x" * 300, "__init__")
_PATHS = (
    "src/a.py",
    "src/a",
    "lib/b.py",
    "../x.py",
    "/x.py",
    "src/json.py",
    "conftest.py",
    "a.py",
    "A.py",
    "",
    ".git/a.py",
)
_TYPES = ("leaf", "composite", "FILE_AUGMENTED", "", "x")
_EDGES = ("call", "DATA_FLOW", "contains", "hierarchy", "ordering", "")


def make(random: Random) -> str:
    """A graph, now and then bent."""
    nodes: list[JSON] = []
    for _ in range(random.randint(0, 5)):
        node: dict[str, JSON] = {"id": pick(random, _IDS), "name": pick(random, _NAMES[:2])}
        node |= {"file_path": pick(random, _PATHS[:3]), "docstring": "Do it.", "node_type": pick(random, _TYPES[:2])}
        if random.random() < 0.4:
            node["dependencies"] = [pick(random, _IDS) for _ in range(random.randint(0, 3))]
        if random.random() < 0.3:
            node["parent"] = pick(random, _IDS)
        if random.random() < 0.3:
            node |= {"name": pick(random, _NAMES), "file_path": pick(random, _PATHS), "docstring": text(random)}
        if random.random() < 0.2:
            key = pick(
                random, ("also", "level", "meta", "node_type", "requirements", "signature", "subgraph_id", "code")
            )
            node[key] = value(random)
        nodes.append(node)
    edges: list[JSON] = [
        {"source": pick(random, _IDS), "target": pick(random, _IDS), "type": pick(random, _EDGES)}
        for _ in range(random.randint(0, 3))
    ]
    written = as_json(random, {"nodes": nodes, "edges": edges, "metadata": {"name": text(random)}})
    if random.random() < 0.02:
        written = written.replace('"Do it."', nested(random, pick(random, ("[", '{"a":')), closing="]"), 1)
    return bent(random, written) if random.random() < 0.3 else written


def read(written: str) -> None:
    """Read a graph and write it; read it back and order it if it has no problems."""
    graph, _ = parse_graph(written, path="graph.json")
    again, _ = parse_graph(encode_graph(graph).decode(), path="graph.json")
    if find_problems(graph, lambda graph: Layout.of(graph, "lib").map_path):
        return
    if again != graph:
        raise Broken("it is not read back as it was")
    order = [id for group in order_subgraphs(graph) for id in group.nodes]
    if len(order) != len(graph.leaves):
        raise Broken("a leaf has no place in the order")
    done = set()
    for id in order:
        done.add(id)
        if not done.issuperset(find_closure(graph, id)):
            raise Broken(f"{id} comes before what it needs")


TARGET = Target(make=make, read=read, allowed=(DocumentError,))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` graphs."""
    return TARGET.run(count, seed)
