"""The report, the checkpoint and the exported graph say what the record says."""

import json
import re
from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest

from cdd_agent.generation.generation_report import (
    describe_statuses,
    escape_markdown,
    export_graph,
    read_metrics,
    write_checkpoint,
    write_junit,
    write_report,
)
from cdd_agent.generation.metrics import list_metrics
from cdd_agent.generation.outcome import (
    Dependencies,
    GenerationOutcome,
    InstallationCheck,
    Installed,
    NodeOutcome,
    NodeStatus,
    NotInstalled,
    NotVerified,
    SubgraphOutcome,
)
from cdd_agent.tickets.graph import Graph, ImportCycle, Node, NodeId
from cdd_agent.tickets.graph_file import parse_graph
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport

# The headings and bold words of the template in the specification.
TEMPLATE = [
    *("# Code Generation Report", "**Generated**", "**Phase**", "**RPG Input**", "**Repository Output**"),
    *("## Summary", "**Total Nodes Planned**", "**Nodes Passed**", "**Nodes Failed**", "**Nodes Skipped**"),
    *("## Breakdown by Subgraph", "| Subgraph | Nodes | Passed | Failed | Skipped | Pass Rate |"),
    *("## Failed Nodes (detail)", "**Failure Reason**", "**Debug Iterations**", "**Root Cause**", "**Recommendation**"),
    *("## Test Results", "**Unit Tests**", "**Integration Tests**", "**Regression Tests**"),
    *("## Performance", "**Generation Time**", "**Average Time per Node**"),
    *("## Repository Validation", "## Recommendations"),
]


def node(number: int, status: NodeStatus = "passed") -> NodeOutcome:
    return NodeOutcome(
        id=NodeId(f"node_{number:03}"),
        title=f"stats.f_{number}",
        status=status,
        number=number,
        text_sha256=f"{number:064}",
        timestamp="2026-02-07T10:35:12Z",
        passed=3 if status == "passed" else 0,
    )


def make_outcome(*subgraphs: SubgraphOutcome) -> GenerationOutcome:
    return GenerationOutcome(
        package="stats", subgraphs=subgraphs, generated_at="2026-02-07T10:45:30Z", output="out", duration_s=1714
    )


NAN = "AssertionError: expected 5.0, got nan"
NODES = (
    *(node(number) for number in range(1, 16)),
    replace(node(16, "failed"), passed=2, failed=1, rounds=8, reason=NAN, root_cause="Off by one"),
    replace(node(17, "failed"), failed=3, rounds=1),
    *(replace(node(number, "skipped"), reason="it needs stats.f_16") for number in range(18, 21)),
)
OUTCOME = make_outcome(
    SubgraphOutcome(id="data", name="data", nodes=NODES[:10], is_proved=True, landed="c" * 40, paths=2, paths_passed=2),
    SubgraphOutcome(id="model", name="model", nodes=NODES[10:], paths=4, paths_passed=3),
)


def test_coverage_report() -> None:
    text = write_report(OUTCOME)
    assert "- **Total Nodes Planned**: 20\n- **Nodes Passed**: 15 (75%)\n" in text
    assert "- **Nodes Failed**: 2 (10%)\n- **Nodes Skipped**: 3 (15%)\n- **Nodes Proved**: 10 of 20\n" in text
    assert "| data | 10 | 10 | 0 | 0 | 100% |\n| model | 10 | 5 | 2 | 3 | 50% |\n" in text


def test_the_report_has_the_headings_of_the_template_in_its_order() -> None:
    text = write_report(OUTCOME)
    places = [text.index(part) for part in TEMPLATE]
    assert places == sorted(places)


def test_a_failed_node_has_its_reason_rounds_cause_and_advice() -> None:
    text = write_report(OUTCOME)
    assert (
        "### node_016: stats.f_16\n\n- **Failure Reason**: AssertionError: expected 5.0, got nan\n"
        "- **Debug Iterations**: 8\n- **Root Cause**: Off by one\n- **Recommendation**: Read the failure"
    ) in text
    assert "- **Failure Reason**: Unknown\n- **Debug Iterations**: 1\n- **Root Cause**: Not found\n" in text


def test_the_numbers_of_tests_and_times_are_counted_in_the_record() -> None:
    text = write_report(replace(OUTCOME, regressions=12))
    assert (
        "- **Unit Tests**: 51 generated, 47 passing (92%)\n- **Integration Tests**: 6 generated, 5 passing (83%)\n"
        in text
    )
    assert "- **Regression Tests**: 12 regressions found and reverted\n" in text
    assert "- **Generation Time**: 28 minutes 34 seconds\n- **Average Time per Node**: 1 minute 41 seconds\n" in text
    assert "- **Passed at the First Try**: 15 of 17 nodes, with 45 of 51 tests\n- **Debug Iterations**: 9\n" in text


def test_skipped_and_unproved_nodes_have_their_reasons() -> None:
    proved = SubgraphOutcome(
        id="a", name="a", nodes=(replace(node(1), unproved="no test enters it"), node(2)), is_proved=True
    )
    text = write_report(OUTCOME)
    assert (
        "## Skipped Nodes\n\n- node\\_018: " in text or "## Skipped Nodes\n\n- node_018: stats.f_18: it needs" in text
    )
    assert "## Unproved Nodes\n\n- Subgraph model: 5 passed nodes; 3 of 4 integration tests pass\n" in text
    alone = write_report(make_outcome(proved))
    assert "- **Nodes Proved**: 1 of 2\n" in alone
    assert "- node_001 (stats.f_1): no test enters it\n" in alone
    assert "**Proof Missing**: 1 passed node not proved" in alone
    assert "## Skipped Nodes" not in alone


def test_a_subgraph_without_any_attempt_has_no_rate() -> None:
    skipped = SubgraphOutcome(id="v", name="v", nodes=(node(1, "skipped"),))
    assert "| v | 1 | 0 | 0 | 1 | N/A (skipped) |" in write_report(make_outcome(skipped))


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (
            Installed(modules=15, tests=120, passed=120),
            "- ✅ `pytest tests/` runs there (120/120 tests pass)\n- ✅ 15 modules",
        ),
        (Installed(modules=15, tests=120, passed=85), "- ⚠️ `pytest tests/` runs there (85/120 tests pass)"),
        (NotInstalled(act="install", reason="no"), "- ❌ `pip install -e .` fails: no"),
        (
            NotInstalled(act="import", reason="no"),
            "- ✅ `pip install -e .` succeeds in a new environment\n- ❌ Some modules",
        ),
        (NotInstalled(act="test", reason="no"), "- ❌ `pytest tests/` does not run there: no"),
        (NotVerified(reason="no index"), "- ⚠️ `pip install -e .` is not verified: no index"),
    ],
)
def test_the_validation_says_how_the_installation_went(check: InstallationCheck, expected: str) -> None:
    assert expected in write_report(replace(OUTCOME, installation=check))


def test_recommendations_follow_from_what_is_missing() -> None:
    circle = ImportCycle(modules=("a.x", "a.y"), source=NodeId("node_001"), target=NodeId("y"))
    text = write_report(
        replace(
            OUTCOME,
            command="cdd generate g.json --out out",
            missing_packages=("matplotlib",),
            circular_imports=(circle,),
        )
    )
    listed = re.findall(r"^(\d+)\. \*\*(.+?)\*\*", text, re.MULTILINE)
    names = [
        "Manual Fix Required",
        "Dependency Update",
        "Circular Import",
        "Proof Missing",
        "Re-run Generation",
        "Installation",
    ]
    assert listed == [(str(number), name) for number, name in enumerate(names, start=1)]
    assert "tries 5 nodes again: `cdd generate g.json --out out`" in text
    assert "- a.x → a.y → a.x: closed by stats.f_1, which needs y\n" in text
    done = SubgraphOutcome(id="a", name="a", nodes=(node(1),), is_proved=True)
    good = write_report(replace(make_outcome(done), installation=Installed(modules=1, tests=3, passed=3)))
    assert "1. **Proceed to Phase 5**" in good


def edge(source: int, target: int) -> tuple[NodeId, NodeId]:
    return NodeId(f"node_{source:03}"), NodeId(f"node_{target:03}")


COMPARED = Dependencies(
    confirmed=(edge(2, 1), edge(3, 1), edge(3, 2)),
    entered=(edge(4, 1),),
    missing=(edge(5, 1),),
    extra={edge(5, 2): "src/stats/m.py:7"},
    unused={NodeId("node_006"): "src/stats/m.py:9"},
    actual={NodeId("node_001"): (), NodeId("node_016"): (NodeId("node_001"),)},
)


def test_dependencies_of_the_graph_and_the_code_are_compared() -> None:
    text = write_report(replace(OUTCOME, dependencies=COMPARED))
    assert (
        "## Dependencies\n\n- **Planned**: 5, 4 confirmed (80%)\n"
        "- **Confirmed by Tests Alone**: 1\n  - stats.f_4 needs stats.f_1\n"
        "- **Planned, Not in the Code**: 1\n  - stats.f_5 needs stats.f_1\n"
        "- **Planned, Unknown until the Code Runs**: 0\n"
        "- **In the Code, Not Planned**: 1\n  - stats.f_5 needs stats.f_2: src/stats/m.py:7\n"
        "- **Unused Functions**: 1\n  - stats.f_6: src/stats/m.py:9\n"
    ) in text
    many = replace(COMPARED, missing=tuple(edge(5, number) for number in range(30)))
    assert "- **Planned, Not in the Code**: 30\n" in write_report(replace(OUTCOME, dependencies=many))
    assert "\n  - and 10 more\n" in write_report(replace(OUTCOME, dependencies=many))


def test_the_exported_graph_has_what_the_code_of_each_node_uses() -> None:
    graph = make_graph()
    old = tuple(replace(each, further={"actual_dependencies": ["old"], "x": 1}) for each in graph.nodes)
    outcome = replace(OUTCOME, dependencies=COMPARED)
    read, _ = parse_graph(export_graph(replace(graph, nodes=old), outcome).decode(), path="docs/rpg.json")
    found = {node.id: node.further.get("actual_dependencies") for node in read.nodes}
    assert found == {"root": None, "good": None, "bad": None, "node_001": [], "node_016": ["node_001"]}
    assert all(node.further["x"] == 1 for node in read.nodes)


def test_hostile_text_stays_text() -> None:
    bad = "x\n## Summary\n| a | <script> ![i](http://e/x) `code` \x1b[31m \u202e www.evil.com _a_ **b**"
    text = write_report(
        make_outcome(SubgraphOutcome(id="a", name=bad, nodes=(replace(node(1, "failed"), reason=bad),)))
    )
    assert text.count("\n## Summary") == 1
    assert not {"\x1b", "\u202e"} & {*text}
    for part in ("<script>", "![i](", "http://e", "www.evil", " `code`"):
        assert part not in text


def test_the_log_is_shown_as_it_is() -> None:
    assert text_of_log("abc1234 feat: complete ``` *x*") == "## Git Log\n\n    abc1234 feat: complete ``` *x*\n"


def text_of_log(line: str) -> str:
    return "## Git Log" + write_report(replace(OUTCOME, log=(line,))).partition("## Git Log")[2]


def test_escaped_text_keeps_plain_words() -> None:
    assert (
        escape_markdown("calculate_mean in stats.descriptive: 1.5 != 2")
        == "calculate_mean in stats.descriptive: 1.5 != 2"
    )


def test_checkpoint_write() -> None:
    data = write_checkpoint(OUTCOME)
    entries = json.loads(data)
    assert [*entries] == [f"node_{number:03}" for number in range(1, 21)]
    first, failed = entries["node_001"], entries["node_016"]
    assert first.pop("step") == {"number": 1, "title": "stats.f_1", "text_sha256": f"{1:064}", "subgraph": "data"}
    assert first == {
        "status": "passed",
        "timestamp": "2026-02-07T10:35:12Z",
        "test_results": {"passed": 3, "failed": 0},
        "retry_count": 0,
    }
    assert failed["retry_count"] == 8
    assert failed["failure_reason"] == "AssertionError: expected 5.0, got nan"
    assert failed["test_results"] == {"passed": 2, "failed": 1}
    assert data.startswith(b'{\n  "node_001": {\n')


def test_the_checkpoint_has_the_step_of_each_node() -> None:
    one = SubgraphOutcome(id="s", name="s", nodes=(replace(node(1), commits={"red": "a" * 40, "green": "b" * 40}),))
    entry = json.loads(write_checkpoint(make_outcome(one)))["node_001"]
    assert (entry["status"], entry["step"]["number"]) == ("passed", 1)
    assert entry["step"]["commits"] == {"red": "a" * 40, "green": "b" * 40}


def make_graph() -> Graph:
    def make(id: str, kind: str, parent: str | None) -> Node:
        return Node(
            id=NodeId(id),
            name=id,
            type="module",
            node_type="leaf" if kind == "leaf" else "composite",
            file_path="a.py",
            docstring="x",
            parent=NodeId(parent) if parent else None,
        )

    rows = (
        ("root", "", None),
        ("good", "", "root"),
        ("bad", "", "root"),
        ("node_001", "leaf", "good"),
        ("node_016", "leaf", "bad"),
    )
    return Graph(nodes=tuple(make(*row) for row in rows))


def test_a_composite_has_passed_if_all_that_it_contains_has() -> None:
    assert describe_statuses(make_graph(), OUTCOME) == {
        "root": "failed",
        "good": "passed",
        "bad": "failed",
        "node_001": "passed",
        "node_016": "failed",
    }


def test_the_exported_graph_has_the_statuses_of_its_nodes() -> None:
    graph = replace(make_graph(), metadata={"phase": 3})
    written = export_graph(graph, replace(OUTCOME, model="m"))
    read, _ = parse_graph(written.decode(), path="docs/rpg.json")
    statuses = {node.id: node.further["status"] for node in read.nodes}
    assert statuses == describe_statuses(graph, OUTCOME)
    about = read.metadata["generation"]
    assert isinstance(about, dict)
    metrics = about.pop("metrics")
    assert metrics[0]["value"] == "45 of 51 tests (88%)"
    assert about == {"phase": 4, "timestamp": "2026-02-07T10:45:30Z", "model": "m"}
    assert read.metadata == {"phase": 3, "generation": about}


def test_the_measures_of_an_exported_graph_are_read_again_as_plain_text() -> None:
    outcome = replace(OUTCOME, installation=NotVerified(reason="no \x1b[31mindex"))
    found = read_metrics(export_graph(make_graph(), outcome))
    assert [each.name for each in found] == [each.name for each in list_metrics(outcome)]
    assert found[4].value == "not measured: no index"
    for data in (b"", b"[]", b"{}", b"\xff", b'{"metadata": {"generation": {"metrics": [1]}}}', b'{"a":' * 99_999):
        assert read_metrics(data) == ()


def test_the_junit_file_has_each_test_with_its_result() -> None:
    failure = Failure("call", "assertion", "test", "AssertionError", "a < b \x00\ufffe", text="E  assert 1 == 2")
    cases = (
        Case("tests/test_a.py::test_ok", "passed", "tests/test_a.py", 1, 0.5),
        Case("tests/test_a.py::TestX::test_bad[a::b]", "failed", "tests/test_a.py", 5, 0.1, failure=failure),
        Case("tests/test_a.py::test_skip", "skipped", "tests/test_a.py", 9, 0.0, reason="later"),
    )
    report = make_report(tests=cases, collect_errors=(CollectError("tests/test_b.py", failure),))
    suite = fromstring(write_junit(report))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [(case.get("classname"), case.get("name"), [*map(tag_of, case)]) for case in suite] == [
        ("tests.test_a", "test_ok", []),
        ("tests.test_a.TestX", "test_bad[a::b]", [("failure", "a < b ")]),
        ("tests.test_a", "test_skip", [("skipped", "later")]),
        ("tests.test_b", "tests/test_b.py", [("error", "a < b ")]),
    ]


def tag_of(element: Element) -> tuple[str, str | None]:
    return element.tag, element.get("message")


def make_report(tests: tuple[Case, ...], collect_errors: tuple[CollectError, ...]) -> SuiteReport:
    return SuiteReport(
        complete=True,
        exit_status=1,
        nonce="",
        python="",
        pytest="",
        rootdir="",
        started_at="2026-02-07T10:45:30Z",
        duration_s=1,
        tests=tests,
        collect_errors=collect_errors,
        fingerprints={},
        collected=len(tests),
    )
