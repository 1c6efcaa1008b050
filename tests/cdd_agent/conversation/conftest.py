"""A ticket in an empty project, and a dialog with a scripted model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdd_agent.conversation.dialog import Dialog
from cdd_agent.errors import CddError
from cdd_agent.events import Event
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Turn
from cdd_agent.tickets import ticket as tickets
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workspace.files import Workspace
from tests.fakes.model import ScriptedModel


@dataclass(frozen=True, kw_only=True)
class Room:
    """A dialog, its model, and the events it emitted."""

    dialog: Dialog
    model: ScriptedModel
    seen: list[Event] = field(default_factory=list)


MakeRoom = Callable[..., Room]


@pytest.fixture
def ticket(tmp_path: Path) -> Ticket:
    return tickets.create(tmp_path, "sale", title="A sale", type="feature")


@pytest.fixture
def room(tmp_path: Path) -> MakeRoom:
    def make(
        *turns: Turn | CddError | KeyboardInterrupt,
        max_turns: int = 5,
        objection: Callable[[], str | None] | None = None,
    ) -> Room:
        seen: list[Event] = []
        model = ScriptedModel(turns)
        workspace = Workspace(tmp_path)
        budget = Budget(max_turns=max_turns)
        dialog = Dialog(workspace=workspace, model=model, budget=budget, emit=seen.append, objection=objection)
        return Room(dialog=dialog, model=model, seen=seen)

    return make
