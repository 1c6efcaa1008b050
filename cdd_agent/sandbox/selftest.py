"""What a sandbox refuses, tried: a rung counts only if it refuses four forbidden acts and lets the allowed one pass.

Whether an act was refused is looked at from outside; what the program inside says of it is only told.
"""

import os
import secrets
import select
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.sandbox.port import Access, Command, Limits, Result, Sandbox
from cdd_agent.storage import scratch

TIMEOUT_S = 10.0
_SHOWN = 120
"""So many characters of what a program says."""
PROGRAM = """
import os, socket, sys
def tried(name, act):
    try:
        print(name, "done", act() or "", flush=True)
    except OSError as error:
        print(name, "failed", error.strerror or error, flush=True)
def write(path):
    with open(path, "w") as stream:
        stream.write("written")
def read(path):
    with open(path, "rb") as stream:
        return stream.read().hex()
def reach(port, kind, protocol):
    with socket.socket(socket.AF_INET, kind, protocol) as caller:
        caller.settimeout(2)
        caller.connect(("127.0.0.1", int(port)))
        caller.send(b"out")
project, outside, secret, port, port_of_datagrams, parent = sys.argv[1:]
tried("inside", lambda: write(project + "/allowed"))
tried("write", lambda: write(outside))
tried("read", lambda: read(secret))
tried("connect", lambda: reach(port, socket.SOCK_STREAM, 0))
tried("multipath", lambda: reach(port, socket.SOCK_STREAM, 262))
tried("datagram", lambda: reach(port_of_datagrams, socket.SOCK_DGRAM, 0))
tried("git", lambda: write(project + "/.git/config"))
tried("environment", lambda: str(len(read("/proc/" + parent + "/environ")) // 2) + " bytes")
"""
_CANNOT_PROTECT_GIT = "landlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One forbidden act."""

    act: str
    refused: bool
    told: str
    """What the program that tried was told, or what it could do."""


def prove(sandbox: Sandbox) -> tuple[Proof, ...]:
    """Try four forbidden acts in ``sandbox``: write outside, read a secret outside, open a connection, change ``.git``.

    A connection counts as open if TCP, MPTCP or a datagram gets out. Landlock cannot except ``.git`` from the project;
    there the fourth is reading the environment of cdd. Where even the allowed act fails, or nothing runs at all, that
    is told for each.
    """
    with scratch() as folder, socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as letter_box:
        here = Path(folder).resolve()
        project, secret = here / "project", here / "secret"
        (project / ".git").mkdir(parents=True)
        config = project / ".git" / "config"
        config.write_text("as it was")
        word = secrets.token_hex(16)
        secret.write_text(word)
        for ear in (listener, letter_box):
            ear.bind(("127.0.0.1", 0))
        listener.listen()
        ports = (listener.getsockname()[1], letter_box.getsockname()[1])
        arguments = (str(project), str(here / "written"), str(secret), *map(str, ports))
        result = _run(sandbox, arguments, project=project)
        if isinstance(result, str) or not (project / "allowed").exists():
            return _nothing_runs(result)
        told = {line.partition(" ")[0]: line.partition(" ")[2] for line in result.output.splitlines()}
        is_reached = _is_reached(listener, letter_box)
        proofs = (
            _proof("write outside the project", refused=not (here / "written").exists(), told=told["write"]),
            _proof("read a secret outside", refused=word.encode().hex() not in result.output, told=told["read"]),
            _proof("open a connection", refused=not is_reached, told="done" if is_reached else told["connect"]),
        )
        if sandbox.level == _CANNOT_PROTECT_GIT:
            refused = not told["environment"].startswith("done")
            last = _proof("read the environment of cdd", refused=refused, told=told["environment"])
        else:
            last = _proof("change .git", refused=config.read_text() == "as it was", told=told["git"])
    return (*proofs, last)


def _run(sandbox: Sandbox, arguments: tuple[str, ...], *, project: Path) -> Result | str:
    """The one run that tries everything; or why there is none."""
    python = (sys.executable, "-I", "-S", "-c", PROGRAM)
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix)}
    access = Access(
        read_write=(project,),
        read_only=(project / ".git", *prefixes, Path(sys.executable).resolve().parent.parent),
    )
    command = Command(
        argv=(*python, *arguments, str(os.getpid())), cwd=project, access=access, timeout_s=TIMEOUT_S, limits=Limits()
    )
    try:
        return sandbox.run(command)
    except OSError as error:
        return str(error)


def _nothing_runs(result: Result | str) -> tuple[Proof, ...]:
    """Proof of nothing."""
    said = result if isinstance(result, str) else (result.output.strip().splitlines() or ["no output"])[-1]
    return (Proof(act="run a program that may write to the project", refused=False, told=said[:_SHOWN]),)


def _is_reached(*ears: socket.socket) -> bool:
    """Whether anybody has connected to one of these sockets, or sent something to it."""
    poll = select.poll()
    for ear in ears:
        poll.register(ear, select.POLLIN)
    return bool(poll.poll(0))


def _proof(act: str, *, refused: bool, told: str) -> Proof:
    """An act, with what is said of it in words that hold no secret."""
    if told.startswith("failed"):
        return Proof(act=act, refused=refused, told=told.removeprefix("failed ")[:_SHOWN])
    return Proof(act=act, refused=refused, told="it went to a place of the sandbox's own" if refused else "it was done")
