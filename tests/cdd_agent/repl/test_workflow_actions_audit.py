"""/audit, and how what it found is shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.audit.auditor import Auditor
from cdd_agent.audit.handoffs import AuditedHandoff, confirm, leave_open, refute
from cdd_agent.errors import ExitCode
from cdd_agent.repl.workflow_actions import show_audit
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import captured

RED = AuditedHandoff(ticket="sale", cycle=1, phase="RED", commit="1f0c22ab" * 5, claims=(confirm("note", "So."),))
GREEN = AuditedHandoff(
    ticket="sale",
    cycle=1,
    phase="GREEN",
    commit="8ab2c01d" * 5,
    claims=(confirm("note", "So."), refute("commit", "Not so.\x1b[2J"), leave_open("report", "Who knows.")),
)
LOST = AuditedHandoff(ticket="", cycle=0, phase="", commit="0" * 40, claims=(refute("note", "It cannot be read."),))


def shown(*audited: AuditedHandoff) -> list[str]:
    with captured(width=100) as (screen, stream):
        show_audit(audited, screen=screen)
    return [" ".join(line.split()) for line in stream.getvalue().splitlines() if line.strip()]


def test_a_table_shows_every_claim_and_what_does_not_hold_is_told_below() -> None:
    assert shown(RED, GREEN, LOST) == [
        "sale",
        "cycle phase commit note commit chain report run tests listed checks",
        "1 RED 1f0c22ab ✔",
        "1 GREEN 8ab2c01d ✔ ✘ •",
        "no ticket",
        "cycle phase commit note commit chain report run tests listed checks",
        "00000000 ✘",
        "✘ GREEN of sale, cycle 1, 8ab2c01d: commit: Not so.",
        "• GREEN of sale, cycle 1, 8ab2c01d: report: Who knows.",
        "✘ 00000000: note: It cannot be read.",
        "3 handoffs, 5 claims: 2 false.",
    ]


def test_what_it_comes_to_is_said_in_one_line() -> None:
    assert shown(RED)[-1] == "1 handoff, 1 claim: all true."
    assert shown(replace(RED, claims=GREEN.claims[::2]))[-1] == ("1 handoff, 2 claims: 1 unknown, the rest true.")


def test_the_prompt_audits_a_range(finished: Path) -> None:
    prompt = Prompt(finished)
    assert "all true." in prompt.says("/audit HEAD")
    assert prompt.code == ExitCode.DONE
    assert "names no commits" in prompt.says("/audit nowhere")


def test_a_false_claim_makes_a_script_of_commands_fail(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Auditor, "run", lambda *_: (GREEN,))
    prompt = Prompt(finished)
    assert "false" in prompt.says("/audit")
    assert prompt.code == ExitCode.CLOSED
