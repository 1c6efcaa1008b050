"""Serena as a program that misbehaves; the real one where it is installed, which is slow."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.sandbox.warden import supervision
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.serena import SerenaServer
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.symbols.ty import TyProgram, TyServer
from cdd_agent.symbols.watched_files import AnswerContradictsFiles
from tests.cdd_agent.sandbox.conftest import ALL, at
from tests.cdd_agent.symbols.test_ty import FILES
from tests.fakes.cases import soak_after
from tests.fakes.language_server import count_starts
from tests.fakes.serena import write_serena

VARIABLE = "CDD_TEST_SERENA"
"""The path of the real program, for the slow test."""
USES = {
    ("pkg/fed.py", 4, 8),
    ("pkg/marked.py", 1, 22),
    ("pkg/marked.py", 1, 38),
    ("pkg/stats.py", 4, 6),
    ("pkg/wide.py", 2, 18),
}
IMPORTS = {("pkg/__init__.py", 1, 22), ("pkg/fed.py", 1, 22), ("pkg/old.py", 2, 22)}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    for path, content in FILES.items():
        if path.startswith("pkg/"):
            (tmp_path / "project" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "project" / path).write_bytes(content)
    return Index(tmp_path / "project")


def make_serena(index: Index, folder: Path, misbehave: str = "return False", *, answer_s: float = 15) -> SerenaServer:
    program = write_serena(folder, misbehave)
    ty = TyProgram(Path("/bin/true"), "0", "")
    return SerenaServer(
        index, sandbox=PlainSandbox(), program=program, state=folder / "state", find_ty=lambda: ty, answer_s=answer_s
    )


def list_uses(server: SerenaServer, index: Index) -> set[tuple[str, int, int]]:
    found = server.find_references(index.find_one("calculate_mean"))
    return {(each.path, each.line, each.column) for each in found}


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def list_edits(server: SerenaServer, index: Index, *, new: str = "average") -> set[tuple[str, int, int]]:
    edits = server.plan_rename(index.find_one("calculate_mean"), new)
    assert {(each.new, each.end_column - each.column) for each in edits} == {(new, 14)}
    return {(each.path, each.line, each.column) for each in edits}


def test_uses_and_renames_come_from_a_copy_and_the_project_stays_as_it_is(index: Index, tmp_path: Path) -> None:
    before = read_files(index.root)
    serena = make_serena(index, tmp_path)
    assert list_uses(serena, index) == USES
    assert list_edits(serena, index) == USES | IMPORTS | {("pkg/stats.py", 1, 4), ("pkg/__init__.py", 3, 12)}
    assert list_uses(serena, index) == USES, "the copy is restored"
    assert list_edits(serena, index) >= USES
    assert read_files(index.root) == before
    state = tmp_path / "state"
    assert [path.name for path in state.glob("*/*")] != []
    serena.close()
    assert list(state.iterdir()) == []
    arguments = (tmp_path / "environment" / "arguments").read_text()
    assert "--agent-interface tools" in arguments
    assert "--enable-web-dashboard false" in arguments
    variables = dict(
        line.split("=", 1) for line in (tmp_path / "environment" / "variables").read_text().splitlines() if "=" in line
    )
    assert variables["SERENA_USAGE_REPORTING"] == "false"
    assert Path(variables["HOME"]).is_relative_to(state)
    assert Path(variables["SERENA_HOME"]).is_relative_to(state)


def test_files_are_copied_again_that_have_changed(index: Index, tmp_path: Path) -> None:
    serena = make_serena(index, tmp_path)
    list_uses(serena, index)
    (index.root / "pkg/new.py").write_text("from pkg import stats\nstats.calculate_mean(1)\n")
    (index.root / "pkg/fed.py").unlink()
    (index.root / "pkg/wide.py").write_text("'\U0001f600'; stats.calculate_mean([3])\n")
    assert list_uses(serena, index) == {
        ("pkg/marked.py", 1, 22),
        ("pkg/marked.py", 1, 38),
        ("pkg/new.py", 2, 6),
        ("pkg/stats.py", 4, 6),
        ("pkg/wide.py", 1, 11),
    }
    serena.close()


FORGED = """
if tool == "find_referencing_symbols":
    use = {"content_around_reference": "  >   0:calculate_mean()"}
    give({PLACE: {"File": [use]}})
    return True
"""
ANSWER_USES = "if tool == 'find_referencing_symbols':\n    give({})\n    return True"


@soak_after(
    6,
    ("misbehave", "why"),
    [
        (FORGED.replace("PLACE", "'/etc/passwd'"), "names a use in '/etc/passwd'"),
        (FORGED.replace("PLACE", "'../../x.py'"), "names a use in"),
        (FORGED.replace("PLACE", "'fed\\x1b[2J.py'"), "names a use in"),
        (FORGED.replace("PLACE", "'pkg/old.py'"), "does not use calculate_mean in line 1"),
        (FORGED.replace("  >   0:", "  >   9999:").replace("PLACE", "'pkg/old.py'"), "does not use calculate_mean"),
        (FORGED.replace("  >   0:", "nothing").replace("PLACE", "'pkg/old.py'"), "without its line"),
        (ANSWER_USES.replace("{}", "'no symbols, sorry'"), "no valid answer"),
        (ANSWER_USES.replace("{}", "[[[1]]]"), "no valid answer"),
        (ANSWER_USES.replace("{}", "'[' * 100_000"), "no valid answer"),
        (ANSWER_USES.replace("give({})", "give('stale \\x1b[2J cache', is_error=True)"), "failed: stale cache"),
        ("if tool == 'find_symbol':\n    give([])\n    return True", "knows 0 definitions"),
        ("del TOOLS[tool]; give(f'Unknown tool: {tool}', is_error=True); return True", "failed: Unknown tool"),
        ("send(id=message['id'], result=None); return True", "no valid answer"),
        ("send(id=message['id'], error={'message': 'internal'}); return True", "refused tools/call: internal"),
    ],
)
def test_a_false_answer_is_an_error_that_says_what_is_wrong(
    index: Index, tmp_path: Path, *, misbehave: str, why: str
) -> None:
    serena = make_serena(index, tmp_path, misbehave)
    with pytest.raises(SymbolServerError, match=why):
        list_uses(serena, index)
    serena.close()


def test_a_hundred_thousand_places_are_read(index: Index, tmp_path: Path) -> None:
    misbehave = """
if tool == "find_referencing_symbols":
    uses = [{"content_around_reference": "  >   3:return calculate_mean([5])" + "x" * 100}] * 100_000
    give({"pkg/fed.py": {"Function": uses}})
    return True
"""
    serena = make_serena(index, tmp_path, misbehave)
    assert list_uses(serena, index) == {("pkg/fed.py", 4, 8)}
    serena.close()


def test_junk_between_the_answers_is_skipped(index: Index, tmp_path: Path) -> None:
    serena = make_serena(index, tmp_path, "write(b'Traceback (most recent call last):\\n\\xff\\n{}\\n'); return False")
    assert list_uses(serena, index) == USES
    serena.close()


def test_a_dying_serena_is_started_again_once(index: Index, tmp_path: Path) -> None:
    serena = make_serena(index, tmp_path, "if starts == 1 and tool == 'rename_symbol': os.kill(os.getpid(), 9)")
    assert list_uses(serena, index) == USES
    assert list_edits(serena, index) >= USES
    serena.close()
    assert count_starts(tmp_path / "environment") == 2
    assert list((tmp_path / "state").iterdir()) == []


def test_a_hanging_serena_is_ended(index: Index, tmp_path: Path) -> None:
    serena = make_serena(index, tmp_path, "time.sleep(60)", answer_s=0.5)
    with pytest.raises(SymbolServerError, match="Serena did not answer tools/call in time"):
        list_uses(serena, index)
    serena.close()


@soak_after(
    3,
    "misbehave",
    [
        "if tool == 'rename_symbol':\n    open('pkg/stats.py', 'a').write('import evil\\n')",
        "if tool == 'rename_symbol':\n    open('pkg/stats.py', 'w').write('def average(values): pass')",
        "if tool == 'rename_symbol':\n    os.unlink('pkg/fed.py')",
        "if tool == 'rename_symbol':\n    os.unlink('pkg/fed.py')\n    os.symlink('/etc/passwd', 'pkg/fed.py')",
        "if tool == 'rename_symbol':\n    open('pkg/old.py', 'wb').write(b'\\xff')\n    give('well')\n    return True",
        "if tool == 'rename_symbol':\n    give('Successfully renamed')\n    return True",
        # A fault of the real Serena: the name is replaced a few columns away.
        "if tool == 'rename_symbol':\n    open('pkg/fed.py', 'r+').write('from pkg.stats  calculate_mean')",
    ],
)
def test_a_rename_that_changes_anything_else_is_refused(index: Index, tmp_path: Path, *, misbehave: str) -> None:
    before = read_files(index.root)
    serena = make_serena(index, tmp_path, misbehave)
    with pytest.raises(AnswerContradictsFiles):
        list_edits(serena, index)
    assert list_uses(serena, index) == USES, "the copy is restored"
    serena.close()
    assert read_files(index.root) == before


def test_a_program_outside_of_an_environment_is_not_started(index: Index, tmp_path: Path) -> None:
    for program in (Path("/bin/sh"), Path("/nowhere/serena"), Path("bin/serena"), tmp_path):
        serena = SerenaServer(index, sandbox=PlainSandbox(), program=program, state=tmp_path / "state")
        with pytest.raises(SymbolServerError, match=r"serena|virtual environment"):
            list_uses(serena, index)


def test_a_project_around_the_copy_is_not_copied(index: Index) -> None:
    with pytest.raises(SymbolServerError, match="Serena is not used in a project that contains"):
        list_uses(make_serena(index, index.root), index)


@pytest.fixture
def program() -> Path:
    found = os.environ.get(VARIABLE) or shutil.which("serena")
    if found is None:
        pytest.skip(f"Serena is not installed: set {VARIABLE} to its program")
    return Path(found)


@pytest.mark.slow
@pytest.mark.parametrize("level", ALL)
def test_the_real_serena_finds_uses_and_plans_a_rename(
    index: Index, tmp_path: Path, program: Path, *, level: str
) -> None:
    before = read_files(index.root)
    serena = SerenaServer(index, sandbox=at(level), program=program, state=tmp_path / "state")
    assert list_uses(serena, index) == USES
    assert list_edits(serena, index) == USES | IMPORTS | {("pkg/stats.py", 1, 4)}
    (index.root / "pkg/new.py").write_text("from pkg.stats import calculate_mean\ncalculate_mean(1)\n")
    assert list_uses(serena, index) == {*USES, ("pkg/new.py", 2, 0)}
    (index.root / "pkg/new.py").unlink()
    serena.close()
    assert read_files(index.root) == before


def kill_serena() -> int:
    """Kill the programs of Serena that this process has started, and return their number."""
    count = 0
    for pid in supervision.list_below(os.getpid()):
        with contextlib.suppress(OSError):
            if b"start-mcp-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


@pytest.mark.slow
def test_the_real_serena_may_be_killed_and_the_uses_stay_the_same(index: Index, tmp_path: Path, program: Path) -> None:
    serena = SerenaServer(index, sandbox=PlainSandbox(), program=program, state=tmp_path / "state")
    symbols = Symbols(index, servers=(serena, TyServer(index, sandbox=PlainSandbox())))
    symbol = index.find_one("calculate_mean")
    answers = []
    for _ in range(3):
        answers.append(symbols.find_references(symbol))
        assert kill_serena() == (answers[-1].engine == "Serena")
    assert [answer.engine for answer in answers] == ["Serena", "Serena", "ty"]
    assert symbols.engines.counts == {"Serena": 2, "ty": 1}
    found = [{(each.path, each.line, each.column) for each in answer.places} for answer in answers]
    assert found[0] == found[1] == found[2] - IMPORTS
    symbols.engines.close()
