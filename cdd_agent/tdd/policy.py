"""What a cycle is given and how far it may go: the work item, its phases, the limits."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.tickets import plan
from cdd_agent.work import state

Kind: TypeAlias = plan.Kind
"""What a work item changes; decides the prefix of its commits."""

Phase: TypeAlias = state.Phase
"""The part of a cycle that one gate judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a work item stands among others, for the handoff notes of a workflow that takes them from a list."""

    completed: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    following: str = "COMPLETE"
    """The phase after the item's last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One unit of work that ends in commits."""

    ticket: str
    number: int
    """Of the step or cycle, 1-based."""
    title: str
    goal: str
    """Description and acceptance criteria, as the model is to read them."""
    kind: Kind
    phases: tuple[Phase, ...]
    """Those it goes through, in order."""
    tests: tuple[str, ...]
    """Node ids or files; empty: whatever tests RED adds."""
    sources: tuple[str, ...]
    """Root-relative paths that are expected to change; in PLAN the only ones that may."""
    shown: tuple[str, ...] = ()
    """Root-relative files that a model without tools is given besides tests and sources."""
    progress: Progress | None = None
    """None: the item's own tests are all there are."""
    told: str = ""
    """What else PLAN's commit says, between its subject and its trailers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of a cycle, and what becomes of what they end."""

    max_attempts: int
    """At one phase."""
    budget: Budget
    """Of one attempt."""
    evidence_timeout_s: float
    """Wall clock of the runs that check one open gate from outside, all together."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the model changes files."""
    most_alike: int = 3
    """Closed attempts in a row with the same failures, after which there is no progress."""
    is_strict: bool = False
    """An attempt that breaks one test is taken back, however many others it mends."""
    keeps_landed: bool = False
    """A phase that fails takes back its own changes only, so that a person can go on from it; else the whole item."""
    one_test: bool = False
    """RED adds one new test, with as many parameters as it likes."""
    takes_covered: bool = False
    """A new test that passes at once ends the item, and stays if it notices altered code; else RED is tried again."""
    commits_nothing: bool = False
    """A phase that changes nothing makes an empty commit."""
    gate_runs: tuple[str, ...] = ()
    """The test files that baseline and gate run; empty: all tests."""
    targets_first: bool = False
    """An attempt at GREEN is judged by the item's tests alone first; the others are run only if those pass."""
    tests_each_write: bool = False
    """In GREEN the answer to each Write and Edit tells what the item's tests say then."""
    has_commands: bool = True
    """The model may run commands."""
    keeps_part: bool = False
    """A GREEN that mends some of the item's tests and breaks none is committed once its attempts are used up."""


def phases_of(kind: Kind, *, refactor: bool) -> tuple[Phase, ...]:
    """The phases a plan's step of this kind goes through; ``refactor``: whether feature and bug end with REFACTOR."""
    match kind:
        case "feature" | "bug":
            return ("red", "green", "refactor") if refactor else ("red", "green")
        case "refactor":
            return ("refactor",)
        case "docs" | "chore":
            return ("green",)


def commit_prefix(phase: Phase, kind: Kind) -> str:
    """The word before the colon of a commit's subject."""
    match phase:
        case "plan" | "refactor":
            return phase
        case "red":
            return "test"
        case "green":
            return {"feature": "feat", "bug": "fix", "docs": "docs", "chore": "chore"}.get(kind, "feat")
