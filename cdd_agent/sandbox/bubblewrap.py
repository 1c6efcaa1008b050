"""The bubblewrap rung: namespaces of its own, in which only what the run needs is there at all."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cdd_agent.sandbox.port import Access, Command, Result
from cdd_agent.sandbox.reachable.machine import CONFIGURATION, PROCESSORS
from cdd_agent.sandbox.reachable.mounts import HOME, confined, existing
from cdd_agent.sandbox.supervised import Launch, carry_out, environment_for, program

_ROOT_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into ``/usr``, or, on older systems, folders."""
_STORES = ("/nix/store", "/gnu/store", "/run/current-system")
_NETWORK = ("/etc/resolv.conf", "/run/systemd/resolve")
_IN_MEMORY = (("/tmp", 4), ("/run", 32), (HOME, 8), ("/dev/shm", 8))
"""Folders that are only in memory, and which part of the machine's each may take."""
_HELP_TIMEOUT_S = 10
_MOST_FOLDERS = 120
"""So many folders on the way to what is read-only are kept from being moved, those nearest to the top."""


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
