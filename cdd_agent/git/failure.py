"""What git says when it refuses, told as what happened and what to type. Pure but for the age of a lock."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import CddError, ExitCode


class GitError(CddError):
    """git answered with an error; holds what it said."""

    def __init__(self, happened: str, *, hint: str, status: int | None = None) -> None:
        """``status`` is what git exited with, None if it did not come to that."""
        super().__init__(happened, hint=hint)
        self.status = status


class GitUnable(GitError):
    """git cannot work in this state of the repository or the machine; says nothing about what it was asked."""

    exit_code = ExitCode.ENVIRONMENT


class GitTimeout(GitUnable):
    """git, or a hook that it ran, did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A state that git names in its own words."""

    words: re.Pattern[str]
    happened: str
    hint: str


def _known(words: str, happened: str, *, hint: str) -> _Known:
    return _Known(words=re.compile(words, re.IGNORECASE), happened=happened, hint=hint)


_KNOWN = (
    _known(
        r"failed to sign|gpg failed|couldn't (load public|find) key|no secret key|unsupported value for gpg\.format",
        "git could not sign the commit, as your settings ask for.",
        hint="unlock the key and check it with: git commit-tree -S -m test HEAD^{tree}; or sign nothing here: "
        "git config commit.gpgSign false",
    ),
    _known(
        r"who you are|empty ident name|unable to auto-detect email|no (email|name) was given",
        "git does not know who commits here.",
        hint="git config user.name 'Your Name' && git config user.email you@example.org",
    ),
    _known(
        r"insufficient permission|permission denied|read-only file system|operation not permitted",
        "git's folder cannot be written.",
        hint='make it writable, with its owner\'s rights: chown -R "$(id -u)" .git && chmod -R u+w .git',
    ),
    _known(r"no space left on device|disk quota exceeded", "The disk is full.", hint="make room: df -h . && git gc"),
    _known(
        r"(clean|smudge) filter '.*' failed|external filter",
        "A filter of your git settings failed.",
        hint="see what it says by hand: git checkout-index --temp -- FILE; Git LFS is set up with: git lfs install",
    ),
    _known(
        r"bad (object|tree|file|config)|corrupt|is empty$|unable to (read|find) |could not read|invalid object"
        r"|broken (ref|link)|missing (blob|tree|commit|object)|alternate object|not a valid object|promisor",
        "The repository is damaged, or objects of it are missing.",
        hint="see what is wrong: git fsck --full; objects left out by a shallow or partial clone come with: git fetch",
    ),
    _known(
        r"\.lock': File exists|cannot lock|unable to lock|could not lock",
        "Another git process holds a lock in this repository.",
        hint="wait for it to end, then try again; if none is running, remove the .lock file that git names",
    ),
)
"""In order: the first that fits counts."""

_LOCK = re.compile(r"Unable to create '(?P<path>[^\n]*?index\.lock)': File exists")


def refused(verb: str, said: str, *, status: int, hooks: bool = False) -> GitError:
    """The error for ``git VERB`` that ended with ``status`` and the words ``said``.

    Where ``hooks`` took part, a status of 1 is a hook's refusal: its words may tell of anything.
    """
    lock = index_lock(said)
    if lock is not None:
        return index_locked(lock, status=status)
    words = f"git {verb} failed: {said or f'exit status {status}'}"
    for known in () if hooks and status == 1 else _KNOWN:
        if known.words.search(said):
            return GitUnable(f"{known.happened} {words}", hint=known.hint, status=status)
    return GitError(words, hint="mend what git names, then try again", status=status)


def index_lock(said: str) -> Path | None:
    """The lock of an index that git ran into, if that is what it says."""
    found = _LOCK.search(said)
    return None if found is None else Path(found["path"])


def index_locked(lock: Path, *, status: int | None = None) -> GitUnable:
    """The error that names the lock and its age; it is never removed here, as nobody can tell whose it is."""
    try:
        age = f" for {_duration(max(0.0, time.time() - lock.lstat().st_mtime))}"
    except OSError:
        age = ""
    return GitUnable(
        f"git's index is locked: {lock} has been there{age}. Another git process is at work, or one was killed.",
        hint=f"wait for it to end; if no git is running here: rm {lock}",
        status=status,
    )


def _duration(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds >= length or unit == "second":
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("a second is the smallest unit")
