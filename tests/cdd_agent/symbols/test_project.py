"""Renames and edits where other engines are known to damage files or to leave some out."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.definitions import SourceFile
from cdd_agent.symbols.edit import insert_after, insert_before, replace_body
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.name_scan import NameScan
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.symbols.ty import TyServer
from tests.cdd_agent.symbols.test_index import TWINS, make_index
from tests.cdd_agent.symbols.test_rename import TRICKY, write_package
from tests.fakes.symbols import FakeSymbolServer


def list_places(index: Index, name: str) -> list[tuple[str, int, int]]:
    edits = NameScan(index).plan_rename(index.find_one(name), "new")
    return [(each.path, each.line, each.column) for each in edits]


def test_an_engine_that_reaches_a_part_of_the_files_does_not_rename(tmp_path: Path) -> None:
    index = write_package(tmp_path, size=187)
    name = "pkg.core.validate_input"
    files = sorted({path for path, _, _ in list_places(index, name)})
    some = [place for place in list_places(index, name) if place[0] in files[:31]]
    symbols = Symbols(index, servers=[FakeSymbolServer("jedi", [some])])
    plan = symbols.plan_rename(symbols.find_one(name), "check_input")
    assert (len(plan.changes), plan.answer.engine, plan.answer.is_verified) == (189, "name scan", False)
    [reason] = plan.answer.passed_over
    assert reason.startswith("jedi: It leaves out pkg/p")
    assert symbols.engines.counts == {"index": 1, "name scan": 1}


def test_an_engine_that_renames_a_part_of_a_scope_does_not_rename(tmp_path: Path) -> None:
    files = {"m.py": "def run(): pass\n", "a.py": "from m import *\n\n\ndef run(): pass\n\n\nrun()\n"}
    index = make_index(tmp_path, files)
    symbols = Symbols(index, servers=[FakeSymbolServer("ty", [[("m.py", 1, 4), ("a.py", 7, 0)]])])
    plan = symbols.plan_rename(symbols.find_one("m.run"), "once")
    assert (sorted(plan.changes), plan.answer.engine) == (["m.py"], "name scan")
    assert plan.answer.passed_over == ("ty: It leaves out a.py:4, where run is used.",)


def test_a_complete_rename_of_an_engine_gets_the_entries_of_all_lists(tmp_path: Path) -> None:
    index = make_index(tmp_path, TRICKY)
    places = [each for each in list_places(index, "pkg.core.run") if "__all__" not in str(each)]
    lists = [("pkg/__init__.py", 3, 12), ("pkg/core.py", 1, 12)]
    symbols = Symbols(index, servers=[FakeSymbolServer("ty", [[each for each in places if each not in lists]])])
    plan = symbols.plan_rename(symbols.find_one("pkg.core.run"), "once")
    assert (plan.answer.engine, plan.answer.is_verified) == ("ty", True)
    assert b"__all__ = ['once'" in plan.changes["pkg/__init__.py"].new
    assert b"__all__ = ['once'" in plan.changes["pkg/core.py"].new


def test_a_variable_with_the_name_of_a_class_is_no_reason_to_doubt_an_engine(tmp_path: Path) -> None:
    code = "class A:\n    def run(self): pass\n\n\ndef f(A): A.run()\n\n\ndef g(x): x.A.run()\n"
    index = make_index(tmp_path, {"a.py": code, "b.py": "import a\n\na.A.run\n"})
    symbols = Symbols(index, servers=[FakeSymbolServer("ty", [[("a.py", 2, 8), ("b.py", 3, 4)]])])
    plan = symbols.plan_rename(symbols.find_one("A.run"), "start")
    assert (plan.answer.engine, sorted({each.line for each in plan.remaining})) == ("ty", [5, 8])


def test_a_rename_is_refused_where_a_value_can_be_of_another_class(tmp_path: Path) -> None:
    code = "class {}:\n    def run(self): pass\n\n\n"
    index = make_index(tmp_path, {"a.py": code.format("A") + code.format("B") + "def f(x: A | B): x.run()\n"})
    server = FakeSymbolServer("ty", [[("a.py", 2, 8), ("a.py", 9, 19)], [("a.py", 6, 8), ("a.py", 9, 19)]])
    symbols = Symbols(index, servers=[server])
    with pytest.raises(UsageError, match=r"a\.py:9 uses A\.run and B\.run by one name\. Nothing was changed\."):
        symbols.plan_rename(symbols.find_one("A.run"), "start")


def test_calls_of_super_and_repeated_names_of_imports_are_added_to_the_answer_of_an_engine(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from p.m import A as A, run as run\n",
        "p/m.py": (
            "class A:\n    def run(self): pass\n\n\nclass B(A):\n    def run(self): super().run()\n\n\n"
            "def run(): pass\n"
        ),
    }
    index = make_index(tmp_path, files)
    answers: list[list[tuple[str, int, int]] | SymbolServerError] = [
        [("p/m.py", 2, 8)],
        [("p/m.py", 6, 8)],
        [("p/m.py", 9, 4)],
    ]
    symbols = Symbols(index, servers=[FakeSymbolServer("ty", answers)])
    method = symbols.plan_rename(symbols.find_one("A.run"), "start")
    assert (method.count, method.answer.engine) == (3, "ty")
    assert b"super().start()" in method.changes["p/m.py"].new
    function = symbols.plan_rename(symbols.find_one("/run"), "start")
    assert function.answer.engine == "ty"
    assert function.changes["p/__init__.py"].new == b"from p.m import A as A, start as start\n"


@pytest.mark.parametrize(
    "place", [("../outside.py", 1, 0), ("pkg/words.py", 1, 0), ("pkg/core.py", 4, 3), ("pkg/core.py", 400, 3)]
)
def test_a_rename_at_other_places_than_the_name_is_refused(tmp_path: Path, place: tuple[str, int, int]) -> None:
    (tmp_path / "outside.py").write_text("run = 1\n")
    index = make_index(tmp_path / "project", TRICKY | {"pkg/words.py": "other = 'run'\n"})
    server = FakeSymbolServer("odd", [[*list_places(index, "pkg.core.run"), place]])
    symbols = Symbols(index, servers=[server])
    with pytest.raises(SymbolServerError):
        symbols.plan_rename(symbols.find_one("pkg.core.run"), "once")


def test_an_empty_answer_of_a_dead_server_is_not_believed(tmp_path: Path) -> None:
    symbols = Symbols(make_index(tmp_path, TRICKY), servers=[FakeSymbolServer("Serena", [[]])])
    found = symbols.find_references(symbols.find_one("Runner.start"))
    assert (found.engine, len(found.places)) == ("name scan", 5)
    assert found.passed_over[0].startswith("Serena: It leaves out pkg/more.py")
    unused = symbols.find_references(symbols.find_one("Runner.again"))
    assert (unused.engine, unused.places) == ("Serena", ())


def test_ty_and_the_scopes_agree(tmp_path: Path) -> None:
    index = make_index(tmp_path, TRICKY)
    server = TyServer(index, sandbox=PlainSandbox())
    symbols = Symbols(index, servers=[server])
    plan = symbols.plan_rename(symbols.find_one("Runner"), "Engine")
    assert plan.answer.engine == "ty", plan.answer.passed_over
    assert {path: each.new.decode() for path, each in plan.changes.items()} == {
        path: re.sub(r"\bRunner\b", "Engine", text) for path, text in TRICKY.items() if "Runner" in text
    }
    symbols.close()


DECORATED = b"@first\n@second(1)\ndef deco(x):\n    return x\n"
CRLF = b"# one\r\ndef f(x):\r\n    return x\r\n\r\n\r\nLIMIT = 3\r\n"
LATIN = "# coding: latin-1\n# \u00e9\u00ff\ndef f(x):\n    return x  # \u00e9\n".encode("latin-1")


@pytest.mark.parametrize(
    ("content", "code", "expected"),
    [
        (DECORATED, "def deco(x):\n    return 1", DECORATED.replace(b"return x", b"return 1")),
        (DECORATED, "@other\ndef deco(x):\n    return 1", DECORATED.replace(b"return x", b"return 1")),
        (CRLF, "def f(x):\n    y = x\n    return y", CRLF.replace(b"return x", b"y = x\r\n    return y")),
        (LATIN, "return '\u00e9'", LATIN.replace(b"return x", b"return '\xe9'")),
    ],
)
def test_decorators_line_ends_and_encodings_stay(content: bytes, code: str, expected: bytes) -> None:
    symbol = next(each for each in SourceFile("a.py", content).symbols if each.kind == "function")
    assert replace_body(content, symbol, code=code) == expected


@pytest.mark.parametrize("name", ["load", "K.p", "K/p", "opened", "dumps", "again"])
@pytest.mark.parametrize("edit", [replace_body, insert_after, insert_before])
def test_no_twin_is_edited_for_another(tmp_path: Path, name: str, edit: Callable[..., bytes]) -> None:
    index = make_index(tmp_path, {"a.py": TWINS})
    with pytest.raises(UsageError, match=r"is ambiguous: \d definitions have this name:\n  a\.py:\d+ .*\n  a\.py:\d+"):
        index.find_one(name)
    changed = edit(TWINS.encode(), index.find_one(f"{name}[1]"), code="print(1)")
    first, second = index.find(name)[:2]
    lines = changed.decode().splitlines()
    assert lines[: first.end_line] == TWINS.splitlines()[: first.end_line]
    assert any("print(1)" in line for line in lines[second.line - 2 :])


def test_a_method_is_found_with_a_dot_and_a_new_file_is_seen_at_once(tmp_path: Path) -> None:
    symbols = Symbols(make_index(tmp_path, {"a.py": "class K:\n    def m(self): pass\n"}))
    assert symbols.find("K.m") == symbols.find("K/m") != ()
    (tmp_path / "b.py").write_text("import a\n\n\ndef use(k: a.K):\n    k.m()\n")
    assert [each.path for each in symbols.find_references(symbols.find_one("K.m")).places] == ["b.py"]
    plan = symbols.plan_rename(symbols.find_one("K.m"), "n")
    assert set(plan.changes) == {"a.py", "b.py"}
    assert plan.remaining == ()
