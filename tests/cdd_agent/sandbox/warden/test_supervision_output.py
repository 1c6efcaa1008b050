from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.warden.supervision import OutputBuffer


@given(st.lists(st.binary(max_size=300)), st.integers(min_value=0, max_value=200))
def test_head_and_tail_are_kept_whatever_the_pieces(pieces: list[bytes], cap: int) -> None:
    ring, whole, half = OutputBuffer(cap), b"".join(pieces), cap // 2
    for piece in pieces:
        ring.feed(piece)
    if len(whole) <= 2 * half:
        assert ring.read() == (whole, b"", 0)
    else:
        assert ring.read() == (whole[:half], whole[len(whole) - half :], len(whole) - 2 * half)


def test_it_holds_little_more_than_it_keeps() -> None:
    ring = OutputBuffer(1_000)
    for _ in range(2_000):
        ring.feed(bytes(1_000))
    assert len(ring._head) + len(ring._tail) < 70_000
