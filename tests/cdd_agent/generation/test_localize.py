"""Where the fault of failing tests may be: clues, tools with their log, and the debug context."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cdd_agent.agent.tools import ToolOutput
from cdd_agent.errors import UsageError
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.localize import (
    MOST_ANSWER,
    MOST_QUERIES,
    MOST_WHERE,
    LocalizationExhaustedError,
    LocalizationLog,
    Localizer,
    Query,
    QueryAnswer,
    Round,
    list_clues,
    phrase_query,
)
from cdd_agent.generation.search import GraphSearch
from cdd_agent.model.conversation import JSON
from cdd_agent.symbols.index import Index
from cdd_agent.tickets.graph import Node, NodeId
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.report import Case, Failure, Frame, SuiteReport
from tests.fakes.clock import FakeClock
from tests.fakes.graphs import leaf, make_graph

MEAN = leaf(
    "calculate_mean", "src/kit/stats.py", "validate_numbers", docstring="Return the arithmetic mean of numbers."
)
CHECK = leaf("validate_numbers", "src/kit/checks.py", docstring="Raise ValueError unless there are numbers.")
REPORT = leaf("describe", "src/kit/report.py", "calculate_mean", docstring="Return a sentence about a mean.")
STATS = "from kit.checks import validate_numbers\n\n\ndef calculate_mean(numbers: list[float]) -> float:\n"
STATS += '    """Return the mean."""\n    validate_numbers(numbers)\n    return sum(numbers) / float(len(numbers))\n'
CHECKS = 'def validate_numbers(numbers):\n    """Check."""\n    if 0 in numbers:\n        raise ValueError\n'
STUB = "def describe(mean):\n    raise NotImplementedError\n"
KEY = "sk-ant-api03-" + "a" * 93 + "AA"


def fail(
    message: str, *frames: Frame, text: str = "", missing: str | None = None, test: str = "test_mean"
) -> SuiteReport:
    failure = Failure("call", "assertion", "test", "AssertionError", message, missing, frames=frames, text=text)
    case = Case(f"tests/test_stats.py::{test}", "failed", "tests/test_stats.py", 1, 0.1, failure=failure)
    return SuiteReport(True, 1, "", "3.11", "9", "/p", "", 1, tests=(case,))


NAN = fail(
    "AssertionError: expected 5.0, got nan",
    Frame("tests/test_stats.py", 7, "test_mean"),
    text=">       assert calculate_mean(rows) == 5.0\nE       AssertionError: expected 5.0, got nan",
)


@dataclass
class Kit:
    """A project with three nodes."""

    root: Path
    nodes: tuple[Node, ...] = (MEAN, CHECK, REPORT)
    statuses: Mapping[str, str] = field(default_factory=lambda: {"validate_numbers": "failed"})
    told: list[str] = field(default_factory=list)
    clock: FakeClock = field(default_factory=lambda: FakeClock(tick_s=0.002))

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.root / "src" / "kit" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def round(self, number: int = 2, *, report: SuiteReport | None = NAN, node: Node = MEAN) -> Round:
        graph = make_graph(*self.nodes)
        return Round(
            localizer=Localizer(graph, Layout.of(graph, "kit"), search=lambda: GraphSearch(graph)),
            node=node,
            number=number,
            log=LocalizationLog(self.root.parent / "records" / "log.json", clock=self.clock),
            definitions=Index(self.root),
            workspace=Workspace(self.root),
            status_of=lambda name: self.statuses.get(name, "passed"),
            report=report,
            debug_path=self.root.parent / "records" / f"debug-{number}.md",
            tell=self.told.append,
        )


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    kit = Kit(tmp_path / "kit")
    kit.write(stats=STATS, checks=CHECKS, report=STUB)
    return kit


def caller(round: Round) -> Callable[..., ToolOutput]:
    """Return a function that calls a tool of a round by its name."""
    tools = {tool.spec.name: tool for tool in round.make_tools()}

    def call(name: str, **fields: JSON) -> ToolOutput:
        return tools[name].run(fields)

    return call


def test_the_fault_of_a_nan_is_found_in_three_querys(kit: Kit) -> None:
    call = caller(kit.round())
    first, *_ = call("SearchGraph", query="mean calculation").text.splitlines()[1:]
    assert first.startswith("1. stats.calculate_mean (calculate_mean) [passed]")
    assert "return sum(numbers) / float(len(numbers))" in call("ViewCode", place="calculate_mean").text
    needs = call("ViewDependencies", node="calculate_mean").text
    assert "`-- checks.validate_numbers (validate_numbers) [failed]  <-- FAILED, it may be the cause" in needs
    assert "report.describe" in needs
    assert "if 0 in numbers" in call("ViewCode", place="validate_numbers").text


def test_the_first_message_of_the_next_attempt_says_where_the_failures_lead(kit: Kit) -> None:
    text = kit.round().describe_where()
    assert "- `calculate_mean` (src/kit/stats.py:4), because the code that fails in test_mean names it" in text
    assert "1. stats.calculate_mean (calculate_mean) [passed]" in text
    assert "stats.calculate_mean needs these, which have not passed: checks.validate_numbers [failed]" in text


def test_a_traceback_leads_to_the_innermost_definition(kit: Kit) -> None:
    frames = (
        Frame("tests/test_stats.py", 7, "test_mean"),
        Frame("src/kit/stats.py", 6, "x"),
        Frame("src/kit/checks.py", 4, "y"),
    )
    found = kit.round(report=fail("ValueError", *frames)).find_suspects()
    assert [(each.symbol.name, each.node) for each in found] == [
        ("validate_numbers", "validate_numbers"),
        ("calculate_mean", "calculate_mean"),
    ]


def test_a_missing_name_leads_to_all_that_have_it_and_a_stub_says_so(kit: Kit) -> None:
    kit.write(other="class Text:\n    def describe(self):\n        return 1\n")
    round = kit.round(report=fail("AttributeError", missing="kit.report.describe"))
    found = round.find_suspects()
    assert [(each.symbol.path, each.symbol.name, each.node) for each in found] == [
        ("src/kit/report.py", "describe", "describe"),
        ("src/kit/other.py", "Text.describe", None),
    ]
    assert "`describe` (src/kit/report.py:1), because test_mean lacks it: not yet generated" in round.describe_where()


def test_frames_outside_of_the_project_and_broken_files_lead_nowhere(kit: Kit) -> None:
    kit.write(checks="def f(:\n")
    frames = (Frame("/usr/lib/python3/x.py", 1, "x"), Frame("../x.py", 1, "x"), Frame("src/kit/checks.py", 1, "f"))
    assert kit.round(report=fail("E", *frames)).find_suspects() == ()
    assert kit.round(report=None).describe_where() == ""


def test_clues_are_bounded_and_leave_tests_out() -> None:
    frames = tuple(Frame("src/kit/stats.py", number, "f") for number in range(1000))
    found = list_clues(fail("E", *frames), is_test=lambda path: path.startswith("tests/"), names=())
    assert [each.line for each in found[:2]] == [999, 998]
    assert len(found) < 20
    only = list_clues(NAN, is_test=lambda path: path.startswith("tests/"), names={"calculate_mean", "rows2"})
    assert [each.name for each in only] == ["calculate_mean"]


def test_the_query_has_the_words_of_the_test_and_of_the_message() -> None:
    report = fail("ValueError: bad\nmore", test="test_mean_of_negative_numbers[case-1]")
    assert phrase_query(report) == "stats mean of negative numbers ValueError bad"
    assert len(phrase_query(fail("x " * 5000))) <= 200


def test_a_name_in_the_test_counts_if_the_line_that_fails_has_none() -> None:
    text = "    def test_it(self, make=kit.calculate_mean):\n>       assert make([1]) == 1\nE       assert 0 == 1"
    found = list_clues(
        fail("assert 0 == 1", text=text, test="test_it"), is_test=bool, names={"calculate_mean", "it_is"}
    )
    assert [(each.name, each.why) for each in found] == [("calculate_mean", "test_it names it")]
    found = list_clues(fail("E", test="test_calculate_mean_of_one[2]"), is_test=bool, names={"mean", "calculate_mean"})
    assert [each.name for each in found] == ["calculate_mean"]


def test_the_code_of_a_node_is_shown_with_the_code_that_it_needs(kit: Kit) -> None:
    call = caller(kit.round())
    text = call("ViewCode", place="calculate_mean").text
    assert "src/kit/checks.py, validate_numbers, which is needed:\n     1\tdef validate_numbers(numbers):" in text
    kit.write(checks=CHECKS.replace("ValueError", "TypeError"))
    assert "raise TypeError" in call("ViewCode", place="calculate_mean").text
    kit.write(checks="def validate_numbers(numbers):\n" + "    numbers += 1\n" * 200)
    assert "which is needed" not in call("ViewCode", place="calculate_mean").text
    kit.write(checks="def validate_numbers(:\n")
    assert "return sum(numbers)" in call("ViewCode", place="calculate_mean").text


def test_localization_limit(kit: Kit) -> None:
    log = kit.round().log
    for number in range(MOST_QUERIES):
        log.answer(ask_for(f"q{number}"), ask=lambda: QueryAnswer(text="found", engine="words"))
    with pytest.raises(LocalizationExhaustedError):
        log.answer(ask_for("one more"), ask=lambda: QueryAnswer(text="found", engine="words"))
    assert log.answer(ask_for("one more", round=3), ask=lambda: QueryAnswer(text="found", engine="words")) == "found"


def ask_for(text: str, round: int = 2) -> Query:
    return Query(round=round, tool="SearchGraph", text=text)


def test_the_query_after_the_last_one_is_refused_and_a_person_gets_the_debug_context(kit: Kit) -> None:
    kit.write(checks=f"{CHECKS}    return '{KEY}'\n")
    round = replace(kit.round(), votes="3 of 5: the code\x1b[31m")
    call = caller(round)
    call("ViewCode", place="validate_numbers")
    for number in range(MOST_QUERIES - 1):
        assert not call("SearchGraph", query=f"mean {number}").is_error
    for _ in range(2):
        refused = call("SearchGraph", query="once more")
        assert refused.is_error
        assert f"This attempt has made {MOST_QUERIES} queries" in refused.text
        assert str(round.debug_path) in refused.text
    assert round.debug_path is not None
    text = round.debug_path.read_text()
    for part in ("expected 5.0, got nan", "return sum(numbers)", "[failed]", "SearchGraph: mean 7", "3 of 5: the code"):
        assert part in text
    assert KEY not in text
    assert "\x1b" not in text
    assert len(kit.told) == 1


def test_a_repeated_query_is_answered_from_the_log_and_costs_nothing(kit: Kit) -> None:
    call = caller(kit.round())
    first = call("SearchGraph", query="average")
    for _ in range(2 * MOST_QUERIES):
        again = call("SearchGraph", query=" average ")
    assert again.text == f"(From the log: this was query 1 of this attempt.)\n{first.text}"
    assert len(kit.round().log.entries) == 1
    assert "From the log" not in caller(kit.round(3))("SearchGraph", query="average").text


def test_code_that_has_changed_is_shown_anew(kit: Kit) -> None:
    call = caller(kit.round())
    call("ViewCode", place="calculate_mean")
    kit.write(stats=STATS.replace("sum(numbers)", "fsum(numbers)"))
    answer = call("ViewCode", place="calculate_mean").text
    assert "fsum(numbers)" in answer
    assert "From the log" not in answer


def test_the_log_has_query_engine_answer_and_time_and_outlives_the_process(kit: Kit) -> None:
    caller(kit.round())("SearchGraph", query="average", everywhere=True)
    (entry,) = kit.round().log.entries
    assert (entry.query.tool, entry.query.text, entry.engine) == ("SearchGraph", "average (everywhere)", "words")
    assert entry.answer.startswith("In the graph:")
    assert entry.took_ms > 0
    assert entry.at


def test_the_next_attempt_learns_which_searches_found_nothing(kit: Kit) -> None:
    call = caller(kit.round(2))
    assert "Nothing in the subgraph" in call("SearchGraph", query="zebra `crossing`").text
    call("SearchGraph", query="average")
    call("ViewDependencies", node="calculate_meen")
    assert "in vain" not in kit.round(2).describe_where()
    history = kit.round(3).describe_where().partition("Earlier attempts searched in vain:\n")[2]
    assert history.splitlines() == ["- SearchGraph `zebra `crossing``", "- ViewDependencies `calculate_meen`"]


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("ViewDependencies", {"node": "calculate_meen"}, "did you mean calculate_mean?"),
        ("ViewCode", {"place": "nothing like it"}, "search for it with SearchGraph"),
        ("ViewCode", {"place": "src/kit/missing.py"}, "not yet generated"),
        ("ViewCode", {"place": "../../etc/passwd.py"}, "contains '..'"),
        ("ViewCode", {"place": "src/kit/stats.py", "definition": "total"}, "it defines calculate_mean"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(kit: Kit, name: str, *, fields: dict[str, JSON], text: str) -> None:
    assert text in caller(kit.round())(name, **fields).text


def test_all_nodes_of_one_name_are_shown(kit: Kit) -> None:
    kit.nodes = (*kit.nodes, leaf("calculate_mean", "src/kit/other.py", id="other"))
    kit.write(other="def calculate_mean():\n    return 0\n")
    text = caller(kit.round())("ViewCode", place="kit.stats.calculate_mean").text
    assert "return sum(numbers)" in text
    assert "src/kit/other.py" not in text
    assert kit.round().localizer.find_nodes("calculate_mean") == ("calculate_mean",)  # an id is unique
    kit.nodes = (replace(MEAN, id=NodeId("m"), dependencies=()), kit.nodes[-1])
    text = caller(kit.round(node=kit.nodes[0]))("ViewCode", place="calculate_mean").text
    assert "src/kit/stats.py" in text
    assert "src/kit/other.py" in text
    with pytest.raises(UsageError, match="2 nodes"):
        kit.round().localizer.require_node("calculate_mean")


def test_views_can_be_json(kit: Kit) -> None:
    call = caller(kit.round())
    (view,) = json.loads(call("ViewCode", place="calculate_mean", as_json=True).text)
    assert (view["path"], view["needed"][0]["name"]) == ("src/kit/stats.py", "validate_numbers")
    assert json.loads(call("ViewDependencies", node="calculate_mean", as_json=True).text)["root"]["status"] == "passed"
    kit.write(checks="".join(f"def f{number}(): return {number}\n" for number in range(5000)))
    assert "ask for one definition" in call("ViewCode", place="src/kit/checks.py", as_json=True).text


def test_answers_are_bounded_and_keys_masked(kit: Kit) -> None:
    kit.write(
        stats=f"def calculate_mean():\n    return '{KEY}'\n", checks="def validate_numbers():\n" + "    x = 1\n" * 5_000
    )
    call = caller(kit.round())
    assert KEY not in call("ViewCode", place="calculate_mean").text
    assert "more lines: Read shows them" in call("ViewCode", place="validate_numbers").text
    kit.write(checks="".join(f"def f{number}(): return {number}\n" for number in range(5000)))
    assert len(call("ViewCode", place="src/kit/checks.py").text) < MOST_ANSWER + 100
    wide = fail("E " * 10_000, text="> " + "calculate_mean " * 10_000)
    kit.nodes = tuple(replace(node, docstring="word " * 5000) for node in kit.nodes)
    assert len(kit.round(report=wide).describe_where()) < MOST_WHERE + 100
