"""What the command line says about every command, and the project that it means."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdd_agent.config.trust import Ask
    from cdd_agent.model.anthropic import MayWait
    from cdd_agent.model.secret import Secret
    from cdd_agent.shell.permission import AskCommand


Choose: TypeAlias = Callable[[str, tuple[str, ...]], int]
"""Asks a person a question with several answers; returns the number of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about every command."""

    project: Path | None = None
    model: str | None = None
    replay: Path | None = None
    record: Path | None = None
    allow_dirty: bool = False
    ask: "Ask | None" = None
    """Asks the user whether what a repository brings may take effect; None: nobody is there."""
    key: "Secret | None" = None
    """Of the model's service; the environment no longer holds it."""
    may_wait: "MayWait | None" = None
    """Asks the user whether to wait for a busy service; None: nobody is there."""
    objection: Callable[[], str | None] | None = None
    """Asks the user, who has seen a change to a spec, what speaks against saving it; None: it is saved."""
    ask_command: "AskCommand | None" = None
    """Asks the user whether a command of the model's may run; None: nobody is there."""
    choose: Choose | None = None
    """Asks the user which of several is meant; None: nobody is there."""
    sandbox: str | None = None
    """The level that is asked for; None: as ``CDD_SANDBOX`` says, else the best there is."""
    attended: bool = False
    """Somebody is there to see that nothing is confined."""

    def typed(self, words: str) -> str:
        """``cdd WORDS`` as it means the same project from the folder that is worked in."""
        if self.project is None:
            return f"cdd {words}"
        place, here = self.project.resolve(), Path.cwd()
        shown = place.relative_to(here) if place.is_relative_to(here) else place
        return f"cdd --project {shlex.quote(str(shown))} {words}"

    def recording(self, environment: Mapping[str, str] = os.environ) -> Path | None:
        """The recording that answers in the model's place, if one is named."""
        return self.replay or told_path(environment, "CDD_REPLAY")


def told_path(environment: Mapping[str, str], *names: str) -> Path | None:
    """The path in the first of these variables that is set."""
    return next((Path(environment[name]) for name in names if environment.get(name)), None)
