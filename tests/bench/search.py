"""How often a search of a planning graph finds the function that is meant, with and without the extra ``semantic``."""

import inspect
import itertools
import statistics
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from cdd_agent.generation.embedding import find_embedder
from cdd_agent.generation.search import Embedder, GraphSearch
from cdd_agent.tickets.graph import Graph
from cdd_agent.tickets.graph_file import read_graph
from tests.bench.bars import Bars
from tests.bench.queries import FIRST, SECOND
from tests.fakes.graphs import leaf, make_graph
from tests.fakes.program import EXAMPLES

BARS = {False: (17 / 32, 22 / 32), True: (22 / 32, 28 / 32)}
"""Whether meanings are compared -> the least share of queries whose answer is the first, and among the first five."""
_OTHERS = ("shutil", "heapq", "bisect", "functools", "difflib", "fnmatch", "base64", "calendar", "html")


def make_corpora() -> dict[str, Graph]:
    """Return name -> graph; those of modules have the docstrings of this interpreter."""
    return {
        "standard library": _make_graph((statistics, itertools, textwrap)),
        "ml-library": read_graph(EXAMPLES / "ml-library" / "graph.json")[0],
        "other modules": _make_graph(map(import_module, _OTHERS)),
    }


def _make_graph(modules: Iterable[ModuleType]) -> Graph:
    found = {}
    for module in modules:
        for name in getattr(module, "__all__", None) or vars(module):
            value = getattr(module, name)
            is_own = hasattr(module, "__all__") or getattr(value, "__module__", "").lstrip("_") == module.__name__
            is_error = isinstance(value, type) and issubclass(value, Exception)
            if callable(value) and is_own and not is_error and not name.startswith("_"):
                found[name] = leaf(name, f"src/{module.__name__}.py", docstring=inspect.getdoc(value) or name)
    return make_graph(*found.values())


def count_answers(embedder: Embedder | None, *, show: Callable[[str], None]) -> tuple[int, int, int]:
    """Return the number of queries, and of those whose answer is the first, and among the first five."""
    corpora = {name: GraphSearch(graph, embedder=embedder) for name, graph in make_corpora().items()}
    graphs = make_corpora()
    total, first, among = 0, 0, 0
    for title, queries in (("written before the synonyms", FIRST), ("written after them", SECOND)):
        for corpus, answers in queries.items():
            ranks = []
            for query, right in answers.items():
                found = [graphs[corpus].by_id[each.node].name for each in corpora[corpus].find(query)[:5]]
                ranks.append(next((rank for rank, name in enumerate(found) if name in right.split()), None))
            hits = (ranks.count(0), len(ranks) - ranks.count(None))
            show(f"  {title}, {corpus}: {hits[0]} first, {hits[1]} in the first five of {len(ranks)}")
            total, first, among = total + len(ranks), first + hits[0], among + hits[1]
    return total, first, among


def show() -> bool:
    """Print the figures and the bars; return whether they are kept."""
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        model = find_embedder(Path(name))
        for embedder in (None, *((model,) if model is not None else ())):
            print(f"\nsearch: words{' and meaning' if embedder is not None else ' alone'}")
            total, first, among = count_answers(embedder, show=print)
            least = BARS[embedder is not None]
            bars.at_least(f"{first} of {total} answers are the first", first / total, limit=round(least[0], 2))
            bars.at_least(f"{among} of {total} are in the first five", among / total, limit=round(least[1], 2))
    if model is None:
        print("\nsearch: meaning is not measured, because the extra `semantic` is not installed")
    return bars.are_kept
