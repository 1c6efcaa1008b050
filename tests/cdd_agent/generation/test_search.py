"""Search over a planning graph."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cdd_agent.generation.search import MOST, MOST_EQUAL, GraphSearch, load_synonyms, split_words, stem_word
from tests.fakes.graphs import composite, leaf, make_graph

MEAN = leaf("calculate_mean", "src/app/stats.py", docstring="Return the arithmetic mean of numbers.")
CHECK = leaf("validate_input", "src/app/checks.py", docstring="Raise ValueError unless all values are numbers.")
LOAD = leaf("load_table", "src/app/files.py", docstring="Return the rows of a CSV file.")
DROP = leaf("remove_rows", "src/app/files.py", docstring="Return a table without some of its rows.")
STATS = (MEAN, CHECK, LOAD, DROP)


class ScriptedEmbedder:
    """An embedder that knows one text."""

    def __init__(self, word: str, *, is_busy: bool = False) -> None:
        self.word, self.is_busy = word, is_busy

    def compare(self, query: str, texts: Sequence[str]) -> Sequence[float] | None:
        return None if self.is_busy else [0.9 if self.word in text else 0.05 for text in texts]


def find(query: str, *, search: GraphSearch | None = None) -> list[str]:
    return [match.node for match in (search or GraphSearch(make_graph(*STATS))).find(query)]


@pytest.mark.parametrize(
    "query", ["calculate mean", "calculate_mean", "calculateMean", "`calculate_mean`", "Calculates the means"]
)
def test_fuzzy_search_exact_match(query: str) -> None:
    found = GraphSearch(make_graph(*STATS)).find(query)
    assert found[0].node == "calculate_mean"
    assert found[0].is_exact == ("Calculates" not in query)


@pytest.mark.parametrize(
    ("query", "node"),
    [
        ("average", "calculate_mean"),
        ("where is the average computed", "calculate_mean"),
        ("find validation logic", "validate_input"),
        ("verify the arguments", "validate_input"),
        ("parse a spreadsheet from disk", "load_table"),
        ("delete records", "remove_rows"),
        ("calcualte", "calculate_mean"),
        ("validaet", "validate_input"),
    ],
)
def test_fuzzy_search_semantic(query: str, node: str) -> None:
    assert find(query)[0] == node


def test_a_name_in_a_sentence_comes_first_and_a_plain_word_in_it_does_not() -> None:
    method = leaf("Table.mean", "src/app/table.py", docstring="Return the mean of each column.")
    search = GraphSearch(make_graph(*STATS, method, leaf("mean", docstring="Return the middle.")))
    assert [match.node for match in search.find("who calls Table.mean with nan") if match.is_exact] == ["Table.mean"]
    assert [match.node for match in search.find("Table/mean") if match.is_exact] == ["Table.mean"]
    assert not any(match.is_exact for match in search.find("the mean of each row"))
    assert {match.node for match in search.find("mean") if match.is_exact} == {"Table.mean", "mean"}


def test_matched_words_are_those_of_the_node() -> None:
    found = GraphSearch(make_graph(*STATS)).find("averages of a number")
    assert found[0].words == ("mean", "numbers")


def test_equal_scores_are_all_shown_in_the_order_of_their_ids() -> None:
    nodes = [leaf("parse", f"src/app/{name}.py", id=name) for name in "zyxwvuts"]
    found = GraphSearch(make_graph(*nodes)).find("parsing")
    assert [match.node for match in found] == list("stuvwxyz")
    assert len({match.score for match in found}) == 1
    many = [leaf("parse", f"src/app/m{number}.py", id=f"{number:03}") for number in range(100)]
    assert len(GraphSearch(make_graph(*many)).find("parsing")) == MOST_EQUAL


def test_at_most_five_are_shown_if_scores_differ() -> None:
    nodes = [leaf(f"parse_{'very_' * number}long", id=str(number)) for number in range(9)]
    assert len(GraphSearch(make_graph(*nodes)).find("parse something long")) == MOST


def test_a_subgraph_limits_the_results() -> None:
    graph = make_graph(replace(MEAN, subgraph_id="a"), replace(LOAD, subgraph_id="b"))
    search = GraphSearch(graph)
    assert search.find("average", subgraph="b") == ()
    assert [match.node for match in search.find("calculate_mean", subgraph="a")] == ["calculate_mean"]
    assert [match.node for match in search.find("average")] == ["calculate_mean"]


def test_a_word_inside_a_name_an_abbreviation_and_the_module_are_found() -> None:
    module = composite("lines", "src/app/lines.py", docstring="Straight lines through points.")
    nodes = (
        leaf("islice", docstring="Return some items."),
        leaf("mean_absolute_error", docstring="Return how far numbers are off."),
        replace(leaf("fit", "src/app/lines.py"), parent=module.id),
    )
    search = GraphSearch(make_graph(module, *nodes))
    assert [find(query, search=search)[0] for query in ("slice", "MAE", "straight line")] == [
        "islice",
        "mean_absolute_error",
        "fit",
    ]


@pytest.mark.parametrize("query", ["", "  ", "\0", "of the", "?!", "q" * 100_000, "é" * 500, "_", "a" * 40 + "." * 400])
def test_a_query_that_says_nothing_finds_nothing(query: str) -> None:
    assert find(query) == []
    assert GraphSearch(make_graph()).find(query) == ()


def test_hostile_docstrings_are_read_within_bounds() -> None:
    nodes = [leaf("f" * 20_000, docstring="x" * 1_000_000), leaf("g", docstring="\x1b[31m \u202e mean"), *STATS]
    began = time.process_time()
    assert "calculate_mean" in find("mean", search=GraphSearch(make_graph(*nodes)))
    assert time.process_time() - began < 1


def test_with_an_embedder_the_meaning_counts_more_than_words() -> None:
    graph = make_graph(*STATS)
    assert find("expected 5.0, got nan: rows", search=GraphSearch(graph))[0] != "calculate_mean"
    found = GraphSearch(graph, embedder=ScriptedEmbedder("mean")).find("expected 5.0, got nan: rows")
    assert found[0].node == "calculate_mean"
    assert "validate_input" not in [match.node for match in found]
    busy = GraphSearch(graph, embedder=ScriptedEmbedder("mean", is_busy=True))
    assert busy.find("delete records") == GraphSearch(graph).find("delete records")


def test_large_graphs_are_searched_in_time() -> None:
    words = sorted(load_synonyms())
    nodes = [
        leaf(
            f"{words[number % len(words)]}_{words[number * 7 % len(words)]}_{number}",
            f"src/app/m{number // 20}.py",
            docstring=" ".join(words[number * each % len(words)] for each in range(3, 20)),
        )
        for number in range(10_000)
    ]
    search = GraphSearch(make_graph(*nodes))
    small = GraphSearch(make_graph(*nodes[:50]))
    for limit, each in ((0.5, search), (0.05, small)):
        began = time.process_time()
        each.find("load a spreadsheet from disk and validate the mean")
        assert time.process_time() - began < limit


def test_forms_of_a_word_have_one_stem() -> None:
    for forms in (
        "calculate calculation calculates calculating",
        "normalize normalization normalized normal",
        "filter filters filtering filtered",
        "remove removal removing",
        "variance vary variation",
        "centre center centers",
        "copy copies copied copying",
        "string strings",
        "process processes processing",
        "map mapping mapped",
    ):
        assert len({stem_word(word) for word in forms.split()}) == 1, forms
    others = {"sort", "string", "speed", "mean", "median", "mode", "need", "bring", "data", "date"}
    assert len({*map(stem_word, others)}) == len(others)


def test_names_are_split_into_words() -> None:
    assert split_words("HTTPServer2.parse_CSVFile Überschrift") == [
        "http",
        "server",
        "2",
        "parse",
        "csv",
        "file",
        "überschrift",
    ]
