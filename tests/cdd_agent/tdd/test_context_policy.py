import pytest

from cdd_agent.tdd.context import Kind, Phase, commit_prefix, phases_of
from cdd_agent.testrun.suite import list_modules


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
    assert phases_of(kind, refactor=True) == phases


def test_a_setting_can_leave_refactoring_out_but_not_of_a_refactoring() -> None:
    assert phases_of("feature", refactor=False) == ("red", "green")
    assert phases_of("refactor", refactor=False) == ("refactor",)


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
    assert list_modules((source,)) == names
