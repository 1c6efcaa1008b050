"""Run trees: linked work trees in which runs work, so that the user's own files stay untouched.

A run tree has its own HEAD and index and shares the repository's objects and refs. It is kept between runs, because
resetting it is much quicker than a new checkout. Its files belong to cdd: a reset deletes everything that the base
commit does not contain. The module ``ignored`` provides files that git ignores.
"""

import contextlib
import errno
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import CddError, EnvironmentMissing, UsageError
from cdd_agent.git import lfs_filter
from cdd_agent.git.commits import CARRIED, list_pointers, note_clean_index
from cdd_agent.git.hardening import list_active_filters
from cdd_agent.git.repository import CommitId, CopyLimits, Repository, name_submodule, resolve_revision
from cdd_agent.git.runner import GitError, GitUnable, RepositoryLocation, Runner, find_location
from cdd_agent.storage import hold, measure_folder, read_ordinary, require_no_links, sweep, write_atomic
from cdd_agent.work.state import locate_checkpoints_lock

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PATH_BYTES = 100_000
_DAY_S = 86_400
_OWN = stat.S_IRUSR | stat.S_IWUSR
_LAST = "exported"
"""File in an export with the commit whose history it holds."""
_MOST_HISTORY_BYTES = 300_000_000
"""Packing more takes longer than tests are worth that read git's history."""
_SHA1_CHARACTERS = 40
SUBMODULES = "cdd-submodules"
_WRITTEN = ("HEAD", "index", "logs", "refs", "lfs", SUBMODULES)
"""What cdd, and git, which follows links, write in git's folder of a run tree. git-annex makes other links there."""
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
SHA256_CONFIG = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n"


class RunTree:
    """One run tree, which is made when git is first used in it."""

    def __init__(self, trees: "RunTrees", name: str) -> None:
        """Creates nothing."""
        self.trees = trees
        self._name = name
        self.repository = trees.open(name)
        """Its files and history. Its branch and index are not the user's."""

    @property
    def root(self) -> Path:
        """Its top level."""
        return self.repository.root

    def is_on(self, commit: CommitId | None) -> bool:
        """Return whether HEAD is at ``commit``; False if the tree was deleted, which git would make again."""
        return self.root.is_dir() and self.trees.has(self._name) and self.repository.read_head() == commit

    def reset(self, base: CommitId) -> tuple[str, ...]:
        """Make HEAD, index and files those of ``base``, and delete all other files; raises ``GitUnable`` if it fails.

        HEAD is detached. A damaged tree is made anew. Returns the submodules of the user whose files are missing here.
        """
        try:
            missing = self._reset(base)
        except (GitError, OSError):
            self.trees.remove(self._name)
            self.repository.runner = self.trees.open(self._name).runner
            missing = self._reset(base)
        os.utime(self.root)
        note_clean_index(self.repository, base)
        return missing

    def restore_files(self, base: CommitId) -> None:
        """Write the files of ``base`` again, and leave all others."""
        self.repository.git("read-tree", ("--reset", "-u"), resolve_revision(self.repository, base))

    def _reset(self, base: CommitId) -> tuple[str, ...]:
        repository, target = self.repository, resolve_revision(self.repository, base)
        self.restore_gitfile()
        self._require_own_work_tree()
        (repository.location.git_dir / "index.lock").unlink(missing_ok=True)  # left by a git that was killed
        clear_way(self.root)
        repository.git("update-ref", ("--no-deref",), "HEAD", target)
        _check_out(repository, target)
        missing = write_submodules(repository, self.root, indexes=repository.location.git_dir / SUBMODULES)
        left = repository.git("status", ("--porcelain", "-z", "--untracked-files=all", "--ignored", "--no-renames"))
        if left:
            raise GitUnable(
                f"The run tree {self.root} cannot be reset: {left.split(chr(0))[0]}.", hint=f"rm -rf {self.root}"
            )
        return missing

    def _require_own_work_tree(self) -> None:
        """Make git find this tree by itself, which a commit needs; raises ``EnvironmentMissing`` if it does not."""
        repository, root = self.repository, self.repository.root
        if repository.runner.is_found():
            return
        # With extensions.worktreeConfig, core.worktree and core.bare of the shared file hold for every work tree.
        with contextlib.suppress(GitError):
            for key, value in (("core.worktree", str(root)), ("core.bare", "false")):
                repository.git("config", ("--worktree",), key, value)
        if not repository.runner.is_found():
            raise EnvironmentMissing(
                f"git does not find the run tree {root} by itself, so cdd could not commit there.",
                hint="move core.worktree and core.bare out of the file that all work trees share: "
                "git config extensions.worktreeConfig true; then, for each key: git config --worktree KEY VALUE && "
                "git config --local --unset KEY",
            )

    def restore_gitfile(self) -> None:
        """Write the file ``.git``, by which hooks find the repository; a program in the tree may have changed it."""
        marker, content = self.root / ".git", f"gitdir: {self.repository.location.git_dir}\n".encode()
        require_no_links(self.root, most=0)
        with contextlib.suppress(OSError):
            if read_ordinary(marker, limit_bytes=_PATH_BYTES) == content:
                return
        if marker.is_dir() and not marker.is_symlink():
            delete_folder(marker)
        write_atomic(marker, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitExport:
    """A git folder for programs in a sandbox: the history of one commit, without the user's other work and settings.

    Other branches and the stash are not in it, nor are their objects. It is brought up to date in place, which adds
    only what is new.
    """

    folder: Path

    @property
    def gitfile(self) -> Path:
        """The file that programs must find as ``.git`` at the top of the tree."""
        return self.folder / "gitfile"

    def update(self, repository: Repository, head: CommitId, *, branch: str | None, shown_at: Path) -> None:
        """Export the history of ``head`` as ``branch``, or as a detached HEAD, with the index of ``repository``.

        Programs find the folder at ``shown_at``. A history of more than ``_MOST_HISTORY_BYTES`` is cut before ``head``.
        """
        sweep(Path(folder) for folder, _, _ in os.walk(self.folder))  # a kill may have left half-written files
        target, last = resolve_revision(repository, head), self.read_head()
        if last != target:
            if last is None or not repository.is_ancestor(last, of=target):
                last = None
                if os.path.lexists(self.folder):
                    delete_folder(self.folder)
            tags = repository.git(
                "for-each-ref", (f"--merged={target}", "--format=%(objectname) %(refname)"), "refs/tags"
            )
            objects = [line.partition(" ")[0] for line in tags.splitlines()]
            self._add_objects(repository, target, tags=objects, last=last)
            write_git_folder(self.folder, target, branch=branch, tags=tags)
            self._write("gitfile", f"gitdir: {shown_at}\n")
            self._write(_LAST, target)  # at the end: after a kill everything is exported again
        _write_anew(self.folder / "index", (repository.location.git_dir / "index").read_bytes())

    def _add_objects(self, repository: Repository, target: str, *, tags: list[str], last: str | None) -> None:
        packs = self.folder / "objects" / "pack"
        packs.mkdir(parents=True, exist_ok=True)
        boundary = repository.location.common_dir / "shallow"
        cut = boundary.read_text().split() if boundary.exists() else []
        if last is None and _measure_packs(repository.location.common_dir) > _MOST_HISTORY_BYTES:
            cut = [target]
        if cut and last is None:
            self._write("shallow", "".join(f"{commit}\n" for commit in cut))
        wanted = [*(f"--shallow {commit}" for commit in cut), target, *tags, *([f"^{last}"] if last else [])]
        stdin = "".join(f"{line}\n" for line in wanted).encode()
        # In a partial clone, the history lacks what was not fetched.
        which = ("--revs", "--quiet", "--missing=allow-promisor", "--shallow")
        repository.git("pack-objects", which, str(packs / "pack"), stdin=stdin)

    def read_head(self) -> str | None:
        """Return the commit whose history it holds."""
        try:
            return read_ordinary(self.folder / _LAST, limit_bytes=_PATH_BYTES).decode().strip() or None
        except (OSError, ValueError):
            return None

    def _write(self, name: str, text: str) -> None:
        _write_anew(self.folder / name, text.encode())


def _write_anew(path: Path, data: bytes) -> None:
    """Write a file of git that can be made again, not through a link and not into another name of the same file."""
    write_atomic(path, data, is_durable=False)


def _measure_packs(common_dir: Path) -> int:
    return sum(path.stat().st_size for path in (common_dir / "objects" / "pack").glob("*.pack"))


def write_files(repository: Repository, tree: str, *, folder: Path, index: Mapping[str, str]) -> None:
    """Write the files of ``tree`` into a new folder and its private index, without what a sparse checkout omits."""
    writer, provided = Repository(repository.root, repository.location), Path(index["GIT_INDEX_FILE"] + ".lfs")
    writer.runner = repository.runner  # which has read the configuration
    writer.settings = lambda: _provide_large_files(repository, repository.location, provided=provided)
    writer.git("read-tree", ("--reset", "-u"), tree, variables={**index, "GIT_WORK_TREE": str(folder)})


def _provide_large_files(
    repository: Repository, location: RepositoryLocation, *, provided: Path
) -> tuple[tuple[str, str], ...]:
    """Return settings with which files in Git LFS have their content, without git-lfs: see ``lfs_filter``."""
    folders, most = (repository.source, location.common_dir / "lfs" / "objects", provided), repository.copy_limits
    command = (sys.executable, "-I", "-S", lfs_filter.__file__, *map(str, folders), str(most.size_bytes))
    return (("filter.lfs.process", shlex.join(command)), ("filter.lfs.required", "true"))


def write_submodules(
    repository: Repository, folder: Path, *, indexes: Path, variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Write the files of the user's submodules into ``folder``, at the commits in the index of ``repository``.

    Without a ``.git`` there, git does not look into the folder of a submodule, so no commit changes. The configuration
    of a submodule does not count, and nothing is fetched. One that the user has not checked out is emptied; so are
    those that are returned, whose commit is missing. ``indexes`` is kept for a quicker second time.
    """
    missing: list[str] = []
    if variables is not None and repository.submodules == ():
        return ()
    submodules = repository.list_submodules(variables=variables)
    if variables is None:
        repository.submodules = tuple(submodules)
    for path, commit in submodules.items():
        target, own = folder / path, indexes / name_submodule(path)
        target.mkdir(parents=True, exist_ok=True)
        if target.resolve() != folder.resolve() / path:
            raise GitUnable(f"The submodule {path} is behind a link in {folder}.", hint=f"see: ls -l {target.parent}")
        try:
            location = _find_checkout(repository.source, path)
            if location is not None:
                inner = _write_submodule(target, commit, own=own, location=location, limits=repository.copy_limits)
                missing += (f"{path}/{name}" for name in inner)
                continue
        except (CddError, OSError):
            missing.append(path)
        delete_folder(target)
        target.mkdir()
        shutil.rmtree(own, ignore_errors=True)
    return tuple(missing)


def _find_checkout(root: Path, path: str) -> RepositoryLocation | None:
    """Return the repository of the user's submodule ``path``; None if it is not checked out."""
    folder = root.resolve() / path
    if folder.resolve() != folder or not os.path.lexists(folder / ".git"):
        return None
    location = find_location(folder)
    return location if location.root == folder else None  # for an empty .git, git finds the repository above


def _write_submodule(
    target: Path, commit: str, *, own: Path, location: RepositoryLocation, limits: CopyLimits
) -> tuple[str, ...]:
    marker = target / ".git"  # left by a program; git would take the folder for a repository
    if marker.is_dir() and not marker.is_symlink():
        delete_folder(marker)
    marker.unlink(missing_ok=True)
    # Not the submodule's own folder of git, whose configuration may name programs.
    information = own / "objects" / "info"
    information.mkdir(parents=True, exist_ok=True)
    _write_anew(information / "alternates", os.fsencode(f"{location.common_dir / 'objects'}\n"))
    (own / "index.lock").unlink(missing_ok=True)
    write_git_folder(own, commit, branch=None)
    repository = Repository(target, RepositoryLocation(root=target, git_dir=own, common_dir=own))
    repository.source, repository.copy_limits = location.root, limits
    active = list_active_filters(repository.runner.configuration())
    settings = [(f"filter.{name}.{key}", "") for name in active for key in ("clean", "smudge", "process", "required")]
    settings += _provide_large_files(repository, location, provided=own / "lfs")
    repository.settings = lambda: tuple(settings)
    _check_out(repository, commit)
    return write_submodules(repository, target, indexes=own / "submodules")


def _check_out(repository: Repository, commit: str) -> None:
    """Make index and files those of ``commit``, and delete all other files."""
    repository.git("read-tree", ("--reset", "-u"), commit)
    repository.git("clean", ("-ffdxq",))
    if pointers := list_pointers(repository):  # git takes them for unchanged, but the user may have their content now
        for path in pointers:
            (repository.root / path).unlink()
        repository.git("read-tree", ("--reset", "-u"), commit)


def write_git_folder(folder: Path, head: str, *, branch: str | None, tags: str = "") -> None:
    """Make ``folder``, which holds objects, a repository with the commit ``head`` on ``branch``, or detached.

    ``tags`` are lines of git's ``packed-refs``.
    """
    name = f"refs/heads/{branch}"
    _write_anew(folder / "packed-refs", (f"{head} {name}\n{tags}" if branch else tags).encode())
    _write_anew(folder / "HEAD", (f"ref: {name}\n" if branch else f"{head}\n").encode())
    _write_anew(folder / "config", (SHA256_CONFIG if len(head) > _SHA1_CHARACTERS else CONFIG).encode())
    (folder / "refs").mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The limits for run trees that no run uses."""

    days: float = 30
    most: int = 10
    size_bytes: int = 5_000_000_000


class RunTrees:
    """The run trees of one repository, in one folder."""

    def __init__(self, main: Repository, folder: Path, *, fork: str = "") -> None:
        """Creates nothing. ``main`` is the user's work tree, or the ``fork``'s; ``folder`` is ignored by git."""
        self._main, self._folder, self._fork = main, folder, fork

    def tree(self, name: str) -> RunTree:
        """Return the run tree ``name``; raises ``UsageError`` if that cannot be a name."""
        return RunTree(self, name)

    def open(self, name: str) -> Repository:
        """Return the repository of the run tree ``name``; git's first call creates the tree if there is none."""
        root, main = self._locate(name), self._main
        repository = Repository(root)
        repository.may_run_hooks = main.may_run_hooks
        repository.source = main.source
        repository.copy_limits = main.copy_limits
        repository.read_included = main.read_included
        repository.settings = lambda: _provide_large_files(
            repository, repository.location, provided=repository.location.git_dir / "lfs"
        )
        # In this tree HEAD is on no branch and git's folder is another: conditions of the configuration do not hold.
        repository.runner = Runner(
            root, locate=lambda: self._find_or_create(root), user=main.runner.user or main.runner
        )
        repository.share_processes(main)
        return repository

    def has(self, name: str) -> bool:
        """Return whether there is a run tree ``name``."""
        return self._find_admin(self._locate(name)) is not None

    def remove(self, name: str) -> None:
        """Delete the run tree ``name`` and git's record of it; its commits stay in the repository."""
        admin = self._find_admin(root := self._locate(name))
        if os.path.lexists(root):
            delete_folder(root)
        if admin is not None:
            shutil.rmtree(admin)

    def lock(self, name: str, *, why: str) -> None:
        """Keep the run tree ``name`` until it is removed here; neither ``prune`` nor git's own commands delete it."""
        self._main.git("worktree", "lock", (f"--reason={why}",), str(self._locate(name)))

    def is_locked(self, name: str) -> bool:
        """Return whether the run tree ``name`` is kept."""
        admin = self._find_admin(self._locate(name))
        return admin is not None and (admin / "locked").exists()

    def prune(self, kept: "Kept") -> tuple[str, ...]:
        """Delete run trees that were not prepared lately, and the oldest beyond the limits; return their names.

        One that a run uses stays. So does one with a commit that has not landed, for as long as its age allows.
        """
        pruned, size_bytes, oldest = list[str](), 0, time.time() - kept.days * _DAY_S
        for place, (used, name) in enumerate(self._list_trees()):
            if size_bytes <= kept.size_bytes:
                size_bytes += measure_folder(self._folder / name)
            is_beyond = place >= kept.most or size_bytes > kept.size_bytes
            if (used < oldest or is_beyond) and self.remove_unused(name, always=used < oldest):
                pruned.append(name)
        return tuple(pruned)

    def remove_unused(self, name: str, *, always: bool = False) -> bool:
        """Delete a run tree that no run uses and whose commit has landed, or ``always``; return whether it was."""
        lock = locate_checkpoints_lock(self._main.location.common_dir, name, fork=self._fork)
        if not os.path.lexists(lock):  # a link of that name would make a file elsewhere
            lock.touch()
        with contextlib.suppress(BlockingIOError), hold(lock):
            if is_over := always or self.has_landed(name):
                self.remove(name)
            return is_over
        return False

    def _list_trees(self) -> list[tuple[float, str]]:
        """Return when each run tree without a lock was prepared, and its name, the newest first."""
        found = ((path, self._find_admin(path)) for path in _list_folders(self._folder))
        free = (path for path, admin in found if admin is None or not self.is_locked(path.name))
        return sorted(((path.stat().st_mtime, path.name) for path in free), reverse=True)

    def has_landed(self, name: str) -> bool:
        """Return whether a branch contains all commits of a run tree, besides uncommitted changes of the user."""
        with contextlib.suppress(GitError):
            log = self._main.git("log", ("--format=%s",), str(self.open(name).read_head()), ("--not", "--branches"))
            return all(subject == CARRIED for subject in log.splitlines())
        return True  # git does not know the tree

    def _find_or_create(self, root: Path) -> RepositoryLocation:
        require_no_links(root, most=0)
        admin = self._find_admin(root)
        if admin is None or not root.is_dir():
            self.remove(root.name)
            self._folder.mkdir(parents=True, exist_ok=True)
            # git registers the tree first and then writes it, so a kill leaves at worst a tree that is made anew.
            self._main.git("worktree", "add", ("--quiet", "--detach", "--no-checkout"), str(root), "HEAD")
            admin = self._find_admin(root)
        if admin is None:
            raise GitUnable(f"git did not create the run tree {root}.", hint="see: git worktree list")
        for name in _WRITTEN:
            require_no_links(admin / name)
        return RepositoryLocation(root=root, git_dir=admin, common_dir=self._main.location.common_dir)

    def list_names(self) -> tuple[str, ...]:
        """Return the names of all folders that can be run trees."""
        return tuple(path.name for path in _list_folders(self._folder) if _NAME.fullmatch(path.name))

    def _locate(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a run tree.", hint="use letters, digits, dots and dashes")
        return self._folder.resolve() / name

    def _find_admin(self, root: Path) -> Path | None:
        """Return git's folder of the linked work tree ``root``."""
        for folder in _list_folders(self._main.location.common_dir / "worktrees"):
            with contextlib.suppress(OSError):
                text = read_ordinary(folder / "gitdir", limit_bytes=_PATH_BYTES).decode("utf-8", "surrogateescape")
                if Path(text.rstrip("\n")) == root / ".git":
                    return folder
        return None


def delete_folder(folder: Path) -> None:
    """Delete a folder with everything in it, even where a program took away our own permissions."""
    clear_way(folder)
    shutil.rmtree(folder)


def clear_way(top: Path) -> None:
    """Give us access again to everything below ``top``; delete pipes, sockets and devices, which git does not see.

    Raises ``NotADirectoryError`` for a link, which a program may have put there: it may lead to files of the user.
    """
    if top.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "It is a link", str(top))
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        mode = os.lstat(folder).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    os.unlink(entry.path)
                elif not entry.is_symlink() and (mode := entry.stat().st_mode) & _OWN != _OWN:
                    os.chmod(entry.path, stat.S_IMODE(mode) | _OWN)


def _list_folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
