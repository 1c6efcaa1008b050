"""How the Executor is spoken to."""

from pathlib import Path

from cdd_agent.tdd.briefing import Brief, BriefFor, rules_of, stated
from cdd_agent.tdd.policy import Phase, WorkItem

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "executor.md", "blocks": "executor_blocks.md"}
"""How the model changes files -> who it is told it is."""


def brief_for(edit_format: str = "tools") -> BriefFor:
    """The brief of each phase of each step of a plan."""
    role = (_PROMPTS / _ROLES[edit_format]).read_text(encoding="utf-8")

    def brief(item: WorkItem, phase: Phase) -> Brief:
        return Brief(
            phase=phase,
            agent="executor",
            role=role,
            rules=rules_of(phase),
            work=f"executor {item.ticket} step {item.number} {phase}",
            task=f"Carry out step {item.number} of the plan.",
            stated=stated(item, heading=f"Step {item.number}"),
            source="plan.md",
        )

    return brief
