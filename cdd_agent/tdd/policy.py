"""What a cycle is given and how far it may go: the work item, its phases, the limits."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.tickets import plan
from cdd_agent.work import state

Kind: TypeAlias = plan.Kind
"""What a work item changes; decides its phases and the prefix of its commits."""

Phase: TypeAlias = state.Phase
"""The part of a cycle that one gate judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One unit of work that ends in commits."""

    ticket: str
    number: int
    """Of the step, 1-based."""
    title: str
    goal: str
    """Description and acceptance criteria, as the model is to read them."""
    kind: Kind
    tests: tuple[str, ...]
    """Node ids or files; empty: whatever tests RED adds."""
    sources: tuple[str, ...]
    """Root-relative paths that are expected to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of a cycle."""

    max_attempts: int
    """At one phase."""
    refactor: bool
    """Whether feature and bug items have a REFACTOR phase."""
    budget: Budget
    """Of one attempt."""
    evidence_timeout_s: float
    """Wall clock of the runs that check an open GREEN from outside, all together."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the model changes files."""


def phases_of(kind: Kind, policy: Policy) -> tuple[Phase, ...]:
    """The phases an item of this kind goes through, in order."""
    match kind:
        case "feature" | "bug":
            return ("red", "green", "refactor") if policy.refactor else ("red", "green")
        case "refactor":
            return ("refactor",)
        case "docs" | "chore":
            return ("green",)


def commit_prefix(phase: Phase, kind: Kind) -> str:
    """The word before the colon of a commit's subject."""
    match phase:
        case "red":
            return "test"
        case "refactor":
            return "refactor"
        case "green":
            return {"feature": "feat", "bug": "fix", "docs": "docs", "chore": "chore"}.get(kind, "feat")


def modules_of(sources: tuple[str, ...]) -> tuple[str, ...]:
    """The dotted names under which tests may import ``sources``: what RED may find missing.

    >>> modules_of(("src/ledger/export.py",))
    ('src.ledger.export', 'ledger.export')
    """
    names: list[str] = []
    for source in sources:
        if not source.endswith(".py"):
            continue
        parts = source.removesuffix(".py").removesuffix("/__init__").split("/")
        starts = range(2 if parts[0] in {"src", "lib"} and len(parts) > 1 else 1)
        names.extend(".".join(parts[start:]) for start in starts)
    return tuple(names)
