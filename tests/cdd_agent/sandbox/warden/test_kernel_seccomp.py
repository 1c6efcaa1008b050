"""Ways out by the kernel that neither Landlock nor a namespace shuts: odd sockets, keys, calls by other numbers."""

import ctypes
import os
import socket
import sys
from pathlib import Path

import pytest

from cdd_agent.sandbox.warden import kernel
from tests.cdd_agent.sandbox.conftest import Ground
from tests.fakes.cases import soak_after

pytestmark = pytest.mark.skipif(not kernel.is_available(), reason="no filter of system calls on this machine")

CONNECTS = {
    "tcp": "s = socket.socket(); s.connect(there)",
    "mptcp": "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect(there)",
    "fast open": "s = socket.socket(); s.sendto(b'out', 0x20000000, there)",
    "sctp": "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132); s.connect(there)",
    "by IPv6": "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', there[1]))",
}
CALLS = {
    "x86_64": {"add_key": 248, "request_key": 249, "keyctl": 250, "io_uring_setup": 425},
    "aarch64": {"add_key": 217, "request_key": 218, "keyctl": 219, "io_uring_setup": 425},
}
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in sys.argv[1:]:
    print(libc.syscall(int(number), 0, 0, 0, 0), ctypes.get_errno())
"""
ORDINARY = """
import asyncio, ctypes, multiprocessing, os, socket, sqlite3, subprocess, sys

async def child():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=subprocess.PIPE)
    await asyncio.to_thread(os.getpid)
    return (await process.communicate())[0]

async def served():
    async def answer(reader, writer):
        writer.write(await reader.read())
        await writer.drain()
        writer.close()
    async with await asyncio.start_unix_server(answer, "socket"):
        reader, writer = await asyncio.open_unix_connection("socket")
        writer.write(b"told")
        writer.write_eof()
        return await reader.read()

if __name__ == "__main__":
    assert socket.getaddrinfo("127.0.0.1", 80)
    assert socket.if_nameindex()
    try:
        socket.getaddrinfo("localhost", 80)
    except socket.gaierror:
        pass
    one, other = socket.socketpair()
    one.send(b"x")
    assert other.recv(1) == b"x"
    assert asyncio.run(child()) == b"1\\n"
    assert asyncio.run(served()) == b"told"
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(abs, [-1]) == [1]
    with multiprocessing.Manager() as manager:
        assert list(manager.list([1])) == [1]
    sqlite3.connect("base").execute("create table one (two)")
    print("all of it")
"""


@pytest.fixture
def landlocked(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="landlock")


@soak_after(2, "way", CONNECTS)
def test_no_kind_of_connection_reaches_a_listener(confined: Ground, way: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        code = f"import socket; there = {listener.getsockname()!r}; {CONNECTS[way]}; print('connected')"
        assert "connected\n" not in confined.python(code).output
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_no_datagram_leaves(confined: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.2)
        confined.python(f"import socket; socket.socket(2, 2).sendto(b'out', {listener.getsockname()!r})")
        with pytest.raises(TimeoutError):
            listener.recv(10)


def test_nothing_listens_on_a_port_that_the_kernel_picks(landlocked: Ground) -> None:
    """Landlock refuses to bind to a port; to listen without having bound it does not see."""
    told = landlocked.python("import socket; s = socket.socket(); s.listen(); print('listens')")
    assert "PermissionError" in told.output


SOCKETS = """
import itertools, socket
FAMILIES = ("AF_INET", "AF_INET6", "AF_PACKET", "AF_VSOCK", "AF_ALG")
KINDS = ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW", "SOCK_SEQPACKET")
for family, kind in itertools.product(FAMILIES, KINDS):
    try:
        socket.socket(getattr(socket, family), getattr(socket, kind) | socket.SOCK_NONBLOCK)
    except PermissionError:
        print("refused")
    else:
        print(family, kind)
"""


def test_sockets_are_those_of_the_machine(landlocked: Ground) -> None:
    assert landlocked.python(SOCKETS).output.splitlines() == ["refused"] * 20


def test_the_machine_below_a_virtual_one_is_not_reached(confined: Ground) -> None:
    assert "PermissionError" in confined.python("import socket; socket.socket(socket.AF_VSOCK)").output


def test_netlink_is_for_addresses_only(landlocked: Ground) -> None:
    told = landlocked.python("import socket; socket.socket(16, 3, 0); print('addresses'); socket.socket(16, 3, 4)")
    assert "addresses\n" in told.output
    assert "PermissionError" in told.output


def test_no_data_goes_along_with_a_request_for_a_connection(landlocked: Ground) -> None:
    """Over whatever socket, since another process may have handed it over."""
    send = "import socket; a, b = socket.socketpair(); a.send{}; print('sent')"
    for call in ("(b'x', 0x20000000)", "msg([b'x'], [], 0x20000000)"):
        assert "PermissionError" in landlocked.python(send.format(call)).output
    assert landlocked.python(send.format("msg([b'x'])")).output == "sent\n"


@pytest.mark.skipif(os.uname().machine not in CALLS, reason="the numbers of this machine's calls are not known")
def test_keys_and_io_uring_are_refused(confined: Ground) -> None:
    numbers = CALLS[os.uname().machine].values()
    told = confined.python(CALL, *map(str, numbers))
    assert told.output.splitlines() == ["-1 1"] * len(numbers)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is another set of numbers of x86_64")
def test_the_other_numbers_of_calls_are_refused(confined: Ground) -> None:
    """``socket`` and ``getpid`` of x32."""
    told = confined.python(CALL, str(0x40000000 | 41), str(0x40000000 | 39))
    assert told.output.splitlines() == ["-1 1"] * 2


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="a call of a 32-bit program, in machine code of x86")
def test_a_call_of_another_architecture_is_refused(confined: Ground) -> None:
    """``int 0x80`` with 20, getpid of a 32-bit program, from a 64-bit one; some kernels end whoever tries."""
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(b'\\x53\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\x5b\\xc3')\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "print(call())\n"
    )
    assert confined.python(code).output in ("-1\n", "")


@pytest.mark.skipif(os.uname().machine not in CALLS, reason="the numbers of this machine's calls are not known")
def test_the_session_keyring_is_its_own() -> None:
    """Seen without the filter, which would refuse to look."""
    number = CALLS[os.uname().machine]["keyctl"]
    libc = ctypes.CDLL(None, use_errno=True)
    mine = libc.syscall(number, 0, -3, 1)
    if mine < 0:
        pytest.skip("no keys in this kernel")
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        kernel.leave_keyring()
        os.write(into, str(libc.syscall(number, 0, -3, 1)).encode())
        os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    with open(out) as stream:
        assert int(stream.read()) not in (mine, -1)


@pytest.mark.slow
@soak_after(1, "confined", ("bwrap", "landlock"), indirect=True)
def test_what_programs_ordinarily_do_goes_on(confined: Ground) -> None:
    (confined.project / "ordinary.py").write_text(ORDINARY)
    told = confined.run(sys.executable, "-W", "ignore", "ordinary.py", timeout_s=60)
    assert told.output == "all of it\n"
