"""Decide whether a command of the model may run, and ask the user if necessary.

In a run tree that the sandbox isolates, every command may run: it reaches nothing of the user's. Elsewhere, reading
the project, writing in a run tree, the project's interpreter and its tests need no permission. Any other command needs
one, which cdd can save for this project and for commands of the same form; if nobody is there to ask, it is refused.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import CddError, EnvironmentMissing

if TYPE_CHECKING:
    from cdd_agent.shell.analysis import CommandClass, LinePart

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
    pattern: str = ""
    """What an ``always`` would cover, if that is more than this command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The user's answer."""

    verdict: Literal["always", "once", "no"]
    """``always`` holds in this project for the same program, options and words, with any files of the project."""
    reason: str = ""
    """The user's own words, for the model."""


AskCommand: TypeAlias = Callable[[CommandQuestion], CommandAnswer]
"""Asks the user; raises ``KeyboardInterrupt`` if the user interrupts instead of answering."""


@dataclass(slots=True, kw_only=True)
class Permission:
    """The permissions of a project's agents in this session."""

    root: Path
    """The project's folder, as commands find it."""
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
    is_free: bool = False
    """Whether commands reach nothing of the user's, and so need no permission."""
    _granted: set[Granted] = field(default_factory=set)

    def check_command(self, line: str) -> str | None:
        """Return why ``line`` may not run, for the model, or None if it may; ask the user if necessary."""
        from cdd_agent.shell.analysis import Project, judge

        if self.is_free and not (self.asks_all and self.ask):
            return None
        project = Project(
            root=str(self.root.resolve()),
            files=str((self.tree or self.root).resolve()),
            test_command=tuple(shlex.split(self.test_command)),
        )
        once_each = {part.content: part for part in judge(line, project)}.values()
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
        match part.kind:
            case "read":
                return None
            case "write" | "tests":
                return self.check_activity(part.kind)
        offer = Offer(subject="command", source=part.text, shown=(part.pattern,), content=part.content)
        if self._is_approved(offer):
            return None
        why = _shorten(part.why)
        if self.ask is None:
            return _format_refusal(part, f"{why}, and nobody is there to ask. {_ALTERNATIVES} {_HINT}")
        pattern = part.pattern if part.pattern != part.text else ""
        question = CommandQuestion(line=line, start=part.start, end=part.end, kind=part.kind, why=why, pattern=pattern)
        answer = self.ask(question)
        if answer.verdict == "no":
            return _format_refusal(part, f"the developer said no{_format_reason(answer)} {_NO_WORKAROUND}")
        if answer.verdict == "always":
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
_HINT = "The developer can allow it at the cdd prompt; --sandbox bwrap allows it without a question."


def _shorten(text: str) -> str:
    # The model chooses the names in a clause, which may have any length.
    line = " ".join(text.split())
    return line if len(line) <= 2 * _MAX_SHOWN else f"{line[:_MAX_SHOWN]} ... {line[-_MAX_SHOWN:]}"


def _format_refusal(part: "LinePart", why: str) -> str:
    shown = part.text if len(part.text) <= _MAX_SHOWN else f"{part.text[:_MAX_SHOWN]}..."
    return f"Refused; no part of the command ran: `{shown}`: {why}"


def _format_reason(answer: CommandAnswer) -> str:
    return f": {answer.reason.rstrip('.')}." if answer.reason else "."
