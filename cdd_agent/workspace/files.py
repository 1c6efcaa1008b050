"""The files of a project, confined: a path from a model, a plan or a comment can only ever mean a file in here.

A path is given with forward slashes, relative to the root or absolute inside it. Links are resolved before anything
is decided, so a link that leads outside is outside. A link may be read through when it ends inside; nothing is ever
written through one.
"""

import errno
import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from cdd_agent.errors import UsageError
from cdd_agent.storage import write_atomic

SIZE_CAP_BYTES = 256 * 1024
"""The largest file that is read."""

PRIVATE_FOLDERS = frozenset({".git", ".cdd"})
"""Neither read nor written, at any depth: git's own files and this program's."""

STATE_FILE = "execution-state.json"
"""Read by anybody, written (with all its copies) by the program alone."""

SKIPPED_FOLDERS = PRIVATE_FOLDERS | {
    ".hypothesis",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "venv",
}
"""Not listed: what tools make and nobody edits."""

_ALLOWED = "give a path inside the project, such as src/module.py"


class Workspace:
    """One project's folder."""

    def __init__(self, root: Path) -> None:
        """``root`` is the project's top folder; links in it are resolved once, here."""
        self.root = Path(os.path.realpath(root))
        self._given_root = Path(os.path.abspath(root))
        self._git_folder = _linked_git_folder(self.root)

    def locate(self, path: str) -> Path:
        """The file or folder that ``path`` means, its links resolved; it need not exist.

        Raises ``UsageError`` for a path outside the project and for one in a private folder.
        """
        lexical = self._lexical(path)
        resolved = Path(os.path.realpath(self.root / lexical))
        if not resolved.is_relative_to(self.root):
            raise UsageError(f"{path} is a link that leads outside the project.", hint=_ALLOWED)
        private = _first_private(lexical) or _first_private(resolved.relative_to(self.root))
        if private is None and self._git_folder is not None and resolved.is_relative_to(self._git_folder):
            private = self._git_folder.name
        if private is not None:
            raise UsageError(f"{path} lies in {private}, which is neither read nor written here.", hint=_ALLOWED)
        return resolved

    def locate_writable(self, path: str) -> Path:
        """The place that ``path`` means if a file may be written there.

        Raises ``UsageError`` as ``locate`` does, and for links and the state of a ticket.
        """
        resolved = self.locate(path)
        lexical = self.root / self._lexical(path)
        if lexical != resolved or os.path.islink(lexical):
            raise UsageError(
                f"{path} is a link, or lies behind one, and nothing is written through a link.",
                hint=f"write to {self.relative(path)} if that is the file you mean",
            )
        if any(_folded(part).startswith(STATE_FILE) for part in resolved.relative_to(self.root).parts):
            raise UsageError(
                f"{path} is the state of a ticket, which only the program writes.",
                hint="leave it as it is; it changes by itself as steps are completed",
            )
        return resolved

    def relative(self, path: str) -> str:
        """``path`` as every record names it: relative to the root, with forward slashes, links resolved."""
        return self.locate(path).relative_to(self.root).as_posix()

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at ``path``."""
        return os.path.exists(self.locate(path))

    def read(self, path: str) -> bytes:
        """The bytes of a text file.

        Raises ``UsageError`` if it is missing, no ordinary file, larger than ``SIZE_CAP_BYTES`` or binary (holds a
        NUL byte). Never waits: a pipe or a device is refused unread.
        """
        data = self._content(path, SIZE_CAP_BYTES + 1)
        if len(data) > SIZE_CAP_BYTES:
            raise UsageError(
                f"{path} is larger than {SIZE_CAP_BYTES // 1024} KB.", hint="search it with Grep instead of reading it"
            )
        if b"\0" in data:
            raise UsageError(f"{path} is a binary file: it holds a NUL byte.", hint="read its source instead")
        return data

    def write(self, path: str, data: bytes) -> None:
        """Put ``data`` at ``path`` in one step, making folders; raises ``UsageError`` where that is not allowed."""
        place = self.locate_writable(path)
        if os.path.exists(place) and not os.path.isfile(place):
            raise UsageError(f"{path} is a folder or no ordinary file.", hint="give the path of a file in it")
        try:
            write_atomic(place, data)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}.", hint="check the folder's name and permissions"
            ) from error

    def digest(self, path: str) -> str | None:
        """SHA-256 of the file's bytes in hexadecimal, or nothing if there is no file at ``path``."""
        if not self.exists(path):
            return None
        return hashlib.sha256(self._content(path)).hexdigest()

    def listing(self) -> tuple[str, ...]:
        """Every ordinary file of the project as a relative path, sorted; without what ``SKIPPED_FOLDERS`` names.

        A virtual environment is left out whatever its name; links to folders are not followed, and links to files
        are listed when they may be read.
        """
        found = (
            entry.path for entry in _files_beneath(str(self.root)) if not entry.is_symlink() or self._allows(entry.path)
        )
        return tuple(sorted(Path(path).relative_to(self.root).as_posix() for path in found))

    def _allows(self, path: str) -> bool:
        """Whether ``locate`` takes ``path``."""
        try:
            self.locate(path)
        except UsageError:
            return False
        return True

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

    def _content(self, path: str, size_bytes: int = -1) -> bytes:
        """Up to ``size_bytes`` of an ordinary file, all of it by default."""
        try:
            with _open_ordinary(self.locate(path)) as stream:
                return stream.read(size_bytes)
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


def _folded(name: str) -> str:
    """``name`` as the most forgiving file system would compare it: case, width and invisible characters gone."""
    visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold()


def _first_private(relative: Path) -> str | None:
    """The first component that names a private folder."""
    return next((part for part in relative.parts if _folded(part) in PRIVATE_FOLDERS), None)


def _linked_git_folder(root: Path) -> Path | None:
    """Where ``.git`` points to when it is a file: a linked worktree, a submodule, a separate git folder."""
    try:
        with _open_ordinary(root / ".git") as stream:
            text = decode(stream.read(4096))
    except OSError:
        return None
    target = text.partition("gitdir:")[2].strip()
    return Path(os.path.realpath(root / target)) if target else None


def _open_ordinary(place: Path) -> BinaryIO:
    """An ordinary file, open for reading; ``OSError`` for a link and for anything that could block or be a folder."""
    handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(mode) else "it is no ordinary file")
    return os.fdopen(handle, "rb")


def _files_beneath(folder: str) -> Iterator[os.DirEntry[str]]:
    """Ordinary files, and links to such, in ``folder`` and its listed folders; unreadable ones are passed over."""
    try:
        with os.scandir(folder) as opened:
            entries = list(opened)
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED_FOLDERS:
                yield from _files_beneath(entry.path)
        elif entry.is_file() and _folded(entry.name) not in PRIVATE_FOLDERS:
            yield entry


def _nearest(path: str, listing: tuple[str, ...]) -> str:
    """What to try instead of a file that is not there."""
    near = get_close_matches(path.removeprefix("./"), listing, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else "list the files with Glob"
