import socket
from pathlib import Path

import pytest

from cdd_agent.sandbox.choice import Proof, prove
from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox
from tests.cdd_agent.sandbox.conftest import CONFINED, at, can_change_kernel

ACTS = ["write outside the project", "read a secret outside", "open a connection", "change the kernel's settings"]
INSIDE = ["change .git", "change installed packages", "connect to a socket among them"]
OF_LANDLOCK = ["read the environment of cdd"]


@pytest.mark.parametrize("level", CONFINED)
def test_a_rung_that_confines_refuses_every_act(level: str) -> None:
    proofs = prove(at(level))
    assert [proof.act for proof in proofs] == [*ACTS, *(INSIDE if level == "bwrap" else OF_LANDLOCK)]
    assert all(proof.refused for proof in proofs)


def test_the_plain_rung_refuses_nothing_and_no_secret_is_told() -> None:
    proofs = prove(PlainSandbox())
    assert [proof.act for proof in proofs if proof.refused] == ([] if can_change_kernel() else ACTS[3:])
    assert {proof.answer for proof in proofs if not proof.refused} == {"it was done"}


FORBIDDEN = ("write", "read", "connect", "kernel", "git", "packages", "socket")


class Broken:
    """A sandbox in which nothing can be written and nothing runs to its end."""

    level = "bwrap"

    def run(self, command: Command) -> Result:
        return Result(exit_status=1, head="no namespaces\n", dropped_bytes=0, timed_out=False, duration_s=0, level="x")


class Missing(Broken):
    """A sandbox whose program has gone."""

    def run(self, command: Command) -> Result:
        raise FileNotFoundError(2, "No such file", "bwrap")


class Leaky:
    """A sandbox that refuses all but one way into the network."""

    level = "bwrap"

    def __init__(self, *, kind: int, protocol: int) -> None:
        self.kind, self.protocol = kind, protocol

    def run(self, command: Command) -> Result:
        port, port_of_datagrams, _ = command.argv[-3:]
        (Path(command.cwd) / "allowed").touch()
        with socket.socket(socket.AF_INET, self.kind, self.protocol) as caller:
            caller.connect(("127.0.0.1", int(port_of_datagrams if self.kind == socket.SOCK_DGRAM else port)))
            caller.send(b"out")
        told = "".join(f"{name} failed Permission denied\n" for name in FORBIDDEN)
        return Result(exit_status=0, head=told, dropped_bytes=0, timed_out=False, duration_s=0, level="x")


@pytest.mark.parametrize(
    ("kind", "protocol"), [(socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, 262), (socket.SOCK_DGRAM, 0)]
)
def test_every_way_into_the_network_counts_as_the_connection(kind: int, protocol: int) -> None:
    try:
        socket.socket(socket.AF_INET, kind, protocol).close()
    except OSError as error:
        pytest.skip(f"no such sockets here: {error}")
    proofs = prove(Leaky(kind=kind, protocol=protocol))
    assert [(proof.act, proof.answer) for proof in proofs if not proof.refused] == [
        ("open a connection", "it was done")
    ]


@pytest.mark.parametrize(
    ("sandbox", "why"), [(Broken(), "no namespaces"), (Missing(), "[Errno 2] No such file: 'bwrap'")]
)
def test_a_sandbox_in_which_nothing_runs_has_refused_nothing(sandbox: Broken, why: str) -> None:
    assert prove(sandbox) == (Proof(act="run a program that may write to the project", refused=False, answer=why),)
