"""``cdd graph check`` and ``cdd graph show``, and the examples of docs/reference/graph.md."""

import json
import re
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.tickets.graph_file import parse_graph
from tests.cdd_agent.cli.test_report import Page
from tests.fakes.program import ROOT

PAGE = ROOT / "docs" / "reference" / "graph.md"
HOSTILE = '<script>alert("1")</script>'


def write(folder: Path, *nodes: dict[str, object], **more: object) -> Path:
    path = folder / "graph.json"
    path.write_text(json.dumps({"nodes": nodes, **more}), encoding="utf-8")
    return path


def make_node(id: str, **more: object) -> dict[str, object]:
    docstring = "Do it.\n\nReturns:\n    None: Nothing."
    path = f"src/{more.get('subgraph_id', 'core')}/m.py"
    return {
        **{"id": id, "name": id, "type": "function", "file_path": path, "docstring": docstring},
        **{"signature": f"def {id.partition('.')[0]}() -> None: ..."},
        **more,
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        make_node("plot", dependencies=["load", "save"], subgraph_id="charts"),
        make_node("load", dependencies=["save"], subgraph_id="files"),
        make_node("save", subgraph_id="files"),
        metadata={"name": "my lib"},
    )


def test_a_good_graph_is_summarized(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "check", str(small)]) == 0
    assert capsys.readouterr().out == (
        "graph.json: 3 nodes in 2 files, 2 subgraphs, package my_lib. No problems.\n"
        "cdd generate has one import package, my_lib:\n"
        "  src/charts/m.py becomes src/my_lib/charts/m.py\n"
        "  src/files/m.py becomes src/my_lib/files/m.py\n"
    )


def test_remarks_are_shown_with_what_is_left_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path,
        make_node("a", dependencies=["b"], subgraph_id="x", level=3),
        make_node("b", dependencies=["c"], subgraph_id="y"),
        make_node("c", subgraph_id="x", signature="", docstring="Do it."),
    )
    assert run(["graph", "check", str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "$.nodes[0]: the key 'level' of 1 node is kept" in printed
    assert "modules import each other in a circle, graph.y.m -> graph.x.m -> graph.y.m" in printed
    assert "closed because a (a) needs b (b)" in printed
    assert "c (c): its parameters are unknown" in printed


def test_a_bad_graph_ends_with_all_its_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, make_node("a", file_path="../a.py", docstring=""), make_node("b", dependencies=["x"]))
    assert run(["graph", "check", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "$.nodes[0].file_path, a a in ../a.py: the path '../a.py' leads out of its folder" in output.err
    assert "$.nodes[0].docstring" in output.err
    assert "$.nodes[1].dependencies, b b in src/core/m.py: it needs 'x', which is not a node" in output.err
    assert run(["graph", "show", str(path)]) == 2
    capsys.readouterr()
    assert run(["graph", "check", str(path), "--json"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["event"] == "GraphChecked"
    assert [(each["place"], each["node"], each["file"]) for each in told["problems"]] == [
        ("$.nodes[0].file_path", "a", "../a.py"),
        ("$.nodes[0].docstring", "a", "../a.py"),
        ("$.nodes[1].dependencies", "b", "src/core/m.py"),
    ]


def test_a_graph_is_a_tree_in_the_order_of_generation(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "show", str(small)]) == 0
    printed = re.sub("[│├└─|+`-]+", "", capsys.readouterr().out)
    assert [" ".join(line.split()) for line in printed.splitlines() if line.strip()] == [
        "graph.json: 3 nodes in 2 files, 2 subgraphs, package my_lib",
        *(
            "files 2 nodes",
            "src/my_lib/files/m.py",
            "1 save needed by 2 nodes",
            "2 load needs 1 node, needed by 1 node",
        ),
        *("charts 1 node", "src/my_lib/charts/m.py", "3 plot needs 2 nodes"),
    ]
    assert run(["graph", "show", str(small), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [[node["title"] for node in group["nodes"]] for group in shown["groups"]] == [
        ["files.m.save", "files.m.load"],
        ["charts.m.plot"],
    ]


def test_a_mermaid_diagram_holds_nothing_but_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path,
        make_node("a", subgraph_id='"]\n; click', file_path="src/lib/a.py"),
        make_node("b", dependencies=["a"]),
    )
    assert run(["graph", "show", str(path), "--mermaid"]) == 2
    path = write(
        tmp_path, make_node("a", subgraph_id=f'"] {HOSTILE}', file_path="a.py"), make_node("b", dependencies=["a"])
    )
    capsys.readouterr()
    assert run(["graph", "show", str(path), "--mermaid"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flowchart LR",
        '  subgraph s1["#34;#93; #60;script#62;alert#40;#34;1#34;#41;#60;#47;script#62;"]',
        '    n1["a.a"]',
        "  end",
        '  subgraph s2["core"]',
        '    n2["core.m.b"]',
        "  end",
        "  n2 --> n1",
    ]


def test_the_page_has_each_node_a_picture_and_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path,
        make_node("a", subgraph_id=HOSTILE, file_path="src/lib/a.py", docstring=f"Do {HOSTILE}."),
        make_node("b", dependencies=["a"], file_path="src/lib/b.py"),
        make_node("c", dependencies=["a", "b"], file_path="src/lib/b.py"),
        metadata={"name": HOSTILE},
    )
    assert run(["graph", "show", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert "The page is in " in " ".join(capsys.readouterr().out.split())
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert (tags.count("details"), tags.count("path")) == (3, 3)
    links = {given["href"] for tag, given in page.tags if tag == "a"}
    assert links == {"#nodes", "#n1", "#n2", "#n3"}
    assert {"n1", "n2", "n3"} <= {given.get("id") for _, given in page.tags}
    assert HOSTILE in page.texts
    assert f"Do {HOSTILE}." in page.texts


def test_a_large_graph_has_a_page_without_a_picture(tmp_path: Path) -> None:
    path = write(tmp_path, *(make_node(f"f{number}") for number in range(1_501)))
    assert run(["graph", "show", str(path), "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert text.count("<details") == 1_501


def test_a_page_that_cannot_be_written_is_an_error(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "show", str(small), "--html", str(small / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_examples_of_the_reference_are_read_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for number, text in enumerate(examples):
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
        assert run(["graph", "check", str(tmp_path / f"{number}.json")]) == 0
    assert parse_graph(examples[1], path="g")[0].by_id[parse_graph(examples[1], path="g")[0].nodes[1].id].dependencies
    assert "No problems." in capsys.readouterr().out
