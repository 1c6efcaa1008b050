import pytest

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.tdd.policy import Kind, Phase, Policy, commit_prefix, modules_of, phases_of


def policy(*, refactor: bool) -> Policy:
    return Policy(max_attempts=3, refactor=refactor, budget=Budget(), evidence_timeout_s=60)


@pytest.mark.parametrize(
    ("kind", "phases"),
    [
        ("feature", ("red", "green", "refactor")),
        ("bug", ("red", "green", "refactor")),
        ("refactor", ("refactor",)),
        ("docs", ("green",)),
        ("chore", ("green",)),
    ],
)
def test_the_kind_chooses_the_phases(kind: Kind, phases: tuple[Phase, ...]) -> None:
    assert phases_of(kind, policy(refactor=True)) == phases


def test_the_policy_can_leave_refactoring_out_but_not_of_a_refactoring() -> None:
    assert phases_of("feature", policy(refactor=False)) == ("red", "green")
    assert phases_of("refactor", policy(refactor=False)) == ("refactor",)


@pytest.mark.parametrize(
    ("phase", "kind", "prefix"),
    [
        ("red", "bug", "test"),
        ("green", "feature", "feat"),
        ("green", "bug", "fix"),
        ("green", "docs", "docs"),
        ("green", "chore", "chore"),
        ("refactor", "feature", "refactor"),
    ],
)
def test_a_commit_says_what_it_is_in_one_word(phase: Phase, kind: Kind, prefix: str) -> None:
    assert commit_prefix(phase, kind) == prefix


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("export.py", ("export",)),
        ("ledger/export.py", ("ledger.export",)),
        ("ledger/__init__.py", ("ledger",)),
        ("src/ledger/export.py", ("src.ledger.export", "ledger.export")),
        ("lib/export.py", ("lib.export", "export")),
        ("README.md", ()),
    ],
)
def test_a_source_may_be_imported_under_these_names(source: str, names: tuple[str, ...]) -> None:
    assert modules_of((source,)) == names
