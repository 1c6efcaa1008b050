import os
import resource
from dataclasses import replace

from cdd_agent.sandbox.port import Limits
from cdd_agent.sandbox.supervised import describe_limits, make_default_limits, to_rlimits

LIMITS = Limits(memory_bytes=1536, cpu_s=3, file_bytes=3 << 20, open_files=9, processes=10)


def test_the_standard_limits_grow_with_the_time_and_never_bite_before_it_is_up() -> None:
    assert make_default_limits(60).cpu_s > 60 * (os.cpu_count() or 1)


def test_the_processes_that_the_user_has_already_are_allowed_for() -> None:
    limits = dict(to_rlimits(LIMITS))
    assert limits[resource.RLIMIT_CPU] == 3
    assert limits[resource.RLIMIT_NPROC] >= 10


def test_root_is_not_told_of_a_limit_that_does_not_hold_for_it() -> None:
    told = list(describe_limits(LIMITS, timeout_s=1.5))
    assert told[:2] == ["1.5 s", "1.5 KiB of memory a process"]
    assert "3 MiB a file" in told
    assert ("10 processes" in told) == (os.getuid() != 0)
    assert list(describe_limits(replace(LIMITS, memory_bytes=12), timeout_s=1))[1] == "12 bytes of memory a process"
