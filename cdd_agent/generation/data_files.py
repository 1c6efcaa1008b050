"""The files of a package that no node writes: templates, tables, type markers. They are beside its graph.

A graph lists them in its metadata as ``data``, and the folder ``NAME.data`` beside ``NAME.json`` holds them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.errors import UsageError, format_size
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.package_files import PackageFiles
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tickets.graph import Graph
from cdd_agent.untrusted.paths import explain_protection

MOST_BYTES = 200_000_000
"""Of all files together."""


def find_data_folder(graph: Path) -> Path:
    """Return the folder of the data of a graph's file.

    >>> str(find_data_folder(Path("plans/stats.json")))
    'plans/stats.data'
    """
    return graph.with_suffix(".data")


def copy_data(graph: Graph, package: PackageFiles, *, to: Path) -> int:
    """Copy the data of a package to a folder, and return the number of files; raises ``UsageError``."""
    number, left = 0, MOST_BYTES
    for path in _list_data(graph):
        content = _read(package.place / path.removeprefix(f"{SOURCES}/"), limit_bytes=left)
        left -= len(content)
        try:
            write_atomic(to / path, content)
        except OSError as error:
            happened = f"{to / path} cannot be written: {error.strerror or error}."
            raise UsageError(happened, hint="give the graph another name: --out FILE.json") from error
        number += 1
    return number


def read_data(graph: Graph, layout: Layout, *, folder: Path) -> dict[str, bytes]:
    """Return path in the repository -> content of the data that a graph lists and ``folder`` holds.

    Raises ``UsageError`` for a path outside of the package, and for what cannot be read.
    """
    found, left, modules = dict[str, bytes](), MOST_BYTES, {real for _, real in layout.rows}
    for path in _list_data(graph):
        why = "is the module of a node" if path in modules else ""
        if not _is_inside(path, f"{SOURCES}/{layout.package}/"):
            why = f"is not in the package {layout.package}"
        if why:
            hint = "correct `data` in the metadata of the graph"
            raise UsageError(f"The graph lists the data {path!r:.200}, which {why}.", hint=hint)
        place = folder / path
        if not os.path.lexists(place):
            continue
        if any(each.is_symlink() for each in (place, *place.parents) if each.is_relative_to(folder)):
            raise UsageError(f"{place} is a link, or in a folder that is one.", hint="copy the file there")
        found[path] = _read(place, limit_bytes=left)
        left -= len(found[path])
    return found


def _is_inside(path: str, folder: str) -> bool:
    is_plain = path.isprintable() and "\\" not in path and not {"", ".", ".."}.intersection(path.split("/"))
    return path.startswith(folder) and is_plain and explain_protection(path) is None


def _list_data(graph: Graph) -> Iterator[str]:
    listed = graph.metadata.get("data", ())
    if isinstance(listed, list | tuple):
        yield from (path for path in listed if isinstance(path, str))


def _read(path: Path, *, limit_bytes: int) -> bytes:
    try:
        return read_ordinary(path, limit_bytes=limit_bytes)
    except OSError as error:
        hint = f"all data together may have {format_size(MOST_BYTES)}"
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint=hint) from error
