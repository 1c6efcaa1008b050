"""Nothing is lost, torn or done twice: kills, faults of the disk, a second process, signals."""

import contextlib
import errno
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.clock import Clock
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import ExitCode
from cdd_agent.events import Emit, Event, Notice, RunFinished
from cdd_agent.repl import session
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from cdd_agent.sandbox.warden import supervision
from cdd_agent.storage import exclusive_lock, write_atomic
from cdd_agent.tickets.ticket import find
from cdd_agent.work.journal import Journal, read
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock
from tests.fuzz.figures import Figures
from tests.soak.kill import every_write, random_kills, random_signals
from tests.soak.kill_disk import full_disk
from tests.soak.kill_disk import why_not as no_disk
from tests.soak.kill_points import Point, points_of, why_not
from tests.soak.kill_save import Saver, killed_saves
from tests.soak.kill_stage import SLUG, Trial, prepared

ROOT = Path(__file__).parent.parent.parent
no_strace = pytest.mark.skipif(why_not() != "", reason=why_not() or "strace works")

RECORDS = ".git/cdd/main/root"


# One save: faults 1 to 5.


@pytest.mark.slow
@pytest.mark.parametrize("size_bytes", [3_000, 300_000])
def test_a_save_that_is_killed_at_random_is_never_torn_and_never_lost(size_bytes: int, tmp_path: Path) -> None:
    assert killed_saves(tmp_path / "saves", count=5, size_bytes=size_bytes, seed=size_bytes) == []


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Point, ...]:
    """The calls of one save over an older one, in their order."""
    saver = Saver(folder=tmp_path_factory.mktemp("points"), size_bytes=3_000, first=1, last=3)
    saver.project.mkdir()
    both = points_of(saver)
    return both[len(both) // 2 :]


def old_one(folder: Path) -> Saver:
    """Return a file that holds 1, about to be overwritten with 2; the save of 1 before that is not tampered with."""
    saver = Saver(folder=folder, size_bytes=3_000, first=1, last=3)
    saver.project.mkdir()
    write_atomic(saver.state, b"1\n".ljust(saver.size_bytes, b"."))
    return saver


@no_strace
def test_a_save_that_is_killed_at_any_of_its_calls_is_the_old_or_the_new_one(
    saves: tuple[Point, ...], tmp_path: Path
) -> None:
    found = []
    for number, point in enumerate(saves):
        (tmp_path / str(number)).mkdir()
        saver = old_one(tmp_path / str(number))
        with saver.start(*point.fails_with("signal=SIGKILL")) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL, point
        found.append(saver.number())
    assert found == sorted(found)
    assert set(found) == {1, 2}


@no_strace
def test_a_save_writes_syncs_renames_and_syncs_the_folder(saves: tuple[Point, ...]) -> None:
    assert [point.call for point in saves if point.call != "mkdir"] == ["write", "fsync", "rename", "fsync"]
    assert saves[-1].about == "project"


FAULTS = [
    *(("write", name) for name in ("ENOSPC", "EIO", "EDQUOT")),
    *(("fsync", name) for name in ("EIO", "ENOSPC")),
    *(("rename", name) for name in ("EACCES", "ENOSPC", "EROFS")),
]


@no_strace
@soak_after(1, ("call", "name"), FAULTS)
def test_a_fault_of_the_disk_names_the_file_and_leaves_the_old_one_alone(
    call: str, name: str, *, saves: tuple[Point, ...], tmp_path: Path
) -> None:
    saver = old_one(tmp_path)
    point = next(point for point in saves if point.call == call)
    with saver.start(*point.fails_with(f"error={name}")) as process:
        _, errors = process.communicate()
    number = getattr(errno, name)
    assert errors.decode() == f"{number} {os.strerror(number)}: {saver.state}\n"
    assert saver.number() == 1
    assert os.listdir(saver.project) == ["state"]


def test_too_many_open_files_is_such_a_fault_too(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        with contextlib.suppress(OSError):
            taken.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(128))
        with pytest.raises(OSError, match="Too many open files") as error:
            write_atomic(path, b"new")
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


REFUSALS = "ENOSPC EDQUOT EIO EACCES EPERM EROFS EMFILE ENFILE ELOOP EISDIR ENXIO ENOLCK EFBIG ENAMETOOLONG"


@pytest.mark.parametrize("name", REFUSALS.split())
def test_what_the_system_refuses_is_told_with_the_file_and_what_to_do(name: str) -> None:
    number = getattr(errno, name)
    told = session.as_environment_error(OSError(number, os.strerror(number), "/p/tickets/sale/execution-state.json"))
    assert told is not None
    assert told.happened == f"{os.strerror(number)}: /p/tickets/sale/execution-state.json."
    assert told.exit_code == ExitCode.ENVIRONMENT
    assert told.hint.endswith("then run the same command again; your work is saved")


def test_the_journal_may_have_gaps_but_never_ends_the_work(tmp_path: Path) -> None:
    """A disk that fills up in the middle of a line: the line is lost, what follows is not mixed up with it."""
    path, told, size = tmp_path / "events.jsonl", list[Event](), resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Journal(path, clock=FakeClock(), report=told.append)) as journal:
        journal.write(Notice(text="one"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, size[1]))
        try:
            journal.write(Notice(text="lost"))
            journal.write(Notice(text="lost too"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, size)
        journal.write(Notice(text="two"))
    assert list(read(path)) == [Notice(text="one"), Notice(text="two")]
    assert len(told) == 1
    assert "has a gap from here on" in str(told[0])


# Files that are none, or that nobody wrote: faults 6 and 7, row 44.


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The smallest project, its plan not begun; to be copied."""
    return prepared(tmp_path_factory.mktemp("crash"))


def copied(original: Trial, folder: Path) -> Trial:
    """Return a copy of a project, approved."""
    shutil.copytree(original.folder.parent, folder / "crash", symlinks=True, ignore=shutil.ignore_patterns("lean"))
    copy = replace(original, folder=folder / "crash" / original.folder.name)
    copy.approve()
    return copy


@pytest.fixture
def trial(original: Trial, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A project of its own for one test."""
    copy = copied(original, tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(copy.state_home))
    return copy


def cdd(trial: Trial, *arguments: str) -> int:
    """The exit code of a command in this process."""
    return run(["--project", str(trial.project), "--replay", str(trial.folder.parent / "recording.yaml"), *arguments])


@soak_after(1, "kind", ["folder", "pipe", "link"])
@pytest.mark.parametrize("name", [f"tickets/{SLUG}/execution-state.json", f"{RECORDS}/journal/{SLUG}/events.jsonl"])
def test_a_file_of_ours_that_is_none_is_named_at_the_start_without_waiting(
    kind: str, name: str, *, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trial.project / name
    find_records(trial.project)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("elsewhere")
    assert cdd(trial, "--yes", "exec", SLUG) in {ExitCode.USAGE, ExitCode.ENVIRONMENT}
    told = capsys.readouterr().err.replace("\n", "")
    assert path.name in told
    assert "ls -l" in told
    assert trial.git("log", "--format=%s") == "first"


def test_a_damaged_state_never_begins_anew_and_leaves_one_copy(
    trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trial.project / "tickets" / SLUG / "execution-state.json"
    path.write_bytes(b'{"schema": 1, "ticket_slug": "sa')
    for _ in range(3):
        assert cdd(trial, "--yes", "exec", SLUG) == ExitCode.USAGE
        assert "incomplete or damaged" in capsys.readouterr().err
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1
    assert path.read_bytes() == b'{"schema": 1, "ticket_slug": "sa'
    assert trial.git("log", "--format=%s") == "first"


# Time: fault 8.


def test_nothing_is_measured_or_ordered_by_a_clock_that_people_set() -> None:
    """What reads it: stamps for people, the age of a lock, a run tree or a report, and a date that a server names.

    A report is used again only on the day of its run.
    """
    allowed = {
        *("clock.py", "storage.py", "git/runner.py", "git/run_tree.py", "model/stream.py"),
        *(
            "git/notes.py",
            "git/repository.py",
            "testrun/frameworks/suite.py",
            "testrun/plain_run.py",
            "testrun/pytest_run.py",
            "testrun/store.py",
        ),
        *("agent/sessions.py", "repl/checkpoint_actions.py", "repl/prompt.py", "repl/render.py", "runs/story.py"),
    }
    reads = re.compile(r"\btime\.time\(|\bdatetime\.now\(|utcnow\(|fromisoformat\(|strptime\(")
    package = ROOT / "cdd_agent"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if reads.search(path.read_text())}
    assert found <= allowed


def executor_of(trial: Trial, *, emit: Emit = lambda _: None, clock: Clock | None = None) -> Run[PlanSteps]:
    """Return what carries out the plan of a trial in this process."""
    options = Options(project=trial.project, replay=trial.folder.parent / "recording.yaml")
    composition = Composition(options, emit=emit, environment=trial.environment)
    if clock is not None:
        composition.clock = clock
    return composition.executor(find(trial.project, SLUG))


class BackwardClock(FakeClock):
    """Each look at the date is an hour before the last one."""

    def now(self) -> str:
        self.hour = getattr(self, "hour", 23) - 1
        return f"2026-01-31T{self.hour:02}:00:00Z"


@pytest.mark.slow
def test_a_clock_that_is_set_back_changes_neither_durations_nor_what_comes_next(trial: Trial) -> None:
    seen: list[Event] = []
    executor = executor_of(trial, emit=seen.append, clock=BackwardClock(tick_s=1.0))
    with executor.running():
        executor.skip(1, reason="left out")
        executor.skip(2, reason="left out")
    state = executor_of(trial).state
    first, second = state.execution(1).completed_at, state.execution(2).completed_at
    assert first is not None
    assert second is not None
    assert second < first < state.started_at
    assert state.numbers(Status.SKIPPED) == (1, 2)
    assert [event.duration_s > 0 for event in seen if isinstance(event, RunFinished)] == [True]


# A second process: fault 9, row 44.


def test_two_work_trees_of_one_repository_do_not_carry_out_one_ticket_at_once(
    trial: Trial, *, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(trial, folder=trial.folder.parent / "other")
    trial.git("worktree", "add", "--quiet", str(other.project))
    other.approve()
    monkeypatch.setenv("XDG_STATE_HOME", str(other.state_home))
    with exclusive_lock(trial.project / ".git" / f"cdd-exec-{SLUG}.lock", purpose="Testing"):
        assert cdd(other, "--yes", "exec", SLUG) == ExitCode.USAGE
        told = capsys.readouterr().err
        assert f"pid {os.getpid()} on {os.uname().nodename} since " in told
        assert cdd(other, "status") == ExitCode.DONE
    assert trial.git("log", "--all", "--format=%s") == "first"


@soak_after(1, "command", ["spec", "plan", "exec"])
def test_only_one_process_works_on_a_ticket_and_the_rest_is_shown_meanwhile(
    command: str, *, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    with exclusive_lock(find_records(trial.project).folder / "locks" / f"{SLUG}.lock", purpose="Testing"):
        assert cdd(trial, "--yes", command, SLUG) == ExitCode.USAGE
        assert f"Work on the ticket {SLUG} is already in progress: pid {os.getpid()} on " in capsys.readouterr().err
        assert cdd(trial, "status", SLUG) == ExitCode.DONE


# Signals: faults 23, 24 and 26.

SLOW = """import pathlib, subprocess, time

def test_slow():
    subprocess.Popen(["sleep", "300"])
    pathlib.Path("begun.tmp").touch()
    time.sleep(300)
"""


@pytest.fixture(scope="module")
def slow_original(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Return a project whose tests would take five minutes; to be copied."""
    return prepared(tmp_path_factory.mktemp("slow"), **{"tests/test_slow.py": SLOW})


@pytest.fixture
def slow(slow_original: Trial, tmp_path: Path) -> Trial:
    return copied(slow_original, tmp_path)


@contextmanager
def in_its_tests(trial: Trial, *, terminal: int | None = None) -> Iterator[tuple["subprocess.Popen[bytes]", set[int]]]:
    """Start ``cdd exec``, wait until the tests run, and yield it with the processes that it has started."""
    with trial.start() if terminal is None else at_terminal(trial, terminal) as process:
        deadline = time.monotonic() + 60
        begun = trial.project / ".cdd" / "worktrees" / SLUG / "begun.tmp"
        while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert begun.exists()
        try:
            yield process, set(supervision.list_below(process.pid))
        finally:
            process.kill()


def at_terminal(trial: Trial, terminal: int) -> "subprocess.Popen[bytes]":
    """The program in a session of its own that ``terminal`` controls."""
    return subprocess.Popen(
        ["setsid", "--ctty", *trial.argv],
        cwd=trial.project,
        env=trial.environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )


def still_alive(processes: set[int]) -> set[int]:
    """Those of them that are no zombies, after some time to die."""
    deadline = time.monotonic() + 30
    while True:
        left = {process for process in processes if supervision.is_alive(process)}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


@soak_after(
    1,
    ("sent", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),  # also what a terminal sends that is closed
    ],
)
def test_a_signal_ends_the_run_in_order_with_all_it_has_started(
    sent: signal.Signals, code: int, *, slow: Trial
) -> None:
    with in_its_tests(slow) as (process, started):
        assert len(started) >= 2
        process.send_signal(sent)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, b"Traceback" in errors) == (code, False), errors.decode()
    assert still_alive(started) == set()


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_process_at_once_with_all_it_has_started(slow: Trial) -> None:
    with in_its_tests(slow) as (process, started):
        for _ in range(100):  # two at once may count as one
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
                break
        _, errors = process.communicate(timeout=30)
    # The first may end the process by itself, so quickly that a later one meets it on its way out.
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in errors
    assert still_alive(started) == set()


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_the_run_in_order(slow: Trial) -> None:
    ours, theirs = pty.openpty()
    with in_its_tests(slow, terminal=theirs) as (process, started):
        os.close(theirs)
        os.close(ours)
        process.wait(timeout=30)
    assert process.returncode == 129
    assert still_alive(started) == set()


def test_what_nohup_ignores_stays_ignored() -> None:
    code = (
        "import signal\nfrom cdd_agent.cli.app import run\nrun(['--help'])\nprint(int(signal.getsignal(signal.SIGHUP)))"
    )
    shell = f"trap '' HUP; exec {sys.executable} -c \"{code}\""
    ended = subprocess.run(["sh", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("1\n")


@pytest.mark.slow
def test_a_reader_who_goes_away_is_told_nothing(trial: Trial) -> None:
    command = f"{sys.executable} -m cdd_agent status | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command], cwd=trial.project, env=trial.environment, capture_output=True, check=False
    )
    assert (ended.returncode in {0, 141}, ended.stderr) == (True, b"")


# Whole runs: faults 1 to 3.


@pytest.mark.slow
def test_what_a_killed_run_left_is_gone_after_the_next(trial: Trial) -> None:
    (trial.project / "tests").mkdir()
    (trial.project / "tests" / "test_it.py").write_text("def test_it(): pass\n")
    trial.git("add", "tests")
    trial.git("commit", "--quiet", "--message=a test")
    plan = trial.project / "tickets" / SLUG / "plan.md"
    plan.write_text(plan.read_text().replace("Depends on: 1", "Depends on: none"))
    executor = executor_of(trial)
    with executor.running():
        executor.skip(1, reason="the next run is shorter without it")
    names = [
        f"tickets/{SLUG}/.execution-state.json.cdd-abcd1234.tmp",
        f"{RECORDS}/reports/{SLUG}/step-1-baseline.json.4711.tmp",
        f"{RECORDS}/.impact.json.cdd-abcd1234.tmp",
        f".git/refs/cdd/tests/{SLUG}/before.lock",
    ]
    for name in names:
        (trial.project / name).parent.mkdir(parents=True, exist_ok=True)
        (trial.project / name).write_text("half")
    (trial.temporary / "cdd-scratch-abcd1234" / "cdd-index-1").mkdir(parents=True)
    (trial.project / ".git" / f"cdd-exec-{SLUG}.lock").write_text("a process that was killed")
    assert sorted(trial.leftovers()) == sorted([*(f"project/{name}" for name in names), "tmp/cdd-scratch-abcd1234"])
    assert trial.finish() == ""
    assert trial.git("log", "-1", "--format=%s") == "docs: Say so"
    assert trial.leftovers() == []


def test_a_file_by_which_python_tries_a_folder_is_no_leftover_of_ours(trial: Trial) -> None:
    code = "import os, tempfile; os.unlink = lambda _: os._exit(9); tempfile.gettempdir()"
    killed = subprocess.run([sys.executable, "-c", code], env=trial.environment, check=False)
    (probe,) = trial.temporary.iterdir()
    assert (killed.returncode, trial.leftovers()) == (9, [])
    probe.write_text("half")
    assert trial.leftovers() == [f"tmp/{probe.name}"]


@pytest.mark.slow
@pytest.mark.skipif(no_disk() != "", reason=no_disk() or "a small disk can be made")
def test_a_disk_that_fills_up_is_told_and_what_is_gone_on_with_ends_the_same(tmp_path: Path) -> None:
    found = full_disk(tmp_path / "disk", rooms_kb=(0, 100, 400))
    assert (found.tried, found.bad, found.example) == (3, 0, "")


@pytest.mark.slow
@no_strace
def test_a_run_that_is_killed_at_some_of_its_writes_ends_the_same() -> None:
    found = every_write(8)
    assert (found.tried, found.bad, found.example) == (8, 0, "")


@pytest.mark.slow
@pytest.mark.parametrize("soak", [random_kills, random_signals])
def test_a_run_that_is_ended_at_random_ends_the_same(soak: Callable[[int, int], Figures]) -> None:
    found = soak(15, int(time.time()))
    assert (found.tried, found.bad, found.example) == (15, 0, "")
