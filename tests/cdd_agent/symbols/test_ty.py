"""With the real ty, which starts in 20 ms. Its dangerous answers come from a program that speaks like it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.symbols.ty import VERSION, TyProgram, TyServer, find_ty
from cdd_agent.symbols.watched_files import AnswerContradictsFiles
from tests.cdd_agent.sandbox.conftest import ALL, at
from tests.fakes.language_server import write_server

FILES = {
    "pkg/__init__.py": b"from pkg.stats import calculate_mean\n\n__all__ = ['calculate_mean']\n",
    "pkg/stats.py": b"\xef\xbb\xbfdef calculate_mean(values):\n    return 1\n\nONE = calculate_mean([1])\n",
    "pkg/marked.py": b"\xef\xbb\xbffrom pkg.stats import calculate_mean; calculate_mean([2])\n",
    "pkg/wide.py": 'from pkg import stats\r\ns = "\U0001f600e\u0301\u00e9"; stats.calculate_mean([3])\r\n'.encode(),
    "pkg/old.py": "# coding: latin-1\nfrom pkg.stats import calculate_mean as mean\ns = '\u00e9'; mean([4])\n".encode(
        "l1"
    ),
    "pkg/fed.py": b"from pkg.stats import calculate_mean\n\x0c\ndef f():\n\treturn calculate_mean([5])\n",
    "a +%41@\xe9.py": b"import pkg.stats\npkg.stats.calculate_mean([6])\n",
}
USES = {
    ("a +%41@\xe9.py", 2, 10, ""),
    ("pkg/__init__.py", 1, 22, ""),
    ("pkg/fed.py", 1, 22, ""),
    ("pkg/fed.py", 4, 8, "f"),
    ("pkg/marked.py", 1, 22, ""),
    ("pkg/marked.py", 1, 38, ""),
    ("pkg/old.py", 2, 22, ""),
    ("pkg/stats.py", 4, 6, ""),
    ("pkg/wide.py", 2, 18, ""),
}


def write_files(folder: Path) -> Index:
    for path, content in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return Index(folder)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return write_files(tmp_path)


@pytest.fixture
def ty(index: Index) -> Iterator[TyServer]:
    server = TyServer(index, sandbox=PlainSandbox())
    yield server
    server.close()


def list_uses(ty: TyServer, index: Index) -> set[tuple[str, int, int, str]]:
    found = ty.find_references(index.find_one("calculate_mean"))
    assert [each for each in found if not each.text[each.column :].startswith("calculate_mean")] == []
    return {(each.path, each.line, each.column, each.inside) for each in found}


@pytest.mark.parametrize("level", ALL)
def test_uses_are_found_behind_wide_characters_marks_and_old_encodings(index: Index, *, level: str) -> None:
    ty = TyServer(index, sandbox=at(level))
    assert list_uses(ty, index) == USES
    ty.close()


def test_a_rename_replaces_the_definition_and_each_use(ty: TyServer, index: Index) -> None:
    edits = ty.plan_rename(index.find_one("calculate_mean"), "average")
    assert {(each.path, each.line, each.column) for each in edits} == {
        *(use[:3] for use in USES),
        ("pkg/stats.py", 1, 4),
    }
    assert {(each.new, each.end_line - each.line, each.end_column - each.column) for each in edits} == {
        ("average", 0, 14)
    }


def test_files_are_seen_that_were_written_moved_and_removed_meanwhile(
    ty: TyServer, index: Index, tmp_path: Path
) -> None:
    list_uses(ty, index)
    (tmp_path / "pkg/new.py").write_text("from pkg.stats import calculate_mean\n")
    (tmp_path / "pkg/fed.py").unlink()
    (tmp_path / "pkg/old.py").write_text("'no use'\n")
    shutil.move(tmp_path / "pkg/marked.py", tmp_path / "pkg/moved.py")
    (tmp_path / "pkg/stats.py").write_text("#\n#\ndef calculate_mean(values): pass\n")
    assert list_uses(ty, index) == {
        ("a +%41@\xe9.py", 2, 10, ""),
        ("pkg/__init__.py", 1, 22, ""),
        ("pkg/moved.py", 1, 22, ""),
        ("pkg/moved.py", 1, 38, ""),
        ("pkg/new.py", 1, 22, ""),
        ("pkg/wide.py", 2, 18, ""),
    }


def test_changes_in_quick_succession_of_the_same_size_are_seen(ty: TyServer, index: Index) -> None:
    path = index.root / "pkg" / "fed.py"
    for _ in range(20):
        path.write_text("import pkg.stats as s; s.calculate_mean()\n")
        assert {each[:3] for each in list_uses(ty, index) if each[0] == "pkg/fed.py"} == {("pkg/fed.py", 1, 25)}
        path.write_text("import pkg.stats as s; s .calculate_mean()")
        assert {each[:3] for each in list_uses(ty, index) if each[0] == "pkg/fed.py"} == {("pkg/fed.py", 1, 26)}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", "[tool.ty.src]\ninclude = ['src']\n"),
        ("ty.toml", "[src]\ninclude = []\n"),
        ("pyproject.toml", "[tool.ty\n"),
        (
            "pyproject.toml",
            "[tool.ty.src]\nexclude = 5\n[tool.ty.environment]\npython = '/etc'\npython-version = '9'\n",
        ),
        ("nested.py", f"x = {'(' * 5000}{')' * 5000}\n"),
        ("broken.py", "from pkg.stats import (\n\x00"),
    ],
)
def test_configuration_and_files_of_the_project_do_not_hide_uses(index: Index, *, path: str, text: str) -> None:
    (index.root / path).write_text(text)
    ty = TyServer(index, sandbox=PlainSandbox())
    assert list_uses(ty, index) == USES
    ty.close()


def test_files_that_the_project_hides_from_ty_are_found_by_the_next_engine(index: Index) -> None:
    (index.root / "ty.toml").write_text("[src]\nexclude = ['pkg/fed.py']\n")
    symbols = Symbols(index, servers=(TyServer(index, sandbox=PlainSandbox()),))
    answer = symbols.find_references(index.find_one("calculate_mean"))
    assert ("pkg/fed.py", 4) in {(each.path, each.line) for each in answer.places}
    assert (answer.engine, answer.is_verified) == ("name scan", False)
    assert "It leaves out pkg/fed.py:4" in answer.passed_over[0]
    symbols.engines.close()


def test_methods_and_twins_are_found_by_their_own_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def run(self): ...\nclass B:\n    def run(self): ...\nB().run()\n")
    index = Index(tmp_path)
    ty = TyServer(index, sandbox=PlainSandbox())
    assert [each.line for each in ty.find_references(index.find_one("B.run"))] == [5]
    assert ty.find_references(index.find_one("A.run")) == ()
    ty.close()


def make_fake(index: Index, folder: Path, answer: object, *, encoding: str = "utf-16") -> TyServer:
    """Return a server that gives this answer to all questions."""
    folder.mkdir()
    greeting = json.dumps({"capabilities": {"positionEncoding": encoding}})
    body = f"""
answers = {{"initialize": json.loads({greeting!r})}}
while True:
    message = read()
    if "id" in message:
        send(id=message["id"], result=answers.get(message["method"], json.loads({json.dumps(answer)!r})))
"""
    argv = write_server(folder, body)
    program = folder / "ty"
    argv = write_server(folder, body)
    program.write_text(f"#!/bin/sh\nexec {' '.join(argv)}\n")
    program.chmod(0o755)
    return TyServer(index, sandbox=PlainSandbox(), find_program=lambda: TyProgram(program, VERSION, ""))


def place(path: str, line: int, start: int, *, end: int = 99) -> dict[str, object]:
    where = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    return {"uri": path if ":" in path else f"file://{path}", "range": where}


def test_columns_are_counted_as_the_server_says(index: Index, tmp_path: Path) -> None:
    uses = {}
    for encoding, columns in {"utf-8": (7, 23), "utf-16": (5, 19), "utf-32": (5, 18)}.items():
        definition, use = columns
        answer = [place(f"{tmp_path}/pkg/stats.py", 0, definition), place(f"{tmp_path}/pkg/wide.py", 1, use)]
        ty = make_fake(index, tmp_path / encoding, answer, encoding=encoding)
        uses[encoding] = [each.column for each in ty.find_references(index.find_one("calculate_mean"))]
        ty.close()
    assert uses == {"utf-8": [18], "utf-16": [18], "utf-32": [18]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, AnswerContradictsFiles),
        ([], AnswerContradictsFiles),
        ([place("ROOT/pkg/stats.py", 0, 4, end=18)], AnswerContradictsFiles),
        ([place("ROOT/pkg/stats.py", 0, 5, end=19), place("ROOT/pkg/fed.py", 500, 5, end=9)], AnswerContradictsFiles),
        ([place("ROOT/pkg/stats.py", 0, 5, end=19), place("ROOT/pkg/fed.py", -1, 5, end=9)], AnswerContradictsFiles),
        ([{"uri": 5}], SymbolServerError),
        ("[" * 50, SymbolServerError),
        ({"changes": {}}, SymbolServerError),
    ],
)
def test_an_answer_that_contradicts_the_files_is_none(
    index: Index, tmp_path: Path, *, answer: object, error: type[Exception]
) -> None:
    ty = make_fake(index, tmp_path / "fake", json.loads(json.dumps(answer).replace("ROOT", str(tmp_path))))
    with pytest.raises(error):
        ty.find_references(index.find_one("calculate_mean"))
    ty.close()


def test_places_outside_of_the_project_are_left_out(index: Index, tmp_path: Path) -> None:
    elsewhere = (
        "/etc/passwd",
        f"{tmp_path}/../x.py",
        f"{tmp_path}/pkg/../../etc/passwd",
        "http://host/pkg/fed.py",
        "x:",
    )
    forged = [place(f"{tmp_path}/pkg/stats.py", 0, 5, end=19), *(place(path, 0, 0, end=1) for path in elsewhere)]
    ty = make_fake(index, tmp_path / "fake", forged)
    assert ty.find_references(index.find_one("calculate_mean")) == ()
    ty.close()


@pytest.mark.parametrize(
    ("path", "columns", "new"),
    [
        ("pkg/fed.py", (22, 35), "average"),
        ("pkg/fed.py", (0, 4), "average"),
        ("pkg/fed.py", (22, 36), "__import__('os').system('x')"),
        ("../outside.py", (0, 1), "average"),
        ("pkg/gone.py", (22, 36), "average"),
    ],
)
def test_a_rename_that_changes_anything_else_is_refused(
    index: Index, tmp_path: Path, *, path: str, columns: tuple[int, int], new: str
) -> None:
    edits = {"pkg/stats.py": (5, 19, "average"), path: (*columns, new)}
    changes = {
        f"file://{tmp_path}/{each}": [{"newText": new, "range": place("", 0, start, end=end)["range"]}]
        for each, (start, end, new) in edits.items()
    }
    ty = make_fake(index, tmp_path / "fake", {"changes": changes})
    with pytest.raises(SymbolServerError):
        ty.plan_rename(index.find_one("calculate_mean"), "average")
    ty.close()


def test_another_version_or_a_missing_one_is_not_used(index: Index) -> None:
    for problem in ("ty is not installed: pip install ty", "ty 9.9 is installed, and 0 is needed"):
        server = TyServer(index, sandbox=PlainSandbox(), find_program=lambda why=problem: TyProgram(None, "", why))  # type: ignore[misc]
        with pytest.raises(SymbolServerError, match=problem):
            server.find_references(index.find_one("calculate_mean"))


def test_the_installed_ty_is_the_one_that_the_extra_names() -> None:
    found = find_ty()
    assert (found.version, found.problem) == (VERSION, "")
    assert f'lsp = ["ty=={VERSION}"]' in (Path(__file__).parents[3] / "pyproject.toml").read_text()
