"""Decide whether a command of the model may run, and ask the user if necessary.

Reading the project, writing in it and running its tests need no permission. Any other command needs one, which cdd
saves for this project and for exactly this text. A command that would lose work needs permission every time, and one
that changes something outside the project is refused.

If nobody is there to ask, commands that would lose work are refused, and unknown commands run only in an isolating
sandbox.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import CddError, EnvironmentMissing
from cdd_agent.sandbox.levels import ISOLATING_LEVELS

if TYPE_CHECKING:
    from cdd_agent.shell.analysis import LinePart
    from cdd_agent.shell.words import CommandClass, Kind

Granted: TypeAlias = Literal["write", "tests"]
"""Activities that need no permission, unless the user's settings say so."""

_MAX_SHOWN = 120
"""Characters of a command in an answer to the model."""
_ACTIVITIES: dict[Granted, str] = {
    "write": "write and change files of this project",
    "tests": "run this project's tests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandQuestion:
    """A question to the user before a command runs."""

    line: str
    """The whole command line."""
    start: int
    """The range of the part in question, in characters; ``end`` is exclusive."""
    end: int
    kind: "CommandClass"
    why: str
    """The reason for the question: a clause."""
    loses: str = ""
    """The loss it would cause: a clause, or empty. A permission to lose work is not saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The user's answer."""

    verdict: Literal["always", "once", "no"]
    """``always`` holds for the same text in this project."""
    reason: str = ""
    """The user's own words, for the model."""


AskCommand: TypeAlias = Callable[[CommandQuestion], CommandAnswer]
"""Asks the user; raises ``KeyboardInterrupt`` if the user interrupts instead of answering."""


@dataclass(slots=True, kw_only=True)
class Permission:
    """The permissions of a project's agents in this session."""

    root: Path
    """The project's folder, as commands find it."""
    level: str
    """The level of the sandbox in which commands run."""
    approvals: Approvals
    ask: AskCommand | None
    """None if nobody is there to ask."""
    report: Callable[[str], None]
    """Shows a notice to the user."""
    asks_all: bool = False
    """Whether writing and running tests need permission, too."""
    test_command: str = "pytest"
    """The command for which a permission to run tests holds."""
    tree: Path | None = None
    """Where the files of ``root`` really are; None: there."""
    _granted: set[Granted] = field(default_factory=set)

    @property
    def files(self) -> Path:
        """The folder with the files of ``root``."""
        return self.tree or self.root

    def check_command(self, line: str) -> str | None:
        """Return why ``line`` may not run, for the model, or None if it may; ask the user if necessary."""
        from cdd_agent.shell.analysis import judge
        from cdd_agent.shell.words import Project

        root = str(self.root.resolve())
        parts = judge(line, Project(root=root, look=_make_look(root, str(self.files.resolve()))))
        for part in parts:
            if part.kind == "outside":
                return _format_refusal(part, f"{part.effect.why}. Change only files of the project.")
        if self.ask is None:
            for part in parts:
                if part.effect.loses:
                    return _format_refusal(part, f"{part.effect.loses}, and nobody is there to ask. {_ALTERNATIVES}")
        once_each = {part.content: part for part in parts}.values()
        return next(filter(None, (self._check_part(part, line) for part in once_each)), None)

    def check_activity(self, activity: Granted) -> str | None:
        """Return why the agent may not write files or run tests, or None if it may; ask the user if necessary."""
        if not self.asks_all or self.ask is None:
            return None
        what = _ACTIVITIES[activity]
        content = f"{activity}\0{self.test_command if activity == 'tests' else ''}".encode()
        offer = Offer(subject="command", source=activity, shown=(what,), content=content)
        if activity in self._granted or self._is_approved(offer):
            return None
        text = f"{what}: {self.test_command}" if activity == "tests" else what
        question = CommandQuestion(line=text, start=0, end=len(text), kind=activity, why="the settings require it")
        answer = self.ask(question)
        if answer.verdict == "no":
            return f"The developer does not allow you to {what}{_format_reason(answer)}"
        self._granted.add(activity)
        if answer.verdict == "always":
            self._save(offer)
        return None

    def _check_part(self, part: "LinePart", line: str) -> str | None:
        if part.effect.loses:
            return self._ask_about(part, line)
        match part.kind:
            case "read":
                return None
            case "write" | "tests":
                return self.check_activity(part.kind)
        offer = Offer(subject="command", source=part.text, shown=(part.text,), content=part.content)
        if self._is_approved(offer) or (self.ask is None and self.level in ISOLATING_LEVELS):
            return None
        if self.ask is None:
            why = f"{part.effect.why}; nobody is there to ask, and the sandbox ({self.level}) does not isolate it."
            return _format_refusal(part, f"{why} {_ALTERNATIVES} {_HINT}")
        return self._ask_about(part, line, offer=offer)

    def _ask_about(self, part: "LinePart", line: str, *, offer: Offer | None = None) -> str | None:
        """Ask the user about a part; save the permission as ``offer``, if given."""
        assert self.ask is not None
        why, loses = _shorten(part.effect.why), _shorten(part.effect.loses)
        question = CommandQuestion(line=line, start=part.start, end=part.end, kind=part.kind, why=why, loses=loses)
        answer = self.ask(question)
        if answer.verdict == "no":
            return _format_refusal(part, f"the developer said no{_format_reason(answer)} {_NO_WORKAROUND}")
        if answer.verdict == "always" and offer is not None:
            self._save(offer)
        return None

    def _is_approved(self, offer: Offer) -> bool:
        try:
            return self.approvals.find_decision(offer) is True
        except EnvironmentMissing:  # An unreadable file approves nothing.
            return False

    def _save(self, offer: Offer) -> None:
        try:
            self.approvals.record(offer, approved=True)
        except (CddError, OSError) as error:
            self.report(f"The permission holds once; it could not be saved: {error}")


_ALTERNATIVES = "Read, Grep, Glob, Write, Edit and RunTests need no permission."
_NO_WORKAROUND = "Do not try to do the same in another way; continue without it."
_HINT = "The developer can allow it with --sandbox bwrap, or once at the cdd prompt."


def _shorten(text: str) -> str:
    # The model chooses the names in a clause, which may have any length.
    line = " ".join(text.split())
    return line if len(line) <= 2 * _MAX_SHOWN else f"{line[:_MAX_SHOWN]} ... {line[-_MAX_SHOWN:]}"


def _format_refusal(part: "LinePart", why: str) -> str:
    shown = part.text if len(part.text) <= _MAX_SHOWN else f"{part.text[:_MAX_SHOWN]}..."
    return f"Refused; no part of the command ran: `{shown}`: {why}"


def _format_reason(answer: CommandAnswer) -> str:
    return f": {answer.reason.rstrip('.')}." if answer.reason else "."


def _make_look(root: str, files: str) -> "Callable[[str], Kind]":
    def look(path: str) -> "Kind":
        if path == root or path.startswith(f"{root}/"):
            path = files + path[len(root) :]
        real = os.path.realpath(path)
        if real != files and not real.startswith(f"{files}/"):
            return "elsewhere"
        try:
            status = os.stat(path)
        except OSError:
            return "file" if os.path.lexists(path) else ""
        if stat.S_ISDIR(status.st_mode):
            return "folder"
        # Overwriting an empty file loses nothing.
        return "file" if status.st_size or not stat.S_ISREG(status.st_mode) else ""

    return look
