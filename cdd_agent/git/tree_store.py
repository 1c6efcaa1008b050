"""The store of a work tree: its files, saved in git's objects under ``refs/cdd/`` and restored from there.

A *snapshot* is saved by cdd as it works, before a step and after an attempt, for example. It has git's form: its tree
is what a commit of the files would contain, so it can be compared with commits. Line ends may be normalized, and only
one bit of the permissions is kept. Restored files are as git would check them out.

A *checkpoint* is a point to which the user can return. It has the exact form: bytes, permissions and empty folders as
they are on disk. It is a tree with the files (``work``), the user's index (``index``) and a description
(``meta.json``). Its ref names no commit, so ``git log --all`` does not show it.

Both use a separate index and never touch the user's index, HEAD, stash or reflog. Both leave out ignored files,
repositories inside the work tree, submodules included, and cdd's own files in ``.cdd``; a restore neither deletes nor
changes them.
"""

import contextlib
import json
import os
import re
import shlex
import stat
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeAlias

import msgspec

from cdd_agent.clock import SystemClock
from cdd_agent.errors import UsageError, format_count, join_first
from cdd_agent.events import Change
from cdd_agent.git.ignored import ignores_itself
from cdd_agent.git.landing import ExactFiles, FileChange, Restoration, digest_file, find_obstacle, remove_empty_parents
from cdd_agent.git.repository import (
    LINK,
    SUBMODULE,
    CommitId,
    Entry,
    Repository,
    clear_marks,
    copy_index,
    copy_marked_index,
    format_paths,
    private_index,
)
from cdd_agent.git.run_tree import CONFIG, SHA256_CONFIG
from cdd_agent.git.runner import GitError, RepositoryLocation, describe_state
from cdd_agent.storage import exclusive_lock
from cdd_agent.untrusted.paths import ENVIRONMENT_FOLDERS, is_secret, is_state
from cdd_agent.work.records import find_records

SCHEMA = 1
BY_HAND = "manual"
"""In place of a ticket in the ref of a checkpoint that belongs to none."""
MOST_FILE_BYTES = 10 * 1024 * 1024
MOST_NEW_FILES = 5_000
MOST_NEW_BYTES = 200_000_000
_OWN_REFS = "refs/cdd/"
SAVED = "refs/cdd/checkpoints/"
"""The beginning of the ref of a checkpoint, and of a snapshot that belongs to a step."""
REF = re.compile(rf"{SAVED}.+/(?P<number>[0-9]{{1,9}})")
"""The ref of a checkpoint; snapshots in the same folders have other names."""
_PATIENCE_S = 30.0
_SHOWN = 5
_SETTLED_NS = 1_000_000_000
"""A file that changed more recently may change again without new times."""
_TICK_NS = 50_000_000
"""The same where the file system keeps fractions of seconds."""
_SECOND_NS = 1_000_000_000
_RAW = "* -text -filter -ident -working-tree-encoding !eol\n"
_CONVERSIONS = ("text", "crlf", "filter", "ident", "working-tree-encoding")
_PASSED_ON = ("core.excludesfile", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode")
"""Settings of the repository that say which files there are and how to write them."""
_NOT_OURS = {*ENVIRONMENT_FOLDERS, "node_modules"}
_WITHOUT_FOLDERS = {*_NOT_OURS, ".git", ".cdd"}

Kind: TypeAlias = Literal["run", "talk", "manual", "rollback", "restore", "undo", "redo"]
"""Before a phase or a message of the user; by hand; before a rollback, a restore, its undo, or the redo of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files of a work tree that cdd saved as it worked, in git's form."""

    ref: str
    commit: CommitId
    """A commit whose tree counts, or a tree."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``meta.json``."""

    schema: int = SCHEMA
    kind: Kind
    time: str = ""
    """In UTC."""
    root: str = ""
    """The folder of the work tree, which the user may have moved since."""
    work_tree: str = ""
    """The work tree as git knows it; empty in checkpoints of earlier versions."""
    ticket: str = ""
    step: int = 0
    phase: str = ""
    name: str = ""
    """Given by the user; a checkpoint with a name is not pruned."""
    words: str = ""
    """The beginning of the user's message."""
    head: str | None = None
    branch: str | None = None
    of: int = 0
    """The number of the checkpoint that a restore led to."""
    session: str = ""
    """The session at the prompt that made it."""
    talks: dict[str, int] = {}
    """Token of a conversation at the prompt -> number of its messages."""
    skipped: dict[str, str] = {}
    """Path -> why the checkpoint lacks it."""
    folders: tuple[str, ...] = ()
    """Empty folders, which git does not keep."""
    modes: dict[str, tuple[str, ...]] = {}
    """Permissions, in octal -> paths; an entry without paths is for all other programs, or all other files."""

    def find_modes(self, files: Mapping[str, int]) -> dict[str, int]:
        """Return path -> permissions of ``files``; theirs say what is a program, and count if nothing else is known."""
        odd = {path: int(mode, 8) for mode, group in self.modes.items() for path in group}
        usual = {bool(int(mode, 8) & 0o100): int(mode, 8) for mode, group in self.modes.items() if not group}
        return {path: odd.get(path, usual.get(bool(mode & 0o100), mode)) for path, mode in files.items()}

    @property
    def label(self) -> str:
        """Its name or its occasion, in a few words."""
        if self.kind == "run":
            return f"step {self.step} {self.phase.upper()}"
        if self.name:
            return self.name
        if self.words:
            return f'"{self.words}"'
        if self.kind == "manual":
            return "by hand"
        return f"before the {self.kind}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A point of the user's files, in the exact form."""

    number: int
    ref: str
    id: str
    """The tree that the ref names."""
    files: str
    """The tree of the files."""
    about: Description


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The effects of a restore, before it is applied."""

    target: Checkpoint
    changes: tuple[Change, ...]
    """From the files now to those of the checkpoint."""
    files: str
    """The tree of the files now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The files of the user, saved, and what leads from them to those of another checkpoint."""

    before: Checkpoint
    exact: ExactFiles
    restoration: Restoration


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The files of a work tree at one moment."""

    tree: str
    modes: Mapping[str, int] = field(default_factory=dict)
    """Path -> permissions; 0 for a link."""
    skipped: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


class Shadow:
    """A second git folder for a work tree, whose attributes turn every conversion of git off.

    Without a repository, the shadow is the repository: it is in the user's own folder then, outside of the project.
    """

    def __init__(self, user: Repository, folder: Path) -> None:
        """Create nothing."""
        self.folder = folder
        self.has_git = folder != user.location.git_dir
        self.user = user
        self.files = Repository(user.root, user.location)
        """The same work tree, with the settings of the shadow."""
        self.files.runner = user.runner  # which has read the configuration
        self.files.settings = self._list_settings
        self.index_file = folder / "index"
        self.variables = {
            "GIT_DIR": str(folder),
            "GIT_COMMON_DIR": str(folder),
            "GIT_OBJECT_DIRECTORY": str(user.location.common_dir / "objects"),
            "GIT_INDEX_FILE": str(self.index_file),
        }

    def _list_settings(self) -> tuple[tuple[str, str], ...]:
        values = {each.key: each.value for each in self.user.runner.configuration()}
        own = tuple((key, values[key]) for key in _PASSED_ON if key in values)
        return (("core.autocrlf", "false"), ("core.safecrlf", "false"), ("core.logAllRefUpdates", "false"), *own)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder complete, and keep other processes out of it."""
        with exclusive_lock(self.folder / "cdd-checkpoint.lock", purpose="A checkpoint", wait_s=_PATIENCE_S):
            _write_git_folder(self.folder, SHA256_CONFIG if self.user.is_sha256 else CONFIG)
            rules = "".join(f"{folder}/\n" for folder in sorted(_NOT_OURS)).encode()
            if self.has_git:
                rules = b""
                with contextlib.suppress(FileNotFoundError):
                    rules = (self.user.location.common_dir / "info" / "exclude").read_bytes()
            _write(self.folder / "info" / "exclude", rules)
            _write(self.folder / "info" / "attributes", _RAW.encode())
            (self.folder / "index.lock").unlink(missing_ok=True)  # left by a git that was killed
            yield

    def list_tracked(self) -> set[str]:
        """Return the paths in the user's index."""
        return set(self.user.git("ls-files", ("-z",)).split("\0")) if self.has_git else set()

    def start_index(self) -> None:
        """Begin with the user's index, which saves reading all files, if git converts none of them."""
        user, index = self.user, {"GIT_INDEX_FILE": str(self.index_file)}
        values = {each.key: each.value.lower() for each in user.runner.configuration()}
        if not self.has_git or values.get("core.autocrlf", "false") not in ("false", "no", "off", "0"):
            return
        try:
            copy_marked_index(user, self.index_file)
            lines = user.git("ls-files", ("-v", "-z", "--stage"), variables=index).split("\0")[:-1]
            tracked = [(about, path) for about, _, path in (line.partition("\t") for line in lines)]
            omitted = clear_marks(user, ((about[0], path) for about, path in tracked), index=index)
            asked = format_paths(path for _, path in tracked)
            attributes = user.git("check-attr", ("-z", "--stdin"), *_CONVERSIONS, stdin=asked).split("\0")
            if any(value not in ("unspecified", "unset") for value in attributes[2::3]):
                self.index_file.unlink(missing_ok=True)
                return
            # A submodule hides the files in its folder; a mark, a file that a sparse checkout omits, once it is there.
            modules = {path for about, path in tracked if about.upper().startswith(f"H {SUBMODULE}")}
            self.files.stage_entries(dict.fromkeys([*omitted, *modules]), index=self.variables)
        except (GitError, FileNotFoundError):  # no index, or one that depends on other files, for example
            self.index_file.unlink(missing_ok=True)


class TreeStore:
    """Saves, compares and restores the files of one work tree: in git's form, or, with a shadow, exactly."""

    def __init__(
        self,
        repository: Repository,
        *,
        left_out: tuple[str, ...] = (),
        shadow: Shadow | None = None,
        folders: tuple[str, ...] = (),
    ) -> None:
        """Write nothing before the first save.

        ``left_out``: folders that no snapshot contains, relative to the top of the work tree. ``folders``: only these
        count; they end with a slash.
        """
        self._repository = repository
        self._shadow = shadow
        self._files = repository if shadow is None else shadow.files
        self._variables = {} if shadow is None else shadow.variables
        self._folders = folders
        self._left_out = tuple(f"{folder}/" for folder in left_out)
        self._ignored_folders: tuple[str, ...] = ()
        self._ignored_files: frozenset[str] = frozenset()
        self._captured: tuple[list[tuple[str, tuple[int, ...]]], Capture] | None = None
        """The last capture, and the state of all files at that time."""
        self._commits: dict[str, CommitId] = {}
        """Tree -> the snapshot of it."""
        self._index: Path | None = None
        """An index with the files of the last capture."""
        self._tree: str | None = None
        """The tree of that index, if it has been written."""
        self.nested: frozenset[str] = frozenset()
        """Untracked repositories, and submodules that are at another commit, in the last capture."""

    def take(self, ref: str, *, message: str) -> Snapshot:
        """Save the work tree under ``ref``, replacing an earlier snapshot there."""
        ref = _require_own_ref(ref)
        tree = self.capture().tree
        commit = self._commits.get(tree) or self._repository.write_commit(tree, message=message)
        self._commits[tree] = commit
        self._repository.refs.set(ref, commit)
        return Snapshot(ref=ref, commit=commit)

    def take_unsaved(self) -> Snapshot:
        """Return the work tree as it is now, under no ref: git deletes its objects after some weeks."""
        return Snapshot(ref="", commit=CommitId(self.capture().tree))

    def find(self, ref: str | None) -> Snapshot | None:
        """Return the snapshot saved under ``ref``; None if ``ref`` does not exist, or is not known."""
        if not ref:
            return None
        found = self._repository.read_ref(_require_own_ref(ref))
        return Snapshot(ref=ref, commit=found) if found else None

    def forget(self, pattern: str) -> None:
        """Delete the refs that match ``pattern``; git keeps their objects for a while."""
        for ref in self._repository.git("for-each-ref", ("--format=%(refname)",), _require_own_ref(pattern)).split():
            self._repository.git("update-ref", ("-d",), ref)
        self._commits.clear()

    def list_changes_since(self, snapshot: Snapshot, *, until: Snapshot | None = None) -> tuple[Change, ...]:
        """Return the changes from the snapshot to the work tree, or to ``until``."""
        return self.list_changes(snapshot.commit, self.capture().tree if until is None else until.commit)

    def list_differing_paths(self, commit: CommitId, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the paths that differ between ``commit`` and the snapshot, without excluded ones."""
        paths = (change.path for change in self.list_changes(commit, snapshot.commit))
        return tuple(path for path in paths if not self.is_excluded(path))

    def list_changes(self, before: str, after: str) -> tuple[Change, ...]:
        """Return the changes between two trees or commits."""
        changes = self._repository.list_changes(before, after, submodules=False)
        return tuple(change for change in changes if change.path.startswith(self._folders or ""))

    def list_files(self, tree: str) -> dict[str, Entry]:
        """Return path -> entry of the files in a tree."""
        files = self._repository.objects.list_files(tree)
        return {path: files[path] for path in files if path.startswith(self._folders or "")}

    def select(self, paths: Iterable[str]) -> set[str]:
        """Return those of ``paths`` that are in the folders that count."""
        return {path for path in paths if path.startswith(self._folders or "") and not self.is_excluded(path)}

    def restore(self, snapshot: Snapshot, *, only: Iterable[str] | None = None) -> tuple[Change, ...]:
        """Restore the work tree, or just the paths ``only``, and return the changes that this made.

        The current work tree is lost unless there is a snapshot of it. Equal files are not written.
        """
        due = self.list_changes(self.capture().tree, snapshot.commit)
        if only is not None:
            wanted = set(only)
            due = tuple(change for change in due if change.path in wanted)
        before = dict(self.list_modes(change.path for change in due))
        self.write(snapshot.commit, due)
        for path, mode in self.list_modes(path for path in before if before[path]):
            # Deny group and others a restored file that they could not read.
            denied = (0o070 if not before[path] & 0o040 else 0) | (0o007 if not before[path] & 0o004 else 0)
            if mode & denied:
                os.chmod(self._repository.root / path, mode & ~denied)
        return due

    def write(self, tree: str, changes: Collection[Change]) -> None:
        """Carry out ``changes`` that lead to a tree or commit; folders that they empty are deleted too."""
        deleted = [change.path for change in changes if change.kind == "deleted"]
        for path in deleted:
            (self._repository.root / path).unlink(missing_ok=True)
            remove_empty_parents(self._repository.root, path)
        self.write_paths(tree, [change.path for change in changes if change.kind != "deleted"])

    def write_paths(self, tree: str, paths: Iterable[str], *, folder: Path | None = None) -> None:
        """Write ``paths`` as they are in a tree or commit, into ``folder`` or the work tree."""
        if listed := format_paths(paths):
            with private_index() as index:
                variables = {**self._variables, **index}
                self._files.git("read-tree", tree, variables=variables)
                under = [f"--prefix={folder}/"] if folder else []
                self._files.git(
                    "checkout-index", ("--force", "-z", "--stdin", *under), stdin=listed, variables=variables
                )

    # Which files count.

    def freeze_ignored(self, ref: str) -> None:
        """Exclude what was ignored when ``ref`` was first frozen, even if the ignore rules change.

        The list is saved under ``ref``, and other processes use it too.
        """
        if self._repository.read_ref(ref) is None:
            ignored = format_paths(self._repository.list_ignored())
            self._repository.refs.set(ref, self._repository.blobs.write(ignored))
        paths = [path for path in self._repository.objects.require(ref).text.split("\0") if path]
        self._ignored_folders = tuple(path for path in paths if path.endswith("/"))
        self._ignored_files = frozenset(paths)

    def is_excluded(self, path: str) -> bool:
        """Return whether ``path`` is never saved: it was ignored, is in an excluded folder, or belongs to cdd."""
        return (
            path in self._ignored_files
            or path.startswith((*self._left_out, *self._ignored_folders))
            or is_internal(path)
        )

    # How to capture them.

    def capture(self, *, rules: str = "", is_limited: bool = True) -> Capture:
        """Return the files as they are now. The exact form needs the lock of the shadow.

        With ``rules``, a tree to restore, the ignore files of that tree count too. Its files are never left out,
        because the restore replaces them. ``is_limited``: raise ``UsageError`` if there are too many new files.
        """
        if self._shadow is not None:
            return self._capture_exactly(self._shadow, rules=rules, is_limited=is_limited)
        # That takes several calls of git, so nothing is written again while no file changes.
        state = self._scan()
        if state is None:
            time.sleep(_TICK_NS / _SECOND_NS)  # cheaper than to write everything again later
            state = self._scan()
        if state is not None and self._captured is not None and self._captured[0] == state:
            return self._captured[1]
        self._captured = None
        captured = self._capture_as_git()
        self._captured = None if state is None else (state, captured)
        return captured

    def _scan(self) -> list[tuple[str, tuple[int, ...]]] | None:
        """Return path and state of all files; None if the last change is too recent to tell."""
        begun, newest, found = time.time_ns(), 0, []
        folders = [""]
        try:
            while folders:
                folder = folders.pop()
                with os.scandir(self._repository.root / folder) as entries:
                    for entry in sorted(entries, key=lambda each: each.name):
                        path = f"{folder}{entry.name}"
                        about = entry.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(about.st_mode):
                            newest = max(newest, about.st_mtime_ns, about.st_ctime_ns)
                            found.append((path, (about.st_mode, *describe_state(about))))
                        elif (
                            entry.name == ".git"
                            or self.is_excluded(f"{path}/config.yaml")
                            or ignores_itself(Path(entry.path))
                        ):
                            continue
                        else:
                            folders.append(f"{path}/")
                            found.append((path, (about.st_mode,)))
        except OSError:
            return None
        is_recent = newest > begun - (_TICK_NS if newest % _SECOND_NS else _SETTLED_NS)
        return None if is_recent else found

    def _capture_as_git(self) -> Capture:
        if self._index is None or not self._index.parent.exists():
            # Not the user's: marks in it hide changes, and the program that is tested may write it.
            folder = tempfile.TemporaryDirectory(prefix="cdd-index-", ignore_cleanup_errors=True)
            weakref.finalize(self, folder.cleanup)
            self._index, self._tree = Path(folder.name) / "index", None
            copy_index(self._repository, self._index)
        index = {"GIT_INDEX_FILE": str(self._index)}
        found = self._files.compare_files(index=index)
        dropped = {path for path in found.staged if self.is_excluded(path)}
        changed = {path for path in found.changed if not self.is_excluded(path)}
        self.nested = found.nested
        if changed or dropped or self._tree is None:
            self._tree = None
            self._tree = self._write_tree(changed, dropped=dropped, index=index)
        return Capture(tree=self._tree)

    def _write_tree(self, changed: Iterable[str], *, dropped: Iterable[str], index: Mapping[str, str]) -> str:
        """Bring the index up to date with the files at ``changed``, without ``dropped``, and return its tree."""
        self._files.stage(changed, index=index)
        self._files.stage_entries(dict.fromkeys(dropped), index=index)
        return self._files.write_tree(index)

    def _capture_exactly(self, shadow: Shadow, *, rules: str, is_limited: bool) -> Capture:
        if not shadow.index_file.exists():
            shadow.start_index()
        try:
            return self._update(shadow, rules=rules, is_limited=is_limited)
        except GitError:
            if not shadow.index_file.exists():
                raise
            shadow.index_file.unlink()  # it may be damaged, and nothing but time is lost
            return self._update(shadow, rules=rules, is_limited=is_limited)

    def _update(self, shadow: Shadow, *, rules: str, is_limited: bool) -> Capture:
        files, index = self._files, shadow.variables
        found = files.compare_files(*self._folders, index=index)
        held = self.list_files(rules) if rules else {}
        known = found.staged.keys() | found.changed
        modes = dict(self.list_modes(known | held.keys()))
        hidden = modes.keys() - known  # ignored now
        known |= hidden
        tracked = cache(shadow.list_tracked)  # asked for new files only
        dropped = {path for path in known if is_internal(path)}
        if any(path.rpartition("/")[2] == ".gitignore" for path in found.changed):
            listed = files.git("ls-files", ("-z", "--cached", "--ignored", "--exclude-standard"), variables=index)
            dropped |= {path for path in listed.split("\0") if path and path not in tracked()}
        if rules:
            dropped |= self._list_ignored(held, [path for path in known if path not in held])
        skipped = {path: "it is another repository" for path in found.nested}
        for path in found.changed - dropped - held.keys():
            why = self._explain_skip(path)
            if why and path not in tracked():
                skipped[path] = why
        # Without deleted files: a folder that they have left is empty.
        present = modes.keys() - dropped - skipped.keys()
        survey = survey_folders(self._repository.root, present, tops=self._folders or ("",))
        special = {path for path in survey.special if path not in tracked()}
        ignored = files.match_ignored(special, variables=index)
        skipped |= dict.fromkeys(sorted(special - ignored), "it is a socket, a pipe or a device")
        dropped = (dropped | skipped.keys()) - held.keys()
        changed = (found.changed | hidden) - dropped
        if others := sorted(changed.intersection(survey.special)):
            raise UsageError(
                f"{join_first(others, most=_SHOWN)}: a socket, a pipe or a device has taken the place of a file, and "
                "no checkpoint can hold it. Nothing was changed.",
                hint=f"move it away: mv {shlex.quote(others[0])} {shlex.quote(others[0])}.aside; then the same again",
            )
        if is_limited:
            self._require_few(path for path in found.new & changed if path not in tracked())
        tree = self._write_tree(changed, dropped=dropped & found.staged.keys(), index=index)
        modes = {path: mode for path, mode in modes.items() if path not in dropped}
        return Capture(tree=tree, modes=modes, skipped=skipped, folders=survey.empty)

    def _explain_skip(self, path: str) -> str:
        """Return why a file is left out if git does not track it; empty if it is not."""
        place = self._repository.root / path
        try:
            about = os.lstat(place)
        except OSError:
            return ""
        if is_secret(path):
            return "it holds secrets"
        if stat.S_ISREG(about.st_mode) and not os.access(place, os.R_OK):
            return "it is not readable"
        if stat.S_ISREG(about.st_mode) and about.st_size > MOST_FILE_BYTES:
            return f"it is larger than {MOST_FILE_BYTES // 1024 // 1024} MiB"
        return ""

    def _require_few(self, new: Iterable[str]) -> None:
        """Raise ``UsageError`` if there are more new files, or bytes in them, than a checkpoint may hold."""
        sizes = {}
        for path in new:
            with contextlib.suppress(OSError):
                sizes[path] = os.lstat(self._repository.root / path).st_size
        count, size_bytes = len(sizes), sum(sizes.values())
        if count <= MOST_NEW_FILES and size_bytes <= MOST_NEW_BYTES:
            return
        tops = Counter[str]()
        for path, size in sizes.items():
            tops[path.partition("/")[0]] += size if size_bytes > MOST_NEW_BYTES else 1
        top = tops.most_common(1)[0][0]
        raise UsageError(
            f"The work tree has {format_count(count, 'new file')} ({size_bytes / 1_000_000:.0f} MB) that git does not "
            f"track. A checkpoint takes at most {MOST_NEW_FILES} and {MOST_NEW_BYTES // 1_000_000} MB. None was made.",
            hint=f"most are in {top}: add it to .gitignore, or commit it",
        )

    def _list_ignored(self, held: Mapping[str, Entry], paths: Collection[str]) -> set[str]:
        """Return the ``paths`` that the ignore files among the files ``held`` by a tree exclude."""
        with tempfile.TemporaryDirectory(prefix="cdd-rules-") as folder, private_index() as index:
            # Not in the user's files: after a kill, they would have the ignore files of another time.
            variables = {**self._variables, **index, "GIT_WORK_TREE": folder}
            rules = {path: held[path] for path in held if path.rpartition("/")[2] == ".gitignore"}
            self._files.stage_entries(rules, index=variables)
            self._files.git("checkout-index", ("--all", f"--prefix={folder}/"), variables=variables)
            return self._files.match_ignored(paths, "--no-index", variables=variables)

    def list_modes(self, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Yield path and permissions of the files and links that exist; those of a link are 0."""
        for path in paths:
            with contextlib.suppress(OSError):
                mode = os.lstat(f"{self._repository.root}/{path}").st_mode
                if not stat.S_ISDIR(mode):
                    yield path, 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode)


class Checkpoints:
    """The checkpoints of one work tree. Of a project in a folder of it, other folders do not count."""

    def __init__(self, repository: Repository, project: Path, *, shadow: Path) -> None:
        """Create nothing."""
        self.repository = repository
        self.project = project
        self._work_tree = find_records(project).work_tree
        self._shadow = Shadow(repository, shadow)
        inside = project.resolve().relative_to(repository.root.resolve()).as_posix()
        self._store = TreeStore(repository, shadow=self._shadow, folders=() if inside == "." else (f"{inside}/",))

    @classmethod
    def of_repository(cls, repository: Repository, project: Path) -> Self:
        """Return the checkpoints of a project in a repository."""
        records = find_records(project)
        return cls(repository, project, shadow=records.repository / "shadow" / records.work_tree)

    @classmethod
    def without_git(cls, project: Path, *, private: Path) -> Self:
        """Return the checkpoints of a project in no repository, which are in the folder ``private``."""
        root, folder = project.resolve(), private.resolve()
        _write_git_folder(folder, CONFIG)
        location = RepositoryLocation(root=root, git_dir=folder, common_dir=folder)
        return cls(Repository(root, location), root, shadow=folder)

    def list_all(self, *, everywhere: bool = False) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of this work tree, or of all work trees of the repository, oldest first."""
        refs = self.repository.list_ref_names(SAVED)
        numbers = sorted((int(match["number"]), ref) for ref in refs if (match := REF.fullmatch(ref)))
        named = ((ref, self.repository.read_ref(ref), number) for number, ref in numbers)
        found = (self._read(ref, top, number=number) for ref, top, number in named if top)
        return tuple(each for each in found if everywhere or self.is_own(each))

    def is_own(self, each: Checkpoint) -> bool:
        """Return whether a checkpoint is of this work tree, which may have been moved since."""
        if each.about.work_tree:
            return each.about.work_tree == self._work_tree
        return each.about.root == str(self.repository.root)

    def find(self, name: str) -> Checkpoint:
        """Return the checkpoint with this number, or the newest of this name; raises ``UsageError``."""
        known = self.list_all()
        for each in reversed(known):
            if name in (str(each.number), each.about.name):
                return each
        listed = "list them: cdd checkpoint list" if known else "make one: cdd checkpoint create"
        raise UsageError(f"This work tree has no checkpoint {name!r:.60}.", hint=listed)

    def create(self, about: Description | None = None, *, is_limited: bool = True) -> Checkpoint:
        """Save the files as they are now. Raises ``CddError``, and saves nothing, if that cannot be complete.

        ``is_limited``: too many new files are such a reason.
        """
        with self._shadow.locked():
            return self._save(about or Description(kind="manual"), self._store.capture(is_limited=is_limited))

    def list_changes_since(self, checkpoints: Iterable[Checkpoint]) -> dict[int, tuple[Change, ...]]:
        """Return the number of each checkpoint -> the changes from it to the files now."""
        with self._shadow.locked():
            now = self._store.capture().tree
        return {each.number: self._store.list_changes(each.files, now) for each in checkpoints}

    def compare(self, one: Checkpoint, other: Checkpoint | None = None) -> tuple[str, str, tuple[Change, ...]]:
        """Return the trees of a checkpoint and of another, or of the files now, and the changes between them."""
        with self._shadow.locked():
            after = self._store.capture().tree if other is None else other.files
        return one.files, after, self._store.list_changes(one.files, after)

    def plan(self, target: Checkpoint) -> RestorePlan:
        """Return what a restore of ``target`` would do. Changes nothing."""
        with self._shadow.locked():
            now = self._store.capture(rules=target.files)
        return RestorePlan(target=target, changes=self._list_due(target, now), files=now.tree)

    def depart(self, plan: RestorePlan, *, about: Description) -> Departure:
        """Save the files as they are, described by ``about``, and return how to carry out ``plan``.

        Ignored files, those that one of the two checkpoints lacks, and the states of tickets stay as they are. Raises
        ``UsageError`` if something is in the way, or has changed since the plan was made, and saves nothing.
        """
        root, target = self.repository.root, plan.target
        with self._shadow.locked():
            due = self._list_due(target, self._store.capture(rules=target.files))
            # Before the files are saved: a later change of the user must not be mistaken for the saved content.
            digests = {change.path: digest_file(root / change.path) for change in due}
            now = self._store.capture(rules=target.files)
            changes = [change for change in self._list_due(target, now) if change.path in digests]
            self._require_clear(changes, target)
            self._require_as_planned(changes, plan, now=now)
            before = self._save(about, now)
        entries = self._store.list_files(target.files)
        moving = {path: digests[path] for path in sorted(change.path for change in changes)}
        kept = entries.keys() - moving.keys() - target.about.skipped.keys()
        modes = {path: mode for path, mode in self._store.list_modes(kept) if mode}
        restoration = Restoration(
            files=tuple(
                FileChange(path=path, old=old, new=entries.get(path), before=None, after=None)
                for path, old in moving.items()
            ),
            modes={path: mode for path, mode in target.about.find_modes(modes).items() if mode != modes[path]},
            folders=target.about.folders,
            gone=tuple(sorted(set(now.folders) - set(target.about.folders))),
        )
        return Departure(before=before, exact=self.read_exact(target, moving), restoration=restoration)

    def read_exact(self, point: Checkpoint, paths: Iterable[str]) -> ExactFiles:
        """Return those of the files ``paths`` of its commit that ``point`` holds."""
        entries, asked = self._store.list_files(point.files), self._store.select(paths)
        own = {path: entries[path].mode for path in asked if path in entries}
        files = point.about.find_modes({path: int(mode[-3:], 8) for path, mode in own.items() if mode != LINK})

        def write(chosen: Iterable[str], folder: Path) -> None:
            with self._shadow.locked():
                self._store.write_paths(point.files, chosen, folder=folder)

        absent = frozenset(asked - own.keys() - point.about.skipped.keys())
        return ExactFiles(write=write, modes={path: files.get(path, 0) for path in own}, absent=absent)

    def require_restored(self, target: Checkpoint, *, before: Checkpoint, paths: Collection[str]) -> None:
        """Raise ``UsageError`` if the files ``paths`` are not those of ``target``."""
        if left := [change.path for change in self.plan(target).changes if change.path in paths]:
            shown = join_first(left, most=_SHOWN)
            raise UsageError(
                f"The restore of checkpoint {target.number} is not complete; these files differ from it: {shown}.",
                hint=f"close programs that write there and try again; the files before: cdd checkpoint restore "
                f"{before.number}",
            )

    def prune(self, *, keep: int) -> int:
        """Delete the oldest checkpoints of each ticket without a name beyond ``keep``, and return how many."""
        unnamed = [each for each in self.list_all() if not each.about.name]
        tickets = {each.about.ticket for each in unnamed}
        groups = ([each for each in unnamed if each.about.ticket == ticket] for ticket in tickets)
        return self.delete(each for own in groups for each in own[: max(0, len(own) - keep)])

    def delete(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Delete checkpoints and return how many; git keeps their objects for a while."""
        commands = [f"delete {each.ref} {each.id}\n" for each in checkpoints]
        if commands:
            self.repository.git("update-ref", ("--stdin",), stdin="".join(commands).encode())
        return len(commands)

    def _read(self, ref: str, top: str, *, number: int) -> Checkpoint:
        objects = self.repository.objects
        try:
            entries = objects.read_tree(top)
            files = entries["work"].id
            about = msgspec.convert(json.loads(objects.require(entries["meta.json"].id).text), type=Description)
            if about.schema > SCHEMA:
                raise ValueError(f"it has schema {about.schema}")
        except (ValueError, KeyError, RecursionError) as error:
            raise UsageError(
                f"The checkpoint {ref} cannot be read: {error}.",
                hint=f"see it: git show {ref}:meta.json; a newer cdd may have written it; delete it: "
                f"git update-ref -d {ref}",
            ) from error
        return Checkpoint(number=number, ref=ref, id=top, files=files, about=about)

    def _save(self, about: Description, captured: Capture) -> Checkpoint:
        """Set the ref of a new checkpoint."""
        repository = self.repository
        about = msgspec.structs.replace(
            about,
            time=SystemClock().now(),
            root=str(repository.root),
            work_tree=self._work_tree,
            head=repository.read_head() if self._shadow.has_git else None,
            branch=repository.read_branch() if self._shadow.has_git else None,
            skipped=captured.skipped,
            folders=captured.folders,
            modes=_group_modes(captured.modes),
        )
        meta = repository.blobs.write(json.dumps(msgspec.to_builtins(about)).encode())
        entries = [*self._save_index(), ("100644", "meta.json", meta), ("40000", "work", captured.tree)]
        rows = (f"{mode} {name}\0".encode() + bytes.fromhex(entry) for mode, name, entry in entries)
        top = repository.trees.write(b"".join(rows))
        refs = repository.list_ref_names(SAVED)
        number = 1 + max((int(match["number"]) for ref in refs if (match := REF.fullmatch(ref))), default=0)
        ref = f"{SAVED}{about.ticket or BY_HAND}/{number}"
        repository.refs.set(ref, top)
        return Checkpoint(number=number, ref=ref, id=top, files=captured.tree, about=about)

    def _save_index(self) -> Iterator[tuple[str, str, str]]:
        """Save the user's index as a tree, or as a file if it has conflicts, and yield its entry in a tree."""
        try:
            data = (self.repository.location.git_dir / "index").read_bytes() if self._shadow.has_git else b""
        except FileNotFoundError:
            return
        if data:
            with private_index() as index:
                Path(index["GIT_INDEX_FILE"]).write_bytes(data)
                try:
                    yield "40000", "index", self.repository.write_tree(index)
                except GitError:
                    yield "100644", "index", self.repository.blobs.write(data)

    def _list_due(self, target: Checkpoint, now: Capture) -> tuple[Change, ...]:
        """Return the changes that lead from the files now to those of ``target``."""
        changes = self._store.list_changes(now.tree, target.files)
        # The state of a ticket belongs to the commits of its steps, and these stay.
        return tuple(each for each in changes if each.path not in target.about.skipped and not is_state(each.path))

    def _require_as_planned(self, changes: Iterable[Change], plan: RestorePlan, *, now: Capture) -> None:
        since = {change.path for change in self._store.list_changes(plan.files, now.tree)}
        if changed := sorted(since.intersection(change.path for change in changes)):
            raise UsageError(
                f"You have changed files since the plan was shown: {join_first(changed, most=_SHOWN)}. "
                "Nothing was changed.",
                hint="run the same command again: it shows what would happen to them",
            )

    def _require_clear(self, changes: Collection[Change], target: Checkpoint) -> None:
        deleted = {change.path for change in changes if change.kind == "deleted"}
        found = {
            change.path: why
            for change in changes
            if (why := find_obstacle(self.repository.root, change.path, deleted=deleted))
        }
        if found:
            shown = "\n".join(f"  {path}: {why}" for path, why in list(found.items())[:_SHOWN])
            raise UsageError(
                f"Checkpoint {target.number} cannot be restored; in the way is:\n{shown}\nNothing was changed.",
                hint="clear the way, then the same again",
            )


def _group_modes(modes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the permissions as ``Description.modes``."""
    programs, others = Counter[int](), Counter[int]()
    for mode in filter(None, modes.values()):
        (programs if mode & 0o100 else others)[mode] += 1
    usual = {each.most_common(1)[0][0] for each in (programs, others) if each}
    grouped: dict[str, tuple[str, ...]] = {f"{mode:o}": () for mode in sorted(usual)}
    odd = sorted(path for path, mode in modes.items() if mode and mode not in usual)
    groups = {f"{mode:o}": tuple(path for path in odd if modes[path] == mode) for mode in {modes[path] for path in odd}}
    return grouped | groups


def _write_git_folder(folder: Path, config: str) -> None:
    """Create a git folder without history."""
    for name in ("objects", "refs", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _write(folder / "config", config.encode())
    head = folder / "HEAD"
    if not head.exists() or not head.read_bytes().endswith(b"\n"):  # a full disk can leave a part of it
        _write(head, b"ref: refs/heads/main\n")


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        try:
            path.write_bytes(content)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def _require_own_ref(ref: str) -> str:
    # The name may come from a file that somebody else wrote, and must not overwrite a branch of the user.
    if not ref.startswith(_OWN_REFS):
        raise UsageError(f"{ref!r} is not a snapshot.", hint="list the snapshots: git for-each-ref refs/cdd")
    return ref


def is_internal(path: str) -> bool:
    """Return whether a path belongs to cdd, so that no snapshot contains it."""
    # Everything in a .cdd folder belongs to cdd, except for the user's settings and commands.
    parts = path.split("/")
    is_users = parts[-2:] == [".cdd", "config.yaml"] or parts[-3:-1] == [".cdd", "commands"]
    return ".cdd" in parts[:-1] and not is_users


class FolderSurvey(NamedTuple):
    """What git does not list of a work tree."""

    empty: tuple[str, ...]
    """The innermost folders that hold nothing."""
    special: tuple[str, ...]
    """Sockets, pipes and devices, also ignored ones."""


def survey_folders(root: Path, known: Iterable[str], *, tops: tuple[str, ...]) -> FolderSurvey:
    """Look below ``tops`` for what is neither file nor link, given the files of the work tree that count.

    ``tops`` end with a slash, or are the top level as an empty text.
    """
    parents = {Path(path.rpartition("/")[0]) for path in known}
    above = {f"{parent.as_posix()}/" for each in parents for parent in (each, *each.parents)}
    inhabited = {*tops, *(folder for folder in above - {"./"} if folder.startswith(tops))}
    empty, special = list[str](), list[str]()
    for folder in sorted(inhabited):
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in entries:
                is_other = f"{folder}{entry.name}/" in inhabited or entry.name in _WITHOUT_FOLDERS
                if entry.is_dir(follow_symlinks=False):
                    inside = FolderSurvey((), ()) if is_other else _survey_folder(entry.path)
                    empty += inside.empty
                    special += inside.special
                elif not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                    special.append(entry.path)
    return FolderSurvey(*(tuple(os.path.relpath(path, root) for path in paths) for paths in (empty, special)))


def _survey_folder(top: str) -> FolderSurvey:
    """Survey a folder in which git lists nothing. If it holds a file, which git ignores, the rest does not count."""
    empty, special = list[str](), list[str]()
    for folder, inside, names in os.walk(top):
        for path in (f"{folder}/{name}" for name in names):
            if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                return FolderSurvey((), tuple(special))
            special.append(path)
        if ".git" in inside:
            return FolderSurvey((), ())
        empty += [] if inside or names else [folder]
    return FolderSurvey(tuple(empty), tuple(special))
