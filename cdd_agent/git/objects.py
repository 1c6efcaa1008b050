"""Objects of a repository, read through one long-lived git process.

A run has hundreds of small questions: the commit of a ref, the differences between two trees, the content of a file.
One process answers them all, and reads refs and objects anew each time. It ends when cdd does, however that ends,
because its input is then closed.
"""

import os
import re
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from cdd_agent.git.runner import Coprocess, Runner, explain_failure

SUBMODULE = "160000"
"""Mode of an entry that names a commit of another repository."""

_TREE = "40000"
_HEADER = re.compile(rb"([0-9a-f]+) ([a-z]+) ([0-9]+)")


class Entry(msgspec.Struct, frozen=True):
    """A file in a tree or index of git."""

    mode: str
    id: str = msgspec.field(name="blob")


Pair: TypeAlias = tuple[Entry | None, Entry | None]
"""A file before and after a change; None where it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitObject:
    """An object as git stores it."""

    id: str
    kind: str
    """``commit``, ``tree``, ``blob`` or ``tag``."""
    data: bytes

    @property
    def text(self) -> str:
        """The content, with lone surrogates for bytes that are not UTF-8."""
        return self.data.decode("utf-8", "surrogateescape")

    @property
    def subject(self) -> str:
        """The first paragraph of a commit's message, in one line."""
        message = self.data.partition(b"\n\n")[2].decode("utf-8", "replace").lstrip("\n")
        return " ".join(message.partition("\n\n")[0].split("\n")).strip()


class ObjectReader:
    """Reads the objects of one repository."""

    def __init__(self, runner: Runner) -> None:
        """Start nothing before the first question."""
        self._git = Coprocess(runner, "cat-file", "--batch")

    def read(self, name: str) -> GitObject | None:
        """Return the object that ``name`` names, or None without one; raises ``GitError`` if it is damaged.

        ``name`` is an expression of git, such as ``refs/cdd/x^{tree}``.
        """
        if "\n" in name:  # git would take it for two questions
            return None
        with self._git.ask(f"{name}\n".encode("utf-8", "surrogateescape")) as answer:
            match = _HEADER.fullmatch(answer.read_line())
            if match is None:  # missing, or ambiguous
                return None
            data = answer.read(int(match[3]) + 1)[:-1]
        return GitObject(id=match[1].decode(), kind=match[2].decode(), data=data)

    def require(self, name: str) -> GitObject:
        """Return the object that ``name`` names; raises ``GitError`` without one."""
        found = self.read(name)
        if found is None:
            raise explain_failure("cat-file", f"bad object {name}", status=128)
        return found

    def read_tree(self, name: str) -> dict[str, Entry]:
        """Return name -> entry of the tree ``name``, or of a commit's; raises ``GitError`` without one."""
        found = self.require(f"{name}^{{tree}}")
        entries, at, size = {}, 0, len(found.id) // 2
        while at < len(found.data):
            end = found.data.index(b"\0", at)
            mode, _, path = found.data[at:end].partition(b" ")
            at = end + 1 + size
            entry = Entry(mode.decode(), found.data[end + 1 : at].hex())
            entries[path.decode("utf-8", "surrogateescape")] = entry
        return entries

    def find_entry(self, tree: str, path: str) -> Entry | None:
        """Return the entry of the file ``path`` in a tree or commit, or None without one."""
        *folders, name = path.split("/")
        for folder in folders:
            inner = self.read_tree(tree).get(folder)
            if inner is None or inner.mode != _TREE:
                return None
            tree = inner.id
        entry = self.read_tree(tree).get(name)
        return None if entry is None or entry.mode == _TREE else entry

    def compare(self, before: str, after: str) -> dict[str, Pair]:
        """Return path -> old and new entry of the files that differ between two trees or commits, in git's order."""
        differing: dict[str, Pair] = {}
        waiting: list[tuple[str, list[str | None]]] = [("", [before, after])]
        while waiting:
            folder, trees = waiting.pop()
            old, new = ({} if tree is None else self.read_tree(tree) for tree in trees)
            for name in old.keys() | new.keys():
                pair = old.get(name), new.get(name)
                if pair[0] == pair[1]:
                    continue
                inner = [entry.id if entry and entry.mode == _TREE else None for entry in pair]
                if any(inner):
                    waiting.append((f"{folder}{name}/", inner))
                one, other = (None if entry and entry.mode == _TREE else entry for entry in pair)
                if one or other:
                    differing[f"{folder}{name}"] = one, other
        return {path: differing[path] for path in sorted(differing, key=os.fsencode)}
