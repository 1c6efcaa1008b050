"""Who may work on a ticket, and on a repository, at a time: one process each, whatever the others are told."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cdd_agent.config.settings import private_folder
from cdd_agent.storage import exclusive, sweep

REPOSITORY_LOCK = "cdd-exec.lock"
"""In the folder that all work trees share: checkpoints, branches and notes are the repository's."""


@contextlib.contextmanager
def holding_ticket(project: Path, folder: Path) -> Iterator[bool]:
    """Be the only one to write the files of the ticket in ``folder`` while the block runs.

    Yields whether the last one who did was killed; what its writes left beside the ticket's files is removed. Raises
    ``UsageError`` naming the process that holds it.
    """
    private = private_folder(project)
    lock = private / "locks" / f"{folder.name}.lock"
    with exclusive(lock, purpose=f"Work on the ticket {folder.name}") as was_killed:
        sweep((folder, folder.parent, private))
        for left in (private / "reports" / folder.name).glob("*.json.*.tmp"):
            left.unlink()
        yield was_killed


@contextlib.contextmanager
def holding_repository(common: Path) -> Iterator[bool]:
    """Be the only one to carry a plan out in the repository whose shared folder is ``common``.

    Another project folder or work tree of it counts too. Yields whether the last one who did was killed; raises
    ``UsageError`` naming the process that holds it.
    """
    with exclusive(common / REPOSITORY_LOCK, purpose="Carrying out a plan in this repository") as was_killed:
        yield was_killed
