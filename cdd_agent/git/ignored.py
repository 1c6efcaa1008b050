"""Provides a run tree with files that git ignores: data, generated code and settings that tests may need.

Small files are copied, so that a program may change them. Larger ones can only be shared, read-only. Left out are
environments and installed packages, which the test runner provides itself, caches, files of secrets unless the user
includes them, and whatever is neither a file nor a link.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.git.repository import Repository
from cdd_agent.untrusted.paths import is_environment, is_marked_as_environment, is_secret
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

MAX_BYTES = 200_000_000
MAX_FILES = 10_000
INCLUDE_FILE = ".cdd/worktree-include"
"""Patterns, as in ``.gitignore``, of files that are copied although they hold secrets or lie in a left out folder."""

_PACKAGES = frozenset({"node_modules", "bower_components", "vendor"})
_CACHE_MARK = "CACHEDIR.TAG"
_CLONE = 0x40049409
"""``FICLONE`` of Linux: both files share their blocks until one changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFiles:
    """The ignored files of a work tree, by what becomes of them; paths are relative to the work tree."""

    copied: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Too large to copy."""
    secret: tuple[str, ...] = ()
    """Left out."""


def copy_ignored(
    main: Repository,
    tree: Path,
    *,
    left_out: tuple[str, ...] = (),
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> IgnoredFiles:
    """Copy the ignored files of ``main`` to ``tree``, the smallest first, up to the limits for all together.

    Paths that begin with one of ``left_out`` are not copied.
    """
    root, included = main.root.resolve(), frozenset(_list_included(main))
    ignored = dict.fromkeys(path for path in _walk_ignored(main, root) if not path.startswith(left_out))
    found = ignored | dict.fromkeys(included)
    secret = tuple(path for path in found if is_secret(path) and path not in included)
    sizes = {path: _measure(root / path) for path in found if path not in secret}
    copied: list[str] = []
    shared: list[str] = []
    size_bytes = 0
    for path, size in sorted(sizes.items(), key=lambda each: (each[1] or 0, each[0])):
        if size is None or not _can_hold(tree, path):
            continue
        size_bytes += size
        if len(copied) >= max_files or size_bytes > max_bytes:
            shared.append(path)
        elif _copy(root / path, tree / path, top=root):
            copied.append(path)
    return IgnoredFiles(copied=tuple(copied), shared=tuple(shared), secret=secret)


def list_packages(main: Repository) -> tuple[Path, ...]:
    """Return the ignored folders of environments and installed packages in a work tree."""
    folders = (main.root / name for name in main.list_ignored() if name.endswith("/"))
    return tuple(folder for folder in folders if folder.name in _PACKAGES or is_environment(folder))


def _list_included(main: Repository) -> Iterator[str]:
    patterns = main.root / INCLUDE_FILE
    if patterns.is_file():
        listed = main.git("ls-files", "--others", "--ignored", f"--exclude-from={patterns}", "-z")
        yield from (path for path in listed.split("\0") if path and not path.startswith(".cdd/"))


def _walk_ignored(main: Repository, root: Path) -> Iterator[str]:
    for name in main.list_ignored():
        if IGNORED_FOLDERS.intersection(name.split("/")):
            continue
        if name.endswith("/"):
            yield from _walk(root, name.rstrip("/"))
        else:
            yield name


def _walk(root: Path, top: str) -> Iterator[str]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        if _is_provided_otherwise(root / folder):
            continue
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    yield path


def _is_provided_otherwise(folder: Path) -> bool:
    if not (IGNORED_FOLDERS | _PACKAGES).isdisjoint(folder.parts[-1:]) or is_marked_as_environment(folder):
        return True
    # A repository inside the work tree is not the project's, and may hold anything.
    return os.path.lexists(folder / _CACHE_MARK) or os.path.lexists(folder / ".git")


def _measure(path: Path) -> int | None:
    try:
        return path.lstat().st_size if path.is_symlink() or path.is_file() else None
    except OSError:
        return None


def _can_hold(tree: Path, path: str) -> bool:
    """Return whether ``path`` is free in the tree, and its folder is really inside."""
    target = tree / path
    return not os.path.lexists(target) and target.parent.resolve().is_relative_to(tree.resolve())


def _copy(source: Path, target: Path, *, top: Path) -> bool:
    if source.is_symlink():
        # Through an absolute link, or one that leads out, a program would reach the original.
        leads = Path(os.path.normpath(source.parent / os.readlink(source)))
        if os.path.isabs(os.readlink(source)) or not leads.is_relative_to(top):
            return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            os.symlink(os.readlink(source), target)
        else:
            _copy_file(source, target)
    except OSError:  # not readable, or no folder can be made where the tree has a file
        return False
    return True


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _CLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, 1 << 20)
    shutil.copystat(source, target)
