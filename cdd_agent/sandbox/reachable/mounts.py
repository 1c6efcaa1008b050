"""What a program finds where only what was mounted for it is there: on the rungs with a root folder of its own."""

from collections.abc import Mapping
from pathlib import Path

from cdd_agent.sandbox.port import Access

HOME = "/home/sandbox"
"""Empty, and gone with the run."""
_MOST_FOLDERS = 120
"""So many folders on the way to what is read-only are kept from being moved, those nearest to the top."""


def confined(access: Access) -> tuple[str, ...]:
    """What a program in namespaces of its own has not, in words."""
    return ("no files outside the project", *(() if access.network else ("no network",)), "no other processes")


def existing(access: Access) -> Access:
    """What is there to be bound: a link is not, since it could be replaced, only what it leads to."""
    return Access(
        read_write=tuple(path for path in access.read_write if path.exists()),
        read_only=tuple(path for path in access.read_only if path.exists()),
        network=access.network,
    )


def binds(access: Access) -> list[tuple[Path, bool]]:
    """Each path that is to be there, and whether it may be written to; the longer ones last, as the last decides.

    With them the writable folders on the way to what is read-only: a folder that is mounted cannot be moved away, nor
    another be put in its place.
    """
    readable = [path for path in access.read_only if not _is_there_anyway(path)]
    readable += [path.resolve() for path in readable if not _is_there_anyway(path.resolve())]
    found = dict.fromkeys(access.read_write, True) | dict.fromkeys(readable, False)
    on_the_way = sorted({folder for path in readable for folder in _on_the_way(path, found) or ()}, key=_depth)
    found |= dict.fromkeys([folder for folder in on_the_way if not folder.is_symlink()][:_MOST_FOLDERS], True)
    return sorted(found.items(), key=lambda bind: _depth(bind[0]))


def held(access: Access) -> frozenset[Path]:
    """The read-only paths in writable folders that no program can change, move away or replace."""
    found = dict.fromkeys(access.read_write, True) | dict.fromkeys(access.read_only, False)
    there = dict(binds(access))
    ways = {path: _on_the_way(path, found) for path in access.read_only}
    return frozenset(path for path, way in ways.items() if way is not None and there.keys() >= set(way))


def _on_the_way(path: Path, found: Mapping[Path, bool]) -> tuple[Path, ...] | None:
    """The folders between a read-only path and the writable one that it is in; None if it is in none."""
    for number, folder in enumerate(path.parents):
        if folder in found:
            return tuple(path.parents)[:number] if found[folder] else None
    return None


def _depth(path: Path) -> int:
    return len(path.parts)


def _is_there_anyway(path: Path) -> bool:
    return path == Path("/usr") or path.is_relative_to("/usr")
