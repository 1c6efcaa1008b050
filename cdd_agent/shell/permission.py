"""Whether a command of the model's may run: what needs no question, what a person is asked once, what is refused.

Reading the project, running its tests and writing in it are what the agent was started for. Any other command is asked
about once and kept for this project, bound to its very text; what would lose work is asked about every time; what
changes anything outside the project is refused. Where nobody is there to ask, a command runs only if nothing can come
of it: what is not known to be harmless in a sandbox that shuts it in, what would lose work never.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import CddError, EnvironmentMissing

if TYPE_CHECKING:
    from cdd_agent.shell.analysis import Judgment, Part
    from cdd_agent.shell.words import CommandClass, Kind

Granted: TypeAlias = Literal["write", "tests"]
"""What needs no question, unless the user wants to be asked about it, too."""

SHUT_IN = frozenset({"docker", "bwrap"})
"""Levels of the sandbox at which a command reaches neither the network nor anything outside the project; under
``landlock`` it could delete ``.git`` and use sockets that lie in the file system."""

_SHOWN = 120
"""Characters of a command in an answer to the model."""
_WHAT: dict[Granted, str] = {"write": "write and change files of this project", "tests": "run this project's tests"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandQuestion:
    """What a person is asked before a command runs."""

    line: str
    """All of the command."""
    start: int
    """Where the part in question begins, in characters; ``end`` is one behind."""
    end: int
    kind: "CommandClass"
    why: str
    """Why it is asked about, as a clause."""
    loses: str = ""
    """What would be lost, as a clause; then a yes is never kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """What the person said."""

    verdict: Literal["always", "once", "no"]
    """``always``: for this project, as long as the text is the same."""
    reason: str = ""
    """In the person's words, for the model."""


AskCommand: TypeAlias = Callable[[CommandQuestion], CommandAnswer]
"""Asks the person who is there; raises ``KeyboardInterrupt`` where no answer comes."""


@dataclass(slots=True, kw_only=True)
class Permission:
    """What the agents of one project may do, this session."""

    root: Path
    level: str
    """Of the sandbox that commands run in."""
    approvals: Approvals
    ask: AskCommand | None
    """None: nobody is there."""
    tell: Callable[[str], None]
    """Takes what a person should know."""
    asks_all: bool = False
    """Whether writing and testing are asked about, once for each project."""
    test_command: str = "pytest"
    """What a yes to running the tests holds for."""
    _granted: set[Granted] = field(default_factory=set)
    """What was allowed for this session."""

    def check_command(self, line: str) -> str | None:
        """Why ``line`` may not run, as the model is to read it; None: it may. A person may be asked."""
        from cdd_agent.shell.analysis import judge
        from cdd_agent.shell.words import Ground

        judged = judge(line, Ground(root=str(self.root.resolve()), look=_look_in(str(self.root.resolve()))))
        for part in judged.parts:
            if part.kind == "outside":
                return _refused(
                    part, f"{part.finding.why}. No command may change that; work on the project's own files."
                )
        if self.ask is None:
            for part in judged.parts:
                if part.finding.loses:
                    return _refused(part, f"{part.finding.loses}, and nobody is there to ask. {_INSTEAD}")
        once_each = {part.content: part for part in judged.parts}.values()
        return next(filter(None, (self._refusal_of(part, judged) for part in once_each)), None)

    def check_activity(self, granted: Granted) -> str | None:
        """Why the agent may not write, or run tests, at all; None: it may."""
        if not self.asks_all or self.ask is None:
            return None
        content = f"{granted}\0{self.test_command if granted == 'tests' else ''}".encode()
        offer = Offer(subject="command", source=granted, shown=(_WHAT[granted],), content=content)
        if granted in self._granted or self._is_kept(offer):
            return None
        text = f"{_WHAT[granted]}: {self.test_command}" if granted == "tests" else _WHAT[granted]
        question = CommandQuestion(line=text, start=0, end=len(text), kind=granted, why="the settings say so")
        answer = self.ask(question)
        if answer.verdict == "no":
            return f"The developer does not let you {_WHAT[granted]}{_reason(answer)}"
        self._granted.add(granted)
        if answer.verdict == "always":
            self._keep(offer)
        return None

    def _refusal_of(self, part: "Part", judged: "Judgment") -> str | None:
        """Why one part may not run; None: it may."""
        if part.finding.loses:
            return self._asked(part, judged)
        match part.kind:
            case "read":
                return None
            case "write" | "tests":
                return self.check_activity(part.kind)
        offer = Offer(subject="command", source=part.text, shown=(part.text,), content=part.content)
        if self._is_kept(offer) or (self.ask is None and self.level in SHUT_IN):
            return None
        if self.ask is None:
            why = f"{part.finding.why}; nobody is there to ask, and the sandbox ({self.level}) does not shut it in."
            return _refused(part, f"{why} {_INSTEAD} {_HINT}")
        return self._asked(part, judged, offer=offer)

    def _asked(self, part: "Part", judged: "Judgment", *, offer: Offer | None = None) -> str | None:
        """What the person says to a part; a yes is kept as ``offer``, if that is given."""
        assert self.ask is not None
        question = CommandQuestion(
            line=judged.line,
            start=part.start,
            end=part.end,
            kind=part.kind,
            why=_clause(part.finding.why),
            loses=_clause(part.finding.loses),
        )
        answer = self.ask(question)
        if answer.verdict == "no":
            return _refused(part, f"the developer said no{_reason(answer)} {_NO_OTHER_WAY}")
        if answer.verdict == "always" and offer is not None:
            self._keep(offer)
        return None

    def _is_kept(self, offer: Offer) -> bool:
        """Whether the user has said yes to this very content here; a file that cannot be relied on says nothing."""
        try:
            return self.approvals.decision(offer) is True
        except EnvironmentMissing:
            return False

    def _keep(self, offer: Offer) -> None:
        try:
            self.approvals.record(offer, approved=True)
        except (CddError, OSError) as error:
            self.tell(f"Allowed this once, and not remembered: {error}")


_INSTEAD = "Read, Grep, Glob, Write, Edit and RunTests need no permission."
_NO_OTHER_WAY = "Do not try the same another way; go on without it."
_HINT = "The developer can let it run by --sandbox bwrap, or say yes to it once at the prompt of cdd."


def _clause(text: str) -> str:
    """A clause in one line, without its middle if it is long: names in it are the model's, and may be of any length."""
    line = " ".join(text.split())
    return line if len(line) <= 2 * _SHOWN else f"{line[:_SHOWN]} ... {line[-_SHOWN:]}"


def _refused(part: "Part", why: str) -> str:
    """The answer to the model: which part was refused, and why; nothing of the command was run."""
    shown = part.text if len(part.text) <= _SHOWN else f"{part.text[:_SHOWN]}..."
    return f"Refused, and nothing of the command was run: `{shown}`: {why}"


def _reason(answer: CommandAnswer) -> str:
    """The person's own words, if any, and the end of the sentence."""
    return f": {answer.reason.rstrip('.')}." if answer.reason else "."


def _look_in(root: str) -> "Callable[[str], Kind]":
    """Looks at what lies at absolute paths; a path that a link leads out of ``root`` is not the project's."""

    def look(place: str) -> "Kind":
        real = os.path.realpath(place)
        return _look(place) if real == root or real.startswith(f"{root}/") else "elsewhere"

    return look


def _look(place: str) -> "Kind":
    """What lies at an absolute path; an empty file is nothing that could be lost."""
    try:
        found = os.stat(place)
    except OSError:
        return "file" if os.path.lexists(place) else ""
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "file" if found.st_size or not stat.S_ISREG(found.st_mode) else ""
