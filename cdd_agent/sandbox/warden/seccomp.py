"""System calls that a run is refused where neither Landlock nor a namespace has a word, and the keys it leaves behind.

The numbers of calls are those of two architectures; on any other nothing is refused here, and ``is_available`` says so.
"""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

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
