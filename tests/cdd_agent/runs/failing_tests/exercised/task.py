"""A small task for GREEN, with what a model did about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdd_agent.model.conversation import ToolCall, Turn
from tests.fakes.model import call, says

Files = Mapping[str, str]


def hands_in(files: Files, *, known: Files = {}, said: str = "Done.") -> Turn:  # noqa: B006 (never changed)
    """A turn that writes files, those that are ``known`` after reading them, and says that the work is complete."""
    calls: list[ToolCall] = []
    for number, (path, content) in enumerate(files.items()):
        if path in known:
            calls.append(call("Read", f"toolu_R{number}", file_path=path))
        calls.append(call("Write", f"toolu_W{number}", file_path=path, content=content))
    return says(said, *calls, call("CompleteImplementation", implementation_files=list(files), summary=said))


@dataclass(frozen=True, kw_only=True)
class Task:
    """A project with tests that fail, what the model does in each iteration, and what it comes to."""

    name: str
    test: str
    """Of ``tests/test_task.py``; it imports from ``task``."""
    tries: tuple[str, ...]
    """What ``task.py`` holds after each iteration; empty: the model only says that it is done."""
    before: str = ""
    """What ``task.py`` holds at first; empty: there is none."""
    more: Files = field(default_factory=dict)
    """Other files of the project."""

    @property
    def files(self) -> dict[str, str]:
        """The project."""
        own = {"task.py": self.before} if self.before else {}
        return {**own, "tests/test_task.py": self.test, **self.more}

    @property
    def turns(self) -> list[Turn]:
        """The recording."""
        turns, known = [], dict(self.files)
        for content in self.tries:
            written = {"task.py": content} if content else {}
            turns.append(hands_in(written, known=known, said="All tests pass now."))
            known |= written
        return turns

    @property
    def kind(self) -> str:
        """The prefix of the commit."""
        return "fix" if self.before else "feat"
