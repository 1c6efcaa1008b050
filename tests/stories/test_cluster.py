"""Workers of a dask cluster carry out steps: whatever ends, the tree is that of one job, and no key goes anywhere."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdd_agent.model.recording import load_recording
from cdd_agent.untrusted.keys import VARIABLE
from tests.fakes.messages_server import MessagesServer
from tests.fakes.program import EXAMPLES, command, environment
from tests.soak import kill_disk
from tests.stories.conftest import git
from tests.stories.test_jobs import lay
from tests.stories.test_kill_generation import IDENTITY, read_tree

pytestmark = pytest.mark.slow
WORKERS_KEY, OWN_KEY = "sk-ant-worker-canary-0123456789", "sk-ant-coordinator-canary-9876543210"
EXAMPLE = EXAMPLES / "wordkit"
SOON_S, LONGEST_S = 60.0, 1800
DASK = (sys.executable, "-m", "dask")


@dataclass
class Started:
    """A scheduler and workers as separate processes in one folder."""

    folder: Path
    variables: dict[str, str]
    address: str = ""
    workers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, *words: str, name: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([*DASK, *words], env=self.variables, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def add_worker(self, name: str, *options: str, local: Path | None = None) -> None:
        """Start a worker with one thread, and wait until it has joined."""
        place = local or self.folder / name
        place.mkdir(exist_ok=True)
        words = ("worker", self.address, "--nthreads", "1", "--local-directory", str(place), "--no-dashboard")
        self.workers[name] = self.start(*words, *options, name=name)
        wait_for(lambda: any(place.glob("dask-scratch-space/worker-*/")))
        time.sleep(1)

    def find_worker(self, name: str) -> int:
        """Return the process of a worker that its nanny has started."""
        return next(pid for pid in list_children(self.workers[name].pid) if "spawn_main" in read_line(pid))

    def list_jobs(self) -> list[str]:
        """Return the command lines of the jobs on all workers."""
        lines = [read_line(int(each.name)) for each in Path("/proc").glob("[0-9]*")]
        return [line for line in lines if f"{self.folder.parent}/" in line and "cdd-job-" in line]

    def find_text(self, *texts: str) -> set[str]:
        """Return the files of the cluster, among them the folders of running jobs, that contain one of the texts."""
        found = set()
        for path in self.folder.rglob("*"):
            try:
                data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            except OSError:
                continue
            if any(text.encode() in data for text in texts):
                found.add(str(path))
        return found


def read_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def list_children(pid: int) -> list[int]:
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


def wait_for(condition: Callable[[], bool], *, most_s: float = SOON_S) -> None:
    until = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path, home: Path) -> Iterator[Started]:
    """A scheduler and two workers, which have a key."""
    pytest.importorskip("distributed")
    folder = tmp_path / "cluster"
    folder.mkdir()
    variables = environment(home, DASK_LOGGING__DISTRIBUTED="info", **{VARIABLE: WORKERS_KEY, "NO_PROXY": "127.0.0.1"})
    started = Started(folder, variables)
    file = folder / "scheduler.json"
    started.start("scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(file), name="s")
    try:
        wait_for(file.exists)
        started.address = json.loads(file.read_text())["address"]
        for name in ("w1", "w2"):
            started.add_worker(name)
        yield started
    finally:
        for process in reversed(started.processes):
            process.terminate()
        for process in started.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass
class Running:
    """A run of cdd."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def told(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_until_jobs_run(self, cluster: Started) -> None:
        wait_for(lambda: self.process.poll() is not None or bool(cluster.list_jobs()))
        assert self.process.poll() is None, self.told

    def finish(self) -> str:
        assert self.process.wait(300) == 0, self.told
        return self.told


def start(home: Path, log: Path, *words: str, cwd: Path | None = None, **variables: str) -> Running:
    given = environment(home, **IDENTITY, **{VARIABLE: OWN_KEY, "NO_PROXY": "127.0.0.1"}, **variables)
    with log.open("wb") as stream:
        process = subprocess.Popen(command(*words), cwd=cwd or log.parent, env=given, stdout=stream, stderr=stream)
    return Running(process, log)


def generate(home: Path, out: Path, *words: str) -> Running:
    """Generate the example that has the name of the folder ``out``."""
    out.parent.mkdir(exist_ok=True)
    example = EXAMPLES / out.name
    replay = ("--replay", str(example / "recording.yaml"), "--yes", "generate", str(example / "graph.json"))
    return start(home, out.parent / "log", *replay, "--out", str(out), *words)


@pytest.mark.parametrize("name", ["wordkit", "ml-library"])
def test_the_tree_is_that_of_two_jobs_although_a_worker_is_killed(
    cluster: Started, tmp_path: Path, home: Path, *, name: str
) -> None:
    first = generate(home, tmp_path / "jobs" / name, "--jobs", "2")
    status = first.process.wait(LONGEST_S)
    run = generate(home, tmp_path / "workers" / name, "--scheduler", cluster.address)
    run.wait_until_jobs_run(cluster)
    os.kill(cluster.find_worker("w1"), signal.SIGKILL)
    found = cluster.find_text(WORKERS_KEY, OWN_KEY)
    assert run.process.wait(LONGEST_S) == status, run.told  # nodes that fail are part of an example
    assert "was lost with the worker" in run.told
    assert "Brought in from the fork" in run.told
    assert read_tree(tmp_path / "workers" / name) == read_tree(tmp_path / "jobs" / name)
    assert git(tmp_path / "workers" / name, "status", "--porcelain") == ""
    assert (cluster.list_jobs(), found | cluster.find_text(WORKERS_KEY, OWN_KEY)) == ([], set())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_the_jobs_of_a_run_that_ends_end_too_and_the_next_run_continues(
    cluster: Started, tmp_path: Path, home: Path, *, number: int
) -> None:
    whole = generate(home, tmp_path / "whole" / "wordkit")
    whole.finish()
    run = generate(home, tmp_path / "cut" / "wordkit", "--scheduler", cluster.address)
    run.wait_until_jobs_run(cluster)
    run.process.send_signal(number)
    assert run.process.wait(30) in (130, -9), run.told
    wait_for(lambda: cluster.list_jobs() == [], most_s=15)
    generate(home, tmp_path / "cut" / "wordkit", "--scheduler", cluster.address).finish()
    assert read_tree(tmp_path / "cut" / "wordkit") == read_tree(tmp_path / "whole" / "wordkit")
    assert git(tmp_path / "cut" / "wordkit", "status", "--porcelain") == ""


def test_a_run_and_its_jobs_end_when_the_scheduler_is_killed(cluster: Started, tmp_path: Path, home: Path) -> None:
    run = generate(home, tmp_path / "out" / "wordkit", "--scheduler", cluster.address)
    run.wait_until_jobs_run(cluster)
    cluster.processes[0].kill()
    assert run.process.wait(30) == 4, run.told
    assert f"The scheduler {cluster.address} is gone" in run.told
    assert "Traceback" not in run.told
    wait_for(lambda: cluster.list_jobs() == [], most_s=15)


def test_a_job_asks_the_model_with_the_workers_key_which_no_task_log_or_file_has(
    cluster: Started, tmp_path: Path, home: Path
) -> None:
    from distributed import Client

    trees = []
    for name in ("here", "workers"):
        (tmp_path / name).mkdir()
        project, recording = lay(tmp_path / name / "shop", together=False)
        with MessagesServer(load_recording(recording)) as server:
            options = ("--scheduler", cluster.address) if name == "workers" else ()
            for worker in cluster.workers if options else ():
                cluster.workers[worker].terminate()
                cluster.workers[worker].wait(30)
            for worker in ("w3", "w4") if options else ():
                cluster.variables["ANTHROPIC_BASE_URL"] = server.base_url
                cluster.add_worker(worker)
            run = start(
                home,
                tmp_path / name / "log",
                *("exec", "sums", "--yes", *options),
                cwd=project,
                ANTHROPIC_BASE_URL=server.base_url,
            )
            if options:
                run.wait_until_jobs_run(cluster)
                found = cluster.find_text(WORKERS_KEY, OWN_KEY)
                with Client(cluster.address, set_as_default=False) as client:
                    client.dump_cluster_state(str(cluster.folder / "state"), format="yaml")
            run.finish()
        sent = [str(request.headers) for request in server.requests]
        assert all(WORKERS_KEY in headers or OWN_KEY in headers for headers in sent)
        assert any(WORKERS_KEY in headers for headers in sent) == bool(options)
        trees.append((read_tree(project), git(project, "log", "--format=%s")))
    assert (cluster.folder / "state.yaml").stat().st_size > 1000
    assert found | cluster.find_text(WORKERS_KEY, OWN_KEY) == set()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and OWN_KEY.encode() in path.read_bytes()]
    assert trees[0] == trees[1]


def test_workers_without_a_key_or_scheduler_are_named_before_the_first_node(
    cluster: Started, tmp_path: Path, home: Path
) -> None:
    del cluster.variables[VARIABLE]
    cluster.add_worker("w3")
    words = ("--yes", "generate", str(EXAMPLE / "graph.json"), "--out", str(tmp_path / "out"))
    run = start(home, tmp_path / "log", *words, "--scheduler", cluster.address)
    assert run.process.wait(60) == 4, run.told
    assert run.told.count("no key for the model") == 1
    run = start(home, tmp_path / "log", *words, "--scheduler", "tcp://127.0.0.1:9")
    began = time.monotonic()
    assert run.process.wait(60) == 4, run.told
    assert time.monotonic() - began < 10
    assert "tcp://127.0.0.1:9 does not answer" in run.told


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    if why := kill_disk.why_not():
        pytest.skip(why)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", place], check=False).returncode:
        pytest.skip("only root can mount a small disk that workers see, too")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, suppress(OSError):
        while True:  # others write there, too
            stream.write(bytes(1 << 16))
    return filler


@pytest.mark.parametrize("place", ["here", "at a worker"])
def test_a_full_disk_is_named_and_nothing_is_lost(cluster: Started, home: Path, disk: Path, *, place: str) -> None:
    tmp_path = disk.parent
    whole = generate(home, tmp_path / "whole" / "wordkit")
    whole.finish()
    out = (disk if place == "here" else tmp_path / "out") / "wordkit"
    if place == "at a worker":
        for worker in cluster.workers.values():
            worker.terminate()
            worker.wait(30)
        cluster.add_worker("w3", local=disk)
    run = generate(home, out, "--scheduler", cluster.address)
    run.wait_until_jobs_run(cluster)
    filler = fill(disk)
    if place == "here":
        assert run.process.wait(120) == 4, run.told
        assert "No space left" in run.told or "room" in run.told
        filler.unlink()
        run = generate(home, out, "--scheduler", cluster.address)
    told = run.finish()
    if place == "at a worker":
        logs = "".join(path.read_text() for path in out.glob(".git/cdd/**/step-*-ahead.log"))
        assert "No space left" in logs or "room" in logs
        assert "could not be worked out ahead, so it runs now" in told
    assert read_tree(out) == read_tree(tmp_path / "whole" / "wordkit")
