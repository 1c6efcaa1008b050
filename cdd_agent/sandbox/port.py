"""The sandbox port: run a program that a model wrote or asked for, at one of the levels.

The command line needs the levels before anything else is loaded, so this module imports only the standard library.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, get_args

Level = Literal["bwrap", "docker", "landlock", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""In the order in which they are tried: bubblewrap confines like a container, and starts in a fifth of its time."""
# Under `landlock`, a command could delete `.git` and use sockets in the file system.
ISOLATING_LEVELS = frozenset[str]({"bwrap", "docker"})
"""Levels at which a command reaches neither the network nor anything outside the project, and finds a run tree at the
project's own path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of a program and all that it starts."""

    memory_bytes: int
    """Data segment of each process."""
    cpu_s: int
    """Processor time of each process."""
    file_bytes: int
    """Size of each file it writes."""
    open_files: int
    """Of each process."""
    processes: int
    """Of this user together; the kernel does not apply it to root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The absolute paths that a program may use besides the system's own programs."""

    read_write: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Also used for exceptions inside ``read_write``: the longest path decides, and ``read_only`` if both are equal.
    Paths that do not exist are ignored."""
    overlaid: tuple[Path, ...] = ()
    """Folders of ``read_only`` in which a program may write where the sandbox can drop what it wrote when it ends."""
    shown_at: Mapping[Path, Path] = field(default_factory=dict)
    """Folders of ``read_write`` and ``read_only`` -> the path at which the program finds them. Its arguments, working
    folder and variables are translated. Levels without a root folder of their own show each folder at its own path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run, and its bounds."""

    argv: tuple[str, ...]
    cwd: Path
    access: Access
    timeout_s: float
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that are passed on from this process."""
    limits: Limits | None = None
    """None: ``make_default_limits``."""
    output_cap: int = 64_000
    """In bytes; longer output keeps its head and tail."""
    stdout: int | None = None
    """A descriptor of this process that becomes the program's standard output, which is then missing in the result."""
    stdin: int | None = None
    """The descriptor of a socket that becomes the program's standard input, which is otherwise empty. The program is
    ended when the caller closes the other end. It may be ``stdout`` too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a program ended."""

    exit_status: int
    """The program's own, or minus the number of the signal that ended it."""
    head: str
    """Standard output and error, interleaved; only the beginning if they are longer than the cap."""
    dropped_bytes: int
    """Size of the output between ``head`` and ``tail``."""
    timed_out: bool
    duration_s: float
    level: str
    tail: str = ""
    limits: tuple[str, ...] = ()
    survivors: int = 0
    """Number of its processes that could not be ended."""
    remarks: tuple[str, ...] = ()
    """Messages for the user, such as that a process could not be ended."""

    @property
    def output(self) -> str:
        """The output, with a line for a dropped middle part."""
        return join_output(self.head, self.tail, dropped_bytes=self.dropped_bytes)


def join_output(head: str, tail: str, *, dropped_bytes: int) -> str:
    """Join the head and tail of an output, with a line for the dropped part."""
    return f"{head}\n[... {dropped_bytes} bytes dropped ...]\n{tail}" if dropped_bytes else head + tail


class Sandbox(Protocol):
    """Runs programs, with more or less confinement."""

    level: str
    """``none``, or the kind of confinement; shown in the prompt, reports and state."""

    def run(self, command: Command) -> Result:
        """Run the program until it ends or times out, then end everything that it started.

        Raises ``OSError`` if the program cannot be started, and ``EnvironmentMissing`` if its end is unknown because
        the supervising process was killed or its answer was forged. ``KeyboardInterrupt`` ends the program too.
        """
        ...
