"""The files of a package that no node writes: copied beside the graph, and from there into the repository."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.data_files import copy_data, find_data_folder, read_data
from cdd_agent.generation.extract import extract_graph
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.package_files import read_package
from cdd_agent.tickets.graph import Graph
from tests.fakes.graphs import leaf, make_graph

WORDS = "src/sums/data/words.txt"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "sums"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Sums."""\n\n\ndef total(x):\n    """Add."""\n    return sum(x)\n')
    (folder / "data" / "words.txt").write_bytes(b"one\xff")
    return folder


def list_data(*paths: str) -> tuple[Graph, Layout]:
    graph = make_graph(leaf("total", "src/sums/m.py"), package="sums", data=list(paths))
    return graph, Layout.of(graph, "sums")


def test_data_go_from_the_package_to_the_folder_beside_the_graph_and_into_the_repository(
    package: Path, tmp_path: Path
) -> None:
    files = read_package(str(package), search=())
    graph, folder = extract_graph(files).graph, find_data_folder(tmp_path / "graph.json")
    assert copy_data(graph, files, to=folder) == 1
    assert read_data(graph, Layout.of(graph, "graph"), folder=folder) == {WORDS: b"one\xff"}
    (folder / WORDS).unlink()
    assert read_data(graph, Layout.of(graph, "graph"), folder=folder) == {}


def test_data_that_would_replace_a_module_of_a_node_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"m\.py', which is the module of a node"):
        read_data(*list_data("src/sums/m.py"), folder=tmp_path)


def test_a_folder_for_data_that_cannot_be_written_is_named(package: Path, tmp_path: Path) -> None:
    files, folder = read_package(str(package), search=()), tmp_path / "graph.data"
    folder.write_text("mine")
    with pytest.raises(UsageError, match=r"graph\.data/src/sums/data/words\.txt cannot be written"):
        copy_data(extract_graph(files).graph, files, to=folder)
    assert folder.read_text() == "mine"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "src/sums/../x", "src/other/x", "src/sums/.git/config", "src/sums/a\\b", "src/sums//x"]
)
def test_data_outside_of_the_package_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which is not in the package sums"):
        read_data(*list_data(path), folder=tmp_path)


def test_links_among_the_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sums").symlink_to("/etc")
    with pytest.raises(UsageError, match="is a link, or in a folder that is one"):
        read_data(*list_data("src/sums/passwd"), folder=tmp_path)
