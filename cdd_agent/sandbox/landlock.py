"""The Landlock rung: the kernel refuses what no rule allows, where no namespace can be had.

A filter of system calls refuses the sockets that Landlock does not see. Neither stops sockets with a file, shared
memory, nor a change of the mode, owner and times of a file outside; other processes are shown; and no folder can be
excepted from one that may be written to: what stays as it is inside the project is looked after when a run has ended.
"""

import tempfile
from pathlib import Path

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.reachable.machine import CONFIGURATION, PROCESSORS, PROGRAMS
from cdd_agent.sandbox.supervised import Launch, carry_out, environment_for, program
from cdd_agent.sandbox.warden import seccomp

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
"""No terminal: those of the user could be read. ``/dev/shm`` is the machine's; semaphores between processes need it."""

_SOCKETS_ARE_REFUSED = seccomp.is_available()
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
