"""A table of the test's inputs is refused by the examples of a second agent, and the rule is accepted."""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from cdd_agent.work.finding import Finding
from cdd_agent.work.wording import explain
from tests.stories.conftest import Cdd, bare, git

RECORDING = Path(__file__).with_name("further_examples.yaml")
SPEC = """\
schema: cdd/1
title: Roman numerals
type: feature
status: planned
description: Numbers as Roman numerals.
acceptance_criteria:
  - WHEN a number from 1 to 3999 is given THE SYSTEM SHALL return its Roman numeral
"""
PLAN = """\
# Implementation Plan: Roman numerals

## Steps

### Step 1: Write numbers as Roman numerals
- [ ] done
- Depends on: none
- Files: `roman.py`
- Tests: `tests/test_roman.py::test_numerals`
- Criteria: AC-1
- Kind: feature
- Size: small
"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What ``cdd exec`` told of GREEN, and what it committed."""

    gates: list[tuple[bool, list[str]]]
    notices: list[str]
    code: str
    examples: list[str]
    calls: int


def execute(cdd: Cdd, folder: Path, recording: Path) -> Told:
    project = bare(folder)
    ticket = project / "tickets" / "roman"
    ticket.mkdir(parents=True)
    (ticket / "spec.yaml").write_text(SPEC, encoding="ascii")
    (ticket / "plan.md").write_text(PLAN, encoding="ascii")
    done = cdd("--replay", str(recording), "exec", "roman", "--yes", "--json", cwd=project)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    judged = [event for event in events if event["event"] == "GateJudged" and event["phase"] == "green"]
    state = json.loads((ticket / "execution-state.json").read_text())
    step = state["step_executions"]["1"]
    note = git(project, "notes", "--ref=tdd-handoffs", "show", step["commits"]["green"]).splitlines()[0]
    return Told(
        gates=[
            (event["open"], [f"{reason['code']}: {reason['message']}" for reason in event["reasons"]])
            for event in judged
        ],
        notices=[event["text"] for event in events if event["event"] == "Notice" and "xamined" in event["text"]],
        code=git(project, "show", "HEAD:roman.py"),
        examples=[explain(msgspec.convert(each, type=Finding)) for each in json.loads(note)["gate"]["examples"]],
        calls=step["usage"]["calls"],
    )


@pytest.mark.slow
def test_a_table_of_the_inputs_is_refused_in_words_and_the_rule_is_accepted(cdd: Cdd, tmp_path: Path) -> None:
    told = execute(cdd, tmp_path / "project", RECORDING)
    ((first, reasons), (second, _)) = told.gates
    assert (first, second) == (False, True)
    (reason,) = reasons
    assert reason.startswith("example_failed: AC-1 is not met (WHEN a number from 1 to 3999 is given THE SYSTEM SHALL")
    assert "2 of 3 further examples fail" in reason
    assert not any(word in reason for word in ("MMXXIV", "2024", "III", "IVXLCDM", "test_others"))
    assert told.notices == [
        "Examined: 3 further examples passed (AC-1 test_symbols, AC-1 test_others, AC-1 test_visible)."
    ]
    assert told.examples == [f"AC-1 test_{name}: passes" for name in ("symbols", "others", "visible")]
    assert "divmod" in told.code
    assert told.calls == 5, "the Examiner's call is one of the step"
    add_to_the_tests(cdd, tmp_path / "project")


def add_to_the_tests(cdd: Cdd, project: Path) -> None:
    """The examples become tests, beside uncommitted changes of the user, and only once."""
    head = git(project, "rev-parse", "HEAD")
    (project / "roman.py").write_text("broken by the user\n", encoding="ascii")
    (project / "mine.txt").write_text("mine", encoding="ascii")
    added = cdd("review", "roman", "--examples", "1", cwd=project)
    assert added.returncode == 0, added.stdout + added.stderr
    assert git(project, "log", "--format=%s", f"{head}..") == (
        "test: further examples of step 1: Write numbers as Roman numerals"
    )
    assert git(project, "show", "--name-only", "--format=") == "tests/test_roman_examples_1.py"
    source = (project / "tests" / "test_roman_examples_1.py").read_text(encoding="ascii")
    names = [line.partition("(")[0] for line in source.splitlines() if line.startswith("def ")]
    assert names == [f"def test_{name}" for name in ("symbols", "others", "visible")]
    assert (project / "roman.py").read_text(encoding="ascii") == "broken by the user\n"
    assert git(project, "status", "--porcelain", "--untracked-files=all", "mine.txt", "roman.py") == (
        "M roman.py\n?? mine.txt"
    )
    again = cdd("review", "roman", "--examples", "1", cwd=project)
    assert again.returncode == 2
    assert "tests/test_roman_examples_1.py has these examples already." in again.stderr


@pytest.mark.slow
def test_without_the_turns_of_the_second_agent_other_calls_refute_the_table(cdd: Cdd, tmp_path: Path) -> None:
    turns = yaml.safe_load(RECORDING.read_text(encoding="ascii"))
    recording = tmp_path / "recording.json"
    recording.write_text(json.dumps([turn for turn in turns if "examiner" not in turn["when"]]), encoding="ascii")
    told = execute(cdd, tmp_path / "project", recording)
    ((first, reasons), (second, _)) = told.gates
    assert (first, second) == (False, True)
    assert reasons[0].startswith("examples_only: to_roman of roman.py:4 knows only the tests' calls")
    assert told.examples == ["Not examined: the recording has no such turn."]
    assert "divmod" in told.code
