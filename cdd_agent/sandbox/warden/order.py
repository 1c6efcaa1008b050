"""What a warden is told, and what it answers."""

TYPE_CHECKING = False
"""As in ``typing``, which is not imported here: it takes long."""

if TYPE_CHECKING:
    from typing import TypedDict

    class Paths(TypedDict):
        """The files that Landlock allows; every other is refused."""

        read: list[str]
        write: list[str]

    class Rules(TypedDict):
        """What the kernel refuses the program, besides keys and what else ``seccomp.instructions`` always does."""

        paths: Paths | None
        """None: no Landlock, since something else keeps files and network away."""
        network: bool
        """Whether every socket is left to the program."""

    class Order(TypedDict):
        """One run; passed as ``marshal`` does, which both ends have at no cost."""

        argv: list[str]
        environment: dict[str, str]
        cwd: str
        timeout_s: float
        output_cap: int
        limits: list[tuple[int, int]]
        rules: Rules | None
        kept: list[tuple[str, str]]
        """Folder that the program may write to, and a path relative to it that stays as it is."""
        aside: str | None
        ending: list[str]
        """A command that ends what is no descendant of the warden, such as a container; may be empty."""
        held: list[int]
        """Descriptors that keep other runs away as long as the warden has them; the program gets none."""


FIELDS = 6
"""Numbers before an answer's text: errno of a failed start, exit status, dropped bytes, time-out, survivors, head.

Each ends with a NUL; after them come head and tail of the output, the last number being the size of the head."""

MENDED = b"m"
"""Said to a warden that has answered: what stays as it is has been compared; it does so itself unless it hears that."""

GRACE_S = 0.5
"""From the polite signal to the one that cannot be caught."""
SWEEP_S = 1.2
"""For ending what does not want to be ended; together less than the two seconds that a call may take longer."""
