"""Kernel features for a run: ``prctl``, Landlock, and a seccomp filter for calls that Landlock does not cover.

The filter knows the system calls of two architectures. On others it refuses nothing, and ``is_available`` is false.
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
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FILE_RIGHTS_SINCE = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""Version of Landlock, and the rights that it introduced."""
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def become_reaper() -> None:
    """Adopt the orphans of this process's descendants, and let only root inspect this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, value=1)
    _prctl(_PR_SET_DUMPABLE, value=0)


def end_with_parent(parent: int) -> None:
    """End this process when its parent ends, or now if it already has."""
    _prctl(_PR_SET_PDEATHSIG, value=9)
    if os.getppid() != parent:
        os._exit(1)


def renounce_privileges() -> None:
    """Disable set-user-ID for all programs that this process starts; otherwise cdd could not end them."""
    _prctl(_PR_SET_NO_NEW_PRIVS, value=1)


def drop_capabilities() -> None:
    """Reduce root to the owner of its files; with capabilities it could read the memory of others."""
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none, or it is disabled."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def apply_landlock(paths: "Paths") -> None:
    """Irrevocably restrict this process to ``paths``, and deny TCP; raises ``OSError``.

    Newer versions add rights: version 4 covers TCP, version 6 abstract sockets and signals to other processes.
    """
    version = landlock_version()
    handled = sum(rights for since, rights in _FILE_RIGHTS_SINCE if version >= since)
    fields = [handled]
    fields += [_BIND_AND_CONNECT_TCP] if version >= 4 else []
    fields += [_ABSTRACT_SOCKETS_AND_SIGNALS] if version >= 6 else []
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = _syscall(_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    for path in paths["read"]:
        _allow(ruleset, path, rights=handled & _READ)
    for path in paths["write"]:
        _allow(ruleset, path, rights=handled)
    _syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


class _PathBeneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _allow(ruleset: int, path: str, *, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it does not exist
        return
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{folder}")
        # The kernel rejects rights of folders for a file.
        rule = _PathBeneath(rights if is_folder else rights & _FOR_FILES, folder)
        _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(folder)


def _syscall(number: int, *arguments: object) -> int:
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

_CALLS = (
    *("socket", "socketpair", "sendto", "sendmsg", "sendmmsg"),
    *("add_key", "request_key", "keyctl", "io_uring_setup"),
)
_NUMBERS = {
    "x86_64": dict(zip(_CALLS, (41, 53, 44, 46, 307, 248, 249, 250, 425), strict=True)),
    "aarch64": dict(zip(_CALLS, (198, 199, 206, 211, 269, 217, 218, 219, 425), strict=True)),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""``AUDIT_ARCH`` values, by which the kernel names an architecture to a filter."""
_FOREIGN_FROM = {"x86_64": 0x40000000}
"""First number of the x32 calls, which duplicate the others under other numbers."""

_AF_UNIX, _AF_NETLINK, _AF_VSOCK = 1, 16, 40
_NETLINK_ROUTE = 0
"""The C library reads the machine's addresses there."""
_MSG_FASTOPEN = 0x20000000
_FLAGS_AT = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}

_LOAD, _RETURN, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if it is true, instructions to skip if it is false, operand."""
_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF0000)
_REFUSE: Instruction = (_RETURN, 0, 0, 0x00050000 | _EPERM)


def is_available() -> bool:
    """Return whether calls can be refused: the kernel has filters, and this architecture is known."""
    if _machine() not in _NUMBERS:
        return False
    return bool(_libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) != 0 and ctypes.get_errno() == _EFAULT)


def leave_keyring() -> None:
    """Join an empty session keyring; if that fails, ``refuse_calls`` alone protects the user's keys."""
    if (numbers := _NUMBERS.get(_machine())) is not None:
        _libc.syscall(numbers["keyctl"], _KEYCTL_JOIN_SESSION_KEYRING, None)


def refuse_calls(*, network: bool) -> None:
    """Irrevocably apply ``build_filter``, if available, after ``renounce_privileges``; raises ``OSError``."""
    if not is_available():
        return
    instructions = build_filter(_machine(), network=network)
    array = (_Instruction * len(instructions))(*(_Instruction(*each) for each in instructions))
    program = _Program(len(instructions), ctypes.cast(array, ctypes.c_void_p))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"seccomp: {os.strerror(errno)}")


def build_filter(machine: str, *, network: bool) -> list[Instruction]:
    """Return a filter that refuses keys, io_uring, calls of other architectures and sockets to the hypervisor.

    Without ``network`` it also refuses all sockets, except local ones (``AF_UNIX``) and those that read addresses from
    the kernel.
    """
    numbers = _NUMBERS[machine]
    instructions = [_load(_ARCHITECTURE_AT), (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]), _REFUSE, _load(_NUMBER_AT)]
    if machine in _FOREIGN_FROM:
        instructions += [(_IF_AT_LEAST, 0, 1, _FOREIGN_FROM[machine]), _REFUSE]
    for name in ("keyctl", "add_key", "request_key", "io_uring_setup"):
        instructions += _for_call(numbers[name], [_REFUSE])
    if network:
        instructions += _for_call(numbers["socket"], [_load_argument(0), *_refuse_if(_IF_EQUAL, _AF_VSOCK)])
    else:
        # Landlock sees neither MPTCP nor UDP, nor a socket that listens on a port of the kernel's choice, nor data in
        # the connection request (TCP Fast Open) on a socket that another process passed on.
        instructions += _for_call(numbers["socket"], _REFUSE_REMOTE_SOCKETS)
        instructions += _for_call(numbers["socketpair"], [_load_argument(0), *_refuse_unless(_AF_UNIX)])
        for name, index in _FLAGS_AT.items():
            check = [_load_argument(index), *_refuse_if(_IF_ANY_BIT, _MSG_FASTOPEN)]
            instructions += _for_call(numbers[name], check)
    return [*instructions, _ALLOW]


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
    # A 32-bit program uses other call numbers than its kernel.
    return os.uname().machine if ctypes.sizeof(ctypes.c_void_p) == 8 else ""


def _for_call(number: int, then: list[Instruction]) -> list[Instruction]:
    """Apply ``then``, which must end in an answer, to one call, whose number is loaded."""
    return [(_IF_EQUAL, 0, len(then), number), *then]


def _load(offset: int) -> Instruction:
    return _LOAD, 0, 0, offset


def _load_argument(index: int) -> Instruction:
    # Only the lower half: the kernel ignores the rest of the arguments that are checked here.
    return _load(_ARGUMENTS_AT + 8 * index)


def _refuse_if(operation: int, operand: int) -> list[Instruction]:
    return [(operation, 0, 1, operand), _REFUSE, _ALLOW]


def _refuse_unless(value: int) -> list[Instruction]:
    return [(_IF_EQUAL, 1, 0, value), _REFUSE, _ALLOW]


_REFUSE_REMOTE_SOCKETS = [
    _load_argument(0),
    (_IF_EQUAL, 4, 0, _AF_UNIX),
    (_IF_EQUAL, 0, 2, _AF_NETLINK),
    _load_argument(2),
    *_refuse_unless(_NETLINK_ROUTE),
]
