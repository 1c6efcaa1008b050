"""``execution-state.json``: the state of a run on disk.

A file that is damaged, or newer than this program, is refused and left where it is; it never reads as "no state".
"""

import contextlib
import re
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.untrusted import documents
from cdd_agent.work.state import SCHEMA, RunState, UsageTotals

LIMIT_BYTES = 10_000_000
"""Of a state that is read: some thousand times one of a long plan."""

_OWN_REPORT = re.compile(r"(?:[^/\0]+/)*\.cdd/reports/[^/\0]+/[^/\0]+\.json")
_OWN_REF = re.compile(r"refs/cdd/[\w./-]+")
_COMMIT = re.compile(r"[0-9a-f]{1,64}")


class _Head(msgspec.Struct):
    """As much as tells whether the rest can be read."""

    schema: int


class _NewerSchemaError(DocumentError):
    """The file is whole, but a later version of the program wrote it."""


def encode(state: RunState) -> bytes:
    """``state`` as indented JSON. Text that UTF-8 cannot hold is written with its escapes."""
    try:
        data = msgspec.json.encode(state)
    except UnicodeEncodeError:
        data = msgspec.json.encode(writable(msgspec.to_builtins(state, str_keys=True)))
    return msgspec.json.format(data, indent=2) + b"\n"


def decode(data: bytes, *, path: str) -> RunState:
    """The state in ``data``; ``DocumentError`` with the place if it is damaged, newer or of another form.

    Nothing else is raised, whatever the bytes are.
    """
    problem: Problem
    try:
        documents.check_json(data.decode("utf-8"), limit_bytes=LIMIT_BYTES)
        head = msgspec.json.decode(data, type=_Head)
        if head.schema < 1:
            raise msgspec.ValidationError(f"Expected a schema from 1 to {SCHEMA}, got {head.schema} - at `$.schema`")
        if head.schema > SCHEMA:
            raise _NewerSchemaError(
                path,
                (Problem(line=0, message=f"it has schema {head.schema}; this program reads up to {SCHEMA}"),),
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
        problem = Problem(line=data.count(b"\n") + 1, message=f"it is cut off or damaged: {error}")
    else:
        return state
    raise DocumentError(path, (problem,), hint=f"put back a copy of {path}, or delete it to start over")


START_OVER = "to start over: the commits made stay"


def load(path: Path, *, without: str = START_OVER) -> RunState | None:
    """The state at ``path``; None only if there is no such file. ``without``: what comes of its deletion, for the hint.

    Of a damaged file a copy is kept beside it, once, and the error names the copy and, if it can be read, the
    previous state. A state that names files, refs or commits which no run of this program keeps is damaged too: they
    would be read, written and moved as it says.
    """
    data = _content(path)
    if data is None:
        return None
    try:
        state = decode(data, path=str(path))
        strange = _strange(state)
        if strange is not None:
            raise DocumentError(str(path), (Problem(line=0, message=strange),), hint="delete it to start over")
        return state
    except _NewerSchemaError:
        raise
    except DocumentError as error:
        copy = _keep_damaged(path, data)
        raise DocumentError(error.path, error.problems, hint=_way_out(path, copy, without=without)) from error


def save(path: Path, state: RunState) -> None:
    """Put ``state`` at ``path`` in one step, with what was there before as ``.bak``.

    Raises ``DocumentError`` and writes nothing if what is there cannot be read as a state; ``OSError`` naming the
    file if there is no room, for example, with the state as it was.
    """
    data, previous = encode(state), _content(path)
    if previous == data:
        return
    if previous is not None:
        decode(previous, path=str(path))
        write_atomic(backup_of(path), previous)
    write_atomic(path, data)


def backup_of(path: Path) -> Path:
    """Where the previous state lies."""
    return path.with_name(path.name + ".bak")


def _strange(state: RunState) -> str | None:
    """The first value that this program would not have written, with its place."""
    if _is_below_nothing(state.usage):
        return f"the run has used less than nothing: {state.usage!r:.200}"
    for number, step in state.step_executions.items():
        if _is_below_nothing(step.usage):
            return f"step {number} has used less than nothing: {step.usage!r:.200}"
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
                return f"step {number} has the {name} {value!r:.100}, which is none of this program's"
    return None


def _is_below_nothing(usage: UsageTotals) -> bool:
    """Whether a number is negative, by which more could be used than the limits say."""
    return any(value is not None and value < 0 for value in astuple(usage))


def _content(path: Path) -> bytes | None:
    """What is in the file, None if there is none; ``UsageError`` if it is none, too large, or not ours to read."""
    try:
        return read_ordinary(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=f"look at it with: ls -l {path}") from error


def _keep_damaged(path: Path, data: bytes) -> Path | None:
    """Copy the damaged ``data`` beside ``path``, under the time the file was written; None if there is no room.

    The same damage gives the same name, so that a command that is tried again leaves no second copy.
    """
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
    copy = path.with_name(f"{path.name}.corrupt-{written}")
    with contextlib.suppress(OSError):
        if not copy.exists():
            write_atomic(copy, data)
        return copy
    return None


def _way_out(path: Path, copy: Path | None, *, without: str) -> str:
    kept = f"a copy is kept as {copy.name}" if copy else "there is no room for a copy of it"
    backup = backup_of(path)
    try:
        decode(read_ordinary(backup, limit_bytes=LIMIT_BYTES), path=str(backup))
    except (OSError, DocumentError):
        return f"{kept}; mend {path}, or delete it {without}"
    return f"{kept}; go back to the state before the last change with: cp {backup} {path}"


def writable(value: object) -> object:
    """``value`` as JSON can hold it: bytes of file names and half characters written out."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case list() | tuple():
            return [writable(item) for item in value]
        case dict():
            return {writable(key): writable(item) for key, item in value.items()}
        case _:
            return value
