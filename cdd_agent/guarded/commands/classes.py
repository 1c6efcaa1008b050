"""The classes of commands, from the harmless to the one that is refused, and what is found about one command. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

CommandClass: TypeAlias = Literal["read", "tests", "write", "other", "outside"]
"""What a command does: reads the project, runs its tests, writes in it, anything else, changes what is not its own."""

CLASSES: tuple[CommandClass, ...] = get_args(CommandClass)
"""From the harmless one to the strictest."""

UNTOLD = "what it does cannot be told from its text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is known about a command before it runs."""

    kind: CommandClass
    why: str = ""
    """Of a class that is not harmless, as a clause."""
    loses: str = ""
    """What would be lost, as a clause; empty: nothing that is known."""
    lines: tuple[str, ...] = ()
    """Command lines that it runs in its turn, to be judged by themselves."""
    moves: bool = False
    """Whether it may leave the shell in another folder."""
    taints: bool = False
    """Whether it may change what the commands after it mean."""


def other(why: str = UNTOLD, *, loses: str = "") -> Finding:
    """What nobody knows to be harmless."""
    return Finding(kind="other", why=why, loses=loses)


READ = Finding(kind="read")


def strictness(kind: CommandClass) -> int:
    """The place of a class in the order."""
    return CLASSES.index(kind)


def joined(findings: Iterable[Finding]) -> Finding:
    """All findings about one command as one: the strictest class, and all else that any of them says."""
    result = READ
    for found in findings:
        stricter = found if strictness(found.kind) > strictness(result.kind) else result
        result = replace(
            stricter,
            loses=result.loses or found.loses,
            lines=result.lines + found.lines,
            moves=result.moves or found.moves,
            taints=result.taints or found.taints,
        )
    return result
