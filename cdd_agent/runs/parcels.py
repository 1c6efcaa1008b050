"""Parcels: a job as bytes for another machine, and its result as bytes.

A job's parcel holds the commits that the job begins from, the state of its run, the settings, and the files that its
command reads. Its result holds the new commits and the state. Nothing in a result counts before it was checked: git
checks each object, the commits follow the one that was sent, and of the state only the step of the job is taken.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from cdd_agent.config.settings import CONFIG_FILE, Settings, read_offer
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import CddError, EnvironmentMissing
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import write_git_folder
from cdd_agent.git.runner import GitError
from cdd_agent.runs.jobs import MOST_BYTES
from cdd_agent.runs.places import locate_run
from cdd_agent.storage import private_folder, read_ordinary, write_atomic
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution
from cdd_agent.work.state_file import decode_state, encode_state, find_foreign_value, load_state, save_state

_MOST_FILES_BYTES = 1_000_000_000
"""The size of all files that the commits of a result bring."""
_MOST_COMMITS = 100
_MOST_ERROR = 10_000
"""Characters of why a step has failed."""
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NAME = re.compile(r"[\w+-][\w+. -]{0,200}")
_IDENTITY = '[user]\n\tname = "cdd"\n\temail = "cdd@localhost"\n'
"""The author of a job's commits. Only their changes are used."""
LOG = "-localization.json"
"""The end of the names of logs that say where agents looked for faults."""
_AGAIN = "nothing of it was taken"


class _PathWord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An argument that is a path: one of the parcel's files by its index, or the project's folder."""

    index: int | None = None


class _Job(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    slug: str
    inside: str
    """The project's folder in the work tree."""
    ticket: str | None
    """The ticket's folder in the project; None for a run without a ticket."""
    words: list[str | _PathWord]
    files: list[tuple[str, bytes]]
    """Name and content of the files that the command reads."""
    python: str
    """The interpreter that runs the tests; empty: cdd's own."""
    documents: dict[str, bytes]
    """Name -> content of the files of the ticket."""
    settings: str
    state: bytes
    head: str
    pack: bytes


class _Result(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    state: bytes
    head: str
    pack: bytes
    logs: dict[str, bytes] = {}
    """Name -> content of the logs of where agents looked for faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A job before it is sent."""

    repository: Repository
    head: CommitId
    project: PurePosixPath
    """The project's folder in the work tree."""
    folder: Path
    """The project's folder, as the arguments name it."""
    ticket: Ticket
    """The job's own, with the state that it begins with."""
    state: RunState
    settings: Settings
    arguments: tuple[str | Path, ...]
    python: str
    """The interpreter that runs the tests; empty: cdd's own."""

    def pack(self) -> bytes:
        """Return the parcel; raise ``EnvironmentMissing`` if it would be too large."""
        import yaml

        ticket, files = self.ticket, list[tuple[str, bytes]]()
        words = list[str | _PathWord]()
        for argument in self.arguments:
            if isinstance(argument, str) or argument == self.folder:
                words.append(argument if isinstance(argument, str) else _PathWord())
            else:
                words.append(_PathWord(len(files)))
                files.append((argument.name, read_ordinary(argument, limit_bytes=MOST_BYTES, through_links=True)))
        documents = [ticket.spec_path, ticket.plan_path] if ticket.has_documents else []
        # What others have attempted is of no concern here, and would make a large parcel of each step of a large plan.
        others = {number: replace(step, attempts=()) for number, step in self.state.step_executions.items()}
        job = _Job(
            slug=ticket.slug,
            inside=str(self.project),
            ticket=str(ticket.folder.relative_to(self.folder)) if ticket.has_documents else None,
            words=words,
            files=files,
            python=self.python,
            documents={path.name: path.read_bytes() for path in documents},
            settings=yaml.safe_dump(asdict(replace(self.settings, hooks={})), sort_keys=False),
            state=encode_state(replace(self.state, step_executions=others, beyond=())),
            head=self.head,
            pack=_make_pack(self.repository, [self.head]),
        )
        data = msgspec.msgpack.encode(job)
        if len(data) > MOST_BYTES:
            raise EnvironmentMissing(
                f"A job would be sent as {len(data):,} bytes, and at most {MOST_BYTES:,} are.",
                hint="leave out --scheduler: this repository is too large for it",
            )
        return data


def _make_pack(repository: Repository, revisions: Iterable[str]) -> bytes:
    """Return the objects of a range of commits as git packs them."""
    asked = "".join(f"{revision}\n" for revision in revisions).encode()
    options = ("--revs", "--quiet", "--delta-base-offset", "--stdout")
    return repository.git("pack-objects", options, stdin=asked).encode("utf-8", "surrogateescape")


# On a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedJob:
    """A job in a folder of a worker."""

    ticket: Ticket
    repository: Repository
    base: CommitId
    arguments: tuple[str, ...]
    python: str
    logs: Path
    """The folder for the reports of the run."""

    def pack_result(self) -> bytes:
        """Return what the job has made so far."""
        state = load_state(self.ticket.state_path)
        head = self.repository.read_head() or self.base
        pack = b"" if head == self.base else _make_pack(self.repository, [head, f"^{self.base}"])
        saved = b"" if state is None else encode_state(state)
        logs = {path.name: path.read_bytes() for path in sorted(self.logs.glob(f"step-*{LOG}"))}
        return msgspec.msgpack.encode(_Result(state=saved, head=head, pack=pack, logs=logs))


def unpack_job(data: bytes, folder: Path) -> UnpackedJob:
    """Unpack a job below ``folder``: a repository, the state of the run, and the files that the command reads."""
    job = msgspec.msgpack.decode(data, type=_Job)
    top = folder / "project"
    root = top / _require_inside(job.inside)
    (top / ".git" / "objects").mkdir(parents=True)
    write_git_folder(top / ".git", job.head, branch="main")
    with (top / ".git" / "config").open("a", encoding="ascii") as config:
        config.write(_IDENTITY)
    repository = Repository.find(top)
    repository.git("index-pack", ("--stdin", "--strict"), stdin=job.pack)
    repository.git("read-tree", ("--reset", "-u"), job.head)
    _approve(root, job.settings)
    ticket = locate_run(root, job.slug)
    if job.ticket is not None:
        ticket = Ticket(slug=job.slug, folder=root / _require_inside(job.ticket))
    for name, content in job.documents.items():
        write_atomic(ticket.folder / _require_name(name), content)
    save_state(ticket.state_path, decode_state(job.state, path="the state of the job"))
    files = [folder / "files" / str(index) / _require_name(name) for index, (name, _) in enumerate(job.files)]
    for path, (_, content) in zip(files, job.files, strict=True):
        write_atomic(path, content)
    paths = (word if isinstance(word, str) else root if word.index is None else files[word.index] for word in job.words)
    return UnpackedJob(
        ticket=ticket,
        repository=repository,
        base=CommitId(job.head),
        arguments=tuple(map(str, paths)),
        python=job.python,
        logs=find_records(root).folder / "reports" / job.slug,
    )


def _approve(root: Path, settings: str) -> None:
    """Write the settings of the coordinator, which has them from its user's approval."""
    write_atomic(private_folder(root) / CONFIG_FILE.name, settings.encode())
    offer = read_offer(root)
    assert offer is not None
    Approvals(root).record(offer, approved=True)


def _require_inside(path: str) -> PurePosixPath:
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts or ".git" in inside.parts:
        raise EnvironmentMissing(f"A job names the folder {shorten(path, 80)!r}.", hint=_AGAIN)
    return inside


def _require_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise EnvironmentMissing(f"A job names the file {shorten(name, 80)!r}.", hint=_AGAIN)
    return name


# At the coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenResult:
    """The parts of a result that count."""

    step: StepExecution
    logs: Mapping[str, bytes]
    """Name -> content of the logs of where the agents of the step looked for faults."""


def take_result(data: bytes, *, known: StepExecution, repository: Repository, base: CommitId) -> TakenResult:
    """Return the step ``known`` as a result has it, whose commits follow ``base`` in ``repository`` afterwards.

    Raises ``CddError`` for a result that is not as a job makes it. Objects that are left of it belong to no ref.
    """
    try:
        result = msgspec.msgpack.decode(data, type=_Result)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _refuse(f"it cannot be read: {error}") from error
    step = _read_step(result.state, known)
    own = _import_commits(result, repository=repository, base=base)
    if not own.issuperset(filter(None, step.commits.values())):
        raise _refuse("its state names commits that it does not bring")
    name = re.compile(rf"step-{known.step_number}-[\w-]{{1,100}}{re.escape(LOG)}")
    taken = replace(
        known,
        status=step.status,
        started_at=step.started_at,
        completed_at=step.completed_at,
        error=step.error and clean(step.error)[:_MOST_ERROR],
        phase=step.phase,
        attempts=_drop_files(step.attempts),
        returned=_drop_files(step.returned),
        times_sent_back=step.times_sent_back,
        commits={phase: commit for phase, commit in step.commits.items() if commit},
        usage=step.usage,
    )
    return TakenResult(step=taken, logs={each: text for each, text in result.logs.items() if name.fullmatch(each)})


def _drop_files(attempts: Iterable[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """Return attempts without reports and snapshots, which stay on the worker."""
    return tuple(replace(each, report=None, checkpoint=None) for each in attempts)


def _refuse(why: str) -> EnvironmentMissing:
    return EnvironmentMissing(f"The result of a worker is refused: {shorten(why, 300)}.", hint=_AGAIN)


def _read_step(data: bytes, known: StepExecution) -> StepExecution:
    try:
        state = decode_state(data, path="the state of a worker")
    except CddError as error:
        raise _refuse(error.happened) from error
    step = state.step_executions.get(known.step_number)
    if step is None or (step.title, step.text_sha256) != (known.title, known.text_sha256):
        raise _refuse("its state has another step")
    if (
        foreign := find_foreign_value(replace(state, step_executions={known.step_number: step}, beyond=()))
    ) is not None:
        raise _refuse(foreign)
    return step


def _import_commits(result: _Result, *, repository: Repository, base: CommitId) -> frozenset[str]:
    """Add the objects of a result, and return its commits, which must follow ``base`` in one line."""
    if result.head == base:
        return frozenset()
    if not _ID.fullmatch(result.head) or not result.pack:
        raise _refuse("it names a commit that it does not bring")
    try:
        # --strict: git checks each object, such as for entries `.git` or `..` of a tree.
        most = f"--max-input-size={MOST_BYTES}"
        repository.git("index-pack", ("--stdin", "--strict", most), stdin=result.pack)
        listed = repository.git("rev-list", ("--parents", f"--max-count={_MOST_COMMITS + 1}"), result.head, f"^{base}")
        named = repository.git("rev-list", ("--objects", "--no-object-names"), result.head, f"^{base}")
        sizes = repository.git("cat-file", ("--batch-check=%(objectsize)",), stdin=named.encode())
    except GitError as error:
        raise _refuse(error.happened) from error
    lines = [line.split() for line in listed.splitlines()]
    follows = [line[0] for line in lines[1:]] + [base]
    if len(lines) > _MOST_COMMITS or [line[1:] for line in lines] != [[each] for each in follows]:
        raise _refuse("its commits do not follow the one that was sent")
    if sum(map(int, sizes.split())) > _MOST_FILES_BYTES:
        raise _refuse("its files are too large")
    return frozenset(line[0] for line in lines)
