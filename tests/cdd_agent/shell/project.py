"""A project to judge commands in; its files exist only in this module."""

from dataclasses import dataclass

from cdd_agent.shell.analysis import LinePart, judge
from cdd_agent.shell.words import CommandClass, Kind, Project, combine

ROOT = "/home/ann/shop"
KINDS: dict[str, Kind] = {
    "a.py": "file",
    "notes.txt": "file",
    "src": "folder",
    "src/a.py": "file",
    "tests": "folder",
}


@dataclass(frozen=True)
class Judged:
    """The parts of a line, and the strictest effect."""

    parts: tuple[LinePart, ...]

    @property
    def kind(self) -> CommandClass:
        return combine(part.effect for part in self.parts).kind

    @property
    def loses(self) -> str:
        return combine(part.effect for part in self.parts).loses


def look(path: str) -> Kind:
    """Return the kind of an absolute path."""
    return "folder" if path == ROOT else KINDS.get(path.removeprefix(f"{ROOT}/"), "")


def judged(line: str) -> Judged:
    """Return the effects of ``line`` in that project."""
    return Judged(judge(line, Project(root=ROOT, look=look)))
