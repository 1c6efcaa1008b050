"""A decision about a step is kept in the state, and only about a completed one."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.runs.review import approve_step
from cdd_agent.tickets.ticket import find
from cdd_agent.work.state_file import load_state, seal_state
from tests.fakes.demo import SLUG


def test_an_approval_is_on_disk(finished: Path) -> None:
    ticket = find(finished, SLUG)
    approve_step(ticket, 1, project=finished)
    state = load_state(ticket.state_path)
    assert state is not None
    assert state.execution(1).review == "approved"


def test_a_step_that_is_not_in_the_run_is_named(finished: Path) -> None:
    with pytest.raises(UsageError, match="has no step 7"):
        approve_step(find(finished, SLUG), 7, project=finished)


def test_a_step_that_is_not_completed_cannot_be_decided_about(finished: Path) -> None:
    ticket = find(finished, SLUG)
    ticket.state_path.write_text(ticket.state_path.read_text().replace('"status": "completed"', '"status": "failed"'))
    seal_state(ticket.state_path, ticket.state_path.read_bytes())
    with pytest.raises(UsageError, match="Step 1 is failed; only a completed one can be reviewed"):
        approve_step(ticket, 1, project=finished)


def test_before_anything_was_carried_out_there_is_nothing_to_decide(project: Path) -> None:
    with pytest.raises(UsageError, match="has not been carried out yet"):
        approve_step(find(project, SLUG), 1, project=project)
