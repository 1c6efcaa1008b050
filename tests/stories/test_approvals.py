"""Commands of a model that would lose work, or that nobody knows: by the program itself, attended and not."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.cases import soak_after
from tests.fakes.demo import SLUG, build_finished, copied

REFUSED = ("git reset --hard HEAD~1", "git clean -fdx; git stash", "ls && bash -c 'git checkout -- .'")
"""None of which may run without a sandbox where nobody is there."""
ALLOWED = ("rm -rf durations", "mkdir durations; echo x > durations/reading.py", 'python3 -c \'open("x", "w")\'', "ls")
"""In a run tree, these reach nothing of the user's."""
UNKNOWN = "frobnicate --all"
OUTSIDE = "touch ../outside.txt"


def recording(folder: Path, *commands: str) -> Path:
    """A model that runs these commands in its first attempt, and gives up."""
    calls = "".join(
        f"    - {{type: tool_use, name: Bash, input: {{command: {json.dumps(command)}}}}}\n" for command in commands
    )
    path = folder / "recording.yaml"
    gives_up = '- when: "^Work: executor"\n  content: ["I give up."]\n'
    path.write_text(f'- when: "^Work: executor"\n  content:\n{calls}{gives_up * 3}', encoding="utf-8")
    return path


@pytest.fixture
def begun(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, *, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a plan that is not carried out yet, and with work that nobody has committed."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    finished = copied(build_finished(tmp_path_factory), tmp_path / "project")
    find(finished, SLUG).state_path.unlink()
    (finished / "durations" / "notes.txt").write_text("mine\n")
    with (finished / "README.md").open("a") as readme:
        readme.write("mine\n")
    return finished


def kept(project: Path) -> dict[str, str]:
    """The work in a project, and where its branch stands."""
    files = [
        path for path in project.rglob("*") if path.is_file() and {".git", ".cdd", "tickets"}.isdisjoint(path.parts)
    ]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True).stdout
    return {str(path.relative_to(project)): path.read_text() for path in files} | {"HEAD": head}


def answers(output: str) -> list[str]:
    """How each Bash call ended."""
    events = [json.loads(line) for line in output.splitlines()]
    return [event["summary"] for event in events if event["event"] == "ToolReturned" and event["name"] == "Bash"]


@soak_after(1, "flags", [("--yes", "--json"), ("--json",)])
def test_nobody_is_there_and_no_work_is_lost(
    flags: tuple[str, ...], *, begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept(begun)
    replay = recording(tmp_path, *REFUSED, UNKNOWN, OUTSIDE, *ALLOWED)
    assert run(["--project", str(begun), "--replay", str(replay), "exec", SLUG, "--allow-dirty", *flags]) == 1
    endings = answers(capsys.readouterr().out)
    refused, ran = endings[: -len(ALLOWED)], endings[-len(ALLOWED) :]
    assert len(refused) == len(REFUSED) + 2
    assert all(told.startswith("Refused; no part of the command ran: ") for told in refused)
    assert all(told.startswith("exit status 0") for told in ran)
    assert kept(begun) == before
    assert not (begun.parent / "outside.txt").exists()


@pytest.mark.slow
@needs_tmux
def test_at_a_terminal_a_person_is_asked_and_a_yes_is_kept(begun: Path, tmp_path: Path) -> None:
    replay = recording(tmp_path, "ls && frobnicate --all", "git reset --hard", UNKNOWN)
    before = kept(begun)
    arguments = ("--replay", str(replay), "exec", SLUG, "--allow-dirty")
    window = Window(tmp_path / "tmux", begun, columns=120, arguments=arguments)
    try:
        window.screen_with("Enter runs step 1/1")
        window.type_at(f"exec {SLUG}>", "Enter")
        window.screen_with(
            "│ ls && frobnicate --all", "│ frobnicate --all", "Run it? y: once, a: always in this project"
        )
        window.type("a", "Enter")
        window.screen_with("│ git reset --hard", "git is not known to be harmless with these arguments")
        window.type("n not this", "Enter")
        window.screen_with("Step 1/1 failed")
    finally:
        window.close()
    assert kept(begun) == before
    journal = (find_records(begun).folder / "journal" / SLUG / "events.jsonl").read_text(encoding="utf-8")
    first, second, third = answers(journal)
    assert first.startswith("exit status 127")
    assert "the developer said no: not this." in second
    assert third.startswith("exit status 127")


@pytest.mark.slow
@needs_tmux
def test_ctrl_c_at_the_question_stops_the_turn(begun: Path, tmp_path: Path) -> None:
    arguments = ("--replay", str(recording(tmp_path, UNKNOWN)), "exec", SLUG, "--allow-dirty")
    window = Window(tmp_path / "tmux", begun, columns=120, arguments=arguments)
    try:
        window.screen_with("Enter runs step 1/1")
        window.type_at(f"exec {SLUG}>", "Enter")
        window.screen_with("│ frobnicate --all", "Run it? y: once, a: always in this project")
        window.type("C-c")
        window.screen_with("\nStopped. All work is in a consistent state.")
    finally:
        window.close()


def test_the_commands_that_may_run_unasked_are_listed_and_can_be_forgotten(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cdd_agent.config.trust import Approvals, Offer

    offer = Offer(subject="command", source="npm test", shown=("npm test",), content=b"npm test")
    Approvals(begun).record(offer, approved=True)
    assert run(["--project", str(begun), "trust"]) == 0
    assert "  npm test\n" in capsys.readouterr().out
    assert run(["--project", str(begun), "trust", "--forget"]) == 0
    assert run(["--project", str(begun), "trust"]) == 0
    assert "npm test" not in capsys.readouterr().out
