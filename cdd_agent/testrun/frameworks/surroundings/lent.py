"""What a copy of a project is lent of what git does not hold, and what a cache of compiled code must not lend."""

import os
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.storage import read_ordinary

_DEEPEST = 4
_MODULES = "node_modules"
CACHES = (".vite", ".vite-temp", ".cache")
"""Folders in ``node_modules`` that tools write to while they run tests."""
_COPIED_NOT = frozenset({".git", ".cdd", "target", _MODULES})
_LEFT_OUT = frozenset({".git", ".cdd", "target", "build", "dist"})


def lend_modules(root: Path, *, copy: Path) -> tuple[Path, ...]:
    """Let the installed packages that count in a project be found in its copy; the folders that hold them.

    Of a project in a folder of a repository those of the repository are lent too, as far as the copy has the folders
    that they lie in.
    """
    top = top_of(root)
    inside = root.relative_to(top)
    copied = copy.parents[len(inside.parts) - 1] if inside.parts else copy
    between = (folder for folder in root.parents if folder.is_relative_to(top) and (folder / _MODULES).is_dir())
    lent = []
    for folder in dict.fromkeys((*_holders(root), *between, *_holders(top))):
        modules, place = (folder / _MODULES).resolve(), copied / folder.relative_to(top)
        if place.is_dir() and not os.path.lexists(place / _MODULES):
            _lend(modules, place / _MODULES, own=_Own(top=top, copied=copied))
            lent.append(modules)
    return tuple(lent)


def top_of(root: Path) -> Path:
    """The top of the repository that a project lies in; itself if there is none."""
    return next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """A repository and its copy: what a link to a package of the repository's own leads to there."""

    top: Path
    copied: Path

    def in_copy(self, link: Path) -> Path | None:
        """Where a link leads in the copy; None if it does not lead to a package of the repository's."""
        target = link.resolve()
        if not link.is_symlink() or not target.is_relative_to(self.top):
            return None
        inside = target.relative_to(self.top)
        return self.copied / inside if _MODULES not in inside.parts and (self.copied / inside).is_dir() else None


def _lend(modules: Path, place: Path, *, own: _Own) -> None:
    """One link to the packages; if some of them are links to the repository's own, a folder of links to each."""
    entries = [path for path in modules.iterdir() if path.name not in CACHES]
    scoped = [inner for path in entries if _is_scope(path) for inner in path.iterdir()]
    if not any(map(own.in_copy, (*entries, *scoped))):
        place.symlink_to(modules)
        return
    place.mkdir()
    for path in (*(path for path in entries if not _is_scope(path)), *scoped):
        link = place / path.relative_to(modules)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(own.in_copy(path) or path)


def _is_scope(path: Path) -> bool:
    return path.name.startswith("@") and path.is_dir() and not path.is_symlink()


def copy_without(root: Path, copy: Path, *, left_out: frozenset[str]) -> None:
    """A copy of a project's files without those ``left_out`` (relative, posix), what was built and what was fetched."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(root)
        return {name for name in names if name in _COPIED_NOT or (inside / name).as_posix() in left_out}

    shutil.copytree(root, copy, ignore=ignored, symlinks=True)


def _holders(root: Path) -> Iterator[Path]:
    """The folders of the project that hold installed packages."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if (folder / _MODULES).is_dir():
            yield folder
        if depth < _DEEPEST:
            with os.scandir(folder) as entries:
                inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [(each, depth + 1) for each in inner if each.name != _MODULES and each.name not in _LEFT_OUT]


def forget_own(cache: Path, root: Path) -> None:
    """Let cargo compile the project's own crates again, whatever the dates of their sources are."""
    for manifest in (*root.glob("Cargo.toml"), *root.glob("*/Cargo.toml"), *root.glob("*/*/Cargo.toml")):
        try:
            package = tomllib.loads(read_ordinary(manifest, limit_bytes=1_000_000).decode()).get("package")
        except (OSError, ValueError, RecursionError):
            continue
        name = package.get("name") if isinstance(package, dict) else None
        if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum():
            for known in cache.glob(f"*/.fingerprint/{name}-*"):
                shutil.rmtree(known, ignore_errors=True)


def shown(part: str, root: Path) -> str:
    """A word of a command as one types it in ``root``."""
    path = Path(part)
    inside = path.relative_to(root) if path.is_absolute() and path.is_relative_to(root) else None
    return shlex.quote(part if inside is None else str(inside))
