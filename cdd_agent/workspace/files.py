"""The files of a project, confined: a path from a model, a plan or a comment can only ever mean a file in here.

A path is given with forward slashes, relative to the root or absolute inside it. Links are resolved before anything
is decided, so a link that leads outside is outside; what is opened then is the resolved path, without following any
link (``beneath``), so that nothing can change in between. A link may be read through when it ends inside; nothing is
ever written through one.

Opening what lies below a folder by directory descriptors, so that what was checked is what is opened.

No link is followed on the way, neither in the middle of a path nor at its end, and ``..`` is none of its components:
whoever swaps a folder for a link between a check and the opening makes the opening fail, nothing else. The kernel does
it in one call where it has ``openat2``; elsewhere every component is opened in the one before it. Nothing waits: a
pipe or a device is refused unread.
"""

import contextlib
import errno
import hashlib
import os
import platform
import secrets
import stat
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.paths import (
    ENVIRONMENT_FOLDERS,
    ENVIRONMENT_MARKS,
    PRIVATE_FOLDERS,
    folded,
    is_secret,
    private_part,
    protected_by,
)

if TYPE_CHECKING:
    import ctypes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_OPENAT2 = 437
"""The number of the system call; all architectures but one share it."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 16
"""How often the kernel may say that something moved during the call, before the path is walked instead."""
_NAME_CAP = 55
"""Characters of a file's name that its temporary one repeats: a name has at most 255 bytes."""


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]


class Beneath:
    """One folder; every name is relative to it, with forward slashes, and empty for the folder itself.

    Every method raises ``OSError``: for a name with a link on its way as for one that is not there.
    """

    def __init__(self, root: Path, *, walks: bool = False) -> None:
        """``root`` holds no links below which somebody else may write; ``walks``: do without ``openat2``."""
        self.root = root
        self._open: _Opener = _walk if walks or not has_openat2() else _openat2

    def open(self, name: str) -> BinaryIO:
        """An ordinary file, open for reading."""
        with self._opened("") as root:
            handle = self._open(root, name, flags=_READ)
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise _not_ordinary(mode)
        return os.fdopen(handle, "rb")

    def read(self, name: str, size_bytes: int = -1) -> bytes:
        """Up to ``size_bytes`` of an ordinary file, all of it by default."""
        with self.open(name) as stream:
            return stream.read(size_bytes)

    def stat(self, name: str) -> os.stat_result:
        """What is at ``name``; of a link, the link."""
        folder, last = _split(name)
        with self._opened(folder) as handle:
            return os.stat(last, dir_fd=handle, follow_symlinks=False) if last else os.fstat(handle)

    def exists(self, name: str) -> bool:
        """Whether anything is at ``name``, a link that leads nowhere included."""
        try:
            self.stat(name)
        except OSError:
            return False
        return True

    def entries(self, name: str = "") -> tuple[Entry, ...]:
        """What the folder holds, unsorted."""
        with self._opened(name) as handle, os.scandir(handle) as listed:
            return tuple(Entry(entry.name, _kind(entry)) for entry in listed)

    def write(self, name: str, data: bytes) -> None:
        """Put ``data`` at ``name`` so that a reader, or a crash, sees the old file or the new one; makes folders.

        The permission bits of a file that is there are kept. What is no ordinary file is not replaced.
        """
        folder, last = _split(name)
        with self._made(folder) as handle:
            bits = _bits_of(last, handle)
            temporary = f".{last[:_NAME_CAP]}.cdd-{secrets.token_hex(4)}.tmp"
            try:
                created = os.open(temporary, _CREATE, 0o666 if bits is None else 0o600, dir_fd=handle)
                with os.fdopen(created, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    if bits is not None:
                        os.fchmod(created, bits)
                    os.fsync(created)
                os.rename(temporary, last, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=handle)
                raise
            os.fsync(handle)

    def unlink(self, name: str) -> None:
        """Remove the file, or the link itself."""
        folder, last = _split(name)
        with self._opened(folder) as handle:
            os.unlink(last, dir_fd=handle)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        """The folder's descriptor during the block."""
        handle = self._folder(name)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _made(self, name: str) -> Iterator[int]:
        """The folder's descriptor during the block; what is missing of it is made first."""
        try:
            handle = self._folder(name)
        except FileNotFoundError:
            handle = self._made_folder(name)
        try:
            yield handle
        finally:
            os.close(handle)

    def _folder(self, name: str) -> int:
        """A descriptor of the folder."""
        root = os.open(self.root, _FOLDER)
        if name in ("", "."):
            return root
        try:
            return self._open(root, name, flags=_FOLDER)
        finally:
            os.close(root)

    def _made_folder(self, name: str) -> int:
        """A descriptor of the folder, made where it is missing."""
        handle = os.open(self.root, _FOLDER)
        for part in _parts(name):
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
            finally:
                os.close(handle)
            handle = inner
        return handle


class _Opener(Protocol):
    """A folder's descriptor and a name below it -> the descriptor of what is there."""

    def __call__(self, folder: int, name: str, /, *, flags: int) -> int: ...


@cache
def has_openat2() -> bool:
    """Whether this kernel has the call, and nothing such as a container's filter keeps it from us."""
    if sys.platform != "linux" or platform.machine() == "alpha":
        return False
    handle = os.open("/", _FOLDER)
    try:
        os.close(_call(handle, ".", flags=_FOLDER))
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _openat2(folder: int, name: str, /, *, flags: int) -> int:
    """Open ``name`` in one call of the kernel's."""
    path = "/".join(_parts(name))
    for _ in range(_TRIES):
        try:
            return _call(folder, path, flags=flags)
        except BlockingIOError:
            continue
    return _walk(folder, name, flags=flags)


def _call(folder: int, path: str, /, *, flags: int) -> int:
    """The system call itself, which the standard library has no function for."""
    import ctypes  # here, not above: it would slow the start of the program

    how = (ctypes.c_uint64 * 3)(flags, 0, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)
    handle = int(_syscall()(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
    if handle < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return handle


@cache
def _syscall() -> "ctypes._NamedFuncPointer":
    """The C library's function for a call that it has no name for."""
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


def _walk(folder: int, name: str, /, *, flags: int) -> int:
    """Open ``name`` component by component."""
    *folders, last = _parts(name)
    handle = os.dup(folder)
    try:
        for part in folders:
            above, handle = handle, os.open(part, _FOLDER, dir_fd=handle)
            os.close(above)
        return os.open(last, flags, dir_fd=handle)
    finally:
        os.close(handle)


def _parts(name: str) -> list[str]:
    """The components of a name; ``OSError`` for one that could lead elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "it holds half a character", name) from error
    if ".." in parts or "\0" in name or name.startswith("/") or not parts:
        raise OSError(errno.EINVAL, "it is no path below this folder", name)
    return parts


def _split(name: str) -> tuple[str, str]:
    """The folder and the last component; both empty for the root."""
    if name in ("", "."):
        return "", ""
    *folders, last = _parts(name)
    return "/".join(folders), last


def _bits_of(name: str, folder: int) -> int | None:
    """The permission bits of an ordinary file, nothing if it is not there."""
    try:
        mode = os.stat(name or ".", dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise _not_ordinary(mode)
    return stat.S_IMODE(mode)


def _not_ordinary(mode: int) -> OSError:
    kind = "a folder" if stat.S_ISDIR(mode) else "a link" if stat.S_ISLNK(mode) else "no ordinary file"
    return OSError(errno.EINVAL, f"it is {kind}")


def _kind(entry: os.DirEntry[str]) -> Literal["file", "folder", "link", "other"]:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


SIZE_CAP_BYTES = 256 * 1024
"""The largest file that is read at once."""

PAGED_CAP_BYTES = 16 * 1024 * 1024
"""The largest file that is read in parts."""

SKIPPED_FOLDERS = (
    PRIVATE_FOLDERS
    | ENVIRONMENT_FOLDERS
    | {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
)
"""Not listed: what tools make and nobody edits."""

_ALLOWED = "give a path inside the project, such as src/module.py"


class Workspace:
    """One project's folder."""

    def __init__(self, root: Path) -> None:
        """``root`` is the project's top folder; links in it are resolved once, here."""
        self.root = Path(os.path.realpath(root))
        self._given_root = Path(os.path.abspath(root))
        self._beneath = Beneath(self.root)
        self._git_folders = _git_folders(self._beneath)

    def relative(self, path: str) -> str:
        """The name of the file or folder that ``path`` means, which need not exist, as every record gives it.

        Relative to the root, with forward slashes, its links resolved. Raises ``UsageError`` for a path outside the
        project and for one in a private folder.
        """
        lexical = self._lexical(path)
        try:
            resolved = Path(os.path.realpath(self.root / lexical))
        except OSError as error:  # what was a link when it was looked at was none when it was read
            raise UsageError(f"{path} changed while it was looked at.", hint="try it once more") from error
        if not resolved.is_relative_to(self.root):
            raise UsageError(f"{path} is a link that leads outside the project.", hint=_ALLOWED)
        name = resolved.relative_to(self.root).as_posix()
        private = private_part(lexical.as_posix()) or private_part(name)
        if private is None:
            private = next((folder.name for folder in self._git_folders if resolved.is_relative_to(folder)), None)
        if private is not None:
            raise UsageError(f"{path} lies in {private}, which is neither read nor written here.", hint=_ALLOWED)
        return name

    def readable(self, path: str) -> str:
        """The name of what ``path`` means if its content may be shown.

        Raises ``UsageError`` as ``relative`` does, and for a file of secrets, by the name given or the resolved one.
        """
        name = self.relative(path)
        if is_secret(self._lexical(path).as_posix()) or is_secret(name):
            raise UsageError(
                f"{path} is by its name a file of secrets, which is neither read nor written here.",
                hint="read an example of it, such as .env.example, or ask the user what it is to hold",
            )
        return name

    def writable(self, path: str) -> str:
        """The name of what ``path`` means if a file may be written there.

        Raises ``UsageError`` as ``readable`` does, and for links, settings, and the state of a ticket.
        """
        name = self.readable(path)
        lexical = self._lexical(path)
        if lexical.as_posix() != name or os.path.islink(self.root / lexical):
            raise UsageError(
                f"{path} is a link, or lies behind one, and nothing is written through a link.",
                hint=f"write to {name} if that is the file you mean",
            )
        reason = protected_by(name)
        marks = (f"{folder}/{mark}" for folder in _above(name) for mark in ENVIRONMENT_MARKS)
        if reason is None and any(map(self._beneath.exists, marks)):
            reason = "lies in an environment of Python's, which tests are run with"
        if reason is not None:
            raise UsageError(
                f"{path} may not be written by an agent: it {reason}.",
                hint="leave it as it is; what has to change in it is for the user to do",
            )
        return name

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at ``path``."""
        return self._beneath.exists(self.relative(path))

    def read(self, path: str, *, cap_bytes: int = SIZE_CAP_BYTES) -> bytes:
        """The bytes of a text file.

        Raises ``UsageError`` as ``readable`` does, and if it is missing, no ordinary file, larger than ``cap_bytes``
        or binary (holds a NUL byte). Never waits: a pipe or a device is refused unread.
        """
        data = self._content(self.readable(path), path, size_bytes=cap_bytes + 1)
        if len(data) > cap_bytes:
            raise UsageError(
                f"{path} is larger than {cap_bytes // 1024} KB.",
                hint="read it in parts, with offset and limit; change it with a command",
            )
        if b"\0" in data:
            raise UsageError(f"{path} is a binary file: it holds a NUL byte.", hint="read its source instead")
        return data

    def write(self, path: str, data: bytes) -> None:
        """Put ``data`` at ``path`` in one step, making folders; raises ``UsageError`` where that is not allowed."""
        name = self.writable(path)
        try:
            self._beneath.write(name, data)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}.", hint="check the folder's name and permissions"
            ) from error

    def digest(self, path: str) -> str | None:
        """SHA-256 of the file's bytes in hexadecimal, or nothing if there is no file at ``path``."""
        name = self.relative(path)
        return hashlib.sha256(self._content(name, path)).hexdigest() if self._beneath.exists(name) else None

    def listing(self) -> tuple[str, ...]:
        """Every ordinary file of the project as a relative path, sorted; without what ``SKIPPED_FOLDERS`` names.

        An environment is left out whatever its name; links to folders are not followed, and links to files
        are listed when they end inside.
        """
        found: list[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = self._beneath.entries(folder)
            except OSError:
                continue
            if any(entry.name in ENVIRONMENT_MARKS for entry in entries):
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.kind == "folder" and folded(entry.name) not in SKIPPED_FOLDERS:
                    folders.append(path)
                elif (entry.kind == "file" and private_part(entry.name) is None) or (
                    entry.kind == "link" and self.is_file(path)
                ):
                    found.append(path)
        return tuple(sorted(found))

    def is_file(self, path: str) -> bool:
        """Whether ``path`` means an ordinary file that this workspace names."""
        try:
            return stat.S_ISREG(self._beneath.stat(self.relative(path)).st_mode)
        except (UsageError, OSError):
            return False

    def _lexical(self, path: str) -> Path:
        """``path`` relative to the root as it is written, links not resolved."""
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise UsageError("The path holds half a character.", hint=_ALLOWED) from error
        if not path.strip() or "\0" in path:
            raise UsageError(f"{path!r} is no path: it is empty or holds a NUL.", hint=_ALLOWED)
        pure = Path(path)
        if ".." in pure.parts:
            raise UsageError(f"{path} climbs with '..', which no path here may.", hint=_ALLOWED)
        if not pure.is_absolute():
            return pure
        for root in (self.root, self._given_root):
            if pure.is_relative_to(root):
                return pure.relative_to(root)
        raise UsageError(f"{path} is outside the project {self.root}.", hint=_ALLOWED)

    def _content(self, name: str, path: str, *, size_bytes: int = -1) -> bytes:
        """Up to ``size_bytes`` of an ordinary file, all of it by default; ``path``: what it was asked for as."""
        try:
            return self._beneath.read(name, size_bytes)
        except FileNotFoundError as error:
            raise UsageError(f"There is no file {path}.", hint=_nearest(path, self.listing())) from error
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror}.", hint="list the files there with Glob"
            ) from error


def decode(data: bytes) -> str:
    """The text of a file; bytes that are not UTF-8 survive the way back through ``encode``."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes that ``decode`` made ``text`` from."""
    return text.encode("utf-8", "surrogateescape")


def _above(name: str) -> list[str]:
    """The folders that a name lies in, the root excepted."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _git_folders(project: Beneath) -> tuple[Path, ...]:
    """Where git keeps its files if ``.git`` is a file: a linked work tree, a submodule, a separate git folder."""
    try:
        text = decode(project.read(".git", 4096))
    except OSError:
        return ()
    target = text.partition("gitdir:")[2].strip()
    if not target or "\0" in target:
        return ()
    folder = Path(os.path.realpath(project.root / target))
    try:
        shared = decode(Beneath(folder).read("commondir", 4096)).strip()
    except OSError:
        return (folder,)
    return (folder,) if "\0" in shared else (folder, Path(os.path.realpath(folder / shared)))


def _nearest(path: str, listing: tuple[str, ...]) -> str:
    """What to try instead of a file that is not there."""
    near = get_close_matches(path.removeprefix("./"), listing, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else "list the files with Glob"
