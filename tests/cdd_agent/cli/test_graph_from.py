"""``cdd graph from``."""

import json
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.tickets.graph_file import load_graph


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "src" / "sums"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .basic import add\nraise SystemExit\n", encoding="utf-8")
    (folder / "basic.py").write_text("def add(a, b):\n    return a + b\n", encoding="utf-8")
    (folder / "py.typed").touch()
    return tmp_path


def test_a_package_becomes_a_graph_that_check_accepts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "from", "src/sums"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("graph.json: 1 node in 1 file, 1 subgraph, package sums.\n")
    assert "1 file that no node writes: src/sums/py.typed" in " ".join(printed.split())
    assert printed.endswith("Next: cdd graph show graph.json\n")
    graph, notices = load_graph(here / "graph.json")
    assert [node.id for node in graph.leaves] == ["sums.basic:add"]
    assert notices == ()
    assert run(["graph", "check", "graph.json"]) == 0
    assert "No problems." in capsys.readouterr().out


def test_a_file_is_replaced_only_after_a_yes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = here / "mine.json"
    out.write_text("mine", encoding="utf-8")
    assert run(["graph", "from", "src/sums", "--out", "mine.json"]) == 2
    assert "the same command with --yes" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"
    assert run(["graph", "from", "src/sums", "--out", "mine.json", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **{"event": "GraphExtracted", "file": "mine.json", "nodes": 1, "subgraphs": 1},
        "notices": ["1 file that no node writes: src/sums/py.typed"],
    }


def test_an_unknown_package_writes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "from", "no_such_package"]) == 2
    assert "name the folder of a package" in capsys.readouterr().err
    assert not (here / "graph.json").exists()
