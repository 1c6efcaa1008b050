"""kill -9 at any moment of a generation: the same command ends in the same tree, and asks for no passed node again."""

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.program import EXAMPLES, command, environment
from tests.stories.conftest import git

pytestmark = pytest.mark.slow
EXAMPLE = EXAMPLES / "wordkit"
KILLS = 30
PER_FOLDER = 6
"""Kills of one generation before it may end."""
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
}
NOT_COMPARED = re.compile(r"docs/generation_|docs/rpg\.json|test_results\.xml$")


def generate(folder: Path, home: Path, *, after_s: float | None = None) -> tuple[int, list[dict[str, object]], float]:
    """Exit status and events of the command, which is killed after some seconds, and how long it took."""
    words = ("--replay", str(EXAMPLE / "recording.yaml"), "--yes", "--json", "generate", str(EXAMPLE / "graph.json"))
    began = time.monotonic()
    process = subprocess.Popen(
        command(*words, "--out", str(folder), "--no-review"),
        env=environment(home, **IDENTITY),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        shown, errors = process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        shown, errors = process.communicate()
    assert process.returncode in (0, -9), errors.decode()
    lines = [line for line in shown.decode().splitlines() if line.endswith("}")]
    return process.returncode, [json.loads(line) for line in lines], time.monotonic() - began


def list_passed(folder: Path) -> set[str]:
    """The titles of the nodes that have passed, by the saved state."""
    found = [*folder.glob(".git/cdd/**/execution-state.json")]
    if not found:
        return set()
    steps = json.loads(found[0].read_text(encoding="utf-8"))["step_executions"].values()
    return {step["title"] for step in steps if step["status"] == "completed"}


def list_processes(folder: Path) -> Iterator[str]:
    """The command lines of the processes that work in a folder."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            inside = Path(os.readlink(each / "cwd"))
            words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if inside.is_relative_to(folder):
            yield words


def read_tree(folder: Path) -> list[str]:
    return [line for line in git(folder, "ls-tree", "-r", "HEAD").splitlines() if not NOT_COMPARED.search(line)]


def test_random_kills_change_nothing_in_the_end(home: Path, tmp_path: Path) -> None:
    status, _, longest_s = generate(tmp_path / "whole" / "wordkit", home)
    assert status == 0
    tree = read_tree(tmp_path / "whole" / "wordkit")
    chance, left, number = random.Random(time.time_ns()), KILLS, 0
    while left > 0:
        number += 1
        folder, status, told = tmp_path / str(number) / "wordkit", -9, list[str]()
        folder.parent.mkdir()
        passed = set[str]()
        for _ in range(PER_FOLDER):
            after_s = chance.uniform(0.3, longest_s / 2)
            status, events, _ = generate(folder, home, after_s=after_s)
            begun = {str(event["title"]) for event in events if event["event"] == "StepStarted"}
            told.append(f"{after_s:.2f} s")
            assert begun.isdisjoint(passed), told
            passed = list_passed(folder)
            left -= status == -9
            if status == 0:
                break
        if status:
            status, events, _ = generate(folder, home)
            begun = {str(event["title"]) for event in events if event["event"] == "StepStarted"}
            assert begun.isdisjoint(passed), told
        assert (status, read_tree(folder)) == (0, tree), told
        assert git(folder, "status", "--porcelain") == "", told
        assert git(folder, "tag") == "phase4-subgraph-stats\nphase4-subgraph-text", told
        assert not [
            *folder.glob(".git/[!c]*.lock"),
            *folder.glob(".git/refs/**/*.lock"),
            *folder.glob(".cdd-*"),
            *list_processes(folder),
        ], told
