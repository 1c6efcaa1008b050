"""README.md and pyproject.toml say what the graph, its specification and the record say."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.generation.assembly import (
    Assembly,
    ProjectInfo,
    describe_project,
    quote_toml,
    write_pyproject,
    write_readme,
)
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.outcome import GenerationOutcome, NodeOutcome, SubgraphOutcome
from cdd_agent.generation.requirements import Environment
from cdd_agent.tickets.graph import Graph, Node
from tests.fakes.graphs import composite, leaf, make_graph

SPECIFICATION = """# Small Statistics

Describes numbers. It has no dependencies.

More about it.

## Author

Author: Ada Lovelace <ada@example.org>
"""
MEAN = replace(leaf("calculate_mean", "src/stats/descriptive.py"), example="assert calculate_mean([1, 2]) == 1.5")
GRAPH = make_graph(
    composite("descriptive", "src/stats/descriptive.py", docstring="Mean, median | more. And so on."),
    MEAN,
    replace(leaf("mode", "src/stats/descriptive.py"), example=">>> mode([1])\n1"),
    leaf("_sum", "src/stats/descriptive.py"),
    leaf("main", "src/stats/cli.py"),
    license="MIT",
)


def describe(graph: Graph = GRAPH, specification: str = SPECIFICATION) -> ProjectInfo:
    return describe_project(graph, Layout.of(graph, "g"), specification=specification)


def finish(graph: Graph, failed: str = "") -> GenerationOutcome:
    nodes = tuple(
        NodeOutcome(id=node.id, title=node.name, status="failed" if node.id == failed else "passed")
        for node in graph.leaves
    )
    return GenerationOutcome(
        package="stats", subgraphs=(SubgraphOutcome(id="s", name="s", nodes=nodes, is_proved=True),)
    )


def write(graph: Graph = GRAPH, *, specification: str = SPECIFICATION, failed: str = "") -> str:
    info = describe(graph, specification)
    return write_readme(info, graph, layout=Layout.of(graph, "g"), outcome=finish(graph, failed))


def project(graph: Graph = GRAPH, specification: str = SPECIFICATION) -> Mapping[str, object]:
    text = write_pyproject(describe(graph, specification), Layout.of(graph, "g"), python="3.12.1")
    found: Mapping[str, object] = tomllib.loads(text)["project"]
    return found


def test_an_assembly_has_all_files_around_the_code() -> None:
    assembly = Assembly(
        graph=GRAPH,
        layout=Layout.of(GRAPH, "g"),
        outcome=finish(GRAPH),
        files={"src/stats/cli.py": "import numpy, made_up\nfrom stats.descriptive import mode\n"},
        environment=Environment(python="3.11.4", packages={"numpy": ("numpy",)}, versions={"numpy": "1.26.4"}),
        specification=SPECIFICATION,
    )
    files = assembly.write()
    assert [*files] == [
        "README.md",
        "docs/generation_checkpoint.json",
        "docs/generation_report.md",
        "docs/rpg.json",
        "pyproject.toml",
        "requirements-dev.txt",
        "requirements.txt",
    ]
    assert files["requirements.txt"] == b"made_up\nnumpy>=1.26,<2\n"
    assert files["requirements-dev.txt"] == b"-r requirements.txt\nblack\nmypy\npytest\n"
    assert tomllib.loads(files["pyproject.toml"].decode())["project"]["dependencies"] == ["made_up", "numpy>=1.26,<2"]
    report = files["docs/generation_report.md"].decode()
    assert "- ⚠️ made_up is not installed, so its version is not pinned" in report
    assert "**Dependency Update**: the code imports made_up, numpy;" in report


def test_readme_generation() -> None:
    text = write()
    parts = [
        "# Small Statistics\n\nDescribes numbers. It has no dependencies.\n\nMore about it.\n",
        "[a planning graph](docs/rpg.json). 4 of 4 nodes are proved by tests. See [the report](",
        "## Installation\n\n```sh\npip install -e .\n```\n",
        "## Usage\n\n```sh\nstats --help\n```\n",
        "from stats.descriptive import calculate_mean\nassert calculate_mean([1, 2]) == 1.5\n```\n",
        ">>> from stats.descriptive import mode\n>>> mode([1])\n1\n```\n",
        "## Modules\n\n| Module | Purpose | Contents |\n|--------|---------|----------|\n",
        "| `stats.cli` |  | `main` |\n",
        "| `stats.descriptive` | Mean, median \\| more. | `calculate_mean`, `mode` |\n",
        "## Tests\n\n```sh\npip install -r requirements-dev.txt\npytest tests/\n```\n",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_node_that_failed_is_no_example() -> None:
    text = write(failed="calculate_mean")
    assert "assert calculate_mean" not in text
    assert "3 of 4 nodes are proved by tests" in text


def test_without_examples_the_usage_is_an_import() -> None:
    assert "## Usage\n\n```python\nimport app\n```\n" in write(make_graph(leaf("f")), specification="")


def test_an_example_with_its_own_import_stays_as_it_is() -> None:
    example = "import app.m\napp.m.f()"
    assert f"```python\n{example}\n```" in write(make_graph(replace(leaf("f"), example=example)))


def test_a_fence_in_an_example_or_an_open_one_in_the_specification_ends_nothing() -> None:
    graph = make_graph(replace(leaf("f"), example='f("""\n```\n""")'))
    assert "````python\nfrom app.m import f\n" in write(graph)
    assert write(graph, specification="# T\n\nSee:\n```\nx").count("\n```\n\nThis repository") == 1


def test_pyproject_has_what_graph_and_specification_say() -> None:
    assert project() == {
        "name": "stats",
        "version": "0.1.0",
        "description": "Describes numbers.",
        "readme": "README.md",
        "requires-python": ">=3.12",
        "license": {"text": "MIT"},
        "authors": [{"name": "Ada Lovelace", "email": "ada@example.org"}],
        "classifiers": [
            "Development Status :: 3 - Alpha",
            "Programming Language :: Python :: 3",
            "Programming Language :: Python :: 3.12",
        ],
        "scripts": {"stats": "stats.cli:main"},
    }
    assert describe().warnings == ()


def test_placeholders_are_named() -> None:
    graph = make_graph(leaf("f"))
    info = describe(graph, "")
    assert (info.title, info.description, info.overview) == ("app", "The library app.", "The library app.")
    assert [*info.warnings] == [
        "The graph has no description; README.md and pyproject.toml have a placeholder.",
        "The graph names no author; pyproject.toml has none.",
        "The graph names no license; pyproject.toml has none.",
    ]
    assert "scripts" not in project(graph, "")


def test_metadata_of_the_graph_wins() -> None:
    metadata: dict[str, object] = {
        "description": "Other.",
        "authors": ["A", "B <b@c.d>"],
        "version": "1.2",
        "scripts": {"run": "app.m:f", "bad name": "x:y", "sh": "rm -rf /", "n": 3},
    }
    found = project(replace(make_graph(leaf("f")), metadata=metadata))
    assert (found["description"], found["version"], found["scripts"]) == ("Other.", "1.2", {"run": "app.m:f"})
    assert found["authors"] == [{"name": "A"}, {"name": "B", "email": "b@c.d"}]


def test_a_node_whose_type_is_a_command_is_one() -> None:
    node: Node = leaf("show_all", type="cli")
    assert project(make_graph(node))["scripts"] == {"show-all": "app.m:show_all"}


@pytest.mark.parametrize("value", [None, 3, [], {"a": 1}, "", "x" * 9_999, [None, " "]])
def test_metadata_of_any_form_is_no_problem(value: object) -> None:
    keys = ("name", "description", "author", "authors", "license", "version", "scripts", "requirements")
    graph = replace(make_graph(leaf("f")), metadata=dict.fromkeys(keys, value))
    assert project(graph)["version"] == "0.1.0"
    assert write(graph).startswith("# Small Statistics\n")


@given(st.text())
def test_any_text_is_a_valid_toml_string(text: str) -> None:
    tomllib.loads(f"x = {quote_toml(text)}")


@given(st.text(max_size=80))
def test_any_specification_makes_a_valid_project(text: str) -> None:
    project(make_graph(leaf("f")), f"{text}\nAuthor: {text} <{text}@x>")
