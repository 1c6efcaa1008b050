"""A ticket in a library of the package registry, from no tickets to approved steps: typed, and headless."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.program import command, environment
from tests.stories.conftest import git, under_git

PIN = "cachetools==8.0.1"
RECORDING = Path(__file__).parent / "whole_ticket.yaml"
SLUG = "peek"
TITLE = "Look at a value without using it"
SUBJECTS = [
    f"plan: {TITLE}",
    "test: Cache.peek returns a value without using it",
    "feat: Cache.peek returns a value without using it",
    "docs: The documentation tells of peek",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as its source distribution has it, with its tests."""
    folder = tmp_path_factory.mktemp("source")
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary=:all:", "-d", str(folder), PIN]
    if subprocess.run(pip, check=False, capture_output=True, timeout=120).returncode:
        pytest.skip(f"the package registry does not give {PIN}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture
def project(source: Path, tmp_path: Path) -> Path:
    """A developer's clone of it: one commit, no tickets."""
    folder = tmp_path / "cachetools"
    shutil.copytree(source, folder)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = src\n", encoding="ascii")
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="ascii")
    under_git(folder, message="8.0.1")
    assert not (folder / "tickets").exists()
    return folder


def without_question(recording: Path, folder: Path) -> Path:
    """The recording of a model that decides by itself what it would have asked: nobody is there."""
    turns = yaml.safe_load(recording.read_text(encoding="utf-8"))
    for turn in turns:
        turn["content"] = [
            "Everything that reads has a default."
            if isinstance(block, dict) and block["name"] == "AskDeveloper"
            else block
            for block in turn["content"]
        ]
        if all(isinstance(block, str) for block in turn["content"]) and turn["when"].endswith("socrates peek$"):
            turn["content"].append({"type": "tool_use", "name": "Grep", "input": {"pattern": "default"}})
            break
    own = folder / "recording.json"
    own.write_text(json.dumps(turns), encoding="utf-8")
    return own


def test_headless(project: Path, tmp_path: Path) -> None:
    recording = without_question(RECORDING, tmp_path)

    def cdd(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command("--replay", str(recording), *arguments),
            cwd=project,
            env=environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    assert cdd("new", SLUG, "--title", TITLE).returncode == 0
    told = {}
    for name in ("spec", "plan", "exec"):
        done = cdd(name, SLUG, "--yes", "--json")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        told[name] = [json.loads(line) for line in done.stdout.splitlines()]
    drafts = [event for event in told["plan"] if event["event"] == "PlanDrafted"]
    assert [bool(draft["problems"]) for draft in drafts] == [True, False]
    gates = [(event["phase"], event["open"]) for event in told["exec"] if event["event"] == "GateJudged"]
    assert gates == [("red", True), ("green", False), ("green", True), ("refactor", True), ("green", True)]
    assert git(project, "log", "--reverse", "--format=%s").splitlines()[1:] == SUBJECTS
    assert git(project, "status", "--porcelain") == ""
    reviewed = cdd("review", SLUG, "--json", "--approve", "1", "--approve", "2")
    assert [json.loads(line)["decision"] for line in reviewed.stdout.splitlines()] == ["approved", "approved"]


@needs_tmux
def test_typed_at_the_prompt(project: Path, tmp_path: Path) -> None:
    window = Window(tmp_path / "tmux", project, arguments=("--replay", str(RECORDING)))
    window.resize(100, 60)
    try:
        window.screen_with("turns a ticket into tested commits", "Write what you want")
        window.type_at("cdd>", f"/new {SLUG} {TITLE}", "Enter")
        window.screen_with("Created tickets/peek/spec.yaml")
        window.type_at("cdd peek>", "/spec", "Enter")
        window.screen_with("1  Return a default, None if none is given", "2  Raise KeyError")
        window.type_at("spec peek>", "1", "Enter")
        window.screen_with("Save this?")
        window.type("y", "Enter")
        window.screen_with("The spec of peek is complete", "AC-2")
        window.type_at("spec peek>", "/plan", "Enter")
        window.screen_with("Draft 1 refused", "Draft 2 accepted")
        window.type_at("plan peek>", "/exec", "Enter")
        window.screen_with("Enter runs step 1/2")
        window.type_at("exec peek>", "Enter")
        window.screen_with("Step 1/2", "a approve", within_s=180)
        window.type("a")
        window.screen_with("Step 2/2", "a approve", within_s=180)
        window.type("q")
        window.screen_with("2 of 2 steps are completed")
        window.type_at("cdd peek>", "/review", "Enter")
        window.screen_with("Step 2/2", "a approve")
        window.type("a")
        window.screen_with("Every completed step is approved")
        window.type_at("cdd peek>", "/exit", "Enter")
    finally:
        window.close()
    assert git(project, "log", "--reverse", "--format=%s").splitlines()[1:] == SUBJECTS
    assert git(project, "status", "--porcelain") == ""
