"""The report of a generation, its checkpoint, its test results, and the graph with what became of its nodes. Pure.

Every number is counted in the record. Reasons and names come from models and graphs, so they become plain text of one
line.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from cdd_agent.errors import format_count
from cdd_agent.generation.metrics import Metric, format_duration, format_percent, list_done, list_first, list_metrics
from cdd_agent.generation.outcome import (
    Edge,
    GenerationOutcome,
    Installed,
    NodeOutcome,
    NodeStatus,
    NotInstalled,
    NotVerified,
    SubgraphOutcome,
)
from cdd_agent.tickets.graph import Graph, ImportCycle, Node, NodeId
from cdd_agent.tickets.graph_file import encode_graph
from cdd_agent.untrusted.documents import check_json, encode_json
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.work.state import Ground
from pytest_tdd_agent.report import Failure, SuiteReport

REPORT = "docs/generation_report.md"
GRAPH = "docs/rpg.json"
TEST_RESULTS = "test_results.xml"
CHECKPOINT = "docs/generation_checkpoint.json"
MOST_CHECKPOINT_BYTES = 64_000_000
_LONGEST = 400
"""Characters of a reason."""
_ACTUAL = "actual_dependencies"
"""The key of what the code of a node uses."""
_LISTED = 20
"""Nodes that one recommendation names, or lines of one list."""
_SPECIAL = re.compile(r"[\\|<>&*`\[\]]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9])|://|(?<=www)\.")


_GROUNDS: Mapping[Ground, str] = {"rule": "a rule", "examples": "examples", "votes": "votes", "person": "a person"}


def escape_markdown(text: str, *, most: int = _LONGEST) -> str:
    """Return text as one line of Markdown that shows it as it is."""
    return _SPECIAL.sub(_escape, shorten(clean(text), most))


def _escape(found: re.Match[str]) -> str:
    if found[0] == "://":
        return ":&#47;&#47;"  # or renderers make a link of it
    return f"&#{ord(found[0])};" if found[0] in "<>&." else f"\\{found[0]}"


# The report


def write_report(outcome: GenerationOutcome) -> str:
    """Return the text of ``docs/generation_report.md``."""
    sections = (
        _write_head(outcome),
        _write_summary(outcome),
        _write_breakdown(outcome.subgraphs),
        _write_nodes(outcome),
        _write_failed(outcome.nodes),
        _write_skipped(outcome.nodes),
        _write_unproved(outcome.subgraphs),
        _write_tests(outcome),
        _write_performance(outcome),
        _write_metrics(outcome),
        _write_dependencies(outcome),
        _write_validation(outcome),
        _write_circles(outcome),
        _write_recommendations(outcome),
        _write_log(outcome.log),
    )
    return "\n\n".join("\n".join(lines) for section in sections if (lines := [*section])) + "\n"


def _write_head(outcome: GenerationOutcome) -> Iterator[str]:
    yield "# Code Generation Report"
    yield ""
    yield f"**Generated**: {_format_time(outcome.generated_at)}  "
    yield "**Phase**: 4 (Graph-Guided Code Generation)  "
    yield f"**RPG Input**: {escape_markdown(outcome.graph_path)}  "
    yield f"**Repository Output**: {escape_markdown(outcome.output)}/"
    if outcome.model:
        yield ""
        yield f"Model: {escape_markdown(outcome.model)}"


def _write_summary(outcome: GenerationOutcome) -> Iterator[str]:
    counts, total = outcome.counts, outcome.counts.total()
    yield "## Summary"
    yield ""
    yield f"- **Total Nodes Planned**: {total}"
    yield f"- **Nodes Passed**: {counts['passed']} ({format_percent(counts['passed'], total)})"
    yield f"- **Nodes Failed**: {counts['failed']} ({format_percent(counts['failed'], total)})"
    yield f"- **Nodes Skipped**: {counts['skipped']} ({format_percent(counts['skipped'], total)})"
    left = counts["pending"] + counts["in_progress"]
    if left:
        yield f"- **Nodes Not Finished**: {left} ({format_percent(left, total)})"
    yield f"- **Nodes Proved**: {outcome.proved} of {total}"


def _write_breakdown(subgraphs: Iterable[SubgraphOutcome]) -> Iterator[str]:
    yield "## Breakdown by Subgraph"
    yield ""
    yield "| Subgraph | Nodes | Passed | Failed | Skipped | Pass Rate |"
    yield "|----------|-------|--------|--------|---------|-----------|"
    for each in subgraphs:
        passed, failed, skipped = (each.count(status) for status in ("passed", "failed", "skipped"))
        total = len(each.nodes)
        rate = "N/A (skipped)" if skipped == total else format_percent(passed, total)
        yield f"| {escape_markdown(each.name)} | {total} | {passed} | {failed} | {skipped} | {rate} |"


def _write_nodes(outcome: GenerationOutcome) -> Iterator[str]:
    yield "## Nodes"
    yield ""
    yield "| Node | Name | Status | Tests Passed | Rounds | Flaky Tests | Coverage | Time |"
    yield "|------|------|--------|--------------|--------|-------------|----------|------|"
    for node in outcome.nodes:
        coverage = "not measured" if node.coverage is None else f"{math.floor(node.coverage)}%"
        tests = f"{node.passed} of {node.tests}"
        names = f"{escape_markdown(node.id)} | {escape_markdown(node.title)}"
        status = f"{node.status}, {node.reason}" if node.status == "passed" and node.reason else node.status
        numbers = f"{node.rounds} | {node.flaky} | {coverage} | {format_duration(node.duration_s)}"
        yield f"| {names} | {status} | {tests} | {numbers} |"


def _write_failed(nodes: Iterable[NodeOutcome]) -> Iterator[str]:
    yield "## Failed Nodes (detail)"
    failed = [node for node in nodes if node.status == "failed"]
    if not failed:
        yield ""
        yield "None."
    for node in failed:
        yield ""
        yield f"### {escape_markdown(node.id)}: {escape_markdown(node.title)}"
        yield ""
        yield f"- **Failure Reason**: {escape_markdown(node.reason) or 'Unknown'}"
        yield f"- **Debug Iterations**: {node.rounds}"
        yield f"- **Root Cause**: {escape_markdown(node.root_cause) or 'Not found'}"
        advice = "Read the failure of the last attempt, and correct the docstring or the code"
        yield f"- **Recommendation**: {escape_markdown(node.advice) or advice}"


def _write_skipped(nodes: Iterable[NodeOutcome]) -> Iterator[str]:
    skipped = [node for node in nodes if node.status == "skipped"]
    if skipped:
        yield "## Skipped Nodes"
        yield ""
    for node in skipped:
        reason = escape_markdown(node.reason) or "a node that it needs has not passed"
        yield f"- {escape_markdown(node.id)}: {escape_markdown(node.title)}: {reason}"


def _write_unproved(subgraphs: Iterable[SubgraphOutcome]) -> Iterator[str]:
    lines = []
    for each in subgraphs:
        passed = [node for node in each.nodes if node.status == "passed"]
        if passed and not each.is_proved:
            tests = f"{each.paths_passed} of {each.paths} integration tests pass"
            what = format_count(len(passed), "passed node")
            lines.append(f"- Subgraph {escape_markdown(each.name)}: {what}; {tests}")
        else:
            lines += [f"- {_name(node)}: {escape_markdown(node.unproved)}" for node in passed if node.unproved]
    if lines:
        yield "## Unproved Nodes"
        yield ""
        yield from lines


def _write_tests(outcome: GenerationOutcome) -> Iterator[str]:
    nodes = [*outcome.nodes]
    paths = sum(each.paths for each in outcome.subgraphs)
    yield "## Test Results"
    yield ""
    if outcome.given_tests is not None:
        passed, total = outcome.given_tests
        yield f"- **Given Tests**: {_count_tests('given', total=total, passed=passed)}; none were written"
    else:
        total, passed = sum(node.tests for node in nodes), sum(node.passed for node in nodes)
        yield f"- **Unit Tests**: {_count_tests('generated', total=total, passed=passed)}"
        passed = sum(each.paths_passed for each in outcome.subgraphs)
        yield f"- **Integration Tests**: {_count_tests('generated', total=paths, passed=passed)}"
    yield f"- **Regression Tests**: {format_count(outcome.regressions, 'regression')} found and reverted"
    flaky = sum(node.flaky for node in nodes)
    if flaky:
        yield f"- **Flaky Tests**: {flaky}"


def _count_tests(verb: str, *, total: int, passed: int) -> str:
    return f"{total} {verb}, {passed} passing ({format_percent(passed, total)})"


def _write_performance(outcome: GenerationOutcome) -> Iterator[str]:
    done, first = list_done(outcome), list_first(outcome)
    tests = sum(node.tests for node in done)
    yield "## Performance"
    yield ""
    yield f"- **Generation Time**: {format_duration(outcome.duration_s)}"
    if done:
        yield f"- **Average Time per Node**: {format_duration(outcome.duration_s / len(done))}"
    with_tests = f", with {sum(node.passed for node in first)} of {format_count(tests, 'test')}"
    counted = "" if outcome.given_tests is not None else with_tests  # one such test enters many nodes
    yield f"- **Passed at the First Try**: {len(first)} of {format_count(len(done), 'node')}{counted}"
    yield f"- **Debug Iterations**: {sum(node.rounds for node in done)}"
    if outcome.diagnoses:
        parts = ", ".join(f"{count} by {_GROUNDS[ground]}" for ground, count in outcome.diagnoses.items())
        yield f"- **Diagnoses of Failures**: {sum(outcome.diagnoses.values())} ({parts})"


def _write_metrics(outcome: GenerationOutcome) -> Iterator[str]:
    yield "## Metrics"
    yield ""
    yield "| Metric | Target | Value | Reached |"
    yield "|--------|--------|-------|---------|"
    words = {True: "✅ yes", False: "❌ no", None: ""}
    for each in list_metrics(outcome):
        yield f"| {each.name} | {each.target} | {escape_markdown(each.value)} | {words[each.is_reached]} |"


def _write_dependencies(outcome: GenerationOutcome) -> Iterator[str]:
    """Yield how the dependencies of the code differ from those of the graph."""
    found = outcome.dependencies
    if found is None:
        return
    yield "## Dependencies"
    yield ""
    confirmed = len(found.confirmed) + len(found.entered)
    yield f"- **Planned**: {found.planned}, {confirmed} confirmed ({format_percent(confirmed, found.planned)})"
    titles = {node.id: node.title for node in outcome.nodes}

    def name(id: NodeId) -> str:
        return escape_markdown(titles.get(id, id))

    def name_edge(edge: Edge) -> str:
        return f"{name(edge[0])} needs {name(edge[1])}"

    extra = [f"{name_edge(edge)}: {escape_markdown(place)}" for edge, place in found.extra.items()]
    unused = [f"{name(id)}: {escape_markdown(place)}" for id, place in found.unused.items()]
    yield from _list_bounded("Confirmed by Tests Alone", [*map(name_edge, found.entered)], shows_none=False)
    yield from _list_bounded("Planned, Not in the Code", [*map(name_edge, found.missing)])
    yield from _list_bounded("Planned, Unknown until the Code Runs", [*map(name_edge, found.unknown)])
    yield from _list_bounded("In the Code, Not Planned", extra)
    yield from _list_bounded("Unused Functions", unused)


def _list_bounded(heading: str, lines: Sequence[str], *, shows_none: bool = True) -> Iterator[str]:
    """Yield a heading with a number, and below it the lines, or the first ones."""
    if lines or shows_none:
        yield f"- **{heading}**: {len(lines)}"
    yield from (f"  - {line}" for line in lines[:_LISTED])
    if len(lines) > _LISTED:
        yield f"  - and {len(lines) - _LISTED} more"


def _write_validation(outcome: GenerationOutcome) -> Iterator[str]:
    run = "pytest tests/" if outcome.given_tests is None else "pytest"  # given tests can have another folder
    yield "## Repository Validation"
    yield ""
    match outcome.installation:
        case Installed() as found:
            yield "- ✅ `pip install -e .` succeeds in a new environment"
            mark = _mark(found.passed == found.tests)
            yield f"- {mark} `{run}` runs there ({found.passed}/{found.tests} tests pass)"
            yield f"- ✅ {format_count(found.modules, 'module')} can be imported there"
        case NotInstalled(act="install", reason=reason):
            yield f"- ❌ `pip install -e .` fails: {escape_markdown(reason)}"
        case NotInstalled(act="import", reason=reason):
            yield "- ✅ `pip install -e .` succeeds in a new environment"
            yield f"- ❌ Some modules cannot be imported there: {escape_markdown(reason)}"
        case NotInstalled(act="test", reason=reason):
            yield "- ✅ `pip install -e .` succeeds in a new environment"
            yield f"- ❌ `{run}` does not run there: {escape_markdown(reason)}"
        case NotVerified(reason=reason):
            yield f"- ⚠️ `pip install -e .` is not verified: {escape_markdown(reason)}"
    counts = outcome.counts
    if counts["failed"]:
        yield f"- ⚠️ {format_count(counts['failed'], 'node')} failed (see details above)"
    if counts["skipped"]:
        yield f"- ⚠️ {format_count(counts['skipped'], 'node')} skipped (nodes that they need have not passed)"
    yield from (f"- ⚠️ {escape_markdown(warning)}" for warning in outcome.warnings)


def _mark(is_fine: bool) -> str:
    return "✅" if is_fine else "⚠️"


def _write_circles(outcome: GenerationOutcome) -> Iterator[str]:
    if outcome.circular_imports:
        yield "## Circular Imports"
        yield ""
    for circle in outcome.circular_imports:
        modules = " → ".join(map(escape_markdown, (*circle.modules, *circle.modules[:1])))
        source, target = _name_ends(circle, outcome)
        yield f"- {modules}: closed by {source}, which needs {target}"


def _name_ends(circle: ImportCycle, outcome: GenerationOutcome) -> tuple[str, str]:
    """Return the titles of the nodes whose dependency closes a circle."""
    titles = {node.id: node.title for node in outcome.nodes}
    source, target = (escape_markdown(titles.get(each, each)) for each in (circle.source, circle.target))
    return source, target


def _write_recommendations(outcome: GenerationOutcome) -> Iterator[str]:
    yield "## Recommendations"
    yield ""
    yield from (f"{number}. {text}" for number, text in enumerate(_list_recommendations(outcome), start=1))


def _list_recommendations(outcome: GenerationOutcome) -> Iterator[str]:
    failed = [node for node in outcome.nodes if node.status == "failed"]
    if failed:
        yield f"**Manual Fix Required**: {_list_nodes(failed)}"
    if outcome.missing_packages:
        names = ", ".join(map(escape_markdown, outcome.missing_packages))
        yield f"**Dependency Update**: the code imports {names}; add what it needs to the graph, and install it"
    for circle in outcome.circular_imports:
        source, target = _name_ends(circle, outcome)
        yield f"**Circular Import**: move {target}, or the part of it that {source} needs, into a third module"
    unproved = outcome.counts["passed"] - outcome.proved
    if unproved:
        yield f"**Proof Missing**: {format_count(unproved, 'passed node')} not proved; review the tests and the code"
    left = [node for node in outcome.nodes if node.status != "passed"]
    if left:
        command = f": `{outcome.command}`" if outcome.command and "`" not in outcome.command else ""
        yield f"**Re-run Generation**: the same command tries {format_count(len(left), 'node')} again{command}"
    if isinstance(outcome.installation, NotVerified):
        yield "**Installation**: install the repository in a new environment, and run its tests there"
    elif isinstance(outcome.installation, Installed) and not left and outcome.proved == outcome.counts.total():
        yield "**Proceed to Phase 5**: all nodes are proved, and the repository can be installed"


def _write_log(log: Iterable[str]) -> Iterator[str]:
    lines = [shorten(clean(line), _LONGEST) for line in log]
    if lines:
        yield "## Git Log"
        yield ""
        # Indented, because a subject can have any number of backticks.
        yield from (f"    {line}" for line in lines)


def _name(node: NodeOutcome) -> str:
    return f"{escape_markdown(node.id)} ({escape_markdown(node.title)})"


def _list_nodes(nodes: list[NodeOutcome]) -> str:
    shown = ", ".join(map(_name, nodes[:_LISTED]))
    more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
    return f"{shown}{more} need review by a person" if len(nodes) > 1 else f"{shown} needs review by a person"


def _format_time(moment: str) -> str:
    """Return ``2026-02-07 10:45:30`` for a time in ISO form."""
    return escape_markdown(moment[:19].replace("T", " ")) or "unknown"


# The checkpoint


class CheckpointTests(msgspec.Struct, frozen=True):
    """The results of a node's tests."""

    passed: int = 0
    failed: int = 0


class CheckpointStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What connects a node with a step of the run."""

    number: int = 0
    title: str = ""
    text_sha256: str = ""
    subgraph: str = ""
    commits: dict[str, str] = {}


class CheckpointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One node in the checkpoint. Other tools read these keys; ``step`` is for cdd."""

    status: NodeStatus
    timestamp: str = ""
    test_results: CheckpointTests = CheckpointTests()
    retry_count: int = 0
    failure_reason: str | msgspec.UnsetType = msgspec.UNSET
    step: CheckpointStep = CheckpointStep()


def write_checkpoint(outcome: GenerationOutcome) -> bytes:
    """Return the content of ``docs/generation_checkpoint.json``: node id -> entry, in the order of the steps."""
    entries = {
        node.id: CheckpointEntry(
            status=node.status,
            timestamp=node.timestamp,
            test_results=CheckpointTests(passed=node.passed, failed=node.failed),
            retry_count=node.rounds,
            failure_reason=clean(node.reason) if node.reason and node.status != "passed" else msgspec.UNSET,
            step=CheckpointStep(
                number=node.number,
                title=node.title,
                text_sha256=node.text_sha256,
                subgraph=subgraph.id,
                commits=dict(node.commits),
            ),
        )
        for subgraph in outcome.subgraphs
        for node in subgraph.nodes
    }
    return msgspec.json.format(encode_json(entries), indent=2) + b"\n"


# The graph


def describe_statuses(graph: Graph, outcome: GenerationOutcome) -> Mapping[NodeId, NodeStatus]:
    """Return what became of each node of the graph; a composite has passed if all that it contains has."""
    known: dict[NodeId, NodeStatus] = {node.id: node.status for node in outcome.nodes}
    inside: dict[NodeId, list[NodeStatus]] = {}
    for node in graph.leaves:
        parent, seen = node.parent, set[NodeId]()
        while parent is not None and parent in graph.by_id and parent not in seen:
            seen.add(parent)
            inside.setdefault(parent, []).append(known.get(node.id, "pending"))
            parent = graph.by_id[parent].parent
    order: tuple[NodeStatus, ...] = ("failed", "in_progress", "pending", "skipped", "passed")
    found = {}
    for node in graph.nodes:
        if node.node_type == "leaf":
            found[node.id] = known.get(node.id, "pending")
        else:
            statuses = inside.get(node.id, ["passed"])
            found[node.id] = next(status for status in order if status in statuses)
    return found


def export_graph(graph: Graph, outcome: GenerationOutcome) -> bytes:
    """Return the content of ``docs/rpg.json``: the graph, with what became of its nodes, and what their code uses."""
    statuses = describe_statuses(graph, outcome)
    actual = outcome.dependencies.actual if outcome.dependencies is not None else {}

    def describe(node: Node) -> Mapping[str, object]:
        known = {key: value for key, value in node.further.items() if key != _ACTUAL}
        used = {_ACTUAL: [*actual[node.id]]} if node.id in actual else {}
        return {**known, "status": statuses[node.id], **used}

    nodes = tuple(replace(node, further=describe(node)) for node in graph.nodes)
    about = {"phase": 4, "timestamp": outcome.generated_at, "model": outcome.model, "metrics": list_metrics(outcome)}
    return encode_graph(replace(graph, nodes=nodes, metadata={**graph.metadata, "generation": about}))


class _Generation(msgspec.Struct, frozen=True):
    metrics: tuple[Metric, ...] = ()


class _Metadata(msgspec.Struct, frozen=True):
    generation: _Generation = _Generation()


class _ExportedGraph(msgspec.Struct, frozen=True):
    """The part of an exported graph that cdd reads again."""

    metadata: _Metadata = _Metadata()


def read_metrics(data: bytes) -> tuple[Metric, ...]:
    """Return the measures in an exported graph, as plain text; none if it cannot be read."""
    try:
        check_json(data.decode(), limit_bytes=MOST_CHECKPOINT_BYTES)
        found = msgspec.json.decode(data, type=_ExportedGraph).metadata.generation.metrics
    except (ValueError, RecursionError):
        return ()

    def shorten_text(text: str) -> str:
        return shorten(clean(text), _LONGEST)

    return tuple(
        replace(each, name=shorten_text(each.name), value=shorten_text(each.value), target=shorten_text(each.target))
        for each in found[:_LISTED]
    )


# The tests

_NOT_XML = re.compile("[^\t\n\r\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {"failed": "failure", "error": "error", "skipped": "skipped", "xfailed": "skipped", "xpassed": ""}


def write_junit(report: SuiteReport) -> bytes:
    """Return the content of ``test_results.xml``: a run of the tests in the form that CI services read."""
    suites = Element("testsuites")
    counts = Counter(case.outcome for case in report.tests)
    errors = counts["error"] + len(report.collect_errors)
    suite = SubElement(
        suites,
        "testsuite",
        name="pytest",
        tests=str(len(report.tests) + len(report.collect_errors)),
        failures=str(counts["failed"]),
        errors=str(errors),
        skipped=str(counts["skipped"] + counts["xfailed"]),
        time=f"{report.duration_s:.3f}",
        timestamp=report.started_at,
    )
    for case in report.tests:
        element = _add_case(suite, case.nodeid, duration_s=case.duration_s)
        if name := _ELEMENTS.get(case.outcome, ""):
            _add_failure(element, name, failure=case.failure, reason=case.reason)
    for error in report.collect_errors:
        _add_failure(_add_case(suite, error.nodeid, duration_s=0), "error", failure=error.failure)
    indent(suites)
    text: str = tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add_case(suite: Element, nodeid: str, *, duration_s: float) -> Element:
    function, bracket, parameters = nodeid.partition("[")
    file, *names = function.split("::")
    classname = ".".join((re.sub(r"\.py$", "", file).replace("/", "."), *names[:-1]))
    name = f"{names[-1] if names else file}{bracket}{parameters}"
    return SubElement(suite, "testcase", classname=_to_xml(classname), name=_to_xml(name), time=f"{duration_s:.3f}")


def _add_failure(case: Element, name: str, *, failure: Failure | None, reason: str = "") -> None:
    if failure is None:
        SubElement(case, name, message=_to_xml(reason))
        return
    element = SubElement(case, name, type=_to_xml(failure.exception), message=_to_xml(failure.message))
    element.text = _to_xml(failure.text)


def _to_xml(text: str) -> str:
    """Return text without characters that XML cannot have."""
    return _NOT_XML.sub("", clean(text))
