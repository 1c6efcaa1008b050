"""Confines paths from models, plans and comments to the files of the project.

``Workspace`` resolves links first and then decides, so a link that leads outside counts as outside. Files may be read
through a link that ends inside the project, and are never written through a link.

``ConfinedFolder`` opens the resolved path component by component, without following links. If someone replaces a folder
by a link between the check and the opening, the opening fails. Pipes and devices are refused before they are read,
because reading them could wait forever.

``glob`` and ``grep`` find files by name and lines by content. Every hit is checked again, because a folder may have
been replaced by a link since the listing.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.storage import find_full_disk
from cdd_agent.untrusted import paths
from cdd_agent.untrusted.keys import mask
from cdd_agent.workspace.text_file import TextFile

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_CAP = 55
"""Characters of a file's name that its temporary file repeats, since a name has at most 255 bytes."""


class DirectoryEntry(NamedTuple):
    """One entry of a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]


class ConfinedFolder:
    """A folder whose files are opened without following links.

    Names are relative to it, with forward slashes; the empty name means the folder itself. Every method raises
    ``OSError`` for a name that does not exist or that passes through a link.
    """

    def __init__(self, root: Path) -> None:
        """Open files below ``root``, whose own path must be trusted."""
        self.root = root

    def read(self, name: str, size_bytes: int = -1) -> bytes:
        """Read up to ``size_bytes`` of a regular file, by default all of it."""
        handle = self._open(name, flags=_READ)
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise _make_kind_error(mode)
        with os.fdopen(handle, "rb") as stream:
            return stream.read(size_bytes)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of ``name``, without following it if it is a link."""
        folder, last = _split_name(name)
        with self._enter(folder) as handle:
            return os.stat(last, dir_fd=handle, follow_symlinks=False) if last else os.fstat(handle)

    def exists(self, name: str) -> bool:
        """Return whether ``name`` exists; a dangling link counts."""
        try:
            self.stat(name)
        except OSError:
            return False
        return True

    def list_entries(self, name: str = "") -> tuple[DirectoryEntry, ...]:
        """Return the entries of a folder, unsorted."""
        with self._enter(name) as handle, os.scandir(handle) as listed:
            return tuple(DirectoryEntry(entry.name, _classify_entry(entry)) for entry in listed)

    def write(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        """Replace or create the file ``name`` atomically, creating missing folders.

        An existing file keeps its permission bits. Raises ``OSError`` if it is not a regular file. What is not durable
        may be lost by a power cut.
        """
        folder, last = _split_name(name)
        with self._enter(folder, creates=True) as handle:
            bits = _read_permissions(last, handle)
            temporary = f".{last[:_NAME_CAP]}.cdd-{secrets.token_hex(4)}.tmp"
            try:
                created = os.open(temporary, _CREATE, 0o666 if bits is None else 0o600, dir_fd=handle)
                with os.fdopen(created, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    if bits is not None:
                        os.fchmod(created, bits)
                    if is_durable:
                        os.fsync(created)
                os.rename(temporary, last, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=handle)
                raise
            if is_durable:
                os.fsync(handle)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself."""
        folder, last = _split_name(name)
        with self._enter(folder) as handle:
            os.unlink(last, dir_fd=handle)

    @contextlib.contextmanager
    def _enter(self, name: str, *, creates: bool = False) -> Iterator[int]:
        """Open a folder's descriptor for the block; ``creates`` the folder if it is missing."""
        handle = self._open(name, flags=_FOLDER, creates=creates)
        try:
            yield handle
        finally:
            os.close(handle)

    def _open(self, name: str, *, flags: int, creates: bool = False) -> int:
        """Open the last component with ``flags``, and those before it as folders that are no links."""
        parts = _split_components(name)
        handle = os.open(self.root, _FOLDER)
        for number, part in enumerate(parts, start=1):
            try:
                if creates:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                inner = os.open(part, flags if number == len(parts) else _FOLDER, dir_fd=handle)
            finally:
                os.close(handle)
            handle = inner
        return handle


def _split_components(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "it contains a lone surrogate", name) from error
    if ".." in parts or "\0" in name or name.startswith("/"):
        raise OSError(errno.EINVAL, "it is not a path below this folder", name)
    return parts


def _split_name(name: str) -> tuple[str, str]:
    """Return the folder and the last component; both are empty for the root."""
    *folders, last = _split_components(name) or [""]
    return "/".join(folders), last


def _read_permissions(name: str, folder: int) -> int | None:
    try:
        mode = os.stat(name or ".", dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise _make_kind_error(mode)
    return stat.S_IMODE(mode)


def _make_kind_error(mode: int) -> OSError:
    kind = "a folder" if stat.S_ISDIR(mode) else "a link" if stat.S_ISLNK(mode) else "not a regular file"
    return OSError(errno.EINVAL, f"it is {kind}")


def _classify_entry(entry: os.DirEntry[str]) -> Literal["file", "folder", "link", "other"]:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


SIZE_CAP_BYTES = 256 * 1024
"""Size of the largest file that is read at once."""
PAGED_CAP_BYTES = 16 * 1024 * 1024
"""Size of the largest file that is read in parts."""

SKIPPED_FOLDERS = (
    paths.PRIVATE_FOLDERS
    | paths.ENVIRONMENT_FOLDERS
    | {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
)
"""Folders of generated files, which are not listed."""
_ALLOWED = "give a path inside the project, such as src/module.py"


class Written(NamedTuple):
    """A file that was written."""

    path: str
    before: bytes | None
    """None for a new file."""
    after: bytes


OnWrite: TypeAlias = Callable[[Written], None]


class Workspace:
    """The files of one project."""

    def __init__(
        self,
        root: Path,
        *,
        shown_at: Path | None = None,
        on_write: OnWrite | None = None,
        list_ignored: Callable[[], Collection[str]] = tuple,
        may_read: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Use ``root`` as the project's folder; links in its path are resolved once, here.

        An absolute path may also begin with ``shown_at``, where programs in a sandbox find the folder. ``on_write`` is
        called after each write. ``list_ignored`` returns files and folders, with a slash at the end, to leave out of
        lists. ``may_read`` returns whether agents may read a file, by its path without links.
        """
        self._on_write = on_write
        self._may_read = may_read
        self._list_ignored = list_ignored
        self.root = Path(os.path.realpath(root))
        self._names = (self.root, Path(os.path.abspath(root)), *(() if shown_at is None else (shown_at,)))
        self._beneath = ConfinedFolder(self.root)
        self._git_folders = _find_git_folders(self._beneath)

    def resolve(self, path: str) -> str:
        """Return ``path`` relative to the root, with links resolved and forward slashes; it need not exist.

        ``path`` may be relative to the root or absolute. Raises ``UsageError`` for a path outside the project or in a
        private folder.
        """
        return self._resolve(path)[1]

    def _resolve(self, path: str) -> tuple[str, str]:
        """Return ``path`` relative to the root, with its links and without."""
        # Texts, because a search resolves each file of the project, and paths take several times as long.
        lexical, root = self._lexical(path).as_posix(), str(self.root)
        self._refuse_private(path, lexical)
        try:
            resolved = os.path.realpath(f"{root}/{lexical}")
        except OSError as error:  # a link was replaced while it was being resolved
            raise UsageError(f"{path} changed while it was being resolved.", hint="try again") from error
        if not f"{resolved}/".startswith(f"{root.rstrip('/')}/"):
            raise UsageError(f"{path} is a link that leads outside the project.", hint=_ALLOWED)
        name = resolved[len(root) :].lstrip("/") or "."
        if name != lexical:
            self._refuse_private(path, name)
        return lexical, name

    def _refuse_private(self, path: str, name: str) -> None:
        private = paths.find_private_part(name)
        if private is None:
            own = f"{self.root}/{name}/"
            private = next((each.name for each in self._git_folders if own.startswith(f"{each}/")), None)
        if private is not None:
            raise UsageError(f"{path} is in {private}, which agents may neither read nor write.", hint=_ALLOWED)

    def resolve_readable(self, path: str) -> str:
        """Resolve a path as ``resolve`` does; raise ``UsageError`` also for a file of secrets."""
        lexical, name = self._resolve(path)
        if paths.is_secret(lexical) or (name != lexical and paths.is_secret(name)):
            raise UsageError(
                f"By its name, {path} is a file of secrets, which agents may neither read nor write.",
                hint="read an example of it, such as .env.example, or ask the user for its content",
            )
        if not self._may_read(name):
            raise UsageError(
                f"git ignores {path}, and agents read only those ignored files that a build made or the user approved.",
                hint="ask the user for what you need of it",
            )
        return name

    def resolve_writable(self, path: str) -> str:
        """Resolve a path as ``resolve_readable`` does; raise ``UsageError`` also for links and protected files."""
        name = self.resolve_readable(path)
        lexical = self._lexical(path)
        if lexical.as_posix() != name or os.path.islink(self.root / lexical):
            happened = f"{path} is a link or passes through one, and files are not written through links."
            raise UsageError(happened, hint=f"write to {name} if you mean that file")
        reason: str | None = paths.explain_protection(name)
        folders = name.split("/")[:-1]
        above = ("/".join(folders[: end + 1]) for end in range(len(folders)))
        marks = (f"{folder}/{mark}" for folder in above for mark in paths.ENVIRONMENT_MARKS)
        if reason is None and any(map(self._beneath.exists, marks)):
            reason = "belongs to a Python environment that runs tests"
        if reason is not None:
            hint = "leave it unchanged, and ask the user to change it if needed"
            raise UsageError(f"Agents may not write {path}: it {reason}.", hint=hint)
        return name

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists at ``path``."""
        return self._beneath.exists(self.resolve(path))

    def read(self, path: str, *, cap_bytes: int = SIZE_CAP_BYTES) -> bytes:
        """Read the bytes of a file.

        Raises ``UsageError`` as ``resolve_readable`` does, and if the file is missing, not regular or larger than
        ``cap_bytes``.
        """
        try:
            data = self._read_without_links(path, cap_bytes + 1)
            if data is None:
                data = self._beneath.read(self.resolve_readable(path), cap_bytes + 1)
        except FileNotFoundError as error:
            near = get_close_matches(path.removeprefix("./"), self.list_files(), n=3, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else "list the files with Glob"
            raise UsageError(f"{path} does not exist.", hint=hint) from error
        except OSError as error:
            happened = f"{path} cannot be read: {error.strerror}."
            raise UsageError(happened, hint="list the files there with Glob") from error
        if len(data) > cap_bytes:
            hint = "read it in parts with offset and limit; change it with a command"
            raise UsageError(f"{path} is larger than {cap_bytes // 1024} KB.", hint=hint)
        return data

    def read_text(self, path: str, *, cap_bytes: int = SIZE_CAP_BYTES) -> TextFile:
        """Read a text file; raise ``UsageError`` as ``read`` does, and for a binary file (its text has a NUL)."""
        file = TextFile(name=self.resolve(path), data=self.read(path, cap_bytes=cap_bytes))
        if "\0" in file.text:
            raise UsageError(f"{path} is a binary file: it contains a NUL.", hint="read its source instead")
        return file

    def _read_without_links(self, path: str, limit_bytes: int) -> bytes | None:
        """Read a file that no link leads to; None if there is one, or another reason to look closer."""
        lexical = self._lexical(path).as_posix()
        self._refuse_private(path, lexical)
        if not paths.is_secret(lexical) and self._may_read(lexical):
            with contextlib.suppress(OSError):
                return self._beneath.read(lexical, limit_bytes)
        return None

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically, creating missing folders; raise ``UsageError`` if it may not be written."""
        name = self.resolve_writable(path)
        before = None
        if self._on_write is not None and self.exists(name):
            with contextlib.suppress(UsageError):  # too large: the change is not shown
                before = self.read(name)
        try:
            self._beneath.write(name, data)
        except OSError as error:
            happened, hint = f"{path} cannot be written: {error.strerror}.", "check the folder's name and permissions"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                full = find_full_disk(self.root)
                largest = full.largest if full is not None else None
                such = largest is not None and largest.is_relative_to(self.root) and largest.relative_to(self.root)
                hint = f"delete files that you made and do not need{f', such as {such}' if such else ''}"
            raise UsageError(happened, hint=hint) from error
        if self._on_write is not None:
            self._on_write(Written(path=name, before=before, after=data))

    def list_files(self, *, most: int | None = None) -> tuple[str, ...]:
        """Return the sorted paths of ``most`` or all regular files and links to them.

        ``SKIPPED_FOLDERS`` and ignored files are left out.
        """
        found: list[str] = []
        ignored = frozenset(self._list_ignored())
        folders = [""]
        while folders and (most is None or len(found) < most):
            folder = folders.pop()
            try:
                entries = self._beneath.list_entries(folder)
            except OSError:
                continue
            if any(entry.name in paths.ENVIRONMENT_MARKS for entry in entries):
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path in ignored or f"{path}/" in ignored:
                    continue
                if entry.kind == "folder" and paths.fold_name(entry.name) not in SKIPPED_FOLDERS:
                    folders.append(path)
                elif (entry.kind == "file" and paths.find_private_part(entry.name) is None) or (
                    entry.kind == "link" and self.is_file(path)
                ):
                    found.append(path)
        return tuple(sorted(found[:most]))

    def is_file(self, path: str) -> bool:
        """Return whether ``path`` is a regular file inside the project."""
        try:
            return stat.S_ISREG(self._beneath.stat(self.resolve(path)).st_mode)
        except (UsageError, OSError):
            return False

    def _lexical(self, path: str) -> Path:
        """Make ``path`` relative to the root without resolving links."""
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise UsageError("The path contains a lone surrogate.", hint=_ALLOWED) from error
        if not path.strip() or "\0" in path:
            raise UsageError(f"{path!r} is not a path: it is empty or contains a NUL.", hint=_ALLOWED)
        pure = Path(path)
        if ".." in pure.parts:
            raise UsageError(f"{path} contains '..', which is not allowed here.", hint=_ALLOWED)
        if not pure.is_absolute():
            return pure
        for root in self._names:
            if pure.is_relative_to(root):
                return pure.relative_to(root)
        raise UsageError(f"{path} is outside the project {self.root}.", hint=_ALLOWED)


def _find_git_folders(project: ConfinedFolder) -> tuple[Path, ...]:
    """Return git's folders if ``.git`` is a file, as in a linked work tree or a submodule."""
    try:
        text = os.fsdecode(project.read(".git", 4096))
    except OSError:
        return ()
    target = text.partition("gitdir:")[2].strip()
    if not target or "\0" in target:
        return ()
    folder = Path(os.path.realpath(project.root / target))
    try:
        shared = os.fsdecode(ConfinedFolder(folder).read("commondir", 4096)).strip()
    except OSError:
        return (folder,)
    return (folder,) if "\0" in shared else (folder, Path(os.path.realpath(folder / shared)))


HIT_CAP = 200
SHOWN_LENGTH = 300
"""Length to which the line of a hit is cut."""
_SUCH_AS = "use one such as src/**/*.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A matching line."""

    path: str
    line: int
    """1-based."""
    text: str
    """The line without its ending, cut to ``SHOWN_LENGTH`` characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """The result of a search."""

    shown: tuple[Hit, ...]
    """The hits by path, then line, up to the limit of the search."""
    total: int
    unread: int
    """Number of files skipped: binary, too large, of secrets or not readable."""
    masked: int = 0
    """Number of keys masked in the files with hits."""


def glob(workspace: Workspace, pattern: str, *, top: str = ".") -> tuple[str, ...]:
    """Return the files in the folder ``top`` whose path, relative to it, matches ``pattern``, sorted.

    ``*`` and ``?`` match within a name, ``**`` matches any folders, ``[abc]`` and ``[!abc]`` are sets, ``{a,b}`` are
    alternatives. A pattern without a slash matches names in any folder. ``top`` may be a file. Raises
    ``UsageError`` for a pattern that could only match outside the project or cannot be read, and without ``top``.
    """
    return tuple(path for path in _find_matching(workspace, pattern, top=top) if workspace.is_file(path))


def grep(workspace: Workspace, pattern: str, *, files: str = "**", top: str = ".", limit: int = HIT_CAP) -> Hits:
    """Find the lines that match a regular expression in the files that ``glob`` finds; raises ``UsageError``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        hint = "escape ( ) [ ] { } . * + ? with a backslash"
        raise UsageError(f"{pattern!r} is not a regular expression: {error}.", hint=hint) from error
    shown: list[Hit] = []
    total = unread = count = 0
    for path in _find_matching(workspace, files, top=top):
        try:
            # Masked before the search: a series of patterns could otherwise reveal a key letter by letter.
            masked = mask(workspace.read_text(path).text)
        except UsageError:
            unread += 1
            continue
        before = total
        for number, line in enumerate(masked.text.split("\n"), start=1):
            if expression.search(line):
                total += 1
                if len(shown) < limit:
                    shown.append(Hit(path=path, line=number, text=line[:SHOWN_LENGTH]))
        count += masked.count if total > before else 0
    return Hits(shown=tuple(shown), total=total, unread=unread, masked=count)


def _find_matching(workspace: Workspace, pattern: str, *, top: str) -> Iterator[str]:
    if pattern.startswith("/") or ".." in pattern.split("/") or not pattern.strip():
        raise UsageError(f"The pattern {pattern!r} does not stay inside the project.", hint=_SUCH_AS)
    anywhere = pattern if "/" in pattern else f"**/{pattern}"
    try:
        alternatives = [_split_pattern(each) for each in _expand_braces(anywhere.removeprefix("./"))]
    except ValueError as error:
        raise UsageError(f"The pattern {pattern!r} cannot be read: {error}.", hint=_SUCH_AS) from error
    folder = "" if (name := workspace.resolve(top or ".")) == "." else f"{name}/"
    if folder and not os.path.lexists(workspace.root / name):
        raise UsageError(f"{top!r} does not exist in the project.", hint="list the files: Glob with the pattern *")
    listed = (path for path in workspace.list_files() if f"{path}/".startswith(folder))
    parts = ((path, path.removeprefix(folder).split("/")) for path in listed)
    return (path for path, names in parts if any(_matches(names, each) for each in alternatives))


_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_ALTERNATIVES = 200


def _expand_braces(pattern: str) -> list[str]:
    """Replace braces with each of their alternatives, and return the patterns."""
    waiting, plain = [pattern], list[str]()
    while waiting:
        each = waiting.pop()
        if braces := _BRACES.search(each):
            waiting += [each[: braces.start()] + inner + each[braces.end() :] for inner in braces[1].split(",")]
        elif set(each) & set("{}"):
            raise ValueError("a brace is not closed, or closes nothing")
        else:
            plain.append(each)
        if len(waiting) + len(plain) > _MOST_ALTERNATIVES:
            raise ValueError(f"its braces have more than {_MOST_ALTERNATIVES} alternatives")
    return plain


def _split_pattern(pattern: str) -> list[str]:
    # A name after ``**`` may be in any folder, too: ``src/**.py`` is ``src/**/*.py``.
    return re.sub(r"\*\*(?=[^/*])", "**/*", pattern).split("/")


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of a path match, one by one; all positions of a ``**`` advance together."""
    positions = {0}
    for part in pattern:
        if part == "**":
            positions = set(range(min(positions, default=len(names) + 1), len(names) + 1))
        else:
            positions = {at + 1 for at in positions if at < len(names) and fnmatchcase(names[at], part)}
    return len(names) in positions
