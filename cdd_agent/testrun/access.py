"""What a program in a project's sandbox may reach: the project, and what that needs; and what in it stays as it is.

What an interpreter has to be able to read beyond the system's programs: its own files, and what its paths name.

An interpreter inside the project can name anything, in a ``.pth`` file for example, so that what it names is looked at
before it is let into a sandbox.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from cdd_agent.sandbox.port import Access
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.ticket import all_tickets
from cdd_agent.untrusted.paths import PRIVATE_FOLDERS, is_environment, must_not_appear, protected_paths
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, is_protected

QUESTION = """\
import glob, json, os, site, sys
def found():
    yield os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield prefix
    for entry in filter(os.path.exists, filter(None, sys.path)):
        yield entry
        if os.path.isdir(entry):
            for item in os.scandir(entry):
                if item.is_symlink():
                    target = os.path.realpath(item.path)
                    folder = os.path.dirname(target)
                    yield folder if os.path.basename(folder).endswith("-packages") else target
        for path in glob.glob(os.path.join(glob.escape(entry), "*.dist-info", "direct_url.json")):
            with open(path) as stream:
                told = json.load(stream)
            url = told.get("url", "")
            if told.get("dir_info", {}).get("editable") and url.startswith("file:///"):
                yield url[7:]
reads = sorted(set(os.path.abspath(path) for path in found()))
user = site.getuserbase() if site.ENABLE_USER_SITE else ""
"""
"""Python 3.8, run by the interpreter that is asked: binds ``reads`` and ``user``."""

_SYSTEM = frozenset(
    map(
        Path,
        ("/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/var"),
    )
)
_USUAL_HIDDEN = frozenset(
    {
        *(".asdf", ".cache", ".conda", ".local", ".mise", ".nix-profile", ".nox", ".pixi", ".pyenv", ".rye"),
        *(".tox", ".venv", ".venvs", ".virtualenvs"),
    }
)
"""Hidden folders in which interpreters and packages lie."""
_FILE_CAP_BYTES = 1 << 16


def before_asked(python: Path) -> tuple[Path, ...]:
    """What ``python`` needs to start at all, as far as can be told without running it."""
    return fit(_guessed(python))


def _guessed(python: Path) -> Iterator[Path]:
    prefix = python.parent.parent
    yield prefix
    yield python.resolve().parent.parent
    for key, _, value in (line.partition("=") for line in _lines(prefix / "pyvenv.cfg")):
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for packages in prefix.glob("lib/python3*/site-packages"):
        for entry in packages.iterdir() if packages.is_dir() else ():
            if entry.is_symlink():
                yield entry.resolve().parent
            elif entry.suffix == ".pth":
                for line in _lines(entry):
                    if line.startswith("/"):
                        yield Path(line.strip())


def _lines(path: Path) -> list[str]:
    """Of a small file; none of anything else, which could be waited for or read without an end."""
    try:
        data = read_ordinary(path, limit_bytes=_FILE_CAP_BYTES, through_links=True)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()


def fit(paths: Iterable[Path], *, home: Path | None = None) -> tuple[Path, ...]:
    """Those of ``paths`` that exist and may be read in a sandbox, without any that lies in another of them.

    No folder of the system's that holds other things too, not the user's home or what that lies in, and of the hidden
    folders there none but those that tools for Python make.
    """
    home = Path.home() if home is None else home
    chosen = [path for path in sorted(set(paths)) if path.exists() and _may_be_read(path, home=home)]
    return tuple(path for path in chosen if not any(other in path.parents for other in chosen))


def _may_be_read(path: Path, *, home: Path) -> bool:
    for each in (path, path.resolve()):
        if not each.is_absolute() or each in _SYSTEM or home == each or each in home.parents:
            return False
        inside = each.relative_to(home).parts if each.is_relative_to(home) else ()
        if inside and inside[0].startswith(".") and inside[0] not in _USUAL_HIDDEN:
            return False
    return True


def user_base(told: str) -> dict[str, str]:
    """The variable by which Python finds the user's own packages where home is another folder."""
    return {"PYTHONUSERBASE": told} if told and os.path.isdir(told) else {}


ASIDE = Path(".cdd") / "aside"
"""Where a file is moved to that a program in the sandbox made and may not have."""

_SECTIONS = ("pyproject.toml", "setup.cfg", "tox.ini")
"""Files of which a section configures pytest."""
_CONFIGURATION = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_MOST_FILES = 120
"""So many files are protected one by one, the folders on the way to them counted too: the time for their mounts
grows with the square, to 50 ms for these."""
_OF_GIT = (
    *("commondir", "config", "config.worktree", "hooks", "info", "rebase-merge"),
    *("objects/info/alternates", "objects/info/http-alternates"),
)
"""What in git's folder can make git run a program, or read another folder in its place."""
_OF_WORK_TREES = ("commondir", "config.worktree", "gitdir")
"""The same in git's folder of each linked work tree."""
_MOST_GIT_FOLDERS = 200
"""So many folders are looked through for those of submodules."""
_GIT_FILE_BYTES = 1 << 16


class Runtime(Protocol):
    """What runs tests: an interpreter, or the program of another language's."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def reads(self) -> tuple[Path, ...]:
        """What it needs to be able to read, beyond the system's programs."""
        ...


def access_for(
    root: Path,
    interpreter: Runtime,
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
    python_path = [_absolute(root / entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    around = fit([top]) if top != root else ()
    gits = (*git_folders(top), *_gits_inside(root, protected))
    return Access(
        read_write=(root, *read_write),
        read_only=tuple(
            dict.fromkeys(
                path
                for path in (
                    *around,
                    *gits,
                    *environment,
                    *(path for path in python_path if not _is_source(path, root, interpreter=interpreter)),
                    *protected,
                    *tickets,
                    *locked,
                    *read_only,
                )
                if path in environment or (path.exists() and not path.is_symlink())
            )
        ),
        kept=tuple(dict.fromkeys((*_looked_after(root, gits), *must_not_appear(root), *_small(protected), *tickets))),
        aside=root / ASIDE if (root / ASIDE.parent).is_dir() else None,
    )


def _read_by(interpreter: Runtime, root: Path) -> Iterator[Path]:
    """What the interpreter reads, but for sources; of a link in the project, which is there as it is, its target."""
    for path in interpreter.reads:
        real = path.resolve() if path.is_symlink() and root in path.parents else path
        if not _is_source(real, root, interpreter=interpreter):
            yield real


def _is_source(path: Path, root: Path, *, interpreter: Runtime) -> bool:
    """Whether it is the project or a folder in it that commands may change, not one of an environment's."""
    if not path.is_relative_to(root):
        return False
    inside = path.relative_to(root).parts
    folders = [root.joinpath(*inside[:end]) for end in range(1, len(inside) + 1)]
    return not (
        any(part.endswith("-packages") for part in inside)
        or any(map(is_environment, folders))
        or (path != root and interpreter.path.is_relative_to(path))
    )


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def git_folders(top: Path) -> tuple[Path, ...]:
    """``.git`` of a work tree, and the folder of git's that it leads to, wherever that is, as a link or a file.

    Of a linked work tree that is the common one, in which its own lies.
    """
    marker = top / ".git"
    try:
        if marker.is_dir():
            own = common = marker.resolve()
        else:
            told = _told_in(marker).partition("gitdir:")[2].strip()
            own = common = (top / told).resolve() if told else marker
            if (own / "commondir").exists():
                common = (own / _told_in(own / "commondir").strip()).resolve()
    except (OSError, ValueError):
        return (marker,)
    is_gits = (common / "HEAD").is_file() and (common / "objects").is_dir() and own.is_relative_to(common)
    return (marker, common) if is_gits and common != marker else (marker,)


def _told_in(path: Path) -> str:
    return read_ordinary(path, limit_bytes=_GIT_FILE_BYTES, through_links=True).decode("utf-8")


def _gits_inside(root: Path, protected: tuple[Path, ...]) -> Iterator[Path]:
    """The folders of git's in the project of the work trees in it. None outside: any file could name one there."""
    for marker in protected:
        if marker.name == ".git":
            yield from (folder for folder in git_folders(marker.parent) if folder.is_relative_to(root))


def _looked_after(root: Path, gits: tuple[Path, ...]) -> Iterator[Path]:
    """What decides in git's folders and in our own whether programs are run, whether it is there or not."""
    own = root / ".cdd"
    if own.is_dir():
        yield from (own / "config.yaml", own / "hooks.json")
    for folder in gits:
        if not folder.is_dir():
            continue
        for one in (folder, *_modules(folder / "modules")):
            yield from (one / name for name in _OF_GIT)
        for tree in _folders_in(folder / "worktrees")[:_MOST_GIT_FOLDERS]:
            yield from (tree / name for name in _OF_WORK_TREES)


def _modules(folder: Path) -> Iterator[Path]:
    """The folders of submodules, whose names may have several parts; and those of their own."""
    waiting = [folder]
    for _ in range(_MOST_GIT_FOLDERS):
        if not waiting:
            return
        for inner in _folders_in(waiting.pop(0)):
            if (inner / "HEAD").exists():
                yield inner
                waiting.append(inner / "modules")
            else:
                waiting.append(inner)


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _small(protected: tuple[Path, ...]) -> Iterator[Path]:
    """Protected paths that are compared whole after a run; folders of git's, our own and environments are too large."""
    for path in protected:
        if not (path.is_dir() and (path.name in PRIVATE_FOLDERS or is_environment(path))):
            yield path


def protected_tests(root: Path, is_test: Callable[[str], bool] = is_protected) -> tuple[Path, ...]:
    """The test files, their data and their own configuration below ``root``: what no command has to change.

    Folders of tests stand in their place if there are many.
    """
    files, folders = _protected_files(root, is_test)
    chosen = _cheap(files, root)
    if len(chosen) < len(files):
        files = [*folders, *(path for path in files if not any(known in path.parents for known in folders))]
        chosen = _cheap(files, root)
    return chosen


def code_of_tests(root: Path) -> tuple[Path, ...]:
    """Test modules and what configures pytest: what no test run has to change. A test may write data beside it."""
    files, _ = _protected_files(root, is_protected)
    code = [path for path in files if path.suffix == ".py" or path.name in _CONFIGURATION]
    configuration = [root / name for name in _SECTIONS if (root / name).is_file()]
    return (*configuration, *_cheap(code, root))


def _cheap(paths: list[Path], root: Path) -> tuple[Path, ...]:
    """The first of ``paths``, as many as may be mounted with the folders on the way to them."""
    mounts: set[Path] = set()
    for number, path in enumerate(paths):
        mounts |= {path, *(folder for folder in path.parents if root in folder.parents)}
        if len(mounts) > _MOST_FILES:
            return tuple(paths[:number])
    return tuple(paths)


def _protected_files(root: Path, is_test: Callable[[str], bool]) -> tuple[list[Path], list[Path]]:
    """The protected files below ``root``, and the topmost folders that hold nothing else."""
    files: list[Path] = []
    folders: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        here = Path(folder)
        subfolders[:] = sorted(name for name in subfolders if name not in IGNORED_FOLDERS and not name.startswith("."))
        inside = "" if here == root else f"{here.relative_to(root).as_posix()}/"
        found = [here / name for name in names if is_test(f"{inside}{name}") and not (here / name).is_symlink()]
        if inside and is_test(f"{inside}any") and not any(known in here.parents for known in folders):
            folders.append(here)
        files += sorted(found)
    return files, folders
