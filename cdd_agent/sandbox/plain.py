"""The plain rung: a built environment, limits, and an end for everything that was started.

It confines no file and no network access, and its level says so.
"""

import tempfile

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import Launch, carry_out, environment_for, program


class PlainSandbox:
    """Runs programs as processes of this user."""

    level = "none"

    def run(self, command: Command) -> Result:
        """Run the program; it may read, write and reach whatever this user may.

        Temporary files get a folder that is gone afterwards: pytest removes what older runs of the user left in a
        shared one, and waits until that is done.
        """
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as temporary:
            environment = environment_for(command, TMPDIR=temporary)
            argv = (program(command, environment), *command.argv[1:])
            return carry_out(command, Launch(level=self.level, argv=argv, environment=environment))
