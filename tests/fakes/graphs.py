"""Planning graphs in few words."""

from cdd_agent.tickets.graph import Graph, Node, NodeId


def leaf(name: str, path: str = "src/app/m.py", *needs: str, id: str = "", **more: str) -> Node:
    """Return a leaf with its name as its id; a name with a capital is a class."""
    last = name.rpartition(".")[2]
    fields = {"type": "class" if last[:1].isupper() else "function", "docstring": f"Do {name}.", **more}
    dependencies = tuple(map(NodeId, needs))
    return Node(
        id=NodeId(id or name),
        name=name,
        node_type="leaf",
        file_path=path,
        dependencies=dependencies,
        type=fields["type"],
        docstring=fields["docstring"],
        signature=fields.get("signature", ""),
    )


def composite(name: str, path: str = "src/app/m.py", *, code: str = "", type: str = "module", **more: str) -> Node:
    """Return a composite; its id has an ``@``, so that it differs from a leaf's."""
    return Node(
        id=NodeId(f"@{name}"),
        name=name,
        type=type,
        node_type="composite",
        file_path=path,
        code=code,
        docstring=more.get("docstring", ""),
        signature=more.get("signature", ""),
    )


def make_graph(*nodes: Node, **metadata: object) -> Graph:
    """Return a graph."""
    return Graph(nodes=nodes, metadata=metadata)
