"""Numbers in messages are short and have a unit."""

from cdd_agent.errors import format_size


def test_sizes_are_short() -> None:
    assert [format_size(size) for size in (0, 999, 1_500, 99_499, 2_500_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "99 kB",
        "2.5 GB",
    ]
