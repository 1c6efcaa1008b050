"""A project that commands are judged for: what lies in it is told, and nothing of it is on any disk."""

from cdd_agent.shell.analysis import Judgment, judge
from cdd_agent.shell.words import Kind, Project

ROOT = "/home/ann/shop"
LIES_THERE: dict[str, Kind] = {
    "a.py": "file",
    "notes.txt": "file",
    "src": "folder",
    "src/a.py": "file",
    "tests": "folder",
}


def look(place: str) -> Kind:
    """What lies at an absolute path."""
    return "folder" if place == ROOT else LIES_THERE.get(place.removeprefix(f"{ROOT}/"), "")


def judged(line: str) -> Judgment:
    """What ``line`` would do in that project."""
    return judge(line, Project(root=ROOT, look=look))
