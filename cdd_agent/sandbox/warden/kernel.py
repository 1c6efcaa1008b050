"""What only the kernel can do for a run, by ``prctl`` and the three calls of Landlock; ``seccomp`` has the rest.

System calls that a run is refused where neither Landlock nor a namespace has a word, and the keys it leaves behind.

The numbers of calls are those of two architectures; on any other nothing is refused here, and ``is_available`` says so.
"""

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.supervision import Paths

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


_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_EPERM, _EFAULT = 1, 14

_NUMBERS = {
    "x86_64": {
        "socket": 41,
        "socketpair": 53,
        "sendto": 44,
        "sendmsg": 46,
        "sendmmsg": 307,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "io_uring_setup": 425,
    },
    "aarch64": {
        "socket": 198,
        "socketpair": 199,
        "sendto": 206,
        "sendmsg": 211,
        "sendmmsg": 269,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "io_uring_setup": 425,
    },
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel names them to a filter (``AUDIT_ARCH``)."""
_FOREIGN_FROM = {"x86_64": 0x40000000}
"""Calls from this number on are those of x32: the same as others, by other numbers."""

_AF_UNIX, _AF_NETLINK, _AF_VSOCK = 1, 16, 40
_NETLINK_ROUTE = 0
"""Where the C library asks for the machine's addresses."""
_MSG_FASTOPEN = 0x20000000
_FLAGS_AT = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}

_LOAD, _RETURN, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | _EPERM
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]
"""Operation, how many to skip if it holds, how many if not, operand."""


def is_available() -> bool:
    """Whether calls can be refused: the kernel takes filters, and the numbers of this machine's calls are known."""
    if _machine() not in _NUMBERS:
        return False
    return bool(_libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) != 0 and ctypes.get_errno() == _EFAULT)


def leave_keys() -> None:
    """Get an empty session keyring; where that cannot be had, the keys are kept away by ``refuse_calls`` alone."""
    if (numbers := _NUMBERS.get(_machine())) is not None:
        _libc.syscall(numbers["keyctl"], _KEYCTL_JOIN_SESSION_KEYRING, None)


def refuse_calls(*, network: bool) -> None:
    """Refuse this process, for good, what ``instructions`` says; nothing where it cannot be; raises ``OSError``.

    It must have renounced privileges before.
    """
    if not is_available():
        return
    listed = instructions(_machine(), network=network)
    array = (_Instruction * len(listed))(*(_Instruction(*one) for one in listed))
    told = _Program(len(listed), ctypes.cast(array, ctypes.c_void_p))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(told), 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"seccomp: {os.strerror(errno)}")


def instructions(machine: str, *, network: bool) -> list[Instruction]:
    """The filter: no keys, no io_uring, no call of another architecture, no socket to the machine below a virtual one.

    Without ``network``, no socket but those between processes of this machine (``AF_UNIX``) and to its kernel, for
    addresses. None of the Internet at all, as Landlock sees neither MPTCP nor UDP, nor a socket that listens without
    a port of its choice; nor does it see data sent along with the request for a connection, over a socket that another
    process has handed over.
    """
    numbers = _NUMBERS[machine]
    listed = [
        _load(_ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _answer(_REFUSE),
        _load(_NUMBER_AT),
    ]
    if machine in _FOREIGN_FROM:
        listed += [(_IF_AT_LEAST, 0, 1, _FOREIGN_FROM[machine]), _answer(_REFUSE)]
    for name in ("keyctl", "add_key", "request_key", "io_uring_setup"):
        listed += _on_call(numbers[name], [_answer(_REFUSE)])
    if network:
        listed += _on_call(numbers["socket"], [_argument(0), *_refused_if(_IF_EQUAL, _AF_VSOCK)])
    else:
        listed += _on_call(numbers["socket"], _SOCKETS_OF_THE_MACHINE)
        listed += _on_call(numbers["socketpair"], [_argument(0), *_refused_unless(_AF_UNIX)])
        for name, place in _FLAGS_AT.items():
            listed += _on_call(numbers[name], [_argument(place), *_refused_if(_IF_ANY_BIT, _MSG_FASTOPEN)])
    return [*listed, _answer(_ALLOW)]


class _Instruction(ctypes.Structure):
    """``struct sock_filter``."""

    _fields_ = (
        ("operation", ctypes.c_uint16),
        ("skip_if", ctypes.c_uint8),
        ("skip_else", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_void_p))


def _machine() -> str:
    """The architecture; that of a 32-bit program is none that is known here, whatever the kernel's."""
    return os.uname().machine if ctypes.sizeof(ctypes.c_void_p) == 8 else ""


def _on_call(number: int, then: list[Instruction]) -> list[Instruction]:
    """``then``, which has to end in an answer, for one call; the number of the call is loaded."""
    return [(_IF_EQUAL, 0, len(then), number), *then]


def _load(offset: int) -> Instruction:
    return _LOAD, 0, 0, offset


def _argument(place: int) -> Instruction:
    """Load the lower half of an argument: the kernel takes no more of those that are looked at here."""
    return _load(_ARGUMENTS_AT + 8 * place)


def _answer(what: int) -> Instruction:
    return _RETURN, 0, 0, what


def _refused_if(operation: int, operand: int) -> list[Instruction]:
    return [(operation, 0, 1, operand), _answer(_REFUSE), _answer(_ALLOW)]


def _refused_unless(value: int) -> list[Instruction]:
    return [(_IF_EQUAL, 1, 0, value), _answer(_REFUSE), _answer(_ALLOW)]


_SOCKETS_OF_THE_MACHINE = [
    _argument(0),
    (_IF_EQUAL, 4, 0, _AF_UNIX),
    (_IF_EQUAL, 0, 2, _AF_NETLINK),
    _argument(2),
    *_refused_unless(_NETLINK_ROUTE),
]
