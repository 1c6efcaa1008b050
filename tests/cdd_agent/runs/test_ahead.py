"""Steps that are worked out on another machine, which is played by the test itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cdd_agent.config.options import Options
from cdd_agent.config.settings import Settings, parse_settings
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Event, Notice
from cdd_agent.git.fork import Forks
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.model.budget import Ceilings
from cdd_agent.runs.ahead import Ahead, StepProgram
from cdd_agent.runs.jobs import Job, JobResult
from cdd_agent.runs.parcels import UnpackedJob, unpack_job
from cdd_agent.runs.places import locate_run
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, Usage, pending_steps, replace_step
from cdd_agent.work.state_file import load_state, save_state
from tests.fakes.clock import FakeClock
from tests.stories.conftest import git, under_git

KEYS = [StepKey(number=number, title=f"node {number}", text_sha256="ab") for number in (1, 2, 3)]
STATE = RunState(
    ticket_slug="sums", started_at="now", step_executions=pending_steps(KEYS), usage=Usage(input_tokens=1000)
)
SETTINGS = Settings(max_tokens_per_ticket=10_000, max_tokens_per_step=100_000, max_usd_per_ticket=0)


@dataclass
class FakePool:
    """A cluster with room for two jobs, whose ends the test says."""

    jobs: list[Job] = field(default_factory=list)
    ends: list[Callable[[Job], JobResult]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    is_gone: bool = False
    is_remote: bool = True
    most: int = 2

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(job.number for job in self.jobs)

    @property
    def has_room(self) -> bool:
        return len(self.jobs) < self.most

    def submit(self, job: Job) -> None:
        if self.is_gone:
            raise EnvironmentMissing("The scheduler is gone.", hint="start it")
        self.jobs.append(job)

    def as_completed(self) -> Iterator[JobResult]:
        while self.jobs:
            yield self.ends.pop(0)(self.jobs.pop(0))

    def cancel(self, *numbers: int) -> None:
        self.cancelled += numbers


@dataclass
class Desk:
    """A run that lets steps be worked out elsewhere."""

    folder: Path
    ticket: Ticket
    base: CommitId
    options: Options = field(default_factory=Options)
    pool: FakePool = field(default_factory=FakePool)
    seen: list[Event] = field(default_factory=list)

    def make(self) -> Ahead:
        """Return what a new process has."""
        program = StepProgram(
            options=self.options,
            settings=SETTINGS,
            ceilings=Ceilings.from_settings(SETTINGS),
            sandbox="none",
            python="",
            command=lambda folder, number: ("exec", "sums", "--step", str(number)),
        )
        forks = Forks(self.folder)
        return Ahead(
            self.ticket, forks=forks, clock=FakeClock(), emit=self.seen.append, program=program, jobs=self.pool
        )

    def unpack(self, job: Job) -> UnpackedJob:
        """Return a job as its worker has it."""
        folder = self.folder.parent / f"worker-{job.number}-{len(list(self.folder.parent.iterdir()))}"
        folder.mkdir()
        return unpack_job(job.parcel, folder)

    def read_limit(self, job: Job) -> int:
        """Return the limit of tokens of a job."""
        root = self.unpack(job).repository.root
        return parse_settings((root / ".cdd" / "config.yaml").read_bytes()).max_tokens_per_ticket

    def list_notices(self) -> str:
        return "\n".join(event.text for event in self.seen if isinstance(event, Notice))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "base.py").write_text("")
    under_git(folder)
    base = Repository.find(folder).read_head()
    assert base is not None
    ticket = locate_run(folder, "sums")
    save_state(ticket.state_path, STATE)
    return Desk(folder=folder, ticket=ticket, base=base)


def lose(job: Job) -> JobResult:
    return JobResult(job=job, status=0, place="tcp://w:1", is_lost=True)


def finish(desk: Desk, *, tokens: int = 70, forge: bytes = b"") -> Callable[[Job], JobResult]:
    """Return a worker that commits one file, and says how many tokens it has used."""

    def end(job: Job) -> JobResult:
        unpacked = desk.unpack(job)
        top, path = unpacked.repository.root, f"n{job.number}.py"
        (top / path).write_text("x = 1\n")
        git(top, "add", path)
        git(top, "commit", "-q", "-m", path)
        state = load_state(unpacked.ticket.state_path)
        assert state is not None
        step, commit = state.execution(job.number), git(top, "rev-parse", "HEAD").strip()
        used = Usage(input_tokens=tokens, calls=1)
        done = replace(step, status=Status.COMPLETED, commits={"green": commit}, usage=used)
        save_state(unpacked.ticket.state_path, replace_step(state, done))
        return JobResult(job=job, status=0, place="tcp://w:1", parcel=forge or unpacked.pack_result())

    return end


def test_each_job_gets_a_part_of_what_is_left_and_the_rest_comes_back(desk: Desk) -> None:
    ahead = desk.make()
    ahead.begin(KEYS, STATE, base=desk.base)
    assert [job.number for job in desk.pool.jobs] == [1, 2]
    # 9,000 tokens are left: two jobs and the run itself get a third each. A job continues from the 1,000 of the run.
    assert [desk.read_limit(job) for job in desk.pool.jobs] == [4000, 4000]
    assert ahead.measure_reserved().tokens == 6000
    desk.pool.ends = [finish(desk)]
    assert ahead.take(1) == Usage(input_tokens=70, calls=1)
    assert ahead.measure_reserved(without=1).tokens == 3000
    tips = git(desk.folder, "for-each-ref", "--format=%(subject)", "refs/heads/fork").splitlines()
    assert sorted(tips) == ["n1.py", "start"]


def test_the_step_of_a_lost_worker_runs_again_and_its_share_counts_as_used(desk: Desk) -> None:
    ahead = desk.make()
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    desk.pool.ends = [lose, finish(desk)]
    assert ahead.take(1).tokens == 3000 + 70
    assert "Its process on tcp://w:1 was lost with the worker. Its share (3,000 tokens" in desk.list_notices()
    assert "Step 1 runs again elsewhere." in desk.list_notices()


def test_what_several_lost_workers_had_together_is_never_more_than_the_limit(desk: Desk) -> None:
    ahead = desk.make()
    ahead.begin(KEYS, STATE, base=desk.base)
    desk.pool.ends = [lose] * 6
    used = ahead.take(1)
    assert "Step 1 could not be worked out ahead, so it runs now. Its process on tcp://w:1 was lost" in (
        desk.list_notices()
    )
    assert 3000 < used.tokens + ahead.measure_reserved(without=1).tokens <= 9000


def test_a_job_that_finds_no_worker_uses_nothing(desk: Desk) -> None:
    desk.pool.is_gone = True
    with pytest.raises(EnvironmentMissing):
        desk.make().begin(KEYS[:1], STATE, base=desk.base)
    desk.pool.is_gone = False
    ahead = desk.make()
    assert ahead.measure_reserved() == Usage()
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    assert ahead.measure_reserved().tokens == 3000


def test_the_share_of_a_killed_run_counts_as_used_in_the_next_one(desk: Desk) -> None:
    desk.make().begin(KEYS[:1], STATE, base=desk.base)
    desk.pool = FakePool()
    ahead = desk.make()
    assert ahead.measure_reserved().tokens == 3000
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    assert desk.read_limit(desk.pool.jobs[0]) == 1000 + 2000
    desk.pool.ends = [finish(desk)]
    assert ahead.take(1).tokens == 3000 + 70


def test_the_fork_has_the_files_of_the_result_and_keeps_its_own(desk: Desk) -> None:
    ticket = desk.folder / "tickets" / "sums"
    ticket.mkdir(parents=True)
    for name in ("spec.yaml", "plan.md"):
        (ticket / name).write_text("title: Sums\n")
    desk.ticket = Ticket(slug="sums", folder=ticket)
    ahead = desk.make()
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    desk.pool.ends = [finish(desk)]
    assert ahead.take(1).tokens == 70
    forks = Forks(desk.folder)
    (fork,) = forks.list_all()
    root = forks.find_project(fork)
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    assert {"spec.yaml", "plan.md", "execution-state.json"} <= {each.name for each in root.glob("tickets/sums/*")}
    assert (root / "n1.py").exists()


def test_no_job_begins_once_the_limit_is_used_up(desk: Desk) -> None:
    ahead = desk.make()
    ahead.begin(KEYS, replace(STATE, usage=Usage(output_tokens=10_000)), base=desk.base)
    assert desk.pool.jobs == []
    assert "Step 1 waits for its turn. No tokens are left for it." in desk.list_notices()


def test_jobs_with_a_recording_reserve_nothing(desk: Desk) -> None:
    recording = desk.folder.parent / "turns.json"
    recording.write_text("[]")
    desk.options = Options(replay=recording)
    ahead = desk.make()
    ahead.begin(KEYS, STATE, base=desk.base)
    assert ahead.measure_reserved() == Usage()
    assert "--replay" in desk.unpack(desk.pool.jobs[0]).arguments


def test_a_forged_result_is_not_taken_and_the_step_runs_here(desk: Desk) -> None:
    ahead = desk.make()
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    desk.pool.ends = [finish(desk, forge=b"\xc1")]
    assert ahead.take(1).tokens == 3000  # nobody knows what it has used
    assert "The result of a worker is refused" in desk.list_notices()
    assert "Step 1 could not be worked out ahead, so it runs now." in desk.list_notices()
    assert git(desk.folder, "for-each-ref", "--format=%(subject)", "refs/heads/fork") == "start"


def test_a_run_without_a_cluster_ends_and_its_forks_stay(desk: Desk) -> None:
    ahead = desk.make()
    desk.pool.is_gone = True
    with pytest.raises(EnvironmentMissing):
        ahead.begin(KEYS[:1], STATE, base=desk.base)
    desk.pool.is_gone = False
    ahead.begin(KEYS[:1], STATE, base=desk.base)
    assert [job.number for job in desk.pool.jobs] == [1]


def test_work_that_a_process_here_has_begun_is_set_aside(desk: Desk) -> None:
    desk.make().begin(KEYS[:1], STATE, base=desk.base)
    (fork,) = Forks(desk.folder).list_all()
    state_path = locate_run(Forks(desk.folder).find_project(fork), "sums").state_path
    state = load_state(state_path)
    assert state is not None
    begun: StepExecution = replace(state.execution(1), status=Status.IN_PROGRESS)
    save_state(state_path, replace_step(state, begun))
    desk.pool = FakePool()
    desk.make().begin(KEYS[:1], STATE, base=desk.base)
    assert [fork.is_abandoned for fork in Forks(desk.folder).list_all()] == [True, False]
    assert [job.number for job in desk.pool.jobs] == [1]


def test_the_queries_of_a_step_outlive_its_fork(desk: Desk, tmp_path: Path) -> None:
    ahead = desk.make()
    ahead.begin(KEYS[:2], STATE, base=desk.base)
    forks = Forks(desk.folder)
    for fork in forks.list_all():
        log = forks.find_records(fork).folder / "reports" / "sums" / f"step-{fork.step}-0a-green-localization.json"
        log.parent.mkdir(parents=True)
        log.write_text(f"{fork.step}")
    ahead.keep_queries(1, tmp_path / "kept")
    assert [path.read_text() for path in (tmp_path / "kept").iterdir()] == ["1"]
