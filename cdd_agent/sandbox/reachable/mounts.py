"""What a program finds where only what was mounted for it is there: on the rungs with a root folder of its own."""

from cdd_agent.sandbox.port import Access

HOME = "/home/sandbox"
"""Empty, and gone with the run."""


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
