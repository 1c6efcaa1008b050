"""Opening what lies below a folder by directory descriptors, so that what was checked is what is opened.

No link is followed on the way, neither in the middle of a path nor at its end, and ``..`` is none of its components:
whoever swaps a folder for a link between a check and the opening makes the opening fail, nothing else. The kernel does
it in one call where it has ``openat2``; elsewhere every component is opened in the one before it. Nothing waits: a
pipe or a device is refused unread.
"""

import contextlib
import errno
import os
import platform
import secrets
import stat
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol

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
