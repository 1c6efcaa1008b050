"""What a copy of a project is lent of what git does not hold, and what a cache of compiled code must not lend."""

import os
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.storage import read_ordinary

_DEEPEST = 4
_MODULES = "node_modules"
_COPIED_NOT = frozenset({".git", ".cdd", "target", _MODULES})
_LEFT_OUT = frozenset({".git", ".cdd", "target", "build", "dist"})


def lend_modules(root: Path, *, copy: Path) -> None:
    """Let the installed packages of a project, and of the packages in it, be found in its copy."""
    for folder in _holders(root):
        place = copy / folder.relative_to(root)
        if place.is_dir() and not os.path.lexists(place / _MODULES):
            os.symlink((folder / _MODULES).resolve(), place / _MODULES)
    above = next((folder for folder in root.parents if (folder / _MODULES).is_dir()), None)
    if above is not None and not os.path.lexists(copy / _MODULES) and _is_in_repository(root, above):
        os.symlink((above / _MODULES).resolve(), copy / _MODULES)


def copy_without(root: Path, copy: Path, *, left_out: frozenset[str]) -> None:
    """A copy of a project's files without those ``left_out`` (relative, posix), what was built and what was fetched."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(root)
        return {name for name in names if name in _COPIED_NOT or (inside / name).as_posix() in left_out}

    shutil.copytree(root, copy, ignore=ignored, symlinks=True)


def _is_in_repository(root: Path, above: Path) -> bool:
    """Whether a folder above the project is of the same work tree."""
    for folder in (root, *root.parents):
        if folder == above:
            return True
        if (folder / ".git").exists():
            return False
    return False


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
