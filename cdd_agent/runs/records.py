"""Rollback records, and run states rewound to an earlier commit.

A rollback record is one commit whose message describes the rollback. Its tree holds the runs' files before and after,
and every checkpoint that is not a commit. Its parents are the removed commits and the work tree before the rollback.
One ref therefore keeps everything needed to finish or undo the rollback.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.git.notes import read_objects
from cdd_agent.git.repository import CDD_IDENTITY, ROLLBACK, CommitId, Entry, Repository, format_lines, private_index
from cdd_agent.installation import suggest_upgrade
from cdd_agent.runs.feature import PREFIX, RUN
from cdd_agent.storage import is_leftover, read_ordinary, write_atomic
from cdd_agent.work.handoff import PHASE_OF, Handoff
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.work.state_file import decode_state, encode_state, is_sealed, lines_path

SCHEMA = 1
STATE = "execution-state.json"
_LINES = lines_path(Path(STATE)).name
_Object: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40,64}\Z")]
_Checkpoint: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^refs/cdd/checkpoints/{PREFIX}(?!.*\.\.)[\w./-]+\Z")]
_RECORD_REF = re.compile(r"refs/cdd/abandoned/[^/]+/rollback-(\d+)")
_MAX_FILE_BYTES = 100_000_000
_MOST_MADE = 1000

Files: TypeAlias = Mapping[str, bytes]
"""Path below a folder -> content."""


class RollbackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one rollback, or of its undo."""

    schema: int = SCHEMA
    number: int
    ticket: Annotated[str, msgspec.Meta(pattern=rf"^{RUN}\Z")]
    branch: str
    source: CommitId
    target: CommitId
    snapshot: CommitId
    """The work tree before the rollback."""
    restored: tuple[str, ...]
    """Paths that change or disappear. They come from ``target``, unless ``origin`` is set."""
    uncommitted: tuple[str, ...] = msgspec.field(default=(), name="loose")
    """Those of ``restored`` that differed from ``source``: uncommitted work of the run."""
    origin: CommitId | None = msgspec.field(default=None, name="kept")
    """An earlier snapshot to restore the paths from, with their exact permissions."""
    by_commit: tuple[str, ...] = ()
    """Those of ``restored`` that come from ``target`` even if ``origin`` is set."""
    undoes: CommitId | None = None
    refs: dict[_Checkpoint, _Object] = {}

    @property
    def ref(self) -> str:
        """The ref that keeps the record and everything it removes."""
        return f"refs/cdd/abandoned/{self.ticket}/rollback-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A rollback record with its commit."""

    record: RollbackRecord
    commit: CommitId


def store(repository: Repository, record: RollbackRecord, *, folders: Mapping[str, Files]) -> StoredRecord:
    """Commit ``record`` with the runs' files, which git does not track, in ``folders``. No ref names the commit yet."""
    files = {f"{folder}/{name}": data for folder, content in folders.items() for name, data in content.items()}
    blobs = [(path, repository.blobs.write(data)) for path, data in files.items()]
    kinds = _read_object_kinds(repository, record.refs.values())
    blobs += [(f"refs/{each}", each) for each in sorted(kinds) if kinds[each] == "blob"]
    with private_index() as index:
        repository.stage_entries({path: Entry("100644", blob) for path, blob in blobs}, index=index)
        for each in sorted(each for each in kinds if kinds[each] == "tree"):
            repository.git("read-tree", (f"--prefix=refs/{each}/",), each, variables=index)
        tree = repository.write_tree(index)
    commits = [record.source, record.snapshot, *(each for each in sorted(kinds) if kinds[each] == "commit")]
    parents = [word for commit in dict.fromkeys(commits) for word in (("-p",), commit)]
    # json escapes the surrogates of file names that are not UTF-8; msgspec's own encoder refuses them.
    message = json.dumps(msgspec.to_builtins(record)).encode()
    commit = repository.git("commit-tree", tree, *parents, ("-F", "-"), stdin=message, variables=CDD_IDENTITY).strip()
    return StoredRecord(record=record, commit=CommitId(commit))


def remember(commit: CommitId, *, path: Path) -> None:
    """Add the commit of a record to the list of those that the user's cdd made."""
    write_atomic(path, "".join(f"{each}\n" for each in (*_read_list(path)[-_MOST_MADE:], commit)).encode(), mode=0o600)


def is_own(commit: CommitId, *, path: Path) -> bool:
    """Return whether the user's cdd made the record in a commit; any ref can name one of somebody else."""
    return commit in _read_list(path)


def _read_list(path: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return read_ordinary(path, limit_bytes=_MAX_FILE_BYTES).decode("ascii", "replace").split()
    return []


def read(repository: Repository, commit: CommitId) -> StoredRecord:
    """Read the record in ``commit``. Raises ``UsageError`` if it does not hold one."""
    message = repository.git("log", ("-1", "--format=%B"), commit, ("--",))
    try:
        record = msgspec.convert(json.loads(message), type=RollbackRecord)
        if record.schema != SCHEMA:
            raise ValueError(f"schema {record.schema}")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"This version of cdd cannot read a rollback record from commit {commit[:10]}.",
            hint=f"inspect it: git show {commit}; if a later cdd wrote it, upgrade: {suggest_upgrade()}; "
            f"to abandon the interrupted rollback: git update-ref -d {ROLLBACK}",
        ) from error
    return StoredRecord(record=record, commit=commit)


def load_newest(repository: Repository) -> StoredRecord | None:
    """Read the record of the last finished rollback or undo."""
    commits = _list_records(repository)
    return read(repository, commits[max(commits)]) if commits else None


def next_number(repository: Repository) -> int:
    """Return the number of the next record."""
    return max(_list_records(repository), default=0) + 1


def read_stored_files(commit: CommitId, repository: Repository, *, folder: str) -> Files:
    """Read before/state, before/reports or after/state; raises ``UsageError`` for a path outside a run's folder."""
    files = repository.objects.list_files(commit)
    inside = f"{folder}/"
    blobs = {path.removeprefix(inside): files[path].id for path in files if path.startswith(inside)}
    foreign = next((name for name in blobs if not _is_in_run(name)), None)
    if foreign is not None:
        raise UsageError(
            f"{commit[:10]} holds {foreign!r:.100}, which is not in a run's folder.",
            hint=f"inspect it: git show {commit}",
        )
    content = read_objects(repository, set(blobs.values()))
    return {path: content[blob] for path, blob in blobs.items() if blob in content}


def read_runs(folder: Path) -> Files:
    """Read the states or reports of all runs from disk, without those of tickets."""
    return {name: read_ordinary(folder / name, limit_bytes=_MAX_FILE_BYTES) for name in _list_run_files(folder)}


def write_runs(folder: Path, files: Files, *, last: str) -> None:
    """Replace the run files in ``folder``. The run ``last`` is written last, which makes it the latest run."""
    for name in sorted(files, key=lambda name: name.startswith(f"{last}/")):
        write_atomic(folder / name, files[name])
    for name in _list_run_files(folder):
        if name not in files:
            (folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (folder / name).parent.rmdir()


def rewind(files: Files, handoff: Handoff, *, commit: CommitId, removed: Set[str]) -> Files:
    """Return the run files that fit ``commit``, whose note is ``handoff``, once the ``removed`` commits are gone.

    Runs that began in a removed commit lose their files. If the state does not know the cycle, only the request
    stays, because the notes are enough to resume.
    """
    after: dict[str, bytes] = {}
    for slug in dict.fromkeys(name.partition("/")[0] for name in files):
        own = {name: data for name, data in files.items() if name.startswith(f"{slug}/")}
        state = _decode_state(own, slug)
        if slug == handoff.ticket:
            after |= {
                name: own[name]
                for name in own
                if name not in {f"{slug}/{each}" for each in (STATE, f"{STATE}.bak", _LINES)}
            }
            rewound = rewind_state(state, handoff, commit=commit) if state is not None else None
            if rewound is not None:
                after[f"{slug}/{STATE}"] = encode_state(rewound)
        else:
            steps = state.step_executions.values() if state is not None else ()
            commits = {step.base_commit for step in steps} | {c for step in steps for c in step.commits.values()}
            if state is None or removed.isdisjoint(commits | {state.base_commit}):
                after |= own
    return after


def rewind_state(state: RunState, handoff: Handoff, *, commit: CommitId) -> RunState | None:
    """Return ``state`` as of ``handoff``, whose note is on ``commit``, or None if it does not know that cycle.

    A cycle that continues in the middle gets ``commit`` as its base: changes that are uncommitted now are the user's.
    """
    step = state.step_executions.get(handoff.cycle_number)
    if step is None:
        return None
    earlier = {number: each for number, each in state.step_executions.items() if number < step.step_number}
    if handoff.next_phase in ("PLAN", "COMPLETE") and step.status == Status.COMPLETED:
        is_last = handoff.next_phase == "COMPLETE"
        return replace(
            state,
            status=state.status if is_last else Status.IN_PROGRESS,
            current_step=None,
            completed_at=state.completed_at if is_last else None,
            step_executions={**earlier, step.step_number: step},
        )
    landed = _find_landed_commits(step, handoff, commit=commit)
    if landed is None:
        return None
    again = StepExecution(
        step_number=step.step_number,
        title=step.title,
        text_sha256=step.text_sha256,
        status=Status.IN_PROGRESS,
        started_at=step.started_at,
        phase=handoff.gate.phase if handoff.gate is not None else step.phase,
        attempts=tuple(replace(each, checkpoint=None) for each in step.attempts if each.phase in landed),
        commits=landed,
        base_commit=commit,
        usage=step.usage,
    )
    return replace(
        state,
        status=Status.IN_PROGRESS,
        current_step=step.step_number,
        completed_at=None,
        step_executions={**earlier, step.step_number: again},
    )


def decode_states(files: Files) -> tuple[RunState, ...]:
    """Decode the readable states among ``files``."""
    states = (_decode_state(files, name.partition("/")[0]) for name in files if name.endswith(f"/{STATE}"))
    return tuple(state for state in states if state is not None)


def _list_run_files(folder: Path) -> list[str]:
    # A link could lead out of the folder, so it is neither saved nor written.
    files = (path for path in folder.glob(f"{PREFIX}*/**/*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(folder).as_posix() for path in files if not is_leftover(path.name))
    return sorted(name for name in names if _is_in_run(name))


def _is_in_run(name: str) -> bool:
    parts = name.split("/")
    return len(parts) > 1 and re.fullmatch(RUN, parts[0]) is not None and not {"", ".", ".."} & set(parts)


def _list_records(repository: Repository) -> dict[int, CommitId]:
    refs = repository.list_refs("refs/cdd/abandoned/")
    return {int(match[1]): commit for ref, commit in refs.items() if (match := _RECORD_REF.fullmatch(ref))}


def _read_object_kinds(repository: Repository, objects: Iterable[str]) -> dict[str, str]:
    """Return object -> commit, tree or blob."""
    query = ("--batch-check=%(objectname) %(objecttype)",)
    lines = repository.git("cat-file", query, stdin=format_lines(dict.fromkeys(objects))).splitlines()
    return {each: kind for each, _, kind in (line.partition(" ") for line in lines)}


def _find_landed_commits(step: StepExecution, handoff: Handoff, *, commit: CommitId) -> dict[str, str] | None:
    """Return phase -> commit up to the handoff's phase, or None if that phase never landed."""
    phases = list(step.commits)
    ends = [number for number, phase in enumerate(phases) if step.commits[phase] == commit]
    if ends:
        return {phase: step.commits[phase] for phase in phases[: ends[-1] + 1]}
    phase = PHASE_OF[handoff.phase]
    if phase not in step.commits or handoff.error is not None:
        return None
    # A rebase replaced the recorded commit, so the one that carries the note counts instead.
    return {**{each: step.commits[each] for each in phases[: phases.index(phase)]}, phase: commit}


def _decode_state(files: Files, slug: str) -> RunState | None:
    data = files.get(f"{slug}/{STATE}")
    try:
        if data is None or not is_sealed(data):
            return None
        return decode_state(data, path=STATE, lines=files.get(f"{slug}/{_LINES}", b""))
    except DocumentError:
        return None
