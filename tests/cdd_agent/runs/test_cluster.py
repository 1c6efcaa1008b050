"""Jobs on a cluster: dask's own scheduler and workers in this process, and a fake of dask's client for the rest."""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Event, Notice
from cdd_agent.runs.cluster import (
    Cluster,
    ClusterJobs,
    Requirement,
    WorkerFacts,
    check_address,
    describe_machine,
    list_differences,
)
from cdd_agent.runs.jobs import Job
from cdd_agent.untrusted.keys import VARIABLE

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

HERE = WorkerFacts(version="1", code="ab", python="Python 3.12.1", sandbox="bwrap", git="2.40", has_key=True)
REQUIREMENT = Requirement(here=HERE, sandbox="none", python="")
ECHO = "import sys; d = sys.argv[1]; open(d + '/result', 'wb').write(open(d + '/parcel', 'rb').read()[::-1])"
SOON_S = 10.0
PYTHON = (sys.executable, "-I", "-S", "-c")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalCluster]":
    """A scheduler and one worker with two threads, in this process."""
    distributed = pytest.importorskip("distributed")
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    folder = tmp_path_factory.mktemp("cluster")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        local_directory=str(folder),
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(scheduler: "LocalCluster") -> Iterator[Cluster]:
    here = msgspec.structs.replace(describe_machine(sandbox="none", python=""), has_key=False)
    requirement = Requirement(here=here, sandbox="none", python="")
    found = Cluster.connect(scheduler.scheduler_address, requirement=requirement, emit=lambda _: None)
    yield found
    found.close()


def job(folder: Path, number: int, parcel: bytes = b"") -> Job:
    return Job(number=number, folder=folder, arguments=(), log=folder / "logs" / f"{number}.log", parcel=parcel)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_parcel_goes_to_a_worker_and_another_one_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    jobs = ClusterJobs(cluster, program=(*PYTHON, f"{ECHO}; print('done')"))
    assert jobs.most == 2
    for number in (1, 2):
        assert jobs.has_room
        jobs.submit(job(tmp_path, number, b"parcel %d" % number))
    assert not jobs.has_room
    found = {result.job.number: (result.parcel, result.why) for result in jobs.as_completed()}
    assert found == {1: (b"1 lecrap", ""), 2: (b"2 lecrap", "")}
    assert (tmp_path / "logs" / "1.log").read_text() == "done\n"
    assert (jobs.running, list(jobs.as_completed())) == ((), [])


def test_each_job_has_a_result_whatever_ended_it(cluster: Cluster, tmp_path: Path) -> None:
    for code, why in (("raise SystemExit(4)", "ended with exit status 4."), ("import os; os.abort()", "by signal 6.")):
        jobs = ClusterJobs(cluster, program=(*PYTHON, code))
        jobs.submit(job(tmp_path, 1))
        (result,) = jobs.as_completed()
        assert result.why.startswith("Its process on tcp://")
        assert result.why.endswith(why)
    jobs = ClusterJobs(cluster, program=("/nowhere/program",))
    jobs.submit(job(tmp_path, 2))
    (result,) = jobs.as_completed()
    assert result.status == 4
    assert (tmp_path / "logs" / "2.log").read_text() == "No such file or directory: /nowhere/program\n"


def test_a_cancelled_job_leaves_no_process_and_no_result(cluster: Cluster, tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = f"import os, time; open({str(started)!r}, 'w').write(f'{{os.getpid()}}'); time.sleep(600)"
    jobs = ClusterJobs(cluster, program=(*PYTHON, code))
    jobs.submit(job(tmp_path, 1))
    wait_for(lambda: started.exists() and started.read_text() != "")
    jobs.cancel()
    assert (jobs.running, list(jobs.as_completed())) == ((), [])
    wait_for(lambda: not Path("/proc", started.read_text()).exists())


def test_a_job_sees_the_workers_environment_and_not_its_settings_for_cdd(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDD_REPLAY", "/elsewhere")
    monkeypatch.setenv(VARIABLE, "sk-ant-of-the-worker")
    code = (
        f"import os; e = os.environ; print(e[{VARIABLE!r}], 'CDD_REPLAY' in e, os.listdir(e['CDD_SLOTS'] + '/tests'))"
    )
    jobs = ClusterJobs(cluster, program=(*PYTHON, code))
    jobs.submit(job(tmp_path, 1))
    (result,) = jobs.as_completed()
    assert result.status == 0
    told = (tmp_path / "logs" / "1.log").read_text()
    assert told.startswith("(the key) False ")  # a program that prints the key sends it nowhere
    assert told.count(".lock") == 2


def test_a_process_that_is_not_the_one_that_was_checked_does_nothing(cluster: Cluster, tmp_path: Path) -> None:
    (place,) = cluster.workers
    known = cluster.workers[place]
    cluster.workers[place] = replace(known, id="Worker-of-before")
    try:
        jobs = ClusterJobs(cluster, program=(*PYTHON, "open('/dev/null')"))
        jobs.submit(job(tmp_path, 1))
        (result,) = jobs.as_completed()
    finally:
        cluster.workers[place] = known
    assert result.is_lost
    assert result.why.endswith("was lost with the worker.")


def test_workers_that_do_not_fit_are_named_before_the_first_job(scheduler: "LocalCluster") -> None:
    with pytest.raises(EnvironmentMissing) as refused:
        Cluster.connect(scheduler.scheduler_address, requirement=REQUIREMENT, emit=lambda _: None)
    told = f"{refused.value.happened}\n{refused.value.hint}"
    for words in ("tcp://", "and 1 here", "and Python 3.12.1 here", "sandbox: none, and bwrap here", "no key"):
        assert words in told
    assert f"set {VARIABLE} before dask worker starts" in told


def test_a_scheduler_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(EnvironmentMissing, match=f"{address} does not answer: .*refused") as refused:
            Cluster.connect(address, requirement=REQUIREMENT, emit=lambda _: None)
    assert refused.value.hint.startswith("start it: dask scheduler --port ")


@pytest.mark.parametrize(
    "address", ["", "host:1", "ucx://host:1", "tcp://host", "inproc://1", "tcp://a b:1", "tcp://h:1/x"]
)
def test_an_address_is_that_of_a_scheduler(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a scheduler"):
        check_address(address)
    for known in ("tcp://[::1]:9", "tls://localhost:9"):
        with pytest.raises(EnvironmentMissing, match="does not answer"):
            check_address(known)


def test_the_line_to_type_is_told_where_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentMissing) as missing:
        check_address("tcp://host:1")
    assert missing.value.hint.endswith("'distributed>=2026.8,<2027'")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, []),
        ({"version": "2"}, ["cdd 2, and 1 here"]),
        ({"code": "cd"}, ["cdd 1 with other code than here"]),
        ({"python": "Python 3.13.0"}, ["Python 3.13.0, and Python 3.12.1 here"]),
        ({"sandbox": "landlock"}, ["sandbox: landlock, and bwrap here"]),
        ({"git": ""}, ["git is missing"]),
        ({"git": "2.31"}, []),
        ({"has_key": False}, ["no key for the model"]),
        ({"version": "2", "has_key": False}, ["cdd 2, and 1 here", "no key for the model"]),
    ],
)
def test_what_differs_on_a_worker_is_listed(changes: dict[str, str | bool], what: list[str]) -> None:
    found = msgspec.structs.replace(HERE, **changes)
    assert [difference for difference, _ in list_differences(found, HERE)] == what


def test_a_recording_needs_no_key_on_a_worker() -> None:
    found, here = (msgspec.structs.replace(HERE, has_key=each) for each in (True, False))
    assert list(list_differences(found, here)) == list(list_differences(here, here)) == []


class PendingFuture:
    """A task whose worker never answers."""

    status = "pending"

    def done(self) -> bool:
        return False

    def add_done_callback(self, _: object) -> None:
        pass


@dataclass
class FakeClient:
    """dask's client in a cluster whose workers answer as the test says."""

    answers: dict[str, object]
    status: str = "running"
    asked: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    cancelled: int = 0

    def submit(self, *_: object, workers: list[str], **given: object) -> PendingFuture:
        self.sent += workers
        return PendingFuture()

    def cancel(self, futures: list[object]) -> None:
        self.cancelled += len(futures)

    def scheduler_info(self, *, n_workers: int) -> dict[str, object]:
        return {"workers": {name: {"local_directory": f"/of/{name}", "nthreads": 3} for name in self.answers}}

    def run(self, _: object, *, workers: list[str], on_error: str, **given: object) -> dict[str, object]:
        if len(workers) > 1 and any(isinstance(self.answers[each], TimeoutError) for each in workers):
            raise TimeoutError
        self.asked += workers
        return {each: self.answers[each] for each in workers}


def answer(**changes: str | bool) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(HERE, **{"id": "w", **changes}))


def test_workers_that_come_later_are_checked_before_they_get_a_job() -> None:
    seen: list[Event] = []
    fake = FakeClient({"tcp://a:1": answer()})
    cluster = Cluster("tcp://s:1", client=cast("Client", fake), requirement=REQUIREMENT, emit=seen.append)
    cluster.refresh()
    assert [worker.address for worker in cluster.workers.values()] == ["tcp://a:1"]
    fake.answers |= {
        "tcp://b:1": answer(code="cd"),
        "tcp://c:1": ModuleNotFoundError("No module named 'cdd_agent'"),
        "tcp://d:1": b"\xc1",
        "tcp://e:1": answer(),
        "tcp://f:1": TimeoutError("too late"),
    }
    for _ in range(2):
        cluster.refresh()
    assert [worker.address for worker in cluster.workers.values()] == ["tcp://a:1", "tcp://e:1"]
    assert sorted(fake.asked) == [f"tcp://{name}:1" for name in "abcdef"]
    told = [event.text for event in seen if isinstance(event, Notice)]
    assert [text.partition(" gets ")[0] for text in told] == [f"The worker tcp://{name}:1" for name in "bcdf"]
    assert "cdd 1 with other code than here" in told[0]
    assert "No module named 'cdd_agent'" in told[1]
    del fake.answers["tcp://a:1"]
    cluster.refresh()
    assert [worker.address for worker in cluster.workers.values()] == ["tcp://e:1"]


def test_the_job_of_a_worker_that_has_gone_is_lost(tmp_path: Path) -> None:
    fake = FakeClient({"tcp://a:1": answer()})
    cluster = Cluster("tcp://s:1", client=cast("Client", fake), requirement=REQUIREMENT, emit=lambda _: None)
    cluster.refresh()
    jobs = ClusterJobs(cluster)
    jobs.submit(job(tmp_path, 1))
    assert jobs.running == (1,)
    fake.answers = {"tcp://b:1": answer(id="other")}
    (result,) = jobs.as_completed()
    assert (result.is_lost, result.place, fake.cancelled) == (True, "tcp://a:1", 1)
    jobs.submit(job(tmp_path, 1))
    assert fake.sent == ["tcp://a:1", "tcp://b:1"]


def test_a_run_ends_when_the_scheduler_has_gone() -> None:
    fake = FakeClient({}, status="connecting")
    cluster = Cluster("tcp://s:1", client=cast("Client", fake), requirement=REQUIREMENT, emit=lambda _: None)
    with pytest.raises(EnvironmentMissing, match="The scheduler tcp://s:1 is gone") as gone:
        cluster.refresh()
    assert gone.value.hint == "start one: dask scheduler --port 1; then the same command continues"


def test_the_description_of_a_machine_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-ant-canary-0123456789abcdef")
    found = describe_machine(sandbox="none", python="")
    assert found.has_key
    assert b"canary" not in msgspec.msgpack.encode(found)
    assert describe_machine(sandbox="none", python="/nowhere/python").python.startswith("no interpreter at /nowhere/")
    assert os.environ[VARIABLE] != ""
