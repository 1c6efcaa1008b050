"""The confining sandboxes: bubblewrap, containers and Landlock.

Bubblewrap and containers give a program its own root folder, which contains only what is mounted for the run. The
container image is empty, created locally once and never pulled, so the machine's own programs are mounted too.

Landlock works without namespaces: the kernel refuses what no rule allows, and a seccomp filter refuses sockets that
Landlock does not cover. It does not stop socket files, shared memory, changes of mode, owner and times of outside
files, or the view of other processes, and it cannot protect a folder inside a writable one.
"""

import glob
import os
import re
import resource
import secrets
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, product
from pathlib import Path
from typing import NamedTuple

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Limits, Result
from cdd_agent.sandbox.supervised import Launch, build_environment, find_program, resolve_limits, run_launch, to_rlimits
from cdd_agent.sandbox.warden import kernel
from cdd_agent.storage import RECORDS, SET_ASIDE

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "passwd", "group"),
    *("nsswitch.conf", "hosts", "host.conf", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
    *("pki/tls/certs", "ca-certificates", "pki/ca-trust", "mime.types", "magic", "fonts", "os-release"),
    *("debian_version", "locale.alias", "terminfo", "papersize", "gai.conf", "ethertypes", "rpc"),
)
CONFIGURATION = tuple(f"/etc/{name}" for name in _ETC)
"""Files that programs may read in ``/etc``: no password hashes, no keys."""
PROCESSORS = ("/sys/devices/system/cpu",)
"""Where numerical libraries count processors."""

_READ_ONLY_OF_KERNEL = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Settings of the whole machine, which root may change without any capability: ``core_pattern`` starts a program."""
_HIDDEN_OF_KERNEL = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/kmsg"),
    *("/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
)
"""What container engines hide too. Bubblewrap mounts of ``/sys`` only ``PROCESSORS``."""

_MOST_HIDDEN = 100
_MOST_SEARCHED = 5_000
"""Number of folders of installed packages that are searched for sockets."""
_MOST_ENTRIES = 20_000
"""In each of them."""
_LONGEST_SEARCH_S = 0.1

HOME = "/home/sandbox"
"""Empty, and removed after the run."""
_CONFINEMENT = ("no files outside the project", "no network", "no other processes")
"""What namespaces deny a program, for display."""
_MOST_FOLDERS = 120
"""Number of folders above read-only paths that are mounted, nearest to the root first."""


def drop_missing(access: Access) -> Access:
    """Return ``access`` without paths that do not exist and cannot be mounted."""
    return replace(
        access,
        read_write=tuple(path for path in access.read_write if path.exists()),
        read_only=tuple(path for path in access.read_only if path.exists()),
        overlaid=tuple(path for path in access.overlaid if path.is_dir()),
    )


class Bind(NamedTuple):
    """A path of the machine, and the path at which a program finds it."""

    shown: Path
    source: Path
    is_writable: bool


def list_binds(access: Access) -> list[Bind]:
    """Return the paths to mount; shorter paths first, since later mounts win."""
    binds = {_show(path, access): Bind(_show(path, access), path, is_writable=True) for path in access.read_write}
    readable = [path for path in access.read_only if not _is_in_usr(path)]
    # A program could replace a link in a writable folder, so its target is mounted too.
    readable += [path for path in map(Path.resolve, readable) if not _is_in_usr(path)]
    binds |= {_show(path, access): Bind(_show(path, access), path, is_writable=False) for path in readable}
    # A mounted folder cannot be moved away or replaced, so mount all folders between a read-only path and the writable
    # folder around it.
    inner = {_show(path, access).parent for path in readable}
    between = {each for folder in inner for each in _list_folders_between(folder, binds)}
    # Elsewhere a folder may be missing: there bubblewrap creates a mount point.
    folders = [each for each in sorted(between, key=_depth) if each.shown == each.source or each.source.is_dir()]
    folders = [folder for folder in folders if not folder.source.is_symlink()]
    binds |= {folder.shown: folder for folder in folders[:_MOST_FOLDERS]}
    return sorted(binds.values(), key=_depth)


def _mount(access: Access, *, overlays: Collection[Path] = ()) -> Iterator[Bind]:
    """Yield what ``list_binds`` returns, and create missing mount points in copies, where programs may not write.

    In folders that are to be overlaid and are not in ``overlays``, sockets, pipes and devices are hidden.
    """
    binds = {bind.shown: bind for bind in list_binds(access)}
    for shown, bind in binds.items():
        around = next((binds[folder] for folder in shown.parents if folder in binds), None)
        if around is not None and not around.is_writable and around.source in access.shown_at and bind.source.is_dir():
            place = around.source / shown.relative_to(around.shown)
            if place.parent.resolve().is_relative_to(around.source.resolve()):
                place.mkdir(parents=True, exist_ok=True)
        yield bind
    readable = (bind for bind in binds.values() if bind.source in access.overlaid and bind.source not in overlays)
    yield from islice(_hide_special_files(readable, mounted=binds), _MOST_HIDDEN)


def _list_records(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders with cdd's records in the repositories at ``folders``, which no program may read or change."""
    found = dict[Path, None]()
    for folder in folders:
        for git in (folder, folder / ".git"):
            if os.path.isfile(git / "HEAD"):
                for place in (git, *git.glob("modules/*")):  # a submodule keeps its repository there
                    own = (place / RECORDS, *place.glob(f"{SET_ASIDE}*"))
                    found |= dict.fromkeys(each for each in own if each.is_dir() and not each.is_symlink())
    return tuple(found)


def _hide_records(access: Access) -> Iterator[Path]:
    """Yield where a program would find cdd's records, to be covered by empty folders."""
    binds = {bind.shown: bind for bind in list_binds(access)}
    for bind in tuple(binds.values()):
        for hidden in _list_records([bind.source]):
            shown = bind.shown / hidden.relative_to(bind.source)
            top = next(binds[folder] for folder in (shown, *shown.parents) if folder in binds)
            if top.source / shown.relative_to(top.shown) == hidden:  # no later mount covers it
                yield shown


def _leave_out_records(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths, and in place of a folder around cdd's records what else is in it."""
    for path in paths:
        hidden = _list_records([path])
        around = {folder for each in hidden for folder in each.parents if folder.is_relative_to(path)}
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if here not in around:
                yield here
                continue
            with suppress(OSError):
                waiting += [here / name for name in os.listdir(here) if here / name not in hidden]


def _hide_special_files(folders: Iterable[Bind], *, mounted: Collection[Path]) -> Iterator[Bind]:
    """Yield mounts of an empty file over the sockets, pipes and devices in ``folders``, the topmost first.

    A read-only mount does not keep a program from connecting to a socket, or from writing to a pipe. Large folders are
    searched as far as the limits allow, without those that are ``mounted`` themselves.
    """
    waiting, places = deque((str(bind.shown), str(bind.source)) for bind in folders), frozenset(map(str, mounted))
    ends = time.monotonic() + _LONGEST_SEARCH_S
    for _ in range(_MOST_SEARCHED):
        if not waiting or time.monotonic() > ends:
            return
        shown, source = waiting.popleft()
        with suppress(OSError):
            inner, special = _search(source, os.stat(source).st_mtime_ns)
            for name in special:
                yield Bind(Path(shown, name), Path(os.devnull), is_writable=False)
            waiting.extend((f"{shown}/{name}", f"{source}/{name}") for name in inner if f"{shown}/{name}" not in places)


@lru_cache(maxsize=_MOST_SEARCHED)
def _search(folder: str, _changed_ns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the folders in ``folder``, and those of its sockets, pipes and devices."""
    with os.scandir(folder) as opened:
        entries = tuple(islice(opened, _MOST_ENTRIES))
    inner = tuple(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    others = (entry for entry in entries if not entry.is_dir(follow_symlinks=False))
    return inner, tuple(e.name for e in others if not (e.is_symlink() or e.is_file(follow_symlinks=False)))


def _list_folders_between(folder: Path, binds: Mapping[Path, Bind]) -> tuple[Bind, ...]:
    """Return ``folder`` and those above it up to the writable folder around them; empty if there is none."""
    folders = (folder, *folder.parents)
    for number, each in enumerate(folders):
        if each in binds:
            top, inside = binds[each], folders[:number]
            found = (Bind(path, top.source / path.relative_to(each), is_writable=True) for path in inside)
            return tuple(found) if top.is_writable else ()
    return ()


def _show(path: Path, access: Access) -> Path:
    """Return where the program finds ``path``."""
    text = str(path)
    for folder in sorted(map(str, access.shown_at), key=len, reverse=True):
        if text == folder or text.startswith(f"{folder}/"):
            return access.shown_at[Path(folder)] / text[len(folder) + 1 :]
    return path


def _show_text(text: str, access: Access) -> str:
    """Return ``text`` with the paths by which the program finds the folders that it names."""
    if not access.shown_at:
        return text
    names = sorted(map(str, access.shown_at), key=len, reverse=True)
    pattern = f"(?:{'|'.join(map(re.escape, names))})(?![\\w.-])"
    return re.sub(pattern, lambda found: str(access.shown_at[Path(found[0])]), text)


def _translate(command: Command, environment: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the arguments and the environment as the program gets them."""
    argv = (find_program(command, environment), *command.argv[1:])
    shown = {name: _show_text(value, command.access) for name, value in environment.items()}
    return tuple(_show_text(each, command.access) for each in argv), shown


def _depth(bind: Bind) -> int:
    return len(bind.shown.parts)


def _is_in_usr(path: Path) -> bool:  # always mounted
    return path.is_relative_to("/usr")


def _build_isolated_environment(command: Command) -> dict[str, str]:
    environment = build_environment(command) | {"HOME": HOME}
    environment.pop("TMPDIR", None)  # the user's folder for temporary files is not mounted
    return environment | dict(command.variables)


_ROOT_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into ``/usr``, or folders on older systems."""
_STORES = ("/nix/store", "/gnu/store", "/run/current-system")
_IN_MEMORY = (("/tmp", 4), ("/run", 32), (HOME, 8), ("/dev/shm", 8))
"""Folders in memory, and the divisor of the machine's memory that limits the size of each."""
_HELP_TIMEOUT_S = 10


class BubblewrapSandbox:
    """Runs programs with ``bwrap``."""

    level = "bwrap"

    def __init__(self, bwrap: Path) -> None:
        """Find out which newer options ``bwrap`` knows; raises ``OSError`` if it cannot be started."""
        self.bwrap = bwrap
        process = subprocess.run(
            [str(bwrap), "--help"], env={}, capture_output=True, text=True, timeout=_HELP_TIMEOUT_S, check=False
        )
        usage = process.stdout + process.stderr
        self._newer = ("--disable-userns",) if "--disable-userns" in usage else ()
        self._limits_memory = "--size " in usage
        self._has_overlays = "--tmp-overlay " in usage
        self._obstacles: dict[tuple[Path, ...], Mapping[Path, str]] = {}

    def run(self, command: Command) -> Result:
        """Run the program in new namespaces; their mounts disappear with its last process."""
        argv, environment = _translate(command, _build_isolated_environment(command))
        access = drop_missing(command.access)
        launch = Launch(
            level=self.level,
            argv=(*self._options(access), "--chdir", str(_show(command.cwd, access)), "--", *argv),
            environment=environment,
            rules={"paths": None},
            confinement=_CONFINEMENT,
            reports_like_shell=True,
        )
        return run_launch(command, launch)

    def find_obstacles(self, folders: tuple[Path, ...]) -> Mapping[Path, str]:
        """Return those of ``folders`` of which no overlay can be mounted, with the reasons; each set is tried once."""
        if folders not in self._obstacles:
            why = self._try_overlays(folders) if folders else ""
            single = {folder: self._try_overlays((folder,)) for folder in folders} if why else {}
            found = {folder: reason for folder, reason in single.items() if reason}
            self._obstacles[folders] = found or dict.fromkeys(folders if why else (), why)
        return self._obstacles[folders]

    def _try_overlays(self, folders: tuple[Path, ...]) -> str:
        """Mount an overlay of each of ``folders``; return why that fails, or an empty text."""
        if not self._has_overlays:
            return f"{self.bwrap} does not support --tmp-overlay, which came with version 0.11"
        if any(map(_has_mounts, folders)):
            return "another file system is mounted in it"  # and would be missing in an overlay
        layers = [
            ("--overlay-src", str(path), "--tmp-overlay", str(Path(HOME, str(n)))) for n, path in enumerate(folders)
        ]
        argv = (*self._options(Access()), *chain.from_iterable(layers), "--", "/bin/sh", "-c", ":")
        try:
            tried = subprocess.run(argv, env={}, capture_output=True, timeout=_HELP_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        said = tried.stderr.decode("utf-8", "replace").strip()
        return (said or f"exit status {tried.returncode}") if tried.returncode else ""

    def _options(self, access: Access) -> Iterator[str]:
        overlays = set(access.overlaid) - self.find_obstacles(access.overlaid).keys()
        yield str(self.bwrap)
        for name in ("user", "pid", "ipc", "uts", "cgroup-try", "net"):
            yield f"--unshare-{name}"
        yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", *self._newer)
        yield from ("--ro-bind", "/usr", "/usr")
        for folder in _ROOT_FOLDERS:
            if os.path.islink(folder):
                yield from ("--symlink", os.readlink(folder), folder)
            elif os.path.isdir(folder):
                yield from ("--ro-bind", folder, folder)
        for path in (*_STORES, *CONFIGURATION, *PROCESSORS):
            if os.path.exists(path):
                yield from ("--ro-bind", path, path)
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from _protect_kernel()
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for folder, divisor in _IN_MEMORY:
            size = ("--size", str(machine // divisor)) if self._limits_memory else ()
            yield from (*size, "--tmpfs", folder)
        for bind in _mount(access, overlays=overlays):
            if bind.source in overlays:
                yield from ("--overlay-src", str(bind.source), "--tmp-overlay", str(bind.shown))
            else:
                yield from ("--bind" if bind.is_writable else "--ro-bind", str(bind.source), str(bind.shown))
        for covered in _hide_records(access):
            yield from ("--tmpfs", str(covered), "--remount-ro", str(covered))
        yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _has_mounts(folder: Path) -> bool:
    """Return whether something is mounted below ``folder``."""
    # The kernel writes some characters as octal numbers here.
    name = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", f"{os.path.realpath(folder)}/")
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return any(line.split(" ")[4].startswith(name) for line in mounts.split("\n") if line)


def _protect_kernel() -> Iterator[str]:
    """Yield the options for the kernel's files; bubblewrap fails if it is to mount over a path that does not exist."""
    for path in filter(os.path.exists, _READ_ONLY_OF_KERNEL):
        yield from ("--ro-bind", path, path)
    heat = (f"{path}/thermal_throttle" for folder in PROCESSORS for path in glob.glob(f"{folder}/cpu[0-9]*"))
    for path in filter(os.path.exists, (*_HIDDEN_OF_KERNEL, *heat)):
        yield from ("--tmpfs", path, "--remount-ro", path) if os.path.isdir(path) else ("--dev-bind", "/dev/null", path)


IMAGE = "cdd-sandbox:empty"
_TIMEOUT_S = 20.0
_EMPTY_ARCHIVE = bytes(10_240)
_CLIENT_VARIABLES = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "XDG_RUNTIME_DIR",
    "CONTAINER_HOST",
)
"""Passed to the client, which needs them to find its server, and not to the program."""


class ContainerSandbox:
    """Runs programs with ``docker`` or ``podman``."""

    level = "docker"

    def __init__(self, client: Path) -> None:
        """Create the empty image if there is none; raises ``EnvironmentMissing`` without a working server."""
        self.client = client
        is_podman = client.name.startswith("podman")
        # The server may be another user's, so only its own answer tells whether it runs as root.
        question = ("info", "{{.Host.Security.Rootless}}") if is_podman else ("version", "{{.Server.Version}}")
        answer = self._query(question[0], "--format", question[1])
        if answer is None:
            raise EnvironmentMissing(f"The server of {client} does not answer.", hint="start it, or use another level")
        # A podman of root refuses keep-id, and needs none: there each number is the same inside and outside.
        self._users = ("--userns", "keep-id") if is_podman and answer == "true" else ()
        if self._query("image", "inspect", IMAGE) is None and self._query("import", "-", IMAGE) is None:
            raise EnvironmentMissing(f"{client} cannot create the image {IMAGE}.", hint="use another level")

    def run(self, command: Command) -> Result:
        """Run the program in a new container, which is killed at the time limit and always removed."""
        program, environment = _translate(command, _build_isolated_environment(command))
        access, name = drop_missing(command.access), f"cdd-{secrets.token_hex(8)}"
        argv = (*self._options(access, name), *_limit_options(resolve_limits(command)))
        argv += ("--workdir", str(_show(command.cwd, access)))
        for key, value in environment.items():
            argv += ("--env", f"{key}={value}")
        launch = Launch(
            level=self.level,
            argv=(*argv, *(() if command.stdin is None else ("--interactive",)), IMAGE, *program),
            environment=_client_environment(),
            confinement=_CONFINEMENT,
            reports_like_shell=True,
            applies_limits=True,
            kill_command=(str(self.client), "kill", name),
        )
        return run_launch(command, launch)

    def _options(self, access: Access, name: str) -> Iterator[str]:
        yield from (str(self.client), "run", "--rm", "--name", name, "--pull", "never")
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--user", f"{os.getuid()}:{os.getgid()}", "--network", "none")
        yield from self._users
        for folder in ("/tmp", "/run", HOME):
            yield from ("--tmpfs", f"{folder}:rw,exec,mode=1777")
        for path in (*PROGRAMS, *CONFIGURATION):
            if os.path.exists(path):
                yield from ("--volume", f"{path}:{path}:ro")
        for bind in _mount(access):
            yield from ("--volume", f"{bind.source}:{bind.shown}{'' if bind.is_writable else ':ro'}")
        for covered in _hide_records(access):
            yield from ("--tmpfs", f"{covered}:ro")

    def _query(self, *arguments: str) -> str | None:
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


_ULIMITS = {
    resource.RLIMIT_CPU: "cpu",
    resource.RLIMIT_FSIZE: "fsize",
    resource.RLIMIT_NOFILE: "nofile",
    resource.RLIMIT_NPROC: "nproc",
}


def _limit_options(limits: Limits) -> Iterator[str]:
    yield from ("--ulimit", "core=0")
    # No container starts with a limit above the engine's own, and without nproc podman asks for a million processes.
    for number, most in to_rlimits(limits):
        if number in _ULIMITS:
            hard = resource.getrlimit(number)[1]
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            yield from ("--ulimit", f"{_ULIMITS[number]}={allowed}")
    # These two are limits of the whole container.
    yield from ("--memory", f"{limits.memory_bytes}b", "--pids-limit", str(limits.processes))


def _client_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _CLIENT_VARIABLES if name in os.environ}


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
"""No terminal, since a program could read the user's. Semaphores between processes need the machine's ``/dev/shm``."""

_CAN_REFUSE_SOCKETS = kernel.is_available()
NOT_STOPPED = ", ".join(
    (
        "not stopped: socket files",
        "shared memory (/dev/shm)",
        "chmod, chown and touch of your files outside",
        *(() if _CAN_REFUSE_SOCKETS else ("UDP and MPTCP, listening on a port that the kernel picks, kernel keys",)),
    )
)


_SEARCHED_ABOVE = (
    *("pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("Cargo.toml", ".cargo/config.toml", ".cargo/config", "rust-toolchain.toml", "rust-toolchain"),
    *("go.mod", "go.work", "package.json", "tsconfig.json", "jsconfig.json"),
)
"""Files that tools also look for in the folders above a project, and that stop them if they cannot be read."""


def _find_configuration_above(access: Access) -> Iterator[Path]:
    """Yield the configuration of the original project around a copy that lies inside it."""
    for copy, original in access.shown_at.items():
        inside = len(copy.relative_to(original).parts) if copy.is_relative_to(original) else 0
        for folder, name in product(tuple(copy.parents)[:inside], _SEARCHED_ABOVE):
            # A link in the project could lead to any file.
            if (folder / name).is_file() and (folder / name).resolve() == folder.resolve() / name:
                yield folder / name


class LandlockSandbox:
    """Runs programs as processes that have given up most rights."""

    level = "landlock"

    def run(self, command: Command) -> Result:
        """Run the program with a temporary home and a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as folder:
            home, temporary = Path(folder) / "home", Path(folder) / "tmp"
            home.mkdir()
            temporary.mkdir()
            environment = build_environment(command, HOME=str(home), TMPDIR=str(temporary), GIT_CONFIG_NOSYSTEM="1")
            access = command.access
            read = (*PROGRAMS, *CONFIGURATION, *PROCESSORS, "/proc", *map(str, _leave_out_records(access.read_only)))
            # git fails on a file that it cannot read, and some tools drop the variable that makes git ignore this one.
            read += ("/etc/gitconfig", *map(str, _find_configuration_above(access)))
            write = (*_DEVICES, folder, *map(str, access.read_write))
            no_network = "no network" if _CAN_REFUSE_SOCKETS else "no plain TCP"
            launch = Launch(
                level=self.level,
                argv=(find_program(command, environment), *command.argv[1:]),
                environment=environment,
                rules={"paths": {"read": list(read), "write": list(write)}},
                confinement=("no files outside the project", no_network, NOT_STOPPED),
            )
            return run_launch(command, launch)
