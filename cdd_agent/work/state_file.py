"""``execution-state.json``, and ``execution-state.jsonl`` with the steps of a long plan that do not change now.

A save writes the first file whole, so it must stay small: with more than ``MOST_STEPS`` steps in it, those that are not
in progress move to the second one, to which lines are only ever appended. The first file says how much of it counts.
A file that is damaged, or written by a newer version, raises an error and stays unchanged. It never counts as "no
state".

The first file ends with a seal, a signature with the user's secret. A clone or an archive can bring a state, whose
reviews, guidance and evidence would count as the user's words and cdd's findings, so one without a valid seal raises
``ForeignStateError``.
"""

import contextlib
import hashlib
import hmac
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cdd_agent.config.trust import load_secret
from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.installation import suggest_upgrade
from cdd_agent.storage import append_durably, read_ordinary, write_atomic
from cdd_agent.untrusted import documents
from cdd_agent.work.finding import Finding, read_old_finding, read_old_reason
from cdd_agent.work.outcome import read_outcome
from cdd_agent.work.state import SCHEMA, InterruptedWork, RunState, Status, StepExecution, Usage
from pytest_tdd_agent.report import Reason

MOST_STEPS = 30
"""How many steps ``execution-state.json`` holds before they move."""
LIMIT_BYTES = 10_000_000
"""The size limit of ``execution-state.json``."""
LIMIT_LINES_BYTES = 200_000_000
"""The size limit of ``execution-state.jsonl``."""
START_OVER = "to start over: the commits stay"
_SCHEMA_WITH_LINES = SCHEMA + 1
"""A version that does not know of the second file must refuse the first one: it would take the steps for new ones."""
_OWN_REPORT = re.compile(r"reports/[^/\0]+/[^/\0]+\.json")
_BEFORE_REPORT = ".cdd/"
"""What followed the path of a report while it was relative to the work tree."""
_OWN_REF = re.compile(r"refs/cdd/[\w./-]+")
_COMMIT = re.compile(r"[0-9a-f]{1,64}")
_SEAL = b',\n  "seal": "'
"""Separates the signed content of the first file from the seal."""
_SEAL_END = b'"\n}\n'
TAKE_OVER = "cdd trust --records"
_INTERRUPTED = "interrupted"
"""The code of the only reason of an interruption while it was saved as a refusal."""
_READ_OLD: Mapping[object, Callable[[str], Reason | Finding]] = {
    "reasons": read_old_reason,
    "evidence": read_old_finding,
}
"""Key of a list that held sentences before schema 3 -> the function that makes a record of one."""


class _StepsFile(msgspec.Struct, frozen=True):
    """How many bytes of the second file count, and their digest."""

    size_bytes: int = 0
    sha256: str = ""


class _StateHead(msgspec.Struct):
    """The fields that show whether this version can read the rest."""

    schema: int
    steps_file: _StepsFile | None = None


class _StepLine(msgspec.Struct, frozen=True):
    """A line of the second file. The last one about a step counts, unless the first file has the step too."""

    number: int
    position: int
    """The step's index in the order of the plan."""
    step: StepExecution | None
    """None if the plan no longer has the step."""


@dataclass(frozen=True, slots=True)
class _MovedSteps:
    """The steps in the second file, as far as it counts."""

    steps: Mapping[int, tuple[int, StepExecution]] = field(default_factory=dict)
    """Number -> position and step."""
    size_bytes: int = 0
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, data: bytes, lines: list[_StepLine]) -> "_MovedSteps":
        """Return what the file holds after ``lines``, which are ``data`` when encoded."""
        digest = self.digest.copy()
        digest.update(data)
        steps = dict(self.steps)
        for line in lines:
            steps.pop(line.number, None)
            if line.step is not None:
                steps[line.number] = (line.position, line.step)
        return _MovedSteps(steps, self.size_bytes + len(data), digest)


class _NewerSchemaError(DocumentError):
    """A later version of cdd wrote the file."""


class ForeignStateError(DocumentError):
    """The state is whole, but the user's cdd did not write it as it is."""


def backup_path(path: Path) -> Path:
    """Return the path of the previous state."""
    return path.with_name(path.name + ".bak")


def lines_path(path: Path) -> Path:
    """Return the path of the steps that have moved out of the state at ``path``."""
    return path.with_suffix(".jsonl")


def encode_state(state: RunState) -> bytes:
    """Return ``state`` with all its steps as indented JSON and a seal. Text that UTF-8 cannot encode is escaped."""
    return _format(state)


def is_sealed(data: bytes) -> bool:
    """Return whether the user's cdd wrote these bytes as a state."""
    content, _, seal = data.rpartition(_SEAL)
    return hmac.compare_digest(seal, _sign(content) + _SEAL_END)


def _seal(data: bytes) -> bytes:
    content = data.removesuffix(b"\n}")
    return content + _SEAL + _sign(content) + _SEAL_END


def _sign(content: bytes) -> bytes:
    return hmac.new(load_secret(os.environ), b"state\0" + content, "sha256").hexdigest().encode()


def load_foreign(path: Path) -> tuple[RunState, bytes] | None:
    """Return a readable state that has no valid seal, and its bytes; None without one.

    Nothing in it may count before the user has seen it.
    """
    with contextlib.suppress(UsageError):
        data = _read(path)
        if data is not None and not is_sealed(data):
            return _decode_files(path, data)[0], data
    return None


def seal_state(path: Path, seen: bytes) -> bool:
    """Make the state at ``path`` the user's own; return False if its bytes are not those that were ``seen``."""
    data = _read(path)
    if data != seen:
        return False
    write_atomic(path, _format(*_decode_files(path, data)))
    return True


def decode_state(data: bytes, *, path: str, lines: bytes = b"") -> RunState:
    """Decode a state, whose moved steps are in ``lines``. The seal is not checked.

    Raises ``DocumentError`` with the location, and nothing else, for any invalid bytes.
    """
    extent = _read_head(data, path=path)
    return _decode(data, _decode_lines(lines, extent, path=str(lines_path(Path(path)))), path=path)


def load_state(path: Path, *, without: str = START_OVER) -> RunState | None:
    """Load the state. Return None only if the file does not exist.

    A damaged file is copied once. The error names the copy, and the previous state or the effect of deleting the file
    (``without``).
    """
    data = _read(path)
    if data is None:
        return None
    try:
        return _load(path, data)
    except (_NewerSchemaError, ForeignStateError):
        raise
    except DocumentError as error:
        hint = _suggest_repair(path, Path(error.path), without=without)
        raise DocumentError(error.path, error.problems, hint=hint) from error


_saved: dict[Path, tuple[bytes, _MovedSteps]] = {}
"""The state that this process last read from or wrote to each path, and its moved steps."""


def save_state(path: Path, state: RunState) -> None:
    """Save ``state`` atomically, and the previous one as ``.bak``. The bytes written do not grow with the plan.

    Raises ``DocumentError`` if the present file cannot be read as a state, ``UsageError`` if the new one would be too
    large to be read, and ``OSError`` if writing fails. The state on disk then stays unchanged.
    """
    previous = _read(path)
    if previous is None:
        _saved.pop(path, None)
    elif path not in _saved or _saved[path][0] != previous:
        moved = _decode_files(path, previous)[1]
        # Git may have written a foreign state into a new work tree; it stays as the backup.
        _saved[path] = (previous, moved if is_sealed(previous) else _MovedSteps())
    moved = _saved[path][1] if path in _saved else _MovedSteps()
    lines = _choose_lines(state, moved)
    added = b"".join(documents.encode_json(line) + b"\n" for line in lines)
    after = moved.add(added, lines) if lines else moved
    data = _format(state, after)
    if previous == data:
        return
    _require_fit(path, len(data), limit_bytes=LIMIT_BYTES)
    _require_fit(lines_path(path), after.size_bytes, limit_bytes=LIMIT_LINES_BYTES)
    if added:  # first, so that a killed save leaves a state whose lines are all there
        append_durably(lines_path(path), added, after_bytes=moved.size_bytes)
    if previous is not None:
        write_atomic(backup_path(path), previous)
    write_atomic(path, data)
    _saved[path] = (data, after)


def _choose_lines(state: RunState, moved: _MovedSteps) -> list[_StepLine]:
    """Return what must be appended to the second file: too many steps of the first, and steps that are gone."""
    lines = [_StepLine(number, 0, None) for number in moved.steps if number not in state.step_executions]
    kept = _list_inline_steps(state, moved)
    if len(kept) > MOST_STEPS:
        places = {number: position for position, number in enumerate(state.step_executions)}
        idle = [step for step in kept.values() if step.status != Status.IN_PROGRESS]
        lines += [_StepLine(step.step_number, places[step.step_number], step) for step in idle]
    return lines


def _list_inline_steps(state: RunState, moved: _MovedSteps) -> dict[int, StepExecution]:
    """Return the steps of ``state`` that the second file does not hold as they are."""
    entries = enumerate(state.step_executions.items())
    return {number: step for at, (number, step) in entries if moved.steps.get(number) != (at, step)}


def _format(state: RunState, moved: _MovedSteps | None = None) -> bytes:
    if moved is None or not moved.size_bytes:
        return _seal(msgspec.json.format(documents.encode_json(_to_document(state)), indent=2))
    kept = replace(state, schema=_SCHEMA_WITH_LINES, step_executions=_list_inline_steps(state, moved))
    extent = _StepsFile(moved.size_bytes, moved.digest.hexdigest())
    document = _to_document(kept) | {"steps_file": msgspec.to_builtins(extent)}
    return _seal(msgspec.json.format(documents.encode_json(document), indent=2))


def _to_document(state: RunState) -> dict[str, object]:
    """Return the keys of the first file. Each attempt also gets its ``verdict``, for scripts; cdd reads ``outcome``."""
    document: dict[str, object] = msgspec.to_builtins(replace(state, step_executions={}))
    steps = [(str(number), step) for number, step in state.step_executions.items()]
    document["step_executions"] = {number: _add_verdicts(msgspec.to_builtins(step), step) for number, step in steps}
    return document


def _add_verdicts(fields: dict[str, object], step: StepExecution) -> dict[str, object]:
    attempts = [msgspec.to_builtins(attempt) | {"verdict": attempt.verdict} for attempt in step.attempts]
    return {**fields, "attempts": attempts}


def _load(path: Path, data: bytes) -> RunState:
    """Decode the files of ``path``, require the seal, and remember what they hold."""
    state, moved = _decode_files(path, data)
    if not is_sealed(data):
        remove = f"rm {shlex.quote(str(path.with_suffix('')))}.json*"
        raise ForeignStateError(
            str(path),
            (Problem(line=0, message="it was not written by your cdd, or changed since; nothing in it counts"),),
            hint=f"to see what is in it, and to take it over if it is yours: {TAKE_OVER}; to start over: {remove}",
        )
    _saved[path] = (data, moved)
    return state


def _decode_files(path: Path, data: bytes) -> tuple[RunState, _MovedSteps]:
    extent, lines = _read_head(data, path=str(path)), lines_path(path)
    content = _read(lines, limit_bytes=LIMIT_LINES_BYTES) if extent.size_bytes else None
    moved = _decode_lines(content or b"", extent, path=str(lines))
    state = _decode(data, moved, path=str(path))
    # cdd reads, writes and moves the files, refs and commits that a state names, so they must be its own.
    if (foreign := find_foreign_value(state)) is not None:
        raise DocumentError(str(path), (Problem(line=0, message=foreign),), hint="delete it to start over")
    return state, moved


def _read_head(data: bytes, *, path: str) -> _StepsFile:
    """Check that ``data`` is whole JSON of a known version, and return the extent of the second file."""
    try:
        documents.check_json(data.decode("utf-8"), limit_bytes=LIMIT_BYTES)
        head = msgspec.json.decode(data, type=_StateHead)
        known = SCHEMA if head.steps_file is None else _SCHEMA_WITH_LINES
        if head.schema < 1:
            raise msgspec.ValidationError(f"Expected a schema from 1 to {known}, got {head.schema} - at `$.schema`")
    except msgspec.ValidationError as error:
        raise _damaged(path, str(error)) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _damaged(path, f"it is incomplete or damaged: {error}", line=data.count(b"\n") + 1) from error
    if head.schema > known:
        raise _NewerSchemaError(
            path,
            (Problem(line=0, message=f"it has schema {head.schema}; this version of cdd reads up to {known}"),),
            hint=f"upgrade with: {suggest_upgrade()}",
        )
    return head.steps_file or _StepsFile()


def _decode_lines(content: bytes, extent: _StepsFile, *, path: str) -> _MovedSteps:
    if extent == _StepsFile():
        return _MovedSteps()
    counted = content[: max(extent.size_bytes, 0)]  # a killed save may have left more
    if len(counted) != extent.size_bytes:
        raise _damaged(path, f"it has {len(counted):,} bytes of {extent.size_bytes:,}")
    if hashlib.sha256(counted).hexdigest() != extent.sha256:
        raise _damaged(path, "its content is not what the state was saved with")
    try:
        lines = [_decode_line(line) for line in counted.splitlines()]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _damaged(path, f"it is incomplete or damaged: {error}") from error
    return _MovedSteps().add(counted, lines)


def _decode_line(line: bytes) -> _StepLine:
    try:
        return msgspec.json.decode(line, type=_StepLine)
    except msgspec.ValidationError:  # of an earlier version: lines stay as they were written
        return msgspec.json.decode(_replace_sentences(line), type=_StepLine)


def _replace_sentences(data: bytes) -> bytes:
    """Return the JSON of an earlier version with records in place of sentences, verdicts and words."""

    def replace_entries(entries: Mapping[object, object]) -> dict[object, object]:
        return {key: replace_in(each, key) for key, each in entries.items()}

    def replace_in(value: object, key: object = None) -> object:
        match value:
            case str() if key in _READ_OLD:
                return msgspec.to_builtins(_READ_OLD[key](value))
            case {"verdict": str(verdict), **rest}:
                outcome = read_outcome(str(rest.pop("finding", "")), is_open=verdict == "open")
                return {"outcome": msgspec.to_builtins(outcome), **replace_entries(rest)}
            case dict():
                return replace_entries(value)
            case list():
                return [replace_in(each, key) for each in value]
            case _:
                return value

    return msgspec.json.encode(replace_in(msgspec.json.decode(data)))


def _decode(data: bytes, moved: _MovedSteps, *, path: str) -> RunState:
    try:
        is_old = msgspec.json.decode(data, type=_StateHead).schema < SCHEMA
        state = msgspec.json.decode(_replace_sentences(data) if is_old else data, type=RunState)
        kept = state.step_executions
        others = {number: entry for number, entry in moved.steps.items() if number not in kept}
        for number, step in (*kept.items(), *((number, step) for number, (_, step) in others.items())):
            if number != step.step_number:
                raise msgspec.ValidationError(
                    f"Expected step_number {number}, got {step.step_number} - at `$.step_executions[...]`"
                )
        # The steps of the second file have a position each; those of the first one fill the gaps.
        places, count = dict(others.values()), len(kept) + len(others)
        if len(places) != len(others) or not all(0 <= position < count for position in places):
            raise msgspec.ValidationError("The order of the steps is unclear - at `$.steps_file`")
        rest = iter(kept.values())
        steps = [places[position] if position in places else next(rest) for position in range(count)]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    beyond = tuple(replace(each, steps=tuple(map(_upgrade, each.steps))) for each in state.beyond)
    executions = {step.step_number: _upgrade(step) for step in steps}
    return replace(state, schema=SCHEMA, step_executions=executions, beyond=beyond)


def _upgrade(step: StepExecution) -> StepExecution:
    """Return a step that an earlier version may have saved with other paths, and with a memory without its kind."""
    if step.baseline or any(each.report for each in step.attempts):
        attempts = (replace(each, report=_shorten(each.report)) for each in step.attempts)
        step = replace(step, baseline=_shorten(step.baseline), attempts=tuple(attempts))
    if step.landed is not None:
        step = replace(step, landed=_upgrade(step.landed))
    old = step.refusal
    if old is None:
        return step
    if old.reasons[0:1] and old.reasons[0].code == _INTERRUPTED:
        work = InterruptedWork(phase=old.phase, files=None, diff=old.diffs.get(old.phase, ""), words=old.words)
        return replace(step, refusal=None, interrupted=step.interrupted or work)
    return replace(step, refusal=replace(old, kind="test_is_wrong")) if old.kept is not None else step


def _shorten(report: str | None) -> str | None:
    return report and report.rpartition(_BEFORE_REPORT)[2]


def _damaged(path: str, message: str, *, line: int = 0) -> DocumentError:
    hint = f"restore a copy of {path}, or delete it to start over"
    return DocumentError(path, (Problem(line=line, message=message),), hint=hint)


def _require_fit(path: Path, size_bytes: int, *, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise UsageError(
            f"{path} would have {size_bytes:,} bytes with this change, and at most {limit_bytes:,} can be read again. "
            "The file is unchanged.",
            hint="continue in a new ticket with the steps that are left",
        )


def find_foreign_value(state: RunState) -> str | None:
    """Return what a state names or counts that no run of cdd has written there; None if there is nothing."""
    if _has_negative(state.usage):
        return f"the run has a negative usage: {state.usage!r:.200}"
    steps = [*state.step_executions.items()]
    steps += [(step.step_number, step) for entry in state.beyond for step in entry.steps]
    steps += [(number, step.landed) for number, step in steps if step.landed is not None]
    for number, step in steps:
        if _has_negative(step.usage):
            return f"step {number} has a negative usage: {step.usage!r:.200}"
        values = [
            ("baseline", _OWN_REPORT, step.baseline),
            ("checkpoint", _OWN_REF, step.checkpoint),
            ("base_commit", _COMMIT, step.base_commit),
            *((f"commits.{phase}", _COMMIT, commit) for phase, commit in step.commits.items() if commit),
        ]
        if step.refusal is not None:
            values.append(("kept files", _OWN_REF, step.refusal.kept))
        if step.interrupted is not None:
            values.append(("interrupted files", _OWN_REF, step.interrupted.files))
        for attempt in (*step.attempts, *step.returned):
            values += [("report", _OWN_REPORT, attempt.report), ("checkpoint", _OWN_REF, attempt.checkpoint)]
        for name, pattern, value in values:
            if value is not None and (pattern.fullmatch(value) is None or ".." in value):
                return f"step {number} has the {name} {value!r:.100}, which cdd did not create"
    return None


def _has_negative(usage: Usage) -> bool:
    # A negative number would let the run exceed its limits.
    return any(value is not None and value < 0 for value in astuple(usage))


def _read(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> bytes | None:
    try:
        return read_ordinary(path, limit_bytes=limit_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=f"inspect it: ls -l {path}") from error


def _copy_damaged(path: Path) -> Path | None:
    """Copy the damaged file next to itself. Return None if that fails."""
    with contextlib.suppress(OSError):
        # Named by the time of the file, so running a command again does not create a second copy.
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
        copy = path.with_name(f"{path.name}.corrupt-{written}")
        if not copy.exists():
            write_atomic(copy, read_ordinary(path, limit_bytes=LIMIT_LINES_BYTES))
        return copy
    return None


def _suggest_repair(path: Path, damaged: Path, *, without: str) -> str:
    copy, backup = _copy_damaged(damaged), backup_path(path)
    saved = f"a copy is saved as {copy.name}" if copy else "cdd could not save a copy"
    try:
        data = read_ordinary(backup, limit_bytes=LIMIT_BYTES)
        _decode_files(path, data)
        is_own = is_sealed(data)
    except (OSError, UsageError, DocumentError):
        is_own = False
    if not is_own:
        what = "it" if damaged == path else path
        return f"{saved}; repair {damaged}, or delete {what} {without}"
    return f"{saved}; restore the state before the last change: cp {backup} {path}"
