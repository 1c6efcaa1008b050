"""One git work tree, read and changed through the ``git`` program.

One long-lived git process answers the many small questions about objects: the commit of a ref, the differences between
two trees, the content of a file. It reads refs and objects anew each time; another process sets refs. Both end when cdd
does, however that ends, because their input is then closed.

Also detects states that prevent a commit, such as an unfinished merge or a lock, by the files in git's folder.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, NewType, TypeAlias

import msgspec

from cdd_agent.errors import UsageError
from cdd_agent.events import Change
from cdd_agent.git.runner import (
    LOCK_PAUSE_S,
    LOCK_WAIT_S,
    Argument,
    Call,
    Coprocess,
    GitError,
    GitRefused,
    GitUnable,
    RepositoryLocation,
    Runner,
    explain_failure,
    explain_index_lock,
    find_location,
    require_name,
    require_same_repository,
    run_once,
)
from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.report import Clause

SUBMODULE = "160000"
"""Mode of an entry that names a commit of another repository."""

LINK = "120000"
EXECUTABLE = "100755"
"""Mode of a symbolic link."""
_TREE = "40000"
_STAGED_SUBMODULE = re.compile(SUBMODULE + r" ([0-9a-f]+) 0\t([^\0]+)\0")
_HEADER = re.compile(rb"([0-9a-f]+) ([a-z]+) ([0-9]+)")


class Entry(msgspec.Struct, frozen=True):
    """A file in a tree or index of git."""

    mode: str
    id: str = msgspec.field(name="blob")


Pair: TypeAlias = tuple[Entry | None, Entry | None]
"""A file before and after a change; None where it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitObject:
    """An object as git stores it."""

    id: str
    kind: str
    """``commit``, ``tree``, ``blob`` or ``tag``."""
    data: bytes

    @property
    def text(self) -> str:
        """The content, with lone surrogates for bytes that are not UTF-8."""
        return self.data.decode("utf-8", "surrogateescape")

    @property
    def subject(self) -> str:
        """The first paragraph of a commit's message, in one line."""
        message = self.data.partition(b"\n\n")[2].decode("utf-8", "replace").lstrip("\n")
        return " ".join(message.partition("\n\n")[0].split("\n")).strip()


class ObjectReader:
    """Reads the objects of one repository."""

    def __init__(self, runner: Runner) -> None:
        """Start nothing before the first question."""
        self._git = Coprocess(runner, "cat-file", ("--batch",))

    def read(self, name: str) -> GitObject | None:
        """Return the object that ``name`` names, or None without one; raises ``GitError`` if it is damaged.

        ``name`` is an expression of git, such as ``refs/cdd/x^{tree}``.
        """
        if "\n" in name:  # git would take it for two questions
            return None
        with self._git.ask(f"{name}\n".encode("utf-8", "surrogateescape")) as answer:
            match = _HEADER.fullmatch(answer.read_line())
            if match is None:  # missing, or ambiguous
                return None
            data = answer.read(int(match[3]) + 1)[:-1]
        return GitObject(id=match[1].decode(), kind=match[2].decode(), data=data)

    def require(self, name: str) -> GitObject:
        """Return the object that ``name`` names; raises ``GitError`` without one."""
        found = self.read(name)
        if found is None:
            raise explain_failure("cat-file", f"bad object {name}", status=128)
        return found

    def read_tree(self, name: str) -> dict[str, Entry]:
        """Return name -> entry of the tree ``name``, or of a commit's; raises ``GitError`` without one."""
        found = self.require(f"{name}^{{tree}}")
        entries, at, size = {}, 0, len(found.id) // 2
        while at < len(found.data):
            end = found.data.index(b"\0", at)
            mode, _, path = found.data[at:end].partition(b" ")
            at = end + 1 + size
            entry = Entry(mode.decode(), found.data[end + 1 : at].hex())
            entries[path.decode("utf-8", "surrogateescape")] = entry
        return entries

    def find_entry(self, tree: str, path: str) -> Entry | None:
        """Return the entry of the file ``path`` in a tree or commit, or None without one."""
        *folders, name = path.split("/")
        for folder in folders:
            inner = self.read_tree(tree).get(folder)
            if inner is None or inner.mode != _TREE:
                return None
            tree = inner.id
        entry = self.read_tree(tree).get(name)
        return None if entry is None or entry.mode == _TREE else entry

    def list_files(self, tree: str) -> dict[str, Entry]:
        """Return path -> entry of the files in a tree or commit."""
        found: dict[str, Entry] = {}
        waiting = [("", tree)]
        while waiting:
            folder, tree = waiting.pop()
            for name, entry in self.read_tree(tree).items():
                if entry.mode == _TREE:
                    waiting.append((f"{folder}{name}/", entry.id))
                else:
                    found[f"{folder}{name}"] = entry
        return found

    def compare(self, before: str, after: str) -> dict[str, Pair]:
        """Return path -> old and new entry of the files that differ between two trees or commits, in git's order."""
        differing: dict[str, Pair] = {}
        waiting: list[tuple[str, list[str | None]]] = [("", [before, after])]
        while waiting:
            folder, trees = waiting.pop()
            old, new = ({} if tree is None else self.read_tree(tree) for tree in trees)
            for name in old.keys() | new.keys():
                pair = old.get(name), new.get(name)
                if pair[0] == pair[1]:
                    continue
                inner = [entry.id if entry and entry.mode == _TREE else None for entry in pair]
                if any(inner):
                    waiting.append((f"{folder}{name}/", inner))
                one, other = (None if entry and entry.mode == _TREE else entry for entry in pair)
                if one or other:
                    differing[f"{folder}{name}"] = one, other
        return {path: differing[path] for path in sorted(differing, key=os.fsencode)}


LIMIT_BYTES = 500_000_000
"""Upper bound for files of git such as ``packed-refs``, which holds a line for each ref."""

ROLLBACK = "refs/worktree/cdd/rollback"
"""Named the record of an unfinished rollback in earlier versions."""

_UNFINISHED = (
    (ROLLBACK, "a rollback by an earlier version of cdd", f"git update-ref -d {ROLLBACK}; before: git log {ROLLBACK}"),
    ("MERGE_HEAD", "a merge", "git merge --continue, or git merge --abort"),
    ("rebase-apply/applying", "git am", "git am --continue, or git am --abort"),
    ("rebase-merge", "a rebase", "git rebase --continue, or git rebase --abort"),
    ("rebase-apply", "a rebase", "git rebase --continue, or git rebase --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert", "git revert --continue, or git revert --abort"),
    ("sequencer", "a cherry-pick or revert", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("BISECT_LOG", "a bisect", "git bisect reset"),
)
"""A file in git's folder, the operation that it marks as unfinished, and the command that ends the operation."""


def is_unborn(location: RepositoryLocation) -> bool:
    """Return whether HEAD names a branch without commits, as opposed to a branch whose ref is damaged."""
    try:
        branch = _read_git_file(location.git_dir / "HEAD").strip().removeprefix("ref: ")
    except OSError:
        return False
    return branch.startswith("refs/heads/") and not has_ref(location, branch)


def has_ref(location: RepositoryLocation, ref: str) -> bool:
    """Return whether ``ref`` exists, even if it is damaged."""
    path = location.common_dir / ref
    if os.path.lexists(path) and not path.is_dir():  # a folder holds refs below this name, or did
        return True
    try:
        return f" {ref}\n" in _read_git_file(location.common_dir / "packed-refs")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: never report a ref as missing


def require_usable(location: RepositoryLocation) -> None:
    """Raise ``GitUnable`` if no commit or checkpoint can be made here; waits briefly for a locked index."""
    lock = location.git_dir / "index.lock"
    deadline = time.monotonic() + LOCK_WAIT_S
    while lock.exists():
        if time.monotonic() >= deadline:
            raise explain_index_lock(lock)
        time.sleep(LOCK_PAUSE_S)
    objects = location.common_dir / "objects"
    for folder in (location.git_dir, location.common_dir, objects, location.common_dir / "refs"):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise GitUnable(
                f"{folder} is not writable, so cdd cannot make commits or checkpoints.",
                hint=f'see the owner: ls -ld {folder}; take ownership: sudo chown -R "$(id -u)" {location.common_dir}',
            )
    try:
        alternates = _read_git_file(objects / "info" / "alternates")
    except OSError:
        return
    for line in alternates.splitlines():
        if line and not line.startswith(("#", '"')) and not (objects / line).is_dir():
            raise GitUnable(
                f"The repository borrows objects from {objects / line}, which does not exist.",
                hint=f"restore that folder, or correct its path: {objects}/info/alternates",
            )


def _read_git_file(path: Path) -> str:
    return read_ordinary(path, limit_bytes=LIMIT_BYTES, through_links=True).decode("utf-8", "surrogateescape")


CommitId = NewType("CommitId", str)
"""Forty hexadecimal digits, or sixty-four in a SHA-256 repository."""

OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STEPS_BACK = re.compile(r"(?<=.)(?:[~^]\d{0,6}){1,20}\Z")

_REF, _BRANCH = "ref: ", "ref: refs/heads/"
_HEAD_BYTES = 10_000
_LINE_END = "\n"


CDD_IDENTITY = {
    "GIT_AUTHOR_NAME": "cdd",
    "GIT_AUTHOR_EMAIL": "cdd@localhost",
    "GIT_COMMITTER_NAME": "cdd",
    "GIT_COMMITTER_EMAIL": "cdd@localhost",
}
"""Author of commits outside any history, which therefore need no identity of the user."""


class RefWriter:
    """Sets refs that all work trees share."""

    def __init__(self, runner: Runner) -> None:
        """Start nothing before the first change."""
        self._git = Coprocess(runner, "update-ref", ("-z", "--stdin"))

    def set(self, ref: str, target: str) -> None:
        """Make ``ref`` name the object ``target``, whatever it named before; raises ``GitError``."""
        with self._git.ask(f"start\0update {ref}\0{target}\0\0commit\0".encode()) as answer:
            for _ in ("start: ok", "commit: ok"):
                answer.read_line()

    def delete(self, ref: str) -> None:
        """Delete ``ref``, which exists; raises ``GitError``."""
        with self._git.ask(f"start\0delete {ref}\0\0commit\0".encode()) as answer:
            for _ in ("start: ok", "commit: ok"):
                answer.read_line()


class ObjectWriter:
    """Writes objects of one kind."""

    def __init__(self, runner: Runner, kind: Literal["blob", "tree", "commit"]) -> None:
        """Start nothing before the first object."""
        self._git = Coprocess(runner, "hash-object", ("-w", "-t"), kind, ("--stdin-paths", "--no-filters"))

    def write(self, data: bytes) -> str:
        """Return the id of a new object; raises ``GitError``."""
        with tempfile.TemporaryDirectory(prefix="cdd-object-", ignore_cleanup_errors=True) as folder:
            file = Path(folder, "object")
            file.write_bytes(data)
            with self._git.ask(encode_text(f"{file}\n")) as answer:
                return answer.read_line().decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFiles:
    """How the files of a work tree differ from an index."""

    staged: dict[str, str]
    """Path -> mode of the index, without submodules."""
    new: frozenset[str]
    """Paths that are not in the index."""
    changed: frozenset[str]
    """Those, and the changed and deleted paths of the index."""
    nested: frozenset[str]
    """Repositories inside the work tree that the index lacks, and submodules that are at another commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """Limits for the files of a run tree that commits do not contain: for ignored files, and separately for Git LFS."""

    size_bytes: int = 200_000_000
    files: int = 10_000
    """Ignored files only."""


class Repository:
    """A work tree with its history."""

    def __init__(self, root: Path, location: RepositoryLocation | None = None) -> None:
        """``root`` is the top level of the work tree; see ``find``."""
        self.root = root
        self.may_run_hooks: Callable[..., bool] = lambda *_: False
        """Returns whether the user approved this repository's hooks; by default those of commits."""
        self.source = root
        """The work tree of the user, where submodules are checked out; a run tree is elsewhere."""
        self.submodules: Collection[str] | None = None
        """Paths of those in a run tree, which no commit changes; None: not listed yet."""
        self.clean_index: tuple[tuple[int, ...] | None, str] = None, ""
        """A state of a run tree's index file, and the commit whose files it holds then."""
        self.copy_limits = CopyLimits()
        self.read_included: Callable[[], bytes] = bytes
        """Returns the patterns of ignored files that the user approved for run trees, relative to the top."""
        self.settings: Callable[[], tuple[tuple[str, str], ...]] = tuple
        """Returns keys and values that replace those of the configuration."""
        self.runner = Runner(root, location)
        self.objects = ObjectReader(self.runner)
        self.refs = RefWriter(self.runner)
        self.blobs, self.trees = ObjectWriter(self.runner, "blob"), ObjectWriter(self.runner, "tree")
        self.commits = ObjectWriter(self.runner, "commit")

    @classmethod
    def find(cls, folder: Path) -> "Repository":
        """Return the repository whose work tree contains ``folder``; raises ``EnvironmentMissing`` with the reason."""
        location = find_location(folder)
        require_same_repository(location)
        return cls(location.root, location)

    @classmethod
    def create(cls, folder: Path, *, branch: str = "main", again: bool = False) -> "Repository":
        """Create a repository with the user's hooks; raises ``UsageError`` if there is one, unless ``again``."""
        if (folder / ".git").exists() and not again:
            raise UsageError(f"{folder} is already a git repository.", hint="name a folder without a .git entry")
        run_once(Call(verb="init", arguments=(("--quiet", f"--initial-branch={branch}"),)), folder=folder)
        return cls(folder)

    def share_processes(self, other: "Repository") -> None:
        """Read and write objects and refs through the processes of ``other``, a work tree of the same repository."""
        self.objects, self.refs, self.commits = other.objects, other.refs, other.commits
        self.blobs, self.trees = other.blobs, other.trees

    @property
    def location(self) -> RepositoryLocation:
        """The folders of this work tree and its repository."""
        return self.runner.location

    def git(
        self,
        verb: str,
        *arguments: Argument,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> str:
        """Run ``git VERB ARGUMENTS`` and return its output; ``GitError`` quotes git if it fails.

        Only tuples contain options: ``git("log", ("-1", "--format=%s"), commit)``.

        With ``hooks``, git signs commits as the user configured, and runs hooks if the user approved them.
        """
        runs_hooks = hooks and self.may_run_hooks()
        call = Call(
            verb=verb, arguments=arguments, stdin=stdin, variables=variables or {}, hooks=runs_hooks, signs=hooks
        )
        return self.runner.run(replace(call, settings=self.settings()))

    @property
    def is_sha256(self) -> bool:
        """Whether the ids of objects have 64 digits instead of 40."""
        settings = ((each.key, each.value) for each in self.runner.configuration())
        return ("extensions.objectformat", "sha256") in settings

    def read_head(self) -> CommitId | None:
        """Return the commit that HEAD names, or None before the first commit; ``GitUnable`` if HEAD is damaged."""
        found = self._read_symbolic_head()
        if found is not None:
            text = found
            if found.startswith(_REF):
                text = _read_file(self.location.common_dir / found.removeprefix(_REF)) or ""
            with contextlib.suppress(GitError):
                if OBJECT_ID.fullmatch(text) and (commit := self.objects.read(f"{text}^{{commit}}")) is not None:
                    return CommitId(commit.id)
        try:
            return CommitId(self.git("rev-parse", ("--verify", "--quiet"), "HEAD^{commit}").strip())
        except GitRefused as error:
            if is_unborn(self.location):
                return None
            raise GitUnable(
                f"HEAD of {self.root} does not name a readable commit. {error.happened}",
                hint="see what is wrong: git fsck --full; see earlier positions of HEAD: git reflog",
            ) from error

    def read_branch(self) -> str | None:
        """Return the branch that HEAD is on, or None if it is detached."""
        found = self._read_symbolic_head()
        if found is not None:
            return found.removeprefix(_BRANCH) if found.startswith(_BRANCH) else None
        try:
            return self.git("symbolic-ref", ("--quiet", "--short"), "HEAD").strip()
        except GitError:
            return None

    def _read_symbolic_head(self) -> str | None:
        """Return the content of the file HEAD; None if refs are stored in another way, which only git can read."""
        self.location.require_own_common_dir()
        text = _read_file(self.location.git_dir / "HEAD")
        is_plain = text is not None and (OBJECT_ID.fullmatch(text) or text.startswith(_BRANCH))
        return text if is_plain and text != f"{_BRANCH}.invalid" else None

    def find_unfinished(self, *, has_conflicts: bool | None = None) -> tuple[str, str] | None:
        """Return the operation in progress, such as a merge, and the command that ends it; None if there is none.

        ``has_conflicts``: whether the index has unmerged files, if that is known.
        """
        for name, operation, command in _UNFINISHED:
            if (self.location.git_dir / name).exists():
                return operation, command
        if self.git("ls-files", ("--unmerged", "-z")) if has_conflicts is None else has_conflicts:
            return "a merge with conflicts", "git add the resolved files, or git checkout -- them"
        return None

    def is_ancestor(self, commit: str, *, of: str) -> bool:
        """Return whether ``commit`` is in the history of ``of``; False if one of them does not exist."""
        try:
            self.git("merge-base", ("--is-ancestor",), resolve_revision(self, commit), resolve_revision(self, of))
        except GitRefused:
            return False
        return True

    def write_commit(self, tree: str, *, message: str, parent: str | None = None) -> CommitId:
        """Return a new commit of cdd, on no branch, of the tree with the id ``tree``; raises ``GitError``."""
        who = f"cdd <cdd@localhost> {int(time.time())} {time.strftime('%z')}"
        parents = "" if parent is None else f"parent {parent}\n"
        text = f"tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{message}\n"
        return CommitId(self.commits.write(encode_text(text)))

    def stage(self, paths: Iterable[str], *, index: Mapping[str, str]) -> None:
        """Make a private index, given by its variables, agree with the files at ``paths``; others are deleted."""
        if listed := format_paths(sorted(paths)):
            add = ("--add", "--remove", "--replace", "-z", "--stdin")
            self.git("update-index", add, stdin=listed, variables=index)

    def stage_entries(self, entries: Mapping[str, Entry | None], *, index: Mapping[str, str] | None = None) -> None:
        """Put path -> entry into a private index, or the user's; None removes a path."""
        gone = Entry("0", "0" * (64 if self.is_sha256 else 40))
        lines = "".join(f"{(entry or gone).mode} {(entry or gone).id}\t{path}\0" for path, entry in entries.items())
        if lines:
            self.git("update-index", ("-z", "--index-info"), stdin=encode_text(lines), variables=index)

    def write_tree(self, index: Mapping[str, str]) -> str:
        """Return the tree of the files in a private index."""
        return self.git("write-tree", variables=index).strip()

    def edit_tree(self, tree: str, entries: Mapping[str, Entry | None]) -> str:
        """Return ``tree``, or that of a commit, with the ``entries`` in it; None removes a path."""
        with private_index() as index:
            read_files(self, tree, index=index)
            self.stage_entries(entries, index=index)
            return self.write_tree(index)

    def merge_trees(self, ours: CommitId, theirs: str) -> str | None:
        """Return the merged tree of two commits, whose common ancestor git finds; None if there are conflicts."""
        try:
            return self.git("merge-tree", ("--write-tree", "--no-messages"), ours, theirs).strip()
        except GitRefused:
            return None

    def list_uncommitted(self) -> tuple[str, ...]:
        """Return staged, changed and untracked paths, in git's order, even if marked with ``skip-worktree``."""
        with private_index() as index:
            copy_index(self, Path(index["GIT_INDEX_FILE"]))
            status = self.git("status", ("--porcelain", "-z", "--untracked-files=all", "--no-renames"), variables=index)
        return tuple(field[3:] for field in status.split("\0") if field)

    def brings(self, program: Path) -> bool:
        """Return whether git tracks a program, something in its environment, or a link in the path to it.

        The environment is the folder above the program's own, as in ``.venv/bin/python``. What another repository
        inside this one tracks is not known, so everything in such a repository counts as tracked.
        """
        path, root = Path(os.path.abspath(program)), self.root.resolve()
        places = (path.parent.resolve() / path.name, path.resolve(), path)
        inside = [place.relative_to(top) for place in places for top in (root, self.root) if place.is_relative_to(top)]
        has_own_folder = all(len(place.parents) > 2 for place in inside)
        if not has_own_folder or any((root / folder / ".git").exists() for i in inside for folder in i.parents[:-1]):
            return True
        tracked = self.git("ls-files", ("-z",)).split("\0")
        on_the_way = {part.as_posix() for place in inside for part in (place, *place.parents[:-1])}
        environments = tuple(f"{place.parent.parent.as_posix()}/" for place in inside)
        return any(name in on_the_way or name.startswith(environments) for name in tracked)

    def list_ignored(self) -> tuple[str, ...]:
        """Return ignored files, and folders (ending in a slash) that an ignore rule matches as a whole."""
        fields = self.git(
            "status", ("--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignored=matching")
        )
        return tuple(field[3:] for field in fields.split("\0") if field.startswith("!! "))

    def list_ignored_in(self, folder: Path) -> tuple[str, ...]:
        """Return those below ``folder``, relative to it; none if git fails."""
        inside = folder.resolve().relative_to(self.root.resolve()).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        with contextlib.suppress(GitError):
            return tuple(path.removeprefix(prefix) for path in self.list_ignored() if path.startswith(prefix))
        return ()

    def match_ignored(
        self, paths: Iterable[str], *options: str, variables: Mapping[str, str] | None = None
    ) -> set[str]:
        """Return those of ``paths``, relative to the top of the work tree, that git ignores."""
        asked = format_paths(f"./{path}" for path in paths)  # a colon at the start would be taken for a pattern
        variables = {**(variables or {}), "GIT_LITERAL_PATHSPECS": "0"}  # git refuses it here
        try:
            found = (
                self.git("check-ignore", (*options, "-z", "--stdin"), stdin=asked, variables=variables) if asked else ""
            )
        except GitRefused as error:
            if error.status != 1:  # 1: none of them
                raise
            return set()
        return {path.removeprefix("./") for path in found.split("\0") if path}

    def list_submodules(self, *, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return path -> recorded commit of the submodules in the index."""
        staged = self.git("ls-files", ("--stage", "-z"), variables=variables)
        return {path: commit for commit, path in _STAGED_SUBMODULE.findall(staged)}

    def read_attribute(self, name: str, paths: Iterable[str]) -> dict[str, str]:
        """Return path -> value of a git attribute, ``unspecified`` if it has none."""
        fields = self.git("check-attr", ("-z", "--stdin"), name, stdin=format_paths(paths)).split("\0")
        return dict(zip(fields[0::3], fields[2::3], strict=False))

    def explain_fixed(self, paths: Iterable[str]) -> dict[str, Clause]:
        """Return path -> why no commit of a run may change it, for some of ``paths``."""
        known = self.list_submodules() if self.submodules is None else self.submodules
        folders = tuple(f"{path}/" for path in known)
        fixed = {path: Clause("in_submodule") for path in paths if path.startswith(folders)}
        if self.settings() and (self.location.common_dir / "lfs").exists():  # else git-lfs was never used here
            large = (path for path, name in self.read_attribute("filter", paths).items() if name == "lfs")
            fixed |= dict.fromkeys(large, Clause("in_git_lfs"))
        return fixed

    def list_nested(self) -> frozenset[str]:
        """Return untracked repositories inside the work tree, and submodules that are at another commit."""
        return self.compare_files().nested

    def compare_files(self, *folders: str, index: Mapping[str, str] | None = None) -> ComparedFiles:
        """Compare the files, or those in ``folders``, with the user's index or that of the variables ``index``."""
        # Not `add --update`: it runs git inside each submodule, with the configuration of that repository.
        which = ("-t", "-z", "--stage", "--modified", "--deleted", "--others", "--exclude-standard", "--")
        listed = self.git("ls-files", which, *folders, variables=index).split("\0")
        staged: dict[str, str] = {}
        new, changed, nested = set(), set(), set()
        for tag, _, about in (line.partition(" ") for line in listed if line):
            mode, path = ("", about) if tag == "?" else (about.partition(" ")[0], about.partition("\t")[2])
            if mode == SUBMODULE or (tag == "?" and path.endswith("/")):
                nested |= {path} if tag in "?C" else set()
            elif tag == "?":
                new.add(path)
            else:
                staged[path] = mode
                changed |= {path} if tag in "CRM" else set()
        return ComparedFiles(
            staged=staged, new=frozenset(new), changed=frozenset(changed | new), nested=frozenset(nested)
        )

    def read_ref(self, ref: str) -> CommitId | None:
        """Return the object that ``ref`` names, or None without it."""
        if (self.location.common_dir / "reftable").exists():
            return self.list_refs(ref).get(ref)
        # Without the ref git would take its name for that of a tag, which comes with a clone.
        found = self.objects.read(ref) if has_ref(self.location, ref) else None
        return None if found is None else CommitId(found.id)

    def list_refs(self, pattern: str) -> dict[str, CommitId]:
        """Return ref -> object of the ref ``pattern`` and the refs below it."""
        listed = self.git("for-each-ref", ("--format=%(refname) %(objectname)",), pattern).split()
        return dict(zip(listed[::2], map(CommitId, listed[1::2]), strict=True))

    def list_ref_names(self, folder: str) -> frozenset[str]:
        """Return the names of the refs below ``folder``, which ends in a slash. Starts git only for reftables."""
        if ((common := self.location.common_dir) / "reftable").exists():
            return frozenset(self.list_refs(folder))
        found = (os.path.join(top, name) for top, _, names in os.walk(common / folder) for name in names)
        names = {os.path.relpath(path, common) for path in found}
        with contextlib.suppress(FileNotFoundError):
            names |= {line.partition(" ")[2] for line in _read_git_file(common / "packed-refs").splitlines()}
        return frozenset(name for name in names if name.startswith(folder) and not name.endswith(".lock"))

    def list_changes(self, before: str, after: str, *, submodules: bool = True) -> tuple[Change, ...]:
        """Return the paths that differ between two trees or commits, in git's order."""
        pairs = self.objects.compare(resolve_revision(self, before), resolve_revision(self, after))
        return tuple(
            Change(path=path, kind="created" if old is None else "deleted" if new is None else "modified")
            for path, (old, new) in pairs.items()
            if submodules or any(entry is not None and entry.mode != SUBMODULE for entry in (old, new))
        )


def name_submodule(path: str) -> str:
    """Return the name of the folder in which a run tree has the index of the submodule ``path``."""
    return hashlib.sha256(encode_text(path)).hexdigest()


def _read_file(path: Path) -> str | None:
    try:
        return read_ordinary(path, limit_bytes=_HEAD_BYTES).decode("utf-8", "surrogateescape").rstrip("\n")
    except OSError:
        return None


def resolve_revision(repository: Repository, name: str) -> str:
    """Return the id of a commit, whose name may end in ``~2`` or ``^``, or an id unchanged; raises ``UsageError``."""
    if OBJECT_ID.fullmatch(name):
        return name
    start = _STEPS_BACK.sub("", name)
    try:
        # The name may come from a file that somebody else wrote, and must not be read as an option.
        if not start.startswith("refs/") and start != "HEAD" and not OBJECT_ID.fullmatch(start):
            repository.git("check-ref-format", ("--branch",), start)
        return repository.git("rev-parse", ("--verify", "--quiet", "--end-of-options"), f"{name}^{{commit}}").strip()
    except GitRefused as error:
        steps = "" if start == name else ", or goes back further than its history"
        hint = "list branches and commits: git branch --all, git log --oneline"
        raise UsageError(f"{name!r} does not name a commit of this repository{steps}.", hint=hint) from error


def encode_text(text: str) -> bytes:
    """Return ``text`` as git's input, with the original bytes of paths that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def format_lines(names: Iterable[str]) -> bytes:
    """Return commits, refs or objects as git's input, one per line; raises ``GitRefused`` for other words."""
    return encode_text("".join(f"{require_name(name, ends=_LINE_END)}\n" for name in names))


def format_paths(paths: Iterable[str]) -> bytes:
    """Return paths as git's input, each terminated by a NUL."""
    return encode_text("".join(f"{path}\0" for path in paths))


@contextlib.contextmanager
def private_index() -> Iterator[dict[str, str]]:
    """Yield the variables that make git use a temporary index."""
    # A git that was killed while starting may still write into the folder, so its removal may fail.
    with tempfile.TemporaryDirectory(prefix="cdd-index-", ignore_cleanup_errors=True) as folder:
        yield {"GIT_INDEX_FILE": str(Path(folder) / "index")}


def copy_index(repository: Repository, target: Path) -> None:
    """Copy the user's index, if there is one, so that git compares every file with the copy."""
    try:
        copy_marked_index(repository, target)
    except FileNotFoundError:
        return
    if repository.source != repository.root:  # nobody sets marks in a run tree
        return
    index = {"GIT_INDEX_FILE": str(target)}
    tagged = repository.git("ls-files", ("-v", "-z"), variables=index).split("\0")
    clear_marks(repository, ((entry[0], entry[2:]) for entry in tagged if entry), index=index)


def copy_marked_index(repository: Repository, target: Path) -> None:
    """Copy the user's index with its marks, which hide changes; raises ``FileNotFoundError`` if there is none."""
    # copy2 keeps the time: git compares it to find files that changed in the same moment as the index.
    shutil.copy2(repository.location.git_dir / "index", target)


def clear_marks(
    repository: Repository, tagged: Iterable[tuple[str, str]], *, index: Mapping[str, str]
) -> frozenset[str]:
    """Clear the marks that hide changes in a copy of the user's index; return the paths that stay ``skip-worktree``.

    ``tagged`` are the tags and paths of ``git ls-files -v``. Users set ``skip-worktree`` and ``assume-unchanged`` to
    hide local changes. The copy keeps these marks only for files that a sparse checkout omits.
    """
    marked = [(tag, path) for tag, path in tagged if tag == "S" or tag.islower()]
    omitted = set[str]()
    if marked and is_sparse(repository):
        omitted = {path for _, path in marked if not _is_present(repository.root, path)}
    for option, tags in (("--no-assume-unchanged", ascii_lowercase), ("--no-skip-worktree", "sS")):
        if paths := format_paths(path for tag, path in marked if tag in tags and path not in omitted):
            repository.git("update-index", (option, "-z", "--stdin"), stdin=paths, variables=index)
    return frozenset(path for tag, path in marked if tag in "sS" and path in omitted)


def read_files(repository: Repository, tree: str, *, index: Mapping[str, str]) -> None:
    """Make the files of ``tree``, or of a commit, the content of a private index, with the marks of a sparse checkout.

    In a partial clone, git writes no tree if an object is missing of a file without such a mark.
    """
    repository.git("read-tree", tree, variables=index)
    if is_sparse(repository):
        tagged = repository.git("ls-files", ("-t", "-z")).split("\0")
        known = set(repository.git("ls-files", ("-z",), variables=index).split("\0"))
        omitted = format_paths(entry[2:] for entry in tagged if entry[:1] == "S" and entry[2:] in known)
        repository.git("update-index", ("--skip-worktree", "-z", "--stdin"), stdin=omitted, variables=index)


def is_sparse(repository: Repository) -> bool:
    """Return whether the work tree may lack files that git tracks."""
    values = [each.value for each in repository.runner.configuration() if each.key == "core.sparsecheckout"]
    return bool(values) and values[-1].lower() not in ("false", "no", "off", "0")


def _is_present(root: Path, path: str) -> bool:
    # A path behind a link to a folder elsewhere is not in this work tree.
    target = root / path
    return os.path.lexists(target) and target.parent.resolve() == root.resolve() / Path(path).parent
