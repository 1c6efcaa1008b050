from pathlib import Path

import pytest

from cdd_agent.events import EngineDropped, Event, SymbolAnswered
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.answers import Engines
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.serena import SerenaServer
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.symbols.ty import TyServer
from cdd_agent.symbols.watched_files import AnswerContradictsFiles
from tests.fakes.serena import write_serena
from tests.fakes.symbols import FakeSymbolServer

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/stats.py": "def mean(values):\n    return 1\n\ndef total(): pass\n",
    "src/pkg/report.py": "from pkg.stats import mean\n\nprint(mean([1]))\n",
    "src/pkg/tables.py": "from .stats import (\n    mean,\n)\nmean([2])\n",
    "src/pkg/shadow.py": "from pkg.stats import mean\n\ndef f(mean):\n    return mean\n",
    "src/pkg/other.py": "from elsewhere import mean\nmean(1)\n",
    "src/pkg/words.py": "# mean\nx = 'mean'\n",
}
GOOD = [("src/pkg/report.py", 3, 6), ("src/pkg/tables.py", 4, 0)]
STALE = GOOD[:1]
DEAD = SymbolServerError("It has ended.", hint="-")
ODD = AnswerContradictsFiles("It does not know mean.", hint="-")


@pytest.fixture
def index(tmp_path: Path) -> Index:
    for path, text in FILES.items():
        (tmp_path / "project" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / path).write_text(text)
    return Index(tmp_path / "project")


def ask(engines: Engines, index: Index, name: str = "mean") -> tuple[str, list[tuple[str, int, int]], bool]:
    answer = engines.find_references(index.find_one(name))
    return answer.engine, [(each.path, each.line, each.column) for each in answer.places], answer.is_verified


def test_the_index_answers_where_a_definition_is(index: Index) -> None:
    seen: list[Event] = []
    engines = Engines(index, servers=(), scan=FakeSymbolServer("name scan", []), emit=seen.append)
    assert [symbol.path for symbol in engines.find("mean")] == ["src/pkg/stats.py"]
    (answer,) = seen
    assert isinstance(answer, SymbolAnswered)
    assert (answer.question, answer.symbol, answer.engine, answer.places) == ("definition", "mean", "index", 1)
    assert engines.counts == {"index": 1}


def test_the_first_engine_answers_and_the_answer_is_recorded(index: Index) -> None:
    seen: list[Event] = []
    second, scan = (FakeSymbolServer(name, [GOOD]) for name in ("Serena", "name scan"))
    first = FakeSymbolServer("ty", [GOOD, [("src/pkg/stats.py", 4, 4)]])
    engines = Engines(index, servers=(first, second), scan=scan, emit=seen.append)
    assert ask(engines, index) == ("ty", GOOD, True)
    assert engines.plan_rename(index.find_one("total"), "all").engine == "ty"
    assert (second.questions, scan.questions) == (0, 0)
    assert engines.counts == {"ty": 2}
    found, planned = seen
    assert isinstance(found, SymbolAnswered)
    assert isinstance(planned, SymbolAnswered)
    assert (found.question, found.symbol, found.places) == ("references", "src/pkg/stats.py::mean", 2)
    assert (planned.question, planned.engine, planned.passed_over) == ("rename", "ty", ())
    engines.note_changes(["a.py"])
    engines.close()
    assert [each.noted for each in (first, second, scan)] == [[{"a.py"}]] * 3
    assert (first.is_closed, second.is_closed) == (True, True)


@pytest.mark.parametrize("wrong", [[], STALE, [("src/pkg/words.py", 1, 2)], ODD])
def test_an_answer_that_does_not_fit_the_files_is_asked_for_again(
    index: Index, wrong: list[tuple[str, int, int]] | SymbolServerError
) -> None:
    server, scan = FakeSymbolServer("ty", [wrong, GOOD]), FakeSymbolServer("name scan", [GOOD])
    answer = Engines(index, servers=(server,), scan=scan).find_references(index.find_one("mean"))
    assert (answer.engine, answer.is_second, len(answer.places)) == ("ty", True, 2)
    assert server.noted == [set(FILES)]


def test_an_answer_that_stays_wrong_is_that_of_the_next_engine(index: Index) -> None:
    first, second = FakeSymbolServer("ty", [STALE]), FakeSymbolServer("Serena", [GOOD])
    engines = Engines(index, servers=(first, second), scan=FakeSymbolServer("name scan", [[]]))
    answer = engines.find_references(index.find_one("mean"))
    assert (answer.engine, answer.is_verified, first.questions) == ("Serena", True, 2)
    (why,) = answer.passed_over
    assert why.startswith("ty: It leaves out src/pkg/tables.py")


def test_an_engine_that_does_not_answer_is_not_asked_again_at_once(index: Index) -> None:
    first, scan = FakeSymbolServer("ty", [DEAD]), FakeSymbolServer("name scan", [GOOD])
    answer = Engines(index, servers=(first,), scan=scan).find_references(index.find_one("mean"))
    assert (answer.engine, answer.is_verified, first.questions) == ("name scan", False, 1)
    assert answer.passed_over == ("ty: It has ended.",)


def test_after_three_failures_an_engine_is_left_out_and_that_is_reported(index: Index) -> None:
    seen: list[Event] = []
    first, scan = FakeSymbolServer("ty", [DEAD, GOOD, DEAD, DEAD, GOOD]), FakeSymbolServer("name scan", [GOOD])
    engines = Engines(index, servers=(first,), scan=scan, emit=seen.append)
    assert [ask(engines, index)[0] for _ in range(6)] == ["name scan", "ty", *["name scan"] * 4]
    assert first.questions == 4
    assert [each for each in seen if isinstance(each, EngineDropped)] == [
        EngineDropped(engine="ty", why="It has ended.")
    ]
    last = seen[-1]
    assert isinstance(last, SymbolAnswered)
    assert last.passed_over == ("ty: not asked again after 3 failures; the last: It has ended.",)
    assert engines.counts == {"name scan": 5, "ty": 1}


def test_odd_symbols_do_not_cost_an_engine_that_knows_the_others(index: Index) -> None:
    first, scan = FakeSymbolServer("ty", []), FakeSymbolServer("name scan", [GOOD])
    engines = Engines(index, servers=(first,), scan=scan)
    for _ in range(4):
        first.answers += [ODD, ODD, GOOD]
    assert [ask(engines, index)[0] for _ in range(8)] == ["name scan", "ty"] * 4
    first.answers, first.questions = [ODD], 0
    assert [ask(engines, index)[0] for _ in range(4)] == ["name scan"] * 4
    assert first.questions == 6


@pytest.mark.parametrize("answers", [[GOOD], [[*GOOD, ("src/pkg/shadow.py", 1, 22)]]])
def test_files_that_only_mention_a_name_are_not_missed(
    index: Index, answers: list[list[tuple[str, int, int]] | SymbolServerError]
) -> None:
    server = FakeSymbolServer("ty", answers)
    assert ask(Engines(index, servers=(server,), scan=server), index)[0] == "ty"
    assert server.questions == 1


def test_a_rename_must_also_change_files_that_only_import(index: Index) -> None:
    server, scan = FakeSymbolServer("ty", [GOOD]), FakeSymbolServer("name scan", [[]])
    answer = Engines(index, servers=(server,), scan=scan).plan_rename(index.find_one("mean"), "average")
    assert answer.engine == "name scan"
    assert answer.passed_over[0].startswith("ty: It leaves out src/pkg/report.py:1, src/pkg/shadow.py:1")


@pytest.mark.parametrize(
    ("misbehave", "engine"),
    [
        ("os.kill(os.getpid(), 9)", "ty"),
        ("if starts == 1: os.kill(os.getpid(), 9)", "Serena"),
        ("if tool == 'find_referencing_symbols':\n    give({})\n    return True", "ty"),
        ("give('language server terminated', is_error=True); return True", "ty"),
    ],
)
def test_serena_fallback(index: Index, tmp_path: Path, *, misbehave: str, engine: str) -> None:
    """Serena dies for good, dies once, or says that there is nothing: the answer is right and names its engine."""
    ty = TyServer(index, sandbox=PlainSandbox())
    serena = SerenaServer(
        index, sandbox=PlainSandbox(), program=write_serena(tmp_path, misbehave), state=tmp_path / "state"
    )
    engines = Engines(index, servers=(serena, ty), scan=FakeSymbolServer("name scan", [[]]))
    symbol = index.find_one("mean")
    answer = engines.find_references(symbol)
    assert answer.engine == engine
    assert ("src/pkg/tables.py", 4, 0) in {(each.path, each.line, each.column) for each in answer.places}
    assert answer.is_verified
    if engine == "ty":
        assert answer.places == ty.find_references(symbol)
    assert [why.partition(":")[0] for why in answer.passed_over] == ([] if engine == "Serena" else ["Serena"])
    engines.close()
