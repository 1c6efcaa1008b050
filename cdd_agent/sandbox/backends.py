"""The rung of containers: one container a run, of an image without any file, with this machine's programs inside.

No image is ever fetched: the empty one is made here, once. It counts only if a server answers and the self-test
passes, which it cannot where the server is another machine.

What of the machine any program may read; what does not exist is left out.

What a program finds where only what was mounted for it is there: on the rungs with a root folder of its own.

The bubblewrap rung: namespaces of its own, in which only what the run needs is there at all.

The Landlock rung: the kernel refuses what no rule allows, where no namespace can be had.

A filter of system calls refuses the sockets that Landlock does not see. Neither stops sockets with a file, shared
memory, nor a change of the mode, owner and times of a file outside; other processes are shown; and no folder can be
excepted from one that may be written to: what stays as it is inside the project is looked after when a run has ended.
"""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Limits, Result
from cdd_agent.sandbox.supervised import Launch, bounds_of, carry_out, environment_for, program
from cdd_agent.sandbox.warden import kernel

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
CONFIGURATION = (
    *(
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/localtime",
        "/etc/timezone",
    ),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/protocols"),
    *("/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates"),
    *("/etc/pki/ca-trust", "/etc/mime.types", "/etc/magic", "/etc/fonts", "/etc/os-release", "/etc/debian_version"),
    *("/etc/locale.alias", "/etc/terminfo", "/etc/papersize", "/etc/gai.conf", "/etc/ethertypes", "/etc/rpc"),
)
"""What programs look up in ``/etc`` and may: no passwords, no keys."""
PROCESSORS = ("/sys/devices/system/cpu",)
"""Where numerical libraries look for processors."""


HOME = "/home/sandbox"
"""Empty, and gone with the run."""
_MOST_FOLDERS = 120
"""So many folders on the way to what is read-only are kept from being moved, those nearest to the top."""


def confined(access: Access) -> tuple[str, ...]:
    """What a program in namespaces of its own has not, in words."""
    return ("no files outside the project", *(() if access.network else ("no network",)), "no other processes")


def existing(access: Access) -> Access:
    """What is there to be bound: a link is not, since it could be replaced, only what it leads to."""
    return Access(
        read_write=tuple(path for path in access.read_write if path.exists()),
        read_only=tuple(path for path in access.read_only if path.exists()),
        network=access.network,
    )


def binds(access: Access) -> list[tuple[Path, bool]]:
    """Each path that is to be there, and whether it may be written to; the longer ones last, as the last decides.

    With them the writable folders on the way to what is read-only: a folder that is mounted cannot be moved away, nor
    another be put in its place.
    """
    readable = [path for path in access.read_only if not _is_there_anyway(path)]
    readable += [path.resolve() for path in readable if not _is_there_anyway(path.resolve())]
    found = dict.fromkeys(access.read_write, True) | dict.fromkeys(readable, False)
    on_the_way = sorted({folder for path in readable for folder in _on_the_way(path, found) or ()}, key=_depth)
    found |= dict.fromkeys([folder for folder in on_the_way if not folder.is_symlink()][:_MOST_FOLDERS], True)
    return sorted(found.items(), key=lambda bind: _depth(bind[0]))


def held(access: Access) -> frozenset[Path]:
    """The read-only paths in writable folders that no program can change, move away or replace."""
    found = dict.fromkeys(access.read_write, True) | dict.fromkeys(access.read_only, False)
    there = dict(binds(access))
    ways = {path: _on_the_way(path, found) for path in access.read_only}
    return frozenset(path for path, way in ways.items() if way is not None and there.keys() >= set(way))


def _on_the_way(path: Path, found: Mapping[Path, bool]) -> tuple[Path, ...] | None:
    """The folders between a read-only path and the writable one that it is in; None if it is in none."""
    for number, folder in enumerate(path.parents):
        if folder in found:
            return tuple(path.parents)[:number] if found[folder] else None
    return None


def _depth(path: Path) -> int:
    return len(path.parts)


def _is_there_anyway(path: Path) -> bool:
    return path == Path("/usr") or path.is_relative_to("/usr")


_ROOT_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into ``/usr``, or, on older systems, folders."""
_STORES = ("/nix/store", "/gnu/store", "/run/current-system")
_NETWORK = ("/etc/resolv.conf", "/run/systemd/resolve")
_IN_MEMORY = (("/tmp", 4), ("/run", 32), (HOME, 8), ("/dev/shm", 8))
"""Folders that are only in memory, and which part of the machine's each may take."""
_HELP_TIMEOUT_S = 10


class BubblewrapSandbox:
    """Runs programs by way of one ``bwrap``."""

    level = "bwrap"

    def __init__(self, bwrap: Path) -> None:
        """Asks the program which of the newer options it knows; raises ``OSError`` if it cannot be started."""
        self.bwrap = bwrap
        told = subprocess.run(
            [str(bwrap), "--help"], env={}, capture_output=True, text=True, timeout=_HELP_TIMEOUT_S, check=False
        )
        knows = told.stdout + told.stderr
        self._newer = ("--disable-userns",) if "--disable-userns" in knows else ()
        self._bounds_memory = "--size " in knows

    def run(self, command: Command) -> Result:
        """Run the program; what is mounted for it is gone with its last process."""
        environment = environment_for(command) | {"HOME": HOME}
        environment.pop("TMPDIR", None)
        environment |= command.variables
        access = existing(command.access)
        argv = (program(command, environment), *command.argv[1:])
        launch = Launch(
            level=self.level,
            argv=(*self._options(access), "--chdir", str(command.cwd), "--", *argv),
            environment=environment,
            rules={"paths": None, "network": True},
            confined=confined(access),
            is_told_as_by_a_shell=True,
            bound=held(access),
        )
        return carry_out(command, launch)

    def _options(self, access: Access) -> Iterator[str]:
        """``bwrap`` with everything that does not depend on the program."""
        yield str(self.bwrap)
        for name in ("user", "pid", "ipc", "uts"):
            yield f"--unshare-{name}"
        yield "--unshare-cgroup-try"
        if not access.network:
            yield "--unshare-net"
        yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", *self._newer)
        yield from ("--ro-bind", "/usr", "/usr")
        for folder in _ROOT_FOLDERS:
            if os.path.islink(folder):
                yield from ("--symlink", os.readlink(folder), folder)
            elif os.path.isdir(folder):
                yield from ("--ro-bind", folder, folder)
        for path in (*_STORES, *CONFIGURATION, *PROCESSORS, *(_NETWORK if access.network else ())):
            if os.path.exists(path):
                yield from ("--ro-bind", path, path)
        yield from ("--proc", "/proc", "--dev", "/dev")
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for folder, part in _IN_MEMORY:
            size = ("--size", str(machine // part)) if self._bounds_memory else ()
            yield from (*size, "--tmpfs", folder)
        for bound, is_writable in binds(access):
            yield from ("--bind" if is_writable else "--ro-bind", str(bound), str(bound))
        yield from ("--remount-ro", "/dev", "--remount-ro", "/")


IMAGE = "cdd-sandbox:empty"
_TIMEOUT_S = 20.0
_EMPTY_ARCHIVE = bytes(10_240)
"""An archive in tar's format without any file."""
_VARIABLES = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "CONTAINER_HOST")
"""What the client needs to find its server; the program gets none of it."""


class ContainerSandbox:
    """Runs programs by way of ``docker`` or ``podman``."""

    level = "docker"

    def __init__(self, client: Path) -> None:
        """Asks the server for its version, and makes the empty image if it has none; raises ``EnvironmentMissing``."""
        self.client = client
        self._is_podman = client.name.startswith("podman")
        version = self._asked("version", "--format", "{{.Server.Version}}")
        if version is None:
            raise EnvironmentMissing(f"{client} has no server that answers.", hint="start it, or use another level")
        if self._asked("image", "inspect", IMAGE) is None and self._asked("import", "-", IMAGE) is None:
            raise EnvironmentMissing(f"{client} cannot make the image {IMAGE}.", hint="use another level")

    def run(self, command: Command) -> Result:
        """Run the program; its container is removed with its end, and killed when its time is up."""
        environment = environment_for(command) | {"HOME": HOME}
        environment.pop("TMPDIR", None)
        environment |= command.variables
        access, name = existing(command.access), f"cdd-{secrets.token_hex(8)}"
        argv = (*self._options(access, name), *_limits(bounds_of(command)), "--workdir", str(command.cwd))
        for key, value in environment.items():
            argv += ("--env", f"{key}={value}")
        launch = Launch(
            level=self.level,
            argv=(*argv, IMAGE, program(command, environment), *command.argv[1:]),
            environment=_client_environment(),
            confined=confined(access),
            is_told_as_by_a_shell=True,
            bound=held(access),
            is_limited_elsewhere=True,
            ending=(str(self.client), "kill", name),
        )
        return carry_out(command, launch)

    def _options(self, access: Access, name: str) -> Iterator[str]:
        yield from (str(self.client), "run", "--rm", "--name", name, "--pull", "never")
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--user", f"{os.getuid()}:{os.getgid()}", "--network", "host" if access.network else "none")
        if self._is_podman:
            yield from ("--userns", "keep-id")
        for folder in ("/tmp", "/run", HOME):
            yield from ("--tmpfs", f"{folder}:rw,exec,mode=1777")
        for path in (*PROGRAMS, *CONFIGURATION):
            if os.path.exists(path):
                yield from ("--volume", f"{path}:{path}:ro")
        for bound, is_writable in binds(access):
            yield from ("--volume", f"{bound}:{bound}{'' if is_writable else ':ro'}")

    def _asked(self, *arguments: str) -> str | None:
        """What the client prints; None if it fails, or says nothing."""
        try:
            result = subprocess.run(
                [str(self.client), *arguments],
                env=_client_environment(),
                input=_EMPTY_ARCHIVE,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return (result.stdout.decode("utf-8", "replace").strip() or None) if result.returncode == 0 else None


def _limits(limits: Limits) -> Iterator[str]:
    """The limits as the engine takes them; memory and processes are those of the whole container."""
    yield from ("--ulimit", "core=0")
    for name, most in (("cpu", limits.cpu_s), ("fsize", limits.file_bytes), ("nofile", limits.open_files)):
        if most is not None:
            yield from ("--ulimit", f"{name}={most}")
    if limits.memory_bytes is not None:
        yield from ("--memory", f"{limits.memory_bytes}b")
    if limits.processes is not None:
        yield from ("--pids-limit", str(limits.processes))


def _client_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
"""No terminal: those of the user could be read. ``/dev/shm`` is the machine's; semaphores between processes need it."""

_SOCKETS_ARE_REFUSED = kernel.is_available()
NOT_STOPPED = ", ".join(
    (
        "not stopped: socket files",
        "shared memory (/dev/shm)",
        "chmod, chown and touch of your files outside",
        *(() if _SOCKETS_ARE_REFUSED else ("UDP and MPTCP, listening on a port that the kernel picks, kernel keys",)),
    )
)
"""What the level does not say."""
_NO_NETWORK = "no network" if _SOCKETS_ARE_REFUSED else "no plain TCP"


class LandlockSandbox:
    """Runs programs as processes that have given up most rights."""

    level = "landlock"

    def run(self, command: Command) -> Result:
        """Run the program with a home and a folder for temporary files that are gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as folder:
            home, temporary = Path(folder) / "home", Path(folder) / "tmp"
            home.mkdir()
            temporary.mkdir()
            environment = environment_for(command, HOME=str(home), TMPDIR=str(temporary), GIT_CONFIG_NOSYSTEM="1")
            access = command.access
            read = (*PROGRAMS, *CONFIGURATION, *PROCESSORS, "/proc", *map(str, access.read_only))
            write = (*_DEVICES, folder, *map(str, access.read_write))
            launch = Launch(
                level=self.level,
                argv=(program(command, environment), *command.argv[1:]),
                environment=environment,
                rules={"paths": {"read": list(read), "write": list(write)}, "network": access.network},
                confined=(
                    "no files outside the project",
                    *(() if access.network else (_NO_NETWORK,)),
                    NOT_STOPPED,
                ),
            )
            return carry_out(command, launch)
