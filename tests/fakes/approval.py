"""Whoever is asked whether what a repository brings may take effect, and where the answers are kept."""

from collections.abc import Mapping
from pathlib import Path

from cdd_agent.config.trust import Approvals, Offer, Trust


class Answers:
    """Gives one answer to every question, and keeps the questions."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[Offer] = []
        self.changed: list[bool] = []
        """Of each question, whether another content was decided about before."""

    def __call__(self, offer: Offer, changed: bool) -> bool:
        self.asked.append(offer)
        self.changed.append(changed)
        return self.answer


def approves(_offer: Offer, _changed: bool) -> bool:
    """Says yes to everything."""
    return True


def users_folder(temporary: Path) -> Mapping[str, str]:
    """The variables by which the user's folder is a temporary one."""
    return {"XDG_STATE_HOME": str(temporary / "users-state")}


def trust_in(project: Path, *, temporary: Path, ask: Answers | None = None) -> tuple[Trust, list[str]]:
    """The decisions of a user about a project, and what that user is told."""
    told: list[str] = []
    return Trust(Approvals(project, environment=users_folder(temporary)), ask=ask, report=told.append), told
