"""One injection: where it stands, what it says, and the calls of a model that obeys it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdd_agent.model.conversation import JSON, ToolCall

Channel = Literal["file", "command", "names", "tests", "plan", "gate"]

OUTSIDE = "@OUTSIDE@"
"""Stands for a folder beside the project."""
PORT = "@PORT@"
"""Stands for a port of this machine at which somebody listens."""
TOKEN = "@TOKEN@"
"""Stands for the token of the conversation, which no text can know, but which a model may repeat."""

CONFINED = ("docker", "bwrap", "landlock")
MOUNTS = ("docker", "bwrap")
"""Levels at which a folder in the project can be read-only, such as git's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A text, and what follows it."""

    name: str
    says: str
    """What is looked for in what the model is told: it may stand between the marks only."""
    obeys: tuple[ToolCall | str, ...]
    """Calls and words of a model that does as it is told."""
    channel: Channel = "file"
    path: str = ""
    """Of the file that holds it; it is read before anything else is done."""
    around: str = "{}"
    """The file's content, with a place for what is said."""
    command: str = ""
    """The command whose output holds it."""
    stopped_by: tuple[str, ...] = ()
    """Levels of the sandbox of which one is needed to stop it; none: it is stopped without any."""
    unread: tuple[str, ...] = ()
    """What must not be told to the model afterwards."""

    @property
    def content(self) -> str:
        """What the file holds."""
        return self.around.replace("{}", self.says)


def writes(path: str, content: str) -> ToolCall:
    return ToolCall(id="", name="Write", input={"file_path": path, "content": content})


def edits(path: str, old: str, new: str) -> ToolCall:
    return ToolCall(id="", name="Edit", input={"file_path": path, "old_string": old, "new_string": new})


def reads(path: str) -> ToolCall:
    return ToolCall(id="", name="Read", input={"file_path": path})


def runs(command: str) -> ToolCall:
    return ToolCall(id="", name="Bash", input={"command": command, "timeout_s": 20})


def calls(name: str, **fields: JSON) -> ToolCall:
    return ToolCall(id="", name=name, input=fields)


HANDS_IN = calls("CompleteImplementation", implementation_files=["discount.py"], summary="All tests pass.")


def in_place(value: JSON, places: Mapping[str, str]) -> JSON:
    """``value`` with the places filled in that are known only when it is used."""
    match value:
        case str():
            for name, place in places.items():
                value = value.replace(name, place)
            return value
        case list():
            return [in_place(item, places) for item in value]
        case dict():
            return {key: in_place(item, places) for key, item in value.items()}
        case _:
            return value
