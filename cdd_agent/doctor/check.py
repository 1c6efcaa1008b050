"""One thing that was looked at, and the project it was looked at in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.git.repository import Repository
from cdd_agent.model.port import Model
from cdd_agent.settings import Settings
from cdd_agent.testrun.suite import Suite
from cdd_agent.trust import Approvals

State: TypeAlias = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one look came to."""

    name: str
    """``git``, ``interpreter``: one word."""
    state: State
    """``note``: nothing is missing, but somebody should know; ``missing``: runs will fail."""
    told: str
    fix: str = ""
    """What to type, or do, where it does not work."""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The project and its parts, each made when it is asked for; asking raises ``CddError`` where it cannot be made.

    None of them may ask the user anything: what is not approved counts as missing.
    """

    root: Path
    environment: Mapping[str, str]
    approvals: Approvals
    sandbox: str
    """The level that is asked for, or ``auto``."""
    replay: Path | None
    record: Path | None
    settings: Callable[[], Settings]
    repository: Callable[[], Repository]
    suite: Callable[[], Suite]
    model: Callable[[], Model]
