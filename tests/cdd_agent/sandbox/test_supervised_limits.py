import os
import resource

from cdd_agent.sandbox.port import Limits
from cdd_agent.sandbox.supervised import describe_limits, make_default_limits, to_rlimits


def test_the_standard_limits_grow_with_the_time_and_never_bite_before_it_is_up() -> None:
    cpu_s = make_default_limits(60).cpu_s
    assert cpu_s is not None
    assert cpu_s > 60 * (os.cpu_count() or 1)
    assert None not in (
        make_default_limits(1).memory_bytes,
        make_default_limits(1).file_bytes,
        make_default_limits(1).open_files,
    )


def test_no_core_file_is_written_and_what_is_not_limited_is_left_out() -> None:
    assert to_rlimits(Limits()) == [(resource.RLIMIT_CORE, 0)]
    assert (resource.RLIMIT_CPU, 3) in to_rlimits(Limits(cpu_s=3))


def test_the_processes_that_the_user_has_already_are_allowed_for() -> None:
    limits = dict(to_rlimits(Limits(processes=10)))
    assert limits[resource.RLIMIT_NPROC] >= 10


def test_root_is_not_told_of_a_limit_that_does_not_hold_for_it() -> None:
    told = list(describe_limits(Limits(processes=10, memory_bytes=1536, file_bytes=3 << 20), timeout_s=1.5))
    assert told[:3] == ["1.5 s", "1.5 KiB of memory a process", "3 MiB a file"]
    assert ("10 processes" in told) == (os.getuid() != 0)
    assert list(describe_limits(Limits(memory_bytes=12), timeout_s=1))[1] == "12 bytes of memory a process"
