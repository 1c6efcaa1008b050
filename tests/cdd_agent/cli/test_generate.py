"""``cdd generate`` as a command: the preview, refused input, the skeleton, and the ends of a run."""

import json
import subprocess
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.cli.generate import GenerateCommand, GenerateRequest
from cdd_agent.cli.invocation import Invocation
from cdd_agent.config.options import Options
from cdd_agent.errors import Interrupted
from cdd_agent.events import Event, StepStarted
from cdd_agent.generation.plan import load_plan
from cdd_agent.runs.places import find_run
from cdd_agent.work.state import Status
from cdd_agent.work.state_file import load_state
from tests.cdd_agent.cli.test_graph import make_node, write
from tests.fakes.program import EXAMPLES

GRAPH = EXAMPLES / "wordkit" / "graph.json"
RECORDING = EXAMPLES / "wordkit" / "recording.yaml"


@pytest.fixture(autouse=True)
def author(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.org")


def generate(*arguments: object) -> int:
    return run(["--yes", "generate", *map(str, arguments)])


def test_a_dry_run_shows_nodes_and_usage_beside_the_limits_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert generate(GRAPH, "--out", out, "--dry-run", "--max-usd", "0.05") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "6 stats.report.summarize src/wordkit/stats/report.py" in shown
    assert "src/text/clean.py -> src/wordkit/text/clean.py" in shown
    assert "$0.05 (--max-usd), 25,000,000 tokens (max_tokens_per_ticket)" in shown
    assert "The run cannot end within --max-usd: it likely needs $" in shown
    assert not out.exists()


def test_a_dry_run_can_be_read_by_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(GRAPH, "--out", tmp_path / "out", "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["event"] == "GenerationPlanned"
    assert [node["position"] for node in planned["nodes"]] == [1, 2, 3, 4, 5, 6]
    assert planned["estimates"][0]["role"] == "generator"
    assert {limit["name"] for limit in planned["limits"]} >= {"max_usd_per_ticket", "max_calls_per_ticket"}


def test_circular_imports_are_refused_with_the_edge_that_closes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = {"file_path": "src/core/a.py"}, {"file_path": "src/core/b.py"}
    nodes = (
        make_node("one", dependencies=["two"], **first),
        make_node("two", dependencies=["three"], **second),
        make_node("three", **first),
    )
    graph, out = write(tmp_path, *nodes), tmp_path / "out"
    assert generate(graph, "--out", out) == 2
    assert "closed because one (one) needs two (two)" in capsys.readouterr().err
    assert not out.exists()
    assert generate(graph, "--out", out, "--dry-run", "--anyway") == 0


def test_what_the_user_names_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for arguments, said in (
        (("--start-from-node", "meen"), "did you mean: --start-from-node mean"),
        (("--rollback", "stats"), "holds no generation of this graph"),
    ):
        assert generate(GRAPH, "--out", out, *arguments) == 2
        assert said in capsys.readouterr().err
    assert generate(tmp_path / "none.json", "--out", out) == 2
    assert not out.exists()


def test_the_skeleton_is_written_and_imported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert generate(GRAPH, "--out", out, "--only-skeleton") == 0
    assert f"The skeleton is in {out}: 4 modules imported." in " ".join(capsys.readouterr().out.split())
    (tmp_path / "link").symlink_to(out)
    other = tmp_path / "other.json"
    other.write_text(GRAPH.read_text().replace('"wordkit"', '"otherkit"'))
    for graph, folder, said in (
        (other, out, "holds the generation of another graph: wordkit"),
        (GRAPH, tmp_path / "link", "is a link"),
    ):
        assert generate(graph, "--out", folder) == 2
        assert said in capsys.readouterr().err
    assert generate(GRAPH, "--out", out, "--rollback", "txt") == 2
    assert "did you mean: --rollback text" in capsys.readouterr().err


def test_given_tests_are_part_of_the_skeleton_and_of_every_later_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out, other = tmp_path / "given", tmp_path / "out", tmp_path / "other"
    given.mkdir()
    assert generate(GRAPH, "--out", out, "--tests", given) == 2
    assert f"{given} has no tests in Python." in " ".join(capsys.readouterr().err.split())
    assert not out.exists()
    (given / "test_given.py").write_text("def test_given():\n    pass\n")
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\nmarkers =\n    own: of the tests\n")
    assert generate(GRAPH, "--out", out, "--tests", given, "--only-skeleton") == 0
    assert (out / "tests" / "test_given.py").exists()
    assert "markers = own: of the tests" in (out / "pytest.ini").read_text()
    capsys.readouterr()
    assert generate(GRAPH, "--out", out, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["estimates"][0]["requests"]["least"] == 6  # no tests to write
    assert generate(GRAPH, "--out", other, "--only-skeleton") == 0
    assert generate(GRAPH, "--out", other, "--tests", given) == 2
    assert "was begun without --tests, so cdd writes the tests there" in " ".join(capsys.readouterr().err.split())


def test_a_skeleton_that_cannot_be_imported_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = {"id": "m", "name": "m", "type": "module", "node_type": "composite", "file_path": "src/core/m.py"}
    graph = write(tmp_path, make_node("one"), {**module, "docstring": "Do it.", "code": "LIMIT = 1 / 0"})
    assert generate(graph, "--out", tmp_path / "out", "--only-skeleton") == 1
    assert "core.m: ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_open_signatures_are_asked_for_before_the_skeleton_and_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = write(tmp_path, make_node("load", signature="", docstring="Load it."), make_node("save"))
    answers = {"answers": [{"id": "load", "name": "load", "source": "def load(path: str) -> bytes: ..."}]}
    call = {"type": "tool_use", "name": "AnswerQuestions", "input": answers}
    recording = tmp_path / "recording.json"
    recording.write_text(json.dumps([{"when": "^Work: architect graph$", "content": [call]}]), encoding="utf-8")
    words = ["--yes", "generate", str(graph), "--out", "out"]
    assert run([*words, "--dry-run"]) == 0
    assert "architect: " in capsys.readouterr().out
    assert run(["--replay", str(recording), *words, "--only-skeleton"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The Architect has closed 1 gap of the graph: load (load): def load(path: str) -> bytes: ..." in shown
    assert "def load(path: str) -> bytes:" in (tmp_path / "out" / "src" / "core" / "m.py").read_text()
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd="out") == b""
    assert run([*words, "--dry-run"]) == 0
    assert "architect: " not in capsys.readouterr().out


def test_a_skeleton_without_a_model_leaves_open_what_the_graph_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    graph = write(tmp_path, make_node("load", signature="", docstring="Load it."))
    assert generate(graph, "--out", "out", "--only-skeleton") == 0
    assert "1 gap of the graph stays open" in " ".join(capsys.readouterr().out.split())
    assert "def load(*args, **kwargs):" in (tmp_path / "out" / "src" / "core" / "m.py").read_text()


def test_an_interrupted_creation_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".cdd-begun").touch()
    (out / ".git").mkdir()
    assert generate(GRAPH, "--out", out, "--only-skeleton") == 0
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=out) == b""


def test_graceful_shutdown(tmp_path: Path) -> None:
    """Ctrl-C saves the state, and is answered with the command that continues."""

    def interrupt(event: Event) -> None:
        if isinstance(event, StepStarted):
            raise KeyboardInterrupt

    out = tmp_path / "out"
    options = Options(replay=RECORDING, max_usd=5.0)
    invocation = Invocation(options=options, assume_yes=True, as_json=True, color=None)
    vars(invocation)["sink"] = interrupt
    request = GenerateRequest(
        tests=None,
        graph=GRAPH,
        out=out,
        dry_run=False,
        only_skeleton=False,
        keep_failed=False,
        start=None,
        rollback=None,
        node=None,
    )
    with pytest.raises(Interrupted, match="everything is saved: 0 of 6 nodes passed, 6 left") as stopped:
        GenerateCommand(invocation, request, plan=load_plan(GRAPH)).carry_out()
    assert stopped.value.hint == f"continue: cdd generate {GRAPH} --out {out} --max-usd 5"
    assert stopped.value.exit_code == 130
    state = load_state(find_run(out, "wordkit").state_path)
    assert state is not None
    assert state.numbers(Status.IN_PROGRESS) == (1,)
