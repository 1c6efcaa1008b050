"""Decides which files that git ignores a run tree gets, by where they come from, and copies them.

A run tree gets what builds made (see ``origin``) with links to what is inside, and the files that the user has
approved in ``.cdd/worktree-include``. Environments and installed packages come as mounts from the test runner. Nothing
else: any other ignored file may hold a secret, whatever it is called.

Small files are copied, so that a program may change them. Larger ones can only be shared, read-only; if they are many,
as folders.
"""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from cdd_agent.config.trust import Offer
from cdd_agent.errors import CddError, UsageError, format_count, format_size, join_first
from cdd_agent.git.origin import BuildOrigin, may_hold_secret
from cdd_agent.git.repository import CopyLimits, Repository
from cdd_agent.git.runner import GitError, find_location
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted.paths import (
    explain_build,
    is_cached,
    is_environment,
    is_marked_as_environment,
    is_secret,
    is_state,
)
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

INCLUDE_FILE = ".cdd/worktree-include"
"""Patterns, as in ``.gitignore``, of ignored files that run trees get, relative to the project's folder."""

PACKAGES = frozenset({"node_modules", "bower_components", "vendor"})
MOST_SHARED = 50
"""How many files and folders may be shared, because many mounts take long."""
_CACHE_MARK = "CACHEDIR.TAG"
_CLONE = 0x40049409
"""``FICLONE`` of Linux: both files share their blocks until one changes."""
_PATTERN_BYTES = 100_000
_MOST_JUDGED = 20_000
"""How many files are opened to see whether a build made them."""
_BREAKS_LINE = re.compile(r"[\n\r]")
_SHOWN, _MOST_SHOWN = 5, 10
_MOST_NAMED = 20
"""How many files of a suffix in a folder get a line each; more get one for the suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredGroup:
    """Ignored files in one folder, which the user chooses together."""

    folder: str
    """With a slash at the end; empty at the top of the work tree."""
    paths: tuple[str, ...]
    size_bytes: int
    is_whole: bool
    """Whether git ignores the folder, and not only these files in it."""

    def describe(self) -> str:
        """Return names, number and size: ``data/ (12 files, 3.4 MB)``."""
        names = self.folder if self.is_whole else join_first(self.paths, most=3)
        return f"{names} ({format_count(len(self.paths), 'file')}, {format_size(self.size_bytes)})"

    def list_patterns(self, *, project: str = "") -> tuple[str, ...]:
        """Return the lines of ``INCLUDE_FILE`` in the folder ``project`` that add these files."""
        if _BREAKS_LINE.search(self.folder):  # a line can name nothing in it
            return ()
        folder = escape_pattern(self.folder.removeprefix(project))
        if self.is_whole:
            return (f"/{folder}",)
        if len(self.paths) > _MOST_NAMED:
            return (f"/{folder}*{escape_pattern(os.path.splitext(self.paths[0])[1])}",)
        named = (path for path in self.paths if not _BREAKS_LINE.search(path))
        return tuple(f"/{escape_pattern(path.removeprefix(project))}" for path in named)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFiles:
    """The ignored files of a work tree, by what becomes of them; paths are relative to the work tree."""

    copied: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Files and folders that are too large to copy, the largest first."""
    secret: tuple[str, ...] = ()
    """Left out: their names are those of secrets."""
    others: tuple[IgnoredGroup, ...] = ()
    """Left out: no build made them, and they are not in a cache or the like."""
    left_out: frozenset[str] = frozenset()
    """All files that are left out, those of caches too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The ignored files of a work tree, before anything is copied."""

    chosen: Mapping[str, int]
    """Path -> size of what a run tree gets."""
    secret: tuple[str, ...]
    others: Mapping[str, int]
    """Path -> size of all other files that are not in a folder that is left out."""
    whole: tuple[str, ...]
    """Folders that git ignores as a whole."""
    apart: frozenset[str] = field(default_factory=frozenset)
    """Files and folders of ``whole`` that a run tree does not get."""

    def group_others(self) -> tuple[IgnoredGroup, ...]:
        """Group the files that may matter to tests."""
        made = {top for path in self.chosen if (top := _find_whole(path, self.whole))}
        mattering = {path: size for path, size in self.others.items() if not _is_leftover(path, made=made)}
        return group_files(mattering, whole=self.whole)


def select_ignored(main: Repository, *, accepts: Callable[[str], bool] = lambda _: True) -> Selection:
    """Tell which ignored files of ``main`` a run tree gets; only paths that ``accepts`` takes count."""
    root, ignored = main.root.resolve(), main.list_ignored()
    included = frozenset(_list_included(main, main.read_included(), ignored=ignored))
    whole = tuple(name for name in ignored if name.endswith("/"))
    walked = dict.fromkeys((*_walk_ignored(ignored, root), *included))
    origin = BuildOrigin(root, list_tracked=lambda: frozenset(main.git("ls-files", ("-z",)).split("\0")))
    left = _MOST_JUDGED
    chosen, others, secret = dict[str, int](), dict[str, int](), list[str]()
    for path in walked:
        is_left_out = path.endswith("/") or is_state(path) or not accepts(path)
        size = None if is_left_out else _measure(root / path)
        if size is None:
            continue
        if path in included:
            chosen[path] = size
        elif is_secret(path):
            secret.append(path)
        elif (root / path).is_symlink():
            chosen[path] = size
        else:
            left -= 1
            is_built = left >= 0 and origin.comes_from_build(path, below=_find_whole(path, whole))
            (chosen if is_built else others)[path] = size
    return Selection(
        chosen=chosen, secret=tuple(secret), others=others, whole=whole, apart=frozenset(walked.keys() - chosen.keys())
    )


def copy_ignored(
    main: Repository, tree: Path, *, accepts: Callable[[str], bool] = lambda _: True, limits: CopyLimits | None = None
) -> IgnoredFiles:
    """Copy the ignored files that ``select_ignored`` chooses, the smallest first, up to the limits for all together."""
    limits, root = limits or main.copy_limits, main.root.resolve()
    found = select_ignored(main, accepts=accepts)
    chosen: list[str] = []
    shared: list[str] = []
    size_bytes = 0
    for path, size in sorted(found.chosen.items(), key=lambda each: (each[1], each[0])):
        if not _can_hold(tree, path):
            continue
        size_bytes += size
        is_too_much = len(chosen) >= limits.files or size_bytes > limits.size_bytes
        (shared if is_too_much else chosen).append(path)

    def can_share(folder: str) -> bool:
        # Otherwise it could hold untracked files, or some that are left out.
        is_free = f"{folder}/".startswith(found.whole) and not os.path.lexists(tree / folder)
        return is_free and not any(path.startswith(f"{folder}/") for path in found.apart)

    shared = _join_folders(shared[::-1], can_share=can_share)
    folders = tuple(f"{path}/" for path in shared if path not in found.chosen)
    chosen = [path for path in chosen if not path.startswith(folders)]
    copied = tuple(path for path in chosen if _copy(root / path, tree / path, top=root))
    return IgnoredFiles(
        copied=copied,
        shared=tuple(shared),
        secret=found.secret,
        others=found.group_others(),
        left_out=frozenset((*found.secret, *found.others)),
    )


def may_read(main: Repository, path: str) -> bool:
    """Return whether agents may read a file of the user's work tree: one that git ignores only if a run tree gets it.

    They may read installed packages, too.
    """
    try:
        if not main.match_ignored([path]):
            return True
    except GitError:  # it is in a submodule, whose own rules count
        return _is_unignored_in_submodule(main, path)
    folders = [(main.root / path).parents[number] for number in range(path.count("/"))]
    if any(folder.name in PACKAGES or is_environment(folder) for folder in folders):
        return True
    return path in select_ignored(main, accepts=lambda each: each == path).chosen


def _is_unignored_in_submodule(main: Repository, path: str) -> bool:
    file = main.root / path
    try:
        location = find_location(file.parent)
        inside = file.parent.resolve() / file.name
        own = Repository(location.root, location)
        is_inner = location.root != main.root.resolve()
        return is_inner and not own.match_ignored([inside.relative_to(location.root).as_posix()])
    except (CddError, OSError, ValueError):
        return False


def list_packages(main: Repository) -> tuple[Path, ...]:
    """Return the ignored folders of environments and installed packages in a work tree."""
    folders = (main.root / name for name in main.list_ignored() if name.endswith("/"))
    return tuple(folder for folder in folders if folder.name in PACKAGES or is_environment(folder))


NO_IGNORED_FILES = Offer(subject="ignored files", source=INCLUDE_FILE, shown=(), content=b"")
"""Stands for the answer that runs need none of the ignored files: an empty list."""


def offer_included(main: Repository, folder: Path, *, shown_from: Path, is_described: bool = True) -> Offer | None:
    """Return the list of ignored files in ``folder``, with the names that it adds now, or None without a list.

    Its content are patterns relative to the top of the work tree. To see what it adds takes two calls of git, unless
    not ``is_described``.
    """
    file = folder / INCLUDE_FILE
    try:
        content = read_ordinary(file, limit_bytes=_PATTERN_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        happened = f"{file} cannot be read: {error.strerror or error}."
        raise UsageError(happened, hint=f"see what it is: ls -l {file}") from error
    patterns = anchor_patterns(content, project=relativize(folder, main))
    lines = tuple(content.decode("utf-8", "replace").splitlines())
    return Offer(
        subject="ignored files",
        source=os.path.relpath(file, shown_from),
        # First what counts: the end of many lines is not shown.
        shown=(*_describe_included(main, patterns), "Its lines:", *lines) if is_described else (),
        content=patterns,
    )


_MOST_SUSPECTED, _SUSPECTED_BYTES = 200, 64_000
_SETS_SECRET = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|private|access)_?key)\S{0,40}\s*[:=]\s*\S{3,}"
)


def list_suspects(main: Repository, paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of the first ``paths`` whose name or text suggests that they hold a secret, for a warning."""

    def is_suspect(path: str) -> bool:
        try:
            data = read_ordinary(main.root / path, limit_bytes=_SUSPECTED_BYTES)
        except OSError:
            return is_secret(path)
        text = data.decode("utf-8", "replace")
        return is_secret(path) or _SETS_SECRET.search(text) is not None or may_hold_secret(text)

    return tuple(path for path in islice(paths, _MOST_SUSPECTED) if is_suspect(path))


def _describe_included(main: Repository, patterns: bytes) -> Iterator[str]:
    ignored = main.list_ignored()
    matched = {path: _measure(main.root / path) or 0 for path in _match(main, patterns, ignored=ignored)}
    added = {path: size for path, size in matched.items() if _may_add(path, patterns)}
    if secret := list_suspects(main, added):
        yield f"The agent could read these, which seem to hold secrets: {join_first(secret, most=_SHOWN)}"
    groups = group_files(added, whole=tuple(name for name in ignored if name.endswith("/")))
    yield "It adds these ignored files now:" if groups else "It adds no file now."
    yield from (f"  {group.describe()}" for group in groups[:_MOST_SHOWN])
    if len(groups) > _MOST_SHOWN:
        yield f"  and {len(groups) - _MOST_SHOWN} more groups"
    if refused := sorted(matched.keys() - added.keys()):
        yield f"Not added, because no line has exactly these names of secrets: {join_first(refused, most=_SHOWN)}"


def relativize(folder: Path, main: Repository) -> str:
    """Return a folder relative to the top of the work tree, with a slash at the end; empty for the top."""
    inside = folder.resolve().relative_to(main.root.resolve()).as_posix()
    return "" if inside == "." else f"{inside}/"


def anchor_patterns(content: bytes, *, project: str) -> bytes:
    """Return patterns relative to the folder ``project`` as patterns relative to the top of the work tree.

    >>> anchor_patterns(b"/a.db\\n!b/c\\n*.bin\\n# note\\n", project="pkg/")
    b'/pkg/a.db\\n!/pkg/b/c\\n/pkg/**/*.bin\\n# note\\n'
    """
    lines = content.splitlines()
    if project:
        lines = [_anchor(line, escape_pattern(project).encode("utf-8", "surrogateescape")) for line in lines]
    return b"".join(line + b"\n" for line in lines)


def _anchor(line: bytes, project: bytes) -> bytes:
    if not line.strip() or line.startswith(b"#"):
        return line
    no, pattern = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
    anywhere = b"" if b"/" in pattern.rstrip().rstrip(b"/") else b"**/"
    return no + b"/" + project + anywhere + pattern.lstrip(b"/")


def format_inclusion(main: Repository, path: str, *, project: str) -> str:
    """Return the commands that add a file of the work tree to the list of ignored files, and approve it."""
    prefix = project if path.startswith(project) else ""
    folder, pattern = main.root / prefix, f"/{escape_pattern(path.removeprefix(prefix))}"
    file = INCLUDE_FILE if folder.resolve() == Path.cwd() else str(folder / INCLUDE_FILE)
    # The echo of some shells reads a backslash as the beginning of an escape sequence.
    write = "printf '%s\\n'" if "\\" in pattern else "echo"
    make = (
        ""
        if (main.root / prefix / INCLUDE_FILE).parent.is_dir()
        else f"mkdir -p {shlex.quote(str(Path(file).parent))} && "
    )
    return f"{make}{write} {shlex.quote(pattern)} >> {shlex.quote(file)} && cdd trust"


def escape_pattern(path: str) -> str:
    """Return a path as a pattern of ``.gitignore`` that matches only this path."""
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _list_included(main: Repository, patterns: bytes, *, ignored: Iterable[str]) -> Iterator[str]:
    return (path for path in _match(main, patterns, ignored=ignored) if _may_add(path, patterns))


def _match(main: Repository, patterns: bytes, *, ignored: Iterable[str]) -> tuple[str, ...]:
    """Return the ignored files that ``patterns`` match."""
    if not patterns.strip():
        return ()
    # A copy: the user's could change between the approval and now.
    with tempfile.TemporaryDirectory(prefix="cdd-include-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "patterns"
        file.write_bytes(patterns)
        listed = main.git("ls-files", ("--others", "--ignored", f"--exclude-from={file}", "-z")).split("\0")
    files, whole = frozenset(ignored), tuple(name for name in ignored if name.endswith("/"))
    is_ours = re.compile(r"(?:^|/)\.(?:cdd|git)/").search
    found = (path for path in listed if path and not path.endswith("/") and is_ours(path) is None)
    return tuple(path for path in found if path in files or path.startswith(whole))


def _may_add(path: str, patterns: bytes) -> bool:
    """Return whether patterns may add a file: one with the name of a secret only by a line that is exactly that name.

    Otherwise a list that was approved for data would add a secret that somebody puts there later.
    """
    if not is_secret(path):
        return True
    names = {path, path.rpartition("/")[2]}
    lines = (line.strip() for line in patterns.decode("utf-8", "surrogateescape").splitlines())
    return any(re.sub(r"\\(.)", r"\1", line).removeprefix("/").removeprefix("**/") in names for line in lines)


def group_files(sizes: Mapping[str, int], *, whole: tuple[str, ...]) -> tuple[IgnoredGroup, ...]:
    """Group files by the topmost folder that git ignores as a whole, or else by folder and suffix; the largest first.

    Files that git ignores one by one, such as ``data.csv`` and ``kubeconfig``, have less in common than their folder.
    """
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for path in sizes:
        top = _find_whole(path, whole)
        folder, slash, name = path.rpartition("/")
        suffix = os.path.splitext(name)[1]
        groups.setdefault((top or folder + slash, bool(top), "" if top else suffix or name), []).append(path)
    made = (
        IgnoredGroup(
            folder=folder, is_whole=is_whole, paths=tuple(sorted(paths)), size_bytes=sum(map(sizes.__getitem__, paths))
        )
        for (folder, is_whole, _), paths in groups.items()
    )
    return tuple(sorted(made, key=lambda group: (-group.size_bytes, group.folder, group.paths)))


def _find_whole(path: str, whole: Iterable[str]) -> str:
    """Return the folder of ``whole`` that a file is in, or an empty text."""
    return next((folder for folder in whole if path.startswith(folder)), "")


_LEFTOVER = re.compile(
    r"/(?:(?:coverage|nosetests|junit|lcov)[^/.]*\.\w+|tags|thumbs\.db|desktop\.ini|[^/]*~|\.#[^/]*|"
    r"[^/]*\.(?:log|sw[op]|pid|orig|rej|bak|tsbuildinfo|iml))$|"
    r"/(?:htmlcov|coverage|cmakefiles|test-results|playwright-report)/"
)
"""What test tools, editors and desktops leave behind. It is not copied either, but not worth a question."""
_OUTPUT_FOLDER = re.compile(r"(?:^|/)(?:build|target|dist|out|obj|bin|_build|cmake-build-\w+)/$")


def _is_leftover(path: str, *, made: Collection[str]) -> bool:
    """Return whether tests do not need a file, as far as one can see: another build makes it again.

    ``made``: the ignored folders in which a build has made something.
    """
    top = _find_whole(path, made)
    is_output = bool(top) and _OUTPUT_FOLDER.search(top) is not None
    is_known = explain_build(path) is not None or is_cached(path)
    is_of_tool = any(name.startswith(".") for name in path.split("/")[:-1])
    return is_output or is_known or is_of_tool or _LEFTOVER.search(f"/{path.lower()}") is not None


def _join_folders(paths: list[str], *, can_share: Callable[[str], bool]) -> list[str]:
    """Replace paths by their folders, the deepest first, until they are few enough."""
    for depth in range(max((path.count("/") for path in paths), default=0), 0, -1):
        if len(paths) <= MOST_SHARED:
            break
        parents = {path: path.rpartition("/")[0] for path in paths if path.count("/") == depth}
        usable = set(filter(can_share, set(parents.values())))
        paths = list(dict.fromkeys(parent if (parent := parents.get(path)) in usable else path for path in paths))
    return paths


def _walk_ignored(ignored: Iterable[str], root: Path) -> Iterator[str]:
    """Yield the ignored files, and the folders, ending in a slash, that are left out."""
    for name in ignored:
        if IGNORED_FOLDERS.intersection(name.split("/")):
            continue
        if name.endswith("/"):
            yield from _walk(root, name.rstrip("/"))
        else:
            yield name


def _walk(root: Path, top: str) -> Iterator[str]:
    left_out, waiting = IGNORED_FOLDERS | PACKAGES, [top]
    while waiting:
        folder = waiting.pop()
        if folder.rpartition("/")[2] in left_out or _is_foreign(root / folder):
            yield f"{folder}/"
            continue
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    yield path


def _is_foreign(folder: Path) -> bool:
    # A repository inside the work tree is not the project's, and may hold anything.
    is_other = os.path.lexists(folder / _CACHE_MARK) or os.path.lexists(folder / ".git")
    return is_other or is_marked_as_environment(folder) or ignores_itself(folder)


def ignores_itself(folder: Path) -> bool:
    """Return whether a folder, such as the cache of a test tool, has a ``.gitignore`` that ignores all in it."""
    try:
        return read_ordinary(folder / ".gitignore", limit_bytes=1000).split()[-1:] == [b"*"]
    except OSError:
        return False


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
    leads = os.readlink(source) if source.is_symlink() else None
    if leads is not None:
        # Through an absolute link, or one that leads out, a program would reach the original.
        inside = Path(os.path.normpath(source.parent / leads))
        if not inside.is_relative_to(top):
            return False
        if os.path.isabs(leads):
            leads = os.path.relpath(inside, source.parent)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if leads is not None:
            os.symlink(leads, target)
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
