"""What only the kernel can do for a run, by ``prctl`` and the three calls of Landlock; ``seccomp`` has the rest."""

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.order import Paths

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same on every architecture but Alpha."""
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FILE_RIGHTS_SINCE = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""Version of Landlock -> rights that it brought."""
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def become_reaper() -> None:
    """Get the orphans of this process's descendants as children, and be no business of anybody's but root."""
    _prctl(_PR_SET_CHILD_SUBREAPER, value=1)
    _prctl(_PR_SET_DUMPABLE, value=0)


def depend_on(parent: int) -> None:
    """End this process when its parent ends; at once if it has."""
    _prctl(_PR_SET_PDEATHSIG, value=9)
    if os.getppid() != parent:
        os._exit(1)


def renounce_privileges() -> None:
    """Let no program that this process starts gain rights by being set-user-ID: it could not be ended."""
    _prctl(_PR_SET_NO_NEW_PRIVS, value=1)


def give_up_capabilities() -> None:
    """Let root be no more than the owner of its files: with capabilities it could read the memory of others."""
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0: none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def restrict(paths: "Paths", *, network: bool) -> None:
    """Take from this process, for good, what ``paths`` do not allow, and TCP without ``network``; raises ``OSError``.

    Of each version of Landlock everything is used: rights to files, TCP from 4 on, sockets without a file and signals
    to others from 6 on.
    """
    version = landlock_version()
    handled = sum(rights for since, rights in _FILE_RIGHTS_SINCE if version >= since)
    ports = 0 if network else _BIND_AND_CONNECT_TCP
    fields = [handled, *([ports] if version >= 4 else []), *([_ABSTRACT_SOCKETS_AND_SIGNALS] if version >= 6 else [])]
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = _called(_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    for path in paths["read"]:
        _allow(ruleset, path, rights=handled & _READ)
    for path in paths["write"]:
        _allow(ruleset, path, rights=handled)
    _called(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


class _Beneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _allow(ruleset: int, path: str, *, rights: int) -> None:
    """Allow ``rights`` on and below ``path``, if it exists."""
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{folder}")
        beneath = _Beneath(rights if is_folder else rights & _OF_A_FILE, folder)
        _called(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(folder)


def _called(number: int, *arguments: object) -> int:
    """What a system call returns."""
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"Landlock: {os.strerror(errno)}")
    return result


def _prctl(option: int, *, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl {option}: {os.strerror(errno)}")
