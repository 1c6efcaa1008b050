"""spec, plan and exec without a prompt."""

import io
import json
import sys
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state_file import load_state, seal_state
from tests.fakes.cases import soak_after
from tests.fakes.demo import ANSWER, RECORDING, SLUG

GIVES_UP = """\
- when: "^Work: executor"
  content: ["I have no idea."]
- when: "^Work: executor"
  content: ["Nor now."]
- when: "^Work: executor"
  content: ["Never."]
"""


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


def cdd(project: Path, *arguments: str, recording: Path = RECORDING) -> int:
    return run(["--project", str(project), "--replay", str(recording), *arguments])


def edit(path: Path, **changes: object) -> None:
    """Change the first step of a saved run."""
    state = json.loads(path.read_text(encoding="utf-8"))
    state["step_executions"]["1"] |= changes
    path.write_text(json.dumps(state), encoding="utf-8")
    seal_state(path, path.read_bytes())


def test_a_complete_spec_asks_nobody(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(finished, "spec", SLUG, "--yes") == 0
    assert capsys.readouterr().out == "• The spec is complete. Next: cdd plan minutes-lost\n"


def test_a_spec_that_only_the_developer_can_complete_is_a_closed_gate(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cdd(project, "spec", SLUG) == 1
    assert "hint: answer in tickets/minutes-lost/spec.yaml" in capsys.readouterr().err


def test_a_plan_needs_a_complete_spec(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(project, "plan", SLUG) == 2
    assert "hint: cdd spec minutes-lost" in capsys.readouterr().err


def test_a_plan_is_drafted_and_saved(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find(finished, SLUG).plan_path.unlink()
    assert cdd(finished, "plan", SLUG) == 0
    assert capsys.readouterr().out.endswith("Next: cdd exec minutes-lost\n")
    assert find(finished, SLUG).plan_path.exists()


def test_exec_of_a_finished_plan_shows_where_it_stands(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(finished, "exec", SLUG) == 0
    assert "✔ completed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--json",), ()])
def test_a_step_that_fails_ends_with_1(
    flags: tuple[str, ...], *, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find(finished, SLUG).state_path.unlink()
    recording = tmp_path / "recording.yaml"
    recording.write_text(GIVES_UP, encoding="utf-8")
    assert cdd(finished, *flags, "exec", SLUG, recording=recording) == 1
    output = capsys.readouterr()
    assert "hint: change the plan or the code, then: cdd exec minutes-lost --retry 1" in output.err
    if flags:
        kinds = [json.loads(line)["event"] for line in output.out.splitlines()]
        assert kinds.count("GateJudged") == 3
    else:
        assert output.out.count("✘ RED gate closed  nothing was changed") == 3
        assert "✘ Step 1/1 failed" in output.out


NOTES = """\
# Implementation Plan: Notes

## Steps

### Step 1: Notes
- [ ] done
- Depends on: none
- Files: `NOTES.md`
- Criteria: AC-1, AC-2
- Kind: docs
- Size: small

### Step 2: More notes
- [ ] done
- Depends on: none
- Files: `MORE.md`
- Criteria: AC-1
- Kind: docs
- Size: small
"""
WRITE_NOTES = """\
- when: "executor minutes-lost step {number} "
  content:
    - {{type: tool_use, name: Write, input: {{file_path: {name}, content: "# notes\\n"}}}}
    - {{type: tool_use, name: CompleteImplementation, input: {{implementation_files: [{name}]}}}}
"""
REFUSE = """\
- {when: "executor minutes-lost step 2 ", content: ["No."]}
- {when: "executor minutes-lost step 2 ", content: ["No."]}
- {when: "executor minutes-lost step 2 ", content: ["No."]}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "fails", "decisions"),
    [
        (("--no-review",), False, ["approved", "approved"]),
        (("--no-review",), True, ["approved", None]),
        ((), False, [None, None]),
    ],
)
def test_no_review_approves_the_steps_whose_gates_opened(
    finished: Path, options: tuple[str, ...], *, fails: bool, decisions: list[str | None], tmp_path: Path
) -> None:
    ticket = find(finished, SLUG)
    ticket.state_path.unlink()
    ticket.plan_path.write_text(NOTES, encoding="utf-8")
    recording = tmp_path / "notes.yaml"
    second = REFUSE if fails else WRITE_NOTES.format(number=2, name="MORE.md")
    recording.write_text(WRITE_NOTES.format(number=1, name="NOTES.md") + second, encoding="utf-8")
    assert cdd(finished, "exec", SLUG, "--yes", *options, recording=recording) == int(fails)
    state = load_state(ticket.state_path)
    assert state is not None
    assert [step.review for step in state.step_executions.values()] == decisions
    assert (finished / ".cdd" / "worktrees" / SLUG).exists() is not state.is_approved


@pytest.mark.slow
def test_a_failed_step_keeps_exec_closed_until_it_is_skipped(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(find(finished, SLUG).state_path, status="failed", error="it failed")
    assert cdd(finished, "exec", SLUG) == 1
    assert "--retry 1" in capsys.readouterr().err
    assert cdd(finished, "exec", SLUG, "--skip", "1") == 0
    assert "• skipped" in capsys.readouterr().out


@soak_after(1, "option", ["--step", "--retry", "--skip"])
def test_a_step_the_plan_does_not_have_is_refused_before_anything_begins(
    option: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = find(finished, SLUG).state_path.read_bytes()
    assert cdd(finished, "exec", SLUG, option, "0") == 2
    assert "no step 0; it has 1." in capsys.readouterr().err
    assert find(finished, SLUG).state_path.read_bytes() == before


def test_the_events_of_a_ticket_are_journaled(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cdd(project, "--json", "spec", SLUG)
    journal = find_records(project).folder / "journal" / SLUG / "events.jsonl"
    kinds = [json.loads(line)["event"] for line in journal.read_text(encoding="utf-8").splitlines()]
    shown = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == [kind for kind in shown if kind != "TextDelta"]


def test_lines_from_a_pipe_are_a_session(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"/spec\n{ANSWER}\n/plan\n"))
    assert cdd(project) == 0
    output = capsys.readouterr()
    assert "What should `1h90` be?" in output.out
    assert "Draft 1 accepted" in output.out
    assert "\x1b" not in output.out
    assert output.err == ""


SMALL = """\
- when: "^Work: scout$"
  content:
    - type: tool_use
      name: ProposeTicket
      input:
        {title: Read days, slug: read-days, kind: bug, size: SIZE, goal: "A day has 24 hours.",
         criteria: [WHEN the text is 1d THE SYSTEM SHALL return 1440],
         files: [durations/reading.py], tests: ["tests/test_days.py::test_one"]}
"""


def test_a_question_without_a_prompt_is_answered(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "one.yaml"
    recording.write_text('- {when: "^Work: scout$", content: ["It reads hours."]}\n', encoding="utf-8")
    assert cdd(project, "-p", "What does it read?", recording=recording) == 0
    assert capsys.readouterr().out == "It reads hours.\n"


def test_a_request_without_a_prompt_becomes_a_ticket(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "large.yaml"
    recording.write_text(SMALL.replace("SIZE", "large"), encoding="utf-8")
    assert cdd(project, "-p", "Read days, too", recording=recording) == 0
    assert "Created tickets/read-days/spec.yaml. Next: cdd spec read-days" in capsys.readouterr().out
    assert "Read days, too" in find(project, "read-days").spec_path.read_text(encoding="utf-8")


def test_a_small_request_without_a_prompt_is_carried_out(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "small.yaml"
    recording.write_text(SMALL.replace("SIZE", "small") + GIVES_UP, encoding="utf-8")
    assert cdd(project, "-p", "Read days, too", recording=recording) == 1
    told = capsys.readouterr()
    assert "Step 1/1  Read days" in told.out
    assert "Step 1 failed: Read days." in told.err


@pytest.mark.parametrize("arguments", [("-p", "  "), ("-p", "Why?", "status")])
def test_a_text_without_a_prompt_stands_alone(
    project: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cdd(project, *arguments) == 2
    assert 'hint: cdd -p "' in capsys.readouterr().err
