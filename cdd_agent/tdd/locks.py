"""The locks of a run, under which the leftovers of killed ones are removed."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdd_agent.git.repository import Repository, require_usable
from cdd_agent.storage import is_leftover, scratch, sweep
from cdd_agent.tdd.context import Context
from cdd_agent.work.records import find_records
from cdd_agent.work.state import lock_checkpoints, lock_repository, lock_ticket


@contextmanager
def alone(repository: Repository) -> Iterator[None]:
    """Lock the repository against other cdd processes, and remove the leftovers of killed runs.

    Raises ``UsageError`` if another process holds it, ``GitUnable`` if no commit could be made.
    """
    require_usable(repository.location)
    with lock_repository(repository.location.common_dir) as was_killed, scratch():
        if was_killed:
            remove_leftovers(repository)
        yield


@contextmanager
def alone_on(folder: Path, *, context: Context) -> Iterator[None]:
    """Lock ``folder``, which belongs to a ticket or a run, and finish a landing that was killed."""
    common = context.repository.location.common_dir
    require_usable(context.repository.location)
    # All work trees of the repository share the ticket's snapshots; a fork has its own.
    shared = lock_checkpoints(common, folder.name, fork=context.fork)
    with scratch(), lock_ticket(context.project, folder), shared as was_killed:
        if was_killed:
            remove_locks(common / "refs" / "cdd", "/".join(filter(None, ("*", folder.name, context.fork, "*.lock"))))
        context.workplace.finish()
        yield


def remove_leftovers(repository: Repository) -> None:
    """Delete half-written files and stale ref locks of a killed run; the caller holds the repository."""
    remove_write_leftovers(repository)
    records = find_records(repository.root).top
    sweep(records / folder for folder, _, _ in os.walk(records))
    remove_locks(repository.location.common_dir / "refs" / "cdd", "**/*.lock")


def remove_write_leftovers(repository: Repository) -> None:
    """Delete files of a work tree that a killed cdd was writing."""
    found = repository.git("ls-files", ("--others", "--ignored", "--exclude=.*.cdd-*.tmp", "-z"))
    for path in (Path(name) for name in found.split("\0") if name):
        if is_leftover(path.name):
            (repository.root / path).unlink(missing_ok=True)


def remove_locks(refs: Path, pattern: str) -> None:
    """Delete locks of refs that a killed cdd left; other locks may belong to a command that the user is running."""
    for lock in refs.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()
