"""Each measure of the specification has a value, or says why it has none."""

from dataclasses import replace

from cdd_agent.generation.metrics import Metric, format_percent, list_metrics
from cdd_agent.generation.outcome import (
    Dependencies,
    GenerationOutcome,
    Installed,
    Localization,
    NodeOutcome,
    NodeStatus,
    NotInstalled,
    NotVerified,
    SubgraphOutcome,
)
from cdd_agent.tickets.graph import NodeId

NAMES = (
    *("Test pass rate (first try)", "Debugging success rate", "Symbol localization speed", "Graph search speed"),
    *("Repository build success", "Generation completion time", "Dependency validation"),
)


def node(number: int, status: NodeStatus = "passed", *, refused: int = 0, failed: int = 0) -> NodeOutcome:
    id, passed = NodeId(str(number)), 3 if status == "passed" else 0
    return NodeOutcome(
        id=id, title=f"f{number}", status=status, passed=passed, failed=failed, rounds=refused, refused=refused
    )


def make_outcome(*nodes: NodeOutcome) -> GenerationOutcome:
    return GenerationOutcome(package="p", subgraphs=(SubgraphOutcome(id="s", name="s", nodes=nodes),), duration_s=120)


def measure(outcome: GenerationOutcome, name: str) -> Metric:
    return next(each for each in list_metrics(outcome) if each.name == name)


def test_every_measure_of_the_specification_is_there_and_says_why_it_has_no_value() -> None:
    found = list_metrics(make_outcome())
    assert tuple(each.name for each in found if each.target) == NAMES
    assert all(each.value.startswith("not measured: ") and each.is_reached is None for each in found[: len(NAMES)])


def test_tests_that_pass_at_the_first_try_are_counted() -> None:
    some = make_outcome(node(1), node(2), node(3, refused=1))
    assert measure(some, NAMES[0]) == Metric(
        name=NAMES[0], target="at least 60%", value="6 of 9 tests (67%)", is_reached=True
    )
    assert measure(make_outcome(node(1), node(2, refused=2)), NAMES[0]).is_reached is False
    given = measure(replace(some, given_tests=(9, 9)), NAMES[0]).value
    assert given.endswith("2 of 3 nodes passed at the first try")


def test_debugging_succeeds_for_nodes_that_were_refused_and_pass_in_the_end() -> None:
    nodes = (node(1), *(node(number, refused=1) for number in range(2, 6)), node(6, "failed", refused=9, failed=3))
    found = measure(make_outcome(*nodes, node(7, "skipped", refused=1)), NAMES[1])
    assert (found.value, found.is_reached) == ("4 of 5 nodes (80%)", True)
    assert measure(make_outcome(*nodes), "Refused attempts per debugged node").value == "2.6 on average"


def test_times_are_compared_with_their_limits() -> None:
    asked = Localization(symbol_ms=0.52, search_ms=612, answers={"ty": 3, "index": 40}, queries=9, rounds=2)
    fast = replace(make_outcome(node(1)), localization=asked)
    assert [(measure(fast, name).value, measure(fast, name).is_reached) for name in NAMES[2:4]] == [
        ("median 0.5 ms", True),
        ("median 612 ms", False),
    ]
    assert measure(fast, "Answers per engine").value == "index: 40, ty: 3"
    assert measure(fast, "Questions per debugging attempt").value == "4.5 on average"
    assert measure(fast, NAMES[5]).is_reached is False  # two minutes for one node
    many = make_outcome(*map(node, range(5)))
    assert (measure(many, NAMES[5]).value, measure(many, NAMES[5]).is_reached) == (
        "2 minutes 0 seconds for 5 nodes",
        True,
    )
    slow = make_outcome(node(1), replace(node(2), duration_s=100))
    assert measure(slow, "Time per node").value == "50 seconds on average, at most 1 minute 40 seconds (f2)"


def test_what_cannot_be_installed_was_not_built() -> None:
    checks = (
        Installed(modules=1, tests=1, passed=0),
        NotInstalled(act="import", reason="no"),
        NotInstalled(act="install", reason="no"),
        NotVerified(reason="no index"),
    )
    found = [measure(replace(make_outcome(), installation=check), NAMES[4]).is_reached for check in checks]
    assert found == [True, True, False, None]


def test_unknown_dependencies_leave_open_whether_enough_are_confirmed() -> None:
    def compare(confirmed: int, missing: int, unknown: int) -> Metric:
        edge = (NodeId("a"), NodeId("b"))
        found = Dependencies(confirmed=(edge,) * confirmed, missing=(edge,) * missing, unknown=(edge,) * unknown)
        return measure(replace(make_outcome(), dependencies=found), NAMES[6])

    assert (compare(8, 2, 0).value, compare(8, 2, 0).is_reached) == ("8 of 10 (80%)", True)
    assert (compare(7, 1, 2).value, compare(7, 1, 2).is_reached) == ("7 of 10 (70%), 2 unknown", None)
    assert compare(7, 3, 0).is_reached is False
    assert compare(5, 3, 2).is_reached is False


def test_only_all_is_100_percent_and_only_none_is_0_percent() -> None:
    assert [format_percent(part, 3000) for part in (0, 1, 1500, 2999, 3000)] == ["0%", "1%", "50%", "99%", "100%"]
