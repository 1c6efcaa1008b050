"""The rung of containers: one container a run, of an image without any file, with this machine's programs inside.

No image is ever fetched: the empty one is made here, once. It counts only if a server answers and the self-test
passes, which it cannot where the server is another machine.
"""

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Limits, Result
from cdd_agent.sandbox.reachable.machine import CONFIGURATION, PROGRAMS
from cdd_agent.sandbox.reachable.mounts import HOME, binds, confined, existing, held
from cdd_agent.sandbox.supervised import Launch, bounds_of, carry_out, environment_for, program

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
