"""Checkpoints: the exact files of a work tree, saved under ``refs/cdd/checkpoints/`` and restored from there.

A checkpoint holds bytes as they are on disk: no filter, line end or attribute of git changes them. It is a tree with
the files (``work``), the user's index (``index``) and a description (``meta.json``). Its ref names no commit, so
``git log --all`` does not show it. The index, HEAD, stash and reflog of the user never change. Left out are ignored
files, repositories inside the work tree, cdd's own files, and what ``Description.skipped`` lists; a restore neither
deletes nor changes them.

git works with a second git folder, the *shadow*, whose attributes turn every conversion off. Without a repository, the
shadow is the repository: it is in the user's own folder then, outside of the project.
"""

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Self, TypeAlias

import msgspec

from cdd_agent.clock import SystemClock
from cdd_agent.errors import UsageError, format_count, join_first
from cdd_agent.events import Change
from cdd_agent.git.landing import find_obstacle
from cdd_agent.git.repository import SUBMODULE, Entry, Repository, encode_text, format_paths, private_index
from cdd_agent.git.run_tree import CONFIG, SHA256_CONFIG
from cdd_agent.git.runner import GitError, RepositoryLocation
from cdd_agent.git.snapshot import STAGE, is_internal, remove_empty_parents, survey_folders, update_index, write_paths
from cdd_agent.storage import exclusive_lock
from cdd_agent.untrusted.paths import ENVIRONMENT_FOLDERS, is_secret, is_state
from cdd_agent.work.records import find_records

SCHEMA = 1
BY_HAND = "manual"
"""In place of a ticket in the ref of a checkpoint that belongs to none."""
MOST_FILE_BYTES = 10 * 1024 * 1024
MOST_NEW_FILES = 5_000
MOST_NEW_BYTES = 200_000_000
_PATIENCE_S = 30.0
_SHOWN = 5
_PREFIX = "refs/cdd/checkpoints/"
REF = re.compile(rf"{_PREFIX}.+/(?P<number>[0-9]{{1,9}})")
"""The ref of a checkpoint; those of snapshots in the same folders have other names."""
_RAW = "* -text -filter -ident -working-tree-encoding !eol\n"
_CONVERSIONS = ("text", "crlf", "filter", "ident", "working-tree-encoding")
_PASSED_ON = ("core.excludesfile", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode")
"""Settings of the repository that say which files there are and how to write them."""
_NOT_OURS = {*ENVIRONMENT_FOLDERS, "node_modules"}

Kind: TypeAlias = Literal["run", "talk", "manual", "rollback", "restore", "undo", "redo"]
"""Before a phase or a message of the user; by hand; before a rollback, a restore, its undo, or the redo of that."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``meta.json``."""

    schema: int = SCHEMA
    kind: Kind
    time: str = ""
    """In UTC."""
    root: str = ""
    """The work tree."""
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

    @property
    def label(self) -> str:
        """Its name or its occasion, in a few words."""
        if self.kind == "run":
            return f"step {self.step} {self.phase.upper()}"
        moved = f"before the {self.kind}" + (f" of {self.of}" if self.of else "")
        return self.name or (f'"{self.words}"' if self.words else "by hand" if self.kind == "manual" else moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A saved state of the files."""

    number: int
    ref: str
    id: str
    """The tree that the ref names."""
    about: Description

    @property
    def files(self) -> str:
        """The tree of the files, as git understands it."""
        return f"{self.id}:work"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capture:
    tree: str
    modes: Mapping[str, int]
    """Path -> permissions; 0 for a link."""
    skipped: dict[str, str]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The effects of a restore, before it is applied."""

    target: Checkpoint
    kind: Kind
    changes: tuple[Change, ...]
    """From the files now to those of the checkpoint."""


class Checkpoints:
    """The checkpoints of one work tree. Of a project in a folder of it, other folders do not count."""

    def __init__(self, repository: Repository, project: Path, *, shadow: Path) -> None:
        """Create nothing."""
        self.repository = repository
        self.project = project
        self._shadow = shadow
        self.is_limited = True
        """Whether a checkpoint with too many new files is refused."""
        self._has_git = shadow != repository.location.git_dir
        inside = project.resolve().relative_to(repository.root.resolve()).as_posix()
        self._folders = () if inside == "." else (f"{inside}/",)
        self._files = Repository(repository.root, repository.location)
        self._files.runner = repository.runner  # which has read the configuration
        self._files.settings = self._list_settings
        self._index = {
            "GIT_DIR": str(shadow),
            "GIT_COMMON_DIR": str(shadow),
            "GIT_OBJECT_DIRECTORY": str(repository.location.common_dir / "objects"),
            "GIT_INDEX_FILE": str(shadow / "index"),
        }

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
        refs = self.repository.list_ref_names(_PREFIX)
        numbers = sorted((int(match["number"]), ref) for ref in refs if (match := REF.fullmatch(ref)))
        named = ((ref, self.repository.read_ref(ref), number) for number, ref in numbers)
        found = (self._read(ref, top, number=number) for ref, top, number in named if top)
        return tuple(each for each in found if everywhere or each.about.root == str(self.repository.root))

    def find(self, name: str) -> Checkpoint:
        """Return the checkpoint with this number, or the newest of this name; raises ``UsageError``."""
        known = self.list_all()
        for each in reversed(known):
            if name in (str(each.number), each.about.name):
                return each
        listed = "list them: cdd checkpoint list" if known else "make one: cdd checkpoint create"
        raise UsageError(f"This work tree has no checkpoint {name!r:.60}.", hint=listed)

    def create(self, about: Description | None = None) -> Checkpoint:
        """Save the files as they are now. Raises ``CddError``, and saves nothing, if that cannot be complete."""
        with self._locked():
            return self._save(about or Description(kind="manual"), self._capture())

    def list_changes_since(self, checkpoints: Iterable[Checkpoint]) -> dict[int, tuple[Change, ...]]:
        """Return the number of each checkpoint -> the changes from it to the files now."""
        with self._locked():
            now = self._capture().tree
        read = self.repository.objects.require
        return {each.number: self._list_changes(read(each.files).id, now) for each in checkpoints}

    def compare(self, one: Checkpoint, other: Checkpoint | None = None) -> tuple[str, str, tuple[Change, ...]]:
        """Return the trees of a checkpoint and of another, or of the files now, and the changes between them."""
        with self._locked():
            trees = one.files, self._capture().tree if other is None else other.files
        before, after = (self.repository.objects.require(tree).id for tree in trees)
        return before, after, self._list_changes(before, after)

    def plan(self, target: Checkpoint, *, kind: Kind = "restore") -> RestorePlan:
        """Return what a restore of ``target`` would do. Changes nothing."""
        with self._locked():
            now = self._capture(rules=target.files)
        changes = tuple(self._list_due(target, now))
        return RestorePlan(target=target, kind=kind, changes=changes)

    def plan_undo(self, *, is_redo: bool = False) -> RestorePlan:
        """Plan the undo of the last restore, or the redo of the last undo. Raises ``UsageError`` if there is none."""
        undone: list[Checkpoint] = []
        done: list[Checkpoint] = []
        for each in self.list_all():
            match each.about.kind:
                case "restore":
                    done, undone = [*done, each], []
                case "undo" if done:
                    done, undone = done[:-1], [*undone, each]
                case "redo" if undone:
                    done, undone = [*done, each], undone[:-1]
        stack = undone if is_redo else done
        if not stack:
            what = "No restore was undone" if is_redo else "Nothing was restored"
            raise UsageError(f"{what}, so there is nothing to bring back.", hint="list: cdd checkpoint list")
        return self.plan(stack[-1], kind="redo" if is_redo else "undo")

    def restore(self, plan: RestorePlan, *, session: str = "", talks: Mapping[str, int] | None = None) -> Checkpoint:
        """Make the files those of a checkpoint, and return a new checkpoint of the files before.

        Ignored files, those that one of the two checkpoints lacks, and the states of tickets stay as they are. Raises
        ``UsageError`` if something is in the way, when nothing was changed, or if the files are not those of the
        checkpoint afterwards.
        """
        target = plan.target
        with self._locked():
            now = self._capture(rules=target.files)
            entries = self._list_files(target.files)
            changes = tuple(self._list_due(target, now))
            self._require_clear(changes, target)
            before = self._save(
                Description(
                    kind=plan.kind,
                    ticket=target.about.ticket,
                    of=target.number,
                    session=session,
                    talks=dict(talks or {}),
                ),
                now,
            )
            for folder in set(now.folders) - set(target.about.folders):
                remove_empty_parents(self.repository.root, f"{folder}/x")
            self._write(target, changes, entries=entries)
            left = tuple(self._list_due(target, self._capture(rules=target.files)))
        if left:
            shown = join_first([change.path for change in left], most=_SHOWN)
            raise UsageError(
                f"The restore of checkpoint {target.number} is not complete; these files differ from it: {shown}.",
                hint=f"close programs that write there and try again; the files before: cdd checkpoint restore "
                f"{before.number}",
            )
        return before

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

    # What there is.

    def _read(self, ref: str, top: str, *, number: int) -> Checkpoint:
        text = self.repository.objects.require(f"{top}:meta.json").text
        try:
            about = msgspec.convert(json.loads(text), type=Description)
            if about.schema > SCHEMA:
                raise ValueError(f"it has schema {about.schema}")
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"The checkpoint {ref} cannot be read: {error}.",
                hint=f"see it: git show {ref}:meta.json; a newer cdd may have written it; delete it: "
                f"git update-ref -d {ref}",
            ) from error
        return Checkpoint(number=number, ref=ref, id=top, about=about)

    def _place(self, path: str) -> Path:
        return self.repository.root / path

    def _list_settings(self) -> tuple[tuple[str, str], ...]:
        values = {each.key: each.value for each in self.repository.runner.configuration()}
        own = tuple((key, values[key]) for key in _PASSED_ON if key in values)
        return (("core.autocrlf", "false"), ("core.safecrlf", "false"), ("core.logAllRefUpdates", "false"), *own)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        location, shadow = self.repository.location, self._shadow
        settings = self.repository.runner.configuration()
        is_long = ("extensions.objectformat", "sha256") in ((each.key, each.value) for each in settings)
        with exclusive_lock(shadow / "cdd-checkpoint.lock", purpose="A checkpoint", wait_s=_PATIENCE_S):
            _write_git_folder(shadow, SHA256_CONFIG if is_long else CONFIG)
            rules = "".join(f"{folder}/\n" for folder in sorted(_NOT_OURS)).encode()
            if self._has_git:
                rules = b""
                with contextlib.suppress(FileNotFoundError):
                    rules = (location.common_dir / "info" / "exclude").read_bytes()
            _write(shadow / "info" / "exclude", rules)
            _write(shadow / "info" / "attributes", _RAW.encode())
            (shadow / "index.lock").unlink(missing_ok=True)  # left by a git that was killed
            yield

    # How to save it.

    def _capture(self, *, rules: str = "") -> _Capture:
        """Bring the index up to date with the files, and return them.

        With ``rules``, a tree to restore, the ignore files of that tree count too. Its files are never left out,
        because the restore replaces them.
        """
        index = self._shadow / "index"
        if not index.exists():
            self._start_index()
        try:
            return self._update(rules)
        except GitError:
            if not index.exists():
                raise
            index.unlink()  # it may be damaged, and nothing but time is lost
            return self._update(rules)

    def _start_index(self) -> None:
        """Begin with the user's index, which saves reading all files, if git converts none of them and it has no marks.

        Marks hide changes of a file, or a sparse checkout omits it.
        """
        user, target = self.repository, self._shadow / "index"
        values = {each.key: each.value.lower() for each in user.runner.configuration()}
        if not self._has_git or values.get("core.autocrlf", "false") not in ("false", "no", "off", "0"):
            return
        try:
            tracked = [line.partition("\t") for line in user.git("ls-files", ("-v", "-z", "--stage")).split("\0")[:-1]]
            paths = format_paths(path for _, _, path in tracked)
            attributes = user.git("check-attr", ("-z", "--stdin"), *_CONVERSIONS, stdin=paths).split("\0")
            is_raw = all(value in ("unspecified", "unset") for value in attributes[2::3])
            if not is_raw or any(about[0] != "H" or about[-1] != "0" for about, _, _ in tracked):
                return
            # copy2 keeps the time: git compares it to find files that changed in the same moment as the index.
            shutil.copy2(user.location.git_dir / "index", target)
            absent = [
                path
                for about, _, path in tracked
                if about.startswith(f"H {SUBMODULE}") or not os.path.lexists(self._place(path))
            ]
            update_index(self._files, absent, "--force-remove", index=self._index)
        except (GitError, FileNotFoundError):  # no index, or one that depends on others, for example
            target.unlink(missing_ok=True)

    def _update(self, rules: str) -> _Capture:
        files, index = self._files, self._index
        found = files.compare_files(*self._folders, index=index)
        held = self._list_files(rules) if rules else {}
        known = found.staged.keys() | found.changed
        hidden = dict(self._list_modes(path for path in held if path not in known))
        known |= hidden.keys()
        dropped = {path for path in known if is_internal(path)}

        @cache  # asked for new files only
        def list_tracked() -> set[str]:
            return set(self.repository.git("ls-files", ("-z",)).split("\0")) if self._has_git else set()

        if any(path.rpartition("/")[2] == ".gitignore" for path in found.changed):
            listed = files.git("ls-files", ("-z", "--cached", "--ignored", "--exclude-standard"), variables=index)
            dropped |= {path for path in listed.split("\0") if path and path not in list_tracked()}
        if rules:
            dropped |= self._list_ignored(held, [path for path in known if path not in held])
        skipped = {path: "it is another repository" for path in found.nested}
        for path in found.changed - dropped - held.keys():
            why = self._explain_skip(path)
            if why and path not in list_tracked():
                skipped[path] = why
        survey = survey_folders(self.repository.root, known - dropped - skipped.keys(), tops=self._folders or ("",))
        special = {path for path in survey.special if path not in list_tracked()}
        ignored = files.match_ignored(special, variables=index)
        skipped |= dict.fromkeys(sorted(special - ignored), "it is a socket, a pipe or a device")
        dropped = (dropped | skipped.keys()) - held.keys()
        changed = (found.changed | hidden.keys()) - dropped
        self._require_few(path for path in found.new & changed if path not in list_tracked())
        update_index(files, changed, *STAGE, index=index)
        update_index(files, dropped & found.staged.keys(), "--force-remove", index=index)
        modes = dict(self._list_modes(path for path in known if path not in dropped))
        return _Capture(
            tree=files.git("write-tree", variables=index).strip(), modes=modes, skipped=skipped, folders=survey.empty
        )

    def _explain_skip(self, path: str) -> str:
        """Return why a file is left out if git does not track it; empty if it is not."""
        try:
            about = os.lstat(self._place(path))
        except OSError:
            return ""
        if is_secret(path):
            return "it holds secrets"
        if stat.S_ISREG(about.st_mode) and not os.access(self._place(path), os.R_OK):
            return "it is not readable"
        if stat.S_ISREG(about.st_mode) and about.st_size > MOST_FILE_BYTES:
            return f"it is larger than {MOST_FILE_BYTES // 1024 // 1024} MiB"
        return ""

    def _require_few(self, new: Iterable[str]) -> None:
        """Raise ``UsageError`` if there are more new files, or bytes in them, than a checkpoint may hold."""
        sizes = {}
        for path in new:
            with contextlib.suppress(OSError):
                sizes[path] = os.lstat(self._place(path)).st_size
        count, size_bytes = len(sizes), sum(sizes.values())
        if not self.is_limited or (count <= MOST_NEW_FILES and size_bytes <= MOST_NEW_BYTES):
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

    def _list_ignored(self, held: Mapping[str, Entry], paths: Iterable[str]) -> set[str]:
        """Return the ``paths`` that the ignore files among the files ``held`` by a tree exclude."""
        asked = tuple(paths)
        if not asked:
            return set()
        rules = [path for path in held if path.rpartition("/")[2] == ".gitignore"]
        with tempfile.TemporaryDirectory(prefix="cdd-rules-") as folder, private_index() as index:
            # Not in the user's files: after a kill, they would have the ignore files of another time.
            listing = "".join(f"{held[path].mode} {held[path].id}\t{path}\0" for path in rules)
            variables = {**self._index, **index, "GIT_WORK_TREE": folder}
            add = ("--add", "-z", "--index-info")
            self._files.git("update-index", add, stdin=encode_text(listing), variables=variables)
            self._files.git("checkout-index", ("--all", f"--prefix={folder}/"), variables=variables)
            return self._files.match_ignored(asked, "--no-index", variables=variables)

    def _list_modes(self, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
        for path in paths:
            with contextlib.suppress(OSError):
                mode = os.lstat(f"{self.repository.root}/{path}").st_mode
                if not stat.S_ISDIR(mode):
                    yield path, 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode)

    def _save(self, about: Description, captured: _Capture) -> Checkpoint:
        """Set the ref of a new checkpoint."""
        repository = self.repository
        about = msgspec.structs.replace(
            about,
            time=SystemClock().now(),
            root=str(repository.root),
            head=repository.read_head() if self._has_git else None,
            branch=repository.read_branch() if self._has_git else None,
            skipped=captured.skipped,
            folders=captured.folders,
            modes=_group_modes(captured.modes),
        )
        meta = repository.blobs.write(json.dumps(msgspec.to_builtins(about)).encode())
        entries = [*self._save_index(), ("100644", "meta.json", meta), ("40000", "work", captured.tree)]
        rows = (f"{mode} {name}\0".encode() + bytes.fromhex(entry) for mode, name, entry in entries)
        top = repository.trees.write(b"".join(rows))
        refs = repository.list_ref_names(_PREFIX)
        number = 1 + max((int(match["number"]) for ref in refs if (match := REF.fullmatch(ref))), default=0)
        ref = f"{_PREFIX}{about.ticket or BY_HAND}/{number}"
        repository.refs.set(ref, top)
        return Checkpoint(number=number, ref=ref, id=top, about=about)

    def _save_index(self) -> Iterator[tuple[str, str, str]]:
        """Save the user's index as a tree, or as a file if it has conflicts, and yield its entry in a tree."""
        try:
            data = (self.repository.location.git_dir / "index").read_bytes() if self._has_git else b""
        except FileNotFoundError:
            return
        if data:
            with private_index() as index:
                Path(index["GIT_INDEX_FILE"]).write_bytes(data)
                try:
                    yield "40000", "index", self.repository.git("write-tree", variables=index).strip()
                except GitError:
                    yield "100644", "index", self.repository.blobs.write(data)

    # How to bring it back.

    def _list_changes(self, before: str, after: str) -> tuple[Change, ...]:
        changes = self.repository.list_changes(before, after, submodules=False)
        return tuple(change for change in changes if not self._folders or change.path.startswith(self._folders))

    def _list_files(self, tree: str) -> dict[str, Entry]:
        files = self.repository.objects.list_files(self.repository.objects.require(tree).id)
        return {path: files[path] for path in files if path.startswith(self._folders or "")}

    def _list_due(self, target: Checkpoint, now: _Capture) -> Iterator[Change]:
        """Yield the changes that lead from the files now to those of ``target``."""
        kept = {*target.about.skipped}
        tree = self.repository.objects.require(target.files).id
        for change in self._list_changes(now.tree, tree):
            # The state of a ticket belongs to the commits of its steps, and these stay.
            if change.path not in kept and not is_state(change.path):
                yield change

    def _require_clear(self, changes: Iterable[Change], target: Checkpoint) -> None:
        changes = tuple(changes)
        deleted = {change.path for change in changes if change.kind == "deleted"}
        found = {
            change.path: why
            for change in changes
            if change.kind != "deleted" and (why := find_obstacle(self.repository.root, change.path, deleted=deleted))
        }
        if found:
            shown = "\n".join(f"  {path}: {why}" for path, why in list(found.items())[:_SHOWN])
            raise UsageError(
                f"Checkpoint {target.number} cannot be restored; in the way is what no checkpoint holds:\n{shown}\n"
                "Nothing was changed.",
                hint="move it away, then the same again",
            )

    def _write(self, target: Checkpoint, changes: Iterable[Change], *, entries: Collection[str]) -> None:
        changes, tree = tuple(changes), self.repository.objects.require(target.files).id
        deleted = [change.path for change in changes if change.kind == "deleted"]
        paths = [change.path for change in changes if change.kind != "deleted"]
        write_paths(self._files, tree, paths=paths, deleted=deleted, variables=self._index)
        about = target.about
        for folder in about.folders:
            with contextlib.suppress(OSError):
                self._place(folder).mkdir(parents=True, exist_ok=True)
        odd = {path: int(mode, 8) for mode, group in about.modes.items() for path in group}
        usual = {bool(int(mode, 8) & 0o100): int(mode, 8) for mode, group in about.modes.items() if not group}
        for path, mode in self._list_modes(entries):
            wanted = odd.get(path, usual.get(bool(mode & 0o100), mode))
            if mode and mode != wanted and path not in about.skipped:
                os.chmod(self._place(path), wanted)


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
