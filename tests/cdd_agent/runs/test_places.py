"""Where the run of a name is found."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.runs.places import find_run, list_runs, locate_run
from cdd_agent.tickets.ticket import create
from cdd_agent.work.records import find_records


def test_a_run_without_a_ticket_is_in_the_records_and_not_in_the_project(tmp_path: Path) -> None:
    create(tmp_path, "sale", title="A sale")
    run = locate_run(tmp_path, "tdd-sum")
    assert not run.folder.is_relative_to(tmp_path / "tickets")
    run.folder.mkdir(parents=True)
    assert [each.slug for each in list_runs(tmp_path)] == ["sale", "tdd-sum"]
    assert find_run(tmp_path, "tdd-sum") == run
    assert find_run(tmp_path, "sale").has_documents
    with pytest.raises(UsageError, match="There is no ticket 'tdd-su' in") as caught:
        find_run(tmp_path, "tdd-su")
    assert "or name a run without a ticket: tdd-sum" in caught.value.hint


@pytest.mark.parametrize("name", ["tdd", "green"])
def test_a_run_of_an_earlier_version_is_found_where_it_is(tmp_path: Path, name: str) -> None:
    earlier = find_records(tmp_path).folder / name / f"{name}-a"
    earlier.mkdir(parents=True)
    assert locate_run(tmp_path, f"{name}-a").folder == earlier
    assert find_run(tmp_path, f"{name}-a").folder == earlier
