"""Where the records lie that cdd writes and reads back: sessions, journals, reports, comments, locks, forks, landings.

They are in git's common folder, ``COMMON/cdd/<work tree>/<package>``, because no clone brings what is there. Outside of
git they are in the user's folder. An archive can bring a ``.git``, so an owner file says whose records these are: a
random id, signed with the user's secret. Neither path nor inode is in it, so a project that its user moves, copies or
restores keeps its records. Records of somebody else are set aside beside the folder, and never read.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from cdd_agent.config.trust import find_user_folder, load_secret
from cdd_agent.storage import exclusive_lock, read_ordinary, write_atomic

FOLDER = "cdd"
"""Name of the folder in git's common folder."""
MAIN = "main"
"""Stands for the main work tree, as ``ROOT`` does for a project at the top of its work tree."""
ROOT = "root"
_REPOSITORY = "repository"
_OWNER = "owner.json"
_OWNER_BYTES = 10_000
_PATH_BYTES = 100_000
_MOST_NAME = 120
"""Characters of a folder's name that come from a path."""
_PATIENCE_S = 10.0
_ASIDE = "cdd-set-aside-"
_NUMBERED = re.compile(rf"{_ASIDE}([1-9][0-9]{{0,5}})")


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the owner file."""

    schema: int = 1
    id: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The places of the records of one project."""

    top: Path
    """The folder with the records of all work trees of the repository."""
    work_tree: str
    package: str

    @property
    def folder(self) -> Path:
        """The folder of this project's records: its sessions, journals, reports, comments and locks."""
        return self.top / self.work_tree / self.package

    @property
    def repository(self) -> Path:
        """The folder of records that the repository has once: its forks and reports that are used again."""
        return self.top / _REPOSITORY

    @property
    def landing(self) -> Path:
        """The folder of the journal of landings in this work tree, which all projects in it share."""
        return self.repository / "landing" / self.work_tree

    def locate_journal(self, slug: str) -> Path:
        """Return the path of a ticket's journal."""
        return self.folder / "journal" / slug / "events.jsonl"

    def in_tree(self, name: str) -> "Records":
        """Return the places of the same project in the linked work tree that git knows as ``name``."""
        return replace(self, work_tree=_escape(name, MAIN, _REPOSITORY))

    @property
    def place(self) -> str:
        """The name of the project among those of the repository."""
        return f"{self.work_tree}/{self.package}"


def find_records(project: Path, *, environment: Mapping[str, str] = os.environ) -> Records:
    """Return where the records of the project at ``project`` lie, after its repository's records were claimed."""
    records = locate_records(project, environment=environment)
    if records.top.name == FOLDER:
        claim(records.top, environment=environment)
    return records


def locate_records(project: Path, *, environment: Mapping[str, str] = os.environ) -> Records:
    """Return where the records of a project would lie. Neither reads nor changes them."""
    real = project.resolve()
    for top in (real, *real.parents):
        if (found := _find_git_folders(top / ".git")) is not None:
            own, common = found
            return Records(
                top=common / FOLDER,
                work_tree=MAIN if own == common else _escape(own.name, MAIN, _REPOSITORY),
                package=ROOT if top == real else _escape(str(real.relative_to(top)), ROOT),
            )
    return Records(top=find_user_folder(environment) / "records" / _escape(str(real)), work_tree=MAIN, package=ROOT)


def _find_git_folders(entry: Path) -> tuple[Path, Path] | None:
    """Return git's folder of the work tree with the entry ``.git``, and the common one; None if it is not git's."""
    # git is not started: this is needed before anything else, and its settings could come with an archive.
    try:
        if entry.is_dir():
            own = entry.resolve()
        else:
            own = (entry.parent / _read_line(entry).removeprefix("gitdir: ")).resolve()
        named = own / "commondir"
        common = (own / _read_line(named)).resolve() if named.exists() else own
    except (OSError, ValueError, RuntimeError):  # no such file, no path, a loop of links
        return None
    return (own, common) if (common / "HEAD").is_file() and (common / "objects").is_dir() else None


def _read_line(path: Path) -> str:
    return os.fsdecode(read_ordinary(path, limit_bytes=_PATH_BYTES, through_links=True)).rstrip("\r\n")


def _escape(name: str, *reserved: str) -> str:
    """Return a path as the name of one folder, which no other path has.

    >>> _escape("packages/api"), _escape("main", "main")
    ('packages%2Fapi', '%6Dain')
    """
    if name in reserved:
        return f"%{ord(name[0]):02X}{name[1:]}"
    escaped = quote(os.fsencode(name), safe="+,=@ ")
    if len(escaped) <= _MOST_NAME and not escaped.startswith("."):
        return escaped
    return f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}{escaped[-_MOST_NAME:]}"


_CLAIMED: dict[tuple[Path, Path], tuple[int, int, int]] = {}
"""Folder with records and the user's folder -> inode, size and time of the owner file that this process checked."""


def claim(top: Path, *, environment: Mapping[str, str] = os.environ) -> None:
    """Make the folder ``top`` the user's, if it is not: set records of somebody else aside, take back the user's own.

    A folder without records is made, or signed, silently.
    """
    owner, key = top / _OWNER, (top, find_user_folder(environment))
    if (known := _CLAIMED.get(key)) is not None and known == _read_state(owner):
        return
    secret = load_secret(environment)
    if not _is_owned(top, secret):
        with exclusive_lock(top.with_name(f"{FOLDER}-records.lock"), purpose="A start of cdd", wait_s=_PATIENCE_S):
            if not _is_owned(top, secret):
                _take_over(top, secret)
    if (state := _read_state(owner)) is not None:
        _CLAIMED[key] = state


def _take_over(top: Path, secret: bytes) -> None:
    if os.path.lexists(top) and not _is_empty(top):
        os.rename(top, _find_free_name(top))
    # Another user of the same repository, or another home, may have set aside what this one wrote.
    mine = [folder for folder in list_set_aside(top) if _is_owned(folder, secret)]
    if mine and not top.exists():
        os.rename(mine[-1], top)
        return
    top.mkdir(mode=0o700, exist_ok=True)
    sign(top, secret)


def sign(top: Path, secret: bytes) -> None:
    """Make a folder with records the user's."""
    name = secrets.token_hex(16)
    write_atomic(top / _OWNER, msgspec.json.encode(_Owner(id=name, signature=_sign(name, secret))) + b"\n", mode=0o600)


def _is_owned(top: Path, secret: bytes) -> bool:
    """Return whether a folder has the owner file of the user; False for a link to such a folder."""
    if top.is_symlink():
        return False
    try:
        owner = msgspec.json.decode(read_ordinary(top / _OWNER, limit_bytes=_OWNER_BYTES), type=_Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return hmac.compare_digest(owner.signature.encode(), _sign(owner.id, secret).encode())


def _sign(name: str, secret: bytes) -> str:
    return hmac.new(secret, b"records\0" + name.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def _is_empty(top: Path) -> bool:
    return top.is_dir() and not top.is_symlink() and not any(top.iterdir())


def _read_state(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        return about.st_ino, about.st_size, about.st_mtime_ns
    return None


def _find_free_name(top: Path) -> Path:
    return top.with_name(f"{_ASIDE}{max(_list_numbers(top), default=0) + 1}")


def list_set_aside(top: Path) -> tuple[Path, ...]:
    """Return the folders with records that were set aside for those in ``top``, oldest first."""
    paths = (top.with_name(f"{_ASIDE}{number}") for number in _list_numbers(top))
    return tuple(path for path in paths if path.is_dir() and not path.is_symlink())


def _list_numbers(top: Path) -> list[int]:
    found = (_NUMBERED.fullmatch(name) for name in os.listdir(top.parent))
    return sorted(int(match[1]) for match in found if match)
