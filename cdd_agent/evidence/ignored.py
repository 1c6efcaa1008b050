"""Files of the project that git does not hold, lent to a clean copy: do the tests need them?

Python modules and pytest's configuration are not lent: they could bend the run that the copy is made to check.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.git.repository import Repository
from cdd_agent.guarded.protected import is_marked_as_environment
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

MOST_FILES = 2000
MOST_BYTES = 200_000_000
_NOT_LENT = (".py", ".pyw", ".pyc", ".pyo", ".pyd", ".so", ".pth")
_CONFIGURATION = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "setup.cfg", "tox.ini"}
)


def lend(repository: Repository, project: Path, *, copy: Path) -> tuple[str, ...] | None:
    """Copy what git ignores below ``project`` into ``copy``; the names that are new there; None if too many."""
    files = []
    left = MOST_BYTES
    for path in _ignored(repository, project):
        left -= path.lstat().st_size
        files.append(path)
        if len(files) > MOST_FILES or left < 0:
            return None
    lent = []
    for path in files:
        name = path.relative_to(project)
        place = copy / name
        if os.path.lexists(place) or not place.parent.resolve().is_relative_to(copy):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        lent.append(name.as_posix())
    return tuple(lent)


def _ignored(repository: Repository, project: Path) -> Iterator[Path]:
    """The ignored files below ``project``, without caches and environments."""
    for name in repository.ignored():
        path = repository.root.resolve() / name
        if not (path.is_relative_to(project) or project.is_relative_to(path)):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(project if project.is_relative_to(path) else path, below=project)
        elif _is_lent(path) and not IGNORED_FOLDERS.intersection(path.relative_to(project).parts):
            yield path


def _files(folder: Path, *, below: Path) -> Iterator[Path]:
    if IGNORED_FOLDERS.intersection(folder.relative_to(below).parts) or is_marked_as_environment(folder):
        return
    for here, subfolders, names in os.walk(folder):
        kept = (name for name in subfolders if name not in IGNORED_FOLDERS)
        subfolders[:] = [name for name in kept if not is_marked_as_environment(Path(here, name))]
        yield from filter(_is_lent, (Path(here) / name for name in names))


def _is_lent(path: Path) -> bool:
    is_kind = path.is_symlink() or path.is_file()
    return is_kind and path.name not in _CONFIGURATION and not path.name.endswith(_NOT_LENT)
