"""The same small step in any language, and what a project needs to run its tests there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.tools import why_not


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What came of getting a project ready."""

    problem: str | None = None
    """What is missing."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The user's environment, as far as it is another one."""


def nothing_to_fetch(_project: Path, _shared: Path) -> Ready:
    """A project whose tests need nothing but the program."""
    return Ready()


@dataclass(frozen=True, kw_only=True)
class Language:
    """A project with a test that passes, and the test and the code of a step."""

    framework: str
    program: str
    files: Mapping[str, str]
    test: str
    test_text: str
    bent: str
    """The test as a model would have it that wants it to pass."""
    source: str
    wrong: str
    right: str
    tidy: str
    old: str
    """Node id of the test that passes before."""
    new: str
    fetch: Callable[[Path, Path], Ready] = nothing_to_fetch
    """Puts what has to be fetched where a user would have it: for the project, once in a folder that is shared."""

    def ready(self, project: Path, *, shared: Path) -> Ready:
        """The project with its packages, or what is missing."""
        if (problem := why_not(self.program, "--version")) is not None:
            return Ready(problem=problem)
        return self.fetch(project, shared)
