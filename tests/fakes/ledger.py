"""Compares the ledger with the saved state after each landing of a run."""

from pathlib import Path

from cdd_agent.events import Committed, Event, Notice
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.ledger import Known, Ledger
from cdd_agent.work.state_file import load_state


def check_ledger(repository: Repository, state_path: Path) -> None:
    """Assert that the state at HEAD is the saved one, both with the notes and going back and forward again."""
    saved, head = load_state(state_path), CommitId(str(repository.read_head()))
    assert saved is not None
    ledger = Ledger(slug=saved.ticket_slug, saved=saved, repository=repository, project=repository.root)
    assert ledger.state_at(head) == Known(state=saved, basis="notes and state")
    before = ledger.state_at(CommitId(repository.objects.require(f"{head}^").id))
    assert isinstance(before, Known)
    assert before.state != saved
    again = Ledger(slug=saved.ticket_slug, saved=before.state, repository=repository, project=repository.root)
    assert again.state_at(head) == Known(state=saved, basis="notes and state")


class LandingChecks(list[Event]):
    """Events of a run; with the first one after each landing, the ledger is checked."""

    def __init__(self, repository: Repository, state_path: Path) -> None:
        """Begin without events. ``state_path`` is the file of the run's state."""
        super().__init__()
        self.landings = 0
        self._repository = repository
        self._state_path = state_path
        self._has_landed = False

    def append(self, event: Event) -> None:
        """Add an event. The state is saved after a commit and before the next event."""
        super().append(event)
        if self._has_landed and not isinstance(event, Notice):
            self._has_landed = False
            self.landings += 1
            check_ledger(self._repository, self._state_path)
        if isinstance(event, Committed) and event.phase != "plan":
            self._has_landed = True
