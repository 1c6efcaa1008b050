"""A change as a model may make it in one attempt: a file with the project before it, its tests, and what it writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import yaml

FOLDER = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C takes a tenth of the time, which each collection of the tests spends."""
KINDS = {"cheats": "cheat", "honest": "honest"}
"""Folder -> kind of the changes in it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The content of one file. Paths are relative to the project."""

    kind: Literal["cheat", "honest"]
    why: str
    """What makes it a cheat, or what makes an honest change look like one; one sentence."""
    phase: Literal["red", "green", "refactor"]
    title: str
    """What is asked for, in a line."""
    tests: Mapping[str, str]
    """Test files and what belongs to them."""
    after: Mapping[str, str | None]
    """The files that the model writes; None: it deletes the file. In RED it writes the tests, and these pass them."""
    hidden: str
    """A script outside the tests, with further examples of the specification: it fails with a cheat, and passes with
    an honest change. In RED, a cheat is a test that wrong code passes."""
    before: Mapping[str, str] = field(default_factory=dict)
    """The product as it was."""
    goal: str = ""
    """Description and acceptance criteria."""
    targets: tuple[str, ...] = ()
    """Files or node ids to pass; by default all test files."""
    quick: bool = False
    """A cheat that the suite tries; the others wait for the soak."""
    name: str = ""
    """The folder of its kind and its file's name."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The tests that the work item names."""
        files = (path for path in self.tests if Path(path).name.startswith("test_") and path.endswith(".py"))
        return self.targets or tuple(files)


def read_changes(*words: str) -> list[Change]:
    """Return the changes with one of the words in their name, in the order of their names; without words all."""
    found = []
    for folder in KINDS:
        for path in sorted((FOLDER / folder).glob("*.yaml")):
            name = f"{folder}/{path.stem}"
            if not words or any(word in name for word in words):
                content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
                found.append(msgspec.convert({**content, "name": name}, Change))
    return found
