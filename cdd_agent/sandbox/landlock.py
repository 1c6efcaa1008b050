"""The Landlock rung: the kernel refuses what no rule allows, where no namespace can be had.

It does not stop datagrams (UDP, and so DNS) nor sockets with a file, shows other processes, and cannot except a
folder from one that may be written to: what stays as it is inside the project is looked after when a run has ended.
"""

import tempfile
from pathlib import Path

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import Launch, carry_out, environment_for, program

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
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
MACHINE = ("/sys/devices/system/cpu",)
"""Where numerical libraries look for processors."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/shm")

NOT_STOPPED = "not stopped: UDP, socket files"
"""What the level does not say."""


class LandlockSandbox:
    """Runs programs as processes that have given up most rights."""

    level = "landlock"

    def run(self, command: Command) -> Result:
        """Run the program with a home and a folder for temporary files that are gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="cdd-run-") as folder:
            home, temporary = Path(folder) / "home", Path(folder) / "tmp"
            home.mkdir()
            temporary.mkdir()
            own = {"HOME": str(home), "TMPDIR": str(temporary)}
            environment = environment_for(command) | own | dict(command.variables)
            access = command.access
            read = (*_PROGRAMS, *CONFIGURATION, *MACHINE, "/proc", *map(str, access.read_only))
            write = (*_DEVICES, folder, *map(str, access.read_write))
            launch = Launch(
                level=self.level,
                argv=(program(command, environment), *command.argv[1:]),
                environment=environment,
                rules={"read": list(read), "write": list(write), "network": access.network},
                confined=(
                    "no files outside the project",
                    *(() if access.network else ("no TCP",)),
                    NOT_STOPPED,
                ),
            )
            return carry_out(command, launch)
