"""One run at a time in a folder that is looked after.

A run's guard takes what it finds for the user's. Were another run under way in the same folder, that could be a file
which the other's guard removes in the end, and this one would put it back.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator

from cdd_agent.errors import EnvironmentMissing

PATIENCE_S = 900.0
"""Longer than a run may take."""
_TICK_S = 0.02


@contextlib.contextmanager
def turn(roots: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Wait until no other run looks after one of the folders; gives the descriptors that hold them locked.

    A folder stays locked until every process that got its descriptor has closed it, and so until a warden whose
    caller was killed has put everything back. A folder that is missing or cannot be locked has no turns.
    Raises ``EnvironmentMissing`` after ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    held: list[int] = []
    try:
        for root in sorted({os.path.realpath(root) for root in roots}):
            with contextlib.suppress(OSError):
                held.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                while not _is_ours(held[-1]):
                    if time.monotonic() > deadline:
                        raise EnvironmentMissing(
                            f"Another run in {root} has not ended for {PATIENCE_S / 60:.0f} minutes.",
                            hint=f"see who holds the folder: fuser -v {root}",
                        )
                    time.sleep(_TICK_S)
        yield tuple(held)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    """Whether the folder is locked for us now; raises ``OSError`` where folders have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
