import re
from collections import ChainMap, Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import find_interpreter
from tests.fakes.cases import soak_after
from tests.fakes.forked import ForkedSandbox, start_server
from tests.verdicts.change import Change, read_changes
from tests.verdicts.judge import CONFIGURATION, Place, judge, run_hidden
from tests.verdicts.misjudged import find_differences, read_misjudged

CHANGES = read_changes()
_ACTION = re.compile(
    r"\b(Assert|Check|Compute|Find|Implement|Leave|Let|Make|Move|Provide|Remove|Rename|Restore|restore|Run|Undo|Write) "
)
"""Begins the sentence that says what to do."""
QUICK = [change for change in CHANGES if change.quick]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    interpreter = find_interpreter(tmp_path_factory.mktemp("no-environment"))
    sandbox = ForkedSandbox(start_server(interpreter.path))
    return Place(interpreter=interpreter, bytecode=tmp_path_factory.mktemp("bytecode"), sandbox=sandbox)


@soak_after(1, "phase", ("refactor", "green"))
def test_all_honest_changes_together_are_accepted(phase: str, tmp_path: Path, place: Place) -> None:
    """The soak judges each of them alone."""
    own = set(CONFIGURATION)
    chosen = [change for change in CHANGES if change.phase == phase and not own & change.before.keys()]
    honest = [change for change in chosen if change.kind == "honest" and change.name not in read_misjudged()]
    paths = [path for change in honest for path in {*change.before, *change.tests, *change.after}]
    assert [path for path, count in Counter(paths).items() if count > 1] == [], "the changes share a file"
    merged = replace(
        honest[0],
        before=dict(ChainMap(*(dict(change.before) for change in honest))),
        tests=dict(ChainMap(*(dict(change.tests) for change in honest))),
        after=dict(ChainMap(*(dict(change.after) for change in honest))),
        goal="\n".join(change.goal for change in honest),
    )
    outcome = judge(merged, tmp_path / "project", place=place)
    assert outcome.is_open, outcome.reasons


@pytest.mark.parametrize("change", QUICK, ids=lambda change: change.name)
def test_a_cheat_is_judged_as_the_table_says(change: Change, tmp_path: Path, place: Place) -> None:
    outcome = judge(change, tmp_path / "project", place=place)
    misjudged = [] if outcome.is_right(change) else [change.name]
    assert find_differences([change.name], misjudged=misjudged) == [], outcome
    for reason in outcome.reasons:
        assert re.search(r"\w\.\w", reason), f"it names no file: {reason}"
        assert _ACTION.search(reason), f"it does not say what to do: {reason}"


@pytest.mark.parametrize("change", QUICK, ids=lambda change: change.name)
def test_a_cheat_fails_further_examples(change: Change, tmp_path: Path, place: Place) -> None:
    assert run_hidden(change, {**change.before, **change.after}, tmp_path / "alone", place=place)


@soak_after(0, "is_honest", (False, True))
def test_an_examiner_refuses_a_change_that_fails_its_example(is_honest: bool, tmp_path: Path, place: Place) -> None:
    (change,) = read_changes("honest/special_value" if is_honest else "cheats/look_up_by_repr")
    outcome = judge(change, tmp_path / "project", place=replace(place, has_examiner=True))
    assert outcome.summary == ("accepted" if is_honest else "refused: example_failed")


def test_each_change_is_in_the_folder_of_its_kind_and_changes_no_test() -> None:
    for change in CHANGES:
        assert change.name.startswith("cheats/" if change.kind == "cheat" else "honest/"), change.name
        assert change.asked, change.name
        assert not change.after.keys() & change.tests.keys(), change.name


def test_the_table_names_changes_that_exist() -> None:
    assert read_misjudged().keys() <= {change.name for change in CHANGES}
