"""Parses sources with the project's interpreter, and runs none of them.

``testrun/foreign.py`` runs a copy of this file, which is Python 3.8, and reads the result. The tree of a source is a
flat list of nodes, because nested JSON would be as deep as the source.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

MOST_NODES = 300_000
NODE, LIST, CONSTANT = range(3)
"""The first item of the list that stands for a value other than a name, a number or None."""


def main() -> None:
    """Parse the files of one folder; write one line about each, in the order of their names."""
    sources, result, needs_trees = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "trees"
    warnings.simplefilter("ignore")
    lines = [json.dumps(parse(path.read_bytes(), needs_tree=needs_trees)) for path in sorted(sources.iterdir())]
    result.write_text("\n".join(lines), encoding="ascii")


def parse(content: bytes, *, needs_tree: bool) -> dict[str, object]:
    """Return the nodes and the comments of a source, or why there are none."""
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        shown = f": {error.text.strip()}" if error.text else ""
        return {"error": f"line {error.lineno}: {error.msg}{shown}"}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}
    if not needs_tree:
        return {}
    nodes: list[ast.AST] = [tree]
    rows: list[object] = []
    for node in nodes:  # grows meanwhile
        fields = {name: _encode(node, name, nodes=nodes) for name in (*node._fields, *node._attributes)}
        rows.append([type(node).__name__, type(node).__mro__[1].__name__, fields])
        if len(nodes) > MOST_NODES:
            return {"error": "it is too long"}
    return {"nodes": rows, "comments": [*_find_comments(content)]}


def _encode(node: ast.AST, name: str, *, nodes: list[ast.AST]) -> object:
    value: object = getattr(node, name, None)
    if name == "value" and type(node).__name__ in ("Constant", "MatchSingleton"):
        return [CONSTANT, type(value).__name__, hex(value) if type(value) is int else repr(value)]
    return _encode_value(value, nodes)


def _encode_value(value: object, nodes: list[ast.AST]) -> object:
    if isinstance(value, ast.AST):
        nodes.append(value)
        return [NODE, len(nodes) - 1]
    if isinstance(value, list):
        return [LIST, [_encode_value(each, nodes) for each in value]]
    return value if value is None or isinstance(value, (str, int)) else repr(value)


def _find_comments(content: bytes) -> Iterator[tuple[int, int]]:
    try:
        for token in tokenize.tokenize(io.BytesIO(content).readline):
            if token.type == tokenize.COMMENT:
                yield token.start
    except (tokenize.TokenError, SyntaxError):
        return


if __name__ == "__main__":
    main()
