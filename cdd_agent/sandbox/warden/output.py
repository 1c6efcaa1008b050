"""The output of a program whose end nobody knows, in little memory: its head and its tail."""


class Ring:
    """Keeps the first and the last bytes of what it is fed."""

    __slots__ = ("_half", "_head", "_tail", "_total")

    def __init__(self, cap: int) -> None:
        """``cap`` bytes are kept in all."""
        self._half = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half + 65_536:
            del self._tail[: -(self._half + 1)]

    def kept(self) -> tuple[bytes, bytes, int]:
        """Head and tail of what came, and how many bytes are missing between them; all of it is the head."""
        if self._total <= 2 * self._half:
            return bytes(self._head + self._tail), b"", 0
        tail = self._tail[-self._half :] if self._half else b""
        return bytes(self._head), bytes(tail), self._total - len(self._head) - len(tail)
