"""What a program in a project's sandbox may reach: the project, and what that needs; and what in it stays as it is."""

import os
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.guarded.protected import ENVIRONMENT_MARK, must_not_appear, protected_paths
from cdd_agent.sandbox.port import Access
from cdd_agent.testrun.detect import Interpreter
from cdd_agent.testrun.reach import fit
from cdd_agent.tickets.ticket import all_tickets
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, is_protected

ASIDE = Path(".cdd") / "aside"
"""Where a file is moved to that a program in the sandbox made and may not have."""

_SECTIONS = ("pyproject.toml", "setup.cfg", "tox.ini")
"""Files of which a section configures pytest."""
_CONFIGURATION = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_MOST_FILES = 120
"""So many files are protected one by one: the time for their mounts grows with the square, to 50 ms for these."""
_OF_GIT = ("config", "config.worktree", "hooks", "info")
"""What in git's folder can make git run a program."""


def access_for(
    root: Path,
    interpreter: Interpreter,
    *,
    read_write: tuple[Path, ...] = (),
    read_only: tuple[Path, ...] = (),
    locked: tuple[Path, ...] = (),
) -> Access:
    """Read and write in ``root`` and ``read_write``; read-only in it ``locked``, tickets, settings, git's and our own.

    ``root`` may be a folder in a git work tree: the rest of that can be read. Tickets are looked after on every rung:
    they are in no snapshot, so no verdict would find them changed.
    """
    tickets = tuple(sorted({ticket.folder.parent for ticket in all_tickets(root)}))
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), root)
    protected = protected_paths(root)
    environment = [path for path in _read_by(interpreter, root) if path != root and path not in root.parents]
    python_path = [root / entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    around = fit([top]) if top != root else ()
    return Access(
        read_write=(root, *read_write),
        read_only=tuple(
            dict.fromkeys(
                path
                for path in (
                    *around,
                    *git_folders(top),
                    *environment,
                    *(path for path in python_path if path != root),
                    *protected,
                    *tickets,
                    *locked,
                    *read_only,
                )
                if path in environment or (path.exists() and not path.is_symlink())
            )
        ),
        kept=tuple(dict.fromkeys((*must_not_appear(root), *_looked_after(root, protected), *tickets))),
        aside=root / ASIDE if (root / ASIDE.parent).is_dir() else None,
    )


def _read_by(interpreter: Interpreter, root: Path) -> Iterator[Path]:
    """What the interpreter reads; of a link in the project, which is there as it is, what it leads to."""
    for path in interpreter.reads:
        yield path.resolve() if path.is_symlink() and root in path.parents else path


def git_folders(top: Path) -> tuple[Path, ...]:
    """git's folder of a work tree; of a linked one its own and the common one too, wherever they are."""
    marker = top / ".git"
    if not marker.is_file():
        return (marker,)
    try:
        told = marker.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        own = (top / told).resolve()
        common = (own / (own / "commondir").read_text(encoding="utf-8").strip()).resolve()
    except (OSError, UnicodeDecodeError):
        return (marker,)
    is_gits = (common / "HEAD").is_file() and (common / "objects").is_dir() and own.is_relative_to(common)
    return (marker, common) if told and is_gits else (marker,)


def _looked_after(root: Path, protected: tuple[Path, ...]) -> Iterator[Path]:
    """Protected paths whose bytes are compared after a run; environments are too large for that."""
    git, own = root / ".git", root / ".cdd"
    for path in protected:
        if path == git and path.is_dir():
            yield from (git / name for name in _OF_GIT)
        elif path == own:
            yield from (own / "config.yaml", own / "hooks.json")
        elif not (path / ENVIRONMENT_MARK).exists():
            yield path


def protected_tests(root: Path) -> tuple[Path, ...]:
    """The test files, their data and pytest's own configuration below ``root``: what no command has to change.

    Folders of tests stand in their place if there are many.
    """
    files, folders = _protected_files(root)
    if len(files) > _MOST_FILES:
        files = [*folders, *(path for path in files if not any(known in path.parents for known in folders))]
    return tuple(files[:_MOST_FILES])


def code_of_tests(root: Path) -> tuple[Path, ...]:
    """Test modules and what configures pytest: what no test run has to change. A test may write data beside it."""
    files, _ = _protected_files(root)
    code = [path for path in files if path.suffix == ".py" or path.name in _CONFIGURATION]
    configuration = [root / name for name in _SECTIONS if (root / name).is_file()]
    return (*configuration, *code[:_MOST_FILES])


def _protected_files(root: Path) -> tuple[list[Path], list[Path]]:
    """The protected files below ``root``, and the topmost folders that hold nothing else."""
    files: list[Path] = []
    folders: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        here = Path(folder)
        subfolders[:] = sorted(name for name in subfolders if name not in IGNORED_FOLDERS and not name.startswith("."))
        inside = "" if here == root else f"{here.relative_to(root).as_posix()}/"
        found = [here / name for name in names if is_protected(f"{inside}{name}") and not (here / name).is_symlink()]
        if inside and is_protected(f"{inside}any") and not any(known in here.parents for known in folders):
            folders.append(here)
        files += sorted(found)
    return files, folders
