"""The bubblewrap rung: namespaces of its own, in which only what the run needs is there at all."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.sandbox.port import Access, Command, Result
from cdd_agent.sandbox.reachable.machine import CONFIGURATION, PROCESSORS
from cdd_agent.sandbox.reachable.mounts import HOME, binds, confined, existing, held
from cdd_agent.sandbox.supervised import Launch, carry_out, environment_for, program

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
