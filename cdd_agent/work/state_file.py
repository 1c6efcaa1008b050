"""Read and write ``execution-state.json``, the state of a run, and lock the files of a ticket.

A file that is damaged, or written by a newer version, raises an error and stays unchanged. It never counts as "no
state".
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.storage import exclusive_lock, read_ordinary, sweep, write_atomic
from cdd_agent.untrusted import documents
from cdd_agent.work.state import SCHEMA, RunState, Usage

LIMIT_BYTES = 10_000_000
"""The size limit of a state, about a thousand times that of a long plan."""
_OWN_REPORT = re.compile(r"(?:[^/\0]+/)*\.cdd/reports/[^/\0]+/[^/\0]+\.json")
_OWN_REF = re.compile(r"refs/cdd/[\w./-]+")
_COMMIT = re.compile(r"[0-9a-f]{1,64}")


class _StateVersion(msgspec.Struct):
    """The field that shows whether this version can read the rest."""

    schema: int


class _NewerSchemaError(DocumentError):
    """A later version of cdd wrote the file."""


def encode(state: RunState) -> bytes:
    """Return ``state`` as indented JSON. Text that UTF-8 cannot encode is escaped."""
    return msgspec.json.format(documents.encode_json(state), indent=2) + b"\n"


def decode(data: bytes, *, path: str) -> RunState:
    """Decode a state. Raises ``DocumentError`` with the location, and nothing else, for any invalid bytes."""
    problem: Problem
    try:
        documents.check_json(data.decode("utf-8"), limit_bytes=LIMIT_BYTES)
        head = msgspec.json.decode(data, type=_StateVersion)
        if head.schema < 1:
            raise msgspec.ValidationError(f"Expected a schema from 1 to {SCHEMA}, got {head.schema} - at `$.schema`")
        if head.schema > SCHEMA:
            raise _NewerSchemaError(
                path,
                (Problem(line=0, message=f"it has schema {head.schema}; this version of cdd reads up to {SCHEMA}"),),
                hint="upgrade with: pip install --upgrade cdd-agent",
            )
        state = msgspec.json.decode(data, type=RunState)
        for number, step in state.step_executions.items():
            if number != step.step_number:
                raise msgspec.ValidationError(
                    f"Expected step_number {number}, got {step.step_number} - at `$.step_executions[...]`"
                )
    except msgspec.ValidationError as error:
        problem = Problem(line=0, message=str(error))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        problem = Problem(line=data.count(b"\n") + 1, message=f"it is incomplete or damaged: {error}")
    else:
        return state
    raise DocumentError(path, (problem,), hint=f"restore a copy of {path}, or delete it to start over")


START_OVER = "to start over: the commits stay"


def load(path: Path, *, without: str = START_OVER) -> RunState | None:
    """Load the state. Return None only if the file does not exist.

    A damaged file is copied once. The error names the copy, and the previous state or the effect of deleting the file
    (``without``).
    """
    data = _read(path)
    if data is None:
        return None
    try:
        state = decode(data, path=str(path))
        # cdd reads, writes and moves the files, refs and commits that a state names, so they must be its own.
        foreign = _find_foreign_value(state)
        if foreign is not None:
            raise DocumentError(str(path), (Problem(line=0, message=foreign),), hint="delete it to start over")
        return state
    except _NewerSchemaError:
        raise
    except DocumentError as error:
        copy = _copy_damaged(path, data)
        raise DocumentError(error.path, error.problems, hint=_suggest_repair(path, copy, without=without)) from error


def save(path: Path, state: RunState) -> None:
    """Save ``state`` atomically, and the previous one as ``.bak``.

    Raises ``DocumentError`` if the present file cannot be read as a state, and ``OSError`` if writing fails. The state
    on disk then stays unchanged.
    """
    data, previous = encode(state), _read(path)
    if previous == data:
        return
    if previous is not None:
        decode(previous, path=str(path))
        write_atomic(backup_path(path), previous)
    write_atomic(path, data)


def backup_path(path: Path) -> Path:
    """Return the path of the previous state."""
    return path.with_name(path.name + ".bak")


def _find_foreign_value(state: RunState) -> str | None:
    if _has_negative(state.usage):
        return f"the run has a negative usage: {state.usage!r:.200}"
    for number, step in state.step_executions.items():
        if _has_negative(step.usage):
            return f"step {number} has a negative usage: {step.usage!r:.200}"
        values = [
            ("baseline", _OWN_REPORT, step.baseline),
            ("checkpoint", _OWN_REF, step.checkpoint),
            ("base_commit", _COMMIT, step.base_commit),
            *((f"commits.{phase}", _COMMIT, commit) for phase, commit in step.commits.items() if commit),
        ]
        for attempt in step.attempts:
            values += [("report", _OWN_REPORT, attempt.report), ("checkpoint", _OWN_REF, attempt.checkpoint)]
        for name, pattern, value in values:
            if value is not None and (pattern.fullmatch(value) is None or ".." in value):
                return f"step {number} has the {name} {value!r:.100}, which cdd did not create"
    return None


def _has_negative(usage: Usage) -> bool:
    # A negative number would let the run exceed its limits.
    return any(value is not None and value < 0 for value in astuple(usage))


def _read(path: Path) -> bytes | None:
    try:
        return read_ordinary(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=f"inspect it: ls -l {path}") from error


def _copy_damaged(path: Path, data: bytes) -> Path | None:
    """Copy the damaged ``data`` next to ``path``. Return None if that fails."""
    # Named by the time of the file, so running a command again does not create a second copy.
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
    copy = path.with_name(f"{path.name}.corrupt-{written}")
    with contextlib.suppress(OSError):
        if not copy.exists():
            write_atomic(copy, data)
        return copy
    return None


def _suggest_repair(path: Path, copy: Path | None, *, without: str) -> str:
    saved = f"a copy is saved as {copy.name}" if copy else "cdd could not save a copy"
    backup = backup_path(path)
    try:
        decode(read_ordinary(backup, limit_bytes=LIMIT_BYTES), path=str(backup))
    except (OSError, DocumentError):
        return f"{saved}; repair {path}, or delete it {without}"
    return f"{saved}; restore the state before the last change: cp {backup} {path}"


REPOSITORY_LOCK = "cdd-exec.lock"
"""The name of the lock in git's common folder: all work trees share checkpoints, branches and notes."""


@contextlib.contextmanager
def lock_ticket(project: Path, folder: Path) -> Iterator[bool]:
    """Lock the ticket in ``folder``, or raise ``UsageError``; yield whether the last holder was killed."""
    private = private_folder(project)
    lock = private / "locks" / f"{folder.name}.lock"
    with exclusive_lock(lock, purpose=f"Work on the ticket {folder.name}") as was_killed:
        sweep((folder, folder.parent, private))
        for leftover in (private / "reports" / folder.name).glob("*.json.*.tmp"):
            leftover.unlink()
        yield was_killed


@contextlib.contextmanager
def lock_checkpoints(common: Path, slug: str) -> Iterator[bool]:
    """Lock a ticket for all work trees of a repository; raise and yield as ``lock_ticket`` does."""
    with exclusive_lock(common / f"cdd-exec-{slug}.lock", purpose=f"Work on the ticket {slug}") as was_killed:
        yield was_killed


@contextlib.contextmanager
def lock_repository(common: Path, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Lock the repository for all its work trees, or raise ``UsageError``; yield whether the last holder was killed."""
    purpose = "Carrying out a plan in this repository"
    with exclusive_lock(common / REPOSITORY_LOCK, purpose=purpose, wait_s=wait_s) as was_killed:
        yield was_killed
