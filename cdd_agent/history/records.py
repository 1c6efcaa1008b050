"""The receipt of a way back: a commit that says what was moved where, and keeps all that a second thought may need.

Its message is the receipt. Its tree holds the run's own files as they were and as they are to be, and what kept refs
named that is no commit. Its parents are the commits that went and the work tree of before, so that one ref keeps all.

A run's own state as it fits an earlier commit: what came after is left out, and the next phase follows. Pure.
"""

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.git.notes_history import contents, put
from cdd_agent.git.repository import ROLLBACK, CommitId, Repository, encoded, private_index
from cdd_agent.git.snapshot import OURSELVES
from cdd_agent.storage import is_leftover, read_ordinary, write_atomic
from cdd_agent.tdd.recovery import checkpoint_ref
from cdd_agent.work import state_file
from cdd_agent.work.handoff import PHASE_OF, Handoff
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.workflows.orchestration.feature import PREFIX, RUN

SCHEMA = 1
_Object: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40,64}\Z")]
_Checkpoint: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^refs/cdd/checkpoints/{PREFIX}(?!.*\.\.)[\w./-]+\Z")]
_KEPT = re.compile(r"refs/cdd/abandoned/[^/]+/rollback-(\d+)")
_LIMIT_BYTES = 100_000_000
"""Of one file of a run."""

Files: TypeAlias = Mapping[str, bytes]
"""Path below a folder -> content."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What is moved where."""

    schema: int = SCHEMA
    number: int
    """Counts the ways back in this repository."""
    ticket: Annotated[str, msgspec.Meta(pattern=rf"^{RUN}\Z")]
    branch: str
    source: CommitId
    """Where the branch was."""
    target: CommitId
    """Where it goes."""
    snapshot: CommitId
    """The work tree of before."""
    restored: tuple[str, ...]
    """Paths that get other content, or go: as ``target`` has them, unless ``kept`` is given."""
    loose: tuple[str, ...] = ()
    """Those of them that differed from ``source``: work of the run that was not committed."""
    kept: CommitId | None = None
    """An earlier snapshot that the paths come from, if it has them as they were."""
    by_commit: tuple[str, ...] = ()
    """Those of ``restored`` that come from ``target`` all the same."""
    undoes: CommitId | None = None
    """The receipt of the way that this one goes back."""
    refs: dict[_Checkpoint, _Object] = {}
    """Ref of a checkpoint -> object, as they were."""

    @property
    def ref(self) -> str:
        """Under which the receipt, and with it all that went, is kept."""
        return f"refs/cdd/abandoned/{self.ticket}/rollback-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files of runs that are not in git: their states and reports."""

    state: Files
    reports: Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A receipt that is in the repository."""

    receipt: Receipt
    commit: CommitId


def store(repository: Repository, receipt: Receipt, *, before: RunFiles, after: Files) -> Stored:
    """Put ``receipt`` into the repository, with the run's files; no ref names it yet."""
    folders = (("before/state", before.state), ("before/reports", before.reports), ("after/state", after))
    files = {f"{folder}/{name}": data for folder, held in folders for name, data in held.items()}
    blobs = list(zip(files, put(repository, files.values()), strict=True))
    kinds = _kinds(repository, receipt.refs.values())
    blobs += [(f"refs/{each}", each) for each in sorted(kinds) if kinds[each] == "blob"]
    with private_index() as index:
        listing = "".join(f"100644 {blob}\t{path}\0" for path, blob in blobs)
        repository.git("update-index", "--add", "-z", "--index-info", stdin=encoded(listing), variables=index)
        for tree in sorted(each for each in kinds if kinds[each] == "tree"):
            repository.git("read-tree", f"--prefix=refs/{tree}/", tree, variables=index)
        made = repository.git("write-tree", variables=index).strip()
    commits = [receipt.source, receipt.snapshot, *(each for each in sorted(kinds) if kinds[each] == "commit")]
    parents = [word for commit in dict.fromkeys(commits) for word in ("-p", commit)]
    message = json.dumps(msgspec.to_builtins(receipt)).encode()  # with escapes for names that are no UTF-8
    commit = repository.git("commit-tree", made, *parents, "-F", "-", stdin=message, variables=OURSELVES).strip()
    return Stored(receipt=receipt, commit=CommitId(commit))


def load(repository: Repository, ref: str) -> Stored | None:
    """The receipt that ``ref`` names, if there is such a ref; raises ``UsageError`` for anything else."""
    named = repository.git("for-each-ref", "--format=%(objectname)", ref).split()
    return read(repository, CommitId(named[0])) if named else None


def read(repository: Repository, commit: CommitId) -> Stored:
    """The receipt in ``commit``; raises ``UsageError`` if that is none."""
    try:
        told = msgspec.convert(json.loads(repository.git("log", "-1", "--format=%B", commit, "--")), type=Receipt)
        if told.schema != SCHEMA:
            raise ValueError(f"schema {told.schema}")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{commit[:10]} holds no rollback that this program can read.",
            hint=f"see what it is: git show {commit}; if a later cdd wrote it: pip install --upgrade cdd-agent; "
            f"to leave a rollback half-way: git update-ref -d {ROLLBACK}",
        ) from error
    return Stored(receipt=told, commit=commit)


def newest(repository: Repository) -> Stored | None:
    """The last way back, or the way forth again, that was gone to its end."""
    found = _numbers(repository)
    return load(repository, found[max(found)]) if found else None


def next_number(repository: Repository) -> int:
    """A number that no receipt has."""
    return max(_numbers(repository), default=0) + 1


def files_of(commit: CommitId, repository: Repository, *, when: str) -> Files:
    """The runs' own files as a receipt has them: ``before/state``, ``before/reports`` or ``after/state``."""
    listed = repository.git("ls-tree", "-r", "-z", "--full-tree", commit, "--", when)
    entries = [entry.partition("\t") for entry in listed.split("\0") if entry]
    blobs = {path.removeprefix(f"{when}/"): about.split()[2] for about, _, path in entries}
    strange = [name for name in blobs if not _is_own(name)]
    if strange:
        raise UsageError(
            f"{commit[:10]} holds {strange[0]!r:.100}, which is no file of a run.",
            hint=f"see what it is: git show {commit}",
        )
    held = contents(repository, set(blobs.values()))
    return {path: held[blob] for path, blob in blobs.items() if blob in held}


def read_runs(state: Path, reports: Path) -> RunFiles:
    """The files of all runs as they are now; reports of tickets are not theirs."""
    return RunFiles(state=_read(state), reports=_read(reports))


def write_runs(folder: Path, files: Files, *, last: str) -> None:
    """Make ``folder`` hold just ``files`` of runs, those of the run ``last`` written last: it is the one in work."""
    for name in sorted(files, key=lambda name: name.startswith(f"{last}/")):
        write_atomic(folder / name, files[name])
    for name in _names(folder):
        if name not in files:
            (folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (folder / name).parent.rmdir()


def put_back_reports(folder: Path, files: Files) -> None:
    """Make the reports ``files`` what they were; others stay."""
    for name, data in files.items():
        write_atomic(folder / name, data)


def _read(folder: Path) -> Files:
    return {name: read_ordinary(folder / name, limit_bytes=_LIMIT_BYTES) for name in _names(folder)}


def _names(folder: Path) -> list[str]:
    """The ordinary files of runs below ``folder``; no link is ours."""
    found = (path for path in folder.glob(f"{PREFIX}*/**/*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(folder).as_posix() for path in found if not is_leftover(path.name))
    return sorted(name for name in names if _is_own(name))


def _is_own(name: str) -> bool:
    """Whether a file of this name lies in the folder of a run, wherever that is."""
    parts = name.split("/")
    return len(parts) > 1 and re.fullmatch(RUN, parts[0]) is not None and not {"", ".", ".."} & set(parts)


def _numbers(repository: Repository) -> dict[int, str]:
    """Number -> the ref of its receipt."""
    listed = repository.git("for-each-ref", "--format=%(refname)", "refs/cdd/abandoned/").splitlines()
    return {int(match[1]): ref for ref in listed if (match := _KEPT.fullmatch(ref))}


def _kinds(repository: Repository, objects: Iterable[str]) -> dict[str, str]:
    """Object -> commit, tree or blob."""
    asked = "".join(f"{each}\n" for each in dict.fromkeys(objects))
    if not asked:
        return {}
    told = repository.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked.encode())
    return dict((line.split()[0], line.split()[1]) for line in told.splitlines())


STATE = "execution-state.json"
_BETWEEN = ("PLAN", "COMPLETE")
"""What follows where a cycle is over."""


def rewound(files: Files, handoff: Handoff, *, commit: CommitId, gone: Collection[str]) -> Files:
    """The files of runs as they fit ``commit``, which ``handoff`` is the note of, once the commits ``gone`` are.

    A run that began later has none any more. Where the state does not know the cycle, only the request is left: the
    notes say how to go on.
    """
    after: dict[str, bytes] = {}
    for slug in dict.fromkeys(name.partition("/")[0] for name in files):
        own = {name: data for name, data in files.items() if name.startswith(f"{slug}/")}
        state = _state(own.get(f"{slug}/{STATE}"))
        if slug == handoff.ticket:
            after |= _files(slug, own, state=None if state is None else fitted(state, handoff, commit=commit))
        elif state is None or not _began_in(state, gone):
            after |= own
    return after


def fitted(state: RunState, handoff: Handoff, *, commit: CommitId) -> RunState | None:
    """``state`` as it was when ``handoff`` was written on ``commit``; None if it knows nothing of that cycle.

    A cycle that goes on in its middle does so from ``commit``, which counts as its beginning: what the user has not
    committed now is what must be left alone.
    """
    step = state.step_executions.get(handoff.cycle_number)
    if step is None:
        return None
    earlier = {number: each for number, each in state.step_executions.items() if number < step.step_number}
    if handoff.next_phase in _BETWEEN and step.status == Status.COMPLETED:
        is_last = handoff.next_phase == "COMPLETE"
        return replace(
            state,
            status=state.status if is_last else Status.IN_PROGRESS,
            current_step=None,
            completed_at=state.completed_at if is_last else None,
            step_executions={**earlier, step.step_number: step},
        )
    landed = _landed(step, handoff, commit=commit)
    if landed is None:
        return None
    again = replace(
        step,
        status=Status.IN_PROGRESS,
        completed_at=None,
        error=None,
        files_created=(),
        files_modified=(),
        files_deleted=(),
        phase=handoff.gate.phase if handoff.gate is not None else step.phase,
        attempts=tuple(replace(each, checkpoint=None) for each in step.attempts if each.phase in landed),
        commits=landed,
        review=None,
        base_commit=commit,
        checkpoint=None,
        baseline=None,
    )
    again = replace(again, checkpoint=checkpoint_ref(state.ticket_slug, again, name="start"))
    return replace(
        state,
        status=Status.IN_PROGRESS,
        current_step=step.step_number,
        completed_at=None,
        step_executions={**earlier, step.step_number: again},
    )


def states_in(files: Files) -> tuple[RunState, ...]:
    """The states among the files of runs, those that can be read."""
    found = (_state(data) for name, data in files.items() if name.endswith(f"/{STATE}"))
    return tuple(state for state in found if state is not None)


def _landed(step: StepExecution, handoff: Handoff, *, commit: CommitId) -> dict[str, str] | None:
    """Phase -> commit, of those that had landed; None if the phase of the note never did.

    A commit that was replaced since, as by a rebase, is the one whose note it is.
    """
    phases = list(step.commits)
    ends = [number for number, phase in enumerate(phases) if step.commits[phase] == commit]
    if ends:
        return {phase: step.commits[phase] for phase in phases[: ends[-1] + 1]}
    phase = PHASE_OF[handoff.phase]
    if phase not in step.commits or handoff.error is not None:
        return None
    kept = {each: step.commits[each] for each in phases[: phases.index(phase)]}
    return {**kept, phase: commit}


def _began_in(state: RunState, gone: Collection[str]) -> bool:
    """Whether a run began at, or landed, a commit that is gone."""
    steps = state.step_executions.values()
    known = {state.base_commit, *(step.base_commit for step in steps), *(c for s in steps for c in s.commits.values())}
    return not known.isdisjoint(gone)


def _files(slug: str, own: Mapping[str, bytes], *, state: RunState | None) -> dict[str, bytes]:
    """The files of one run with this state in place of the one it had."""
    old = {f"{slug}/{STATE}", f"{slug}/{STATE}.bak"}
    kept = {name: data for name, data in own.items() if name not in old}
    return kept if state is None else {**kept, f"{slug}/{STATE}": state_file.encode(state)}


def _state(data: bytes | None) -> RunState | None:
    try:
        return None if data is None else state_file.decode(data, path=STATE)
    except DocumentError:
        return None
