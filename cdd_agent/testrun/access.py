"""Decides what a program in the sandbox can read and write: the project, and the files that its interpreter needs.

An interpreter in the project can name any path, in a ``.pth`` file for example. ``select_readable`` therefore checks
each of its paths before the sandbox grants access.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from cdd_agent.sandbox.port import Access
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.paths import find_protected_paths, is_environment
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, is_protected

QUESTION = """\
import glob, json, os, site, sys
# No code of packages or of the project may run. Packages in editable form put the project on the path, so lines of .pth
# files and sitecustomize are skipped. -I leaves out PYTHONPATH and the user's packages, which a test run has.
site.execsitecustomize = site.execusercustomize = lambda: None
def follow(line, *_):
    # The one such line that only adds a folder: uv writes it for an environment on top of another.
    start, end, line = 'import site; site.addsitedir("', '")', line.strip()
    if line.startswith(start) and line.endswith(end):
        site.addsitedir(line[len(start) : -len(end)])
site.exec = follow
site.check_enableusersite = lambda: True
site.main()
paths = [path for path in (*sys.argv[1].split(os.pathsep), *sys.path) if path]
def found():
    yield os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield prefix
    for entry in filter(os.path.exists, paths):
        yield entry
        if os.path.isdir(entry):
            for item in os.scandir(entry):
                if item.is_symlink():
                    target = os.path.realpath(item.path)
                    folder = os.path.dirname(target)
                    yield folder if os.path.basename(folder).endswith("-packages") else target
        for path in glob.glob(os.path.join(glob.escape(entry), "*.dist-info", "direct_url.json")):
            if not os.path.isfile(path):
                continue
            with open(path) as stream:
                source = json.load(stream)
            url = source.get("url", "")
            if source.get("dir_info", {}).get("editable") and url.startswith("file:///"):
                yield url[7:]
reads = sorted(set(os.path.abspath(path) for path in found()))
user = site.getuserbase() if site.ENABLE_USER_SITE else ""
"""
"""Python 3.8 code that an interpreter runs with ``-I -S`` to report its paths: it binds ``paths``, ``reads``, ``user``.

Its argument is the PYTHONPATH of a test run, with absolute paths.
"""

_SYSTEM = {"/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/var"}
_USUAL_HIDDEN = {
    *(".asdf", ".cache", ".conda", ".local", ".mise", ".nix-profile", ".nox", ".pixi", ".pyenv", ".rye"),
    *(".tox", ".venv", ".venvs", ".virtualenvs"),
}
"""Hidden folders in the home folder where tools install interpreters and packages."""
_FILE_CAP_BYTES = 1 << 16


def guess_reads(python: Path) -> tuple[Path, ...]:
    """Return the paths that ``python`` needs to start, without running it."""
    return select_readable(_iterate_start_paths(python))


def _iterate_start_paths(python: Path) -> Iterator[Path]:
    prefix = python.parent.parent
    yield prefix
    yield python.resolve().parent.parent
    for key, _, value in (line.partition("=") for line in _read_lines(prefix / "pyvenv.cfg")):
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for packages in prefix.glob("lib/python3*/site-packages"):
        for entry in packages.iterdir() if packages.is_dir() else ():
            if entry.is_symlink():
                yield entry.resolve().parent
            elif entry.suffix == ".pth":
                yield from (Path(line.strip()) for line in _read_lines(entry) if line.startswith("/"))


def _read_lines(path: Path) -> list[str]:
    try:  # a pipe or an endless file in the project must not block cdd
        data = read_ordinary(path, limit_bytes=_FILE_CAP_BYTES, through_links=True)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()


def select_readable(paths: Iterable[Path], *, home: Path | None = None) -> tuple[Path, ...]:
    """Return those of ``paths`` that exist and may be read in a sandbox, without those inside another of them.

    Refused are general system folders, the user's home and its parents, and hidden folders in it except those of
    Python tools.
    """
    home = Path.home() if home is None else home
    chosen = [path for path in sorted(set(paths)) if path.exists() and _may_be_read(path, home=home)]
    return tuple(path for path in chosen if not any(other in path.parents for other in chosen))


def _may_be_read(path: Path, *, home: Path) -> bool:
    for each in (path, path.resolve()):
        if not each.is_absolute() or str(each) in _SYSTEM or home == each or each in home.parents:
            return False
        inside = each.relative_to(home).parts if each.is_relative_to(home) else ()
        if inside and inside[0].startswith(".") and inside[0] not in _USUAL_HIDDEN:
            return False
    return True


def build_user_base_variable(user_base: str) -> dict[str, str]:
    """Return the variable by which Python finds the user's own packages although the sandbox has another home."""
    return {"PYTHONUSERBASE": user_base} if user_base and os.path.isdir(user_base) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The project whose copy a suite tests; a sandbox with a root folder of its own shows the copy at its path."""

    root: Path
    """Its folder."""
    git: Path | None = None
    """Git folder for programs in the sandbox, with a file ``gitfile`` that leads there; None: the copy's own."""
    folders: tuple[Path, ...] = ()
    """Folders of installed packages in it, which programs read in the same place of the copy."""
    list_shared: Callable[[], tuple[Path, ...]] = tuple
    """Returns other files and folders in it for which that holds."""
    list_ignored: Callable[[], tuple[str, ...]] | None = None
    """Returns what git ignores in the copy; None: the test run has to ask git."""

    def show(self, copy: Path, *, top: Path) -> dict[Path, Path]:
        """Return where programs find ``copy``, which is in a work tree at ``top``, and the git folder."""
        inside = len(copy.relative_to(top).parts)
        original_top = self.root.parents[inside - 1] if inside else self.root
        gitfile = {} if self.git is None else {self.git / "gitfile": original_top / ".git"}
        # No path of ours may be inside the copy, where another folder of that name could be in the way.
        return {top: original_top, self.root / ".cdd": SHOWN_PRIVATE, **gitfile}


SHOWN_PRIVATE = Path("/run/cdd")
"""Where programs find those files in the project's folder ``.cdd`` that they may use."""

_SECTIONS = ("pyproject.toml", "setup.cfg", "tox.ini")
"""Files with a section that configures pytest."""
_CONFIGURATION = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_MOST_FILES = 120
"""Limit for read-only mounts, parent folders included. Their cost grows with the square: 120 take 50 ms."""
_GIT_FILE_BYTES = 1 << 16


class Runtime(Protocol):
    """The program that runs tests: an interpreter, or a tool of another language."""

    @property
    def path(self) -> Path:
        """Its path."""

    @property
    def reads(self) -> tuple[Path, ...]:
        """Paths that it needs to read besides the system's programs."""


def build_access(
    root: Path,
    interpreter: Runtime,
    *,
    read_write: tuple[Path, ...] = (),
    read_only: tuple[Path, ...] = (),
    locked: tuple[Path, ...] = (),
    original: Original | None = None,
) -> Access:
    """Build the access for a command: ``root`` and ``read_write`` are writable, all else is read-only.

    Inside ``root``, ``locked``, tickets, settings and the folders of git and cdd are read-only. If ``root`` is a folder
    in a git work tree, the rest of the tree can be read. ``original`` is the project that ``root`` is a copy of; its
    environments and packages are overlaid.
    """
    tickets = tuple(sorted({ticket.folder.parent for ticket in list_tickets(root)}))
    top = find_top(root)
    # In the user's own files, programs could change settings that git ignores, which no gate would restore.
    protected = find_protected_paths(root, with_dots=original is None)
    reads = (path.resolve() if path.is_symlink() and root in path.parents else path for path in interpreter.reads)
    outside = (path for path in reads if path not in root.parents)
    roots = (root,) if original is None else (root, original.root)
    environment = [path for path in outside if not any(_is_source(path, r, interpreter=interpreter) for r in roots)]
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    python_path = (Path(os.path.abspath(root / entry)) for entry in entries if entry)
    imported = [path for path in python_path if not any(_is_source(path, r, interpreter=interpreter) for r in roots)]
    around = select_readable([top]) if top != root else ()
    # A project file could point to any repository outside.
    inner = (folder for path in protected if path.name == ".git" for folder in find_git_folders(path.parent))
    own = () if original is not None and original.git is not None else find_git_folders(top)
    gits = (*own, *(folder for folder in inner if folder.is_relative_to(root) and folder != top / ".git"))
    overlaid: tuple[Path, ...] = ()
    lent = () if original is None else (*original.folders, *original.list_shared())
    if original is not None:
        prefix = interpreter.path.parent.parent
        # Its environment may be missing in ``reads``, which name the original as a whole if it is installed.
        environment += [prefix] if prefix.is_relative_to(original.root) and is_environment(prefix) else []
        overlaid = (*lent, *(path for path in environment if path.is_relative_to(original.root)))
        # An earlier run left an empty folder in the copy as a mount point, which must not be mounted in turn.
        provided = {original.root.joinpath(path.relative_to(root)): path for path in protected}
        protected = tuple(provided[path] for path in provided if path not in {*environment, *lent})
        read_only = (*read_only, *lent, *((original.git / "gitfile", original.git) if original.git else ()))
    readable = dict.fromkeys((*around, *gits, *environment, *imported, *protected, *tickets, *locked, *read_only))
    return Access(
        # A link that a repository brings, such as node_modules/.cache, would make its target writable.
        read_write=(root, *(path for path in read_write if not path.is_symlink())),
        read_only=tuple(path for path in readable if path in environment or (path.exists() and not path.is_symlink())),
        overlaid=tuple(dict.fromkeys(overlaid)),
        shown_at={} if original is None else original.show(root, top=top),
    )


def find_top(root: Path) -> Path:
    """Return the top of the git work tree around a project's folder; outside of one, the folder itself."""
    return next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), root)


def _is_source(path: Path, root: Path, *, interpreter: Runtime) -> bool:
    """Return whether a path is the project or a folder of its sources, not part of an environment."""
    if not path.is_relative_to(root):
        return False
    inside = path.relative_to(root).parts
    folders = [root.joinpath(*inside[:end]) for end in range(1, len(inside) + 1)]
    is_packages = any(part.endswith("-packages") for part in inside) or any(map(is_environment, folders))
    return not is_packages and (path == root or not interpreter.path.is_relative_to(path))


def find_git_folders(top: Path) -> tuple[Path, ...]:
    """Return ``.git`` of a work tree and the folder that it points to as a link or a file.

    For a linked work tree that is the common folder of all work trees.
    """
    marker = top / ".git"
    try:
        if marker.is_dir():
            own = common = marker.resolve()
        else:
            target = _read_git_file(marker).partition("gitdir:")[2].strip()
            own = common = (top / target).resolve() if target else marker
            if (own / "commondir").exists():
                common = (own / _read_git_file(own / "commondir").strip()).resolve()
    except (OSError, ValueError):
        return (marker,)
    # Any file named .git could point anywhere: only a folder with git's own structure is made readable.
    is_gits = (common / "HEAD").is_file() and (common / "objects").is_dir() and own.is_relative_to(common)
    return (marker, common) if is_gits and common != marker else (marker,)


def _read_git_file(path: Path) -> str:
    return read_ordinary(path, limit_bytes=_GIT_FILE_BYTES, through_links=True).decode("utf-8")


def find_protected_tests(root: Path, is_test: Callable[[str], bool] = is_protected) -> tuple[Path, ...]:
    """Return test files, their data and their configuration, which commands need not change.

    If they are too many to mount, folders of tests take the place of the files in them.
    """
    files, folders = _find_test_files(root, is_test)
    chosen = _limit_mounts(files, root)
    if len(chosen) < len(files):
        files = [*folders, *(path for path in files if not any(known in path.parents for known in folders))]
        chosen = _limit_mounts(files, root)
    return chosen


def find_test_code(root: Path) -> tuple[Path, ...]:
    """Return test modules and pytest's configuration, which test runs need not change; data files stay writable."""
    files, _ = _find_test_files(root, _is_protected)
    code = [path for path in files if path.suffix == ".py" or path.name in _CONFIGURATION]
    configuration = [root / name for name in _SECTIONS if (root / name).is_file()]
    return (*configuration, *_limit_mounts(code, root))


# Each run of the tests asks this about every file.
_is_protected = lru_cache(maxsize=100_000)(is_protected)


def _limit_mounts(paths: list[Path], root: Path) -> tuple[Path, ...]:
    mounts: set[Path] = set()
    for number, path in enumerate(paths):
        mounts |= {path, *(folder for folder in path.parents if root in folder.parents)}
        if len(mounts) > _MOST_FILES:
            return tuple(paths[:number])
    return tuple(paths)


def _find_test_files(root: Path, is_test: Callable[[str], bool]) -> tuple[list[Path], list[Path]]:
    """Return the test files below ``root``, and the topmost folders that contain nothing else."""
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
