"""The cost of a cluster for nodes in which nothing happens: a parcel goes out, a program starts and ends at once.

The bar is on the processor time of all processes, with the start of scheduler and workers. The wall time of a busy
machine says little, and on an idle one it is shorter, since several nodes run at a time.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cdd_agent.runs.cluster import Cluster, ClusterJobs, Requirement, describe_machine
from cdd_agent.runs.jobs import Job, JobPool, Jobs
from tests.bench.bars import Bars

BAR_MS = 20.0
_NODES, _WORKERS, _THREADS = 1_000, 2, 2
_PARCEL_BYTES = 100_000
_PROGRAM = ("/bin/true",)


def measure(jobs: JobPool, folder: Path, *, nodes: int) -> float:
    """Return the milliseconds of wall time that a node takes."""
    left, ended, parcel = list(range(nodes)), 0, os.urandom(_PARCEL_BYTES)
    began = time.monotonic()
    while ended < nodes:
        while left and jobs.has_room:
            jobs.submit(Job(number=left.pop(), folder=folder, arguments=(), log=folder / "log", parcel=parcel))
        result = next(iter(jobs.as_completed()))
        if result.why:
            raise SystemExit(f"node {result.job.number}: {result.why}")
        ended += 1
    return (time.monotonic() - began) / nodes * 1000


def _measure_cluster(folder: Path, report: Callable[[str], None]) -> float:
    from distributed import LocalCluster

    here = msgspec.structs.replace(describe_machine(sandbox="none", python=""), has_key=False)
    requirement = Requirement(here=here, sandbox="none", python="")
    with LocalCluster(
        n_workers=_WORKERS,
        threads_per_worker=_THREADS,
        protocol="tcp",
        dashboard_address=None,
        local_directory=str(folder),
        silence_logs=50,
    ) as local:
        cluster = Cluster.connect(local.scheduler_address, requirement=requirement, emit=lambda _: None)
        try:
            jobs = ClusterJobs(cluster, program=_PROGRAM)
            report(f"  {measure(jobs, folder, nodes=20):.1f} ms a node for the first 20")
            return measure(jobs, folder, nodes=_NODES)
        finally:
            cluster.close()


def show(folder: Path) -> bool:
    """Print the figures and the bar; return whether it is kept."""
    folder.mkdir()
    print(
        f"\ncluster: {_NODES:,} empty nodes, {_WORKERS} workers with {_THREADS} threads, {_PARCEL_BYTES:,} bytes each"
    )
    began = _read_cpu_ms()
    here = measure(Jobs(most=_WORKERS * _THREADS, program=_PROGRAM), folder, nodes=_NODES)
    between = _read_cpu_ms()
    there = _measure_cluster(folder, print)
    cpu_here, cpu_there = (between - began) / _NODES, (_read_cpu_ms() - between) / _NODES
    print(f"  wall time: processes here {here:.1f} ms a node, on workers {there:.1f} ms")
    print(f"  processor time: processes here {cpu_here:.1f} ms a node, on workers {cpu_there:.1f} ms")
    bars = Bars()
    bars.at_most("milliseconds of processor time that workers add to a node", cpu_there - cpu_here, limit=BAR_MS)
    return bars.are_kept


def _read_cpu_ms() -> float:
    """Return the processor time of this process and of those that have ended."""
    return sum(os.times()[:4]) * 1000
