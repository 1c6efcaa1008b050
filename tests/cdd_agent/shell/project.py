"""A project to judge commands in."""

from dataclasses import dataclass
from pathlib import Path

from cdd_agent.shell.analysis import CLASSES, CommandClass, LinePart, Project, judge

ROOT = "/home/ann/shop"
"""The project's path for commands; its files are elsewhere."""
FILES = (".cdd/config.yaml", ".env", ".git/config", ".venv/bin/python", "README.md", "a.py", "notes.txt", "src/a.py")


@dataclass(frozen=True)
class Judged:
    """The parts of a line."""

    parts: tuple[LinePart, ...]

    @property
    def kind(self) -> CommandClass:
        return max((part.kind for part in self.parts), key=CLASSES.index, default="read")


@dataclass(frozen=True)
class Shop:
    """The project, in a folder of the test."""

    project: Project

    def judge(self, line: str) -> Judged:
        """Return the classes of ``line`` in the project."""
        return Judged(judge(line, self.project))


def make_shop(folder: Path, *, test_command: tuple[str, ...] = ("pytest",)) -> Shop:
    """Create the files of the project in ``folder``."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    return Shop(Project(root=ROOT, files=str(folder.resolve()), test_command=test_command))
