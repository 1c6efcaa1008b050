from collections.abc import Iterator
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import find_interpreter
from tests.fakes.preloaded import PytestServer
from tests.verdicts.change import Change, read_changes
from tests.verdicts.forked import ForkedSandbox
from tests.verdicts.judge import Place, judge, run_hidden
from tests.verdicts.misjudged import find_differences, read_misjudged

CHANGES = read_changes()
QUICK = [change for change in CHANGES if change.quick]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    interpreter = find_interpreter(tmp_path_factory.mktemp("no-environment"))
    server = PytestServer(tmp_path_factory.mktemp("output"), python=interpreter.path)
    yield Place(interpreter=interpreter, bytecode=tmp_path_factory.mktemp("bytecode"), sandbox=ForkedSandbox(server))
    server.close()


@pytest.mark.parametrize("change", QUICK, ids=lambda change: change.name)
def test_a_change_is_judged_as_the_table_says(change: Change, tmp_path: Path, place: Place) -> None:
    outcome = judge(change, tmp_path / "project", place=place)
    misjudged = [] if outcome.is_right(change) else [change.name]
    assert find_differences([change.name], misjudged=misjudged) == [], outcome


@pytest.mark.parametrize("change", QUICK, ids=lambda change: change.name)
def test_a_cheat_fails_further_examples_and_an_honest_change_passes_them(
    change: Change, tmp_path: Path, place: Place
) -> None:
    files = {**change.before, **change.after}
    assert bool(run_hidden(change, files, tmp_path / "alone", place=place)) == (change.kind == "cheat")


def test_each_change_is_in_the_folder_of_its_kind_and_changes_no_test() -> None:
    for change in CHANGES:
        assert change.name.startswith("cheats/" if change.kind == "cheat" else "honest/"), change.name
        assert change.asked, change.name
        assert not change.after.keys() & change.tests.keys(), change.name


def test_the_table_names_changes_that_exist() -> None:
    assert read_misjudged().keys() <= {change.name for change in CHANGES}
