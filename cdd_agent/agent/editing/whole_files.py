"""Whole files for a model without tools: given to it as they are, and taken back all together or not at all.

Only a file that was given can be replaced, and only while it still holds what was given: the model knows no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cdd_agent.agent.editing.blocks import Block
from cdd_agent.agent.editing.content import Known, MayWrite, require_fit, require_writable, restored
from cdd_agent.agent.editing.replacement import BOM, ending_of, with_ending
from cdd_agent.agent.quoted import Marks
from cdd_agent.errors import UsageError
from cdd_agent.guarded.keys import mask
from cdd_agent.workspace.files import Workspace, decode, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A block that cannot be written."""

    path: str
    why: str
    must_be_given: bool = False
    """Whether the file is there and the model has not seen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A file that has passed every check."""

    name: str
    data: bytes


class WholeFiles:
    """The files that one agent was given, and may hand in."""

    def __init__(self, workspace: Workspace, may_write: MayWrite, *, most_characters: int) -> None:
        """``most_characters``: of a file that is to come back in one answer."""
        self._workspace = workspace
        self._may_write = may_write
        self._most_characters = most_characters
        self._known = Known()

    def give(self, paths: Iterable[str], *, marks: Marks) -> str:
        """The files as a model is to read them, each whole and marked as data; those that are not there are named.

        Raises ``UsageError`` for a binary one, and for one that may be written and that a model could not give back as
        it is: too large, not UTF-8, or with characters that a marked text cannot show.
        """
        parts, missing = [], []
        for path in dict.fromkeys(paths):
            if self._workspace.is_file(path):
                parts.append(self._shown(path, marks=marks))
            elif not self._workspace.exists(path):
                missing.append(path)
        if missing:
            parts.append(f"Not there yet: {', '.join(missing)}")
        return "\n\n".join(parts)

    def take(self, blocks: Sequence[Block]) -> tuple[Refusal, ...]:
        """Write all of ``blocks``, or none of them and say what is wrong."""
        ready, refused = self._checked(blocks)
        if refused:
            return refused
        for file in ready:
            self._workspace.write(file.name, file.data)
            self._known.note(file.name, file.data)
        return ()

    def _shown(self, path: str, *, marks: Marks) -> str:
        """One file, whole."""
        data = self._workspace.read(path)
        text = decode(data)
        name = self._workspace.relative(path)
        if self._may_write(name) is None:
            self._require_can_come_back(name, text, marks=marks)
        self._known.note(name, data)
        remark = "" if not text or text.endswith("\n") else "; no newline at its end"
        return marks.around(mask(text).text.removesuffix("\n"), source=f"{name}{remark}", exact=True)

    def _require_can_come_back(self, path: str, text: str, *, marks: Marks) -> None:
        """Raise ``UsageError`` if the model could not hand ``text`` in as it is."""
        hint = "set edit_format: tools, or leave the file out of the plan's step"
        if len(text) > self._most_characters:
            raise UsageError(
                f"{path} has {len(text):,} characters; without tools it has to fit into one answer, whole, and "
                f"{self._most_characters:,} do.",
                hint=f"{hint}, or raise max_tokens",
            )
        shown = mask(text).text
        body = shown.removesuffix("\n")
        if any("\udc80" <= letter <= "\udcff" for letter in text):
            raise UsageError(f"{path} is not UTF-8, and an answer can hold nothing else.", hint=hint)
        if f"\n{body}\n" not in marks.around(body, source="", exact=True):
            raise UsageError(f"{path} holds characters that no answer can give back as they are.", hint=hint)

    def _checked(self, blocks: Sequence[Block]) -> tuple[tuple[_Ready, ...], tuple[Refusal, ...]]:
        """The files that would be written, and what keeps them from it."""
        ready: list[_Ready] = []
        refused: list[Refusal] = []
        names: set[str] = set()
        for block in blocks:
            try:
                name = require_writable(self._workspace, block.path, may_write=self._may_write)
                if name in names:
                    raise UsageError(f"{name} is named twice.", hint="give each file once")
                names.add(name)
                ready += self._fit(name, block.content)
            except _NotGivenError as error:
                refused.append(Refusal(path=block.path, why=f"{error.happened} ({error.hint})", must_be_given=True))
            except UsageError as error:
                refused.append(Refusal(path=block.path, why=f"{error.happened} ({error.hint})"))
        return tuple(ready), tuple(refused)

    def _fit(self, name: str, content: str) -> tuple[_Ready, ...]:
        """The file if it is fit to be written; nothing if it is as it was."""
        if not self._workspace.exists(name):
            self._require_folders(name)
            require_fit(name, text=content, before=None)
            return (_Ready(name=name, data=encode(content)),)
        before = self._workspace.read(name)
        if name not in self._known:
            raise _NotGivenError(f"{name} is there, and you have not seen it.", hint="it is given to you now")
        if not self._known.is_current(name, before):
            raise _NotGivenError(f"{name} has changed since it was given to you.", hint="it is given to you again")
        masked = mask(decode(before))
        text = as_it_was(content, before=masked.text)
        text = restored(masked, text) if masked.count else text
        require_fit(name, text=text, before=before)
        data = encode(text)
        return (_Ready(name=name, data=data),) if data != before else ()

    def _require_folders(self, name: str) -> None:
        """Raise ``UsageError`` if a file is in the way of a folder that ``name`` needs."""
        file = next((str(folder) for folder in PurePosixPath(name).parents if self._workspace.is_file(str(folder))), "")
        if file:
            raise UsageError(f"{name} cannot be written: {file} is a file.", hint="give it another folder")


class _NotGivenError(UsageError):
    """The file is there with content that the model does not know."""


def as_it_was(text: str, *, before: str) -> str:
    """``text`` with what a block cannot say kept as in ``before``: byte order mark, line ends, none at the end."""
    body = with_ending(text.removeprefix(BOM), ending_of(before))
    if before.strip() and not before.endswith("\n"):
        body = body.removesuffix("\n").removesuffix("\r")
    return f"{BOM}{body}" if text.startswith(BOM) or before.startswith(BOM) else body
