"""Vectors of texts, and the file that keeps them."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.generation import embedding
from cdd_agent.generation.embedding import SIZE, Embed, MiniLM, Vector, find_embedder
from cdd_agent.generation.search import GraphSearch
from tests.fakes.graphs import leaf, make_graph


class CountingModel:
    """Gives each text the direction of its first letter, and counts the texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def load(self) -> Embed:
        return self.embed

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.texts += texts
        return [array("f", [float(ord(text[0]) % SIZE == at) for at in range(SIZE)]) for text in texts]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "records" / "minilm.vectors"


def ticking(step: float) -> Iterator[float]:
    return count(0.0, step)


def test_texts_are_compared_with_the_query(cache: Path) -> None:
    assert MiniLM(CountingModel().load, cache=cache).compare("mean", ["median", "load"]) == [1.0, 0.0]
    assert MiniLM(CountingModel().load, cache=cache).compare("mean", []) == []


def test_a_text_is_read_once_also_by_another_process(cache: Path) -> None:
    MiniLM(CountingModel().load, cache=cache).compare("a", ["mean", "load"])
    again = CountingModel()
    assert MiniLM(again.load, cache=cache).compare("m", ["load", "new", "mean"]) == [0.0, 0.0, 1.0]
    assert again.texts == ["new", "m"]


@pytest.mark.parametrize("damage", [b"", b"cdd vectors 0\n", b"x" * 5000, None])
def test_a_damaged_file_is_made_again(cache: Path, damage: bytes | None) -> None:
    MiniLM(CountingModel().load, cache=cache).compare("a", ["mean"])
    whole = cache.read_bytes()
    key = hashlib.sha256(b"mean").digest()
    assert key in whole
    cache.write_bytes(whole[:-4] + b"\x00\x00\xc0\x7f" if damage is None else damage)  # nan
    model = CountingModel()
    assert MiniLM(model.load, cache=cache).compare("m", ["mean"]) == [1.0]
    assert model.texts == ["mean", "m"]
    assert cache.read_bytes() == whole


def test_texts_without_time_wait_for_the_next_search(cache: Path) -> None:
    texts = [f"m{number}" for number in range(40)]
    model, clock = CountingModel(), ticking(embedding.LIMIT_S / 2)
    reader = MiniLM(model.load, cache=cache, clock=lambda: next(clock))
    assert reader.compare("m", texts) is None
    assert 0 < len(model.texts) < len(texts)
    while (found := reader.compare("m", texts)) is None:
        pass
    assert found == [1.0] * 40
    assert len(model.texts) == len(texts) + 1


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert MiniLM(CountingModel().load, cache=tmp_path / "file" / "vectors").compare("m", ["mean"]) == [1.0]


def test_a_model_that_cannot_be_used_is_told_once_and_words_decide(cache: Path) -> None:
    def load() -> Embed:
        raise RuntimeError("no kernel")

    told: list[str] = []
    nodes = (leaf("calculate_mean"), leaf("load_table"))
    search = GraphSearch(make_graph(*nodes), embedder=MiniLM(load, cache=cache, tell=told.append))
    for _ in range(2):
        assert [match.node for match in search.find("average")] == ["calculate_mean"]
    assert search.engine == "words"
    assert told == ["Searches compare words alone, because the extra `semantic` cannot be used: no kernel"]


def test_files_of_the_extra_that_are_not_known_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"other")
    with pytest.raises(EnvironmentMissing, match="its sha256 differs"):
        embedding.require_content(tmp_path / "model.onnx", "0" * 64)


def test_minilm_finds_what_shares_no_word(tmp_path: Path) -> None:
    model = find_embedder(tmp_path)
    if model is None:
        pytest.skip("the extra `semantic` is not installed")
    nodes = (
        leaf("calculate_mean", docstring="Return the arithmetic mean of numbers."),
        leaf("load_table", docstring="Return the rows of a CSV file."),
        leaf("draw_points", docstring="Return points as stars in a rectangle of text."),
    )
    search = GraphSearch(make_graph(*nodes), embedder=model)
    for query, node in (("expected 5.0, got nan", "calculate_mean"), ("spreadsheet import", "load_table")):
        assert search.find(query)[0].node == node
