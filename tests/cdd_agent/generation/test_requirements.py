"""Requirements come from the graph and from the imports of the code, with versions that are compatible."""

import json
import subprocess
import sys

import pytest

from cdd_agent.generation.requirements import (
    QUESTION,
    Environment,
    Requirements,
    find_requirements,
    list_development,
    list_required,
)
from cdd_agent.tickets.graph import Graph, Node, NodeId

INSTALLED = Environment(
    python="3.11.4",
    packages={"numpy": ("numpy",), "pandas": ("pandas",), "yaml": ("PyYAML",), "google": ("a-google", "b-google")},
    versions={
        "numpy": "1.26.4",
        "pandas": "2.1.0",
        "pyyaml": "6.0.2",
        "attrs": "0.9",
        "pytest": "9.0.1",
        "mypy": "1!2.0",
    },
)


def find(code: str, *listed: str) -> Requirements:
    return find_requirements({"src/lib/a.py": code}, INSTALLED, listed=listed, first_party=("lib",))


def test_requirements_extraction() -> None:
    found = find("import os\nimport numpy as np\nfrom pandas.core import frame\nfrom lib.b import c\nfrom . import d\n")
    assert found.lines == ("numpy>=1.26,<2", "pandas>=2.1,<3")
    assert found.warnings == ()
    assert found.unlisted == ("numpy", "pandas")


def test_the_name_of_the_package_may_differ_from_that_of_the_module() -> None:
    assert find("def f():\n    import yaml\n").lines == ("PyYAML>=6.0,<7",)


def test_a_version_before_1_0_allows_no_other_minor_version() -> None:
    assert find("", "attrs").lines == ("attrs>=0.9,<0.10",)


def test_what_the_graph_says_about_versions_stays() -> None:
    found = find("import numpy", "NumPy >=1.20", "requests[socks]~=2.30; python_version < '3.12'")
    assert found.lines == ("NumPy >=1.20", "requests[socks]~=2.30; python_version < '3.12'")
    assert found.listed == found.lines
    assert found.unlisted == ()


def test_a_package_that_is_not_installed_is_named_without_a_version() -> None:
    found = find("import nowhere")
    assert found.lines == ("nowhere",)
    assert found.unlisted == ("nowhere",)
    assert [*found.warnings] == [
        "nowhere is not installed, so its version is not pinned; check that it is the right package."
    ]


def test_of_several_packages_with_one_name_the_first_is_chosen_and_all_are_named() -> None:
    found = find("import google.x")
    assert found.lines == ("a-google",)
    assert "google is provided by a-google, b-google; requirements.txt has a-google." in found.warnings
    assert find("import google.x", "b-google").lines == ("b-google",)


@pytest.mark.parametrize(
    "listed",
    [
        "-e .",
        "--index-url http://x",
        "x @ http://evil/x.whl",
        "git+https://x/y",
        "../x",
        "a b",
        "a\n--pre",
        "a>=",
        "",
        "é",
    ],
)
def test_addresses_and_options_are_left_out_of_the_requirements(listed: str) -> None:
    found = find("", listed)
    assert found.lines == ()
    assert len(found.warnings) == 1


def test_a_module_that_no_package_can_provide_is_named() -> None:
    found = find("import _private\nimport ünï\n")
    assert found.lines == ()
    assert found.unlisted == ("_private", "ünï")
    assert len(found.warnings) == 2


def test_developers_get_their_tools() -> None:
    assert list_development(INSTALLED) == ("-r requirements.txt", "black", "mypy", "pytest>=9.0,<10")


def test_a_graph_lists_requirements_in_its_metadata_and_nodes() -> None:
    node = Node(
        id=NodeId("n"),
        name="f",
        type="function",
        node_type="leaf",
        file_path="a.py",
        docstring="F",
        requirements=("b", "a"),
    )
    assert list_required(Graph(nodes=(node,), metadata={"requirements": ["a"]})) == ("a", "b")
    assert list_required(Graph(nodes=(), metadata={"requirements": "a"})) == ()


def test_an_interpreter_tells_its_packages() -> None:
    answer = subprocess.run([sys.executable, "-I", "-c", QUESTION], capture_output=True, check=True)
    found = json.loads(answer.stdout)
    assert found["packages"]["yaml"] == ["PyYAML"]
    assert "pyyaml" in found["versions"]
    assert "ast" in found["standard"]
