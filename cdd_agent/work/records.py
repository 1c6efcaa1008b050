"""Where the records lie that cdd writes and reads back: sessions, journals, reports, comments, locks, forks, landings.

They are in git's common folder, ``COMMON/cdd/<work tree>/<package>``, because no clone brings what is there. Outside of
git they are in the user's folder. An archive can bring a ``.git``, so an owner file says whose records these are: a
random id, signed with the user's secret. Neither path nor inode is in it, so a project that its user moves, copies or
restores keeps its records. Records of somebody else are set aside beside the folder, and never read. Where the user may
not write in git's folder, records are in the user's folder too.
"""

import contextlib
import errno
import filecmp
import hashlib
import hmac
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from cdd_agent.config.trust import find_user_folder, load_secret
from cdd_agent.storage import RECORDS, SET_ASIDE, exclusive_lock, read_ordinary, sweep, write_atomic

MAIN = "main"
"""Stands for the main work tree, as ``ROOT`` does for a project at the top of its work tree."""
ROOT = "root"
_REPOSITORY = "repository"
_OWNER = "owner.json"
_OWNER_BYTES = 10_000
_CACHES = frozenset({"reports", "requests", "shadow"})
"""Folders of an earlier version, with nothing that this one reads."""
_PATH_BYTES = 100_000
_MOST_NAME = 120
"""Characters of a folder's name that come from a path."""
_PATIENCE_S = 10.0
_REPORT_BYTES = 30_000_000
_NUMBERED = re.compile(rf"{SET_ASIDE}([1-9][0-9]{{0,5}})")


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the owner file."""

    schema: int = 1
    id: str
    signature: str
    has_earlier: bool = False
    """An earlier version of cdd has worked for this user in the repository, and kept records in ``.cdd``."""


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
    claim(records, environment=environment)
    return records


def locate_records(project: Path, *, environment: Mapping[str, str] = os.environ) -> Records:
    """Return where the records of a project would lie. Neither reads nor changes them."""
    real = project.resolve()
    for top in (real, *real.parents):
        if (found := _find_git_folders(top / ".git")) is not None:
            own, common = found
            return Records(
                top=_choose_top(common, environment=environment),
                work_tree=MAIN if own == common else _escape(own.name, MAIN, _REPOSITORY),
                package=ROOT if top == real else _escape(str(real.relative_to(top)), ROOT),
            )
    return locate_outside(real, environment=environment)


def _choose_top(common: Path, *, environment: Mapping[str, str]) -> Path:
    top = common / RECORDS
    if _can_replace(top) or _is_owned(top, load_secret(environment)):
        return top
    return locate_outside(common, environment=environment).top


def _can_replace(top: Path) -> bool:
    """Return whether the user may create the folder, or set aside what is in its place."""
    if not os.access(top.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return False
    around, own = os.stat(top.parent), os.geteuid()
    is_sticky = around.st_mode & stat.S_ISVTX and own not in (0, around.st_uid) and os.path.lexists(top)
    return not is_sticky or os.lstat(top).st_uid == own


def locate_outside(project: Path, *, environment: Mapping[str, str] = os.environ) -> Records:
    """Return where the records of a project lie that is in no repository."""
    top = find_user_folder(environment) / "records" / _escape(str(project.resolve()))
    return Records(top=top, work_tree=MAIN, package=ROOT)


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


def claim(records: Records, *, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Make a repository's records the user's, if they are not: set aside what somebody else wrote.

    Returns where it was set aside, or None. A folder without records is made silently, and records of the user's own
    that another user's cdd has set aside are taken back.
    """
    top, aside = records.top, None
    owner, key = top / _OWNER, (top, find_user_folder(environment))
    known = _CLAIMED.get(key)
    if top.name != RECORDS or (known is not None and known == _read_state(owner)):
        return None
    secret = load_secret(environment)
    if not _is_owned(top, secret):
        with exclusive_lock(top.with_name(f"{RECORDS}-records.lock"), purpose="A start of cdd", wait_s=_PATIENCE_S):
            if not _is_owned(top, secret):
                aside = _take_over(top, secret)
    if (state := _read_state(owner)) is not None:
        _CLAIMED[key] = state
    return aside


def _take_over(top: Path, secret: bytes) -> Path | None:
    aside = None
    is_earlier = _is_of_earlier_version(top, secret)
    if top.is_dir() and not top.is_symlink():
        sweep((top,))  # a kill while the owner file was first written leaves nothing worth setting aside
    if os.path.lexists(top) and not is_earlier and not _is_empty(top):
        names = (top.with_name(f"{SET_ASIDE}{number}") for number in count(1))
        aside = next(path for path in names if not os.path.lexists(path))
        os.rename(top, aside)
    # Another user of the same repository, or another home, may have set aside what this one wrote.
    mine = [folder for folder in list_set_aside(top) if _is_owned(folder, secret)]
    if mine and not top.exists():
        os.rename(max(mine, key=lambda folder: folder.stat().st_mtime), top)
        return aside
    top.mkdir(mode=0o700, exist_ok=True)
    top.chmod(0o700)
    name = secrets.token_hex(16)
    owner = _Owner(id=name, signature=_sign(name, secret), has_earlier=is_earlier)
    write_atomic(top / _OWNER, msgspec.json.encode(owner) + b"\n", mode=0o600)
    for cache in _CACHES if aside is None else ():
        shutil.rmtree(top / cache, ignore_errors=True)
    return aside


def _is_of_earlier_version(top: Path, secret: bytes) -> bool:
    """Return whether a folder holds only what an earlier version kept there, which signed its reports."""
    if top.is_symlink() or not top.is_dir() or not _CACHES.issuperset(_list_names(top)):
        return False
    key, reports = hashlib.sha256(b"reports" + secret).digest(), top / "reports"
    for path in sorted(reports.glob("*.json")) if not reports.is_symlink() else ():
        with contextlib.suppress(OSError):
            signature, _, body = read_ordinary(path, limit_bytes=_REPORT_BYTES).partition(b"\n")
            if hmac.compare_digest(signature, hmac.new(key, body, "sha256").hexdigest().encode()):
                return True
    return False


def has_earlier_records(records: Records, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether an earlier version of cdd has certainly worked for this user in the repository."""
    owner = _read_owner(records.top, load_secret(environment))
    return owner is not None and owner.has_earlier


def _is_owned(top: Path, secret: bytes) -> bool:
    return _read_owner(top, secret) is not None


def _read_owner(top: Path, secret: bytes) -> _Owner | None:
    """Return the owner file of a folder if the user signed it; None for a link to such a folder."""
    try:
        owner = msgspec.json.decode(read_ordinary(top / _OWNER, limit_bytes=_OWNER_BYTES), type=_Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    is_signed = hmac.compare_digest(os.fsencode(owner.signature), os.fsencode(_sign(owner.id, secret)))
    return owner if is_signed and not top.is_symlink() else None


def _sign(name: str, secret: bytes) -> str:
    return hmac.new(secret, b"records\0" + name.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def _is_empty(top: Path) -> bool:
    return top.is_dir() and not top.is_symlink() and set(_list_names(top)) <= _CACHES - {"reports"}


def _list_names(top: Path) -> list[str]:
    try:
        return os.listdir(top)
    except PermissionError:  # of another user
        return ["?"]


def _read_state(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        return about.st_ino, about.st_size, about.st_mtime_ns
    return None


def list_set_aside(top: Path) -> tuple[Path, ...]:
    """Return the folders with records that were set aside for those in ``top``."""
    paths = (top.with_name(f"{SET_ASIDE}{number}") for number in _list_numbers(top))
    return tuple(path for path in paths if path.is_dir() and not path.is_symlink())


def _list_numbers(top: Path) -> list[int]:
    found = (_NUMBERED.fullmatch(name) for name in os.listdir(top.parent))
    return sorted(int(match[1]) for match in found if match)


OLD_NAMES = (
    *("archive", "comments", "forks.json", "green", "history", "impact.json", "journal", "landing/journal.json"),
    *("locks", "reports", "sessions", "tdd", "undone.json"),
)
"""The records that an earlier version kept in ``.cdd``."""
_STAGE = "stage"


def list_old(project: Path) -> tuple[Path, ...]:
    """Return the records in the project's ``.cdd``, which an earlier version wrote, or a clone has brought."""
    folder = project / ".cdd"
    found = [folder / name for name in OLD_NAMES if not (folder.is_symlink() or (folder / name).parent.is_symlink())]
    own = (path for path in found if not path.is_symlink())
    return tuple(path for path in own if path.is_file() or (path.is_dir() and any(path.iterdir())))


def is_ready(project: Path) -> bool:
    """Return whether the records of a project are the user's, and cdd has started in it before."""
    records = locate_records(project)
    is_claimed = records.top.name != RECORDS or _is_owned(records.top, load_secret(os.environ))
    return is_claimed and read_stage(records) == "done"


def read_stage(records: Records) -> str:
    """Return ``done``, ``moving`` if the first start was interrupted, or nothing before it."""
    with contextlib.suppress(OSError):
        return read_ordinary(records.folder / _STAGE, limit_bytes=10).decode("ascii", "replace").strip()
    return ""


def save_stage(records: Records, state: Literal["moving", "done"]) -> None:
    """Remember how far the first start is."""
    write_atomic(records.folder / _STAGE, f"{state}\n".encode(), mode=0o600)


def merge_folder(source: Path, target: Path) -> int:
    """Move each file below ``source`` to its place below ``target``, and return how many are there already.

    Folders that this empties are removed. Links and special files stay. It can be killed, and repeated, at any moment.
    """
    left = 0
    for folder, names, files in os.walk(source, topdown=False):
        here = Path(folder)
        for name in files:
            path, place = here / name, target / (here / name).relative_to(source)
            left += not move_file(path, place)
        for name in names:
            with contextlib.suppress(OSError):  # it is not empty, or a link
                os.rmdir(here / name)
    with contextlib.suppress(OSError):
        os.rmdir(source)
    return left


def move_file(path: Path, place: Path) -> bool:
    """Move one record as ``merge_folder`` does; return False if another file is there."""
    if path.is_symlink() or not path.is_file():
        return True
    if os.path.lexists(place):
        is_same = place.is_file() and not place.is_symlink() and filecmp.cmp(path, place, shallow=False)
        if is_same:  # a copy between file systems was killed before the file was removed
            path.unlink()
        return is_same
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o600)
    try:
        os.rename(path, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_atomic(place, path.read_bytes(), mode=0o600)
        path.unlink()
    return True
