"""The global options of the command line, and the project that they select."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdd_agent.config.trust import Ask
    from cdd_agent.model.anthropic import MayWait
    from cdd_agent.model.conversation import HearUser
    from cdd_agent.shell.permission import AskCommand
    from cdd_agent.untrusted.keys import Secret


Choose: TypeAlias = Callable[[str, tuple[str, ...]], int]
"""Asks the user a question with several answers; returns the index of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that every command has. A function that asks the user is None if nobody can be asked."""

    project: Path | None = None
    model: str | None = None
    replay: Path | None = None
    record: Path | None = None
    allow_dirty: bool = False
    allow_files: tuple[str, ...] = ()
    """The files of unusual kinds that may land without a question."""
    anyway: bool = False
    """Whether a ticket may run before those on which it depends are done."""
    jobs: int = 1
    """How many steps of a plan may be worked on at once."""
    scheduler: str | None = None
    """The address of the dask scheduler whose workers carry out the steps."""
    max_usd: float | None = None
    """A limit in dollars for the whole run; with None, that of the settings counts."""
    python: Path | None = None
    """The interpreter with which tests run; with None, cdd looks for one."""
    install: bool = False
    """Download the packages that a graph lists, without asking."""
    no_review: bool = False
    """Whether a step counts as approved once its gates have opened, without being shown."""
    ask: "Ask | None" = None
    """Asks whether something that a repository brings may take effect."""
    key: "Secret | None" = None
    """The API key; the environment no longer contains it."""
    may_wait: "MayWait | None" = None
    """Asks whether to wait for a busy service."""
    objection: Callable[[], str | None] | None = None
    """Asks for objections to a change of a spec, which was just shown. If nobody can be asked, it is saved."""
    ask_command: "AskCommand | None" = None
    choose: Choose | None = None
    hear: "HearUser | None" = None
    sandbox: str | None = None
    """The requested sandbox level; with None, ``CDD_SANDBOX`` or else the best available level counts."""
    attended: bool = False
    """Whether a user sees the warning if no sandbox is available."""

    def as_command(self, words: str) -> str:
        """Return ``cdd WORDS`` with the options for the same project, from the current folder, and the same sandbox."""
        chosen = [] if self.sandbox is None else ["--sandbox", self.sandbox]
        if self.project is not None:
            project, here = self.project.resolve(), Path.cwd()
            path = project.relative_to(here) if project.is_relative_to(here) else project
            chosen += ["--project", str(path)]
        return " ".join(("cdd", *map(shlex.quote, chosen), words))

    def find_recording(self, environment: Mapping[str, str] = os.environ) -> Path | None:
        """Return the recording to play instead of asking the model, if any."""
        return self.replay or read_path_variable(environment, "CDD_REPLAY")


def read_path_variable(environment: Mapping[str, str], *names: str) -> Path | None:
    """Return the path in the first of these variables that is set."""
    return next((Path(environment[name]) for name in names if environment.get(name)), None)
